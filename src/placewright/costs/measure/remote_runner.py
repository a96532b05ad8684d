"""Measuring in a process of its own, for kinds of device that run with fewer instructions than the processor has."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from placewright.cluster import DeviceKind
from placewright.execute.child import Child, parent_connection
from placewright.graph import FloatArray


class RemoteRunner:
    """A runner in a child process, which opens the model anew."""

    def __init__(self, model: str, runtime: str, shapes: Mapping[str, tuple[int, ...]], kind: DeviceKind) -> None:
        self._child = Child(__name__, kind.name, kind.instruction_set)
        here = replace(kind, instruction_set="")
        self.setting, self.groups = self._child.ask("open", model, runtime, dict(shapes), here)

    def whole_s(self) -> float:
        return float(self._child.ask("whole"))

    def op_times_s(self) -> tuple[FloatArray, float]:
        times, unattributed_s = self._child.ask("ops")
        return times, float(unattributed_s)


def main(connection: Any) -> None:  # pragma: no cover - runs in the child process
    """Serve until the other end is closed."""
    from placewright.costs.measure.sources import open_source
    from placewright.errors import PlacewrightError

    runner: Any = None
    with contextlib.suppress(EOFError, OSError):
        while True:
            what, *rest = connection.recv()
            try:
                if what == "open":
                    model, runtime, shapes, kind = rest
                    runner = open_source(model, runtime, shapes).make_runner(kind)
                    answer: Any = (runner.setting, runner.groups)
                else:
                    answer = runner.whole_s() if what == "whole" else runner.op_times_s()
            except (PlacewrightError, RuntimeError, ValueError) as error:
                connection.send((False, str(error)))
                continue
            connection.send((True, answer))


if __name__ == "__main__":
    main(parent_connection())
