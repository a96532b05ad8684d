"""The process in which onnx infers shapes: ``python -S -P onnx_apart.py PATHS MOST_BYTES``. It imports little."""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Answer serialized models, each after one flag byte, with what shape inference makes of them."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when its parent says so
    sys.path[:] = json.loads(sys.argv[1])
    from onnx import shape_inference

    from placewright.apart import serve

    def answer(question: bytes) -> bytes:
        inferred = shape_inference.infer_shapes(question, check_type=False, strict_mode=False, data_prop=True)
        return bytes(inferred if isinstance(inferred, bytes) else inferred.SerializeToString())

    serve(answer, int(sys.argv[2]))


if __name__ == "__main__":
    main()
