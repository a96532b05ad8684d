from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_models import NAMES, make_model, tokens, torch

import placewright.torch as live
from placewright.cli.main import run
from placewright.errors import InputError
from placewright.live.dispatch import DISK, places_of
from placewright.live.hf import modelled_problem
from placewright.placement import Placement, checked_placement

pytest.importorskip("safetensors")


def saved(name: str, folder: Path) -> Any:
    model = make_model(name)
    model.save_pretrained(folder, max_shard_size="20KB")
    return model


def half_on_disk(folder: Path, phase: str = "forward") -> Placement:
    """Every second unit on disk, the rest on the CPU."""
    ids = torch.zeros((1, 8), dtype=torch.long, device="meta")
    model = live.empty_model(folder)
    problem = modelled_problem(model, {"input_ids": ids}, {DISK: "1GiB"}, phase, 16)
    names = problem.cluster.device_names
    device = np.full(problem.n_ops, names.index("cpu"), dtype=np.int32)
    units = problem.graph.metadata["live"].units.paths
    for v, path in enumerate(problem.graph.module_paths):
        if path in units[::2] and np.isfinite(problem.op_device_time_s[v, names.index(DISK)]):
            device[problem.group_of_op == problem.group_of_op[v]] = names.index(DISK)
    device[~np.isfinite(problem.op_device_time_s[np.arange(problem.n_ops), device])] = names.index("cpu")
    for group in np.unique(problem.group_of_op):
        members = problem.group_of_op == group
        if len(set(device[members].tolist())) > 1:
            device[members] = names.index("cpu")
    placement = checked_placement(problem, device, placer="half")
    assert placement.is_valid
    assert DISK in places_of(placement).values()
    return placement


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_is_loaded_to_its_placement(name: str, tmp_path: Path) -> None:
    model, ids = saved(name, tmp_path / "model"), tokens()
    with torch.no_grad():
        expected = model(input_ids=ids).logits
    placement = half_on_disk(tmp_path / "model")
    loaded = live.load(tmp_path / "model", placement, offload_folder=tmp_path / "offload")
    with torch.no_grad():
        assert torch.equal(loaded(input_ids=ids).logits, expected)
    for (n, ours), (m, theirs) in zip(loaded.named_parameters(), model.named_parameters(), strict=True):
        assert n == m
        assert torch.equal(ours, theirs)


def test_a_live_model_spills_to_disk_and_comes_back(tmp_path: Path) -> None:
    model, ids = saved("llama", tmp_path / "model"), tokens()
    with torch.no_grad():
        expected = model(input_ids=ids).logits
    placement = half_on_disk(tmp_path / "model")
    with pytest.raises(InputError, match="offload_folder"):
        live.dispatch(model, placement)
    live.dispatch(model, placement, offload_folder=tmp_path / "offload")
    on_disk = [p for p, place in places_of(placement).items() if place == DISK]
    assert sorted(f.stem for f in (tmp_path / "offload").iterdir()) == sorted(on_disk)
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, expected)
    live.undispatch(model)
    for file in (tmp_path / "offload").iterdir():
        file.unlink()
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, expected)


MEMORY_SCRIPT = """
import sys, threading, time
import torch, transformers
sys.path.insert(0, {tests!r})
from test_loading import half_on_disk
import placewright.torch as live
from placewright.live.dispatch import DISK, places_of

def anonymous():
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(lines["RssAnon"].split()[0]) * 1024

placement = half_on_disk({folder!r})
live.empty_model({folder!r})
before, peak, done = anonymous(), [0], []

def watch():
    while not done:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.001)

watcher = threading.Thread(target=watch)
watcher.start()
model = live.load({folder!r}, placement)
done.append(1)
watcher.join()
places = places_of(placement)
weights = placement.problem.graph.metadata["live"].weight_bytes
share = sum(size for path, size in weights.items() if places[path] == "cpu")
print(int(peak[0] - before), int(share))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts memory by /proc")
def test_loading_takes_the_share_of_the_cpu_and_at_most_a_shard(tmp_path: Path) -> None:
    shard = 8_000_000
    model = make_model("llama", vocab_size=3000, hidden_size=512, intermediate_size=1500, num_attention_heads=8)
    model.save_pretrained(tmp_path, max_shard_size=shard)
    total = sum(p.numel() * p.element_size() for p in model.parameters())
    script = MEMORY_SCRIPT.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    peak, share = (int(word) for word in result.stdout.split())
    assert 0.2 * total < share < 0.8 * total
    assert share * 0.9 <= peak <= share + shard


def test_place_takes_a_checkpoint_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    saved("mixtral", tmp_path / "model")
    for file in (tmp_path / "model").glob("*.safetensors*"):
        file.unlink()  # no weight is read
    source, out = f"hf:{tmp_path / 'model'}", tmp_path / "placement.json"
    limits = ["--memory", "cuda:0=41.2MiB"]
    assert run(["place", source, "--phase", "decode", *limits, "--placer", "chain", "-o", str(out), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [d["name"] for d in result["devices"]] == ["cuda:0", "cpu"]
    assert result["execution"] == "sequential"
    assert result["status"] == "optimal"
    assert run(["evaluate", f"{source}?phase=decode&memory=cuda:0=41.2MiB", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["value"] == pytest.approx(result["value"])
    written = tmp_path / "map.json"
    assert run(["export", str(out), "--to", "device-map", "-o", str(written)]) == 0
    assert set(json.loads(written.read_text()).values()) <= {0, "cpu"}
    assert run(["report", str(out), "-q", "-o", str(tmp_path / "report.html")]) == 0


def test_a_cap_too_small_exits_3_with_the_unit_and_its_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved("llama", tmp_path)
    limits = ["--memory", "cuda:0=10KiB", "--memory", "cpu=20KiB"]
    assert run(["place", f"hf:{tmp_path}", "--phase", "decode", "--tokens", "8", *limits, "--placer", "chain"]) == 3
    message = capsys.readouterr().err
    weights, cache = 4 * 3 * 32 * 32, 4 * 2 * 2 * 8 * (8 + 1 + 256)
    assert "'model.layers.0.self_attn' needs" in message
    assert f"({weights + cache} bytes)" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hf:{}/nowhere"], "no config.json there"),
        (["hf:{}?phase=decoed"], "unknown phase 'decoed'"),
        (["hf:{}?fase=decode"], "unknown option 'fase'; did you mean 'phase'"),
        (["hf:{}", "--memory", "cuda:0"], "expected DEVICE=SIZE"),
        (["hf:{}", "--memory", "cuda:0=much"], "expected bytes"),
        (["hf:{}", "--cluster", "p100x2"], "takes its own options"),
        (["hf:{}?tokens=0"], "expected a whole number above 0"),
        (["hf:{}", "--phase", "prefill:1,decode:x"], "such as prefill:1,decode:200"),
        (["zoo:moe", "--phase", "decode"], "--phase is for checkpoint folders"),
    ],
)
def test_wrong_wishes_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_model("llama").config.save_pretrained(tmp_path)
    assert run(["place", *(a.format(tmp_path) for a in arguments)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def _paths(problem: Any) -> Any:
    return enumerate(problem.graph.module_paths)


def test_broken_checkpoints_are_one_line(tmp_path: Path) -> None:
    saved("llama", tmp_path)
    placement = half_on_disk(tmp_path)
    shards = sorted(tmp_path.glob("*.safetensors"))
    shards[0].write_bytes(b"not a file of tensors")
    with pytest.raises(InputError, match="not a safetensors file"):
        live.load(tmp_path, placement)
    for shard in tmp_path.glob("*.safetensors*"):
        shard.unlink()
    with pytest.raises(InputError, match=r"no \.safetensors files"):
        live.load(tmp_path, placement)


def test_maps_and_rules_say_the_same_as_the_placement(tmp_path: Path) -> None:
    import re

    saved("mixtral", tmp_path)
    ids = torch.zeros((1, 8), dtype=torch.long, device="meta")
    model = live.empty_model(tmp_path)
    problem = modelled_problem(model, {"input_ids": ids}, {"cuda:0": "1GiB"}, "decode", 16)
    away = ("model.layers.1.mlp.experts", "model.layers.2.mlp.experts", "model.embed_tokens")
    ends = (path in away or (problem.graph.op_types[v] == "module" and not path) for v, path in _paths(problem))
    placement = checked_placement(problem, np.array(list(ends), dtype=np.int32), placer="by hand")
    assert placement.is_valid
    places = places_of(placement)
    assert set(places.values()) == {"cuda:0", "cpu"}
    found, lost = live.device_map(placement)
    assert any("Accelerate copies their weights" in line for line in lost)
    for path, place in places.items():
        if path in placement.problem.graph.metadata["live"].units.paths:
            key = max((k for k in found if path == k or path.startswith(k + ".") or k == ""), key=len)
            assert found[key] == (0 if place == "cuda:0" else "cpu")
    rules = [rule.rpartition("=") for rule in live.rules(placement)]
    for name, _ in model.named_parameters():
        owner = placement.problem.graph.metadata["live"].units.owner[name.rpartition(".")[0]]
        hits = {device for pattern, _, device in rules if re.search(pattern, name)}
        if owner in placement.problem.graph.metadata["live"].units.paths:
            assert hits == {places[owner]}
