"""GDP's network: graph embedding, segment-recurrent attention, superposition gate, one decision for all ops at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from placewright.placers.learned.gdp_features import DEVICE_WIDTH, PAIR_WIDTH
from placewright.placers.learned.gdp_settings import Gate, Settings

FORBIDDEN = -1e9
BLOCK_WIDTH = 2  # logarithms of a block's share of all work and of all groups


class GraphTensors(NamedTuple):
    """One problem as tensors; blocks are those of one scale."""

    node: Tensor  # [nodes, features]
    edges: Tensor  # [2, edges]: both directions of every edge, (from, to)
    device: Tensor  # [devices, DEVICE_WIDTH]
    block_of_node: Tensor  # [nodes]
    weight: Tensor  # [nodes]: share of its block
    block: Tensor  # [blocks, BLOCK_WIDTH]
    pair: Tensor  # [blocks, devices, PAIR_WIDTH]
    allowed: Tensor  # [blocks, devices]
    work: Tensor  # [blocks]: share of all work

    @property
    def n_blocks(self) -> int:
        return len(self.block)


class Joined(NamedTuple):
    """Several graphs side by side. Nodes lie in segments; each graph begins a new one, the last one may have gaps."""

    node: Tensor  # [slots, features], zero in gaps
    edges: Tensor  # [2, edges] between slots
    is_node: Tensor  # [slots]
    starts_graph: Tensor  # [segments]: there is no segment before
    graph_of_slot: Tensor  # [slots]
    device: Tensor  # [graphs, most devices, DEVICE_WIDTH]
    slot: Tensor  # [nodes]: where each node is
    block_of_node: Tensor  # [nodes], numbered over all graphs
    weight: Tensor  # [nodes]
    block: Tensor  # [blocks, BLOCK_WIDTH]
    pair: Tensor  # [blocks, most devices, PAIR_WIDTH]
    allowed: Tensor  # [blocks, most devices]
    work: Tensor  # [blocks]
    graph_of_block: Tensor  # [blocks]


def join(graphs: Sequence[GraphTensors], segment: int) -> Joined:
    """Put graphs side by side, so that one pass serves all."""
    where = graphs[0].node.device
    most = max(len(g.device) for g in graphs)
    node, edges, slot, block_of_node = [], [], [], []
    starts, graph_of_slot, is_node = [], [], []
    first_slot = first_block = 0
    for i, g in enumerate(graphs):
        n = len(g.node)
        segments = max(1, math.ceil(n / segment))
        gap = segments * segment - n
        node.append(nn.functional.pad(g.node, (0, 0, 0, gap)))
        is_node.append(torch.arange(n + gap, device=where) < n)
        edges.append(g.edges + first_slot)
        slot.append(torch.arange(n, device=where) + first_slot)
        block_of_node.append(g.block_of_node + first_block)
        starts.append(torch.arange(segments, device=where) == 0)
        graph_of_slot.append(torch.full((n + gap,), i, device=where))
        first_slot += n + gap
        first_block += g.n_blocks
    graph_of_block = torch.cat([torch.full((g.n_blocks,), i, device=where) for i, g in enumerate(graphs)])
    return Joined(
        torch.cat(node), torch.cat(edges, dim=1), torch.cat(is_node), torch.cat(starts), torch.cat(graph_of_slot),
        torch.stack([nn.functional.pad(g.device, (0, 0, 0, most - len(g.device))) for g in graphs]),
        torch.cat(slot), torch.cat(block_of_node), torch.cat([g.weight for g in graphs]),
        torch.cat([g.block for g in graphs]),
        torch.cat([nn.functional.pad(g.pair, (0, 0, 0, most - len(g.device))) for g in graphs]),
        torch.cat([nn.functional.pad(g.allowed, (0, most - len(g.device))) for g in graphs]),
        torch.cat([g.work for g in graphs]), graph_of_block,
    )  # fmt: skip


class GraphSage(nn.Module):
    """Layers of h <- f([h, max over neighbours of sigmoid(W h + b)]); nodes without neighbours have zeros there."""

    def __init__(self, features: int, width: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, width)
        self.message = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.join = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(layers)])

    def forward(self, node: Tensor, edges: Tensor) -> Tensor:
        """[nodes, features] and [2, edges] (from, to) to [nodes, width]."""
        h = torch.relu(self.first(node))
        target = edges[1][:, None].expand(-1, h.shape[1])
        for message, joined in zip(self.message, self.join, strict=True):
            sent = torch.sigmoid(message(h))[edges[0]]
            best = torch.zeros_like(h).scatter_reduce(0, target, sent, "amax", include_self=False)
            h = torch.relu(joined(torch.cat([h, best], dim=1)))
        return h


class SegmentLayer(nn.Module):
    """Attention of every node to its own segment and to the one before, whose gradient is not followed.

    There are no positions and no mask of the future. A layer reads the layer below at all segments, so segments are
    done together, not one after another. ``gates`` multiply the inputs of all dense layers.
    """

    def __init__(self, width: int, heads: int, inner_width: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key_value = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner_width), nn.Linear(inner_width, width)
        self.norm_attention, self.norm_inner = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(
        self, x: Tensor, is_node: Tensor, starts_graph: Tensor, gate: Tensor | None, inner_gate: Tensor | None
    ) -> Tensor:
        """[slots, width] to the same."""
        segments = len(starts_graph)
        size, width = x.shape[0] // segments, x.shape[1]
        gated = x if gate is None else x * gate
        query = self.query(gated)
        here = self.key_value(gated)
        frozen = self.key_value(gated.detach()) if torch.is_grad_enabled() else here
        here, frozen = (t.view(segments, size, 2 * width) for t in (here, frozen))
        before = torch.cat([frozen[:1], frozen[:-1]])  # the first one is never looked at
        key, value = torch.cat([before, here], dim=1).chunk(2, dim=2)
        real = is_node.view(segments, size)
        seen = torch.cat([torch.cat([real[:1], real[:-1]]) & ~starts_graph[:, None], real], dim=1)
        mask = seen[:, None, None, :].expand(-1, 1, size, -1)
        q, k, v = (self._split(t.reshape(segments, -1, width)) for t in (query, key, value))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, mask)
        mixed = mixed.transpose(1, 2).reshape(-1, width)
        y = self.norm_attention(x + self.out(mixed if gate is None else mixed * gate))
        inner = torch.relu(self.up(y if gate is None else y * gate))
        return self.norm_inner(y + self.down(inner if inner_gate is None else inner * inner_gate))

    def _split(self, x: Tensor) -> Tensor:
        """[segments, slots, width] to [segments, heads, slots, width of a head]."""
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)


class Superposition(nn.Module):
    """The gate: one attention layer on the graph embedding, then factors for every input of a dense layer.

    Factors are 1 at the start, so that an untrained gate changes nothing; they are those of each node, or of the mean
    over a graph.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.by: Gate = settings.gate
        self.layer = SegmentLayer(settings.width, settings.heads, settings.inner_width)
        self.factor = nn.Linear(settings.width, settings.width)
        self.inner_factor = nn.Linear(settings.width, settings.inner_width)
        for linear in (self.factor, self.inner_factor):
            nn.init.zeros_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor, graphs: Joined) -> tuple[Tensor, Tensor]:
        """Factors [slots, width] and [slots, inner width]."""
        c = self.layer(x, graphs.is_node, graphs.starts_graph, None, None)
        if self.by == "graph":
            real = graphs.is_node[:, None].to(c.dtype)
            count = torch.zeros(len(graphs.device), 1, device=c.device).index_add(0, graphs.graph_of_slot, real)
            total = torch.zeros(len(graphs.device), c.shape[1], device=c.device).index_add(
                0, graphs.graph_of_slot, c * real
            )
            c = (total / count)[graphs.graph_of_slot]
        return 1 + torch.tanh(self.factor(c)), 1 + torch.tanh(self.inner_factor(c))


class GdpPolicy(nn.Module):
    """From graphs to a log-probability of every device for every block. Untrained devices of a kind differ by rank."""

    def __init__(self, settings: Settings, node_features: int, n_devices: int) -> None:
        super().__init__()
        self.settings, width = settings, settings.width
        self.embed = GraphSage(node_features, width, settings.sage_layers)
        self.layers = nn.ModuleList(
            [SegmentLayer(width, settings.heads, settings.inner_width) for _ in range(settings.attention_layers)]
        )
        self.gate = Superposition(settings) if settings.gate != "none" else None
        self.head = nn.Linear(width, n_devices if settings.head == "fixed" else width)
        if settings.head == "devices":
            self.block = nn.Linear(BLOCK_WIDTH + node_features, width)
            self.device = nn.Sequential(nn.Linear(DEVICE_WIDTH + 1, width), nn.ReLU(), nn.Linear(width, width))
            self.pair = nn.Linear(PAIR_WIDTH, 1, bias=False)
        if settings.rounds > 1:
            self.decided = nn.Linear(width if settings.head == "devices" else n_devices, width)

    def forward(self, graphs: Joined) -> Tensor:
        """[blocks, most devices]: log-probabilities, very low where not allowed."""
        x = self.embed(graphs.node, graphs.edges)
        gates = self.gate(x, graphs) if self.gate is not None else (None, None)
        log_chance = self._decide(x, graphs, gates, None)
        for _ in range(self.settings.rounds - 1):
            log_chance = self._decide(x, graphs, gates, log_chance.detach().exp())
        return log_chance

    def _decide(
        self, x: Tensor, graphs: Joined, gates: tuple[Tensor | None, Tensor | None], before: Tensor | None
    ) -> Tensor:
        devices = None
        if self.settings.head == "devices":
            load = torch.zeros(graphs.device.shape[:2], device=x.device)
            if before is not None:
                load = load.index_add(0, graphs.graph_of_block, before * graphs.work[:, None])
            devices = self.device(torch.cat([graphs.device, load[:, :, None]], dim=2))
        if before is not None:
            told = before if devices is None else _per_block(before, devices, graphs)
            x = x.index_add(0, graphs.slot, self.decided(told)[graphs.block_of_node])
        for layer in self.layers:
            x = layer(x, graphs.is_node, graphs.starts_graph, *gates)
        pooled = _pooled(x if gates[0] is None else x * gates[0], graphs)
        if devices is None:
            logits = self.head(pooled)
        else:
            known = torch.cat([graphs.block, _pooled(graphs.node, graphs)], dim=1)
            wish = torch.tanh(self.head(pooled) + self.block(known))
            logits = (wish[:, None] * devices[graphs.graph_of_block]).sum(dim=2) / wish.shape[1] ** 0.5
            logits = logits + self.pair(graphs.pair)[:, :, 0]
        return torch.log_softmax(logits.masked_fill(~graphs.allowed, FORBIDDEN), dim=1)


def _pooled(x: Tensor, graphs: Joined) -> Tensor:
    """[blocks, columns]: weighted means over each block's nodes."""
    means = torch.zeros(len(graphs.block), x.shape[1], device=x.device)
    return means.index_add(0, graphs.block_of_node, x[graphs.slot] * graphs.weight[:, None])


def _per_block(chance: Tensor, devices: Tensor, graphs: Joined) -> Tensor:
    """[blocks, width]: the mean of the devices' embeddings by chance."""
    return (chance[:, :, None] * devices[graphs.graph_of_block]).sum(dim=1)
