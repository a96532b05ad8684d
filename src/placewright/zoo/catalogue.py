"""Which models there are, and how their options are read."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from placewright.errors import InputError, suggestion
from placewright.graph import OpGraph
from placewright.text import shown
from placewright.zoo import language, recurrent, synthetic, vision
from placewright.zoo.amoebanet import amoebanet
from placewright.zoo.inception import inception_v3
from placewright.zoo.tape import Tape
from placewright.zoo.transformer_xl import transformer_xl
from placewright.zoo.wavenet import wavenet

MAX_OPTION = 1_000_000
OPTIMIZERS = ("sgd", "momentum", "adam")


@dataclass(frozen=True)
class Model:
    """A way to build a model: ``build`` takes the options by name, ``preset`` changes their defaults."""

    build: Callable[..., Tape | OpGraph]
    preset: dict[str, Any] = field(default_factory=dict)
    training: bool = False  # whether the graph is one of training unless an option says otherwise

    @property
    def options(self) -> dict[str, Any]:
        """The options with their defaults."""
        parameters = inspect.signature(self.build).parameters.values()
        own = {p.name: self.preset.get(p.name, p.default) for p in parameters}
        return own | {"training": self.training, "optimizer": "adam"}

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.build) or "").partition("\n")[0]


@dataclass(frozen=True)
class Choice:
    """A model with all its options set."""

    name: str
    model: Model
    options: dict[str, Any]

    @property
    def training(self) -> bool:
        return bool(self.options["training"])

    @property
    def optimizer(self) -> str:
        return str(self.options["optimizer"])

    def build(self) -> Tape | OpGraph:
        own = {key: value for key, value in self.options.items() if key not in ("training", "optimizer")}
        return self.model.build(**own)


MODELS: dict[str, Model] = {
    "inception-v3": Model(inception_v3),
    "resnet-50": Model(vision.resnet50),
    "vgg-16": Model(vision.vgg16),
    "mobilenet": Model(vision.mobilenet),
    "unet": Model(vision.unet),
    "bert-base": Model(language.bert),
    "gpt2": Model(language.gpt2),
    "llama": Model(language.llama),
    "moe": Model(language.moe),
    **{f"rnnlm-{n}": Model(recurrent.rnnlm, {"layers": n}, training=True) for n in (2, 4, 8)},
    **{f"gnmt-{n}": Model(recurrent.gnmt, {"layers": n}, training=True) for n in (2, 4, 8)},
    **{f"transformer-xl-{n}": Model(transformer_xl, {"layers": n}, training=True) for n in (2, 4, 8)},
    "amoebanet": Model(amoebanet, training=True),
    "wavenet-2x18": Model(wavenet, {"stacks": 2, "layers": 18}, training=True),
    "wavenet-4x36": Model(wavenet, {"stacks": 4, "layers": 36}, training=True),
    "layered": Model(synthetic.layered),
    "fork-join": Model(synthetic.fork_join),
    "series-parallel": Model(synthetic.series_parallel),
    "chain": Model(synthetic.chain),
}


def chosen_model(reference: str) -> Choice:
    """Read ``NAME?option=value&…``; whatever is wrong is an :class:`InputError`."""
    name, _, query = reference.partition("?")
    if name not in MODELS:
        raise InputError(f"unknown model 'zoo:{shown(name)}'; {suggestion(name, MODELS)}")
    model = MODELS[name]
    defaults = model.options
    options = dict(defaults)
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in defaults:
            raise InputError(f"zoo:{name} has no option '{shown(key)}'; {suggestion(key, defaults)}")
        options[key] = _read(name, key, value, defaults[key])
    if options["optimizer"] not in OPTIMIZERS:
        given, expected = shown(options["optimizer"]), ", ".join(OPTIMIZERS)
        raise InputError(f"zoo:{name}: option 'optimizer' is '{given}', expected one of {expected}")
    return Choice(name, model, options)


def _read(name: str, key: str, value: str, default: Any) -> Any:
    if isinstance(default, str):
        return value
    # Sizes start at 1; numbers with a fraction, and options that usually are 0, may be 0.
    least = 0 if isinstance(default, (bool, float)) else min(1, default)
    kind = "a whole number" if isinstance(default, int) else "a number"
    expected = "0 or 1" if isinstance(default, bool) else f"{kind} from {least} to {MAX_OPTION}"
    try:
        number = float(value) if isinstance(default, float) else int(value)
    except ValueError:
        number = math.nan
    if not least <= number <= (1 if isinstance(default, bool) else MAX_OPTION):
        raise InputError(f"zoo:{name}: option '{key}' is '{shown(value)}', expected {expected}")
    return bool(number) if isinstance(default, bool) else number
