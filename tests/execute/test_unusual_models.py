"""Models that are merely unusual run, or are refused in one line that names the model and what is not supported."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placewright.cli.main import run
from placewright.cluster_file import load_cluster
from placewright.costs.measure.sources import open_source
from placewright.errors import PlacewrightError
from placewright.execute.live import LiveModel, open_live
from placewright.execute.openvino_values import to_array, to_tensor
from placewright.execute.pipeline import run_pipeline

onnx = pytest.importorskip("onnx", reason="models are built with it")
helper, Type = onnx.helper, onnx.TensorProto
CLUSTER = load_cluster("cores:2")


def save(
    folder: Path, nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], weights: Sequence[Any] = ()
) -> str:
    graph = helper.make_graph(nodes, "unusual", inputs, outputs, list(weights))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("my.ops", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / "model.onnx")
    return str(folder / "model.onnx")


def value(name: str, kind: int, shape: Sequence[int | None]) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def bfloat16_product(folder: Path) -> str:
    """``relu(x @ w)``."""
    kind = Type.BFLOAT16
    bits = (np.linspace(-1, 1, 16, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    weight = helper.make_tensor("w", kind, [4, 4], bits.tobytes(), raw=True)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], name="mm"), helper.make_node("Relu", ["m"], ["y"], name="r")]
    return save(folder, nodes, [value("x", kind, [2, 4])], [value("y", kind, [2, 4])], [weight])


def cast(folder: Path, kind: int) -> str:
    """An input of an element type, converted at once."""
    nodes = [
        helper.make_node("Cast", ["x"], ["m"], to=Type.FLOAT, name="cast"),
        helper.make_node("Relu", ["m"], ["y"], name="relu"),
    ]
    return save(folder, nodes, [value("x", kind, [2, 4])], [value("y", Type.FLOAT, [2, 4])])


def outputs_on(live: LiveModel, devices: Sequence[str]) -> list[Any]:
    """Ops in turn on these devices."""
    names = live.graph.op_names
    executor = live.start({n: devices[i % len(devices)] for i, n in enumerate(names)}, CLUSTER, None)
    try:
        executor(live.inputs)
        return executor(live.inputs)
    finally:
        executor.close()


def outputs_in_stages(live: LiveModel, stage: dict[str, int]) -> list[Any]:
    devices = {name: f"core{s % 2}" for name, s in stage.items()}
    staged = live.staged(devices, stage, CLUSTER)
    return list(staged.outputs(run_pipeline(staged.stages(), [staged.bag(live.inputs)]).outputs[0]))


def refusal(make: Any) -> str:
    with pytest.raises(PlacewrightError) as caught:
        make()
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700
    return str(caught.value)


def test_bfloat16_runs_and_is_measured_in_openvino(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    path = bfloat16_product(tmp_path)
    live = open_live(path, "openvino")
    x = to_array(live.inputs[0])
    weight = np.linspace(-1, 1, 16).reshape(4, 4)
    expected = np.maximum(x @ weight, 0)
    halves = {name: int(name == "r" or "Result" in name or name == "y") for name in live.graph.op_names}
    for found in (outputs_on(live, ["core0"]), outputs_on(live, ["core0", "core1"]), outputs_in_stages(live, halves)):
        assert found[0].dtype == np.float32
        np.testing.assert_allclose(found[0], expected, rtol=0.02, atol=0.02)
    runner = open_source(path, "openvino").make_runner(CLUSTER.kinds[0])
    assert runner.whole_s() > 0


def test_bfloat16_rounds_to_nearest_and_back() -> None:
    ov = pytest.importorskip("openvino")
    values = np.array([1.0, 1.00390625, 1.01171875, -3.0, np.inf, np.nan, 1e-40], np.float32)
    back = to_array(to_tensor(values, ov.Type.bf16))
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(back, torch.from_numpy(values).bfloat16().float().numpy())


@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "FLOAT8E5M2", "INT4", "UINT4", "STRING", "COMPLEX64", "BFLOAT16"])
@pytest.mark.parametrize("runtime", ["openvino", "onnxruntime"])
def test_types_that_cannot_be_run_are_named(tmp_path: Path, kind: str, runtime: str) -> None:
    pytest.importorskip(runtime)
    if (kind, runtime) == ("BFLOAT16", "openvino"):
        pytest.skip("it runs")
    path = cast(tmp_path, getattr(Type, kind))
    text = refusal(lambda: open_live(path, runtime))
    if kind == "COMPLEX64" and runtime == "openvino":
        assert text.startswith(f"{path}: OpenVINO does not run it: Unsupported type; ")
    else:
        assert text.startswith(f"{path}: input 'x' has ")
        assert "let the model convert" in text


def test_a_scalar_stays_a_scalar_in_openvino(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    path = save(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], [value("x", 1, [])], [value("y", 1, [])])
    live = open_live(path, "openvino")
    assert outputs_on(live, ["core0"])[0].shape == ()
    assert outputs_in_stages(live, dict.fromkeys(live.graph.op_names, 0))[0].shape == ()


def test_tensors_of_open_shape_cross_between_segments_of_openvino(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("NonZero", ["r"], ["n"], name="where"),
        helper.make_node("Cast", ["n"], ["f"], to=Type.FLOAT, name="cast"),
        helper.make_node("Neg", ["f"], ["y"], name="neg"),
    ]
    live = open_live(save(tmp_path, nodes, [value("x", 1, [2, 4])], [value("y", 1, [2, None])]), "openvino")
    expected = -np.array(np.nonzero(live.inputs[0] > 0)).astype(np.float32)
    for devices in (["core0"], ["core0", "core1"]):
        np.testing.assert_array_equal(outputs_on(live, devices)[0], expected)


def test_an_op_that_no_runtime_knows_is_named(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Wonder", ["x"], ["m"], domain="my.ops", name="wonder"),
        helper.make_node("Relu", ["m"], ["y"]),
    ]
    path = save(tmp_path, nodes, [value("x", 1, [2])], [value("y", 1, [2])])
    text = refusal(lambda: open_live(path, "openvino"))
    assert text.startswith(
        f"{path}: OpenVINO does not run it: No conversion rule found for operations: my.ops.Wonder; "
    )
    text = refusal(lambda: open_source(path, "openvino"))
    assert text.startswith(
        f"{path}: OpenVINO does not measure it: No conversion rule found for operations: my.ops.Wonder"
    )
    live = open_live(path, "onnxruntime")
    text = refusal(lambda: outputs_on(live, ["core0"]))
    assert text.startswith(f"{path}: ONNX Runtime does not run it: my.ops:Wonder(-1) is not a registered function/op; ")
    assert text.endswith("--runtime openvino")


def test_an_op_that_fails_while_running_is_named(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    weight = helper.make_tensor("w", 1, [1], [1.0])
    nodes = [helper.make_node("Gather", ["w", "i"], ["y"], name="look_up")]
    path = save(tmp_path, nodes, [value("i", Type.INT64, [3])], [value("y", 1, [3])], [weight])
    live = open_live(path, "onnxruntime")
    for attempt in (
        lambda: outputs_on(live, ["core0"]),
        lambda: outputs_in_stages(live, dict.fromkeys(live.graph.op_names, 0)),
    ):
        with pytest.raises(PlacewrightError, match=r"look_up.*out of data bounds") as caught:
            attempt()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("runtime", ["openvino", "onnxruntime"])
def test_a_result_that_is_a_constant_is_named(tmp_path: Path, runtime: str) -> None:
    pytest.importorskip(runtime)
    weight = helper.make_tensor("w", 1, [2], [1.0, 2.0])
    results = [value("y", 1, [2]), value("w", 1, [2])]
    path = save(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], [value("x", 1, [2])], results, [weight])
    live = open_live(path, runtime)
    assert "a result of the model, 'w', is" in refusal(lambda: outputs_on(live, ["core0"]))


def test_the_command_line_refuses_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    path, placed = bfloat16_product(tmp_path), str(tmp_path / "placement.json")
    assert run(["place", path, "--cluster", "cores:2", "--placer", "single", "--quiet", "-o", placed]) == 0
    capfd.readouterr()
    assert run(["run", path, placed, "--runtime", "onnxruntime"]) == 2
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert line.startswith(f"placewright: {path}: input 'x' has type BFLOAT16")


# torch


def exported(folder: Path, forward: Any, *inputs: Any, **named: Any) -> str:
    torch = pytest.importorskip("torch")

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, *values: Any, **others: Any) -> Any:
            return forward(self, *values, **others)

    torch.manual_seed(0)
    torch.export.save(torch.export.export(Module().eval(), inputs, named), folder / "model.pt2")
    return str(folder / "model.pt2")


def assert_runs_as_exported(path: str) -> None:
    """The same in one piece, cut op by op, in stages, and as torch itself runs it; it can be measured, too."""
    import torch

    program = torch.export.load(path)
    given, named = program.example_inputs
    expected = list(torch.utils._pytree.tree_leaves(program.module()(*given, **named)))
    live = open_live(path, "torch")
    stage = {name: int(i >= live.graph.n_ops // 2) for i, name in enumerate(live.graph.op_names)}
    for found in (outputs_on(live, ["core0"]), outputs_on(live, ["core0", "core1"]), outputs_in_stages(live, stage)):
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs)
    runner = open_source(path, "torch").make_runner(CLUSTER.kinds[0])
    assert runner.whole_s() > 0


def test_programs_inside_programs_run_in_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    def forward(module: Any, x: Any) -> Any:
        chosen = torch.cond(x.sum() > 0, lambda v: module.linear(v).sin(), lambda v: v.cos(), (x,))
        with torch.autocast("cpu", torch.bfloat16):
            product = module.linear(chosen)
        return torch._higher_order_ops.map(lambda row: torch.relu(row) + 1, chosen) * product.float()

    assert_runs_as_exported(exported(tmp_path, forward, torch.ones(2, 4)))


def test_inputs_of_any_structure_run_in_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(2, 4)

    def forward(module: Any, pair: Any, times: Any, nothing: Any, *, last: Any) -> Any:
        return module.linear(pair["a"]) * times + pair["b"][0] - last if nothing is None else last

    assert_runs_as_exported(exported(tmp_path, forward, {"a": x, "b": [2 * x]}, 3, None, last=x / 2))


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float8_e4m3fn", "float64", "bool", "uint16"])
def test_unusual_types_run_in_torch(tmp_path: Path, kind: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(2, 4).to(getattr(torch, kind))
    assert_runs_as_exported(exported(tmp_path, lambda module, v: torch.relu(module.linear(v.float())) + 1, x))


def test_an_operator_of_another_package_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    path = Path(exported(tmp_path, lambda module, v: torch.relu(v), torch.ones(2)))
    renamed = tmp_path / "renamed.pt2"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(renamed, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name).replace(b"torch.ops.aten.relu", b"torch.ops.mine.relu"))
    capfd.readouterr()
    for attempt in (lambda: open_live(str(renamed), "torch"), lambda: open_source(str(renamed), "torch")):
        assert "calls 'torch.ops.mine.relu.default', an operator that torch does not know" in refusal(attempt)
    assert capfd.readouterr().err == ""


def test_a_model_without_ops_is_refused_in_stages(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    nodes = [helper.make_node("SequenceConstruct", ["x"], ["s"]), helper.make_node("SequenceAt", ["s", "i"], ["y"])]
    first = helper.make_tensor("i", Type.INT64, [], [0])
    live = open_live(save(tmp_path, nodes, [value("x", 1, [2])], [value("y", 1, [2])], [first]), "openvino")
    assert "computes nothing" in refusal(lambda: outputs_in_stages(live, dict.fromkeys(live.graph.op_names, 0)))


def test_a_program_without_ops_is_refused_in_stages(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    live = open_live(exported(tmp_path, lambda module, v: v, torch.ones(2)), "torch")
    assert "computes nothing" in refusal(lambda: outputs_in_stages(live, dict.fromkeys(live.graph.op_names, 0)))
