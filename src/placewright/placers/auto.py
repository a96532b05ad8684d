"""``auto``: what people get when they name no placer. Runs several, keeps the best, stops when it is proven optimal."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

from placewright.budget import Budget, Incumbent
from placewright.graph import OpGraph
from placewright.placers.base import Found, Placer
from placewright.placers.baselines.complete import CompletePlacer
from placewright.placers.baselines.packing import pack
from placewright.placers.registry import get_placer, get_placer_class, is_installed
from placewright.problems import Problem

_ANY_NUMBER = 1_000_000_000
_LAST_RESORT_PLACEMENTS = 20_000  # for problems on which no member finds a valid placement
_PROGRAMME_S_PER_OP = 0.03  # with less time the programme of a pipeline finds no more than annealing, and proves little
_EASY_PROGRAMME_S_PER_OP = 0.005  # the same where no two devices are alike and work counts for more than copies


class Step(NamedTuple):
    """A member's turn: it may use ``share`` of the time that is left then, on graphs that are not too large for it."""

    placer: str
    share: float = 1.0
    max_ops: int = _ANY_NUMBER
    max_width: int = _ANY_NUMBER  # ops at the same distance from the inputs
    instead_of: str = ""  # a placer: this one takes its turn only where that one is not installed


_FLOOR = (Step("single"), Step("topo"))
# Cheap bounds and constructive placers first, then exact methods that may end early, then search with what is left.
PLANS: dict[str, tuple[Step, ...]] = {
    # Annealing begins with single devices, topological fills and list schedules: no others have to run before it.
    "overlap": (Step("cpsat", 0.5, max_ops=250), Step("complete", 0.5, max_ops=30, instead_of="cpsat"), Step("anneal")),
    "sequential": (*_FLOOR, Step("mincut", 0.8), Step("anneal")),
    # Proofs come soon or not at all, and not on wide graphs. Annealing begins with sampling.
    "calls": (Step("calls-exact", 0.25, max_width=16), Step("anneal")),
    "pipeline": (*_FLOOR, Step("dpl", 0.5), Step("dp"), Step("milp")),
    "pipeline, not contiguous, hard": (*_FLOOR, Step("local-search", 0.3), Step("milp")),
    # The programme soon finds better than annealing does; it anneals beside that.
    "pipeline, not contiguous, easy": (Step("milp"), *_FLOOR),
    # Too large for a programme, or too little time; the search begins with the best contiguous pipeline.
    "pipeline, not contiguous, large": (Step("local-search"), *_FLOOR),
}


class AutoPlacer(Placer):
    """A portfolio by plan: members share one incumbent and one bound, and the run ends when the two meet."""

    name = "auto"
    summary = "a portfolio of placers within the budget (the default)"

    def warm_up(self, problem: Problem) -> None:
        for step in plan_for(problem):
            get_placer(step.placer).warm_up(problem)

    def search(self, problem: Problem, budget: Budget, seed: int) -> Found:
        shared = budget.part(budget.seconds)
        evaluations, ran = 0, []
        for step in plan_for(problem, budget.remaining_s()):
            if shared.expired() and shared.incumbent is not None:
                break
            member = get_placer(step.placer)
            placement = member.place(problem, shared.part(shared.remaining_s() * step.share), seed)
            ran.append(member.name)
            evaluations += placement.evaluations
            if placement.device_of_op is None and placement.status == "infeasible":
                return Found(None, evaluations=evaluations, infeasible=placement.faults, note=placement.note)
            shared.raise_bound(placement.bound)
            if placement.is_valid and placement.device_of_op is not None:
                found = Incumbent(
                    placement.device_of_op, placement.value, placement.priority, placement.replicas, member.name
                )
                if shared.offer(found):
                    budget.report(placement.value, shared.bound, evaluations, note=member.name)
        stop = "proven optimal" if shared.is_closed() else "budget used" if shared.expired() else "every member ran"
        best = shared.incumbent
        if best is None:
            last = _last_resort(problem, budget.apart(math.inf, _LAST_RESORT_PLACEMENTS), seed)
            evaluations += last.evaluations
            bound = max(shared.bound, last.bound or 0.0)
            return last._replace(bound=bound, evaluations=evaluations, note=f"ran {', '.join(ran)}; {last.note}")
        note = f"ran {', '.join(ran)}; best by {best.placer}; stopped: {stop}"
        return Found(best.device_of_op, shared.bound, best.priority, best.replicas, evaluations, note=note)


def _last_resort(problem: Problem, budget: Budget, seed: int) -> Found:
    """Where limits are tight and no member has met a valid placement: whatever the clock says, some are made."""
    packed = pack(problem, seed)
    if packed.device_of_op is not None:
        return packed._replace(note="none found a valid placement, filling devices did")
    seen = CompletePlacer().search(problem, budget, seed)
    note = "looking at all placements did" if seen.device_of_op is not None else seen.note
    return seen._replace(
        evaluations=seen.evaluations + packed.evaluations, note=f"none found a valid placement, {note}"
    )


def plan_for(problem: Problem, seconds: float = math.inf) -> tuple[Step, ...]:
    """The steps for a problem, those left out whose placer is not installed or not made for so many ops."""
    steps = PLANS[problem.execution]
    if problem.execution == "pipeline" and not problem.contiguous:
        from placewright.placers.pipeline.not_contiguous.anytime import copies_lead
        from placewright.placers.pipeline.not_contiguous.milp import has_programme
        from placewright.placers.pipeline.not_contiguous.view import assignment_view

        are_unlike = len(problem.cluster.device_groups()) == problem.n_devices
        is_easy = are_unlike and not copies_lead(assignment_view(problem).units)
        needed_s = problem.n_ops * (_EASY_PROGRAMME_S_PER_OP if is_easy else _PROGRAMME_S_PER_OP)
        can_prove = seconds >= needed_s and has_programme(problem)
        steps = PLANS[f"pipeline, not contiguous, {'large' if not can_prove else 'easy' if is_easy else 'hard'}"]
    width = graph_width(problem.graph) if any(s.max_width < _ANY_NUMBER for s in steps) else 0
    fitting = [s for s in steps if problem.n_ops <= s.max_ops and width <= s.max_width]
    return tuple(s for s in fitting if _has(s.placer) and not (s.instead_of and _has(s.instead_of)))


def _has(placer: str) -> bool:
    return is_installed(get_placer_class(placer))


def graph_width(graph: OpGraph) -> int:
    """The largest number of ops equally far from the inputs."""
    level = [0] * graph.n_ops
    for u, v in zip(graph.edge_producer.tolist(), graph.consumer_op.tolist(), strict=True):
        level[v] = max(level[v], level[u] + 1)  # edges are sorted by producer, ops topologically
    return max(Counter(level).values())
