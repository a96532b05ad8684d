"""HSDAG's network: embed the groups of a graph, parse them into clusters, pool the clusters, level by level."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from placewright.placers.learned.parsing import parse_level, undirected


class Parsed(NamedTuple):
    """The graph at one level of the hierarchy; at level 0 every group is a cluster of its own."""

    cluster_of_group: Tensor  # [groups]
    embedding: Tensor  # [clusters, hidden]
    edges: Tensor  # [edges, 2]: directed, distinct

    @property
    def n_clusters(self) -> int:
        return len(self.embedding)


class Convolutions(nn.Module):
    """Graph convolutions, each with ReLU and dropout, and one residual connection around all of them.

    Without ``directed``: messages weighted by D^-1/2 (A + I) D^-1/2 over the symmetrised edges. With it: own weights
    for the node itself, for messages along the edges and for messages against them, each a mean.
    """

    def __init__(self, hidden: int, layers: int, dropout: float, *, directed: bool) -> None:
        super().__init__()
        self.directed = directed
        self.linear = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers))
        extra = layers if directed else 0
        self.along = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(extra))
        self.against = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(extra))
        self.dropout, self.norm = nn.Dropout(dropout), nn.LayerNorm(hidden)
        for linear in (*self.linear, *self.along, *self.against):
            assert isinstance(linear, nn.Linear)
            nn.init.xavier_uniform_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        h = x
        for i, linear in enumerate(self.linear):
            if self.directed:
                h = linear(h) + _mean_message(self.along[i](h), edges[:, 0], edges[:, 1])
                h = h + _mean_message(self.against[i](h), edges[:, 1], edges[:, 0])
            else:
                h = _symmetric_message(linear.weight, linear.bias, h, undirected(edges))  # type: ignore[arg-type]
            h = self.dropout(torch.relu(h))
        return self.norm(x + h)


def _mean_message(message: Tensor, source: Tensor, target: Tensor) -> Tensor:
    count = torch.bincount(target, minlength=len(message)).clamp(min=1).unsqueeze(1)
    return torch.zeros_like(message).index_add(0, target, message[source]) / count


def _symmetric_message(weight: Tensor, bias: Tensor, x: Tensor, pairs: Tensor) -> Tensor:
    degree = 1 + torch.bincount(pairs.reshape(-1), minlength=len(x))
    scale = degree.to(x.dtype).rsqrt().unsqueeze(1)
    scaled = scale * (x @ weight.T)
    total = scaled.index_add(0, pairs[:, 0], scaled[pairs[:, 1]]).index_add(0, pairs[:, 1], scaled[pairs[:, 0]])
    return scale * total + bias


class ResidualLinear(nn.Module):
    """LayerNorm(x + W x + b)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(hidden, hidden), nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.linear(x))


class StructureNet(nn.Module):
    """Steps 2 to 3: features to embeddings, and embeddings to clusters with embeddings of their own."""

    def __init__(self, width: int, hidden: int, dropout: float, *, directed: bool) -> None:
        super().__init__()
        self.input = nn.Sequential(*_dense(width, hidden, dropout), *_dense(hidden, hidden, dropout))
        self.for_parsing = Convolutions(hidden, 2, dropout, directed=directed)
        self.for_pooling = Convolutions(hidden, 1, dropout, directed=directed)
        self.edge_score = nn.Sequential(*_dense(hidden, hidden, dropout), nn.Linear(hidden, 1))
        self.before_sum, self.after_sum = ResidualLinear(hidden), ResidualLinear(hidden)

    def forward(self, x: Tensor, edges: Tensor, levels: int | None, noise: float = 0.0) -> list[Parsed]:
        """Parse ``levels`` times, or until nothing changes (``None``). ``noise`` is added to the edges' scores."""
        hidden = self.input(x)
        parsed = [Parsed(torch.arange(len(x)), hidden, edges)]
        while (levels is None or len(parsed) <= levels) and len(parsed[-1].edges) > 0:
            parsed.append(self._coarser(parsed[-1], noise))
        return parsed

    def _coarser(self, fine: Parsed, noise: float) -> Parsed:
        z = self.for_parsing(fine.embedding, fine.edges)
        pairs = undirected(fine.edges)
        logit = self.edge_score(z[pairs[:, 0]] * z[pairs[:, 1]]).squeeze(1)
        if noise > 0.0:
            logit = logit - noise * torch.empty_like(logit).exponential_().log()  # Gumbel's distribution
        level = parse_level(fine.n_clusters, pairs, torch.sigmoid(logit))
        member = self.before_sum(self.for_pooling(fine.embedding, fine.edges))
        pooled = torch.zeros(level.n_clusters, member.shape[1]).index_add(0, level.cluster_of_node, member)
        # The product is the only way for gradients to reach the edges' scores: the partition is a hard choice.
        embedding = self.after_sum(pooled) * level.inner_score.unsqueeze(1)
        ends = level.cluster_of_node[fine.edges]
        crossing = torch.unique(ends[ends[:, 0] != ends[:, 1]].reshape(-1, 2), dim=0)
        return Parsed(level.cluster_of_node[fine.cluster_of_group], embedding, crossing)


class DeviceHead(nn.Module):
    """Step 4 as published: cluster embeddings back to the width of the features, then a classifier over devices."""

    def __init__(self, width: int, hidden: int, n_devices: int, dropout: float) -> None:
        super().__init__()
        self.output = nn.Sequential(
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, width), nn.ReLU(),
            nn.Dropout(dropout),
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, n_devices))

    def forward(self, embedding: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [clusters, devices] and what is added to the features of the clusters' members."""
        code = self.output(embedding)
        return self.classifier(code), code


class MoveHead(nn.Module):
    """Scores moves (a cluster to a device) by the cluster's embedding and by what the move would change."""

    def __init__(self, hidden: int, move_width: int) -> None:
        super().__init__()
        self.width = hidden + move_width
        self.score = nn.Sequential(
            nn.Linear(self.width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, 1),
        )  # fmt: skip
        last = self.score[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)  # all moves are alike at first
        nn.init.zeros_(last.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Score rows of a cluster's embedding, features of a move, and a first guess, to which the score is added."""
        return self.score(inputs[:, :-1]).squeeze(1) + inputs[:, -1]


def _dense(width: int, hidden: int, dropout: float) -> tuple[nn.Module, ...]:
    return nn.Linear(width, hidden), nn.LayerNorm(hidden), nn.ReLU(), nn.Dropout(dropout)
