"""Checkpoint folders of Hugging Face models: the model without its weights, as a problem with modelled costs.

``hf:DIR?phase=decode&tokens=128&memory=cuda:0=8GiB``: DIR holds a ``config.json``. Nothing else is read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import torch

from placewright.errors import InputError, suggestion
from placewright.extras import require
from placewright.forked import Exclusive
from placewright.frontends.base import one_line
from placewright.live import METADATA, checkpoint_config
from placewright.live.analyse import analyse
from placewright.live.config_limits import check_folder
from placewright.live.fit import callers_device, on_meta, weights_dtype, with_streaming
from placewright.live.live_problem import live_problem
from placewright.live.modelled import modelled_table
from placewright.live.places import find_places, reserved_bytes
from placewright.live.transfer import TorchBackend
from placewright.live.workload import make_workloads
from placewright.problems import Problem
from placewright.reading import reading
from placewright.text import shown

_building = Exclusive()  # changes what holds for the whole process, and back
PREFIX = "hf:"
OPTIONS = ("phase", "tokens", "new_tokens", "memory", "stream")


def problem_in_this_process(source: str) -> Problem:
    """The problem that ``hf:DIR?…`` stands for. A configuration can make transformers run for ever: see ``hf_door``."""
    folder, _, query = source.removeprefix(PREFIX).partition("?")
    options: dict[str, str] = {}
    memory: dict[str, float | str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in OPTIONS:
            raise InputError(f"{shown(source, 200)}: unknown option '{shown(key)}'; {suggestion(key, OPTIONS)}")
        if key == "memory":
            device, equals, size = value.partition("=")
            if not equals:
                raise InputError(f"memory '{shown(value)}': expected DEVICE=SIZE, for example cuda:0=8GiB")
            memory[device] = size
        options[key] = value
    tokens, new_tokens = _count(options, "tokens", 128), _count(options, "new_tokens", 256)
    model = empty_model(folder)
    inputs = {"input_ids": torch.zeros((1, tokens), dtype=torch.long, device="meta")}
    phases = options.get("phase", "forward")
    stream = options.get("stream", "0") == "1"
    with reading(folder, "a checkpoint"):  # what a model of odd sizes does only shows when it runs
        name = Path(folder).name
        return modelled_problem(model, inputs, memory, _phases(phases), new_tokens, stream=stream, name=name)


def modelled_problem(
    model: Any,
    inputs: Any,
    memory: dict[str, float | str],
    phase: str | dict[str, float],
    new_tokens: int,
    *,
    stream: bool = False,
    name: str = "",
) -> Problem:
    """A model on ``meta`` as a problem; ``stream`` adds the GPU's second entry, whose weights wait in host memory."""
    model = on_meta(model)
    workloads = make_workloads(model, inputs, phase)
    graph, graphs = analyse(model, workloads, new_tokens, name)
    live = graph.metadata[METADATA]
    places = find_places(None, memory, model, torch.device("meta"), TorchBackend())
    places = [replace(p, reserved_bytes=reserved_bytes(p, live, None)) for p in places]
    table = modelled_table(graphs, workloads, places, weights_dtype(model))
    if stream:
        places, table = with_streaming(places, table, live) or (places, table)
    counts = {w.phase: w.count for w in workloads}
    return live_problem(graphs, counts, places, table, callers_device(workloads, torch.device("meta"), places))


def empty_model(folder: str | Path) -> Any:
    """The model of a checkpoint folder in its own type: parameters on ``meta``, buffers real."""
    checkpoint_config.check_config(folder)
    require("transformers")
    import transformers

    with reading(folder, "a checkpoint") as where:
        path = Path(folder)
        check_folder(path)
        # Without a word about code, transformers would ask the terminal whether to run that of the folder.
        config = transformers.AutoConfig.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)
        make = _model_class(getattr(config, "architectures", None))
        dtype = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None) or torch.float32
        if isinstance(dtype, str):
            dtype = getattr(torch, dtype, torch.float32)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise InputError(f"{where}: its type is {shown(str(dtype), 40)}, expected one such as 'bfloat16'")
        with _building:
            old = torch.get_default_dtype()
            torch.set_default_dtype(dtype)
            try:
                with parameters_on_meta():
                    build: Any = make or transformers.AutoModel.from_config
                    model = build(config)
            except Exception as error:
                raise InputError(f"{where}: the model cannot be built: {one_line(error)}") from error
            finally:
                torch.set_default_dtype(old)
        return model.eval()


def _model_class(names: list[str] | None) -> Any:
    """The class of transformers' models that a checked configuration names; ``None`` where it names none we know."""
    import transformers

    return getattr(transformers, names[0], None) if names and names[0] in checkpoint_config.listed_models() else None


@contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Parameters that this thread makes inside have no memory; buffers are real: no checkpoint holds all of them."""
    register, this_thread = torch.nn.Module.register_parameter, threading.get_ident()

    def on_meta_instead(self: Any, name: str, param: Any) -> None:
        register(self, name, param)
        if threading.get_ident() != this_thread:
            return
        if param is not None and param.device.type != "meta":  # else it is shared with another module
            kept = self._parameters[name]
            self._parameters[name] = torch.nn.Parameter(kept.to("meta"), requires_grad=kept.requires_grad)

    torch.nn.Module.register_parameter = on_meta_instead  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register  # type: ignore[method-assign]


def _phases(text: str) -> str | dict[str, float]:
    """``decode``, or several with counts: ``prefill:1,decode:200``."""
    if ":" not in text and "," not in text:
        return text
    counts: dict[str, float] = {}
    for part in text.split(","):
        name, _, count = part.partition(":")
        try:
            counts[name] = float(count or 1)
        except ValueError:
            raise InputError(f"phase '{shown(text)}': expected NAME:COUNT,…, such as prefill:1,decode:200") from None
    return counts


def _count(options: dict[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or not 0 < int(text) < 2**20:
        raise InputError(f"option '{name}' is '{shown(text)}', expected a whole number above 0")
    return int(text)
