from __future__ import annotations

import pytest

from placewright.errors import InputError
from placewright.zoo import zoo_graph
from placewright.zoo.synthetic import REFERENCE_FLOPS_PER_S, REFERENCE_LINK_BYTES_PER_S


@pytest.mark.parametrize("ccr", [0.4, 4.0])
def test_layered_graphs_have_the_wanted_ratio_of_communication_to_compute(ccr: float) -> None:
    graph = zoo_graph(f"layered?ops=500&ccr={ccr}")
    copies_s = graph.tensor_bytes[graph.edge_tensor].sum() / REFERENCE_LINK_BYTES_PER_S
    assert copies_s / (graph.flops.sum() / REFERENCE_FLOPS_PER_S) == pytest.approx(ccr, rel=1e-4)


def test_the_ratio_changes_nothing_but_sizes() -> None:
    plain, scaled = zoo_graph("layered?ops=100"), zoo_graph("layered?ops=100&ccr=3")
    assert plain.consumer_op.tolist() == scaled.consumer_op.tolist()
    assert plain.flops.tolist() == scaled.flops.tolist()
    assert plain.weight_bytes.tolist() == scaled.weight_bytes.tolist()


def test_a_negative_ratio_is_refused() -> None:
    with pytest.raises(InputError, match="'ccr' is '-1', expected a number from 0"):
        zoo_graph("layered?ops=10&ccr=-1")
