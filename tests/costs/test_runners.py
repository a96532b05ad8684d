"""Real runs of tiny models in torch and OpenVINO, and the commands around them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placewright as pw
from placewright.cli.main import run
from placewright.cluster import DeviceKind
from placewright.frontends.openvino_conversion import convert_silently
from placewright.frontends.training import mirror_training
from placewright.graph import OpGraph
from placewright.profiles import Profile
from placewright.zoo.builder import Builder
from placewright.zoo.tape import Tape, tape_graph

ROOT = Path(__file__).resolve().parents[2]
CPU = DeviceKind("cpu", is_host=True, threads=1, precision="f32")


def tiny_tape() -> Tape:
    b = Builder("tiny")
    x = b.conv("stem.conv", b.input("x", (1, 3, 64, 64)), 16, 3, padding=1)
    x = b.relu("stem.relu", b.batch_norm("stem.bn", x))
    y = b.relu("left.relu", b.conv("left.conv", x, 16, 1))
    x = b.add("add", y, b.max_pool("right.pool", x, 3, 1, 1))
    x = b.global_pool("pool", x)
    return b.finish(b.linear("fc", b.reshape("flatten", x, 1, 16), 10))


def tiny_module(tape: Tape) -> tuple[Any, Any]:
    pytest.importorskip("torch")
    from placewright.zoo.module import tape_module

    return tape_module(tape)


def times_of_working_ops(runner: Any, graph: OpGraph) -> dict[str, float]:
    runner.whole_s()
    times, _ = runner.op_times_s()
    assert times.shape == (graph.n_ops,)
    assert (times >= 0).all()
    assert 0 < times.sum() < 10
    return {n: t for n, t, c in zip(graph.op_names, times, graph.op_classes, strict=True) if c != "free"}


def test_every_leaf_of_a_zoo_module_is_timed() -> None:
    tape = tiny_tape()
    module, inputs = tiny_module(tape)
    from placewright.costs.measure.torch_runner import ModuleRunner

    graph = tape_graph(tape)
    runner = ModuleRunner(module, inputs, graph, CPU)
    times = times_of_working_ops(runner, graph)
    assert all(t > 0 for t in times.values())
    assert runner.setting[:4] == ("torch", "cpu", 1, "f32")
    assert not any(m._forward_hooks for m in module.modules())  # the module is left as it was


def test_every_op_of_a_training_step_is_timed() -> None:
    pytest.importorskip("torch")
    from placewright.costs.measure.sources import zoo_torch_source

    for reference in (
        "resnet-50?image=64&training=1",  # convolutions, sums of gradients
        "rnnlm-2?steps=3&hidden=16&batch=2&vocabulary=20",  # shared weights, products of two activations
        "transformer-xl-2?segments=2&segment=8&hidden=16&inner=16&batch=2&vocabulary=20&heads=2&optimizer=momentum",
    ):
        source = zoo_torch_source(reference)
        assert source.graph.is_backward.any()
        runner = source.make_runner(CPU)
        assert runner.whole_s() > 0
        times, _ = runner.op_times_s()
        silent = [n for n, c, t in zip(source.graph.op_names, source.graph.op_classes, times, strict=True)
                  if t <= 0 and c != "free"]  # fmt: skip
        assert silent == []


def test_gradients_asked_for_one_by_one_are_those_of_the_whole() -> None:
    torch = pytest.importorskip("torch")
    from placewright.costs.measure import training_runner as training

    tape = tiny_tape()
    module, inputs = tiny_module(tape)
    graph = mirror_training(tape_graph(tape))
    runner = training.TrainingRunner(module, inputs, graph, CPU, training.tape_inputs(tape))
    records, result = runner._forward(training._Stopwatch(is_cuda=False))
    gradient = {"fc": torch.ones_like(result)}
    for name, leaf, arguments, output in reversed(records):
        wanted = runner._wanted(name, arguments)
        weights = list(leaf.parameters(recurse=False))
        found = torch.autograd.grad(output, wanted + weights, gradient[name], retain_graph=True)
        producers = sorted({p for p in runner.inputs_of[name] if p != "x"}, key=graph.index_of.__getitem__)
        for producer, part in zip(producers, found, strict=False):
            gradient[producer] = gradient.get(producer, 0) + part
        for weight, part in zip(weights, found[len(wanted) :], strict=True):
            weight.kept = part
    module.zero_grad()
    module(*inputs).sum().backward()
    for weight in module.parameters():
        torch.testing.assert_close(weight.kept, weight.grad)


def test_every_node_of_an_exported_program_is_timed(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module, inputs = tiny_module(tiny_tape())
    torch.export.save(torch.export.export(module, inputs), tmp_path / "tiny.pt2")
    from placewright.costs.measure.sources import open_source

    source = open_source(str(tmp_path / "tiny.pt2"), None)
    assert source.runtime == "torch"
    runner: Any = source.make_runner(CPU)
    times = times_of_working_ops(runner, source.graph)
    assert all(t > 0 for t in times.values())


def test_the_interpreter_computes_what_the_module_computes() -> None:
    torch = pytest.importorskip("torch")
    module, inputs = tiny_module(tiny_tape())
    program = torch.export.export(module, inputs)
    from placewright.costs.measure.torch_runner import ExportedRunner
    from placewright.frontends.registry import read_model

    runner = ExportedRunner(program, read_model(program), CPU)
    seen: list[Any] = []
    last = next(n for n in reversed(runner._nodes) if n.op == "call_function")
    target = last.target
    last.target = lambda *a, **k: seen.append(target(*a, **k)) or seen[-1]
    runner.whole_s()
    torch.testing.assert_close(seen[-1], module(*inputs))


def test_openvino_times_fused_groups_and_loses_nothing() -> None:
    pytest.importorskip("openvino")
    tape = tiny_tape()
    module, inputs = tiny_module(tape)
    from placewright.costs.measure.openvino_runner import OpenvinoRunner

    model = convert_silently(module, example_input=inputs)
    model.reshape([1, 3, 64, 64])
    graph = tape_graph(tape)
    runner = OpenvinoRunner(model, [x.numpy() for x in inputs], graph, CPU)
    groups = {frozenset(g) for g in runner.groups}
    assert any({"stem.conv", "stem.bn", "stem.relu"} <= g for g in groups)
    runner.whole_s()
    times, unattributed_s = runner.op_times_s()
    reported = sum(entry.real_time.total_seconds() for entry in runner._request.profiling_info)
    assert times.sum() == pytest.approx(reported)
    assert 0 <= unattributed_s <= reported
    assert times[graph.index_of["stem.conv"]] > 0  # the leader, although its name was lost in compiling
    assert times[graph.index_of["stem.bn"]] == times[graph.index_of["stem.relu"]] == 0
    in_groups = {name for group in groups for name in group}
    for name, seconds, op_class in zip(graph.op_names, times, graph.op_classes, strict=True):
        assert seconds > 0 or op_class == "free" or name in in_groups, name


def test_openvino_joins_layers_named_after_onnx_nodes_and_tensors(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    pytest.importorskip("onnx_ir")
    torch = pytest.importorskip("torch")
    module, inputs = tiny_module(tiny_tape())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(module, inputs, str(tmp_path / "tiny.onnx"), dynamo=False)
        except (ImportError, AttributeError) as error:
            pytest.skip(f"this torch writes no ONNX without further packages: {error}")
    from placewright.costs.measure.sources import open_source

    source = open_source(str(tmp_path / "tiny.onnx"), "openvino")
    runner: Any = source.make_runner(CPU)
    runner.whole_s()
    times, _ = runner.op_times_s()
    product = source.graph.op_classes.index("matmul")  # the last op: its layer is called after the model's output
    assert times[product] > 0


def test_a_profile_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    path, model = str(tmp_path / "p.json"), "zoo:resnet-50?image=32"
    assert run(["profile", model, "--cluster", "cores:2", "-o", path, "--repeats", "3", "--calibrate", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)["profiles"][0]
    m = summary["kinds"]["f32"]
    assert (m["threads"], m["repeats"], m["runtime"]) == (1, 3, "torch")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.json"]  # the side file is gone
    problem = pw.load(model, cluster="cores:2", profile=path)
    assert pw.place(problem, placer="single").value == pytest.approx(m["whole_s"], rel=1e-4)
    assert Profile.load(path).is_measured.all()
    assert summary["copies"]["core* - core*"]["bytes_per_s"] > 0


def test_an_openvino_profile_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ov = pytest.importorskip("openvino")
    module, inputs = tiny_module(tiny_tape())
    model = convert_silently(module, example_input=inputs)
    model.reshape([1, 3, 64, 64])
    xml, path = str(tmp_path / "tiny.xml"), str(tmp_path / "p.json")
    ov.save_model(model, xml)
    assert run(["profile", xml, "--cluster", "cores:1", "-o", path, "--repeats", "3"]) == 0
    assert "openvino" in capsys.readouterr().out
    profile = Profile.load(path)
    m = profile.measurements["f32"]
    assert m.sum_s == pytest.approx(np.nansum(profile.time_s), rel=1e-3)
    placement = pw.place(pw.load(xml, cluster="cores:1", profile=path), placer="single")
    assert placement.value == pytest.approx(m.sum_s, rel=1e-3)


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_keeps_what_is_measured_and_resume_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    path, side = tmp_path / "p.json", tmp_path / "p.json.partial"
    command = ["profile", "zoo:resnet-50?image=32", "--cluster", "cores:1", "-o", str(path)]
    process = subprocess.Popen([sys.executable, "-m", "placewright", *command, "--repeats", "100000"])
    try:
        while not (side.exists() and side.read_text().count("passes f32") >= 2):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
    done = Profile.load(path).measurements["f32"].repeats
    assert done >= 2
    assert side.exists()
    assert run([*command, "--resume", "--repeats", str(done + 1)]) == 0
    assert Profile.load(path).measurements["f32"].repeats == done + 1
    assert not side.exists()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["profile", "zoo:resnet-50?image=32", "--cluster", "p100x2", "-o", "{out}"], "torch sees no device 'cuda'"),
        (["profile", "zoo:chain", "--cluster", "cores:1", "-o", "{out}"], "without operators that could run"),
        (
            ["profile", "zoo:resnet-50?training=1", "--runtime", "openvino", "--cluster", "cores:1", "-o", "{out}"],
            "OpenVINO does not train",
        ),
        (
            ["profile", "zoo:resnet-50?training=1&image=32", "--cluster", "cores:1", "-o", "{out}"],
            "device kind 'f32': the model does not run there: Expected more than 1 value per channel",
        ),
        (["profile", "zoo:resnet-50", "-o", "{out}"], "needs one MODEL, --cluster and -o"),
        (["profile", "zoo:resnet-50", "--cluster", "cores:1", "-o", "{out}", "--kinds", "gpu"], "no kind 'gpu'"),
        (["profile", "zoo:resnet-50", "--cluster", "cores:1", "-o", "{out}", "--runtime", "tf"], "runtime 'tf'"),
        (["profile", "model.json", "--cluster", "cores:1", "-o", "{out}"], "cannot be run by openvino"),
        (["profile", "zoo:resnet-50", "--cluster", "cores:1", "-o", "{out}", "--shape", "x"], "--shape 'x'"),
        (["profile", "--list", "{out}"], "cannot be read"),
    ],
)  # fmt: skip
def test_bad_commands(arguments: list[str], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("openvino")
    import torch

    if "p100x2" in arguments and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert run([a.format(out=tmp_path / "p.json") for a in arguments]) == 2
    error = capsys.readouterr().err
    assert part in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["devices", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["host"]["cores"] >= 1
    assert set(found["runtimes"]) == {"openvino", "torch"}
    assert run(["devices"]) == 0
    assert found["host"]["name"][:10] in capsys.readouterr().out


WITHOUT = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None
"""


def test_devices_without_runtimes() -> None:
    code = WITHOUT.format(blocked=["openvino", "torch"]) + (
        "from placewright.costs import machine\n"
        "machine.importlib.util.find_spec = lambda name: None\n"
        "from placewright.cli.main import run\n"
        "sys.exit(run(['devices', '--json']))\n"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert [r["version"] for r in json.loads(output)["runtimes"].values()] == ["", ""]


def test_zoo_profiles_are_measured_with_little_installed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    blocked = ["openvino", "rich", "typer", "rustworkx", "onnx_ir", "onnxruntime", "highspy", "ortools", "mtkahypar"]
    code = WITHOUT.format(blocked=blocked) + (
        "import runpy\n"
        f"sys.argv = ['x', '--devices', 'cpu', '--models', 'resnet-50?image=32,nope', '--repeats', '2',\n"
        f"            '--output', {str(tmp_path)!r}]\n"
        f"runpy.run_path({str(ROOT / 'benchmarks' / 'measure_zoo_profiles.py')!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "failed: unknown model 'zoo:nope'" in done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["resnet-50_image=32.json"]
    profile = Profile.load(tmp_path / "resnet-50_image=32.json")
    assert profile.kinds == ("cpu",)
    assert (tmp_path / "resnet-50_image=32.json").stat().st_size < 100_000
