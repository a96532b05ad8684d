"""The three graphs of HSDAG (NeurIPS 2024), rebuilt: nodes and edges of the OpenVINO IR, and its co-location groups.

    python benchmarks/hsdag_graphs.py [--only NAME]

Each zoo model is converted to OpenVINO and saved with weights in half precision, as there. A node is a layer of the IR,
constants and their conversions included; an edge is a pair of layers. HSDAG used OpenVINO 2023.3 on ONNX exports.
Group counts beside ours were measured by running its released function on such exports.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import openvino
import torch

from placewright.frontends.openvino_conversion import convert_silently
from placewright.frontends.registry import read_model
from placewright.graph import OpGraph
from placewright.reductions.colocate import colocation_groups, op_pairs
from placewright.zoo import zoo_module


class Row(NamedTuple):
    """A model of the zoo, and HSDAG's counts: nodes, edges, groups by the released rule and by the paper's rule."""

    reference: str
    nodes: int
    edges: int
    released: int | None
    paper: int | None


ROWS = [
    Row("resnet-50", 396, 411, 237, 237),
    Row("inception-v3?transform_input=1", 728, 764, 424, 435),
    Row("bert-base", 1009, 1071, None, None),
]


def ir_graph(reference: str, folder: Path) -> OpGraph:
    """The graph of a zoo model's IR with compressed weights."""
    module, inputs = zoo_module(reference)
    path = folder / "model.xml"
    openvino.save_model(converted(module, inputs), path, compress_to_fp16=True)
    return read_model(path)


def converted(module: Any, inputs: tuple[Any, ...]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Shapes known at conversion, so that what computes shapes is folded away. Exported, not traced: tracing lets
        # one constant be index and axis of a Gather.
        shapes = [openvino.PartialShape(list(example.shape)) for example in inputs]
        return convert_silently(torch.export.export(module.eval(), inputs), input=shapes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="a part of the model's name")
    only = parser.parse_args().only or ""
    print(f"OpenVINO {openvino.__version__}; HSDAG's figures in brackets")
    print(f"{'model':32} {'nodes':>12} {'edges':>12} {'released rule':>15} {'paper rule':>15} types")
    for row in ROWS:
        if only not in row.reference:
            continue
        with tempfile.TemporaryDirectory() as folder:
            graph = ir_graph(row.reference, Path(folder))
        counts = [
            (graph.n_ops, row.nodes),
            (len(op_pairs(graph)), row.edges),
            (colocation_groups(graph, "released").n_groups, row.released),
            (colocation_groups(graph, "paper").n_groups, row.paper),
        ]
        cells = [f"{ours} ({theirs if theirs is not None else '-'})" for ours, theirs in counts]
        widths = (12, 12, 15, 15)
        line = " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        print(f"{row.reference:32} {line} {len(set(graph.op_types)):>5}")


if __name__ == "__main__":
    main()
