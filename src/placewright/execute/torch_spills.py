"""Tensors that spend a part of a sample in host memory, so that those of a device never take more than a limit.

What is planned is when each of them leaves and returns. A result that leaves late in a sample never returns. Ops that
work element by element write over what nobody reads any more.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from placewright.execute.torch_code import SpillCalls
from placewright.execute.torch_program import makes_fresh_memory, viewed_input, written_over
from placewright.execute.torch_weights import Chunk
from placewright.text import shown

if TYPE_CHECKING:
    import torch

_MOST_OPS_AHEAD = 32  # a tensor returns so many ops before it is read, at most: earlier it would only take up memory


class Spill(NamedTuple):
    """A stay of a tensor in host memory; its times are numbers of the device's ops, in their order."""

    name: str  # of the op whose result it is
    size_bytes: int
    left: int  # the op after which it is copied to host memory
    gone: int  # the op before which its memory is free
    begun: int  # the op before which the copy back begins; the number of ops if it never returns
    read: int  # the op that reads it next, likewise
    buffer: int  # the place in host memory; others have it at other times


class _Tensor(NamedTuple):
    """A tensor that owns its memory, with all views of it."""

    size_bytes: int
    uses: list[int]  # ops that make or read it or a view of it
    last_use: dict[str, int]  # of the tensor and of each view


class TensorLives:
    """From when to when a device's tensors take memory, and how to make them take less."""

    def __init__(
        self,
        pieces: Sequence[Sequence[Any]],
        weights: Collection[str],
        results: Collection[str],
        staying: Collection[str] = (),
    ) -> None:
        """``pieces`` are the device's ops as they run; a tensor stays away only while one piece runs.

        ``results`` are kept until the sample ends; those in ``staying`` on the device, because other devices read
        them. Weights do not count.
        """
        self._ops = [node for piece in pieces for node in piece]
        self._end = len(self._ops)
        piece_of = [number for number, piece in enumerate(pieces) for _ in piece]
        apart = _tensors(self._ops, weights, results, self._end)
        self.most_bytes_apart = float(_taken(apart, self._end).max(initial=0))  # if every op has memory of its own
        self.in_place = _in_place(self._ops, apart, piece_of, {*staying})  # ops, and the inputs that they write over
        tensors = _tensors(self._ops, weights, results, self._end, self.in_place)
        made = {node.name: i for i, node in enumerate(self._ops)}
        values = {node.name: node.meta.get("val") for node in self._ops}
        self._taken = _taken(tensors, self._end)
        self._gaps = [
            gap
            for owner, tensor in tensors.items()
            if owner in made
            for gap in _gaps(tensor, made, values, piece_of, {*staying}, self._end)
        ]
        self._gaps.sort(key=lambda gap: gap.left)

    @property
    def most_bytes(self) -> float:
        """What tensors take at once if none leaves."""
        return float(self._taken.max(initial=0))

    def plan(self, limit_bytes: float) -> list[Spill]:
        """Stays in host memory by which tensors never take more than ``limit_bytes``.

        Of several tensors the one goes that is not read for the longest time. Raises ValueError if that is not enough.
        """
        taken = self._taken.copy()
        found: list[Spill] = []
        waiting: list[tuple[int, int, int]] = []  # a heap of tensors that could go, by when they are read: last first
        next_gap = 0
        for i, node in enumerate(self._ops):
            while next_gap < len(self._gaps) and self._gaps[next_gap].left < i:
                gap = self._gaps[next_gap]
                heapq.heappush(waiting, (-gap.read, -gap.size_bytes, next_gap))
                next_gap += 1
            while taken[i] > limit_bytes:
                if not waiting or -waiting[0][0] <= i:
                    raise ValueError(
                        f"operator '{shown(node.name)}' runs with {taken[i]:.0f} bytes of tensors that cannot leave, "
                        f"more than {limit_bytes:.0f}"
                    )
                gap = self._gaps[heapq.heappop(waiting)[2]]
                taken[i : gap.read] -= gap.size_bytes
                found.append(gap._replace(gone=i))
        return _in_buffers(_earlier(found, taken, limit_bytes, self._end), self._end)


def _tensors(
    ops: Sequence[Any],
    weights: Collection[str],
    results: Collection[str],
    end: int,
    in_place: Mapping[str, str] | None = None,
) -> dict[str, _Tensor]:
    """By name of the op, or of the input, that a tensor comes from."""
    in_place = in_place or {}
    owner_of: dict[str, str] = {}
    tensors: dict[str, _Tensor] = {}
    of_weights = set(weights)
    for i, node in enumerate(ops):
        viewed = viewed_input(node)
        shared = viewed.name if viewed is not None else in_place.get(node.name, node.name)
        owner_of[node.name] = owner_of.get(shared, shared)
        for tensor in (node, *node.all_input_nodes):
            owner = owner_of.get(tensor.name, tensor.name)
            if owner in of_weights:
                continue
            if owner not in tensors:
                tensors[owner] = _Tensor(bytes_of(tensor.meta.get("val")), [], {})
            tensors[owner].uses.append(i)
            tensors[owner].last_use[tensor.name] = i
    for name in results:
        owner = owner_of.get(name, name)
        if owner in tensors:
            tensors[owner].uses.append(end)
            tensors[owner].last_use[name] = end
    return tensors


def _in_place(
    ops: Sequence[Any], tensors: Mapping[str, _Tensor], piece_of: Sequence[int], staying: set[str]
) -> dict[str, str]:
    """Ops that can write over an input: it is fresh memory of the same piece, alike, and read for the last time."""
    made = {node.name: i for i, node in enumerate(ops)}
    found = {}
    for i, node in enumerate(ops):
        for source in written_over(node):
            own = tensors.get(source.name)
            if own is None or source.name not in made or own.uses[-1] != i or list(own.last_use) != [source.name]:
                continue
            is_here = piece_of[made[source.name]] == piece_of[i] and source.name not in staying
            if is_here and makes_fresh_memory(source) and _is_alike(source.meta.get("val"), node.meta.get("val")):
                found[node.name] = source.name
                break
    return found


def _is_alike(a: Any, b: Any) -> bool:
    if not hasattr(a, "element_size") or not hasattr(b, "element_size"):
        return False
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride())


def _taken(tensors: Mapping[str, _Tensor], end: int) -> np.ndarray:
    """Bytes at each op."""
    change = np.zeros(end + 1)
    for tensor in tensors.values():
        change[tensor.uses[0]] += tensor.size_bytes
        if tensor.uses[-1] < end:
            change[tensor.uses[-1] + 1] -= tensor.size_bytes
    return np.cumsum(change)[:end]


def _gaps(
    tensor: _Tensor,
    made: Mapping[str, int],
    values: Mapping[str, Any],
    piece_of: Sequence[int],
    staying: set[str],
    end: int,
) -> list[Spill]:
    """The stays that a tensor could make: between ops that use it, if one variable holds it then."""
    found = []
    uses = sorted(set(tensor.uses))
    for left, read in itertools.pairwise(uses):
        if read <= left + 1 or (read < end and piece_of[left] != piece_of[read]):
            continue
        holders = [name for name, last in tensor.last_use.items() if last >= read and made[name] <= left]
        name = holders[0]
        is_whole = hasattr(values[name], "element_size") and bytes_of(values[name]) == tensor.size_bytes
        if len(holders) == 1 and is_whole and name not in staying and piece_of[made[name]] == piece_of[left]:
            found.append(Spill(name, tensor.size_bytes, left, -1, read, read, -1))
    return found


def _earlier(spills: list[Spill], taken: np.ndarray, limit_bytes: float, end: int) -> list[Spill]:
    """The same stays, ending as early as there is room, so that copies back have time."""
    moved = []
    for spill in sorted(spills, key=lambda s: s.read):
        begun = spill.begun
        if spill.read < end:
            least = max(spill.gone + 1, spill.read - _MOST_OPS_AHEAD)
            while begun > least and taken[begun - 1] + spill.size_bytes <= limit_bytes:
                begun -= 1
                taken[begun] += spill.size_bytes
        moved.append(spill._replace(begun=begun))
    return moved


def _in_buffers(spills: list[Spill], end: int) -> list[Spill]:
    """Stays with places in host memory: a place is used again by a tensor of the same size."""
    placed: list[Spill] = []
    free_from: list[tuple[int, int]] = []  # by place: its size, and the op after which it is free
    for spill in sorted(spills, key=lambda s: s.left):
        free = (k for k, (size, op) in enumerate(free_from) if size == spill.size_bytes and op <= spill.left)
        place = next(free, len(free_from))
        if place == len(free_from):
            free_from.append((0, 0))
        free_from[place] = (spill.size_bytes, spill.read if spill.read < end else end + 1)
        placed.append(spill._replace(buffer=place))
    return placed


def overlapped_time_s(
    compute_s: Sequence[float],
    chunks: Sequence[Chunk],
    spills: Sequence[Spill],
    latency_s: float,
    bandwidth: float,
) -> float:
    """When ops that run one after another end if weights (``chunks``) and tensors are copied beside them.

    Copies to the device are made one after another, those to host memory as well, both directions at once.
    """
    leaving: dict[int, list[Spill]] = {}
    gone: dict[int, list[Spill]] = {}
    begun: dict[int, list[Spill]] = {}
    for spill in spills:
        leaving.setdefault(spill.left, []).append(spill)
        gone.setdefault(spill.gone, []).append(spill)
        begun.setdefault(spill.begun, []).append(spill)
    ends: list[float] = []
    has_left: dict[tuple[str, int], float] = {}
    back: dict[int, float] = {}  # by op: when what it reads has returned
    now, copied_in, copied_out, n_issued = 0.0, 0.0, 0.0, 0
    for op, seconds in enumerate(compute_s):
        for spill in gone.get(op, ()):
            now = max(now, has_left[spill.name, spill.left])
        for spill in begun.get(op, ()):
            copied_in = max(copied_in, now) + latency_s + spill.size_bytes / bandwidth
            back[spill.read] = max(back.get(spill.read, 0.0), copied_in)
        while n_issued < len(chunks) and chunks[n_issued].first <= op:
            chunk = chunks[n_issued]
            begin = max(copied_in, ends[chunk.after] if chunk.after >= 0 else 0.0)
            copied_in = begin + latency_s + chunk.size_bytes / bandwidth
            now = max(now, copied_in)
            n_issued += 1
        now = max(now, back.get(op, 0.0)) + seconds
        ends.append(now)
        for spill in leaving.get(op, ()):
            copied_out = max(copied_out, now) + latency_s + spill.size_bytes / bandwidth
            has_left[spill.name, spill.left] = copied_out
    return max(now, copied_out)


def bytes_of(value: Any) -> int:
    """What a tensor takes, or all of several."""
    if isinstance(value, (list, tuple)):
        return sum(map(bytes_of, value))
    return value.numel() * value.element_size() if hasattr(value, "element_size") else 0


def spill_calls(spills: Sequence[Spill], op_names: Sequence[str], device: torch.device) -> list[SpillCalls]:
    """What to call around a device's ops so that its tensors leave and return as planned."""
    import torch

    buffers: dict[int, Any] = {}
    streams: Any = [torch.cuda.Stream(device) if device.type == "cuda" else None for _ in range(2)]  # type: ignore[no-untyped-call]
    found = []
    for spill in spills:
        stay = _Stay(spill, device, buffers, *streams)
        returns = spill.read < len(op_names)
        found.append(
            SpillCalls(
                spill.name,
                op_names[spill.left],
                op_names[spill.gone],
                op_names[spill.begun] if returns else "",
                op_names[spill.read] if returns else "",
                stay.leave,
                stay.wait,
                stay.begin,
                stay.back,
            )
        )
    return found


class _Stay:
    """One tensor's stay. Its memory is given back, and taken, in the order of the stream that computes."""

    def __init__(self, spill: Spill, device: torch.device, buffers: dict[int, Any], outwards: Any, inwards: Any):
        import torch

        self._spill, self._device, self._buffers = spill, device, buffers
        self._outwards, self._inwards = outwards, inwards
        self._is_cuda = device.type == "cuda"
        event: Any = torch.cuda.Event
        self._events: list[Any] = [event() if self._is_cuda else None for _ in range(2)]
        self._on_device: Any = None
        self._on_host: Any = None

    def leave(self, tensor: Any) -> Any:
        import torch

        self._on_host = self._place_for(tensor)
        if not self._is_cuda:
            return self._on_host.copy_(tensor)
        self._on_device = tensor
        self._outwards.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._outwards):
            self._on_host.copy_(tensor, non_blocking=True)
            self._events[0].record(self._outwards)
        return self._on_host

    def wait(self) -> None:
        import torch

        if self._is_cuda:
            torch.cuda.current_stream(self._device).wait_event(self._events[0])
        self._on_device = None

    def begin(self) -> None:
        import torch

        self._on_device = torch.empty_strided(
            self._on_host.size(), self._on_host.stride(), dtype=self._on_host.dtype, device=self._device
        )
        if not self._is_cuda:
            self._on_device.copy_(self._on_host)
            return
        self._inwards.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._inwards):
            self._on_device.copy_(self._on_host, non_blocking=True)
            self._events[1].record(self._inwards)

    def back(self) -> Any:
        import torch

        if self._is_cuda:
            torch.cuda.current_stream(self._device).wait_event(self._events[1])
        tensor, self._on_device = self._on_device, None
        return tensor

    def _place_for(self, tensor: Any) -> Any:
        """Host memory for a tensor, in the same layout, so that copies are plain."""
        import torch

        number, size_bytes = self._spill.buffer, tensor.numel() * tensor.element_size()
        flat = self._buffers.get(number)
        if flat is None or flat.nbytes < size_bytes:
            flat = self._buffers[number] = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=self._is_cuda)
        typed = flat[:size_bytes].view(tensor.dtype)
        return typed.as_strided(tensor.size(), tensor.stride()) if _is_dense(tensor) else typed.view(tensor.size())


def _is_dense(tensor: Any) -> bool:
    """Whether every element has a place of its own, without holes."""
    reach = 1
    for step, n in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if n > 1:
            if step != reach:
                return False
            reach *= n
    return True
