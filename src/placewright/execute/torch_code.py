"""Ops of an exported program as plain Python functions: one line per op, values in local variables.

A list of ops that is walked through costs some microseconds per op, more than many small ops take to launch. Here the
walk is done once: the ops of a segment become one function, whose text holds nothing but numbered names.
"""

from __future__ import annotations

import keyword
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from placewright.execute.dataflow import ExecutionError
from placewright.text import shown

Values = list[Any]  # by slot: the number of a node in its program
_NATIVE = (types.BuiltinFunctionType, types.MethodDescriptorType)
_FILE = "<segment>"


class Hook(NamedTuple):
    """Something to call before or after an op's line, on the device's own thread."""

    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None


class SpillCalls(NamedTuple):
    """What to call so that a tensor is in host memory for a while; ops by name, "" where it never returns."""

    name: str  # of the op whose result it is
    left: str  # the op after whose line it is copied to host memory
    gone: str  # the op before whose line the copy is waited for
    begun: str  # the op before whose line the copy back begins
    read: str  # the op that reads it next
    leave: Callable[[Any], Any]  # returns what is in host memory
    wait: Callable[[], None]
    begin: Callable[[], None]
    back: Callable[[], Any]


class Segment(NamedTuple):
    """Ops of one device that run without a break: ``run(values)`` reads and writes values by slot."""

    run: Callable[[Values], None]
    op_names: tuple[str, ...]
    waits: tuple[int, ...]  # slots that come from other devices
    sends: tuple[tuple[int, tuple[int, ...]], ...]  # slots and the devices that read them
    gone: tuple[int, ...]  # slots that are not needed here once they are sent

    def failed_op(self, error: BaseException) -> str:
        """The op that raised the error, by the line it happened in."""
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == _FILE:
                return self.op_names[min(_op_of_line(self.run, trace.tb_lineno), len(self.op_names) - 1)]
            trace = trace.tb_next
        return self.op_names[0]


def compile_segment(
    nodes: Sequence[Any],
    slots: Mapping[str, int],
    weights: Mapping[str, Any],
    kept: Collection[int],
    freed: Collection[int],
    device: Any,
    hooks: Mapping[str, Hook],
    spills: Sequence[SpillCalls] = (),
    in_place: Mapping[str, str] | None = None,
) -> Callable[[Values], None]:
    """Compile ``nodes``: results in ``kept`` are stored, slots in ``freed`` that came from before are dropped.

    ``weights`` are tensors by placeholder, already where the ops are. Devices among the arguments become ``device``.
    Tensors of ``spills`` are made by ``nodes``; what is stored of one that does not return is in host memory. An op in
    ``in_place`` writes its result over the input that is named there.
    """
    names: dict[str, Any] = {f"w{slots[n]}": t for n, t in weights.items()}
    inside = {n.name for n in nodes}
    last = {i.name: n.name for n in nodes for i in n.all_input_nodes}
    entering = dict.fromkeys(
        i.name for n in nodes for i in n.all_input_nodes if i.name not in inside and i.name not in weights
    )
    lines = ["def segment(values):"] + [f"    v{slots[n]} = values[{slots[n]}]" for n in entering]
    lines += [f"    values[{slots[n]}] = None" for n in entering if slots[n] in freed]
    op_of_line: dict[int, int] = {}
    moves = _moves(nodes, slots, kept, last, spills, names)
    spilled = {s.name for s in spills}

    def written(value: Any) -> str:
        if hasattr(value, "all_input_nodes"):
            return f"{'w' if value.name in weights else 'v'}{slots[value.name]}"
        if isinstance(value, (list, tuple)):
            inner = ", ".join(written(v) for v in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if value else ''})"
        if value is None or isinstance(value, (bool, int)):
            return repr(value)
        names[f"c{len(names)}"] = device if type(value).__name__ == "device" else value
        return f"c{len(names) - 1}"

    for position, node in enumerate(nodes):
        slot, hook, move = slots[node.name], hooks.get(node.name, Hook()), moves.get(node.name, _NO_MOVES)
        lines += move.freed
        if hook.before is not None:
            names[f"before{slot}"] = hook.before
            lines.append(f"    before{slot}()")
        lines += move.before
        given = (in_place or {}).get(node.name)
        names[f"f{slot}"] = direct_function(node) if given is None else in_place_function(node)
        if not all(k.isidentifier() and not keyword.iskeyword(k) for k in node.kwargs):
            raise ExecutionError(f"operator '{shown(node.name)}' has an argument whose name is no name")
        # The in-place form writes over its first argument.
        is_second = given is not None and getattr(node.args[0], "name", "") != given
        arguments = [written(a) for a in (reversed(node.args) if is_second else node.args)] + [
            f"{k}={written(v)}" for k, v in node.kwargs.items()
        ]
        lines.append(f"    v{slot} = f{slot}({', '.join(arguments)})")
        op_of_line[len(lines)] = position
        if slot in kept and node.name not in spilled:
            lines.append(f"    values[{slot}] = v{slot}")
        lines += move.after
        if hook.after is not None:
            names[f"after{slot}"] = hook.after
            lines.append(f"    after{slot}()")
        dead = [
            i.name for i in dict.fromkeys(node.all_input_nodes) if i.name not in weights and last[i.name] == node.name
        ]
        dead += [] if last.get(node.name) else [node.name]
        lines.append(f"    {' = '.join(f'v{slots[n]}' for n in dead)} = None" if dead else "    pass")
    lines += moves.get("", _NO_MOVES).freed
    namespace: dict[str, Any] = names
    # Names are numbered; of the program itself only whole numbers, truth values and names of arguments are in the text.
    exec(compile("\n".join(lines), _FILE, "exec"), namespace)
    segment: Callable[[Values], None] = namespace.pop("segment")  # or it would hold on to itself
    segment.op_of_line = op_of_line  # type: ignore[attr-defined]
    return segment


class _Moves(NamedTuple):
    """Lines around an op's line that copy tensors to host memory and back."""

    freed: list[str]
    before: list[str]
    after: list[str]


_NO_MOVES = _Moves([], [], [])


def _moves(
    nodes: Sequence[Any],
    slots: Mapping[str, int],
    kept: Collection[int],
    last: Mapping[str, str],
    spills: Sequence[SpillCalls],
    names: dict[str, Any],
) -> dict[str, _Moves]:
    """By op, and under "" what comes after the last; ``names`` is given what the lines call."""
    if not spills:
        return {}
    moves = {name: _Moves([], [], []) for name in (*(n.name for n in nodes), "")}
    stays = {s.name for s in spills} - {s.name for s in spills if not s.read}
    for name in sorted(stays):
        if slots[name] in kept:  # it is back once nothing here reads it any more
            moves[last[name]].after.append(f"    values[{slots[name]}] = v{slots[name]}")
    for k, spill in enumerate(spills):
        slot = slots[spill.name]
        names |= {f"leave{k}": spill.leave, f"wait{k}": spill.wait, f"begin{k}": spill.begin, f"back{k}": spill.back}
        stored = "" if spill.read else f"values[{slot}] = "
        moves[spill.left].after.append(f"    {stored}leave{k}(v{slot}); v{slot} = None")
        # Copies that nobody waits for here are waited for in the end: what is recorded must be complete.
        moves[spill.gone if spill.gone in moves else ""].freed.append(f"    wait{k}()")
        if spill.read:
            moves[spill.begun].before.append(f"    begin{k}()")
            moves[spill.read].before.append(f"    v{slot} = back{k}()")
    return moves


def direct_function(node: Any) -> Any:
    """The op's function, by torch's own fast binding where there is one of that name.

    An op that changes an input that others read as well works on a copy of it.
    """
    import torch

    target = node.target
    schema = getattr(target, "_schema", None)
    if schema is None:
        return target
    if schema.is_mutable:
        if len(node.args[0].users) == 1:
            return target
        return lambda first, *args, **kwargs: target(first.clone(), *args, **kwargs)
    if target.namespace != "aten" or schema.name.startswith("aten::_"):
        return target
    name = schema.name.removeprefix("aten::")
    homes = (torch, torch._C._nn, torch.Tensor)
    native = next((getattr(h, name) for h in homes if isinstance(getattr(h, name, None), _NATIVE)), None)
    return target if native is None or not _same_arguments(node, schema) else native


def in_place_function(node: Any) -> Any:
    """The form of an elementwise op that writes over its first argument."""
    import torch

    return getattr(torch.Tensor, node.target._schema.name.removeprefix("aten::") + "_")


def _same_arguments(node: Any, schema: Any) -> bool:
    """Whether the fast binding takes the arguments as they are: first a tensor, those by name only given by name."""
    by_position = [a for a in schema.arguments if not a.kwarg_only]
    first = node.args[0] if node.args else None
    is_tensor = hasattr(first, "all_input_nodes") or isinstance(first, (list, tuple))
    return is_tensor and len(node.args) <= len(by_position) and "device" not in node.kwargs


def _op_of_line(run: Callable[[Values], None], line: int) -> int:
    table: dict[int, int] = run.op_of_line  # type: ignore[attr-defined]
    return next((op for at, op in table.items() if at >= line), max(table.values(), default=0))
