"""Contract tests for placers and frontends, for third parties too."""

from placewright.testing.brute_force import optimum
from placewright.testing.contract import PlacerContract
from placewright.testing.frontends import FrontendCase, FrontendContract
from placewright.testing.problems import problem_of, random_cluster, random_graph, random_problem

__all__ = [
    "FrontendCase",
    "FrontendContract",
    "PlacerContract",
    "optimum",
    "problem_of",
    "random_cluster",
    "random_graph",
    "random_problem",
]
