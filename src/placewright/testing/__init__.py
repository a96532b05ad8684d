"""Contract tests for placers and frontends, for third parties too."""

from placewright.testing.brute_force import optimum
from placewright.testing.contract import PlacerContract
from placewright.testing.drawn_problems import problem_of, random_cluster, random_graph, random_problem
from placewright.testing.frontends import FrontendCase, FrontendContract

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
