"""The built-in frontends, held to the contract on the small convolution network."""

from __future__ import annotations

import pytest

from exported_models import Exports
from placewright.frontends.onnx import OnnxFrontend
from placewright.frontends.openvino import OpenvinoFrontend
from placewright.frontends.torch import TorchFrontend
from placewright.testing import FrontendCase, FrontendContract


class TestOpenvino(FrontendContract):
    @pytest.fixture
    def case(self, conv_net: Exports) -> FrontendCase:
        openvino = pytest.importorskip("openvino")
        model = openvino.Core().read_model(conv_net.xml)
        ops = model.get_ops()
        constants = [op for op in ops if op.get_type_name() == "Constant"]
        return FrontendCase(
            OpenvinoFrontend(),
            conv_net.xml,
            model,
            names={op.get_friendly_name() for op in ops},
            constants={op.get_friendly_name() for op in constants},
            weight_bytes=sum(op.get_byte_size() for op in constants),
            beside=(conv_net.xml.with_suffix(".bin"),),
        )


class TestOnnx(FrontendContract):
    @pytest.fixture
    def case(self, conv_net: Exports) -> FrontendCase:
        onnx_ir = pytest.importorskip("onnx_ir")
        model = onnx_ir.load(conv_net.onnx)
        constants = [node for node in model.graph if node.op_type == "Constant"]
        weights = sum(v.const_value.nbytes for v in model.graph.initializers.values())
        return FrontendCase(
            OnnxFrontend(),
            conv_net.onnx,
            model,
            names={node.name for node in model.graph} | {value.name for value in model.graph.inputs},
            constants={node.name for node in constants},
            weight_bytes=weights + sum(node.attributes["value"].value.nbytes for node in constants),
        )


class TestTorch(FrontendContract):
    @pytest.fixture
    def case(self, conv_net: Exports) -> FrontendCase:
        program = conv_net.program
        calls = [n for n in program.graph.nodes if n.op == "call_function" and "getitem" not in n.name]
        read = {n for call in program.graph.nodes for n in call.all_input_nodes}
        weights = [n for n in read if n.op == "placeholder" and n.name not in program.graph_signature.user_inputs]
        return FrontendCase(
            TorchFrontend(),
            conv_net.pt2,
            program,
            names={n.name for n in calls} | set(program.graph_signature.user_inputs),
            constants=set(),
            weight_bytes=sum(n.meta["val"].nbytes for n in weights),
        )
