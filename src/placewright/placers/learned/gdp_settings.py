"""Every choice of GDP's policy and of its training, in one place."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from placewright.documents import Fields
from placewright.errors import InputError, suggestion
from placewright.placers.learned.stored_settings import checked_settings
from placewright.text import shown

Gate = Literal["graph", "node", "none"]
Head = Literal["devices", "fixed"]
Invalid = Literal["repair", "penalty"]
Baseline = Literal["moving", "mean"]


@dataclass(frozen=True)
class Settings:
    """``scales``: blocks per device, 0 for none (every op alone); good placements are changed at all of them.

    The policy decides at the first ``policy_scales`` of them, its own answer is that at the first.
    ``head``: ops are scored against embeddings of the devices, or have a ``fixed`` softmax. ``gate``: what the
    superposition layer conditions on. ``rounds``: how often devices are decided, each time knowing the decisions
    before (GO). ``invalid``: ops are moved off over-full devices, or the reward is -10. ``mutants``: changed copies of
    the best placements that are judged beside each step's samples; ``imitation`` is the weight of learning from the
    best ones.
    """

    variant: str = "ours"
    width: int = 64
    sage_layers: int = 3
    attention_layers: int = 1
    heads: int = 4
    inner_width: int = 128
    segment: int = 64
    gate: Gate = "graph"
    head: Head = "devices"
    rounds: int = 1
    work_features: bool = True  # times, bytes and places in the critical path, which the paper does not use
    scales: tuple[int, ...] = (2, 1, 8, 32)
    policy_scales: int = 1
    learning_rate: float = 1e-3
    last_learning_rate: float = 1e-4
    clip: float = 0.2
    entropy: float = 0.03
    last_entropy: float = 0.003
    samples: int = 16
    epochs: int = 2
    most_gradient: float = 1.0
    baseline: Baseline = "moving"
    invalid: Invalid = "repair"
    mutants: int = 16
    imitation: float = 0.3
    by_rank: bool = True  # order of ready ops under "overlap": longest way left first

    def document(self) -> dict[str, Any]:
        """As plain values, for files."""
        return asdict(self)


_PUBLISHED = Settings(
    "paper", width=128, sage_layers=4, attention_layers=2, inner_width=512, segment=128, head="fixed",
    work_features=False, scales=(0,), entropy=0.1, last_entropy=0.01, samples=20, epochs=4, baseline="mean",
    invalid="penalty", mutants=0, imitation=0.0, by_rank=False,
)  # fmt: skip
VARIANTS: dict[str, Settings] = {"ours": Settings(), "paper": _PUBLISHED}
# What says how a network is built: a policy from a file brings it along.
SHAPE = (
    "width", "sage_layers", "attention_layers", "heads", "inner_width", "segment", "gate", "head", "rounds",
    "work_features",
)  # fmt: skip
_CHOICES = {"gate": Gate, "head": Head, "invalid": Invalid, "baseline": Baseline}


def settings_for(variant: str, **changes: Any) -> Settings:
    """The settings of a variant with changes."""
    if variant not in VARIANTS:
        raise InputError(f"unknown variant '{shown(variant)}' of gdp; {suggestion(variant, VARIANTS)}")
    names = [f.name for f in fields(Settings)]
    for name in changes:
        if name not in names:
            raise InputError(f"gdp has no option '{shown(name)}'; {suggestion(name, names)}")
    for name, known in _CHOICES.items():
        if name in changes and changes[name] not in get_args(known):
            expected = " or ".join(get_args(known))
            raise InputError(f"{name} is '{shown(str(changes[name]))}', expected {expected}")
    return replace(VARIANTS[variant], **changes)


def settings_of(document: dict[str, Any]) -> Settings:
    """Read what :meth:`Settings.document` wrote."""
    scales = Fields(document, "settings").list_of("scales")
    if not 1 <= len(scales) <= 16 or any(type(s) is not int or not 0 <= s <= 4096 for s in scales):
        raise InputError("settings: 'scales' is not a list of 1 to 16 whole numbers from 0 to 4096")
    rest = {name: value for name, value in document.items() if name != "scales"}
    choices = {name: get_args(known) for name, known in _CHOICES.items()}
    limits = {
        "width": (1, 4096), "sage_layers": (0, 64), "attention_layers": (0, 64), "heads": (1, 256),
        "inner_width": (1, 16384), "segment": (1, 4096), "rounds": (1, 64), "policy_scales": (1, len(scales)),
        "samples": (1, 4096), "epochs": (0, 256), "mutants": (0, 4096),
    }  # fmt: skip
    found = checked_settings(Settings(scales=tuple(scales)), rest, "settings", choices, limits)
    if found.width % found.heads:
        raise InputError(f"settings: 'width' is {found.width}, expected a multiple of 'heads', which is {found.heads}")
    return found
