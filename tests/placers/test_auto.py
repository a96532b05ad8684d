"""``auto``: never worse than its members, says what it ran, stops when nothing is left to prove."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from placewright import load, place
from placewright.budget import Budget, Incumbent
from placewright.placers import get_placer
from placewright.placers.auto import PLANS, graph_width, plan_for
from placewright.placers.search.anneal import AnnealPlacer
from placewright.problems import EXECUTIONS, Execution
from placewright.testing.drawn_problems import random_problem
from placewright.zoo import zoo_graph


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_never_worse_than_its_members(execution: Execution, seed: int) -> None:
    problem = random_problem(seed, 12, 3, 2, execution, limits=True)
    members = [get_placer(step.placer) for step in plan_for(problem)]
    best = min(m.place(problem, Budget(3, evaluations=2000), 0).value for m in members)
    assert get_placer("auto").place(problem, Budget(3, evaluations=2000), 0).value <= best * (1 + 1e-9)


@pytest.mark.parametrize("execution", ["overlap", "calls"])
def test_where_one_search_leads_its_answer_is_that_of_the_search_alone(execution: Execution) -> None:
    problem = load("zoo:layered?ops=300&width=40", cluster="laptop-npu", execution=execution)
    auto, alone = (get_placer(name).place(problem, Budget(60, evaluations=3000), 2) for name in ("auto", "anneal"))
    assert auto.device_of_op is not None
    assert alone.device_of_op is not None
    assert auto.value == alone.value
    assert auto.device_of_op.tolist() == alone.device_of_op.tolist()
    assert auto.note.startswith("ran anneal")


def test_an_error_in_a_member_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(AnnealPlacer, "search", fail)
    problem = random_problem(1, 300, 2, 2, "overlap")
    with pytest.raises(ZeroDivisionError):
        get_placer("auto").place(problem, Budget(5, evaluations=100), 0)


@pytest.mark.parametrize("plan", PLANS)
def test_every_member_of_a_plan_is_made_for_it(plan: str) -> None:
    execution = plan.partition(",")[0]
    assert all(execution in get_placer(step.placer).executions for step in PLANS[plan])


def test_width_is_the_most_ops_equally_far_from_the_inputs() -> None:
    assert graph_width(zoo_graph("fork-join?blocks=3&branches=4&length=3")) == 4
    assert graph_width(zoo_graph("chain?ops=5")) == 1


def test_proofs_are_left_out_where_there_is_no_hope() -> None:
    narrow, wide = (load(f"zoo:layered?ops=100&width={n}", cluster="laptop-npu", execution="calls") for n in (2, 40))
    assert "calls-exact" in [s.placer for s in plan_for(narrow)]
    assert "calls-exact" not in [s.placer for s in plan_for(wide)]


def test_programmes_are_left_out_where_the_time_would_not_do() -> None:
    pytest.importorskip("highspy", reason="the extra 'exact' is not installed")
    problem = random_problem(1, 40, 2, 1, "pipeline").with_options(contiguous=False)
    assert [s.placer for s in plan_for(problem, 60.0)] == ["single", "topo", "local-search", "milp"]
    assert "milp" not in [s.placer for s in plan_for(problem, 1.0)]
    unlike = random_problem(2, 40, 2, 2, "pipeline").with_options(contiguous=False)
    cheap, dear = (replace(unlike, tensor_copy_s=unlike.tensor_copy_s * f) for f in (1e-3, 1e3))
    assert plan_for(cheap, 1.0)[0].placer == "milp"
    assert "milp" not in [s.placer for s in plan_for(dear, 1.0)]
    assert "milp" in [s.placer for s in plan_for(dear, 60.0)]


def test_it_says_what_ran_and_why_it_stopped() -> None:
    placement = place(random_problem(1, 8, 2, 2, "pipeline"), "auto", 5)
    assert placement.status == "optimal"
    assert placement.note.startswith("ran single")
    assert "stopped: proven optimal" in placement.note


def test_parts_of_a_budget_share_what_is_known() -> None:
    problem = random_problem(0, 5, 2, 1, "overlap")
    whole = Budget(100.0)
    part = whole.part(10.0).part(5.0)
    single = place(problem, "single", 1)
    assert single.device_of_op is not None
    assert part.offer(Incumbent(single.device_of_op, single.value))
    assert not whole.offer(Incumbent(single.device_of_op, single.value))
    part.report(bound=single.value / 2)
    assert (whole.bound, whole.expired()) == (single.value / 2, False)
    part.raise_bound(single.value)
    assert cast(Incumbent, whole.incumbent).value == single.value
    assert whole.is_closed()
    assert part.expired()
