"""GDP's training: the same seed gives the same policy, a stopped or killed training goes on as before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from placewright.api import load  # noqa: E402
from placewright.budget import Budget  # noqa: E402
from placewright.cli.main import run  # noqa: E402
from placewright.errors import InputError  # noqa: E402
from placewright.placers import get_placer  # noqa: E402
from placewright.placers.learned.gdp import SHIPPED  # noqa: E402
from placewright.placers.learned.gdp_curriculum import (  # noqa: E402
    HELD_OUT_ACCELERATORS,
    HELD_OUT_FAMILIES,
    lessons,
    load_lessons,
)
from placewright.placers.learned.gdp_school import GdpSchool  # noqa: E402
from placewright.placers.learned.gdp_settings import settings_for, settings_of  # noqa: E402
from placewright.placers.learned.policy_file import load_policy  # noqa: E402
from placewright.placers.learned.schooling import checkpoint_of, train  # noqa: E402
from placewright.placers.learned.training import one_thread  # noqa: E402

MODELS = ("zoo:fork-join?blocks=3", "zoo:layered?ops=40", "zoo:chain?ops=12")
COMMAND = ["train", "gdp", *MODELS[:2], "--cluster", "laptop-npu"]


def school(evaluations: int = 200, models: tuple[str, ...] = MODELS) -> GdpSchool:
    settings = settings_for("ours", width=16, inner_width=32, samples=8, mutants=4)
    return GdpSchool([load(m, cluster="laptop-npu") for m in models], settings, evaluations, 5)


def weights_of(path: Path) -> dict[str, torch.Tensor]:
    return load_policy(path, "gdp").weights


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert all(torch.equal(one[k], other[k]) for k in one)


@pytest.mark.parametrize("models", [MODELS, MODELS[:1]])
def test_training_goes_on_as_if_it_had_never_stopped(models: tuple[str, ...], tmp_path: Path) -> None:
    whole = tmp_path / "whole.safetensors"
    assert train(school(models=models), whole, Budget(60), resume=False)
    part, path = school(models=models), tmp_path / "part.safetensors"
    with one_thread():
        for _ in range(5):
            part.step()
    checkpoint_of(part, path).save(part, now=True)
    again = school(models=models)
    assert train(again, path, Budget(60), resume=True)
    assert_same(weights_of(whole), weights_of(path))
    assert not checkpoint_of(again, path).path.exists()


def test_a_killed_training_resumes_to_the_same_policy(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole.safetensors", tmp_path / "killed.safetensors"
    arguments = [*COMMAND, "--evaluations", "500", "--json"]
    assert run([*arguments, "-o", str(whole)]) == 0
    script = (
        "import sys; import placewright.placers.learned.schooling as s; old = s.checkpoint_of\n"
        "s.checkpoint_of = lambda school, output, every_s=10.0: old(school, output, 0.0)\n"
        "from placewright.cli.main import run; sys.exit(run(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments, "-o", str(killed)], stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    checkpoint = killed.with_name(killed.name + ".checkpoint")
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not killed.exists()
    assert run([*arguments, "-o", str(killed), "--resume"]) == 0
    assert_same(weights_of(whole), weights_of(killed))


def test_a_policy_fits_other_graphs_and_any_number_of_devices(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    assert train(school(60), path, Budget(60), resume=False)
    for cluster in ("p100x2", "p100x8"):
        problem = load("zoo:layered?ops=60&seed=1", cluster=cluster)
        assert get_placer("gdp", policy=str(path), zero_shot=True).place(problem, Budget(60), 0).is_valid
        tuned = get_placer("gdp", policy=str(path)).place(problem, Budget(60, evaluations=100), 0)
        assert tuned.is_valid
        assert tuned.evaluations <= 100


def test_a_fixed_softmax_is_for_one_number_of_devices() -> None:
    problems = [load("zoo:chain?ops=4", cluster=c) for c in ("p100x2", "p100x4")]
    with pytest.raises(InputError, match="different numbers of devices"):
        GdpSchool(problems, settings_for("ours", head="fixed"), 10, 0)


def test_held_out_families_and_sizes_are_not_in_the_curriculum() -> None:
    names = {model.partition("?")[0] for model, _ in lessons()}
    assert not any(name.startswith(family) for name in names for family in HELD_OUT_FAMILIES)
    assert not {machine.accelerators for _, machine in lessons()} & set(HELD_OUT_ACCELERATORS)
    few = load_lessons(lessons()[30:33])
    assert all(p.execution == "overlap" for p in few)


def test_the_shipped_policy_is_that_of_the_documented_command() -> None:
    stored = load_policy(SHIPPED, "gdp")
    made = {"evaluations": 9200, "seed": 0, "every": 1, "mutants": 24, "learning_rate": 2e-3}
    assert stored.history["curriculum"] == made
    assert stored.history["device"] == "cpu"
    assert stored.history["models"] == [p.graph.name for p in load_lessons(lessons())]
    assert min(stored.history["evaluations"]) >= 9200
    assert settings_of(stored.settings) == settings_for("ours", mutants=24, learning_rate=2e-3)


def test_the_shipped_policy_is_used_and_small(capsys: pytest.CaptureFixture[str]) -> None:
    assert SHIPPED.stat().st_size < 4e6
    arguments = ["place", "zoo:fork-join", "--cluster", "p100x4", "--placer", "gdp", "--json"]
    assert run([*arguments, "--zero-shot"]) == 0
    zero_shot = json.loads(capsys.readouterr().out)
    assert run([*arguments, "--evaluations", "150"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert zero_shot["bound"] <= zero_shot["value"]
    assert tuned["evaluations"] <= 150


def test_the_curriculum_trains_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from placewright.placers.learned.gdp_curriculum import main

    one, stopped, other = (tmp_path / f"{name}.safetensors" for name in ("one", "stopped", "other"))
    options = ["--every", "40", "--evaluations", "80", "--mutants", "4"]
    main(["-o", str(one), *options, "--seed", "3"])
    assert "policy above best" in capsys.readouterr().out
    main(["-o", str(stopped), *options, "--seed", "3", "--seconds", "0"])
    assert load_policy(stopped, "gdp").history["steps"] == 0
    main(["-o", str(stopped), *options, "--seed", "3", "--resume"])
    assert_same(weights_of(one), weights_of(stopped))
    assert load_policy(one, "gdp").history == load_policy(stopped, "gdp").history
    main(["-o", str(other), *options, "--seed", "4"])
    assert not all(torch.equal(weights_of(one)[k], w) for k, w in weights_of(other).items())
