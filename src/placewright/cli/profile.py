"""``placewright profile``: measure what a model's ops and copies cost here; show and merge such measurements."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placewright.cli import options as o
from placewright.cli import stopping
from placewright.cli.doing import doing, note
from placewright.cli.guidance import next_steps
from placewright.errors import InputError
from placewright.text import shown, time_text

_NOT_CALIBRATED = "stopped while calibrating; the profile holds what was measured before"
WIDE_SPREAD = 0.1  # half of the 95% interval of a median, as a share of it
# Between equal devices most placements take nearly the same time, so a correlation of 0.6 is nothing unusual.
LARGE_ERROR, LOW_CORRELATION = 0.15, 0.3

if TYPE_CHECKING:
    from placewright.cluster import Cluster, DeviceKind
    from placewright.costs.measure.campaign import Finding
    from placewright.profiles import Profile


def profile(
    model: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="model file or zoo:NAME; with --list or --merge: profiles"),
    ],
    cluster: Annotated[str | None, typer.Option("--cluster", help="preset, cores:K or TOML file")] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="the profile to write")] = None,
    runtime: Annotated[str | None, typer.Option("--runtime", help="openvino or torch")] = None,
    kinds: Annotated[str | None, typer.Option("--kinds", help="only these kinds of device, such as cpu,gpu")] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, max=100_000, help="passes over the model")] = 30,
    shape: Annotated[list[str] | None, typer.Option("--shape", metavar="NAME=D1,D2", help="shape of an input")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue a measurement that was stopped")] = False,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="fit ops to the whole run, and what cuts cost to placements executed for it"),
    ] = False,
    list_files: Annotated[bool, typer.Option("--list", help="show profiles instead of measuring")] = False,
    merge: Annotated[bool, typer.Option("--merge", help="write several profiles of one model as one")] = False,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Measure a model on the devices of a cluster that are really here.

    Examples:

    placewright profile zoo:resnet-50 --cluster cores:2 -o profile.json

    placewright profile --list profile.json

    placewright profile --merge cpu.json gpu.json -o both.json
    """
    from placewright.profiles import Profile

    if list_files or merge:
        profiles = [Profile.load(path) for path in model]
        if merge:
            if output is None:
                raise InputError("--merge needs -o FILE, the profile to write")
            merged = profiles[0]
            for newer in profiles[1:]:
                merged = merged.merge(newer)
            merged.save(output)
            profiles = [merged]
        _show(profiles, as_json, quiet)
        return
    if output is None or cluster is None or len(model) != 1:
        raise InputError("measuring needs one MODEL, --cluster and -o FILE")

    def answer(finding: Finding) -> int:
        _show([finding.profile], as_json, quiet)
        if not finding.is_complete:
            note(f"stopped; {shown(output, 200)} holds what was measured, --resume continues")
            return stopping.exit_code()
        for doubt in doubts(finding.profile):
            typer.echo(f"placewright: {doubt}; measure again when the machine is idle", err=True)
        if not (as_json or quiet):
            words = ["place", model[0], "--cluster", cluster, "--profile", output, "-o", "placement.json"]
            next_steps(("place by what was measured", words))
        return 0

    raise typer.Exit(
        _measured(model[0], cluster, output, runtime, kinds, repeats, shape or [], resume, calibrate, answer)
    )


def doubts(profile: Profile) -> Iterator[str]:
    """Signs that something else was running meanwhile."""
    for kind, m in profile.measurements.items():
        if m.whole_spread_s > WIDE_SPREAD * m.whole_s:
            yield (
                f"runs of the whole model on '{shown(kind)}' took {time_text(m.whole_s)} give or take "
                f"{m.whole_spread_s / m.whole_s:.0%} (usual: less than {WIDE_SPREAD:.0%})"
            )
    c = profile.calibration
    if c is not None and (c.error_after > LARGE_ERROR or c.rank_correlation < LOW_CORRELATION):
        yield (
            "the calibration is of little use: with it predictions of executed placements are "
            f"{c.error_after:.0%} off in the median (usual: less than {LARGE_ERROR:.0%}), with a rank correlation of "
            f"{c.rank_correlation:.2f} (usual: more than {LOW_CORRELATION:g})"
        )


def _measured(
    model: str, cluster_name: str, output: str, runtime: str | None, kind_names: str | None, repeats: int,
    shapes: list[str], resume: bool, calibrate: bool, answer: Callable[[Finding], int],
) -> int:  # fmt: skip
    from placewright.cluster_file import load_cluster
    from placewright.costs.measure.campaign import found_so_far, measure
    from placewright.costs.measure.journal import Journal
    from placewright.costs.measure.sources import open_source
    from placewright.frontends.base import parse_shapes
    from placewright.profiles import graph_fingerprint

    cluster = load_cluster(cluster_name)
    kinds = _chosen(cluster.kinds, kind_names)
    with doing(f"loading {shown(model)}"):
        source = open_source(model, runtime, parse_shapes(shapes))
    settings = {
        "fingerprint": graph_fingerprint(source.graph),
        "runtime": source.runtime,
        "kinds": [[k.name, k.runtime_device, k.threads, k.precision, k.instruction_set] for k in kinds],
    }
    journal = Journal(Path(f"{output}.partial"), settings, resume=resume)

    measured: list[Finding] = []  # one, as soon as only the calibration is left

    def answer_so_far() -> int:
        if measured:
            note(_NOT_CALIBRATED)
            return answer(measured[0])
        finding = found_so_far(source.graph, kinds, journal, calibrate=calibrate)
        finding.profile.save(output)
        return answer(finding)

    with stopping.kept(answer_so_far), doing(f"measuring {shown(model)}") as say:
        try:
            finding = measure(
                source.graph, cluster, kinds, source.make_runner, repeats=repeats, journal=journal,
                calibrate=calibrate, say=say,
            )  # fmt: skip
        except InputError as error:
            if not journal.keys_of("passes"):
                journal.remove()
                if stopping.was_stopped():
                    raise stopping.Stopped.now() from error
            raise
        with stopping.answering():
            finding.profile.save(output)
            if finding.is_complete:
                journal.remove()
                measured.append(finding)
        is_all = finding.is_complete and len(kinds) == len(cluster.kinds)
        if calibrate and is_all and not source.graph.is_backward.any():
            finding = _calibrated(finding, model, cluster, parse_shapes(shapes), say)
        with stopping.answering():
            if measured and finding is not measured[0]:
                finding.profile.save(output)
            return answer(finding)


def _calibrated(
    finding: Finding, model: str, cluster: Cluster, shapes: dict[str, tuple[int, ...]], say: Callable[[str], None]
) -> Finding:
    """Execute some placements and calibrate by them; Ctrl-C leaves the profile as it was."""
    from dataclasses import replace

    from placewright.api import load
    from placewright.costs.machine import core_count
    from placewright.execute.calibrate import calibrated
    from placewright.execute.live import open_live

    runtime = next(iter(finding.profile.measurements.values())).runtime
    if sum(cluster.kind_of(d).threads for d in cluster.devices) > core_count():
        typer.echo("placewright: fewer cores here than the cluster has, so cuts are not calibrated", err=True)
        return finding
    try:
        problem = load(model, cluster, profile=finding.profile, shapes=shapes)
        better = calibrated(finding.profile, problem, open_live(model, runtime, shapes), say=say)
    except KeyboardInterrupt:
        note(_NOT_CALIBRATED)
        return finding
    return replace(finding, profile=better)


def _chosen(kinds: tuple[DeviceKind, ...], names: str | None) -> list[DeviceKind]:
    if names is None:
        return list(kinds)
    known = {kind.name: kind for kind in kinds}
    for name in names.split(","):
        if name not in known:
            raise InputError(f"--kinds: the cluster has no kind '{shown(name)}'; known: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names.split(","))]


def _show(profiles: list[Profile], as_json: bool, quiet: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"profiles": [_summary(p) for p in profiles]}))
        return
    for p in profiles:
        typer.echo(f"{shown(p.model) or 'a model'}: {len(p.op_names)} ops, {len(p.groups)} fused groups")
        for kind in p.kinds:
            typer.echo(f"  {shown(kind)}: {_kind_text(p, kind)}")
        for name, curve in ({} if quiet else p.copies).items():
            latency_s, bandwidth = curve.fit()
            typer.echo(f"  copies {shown(name)}: {time_text(latency_s)} + {bandwidth / 1e9:.3g} GB/s")
        if p.calibration is not None:
            c = p.calibration
            typer.echo(
                f"  calibrated with {c.placements} executed placements: median error {c.error_before:.1%} before, "
                f"{c.error_after:.1%} after, rank correlation {c.rank_correlation:.2f}"
            )


def _kind_text(p: Profile, kind: str) -> str:
    m = p.measurements.get(kind)
    if m is None:
        return f"modelled ({shown(p.source)})"
    error = m.sum_s / m.whole_s - 1
    text = (
        f"whole {time_text(m.whole_s)} ± {time_text(m.whole_spread_s)}, sum of ops {time_text(m.sum_s)} ({error:+.1%})"
        f"; {shown(m.software)} on {shown(m.device)}, {m.threads} threads, {shown(m.precision)}, {m.repeats} passes, "
        f"{shown(m.machine)}, {shown(m.date)}"
    )
    return text if m.scale == 1 else f"{text}, times scaled by {m.scale:.4g}"


def _summary(p: Profile) -> dict[str, Any]:
    from dataclasses import asdict

    copies = {name: dict(zip(("latency_s", "bytes_per_s"), c.fit(), strict=True)) for name, c in p.copies.items()}
    return {
        "model": p.model,
        "fingerprint": p.fingerprint,
        "ops": len(p.op_names),
        "groups": len(p.groups),
        "kinds": {kind: asdict(m) if (m := p.measurements.get(kind)) else None for kind in p.kinds},
        "copies": copies,
        "segment_overhead_s": dict(p.segment_overhead_s),
        "calibration": asdict(p.calibration) if p.calibration else None,
    }
