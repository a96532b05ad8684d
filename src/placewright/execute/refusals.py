"""What a runtime will not do with a model: whatever its libraries raise becomes one line here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from placewright.errors import InputError
from placewright.execute.dataflow import ExecutionError
from placewright.execute.stages import Part, StagedModel
from placewright.extras import has_package
from placewright.frontends.base import one_line
from placewright.text import shown

_OTHERS = {".onnx": ("openvino", "onnxruntime"), "zoo:": ("openvino", "torch")}  # runtimes that read the same model
_CALLED = {"openvino": "OpenVINO", "openvino-hetero": "OpenVINO's HETERO", "onnxruntime": "ONNX Runtime"}


class Refusals:
    """Errors of one runtime about one model. What is an :class:`InputError` already says what is to be said."""

    def __init__(self, runtime: str, model: str) -> None:
        self._runtime = runtime
        self._model = model

    @contextlib.contextmanager
    def told(self, does: str = "run") -> Iterator[None]:
        """Turn any error of a library into an :class:`ExecutionError` that names model and runtime."""
        try:
            yield
        except (InputError, _Told):
            raise
        except Exception as error:
            name = _CALLED.get(self._runtime, self._runtime)
            where = shown(self._model, 200)
            raise _Told(f"{where}: {name} does not {does} it: {one_line(error, 300)}{self._next_step(does)}") from error

    def executor(self, start: Callable[[], Any]) -> Any:
        """What ``start`` returns, with the errors of its calls told in the same way."""
        with self.told():
            return _Guarded(start(), self)

    def staged(self, make: Callable[[], StagedModel]) -> StagedModel:
        """What ``make`` returns, with the errors of its parts told in the same way."""
        with self.told():
            staged = make()
        return staged._replace(parts=tuple(self._part(part) for part in staged.parts))

    def _part(self, part: Part) -> Part:
        def made() -> Callable[[list[Any]], list[Any]]:
            with self.told():
                work = part.make()

            def run(values: list[Any]) -> list[Any]:
                with self.told():
                    return work(values)

            return run

        return part._replace(make=made)

    def _next_step(self, does: str) -> str:
        kind = "zoo:" if self._model.startswith("zoo:") else Path(self._model).suffix.lower()
        others = [r for r in _OTHERS.get(kind, ()) if r != self._runtime.partition("-")[0] and has_package(r)]
        if others and does == "run":
            return f"; another runtime may: --runtime {others[0]}"
        return f"; 'place' needs nobody to {does} it"


class _Told(ExecutionError):
    """Has been through here; what is around it has nothing to add."""


class _Guarded:
    """An executor whose calls tell what goes wrong; in all else it is the one inside."""

    def __init__(self, inner: Any, refusals: Refusals) -> None:
        self._inner = inner
        self._refusals = refusals

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        with self._refusals.told():
            return list(self._inner(inputs))

    def close(self) -> None:
        self._inner.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
