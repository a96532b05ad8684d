"""What ``place`` wrote is opened in one way: every verb judges it by the rules that it was made under."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placewright.saved
from placewright import Placement, load, open_placement
from placewright.cli import evaluate, place
from placewright.cli.main import run
from placewright.costs.roofline import roofline_profile
from placewright.placement import checked_placement
from placewright.problems import SAVED_OPTIONS, Problem
from placewright.profile_file import write_profile

ZOO = ["zoo:fork-join?blocks=2", "--cluster", "p100x2"]
TRAINING = ["zoo:chain?ops=12&training=1", "--cluster", "p100x2", "--objective", "throughput", "--placer", "topo"]
PIPELINE = [*ZOO, "--objective", "throughput"]
CHECKPOINT = ["hf:tiny", "--placer", "topo"]

# One command for every option of `place` that changes the problem.
COMMANDS: dict[str, list[str]] = {
    "cluster": [ZOO[0], "--cluster", "box.toml", "--placer", "heft"],
    "shape": ["open.onnx", "--shape", "x=4,8", "--placer", "heft"],
    "phase": [*CHECKPOINT, "--phase", "prefill:1,decode:20"],
    "tokens": [*CHECKPOINT, "--tokens", "9"],
    "memory": [*CHECKPOINT, "--memory", "cpu=1GiB"],
    "profile": [*ZOO, "--profile", "times.json", "--placer", "heft"],
    "objective": [*PIPELINE, "--placer", "topo"],
    "execution": [*ZOO, "--execution", "sequential", "--placer", "topo"],
    "pin": [*ZOO, "--pin", "convolution_4=gpu1", "--placer", "heft"],
    "forbid": [*ZOO, "--forbid", "convolution=gpu0", "--placer", "heft"],
    "together": [*ZOO, "--together", "convolution", "--placer", "heft"],
    "constraints": [*ZOO, "--constraints", "rules.toml", "--pin", "relu_1=gpu0", "--placer", "topo"],
    "max_segments": [*ZOO, "--max-segments", "3", "--placer", "topo"],
    "contiguous": [*PIPELINE, "--no-contiguous", "--placer", "random", "--evaluations", "64"],
    "schedule": [*TRAINING, "--schedule", "gpipe"],
    "communication": [*PIPELINE, "--communication", "overlapped", "--placer", "topo"],
    # Replicas are the only way to share the one op with work.
    "replicas": ["zoo:chain?ops=2", *PIPELINE[1:], "--replicas", "2", "--placer", "dp"],
}
# Options of `place` that say how to search and what to write.
OF_THE_SEARCH = {
    "model", "placer", "budget", "evaluations", "seed", "split", "policy", "variant", "zero_shot", "measure", "memo",
    "output", "as_json", "quiet",
}  # fmt: skip
BOX = """
[[device]]
kind = "gpu"
count = 2
memory = "1GiB"
flops = 9e12
memory_bandwidth = "700GB/s"
[[device]]
kind = "cpu"
host = true
flops = 5e11
memory_bandwidth = "20GB/s"
[[link]]
from = "gpu*"
to = "host"
bandwidth = "12GB/s"
"""
RULES = """
max_segments = 5
memory_margin = "60%"
[[pin]]
names = ["softmax_0"]
device = "gpu1"
[[together]]
ops = "add"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the files that the commands name."""
    monkeypatch.chdir(tmp_path)
    Path("box.toml").write_text(BOX)
    Path("rules.toml").write_text(RULES)
    problem = load(ZOO[0], cluster="p100x2")
    profile = roofline_profile(problem.graph, problem.cluster)
    write_profile(replace(profile, time_s=1.25 * profile.time_s), "times.json")
    return tmp_path


def placed(arguments: list[str], file: str = "p.json") -> dict[str, Any]:
    assert run(["place", *arguments, "--budget", "60s", "--quiet", "-o", file]) == 0
    document = json.loads(Path(file).read_text())
    assert isinstance(document, dict)
    return document


def judged(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["evaluate", *arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def codes(document: dict[str, Any]) -> set[str]:
    return {fault["code"] for fault in document["faults"]}


def make_open_model() -> None:
    onnx = pytest.importorskip("onnx")
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"]), onnx.helper.make_node("Relu", ["y"], ["z"])]
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["batch", 8]) for n in ("x", "z")]
    weights = onnx.numpy_helper.from_array(np.ones((8, 8), dtype=np.float32), "w")
    graph = onnx.helper.make_graph(nodes, "open", ends[:1], ends[1:], [weights])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=opset), "open.onnx")


def make_checkpoint() -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_hidden_layers=2,
        num_key_value_heads=2, architectures=["LlamaForCausalLM"], dtype="float32",
    )  # fmt: skip
    config.save_pretrained("tiny")


@pytest.mark.parametrize("option", COMMANDS)
def test_every_verb_says_what_place_said(
    option: str, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = COMMANDS[option]
    {"open.onnx": make_open_model, "hf:tiny": make_checkpoint}.get(command[0], lambda: None)()
    document = placed(command)
    opened: list[Placement] = []

    def watched(*args: Any, **kwargs: Any) -> Placement:
        opened.append(open_placement(*args, **kwargs))
        return opened[-1]

    monkeypatch.setattr(placewright.saved, "open_placement", watched)
    result = judged([command[0], "p.json"], capsys)
    assert result["faults"] == []
    assert {k: result[k] for k in ("value", "bound", "status", "placer", "objective", "execution", "seed")} == {
        k: document[k] for k in ("value", "bound", "status", "placer", "objective", "execution", "seed")
    }
    assert run(["report", "p.json", "p.json", "-o", "page.html", "--quiet"]) == 0
    page = re.search(r'<script type="application/json" id="data">(.*?)</script>', Path("page.html").read_text(), re.S)
    assert page is not None
    shown = [contents["value"] for contents in json.loads(page[1])["placements"]]
    assert shown == pytest.approx([document["value"]] * 2, rel=1e-8)
    assert run(["diff", "p.json", "p.json", "--json"]) == 0
    changes = json.loads(capsys.readouterr().out)
    assert (changes["a"]["value"], changes["b"]["value"]) == (document["value"], document["value"])
    assert run(["export", "p.json", "--to", "csv", "-o", "p.csv", "--quiet"]) == 0
    assert len(opened) == 1 + 2 + 2 + 1  # nothing was opened in another way
    for placement in [*opened, open_placement("p.json")]:
        assert placement.faults == ()
        assert placement.value == document["value"]
        assert placement.bound == document["bound"]
        assert placement.problem.settings() == document["problem"]


@pytest.mark.parametrize("option", COMMANDS)
def test_the_option_is_in_the_file(option: str, home: Path) -> None:
    """Else the test above would hold for an option that nobody heeds."""
    command = COMMANDS[option]
    {"open.onnx": make_open_model, "hf:tiny": make_checkpoint}.get(command[0], lambda: None)()
    flag = next(w for w in command if w.removeprefix("--no-").lstrip("-").replace("-", "_") == option)
    where = command.index(flag)
    without = command[:where] + command[where + (1 if flag.startswith("--no-") else 2) :]
    if option == "shape":  # the model cannot be read without
        without += ["--shape", "x=1,8"]
    said, unsaid = placed(command), placed(without)
    parts = ("problem", "objective", "execution")
    assert [said[p] for p in parts] != [unsaid[p] for p in parts]


def test_no_option_of_place_is_forgotten() -> None:
    """A new option of `place` is either of the search, or has a command above and is an option of `evaluate`."""
    options = inspect.signature(place.place).parameters
    assert set(options) - OF_THE_SEARCH == set(COMMANDS)
    evaluates = inspect.signature(evaluate.evaluate).parameters
    for name in COMMANDS:
        assert evaluates[name].default is None, f"--{name}: not given has to mean as in the file"


def test_no_field_of_a_problem_is_forgotten() -> None:
    """A new field of a problem is either made of model, cluster, profile and goal, or it is saved."""
    made = {"graph", "cluster", "op_time_s", "memory_bytes", "tensor_copy_s", "sync_s", "permitted", "time_unit"}
    goal = {"objective", "execution", "origin"}
    assert {f.name for f in fields(Problem)} - made - goal == {*SAVED_OPTIONS, "rules"}
    known = {*inspect.signature(open_placement).parameters, "training", "optimizer"}
    assert set(inspect.signature(load).parameters) <= known


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--objective", "throughput", "--placer", "topo"],
        ["--objective", "throughput", "--no-contiguous", "--placer", "random", "--evaluations", "64"],
        ["--objective", "throughput", "--replicas", "2", "--placer", "dp"],
        ["--constraints", "few.toml", "--placer", "topo", "--objective", "throughput"],
        ["--execution", "overlap", "--forbid", "^b$=fpga1", "--placer", "heft"],
    ],
)
def test_published_problems(
    arguments: list[str],
    home: Path,
    small_workload: dict[str, Any],
    write_json: Callable[[Any, str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_json(small_workload, "w.json")
    Path("few.toml").write_text('max_segments = 4\n[memory_margin]\nfpga = "5%"\n')
    document = placed(["w.json", *(arguments or ["--placer", "calls-exact"])])
    for result in (judged(["w.json", "p.json"], capsys), open_placement("p.json").summary()):
        assert result["faults"] == []
        assert (result["value"], result["bound"]) == (document["value"], document["bound"])


def test_a_split_is_judged_by_what_is_given(
    home: Path,
    small_workload: dict[str, Any],
    write_json: Callable[[Any, str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_json(small_workload, "w.json")
    write_json({"fpgas": [{"nodes": [1, 3]}, {"nodes": [2, 5]}], "cpus": []}, "split.json")
    command = ["w.json", "split.json", "--objective", "throughput"]
    assert codes(judged(command, capsys)) == {"contiguity"}
    assert codes(judged([*command, "--no-contiguous"], capsys)) == set()
    assert open_placement("split.json", "w.json", objective="throughput", contiguous=False).is_valid


@pytest.mark.parametrize("model", ["parts/m.onnx", "{home}/parts/m.onnx"])
def test_a_placement_is_moved_together_with_its_model(
    model: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_open_model()
    Path("parts").mkdir()
    shutil.move("open.onnx", "parts/m.onnx")
    shutil.move("box.toml", "parts/box.toml")
    name = model.format(home=home)
    document = placed([name, "--cluster", "parts/box.toml", "--shape", "x=2,8", "--placer", "heft"])
    away = home / "away"
    away.mkdir()
    for file in ("parts/m.onnx", "parts/box.toml", "p.json"):
        shutil.move(file, away)
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert open_placement(away / "p.json").value == document["value"]
    assert judged([str(away / "m.onnx"), str(away / "p.json")], capsys)["value"] == document["value"]


def test_a_placement_is_run_with_the_shapes_it_was_made_for(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    make_open_model()
    placed(["open.onnx", "--shape", "x=3,8", "--cluster", "cores:1", "--placer", "single"])
    capsys.readouterr()
    assert run(["run", "open.onnx", "p.json", "--runtime", "onnxruntime", "--repeats", "2", "--quiet"]) == 0
    assert float(capsys.readouterr().out) > 0


def test_a_folder_with_the_name_of_a_preset_is_not_taken_for_it(home: Path) -> None:
    document = placed([*ZOO, "--placer", "heft"], "p.json")
    Path("runs/p100x2").mkdir(parents=True)
    shutil.move("p.json", "runs/p.json")
    assert open_placement("runs/p.json").value == document["value"]


def test_what_is_given_takes_the_place_of_what_the_file_says(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def faults(name: str, *given: str) -> set[str]:
        placed(COMMANDS[name])
        return codes(judged([COMMANDS[name][0], "p.json", *given], capsys))

    assert faults("max_segments", "--max-segments", "1") == {"segments"}
    assert faults("replicas", "--replicas", "1") == {"replicas"}
    assert faults("pin", "--pin", "convolution_4=gpu0") == {"ruled-out"}
    assert faults("pin", "--forbid", "convolution_4=gpu1") == {"ruled-out"}  # of the three kinds, one replaces all
    assert faults("constraints", "--max-segments", "1") == {"segments"}
    assert faults("constraints", "--pin", "softmax_0=gpu0") == {"ruled-out"}  # both rules at once could not be held
    Path("other.toml").write_text("max_segments = 1")
    assert faults("constraints", "--constraints", "other.toml") == {"segments"}


def test_stages_that_go_back_and_forth_are_judged_as_they_were_asked_for(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = load(ZOO[0], cluster="p100x2", objective="throughput", contiguous=False)
    before = checked_placement(problem, np.arange(problem.n_ops) % 2, placer="by hand")
    before.save("p.json")
    after = judged([ZOO[0], "p.json"], capsys)
    assert (after["value"], after["faults"]) == (before.value, [])
    assert codes(judged([ZOO[0], "p.json", "--contiguous"], capsys)) == {"contiguity"}


def test_margins_are_replaced_not_added(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = placed(COMMANDS["constraints"])
    again = judged([ZOO[0], "p.json", "--constraints", "rules.toml"], capsys)
    assert [d["memory_limit_bytes"] for d in again["devices"]] == [d["memory_limit_bytes"] for d in document["devices"]]
    Path("none.toml").write_text("")
    free = judged([ZOO[0], "p.json", "--constraints", "none.toml"], capsys)
    assert free["devices"][0]["memory_limit_bytes"] == 16 * 2**30


def test_a_goal_that_is_given_keeps_what_fits_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    placed(COMMANDS["execution"])
    assert judged([ZOO[0], "p.json", "--objective", "latency"], capsys)["execution"] == "sequential"
    assert judged([ZOO[0], "p.json", "--objective", "throughput"], capsys)["execution"] == "pipeline"
    assert judged([ZOO[0], "p.json", "--execution", "pipeline"], capsys)["objective"] == "throughput"


def test_a_bound_holds_only_for_the_problem_it_was_proven_for(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = placed([*ZOO, "--execution", "sequential", "--pin", ".=cpu", "--placer", "single"])
    assert document["status"] == "optimal"
    assert judged([ZOO[0], "p.json", "--pin", ".=cpu0"], capsys)["status"] == "optimal"
    freed = judged([ZOO[0], "p.json", "--pin", "relu_1=cpu"], capsys)
    assert freed["value"] == document["value"]
    assert freed["status"] == "feasible"
    assert freed["bound"] < 0.5 * document["value"]
    # The same with a bound that only the search knew.
    file = Path("p.json")
    file.write_text(json.dumps({**document, "problem": {**document["problem"], "options": {}}}))
    assert judged([ZOO[0], "p.json"], capsys)["bound"] == document["bound"]
    assert judged([ZOO[0], "p.json", "--max-segments", "9"], capsys)["bound"] < 0.5 * document["value"]
    assert open_placement("p.json", max_segments=9).bound < 0.5 * document["value"]


@pytest.mark.parametrize("dropped", ["options", "rules", "contiguous", "max_replicas", "shapes", "memory_margin_bytes"])
def test_files_of_older_versions_open(dropped: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = placed([*PIPELINE, "--placer", "topo"])
    for part in (document["problem"], document["problem"]["options"]):
        part.pop(dropped, None)
    Path("p.json").write_text(json.dumps(document))
    result = judged([ZOO[0], "p.json"], capsys)
    assert (result["value"], result["faults"]) == (document["value"], [])
    assert open_placement("p.json").value == document["value"]


def test_a_file_without_its_problem_is_judged_with_what_is_given(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = placed([*PIPELINE, "--placer", "topo"])
    del document["problem"]
    Path("p.json").write_text(json.dumps(document))
    assert judged([*ZOO[:1], "p.json", *ZOO[1:]], capsys)["value"] == document["value"]


def test_an_option_that_does_not_exist_is_an_error(home: Path) -> None:
    placed([*ZOO, "--placer", "single"])
    with pytest.raises(TypeError, match="max_segmnts"):
        open_placement("p.json", max_segmnts=3)
