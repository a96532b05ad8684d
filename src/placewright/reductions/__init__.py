"""Make a problem smaller and bring the placement back."""

from placewright.reductions.contract import Reduced, Reduction, contract, reduce_all
from placewright.reductions.standard import (
    REDUCTIONS,
    contract_sccs,
    fold_constants,
    group_colocated,
    merge_chains,
    merge_free,
)

__all__ = [
    "REDUCTIONS",
    "Reduced",
    "Reduction",
    "contract",
    "contract_sccs",
    "fold_constants",
    "group_colocated",
    "merge_chains",
    "merge_free",
    "reduce_all",
]
