"""Small good files of every kind, and how each is read."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
KEPT = ROOT / "tests" / "formats"


class Reader(NamedTuple):
    """``kind`` is that of the mutator; ``modules`` are those whose lines are counted."""

    kind: str
    corpus: Callable[[Path], list[Path]]
    read: Callable[[Path], Any]
    modules: tuple[str, ...]
    fixed_name: str | None = None
    slowness: int = 1  # so many times fewer inputs

    def most(self, wanted: int) -> int:
        return max(1, wanted // self.slowness)


def kept(*names: str) -> Callable[[Path], list[Path]]:
    def copied(folder: Path) -> list[Path]:
        return [Path(shutil.copy(KEPT / name, folder / name)) for name in names]

    return copied


def clusters(folder: Path) -> list[Path]:
    presets = ROOT / "src" / "placewright" / "costs" / "presets"
    return [
        *kept("cluster-1.toml")(folder),
        *(Path(shutil.copy(f, folder / f.name)) for f in sorted(presets.glob("*.toml"))),
    ]


def constraints(folder: Path) -> list[Path]:
    text = (
        'max_segments = 6\nmemory_margin = "10%"\n[[pin]]\nops = "^relu"\ndevice = "gpu"\n'
        '[[forbid]]\nnames = ["softmax_0"]\ndevice = "gpu1"\n[[together]]\nops = "add|softmax"\n'
    )
    (folder / "wishes.toml").write_text(text)
    return [*kept("constraints-1.toml")(folder), folder / "wishes.toml"]


def placements(folder: Path) -> list[Path]:
    import placewright as pw
    from placewright.problems import Rule

    problem = pw.load("zoo:chain?ops=3", cluster="p100x2", rules=(Rule("forbid", "0$", "cpu"),))
    pw.place(problem, placer="topo").save(folder / "ruled.json")
    pw.place(pw.load("zoo:fork-join?blocks=1", cluster="p100x2", objective="throughput"), "topo").save(
        folder / "stages.json"
    )
    document = json.loads((folder / "ruled.json").read_text())
    document |= {"measured": {"measured_s": 1.0, "interval_s": [1, 2], "single_device": {"gpu0": 1.0}}}
    document |= {"curve": {"evaluations": [1, 2], "best": [1.0, 1.0], "mean": [1, 2]}, "priority": {"softmax_0": 1.0}}
    document["priority"] = dict.fromkeys(document["assignment"], 1.0)
    (folder / "full.json").write_text(json.dumps(document))
    return [*kept("placement-1.json")(folder), folder / "ruled.json", folder / "stages.json", folder / "full.json"]


def read_saved(file: Path) -> None:
    from placewright.reports.contents import report_contents
    from placewright.saved import open_placement

    placement = open_placement(file)
    json.dumps(report_contents([placement], ["one"]), allow_nan=False)


def workloads(folder: Path) -> list[Path]:
    from conftest import published_like

    for seed in (1, 2):
        (folder / f"problem{seed}.json").write_text(json.dumps(published_like(seed, 6)))
    return [folder / "problem1.json", folder / "problem2.json"]


def splits(folder: Path) -> list[Path]:
    import placewright as pw
    from placewright.frontends.split import write_split

    (file, _) = workloads(folder)
    problem = pw.load(str(file), objective="throughput")
    write_split(problem, pw.place(problem, "topo").device_of_op, folder / "split.json")
    file.rename(folder / "of_split.txt")
    return [folder / "split.json"]


def read_split(file: Path) -> None:
    import placewright as pw
    from placewright.frontends.workload import workload_problem

    problem = workload_problem(json.loads((file.parent / "of_split.txt").read_text()), "p").for_objective(
        "throughput", None
    )
    pw.read_placement(file, problem)


def profiles(folder: Path) -> list[Path]:
    shipped = sorted(
        (ROOT / "src" / "placewright" / "costs" / "profiles").rglob("*.json"), key=lambda f: f.stat().st_size
    )
    return [*kept("profile-1.json")(folder), *(Path(shutil.copy(f, folder / f.name)) for f in shipped[:1])]


def runs(folder: Path) -> list[Path]:
    figures = {"measured_s": 1.0, "interval_s": [0.9, 1.1], "runtime": "openvino", "predicted_s": 1.2}
    (folder / "run.json").write_text(
        json.dumps({**figures, "single_device": {"gpu0": {"measured_s": 2.0}, "cpu0": 3.0}})
    )
    return [folder / "run.json"]


def read_run(file: Path) -> None:
    from placewright.cli.report import _figures

    _figures(str(file))


def memos(folder: Path) -> list[Path]:
    from placewright.execute.memo import Measurement, Memo

    with Memo(folder / "memo.db", "here") as memo:
        for i in range(30):
            memo.add(f"p{i}", Measurement((1.0, 2.0), "" if i % 3 else "out of memory"))
            memo.keep_assignment(f"p{i}", {"a": "gpu0"})
    return [*kept("memo-1.db")(folder), folder / "memo.db"]


def read_memo(file: Path) -> None:
    from placewright.execute.memo import Measurement, Memo

    for beside in ("-wal", "-shm"):
        file.with_name(file.name + beside).unlink(missing_ok=True)
    with Memo(file, "here") as memo:
        for name in ("p", "p1", "p2", "p3"):
            memo.find(name)
        memo.assignments()
        len(memo)
        memo.add("new", Measurement((1.0,)))
        memo.keep_assignment("new", {"a": "x"})


def journals(folder: Path) -> list[Path]:
    from placewright.costs.measure.journal import Journal

    journal = Journal(folder / "j.partial", {"model": "m"})
    journal.add("setting gpu", [["torch", "cuda", 1, "f32", "torch 2"], [["softmax_0", "softmax_0"]]])
    journal.add("setting cpu", [["torch", "cpu", 1, "f32", "torch 2"], []])
    for _ in range(3):
        journal.add("passes gpu", [1.0, 0.1, 0.5, 0.4, 0.3])
        journal.add("passes cpu", [1.0, 0.1, 0.5, 0.4, 0.3])
    journal.add("curve gpu* - host", ["cuda", "host", 1024, 1e-5])
    journal.add("curve gpu* - host", ["cuda", "host", 1048576, 1e-3])
    return [folder / "j.partial"]


def read_journal(file: Path) -> None:
    from placewright.cluster_file import load_cluster
    from placewright.costs.measure.campaign import found_so_far
    from placewright.costs.measure.journal import Journal
    from placewright.zoo import zoo_graph

    journal = Journal(file, {"model": "m"}, resume=True)
    if not journal.found("passes gpu") and not journal.found("passes cpu"):
        return
    found_so_far(zoo_graph("chain?ops=3"), load_cluster("p100x2").kinds, journal, calibrate=True)


def onnx_models(folder: Path) -> list[Path]:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper

    from exported_models import branching_onnx

    onnx.save(branching_onnx(), folder / "branches.onnx")
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["again"]), helper.make_node("Add", ["s", "s"], ["t"])],
        "body",
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("s", TensorProto.FLOAT, [2, 8])],
        [value("again", TensorProto.BOOL, []), value("t", TensorProto.FLOAT, [2, 8])],
    )
    weights = [
        helper.make_tensor("w", TensorProto.FLOAT, [8, 8], np.ones(64)),
        helper.make_tensor("n", TensorProto.INT64, [], [3]),
        helper.make_tensor("c", TensorProto.BOOL, [], [True]),
        helper.make_tensor("k", TensorProto.FLOAT, [4, 2, 1, 1], np.ones(8)),
        helper.make_tensor("shape", TensorProto.INT64, [4], [1, 2, 1, 8]),
    ]
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Loop", ["n", "c", "m"], ["l"], body=body),
        helper.make_node("Twice", ["l"], ["f"], domain="own"),
        helper.make_node("Reshape", ["f", "shape"], ["r"]),
        helper.make_node("Conv", ["r", "k"], ["v"], kernel_shape=[1, 1], strides=[1, 1], pads=[0, 0, 0, 0]),
        helper.make_node("Einsum", ["x", "w"], ["e"], equation="ij,jk->ik"),
        helper.make_node("Softmax", ["e"], ["z"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, [2, 8])],
        [value("z", TensorProto.FLOAT, None), value("v", 1, None)],
        weights,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, functions=[twice]), folder / "loop.onnx")
    return [folder / "branches.onnx", folder / "loop.onnx"]


def ir_models(folder: Path) -> list[Path]:
    import openvino

    files = []
    for file in onnx_models(folder)[:1]:
        openvino.save_model(openvino.Core().read_model(file), file.with_suffix(".xml"), compress_to_fp16=False)
        files.append(file.with_suffix(".xml"))
    return files


def torch_models(folder: Path) -> list[Path]:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.linear(x)).reshape(-1, 2).sum(dim=1)

    torch.export.save(torch.export.export(Net().eval(), (torch.zeros(1, 4),)), folder / "net.pt2")
    return [folder / "net.pt2"]


def read_graph(file: Path) -> None:
    from placewright.frontends.registry import read_model

    read_model(file)


def read_onnx(file: Path) -> None:
    """With one process for shape inference, not one for each file, until it is ended."""
    from placewright.apart import Apart, Ended
    from placewright.frontends import onnx_shapes

    class Kept(Apart):
        def ask(self, question: bytes, limit_s: float) -> Any:
            try:
                return super().ask(question, limit_s)
            except Ended:
                _KEPT_PROCESS.clear()
                super().close()
                raise

        def close(self) -> None:
            pass

    def kept_process(script: Path) -> Apart:
        if not _KEPT_PROCESS:
            _KEPT_PROCESS.append(Kept(script))
        return _KEPT_PROCESS[0]

    onnx_shapes.Apart = kept_process  # type: ignore[assignment, misc]
    read_graph(file)


_KEPT_PROCESS: list[Any] = []
HF_SMALL = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 64}
HF_CONFIGS: list[dict[str, Any]] = [
    {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "intermediate_size": 64, "num_key_value_heads": 2,
     "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
     "tie_word_embeddings": False, "hidden_act": "silu", **HF_SMALL},
    {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 2,
     "n_positions": 64, "vocab_size": 64, "activation_function": "gelu_new"},
]  # fmt: skip


def checkpoint_folders(folder: Path) -> list[Path]:
    files = []
    for i, config in enumerate(HF_CONFIGS):
        (folder / f"good{i}").mkdir(exist_ok=True)
        files.append(folder / f"good{i}" / "config.json")
        files[-1].write_text(json.dumps(config))
    return files


def read_folder(file: Path) -> None:
    """In this process, where ``load`` would start one for each: the limits that it sets are those of the fuzzer."""
    from placewright.live.hf import problem_in_this_process

    problem_in_this_process(f"hf:{file.parent}?tokens=8")


def read_policy(file: Path) -> None:
    """Opened, and used for a step."""
    import placewright as pw
    from test_formats import problem_of_the_checkpoint

    pw.place(problem_of_the_checkpoint(), "hsdag", policy=str(file), budget=pw.Budget(seconds=5.0, evaluations=20))


def read_gdp_policy(file: Path) -> None:
    import placewright as pw
    from test_formats import problem_of_the_checkpoint

    budget = pw.Budget(seconds=5.0, evaluations=20)
    pw.place(problem_of_the_checkpoint(), "gdp", policy=str(file), zero_shot=True, budget=budget)


def gdp_policies(folder: Path) -> list[Path]:
    from placewright.placers.learned.gdp_school import GdpSchool
    from placewright.placers.learned.gdp_settings import settings_for
    from placewright.placers.learned.policy_file import save_policy
    from test_formats import problem_of_the_checkpoint

    settings = settings_for("ours", width=8, inner_width=8, heads=2, sage_layers=1)
    save_policy(folder / "gdp.safetensors", GdpSchool([problem_of_the_checkpoint()], settings, 60, 1).as_policy())
    return [folder / "gdp.safetensors"]


def training_states(folder: Path) -> list[Path]:
    """Some steps of a training."""
    from placewright.placers.learned.schooling import checkpoint_of
    from test_formats import school

    began = school()
    for _ in range(4):
        began.step()
    checkpoint = checkpoint_of(began, folder / "trained")
    checkpoint.save(began, now=True)
    return [checkpoint.path]


def read_training_state(file: Path) -> None:
    from placewright.budget import Budget
    from placewright.placers.learned.schooling import train
    from test_formats import school

    train(school(), file.with_suffix(""), Budget(seconds=0.1), resume=True)


def read_cluster(file: Path) -> None:
    from placewright.cluster_file import load_cluster

    load_cluster(str(file))


def read_wishes(file: Path) -> None:
    import placewright as pw

    problem = pw.load("zoo:chain?ops=3", cluster="p100x2")
    wished = pw.read_constraints(file).applied(problem)
    _ = wished.allowed, wished.group_of_op


def read_costs(file: Path) -> None:
    from placewright.profile_file import read_profile

    read_profile(file)


def read_problem(file: Path) -> None:
    import placewright as pw

    pw.load(str(file))


_DOCUMENTS = ("documents", "reading", "files")
_LEARNED = ("placers.learned.stored", "placers.learned.stored_settings", "placers.learned.policy_file")
_ONNX = ("frontends.onnx", "frontends.onnx_ops", "frontends.onnx_shapes")
READERS: dict[str, Reader] = {
    "cluster": Reader("toml", clusters, read_cluster, (*_DOCUMENTS, "cluster_file", "toml_fields")),
    "constraints": Reader("toml", constraints, read_wishes, (*_DOCUMENTS, "constraints", "toml_fields")),
    "placement": Reader("json", placements, read_saved, (*_DOCUMENTS, "saved", "placement"), slowness=2),
    "split": Reader("json", splits, read_split, (*_DOCUMENTS, "frontends.split")),
    "workload": Reader("json", workloads, read_problem, (*_DOCUMENTS, "frontends.workload")),
    "profile": Reader("json", profiles, read_costs, (*_DOCUMENTS, "profile_file", "profiles")),
    "run": Reader("json", runs, read_run, (*_DOCUMENTS, "cli.report")),
    "memo": Reader("sqlite", memos, read_memo, (*_DOCUMENTS, "execute.memo")),
    "journal": Reader("lines", journals, read_journal, (*_DOCUMENTS, "costs.measure.journal")),
    "onnx": Reader("onnx", onnx_models, read_onnx, _ONNX),
    "ir": Reader("xml", ir_models, read_graph, ("frontends.openvino", "frontends.openvino_ops")),
    "pt2": Reader("zip", torch_models, read_graph, ("frontends.torch_archive", "frontends.torch_program")),
    "hf": Reader(
        "json", checkpoint_folders, read_folder, ("live.hf", "live.config_limits"), "config.json", slowness=10
    ),
    "policy": Reader("safetensors", kept("policy-1.safetensors"), read_policy, _LEARNED, slowness=10),
    "gdp-policy": Reader("safetensors", gdp_policies, read_gdp_policy, _LEARNED, slowness=10),
    "checkpoint": Reader(
        "checkpoint", training_states, read_training_state, (*_LEARNED, "placers.learned.schooling"),
        "trained.checkpoint", slowness=10,
    ),
}  # fmt: skip
