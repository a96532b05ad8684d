"""Options that several commands share, and how they become a problem."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlencode

import typer

from placewright.cli import completing as words
from placewright.cli.completing import completer
from placewright.cli.doing import doing
from placewright.errors import InputError
from placewright.problems import COMMUNICATIONS, SCHEDULES, Problem, Rule
from placewright.text import shown

if TYPE_CHECKING:
    from placewright.placement import Placement

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="a model (.xml, .onnx, .pt2), a published problem (.json), zoo:NAME or hf:DIR",
        show_default=False,
        autocompletion=completer(words.models),
    ),
]
PlacementFile = Annotated[
    str, typer.Argument(metavar="PLACEMENT", help="a placement written by 'place -o', or a split", show_default=False)
]
GivenModel = Annotated[
    str | None, typer.Option("--model", help="the model, where the placement does not say which, or another copy of it")
]
ClusterName = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="preset, cores:K or TOML file; not for published problems",
        autocompletion=completer(words.clusters),
    ),
]
ProfileFile = Annotated[str | None, typer.Option("--profile", help="measured costs: a file, or the name of a set")]
ObjectiveName = Annotated[
    str | None, typer.Option("--objective", help="latency or throughput", autocompletion=completer(words.objectives))
]
ExecutionName = Annotated[
    str | None,
    typer.Option(
        "--execution", help="overlap, sequential, calls or pipeline", autocompletion=completer(words.executions)
    ),
]
BudgetText = Annotated[str, typer.Option("--budget", help="time to spend, such as 500ms, 30s, 5m")]
Evaluations = Annotated[
    int | None, typer.Option("--evaluations", min=1, help="placements to evaluate, where a placer counts them")
]
Seed = Annotated[int, typer.Option("--seed", min=0)]
Pin = Annotated[
    list[str] | None, typer.Option("--pin", metavar="REGEX=DEVICE", help="keep matching ops on a device or kind")
]
Forbid = Annotated[list[str] | None, typer.Option("--forbid", metavar="REGEX=DEVICE", help="keep matching ops off it")]
Together = Annotated[
    list[str] | None, typer.Option("--together", metavar="REGEX", help="keep matching ops on one device")
]
ConstraintsFile = Annotated[
    str | None, typer.Option("--constraints", metavar="FILE", help="TOML file of pins, forbids, margins and so on")
]
# Verbs that open a placement have None as the default of what follows: as in the file.
MaxSegments = Annotated[int | None, typer.Option("--max-segments", min=1, help="at most this many segments")]
Contiguous = Annotated[
    bool | None, typer.Option("--contiguous/--no-contiguous", help="pipeline stages follow one another")
]
ScheduleName = Annotated[
    str | None, typer.Option("--schedule", help="training pipelines: 1f1b (max FW+BW) or gpipe (max FW + max BW)")
]
CommunicationName = Annotated[
    str | None, typer.Option("--communication", help="pipeline copies: added to compute or overlapped with it")
]
Replicas = Annotated[
    int | None, typer.Option("--replicas", min=1, help="a pipeline stage may use up to this many devices of a kind")
]
Shape = Annotated[
    list[str] | None, typer.Option("--shape", metavar="NAME=D1,D2", help="shape of a model's input that it leaves open")
]
Phase = Annotated[
    str | None, typer.Option("--phase", help="hf:DIR: forward, prefill, decode, or several: prefill:1,decode:200")
]
Tokens = Annotated[int | None, typer.Option("--tokens", min=1, help="hf:DIR: length of the prompt")]
Memory = Annotated[
    list[str] | None, typer.Option("--memory", metavar="DEVICE=SIZE", help="hf:DIR: limit, such as cuda:0=8GiB")
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="print the result line only")]
SplitFile = Annotated[str | None, typer.Option("--split", help="the split that placer 'expert' reads")]
PolicyFile = Annotated[
    str | None, typer.Option("--policy", help="a policy by 'train', for learned placers; gdp: 'none' for none")
]
Variant = Annotated[str | None, typer.Option("--variant", help="hsdag: ours, paper or released; gdp: ours or paper")]
ZeroShot = Annotated[bool, typer.Option("--zero-shot", help="gdp: use the policy as it is, learn nothing")]
Measure = Annotated[
    str | None, typer.Option("--measure", metavar="RUNTIME", help="run candidates for real, return the fastest")
]
MemoFile = Annotated[
    Path | None, typer.Option("--memo", help="file of measurements, for --measure", show_default=False)
]


def measured_rewards(model: str, runtime: str, memo: Path) -> Any:
    """How a learned placer gets its rewards from real execution."""

    def make(problem: Problem) -> Any:
        from placewright.execute.live import open_live
        from placewright.execute.measured import measurement_context
        from placewright.execute.memo import Memo
        from placewright.placers.learned.rewards import MeasuredRewards

        live = open_live(model, runtime)
        return MeasuredRewards(problem, live, Memo(memo, measurement_context(live, problem)))

    return make


def checkpoint_source(model: str, phase: str | None, tokens: int | None, memory: list[str] | None) -> str:
    """The name of a checkpoint with what the command line says about it."""
    given = [("phase", phase), ("tokens", tokens), *(("memory", m) for m in memory or [])]
    wanted = [(key, str(value)) for key, value in given if value is not None]
    if wanted and not model.startswith("hf:"):
        raise InputError(f"--{wanted[0][0]} is for checkpoint folders: hf:DIR")
    return model + ("&" if "?" in model else "?") + urlencode(wanted, safe=":=,") if wanted else model


def load_problem(
    model: str,
    cluster: str | None,
    profile: str | None,
    objective: str | None,
    execution: str | None,
    pin: list[str] | None,
    forbid: list[str] | None,
    together: list[str] | None,
    shape: list[str] | None,
    constraints: str | None = None,
    **options: Any,
) -> Problem:
    """Load the model and apply the constraints given on the command line."""
    from placewright.api import load
    from placewright.frontends.base import parse_shapes

    _check_options(options)
    rules = _rules(pin, forbid, together)
    shapes = parse_shapes(shape or [])
    with doing(f"loading {shown(model)}"):
        problem = load(
            model, cluster, objective, execution, profile, shapes, constraints=constraints, rules=rules, **options
        )
    _warn(problem.graph.metadata)
    _ = problem.allowed, problem.group_of_op  # a rule that matches nothing is found here, before any work
    return problem


def open_placed(
    path: str,
    model: str | None = None,
    cluster: str | None = None,
    profile: str | None = None,
    shape: list[str] | None = None,
    objective: str | None = None,
    execution: str | None = None,
    pin: list[str] | None = None,
    forbid: list[str] | None = None,
    together: list[str] | None = None,
    constraints: str | None = None,
    **options: Any,
) -> Placement:
    """Open a placement file with its problem; what is given takes the place of what the file says.

    ``pin``, ``forbid`` and ``together`` count as one: each of them takes the place of all three.
    """
    from placewright.frontends.base import parse_shapes
    from placewright.saved import open_placement

    _check_options(options)
    shapes = parse_shapes(shape) if shape else None
    rules = _rules(pin, forbid, together) or None
    with doing(f"loading {shown(path)}"):
        placement = open_placement(
            path, model, cluster, profile, shapes, objective, execution, constraints, rules=rules, **options
        )
    _warn(placement.problem.graph.metadata)
    return placement


def shapes_of(problem: Problem) -> dict[str, tuple[int, ...]]:
    """The shapes that the problem's model was read with, given now or when it was placed."""
    return {name: tuple(shape) for name, shape in problem.origin.get("shapes", {}).items()}


def _check_options(options: Mapping[str, Any]) -> None:
    for name, known in (("schedule", SCHEDULES), ("communication", COMMUNICATIONS)):
        value = options.get(name)
        if value is not None and value not in known:
            raise InputError(f"--{name} is '{shown(value)}', expected {' or '.join(known)}")


def _rules(pin: list[str] | None, forbid: list[str] | None, together: list[str] | None) -> tuple[Rule, ...]:
    rules = [_rule("pin", text) for text in pin or []] + [_rule("forbid", text) for text in forbid or []]
    return (*rules, *(Rule("together", text) for text in together or []))


def _warn(metadata: dict[str, Any]) -> None:
    """One line about everything in the model whose cost is a guess."""
    unknown = metadata.get("unknown_op_types") or {}
    parts = []
    if unknown:
        types = ", ".join(f"{shown(t, 40)} x{n}" for t, n in list(unknown.items())[:5])
        more = f" and {len(unknown) - 5} more types" if len(unknown) > 5 else ""
        parts.append(f"operator types without a cost formula, counted as one flop per output value: {types}{more}")
    if metadata.get("unknown_shapes"):
        parts.append(f"{metadata['unknown_shapes']} tensors whose size only the data decide, counted as small")
    if metadata.get("guessed_shapes"):
        parts.append(f"{metadata['guessed_shapes']} tensors of unknown shape, taken to be like their first input")
    if metadata.get("unknown_iterations"):
        parts.append(f"{metadata['unknown_iterations']} loops whose length only the data decide, counted as one round")
    if parts:
        typer.echo("placewright: warning: " + "; ".join(parts), err=True)


def _rule(action: Literal["pin", "forbid"], text: str) -> Rule:
    pattern, equals, target = text.rpartition("=")
    if not equals or not pattern or not target:
        raise InputError(f"--{action} '{shown(text)}': expected REGEX=DEVICE, for example 'conv.*=gpu0'")
    return Rule(action, pattern, target)
