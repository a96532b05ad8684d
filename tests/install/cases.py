"""What a user does first, command by command, and what each command needs beyond the plain install."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from installs import ROOT

BRINGS = {  # extras that an extra includes
    "": set(),
    "hf": {"hf", "torch"},
    "learn": {"learn", "torch"},
    "all": {"all", "openvino", "onnx", "torch", "hf", "learn", "exact", "partition"},
}
ALWAYS: tuple[frozenset[str], ...] = (frozenset(),)
SMALL = "zoo:fork-join?blocks=1"
REAL = "zoo:rnnlm-2?hidden=16&vocabulary=50&batch=2&steps=2"  # one that can run, and soon
LEARNED = ("hsdag", "placeto", "rnn", "gdp", "hdp")


@dataclass(frozen=True)
class Case:
    """One command. It must answer where one of ``ways`` (sets of extras) is installed, else name what is missing."""

    group: str  # column of the table; its cases share a folder
    name: str
    arguments: tuple[str, ...]  # of placewright; of python, if they begin with -c
    ways: tuple[frozenset[str], ...] = ALWAYS
    exit_code: int = 0  # other than 0: one line says why, and names no extra
    after: tuple[str, ...] = ()  # cases by name: if one of them did not answer, any line will do
    environment: tuple[tuple[str, str], ...] = ()


def need(*ways: str) -> tuple[frozenset[str], ...]:
    """Ways from words: each is a list of extras with commas.

    >>> need("onnx", "openvino,torch") == (frozenset({"onnx"}), frozenset({"openvino", "torch"}))
    True
    """
    return tuple(frozenset(way.split(",")) for way in ways)


def installed_with(extras: str) -> set[str]:
    """All extras that an install has.

    >>> sorted(installed_with("openvino,learn"))
    ['learn', 'openvino', 'torch']
    """
    return set().union(*(BRINGS.get(extra, {extra}) for extra in extras.split(",")))


def blocks(page: str, language: str) -> list[str]:
    """The code of a page in one language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[tuple[str, ...]]:
    """The arguments of the ``$ placewright`` lines of a page."""
    import shlex

    lines = re.findall(r"^\$ placewright (.*)$", "\n".join(blocks(page, "console")), re.MULTILINE)
    return [tuple(shlex.split(line)) for line in lines]


def quick_start_extras() -> str:
    """The extras that the quick start tells its reader to install."""
    text = (ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8")
    found = re.search(r"^    pip install .*'\.\[([\w,]+)\]'", text, re.MULTILINE)
    assert found, "docs/quick-start.md has no line '    pip install … '.[extras]''"
    return found[1]


def first_steps() -> list[Case]:
    """README's ten lines, and the verbs that need nothing."""
    (ten_lines,) = blocks("README.md", "python")
    return [
        Case("ten lines", "ten lines", ("-c", ten_lines)),
        Case("placers", "placers", ("placers",)),
        *(Case("models, devices", verb, (verb,)) for verb in ("models", "devices")),
    ]


def placing() -> list[Case]:
    """The default placer under every execution model, and what can be done with its answer."""
    place = ("place", SMALL, "--cluster", "laptop-npu", "--json")
    pipeline = (*place, "--objective", "throughput")
    short = ("--budget", "500ms")
    # The partitioner comes in only with more time.
    executions = {
        "overlap": (*place, *short),
        "sequential": (*place, "--execution", "sequential", *short),
        "calls": (*place, "--execution", "calls", *short),
        "pipeline": (*pipeline, *short),
        "pipeline, not contiguous": (*pipeline, "--no-contiguous", *short),
        "pipeline, not contiguous, 8 s": (*pipeline, "--no-contiguous", "--budget", "8s"),
    }
    return [
        *(Case("place", name, arguments) for name, arguments in executions.items()),
        Case("heft, report, trace", "heft", (*place, "--placer", "heft", "-o", "heft.json")),
        Case("heft, report, trace", "report", ("report", "heft.json", "-o", "heft.html"), after=("heft",)),
        Case("heft, report, trace", "trace", ("export", "heft.json", "--to", "trace", "-o", "t.json"), after=("heft",)),
    ]


def running() -> list[Case]:
    """A zoo model and a file, measured and run."""
    place = ("--cluster", "cores:2", "--budget", "500ms")
    run = ("--repeats", "1", "--samples", "2")
    profile = ("--cluster", "cores:2", "--repeats", "1")
    file = need("onnx")
    return [
        Case("run zoo", "place a model that can run", ("place", REAL, *place, "-o", "real.json")),
        Case(
            "run zoo",
            "run zoo",
            ("run", REAL, "real.json", *run),
            need("openvino,torch"),
            after=("place a model that can run",),
        ),
        Case(
            "run zoo",
            "run zoo, torch",
            ("run", REAL, "real.json", "--runtime", "torch", *run),
            need("torch"),
            after=("place a model that can run",),
        ),
        Case(
            "run zoo",
            "export to OpenVINO",
            ("export", "real.json", "--to", "openvino-affinity", "-o", "affinity.json"),
            need("openvino,torch"),
            after=("place a model that can run",),
        ),
        Case("profile zoo", "profile zoo", ("profile", REAL, *profile, "-o", "real-profile.json"), need("torch")),
        Case("model.onnx", "place file", ("place", "model.onnx", *place, "-o", "file.json"), file),
        Case("model.onnx", "place file, heft", ("place", "model.onnx", *place, "--placer", "heft"), file),
        Case(
            "model.onnx",
            "profile file",
            ("profile", "model.onnx", *profile, "-o", "file-profile.json"),
            need("onnx,openvino"),
        ),
        Case(
            "model.onnx",
            "run file",
            ("run", "model.onnx", "file.json", *run),
            need("onnx,openvino"),
            after=("place file",),
        ),
        Case(
            "model.onnx",
            "run file, onnxruntime",
            ("run", "model.onnx", "file.json", "--runtime", "onnxruntime", *run),
            file,
            after=("place file",),
        ),
    ]


def page(group: str, path: str, ways: tuple[frozenset[str], ...]) -> list[Case]:
    """The commands of a page in their order; each counts on those before it."""
    found: list[Case] = []
    for number, arguments in enumerate(commands(path), start=1):
        after = tuple(case.name for case in found)
        found.append(Case(group, f"{group} {number}, {arguments[0]}", arguments, ways, after=after))
    assert found, f"{path} has no commands"
    return found


def exit_codes() -> list[Case]:
    """Codes 2, 3 and 4; 0 is that of all other answers."""
    place = ("place", "--budget", "500ms")
    throughput = ("--objective", "throughput")
    return [
        Case("exit codes", "no such file", (*place, "missing.onnx"), exit_code=2),
        Case("exit codes", "no such model", (*place, "zoo:fork-jion"), exit_code=2),
        Case("exit codes", "no such option", (*place, SMALL, "--placr", "heft"), exit_code=2),
        Case("exit codes", "anneal cannot", (*place, SMALL, "--placer", "anneal", *throughput), exit_code=2),
        Case(
            "exit codes", "cross-entropy cannot", (*place, SMALL, "--placer", "cross-entropy", *throughput), exit_code=2
        ),
        Case("exit codes", "infeasible", (*place, "too-big.json"), exit_code=3),
        Case("exit codes", "nothing valid found", (*place, "tight.json", "--placer", "single"), exit_code=4),
    ]


def placers() -> list[Case]:
    """Every placer by name, under an execution model that it is made for."""
    from placewright.placers.registry import BUILT_IN, get_placer_class

    special = {"cpsat": need("exact"), "partition": need("partition")}
    found = []
    for name in sorted(BUILT_IN):
        ways = need("torch") if name in LEARNED else special.get(name, ALWAYS)
        execution = get_placer_class(name).executions[0]
        objective = ("--objective", "throughput" if execution == "pipeline" else "latency", "--execution", execution)
        contiguous = ("--no-contiguous",) if name in ("local-search", "partition") else ()
        arguments = ("place", SMALL, "--cluster", "laptop-npu", "--placer", name, *objective, *contiguous)
        found.append(
            Case(
                "every placer", f"placer {name}", (*arguments, "--budget", "500ms"), ways, 2 if name == "expert" else 0
            )
        )
    return found


def compiled() -> list[Case]:
    """With kernels compiled, as a user has them."""
    environment = (("NUMBA_DISABLE_JIT", "0"),)
    place = ("place", "zoo:chain?ops=4", "--cluster", "cores:2", "--placer", "heft", "--budget", "1s", "--json")
    return [
        Case("compiled", "all evaluators", ("-c", "import placewright.placers.judges.calls"), environment=environment),
        Case("compiled", "place", place, environment=environment),
    ]


def cases_for(extras: str) -> list[Case]:
    """All cases of an install with these extras."""
    found = [*first_steps(), *placing(), *running(), *page("README", "README.md", need("onnx,openvino"))]
    if extras == quick_start_extras():
        found += page("quick start", "docs/quick-start.md", ALWAYS)
    return [*found, *exit_codes(), *placers()]


def files() -> dict[str, bytes]:
    """The files that the cases read, by name."""
    node: dict[str, Any] = {"supportedOnFpga": True, "cpuLatency": 10.0, "fpgaLatency": 1.0, "isBackwardNode": False}
    names = ("a", "b", "c")
    nodes = [{"id": i, "name": n, "size": 40.0, **node} for i, n in enumerate(names)]
    edges = [{"sourceId": i, "destId": i + 1, "cost": 0.5, "size": 8.0} for i in range(2)]
    problem = {"maxFPGAs": 2, "maxCPUs": 0, "nodes": nodes, "edges": edges}
    return {
        "model.onnx": _small_onnx(),
        "too-big.json": json.dumps({**problem, "maxSizePerFPGA": 30.0}).encode(),  # than any device
        "tight.json": json.dumps({**problem, "maxSizePerFPGA": 100.0}).encode(),  # no device takes all three
    }


def write_files(folder: Path, groups: Iterable[str]) -> None:
    """Write all files into a folder for each group of cases."""
    contents = files()
    for group in groups:
        (folder / group).mkdir()
        for name, data in contents.items():
            (folder / group / name).write_bytes(data)


def _small_onnx() -> bytes:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (8, 8, 1, 1)}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="stem", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="stem_relu"),
        helper.make_node("Conv", ["b", "w2"], ["c"], name="left", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["b", "w3"], ["d"], name="right"),
        helper.make_node("Add", ["c", "d"], ["e"], name="join"),
        helper.make_node("GlobalAveragePool", ["e"], ["y"], name="pool"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "small",
        [value("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [value("y", TensorProto.FLOAT, [1, 8, 1, 1])],
        [numpy_helper.from_array(rng.normal(size=s).astype(np.float32), n) for n, s in weights.items()],
    )
    model: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    ).SerializeToString()
    return model
