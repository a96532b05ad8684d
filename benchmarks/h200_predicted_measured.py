"""Predicted against measured latency of diverse placements over a CPU and a CUDA device, run by torch.

    python benchmarks/h200_predicted_measured.py --output results --seconds 240
    python benchmarks/h200_predicted_measured.py --draw results/predicted_measured.json

Per model: time the ops on each device and the copies, execute the placements in turns, fit four figures to a fifth of
them (factors of either device and of copies, a latency per copy), and judge the prediction on the others. Results are
written after each model. --draw makes the scatter plot and prints the table; it needs no torch. Without a CUDA device
the processor stands in for it (--small): good for trying the script out, for nothing else.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

MODELS = ("resnet-50", "inception-v3", "bert-base")
SMALL = ("resnet-50?image=64", "bert-base?sequence=16")
PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "torch-predicted-measured.svg"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("results"), help="folder")
    parser.add_argument("--models", help="zoo names, separated by commas")
    parser.add_argument("--seconds", type=float, default=240.0, help="for everything")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--placements", type=int, default=44)
    parser.add_argument("--graphs", action="store_true", help="CUDA graphs as well, if time is left")
    parser.add_argument("--small", action="store_true", help="small models")
    parser.add_argument("--draw", type=Path, help="a result of an earlier run: only draw it")
    options = parser.parse_args()
    if options.draw:
        results = json.loads(options.draw.read_text())
        PICTURE.write_text(picture(results["models"]))
        print(table(results))
        return
    options.output.mkdir(parents=True, exist_ok=True)
    measure_all(options)


def setting_of(script: str, seconds: float) -> dict[str, Any]:
    """Where and how figures were made."""
    import torch

    from placewright.costs.machine import machine_text

    has_cuda = torch.cuda.is_available()
    return {
        "machine": machine_text(),
        "device": torch.cuda.get_device_name(0) if has_cuda else "none, the processor twice",
        "torch": torch.__version__,
        "command": f"python benchmarks/{Path(script).name} --seconds {seconds:g}",
    }


def measure_all(options: argparse.Namespace) -> None:
    import torch

    from placewright.costs.measure.torch_calibration import measure_copies

    began = time.monotonic()
    has_cuda = torch.cuda.is_available()
    device = "cuda:0" if has_cuda else "cpu"
    results = {**setting_of(__file__, options.seconds), "threads": torch.get_num_threads(), "models": []}
    curve = measure_copies(device)
    latency_s, bandwidth = curve.fit()
    results["copies"] = {"bytes": curve.size_bytes, "s": curve.seconds}
    print(f"{results['device']}; copies {latency_s * 1e6:.1f} us + {bandwidth / 1e9:.1f} GB/s", flush=True)
    models = (options.models or ",".join(SMALL if options.small else MODELS)).split(",")
    rounds = [(m, g) for g in ((False, True) if options.graphs else (False,)) for m in models]
    for number, (model, use_graphs) in enumerate(rounds):
        left = options.seconds - (time.monotonic() - began)
        if left < 15:
            print(f"{model}: no time left", flush=True)
            break
        try:
            share = left / (len(rounds) - number)
            results["models"].append(measure_model(model, device, curve, use_graphs, share, options))
        except Exception as error:  # one model's failure must not cost the others
            print(f"{model} failed: {type(error).__name__}: {error}", flush=True)
            results["models"].append({"model": model, "graphs": use_graphs, "failure": str(error)[:500]})
        (options.output / "predicted_measured.json").write_text(json.dumps(results, indent=1))
    print(table(results))
    print(f"{time.monotonic() - began:.0f} s")


def measure_model(model, device, curve, use_graphs, seconds, options) -> dict:
    import torch

    from placewright.cluster_file import load_cluster
    from placewright.costs.measure.torch_calibration import calibrated_profile, fit_scales, measure_ops, scaled
    from placewright.evaluate import evaluate_many, timeline
    from placewright.execute.measure import measure_in_turns
    from placewright.execute.torch import TorchRun
    from placewright.execute.torch_weights import WeightStore
    from placewright.frontends.registry import read_model
    from placewright.problems import Rule, build_problem
    from placewright.zoo import zoo_module

    began = time.monotonic()
    module, inputs = zoo_module(model)
    program = torch.export.export(module.eval(), tuple(inputs))
    graph = read_model(program, {})
    store = WeightStore(program)
    times = measure_ops(program, graph, inputs, device, store)
    cluster = load_cluster("h200-xeon")
    profile = calibrated_profile(graph, cluster, times, curve, use_graphs=use_graphs)
    profile.save(options.output / f"{model.replace('?', '_')}{'-graphs' if use_graphs else ''}.profile.json")
    pins = tuple(
        Rule("pin", f"^{n.name}$", "cpu")
        for n in program.graph.nodes
        if n.op == "placeholder" and n.name in graph.index_of
    )
    problem = build_problem(graph, cluster, profile, rules=pins)
    placements, kinds = diverse_placements(problem, options.placements)
    names = cluster.device_names
    torch_devices = {name: "cpu" if cluster.is_host[i] else device for i, name in enumerate(names)}
    eager = module.to(device)
    there = [x.to(device) for x in inputs]

    def plain() -> None:
        with torch.inference_mode():
            eager(*there)
        if device != "cpu":
            torch.cuda.synchronize()

    print(
        f"{model}: {graph.n_ops} ops, cpu {times.whole_s['cpu'] * 1e3:.2f} ms, "
        f"eager {times.whole_s['eager'] * 1e3:.2f} ms, graphs {times.whole_s['graphs'] * 1e3:.2f} ms, "
        f"launches {times.launch_s.sum() * 1e3:.2f} ms, kernels "
        f"{times.kernel_s.sum() * 1e3:.2f} ms ({time.monotonic() - began:.0f} s)",
        flush=True,
    )
    runs, failures, expected, worst = {}, {}, None, 0.0
    for i, placement in enumerate(placements):
        planned = {graph.op_names[s.op]: s.start_s for s in timeline(problem, placement) if s.op >= 0}
        placed = {op: names[d] for op, d in zip(graph.op_names, placement.tolist(), strict=True)}
        try:
            run = TorchRun(program, placed, torch_devices, planned, store=store, use_graphs=use_graphs)
            outputs = [o.cpu() for o in run(*inputs)]
            expected = outputs if expected is None else expected
            worst = max(
                worst,
                *((a - b).abs().max().item() / b.abs().max().item() for a, b in zip(outputs, expected, strict=True)),
            )
            runs[str(i)] = run
        except Exception as error:
            failures[i] = str(error)[:300]
            print(f"  {kinds[i]}: {failures[i]}", flush=True)
    variants = {key: (lambda run=run: run(*inputs)) for key, run in runs.items()} | {"plain": plain}
    end = began + seconds - 3
    timings = measure_in_turns(variants, options.repeats, 2, should_stop=lambda: time.monotonic() > end)
    for run in runs.values():
        run.close()
    done = [int(key) for key in runs]
    measured = np.array([timings[str(i)].median_s for i in done])
    chosen = placements[done]
    before = evaluate_many(problem, chosen).value
    fitted_on = np.arange(len(done)) % 5 == 2  # a fifth, all sorts among them
    scales = fit_scales(problem, chosen[fitted_on], measured[fitted_on])
    after = evaluate_many(scaled(problem, scales), chosen).value
    judged = ~fitted_on
    result = {
        "model": model,
        "graphs": use_graphs,
        "whole_s": dict(times.whole_s),
        "plain_eager_s": timings["plain"].median_s,
        "launch_s": float(times.launch_s.sum()),
        "kernel_s": float(times.kernel_s.sum()),
        "max_rel_error": worst,
        "scales": scales._asdict(),
        "rounds": len(timings["plain"].samples_s),
        "judged": int(judged.sum()),
        "rank_correlation": rank_correlation(after[judged], measured[judged]),
        "median_error": float(np.median(np.abs(after / measured - 1)[judged])),
        "rank_correlation_before": rank_correlation(before[judged], measured[judged]),
        "median_error_before": float(np.median(np.abs(before / measured - 1)[judged])),
        "failures": failures,
        "points": [
            {
                "kind": kinds[d], "measured_s": float(m), "low_s": timings[str(d)].low_s,
                "high_s": timings[str(d)].high_s,
                "before_s": float(b), "predicted_s": float(a), "fitted": bool(f), "crossings": runs[str(d)].crossings,
                "segments": runs[str(d)].n_segments,
            }
            for d, m, b, a, f in zip(done, measured, before, after, fitted_on, strict=True)
        ],
    }  # fmt: skip
    print(
        f"  rank correlation {result['rank_correlation']:.3f}, median error {result['median_error']:.1%} on "
        f"{judged.sum()} "
        f"placements (before: {result['rank_correlation_before']:.3f}, {result['median_error_before']:.1%}); "
        "all on the "
        f"device {timings['plain'].median_s * 1e3:.2f} ms in plain torch ({time.monotonic() - began:.0f} s)",
        flush=True,
    )
    return result


def diverse_placements(problem, wanted: int):
    """Single devices, cuts, bands, sorts of ops, random stretches, and what placers find."""
    from placewright.api import place

    rng = np.random.default_rng(0)
    n = problem.n_ops
    gpu = int(np.flatnonzero(~problem.cluster.is_host)[0])
    cpu = int(np.flatnonzero(problem.cluster.is_host)[0])
    at = np.arange(n) / n
    found = [(np.ones(n, bool), "one device"), (np.zeros(n, bool), "one device")]
    for share in (0.15, 0.3, 0.45, 0.6, 0.75, 0.9):
        found += [(at < share, "cut"), (at >= share, "cut")]
    for bands in (3, 4, 6, 8, 12, 20):
        found.append(((at * bands).astype(int) % 2 == 0, "bands"))
    for sort in ("conv", "conv1x1", "matmul", "norm", "elementwise"):
        is_sort = np.array([c == sort for c in problem.graph.op_classes])
        if is_sort.any():
            found += [(is_sort, "sort of op"), (~is_sort, "sort of op")]
    for placer in ("heft", "etf", "greedy"):
        try:
            placed = place(problem, placer=placer, budget=1.0).device_of_op
        except Exception:
            placed = None
        if placed is not None:
            found.append((placed == gpu, "placer"))
    while len(found) < wanted:  # stretches of ops with ever more changes of device, on more or less of the GPU
        changes = rng.choice([0.01, 0.03, 0.1, 0.3])
        switch = rng.random(n) < changes
        on_gpu = (np.cumsum(switch) + rng.integers(2)) % 2 == 0
        found.append((on_gpu, "random stretches"))
    rows, kinds, seen = [], [], set()
    for on_gpu, kind in found:
        row = np.where(on_gpu & problem.allowed[:, gpu], gpu, cpu).astype(np.int32)
        row = row[problem.group_of_op]
        if row.tobytes() not in seen:
            seen.add(row.tobytes())
            rows.append(row)
            kinds.append(kind)
    return np.array(rows), kinds


def rank_correlation(a, b) -> float:
    """Spearman's."""
    ranks = [np.argsort(np.argsort(x)).astype(float) for x in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def table(results: dict) -> str:
    lines = [
        "| model | placements judged | rank correlation | median error | before the fit | "
        "all on the device, ms: executor / plain torch / CUDA graphs | largest output difference |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for m in results["models"]:
        name = m["model"] + (", CUDA graphs" if m["graphs"] else "")
        if "failure" in m:
            lines.append(f"| {name} | failed: {m['failure']} | | | | | |")
            continue
        w = m["whole_s"]
        lines.append(
            f"| {name} | {m['judged']} | {m['rank_correlation']:.3f} | {m['median_error']:.1%} | "
            f"{m['rank_correlation_before']:.3f}, {m['median_error_before']:.1%} | {w['eager'] * 1e3:.2f} / "
            f"{m['plain_eager_s'] * 1e3:.2f} / {w['graphs'] * 1e3:.2f} | {m['max_rel_error']:.1e} |"
        )
    return "\n".join(lines) + f"\n\n{results['device']}, {results['machine']}, torch {results['torch']}"


def picture(models: list[dict]) -> str:
    """One panel per model: measured over predicted, logarithmic, the diagonal drawn."""
    models = [m for m in models if "points" in m]
    size, margin = 260, 46
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {(size + margin) * len(models) + 10} {size + 2 * margin}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for k, m in enumerate(models):
        left, top = k * (size + margin) + margin, 30
        values = [p[key] * 1e3 for p in m["points"] for key in ("measured_s", "predicted_s")]
        low, high = np.log10(min(values)) - 0.05, np.log10(max(values)) + 0.05

        def place_at(ms, low=low, high=high):
            return (np.log10(ms) - low) / (high - low) * size

        parts.append(f'<rect x="{left}" y="{top}" width="{size}" height="{size}" fill="none" stroke="#999"/>')
        parts.append(f'<line x1="{left}" y1="{top + size}" x2="{left + size}" y2="{top}" stroke="#999"/>')
        title = m["model"] + (", graphs" if m["graphs"] else "")
        parts.append(
            f'<text x="{left}" y="{top - 8}">{title}: rank correlation {m["rank_correlation"]:.3f}, '
            f"error {m['median_error']:.1%}</text>"
        )
        for ms in (v * 10**e for e in range(-2, 5) for v in (1, 2, 5)):
            if low < np.log10(ms) < high:
                x = place_at(ms)
                parts.append(f'<text x="{left + x:.0f}" y="{top + size + 14}" text-anchor="middle">{ms:g}</text>')
                parts.append(f'<text x="{left - 4}" y="{top + size - x + 4:.0f}" text-anchor="end">{ms:g}</text>')
        for p in m["points"]:
            x, y = left + place_at(p["predicted_s"] * 1e3), top + size - place_at(p["measured_s"] * 1e3)
            fill = "none" if p["fitted"] else "#1f6feb"
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{fill}" stroke="#1f6feb"/>')
        parts.append(
            f'<text x="{left + size / 2}" y="{top + size + 30}" text-anchor="middle">predicted ms, rings: fitted</text>'
        )
        parts.append(f'<text x="{left + 4}" y="{top + 12}">measured ms</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    main()
