"""Shapes of an ONNX model's values, where the file does not give them."""

from __future__ import annotations

import logging
from typing import Any

from placewright.frontends.flops import Shape
from placewright.frontends.onnx_ops import CONTROL, KIND_OF_TYPE

_MOST_ROUNDS = 20


def known_shape(value: Any) -> Shape | None:
    """A value's shape if every size is known."""
    shape = value.shape
    if shape is None or not all(isinstance(d, int) for d in shape):
        return None
    return tuple(shape)


def infer_shapes(model: Any, fixed_inputs: bool) -> int:
    """Fill in shapes in place, and return for how many values the shape of their node's first input was assumed.

    That is the guess for types that shape inference does not know; most of them keep the shape. ``fixed_inputs`` says
    that inputs were given shapes: what the file says about other values in terms of unknown sizes is then forgotten.
    """
    nodes = list(model.graph)
    if fixed_inputs:
        for node in nodes:
            for value in node.outputs:
                if value.shape is not None and known_shape(value) is None:
                    value.shape = None
    if all(known_shape(v) is not None and v.dtype is not None for node in nodes for v in node.outputs):
        return 0
    guessed = 0
    for _ in range(_MOST_ROUNDS):
        _run_inference(model)
        news = sum(_guess(node) for node in nodes)
        guessed += news
        if not news:
            break
    return guessed


def _run_inference(model: Any) -> None:
    from onnx_ir.passes.common import ShapeInferencePass

    # A model that inference refuses is left as it is; what then stays unknown is counted by the caller.
    logger = logging.getLogger("onnx_ir.passes.common.shape_inference")
    before = logger.disabled
    logger.disabled = True
    try:
        ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
    finally:
        logger.disabled = before


def _guess(node: Any) -> int:
    standard = node.domain in ("", "ai.onnx") and node.op_type in (*KIND_OF_TYPE, *CONTROL)
    first = next((v for v in node.inputs if v is not None), None)
    if standard or first is None or not node.outputs or node.outputs[0].shape is not None:
        return 0
    if known_shape(first) is None:
        return 0
    node.outputs[0].shape = first.shape.copy() if hasattr(first.shape, "copy") else first.shape
    if node.outputs[0].type is None:
        node.outputs[0].dtype = first.dtype
    return 1
