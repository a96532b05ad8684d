"""``placewright train``: teach a learned placer on one model or several, and keep the policy."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placewright.cli import options as o
from placewright.cli.guidance import next_steps
from placewright.errors import InputError
from placewright.text import shown, time_text

if TYPE_CHECKING:
    from placewright.placers.learned.schooling import AnySchool, Lesson

TRAINABLE = ("hsdag", "gdp")


def train(
    placer: Annotated[str, typer.Argument(metavar="PLACER", help="hsdag or gdp", show_default=False)],
    model: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="models or problems to train on", show_default=False)
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="the policy to write (.safetensors)")],
    cluster: o.ClusterName = None,
    profile: o.ProfileFile = None,
    execution: o.ExecutionName = None,
    evaluations: Annotated[int, typer.Option("--evaluations", min=1, help="placements to evaluate per model")] = 2000,
    budget: o.BudgetText = "10m",
    seed: o.Seed = 0,
    policy: Annotated[str | None, typer.Option("--policy", help="gdp: the policy to start from")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with a training that was stopped")] = False,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Train a policy; 'place --policy FILE' then starts from it, on these models or on others.

    Example:

    placewright train hsdag zoo:resnet-50 zoo:inception-v3 --cluster flex170 -o policy.safetensors

    placewright train gdp zoo:rnnlm-2 zoo:transformer-xl-2 --cluster p100x2 -o policy.safetensors
    """
    from placewright.budget import Budget, parse_seconds
    from placewright.cli import stopping
    from placewright.cli.doing import doing, note
    from placewright.cli.running import interruptible
    from placewright.placers.base import make_ready
    from placewright.placers.registry import get_placer, get_placer_class

    seconds = parse_seconds(budget)
    if placer not in TRAINABLE:
        raise InputError(f"placer '{shown(placer)}' cannot be trained; expected {' or '.join(TRAINABLE)}")
    get_placer_class(placer).check_installed()
    problems = [o.load_problem(m, cluster, profile, None, execution, None, None, None, None) for m in model]
    if policy is not None and placer != "gdp":
        raise InputError(f"--policy: training of '{placer}' starts from random weights")
    from placewright.placers.learned.schooling import new_school
    from placewright.placers.learned.schooling import train as run_training

    with doing(f"preparing to train '{placer}'") as say:
        say("what is not yet compiled is compiled now, which takes minutes the first time")
        for problem in problems:
            make_ready(get_placer(placer), problem)
        school = new_school(placer, problems, evaluations, seed, policy)
    limit = Budget(seconds)

    def cut_off() -> int:
        """A step that takes long is not waited for: the checkpoint of the last one is there."""
        if not Path(f"{output}.checkpoint").exists():
            raise ValueError("no step has ended")
        note(f"stopped; --resume goes on from {shown(output, 200)}.checkpoint")
        return stopping.exit_code()

    with _progress(model, school, seconds) as watch, interruptible(limit, "the policy so far", cut_off):
        finished = run_training(school, Path(output), limit, resume=resume, watch=watch)
        with stopping.answering():
            _show(model, school, output, finished, as_json)
            if finished and not (as_json or quiet):
                next_steps(("use it", ["place", model[0], "--placer", placer, "--policy", output, *_on(cluster)]))
            if not finished:
                note(f"stopped; --resume goes on from {shown(output, 200)}.checkpoint")


def _on(cluster: str | None) -> list[str]:
    return [] if cluster is None else ["--cluster", cluster]


def _show(models: list[str], school: AnySchool, output: str, finished: bool, as_json: bool) -> None:
    best = [learner.trials.best_value for learner in school.learners]
    done = [learner.trials.evaluations for learner in school.learners]
    if as_json:
        rows = [{"model": m, "best": b, "evaluations": e} for m, b, e in zip(models, best, done, strict=True)]
        typer.echo(json.dumps({"policy": output, "finished": finished, "models": rows}))
        return
    for m, b, e, problem in zip(models, best, done, school.problems, strict=True):
        typer.echo(f"{shown(m)}: {time_text(b, problem.time_unit)} after {e} evaluations")
    typer.echo(f"wrote {shown(output, 200)}")


@contextlib.contextmanager
def _progress(models: list[str], school: AnySchool, seconds: float) -> Iterator[Callable[[Lesson], None]]:
    from placewright.cli.doing import doing

    began = time.monotonic()
    with doing("training", seconds) as say:

        def show(lesson: Lesson) -> None:
            unit = school.problems[lesson.number].time_unit
            total = sum(learner.trials.evaluations for learner in school.learners)
            rate = total / max(time.monotonic() - began, 1e-9)
            say(
                f"{shown(models[lesson.number])}: best {time_text(lesson.report.best, unit)} · mean "
                f"{time_text(lesson.report.mean, unit)} · {lesson.report.groups} groups · "
                f"{lesson.report.evaluations} of {school.evaluations} evaluations · {rate:.0f}/s"
            )

        yield show
