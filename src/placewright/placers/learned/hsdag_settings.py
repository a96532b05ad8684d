"""Every choice that HSDAG's paper, its released code and ours make differently, in one place."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from placewright.documents import Fields
from placewright.errors import InputError, suggestion
from placewright.placers.learned.features import Blocks
from placewright.placers.learned.groups import Rule
from placewright.placers.learned.stored_settings import checked_settings
from placewright.text import shown

Variant = Literal["ours", "paper", "released"]
Decision = Literal["moves", "all"]
Update = Literal["ours", "eq14", "released"]


@dataclass(frozen=True)
class Settings:
    """``decide``: "moves" re-decides a few clusters of the best placement per trial, "all" every cluster anew.

    ``levels``: how often the graph is parsed, 0 for until nothing changes. ``update``: the published rule (``eq14``),
    the released code's, or ours. ``starts``: list schedules are among the first trials, beside the single devices.
    ``learning_rate`` 0 leaves the policy as it is.
    """

    variant: Variant = "ours"
    decide: Decision = "moves"
    update: Update = "ours"
    colocation: Rule = "none"
    blocks: Blocks = field(default_factory=Blocks)
    levels: int = 3
    directed: bool = True
    hidden: int = 32
    dropout: float = 0.0
    learning_rate: float = 3e-3
    batch: int = 8
    discount: float = 0.95
    entropy: float = 0.01
    allow_single_device: bool = True
    starts: bool = True
    by_rank: bool = True  # order of ready ops under "overlap": longest way left first
    work_weight: float = 2.0  # of priced work in the score by which moves are judged, at most, where values are flat
    trust: float = 5.0  # in guesses of what a move would change: log-odds per hundredth of the value
    parsing_noise: float = 1.0
    replays: int = 4  # updates by remembered trials after each step
    sections: bool = True  # one trial changes every section of the graph, and each change is judged by its own section
    exploring: float = 0.1  # share of the trials that are drawn from all moves alike

    def document(self) -> dict[str, Any]:
        """As plain values, for files."""
        return asdict(self)


_PUBLISHED = Settings(
    "paper", "all", "eq14", "paper", Blocks(work=False), 1, False, 128, 0.2, 1e-4, 20, 0.95, 0.0,
    starts=False, by_rank=False, work_weight=0.0, parsing_noise=0.0,
)  # fmt: skip
_RELEASED = replace(
    _PUBLISHED, variant="released", update="released", colocation="released", levels=0, learning_rate=1e-3,
    blocks=Blocks(shape=False, structure=False, position=False, work=False, index=True), allow_single_device=False,
)  # fmt: skip
VARIANTS: dict[str, Settings] = {"ours": Settings(), "paper": _PUBLISHED, "released": _RELEASED}
_CHOICES = {"decide": get_args(Decision), "update": get_args(Update), "colocation": get_args(Rule)}


def settings_for(variant: str, **changes: Any) -> Settings:
    """The settings of a variant with changes; ``without`` names feature blocks to leave out, comma separated."""
    if variant not in VARIANTS:
        raise InputError(f"unknown variant '{shown(variant)}' of hsdag; {suggestion(variant, VARIANTS)}")
    chosen = VARIANTS[variant]
    without = [name for name in str(changes.pop("without", "")).split(",") if name]
    names = [f.name for f in fields(Blocks)]
    for name in without:
        if name not in names:
            raise InputError(f"unknown feature block '{shown(name)}'; {suggestion(name, names)}")
    blocks = replace(chosen.blocks, **dict.fromkeys(without, False))
    for name, known in _CHOICES.items():
        if changes.get(name, known[0]) not in known:
            raise InputError(f"{name} is '{shown(str(changes[name]))}', expected {' or '.join(known)}")
    return replace(chosen, blocks=blocks, **changes)


def settings_of(document: dict[str, Any]) -> Settings:
    """Read what :meth:`Settings.document` wrote."""
    blocks = Fields(document.get("blocks"), "settings: blocks").data
    rest = {name: value for name, value in document.items() if name != "blocks"}
    limits = {"hidden": (1, 4096), "levels": (0, 64), "batch": (1, 4096), "replays": (0, 256)}
    return checked_settings(
        replace(Settings(), blocks=checked_settings(Blocks(), blocks, "settings: blocks", {}, {})),
        rest,
        "settings",
        {**_CHOICES, "variant": get_args(Variant)},
        limits,
    )
