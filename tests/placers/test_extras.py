"""Without optional packages every placer is listed and either answers or names its extra; ``auto`` always answers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import placewright.extras as extras
from placewright import load
from placewright.budget import Budget
from placewright.errors import InputError, MissingExtraError
from placewright.extras import EXTRA_OF, missing_extra
from placewright.placers import get_placer, get_placer_class, placer_names
from placewright.placers.registry import placers_for
from placewright.problems import EXECUTIONS, Execution, Problem
from placewright.testing import optimum, random_problem

# Nothing optional can be found or imported, as in an install without extras.
HIDE = f"""
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(EXTRA_OF)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
"""


@pytest.fixture
def no_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    real = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name in EXTRA_OF else real(name))


def small(execution: Execution, **options: object) -> Problem:
    problem = load("zoo:fork-join?blocks=2", cluster="laptop-npu", execution=execution)
    return problem.with_options(**options)


def test_nothing_optional_is_imported_to_list_or_to_choose_a_placer() -> None:
    code = HIDE + (
        "from placewright.placers.registry import get_placer_class, is_installed, placer_names\n"
        "print(sum(is_installed(get_placer_class(name)) for name in placer_names()), len(placer_names()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    installed, known = map(int, done.stdout.split())
    assert known == len(placer_names())
    assert known - installed == len([n for n in placer_names() if get_placer_class(n).requires])


@pytest.mark.usefixtures("no_extras")
@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("contiguous", [True, False])
def test_auto_answers_without_extras(execution: Execution, contiguous: bool) -> None:
    if execution != "pipeline" and not contiguous:
        pytest.skip("contiguity is for pipelines")
    problem = small(execution, contiguous=contiguous)
    assert get_placer("auto").place(problem, Budget(8.0 if not contiguous else 1.0)).is_valid


@pytest.mark.usefixtures("no_extras")
def test_what_is_asked_for_by_name_names_its_extra() -> None:
    for name in placer_names():
        missing = [package for package in get_placer_class(name).requires if package in EXTRA_OF]
        if missing:
            with pytest.raises(MissingExtraError, match=rf"placewright\[{EXTRA_OF[missing[0]]}\]"):
                get_placer(name)
        else:
            get_placer(name)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_placer_for_other_execution_models_is_refused(execution: Execution) -> None:
    problem = small(execution)
    others = [n for n in placer_names() if execution not in get_placer_class(n).executions]
    assert others
    for name in others:
        if get_placer_class(name).requires:
            continue
        with pytest.raises(InputError, match=f"'{name}' is not made for execution model '{execution}'.*auto"):
            get_placer(name).place(problem, Budget(0.1))
    assert placers_for(execution)[0] == "auto"


def test_a_failed_import_of_a_known_package_names_its_extra() -> None:
    unknown = ModuleNotFoundError("No module named 'x'", name="x")
    assert missing_extra(unknown) is None
    assert missing_extra(ValueError()) is None


@pytest.mark.usefixtures("no_extras")
def test_a_failed_import_within_a_known_package_names_its_extra() -> None:
    found = missing_extra(ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn"))
    assert "placewright[torch]" in str(found)


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("seed", range(4))
def test_complete_finds_the_optimum_and_proves_it(execution: Execution, seed: int) -> None:
    n_ops = 4 if execution == "overlap" else 6
    problem = random_problem(seed, n_ops, 3, 2, execution, classes=True, limits=True, unsupported=True)
    best = optimum(problem)
    placement = get_placer("complete").place(problem, Budget(60.0))
    assert placement.status == ("infeasible" if best == float("inf") else "optimal")
    assert placement.value == pytest.approx(best)
