"""Stages of a pipeline executed by PyTorch: an exported program cut into one compiled function per stage."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from placewright.errors import InputError
from placewright.execute.stages import Part, Source, StagedModel
from placewright.execute.torch_code import compile_segment
from placewright.execute.torch_program import (
    check_signature,
    devices_of_ops,
    held_modules,
    laid_out_like,
    ops_of,
    output_of,
)
from placewright.execute.torch_weights import WeightStore
from placewright.execute.torch_workers import inner_threads, keep_freed_memory, own_threads

if TYPE_CHECKING:
    import torch


def staged_torch(
    program: torch.export.ExportedProgram,
    device_of_name: Mapping[str, str],
    stage_of_name: Mapping[str, int],
    torch_devices: Mapping[str, str],
    threads: Mapping[str, int] | None = None,
) -> StagedModel:
    """The program as one part per stage; an op that is not named follows its first input."""
    import torch

    check_signature(program)
    nodes = ops_of(program)
    if not nodes:
        raise InputError("the program computes nothing, so there is nothing to run in stages")
    slots = {n.name: i for i, n in enumerate(program.graph.nodes)}
    device_of = devices_of_ops(nodes, device_of_name, list(torch_devices))
    stage_of: dict[str, int] = {}
    for node in nodes:
        follows = next((stage_of[i.name] for i in node.all_input_nodes if i.name in stage_of), 0)
        stage_of[node.name] = stage_of_name.get(node.name, follows)
    used = {stage: i for i, stage in enumerate(sorted(set(stage_of.values())))}
    stage_of = {name: used[stage] for name, stage in stage_of.items()}
    given = [name for name in program.graph_signature.user_inputs if isinstance(name, str)]  # others are fixed
    number = {name: i for i, name in enumerate(given)}
    weights, inner = WeightStore(program), held_modules(program)
    n_stages = max(stage_of.values(), default=-1) + 1
    mine = [[n for n in nodes if stage_of[n.name] == s] for s in range(n_stages)]
    output = output_of(program)
    results = [n.name for n in output.all_input_nodes]
    final = {slots[n.name]: n.meta.get("val") for n in output.all_input_nodes}
    source_of = {name: Source(-1, i) for name, i in number.items()}
    made: list[list[str]] = []
    for s, members in enumerate(mine):
        leaving = [n.name for n in members if n.name in results or any(stage_of.get(u.name, s) != s for u in n.users)]
        source_of |= {name: Source(s, i) for i, name in enumerate(leaving)}
        made.append(leaving)

    def compiled(s: int, entering: list[str]) -> Any:
        name, place = list(torch_devices.items())[device_of[mine[s][0].name]]
        device = torch.device(place)
        keep_freed_memory()
        count = own_threads(name, device, threads)
        read = {i.name for n in mine[s] for i in n.all_input_nodes}
        held = {w: weights.on(w, device) for w in read & set(weights.by_placeholder)}
        held |= {m: module for m, module in inner.items() if m in read}
        arriving, leaving = [slots[n] for n in entering], [slots[n] for n in made[s]]
        segment = compile_segment(mine[s], slots, held, leaving, arriving, device, {})

        def run(inputs: list[Any]) -> list[Any]:
            values: list[Any] = [None] * len(slots)
            with torch.inference_mode(), inner_threads(count):
                for slot, value in zip(arriving, inputs, strict=True):
                    values[slot] = value.to(device) if isinstance(value, torch.Tensor) else value
                segment(values)
            return [laid_out_like(values[s], final[s]) if s in final else values[s] for s in leaving]

        return run

    parts = []
    for s, members in enumerate(mine):
        inside = {n.name for n in members}
        entering = list(
            dict.fromkeys(
                i.name for n in members for i in n.all_input_nodes if i.name in source_of and i.name not in inside
            )
        )
        device = list(torch_devices)[device_of[members[0].name]]
        parts.append(Part(device, functools.partial(compiled, s, entering), tuple(source_of[n] for n in entering)))
    return StagedModel(tuple(parts), tuple(source_of[n] for n in results))
