"""Each rule of the list schedulers on a small problem with a known answer."""

from __future__ import annotations

import numpy as np
import pytest
from list_problems import hand_made, planned, starts

from placewright import _core
from placewright.budget import Budget
from placewright.evaluate import evaluate
from placewright.placers import get_placer
from placewright.placers.overlap.cpop import critical_path_ops, path_device
from placewright.placers.overlap.favourites import favourites_by_programme, heaviest_favourites
from placewright.placers.overlap.list_costs import list_costs, optimistic_costs
from placewright.placers.overlap.schedulers import rank_scheduler, start_scheduler
from placewright.problems import Problem

INF = float("inf")


def heft_plan(problem: Problem) -> dict[str, tuple[int, float]]:
    return starts(problem, planned(problem, rank_scheduler, list_costs(problem).upward_s))


def etf_plan(problem: Problem, favourite: dict[str, str] | None = None) -> dict[str, tuple[int, float]]:
    index = problem.graph.index_of
    children = np.full(problem.n_ops, -1, dtype=np.int32)
    for u, v in (favourite or {}).items():
        children[index[u]] = index[v]
    return starts(problem, planned(problem, start_scheduler, children))


@pytest.mark.parametrize("seed", range(30))
def test_gaps_agree_with_a_calendar(seed: int) -> None:
    rng = np.random.default_rng(seed)
    calendar = np.zeros((2, 400), dtype=bool)
    lines = _core.overlap.BusyLines(2, 200)

    def is_free(line: int, start: int, length: int) -> bool:
        return not calendar[line, start : start + length].any()

    for _ in range(40):
        ready, length, line = int(rng.integers(0, 40)), int(rng.integers(1, 5)), int(rng.integers(0, 3))
        found = lines.first_common_gap(0, 1, ready, length) if line == 2 else lines.first_gap(line, ready, length)
        both = (0, 1) if line == 2 else (line,)
        assert found == next(m for m in range(ready, 400) if all(is_free(i, m, length) for i in both))
        for i in both:
            lines.occupy(i, found, found + length)
            calendar[i, int(found) : int(found) + length] = True


def test_heft_inserts_into_an_inner_gap() -> None:
    # By rank: x, y, z. y waits on device 0 for x until 5; z is shorter than that gap and goes before it.
    problem = hand_made(
        {"x": [INF, 5.0], "y": [2.0, INF], "z": [1.5, INF]}, [("x", 0.0, ["y"])], busy="none"
    )  # fmt: skip
    assert heft_plan(problem) == {"x": (1, 0.0), "y": (0, 5.0), "z": (0, 0.0)}
    assert get_placer("heft").place(problem).value == 7.0


@pytest.mark.parametrize(("busy", "second", "end"), [("both", 7.0, 8.0), ("none", 5.0, 6.0)])
def test_copies_queue_on_busy_links_only(busy: str, second: float, end: float) -> None:
    problem = hand_made(
        {"s": [1.0, INF], "u": [INF, 1.0], "v": [INF, 1.0]}, [("s", 3.0, ["u"]), ("s", 3.0, ["v"])], busy=busy
    )  # fmt: skip
    for plan in (heft_plan(problem), etf_plan(problem)):
        assert plan == {"s": (0, 0.0), "u": (1, 4.0), "v": (1, second)}
    assert get_placer("etf").place(problem).value == end


def test_a_tensor_is_copied_once_per_device() -> None:
    problem = hand_made({"s": [1.0, INF], "u": [INF, 1.0], "v": [INF, 1.0]}, [("s", 3.0, ["u", "v"])])
    for plan in (heft_plan(problem), etf_plan(problem)):
        assert plan == {"s": (0, 0.0), "u": (1, 4.0), "v": (1, 5.0)}


def test_contention_changes_the_choice_of_a_device() -> None:
    # Two readers elsewhere fill the receiving channel of device 1; with it free, the third reader would go there too.
    ops = {"s": [1.0, INF], "a": [INF, 1.0], "b": [INF, 1.0], "c": [9.5, 5.0]}
    copies = [("s", 2.0, ["a"]), ("s", 2.0, ["b"]), ("s", 2.0, ["c"])]
    free, queued = (hand_made(ops, copies, busy=busy) for busy in ("none", "both"))
    rank = np.array([9.0, 8.0, 7.0, 6.0])
    assert starts(free, planned(free, rank_scheduler, rank))["c"] == (1, 5.0)
    assert starts(queued, planned(queued, rank_scheduler, rank))["c"] == (0, 1.0)


def test_etf_waits_for_a_fast_device_only_as_long_as_that_pays() -> None:
    problem = hand_made({n: [1.0, 3.5] for n in "abcde"}, [])
    devices = [device for device, _ in etf_plan(problem).values()]
    assert sorted(devices) == [0, 0, 0, 0, 1]


AWAKE = {"u": [1.0, INF], "q": [INF, 2.0], "f": [1.0, 1.0], "r": [3.0, 3.0]}
AWAKE_COPIES = [("u", 10.0, ["f", "r"]), ("q", 0.5, ["f"])]


def test_an_awake_device_waits_for_the_favourite_child() -> None:
    problem = hand_made(AWAKE, AWAKE_COPIES)
    assert etf_plan(problem)["r"] == (0, 1.0)
    plan = etf_plan(problem, {"u": "f"})
    assert (plan["f"], plan["r"]) == ((0, 2.5), (0, 3.5))


def test_an_urgent_op_goes_before_the_favourite_child() -> None:
    ops = {**AWAKE, "now": [4.0, INF]}
    plan = etf_plan(hand_made(ops, AWAKE_COPIES), {"u": "f"})
    assert (plan["now"], plan["r"], plan["f"]) == ((0, 1.0), (0, 5.0), (0, 8.0))  # only the last op is waited for


def test_a_favourite_that_starts_earlier_elsewhere_keeps_no_device_awake() -> None:
    ops = {"u": [1.0, INF], "q": [INF, 2.0], "f": [1.0, 1.0], "r": [3.0, 3.0]}
    problem = hand_made(ops, [("u", 0.5, ["f", "r"]), ("q", 10.0, ["f"])])
    plan = etf_plan(problem, {"u": "f"})
    assert (plan["f"], plan["r"]) == ((1, 2.0), (0, 1.0))


def test_the_favourite_child_saves_the_copy_that_matters() -> None:
    times = {n: [1.0, 1.0] for n in ("u", "light", "heavy", "end")}
    problem = hand_made(times, [("u", 1.0, ["light"]), ("u", 40.0, ["heavy"]), ("light", 0.0, ["end"])])
    for favourite in (favourites_by_programme(problem, 10.0), heaviest_favourites(problem)):
        assert favourite is not None
        assert favourite[0] == 2
        assert favourite[1] == -1  # its only copy takes no time


def test_a_programme_without_time_gives_way_to_the_heaviest_edges() -> None:
    from placewright.api import load

    problem = load("zoo:layered?ops=400", cluster="p100x2")
    assert favourites_by_programme(problem, 0.0) is None
    found = get_placer("sct").search(problem, Budget(seconds=0.0), 0)
    assert found.device_of_op is not None
    assert "heaviest edges" in found.note


def test_peft_looks_ahead_where_heft_does_not() -> None:
    # a ends a little earlier on device 0, but only device 1 can run what follows.
    problem = hand_made({"a": [1.0, 1.5], "b": [INF, 1.0]}, [("a", 4.0, ["b"])])
    assert optimistic_costs(problem).tolist() == [[5.0, 1.0], [0.0, 0.0]]
    assert heft_plan(problem)["a"] == (0, 0.0)
    assert get_placer("peft").search(problem, Budget(), 0).device_of_op.tolist() == [1, 1]  # type: ignore[union-attr]


def test_cpop_keeps_the_critical_path_together() -> None:
    times = {"a": [2.0, 3.0], "b": [4.0, 3.0], "side": [1.0, 1.0], "c": [4.0, 3.0]}
    problem = hand_made(times, [("a", 1.0, ["b", "side"]), ("b", 1.0, ["c"])])
    path = critical_path_ops(problem)
    assert path.tolist() == [0, 1, 3]
    assert path_device(list_costs(problem).time_s[path]) == 1
    found = get_placer("cpop").search(problem, Budget(), 0)
    assert found.device_of_op is not None
    assert found.device_of_op[path].tolist() == [1, 1, 1]


def test_a_device_is_chosen_for_the_whole_class() -> None:
    problem = hand_made({"a": [1.0, 2.0], "b": [10.0, 1.0]}, [("a", 0.0, ["b"])], classes=[["a", "b"]])
    for plan in (heft_plan(problem), etf_plan(problem)):
        assert plan == {"a": (1, 0.0), "b": (1, 2.0)}


@pytest.mark.parametrize("placer", ["heft", "peft", "cpop", "etf", "sct"])
def test_memory_of_the_whole_class_counts_at_its_first_member(placer: str) -> None:
    # Device 0 is faster, but holds a and not b.
    problem = hand_made(
        {"a": [1.0, 2.0], "b": [1.0, 2.0], "c": [1.0, 2.0]},
        [("a", 0.0, ["b"])],
        classes=[["a", "b"]],
        weights={"a": 4.0, "b": 4.0, "c": 5.0},
        memory=[6.0, 9.0],
    )
    found = get_placer(placer).search(problem, Budget(), 0)
    assert found.device_of_op is not None
    assert found.device_of_op.tolist() == [1, 1, 0]


@pytest.mark.parametrize("placer", ["heft", "peft", "cpop", "etf", "sct"])
def test_groups_that_found_no_room_are_packed_first_next_time(placer: str) -> None:
    # First come, first served leaves 4 + 4 bytes free for the last op of 8.
    problem = hand_made(
        {"a": [2.0, 2.0], "b": [2.0, 2.0], "c": [1.0, 1.0]},
        [],
        weights={"a": 4.0, "b": 4.0, "c": 8.0},
        memory=[8.0, 8.0],
    )
    found = get_placer(placer).search(problem, Budget(), 0)
    assert found.device_of_op is not None
    assert found.device_of_op[0] == found.device_of_op[1] != found.device_of_op[2]
    assert "attempt 2" in found.note
    assert evaluate(problem, found.device_of_op, found.priority).value == 4.0
