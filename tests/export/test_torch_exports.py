"""Module-level formats: Accelerate dispatches by the map, torch.distributed.pipelining accepts the split; both run."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placewright import load, place
from placewright.cli.main import run
from placewright.errors import InputError
from placewright.export import export_placement
from placewright.export.split_spec import read_split_spec
from placewright.placement import Placement, checked_placement

torch = pytest.importorskip("torch")
SMALL_BERT = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64,
              "vocab_size": 100, "max_position_embeddings": 32}  # fmt: skip


class Tower(torch.nn.Module):
    """Blocks with residual sums, a module that is called twice, and a head that no one calls."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Linear(16, 16)
        self.blocks = torch.nn.ModuleList([Block() for _ in range(4)])
        self.shared = torch.nn.ReLU()
        self.head = torch.nn.Linear(16, 4)
        self.unused = torch.nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        x = self.shared(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(self.shared(x))


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.relu(self.up(x)))


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, str]:
    torch.manual_seed(0)
    model, inputs = Tower().eval(), (torch.randn(2, 16),)
    path = str(tmp_path_factory.mktemp("tower") / "tower.pt2")
    torch.export.save(torch.export.export(model, inputs), path)
    return model, inputs, path


def by_module(path: str, modules_on_gpu: tuple[str, ...], objective: str = "latency") -> Placement:
    problem = load(path, cluster="h200-xeon", objective=objective)
    gpu = problem.cluster.device_names.index("gpu0")
    cpu = problem.cluster.device_names.index("cpu0")
    on_gpu = [p.startswith(modules_on_gpu) for p in problem.graph.module_paths]
    return checked_placement(problem, np.where(on_gpu, gpu, cpu), placer="test")


def dispatched(model: Any, device_map: dict[str, str], folder: Path) -> Any:
    """Accelerate with the map; what it would keep on a GPU is kept on disk, which needs hooks just the same."""
    accelerate = pytest.importorskip("accelerate")
    here = {name: "disk" if device.startswith("cuda") else device for name, device in device_map.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return accelerate.dispatch_model(model, here, main_device="cpu", offload_dir=str(folder), force_hooks=True)


def test_accelerate_runs_the_map(tower: tuple[Any, Any, str], tmp_path: Path) -> None:
    model, inputs, path = tower
    exported = export_placement(by_module(path, ("blocks.1", "blocks.2", "head")), "device-map", tmp_path / "m.json")
    device_map = json.loads((tmp_path / "m.json").read_text())
    assert device_map["blocks.1"] == device_map["blocks.2"] == device_map["head"] == "cuda:0"
    assert device_map["blocks.0"] == device_map["blocks.3"] == device_map["stem"] == "cpu"
    assert "unused" in device_map
    assert any("one device at a time" in loss for loss in exported.losses)
    wanted = model(*inputs)
    fresh = Tower().eval()
    fresh.load_state_dict(model.state_dict())
    torch.testing.assert_close(dispatched(fresh, device_map, tmp_path / "disk")(*inputs), wanted)


def test_a_block_whose_sum_would_mix_devices_is_kept_whole(tower: tuple[Any, Any, str], tmp_path: Path) -> None:
    exported = export_placement(by_module(tower[2], ("blocks.1.down",)), "device-map", tmp_path / "m.json")
    device_map = json.loads((tmp_path / "m.json").read_text())
    assert "blocks.1.down" not in device_map
    assert any("go with the rest of their module" in loss for loss in exported.losses)


def test_devices_that_torch_does_not_know_are_said(tower: tuple[Any, Any, str], tmp_path: Path) -> None:
    problem = load(tower[2], cluster="laptop-npu")
    npu = problem.cluster.device_names.index("npu0")
    placement = checked_placement(problem, np.full(problem.n_ops, npu), placer="test")
    exported = export_placement(placement, "device-map", tmp_path / "m.json")
    assert any("torch has no device called 'NPU': 'npu0' is written as cuda:1" in loss for loss in exported.losses)


def test_a_sum_in_the_model_itself_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Fork(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.a(x) + self.b(x)

    path = str(tmp_path / "fork.pt2")
    torch.export.save(torch.export.export(Fork().eval(), (torch.randn(1, 4),)), path)
    by_module(path, ("a",)).save(tmp_path / "p.json")
    assert run(["export", str(tmp_path / "p.json"), "--to", "device-map", "-o", str(tmp_path / "m.json")]) == 2
    message = capsys.readouterr().err
    assert "a device map cannot say this: 'add'" in message
    assert "reads tensors of several devices" in message


def test_accelerate_runs_a_transformer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(**SMALL_BERT, attn_implementation="eager")
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    ids = torch.randint(0, 100, (1, 8))

    class Wrapped(torch.nn.Module):
        """Names of modules stay as in the model itself."""

        def __init__(self) -> None:
            super().__init__()
            self.embeddings, self.encoder = model.embeddings, model.encoder

        def forward(self, ids: Any) -> Any:
            return self.encoder(self.embeddings(ids), attention_mask=None)[0]

    path = str(tmp_path / "bert.pt2")
    torch.export.save(torch.export.export(Wrapped().eval(), (ids,)), path)
    placement = by_module(path, ("encoder.layer.1", "encoder.layer.2"))
    export_placement(placement, "device-map", tmp_path / "m.json")
    device_map = json.loads((tmp_path / "m.json").read_text())
    assert device_map["encoder.layer.1"] == "cuda:0"
    assert device_map["encoder.layer.0"] == "cpu"
    wanted = model(ids)[0]
    torch.testing.assert_close(dispatched(model, device_map, tmp_path / "disk")(ids)[0], wanted, atol=1e-5, rtol=1e-5)


def staged(model: Any, inputs: Any, spec: dict[str, Any]) -> tuple[int, Any]:
    """What torch's stages compute; the model itself stays without marks."""
    from torch.distributed.pipelining import pipeline

    pipe = pipeline(copy.deepcopy(model), mb_args=inputs, split_spec=spec)
    results = pipe(*inputs)
    return pipe.num_stages, results[0] if isinstance(results, tuple) else results


def test_torch_accepts_the_split(tower: tuple[Any, Any, str], tmp_path: Path) -> None:
    model, inputs, path = tower
    stages = by_module(path, ("blocks.2", "blocks.3", "head"), "throughput")
    device = np.array(stages.device_of_op)
    device[np.argmax(device == device[-1]) :] = device[-1]
    placement = checked_placement(stages.problem, device, placer="test")
    exported = export_placement(placement, "split-spec", tmp_path / "s.json")
    assert json.loads((tmp_path / "s.json").read_text())["stages"] == ["cpu0", "gpu0"]
    assert exported.losses == ()
    spec = read_split_spec(tmp_path / "s.json")
    assert list(spec) == ["blocks.2.up"]
    n_stages, got = staged(model, inputs, spec)
    assert n_stages == 2
    torch.testing.assert_close(got, model(*inputs))


def test_a_cut_inside_a_module_moves_to_the_next_one_and_says_so(tower: tuple[Any, Any, str], tmp_path: Path) -> None:
    model, inputs, path = tower
    problem = load(path, cluster="h200-xeon", objective="throughput")
    inside = next(v for v, n in enumerate(problem.graph.module_paths) if n == "blocks.1" and v > 0)
    device = (np.arange(problem.n_ops) >= inside).astype(np.int32)
    placement = checked_placement(problem, device, placer="test")
    assert placement.stage is not None
    exported = export_placement(placement, "split-spec", tmp_path / "s.json")
    assert "ops change stage" in exported.losses[0]
    n_stages, got = staged(model, inputs, read_split_spec(tmp_path / "s.json"))
    assert n_stages == 2
    torch.testing.assert_close(got, model(*inputs))


def test_a_zoo_model_in_stages(tmp_path: Path) -> None:
    from placewright.zoo import zoo_module

    name = "zoo:bert-base?layers=3&hidden=32&heads=2&vocabulary=50&sequence=8&positions=8"
    placement = place(load(name, cluster="cores:2", objective="throughput"), placer="dp", budget=10)
    export_placement(placement, "split-spec", tmp_path / "s.json")
    module, inputs = zoo_module(name.removeprefix("zoo:"))
    n_stages, got = staged(module.eval(), tuple(inputs), read_split_spec(tmp_path / "s.json"))
    wanted = module(*inputs)
    assert n_stages == len(set(placement.stage.tolist()))  # type: ignore[union-attr]
    torch.testing.assert_close(got, wanted[0] if isinstance(wanted, tuple) else wanted)


def test_what_is_no_pipeline_has_no_stages(tower: tuple[Any, Any, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only a contiguous pipeline has stages"):
        export_placement(by_module(tower[2], ("head",)), "split-spec", tmp_path / "s.json")
