"""The joint graph of one training step of a torch program: forward and backward, matched op by op."""

from __future__ import annotations

import contextlib
from typing import Any

from placewright.errors import InputError
from placewright.frontends.base import one_line
from placewright.frontends.torch_live import fx_program
from placewright.frontends.torch_program import Program, Weight
from placewright.frontends.training import STATE_PER_WEIGHT


def joint_program(program: Any, optimizer: str, where: str) -> Program:
    """Trace forward and backward of an exported program; gradients of its outputs are inputs of the graph.

    Autograd gives an op and the ops of its backward the same sequence number: they share a colocation class. Updates of
    the weights follow, as in ``training.py``.
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
        plain = _plain(joint.graph_module)
    plain.state_per_weight = STATE_PER_WEIGHT[optimizer]
    return plain


def _plain(module: Any) -> Program:
    inputs, weights, gradients_in = [], {}, set()
    for node in module.graph.nodes:
        if node.op == "placeholder":
            description = node.meta["desc"]
            kind = type(description).__name__
            if kind in ("ParamAOTInput", "BufferAOTInput"):
                weights[node.name] = Weight(_path(description), kind == "ParamAOTInput")
            else:
                inputs.append(node.name)
                if kind == "TangentAOTInput":
                    gradients_in.add(node.name)
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
    program.backward_inputs = gradients_in
    output = next(n for n in module.graph.nodes if n.op == "output")
    names = {weight.path: name for name, weight in weights.items()}
    for result, description in zip(output.args[0], output.meta["desc"], strict=True):
        value = getattr(result, "name", "")
        replaced, of = getattr(description, "mutated_input", None), getattr(description, "grad_of", None)
        if value and type(replaced).__name__ == "BufferAOTInput":
            program.replaced[value] = _path(replaced)
        elif value and type(of).__name__ == "ParamAOTInput":
            program.gradients[names[_path(of)]] = value
    return program


def _path(description: Any) -> str:
    return str(description.target).removeprefix("model.")
