"""Measure zoo models op by op on this machine's processor and CUDA device, and write a profile per model.

    python benchmarks/measure_zoo_profiles.py --output src/placewright/costs/profiles/h200-xeon

The files are a profile set: ``--profile h200-xeon`` on the command line picks the one that fits the model. Needs
torch, numpy and numba. A run that was stopped goes on with --resume, which leaves out models that have their file.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch

from placewright.cluster import DeviceKind
from placewright.cluster_file import load_cluster
from placewright.costs.measure.campaign import measure
from placewright.costs.measure.journal import Journal
from placewright.costs.measure.sources import zoo_torch_source
from placewright.errors import PlacewrightError
from placewright.profiles import graph_fingerprint

# Those whose files stay small; the recurrent ones are training steps unless an option says otherwise.
MODELS = (
    "inception-v3", "resnet-50", "vgg-16", "mobilenet", "unet", "bert-base", "gpt2", "llama", "moe", "rnnlm-2",
    "rnnlm-4", "gnmt-2?training=0", "transformer-xl-2", "transformer-xl-4", "transformer-xl-8", "amoebanet",
    "wavenet-2x18", "wavenet-4x36",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="names with options, such as bert-base?seq=128")
    parser.add_argument("--cluster", default="h200-xeon", help="gives the kinds of device and the links")
    parser.add_argument("--devices", default="cpu,cuda", help="cpu, cuda or both")
    parser.add_argument("--threads", type=int, default=0, help="on the processor; 0 = all cores")
    parser.add_argument("--precision", choices=["f32", "bf16", "f16"], help="instead of the model's own")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=20.0, help="at most, per model and device")
    parser.add_argument("--calibrate", action="store_true", help="scale so that the ops add up to the whole")
    parser.add_argument("--output", type=Path, required=True, help="folder")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    cluster = load_cluster(options.cluster)
    wanted = [k for k in cluster.kinds if ("cpu" if k.is_host else "cuda") in options.devices.split(",")]
    kinds = [replace(k, threads=options.threads, precision=options.precision or k.precision) for k in wanted]
    # The processor first: a module that was on the GPU has warmed nothing up, but leaves no room for the next one.
    kinds.sort(key=lambda k: not k.is_host)
    print(
        f"{'model':30} {'kind':5} {'whole ms':>10} {'sum ms':>10} {'error':>7} {'passes':>6} {'KB':>6} {'s':>5}",
        flush=True,
    )
    for reference in options.models.split(","):
        file = options.output / f"{reference.replace('?', '_').replace('&', '_')}.json"
        if options.resume and file.exists() and not Path(f"{file}.partial").exists():
            continue
        try:
            _measure_model(reference, file, cluster, kinds, options)
        except (PlacewrightError, RuntimeError, MemoryError) as error:  # one model too many must not end the rest
            print(f"{reference:30} failed: {str(error).splitlines()[0]}", flush=True)


def _measure_model(reference, file, cluster, kinds: list[DeviceKind], options) -> None:
    start = time.monotonic()
    source = zoo_torch_source(reference)
    graph = source.graph
    settings = {
        "fingerprint": graph_fingerprint(graph),
        "kinds": [[k.name, k.runtime_device, k.threads, k.precision] for k in kinds],
    }
    journal = Journal(Path(f"{file}.partial"), settings, resume=options.resume)
    finding = measure(
        graph, cluster, kinds, source.make_runner, repeats=options.repeats, journal=journal,
        max_seconds=options.seconds, calibrate=options.calibrate,
    )  # fmt: skip
    finding.profile.save(file)
    if not finding.is_complete:
        raise SystemExit(f"stopped; {file} holds what was measured, --resume continues")
    journal.remove()
    del source
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    for kind, m in finding.profile.measurements.items():
        print(
            f"{reference:30} {kind:5} {m.whole_s * 1e3:10.3f} {m.sum_s * 1e3:10.3f} {m.sum_s / m.whole_s - 1:+7.1%} "
            f"{m.repeats:6} {file.stat().st_size / 1e3:6.0f} {time.monotonic() - start:5.0f}",
            flush=True,
        )
    for name, curve in finding.profile.copies.items():
        latency_s, bandwidth = curve.fit()
        print(f"{'':30} {name}: {latency_s * 1e6:.1f} us + {bandwidth / 1e9:.1f} GB/s", flush=True)


if __name__ == "__main__":
    main()
