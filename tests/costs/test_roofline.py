from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, DeviceKind, Efficiency
from placewright.cluster_file import load_cluster, parse_cluster, preset_names
from placewright.costs.roofline import roofline_profile, roofline_time_s, supported_ops, traffic_bytes
from placewright.errors import InputError
from placewright.graph import OpGraph, build_graph
from placewright.op_classes import OP_CLASSES
from placewright.problems import build_problem
from placewright.profiles import modelled_profile
from placewright.zoo import zoo_graph


def small_graph() -> OpGraph:
    graph, _ = build_graph(
        "small",
        ["in", "look", "conv", "relu", "top"],
        [(0, 100.0, [1]), (1, 1000.0, [2]), (2, 2000.0, [3]), (3, 2000.0, [4]), (4, 8.0, [])],
        op_types=["Parameter", "Gather", "Convolution", "Relu", "TopK"],
        op_classes=["free", "embedding", "conv", "elementwise", "reduce"],
        weight_bytes=[0, 1e9, 500, 0, 0],
        flops=[0, 0, 1e6, 500, 500],
    )
    return graph


def test_times_by_hand() -> None:
    kind = DeviceKind(
        "d", flops_per_s=1e9, memory_bandwidth_bytes_per_s=1e6, op_overhead_s=1.0,
        efficiency={"conv": Efficiency(0.5), "elementwise": Efficiency(1.0, 0.25), "default": Efficiency(1.0, 0.5)},
    )  # fmt: skip
    times = roofline_time_s(small_graph(), kind)
    assert times[0] == 0.0  # does no work
    assert times[1] == pytest.approx(1 + 2100e-6 / 0.5)  # the rows looked up, not the table
    assert times[2] == pytest.approx(1 + 3500e-6)  # 2 ms of arithmetic, 3.5 ms of traffic
    assert times[3] == pytest.approx(1 + 4000e-6 / 0.25)
    assert times[4] == pytest.approx(1 + 2008e-6 / 0.5)
    fast_memory = DeviceKind("d", flops_per_s=1e9, memory_bandwidth_bytes_per_s=1e12, efficiency=kind.efficiency)
    assert roofline_time_s(small_graph(), fast_memory)[2] == pytest.approx(2e-3)


def test_traffic_counts_weights_inputs_and_outputs() -> None:
    assert traffic_bytes(small_graph()).tolist() == [100.0, 2100.0, 3500.0, 4000.0, 2008.0]


@pytest.mark.parametrize(
    ("kind", "runs"),
    [
        (DeviceKind("a"), [1, 1, 1, 1, 1]),
        (DeviceKind("b", unsupported=("embedding", "Top*")), [1, 0, 1, 1, 0]),
        (DeviceKind("c", supported=("conv*", "Relu")), [1, 0, 1, 1, 0]),
        (DeviceKind("d", supported=("conv", "elementwise"), unsupported=("Rel?",)), [1, 0, 1, 0, 0]),
        (DeviceKind("e", unsupported=("*",)), [1, 0, 0, 0, 0]),
    ],
)
def test_supported_ops(kind: DeviceKind, runs: list[int]) -> None:
    assert supported_ops(small_graph(), kind).tolist() == [bool(r) for r in runs]


def test_unsupported_ops_cannot_be_placed_whatever_the_profile_says() -> None:
    graph = small_graph()
    kinds = (DeviceKind("cpu", is_host=True), DeviceKind("npu", is_host=True, unsupported=("embedding",)))
    cluster = Cluster("c", kinds, (Device("cpu0", "cpu"), Device("npu0", "npu")), {}, {})
    profile = modelled_profile(graph.op_names, ("cpu", "npu"), np.ones((5, 2)), "by hand")
    problem = build_problem(graph, cluster, profile)
    assert problem.allowed[:, 1].tolist() == [True, False, True, True, True]
    assert problem.allowed[:, 0].all()


@given(st.floats(0.01, 1.0), st.floats(0.01, 1.0), st.sampled_from(sorted(OP_CLASSES)))
def test_a_lower_efficiency_never_makes_an_op_faster(flops: float, bandwidth: float, op_class: str) -> None:
    graph = small_graph()
    plain = DeviceKind("d", flops_per_s=1e9, memory_bandwidth_bytes_per_s=1e6)
    slowed = DeviceKind(
        "d", flops_per_s=1e9, memory_bandwidth_bytes_per_s=1e6, efficiency={op_class: Efficiency(flops, bandwidth)}
    )
    assert (roofline_time_s(graph, slowed) >= roofline_time_s(graph, plain)).all()


def test_a_kind_without_rates_cannot_be_modelled() -> None:
    cluster = parse_cluster('[[device]]\nkind = "cpu"\nhost = true\n', "c.toml")
    with pytest.raises(InputError, match="kind 'cpu' has no 'flops'"):
        roofline_profile(small_graph(), cluster)


@pytest.mark.parametrize("name", [*preset_names(), "cores:2", "cores:f32+bf16", "cores:f32+f32+bf16"])
def test_every_preset_models_a_model(name: str) -> None:
    cluster = load_cluster(name)
    profile = roofline_profile(zoo_graph("resnet-50"), cluster)
    assert not profile.is_measured.any()
    assert profile.source == "roofline model"
    assert np.isfinite(profile.time_s[:, 0]).all()
    assert all(0 < f <= 1 for kind in cluster.kinds for e in kind.efficiency.values() for f in e)


def test_the_npu_of_the_laptop_leaves_lookups_to_others() -> None:
    graph, cluster = zoo_graph("bert-base"), load_cluster("laptop-npu")
    times = roofline_profile(graph, cluster).time_s
    lookups = np.array([c == "embedding" for c in graph.op_classes])
    assert np.isinf(times[lookups, 2]).all()
    assert np.isfinite(times[~lookups]).all()


PUBLISHED_S = {
    "inception-v3": (0.0128, 0.0120),
    "resnet-50": (0.0160, 0.00781),
    "bert-base?sequence=8": (0.00638, 0.00277),
}


@pytest.mark.parametrize("model", PUBLISHED_S)
def test_flex170_meets_the_published_latencies(model: str) -> None:
    sums = roofline_profile(zoo_graph(model), load_cluster("flex170")).time_s.sum(axis=0)
    assert sums == pytest.approx(PUBLISHED_S[model], rel=0.03)


def test_cores() -> None:
    equal = load_cluster("cores:3")
    assert equal.device_names == ("core0", "core1", "core2")
    assert len(equal.device_groups()) == 1
    assert equal.is_host.all()
    unequal = load_cluster("cores:f32+bf16")
    assert [(k.name, k.threads, k.precision) for k in unequal.kinds] == [("f32", 1, "f32"), ("bf16", 1, "bf16")]
    assert len(unequal.device_groups()) == 2
    assert load_cluster("cores:1").n_devices == 1


@pytest.mark.parametrize(
    "name", ["cores:", "cores:0", "cores:-1", "cores:f32+f64", "cores:1e3", "cores:99999", "cores:²"]
)
def test_bad_cores(name: str) -> None:
    with pytest.raises(InputError, match="expected 1 to 1024 cores"):
        load_cluster(name)


GOOD_DEVICE = """
[[device]]
kind = "npu"
count = 2
unsupported = ["embedding", "TopK*"]
runtime_device = "NPU"
threads = 3
precision = "f16"
[device.efficiency]
conv = 0.5
norm = { bandwidth = 0.25 }
default = { flops = 0.1, bandwidth = 0.2 }
"""


def test_fields_of_a_device() -> None:
    kind = parse_cluster(f"{GOOD_DEVICE}\n[[link]]\nfrom='npu*'\nto='host'\nbandwidth='1GB/s'", "c.toml").kinds[0]
    assert kind.efficiency == {"conv": (0.5, 1.0), "norm": (1.0, 0.25), "default": (0.1, 0.2)}
    assert (kind.unsupported, kind.supported) == (("embedding", "TopK*"), ("*",))
    assert (kind.runtime_device, kind.threads, kind.precision) == ("NPU", 3, "f16")
    assert math.isnan(kind.flops_per_s)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("conv = 0.5", "convv = 0.5", r"device\[0\]: efficiency: unknown op class 'convv'; did you mean 'conv'"),
        ("conv = 0.5", "free = 0.5", "unknown op class 'free'"),
        ("conv = 0.5", "conv = 1.5", "efficiency of 'conv': 'flops' is 1.5, expected a fraction of the peak"),
        ("conv = 0.5", "conv = 0", "'flops' is 0, expected a fraction"),
        ("conv = 0.5", "conv = true", "'flops' is True, expected a fraction"),
        ("conv = 0.5", "conv = nan", "'flops' is nan, expected a fraction"),
        ("bandwidth = 0.25", "bandwith = 0.25", "unknown field 'bandwith'; did you mean 'bandwidth'"),
        ("bandwidth = 0.25", "bandwidth = '1'", "'bandwidth' is 1, expected a fraction"),
        ('["embedding", "TopK*"]', '"TopK"', "'unsupported' is TopK, expected a list of op classes or op types"),
        ('["embedding", "TopK*"]', "[1]", "'unsupported' is \\[1\\], expected a list"),
        ("threads = 3", "threads = -1", "'threads' is -1, expected a whole number from 0 to 4096"),
        ("threads = 3", "threads = 1.5", "'threads' is 1.5"),
        ('precision = "f16"', 'precision = "int3"', "'precision' is 'int3', expected f32, bf16 or f16"),
        ('precision = "f16"', "precision = []", "'precision' is '\\[\\]', expected f32"),
        ('runtime_device = "NPU"', "runtime_device = 3", "'runtime_device' is 3, expected a name"),
        ("[device.efficiency]\nconv = 0.5", "efficiency = 0.5\n[other]", "unknown field 'other'"),
    ],
)  # fmt: skip
def test_bad_fields_of_a_device(old: str, new: str, message: str) -> None:
    assert old in GOOD_DEVICE
    with pytest.raises(InputError, match=message):
        parse_cluster(GOOD_DEVICE.replace(old, new), "c.toml")


def test_an_efficiency_that_is_no_table() -> None:
    with pytest.raises(InputError, match=r"'efficiency' is '0.5', expected a table"):
        parse_cluster('[[device]]\nkind = "a"\nefficiency = 0.5', "c.toml")
