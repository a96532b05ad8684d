"""Shapes of an ONNX model's values, where the file does not give them."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from placewright.apart import Apart, Ended, Refused
from placewright.errors import InputError
from placewright.frontends.flops import Shape
from placewright.frontends.onnx_ops import CONTROL, KIND_OF_TYPE

_MOST_ROUNDS = 20
LIMIT_S = 7.0  # for all rounds together, and time for what a large model takes
BYTES_PER_S = 1e6


def known_shape(value: Any) -> Shape | None:
    """A value's shape if every size is known."""
    shape = value.shape
    if shape is None or not all(isinstance(d, int) for d in shape):
        return None
    return tuple(shape)


class Inference:
    """onnx's shape inference, in a process of its own: some models make it run for ever, or crash.

    The process begins at once, so that its imports are done when they are needed; use it as a context manager.
    """

    def __init__(self, where: str) -> None:
        self._where, self._left_s = where, LIMIT_S
        self._process = Apart(Path(__file__).with_name("onnx_apart.py"))

    def fill_in(self, model: Any) -> None:
        """Fill in shapes and types. A model that inference refuses is left as it is."""
        from onnx_ir.passes.common import _c_api_utils, shape_inference

        # What stays unknown is counted by the caller.
        logger = logging.getLogger("onnx_ir.passes.common.shape_inference")
        before = logger.disabled
        logger.disabled = True
        try:
            inferred = _c_api_utils.call_onnx_api(self._inferred, model)
            if inferred is not None:
                shape_inference._merge_func(model, inferred)
        finally:
            logger.disabled = before

    def _inferred(self, proto: Any) -> Any:
        content = proto.SerializeToString()
        limit_s = self._left_s + len(content) / BYTES_PER_S
        began_s = time.monotonic()
        try:
            answer = self._process.ask(content, limit_s)
        except Refused:
            return None
        except Ended as error:
            raise InputError(f"{self._where}: onnx cannot infer its shapes: {error}") from error
        self._left_s = max(1.0, self._left_s - (time.monotonic() - began_s))
        return type(proto).FromString(answer)

    def __enter__(self) -> Inference:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._process.close()


def infer_shapes(model: Any, fixed_inputs: bool, inference: Inference | None = None) -> int:
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
    if inference is None:
        with Inference(model.graph.name or "model") as inference:
            return _rounds(model, nodes, inference)
    return _rounds(model, nodes, inference)


def _rounds(model: Any, nodes: list[Any], inference: Inference) -> int:
    guessed = 0
    for _ in range(_MOST_ROUNDS):
        inference.fill_in(model)
        news = sum(_guess(node) for node in nodes)
        guessed += news
        if not news:
            break
    return guessed


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
