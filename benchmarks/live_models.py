"""Live PyTorch models under a cap of GPU memory: all CPU, all GPU, Accelerate, splits by hand, ours, in one run.

    python benchmarks/live_models.py --output results --seconds 300
    python benchmarks/live_models.py --output results --seconds 300 --resume results/live_models.json
    python benchmarks/live_models.py --draw results/live_models.json > benchmarks/results/live_models.md

A model's need is the peak of GPU memory of all GPU, plus 5% and 64 MiB; caps are 100%, 50% and 25% of it. Weights are
random, in bf16 (GPT-2 and BERT, which classifies, in f32). Decode is one token after a prompt of 128, prefill a
prompt of 512; only the last logits are asked for where the model can. Inputs come from the CPU and results go back
there, for everyone. Accelerate gets the cap less the working memory as max_memory. By hand means forward hooks that
move tensors: the fewest layers, or the fewest feed-forward (expert) blocks, that let the rest fit are kept on the CPU
and computed there. Ours: fit for the phase, then dispatch. All variants run in turns, in random order; a turn is some
forwards after two that do not count, of decode each with another token, as models are used (those above 0.25 s: one
forward a turn, and fewer turns). Rows are written one by one. --pretend runs the same on tiny models with a GPU that is
only a name: good for trying the script.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import math
import tempfile
import time
import traceback
from contextlib import nullcontext
from pathlib import Path
from statistics import median

from h200_predicted_measured import setting_of

CAPS = (1.0, 0.5, 0.25)
PROMPT, PREFILL = 128, 512
NOISE = 0.02
RUNS_PER_TURN, ROW_S = 8, 14.0
STEADY = 1.25  # the machine's own speed, slowest over fastest during a row


def configurations(small: bool) -> dict:
    """Name: (class, configuration, weight type, phases, paths of feed-forward blocks inside a layer)."""
    import torch
    import transformers as t

    moe = {
        "vocab_size": 32000, "hidden_size": 2048, "max_position_embeddings": 4096, "intermediate_size": 4096,
        "num_hidden_layers": 12, "num_attention_heads": 16, "num_key_value_heads": 8, "num_local_experts": 16,
        "num_experts_per_tok": 2,
    }  # fmt: skip
    dense = {
        "vocab_size": 32000, "hidden_size": 3072, "max_position_embeddings": 4096, "intermediate_size": 8192,
        "num_hidden_layers": 28, "num_attention_heads": 24, "num_key_value_heads": 8,
    }  # fmt: skip
    gpt2, bert = {}, {}
    if small:
        tiny = {
            "vocab_size": 500, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
            "num_attention_heads": 4,
        }  # fmt: skip
        moe = {**moe, **tiny, "num_key_value_heads": 2, "num_local_experts": 4}
        dense = {**dense, **tiny, "num_key_value_heads": 2}
        gpt2, bert = {"vocab_size": 500, "n_embd": 64, "n_layer": 4, "n_head": 4}, tiny
    half, full = torch.bfloat16, torch.float32
    both = ("decode", "prefill")
    experts = ("mlp.experts", "block_sparse_moe")
    return {
        "moe": (t.MixtralForCausalLM, t.MixtralConfig(**moe), half, both, experts),
        "dense": (t.LlamaForCausalLM, t.LlamaConfig(**dense), half, both, ("mlp",)),
        "gpt2": (t.GPT2LMHeadModel, t.GPT2Config(**gpt2), full, both, ("mlp",)),
        "bert": (t.BertForSequenceClassification, t.BertConfig(**bert), full, ("forward",), ("intermediate", "output")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("results"), help="folder")
    parser.add_argument("--models", default="moe,dense,gpt2,bert", help="separated by commas")
    parser.add_argument("--caps", default=",".join(f"{c:g}" for c in CAPS))
    parser.add_argument("--phases", help="decode, prefill, forward; those of the model unless given")
    parser.add_argument("--seconds", type=float, default=300.0, help="for everything")
    parser.add_argument("--repeats", type=int, default=80, help="of quick variants, within 8 s a row")
    parser.add_argument("--takes", type=int, default=1, help="of a row, while the machine's own speed changes under it")
    parser.add_argument("--small", action="store_true", help="tiny models")
    parser.add_argument("--pretend", action="store_true", help="tiny models and a GPU that is only a name")
    parser.add_argument("--resume", type=Path, nargs="*", default=[], help="results: what they hold is not run again")
    parser.add_argument("--draw", type=Path, nargs="*", help="results of earlier runs: only print their table")
    parser.add_argument("--join", type=Path, help="with --draw: also write all their rows to this file")
    options = parser.parse_args()
    if options.draw:
        results = merged(options.draw)
        if options.join:
            options.join.write_text(json.dumps(results, indent=1))
        print(table(results))
        return
    options.output.mkdir(parents=True, exist_ok=True)
    if not options.pretend:
        measure_all(options)
        return
    from placewright.testing.tagged_devices import pretended_cuda

    options.small = True
    with pretended_cuda():
        measure_all(options)


def merged(paths: list[Path]) -> dict:
    """All rows of several results; of a row that was measured more than once the steadiest, of equal ones the last."""
    results: dict = {}
    rows: dict = {}
    for path in paths:
        results = json.loads(path.read_text())
        for row in results["rows"]:
            key = (row["model"], row["phase"], -row["cap"])
            if key not in rows or row.get("drift", math.inf) <= rows[key].get("drift", math.inf):
                rows[key] = row
    return {**results, "rows": [rows[key] for key in sorted(rows)]}


def measure_all(options: argparse.Namespace) -> None:
    import torch

    began = time.monotonic()
    results = {**setting_of(__file__, options.seconds), "rows": [], "failures": {}, "threads": torch.get_num_threads()}
    done = {(r["model"], r["cap"], r["phase"]) for r in merged(options.resume)["rows"]}
    results["versions"] = versions()
    compile_evaluator()
    results["compile_s"] = time.monotonic() - began
    print(f"{results['versions']}, evaluator compiled, {results['compile_s']:.0f} s", flush=True)
    end = began + options.seconds
    known = configurations(options.small)
    for name in options.models.split(","):
        phases = options.phases.split(",") if options.phases else known[name][3]
        wanted = [(float(c), p) for p in phases for c in options.caps.split(",") if (name, float(c), p) not in done]
        if not wanted:
            continue
        if time.monotonic() > end - 15:
            results["failures"][name] = "no time left"
            continue
        start = time.monotonic()
        try:
            setting = Setting(name, *known[name], options.pretend)
            built_s = time.monotonic() - start
            print(f"{name}: built, {setting.parameters / 1e9:.2f} G parameters, {built_s:.0f} s", flush=True)
            for cap, phase in wanted:
                if time.monotonic() > end - 10:
                    break
                row_start = time.monotonic()
                try:
                    row = steadiest_row(setting, cap, phase, end, options)
                    row["row_s"] = time.monotonic() - row_start
                    results["rows"].append(row)
                    print(table_line(row), flush=True)
                except Exception as error:
                    results["failures"][f"{name} {cap} {phase}"] = f"{type(error).__name__}: {str(error)[:300]}"
                    traceback.print_exc()
                free()
                (options.output / "live_models.json").write_text(json.dumps(results, indent=1))
        except Exception as error:  # one model's failure must not cost the others
            results["failures"][name] = f"{type(error).__name__}: {str(error)[:300]}"
            traceback.print_exc()
        setting = None
        free()
        print(f"  {name}: {time.monotonic() - start:.0f} s, {time.monotonic() - began:.0f} s in all", flush=True)
        (options.output / "live_models.json").write_text(json.dumps(results, indent=1))
    print(table(results))
    if results["failures"]:
        print("failures:", json.dumps(results["failures"], indent=1))


def versions() -> dict:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in ("torch", "transformers", "accelerate"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def compile_evaluator() -> None:
    """Once, on a small problem: compiling is not part of deciding."""
    import torch

    import placewright.torch as live

    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    live.fit(net, torch.ones(1, 8), devices=["cpu"])


def free() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class Control:
    """The machine's own speed, by two small jobs that never change: its processors may be shared with others."""

    def __init__(self, gpu) -> None:
        import torch

        self.weights, self.vector = torch.ones(4096, 4096), torch.ones(4096)  # 64 MiB read by the host
        self.counter = torch.zeros(8, device=gpu) if isinstance(gpu, torch.device) else torch.zeros(8)
        self.gpu = isinstance(gpu, torch.device)
        self.seconds: dict[str, list[float]] = {"host": [], "launches": []}

    def take(self) -> None:
        from placewright.execute.measure import settle
        from placewright.live.finalists import SETTLING_S

        for name, job in (("host", self._read), ("launches", self._launch)):
            settle(job, 3, SETTLING_S)
            samples = []
            for _ in range(12):
                began = time.perf_counter()
                job()
                samples.append(time.perf_counter() - began)
            self.seconds[name].append(median(samples))

    def drift(self) -> float:
        """Slowest over fastest of the times it was taken."""
        return max(max(s) / min(s) for s in self.seconds.values())

    def _read(self) -> None:
        _ = self.weights @ self.vector

    def _launch(self) -> None:
        import torch

        for _ in range(300):
            self.counter.add_(1)
        if self.gpu:
            torch.cuda.synchronize()


class Setting:
    """A model with random weights on the CPU and, if there is one, on the GPU."""

    def __init__(self, name, make, config, dtype, phases, blocks, pretend) -> None:
        import torch

        from placewright.live.transfer import TorchBackend

        self.name, self.blocks, self.pretend = name, blocks, pretend
        self.gpu = torch.device("cuda:0") if torch.cuda.is_available() else "cuda:0" if pretend else None
        self.margin_bytes = 2**16 if pretend else 2**26
        torch.manual_seed(0)
        old = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with torch.device("cpu" if pretend else self.gpu or "cpu"):
                made = make(config).eval()
        finally:
            torch.set_default_dtype(old)
        made.requires_grad_(False)
        self.parameters = sum(p.numel() for p in made.parameters())
        self.bytes = sum(p.numel() * p.element_size() for p in made.parameters())
        self.on_gpu = made if self.gpu else None
        self.on_cpu = clone(made).to("cpu") if self.gpu else made
        self.backend = TorchBackend()
        if pretend:
            from placewright.testing.tagged_devices import TaggedDevices

            self.backend = TaggedDevices(made, gpus=("cuda:0",))
            self.on_gpu = clone(made)
            for t in [*self.on_gpu.parameters(), *self.on_gpu.buffers()]:
                t.data = self.backend.store(t.data, "cuda:0")
        self.vocabulary = config.vocab_size
        self.generator = torch.Generator().manual_seed(1)
        self.prompts = {
            n: torch.randint(0, self.vocabulary, (1, n), generator=self.generator) for n in (PROMPT, PREFILL)
        }
        self.needs: dict = {}

    def inputs(self, phase) -> dict:
        import inspect

        ids = self.prompts[PREFILL if phase in ("prefill", "forward") else PROMPT]
        found = {"input_ids": ids}
        if phase == "prefill" and "logits_to_keep" in inspect.signature(self.on_cpu.forward).parameters:
            found["logits_to_keep"] = 1
        return found


def clone(model):
    """The same module again, sharing the tensors' memory."""
    import torch

    memo = {id(p): torch.nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()}
    memo.update({id(b): b.clone() for b in model.buffers()})
    return copy.deepcopy(model, memo)


class Variant:
    """A model that is run one way: a forward of its phase, inputs from the CPU and the last logits back to it."""

    def __init__(self, setting, phase, model, device) -> None:
        import torch

        from placewright.live.caches import CacheState

        self.model, self.device, self.gpu, self.backend = model, device, setting.gpu, setting.backend
        self.inputs = setting.inputs(phase)
        self.tokens, self.turn = None, 0
        self.state = None
        self.before = torch.cuda.memory_allocated() if self.gpu else 0
        if self.gpu:
            torch.cuda.reset_peak_memory_stats()
        with torch.no_grad():  # as generate does
            if phase == "decode":
                self.tokens = self.inputs["input_ids"]
                cache = self._forward({**self.inputs, "use_cache": True}).past_key_values
                self.inputs = {
                    "input_ids": self.inputs["input_ids"][:, -1:], "past_key_values": cache, "use_cache": True,
                }  # fmt: skip
                self.state = CacheState([cache])
            elif phase == "prefill":
                self.inputs["use_cache"] = True
        self.seconds = 0.0
        for _ in range(2):
            start = time.monotonic()
            self.logits = self()
            self.seconds = time.monotonic() - start
        self.peak_bytes = torch.cuda.max_memory_allocated() - self.before if self.gpu else 0

    def _forward(self, inputs):
        with checked(self.backend):
            return self.model(**moved(inputs, self.device, self.backend))

    def __call__(self):
        import torch

        if self.tokens is not None:
            self.inputs["input_ids"] = self.tokens[:, -1 - self.turn % PROMPT, None]
            self.turn += 1
        with torch.no_grad():  # as generate does
            logits = moved(self._forward(self.inputs).logits[..., -1:, :], "cpu", self.backend)
        if self.state is not None:
            self.state.restore()
        if self.gpu:
            torch.cuda.synchronize()
        return logits


def checked(backend):
    """Pretended devices check every operator; real ones need no check."""
    from placewright.live.transfer import TorchBackend

    return nullcontext() if isinstance(backend, TorchBackend) else backend


def steadiest_row(setting, cap, phase, end, options) -> dict:
    """A row; taken again where the machine's own speed changed under it, and then the steadiest take."""
    takes = []
    while len(takes) < options.takes:
        began = time.monotonic()
        takes.append(measure_row(setting, cap, phase, end, options))
        free()
        is_steady = takes[-1]["drift"] <= STEADY
        if is_steady or 2 * time.monotonic() - began > end:
            break
        print(f"  {setting.name} {cap:.0%} {phase}: the machine changed by {takes[-1]['drift']:.2f}x", flush=True)
    row = min(takes, key=lambda r: r["drift"])
    row["takes"] = [[t["drift"], t["predicted_s"], t["measured"]["ours"][0]] for t in takes]
    return row


def measure_row(setting, cap, phase, end, options) -> dict:
    import torch

    import placewright.torch as live
    from placewright.execute.measure import compare, measure_in_turns
    from placewright.live.finalists import SETTLING_RUNS, SETTLING_S

    control = Control(setting.gpu)
    variants, notes = {"all CPU": Variant(setting, phase, setting.on_cpu, "cpu")}, {}
    base_bytes = 0
    if setting.gpu:
        base_bytes = setting.bytes
        whole = Variant(setting, phase, setting.on_gpu, "cuda:0")
        need = (setting.bytes + whole.peak_bytes) * 1.05 + setting.margin_bytes
        if cap == 1.0:
            variants["all GPU"] = whole
    else:
        need = float(setting.bytes)
    limit = cap * need
    working = (whole.peak_bytes if setting.gpu else 0) + 0.02 * limit
    control.take()
    start = time.monotonic()
    ours_model = clone(setting.on_cpu)
    settings = {"memory": {"cuda:0": limit}, "devices": ["cuda:0", "cpu"]} if setting.gpu else {}
    with checked(setting.backend):
        placement = live.fit(ours_model, setting.inputs(phase), phase=phase, backend=setting.backend, **settings)
    fit_s = time.monotonic() - start
    control.take()
    before = torch.cuda.memory_allocated() if setting.gpu else 0
    live.dispatch(ours_model, placement, backend=setting.backend)
    held = torch.cuda.memory_allocated() - before if setting.gpu else 0
    variants["ours"] = Variant(setting, phase, ours_model, "cpu")
    peaks = {"ours": held + variants["ours"].peak_bytes}
    if setting.gpu:
        for name, make in (
            ("layers by hand", lambda: split_by_hand(setting, limit - working, ())),
            ("blocks by hand", lambda: split_by_hand(setting, limit - working, setting.blocks)),
            ("Accelerate", lambda: accelerated(setting, limit - working)),
        ):
            if cap == 1.0 and "hand" in name:
                continue
            try:
                before = torch.cuda.memory_allocated()
                model, notes[name] = make()
                held = torch.cuda.memory_allocated() - before
                inputs_on = "cpu" if setting.pretend and name == "Accelerate" else "cuda:0"
                variants[name] = Variant(setting, phase, model, inputs_on)
                peaks[name] = held + variants[name].peak_bytes
            except Exception as error:
                notes[name] = f"failed: {type(error).__name__}: {str(error)[:200]}"
                traceback.print_exc()
    expected = variants["all CPU"].logits.float()
    reference = whole.logits.float() if setting.gpu else expected
    spread = float(expected.std())
    differences = {
        n: [float((v.logits.float() - x).abs().max()) / spread for x in (expected, reference)]
        for n, v in variants.items()
    }
    differences["CPU and GPU"] = [float((expected - reference).abs().max()) / spread]
    slow = {n: v for n, v in variants.items() if v.seconds > 0.25}
    quick = {n: v for n, v in variants.items() if n not in slow}
    timings = {}
    control.take()
    if quick:
        turns, row_end = max(1, options.repeats // RUNS_PER_TURN), min(end, time.monotonic() + ROW_S)
        timings = measure_in_turns(
            quick, turns, 0, runs_per_turn=RUNS_PER_TURN, settling_runs=SETTLING_RUNS, settling_s=SETTLING_S,
            should_stop=lambda: time.monotonic() > row_end,
        )  # fmt: skip
    control.take()
    if slow:
        together = {**slow, **({"ours": variants["ours"]} if "ours" not in slow else {})}
        rounds = int(max(3, min(options.repeats, ROW_S / sum(v.seconds for v in together.values()))))
        again = measure_in_turns(together, rounds, 1, should_stop=lambda: time.monotonic() > end)
        timings = {**again, **timings}
    placed = placement.summary()
    row = {
        "model": setting.name, "cap": cap, "phase": phase, "parameters": setting.parameters, "need_bytes": need,
        "limit_bytes": limit, "model_bytes": base_bytes, "fit_s": fit_s, "predicted_s": placement.value,
        "bound_s": placement.bound, "chosen": placement.note, "status": placement.status,
        "fit_measured": dict(placement.measured or {}), "peak_bytes": peaks, "notes": notes,
        "devices": [[d[k] for k in ("name", "memory_bytes", "memory_limit_bytes", "ops")] for d in placed["devices"]],
        "places": grouped(placement), "differences": differences,
        "drift": control.drift(), "control_s": control.seconds,
        "measured": {n: [t.median_s, t.low_s, t.high_s, len(t.samples_s)] for n, t in timings.items()},
    }  # fmt: skip
    row["against"] = {
        n: (lambda c: [c.gain, c.low, c.high])(compare(timings["ours"], t)) for n, t in timings.items() if n != "ours"
    }
    row["is_slower_than"] = [n for n, (gain, _, high) in row["against"].items() if high < 0 and gain < -NOISE]
    live.undispatch(ours_model)
    return row


def grouped(placement) -> dict:
    """Device: how many of each sort of unit, by path with numbers left out."""
    import re
    from collections import Counter

    from placewright.live.dispatch import places_of

    counts: dict = {}
    for path, device in places_of(placement).items():
        counts.setdefault(device, Counter())[re.sub(r"\.\d+", ".*", path) or "own code"] += 1
    return {d: dict(c) for d, c in counts.items()}


def split_by_hand(setting, room_bytes, blocks):
    """The fewest layers, or blocks of layers and then whole layers, on the CPU that let the rest fit."""
    import torch

    model = clone(setting.on_cpu)
    modules = dict(model.named_modules())
    layers = next(m for m in modules.values() if isinstance(m, torch.nn.ModuleList))
    numbered = list(layers)
    away: list = []
    inner = [[m for b in blocks for n, m in layer.named_modules() if n == b] for layer in numbered]
    groups = ([*reversed(inner)] if blocks else []) + [[layer] for layer in reversed(numbered)]
    total = size_of([model])
    count = 0
    while total - size_of(away) > room_bytes and count < len(groups):
        away = [m for m in away if not any(m in set(g.modules()) for g in groups[count])] + groups[count]
        count += 1
    if total - size_of(away) > room_bytes:
        raise RuntimeError("does not fit by hand")
    kept = {id(t) for m in away for t in [*m.parameters(), *m.buffers()]}
    for t in [*model.parameters(), *model.buffers()]:
        if id(t) not in kept:
            t.data = setting.backend.store(t.data, setting.gpu)
    for m in away:
        m.register_forward_pre_hook(lambda _, a, k: moved((a, k), "cpu", setting.backend), with_kwargs=True)
        m.register_forward_hook(lambda _, a, result: moved(result, setting.gpu, setting.backend))
    what = "blocks" if blocks else "layers"
    return model, f"{count} {what} of {len(numbered)} layers on the CPU"


def size_of(modules) -> float:
    tensors = {id(t): t for m in modules for t in [*m.parameters(), *m.buffers()]}
    return float(sum(t.numel() * t.element_size() for t in tensors.values()))


def moved(value, device, backend):
    """As people write it: every tensor by itself, with torch's own copy."""
    import torch

    from placewright.live.transfer import TorchBackend

    if isinstance(value, torch.Tensor):
        if isinstance(backend, TorchBackend):
            return value.to(device)
        return value if backend.is_on(value, device) else backend.move([value], device)[0]
    if isinstance(value, tuple):
        return tuple(moved(v, device, backend) for v in value)
    if type(value) is dict:
        return {k: moved(v, device, backend) for k, v in value.items()}
    return value


def accelerated(setting, room_bytes):
    """The model under Accelerate's automatic map, and the map in short."""
    from accelerate import dispatch_model, infer_auto_device_map

    model = clone(setting.on_cpu)
    no_split = getattr(model, "_no_split_modules", None) or []
    here, beyond = ("cpu", "disk") if setting.pretend else (0, "cpu")
    device_map = infer_auto_device_map(
        model, max_memory={here: int(room_bytes), beyond: "100GiB"}, no_split_module_classes=list(no_split)
    )
    counts: dict = {}
    for device in device_map.values():
        counts[str(device)] = counts.get(str(device), 0) + 1
    folder = tempfile.mkdtemp() if setting.pretend else None
    return dispatch_model(model, device_map=device_map, offload_dir=folder), f"modules by device: {counts}"


def table(results: dict) -> str:
    lines = [
        "# Live models under a cap of GPU memory", "",
        f"{results.get('device')}, {results.get('machine')}, {results.get('versions')}. `{results.get('command')}`", "",
        "Median ms of runs in turns. 'Slower' names variants that ours is slower than, beyond noise and 2%. Difference "
        "of logits: ours to all CPU, ours to all GPU (all CPU to all GPU), greatest, over the logits' spread. Drift: "
        "the machine's own speed while the row was taken, slowest over fastest; how many takes it needed.", "",
        "| model | GPU memory | phase | all CPU | all GPU | Accelerate | layers by hand | blocks by hand | ours "
        "| predicted | error | our choice | slower than | ours against Accelerate | difference of logits | fit s "
        "| drift |",
        "| --- " * 17 + "|",
    ]  # fmt: skip
    return "\n".join([*lines, *(table_line(r) for r in results["rows"])])


def table_line(row: dict) -> str:
    def cell(name: str) -> str:
        if name in row["measured"]:
            return f"{row['measured'][name][0] * 1e3:.2f}"
        return "does not fit" if name == "all GPU" else str(row["notes"].get(name, "—"))[:60]

    ours = row["measured"]["ours"][0]
    faster = f"{row['measured']['Accelerate'][0] / ours:.1f}x" if "Accelerate" in row["measured"] else "—"
    cells = [
        row["model"], f"{row['cap']:.0%}, {row['limit_bytes'] / 2**20:.0f} MiB", row["phase"],
        *(cell(n) for n in ("all CPU", "all GPU", "Accelerate", "layers by hand", "blocks by hand", "ours")),
        f"{row['predicted_s'] * 1e3:.2f}", f"{row['predicted_s'] / ours - 1:+.0%}", row["chosen"],
        ", ".join(row["is_slower_than"]) or "none", faster,
        "{:.0e}, {:.0e} ({:.0e})".format(*row["differences"]["ours"], row["differences"]["CPU and GPU"][0]),
        f"{row['fit_s']:.0f}",
        f"{row['drift']:.2f}x, {len(row['takes'])}" if "drift" in row else "not noted",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
