"""What a file says about a learner, checked against the learner that it is for, before any of it is used.

Indices out of such a file reach compiled loops that look at no bounds, so each of them is looked at here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from placewright.documents import finite, kind_text
from placewright.errors import InputError
from placewright.graph import FloatArray, IntArray
from placewright.text import shown, shown_list

_MOST = 2**53  # of anything that is counted
_LARGEST_WEIGHT = 1e6


class Stored:
    """One object out of a checkpoint, and where it stands."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise InputError(f"{where}: is {_kind(data)}, expected an object")
        self.data, self.where = data, where

    def value(self, name: str) -> Any:
        """Whatever is there; it must be there."""
        if name not in self.data:
            raise InputError(f"{self.where}: field '{name}' is missing")
        return self.data[name]

    def part(self, name: str) -> Stored:
        """An object inside."""
        return Stored(self.value(name), f"{self.where}: {name}")

    def listed(self, name: str, fewest: int, most: int) -> list[Any]:
        """A list of so many entries."""
        value = self.value(name)
        if not isinstance(value, list) or not fewest <= len(value) <= most:
            expected = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            raise InputError(f"{self.where}: '{name}' is {_kind(value)}, expected a list of {expected} entries")
        return value

    def number(self, name: str) -> float:
        """A number that may be infinite, not below 0."""
        return any_number(self.value(name), f"{self.where}: '{name}'")

    def whole(self, name: str, most: int = _MOST) -> int:
        """A whole number from 0."""
        return whole_number(self.value(name), f"{self.where}: '{name}'", most)


def any_number(value: Any, where: str, least: float = 0.0) -> float:
    """A number that may be infinite."""
    number = math.inf if isinstance(value, float) and value == math.inf else finite(value)
    if number is None or number < least:
        raise InputError(f"{where} is {_kind(value)}, expected a number")
    return number


def whole_number(value: Any, where: str, most: int = _MOST) -> int:
    """A whole number from 0."""
    if type(value) is not int or not 0 <= value <= most:
        raise InputError(f"{where} is {_kind(value)}, expected a whole number from 0 to {most}")
    return value


def tensor(
    value: Any, where: str, dtype: torch.dtype, shape: tuple[int | None, ...], *, infinite: bool = False
) -> Tensor:
    """A tensor of that type and shape (``None``: any size), without NaN, and without infinities unless they may be."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.device.type != "cpu":
        raise InputError(f"{where} is {_kind(value)}, expected a tensor")
    fits = value.dim() == len(shape) and all(w in (None, n) for n, w in zip(value.shape, shape, strict=True))
    if value.dtype != dtype or not fits:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise InputError(f"{where} is {_kind(value)}, expected {str(dtype).removeprefix('torch.')} of shape ({wanted})")
    if value.is_floating_point() and bool(value.isnan().any() if infinite else (~value.isfinite()).any()):
        raise InputError(f"{where} holds numbers that are not finite")
    return value


def rows_of(value: Any, where: str, allowed: NDArray[np.bool_]) -> IntArray:
    """A device for each of [ops or groups, devices], one that may have it."""
    n, n_devices = allowed.shape
    row = tensor(value, where, torch.int32, (n,)).numpy()
    if n and not (row.min() >= 0 and row.max() < n_devices and allowed[np.arange(n), row].all()):
        raise InputError(f"{where} names devices that are not there, or do not take their ops")
    return row


def ranks_of(value: Any, where: str, n_ops: int) -> FloatArray | None:
    """Ranks of ops, or none."""
    return None if value is None else tensor(value, where, torch.float64, (n_ops,), infinite=True).numpy()


def random_state(value: Any, where: str) -> Tensor:
    """A state of torch's random numbers."""
    state = tensor(value, where, torch.uint8, (None,))
    try:
        torch.Generator().set_state(state)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"{where} is not a state of random numbers") from error
    return state


def check_weights(weights: Any, expected: dict[str, Tensor], where: str) -> None:
    """Refuse weights of other names, shapes or types than a network has, and numbers that no training leaves."""
    if not isinstance(weights, dict):
        raise InputError(f"{where}: is {_kind(weights)}, expected tensors by name")
    missing, more = [n for n in expected if n not in weights], [str(n) for n in weights if n not in expected]
    if missing or more:
        what = f"lacks {shown_list(missing, 3)}" if missing else f"has {shown_list(more, 3)}, which the network lacks"
        raise InputError(f"{where}: {what}")
    for name, own in expected.items():
        found = tensor(weights[name], f"{where}: '{shown(name)}'", own.dtype, tuple(own.shape))
        if found.numel() and float(found.abs().max()) > _LARGEST_WEIGHT:
            raise InputError(
                f"{where}: '{shown(name)}' holds numbers beyond {_LARGEST_WEIGHT:g}, which no training leaves"
            )


def restore_weights(network: nn.Module, weights: Any, where: str) -> None:
    """Load weights that fit."""
    check_weights(weights, network.state_dict(), where)
    network.load_state_dict(weights)


def restore_optimiser(optimiser: torch.optim.Optimizer, state: Any, where: str) -> None:
    """Load the state of an Adam that belongs to the same parameters."""
    own, found = optimiser.state_dict(), Stored(state, where)
    groups = found.listed("param_groups", len(own["param_groups"]), len(own["param_groups"]))
    for group, own_group in zip(groups, own["param_groups"], strict=True):
        rest = {name: value for name, value in Stored(group, f"{where}: param_groups").data.items() if name != "lr"}
        if rest != {name: value for name, value in own_group.items() if name != "lr"} or "lr" not in group:
            raise InputError(f"{where}: 'param_groups' is of another optimiser")
        if any_number(group["lr"], f"{where}: 'lr'") > 1e3:
            raise InputError(f"{where}: 'lr' is {_kind(group['lr'])}, expected at most 1000")
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for key, kept in found.part("state").data.items():
        number = whole_number(key, f"{where}: a key of 'state'", len(parameters) - 1)
        here, shape = Stored(kept, f"{where}: state {number}"), tuple(parameters[number].shape)
        if set(here.data) != {"step", "exp_avg", "exp_avg_sq"}:
            raise InputError(f"{here.where}: expected 'step', 'exp_avg' and 'exp_avg_sq'")
        step = tensor(here.value("step"), f"{here.where}: 'step'", torch.float32, ())
        if not 1 <= float(step) < 2**24:
            raise InputError(f"{here.where}: 'step' is {float(step):g}, expected a number of steps")
        tensor(here.value("exp_avg"), f"{here.where}: 'exp_avg'", parameters[number].dtype, shape)
        squares = tensor(here.value("exp_avg_sq"), f"{here.where}: 'exp_avg_sq'", parameters[number].dtype, shape)
        if bool((squares < 0).any()):
            raise InputError(f"{here.where}: 'exp_avg_sq' is negative in places")
    optimiser.load_state_dict(state)


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    return kind_text(value)
