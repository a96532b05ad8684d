"""The path of the module that an op came from (``layer1.0.conv1``), out of the names that exporters leave."""

from __future__ import annotations

import re

_TRACED = re.compile(r"^__module\.([^/]+)/")
_WEIGHT = re.compile(r"^(?:self\.|__module\.)([\w.]+)\.\w+$")
_REPEATED_CALL = re.compile(r"@\d+")


def path_of_name(name: str) -> str:
    """Module path in an op name of OpenVINO (traced from torch) or of ONNX (exported from torch), else ``""``.

    >>> path_of_name("__module.layer1.0.conv1/aten::_convolution/Convolution")
    'layer1.0.conv1'
    >>> path_of_name("/layer1/layer1.0/conv1/Conv")
    'layer1.0.conv1'
    >>> path_of_name("self.layer1.0.conv1.weight_compressed")
    'layer1.0.conv1'
    >>> path_of_name("Multiply_2676")
    ''
    """
    if match := _TRACED.match(name):
        return match.group(1)
    if name.startswith("/") and name.count("/") > 1:
        return join_scopes(name.split("/")[1:-1])
    if match := _WEIGHT.match(name):
        return match.group(1)
    return ""


def join_scopes(scopes: list[str]) -> str:
    """Join nested scopes; a scope that repeats the one before it (``layer1``, ``layer1.0``) replaces it.

    >>> join_scopes(["encoder", "layer", "layer.0", "query"])
    'encoder.layer.0.query'
    """
    parts: list[str] = []
    for scope in scopes:
        if parts and scope.startswith(parts[-1] + "."):
            parts.pop()
        parts.append(scope)
    return ".".join(parts)


def path_of_stack(paths: list[str]) -> str:
    """Module path out of torch's stack of modules, outermost first.

    >>> path_of_stack(["", "layers", "layers.0@1"])
    'layers.0'
    """
    return _REPEATED_CALL.sub("", paths[-1]) if paths else ""
