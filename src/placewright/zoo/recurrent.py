"""LSTM models, unrolled over time in primitive ops as static graphs have them: RNNLM and GNMT.

All steps of a layer read the same variables. Paths go by layer and then by step, such as ``encoder.3.step_7.matmul``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from placewright.zoo.builder import Builder
from placewright.zoo.tape import Tape, Value


class _Cell(NamedTuple):
    """Variables of one LSTM layer and its first state."""

    kernel: Value
    bias: Value
    state: Value


def rnnlm(
    layers: int = 2,
    batch: int = 64,
    steps: int = 40,
    hidden: int = 2048,
    vocabulary: int = 10000,
    dtype: str = "float32",
) -> Tape:
    """LSTM language model, unrolled over ``steps``."""
    b = Builder(f"rnnlm-{layers}", dtype)
    ids = b.input("ids", (batch, steps), upper=vocabulary)
    xs = b.unstack("unstack", b.embedding("embedding", ids, vocabulary, hidden), axis=1)
    for layer in range(layers):
        with b.scope(f"layers.{layer}"):
            xs = _lstm(b, xs, hidden)
    return b.finish(*_log_probabilities(b, xs, vocabulary))


def gnmt(
    layers: int = 2,
    batch: int = 64,
    steps: int = 80,
    hidden: int = 1024,
    vocabulary: int = 32000,
    dtype: str = "float32",
) -> Tape:
    """GNMT: LSTM encoder (first layer both ways) and decoder with attention, residuals from the third layer on."""
    b = Builder(f"gnmt-{layers}", dtype)
    source = b.input("source_ids", (batch, steps), upper=vocabulary)
    target = b.input("target_ids", (batch, steps), upper=vocabulary)
    with b.scope("encoder"):
        memory = _encoder(b, source, layers, hidden, vocabulary)
    with b.scope("decoder"):
        outputs = _decoder(b, target, memory, layers, hidden, vocabulary)
    return b.finish(*outputs)


def _encoder(b: Builder, ids: Value, layers: int, hidden: int, vocabulary: int) -> Value:
    xs = b.unstack("unstack", b.embedding("embedding", ids, vocabulary, hidden), axis=1)
    with b.scope("0"):
        with b.scope("rightward"):
            ahead = _lstm(b, xs, hidden)
        with b.scope("leftward"):
            back = _lstm(b, xs[::-1], hidden)[::-1]
        xs = tuple(b.concat(f"step_{t}.concat", pair) for t, pair in enumerate(zip(ahead, back, strict=True)))
    for layer in range(1, layers):
        with b.scope(layer):
            xs = _lstm(b, xs, hidden, residual=layer > 1)
    return b.stack("stack", xs, axis=1)


def _decoder(b: Builder, ids: Value, memory: Value, layers: int, hidden: int, vocabulary: int) -> Sequence[Value]:
    batch, length, width = memory.shape
    embedded = b.unstack("unstack", b.embedding("embedding", ids, vocabulary, hidden), axis=1)
    with b.scope("attention"):
        keys = b.matmul("keys", memory, b.variable("key_kernel", (width, hidden)))
        query_kernel = b.variable("query_kernel", (hidden, hidden))
        score_kernel = b.variable("score_kernel", (hidden,), spread=hidden**-0.5)
        context = b.constant("start", (batch, width), "zeros")
    # The first layer reads the context of the step before, so its steps alternate with the attention's.
    with b.scope("0"):
        cell = _cell(b, batch, hidden + width, hidden)
    state: tuple[Value, Value] = (cell.state, cell.state)
    xs, contexts = [], []
    for t, word in enumerate(embedded):
        with b.scope(f"0.step_{t}"):
            state = _step(b, [word, context], state, cell)
        with b.scope(f"attention.step_{t}"):
            query = b.reshape("unsqueeze", b.matmul("query", state[0], query_kernel), batch, 1, hidden)
            scored = b.mul("score", b.tanh("tanh", b.add("add", keys, query)), score_kernel)
            weights = b.softmax("softmax", b.reduce_sum("sum", scored, axis=2))
            weighed = b.mul("weigh", memory, b.reshape("column", weights, batch, length, 1))
            context = b.reduce_sum("context", weighed, axis=1)
        xs.append(state[0])
        contexts.append(context)
    hs: Sequence[Value] = xs
    for layer in range(1, layers):
        with b.scope(layer):
            hs = _lstm(b, hs, hidden, contexts, residual=layer > 1)
    return _log_probabilities(b, hs, vocabulary)


def _lstm(
    b: Builder, xs: Sequence[Value], hidden: int, contexts: Sequence[Value] = (), residual: bool = False
) -> tuple[Value, ...]:
    """One layer over all steps; each step also reads its context, and adds its input to its output if residual."""
    batch, width = xs[0].shape
    cell = _cell(b, batch, width + (contexts[0].shape[1] if contexts else 0), hidden)
    state, outputs = (cell.state, cell.state), []
    for t, x in enumerate(xs):
        with b.scope(f"step_{t}"):
            state = _step(b, [x, contexts[t]] if contexts else [x], state, cell)
            outputs.append(b.add("residual", state[0], x) if residual else state[0])
    return tuple(outputs)


def _cell(b: Builder, batch: int, width: int, hidden: int) -> _Cell:
    kernel = b.variable("kernel", (width + hidden, 4 * hidden))
    return _Cell(kernel, b.variable("bias", (4 * hidden,), spread=0.1), b.constant("start", (batch, hidden), "zeros"))


def _step(b: Builder, inputs: list[Value], state: tuple[Value, Value], cell: _Cell) -> tuple[Value, Value]:
    """One LSTM step: the new output and the new memory."""
    h, c = state
    gates = b.add("bias", b.matmul("matmul", b.concat("concat", [*inputs, h]), cell.kernel), cell.bias)
    i, j, f, o = b.split("split", gates, 4)
    kept = b.mul("keep", c, b.sigmoid("forget_gate", b.scale("forget_bias", f, offset=1.0)))
    new = b.mul("write", b.sigmoid("input_gate", i), b.tanh("candidate", j))
    c = b.add("memory", kept, new)
    return b.mul("output", b.tanh("tanh", c), b.sigmoid("output_gate", o)), c


def _log_probabilities(b: Builder, xs: Sequence[Value], vocabulary: int) -> list[Value]:
    with b.scope("projection"):
        kernel = b.variable("kernel", (xs[0].shape[1], vocabulary))
        bias = b.variable("bias", (vocabulary,), spread=0.1)
        outputs = []
        for t, x in enumerate(xs):
            with b.scope(f"step_{t}"):
                outputs.append(b.log_softmax("log_softmax", b.add("bias", b.matmul("matmul", x, kernel), bias)))
        return outputs
