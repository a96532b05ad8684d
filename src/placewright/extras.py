"""Optional packages: which extra installs each, and whether it is there."""

from __future__ import annotations

from importlib.util import find_spec

from placewright.errors import MissingExtraError

EXTRA_OF = {
    "openvino": "openvino",
    "onnx_ir": "onnx",
    "onnxruntime": "onnx",
    "torch": "torch",
    "safetensors": "torch",
    "transformers": "hf",
    "accelerate": "hf",
    "gymnasium": "learn",
    "ortools": "exact",
    "mtkahypar": "partition",
}


def has_package(name: str) -> bool:
    """True if a package can be imported; nothing is imported to find out.

    >>> has_package("numpy"), has_package("no_such_package")
    (True, False)
    """
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # a finder that refuses, or a module without a spec
        return False


def require(package: str, extra: str | None = None) -> None:
    """Raise :class:`MissingExtraError` if a package is missing; ``extra`` is what installs it, where not the usual.

    >>> require("numpy")
    """
    if not has_package(package):
        raise MissingExtraError(package, extra or EXTRA_OF[package])


def missing_extra(error: BaseException) -> MissingExtraError | None:
    """The error that names the extra, if an import failed for want of an optional package."""
    if not isinstance(error, ImportError) or error.name is None:
        return None
    package = error.name.partition(".")[0]
    return None if package not in EXTRA_OF or has_package(package) else MissingExtraError(package, EXTRA_OF[package])
