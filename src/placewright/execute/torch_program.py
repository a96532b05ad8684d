"""What the torch executors read from an exported program: its ops, their devices, their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from placewright.errors import InputError
from placewright.text import shown

if TYPE_CHECKING:
    import torch


# Ops that say nothing of it in their declaration, and hand back what they were given in evaluation.
_RETURNS_ITS_INPUT = ("aten::dropout", "aten::feature_dropout", "aten::alpha_dropout")
# Ops that fail, or mean something else, where a tensor lies in memory in another order than the exporter saw.
_NEEDS_ITS_LAYOUT = ("aten::view", "aten::_unsafe_view", "aten::as_strided", "aten::view_as_complex")

# Ops that work element by element and have an in-place form, aten::tanh_ and the like.
_COMMUTATIVE = frozenset({"aten::add", "aten::mul"})
_ELEMENTWISE = _COMMUTATIVE | {
    f"aten::{name}" for name in ("relu", "tanh", "sigmoid", "exp", "neg", "sqrt", "rsqrt", "sub", "div")
}
_FRESH = frozenset(f"aten::{name}" for name in ("conv1d", "conv2d", "conv3d", "linear", "mm", "bmm", "addmm"))


def ops_of(program: torch.export.ExportedProgram) -> list[Any]:
    """The nodes that compute something, in the program's order."""
    return [n for n in program.graph.nodes if n.op == "call_function" and not is_check(n)]


def held_modules(program: torch.export.ExportedProgram) -> dict[str, Any]:
    """What ops like ``torch.cond`` call, the programs inside a program, by the nodes that stand for them."""
    module = program.graph_module
    return {n.name: attrgetter(n.target)(module) for n in program.graph.nodes if n.op == "get_attr"}


def example_inputs(program: torch.export.ExportedProgram) -> list[Any]:
    """One value for each input that the caller gives: what the program was exported with, else some of its shape."""
    import torch

    names = program.graph_signature.user_inputs  # of a number or None, which the export has fixed, the value itself
    given = torch.utils._pytree.tree_leaves(program.example_inputs or ())
    if len(given) == len(names):
        return [value for name, value in zip(names, given, strict=True) if isinstance(name, str)]
    nodes = {n.name: n for n in program.graph.nodes}
    return [example_input(nodes[name]) for name in names if isinstance(name, str)]


def example_input(node: Any) -> torch.Tensor:
    """An input of the shape that the program was exported for."""
    import torch

    value = node.meta["val"]
    shape = [int(size) for size in value.shape]
    return torch.randn(shape).to(value.dtype) if value.dtype.is_floating_point else torch.ones(shape, dtype=value.dtype)


def output_of(program: torch.export.ExportedProgram) -> Any:
    """The node that hands back the results."""
    return next(n for n in program.graph.nodes if n.op == "output")


def is_check(node: Any) -> bool:
    """An op that only checks what the exporter already knew."""
    return not node.users and str(node.target).startswith("aten._assert_")


def viewed_input(node: Any) -> Any:
    """The input whose memory an op's result may share, or None."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:  # picks one of several tensors
        return node.args[0] if node.args and hasattr(node.args[0], "all_input_nodes") else None
    if schema.name in _RETURNS_ITS_INPUT or any(r.alias_info is not None for r in schema.returns):
        return next(iter(node.all_input_nodes), None)
    return None


def written_over(node: Any) -> list[Any]:
    """The inputs that an op could write its result over, as its in-place form does; the best first."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.name not in _ELEMENTWISE or not node.args:
        return []
    first, others = node.args[0], node.args[1:]
    may_swap = schema.name in _COMMUTATIVE and len(others) == 1 and not node.kwargs
    tensors = [first, *others] if may_swap else [first]
    # One that is read twice, as in x * x, is as good; one among other tensors is not looked at.
    return [t for t in tensors if hasattr(t, "all_input_nodes")]


def makes_fresh_memory(node: Any) -> bool:
    """Whether an op's result is certain to share memory with nothing else, whatever its declaration leaves open."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.name in (_ELEMENTWISE | _FRESH)


def channels_last_weights(program: torch.export.ExportedProgram) -> frozenset[str]:
    """Placeholders of convolutions' weights that a CPU had better keep channels last; what they make is so, too.

    Convolutions then need no reordering and pooling is vectorised. None if an op after a convolution counts on the
    usual layout.
    """
    found: set[str] = set()
    others: set[str] = set()  # weights that are read in another way as well
    follows: set[str] = set()
    for node in ops_of(program):
        name = getattr(getattr(node.target, "_schema", None), "name", "")
        sources = [i.name for i in node.all_input_nodes]
        is_after = any(s in follows for s in sources)
        if is_after and name in _NEEDS_ITS_LAYOUT:
            return frozenset()
        weight = node.args[1] if name == "aten::conv2d" and len(node.args) > 1 else None
        if weight is not None and weight.op == "placeholder":
            found.add(weight.name)
        others.update(s for s in sources if weight is None or s != weight.name)
        if is_after or weight is not None:
            follows.add(node.name)
    return frozenset(found - others)


def laid_out_like(value: Any, expected: Any) -> Any:
    """A result in the layout that the exporter saw: callers may look at it as rows of numbers."""
    is_other = hasattr(value, "is_contiguous") and not value.is_contiguous() and expected is not None
    return value.contiguous() if is_other and expected.is_contiguous() else value


def cut_into_pieces(
    nodes: Sequence[Any], position: Mapping[str, int], device_of: Mapping[str, int], device: int
) -> list[list[Any]]:
    """A device's ops cut before those that wait for another device and after those that another one waits for."""
    pieces: list[list[Any]] = []
    has_arrived: set[str] = set()
    is_open = False
    for node in nodes:
        foreign = {i.name for i in node.all_input_nodes if i.name in position and device_of[i.name] != device}
        if not is_open or foreign - has_arrived:
            pieces.append([])
        has_arrived |= foreign
        pieces[-1].append(node)
        is_open = all(device_of[u.name] == device for u in node.users if u.name in position)
    return pieces


def check_signature(program: torch.export.ExportedProgram) -> None:
    """Programs that change their own state cannot be run sample by sample."""
    changed = program.graph_signature.buffers_to_mutate or program.graph_signature.user_inputs_to_mutate
    if changed:
        name = next(iter(changed.values()))
        raise InputError(f"the program changes '{shown(str(name))}' while running; export it in evaluation mode")


def devices_of_ops(nodes: list[Any], device_of_name: Mapping[str, str], names: list[str]) -> dict[str, int]:
    """The number of every op's device; an op that is not named follows its first input."""
    number = {name: i for i, name in enumerate(names)}
    placed: dict[str, int] = {}
    for node in nodes:
        if node.name in device_of_name:
            device = device_of_name[node.name]
            if device not in number:
                raise InputError(f"operator '{shown(node.name)}' is placed on '{shown(device)}', which is not given")
            placed[node.name] = number[device]
        else:
            placed[node.name] = next((placed[i.name] for i in node.all_input_nodes if i.name in placed), 0)
    return placed


def ordered(nodes: list[Any], start_order: Mapping[str, float] | None) -> list[Any]:
    """Nodes by planned start where that respects dependencies, else as they are."""
    if start_order is None:
        return nodes
    position = {n.name: i for i, n in enumerate(nodes)}
    start: dict[str, float] = {}
    for node in nodes:
        earliest = max((start[i.name] for i in node.all_input_nodes if i.name in start), default=0.0)
        start[node.name] = max(earliest, start_order.get(node.name, earliest))
    return sorted(nodes, key=lambda n: (start[n.name], position[n.name]))
