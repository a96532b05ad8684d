"""Segments of a CUDA device recorded as CUDA graphs: one launch for all their kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from placewright.execute.torch_code import Segment, Values


def capture_segments(segments: Sequence[Segment], values: Values, stream: Any) -> list[Callable[[Values], None]]:
    """Record each segment on ``stream``; what comes from elsewhere must lie in ``values`` and stay there.

    Call it from the thread that ran the segments before. Graphs share memory, so they always run in this order; what a
    segment sends away keeps its memory to itself.
    Raises what torch raises for ops that cannot be recorded.
    """
    import torch

    pool = torch.cuda.graph_pool_handle()
    replays: list[Callable[[Values], None]] = []
    torch.cuda.synchronize()
    with torch.inference_mode(), torch.cuda.stream(stream):
        for segment in segments:
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                segment.run(values)
            finally:
                graph.capture_end()
            held = {slot: values[slot] for slot, _ in segment.sends}
            replays.append(_replay(graph, held))
    return replays


def _replay(graph: Any, held: dict[int, Any]) -> Callable[[Values], None]:
    def replay(values: Values) -> None:
        graph.replay()
        for slot, value in held.items():
            values[slot] = value

    return replay
