"""Searches start from whole groups on allowed devices, and no cost can lead them out of their arrays."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from placewright import Cluster, Device, DeviceKind, InputError, Link, Problem, build_graph, build_problem
from placewright.budget import Budget
from placewright.cluster_file import load_cluster
from placewright.evaluate import evaluate, prove_infeasible
from placewright.placers import get_placer, get_placer_class, placer_names
from placewright.placers.base import make_ready
from placewright.placers.registry import is_installed
from placewright.placers.search.chains import Point, _Search
from placewright.placers.units import movable_units, whole_units
from placewright.problems import EXECUTIONS, Execution
from placewright.profiles import modelled_profile
from placewright.testing import random_problem

BOX = """
import numpy as np, placewright as pw
from placewright import Cluster, Device, DeviceKind, Link, build_graph, build_problem
from placewright.profiles import modelled_profile
pcie = Link("pcie", bandwidth_bytes_per_s=12e9, latency_s=10e-6)
box = Cluster("box", kinds=(DeviceKind("gpu"), DeviceKind("cpu", is_host=True)),
              devices=(Device("gpu0", "gpu"), Device("cpu0", "cpu")), to_host={"gpu0": pcie}, from_host={"gpu0": pcie})
def pair(times, **options):
    graph, _ = build_graph("pair", ["a", "b"], [(0, 4.0, [1])], colocation=[0, 0])
    profile = modelled_profile(graph.op_names, ("gpu", "cpu"), np.array(times), source="me")
    return build_problem(graph, box, profile, **options)
"""


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_whole_units_are_where_they_may_be(execution: Execution) -> None:
    seen = 0
    for seed in range(40):
        problem = random_problem(seed, 6, 3, 3, execution, classes=True, unsupported=True)
        if prove_infeasible(problem):
            continue
        seen += 1
        scattered = np.random.default_rng(seed).integers(0, 3, problem.n_ops).astype(np.int32)
        device = whole_units(problem, scattered)
        assert problem.allowed[np.arange(problem.n_ops), device].all()
        unit = movable_units(problem).unit_of_op
        assert all(len(set(device[unit == u].tolist())) == 1 for u in range(unit.max() + 1))
        assert whole_units(problem, device).tolist() == device.tolist()
    assert seen > 5


@pytest.mark.parametrize("execution", ["overlap", "sequential", "calls"])
def test_annealing_starts_from_whole_units(execution: Execution) -> None:
    seen = 0
    for seed in range(30):
        problem = random_problem(seed, 6, 3, 3, execution, classes=True, unsupported=True)
        if prove_infeasible(problem):
            continue
        scattered = problem.op_device_time_s.argmin(axis=1).astype(np.int32)
        search = _Search(problem, [Point(scattered)], 0, threads=1)
        for chain in search.chains:
            assert chain.device.tolist() == whole_units(problem, scattered).tolist()
        seen += scattered.tolist() != whole_units(problem, scattered).tolist()
    assert seen > 3


def run_uncompiled(code: str) -> str:
    """Run with kernels as plain Python, which finds every access beyond an array."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BOX + code],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_a_group_that_is_fastest_on_two_devices() -> None:
    code = "print(pw.place(pair([[5.0, 1.0], [1.0, np.inf]]), budget=0.2).value)"
    assert run_uncompiled(code) == "6.0"


@pytest.mark.parametrize("placer", ["auto", "calls-exact", "anneal"])
def test_one_group_under_calls(placer: str) -> None:
    code = f"print(pw.place(pair([[5.0, 1.0], [1.0, 2.0]], execution='calls'), '{placer}', budget=0.2).value)"
    assert run_uncompiled(code) == "3.0"


def test_warming_up_every_placer_on_groups_and_masks() -> None:
    for execution in EXECUTIONS:
        problem = random_problem(66, 6, 3, 3, execution, classes=True, unsupported=True)
        assert not prove_infeasible(problem)
        for name in placer_names():
            loaded = get_placer_class(name)
            is_learned = "learned" in loaded.__module__
            if execution in loaded.executions and is_installed(loaded) and not is_learned and name != "expert":
                make_ready(get_placer(name), problem)


def costly(**costs: object) -> Problem:
    link = Link("pcie", bandwidth_bytes_per_s=12e9)
    box = Cluster(
        "box",
        kinds=(DeviceKind("gpu"), DeviceKind("cpu", is_host=True)),
        devices=(Device("gpu0", "gpu"), Device("cpu0", "cpu")),
        to_host={"gpu0": link},
        from_host={"gpu0": link},
    )
    graph, _ = build_graph("pair", ["a", "b"], [(0, 4.0, [1])])
    times = np.array([[1.0, 1.0], [1.0, 2.0]])
    problem = build_problem(graph, box, modelled_profile(graph.op_names, ("gpu", "cpu"), times, source="me"))
    return replace(problem, **costs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("costs", "named"),
    [
        ({"op_time_s": np.array([[1e308, 1.0], [1e308, 1.0]])}, "operator 'a': 1e.308 s"),
        ({"op_time_s": np.array([[1.0, 1.0], [1.0, 1e300]])}, "operator 'b': 1e.300 s"),
        ({"tensor_copy_s": np.full((1, 1), np.inf)}, "copy of an output of operator 'a': inf s"),
        ({"memory_bytes": np.array([1.0, 1e308])}, "weights of operator 'b': 1e.308 bytes"),
    ],
)
def test_costs_without_a_finite_sum_are_refused_by_name(costs: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        costly(**costs)


def test_a_cluster_file_with_an_overhead_without_bounds_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    from placewright import load

    file = tmp_path_factory.mktemp("cluster") / "c.toml"
    file.write_text(
        '[[device]]\nkind="gpu"\ncount=2\nflops=9e12\nmemory_bandwidth="732GB/s"\nop_overhead="1e308"\n'
        '[[device]]\nkind="cpu"\nhost=true\nflops=5e11\nmemory_bandwidth="20GB/s"\n'
        '[[link]]\nfrom="gpu*"\nto="host"\nbandwidth="12GB/s"\n'
    )
    with pytest.raises(InputError, match="add up to more than"):
        load("zoo:fork-join?blocks=1", cluster=load_cluster(str(file)))


def test_large_costs_with_a_finite_sum_are_placed() -> None:
    problem = costly(op_time_s=np.array([[1e28, 2e28], [3e28, 1e28]]))
    for execution in EXECUTIONS:
        placement = get_placer("auto").place(problem.for_objective(None, execution), Budget(0.3))
        assert placement.is_valid


def test_an_op_that_cannot_run_ends_the_simulation() -> None:
    problem = costly(op_time_s=np.array([[1.0, np.inf], [1.0, 1.0]]))
    assert evaluate(problem, np.array([1, 0], dtype=np.int32)).value == np.inf


@pytest.mark.parametrize("name", ["hsdag", "placeto", "rnn", "gdp", "hdp"])
def test_learned_placers_take_problems_without_any_work(name: str) -> None:
    pytest.importorskip("torch")
    graph, _ = build_graph("row", ["a", "b", "c"], [(0, 4.0, [1]), (1, 4.0, [2])])
    idle = random_problem(3, 3, 3, 2, "overlap")
    table = idle.cluster.link_table()
    problem = replace(
        idle,
        graph=graph,
        op_time_s=np.zeros((3, len(idle.cluster.kinds))),
        memory_bytes=graph.weight_bytes,
        tensor_copy_s=np.full((graph.n_tensors, len(table.links)), 9.0),
    )
    placement = get_placer(name).place(problem, Budget(5.0, evaluations=40))
    assert placement.value == 0.0
