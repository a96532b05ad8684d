"""``placewright run``: execute a placement and say what it really reached."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placewright.cli import options as o
from placewright.cli.completing import completer, runtimes
from placewright.cli.guidance import next_steps
from placewright.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from placewright.cluster import Cluster
    from placewright.execute.measure import Timing
    from placewright.execute.run import RunResult
    from placewright.placement import Placement


def run(
    model: o.Model,
    placement: o.PlacementFile,
    cluster: o.ClusterName = None,
    profile: o.ProfileFile = None,
    objective: o.ObjectiveName = None,
    execution: o.ExecutionName = None,
    runtime: Annotated[
        str | None,
        typer.Option(
            "--runtime",
            help="openvino, openvino-hetero, torch or onnxruntime; the profile's if not given",
            autocompletion=completer(runtimes),
        ),
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="rounds, each running every variant once")] = 10,
    samples: Annotated[int, typer.Option("--samples", min=1, help="length of the stream through a pipeline")] = 30,
    bisect: Annotated[bool, typer.Option("--bisect", help="instead: find the first segment that differs")] = False,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0.0, help="of --bisect: relative to an output's largest magnitude")
    ] = 1e-4,
    cuda_graphs: Annotated[
        bool, typer.Option("--cuda-graphs", help="torch: record what runs on CUDA devices, of all variants")
    ] = False,
    shape: o.Shape = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Execute a placement against every single device, in turns, and compare the outputs.

    Cluster, profile and objective are the ones the placement was made for, unless given.

    Examples:

    placewright run zoo:inception-v3 placement.json

    placewright run model.onnx placement.json --runtime onnxruntime --json

    placewright run zoo:resnet-50 placement.json --bisect
    """
    from placewright.budget import Budget
    from placewright.cli import stopping
    from placewright.cli.doing import doing
    from placewright.cli.running import interruptible
    from placewright.execute.bisect import bisect_placement
    from placewright.execute.live import open_live
    from placewright.execute.run import PlacementRun
    from placewright.text import shown

    placed = o.open_placed(placement, model, cluster, profile, shape, objective, execution)
    problem = placed.problem
    if cuda_graphs and problem.execution == "pipeline":
        raise InputError("--cuda-graphs is for the latency of one sample; stages of a pipeline run without")
    likely = runtime or _likely_runtime(placed, model)
    with doing(f"opening {shown(model)} for {shown(likely)}"):
        live = open_live(model, likely, o.shapes_of(problem), cuda_graphs=cuda_graphs)
    if bisect:
        with doing("comparing segments"):
            found = bisect_placement(live, placed, tolerance=tolerance)
        _show_bisection(found, problem.cluster, as_json)
        return
    with doing("compiling this placement and what it is compared with"):
        measurement = PlacementRun(live, placed, samples=samples)

    def answer() -> int:
        result = measurement.result()
        if result is None:  # a signal came before anything was measured
            raise KeyboardInterrupt
        if as_json:
            typer.echo(json.dumps(result.summary(problem.cluster.device_names)))
        elif quiet:
            typer.echo(f"{result.measured.median_s:.6g}")
        else:
            _show(result)
            next_steps(("look at it", ["report", placement, "-o", "report.html"]))
        return 0

    budget = Budget(math.inf)
    with measurement, interruptible(budget, "what has been measured so far", answer):
        with doing("measuring") as say:
            measurement.measure(
                repeats, should_stop=budget.expired, on_round=lambda number: say(f"round {number} of {repeats}")
            )
        with stopping.answering():
            answer()


def _likely_runtime(placed: Placement, model: str) -> str:
    """The runtime that the placement's costs were measured with, else one that reads the model."""
    from placewright.profile_file import find_profile

    name = placed.problem.origin.get("profile")
    profile = find_profile(name, placed.problem.graph) if isinstance(name, str) else None
    measured = {m.runtime for m in profile.measurements.values()} if profile is not None else set()
    if len(measured) == 1:
        return measured.pop()
    return "torch" if model.endswith(".pt2") else "openvino"


def _show_bisection(found: Any, cluster: Cluster, as_json: bool) -> None:
    from placewright.text import shown

    if as_json:
        first = found.first._asdict() if found.first else None
        segments = [s._asdict() for s in found.segments]
        typer.echo(json.dumps({"first": first, "tolerance": found.tolerance, "segments": segments}))
        return
    if found.first is None:
        worst = max((s.total for s in found.segments), default=0.0)
        typer.echo(f"no segment of {len(found.segments)} differs by more than {found.tolerance:g} (most: {worst:.2g})")
        return
    s = found.first
    precision = {d.name: cluster.kind_of(d).precision or "f32" for d in cluster.devices}
    typer.echo(
        f"segment {s.number} of {len(found.segments)} on {shown(s.device)} is the first to differ from "
        f"{shown(found.reference)}: {s.n_ops} ops from '{shown(s.first_op)}', off by {s.total:.2g} of its range "
        f"({s.own:.2g} with the inputs of {shown(found.reference)})"
    )
    if precision[s.device] != precision[found.reference]:
        typer.echo(f"{shown(s.device)} computes in {precision[s.device]}, so a difference is expected")


def _show(result: RunResult) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    from placewright.text import shown, time_text

    console = Console()
    is_stream = result.latencies is not None
    numbers = (Column(h, justify="right", no_wrap=True) for h in ("median", "95% interval", "a second"))
    table = Table("per sample of a stream" if is_stream else "", *numbers, Column("this placement is", no_wrap=True))
    _add_rows(table, result.timings, has_rates=True)
    if result.latencies is not None:
        table.add_section()
        table.add_row("[bold]latency of one sample alone[/bold]")
        _add_rows(table, result.latencies, has_rates=False)
    console.print(table)
    off = result.measured.median_s / result.predicted_s - 1 if result.predicted_s else 0.0
    console.print(
        f"predicted {time_text(result.predicted_s)}, measured {time_text(result.measured.median_s)} ({off:+.1%}); "
        f"{result.segments} segments; compiled in {result.compile_s:.1f} s; {result.runtime} {result.note}".rstrip(),
        highlight=False,
    )
    for error in result.outputs:
        console.print(
            f"{shown(error.name)}: differs from one device by {error.max_abs:.3g} ({error.max_rel:.2g} of its range)",
            highlight=False,
        )
    for stage in result.stages:
        console.print(f"{shown(stage.name)}: busy {stage.utilisation:.0%} of the time", highlight=False)


def _add_rows(table: Table, timings: dict[str, Timing], *, has_rates: bool) -> None:
    from rich.markup import escape

    from placewright.execute.measure import compare
    from placewright.execute.run import PLACED
    from placewright.text import interval_text, shown, time_text

    for name, timing in sorted(timings.items(), key=lambda item: item[1].median_s):
        table.add_row(
            escape(shown(name)),
            time_text(timing.median_s),
            interval_text(timing.low_s, timing.high_s),
            f"{1 / timing.median_s:.1f}" if has_rates else "",
            "" if name == PLACED else compare(timings[PLACED], timing).brief,
        )
