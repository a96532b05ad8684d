"""The joint graph of one training step of a torch program: forward and backward, matched op by op."""

from __future__ import annotations

import contextlib
from typing import Any

from placewright.errors import InputError
from placewright.frontends.base import one_line
from placewright.frontends.torch_live import fx_program
from placewright.frontends.torch_program import Program, Weight


def joint_program(program: Any, where: str) -> Program:
    """Trace forward and backward of an exported program; gradients of its outputs are inputs of the graph.

    Autograd gives an op and the ops of its backward the same sequence number: they share a colocation class.
    """
    import torch
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
    from torch.fx.traceback import preserve_node_meta

    class Interpreted(torch.nn.Module):
        """Runs node by node, so that traced ops keep the module they came from."""

        def __init__(self) -> None:
            super().__init__()
            self.model = program.module(check_guards=False)

        def forward(self, *inputs: Any) -> Any:
            return torch.fx.Interpreter(self.model).run(*inputs)

    arguments, keywords = program.example_inputs
    with contextlib.ExitStack() as stack:
        try:
            with preserve_node_meta():
                flat = tuple(torch.utils._pytree.tree_leaves((arguments, keywords)))
                joint = aot_export_joint_with_descriptors(stack, Interpreted(), flat)
        except Exception as error:
            raise InputError(f"{where}: torch cannot trace a training step: {one_line(error)}") from error
        return _plain(joint.graph_module)


def _plain(module: Any) -> Program:
    inputs, weights = [], {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            description = node.meta["desc"]
            kind = type(description).__name__
            if kind in ("ParamAOTInput", "BufferAOTInput"):
                weights[node.name] = Weight(_path(description), kind == "ParamAOTInput")
            else:
                inputs.append(node.name)
    program = fx_program(module, inputs, weights, {})
    nodes = {n.name: n for n in module.graph.nodes}
    forward_of: dict[int, str] = {}
    for call in program.nodes:
        call.is_backward = "backward" in str(nodes[call.name].meta.get("partitioner_tag", ""))
        number = nodes[call.name].meta.get("seq_nr")
        if number is None:
            continue
        if not call.is_backward:
            # Calls that autograd does not record borrow the number of the one before: the first owns it.
            if number not in forward_of:
                forward_of[number] = call.name
                call.together = (f"sequence {number}",)
        elif number in forward_of:
            call.together = (f"sequence {number}",)
    program.replaced = _replaced_buffers(module)
    return program


def _replaced_buffers(module: Any) -> dict[str, str]:
    output = next(n for n in module.graph.nodes if n.op == "output")
    replaced = {}
    for result, description in zip(output.args[0], output.meta.get("desc", ()), strict=False):
        source = getattr(description, "mutated_input", None)
        if type(source).__name__ == "BufferAOTInput" and hasattr(result, "name"):
            replaced[result.name] = _path(source)
    return replaced


def _path(description: Any) -> str:
    return str(description.target).removeprefix("model.")
