"""Model files that cannot be used as they are: exit code 2 and one line that says what to do."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exported_models import Exports, onnx_model
from placewright.cli.main import run
from placewright.errors import InputError
from placewright.frontends.registry import read_model
from placewright.frontends.torch_archive import load_program


def complaint(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code = run(["place", *map(str, arguments), "--placer", "single", "--json"])
    output = capsys.readouterr()
    assert (code, output.out, output.err.count("\n")) == (2, "", 1), output
    return output.err


def matmul_chain(n: int, first_dimension: Any = 2, *, named: bool = True) -> Any:
    """Products and activations, without any shapes in between."""
    from onnx import TensorProto, helper

    nodes, weights, last = [], [], "x"
    for i in range(n):
        weights.append(
            helper.make_tensor(f"w{i}", TensorProto.FLOAT, [8, 8], np.ones(64, np.float32).tobytes(), raw=True)
        )
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"], name=f"product{i}" if named else None))
        nodes.append(helper.make_node("Relu", [f"m{i}"], [f"r{i}"]))
        last = f"r{i}"
    value = helper.make_tensor_value_info
    inputs, outputs = [value("x", TensorProto.FLOAT, [first_dimension, 8])], [value(last, TensorProto.FLOAT, None)]
    return onnx_model(helper.make_graph(nodes, "chain", inputs, outputs, weights))


def save(model: Any, path: Path) -> Path:
    onnx = pytest.importorskip("onnx")
    onnx.save(model, path)
    return path


def test_ir_without_weights(conv_net: Exports, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(conv_net.xml, tmp_path / "alone.xml")
    text = complaint(capsys, tmp_path / "alone.xml")
    assert "alone.xml: its weights are missing: expected the file" in text
    assert "alone.bin" in text


def test_ir_with_short_weights(conv_net: Exports, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(conv_net.xml, tmp_path / "short.xml")
    (tmp_path / "short.bin").write_bytes(b"abc")
    assert "short.xml: OpenVINO cannot read this model: Incorrect weights" in complaint(capsys, tmp_path / "short.xml")


@pytest.mark.parametrize("suffix", [".xml", ".onnx", ".pt2"])
def test_missing_files_and_folders(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot be read: No such file" in complaint(capsys, tmp_path / f"missing{suffix}")
    (tmp_path / f"folder{suffix}").mkdir()
    assert "is a directory" in complaint(capsys, tmp_path / f"folder{suffix}")


def test_open_shapes_in_onnx(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(matmul_chain(2, "batch"), tmp_path / "open.onnx")
    text = complaint(capsys, path)
    assert "input 'x' has no fixed shape (?,8); pass it, for example --shape 'x=1,8'" in text
    assert run(["place", str(path), "--shape", "x=4,8", "--placer", "single"]) == 0
    graph = read_model(path, {"x": (4, 8)})
    assert graph.flops[graph.index_of["product1"]] == 2 * 4 * 8 * 8
    capsys.readouterr()
    assert "but the model has ?,8" in complaint(capsys, path, "--shape", "x=4,9")
    assert "names input 'y', but the model's inputs are: 'x'" in complaint(capsys, path, "--shape", "y=4,8")


def test_open_shapes_in_ir(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    openvino = pytest.importorskip("openvino")
    path = save(matmul_chain(2, "batch"), tmp_path / "open.onnx")
    openvino.save_model(openvino.Core().read_model(path), tmp_path / "open.xml")
    text = complaint(capsys, tmp_path / "open.xml")
    assert "input 'x' has no fixed shape (?,8); pass it, for example --shape 'x=1,8'" in text
    assert run(["place", str(tmp_path / "open.xml"), "--shape", "x=4,8", "--placer", "single"]) == 0
    capsys.readouterr()
    assert "does not take these shapes" in complaint(capsys, tmp_path / "open.xml", "--shape", "x=4,9")


def test_open_shapes_in_torch_follow_the_example_or_the_option(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    dynamic = {"input": {0: torch.export.Dim("batch")}}
    program = torch.export.export(torch.nn.Linear(8, 8), (torch.ones(3, 8),), dynamic_shapes=dynamic)
    torch.export.save(program, tmp_path / "open.pt2")
    for source in (program, tmp_path / "open.pt2"):
        for shapes, rows in (({}, 3), ({"input": (5, 8)}, 5)):
            graph = read_model(source, shapes)
            assert graph.flops[graph.index_of["linear"]] == rows * 8 * (2 * 8 + 1)
        with pytest.raises(InputError, match="--shape gives input 'input' 5,9"):
            read_model(source, {"input": (5, 9)})


@pytest.mark.parametrize("text", ["x", "=1,2", "x=1,a", "x=-1,2", "x=1;2"])
def test_shapes_that_are_none(text: str, conv_net: Exports, capsys: pytest.CaptureFixture[str]) -> None:
    assert "expected NAME=D1,D2" in complaint(capsys, conv_net.onnx, "--shape", text)


def test_shapes_are_not_for_published_problems(small_workload: Any, write_json: Any, capsys: Any) -> None:
    assert "for model files" in complaint(capsys, write_json(small_workload), "--shape", "x=1")
    assert "zoo:NAME?batch=8" in complaint(capsys, "zoo:chain", "--shape", "x=1")


def test_unknown_operators_are_kept_counted_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx")
    from onnx import helper

    model = matmul_chain(2)
    model.graph.node[1].CopyFrom(helper.make_node("Sparkle", ["m0"], ["r0"], domain="acme.ai", name="odd"))
    model.opset_import.append(helper.make_opsetid("acme.ai", 1))
    path = save(model, tmp_path / "odd.onnx")
    graph = read_model(path)
    assert graph.metadata["unknown_op_types"] == {"acme.ai.Sparkle": 1}
    odd = graph.index_of["odd"]
    assert (graph.op_classes[odd], graph.flops[odd]) == ("", 2 * 8)
    assert graph.tensor_shapes[-1] == (2, 8)  # what follows it is known all the same
    assert run(["place", str(path), "--placer", "single", "--json"]) == 0
    output = capsys.readouterr()
    assert output.err.count("\n") == 1
    assert "acme.ai.Sparkle x1" in output.err
    assert json.loads(output.out)["status"] in ("optimal", "feasible")


def test_unnamed_nodes_are_called_after_their_output(tmp_path: Path) -> None:
    graph = read_model(save(matmul_chain(2, named=False), tmp_path / "anonymous.onnx"))
    assert graph.op_names == ("x", "m0", "r0", "m1", "r1")


def test_names_of_nodes_and_values_may_collide(tmp_path: Path) -> None:
    model = matmul_chain(2)
    model.graph.node[0].name = "x"  # as the input
    model.graph.node[1].name = model.graph.node[2].name = "twin"
    model.graph.node[3].name = "m1"  # as another node's output
    graph = read_model(save(model, tmp_path / "collisions.onnx"))
    assert len(set(graph.op_names)) == 5
    assert {"x", "twin", "m1"} < set(graph.op_names)


def test_external_weights_are_never_opened(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = matmul_chain(3)
    onnx.save(model, tmp_path / "split.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    assert read_model(tmp_path / "split.onnx").weight_bytes.sum() == 3 * 64 * 4


def test_archives_that_would_run_code_do_not(tmp_path: Path) -> None:
    """torch.export.load unpickles example inputs, and weights that say so; here neither is looked at."""
    torch = pytest.importorskip("torch")
    program = torch.export.export(torch.nn.Linear(8, 8), (torch.ones(3, 8),))
    torch.export.save(program, tmp_path / "clean.pt2")
    trap = tmp_path / "sprung"

    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (trap,))

    with zipfile.ZipFile(tmp_path / "clean.pt2") as clean, zipfile.ZipFile(tmp_path / "trap.pt2", "w") as trapped:
        for name in clean.namelist():
            data = clean.read(name)
            if name.endswith("weights_config.json"):
                data = data.replace(b'"use_pickle": false', b'"use_pickle": true')
            is_data = "/weights/weight" in name or name.endswith(".pt")
            trapped.writestr(name, pickle.dumps(Trap()) if is_data else data)
    assert read_model(tmp_path / "trap.pt2").metadata == read_model(tmp_path / "clean.pt2").metadata
    assert load_program(tmp_path / "clean.pt2", "clean.pt2").module()(torch.ones(3, 8)).shape == (3, 8)
    with pytest.raises(InputError, match="torch does not load it"):
        load_program(tmp_path / "trap.pt2", "trap.pt2")
    assert not trap.exists()


def test_a_program_that_calls_anything_but_ops_is_not_run(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    program = torch.export.export(torch.nn.Linear(8, 8), (torch.ones(3, 8),))
    torch.export.save(program, tmp_path / "clean.pt2")
    with zipfile.ZipFile(tmp_path / "clean.pt2") as clean, zipfile.ZipFile(tmp_path / "trap.pt2", "w") as trapped:
        for name in clean.namelist():
            trapped.writestr(name, clean.read(name).replace(b"torch.ops.aten.linear.default", b"torch.os.system"))
    with pytest.raises(InputError, match=r"calls 'torch\.os\.system'"):
        load_program(tmp_path / "trap.pt2", "trap.pt2")


def test_size_expressions_are_not_evaluated(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    dynamic = {"input": {0: torch.export.Dim("batch")}}
    program = torch.export.export(torch.nn.Linear(8, 8), (torch.ones(3, 8),), dynamic_shapes=dynamic)
    torch.export.save(program, tmp_path / "clean.pt2")
    trap = tmp_path / "sprung"
    code = f"__import__('pathlib').Path({str(trap)!r}).touch() or 3"
    with zipfile.ZipFile(tmp_path / "clean.pt2") as clean, zipfile.ZipFile(tmp_path / "trap.pt2", "w") as trapped:
        for name in clean.namelist():
            document = clean.read(name)
            if "/models/" in name:
                plain = json.loads(document)
                for meta in plain["graph_module"]["graph"]["tensor_values"].values():
                    for size in meta["sizes"]:
                        if "as_expr" in size:
                            size["as_expr"]["expr_str"] = code
                document = json.dumps(plain).encode()
            trapped.writestr(name, document)
    assert read_model(tmp_path / "trap.pt2").n_ops == read_model(tmp_path / "clean.pt2").n_ops
    with pytest.raises(InputError, match="has open sizes"):
        load_program(tmp_path / "trap.pt2", "trap.pt2")
    assert not trap.exists()


def test_an_archive_of_another_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "future.pt2", "w") as archive:
        archive.writestr("future/models/model.json", json.dumps({"schema_version": {"major": 99, "minor": 0}}))
    assert "schema 99, expected 8" in complaint(capsys, tmp_path / "future.pt2")
    with zipfile.ZipFile(tmp_path / "none.pt2", "w") as archive:
        archive.writestr("none/version", "1")
    assert "holds 0 exported programs" in complaint(capsys, tmp_path / "none.pt2")


def test_strange_objects_and_files(tmp_path: Path) -> None:
    (tmp_path / "model.h5").write_bytes(b"x")
    with pytest.raises(InputError, match=r"expected one of \.xml, \.onnx, \.pt2"):
        read_model(tmp_path / "model.h5")
    with pytest.raises(InputError, match="not a model"):
        read_model(object())


def test_reading_onnx_and_pt2_needs_neither_torch_nor_openvino(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    path = save(matmul_chain(3), tmp_path / "chain.onnx")
    code = (
        "import sys; from placewright.frontends.registry import read_model; "
        f"read_model({str(path)!r}); print(sorted({{'torch', 'openvino'}} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
