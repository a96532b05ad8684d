from __future__ import annotations

import json

import pytest

from placewright.cli.main import run
from placewright.zoo import MODELS, zoo_graph

FEW = ["resnet-50", "transformer-xl-2", "chain"]


@pytest.fixture
def _few_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole list runs with the documentation; here are three sorts."""
    monkeypatch.setattr("placewright.zoo.MODELS", {name: MODELS[name] for name in FEW})


@pytest.mark.usefixtures("_few_models")
def test_json_describes_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "--json"]) == 0
    output = capsys.readouterr().out
    assert output.count("\n") == 1
    rows = {row["name"]: row for row in json.loads(output)["models"]}
    assert list(rows) == FEW
    for name, row in rows.items():
        graph = zoo_graph(name)
        sizes = (row["ops"], row["edges"], row["flops"], row["weight_bytes"], row["training"])
        expected = (graph.n_ops, graph.n_edges, graph.flops.sum(), graph.weight_bytes.sum(), graph.is_backward.any())
        assert sizes == expected
        chosen = "&".join(f"{k}={int(v) if isinstance(v, bool) else v}" for k, v in row["options"].items())
        assert zoo_graph(f"{name}?{chosen}").metadata.get("fingerprint") == graph.metadata.get("fingerprint")
    assert rows["resnet-50"]["parameters"] == 25_557_032
    assert rows["chain"]["parameters"] is None


@pytest.mark.usefixtures("_few_models")
def test_table_names_models_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models"]) == 0
    output = capsys.readouterr().out
    assert "25,557,032" in output
    assert "transformer-xl-2: layers=2 batch=16" in output
