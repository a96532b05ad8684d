"""OpenVINO: the affinity of every op by friendly name, and the code that applies it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from placewright.errors import InputError
from placewright.evaluate import evaluate
from placewright.execute.live import open_live, openvino_setups
from placewright.execute.openvino import CPU_PLUGIN, extra_cpus, runtime_names
from placewright.execute.openvino_split import computed_from_constants, whole_placement
from placewright.execute.placed import live_devices
from placewright.export.base import Exported, beside, devices_of, json_bytes, model_of
from placewright.placement import Placement
from placewright.text import shown, time_text

_CODE = '''"""Compiles a model as placed: python {this} MODEL. Written by placewright."""

import json
import sys
from pathlib import Path

AFFINITIES = {affinities}
TARGET = {target}
FURTHER_CPUS = {further}
PROPERTIES = {properties}


def apply(model, affinities):
    """Give every op of the model its affinity; constants and inputs go with their first reader."""
    affinity = dict(affinities)
    unplaced = []
    for op in reversed(model.get_ordered_ops()):
        name = op.get_friendly_name()
        if name not in affinity and op.get_type_name() != "Result":
            readers = [port.get_node().get_friendly_name() for o in op.outputs() for port in o.get_target_inputs()]
            known = [affinity[reader] for reader in readers if reader in affinity]
            if not known:
                unplaced.append(name)
                continue
            affinity[name] = known[0]
    if unplaced:
        raise ValueError(f"not the model of this placement: no device for {{unplaced[:3]}}")
    for op in model.get_ordered_ops():
        source = op.input_value(0).get_node() if op.get_type_name() == "Result" else op
        op.get_rt_info()["affinity"] = affinity[source.get_friendly_name()]


def compile_placed(core, model):
    """Compile for the devices of the placement; ``core`` gets the names that they need."""
    for name in FURTHER_CPUS:
        if name not in core.available_devices:
            core.register_plugin({plugin}, name)
    for name, properties in PROPERTIES.items():
        core.set_property(name, properties)
    apply(model, json.loads((Path(__file__).parent / AFFINITIES).read_text(encoding="utf-8")))
    return core.compile_model(model, TARGET)


if __name__ == "__main__":
    import openvino

    core = openvino.Core()
    compiled = compile_placed(core, core.read_model(sys.argv[1]))
    print(compiled.get_property("HETERO_NUMBER_OF_SUBMODELS"), "sub-models on", TARGET)
'''


def affinity(placement: Placement, output: Path) -> Exported:
    """A map by friendly name, and beside it Python code with ``apply`` and ``compile_placed``.

    Whatever is not IR is written as IR too: names that OpenVINO gives while converting are others every time.
    """
    devices_of(placement)
    model, cluster = model_of(placement), placement.problem.cluster
    setups = openvino_setups(cluster)
    apart = [name for name, setup in setups.items() if setup.instruction_set]
    if apart:
        raise InputError(f"device '{shown(apart[0])}' runs in a worker process, which HETERO cannot use")
    if not model.startswith("zoo:") and not model.endswith((".xml", ".onnx")):
        raise InputError(f"{shown(model, 200)}: OpenVINO takes .xml and .onnx files, and zoo models")
    shapes = {name: tuple(shape) for name, shape in placement.problem.origin.get("shapes", {}).items()}
    live = open_live(model, "openvino", shapes)
    names = runtime_names({name: setup.runtime_device for name, setup in setups.items()})
    placed = whole_placement(live.model, live_devices(live, placement))
    ops = list(live.model.get_ordered_ops())
    follow = computed_from_constants(ops) | {op.get_friendly_name() for op in ops if op.get_type_name() == "Result"}
    affinities = {name: names[device] for name, device in placed.items() if name not in follow}
    code = _CODE.format(
        this=beside(output, ".py").name.replace("\\", "").replace('"', ""),
        affinities=repr(output.name),
        target=repr("HETERO:" + ",".join(dict.fromkeys(names.values()))),
        further=repr(extra_cpus(names)),
        properties=repr({names[device]: dict(setup.properties) for device, setup in setups.items()}),
        plugin=repr(CPU_PLUGIN),
    )
    files = {output: json_bytes(affinities), beside(output, ".py"): code.encode()}
    if not model.endswith(".xml"):
        files |= _as_ir(live.model, output)
    return Exported(files, _losses(placement))


def _as_ir(model: Any, output: Path) -> dict[Path, bytes]:
    import openvino

    with tempfile.TemporaryDirectory() as folder:
        openvino.save_model(model, Path(folder) / "model.xml", compress_to_fp16=False)
        return {beside(output, e): (Path(folder) / f"model{e}").read_bytes() for e in (".xml", ".bin")}


def _losses(placement: Placement) -> tuple[str, ...]:
    problem = placement.problem
    if problem.execution == "sequential":
        return ()
    in_turns = problem.with_options(objective="latency", execution="sequential")
    value = time_text(evaluate(in_turns, devices_of(placement)).value, problem.time_unit)
    return (f"HETERO runs segments one after another: expect {value} a sample there; 'placewright run' overlaps them",)
