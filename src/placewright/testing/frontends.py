"""``FrontendContract``: the law for frontends. Inherit it in a test module and say which frontend and model are meant.

class TestMyFrontend(FrontendContract):
    @pytest.fixture
    def case(self):
        return FrontendCase(MyFrontend(), path, live, names, constants, weight_bytes)
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placewright.errors import InputError
from placewright.frontends import onnx_shapes
from placewright.frontends.base import Frontend
from placewright.frontends.registry import find_frontend
from placewright.op_classes import OP_CLASSES

_MUTANTS = 60


@dataclass(frozen=True)
class FrontendCase:
    """One model: as a file, as the live object that the file holds, and what is known about it.

    ``names`` are the framework's own names of all its nodes, ``constants`` those of constants (none if the framework
    keeps them outside its graph), ``beside`` other files that belong to the model.
    """

    frontend: Frontend
    path: Path
    live: Any
    names: Set[str]
    constants: Set[str]
    weight_bytes: float
    beside: tuple[Path, ...] = ()


class FrontendContract:
    """What must hold for every frontend."""

    @pytest.fixture
    def case(self) -> FrontendCase:
        """Return the model under test."""
        raise NotImplementedError("a contract test needs a fixture 'case'")

    def test_ops_are_in_topological_order(self, case: FrontendCase) -> None:
        graph = case.frontend.read(case.path, {})
        assert (graph.edge_producer < graph.consumer_op).all()

    def test_ops_are_called_what_the_framework_calls_them(self, case: FrontendCase) -> None:
        graph = case.frontend.read(case.path, {})
        assert len(set(graph.op_names)) == graph.n_ops
        assert set(graph.op_names) == case.names

    def test_work_and_bytes_are_known(self, case: FrontendCase) -> None:
        graph = case.frontend.read(case.path, {})
        assert set(graph.op_classes) <= set(OP_CLASSES)
        assert graph.metadata["unknown_op_types"] == {}
        assert graph.flops.sum() > 0
        assert (graph.flops >= 0).all()
        assert (graph.tensor_bytes >= 0).all()
        sizes = [math.prod(shape) for shape in graph.tensor_shapes]
        assert (graph.tensor_bytes <= 16.0 * np.array(sizes)).all()

    def test_weights_are_all_there(self, case: FrontendCase) -> None:
        graph = case.frontend.read(case.path, {})
        assert graph.weight_bytes.sum() == case.weight_bytes

    def test_constants_are_tied_to_a_reader_and_cost_nothing(self, case: FrontendCase) -> None:
        graph = case.frontend.read(case.path, {})
        read_by: dict[int, set[int]] = {}
        for u, v in zip(graph.edge_producer.tolist(), graph.consumer_op.tolist(), strict=True):
            read_by.setdefault(u, set()).add(v)
        for name in case.constants:
            v = graph.index_of[name]
            assert (graph.op_classes[v], graph.flops[v], graph.weight_bytes[v]) == ("free", 0, 0)
            assert not graph.tensor_bytes[graph.tensor_ptr[v] : graph.tensor_ptr[v + 1]].any()
            classes = {int(graph.colocation[u]) for u in read_by.get(v, set())}
            assert not classes or int(graph.colocation[v]) in classes

    def test_the_same_model_has_the_same_fingerprint(self, case: FrontendCase) -> None:
        first, second = (case.frontend.read(case.path, {}).metadata for _ in range(2))
        assert first["fingerprint"] == second["fingerprint"]
        assert first["frontend"] == case.frontend.name

    def test_a_live_model_is_read_like_its_file_and_left_alone(self, case: FrontendCase) -> None:
        found = find_frontend(case.live)
        assert found is not None
        assert found.name == case.frontend.name
        from_file, live, again = (case.frontend.read(s, {}) for s in (case.path, case.live, case.live))
        assert live.metadata["fingerprint"] == again.metadata["fingerprint"] == from_file.metadata["fingerprint"]
        assert live.flops.tolist() == from_file.flops.tolist()
        assert live.weight_bytes.tolist() == from_file.weight_bytes.tolist()

    def test_shapes_of_unknown_inputs_are_refused(self, case: FrontendCase) -> None:
        with pytest.raises(InputError, match="no_such_input"):
            case.frontend.read(case.path, {"no_such_input": (1,)})

    def test_reading_runs_no_code(self, case: FrontendCase) -> None:
        case.frontend.read(case.path, {})  # imports of the framework happen here
        with _Watch() as watch:
            case.frontend.read(case.path, {})
        assert watch.seen == []

    def test_damaged_files_are_refused_in_one_line(self, case: FrontendCase, tmp_path: Path) -> None:
        data, rng = case.path.read_bytes(), random.Random(7)
        for path in case.beside:
            (tmp_path / path.name).write_bytes(path.read_bytes())
        complaints = []
        for i in range(_MUTANTS):
            broken = bytearray(data[: rng.randrange(len(data))] if i % 3 == 0 else data)
            for _ in range(0 if i % 3 == 0 else rng.randint(1, 30)):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            mutant = tmp_path / case.path.name
            mutant.write_bytes(broken)
            try:
                case.frontend.read(mutant, {})
            except InputError as error:
                complaints.append(str(error))
        assert len(complaints) >= _MUTANTS // 4
        assert all(case.path.name in text and "\n" not in text for text in complaints)

    @pytest.mark.parametrize("content", [b"", b"\x00" * 64, b"hello\n", b"<xml/>", b"PK\x03\x04"])
    def test_other_files_are_refused(self, case: FrontendCase, content: bytes, tmp_path: Path) -> None:
        stranger = tmp_path / f"stranger{case.path.suffix}"
        stranger.write_bytes(content)
        with pytest.raises(InputError, match="stranger"):
            case.frontend.read(stranger, {})


class _Watch:
    """Notes when code is run or made while it is active. Audit hooks stay for good, so there is one for all."""

    events = frozenset({"exec", "pickle.find_class", "subprocess.Popen", "os.system", "os.exec", "ctypes.dlopen"})
    active: list[_Watch] = []  # noqa: RUF012
    installed = False

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __enter__(self) -> _Watch:
        if not _Watch.installed:
            _Watch.installed = True
            sys.addaudithook(_noted)
        _Watch.active.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _Watch.active.remove(self)


def _noted(event: str, arguments: tuple[Any, ...]) -> None:
    if _Watch.active and event in _Watch.events and not _is_process_apart(event, arguments):
        for watch in _Watch.active:
            watch.seen.append(event)


def _is_process_apart(event: str, arguments: tuple[Any, ...]) -> bool:
    """A process of :mod:`placewright.apart` runs a file of the package, whatever the model is."""
    script = Path(onnx_shapes.__file__).with_name("onnx_apart.py")
    return event == "subprocess.Popen" and str(script) in arguments[1]
