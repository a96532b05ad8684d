"""``placewright place``: decide which op runs where."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placewright.cli import options as o
from placewright.cli.completing import completer, placers
from placewright.cli.guidance import next_steps, run_words

if TYPE_CHECKING:
    from placewright.placement import Placement


def place(
    model: o.Model,
    cluster: o.ClusterName = None,
    shape: o.Shape = None,
    phase: o.Phase = None,
    tokens: o.Tokens = None,
    memory: o.Memory = None,
    profile: o.ProfileFile = None,
    objective: o.ObjectiveName = None,
    execution: o.ExecutionName = None,
    placer: Annotated[
        str, typer.Option("--placer", help="see 'placewright placers'", autocompletion=completer(placers))
    ] = "auto",
    budget: o.BudgetText = "30s",
    evaluations: o.Evaluations = None,
    seed: o.Seed = 0,
    pin: o.Pin = None,
    forbid: o.Forbid = None,
    together: o.Together = None,
    constraints: o.ConstraintsFile = None,
    max_segments: o.MaxSegments = None,
    contiguous: o.Contiguous = True,
    schedule: o.ScheduleName = "1f1b",
    communication: o.CommunicationName = "added",
    replicas: o.Replicas = 1,
    split: o.SplitFile = None,
    policy: o.PolicyFile = None,
    variant: o.Variant = None,
    zero_shot: o.ZeroShot = False,
    measure: o.Measure = None,
    memo: o.MemoFile = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="write the placement as JSON")] = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Place a model and say how good the answer is.

    Examples:

    placewright place zoo:fork-join --cluster laptop-npu -o placement.json

    placewright place problem.json --objective throughput --placer topo --json

    placewright place zoo:inception-v3 --cluster cores:2 --profile profile.json --measure openvino -o placement.json

    placewright place hf:DIR --phase decode --memory cuda:0=8GiB --placer chain
    """
    from placewright.budget import parse_seconds
    from placewright.cli.doing import doing
    from placewright.cli.running import default_memo, run_placer, run_placer_measured
    from placewright.execute.live import open_live
    from placewright.frontends.base import parse_shapes
    from placewright.placers.registry import get_placer, get_placer_class
    from placewright.text import shown

    seconds = parse_seconds(budget)
    model = o.checkpoint_source(model, phase, tokens, memory)
    wishes = {"split": split, "policy": policy, "variant": variant, "zero_shot": zero_shot or None}
    options = {name: value for name, value in wishes.items() if value is not None}
    # Learned placers learn from every run; of what others find, the best candidates are run at the end.
    learns = measure is not None and "rewards" in inspect.signature(get_placer_class(placer)).parameters
    kept = memo or default_memo()
    if measure is not None and learns:
        options["rewards"] = o.measured_rewards(model, measure, kept)
    chosen = get_placer(placer, **options)
    problem = o.load_problem(
        model, cluster, profile, objective, execution, pin, forbid, together, shape, constraints,
        max_segments=max_segments, contiguous=contiguous, schedule=schedule, communication=communication,
        max_replicas=replicas,
    )  # fmt: skip

    def answer(placement: Placement) -> int:
        if output is not None and placement.is_valid:
            placement.save(output)
        if as_json:
            typer.echo(json.dumps(placement.summary()))
        elif placement.device_of_op is not None:
            _show(placement, quiet, output)
            if placement.is_valid and not quiet:
                _say_next(model, output, cluster, measure, placement.problem)
        return _exit_code(placement)

    if measure is None or learns:
        raise typer.Exit(run_placer(chosen, problem, seconds, evaluations, seed, answer))
    with doing(f"opening {shown(model)} for {shown(measure)}"):
        live = open_live(model, measure, parse_shapes(shape or []))
    raise typer.Exit(run_placer_measured(chosen, problem, seconds, evaluations, seed, live, kept, answer))


def _show(placement: Any, quiet: bool, output: str | None) -> None:
    from rich.console import Console

    from placewright.cli.tables import print_placement, result_line
    from placewright.text import shown

    if quiet:
        typer.echo(result_line(placement))
        return
    console = Console()
    print_placement(placement, console)
    if output is not None and placement.is_valid:
        console.print(f"wrote {shown(output, 200)}", highlight=False, markup=False)


def _say_next(model: str, output: str | None, cluster: str | None, measured: str | None, problem: Any) -> None:
    if output is None:
        on = ["--cluster", cluster] if cluster is not None else []
        next_steps(("keep it, to run, show or export it", ["place", model, *on, "-o", "placement.json"]))
        return
    run = run_words(model, output, problem) if measured is None else None
    show = ("look at it", ["report", output, "-o", "report.html"])
    next_steps(*([("run it for real", run)] if run else []), show)


def _exit_code(placement: Any) -> int:
    if placement.is_valid:
        return 0
    reasons = "; ".join(f.message for f in placement.faults[:3]) or placement.note
    if placement.device_of_op is None and placement.status == "infeasible":
        typer.echo(f"placewright: infeasible: {reasons}", err=True)
        return 3
    typer.echo(f"placewright: no valid placement by '{placement.placer}': {reasons}", err=True)
    return 4
