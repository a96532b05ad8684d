"""Converting for OpenVINO: the same model as OpenVINO's own call gives, and nothing is started or sent meanwhile."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

from placewright.frontends.openvino_conversion import convert_silently

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
openvino = pytest.importorskip("openvino", reason="the extra 'openvino' is not installed")


def test_a_module_is_converted_without_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    from openvino.tools.ovc import convert_impl

    reporting = getattr(convert_impl, "tm", None)
    started: list[Any] = []
    monkeypatch.setenv("CI", "")  # where nothing is sent anyway
    monkeypatch.setattr(multiprocessing.Process, "start", started.append)
    x = torch.randn(1, 3, 8, 8)
    model = convert_silently(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval(), example_input=x)
    assert started == []
    assert getattr(convert_impl, "tm", None) is reporting
    assert {"Convolution", "Relu"} <= {op.get_type_name() for op in model.get_ops()}


def test_reports_are_as_before_if_converting_fails() -> None:
    from openvino.tools.ovc import convert_impl

    reporting = getattr(convert_impl, "tm", None)
    with pytest.raises(Exception, match=r"\w"):
        convert_silently("no such model")
    assert getattr(convert_impl, "tm", None) is reporting
