"""Transformer-XL over several segments: each attends to the hidden states of the one before it."""

from __future__ import annotations

from typing import NamedTuple

from placewright.errors import InputError
from placewright.zoo.builder import Builder
from placewright.zoo.tape import Tape, Value


class _Layer(NamedTuple):
    """Variables of one layer; all segments share them."""

    qkv: Value
    position: Value
    output: Value
    content_bias: Value
    position_bias: Value
    norm_1: tuple[Value, Value]
    up: Value
    up_bias: Value
    down: Value
    down_bias: Value
    norm_2: tuple[Value, Value]


def transformer_xl(
    layers: int = 2,
    batch: int = 16,
    segments: int = 4,
    segment: int = 128,
    hidden: int = 512,
    heads: int = 8,
    inner: int = 2048,
    vocabulary: int = 32000,
    dtype: str = "float32",
) -> Tape:
    """Transformer-XL with relative positions, unrolled over ``segments``; no gradient flows between segments."""
    name = f"transformer-xl-{layers}"
    if hidden % heads or hidden % 2:
        raise InputError(f"zoo:{name}: option 'hidden' is {hidden}, expected an even multiple of 'heads', {heads}")
    b = Builder(name, dtype)
    ids = [b.input(f"ids_{t}", (batch, segment), upper=vocabulary) for t in range(segments)]
    # What each layer read in the segment before: given for the first one.
    memories = [b.input(f"memory_{layer}", (batch, segment, hidden)) for layer in range(layers)]
    table = b.variable("embedding_weight", (vocabulary, hidden), spread=hidden**-0.5)
    head_bias = b.variable("head_bias", (vocabulary,), spread=0.1)
    weights = []
    for layer in range(layers):
        with b.scope(f"layers.{layer}"):
            weights.append(_variables(b, hidden, heads, inner))
    distances = b.constant("distances", (2 * segment, hidden), "distances")
    mask = b.constant("causal_mask", (segment, 2 * segment), "causal_mask")
    outputs = []
    for t in range(segments):
        x = b.gather_rows(f"embedding.segment_{t}", table, ids[t])
        for layer in range(layers):
            with b.scope(f"layers.{layer}.segment_{t}"):
                memory, memories[layer] = memories[layer], x
                if t > 0:
                    memory = b.stop_gradient("memory", memory)
                x = _layer(b, x, memory, weights[layer], distances, mask, heads)
        with b.scope(f"head.segment_{t}"):
            logits = b.add("bias", b.matmul("matmul", x, table, transpose_b=True), head_bias)
            outputs.append(b.log_softmax("log_softmax", logits))
    return b.finish(*outputs)


def _variables(b: Builder, hidden: int, heads: int, inner: int) -> _Layer:
    def norm(name: str) -> tuple[Value, Value]:
        scale = b.variable(f"{name}_scale", (hidden,), spread=0.1, center=1.0)
        return scale, b.variable(f"{name}_shift", (hidden,), spread=0.1)

    per_head = (heads, 1, hidden // heads)
    return _Layer(
        qkv=b.variable("qkv_weight", (hidden, 3 * hidden)),
        position=b.variable("position_weight", (hidden, hidden)),
        output=b.variable("output_weight", (hidden, hidden)),
        content_bias=b.variable("content_bias", per_head, spread=0.1),
        position_bias=b.variable("position_bias", per_head, spread=0.1),
        norm_1=norm("norm_1"),
        up=b.variable("up_weight", (hidden, inner)),
        up_bias=b.variable("up_bias", (inner,), spread=0.1),
        down=b.variable("down_weight", (inner, hidden)),
        down_bias=b.variable("down_bias", (hidden,), spread=0.1),
        norm_2=norm("norm_2"),
    )


def _layer(b: Builder, x: Value, memory: Value, w: _Layer, distances: Value, mask: Value, heads: int) -> Value:
    with b.scope("attention"):
        y = b.matmul("output", _relative_attention(b, x, memory, w, distances, mask, heads), w.output)
    x = b.shared_layer_norm("norm_1", b.add("add_1", x, y), *w.norm_1)
    y = b.relu("relu", b.add("up_add", b.matmul("up", x, w.up), w.up_bias))
    y = b.add("down_add", b.matmul("down", y, w.down), w.down_bias)
    return b.shared_layer_norm("norm_2", b.add("add_2", x, y), *w.norm_2)


def _relative_attention(
    b: Builder, x: Value, memory: Value, w: _Layer, distances: Value, mask: Value, heads: int
) -> Value:
    batch, length, hidden = x.shape
    width, keys = hidden // heads, 2 * length
    both = b.concat("context", [memory, x], axis=1)
    q, k, v = b.split("split", b.matmul("qkv", both, w.qkv), 3)
    q = b.slice("query", q, length, keys, axis=1)
    q = b.permute("query_transpose", b.reshape("query_heads", q, batch, length, heads, width), 0, 2, 1, 3)
    k = b.permute("key_transpose", b.reshape("key_heads", k, batch, keys, heads, width), 0, 2, 1, 3)
    v = b.permute("value_transpose", b.reshape("value_heads", v, batch, keys, heads, width), 0, 2, 1, 3)
    r = b.reshape("position_heads", b.matmul("position", distances, w.position), keys, heads, width)
    r = b.permute("position_transpose", r, 1, 0, 2)
    content = b.matmul("content_scores", b.add("content_add", q, w.content_bias), k, transpose_b=True)
    position = b.matmul("position_scores", b.add("position_add", q, w.position_bias), r, transpose_b=True)
    with b.scope("shift"):  # row i moves left by length - 1 - i: from distances to places
        position = b.reshape("fold", b.pad("pad", position, 1, 0), batch, heads, keys + 1, length)
        position = b.reshape("unfold", b.slice("slice", position, 1, keys + 1, axis=2), batch, heads, length, keys)
    scores = b.scale("scale", b.add("scores", content, position), width**-0.5)
    y = b.matmul("values", b.softmax("softmax", b.add("mask", scores, mask)), v)
    return b.reshape("merge_heads", b.permute("values_transpose", y, 0, 2, 1, 3), batch, length, hidden)
