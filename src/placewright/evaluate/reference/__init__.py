"""Plain twins of the kernels: slow, obviously right, used in tests. Same rules, independent code."""

from placewright.evaluate.reference.calls import calls_value
from placewright.evaluate.reference.overlap import overlap_value_and_peaks
from placewright.evaluate.reference.pipeline import chain_exists, pipeline_value
from placewright.evaluate.reference.sequential import sequential_value_and_segments

__all__ = [
    "calls_value",
    "chain_exists",
    "overlap_value_and_peaks",
    "pipeline_value",
    "sequential_value_and_segments",
]
