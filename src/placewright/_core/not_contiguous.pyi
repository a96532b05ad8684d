"""Pipelines without contiguity: pricing and implications."""

from collections.abc import Callable

import numpy
import numpy.typing


class Frontiers:
    """All reachable frontiers of a pricing problem."""

    def __init__(self, order: numpy.typing.NDArray[numpy.int32], ptr: numpy.typing.NDArray[numpy.int64], child: numpy.typing.NDArray[numpy.int32], cost: numpy.typing.NDArray[numpy.float64]) -> None: ...

    def best_completions(self, time_s: numpy.typing.NDArray[numpy.float64], price: numpy.typing.NDArray[numpy.float64], multiplier: float, best: numpy.typing.NDArray[numpy.float64]) -> float:
        """
        Write the largest (price - multiplier * load) to be had from every state; return the first one's.
        """

    def best_set(self, time_s: numpy.typing.NDArray[numpy.float64], price: numpy.typing.NDArray[numpy.float64], multipliers: numpy.typing.NDArray[numpy.float64], completions: numpy.typing.NDArray[numpy.float64], load_limit: float, floor: float, blur: float, most_labels: int, member: numpy.typing.NDArray[numpy.bool_], should_stop: Callable[[], bool] | None) -> tuple[bool, float, float]:
        """Write the best set to member; return (complete, bound, worth)."""

class PairFacts:
    """Asks a flow network what a unit on a device forces."""

    def __init__(self, ptr: numpy.typing.NDArray[numpy.int32], head: numpy.typing.NDArray[numpy.int32], reverse: numpy.typing.NDArray[numpy.int32], capacity: numpy.typing.NDArray[numpy.float64], sink: int) -> None: ...

    def ask(self, unit: int, others: numpy.typing.NDArray[numpy.int32], limit: float, forced: numpy.typing.NDArray[numpy.bool_]) -> float:
        """
        Return the least load with a unit; write whether leaving out each other unit exceeds the limit.
        """
