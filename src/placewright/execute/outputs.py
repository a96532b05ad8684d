"""How far outputs are apart, whichever runtime made them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class OutputError(NamedTuple):
    """How far one output is from the reference's; relative to the largest magnitude of that output."""

    name: str
    max_abs: float
    max_rel: float


def difference(ours: Any, reference: Any) -> OutputError:
    """Compare two arrays or tensors; what is not a number in one of them only is infinitely far off.

    >>> difference(np.array([1.0, 2.5]), np.array([1.0, 2.0])).max_rel
    0.25
    """
    left, right = _array(ours), _array(reference)
    if not np.array_equal(np.isfinite(left), np.isfinite(right)):
        return OutputError("", np.inf, np.inf)
    finite = np.isfinite(right)
    apart = float(np.abs(left[finite] - right[finite]).max(initial=0.0))
    scale = float(np.abs(right[finite]).max(initial=0.0))
    return OutputError("", apart, apart / scale if scale else apart)


def _array(value: Any) -> NDArray[np.float64]:
    if hasattr(value, "detach"):
        value = value.detach().to("cpu").double().numpy()
    return np.asarray(value, dtype=np.float64)
