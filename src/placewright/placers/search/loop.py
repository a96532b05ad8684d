"""One chain of annealing steps, as a kernel that can be stopped and taken up again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from placewright.placers.judges.batch import judge_latency
from placewright.placers.judges.memory import may_exceed, resident_bytes
from placewright.placers.judges.sequential import find_segments
from placewright.placers.search.moves import (
    RANKS,
    Chain,
    Flow,
    find_critical,
    propose,
    ranks_from_placement,
    take_back,
    uniform,
)
from placewright.placers.search.state_calls import change, keep, undo
from placewright.placers.search.state_overlap import Engine, Log, last_checkpoint, run
from placewright.placers.search.view_calls import CallsEngine, critical_ops, rebuild
from placewright.placers.search.view_overlap import Loads, count_loads, priced_work, smooth_maxima
from placewright.problems import Arrays

OVERLAP, SEQUENTIAL, CALLS = range(3)
_EXCESS_WEIGHT, _ANY_EXCESS = 4.0, 0.02  # what memory beyond the limits adds to the score, in values
_EXACT_OPS = 100.0  # of so many ops all changes are judged exactly, of more a share
_SEGMENT_WEIGHT = 0.02  # the same for a segment too many


@njit(cache=True, nogil=True)
def penalised(a: Arrays, c: Chain, model: int, max_segments: int, value: float, scratch: Any) -> tuple[float, bool]:
    """Score and validity of the present placement; ``value`` is found for ``sequential`` and known for others."""
    n_ops = c.device.shape[0]
    found, excess = np.array([value]), np.zeros(1)
    known = model == CALLS
    if model != SEQUENTIAL:
        used = np.empty(a.device_kind.shape[0])
        resident_bytes(a.memory_bytes, c.device, used)
        if model == OVERLAP:
            known = not may_exceed(a, c.device, used)
        else:
            excess[0] = np.maximum(used - a.memory_limit_bytes, 0.0).sum()
    if not known:
        judge_latency(model, a, c.device.reshape(1, n_ops), c.rank.astype(np.float64).reshape(1, n_ops), found, excess)
    score = found[0]
    if excess[0] > 0.0:
        total = a.memory_bytes.sum() + a.live_bytes.sum()
        score += found[0] * (_ANY_EXCESS + _EXCESS_WEIGHT * excess[0] / total)
    is_valid = excess[0] == 0.0 and found[0] < np.inf
    if max_segments > 0:
        over = find_segments(a, c.device, scratch) - max_segments
        if over > 0:
            score += found[0] * _SEGMENT_WEIGHT * over
            is_valid = False
    return score, is_valid


@njit(cache=True, nogil=True)
def start_chain(
    a: Arrays, g: Flow, loads: Loads, e: Engine, log: Log, calls: CallsEngine, c: Chain, model: int,
    max_segments: int, strict: bool,
) -> None:  # fmt: skip
    """Score the present placement, loads apart, and leave its checkpoints."""
    valid = True
    score = 0.0
    if model == OVERLAP:
        score = run(a, e, log, c.device, c.rank, c.op_of_rank, -1, c.work_change_s, np.inf, True)
        find_critical(a, log, c)
    elif model == CALLS:
        score = rebuild(a, calls, c.device)
        valid = score < np.inf
        c.counts[2] = critical_ops(a, calls, c.critical)
    if strict or model == SEQUENTIAL:
        score, valid = penalised(a, c, model, max_segments, score, c.queue)
    count_loads(loads, g.time_s, c.device)
    c.values[0] = score
    c.values[2] = 0.0
    if valid and score < c.values[1]:
        c.values[1] = score
        c.best_device[:] = c.device
        c.best_rank[:] = c.rank


@njit(cache=True, nogil=True)
def _beside_value(busy_s: Any, price: Any, load_weight: float, work_weight: float) -> float:
    """What the score holds beside the value."""
    more = load_weight * smooth_maxima(busy_s) if load_weight > 0.0 else 0.0
    if work_weight > 0.0:
        more += work_weight * priced_work(busy_s, price)
    return more


@njit(cache=True, nogil=True)
def anneal(
    a: Arrays, g: Flow, loads: Loads, e: Engine, log: Log, calls: CallsEngine, c: Chain, model: int,
    max_segments: int, strict: bool, loads_only: bool, weights: Any, load_weight: float, work_weight: float,
    steps: int, first_temperature: float, last_temperature: float, deltas: Any,
) -> int:  # fmt: skip
    """Take ``steps`` steps while the temperature falls; return how many evaluations they took.

    The score is the value, ``load_weight`` times the smooth maxima of the loads, and ``work_weight`` times all work at
    its price. With ``loads_only`` the value
    counts as zero, and nothing is simulated; start the chain again before it goes on otherwise.

    With room in ``deltas`` nothing is accepted, and the changes of the score are written there instead.
    """
    sampling = deltas.shape[0] > 0
    n_sampled, evaluations = 0, 0
    free_ops = model == CALLS and g.time_s.min() == 0.0
    all_exact = not a.is_host.any()  # where all ops are in calls most change with every move
    total_weight = weights.sum()
    if model == CALLS and rebuild(a, calls, c.device) == np.inf:
        c.values[0] = np.inf
    weighted = _beside_value(loads.busy_s, c.price, load_weight, work_weight)
    c.values[0] = weighted if loads_only else c.values[0] + weighted - c.values[2]
    c.values[2] = weighted
    for step in range(steps):
        pick = uniform(c.random) * total_weight
        kind = 0
        while kind < weights.shape[0] - 1 and pick >= weights[kind]:
            pick -= weights[kind]
            kind += 1
        c.counts[0] = 0
        c.counts[1] = 0
        c.first_change[0] = c.device.shape[0]
        c.work_change_s[:] = 0.0
        if kind == RANKS:
            if model != OVERLAP or sampling or loads_only:
                continue
            c.old_rank[:] = c.rank
            ranks_from_placement(a, c.device, 0.5 * uniform(c.random), c.random, c.rank, c.op_of_rank)
            c.first_change[0] = -1
        else:
            propose(g, loads, log, c, kind, model == OVERLAP and not loads_only, model != SEQUENTIAL and not loads_only)
            if c.counts[0] == 0 and c.counts[1] == 0:
                continue
        evaluations += 1
        c.tried[kind] += 1
        present = c.values[0]
        weighted = _beside_value(loads.busy_s, c.price, load_weight, work_weight)
        limit = np.inf
        if not sampling and present < np.inf:
            temperature = first_temperature * (last_temperature / first_temperature) ** (step / steps)
            limit = present - temperature * np.log(1.0 - uniform(c.random)) - weighted
        score, valid = 0.0, True
        checkpoint = -1
        if model == CALLS:
            is_exact = all_exact or uniform(c.random) * c.device.shape[0] < _EXACT_OPS
            staged = c.staged_unit[: c.counts[0]]
            score = change(a, calls, c.device, staged, c.unit_ptr, c.unit_op, limit, is_exact)
            valid = score < np.inf
        elif model == OVERLAP and not loads_only:
            checkpoint = last_checkpoint(e.at_done, c.first_change[0])
            score = run(a, e, log, c.device, c.rank, c.op_of_rank, checkpoint, c.work_change_s, limit, False)
        if not loads_only and score < np.inf and (strict or model == SEQUENTIAL):
            score, valid = penalised(a, c, model, max_segments, score, c.queue)
        if sampling and n_sampled < deltas.shape[0]:
            deltas[n_sampled] = score + weighted - present
            n_sampled += 1
        if not sampling and score <= limit:
            c.taken[kind] += 1
            c.values[0] = score + weighted
            c.values[2] = weighted
            c.gain[kind] += max(0.0, present - weighted - score)
            if loads_only:
                continue
            if model == OVERLAP:
                run(a, e, log, c.device, c.rank, c.op_of_rank, checkpoint, c.work_change_s, np.inf, True)
                find_critical(a, log, c)
            elif model == CALLS:
                keep(a, calls)
                c.counts[2] = critical_ops(a, calls, c.critical)
                if free_ops and score < c.values[1]:  # a circle of groups that take no time goes unseen
                    valid = valid and rebuild(a, calls, c.device) < np.inf
            if valid and score < c.values[1]:
                c.values[1] = score
                c.best_device[:] = c.device
                c.best_rank[:] = c.rank
        elif kind == RANKS:
            for v in range(c.rank.shape[0]):
                c.rank[v] = c.old_rank[v]
                c.op_of_rank[c.old_rank[v]] = v
        else:
            take_back(g, loads, c)
            if model == CALLS:
                undo(a, calls, c.device)
    return evaluations
