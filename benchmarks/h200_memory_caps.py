"""Zoo models under a cap of GPU memory: all CPU, all GPU, Accelerate's automatic map, and our placement, in one run.

    python benchmarks/h200_memory_caps.py --output results --seconds 240
    python benchmarks/h200_memory_caps.py --draw results/memory_caps.json > benchmarks/results/h200_memory_caps.md

A model's need is its weights plus the peak of its activations, as the evaluator counts them; caps are 100%, 50% and 25%
of it. All CPU and all GPU are plain torch. Accelerate gets the cap as max_memory; it counts weights only, so where its
measured peak breaks the cap it gets the cap less the activations. What libraries allocate for themselves (measured: the
peak of all GPU above the need) is allowed to everyone on top, and 5% and 1 MB beyond that. Ours: placements (single
devices, cuts in the model's order, lookups on the CPU, what placers find with all weights on the GPU or streamed to it)
are predicted from measured op and copy times; where weights on the GPU do not fit, as many as must be are streamed from
pinned host memory, and where tensors do not fit, some of them wait there. The best few are timed briefly, the best two
of them and all CPU in turns, and one is chosen before the run that counts. There all variants under all caps run in
turns, in random order. Results are written after each model.
"""

from __future__ import annotations

import argparse
import copy
import gc
import itertools
import json
import math
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

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
TRIED = 4  # candidates that are timed
TRIAL_S = 1.5  # for timing one of them
FINAL_S, FINAL_ROUNDS = 4.0, (3, 9)  # for timing the best of them in turns
CLOSE = 1.5  # one that took so many times what the best took is out
MIN_ROUNDS = 3  # of the run that counts, also where time is short
LEAST_REPEATS = 10  # where there is time
BEYOND = 1.05  # a measured peak may be so many times the cap
SLOW_S = 0.5  # a model that takes longer on the CPU is run less often
NOISE = 0.02  # a difference below this is none, however narrow the intervals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("results"), help="folder")
    parser.add_argument("--models", help="zoo names, separated by commas")
    parser.add_argument("--seconds", type=float, default=240.0, help="for everything")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--budget", type=float, default=1.5, help="seconds per placer run")
    parser.add_argument("--small", action="store_true", help="small models")
    parser.add_argument("--draw", type=Path, nargs="+", help="results of earlier runs: only print their table")
    parser.add_argument("--join", type=Path, help="with --draw: write all rows there")
    options = parser.parse_args()
    if options.draw:
        joined = join([json.loads(path.read_text()) for path in options.draw])
        if options.join:
            options.join.write_text(json.dumps(joined, indent=1) + "\n")
        print(table(joined))
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
    results["command"] += f" --repeats {options.repeats}" + (f" --models '{options.models}'" if options.models else "")
    compile_placers()
    print(f"placers compiled, {time.monotonic() - began:.0f} s", flush=True)
    curve = measure_copies(device)
    if has_cuda:
        warm_libraries(device)
    models = (options.models or ",".join(SMALL if options.small else MODELS)).split(",")
    for number, model in enumerate(models):
        if time.monotonic() - began > options.seconds - 12:
            results["failures"][model] = "no time left"
            continue
        start = time.monotonic()
        try:
            left = began + options.seconds - start
            end = start + min(left, max(25.0, 2 * left / (len(models) - number)))
            # An export that takes minutes cannot be asked to stop.
            signal.alarm(max(1, math.ceil(end - start)) + MIN_ROUNDS * 10)
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


def join(parts: list[dict]) -> dict:
    """One result of several runs; of rows that were taken again the last counts."""
    rows = {(row["model"], row["cap"]): row for part in parts for row in part["rows"]}
    order = {model: i for i, model in enumerate(MODELS)}
    failures = {model: why for part in parts for model, why in part["failures"].items()}
    return {
        **parts[-1],
        "command": "; ".join(dict.fromkeys(part["command"] for part in parts)),
        "rows": sorted(rows.values(), key=lambda r: (order.get(r["model"], len(order)), -r["cap"])),
        "failures": {m: why for m, why in failures.items() if all((m, cap) not in rows for cap in CAPS)},
    }


def compile_placers() -> None:
    """Once, on a small problem, with and without a limit: compiling must not count against the first model."""
    from placewright.api import load, place

    problem = load("zoo:mobilenet", cluster="h200-xeon")
    gpu = int(np.flatnonzero(~problem.cluster.is_host)[0])
    for limit in (math.inf, float(problem.memory_bytes.sum()) / 2):
        for placer in PLACERS:
            place(capped(problem, gpu, limit), placer=placer, budget=0.1)


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


def measure_model(model, device, curve, end, options) -> list[dict]:
    """A row per cap."""
    import torch

    from placewright.cluster_file import load_cluster
    from placewright.costs.measure.torch_calibration import calibrated_profile, measure_ops
    from placewright.evaluate import evaluate
    from placewright.execute.measure import measure_in_turns
    from placewright.execute.torch_weights import WeightStore
    from placewright.frontends.registry import read_model
    from placewright.problems import Rule, build_problem
    from placewright.zoo import zoo_module

    module, inputs = zoo_module(model)
    program = torch.export.export(module.eval(), tuple(inputs))
    graph = read_model(program, {})
    plain_cpu = Plain(module, inputs, "cpu")
    store = WeightStore(program)
    passes, warm_up = (1, 1) if plain_cpu.seconds > SLOW_S else (3, 2)
    times = measure_ops(program, graph, inputs, device, store, passes, warm_up)
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
    setting = Setting(
        model,
        module,
        program,
        graph,
        inputs,
        device,
        problem,
        gpu,
        everywhere,
        times,
        need,
        store.by_placeholder,
        plain_cpu.seconds,
    )
    plain_gpu = Plain(copy.deepcopy(module), inputs, device)
    allowance = max(0.0, plain_gpu.peak_bytes - need)
    variants, rows = {"cpu": plain_cpu, "gpu": plain_gpu}, []
    began = time.monotonic()
    for number, cap in enumerate(CAPS, 1):
        # A third of the time is for the run that counts.
        until = began + (end - began) * 0.65 * number / len(CAPS)
        row, ours, accelerate = prepare_cap(setting, cap, allowance, until, options)
        rows.append(row)
        variants[f"ours {cap:.0%}"] = ours
        if accelerate is not None:
            variants[f"accelerate {cap:.0%}"] = accelerate
        print(f"  {model}, {cap:.0%}: {row['chosen']}; {end - time.monotonic():.0f} s left", flush=True)
    differences = {
        name: max(
            float((a - b).abs().max() / b.abs().max().clamp_min(1e-9))
            for a, b in zip(v.outputs(), plain_cpu.outputs(), strict=True)
        )
        for name, v in variants.items()
    }
    slowest = max(v.seconds for v in variants.values())
    repeats = int(min(options.repeats, max(LEAST_REPEATS, 4.0 / slowest)))
    rounds = itertools.count(1)
    timings = measure_in_turns(
        variants, repeats, 0, should_stop=lambda: next(rounds) >= MIN_ROUNDS and time.monotonic() > end
    )
    return [finished(row, variants, timings, differences) for row in rows]


def finished(row: dict, variants, timings, differences) -> dict:
    """The row with what was measured of its variants."""
    from placewright.execute.measure import compare

    at = f" {row['cap']:.0%}"
    names = {"cpu": "cpu", "ours": f"ours{at}", "accelerate": f"accelerate{at}"}
    if row["cap"] == 1.0:
        names["gpu"] = "gpu"
    names = {short: name for short, name in names.items() if name in variants}
    measured = {short: timings[name] for short, name in names.items()}
    row["differences"] = {short: differences[name] for short, name in names.items()}
    row["peak_bytes"] = {short: variants[name].peak_bytes for short, name in names.items()}
    row["measured"] = {n: [t.median_s, t.low_s, t.high_s] for n, t in measured.items()}
    row["rounds"] = len(measured["ours"].samples_s)
    comparisons = {n: compare(measured["ours"], t) for n, t in measured.items() if n != "ours"}
    row["against"] = {n: [c.gain, c.low, c.high] for n, c in comparisons.items()}
    row["is_slower_than"] = [n for n, c in comparisons.items() if c.high < 0 and c.gain < -NOISE]
    return row


class Setting(NamedTuple):
    """All that belongs to one model."""

    model: str
    module: Any
    program: Any
    graph: Any
    inputs: Any
    device: str
    problem: Any
    gpu: int
    everywhere: Any  # the placement of all that may be there on the GPU
    times: Any
    need: float  # bytes
    weights: Any  # tensors by placeholder
    cpu_s: float  # what plain torch takes on the CPU

    @property
    def names(self) -> list[str]:
        return list(self.problem.cluster.device_names)

    @property
    def gpu_name(self) -> str:
        return self.names[self.gpu]

    def placed(self, placement) -> dict[str, str]:
        """The devices of ops, by name."""
        from placewright.execute.live import devices_by_name

        return devices_by_name(self.graph, placement.tolist(), self.problem.cluster)


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
            result = self()
            self.seconds = time.monotonic() - start
            self._outputs = [o.cpu() for o in (result if isinstance(result, tuple) else (result,))]
            del result
            if self.seconds > 2 * SLOW_S and not self._is_cuda:
                break
        self.peak_bytes = torch.cuda.max_memory_allocated() - before if self._is_cuda else 0

    def __call__(self):
        import torch

        with torch.inference_mode():
            result = self._module(*[x.to(self._device) for x in self._inputs])
        if self._is_cuda:
            torch.cuda.synchronize()
        return result

    def outputs(self):
        return self._outputs


class Ours:
    """A placement run by the executor, in less memory than it needs if there is a room."""

    def __init__(self, setting, placement, room=None, use_graphs=True) -> None:
        import torch

        from placewright.evaluate import timeline
        from placewright.execute.torch import TorchRun

        problem = setting.problem
        self._inputs = setting.inputs
        is_cuda = setting.device != "cpu"
        gc.collect()
        before = torch.cuda.memory_allocated() if is_cuda else 0
        if is_cuda:  # while a graph is being recorded, too: what it uses later does not show
            torch.cuda.reset_peak_memory_stats()
        # Weights and tensors are copied in the program's order, for which that was planned.
        steps = timeline(problem, placement) if room is None else ()
        planned = {setting.graph.op_names[s.op]: s.start_s for s in steps if s.op >= 0}
        devices = {n: "cpu" if problem.cluster.is_host[i] else setting.device for i, n in enumerate(setting.names)}
        self._run = TorchRun(
            setting.program,
            setting.placed(placement),
            devices,
            planned or None,
            rooms=None if room is None else {setting.gpu_name: room},
            use_graphs=use_graphs,
            copies_outputs=False,
        )
        self()
        start = time.monotonic()
        self()
        self.seconds = time.monotonic() - start
        self.graphs = "CUDA graphs" if self._run.uses_graphs else f"eager ({self._run.graph_failure or 'chosen'})"
        self.peak_bytes = torch.cuda.max_memory_allocated() - before if is_cuda else 0

    def __call__(self):
        return self._run(*self._inputs)

    def outputs(self):
        return [o.cpu() for o in self()]

    def close(self) -> None:
        self._run.close()


def prepare_cap(setting, cap, allowance, end, options) -> tuple[dict, Ours, Plain | None]:
    """A row without what is measured, our choice under the cap, and what Accelerate makes of it."""
    from placewright.costs.measure.torch_calibration import median_s

    limit = cap * setting.need
    accelerate, note = dispatched(setting, limit, allowance)
    tried, running = [], []  # (seconds, run, what is told of it), the quickest first
    ranked = sorted(candidates(setting, limit, options), key=lambda c: c[0])

    def try_out(predicted_s, what, make) -> None:
        nonlocal running
        told = {"what": what, "predicted_s": predicted_s}
        tried.append(told)
        try:
            run = make()
            if is_over(run, limit, allowance):  # graphs keep what crosses segments
                run.close()
                run = make(use_graphs=False)
            if is_over(run, limit, allowance):  # libraries take more for these ops than was allowed for
                excess = run.peak_bytes - limit - allowance
                run.close()
                run = make(less_bytes=1.05 * excess)
            again = min(5, round(TRIAL_S / run.seconds))
            seconds = median_s(run, again, again > 2) if again > 1 else run.seconds
        except Exception as error:
            told["failure"] = str(error)[:200]
            return
        is_too_large = is_over(run, limit, allowance)
        told |= {"measured_s": seconds, "peak_bytes": run.peak_bytes, "runs_as": run.graphs, "over": is_too_large}
        if is_too_large:
            run.close()
            return
        running = sorted([*running, (seconds, run, told)], key=lambda r: r[0])
        for _, slower, other in running[2:]:
            if other["what"] != "all CPU":
                slower.close()
        running = [r for i, r in enumerate(running) if i < 2 or r[2]["what"] == "all CPU"]

    for place, candidate in enumerate(ranked):
        if running and (place >= TRIED or time.monotonic() > end or candidate[0] > HOPELESS * running[0][0]):
            break
        try_out(*candidate)
    # It may still be the best, whatever was predicted.
    all_cpu = next(c for c in ranked if c[1] == "all CPU")
    is_tried = any(told["what"] == all_cpu[1] for told in tried)
    if not is_tried and not (running and setting.cpu_s > HOPELESS * running[0][0]):
        try_out(*all_cpu)
    if not running:
        raise RuntimeError(f"none of our candidates ran: {tried}")
    ours, chosen = final(running)
    what, predicted_s = chosen["what"], chosen["predicted_s"]
    row = {
        "model": setting.model, "cap": cap, "need_bytes": setting.need, "limit_bytes": limit, "chosen": what,
        "runs_as": ours.graphs, "predicted_s": predicted_s, "tried": tried, "accelerate_note": note,
        "allowance_bytes": allowance,
    }  # fmt: skip
    return row, ours, accelerate


def final(running):
    """The quickest of several in turns: alone, and for a moment, a run may look quicker than it is."""
    from placewright.execute.measure import measure_in_turns

    close = [r for r in running if r[0] <= CLOSE * running[0][0]]
    if len(close) > 1:
        rounds = int(np.clip(FINAL_S / sum(seconds for seconds, _, _ in close), *FINAL_ROUNDS))
        timings = measure_in_turns({str(i): run for i, (_, run, _) in enumerate(close)}, rounds, 0)
        for i, (_, _, told) in enumerate(close):
            told["in_turns_s"] = timings[str(i)].median_s
        close = sorted(close, key=lambda r: r[2]["in_turns_s"])
    for _, run, _ in running:
        if run is not close[0][1]:
            run.close()
    return close[0][1:]


def is_over(run, limit, allowance) -> bool:
    """Whether a variant's measured peak breaks the cap."""
    return bool(run.peak_bytes > (limit + allowance) * BEYOND + 2**20)


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
        if not is_over(run, limit, allowance):
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
    found = [(float(judged.value[0]), "all CPU", lambda **_: Ours(setting, rows[0]))]
    order = np.argsort(np.where(judged.is_valid, judged.value, np.inf))
    best_cut = next((int(i) for i in order if i > 1 and judged.is_valid[i]), None)
    if best_cut is not None:
        found.append(fitted(setting, limit, names[best_cut], rows[best_cut]))
    if judged.is_valid[1]:
        found.append(fitted(setting, limit, "all GPU", rows[1]))
    else:
        others = [("all GPU", rows[1]), *on_both(setting, limit), *placed(problem, "", options)]
        others += placed(streamed_problem(setting, limit), ", weights streamed", options)
        others += [(names[i], rows[i]) for i in range(2, len(rows)) if i // 2 % 5 == 0]
        found += [fitted(setting, limit, name, row) for name, row in others]
    return [candidate for candidate in found if candidate is not None]


def placed(problem, how: str, options):
    """What placers find: names and placements."""
    from placewright.api import place

    for placer in PLACERS:
        try:
            answer = place(problem, placer=placer, budget=options.budget)
        except Exception as error:
            print(f"  {placer}{how}: {error}", flush=True)
            continue
        if answer.device_of_op is not None and answer.is_valid:
            yield f"{placer}{how}", np.asarray(answer.device_of_op, np.int32)


def on_both(setting, limit):
    """Everything on the GPU but lookups, large weights, or ops that read and write more than the cap."""
    from placewright.execute.torch_spills import bytes_of

    problem, graph, gpu = setting.problem, setting.graph, setting.gpu
    nodes = [n for n in setting.program.graph.nodes if n.name in graph.index_of]
    lookups, large, too_large = np.zeros((3, graph.n_ops), bool)
    for node in nodes:
        i, read = graph.index_of[node.name], dict.fromkeys(node.all_input_nodes)
        lookups[i] = graph.op_classes[i] == "embedding"
        large[i] = sum(setting.weights[r.name].nbytes for r in read if r.name in setting.weights) > limit / 5
        too_large[i] = sum(bytes_of(n.meta.get("val")) for n in (node, *read)) > limit
    seen = set()
    for name, on_cpu in (
        ("lookups on the CPU", lookups),
        ("lookups and large weights on the CPU", lookups | large),
        ("what does not fit on the CPU", too_large),
        ("lookups and what does not fit on the CPU", too_large | lookups),
    ):
        on_cpu = on_cpu.copy()
        for node in reversed(nodes):  # a view of a weight goes with its reader
            users = [graph.index_of[u.name] for u in node.users if u.name in graph.index_of]
            if users and node.all_input_nodes and all(r.name in setting.weights for r in node.all_input_nodes):
                on_cpu[graph.index_of[node.name]] = on_cpu[users[0]]
        if on_cpu.any() and on_cpu.tobytes() not in seen:
            seen.add(on_cpu.tobytes())
            yield name, np.where(on_cpu[problem.group_of_op], 1 - gpu, setting.everywhere).astype(np.int32)


def streamed_problem(setting, limit):
    """The problem in which weights take no memory, but a time whenever an op on the GPU is the first to read them."""
    from dataclasses import replace

    from placewright.execute.torch_room import COPY_BANDWIDTH

    problem, gpu = setting.problem, setting.gpu
    window = max((float(b) for b in problem.memory_bytes), default=0.0)
    kind = problem.cluster.device_kind[gpu]
    time_s = problem.op_time_s.copy()
    time_s[:, kind] += problem.memory_bytes / COPY_BANDWIDTH
    free = replace(problem, op_time_s=time_s, memory_bytes=np.zeros_like(problem.memory_bytes))
    return capped(free, gpu, max(limit / 4, limit - window))


def fitted(setting, limit, name, placement):
    """The placement with as much in host memory as must be, or None where that is not enough."""
    from placewright.errors import InputError
    from placewright.evaluate import evaluate
    from placewright.execute.torch_room import ops_on, plan_room

    whole = evaluate(setting.problem, placement)
    part = ops_on(setting.gpu_name, setting.program, setting.placed(placement), setting.names, setting.weights)
    # Weights that several ops read are counted with the first of them by the evaluator, wherever that is.
    tensors = float(whole.memory_bytes[setting.gpu] - setting.problem.memory_bytes[placement == setting.gpu].sum())
    need = tensors + part.weight_bytes
    kernel_s = dict(zip(setting.graph.op_names, setting.times.graphs_s().tolist(), strict=True))
    # What the CPU, and tensors that cross, add.
    added_s = max(0.0, whole.value - sum(kernel_s.get(n.name, 0.0) for n in part.ops))

    def room_within(some):
        return plan_room(part, some, kernel_s, tolerance=BEYOND - 1)

    def make(use_graphs=True, less_bytes=0.0):
        some = limit - less_bytes
        return Ours(setting, placement, room_within(some) if need > some else None, use_graphs)

    if need <= limit:
        return float(whole.value), name, make
    try:
        room = room_within(limit)
    except InputError:
        return None
    return room.time_s + added_s, f"{name}, {room.note}" if room.note else name, make


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
        f"{row['rounds']} | {verdict} | {max(row['differences'].values()):.0e} |"
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
        "rounds | slower beyond noise? | largest output difference |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *[table_line(row) for row in results["rows"]],
    ]
    slower = [r for r in results["rows"] if r["is_slower_than"]]
    lines += ["", f"{len(results['rows'])} cases, ours slower than another beyond noise in {len(slower)}."]
    lines += [f"Not measured: {model}: {why}." for model, why in results["failures"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
