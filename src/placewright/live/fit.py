"""``fit``: measure a live model on its devices, solve, run a few candidates, and name the best placement."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from placewright.budget import Budget
from placewright.errors import InputError
from placewright.graph import OpGraph
from placewright.live import METADATA
from placewright.live.analyse import analyse
from placewright.live.candidates import by_hand
from placewright.live.dispatch import DISK, STREAMED, compute_device, places_of, undispatch
from placewright.live.finalists import (
    CLOSE,
    Finalist,
    calibrated_scales,
    confirmed,
    next_to_confirm,
    run_finalist,
    simplest_of_the_fastest,
)
from placewright.live.live_problem import MARGIN, CostTable, Place, disk_costs, live_problem, streamed_costs
from placewright.live.measure import Costs, measure_copies, measure_streaming, measure_visits, measure_whole
from placewright.live.modelled import modelled_table
from placewright.live.module_graph import LiveModel
from placewright.live.places import find_places, reserved_bytes
from placewright.live.transfer import Backend, TorchBackend
from placewright.live.workload import Workload, make_workloads
from placewright.placement import Placement, checked_placement
from placewright.placers.base import make_ready, prepare
from placewright.placers.registry import get_placer
from placewright.problems import Problem
from placewright.profiles import CopyCurve

MOST_ROUNDS, CONFIRM_S = 5, 15.0  # of candidates that are close to each other, and the time for all such rounds
WORTHWHILE = 0.02  # streaming that cannot save more than this, less than modelled costs are off, is not planned
DISK_BYTES_PER_S = 1e9  # a guess: reading a mapped file that is not in memory


def fit(
    model: Any,
    example_inputs: Any,
    devices: list[str] | None = None,
    memory: Mapping[str, float | str] | None = None,
    phase: str | Mapping[str, float] = "forward",
    *,
    new_tokens: int = 256,
    placer: str = "chain",
    seconds: float = 45.0,
    finalists: int = 4,
    stream: bool = True,
    seed: int = 0,
    backend: Backend | None = None,
) -> Placement:
    """Decide which block of a live model goes to which device, by measured speed.

    ``model`` is a module whose weights lie on one device, or on ``meta``: then costs are modelled and nothing is run.
    ``example_inputs`` is a tensor, a tuple or a dictionary; ``phase`` says what is timed: the ``forward`` as given, the
    ``prefill`` of these tokens, the ``decode`` of one token after them, or several with counts, such as
    ``{"prefill": 1, "decode": 200}``. ``devices`` are torch devices, all GPUs and the CPU unless given; ``disk`` may be
    added. ``memory`` limits them, in bytes or as "8GiB"; otherwise what is free counts. Caches are given room for
    ``new_tokens`` more. ``stream`` allows weights that wait in host memory and visit the GPU at every forward.
    ``finalists`` candidates are run for real within about ``seconds``; 0 trusts the prediction. ``backend`` stands for
    torch's own devices unless given.
    """
    began = time.monotonic()
    backend = backend or TorchBackend()
    undispatch(model)
    was_training = model.training
    model.eval()
    try:
        home = weights_device(model)
        if home.type == "meta":
            model = on_meta(model)
        workloads = make_workloads(model, example_inputs, phase)
        graph, graphs = analyse(model, workloads, new_tokens)
        live: LiveModel = graph.metadata[METADATA]
        places = find_places(devices, memory, model, home, backend)
        if home.type == "meta":
            places = [replace(p, reserved_bytes=reserved_bytes(p, live, None)) for p in places]
            table = modelled_table(graphs, workloads, places, weights_dtype(model))
        else:
            places, table = _measured(model, live, workloads, places, home, backend)
        caller = callers_device(workloads, home, places)
        search = _Search(graphs, {w.phase: w.count for w in workloads}, caller, placer, seed)
        search.add(places, table)
        streaming = with_streaming(places, table, live) if stream else None
        if streaming is not None:
            search.add(*streaming)
        if home.type == "meta" or finalists < 1 or len(places) < 2:
            answer = search.best()
        else:
            answer = search.run(model, workloads, finalists, began + seconds, backend)
        return replace(answer, seconds=time.monotonic() - began)
    finally:
        model.train(was_training)


class _Search:
    """One problem with each device as it is, and one with streaming, whose window takes room from the GPU."""

    def __init__(self, graphs: list[OpGraph], counts: dict[str, float], caller: str, placer: str, seed: int) -> None:
        self._graphs, self._counts, self._caller, self._placer, self._seed = graphs, counts, caller, placer, seed
        self._settings: list[tuple[list[Place], CostTable]] = []
        self._ran: list[Finalist] = []

    def add(self, places: list[Place], table: CostTable) -> None:
        """Search these places, too."""
        self._settings.append((places, table))

    def best(self) -> Placement:
        """The best by prediction; streaming only where it makes a difference."""
        found = [self._solved_in(self._settings[0], {})]
        others = self._settings[1:]
        is_fitting = found[0].is_valid and self._fits_host(found[0])
        if others and (not is_fitting or found[0].value > (1 + WORTHWHILE) * self._without_limits_s()):
            found += [self._solved_in(setting, {}) for setting in others]
        fitting = [p for p in found if p.is_valid and self._fits_host(p)]
        if not fitting:
            return found[0]
        enough_s = min(p.value for p in fitting) * (1 + 1e-9)
        return next(p for p in fitting if p.value <= enough_s)

    def run(self, model: Any, workloads: list[Workload], finalists: int, end: float, backend: Backend) -> Placement:
        """Run candidates for real, correct the costs, solve again, and name the fastest."""
        limits = {p.name: p.memory_bytes for p in self._settings[0][0] if not p.is_host}
        found = self._solved({})
        if not any(p.is_valid for p in found):
            return found[0]
        first_predicted_s = min(p.value for p in found if p.is_valid)
        for name, placement in self._ranked(found)[:finalists]:
            if not self._ran or time.monotonic() < end:
                self._ran.append(run_finalist(model, placement, workloads, name, limits, backend))
        scales = calibrated_scales(self._ran)
        self._correct_working_memory()
        again = self._solved(scales)
        ranked = self._ranked(again)
        for name, placement in [*ranked[:2], *(c for c in ranked[2:] if _is_whole(c[1]))]:
            fastest = min(self._ran, key=lambda f: f.seconds)
            is_known = any(_same(f.placement, placement) for f in self._ran)
            # A whole model may have come to fit, and is worth a run if it is only close: nothing crosses in it.
            room = 1 + CLOSE if _is_whole(placement) else 1.0
            is_promising = placement.value < _placed_again(fastest.placement, again).value * room
            if not is_known and is_promising and time.monotonic() < end:
                self._ran.append(run_finalist(model, placement, workloads, name, limits, backend))
        end = min(end, time.monotonic() + CONFIRM_S)
        while (i := next_to_confirm(self._ran, MOST_ROUNDS)) is not None and time.monotonic() < end:
            close = self._ran[i]
            repeated = run_finalist(model, close.placement, workloads, close.name, limits, backend)
            self._ran[i] = confirmed(close, repeated)
        winner = simplest_of_the_fastest(self._ran)
        if not np.isfinite(winner.seconds):
            raise InputError(f"no candidate could be run; the first: {winner.why}")
        return self._named(winner, again, scales, first_predicted_s)

    def _correct_working_memory(self) -> None:
        """Reserve only what candidates were seen to take; a later candidate that takes more is dropped."""
        seen: dict[str, float] = {}
        for finalist in self._ran:
            for name, size in finalist.working_bytes.items():
                seen[name] = max(seen.get(name, 0.0), size)
        self._settings = [
            (
                [
                    replace(p, reserved_bytes=min(p.reserved_bytes, seen[p.name] + MARGIN * p.memory_bytes))
                    if p.name in seen
                    else p
                    for p in places
                ],
                table,
            )
            for places, table in self._settings
        ]

    def _named(
        self, winner: Finalist, again: list[Placement], scales: dict[str, float], first_predicted_s: float
    ) -> Placement:
        """The winner in its problem, with costs such that its prediction is what it took."""
        assert winner.placement.device_of_op is not None
        names = winner.placement.problem.cluster.device_names
        predicted_s = _placed_again(winner.placement, again).value
        scales = {n: scales.get(n, 1.0) * winner.seconds / predicted_s for n in [*names, "copies"]}
        solved = next(p for p in self._solved(scales) if p.problem.cluster.device_names == names)
        chosen = checked_placement(
            solved.problem,
            winner.placement.device_of_op,
            placer=self._placer,
            seed=self._seed,
            evaluations=len(self._ran),
            bound=solved.bound,
            note=f"{winner.name}; fastest of {len(self._ran)} that were run",
        )
        measured = {
            "measured_s": winner.seconds,
            "first_predicted_s": first_predicted_s,
            "peak_bytes": winner.peak_bytes,
            "scales": scales,
            "finalists": [
                {
                    "name": f.name,
                    "predicted_s": f.placement.value,
                    "measured_s": f.seconds if np.isfinite(f.seconds) else None,
                    "quickest_s": f.quickest_s if np.isfinite(f.quickest_s) else None,
                    "rounds": len(f.rounds_s),
                    "why": f.why,
                }
                for f in self._ran
            ],
        }
        return replace(chosen, measured=measured)

    def _solved(self, scales: dict[str, float]) -> list[Placement]:
        return [self._solved_in(setting, scales) for setting in self._settings]

    def _solved_in(self, setting: tuple[list[Place], CostTable], scales: dict[str, float]) -> Placement:
        places, table = setting
        corrected = replace(table, scales=scales)
        problem = live_problem(self._graphs, self._counts, places, corrected, self._caller)
        prepare(problem)
        return self._placed(problem)

    def _without_limits_s(self) -> float:
        """A bound on all answers: what it would take if every device had room for everything, without streaming."""
        places, table = self._settings[0]
        unlimited = [replace(p, memory_bytes=math.inf) for p in places]
        return self._solved_in((unlimited, table), {}).bound

    def _placed(self, problem: Problem) -> Placement:
        """By the placer asked for, and by ``mincut`` where it proves nothing: ``chain`` cannot fill many GPUs."""
        answer = get_placer(self._placer).place(problem, Budget(seconds=3.0), self._seed)
        mincut = get_placer("mincut")
        if answer.status in ("optimal", "infeasible") or self._placer == mincut.name:
            return answer
        make_ready(mincut, problem)
        other = mincut.place(problem, Budget(seconds=3.0), self._seed)
        enough_s = min(answer.value, other.value) * (1 + 1e-9)
        return max((p for p in (answer, other) if p.value <= enough_s), key=lambda p: p.bound)

    def _ranked(self, found: list[Placement]) -> list[tuple[str, Placement]]:
        """What the placer found, then what people write by hand, by prediction; equal ones once, valid ones only."""
        ours = sorted(((f"by '{p.placer}'", p) for p in found if p.is_valid), key=lambda c: c[1].value)
        others = [
            (name, checked_placement(p.problem, device, placer="by hand"))
            for p in found
            for name, device in by_hand(p.problem)
        ]
        others = sorted((c for c in others if c[1].is_valid), key=lambda c: c[1].value)
        ranked: list[tuple[str, Placement]] = []
        for name, placement in [*ours[:1], *sorted([*ours[1:], *others], key=lambda c: c[1].value)]:
            if self._fits_host(placement) and not any(_same(placement, other) for _, other in ranked):
                ranked.append((name, placement))
        return ranked

    def _fits_host(self, placement: Placement) -> bool:
        """Whether host memory holds what computes there and what is streamed from there, together."""
        room = next((p.room_bytes for p in self._settings[0][0] if p.name == "cpu"), math.inf)
        evaluation = placement.evaluation
        assert evaluation is not None
        names = placement.problem.cluster.device_names
        used = sum(m for n, m in zip(names, evaluation.memory_bytes, strict=True) if n == "cpu" or n.endswith(STREAMED))
        return bool(used <= room)


def _is_whole(placement: Placement) -> bool:
    return len(set(places_of(placement).values())) == 1


def _same(a: Placement, b: Placement) -> bool:
    return places_of(a) == places_of(b)


def _placed_again(placement: Placement, solved: list[Placement]) -> Placement:
    """The same placement in the problem with newer costs, of those that were solved."""
    names = placement.problem.cluster.device_names
    problem = next(p.problem for p in solved if p.problem.cluster.device_names == names)
    assert placement.device_of_op is not None
    return checked_placement(problem, placement.device_of_op, placer=placement.placer)


def on_meta(model: Any) -> Any:
    """The model, or where buffers are real a copy of it, with everything on ``meta``."""
    if all(b.device.type == "meta" for b in model.buffers()):
        return model
    return copy.deepcopy(model).to("meta")


def weights_device(model: Any) -> Any:
    """The one device that all weights are on."""
    found = {t.device for t in [*model.parameters()]}
    if not found:
        raise InputError("the model has no weights: there is nothing to place")
    if len(found) > 1:
        raise InputError(f"the model's weights are on {sorted(map(str, found))}: move them to one device first")
    return found.pop()


def callers_device(workloads: list[Workload], home: Any, places: list[Place]) -> str:
    """Where inputs come from and results go to; if that is none of the devices the first: the way there is the same."""
    tensors = [v for w in workloads for v in [*w.args, *w.kwargs.values()] if isinstance(v, torch.Tensor)]
    device = tensors[0].device if tensors else home
    name = "cpu" if device.type == "meta" else str(device)
    return name if any(name == p.name for p in places) else places[0].name


def weights_dtype(model: Any) -> Any:
    """The type of most weights."""
    sizes: dict[Any, int] = {}
    for t in model.parameters():
        sizes[t.dtype] = sizes.get(t.dtype, 0) + t.numel()
    return max(sizes, key=lambda d: sizes[d])


def _measured(
    model: Any, live: LiveModel, workloads: list[Workload], places: list[Place], home: Any, backend: Backend
) -> tuple[list[Place], CostTable]:
    """Costs on every device, and the places with what is kept from weights there."""
    costs: dict[tuple[str, str], Costs] = {}
    copies: dict[str, dict[str, CopyCurve]] = {}
    rates: dict[str, float] = {}
    finished: list[Place] = []
    for work in workloads:
        costs[work.phase, str(home)] = measure_whole(model, live, work, home, backend)
    for place in sorted(places, key=lambda p: p.name == DISK):
        device = backend.device(compute_device(place.name))
        for work in workloads:
            if place.name == DISK:
                costs[work.phase, DISK] = disk_costs(costs[work.phase, "cpu"], live, DISK_BYTES_PER_S)
            elif place.name != str(home):
                room = place.memory_bytes - reserved_bytes(place, live, 0.0)
                base = costs[work.phase, str(home)]
                costs[work.phase, place.name] = measure_visits(model, live, work, device, backend, room, base)
        if not place.is_host:
            copies[place.name] = measure_copies(device, backend)
        if backend.is_gpu(device):
            rates[place.name] = measure_streaming(device, backend)
        workspace = max(costs[w.phase, place.name].workspace_bytes for w in workloads)
        finished.append(replace(place, reserved_bytes=reserved_bytes(place, live, workspace)))
    return finished, CostTable(costs, copies, rates)


def with_streaming(places: list[Place], table: CostTable, live: LiveModel) -> tuple[list[Place], CostTable] | None:
    """The same with a second entry for each GPU that cannot hold everything, but two of the largest units besides."""
    total = sum(live.weight_bytes.values()) + sum(live.cache_bytes.values())
    window = 2.0 * max(live.weight_bytes.get(p, 0.0) for p in live.units.paths)
    costs = dict(table.costs)
    changed: list[Place] = []
    extra: list[Place] = []
    for place in places:
        if place.name in table.streaming_bytes_per_s and total > place.room_bytes > window:
            changed.append(replace(place, window_bytes=window))
            extra.append(Place(place.name + STREAMED))
            for (phase, name), known in table.costs.items():
                if name == place.name:
                    rate = table.streaming_bytes_per_s[name]
                    costs[phase, name + STREAMED] = streamed_costs(known, live, rate)
        else:
            changed.append(place)
    return ([*changed, *extra], replace(table, costs=costs)) if extra else None
