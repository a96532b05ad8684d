"""OpenVINO's tensors as arrays and back. Arrays know no bfloat16: outside of OpenVINO such values are f32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from placewright.errors import InputError
from placewright.execute.sample import example_array
from placewright.text import shown

_BF16 = "bf16"
_WHOLE_BYTES = frozenset({"f8e4m3", "f8e5m2", "f8e8m0"})  # good enough to be measured with
_AS_ARRAYS = frozenset({"boolean", "f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"})


def check_types(model: Any, where: str, *, are_compared: bool = True) -> None:
    """Refuse a model with inputs or results of a type of which no sample can be made, or looked at if need be."""
    known = _AS_ARRAYS | {_BF16} | (frozenset() if are_compared else _WHOLE_BYTES)
    for what, ports in (("input", model.inputs), ("result", model.outputs)):
        for port in ports:
            name = port.get_element_type().get_type_name()
            if name not in known:
                names = sorted(port.get_names()) or [port.get_node().get_friendly_name()]
                raise InputError(
                    f"{where}: {what} '{shown(names[0])}' has element type {shown(name)}, which cannot be run by "
                    "OpenVINO here; let the model convert from and to bf16, f16, f32, f64, whole numbers or boolean"
                )


def example(port: Any) -> Any:
    """A sample's input for a port: random where it holds fractions, ones elsewhere."""
    element, shape = port.get_element_type(), tuple(port.get_shape())
    if element.get_type_name() == _BF16:
        return to_tensor(example_array(shape, np.float32), element)  # once, not in every run
    return example_array(shape, element.to_dtype())


def to_tensor(value: Any, element: Any) -> Any:
    """A tensor of an element type that shares an array's memory where it can; tensors stay as they are."""
    import openvino as ov

    if isinstance(value, ov.Tensor):
        return value
    array = np.asarray(value, order="C")  # unlike ascontiguousarray it leaves a scalar a scalar
    if element.get_type_name() == _BF16:
        bits = np.asarray(array, np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to nearest, ties to even
        quiet = np.where(np.isnan(array), np.uint32(0x7FC0), rounded).astype(np.uint16)
        tensor = ov.Tensor(element, ov.Shape(list(array.shape)))  # one that owns its memory
        tensor.data.view(np.uint16)[...] = quiet
        return tensor
    return ov.Tensor(array, shared_memory=True)


def to_array(tensor: Any) -> NDArray[Any]:
    """A copy of a tensor's values."""
    if tensor.get_element_type().get_type_name() == _BF16:
        return (tensor.data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.array(tensor.data)
