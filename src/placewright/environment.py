"""A placement problem as a ``gymnasium.Env``, for learning code from elsewhere. Needs the extra ``learn``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placewright.errors import MissingExtraError
from placewright.evaluate import evaluate_many
from placewright.placers.base import single_device_values
from placewright.placers.units import movable_units
from placewright.problems import Problem

if TYPE_CHECKING:
    import gymnasium

    _Base = gymnasium.Env[dict[str, NDArray[Any]], np.int64]
else:
    try:
        from gymnasium import Env as _Base
    except ImportError as error:
        raise MissingExtraError("gymnasium", "learn") from error

NO_VALUE = 1000.0  # what stands for no value at all, in times of the best single device


class PlacementEnv(_Base):
    """Groups are placed one after another, in topological order; an action is the device of the next one.

    Groups not yet placed count as being on the best single device. An observation has the groups' times (shares of the
    best single device's whole time; 0 where not allowed), their devices, and which group is next. The reward is the
    saving of the step as a share of the best single device's time, so an episode's sum is the improvement over it.
    ``info["action_mask"]`` says which devices take the next group; another action changes nothing and costs
    ``forbidden_cost``. ``info["value"]`` and ``info["is_valid"]`` describe the placement as it is.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, problem: Problem, forbidden_cost: float = 0.1) -> None:
        from gymnasium import spaces

        self.problem, self.forbidden_cost = problem, forbidden_cost
        self._units = movable_units(problem)
        n_groups, n_devices = self._units.allowed.shape
        values = list(single_device_values(problem).values())
        best = int(np.argmin(values))
        first_allowed = self._units.allowed.argmax(axis=1)
        self._start = np.where(self._units.allowed[:, best], best, first_allowed).astype(np.int64)
        self._reference = float(evaluate_many(problem, self._start[None, self._units.unit_of_op]).value[0])
        shares = np.where(self._units.allowed, self._units.time_s, 0.0) / max(self._reference, 1e-300)
        self._times = shares.astype(np.float32)
        self._rows = self._start.copy()
        self._next, self._value, self._is_valid = 0, self._reference, True
        self.action_space = spaces.Discrete(n_devices)
        self.observation_space = spaces.Dict(  # type: ignore[assignment]
            {
                "time": spaces.Box(0.0, float(np.finfo(np.float32).max), (n_groups, n_devices), np.float32),
                "device": spaces.MultiDiscrete([n_devices] * n_groups),
                "next": spaces.Discrete(n_groups),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Begin with everything on the best single device."""
        super().reset(seed=seed)
        self._rows, self._next = self._start.copy(), 0
        self._judge()
        return self._observation(), self._info()

    def step(self, action: np.int64) -> tuple[dict[str, NDArray[Any]], float, bool, bool, dict[str, Any]]:
        """Place the next group."""
        before, cost = self._value, 0.0
        if self._units.allowed[self._next, int(action)]:
            self._rows[self._next] = int(action)
            self._judge()
        else:
            cost = self.forbidden_cost
        self._next += 1
        is_last = self._next == len(self._rows)
        reward = float((before - self._value) / self._reference) - cost
        self._next = min(self._next, len(self._rows) - 1)
        return self._observation(), reward, is_last, False, self._info()

    @property
    def device_of_op(self) -> NDArray[np.int32]:
        """The placement as it is now."""
        return self._rows[self._units.unit_of_op].astype(np.int32)

    def _judge(self) -> None:
        result = evaluate_many(self.problem, self.device_of_op[None])
        # Where calls wait in a circle there is no value: worse than anything, but finite for the learner's sake.
        self._value = float(result.value[0]) if np.isfinite(result.value[0]) else NO_VALUE * self._reference
        self._is_valid = bool(result.is_valid[0])

    def _observation(self) -> dict[str, NDArray[Any]]:
        return {"time": self._times.copy(), "device": self._rows.copy(), "next": np.int64(self._next)}  # type: ignore[dict-item]

    def _info(self) -> dict[str, Any]:
        mask = self._units.allowed[self._next].astype(np.int8)
        return {"action_mask": mask, "value": self._value, "is_valid": self._is_valid}
