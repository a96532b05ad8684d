"""Transformers over token ids: BERT, GPT-2, Llama, and a Mixtral-like mixture of experts. Paths are Hugging Face's."""

from __future__ import annotations

import math
from collections.abc import Callable

from placewright.errors import InputError
from placewright.zoo.builder import Builder
from placewright.zoo.tape import Tape, Value


def bert(
    batch: int = 1,
    sequence: int = 128,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    vocabulary: int = 30522,
    positions: int = 512,
    fused: bool = False,
    dtype: str = "float32",
) -> Tape:
    """BERT encoder with embeddings and pooler; ``fused=1`` makes each attention one op."""
    name = "bert-base"
    _check(name, hidden, heads, sequence, positions)
    b = Builder(name, dtype)
    ids = b.input("input_ids", (batch, sequence), upper=vocabulary)
    attended = b.input("attention_mask", (batch, sequence), upper=2)
    types = b.input("token_type_ids", (batch, sequence), upper=2)
    with b.scope("extended_mask"):  # 0 where a token counts, a large negative number elsewhere
        mask = b.cast("cast", b.reshape("unsqueeze", attended, batch, 1, 1, sequence))
        mask = b.scale("scale", b.scale("shift", mask, offset=-1.0), 1e4)
    with b.scope("embeddings"):
        x = b.add("add_types", b.embedding("word_embeddings", ids, vocabulary, hidden),
                  b.embedding("token_type_embeddings", types, 2, hidden))  # fmt: skip
        places = b.constant("position_ids", (1, sequence), "positions")
        x = b.add("add_positions", x, b.embedding("position_embeddings", places, positions, hidden))
        x = b.layer_norm("LayerNorm", x, eps=1e-12)
    for layer in range(layers):
        with b.scope(f"encoder.layer.{layer}"):
            x = _bert_layer(b, x, heads, mask, fused)
    with b.scope("pooler"):
        pooled = b.tanh("activation", b.linear("dense", b.select("first_token", x, 0, axis=1), hidden))
    return b.finish(x, pooled)


def _bert_layer(b: Builder, x: Value, heads: int, mask: Value, fused: bool) -> Value:
    hidden = x.shape[-1]
    with b.scope("attention"):
        with b.scope("self"):
            q, k, v = (_heads(b, part, b.linear(part, x, hidden), heads) for part in ("query", "key", "value"))
            y = _attend(b, q, k, v, mask, fused)
        with b.scope("output"):
            x = b.layer_norm("LayerNorm", b.add("add", b.linear("dense", y, hidden), x), eps=1e-12)
    y = b.activation("intermediate.act", b.linear("intermediate.dense", x, 4 * hidden), "GELU")
    with b.scope("output"):
        return b.layer_norm("LayerNorm", b.add("add", b.linear("dense", y, hidden), x), eps=1e-12)


def gpt2(
    batch: int = 1,
    sequence: int = 1024,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    vocabulary: int = 50257,
    positions: int = 1024,
    fused: bool = False,
    dtype: str = "float32",
) -> Tape:
    """GPT-2 with its language-model head, which shares the token embedding's weights."""
    _check("gpt2", hidden, heads, sequence, positions)
    b = Builder("gpt2", dtype)
    ids = b.input("input_ids", (batch, sequence), upper=vocabulary)
    with b.scope("transformer"):
        table = b.variable("wte_weight", (vocabulary, hidden), spread=1 / math.sqrt(hidden))
        places = b.constant("position_ids", (1, sequence), "positions")
        x = b.add("add", b.gather_rows("wte", table, ids), b.embedding("wpe", places, positions, hidden))
        mask = None if fused else b.constant("causal_mask", (sequence, sequence), "causal_mask")
        for layer in range(layers):
            with b.scope(f"h.{layer}"):
                x = _gpt2_layer(b, x, heads, mask, fused)
        x = b.layer_norm("ln_f", x)
    return b.finish(b.matmul("lm_head", x, table, transpose_b=True))


def _gpt2_layer(b: Builder, x: Value, heads: int, mask: Value | None, fused: bool) -> Value:
    hidden, y = x.shape[-1], b.layer_norm("ln_1", x)
    with b.scope("attn"):
        parts = b.split("split", b.linear("c_attn", y, 3 * hidden), 3)
        q, k, v = (_heads(b, part, y, heads) for part, y in zip(("query", "key", "value"), parts, strict=True))
        y = b.linear("c_proj", _attend(b, q, k, v, mask, fused), hidden)
    x = b.add("add_1", x, y)
    y = b.layer_norm("ln_2", x)
    with b.scope("mlp"):
        y = b.linear("c_fc", y, 4 * hidden)
        y = b.linear("c_proj", b.activation("act", y, "GELU", approximate="tanh"), hidden)
    return b.add("add_2", x, y)


def llama(
    batch: int = 1,
    sequence: int = 512,
    layers: int = 16,
    hidden: int = 2048,
    heads: int = 32,
    key_heads: int = 8,
    intermediate: int = 8192,
    vocabulary: int = 128256,
    tied: bool = True,
    fused: bool = False,
    dtype: str = "float32",
) -> Tape:
    """Llama decoder, by default of the 1.2 billion size: RMSNorm, rotary positions, SwiGLU, grouped-query attention."""

    def feed_forward(b: Builder, x: Value) -> Value:
        with b.scope("mlp"):
            return _gated(b, x, intermediate, ("gate_proj", "up_proj", "down_proj"))

    b = Builder("llama", dtype)
    return _decoder(b, batch, sequence, layers, hidden, heads, key_heads, vocabulary, tied, fused, feed_forward)


def moe(
    batch: int = 1,
    sequence: int = 512,
    layers: int = 8,
    hidden: int = 1024,
    heads: int = 16,
    key_heads: int = 4,
    intermediate: int = 3584,
    experts: int = 8,
    top: int = 2,
    vocabulary: int = 32000,
    fused: bool = False,
    dtype: str = "float32",
) -> Tape:
    """Mixtral-like decoder: a router sends each token to ``top`` of the ``experts``, which are separate blocks.

    Every expert takes its equal share of the tokens (those that weigh it most), so that shapes are fixed and
    the flops are those of the average.
    """
    if top > experts:
        raise InputError(f"zoo:moe: option 'top' is {top}, expected at most the number of experts, {experts}")

    def feed_forward(b: Builder, x: Value) -> Value:
        with b.scope("block_sparse_moe"):
            return _mixture(b, x, intermediate, experts, top)

    b = Builder("moe", dtype)
    return _decoder(b, batch, sequence, layers, hidden, heads, key_heads, vocabulary, False, fused, feed_forward)


def _decoder(
    b: Builder,
    batch: int,
    sequence: int,
    layers: int,
    hidden: int,
    heads: int,
    key_heads: int,
    vocabulary: int,
    tied: bool,
    fused: bool,
    feed_forward: Callable[[Builder, Value], Value],
) -> Tape:
    _check(b.name, hidden, heads, sequence, sequence)
    if heads % key_heads or (hidden // heads) % 2:
        raise InputError(
            f"zoo:{b.name}: 'heads' ({heads}) must be a multiple of 'key_heads' ({key_heads}), and hidden / heads even"
        )
    ids = b.input("input_ids", (batch, sequence), upper=vocabulary)
    with b.scope("model"):
        table = b.variable("embed_tokens_weight", (vocabulary, hidden), spread=1 / math.sqrt(hidden)) if tied else None
        x = b.embedding("embed_tokens", ids, vocabulary, hidden) if table is None else (
            b.gather_rows("embed_tokens", table, ids)
        )  # fmt: skip
        angles = (sequence, hidden // heads)
        rotation = (
            b.constant("rotary_emb.cos", angles, "rotary_cos", base=500000.0),
            b.constant("rotary_emb.sin", angles, "rotary_sin", base=500000.0),
        )
        mask = None if fused else b.constant("causal_mask", (sequence, sequence), "causal_mask")
        for layer in range(layers):
            with b.scope(f"layers.{layer}"):
                y = _rotary_attention(b, b.rms_norm("input_layernorm", x), heads, key_heads, rotation, mask, fused)
                x = b.add("add_1", x, y)
                x = b.add("add_2", x, feed_forward(b, b.rms_norm("post_attention_layernorm", x)))
        x = b.rms_norm("norm", x)
    if table is None:
        return b.finish(b.linear("lm_head", x, vocabulary, bias=False))
    return b.finish(b.matmul("lm_head", x, table, transpose_b=True))


def _rotary_attention(
    b: Builder,
    x: Value,
    heads: int,
    key_heads: int,
    rotation: tuple[Value, Value],
    mask: Value | None,
    fused: bool,
) -> Value:
    hidden = x.shape[-1]
    width = hidden // heads
    with b.scope("self_attn"):
        q = _heads(b, "query", b.linear("q_proj", x, hidden, bias=False), heads)
        k = _heads(b, "key", b.linear("k_proj", x, key_heads * width, bias=False), key_heads)
        v = _heads(b, "value", b.linear("v_proj", x, key_heads * width, bias=False), key_heads)
        q, k = _rotated(b, "rotate_query", q, rotation), _rotated(b, "rotate_key", k, rotation)
        if heads > key_heads:
            k, v = (b.repeat(f"repeat_{n}", y, heads // key_heads, axis=1) for n, y in (("key", k), ("value", v)))
        return b.linear("o_proj", _attend(b, q, k, v, mask, fused), hidden, bias=False)


def _rotated(b: Builder, name: str, x: Value, rotation: tuple[Value, Value]) -> Value:
    with b.scope(name):
        first, second = b.split("split", x, 2)
        turned = b.concat("concat", [b.activation("neg", second, "Neg"), first], axis=-1)
        return b.add("add", b.mul("mul_cos", x, rotation[0]), b.mul("mul_sin", turned, rotation[1]))


def _gated(b: Builder, x: Value, intermediate: int, names: tuple[str, str, str]) -> Value:
    gate, up, down = names
    gated = b.activation("act_fn", b.linear(gate, x, intermediate, bias=False), "SiLU")
    return b.linear(down, b.mul("mul", gated, b.linear(up, x, intermediate, bias=False)), x.shape[-1], bias=False)


def _mixture(b: Builder, x: Value, intermediate: int, experts: int, top: int) -> Value:
    batch, sequence, hidden = x.shape
    tokens = batch * sequence
    rows = b.reshape("flatten", x, tokens, hidden)
    best, chosen = b.top_k("top_k", b.linear("gate", rows, experts, bias=False), top)
    gates = b.scatter_columns("gates", b.softmax("softmax", best), chosen, experts)
    shares = b.unstack("unstack", gates, axis=1)
    total: Value | None = None
    for expert in range(experts):
        with b.scope(f"experts.{expert}"):
            weights, mine = b.top_k("top_k", shares[expert], max(1, tokens * top // experts))
            y = _gated(b, b.gather_rows("gather", rows, mine), intermediate, ("w1", "w3", "w2"))
            y = b.mul("weigh", y, b.reshape("column", weights, weights.shape[0], 1))
            y = b.scatter_rows("scatter", y, mine, tokens)
            total = y if total is None else b.add("add", total, y)
    assert total is not None
    return b.reshape("unflatten", total, batch, sequence, hidden)


def _heads(b: Builder, name: str, x: Value, heads: int) -> Value:
    """[batch, sequence, width] to [batch, heads, sequence, width / heads]."""
    batch, sequence, width = x.shape
    return b.permute(
        f"{name}_transpose", b.reshape(f"{name}_heads", x, batch, sequence, heads, width // heads), 0, 2, 1, 3
    )


def _attend(b: Builder, q: Value, k: Value, v: Value, mask: Value | None, fused: bool) -> Value:
    """Attention of all heads, back in the shape [batch, sequence, width]; causal if fused without a mask."""
    if fused:
        y = b.attention("attention", q, k, v, causal=mask is None, mask=mask)
    else:
        # Divided as BERT and GPT-2 do: OpenVINO fuses a product with 1 / sqrt(width) into one op for all of this.
        scores = b.divide_by("scale", b.matmul("scores", q, k, transpose_b=True), math.sqrt(q.shape[-1]))
        weights = b.softmax("softmax", scores if mask is None else b.add("add_mask", scores, mask))
        y = b.matmul("context", weights, v)
    batch, heads, sequence, width = y.shape
    return b.reshape("merge_heads", b.permute("context_transpose", y, 0, 2, 1, 3), batch, sequence, heads * width)


def _check(name: str, hidden: int, heads: int, sequence: int, positions: int) -> None:
    if hidden % heads:
        raise InputError(f"zoo:{name}: option 'hidden' is {hidden}, expected a multiple of 'heads', {heads}")
    if sequence > positions:
        raise InputError(f"zoo:{name}: option 'sequence' is {sequence}, expected at most 'positions', {positions}")
