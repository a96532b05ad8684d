"""Training: policy files, checkpoints, the verb, and a kill in the middle; and the environment for others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from placewright.api import load  # noqa: E402
from placewright.budget import Budget  # noqa: E402
from placewright.cli.main import run  # noqa: E402
from placewright.errors import InputError  # noqa: E402
from placewright.placers import get_placer  # noqa: E402
from placewright.placers.base import best_single_device  # noqa: E402
from placewright.placers.learned.hsdag_settings import settings_for  # noqa: E402
from placewright.placers.learned.policy_file import load_policy  # noqa: E402
from placewright.placers.learned.schooling import School, checkpoint_of, train  # noqa: E402
from placewright.placers.learned.training import one_thread  # noqa: E402

COMMAND = ["train", "hsdag", "zoo:fork-join", "zoo:layered?ops=40", "--cluster", "laptop-npu"]


def school(evaluations: int = 120) -> School:
    problems = [load(m, cluster="laptop-npu") for m in ("zoo:fork-join", "zoo:layered?ops=40")]
    return School(problems, settings_for("ours"), evaluations, 5)


def test_a_policy_file_fits_another_graph_and_more_devices(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    assert train(school(), path, Budget(60), resume=False)
    stored = load_policy(path, "hsdag")
    assert stored.history["evaluations"] == [120, 120]
    other = load("zoo:layered?ops=60&seed=1", cluster="p100x4")
    placement = get_placer("hsdag", policy=str(path)).place(other, Budget(60, evaluations=60), 0)
    assert placement.is_valid


def test_training_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    whole = school()
    assert train(whole, tmp_path / "whole.safetensors", Budget(60), resume=False)
    part, path = school(), tmp_path / "part.safetensors"
    with one_thread():
        for _ in range(9):
            part.step()
    checkpoint_of(part, path).save(part, now=True)
    again = school()
    assert train(again, path, Budget(60), resume=True)
    one, other = (load_policy(p, "hsdag").weights for p in (tmp_path / "whole.safetensors", path))
    assert all(torch.equal(one[k], other[k]) for k in one)
    assert not checkpoint_of(again, path).path.exists()


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    first = school(60)
    checkpoint_of(first, path).save(first, now=True)
    with pytest.raises(InputError, match="other settings"):
        train(school(61), path, Budget(60), resume=True)
    checkpoint_of(first, path).path.write_bytes(b"nonsense")
    with pytest.raises(InputError, match="not a checkpoint"):
        train(school(60), path, Budget(60), resume=True)


def test_a_killed_training_resumes_to_the_same_policy(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole.safetensors", tmp_path / "killed.safetensors"
    arguments = [*COMMAND, "--evaluations", "400", "--json"]
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
    one, other = (load_policy(p, "hsdag").weights for p in (whole, killed))
    assert all(torch.equal(one[k], other[k]) for k in one)


def test_the_verb_prints_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*COMMAND, "--evaluations", "40", "--json", "-o", str(tmp_path / "p.safetensors")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["finished"]
    assert [row["evaluations"] for row in document["models"]] == [40, 40]


def test_bad_policy_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
    arguments = ["place", "zoo:fork-join", "--placer", "hsdag", "--evaluations", "20", "--policy", str(bad)]
    assert run(arguments) == 2
    assert "bad.safetensors: not a policy" in capsys.readouterr().err
    assert run(["train", "heft", "zoo:fork-join", "-o", str(bad)]) == 2
    assert "cannot be trained" in capsys.readouterr().err


def test_the_environment_passes_gymnasium_s_check_and_tells_the_truth() -> None:
    pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    from placewright.environment import PlacementEnv
    from placewright.evaluate import evaluate

    problem = load("zoo:fork-join", cluster="laptop-npu")
    env = PlacementEnv(problem)
    check_env(env, skip_render_check=True)
    rng = np.random.default_rng(0)
    _, info = env.reset(seed=0)
    total, ended = 0.0, False
    while not ended:
        action = rng.choice(np.flatnonzero(info["action_mask"]))
        _, reward, ended, _, info = env.step(action)
        total += reward
    alone = best_single_device(problem)
    assert alone is not None
    value = evaluate(problem, env.device_of_op).value
    assert info["value"] == pytest.approx(value)
    assert total == pytest.approx(1 - value / alone[1])


def test_the_runtime_s_own_choice_takes_the_first_device_that_supports_an_op() -> None:
    problem = load("zoo:fork-join", cluster="laptop-npu")
    names = problem.cluster.device_names
    found = get_placer("runtime-choice", first=names[0]).search(problem, Budget(1), 0).device_of_op
    assert found is not None
    assert (found[problem.allowed[:, 0]] == 0).all()
    with pytest.raises(InputError, match="no device or kind 'tpu'"):
        get_placer("runtime-choice", first="tpu").search(problem, Budget(1), 0)
