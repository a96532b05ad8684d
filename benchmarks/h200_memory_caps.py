"""Zoo models under a cap of GPU memory: all CPU, all GPU, Accelerate's automatic map, and our placement, in one run.

    python benchmarks/h200_memory_caps.py --output results --seconds 240
    python benchmarks/h200_memory_caps.py --draw results/memory_caps.json > benchmarks/results/h200_memory_caps.md

A model's need is its weights plus the peak of its activations, as the evaluator counts them; caps are 100%, 50% and 25%
of it. All CPU and all GPU are plain torch. Accelerate gets the cap as max_memory; it counts weights only, so where its
measured peak breaks the cap it gets the cap less the activations. What libraries allocate for themselves (measured: the
peak of all GPU above the need) is allowed to everyone on top. Ours: candidates (single devices, cuts in the model's
order, what placers find, everything on the GPU with some weights streamed from pinned host memory) are predicted from
measured op and copy times, the best few are timed briefly, and one is chosen before the run that counts. There all
variants run in turns, in random order. Results are written after each model.
"""

from __future__ import annotations

import argparse
import copy
import functools
import gc
import json
import math
import signal
import time
from pathlib import Path

import numpy as np
from h200_predicted_measured import setting_of

PLACERS = ("heft", "anneal")
MODELS = (
    "resnet-50", "bert-base", "inception-v3", "gpt2", "vgg-16", "mobilenet", "unet", "llama", "moe",
    "transformer-xl-2?training=0", "wavenet-2x18?training=0", "amoebanet?training=0", "transformer-xl-4?training=0",
    "wavenet-4x36?training=0", "transformer-xl-8?training=0", "rnnlm-2?training=0", "rnnlm-4?training=0",
    "gnmt-2?training=0", "rnnlm-8?training=0", "gnmt-4?training=0", "gnmt-8?training=0",
)  # fmt: skip
SMALL = ("resnet-50?image=64", "mobilenet?image=64", "bert-base?sequence=16")
CAPS = (1.0, 0.5, 0.25)
HOPELESS = 2.0  # a candidate that is predicted to take so many times what another took is not tried
NOISE = 0.02  # a difference below this is none, however narrow the intervals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("results"), help="folder")
    parser.add_argument("--models", help="zoo names, separated by commas")
    parser.add_argument("--seconds", type=float, default=240.0, help="for everything")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--budget", type=float, default=1.5, help="seconds per placer run")
    parser.add_argument("--small", action="store_true", help="small models")
    parser.add_argument("--draw", type=Path, help="a result of an earlier run: only print its table")
    options = parser.parse_args()
    if options.draw:
        print(table(json.loads(options.draw.read_text())))
        return
    options.output.mkdir(parents=True, exist_ok=True)
    measure_all(options)


def measure_all(options: argparse.Namespace) -> None:
    import torch

    from placewright.costs.measure.torch_calibration import measure_copies

    signal.signal(signal.SIGALRM, _out_of_time)
    began = time.monotonic()
    has_cuda = torch.cuda.is_available()
    device = "cuda:0" if has_cuda else "cpu"
    results = {**setting_of(__file__, options.seconds), "rows": [], "failures": {}}
    compile_placers()
    print(f"placers compiled, {time.monotonic() - began:.0f} s", flush=True)
    curve = measure_copies(device)
    if has_cuda:
        warm_libraries(device)
    for model in (options.models or ",".join(SMALL if options.small else MODELS)).split(","):
        if time.monotonic() - began > options.seconds - 12:
            results["failures"][model] = "no time left"
            continue
        start = time.monotonic()
        try:
            end = min(began + options.seconds, start + max(25.0, options.seconds / 9))
            signal.alarm(max(1, math.ceil(end - start)) + 5)  # an export that takes minutes cannot be asked to stop
            for row in measure_model(model, device, curve, end, options):
                results["rows"].append(row)
                print(table_line(row), flush=True)
        except Exception as error:  # one model's failure must not cost the others
            results["failures"][model] = f"{type(error).__name__}: {str(error)[:300]}"
            print(f"{model} failed: {results['failures'][model]}", flush=True)
        finally:
            signal.alarm(0)
        gc.collect()
        if has_cuda:
            torch.cuda.empty_cache()
        print(f"  {model}: {time.monotonic() - start:.0f} s, {time.monotonic() - began:.0f} s in all", flush=True)
        (options.output / "memory_caps.json").write_text(json.dumps(results, indent=1))
    print(table(results))


def compile_placers() -> None:
    """Once, on a small problem: compiling must not count against the first model."""
    from placewright.api import load, place

    problem = load("zoo:mobilenet", cluster="h200-xeon")
    for placer in PLACERS:
        place(problem, placer=placer, budget=0.1)


def _out_of_time(*_) -> None:
    raise TimeoutError("the model took more than its share of the time")


def warm_libraries(device: str) -> None:
    """Let libraries allocate what they keep for good, in both threads that call ops, before anything is counted."""
    import torch

    from placewright.execute.torch import TorchRun

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.Flatten(), torch.nn.Linear(64 * 36, 64)).eval()
    x = torch.randn(1, 3, 8, 8)
    program = torch.export.export(net, (x,))
    names = [n.name for n in program.graph.nodes if n.op == "call_function"]
    with torch.inference_mode():
        net(x)
    for where in ("b", "ab"):
        for use_graphs in (False, True):
            placed = {n: where[min(i, len(where) - 1)] for i, n in enumerate(names)}
            run = TorchRun(program, placed, {"a": "cpu", "b": device}, use_graphs=use_graphs)
            run(x)
            run.close()
    with torch.inference_mode():
        net.to(device)(x.to(device))
    torch.cuda.synchronize()


def measure_model(model, device, curve, end, options):
    """Yield a row per cap."""
    import torch

    from placewright.cluster_file import load_cluster
    from placewright.costs.measure.torch_calibration import calibrated_profile, measure_ops
    from placewright.evaluate import evaluate
    from placewright.execute.torch_weights import WeightStore
    from placewright.frontends.registry import read_model
    from placewright.problem import Rule, build_problem
    from placewright.zoo import zoo_module

    module, inputs = zoo_module(model)
    program = torch.export.export(module.eval(), tuple(inputs))
    graph = read_model(program, {})
    store = WeightStore(program)
    times = measure_ops(program, graph, inputs, device, store, passes=3)
    store.forget("cuda")
    cluster = load_cluster("h200-xeon")
    pins = tuple(
        Rule("pin", f"^{n.name}$", "cpu")
        for n in program.graph.nodes
        if n.op == "placeholder" and n.name in graph.index_of
    )
    profile = calibrated_profile(graph, cluster, times, curve, use_graphs=True)
    problem = build_problem(graph, cluster, profile, rules=pins)
    gpu = int(np.flatnonzero(~cluster.is_host)[0])
    everywhere = np.where(problem.allowed[:, gpu], gpu, 1 - gpu).astype(np.int32)
    need = float(evaluate(problem, everywhere).memory_bytes[gpu])
    setting = Setting(model, module, program, graph, inputs, device, problem, gpu, everywhere, times, curve, need)
    plain_cpu = Plain(module, inputs, "cpu")
    plain_gpu = Plain(copy.deepcopy(module), inputs, device)
    allowance = max(0.0, plain_gpu.peak_bytes - need)
    expected = plain_cpu.outputs()
    for cap in CAPS:
        if time.monotonic() > end:
            return
        yield measure_cap(setting, cap, plain_cpu, plain_gpu, allowance, expected, end, options)


class Setting:
    """All that belongs to one model."""

    def __init__(
        self, model, module, program, graph, inputs, device, problem, gpu, everywhere, times, curve, need
    ) -> None:
        self.model, self.module, self.program, self.graph, self.inputs = model, module, program, graph, inputs
        self.device = device
        self.problem, self.gpu, self.everywhere, self.times, self.curve, self.need = (
            problem, gpu, everywhere, times, curve, need,
        )  # fmt: skip


class Plain:
    """A torch module as it is, on one device or as Accelerate dispatches it."""

    def __init__(self, module, inputs, device, prepare=None) -> None:
        import torch

        self._is_cuda = torch.cuda.is_available() and device != "cpu"
        self._inputs = inputs
        self._device = device
        before = torch.cuda.memory_allocated() if self._is_cuda else 0
        self._module = prepare(module) if prepare else module.to(device)
        if self._is_cuda:
            torch.cuda.reset_peak_memory_stats()
        for _ in range(2):
            start = time.monotonic()
            self()
            self.seconds = time.monotonic() - start
        self.peak_bytes = torch.cuda.max_memory_allocated() - before if self._is_cuda else 0

    def __call__(self):
        import torch

        with torch.inference_mode():
            result = self._module(*[x.to(self._device) for x in self._inputs])
        if self._is_cuda:
            torch.cuda.synchronize()
        return result

    def outputs(self):
        result = self()
        return [o.cpu() for o in (result if isinstance(result, tuple) else (result,))]


class Ours:
    """A placement run by the executor, with the ops whose weights are streamed."""

    def __init__(self, setting, placement, streamed=(), window_bytes=0, use_graphs=True) -> None:
        import torch

        from placewright.evaluate import timeline
        from placewright.execute.torch import TorchRun

        problem, names = setting.problem, setting.problem.cluster.device_names
        self._inputs = setting.inputs
        is_cuda = setting.device != "cpu"
        gc.collect()
        before = torch.cuda.memory_allocated() if is_cuda else 0
        if is_cuda:  # while a graph is being recorded, too: what it uses later does not show
            torch.cuda.reset_peak_memory_stats()
        planned = {setting.graph.op_names[s.op]: s.start_s for s in timeline(problem, placement) if s.op >= 0}
        placed = {op: names[d] for op, d in zip(setting.graph.op_names, placement.tolist(), strict=True)}
        devices = {n: "cpu" if problem.cluster.is_host[i] else setting.device for i, n in enumerate(names)}
        self._run = TorchRun(
            setting.program,
            placed,
            devices,
            planned,
            streamed=streamed,
            window_bytes=window_bytes,
            use_graphs=use_graphs,
            copies_outputs=False,
        )
        self()
        self.graphs = "CUDA graphs" if self._run.uses_graphs else f"eager ({self._run.graph_failure or 'chosen'})"
        self.peak_bytes = torch.cuda.max_memory_allocated() - before if is_cuda else 0

    def __call__(self):
        return self._run(*self._inputs)

    def outputs(self):
        return [o.cpu() for o in self()]

    def close(self) -> None:
        self._run.close()


def measure_cap(setting, cap, plain_cpu, plain_gpu, allowance, expected, end, options) -> dict:
    from placewright.costs.measure.torch_calibration import median_s
    from placewright.execute.measure import compare, measure_in_turns

    limit = cap * setting.need
    accelerate, note = dispatched(setting, limit, allowance)
    tried, best = [], None

    def is_over(run) -> bool:
        return bool(run.peak_bytes > (limit + allowance) * 1.05 + 2**20)

    ranked = sorted(candidates(setting, limit, options), key=lambda c: c[0])
    for place, (predicted_s, what, make) in enumerate(ranked):
        if best is not None and (place >= 4 or time.monotonic() > end - 4 or predicted_s > HOPELESS * best[0]):
            break
        try:
            run = make()
            if is_over(run):  # graphs keep what crosses segments
                run.close()
                run = make(use_graphs=False)
            began = time.monotonic()
            run()
            seconds = median_s(run, *((5, 2) if time.monotonic() - began < 0.2 else (2, 0)))
        except Exception as error:
            tried.append({"what": what, "predicted_s": predicted_s, "failure": str(error)[:200]})
            continue
        tried.append({
            "what": what, "predicted_s": predicted_s, "measured_s": seconds, "peak_bytes": run.peak_bytes,
            "runs_as": run.graphs, "over": is_over(run),
        })  # fmt: skip
        if not is_over(run) and (best is None or seconds < best[0]):
            if best is not None:
                best[2].close()
            best = (seconds, what, run, predicted_s)
        else:
            run.close()
    if best is None:
        raise RuntimeError(f"none of our candidates ran: {tried}")
    _, what, ours, predicted_s = best
    variants = {"cpu": plain_cpu, "ours": ours}
    if cap == 1.0:
        variants["gpu"] = plain_gpu
    if accelerate is not None:
        variants["accelerate"] = accelerate
    differences = {
        name: max(
            float((a - b).abs().max() / b.abs().max().clamp_min(1e-9))
            for a, b in zip(v.outputs(), expected, strict=True)
        )
        for name, v in variants.items()
    }
    slowest = max(plain_cpu.seconds, accelerate.seconds if accelerate is not None else 0.0)
    repeats = int(min(options.repeats, max(5, 4.0 / slowest)))
    timings = measure_in_turns(variants, repeats, 1, should_stop=lambda: time.monotonic() > end)
    row = {
        "model": setting.model, "cap": cap, "need_bytes": setting.need, "limit_bytes": limit, "chosen": what,
        "runs_as": ours.graphs, "predicted_s": predicted_s, "tried": tried, "accelerate_note": note,
        "allowance_bytes": allowance, "differences": differences,
        "peak_bytes": {n: v.peak_bytes for n, v in variants.items()},
        "measured": {n: [t.median_s, t.low_s, t.high_s] for n, t in timings.items()},
        "rounds": len(timings["ours"].samples_s),
    }  # fmt: skip
    row["against"] = {
        n: (lambda c: [c.gain, c.low, c.high])(compare(timings["ours"], t)) for n, t in timings.items() if n != "ours"
    }
    row["is_slower_than"] = [n for n, (gain, _, high) in row["against"].items() if high < 0 and gain < -NOISE]
    ours.close()
    return row


def dispatched(setting, limit, allowance):
    """The zoo's module under Accelerate's automatic map, within the cap; or nothing and the reason."""
    try:
        from accelerate import dispatch_model, infer_auto_device_map
    except ImportError:
        return None, "accelerate is not installed"
    if setting.device == "cpu":
        return None, "no CUDA device"
    activations = setting.need - float(setting.problem.memory_bytes.sum())
    note = "none within the cap"
    for room, how in ((limit, "max_memory = cap"), (limit - activations, "max_memory = cap less activations")):
        if room <= 0:
            continue
        module = copy.deepcopy(setting.module)
        try:
            found = infer_auto_device_map(module, max_memory={0: int(room), "cpu": 10**12})
            on_gpu = sum(d == 0 for d in found.values())
            run = Plain(
                module, setting.inputs, setting.device, lambda m, found=found: _dispatch(m, found, dispatch_model)
            )
        except Exception as error:
            note = f"failed: {str(error)[:200]}"
            continue
        if run.peak_bytes <= (limit + allowance) * 1.05 + 2**20:
            return run, f"{how}; {on_gpu} of {len(found)} modules on the GPU"
        note = f"{how}: peak {run.peak_bytes / 1e6:.0f} MB is over the cap"
    return None, note


def _dispatch(module, found, dispatch_model):
    if set(found.values()) == {0}:
        return module.to("cuda:0")
    if set(found.values()) == {"cpu"}:  # otherwise it would run on the processor; the root's name is not understood
        by_child = {name: "cpu" for name, _ in module.named_children()}
        return dispatch_model(module, by_child, main_device=0, force_hooks=True)
    return dispatch_model(module, found)


def candidates(setting, limit, options):
    """(predicted seconds, name, what makes it) of everything that fits under the limit."""
    from placewright.api import place
    from placewright.evaluate import evaluate_many

    problem = capped(setting.problem, setting.gpu, limit)
    gpu, cpu, n = setting.gpu, 1 - setting.gpu, problem.n_ops
    rows, names = [np.full(n, cpu, np.int32), setting.everywhere], ["all CPU", "all GPU"]
    for k in range(1, 40):
        first = np.arange(n) < n * k / 40
        for on_gpu, name in ((first, "first ops on the GPU"), (~first, "last ops on the GPU")):
            rows.append(np.where(on_gpu & problem.allowed[:, gpu], gpu, cpu).astype(np.int32)[problem.group_of_op])
            names.append(f"{name}, cut {k}/40")
    judged = evaluate_many(problem, np.array(rows))
    found = []
    if judged.is_valid[1]:
        found.append((float(judged.value[1]), "all GPU", lambda **how: Ours(setting, rows[1], **how)))
    found.append((float(judged.value[0]), "all CPU", lambda **how: Ours(setting, rows[0], **how)))
    order = [
        int(i) for i in np.argsort(np.where(judged.is_valid, judged.value, np.inf)) if i > 1 and judged.is_valid[i]
    ]
    for i in order[:1]:
        found.append((float(judged.value[i]), names[i], lambda i=i, **how: Ours(setting, rows[i], **how)))
    if not judged.is_valid[1]:
        for placer in PLACERS:
            try:
                placed = place(problem, placer=placer, budget=options.budget)
            except Exception as error:
                print(f"  {placer}: {error}", flush=True)
                continue
            if placed.device_of_op is not None and placed.is_valid:
                row = np.asarray(placed.device_of_op, np.int32)
                found.append((float(placed.value), placer, lambda row=row, **how: Ours(setting, row, **how)))
        found += streaming(setting, limit)
    return found


def streaming(setting, limit):
    """Everything on the GPU (or all but table lookups), weights that do not fit streamed for each sample."""
    from placewright.evaluate import evaluate
    from placewright.execute.torch_weights import aligned, plan_chunks, streamed_time_s

    problem, graph, gpu = setting.problem, setting.graph, setting.gpu
    nodes = {n.name: n for n in setting.program.graph.nodes}
    weights = {}
    for name, node in nodes.items():
        if node.op == "call_function":
            own = [i for i in dict.fromkeys(node.all_input_nodes) if i.op == "placeholder" and len(i.users) == 1]
            own = [i for i in own if i.name not in graph.index_of]
            weights[name] = sum(aligned(i.meta["val"].numel() * i.meta["val"].element_size()) for i in own)
    lookups = np.array([c == "embedding" for c in graph.op_classes])[problem.group_of_op]
    kernel_s = setting.times.graphs_s()
    latency_s, bandwidth = 5e-6, 40e9
    found = []
    is_large = np.array([weights.get(op, 0) > limit / 5 for op in graph.op_names])[problem.group_of_op]
    tried = set()
    for name, on_cpu in (
        ("weights streamed", np.zeros(graph.n_ops, bool)),
        ("weights streamed, lookups on the CPU", lookups),
        ("weights streamed, lookups and large weights on the CPU", lookups | is_large),
    ):
        if on_cpu.tobytes() in tried:
            continue
        tried.add(on_cpu.tobytes())
        placement = np.where(on_cpu, 1 - gpu, setting.everywhere).astype(np.int32)
        whole = evaluate(problem, placement)
        used = float(whole.memory_bytes[gpu])
        sizes = [(i, op, weights.get(op, 0)) for i, op in enumerate(graph.op_names) if placement[i] == gpu]
        largest = max((s for _, _, s in sizes), default=0)
        for share in (2.0, 1.0):
            window = int(largest * share)
            excess = used + window - limit
            streamable = sum(s for _, _, s in sizes)
            if largest and 0 < excess <= streamable:
                break
        else:
            continue
        # Spread evenly over the model, so that copies have the whole run to hide behind.
        streamed, debt, total = [], 0.0, 0
        for i, op, size in sizes:
            debt += size * min(1.0, excess / streamable)
            if size and debt >= size / 2:
                streamed.append((i, op, size))
                debt -= size
                total += size
        for i, op, size in sorted(sizes, key=lambda s: s[2]):
            if total >= excess:
                break
            if size and all(op != o for _, o, _ in streamed):
                streamed.append((i, op, size))
                total += size
        streamed.sort()
        chunks = plan_chunks([(op, size) for _, op, size in streamed], window)
        there_s = np.where(placement == gpu, kernel_s, 0.0)
        chunk_of_op = {i: k for k, (i, _, _) in enumerate(streamed)}
        predicted = streamed_time_s(there_s.tolist(), chunk_of_op, chunks, latency_s, bandwidth)
        predicted += max(0.0, whole.value - float(there_s.sum()))  # what the CPU and copies of tensors add
        names = [op for _, op, _ in streamed]
        make = functools.partial(Ours, setting, placement, names, window)
        found.append((predicted, f"{name}, {total / 1e6:.0f} MB per sample", make))
    return found


def capped(problem, gpu, limit):
    from dataclasses import replace

    devices = tuple(
        replace(d, memory_bytes=limit) if i == gpu else replace(d, memory_bytes=math.inf)
        for i, d in enumerate(problem.cluster.devices)
    )
    return replace(problem, cluster=replace(problem.cluster, devices=devices))


def table_line(row: dict) -> str:
    def cell(name: str) -> str:
        if name not in row["measured"]:
            return row["accelerate_note"] if name == "accelerate" else "does not fit"
        median, low, high = row["measured"][name]
        peak = row["peak_bytes"][name]
        return f"{median * 1e3:.2f} ({low * 1e3:.2f} to {high * 1e3:.2f})" + (f", {peak / 1e6:.0f} MB" if peak else "")

    verdict = "slower than " + ", ".join(row["is_slower_than"]) if row["is_slower_than"] else "no"
    return (
        f"| {row['model']} | {row['cap']:.0%} of {row['need_bytes'] / 1e6:.0f} MB | {cell('cpu')} | {cell('gpu')} | "
        f"{cell('accelerate')} | {cell('ours')} | {row['chosen']}, {row['runs_as']} | {row['predicted_s'] * 1e3:.2f} | "
        f"{verdict} | {max(row['differences'].values()):.0e} |"
    )


def table(results: dict) -> str:
    lines = [
        "# GPU memory capped: all CPU, all GPU, Accelerate, ours",
        "",
        f"{results['device']}, {results['machine']}, torch {results['torch']}. `{results['command']}`",
        "",
        "Median ms of runs in turns (95% interval), and the measured peak of GPU memory. Details: "
        "`benchmarks/h200_memory_caps.py`.",
        "",
        "| model | GPU memory | all CPU | all GPU | Accelerate | ours | our choice | predicted ms | "
        "slower beyond noise? | largest output difference |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *[table_line(row) for row in results["rows"]],
    ]
    slower = [r for r in results["rows"] if r["is_slower_than"]]
    lines += ["", f"{len(results['rows'])} cases, ours slower than another beyond noise in {len(slower)}."]
    lines += [f"Not measured: {model}: {why}." for model, why in results["failures"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
