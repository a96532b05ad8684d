"""
Placewright's hot loops, compiled ahead of time. Inputs are checked in Python; see core/README.md.
"""

from placewright._core import (
    calls as calls,
    learned as learned,
    overlap as overlap
)


def compiler() -> str:
    """What the core was compiled with."""

class Problem:
    """Views of a problem's arrays, which it keeps alive."""

    def __init__(self, arrays: dict[str, object]) -> None: ...

    @property
    def n_ops(self) -> int: ...

    @property
    def n_tensors(self) -> int: ...

    @property
    def n_devices(self) -> int: ...
