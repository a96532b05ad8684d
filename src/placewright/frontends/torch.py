"""torch models: ``.pt2`` archives, live exported programs, and modules with example inputs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from placewright.errors import InputError
from placewright.frontends.assemble import assemble
from placewright.frontends.base import Frontend, Shapes, described, model_name, one_line
from placewright.frontends.torch_ops import short_type
from placewright.frontends.torch_program import program_records
from placewright.graph import OpGraph
from placewright.text import shown


class TorchFrontend(Frontend):
    """One op per call and one per user input, named as in the exported graph; parameters weigh on their first reader.

    Archives are read as data, without torch. A module is exported by ``torch.export``, which runs it on tensors that
    have shapes and no data.
    """

    name = "torch"
    suffixes = (".pt2",)
    extra = "torch"

    @classmethod
    def accepts(cls, source: Any) -> bool:
        torch = sys.modules.get("torch")
        if torch is None:
            return False
        if isinstance(source, tuple) and len(source) == 2:
            return isinstance(source[0], torch.nn.Module)
        export = sys.modules.get("torch.export")
        return export is not None and isinstance(source, export.ExportedProgram)

    def read(self, source: Any, shapes: Shapes) -> OpGraph:
        where = described(source)
        if isinstance(source, Path):
            from placewright.frontends.torch_archive import read_archive

            program = read_archive(source, shapes, where)
        else:
            from placewright.frontends.torch_live import exported_program

            program = exported_program(exported(source, where), shapes, where)
        for name, shape in shapes.items():
            if program.values[name].shape != shape:
                raise InputError(f"{where}: the shape of input '{shown(name)}' follows from others and cannot be set")
        loops = sum(short_type(node.target) == "while_loop" for node in program.nodes)
        records = program_records(program, where)
        return assemble(_name(source, where), records, self.name, where, {"unknown_iterations": loops})

    def read_training(self, source: Any, shapes: Shapes, optimizer: str) -> OpGraph:
        """Autograd's own joint graph for live models; an archive cannot be traced safely and is mirrored."""
        if isinstance(source, Path):
            return super().read_training(source, shapes, optimizer)
        from placewright.frontends.torch_training import joint_program

        where = described(source)
        if shapes:
            raise InputError(f"{where}: the training graph of a live model has the shapes of its example inputs")
        records = program_records(joint_program(exported(source, where), optimizer, where), where)
        return assemble(_name(source, where), records, self.name, where, {"training": True})


def _name(source: Any, where: str) -> str:
    return model_name(source, where.rpartition(".")[2])


def exported(source: Any, where: str) -> Any:
    """An exported program as it is; a module with example inputs is exported first."""
    if not isinstance(source, tuple):
        return source
    import torch.export

    module, inputs = source
    keywords = inputs if isinstance(inputs, dict) else {}
    positional = () if keywords else inputs if isinstance(inputs, tuple) else (inputs,)
    try:
        return torch.export.export(module, positional, keywords)
    except Exception as error:
        raise InputError(f"{where}: torch.export cannot trace this module: {one_line(error)}") from error
