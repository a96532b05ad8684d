"""The problems that the shipped policy is trained on, and what is kept away from it.

    python -m placewright.placers.learned.gdp_curriculum -o gdp.safetensors --evaluations 9200 --seed 0

Models are training steps and inference graphs of the training families in several sizes, and generated graphs.
Clusters have 2, 4 or 8 accelerators of one or two kinds, links of different speeds, memories that bind or do not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from placewright.cluster import Cluster, Device, DeviceKind, Link
from placewright.problems import Problem

HELD_OUT_FAMILIES = ("gnmt", "amoebanet", "wavenet", "moe", "unet")
HELD_OUT_ACCELERATORS = (3, 5, 6)
_GB, _GIB = 1e9, 2.0**30


class Machine(NamedTuple):
    """A cluster in a few numbers."""

    accelerators: int
    link_gb_per_s: float = 10.0
    memory_gib: float = 16.0
    tera_flops: float = 9.3
    slower: int = 0  # so many of them have half the speed
    has_host: bool = True

    def cluster(self) -> Cluster:
        """The cluster; accelerators are linked directly, and through the host if there is one."""
        fast = DeviceKind(
            "gpu", flops_per_s=self.tera_flops * 1e12, memory_bandwidth_bytes_per_s=732e9, op_overhead_s=5e-6
        )
        slow = DeviceKind(
            "half", flops_per_s=self.tera_flops * 5e11, memory_bandwidth_bytes_per_s=366e9, op_overhead_s=5e-6
        )
        host = DeviceKind("cpu", is_host=True, flops_per_s=6e11, memory_bandwidth_bytes_per_s=76e9, op_overhead_s=2e-6)
        fast_count = self.accelerators - self.slower
        names = [(f"gpu{i}", "gpu" if i < fast_count else "half") for i in range(self.accelerators)]
        devices = [Device(name, kind, self.memory_gib * _GIB) for name, kind in names]
        devices += [Device("cpu0", "cpu")] if self.has_host else []
        direct = Link("direct", self.link_gb_per_s * _GB, 1.5e-5)
        pcie = Link("pcie", 12 * _GB, 1e-5)
        ends = {name: pcie for name, _ in names}
        pairs = {(a, b): direct for a, _ in names for b, _ in names if a != b}
        kinds = (fast, *((slow,) if self.slower else ()), *((host,) if self.has_host else ()))
        name = f"{self.accelerators} accelerators, {self.link_gb_per_s:g} GB/s, {self.memory_gib:g} GiB"
        return Cluster(name, kinds, tuple(devices), ends, ends, pairs)


_EQUAL = (Machine(2), Machine(4), Machine(8))
_VARIED = (
    Machine(2, 25.0), Machine(4, 5.0), Machine(8, 25.0), Machine(4, 50.0, 32.0), Machine(2, 5.0, has_host=False),
    Machine(4, 10.0, slower=2), Machine(8, 10.0, 1.0), Machine(2, 10.0, slower=1), Machine(4, 25.0, 1.0, 15.0),
    Machine(8, 50.0, 32.0, slower=4), Machine(2, 50.0, 16.0, 15.0), Machine(8, 5.0, has_host=False),
)  # fmt: skip
_TRAINING = (
    "rnnlm-2?steps=8", "rnnlm-4?steps=6", "rnnlm-8?steps=4", "rnnlm-2?steps=16&hidden=1024&batch=128",
    "rnnlm-4?steps=10&vocabulary=32000", "transformer-xl-2", "transformer-xl-4?segments=2&batch=8",
    "transformer-xl-8?segments=1", "inception-v3?training=1&batch=32", "resnet-50?training=1&batch=32",
    "vgg-16?training=1&batch=32", "mobilenet?training=1&batch=64", "bert-base?training=1&batch=8", "gpt2?training=1",
)  # fmt: skip
_LONGER = (("rnnlm-2?steps=24", Machine(2)), ("rnnlm-4?steps=24", Machine(4)), ("rnnlm-8?steps=20", Machine(8)))
_OTHERS = (
    "bert-base?batch=16", "inception-v3?batch=16", "layered?ops=150&ccr=0.3&seed=1",
    "layered?ops=200&width=8&ccr=1&seed=2", "fork-join?blocks=6&branches=6&ccr=0.5&seed=4",
    "fork-join?blocks=10&branches=3&ccr=0.2&seed=5", "series-parallel?ops=120&ccr=0.5&seed=6",
    "chain?ops=60&ccr=1&seed=8", "fork-join?blocks=2&branches=10&length=6&ccr=0.1&seed=9",
    "layered?ops=200&width=30&ccr=0.05&seed=10",
)  # fmt: skip


def lessons() -> list[tuple[str, Machine]]:
    """(model, machine) of every problem."""
    pairs = [(model, machine) for model in _TRAINING for machine in _EQUAL]
    pairs += [(model, _VARIED[i % len(_VARIED)]) for i, model in enumerate(_TRAINING)]
    pairs += [(model, _EQUAL[i % 3]) for i, model in enumerate(_OTHERS)]
    return [*pairs, *_LONGER]


def load_lessons(pairs: Sequence[tuple[str, Machine]]) -> list[Problem]:
    """The problems that a placement can exist for."""
    from placewright.api import load
    from placewright.evaluate import prove_infeasible

    problems = [load(f"zoo:{model}", cluster=machine.cluster(), execution="overlap") for model, machine in pairs]
    return [p for p in problems if not prove_infeasible(p)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on the whole curriculum; where time ends first, a checkpoint beside the output lets it go on."""
    from placewright.budget import Budget
    from placewright.placers.learned.gdp_school import GdpSchool, best_device
    from placewright.placers.learned.gdp_settings import settings_for
    from placewright.placers.learned.schooling import Lesson, train

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop here; --resume goes on")
    parser.add_argument("--evaluations", type=int, default=9200, help="placements to judge per problem")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="use one problem of so many only")
    parser.add_argument("--mutants", type=int, default=24)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    problems = load_lessons(lessons()[:: options.every])
    ops = sum(p.n_ops for p in problems)
    print(f"{len(problems)} problems, {ops} ops, {time.monotonic() - began:.0f} s", flush=True)
    settings = settings_for("ours", mutants=options.mutants, learning_rate=options.learning_rate)
    school = GdpSchool(problems, settings, options.evaluations, options.seed, best_device())
    print(f"ready on {school.teacher.where}, {time.monotonic() - began:.0f} s", flush=True)
    said = [time.monotonic()]

    def watch(lesson: Lesson) -> None:
        if time.monotonic() - said[0] > 15:
            said[0] = time.monotonic()
            done = sum(pupil.trials.evaluations for pupil in school.learners)
            above = f"policy above best: {school.regret():.1%}"
            print(f"{said[0] - began:.0f} s, step {school.steps}, {done} evaluations, {above}", flush=True)

    budget = Budget(max(0.0, options.seconds - (time.monotonic() - began)))
    chosen = {k: v for k, v in vars(options).items() if k not in ("output", "seconds", "resume")}
    school.origin = {"curriculum": chosen, "device": school.teacher.where}
    train(school, options.output, budget, resume=options.resume, watch=watch)
    print(f"{school.steps} steps, {time.monotonic() - began:.0f} s, policy above best: {school.regret():.1%}")


if __name__ == "__main__":
    main()
