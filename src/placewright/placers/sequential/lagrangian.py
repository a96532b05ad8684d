"""Lower bounds by prices: of memory (two devices), and of being placed exactly once (any number of devices)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from placewright import _core
from placewright.graph import BoolArray, FloatArray, IntArray
from placewright.placers.sequential.labelling import Energy, labelling_value
from placewright.placers.sequential.large_moves import Stop, two_way_cut
from placewright.placers.sequential.local_moves import used_bytes

MOST_PRICES = 60  # lines tried in the one-dimensional search; it ends by itself long before
PATIENCE = 8  # steps without a better bound before they get shorter
SHORTEST_STEP = 1e-3


def priced_cuts(
    energy: Energy, limit_bytes: FloatArray, should_stop: Stop, on_label: Callable[[IntArray, float], None]
) -> FloatArray:
    """Two devices: the prices of memory that give the best bound. ``on_label`` gets every cut and the bound so far.

    With a price, the optimum is a minimum cut. The bound is concave in the price, so lines through the cheapest cuts
    on both sides of the limit close in on its maximum.
    """
    free = two_way_cut(energy, 0, 1, should_stop=should_stop)
    bound = free.bound
    on_label(free.label, bound)
    over = used_bytes(energy, free.label) - limit_bytes
    prices = np.zeros(2)
    if (over <= 0).all() or should_stop():
        return prices
    full = int(over.argmax())
    limit = float(limit_bytes[full])
    low = (labelling_value(energy, free.label), limit + float(over[full]))
    can_leave = np.isfinite(energy.time_s[:, 1 - full])
    emptied = np.where(can_leave, 1 - full, full).astype(np.int32)
    high = (labelling_value(energy, emptied), float(used_bytes(energy, emptied)[full]))
    for _ in range(MOST_PRICES):
        if high[1] >= low[1] or should_stop():
            break
        price = max(0.0, (high[0] - low[0]) / (low[1] - high[1]))
        unary = energy.time_s.copy()
        unary[:, full] += price * energy.memory_bytes
        cut = two_way_cut(energy, 0, 1, unary, should_stop)
        if cut.bound - price * limit > bound:
            bound, prices[full] = cut.bound - price * limit, price
        on_label(cut.label, bound)
        point = (labelling_value(energy, cut.label), float(used_bytes(energy, cut.label)[full]))
        line = low[0] + price * low[1]
        if point[0] + price * point[1] >= line - 1e-12 * abs(line):
            break
        if point[1] > limit:
            low = point
        else:
            high = point
    return prices


def separable_copies(energy: Energy) -> tuple[FloatArray, FloatArray]:
    """(leaving [tensors, devices], entering [tensors, devices]): parts of copies that never add up to more.

    Copies through host memory are such sums as they are. Direct ones are split: the least that any sender pays for
    the receiver, and the least that is left over for the sender.
    """
    e, n = energy, energy.n_devices
    if n == 1:
        return np.zeros((len(e.home), 1)), np.zeros((len(e.home), 1))
    columns = np.where(e.direct >= 0, e.direct, e.from_host[None, :])
    arrival = e.copy_s[:, columns]  # [tensors, sender, receiver]
    arrival[:, np.arange(n), np.arange(n)] = np.inf
    entering = arrival.min(axis=1)
    single = arrival + np.where(e.direct >= 0, 0.0, e.copy_s[:, e.to_host][:, :, None])
    leaving = (single - entering[:, None, :]).min(axis=2)
    return np.maximum(leaving, 0.0), entering


class PlacedOnce:
    """Prices for being placed exactly once: each device then takes the units it likes, by a cut of its own."""

    def __init__(self, energy: Energy, limit_bytes: FloatArray) -> None:
        e = self.energy = energy
        self.limit = np.where(np.isfinite(limit_bytes), limit_bytes, 0.0)
        self.is_limited = np.isfinite(limit_bytes) & (limit_bytes < e.memory_bytes.sum())
        leaving, entering = separable_copies(e)
        self.shares = [
            _core.sequential.DeviceShare(e.core, leaving[:, d].copy(), entering[:, d].copy())
            for d in range(e.n_devices)
        ]
        # A unit that may not be on a device costs there what it could save in copies: no cut is better with it.
        unit = np.repeat(np.arange(e.n_units), np.diff(e.touch_ptr))
        saved = np.stack(
            [np.bincount(unit, (leaving + entering)[e.touch, d], e.n_units) for d in range(e.n_devices)], axis=1
        )
        self.cost_s = np.where(np.isfinite(e.time_s), e.time_s, saved + e.time_s.min(axis=1)[:, None])
        self.reward = e.time_s.min(axis=1)
        self.memory_price = np.zeros(e.n_devices)
        self.bound = float(self.reward.sum())

    def _taken(self, d: int, reward: FloatArray, price: float, should_stop: Stop) -> tuple[float, BoolArray]:
        """What the device's best set costs at these prices, and the set."""
        cost_s = self.cost_s[:, d] + price * self.energy.memory_bytes - reward
        taken = np.empty(self.energy.n_units, dtype=np.bool_)
        return self.shares[d].cheapest_set(cost_s, taken, should_stop), taken

    def ascend(self, steps: int, upper: float, should_stop: Stop, report: Callable[[float], None]) -> float:
        """Better the prices by subgradient steps towards ``upper``, a value that can be reached; every step is a bound.

        The direction is a running mean of subgradients: single ones turn back and forth.
        """
        e = self.energy
        reward, price = self.reward.copy(), self.memory_price.copy()
        unit_bytes = max(float(e.memory_bytes.sum()), 1.0) / e.n_units**0.5
        length, idle = 1.0, 0
        mean, mean_over = np.zeros(e.n_units), np.zeros(e.n_devices)
        for step in range(steps):
            if should_stop() or length < SHORTEST_STEP or self.bound >= upper * (1 - 1e-9):
                break
            total, taken = float(reward.sum() - price @ self.limit), np.zeros(e.n_units)
            over = -self.limit / unit_bytes
            for d in range(e.n_devices):
                least, wanted = self._taken(d, reward, price[d], should_stop)
                total += least
                taken += wanted
                over[d] += float(e.memory_bytes[wanted].sum()) / unit_bytes
            if total > self.bound:
                if total > self.bound * (1 + 1e-5):
                    idle = 0
                self.bound, self.reward, self.memory_price = total, reward.copy(), price.copy()
                report(total)
            else:
                idle += 1
            if idle >= PATIENCE:
                length, idle = length / 2, 0
                reward, price = self.reward.copy(), self.memory_price.copy()
                mean[:], mean_over[:] = 0.0, 0.0
            over[~self.is_limited] = 0.0
            keep = 0.7 if step else 0.0
            mean, mean_over = keep * mean + (1 - keep) * (1 - taken), keep * mean_over + (1 - keep) * over
            norm = float(mean @ mean + mean_over @ mean_over)
            if norm == 0.0:
                break  # everything taken exactly once, within the limits: the bound is met
            stride = length * max(upper - total, 1e-6 * abs(upper)) / norm
            reward = reward + stride * mean
            price = np.maximum(0.0, price + stride * mean_over / unit_bytes)
        return self.bound
