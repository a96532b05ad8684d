"""OpenVINO sub-models run by a worker process: a device with fewer instructions. Models go over as files."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from placewright.execute.child import Child, as_bytes, parent_connection


class WorkerModel:
    """A sub-model compiled in a child, with the part of a compiled model's interface that executors use."""

    def __init__(self, child: Child, model: Any, properties: Mapping[str, Any]) -> None:
        self._request = WorkerRequest(child, model, properties)

    def create_infer_request(self) -> WorkerRequest:
        """The only one."""
        return self._request


class WorkerRequest:
    """A sub-model compiled in a child, with the part of an infer request's interface that executors use."""

    def __init__(self, child: Child, model: Any, properties: Mapping[str, Any]) -> None:
        import openvino as ov

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.xml"
            ov.save_model(model, path, compress_to_fp16=False)
            self._number = child.ask("compile", str(path), dict(properties))
        self._child = child
        self._inputs: list[Any] = [None] * len(model.inputs)
        self._outputs = [ov.Tensor(o.get_element_type(), o.get_shape()) for o in model.outputs]

    def set_input_tensor(self, port: int, tensor: Any) -> None:
        self._inputs[port] = tensor

    def get_output_tensor(self, port: int) -> Any:
        return self._outputs[port]

    def infer(self, share_inputs: bool = True, share_outputs: bool = True) -> None:
        """Run it once; inputs and outputs are the tensors that were set and given out."""
        child = self._child
        child.say("run", self._number)
        for tensor in self._inputs:
            child.send_array(tensor.data)
        child.answer()
        for tensor in self._outputs:
            child.receive_array(tensor.data)


def start_worker(device: str, instruction_set: str) -> Child:
    """A process that compiles and runs sub-models with these instructions only."""
    return Child(__name__, device, instruction_set)


def main(connection: Any) -> None:  # pragma: no cover - runs in the worker process
    """Serve until the other end is closed."""
    import openvino as ov

    core = ov.Core()
    requests: list[Any] = []
    with contextlib.suppress(EOFError, OSError):
        while True:
            what, *rest = connection.recv()
            try:
                if what == "compile":
                    path, properties = rest
                    requests.append(core.compile_model(path, "CPU", properties).create_infer_request())
                    connection.send((True, len(requests) - 1))
                    continue
                request = requests[rest[0]]
                for tensor in request.input_tensors:
                    connection.recv_bytes_into(as_bytes(tensor.data))
                request.infer(share_inputs=True, share_outputs=True)
            except RuntimeError as error:
                connection.send((False, str(error)))
                continue
            connection.send((True, None))
            for tensor in request.output_tensors:
                connection.send_bytes(as_bytes(tensor.data))


if __name__ == "__main__":
    main(parent_connection())
