"""Contract tests for placers, for third parties too."""

from placewright.testing.contract import PlacerContract
from placewright.testing.problems import random_cluster, random_graph, random_problem

__all__ = ["PlacerContract", "random_cluster", "random_graph", "random_problem"]
