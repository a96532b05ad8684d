"""Forked and fresh processes and threads that place and evaluate at once: nothing waits for ever, errors arrive."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import placewright
from placewright import InputError
from placewright.errors import CycleError, MissingExtraError, PlacewrightError
from placewright.forked import Exclusive
from placewright.problems import Problem, once_per_problem
from pool_work import fail, fail_by_itself, placed, run_torch_workers, small_problem, values

GIVEN_UP_AFTER_S = 180.0  # a hang, not a slow machine
METHODS = [m for m in ("fork", "spawn", "forkserver") if m in multiprocessing.get_all_start_methods()]
# What they find does not depend on the time they have.
PLACERS = {"overlap": "heft", "sequential": "topo", "calls": "greedy", "pipeline": "topo"}

# From Python 3.12 on a fork beside threads is warned of; that it works all the same is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
needs_fork = pytest.mark.skipif("fork" not in METHODS, reason="this system has no fork")


@contextmanager
def pool(method: str, workers: int = 2) -> Iterator[Callable[..., Any]]:
    """A pool of processes, as a function that calls a function there; one that hangs is killed.

    Fresh interpreters would compile for minutes, so they do not; forked ones have their parent's kernels.
    """
    fresh = {} if method == "fork" else {"NUMBA_DISABLE_JIT": "1"}
    with patch.dict(os.environ, fresh), ProcessPoolExecutor(workers, multiprocessing.get_context(method)) as executor:

        def call(function: Callable[..., Any], *arguments: Any) -> Any:
            future: Future[Any] = executor.submit(function, *arguments)
            try:
                return future.result(GIVEN_UP_AFTER_S)
            except TimeoutError:
                for process in executor._processes.values():
                    process.kill()
                pytest.fail(f"a process started by {method} waits for ever in {function.__name__}")

        yield call


@pytest.mark.parametrize("method", METHODS)
def test_processes_say_what_this_one_says(method: str) -> None:
    problems = {execution: small_problem(execution=execution) for execution in PLACERS}
    expected = {e: values(p) for e, p in problems.items()}  # makes threads, caches and all
    best = {e: placed(p, PLACERS[e]).value for e, p in problems.items()}
    with pool(method) as call:
        for execution, problem in problems.items():
            assert call(values, problem) == pytest.approx(expected[execution], rel=1e-12)
            again = call(placed, problem, PLACERS[execution])
            assert again.is_valid
            assert again.value == pytest.approx(best[execution], rel=1e-9)
            assert again.problem.settings() == problem.settings()
    assert {e: values(p) for e, p in problems.items()} == expected  # and this process has its own threads still


@needs_fork
def test_a_fork_beside_running_threads() -> None:
    problem, over = small_problem(), threading.Event()
    expected = values(problem)

    def evaluate_on() -> None:
        while not over.is_set():
            values(problem)

    with ThreadPoolExecutor(2) as threads:
        busy = [threads.submit(evaluate_on) for _ in range(2)]
        try:
            for _ in range(3):
                with pool("fork", 1) as call:
                    assert call(values, problem) == expected
        finally:
            over.set()
    assert [b.result() for b in busy] == [None, None]


@needs_fork
def test_a_child_of_a_forked_child() -> None:
    problem = small_problem()
    expected = values(problem)
    with pool("fork", 1) as call:
        assert call(values, problem) == expected
        assert call(_values_of_a_child, problem) == expected


def _values_of_a_child(problem: Problem) -> Any:
    with pool("fork", 1) as call:
        return call(values, problem)


@needs_fork
def test_threads_for_torch_after_a_fork() -> None:
    pytest.importorskip("torch")
    expected = run_torch_workers()
    with pool("fork", 1) as call:
        assert call(run_torch_workers) == pytest.approx(expected)


@pytest.mark.parametrize("method", METHODS)
def test_errors_arrive_as_what_they_are(method: str) -> None:
    with pool(method, 1) as call:
        with pytest.raises(CycleError, match="a -> b -> a") as cycle:
            call(fail, "cycle")
        assert cycle.value.cycle == [0, 1]
        with pytest.raises(MissingExtraError) as missing:
            call(fail, "missing")
        assert str(missing.value) == str(MissingExtraError("torch", "torch"))
        with pytest.raises(InputError, match="no-such-model"):
            call(fail_by_itself, "model")
        with pytest.raises(CycleError):
            call(fail_by_itself, "circle")
        with pytest.raises(PlacewrightError, match="out of memory"):
            call(fail, "execution")
        assert call(values, small_problem())  # the pool is whole


def exception_classes() -> list[type[BaseException]]:
    """All that the package defines, modules of packages that are not installed left out."""
    root = Path(placewright.__file__).parent
    defined: dict[str, set[str]] = {}
    known = {"PlacewrightError", "Exception", "BaseException"}
    trees = {
        ".".join(("placewright", *path.relative_to(root).with_suffix("").parts)): ast.parse(path.read_text("utf-8"))
        for path in root.rglob("*.py")
    }
    for _ in range(4):  # until no more are derived from those known
        for module, tree in trees.items():
            for node in ast.walk(tree):
                bases = (
                    {ast.unparse(b).rpartition(".")[2] for b in node.bases} if isinstance(node, ast.ClassDef) else ()
                )
                if isinstance(node, ast.ClassDef) and any(b in known or b.endswith("Error") for b in bases):
                    known.add(node.name)
                    defined.setdefault(module, set()).add(node.name)
    found: list[type[BaseException]] = []
    for module, names in sorted(defined.items()):
        try:
            loaded = importlib.import_module(module)
        except ImportError:
            continue
        found += [getattr(loaded, name) for name in sorted(names) if hasattr(loaded, name)]
    return found


def test_every_error_can_be_pickled() -> None:
    classes = exception_classes()
    assert {CycleError, MissingExtraError, InputError} <= set(classes)
    examples: dict[str, Any] = {"str": "a word", "list[int]": [3, 4], "int": 5, "float": 0.5}
    for kind in classes:
        arguments = ["a word"]
        if inspect.isfunction(kind.__init__):  # its own
            arguments = [examples[str(p.annotation)] for p in inspect.signature(kind).parameters.values()]
        error = kind(*arguments)
        error.__dict__["remembered"] = "by whoever raised it"
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(again) is kind
            assert (str(again), again.args, again.__dict__) == (str(error), error.args, error.__dict__)


@pytest.mark.parametrize("execution", PLACERS)
def test_threads_at_once_say_what_one_says(execution: str) -> None:
    alone = small_problem(execution=execution)
    expected, best = values(alone), placed(alone, PLACERS[execution]).value
    shared = small_problem(execution=execution)  # nothing of it is compiled yet
    start = threading.Barrier(6)

    def work(number: int) -> Any:
        start.wait(GIVEN_UP_AFTER_S)
        return values(shared) if number % 2 else placed(shared, PLACERS[execution])

    with ThreadPoolExecutor(6) as threads:
        results = list(threads.map(work, range(6), timeout=GIVEN_UP_AFTER_S))
    for number, result in enumerate(results):
        if number % 2:
            assert result == expected
        else:
            assert result.is_valid
            assert result.value == pytest.approx(best, rel=1e-9)


def test_threads_are_given_the_same_figure() -> None:
    both_inside = threading.Barrier(2)

    @once_per_problem
    def figure(_: Problem) -> list[str]:
        first = both_inside.wait(GIVEN_UP_AFTER_S) == 0
        time.sleep(0.0 if first else 0.1)
        return []

    problem = small_problem()
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(figure, [problem, problem], timeout=GIVEN_UP_AFTER_S)
    assert one is other
    assert figure(problem) is one


def test_what_is_exclusive_is_free_in_a_forked_process() -> None:
    lock, entered, leave = Exclusive(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            entered.set()
            leave.wait(GIVEN_UP_AFTER_S)

    def try_it() -> bool:
        return lock._lock.acquire(blocking=False)

    holder = threading.Thread(target=hold)
    holder.start()
    assert entered.wait(GIVEN_UP_AFTER_S)
    try:
        assert not try_it()
        if "fork" in METHODS:
            context: Any = multiprocessing.get_context("fork")
            child = context.Process(target=lambda: exit(0 if try_it() else 1))
            child.start()
            child.join(GIVEN_UP_AFTER_S)
            assert child.exitcode == 0
    finally:
        leave.set()
        holder.join()
    assert try_it()


def test_checkpoints_are_read_by_threads_at_once(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from placewright.live.hf import empty_model, parameters_on_meta

    config = transformers.BertConfig(hidden_size=8, intermediate_size=8, num_attention_heads=2, num_hidden_layers=2)
    config.save_pretrained(tmp_path)
    register, dtype = torch.nn.Module.register_parameter, torch.get_default_dtype()
    with ThreadPoolExecutor(4) as threads:
        models = list(threads.map(empty_model, [tmp_path] * 8))
        assert {p.device.type for model in models for p in model.parameters()} == {"meta"}
        assert torch.nn.Module.register_parameter is register
        assert torch.get_default_dtype() is dtype
        with parameters_on_meta():  # of this thread alone
            elsewhere = threads.submit(torch.nn.Linear, 2, 2).result()
    assert elsewhere.weight.device.type == "cpu"
