"""Files from strangers: whatever is wrong with one, its reader says so in one line that names the file."""

from __future__ import annotations

import json
import sqlite3
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placewright import build_graph, load, place
from placewright.apart import Apart, Ended
from placewright.cluster_file import load_cluster
from placewright.constraints import read_constraints
from placewright.costs.measure.journal import Journal
from placewright.documents import decoded_json
from placewright.errors import InputError
from placewright.execute.memo import Measurement, Memo
from placewright.files import read_json
from placewright.frontends.registry import read_model
from placewright.placement import read_placement
from placewright.problems import Rule
from placewright.reading import reading
from placewright.saved import open_placement

DIGITS = "9" * 5000


def refused(read: Callable[[], Any], file: str) -> str:
    """What the reader says: one line with the file's name, and nothing but an ``InputError``."""
    with pytest.raises(InputError) as caught:
        read()
    message = str(caught.value)
    assert file in message
    assert message.isprintable()
    return message


def test_the_door_lets_nothing_else_out() -> None:
    for error in (
        KeyError("x"),
        OverflowError("a\nb"),
        RecursionError(),
        MemoryError(),
        OSError(5, "Input/output error"),
    ):
        with pytest.raises(InputError) as caught, reading("f.json", "a profile"):
            raise error
        assert str(caught.value).startswith("f.json: ")
        assert str(caught.value).isprintable()
        assert caught.value.__cause__ is error
    with pytest.raises(InputError, match=r"^f\.json: unknown 'a\\nb'$"), reading("f.json", "a profile"):
        raise InputError("unknown 'a\nb'")
    with pytest.raises(KeyboardInterrupt), reading("f.json", "a profile"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("text", ["[" * 100_000, f"[{DIGITS}]", "[" * 65 + "]" * 65])
def test_documents_have_limits(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not valid JSON"):
        decoded_json(text, "d.json")


def test_files_have_a_largest_size(tmp_path: Path) -> None:
    file = tmp_path / "large.json"
    with file.open("wb") as stream:
        stream.truncate(64 * 2**20 + 1)
    assert "larger than 64 MiB" in refused(lambda: read_json(file), "large.json")


MEMO_ROWS = ["null", "1", "'x'", "'[null]'", f"'[{DIGITS}]'", "'" + "[" * 100_000 + "'", "'{}'", "x'ff'", "'[-1]'"]


@pytest.mark.parametrize("value", MEMO_ROWS)
def test_memo_rows(value: str, tmp_path: Path) -> None:
    file = tmp_path / "memo.db"
    with Memo(file, "here") as memo:
        memo.add("p", Measurement((1.0,)))
    with sqlite3.connect(file) as database:
        database.execute("pragma writable_schema=on")
        database.execute("update sqlite_master set sql = replace(sql, ' not null', '')")
    with sqlite3.connect(file) as database:
        database.execute(f"update measurement set samples_s = {value}")
        database.execute(f"insert into assignment values ('here', 'p', {value})")
    with Memo(file, "here") as memo:
        refused(lambda: memo.find("p"), "memo.db")
        if value != "'{}'":
            refused(memo.assignments, "memo.db")


@pytest.mark.parametrize(
    "change",
    [
        "drop table measurement; create table measurement(context)",
        "create trigger t before insert on measurement begin select raise(abort, 'no'); end",
        "drop table measurement; create view measurement as "
        "with recursive n(x) as (select 1 union all select x from n) "
        "select x as context, x as placement, x as samples_s, x as failure, x as made_at from n",
        "create table another(x)",
    ],
)
def test_memo_schemas(change: str, tmp_path: Path) -> None:
    file = tmp_path / "memo.db"
    Memo(file, "here").close()
    with sqlite3.connect(file) as database:
        database.executescript(change)
    assert "not a file of measurements" in refused(lambda: Memo(file, "here"), "memo.db")


def test_a_refused_memo_is_let_go(tmp_path: Path) -> None:
    """The error may be kept for long; the database is not locked by it."""
    file = tmp_path / "memo.db"
    Memo(file, "here").close()
    with sqlite3.connect(file) as database:
        database.execute("pragma journal_mode=delete")
        database.execute("create table another(x)")
    with pytest.raises(InputError) as caught:
        Memo(file, "here")
    database = sqlite3.connect(file, timeout=0.0)
    database.execute("pragma locking_mode=exclusive")
    database.execute("drop table another")
    database.close()
    Memo(file, "here").close()
    assert caught.value.__traceback__ is not None


def test_damaged_memo_pages(tmp_path: Path) -> None:
    file = tmp_path / "memo.db"
    with Memo(file, "here") as memo:
        for i in range(500):
            memo.add(f"p{i}", Measurement((1.0,)))
    content = bytearray(file.read_bytes())
    content[4096 : len(content)] = b"\xff" * (len(content) - 4096)
    file.write_bytes(content)

    def read() -> None:
        with Memo(file, "here") as memo:
            memo.find("p1")
            memo.assignments()

    refused(read, "memo.db")


@pytest.mark.parametrize(
    "text",
    [
        f'[[device]]\nkind = "gpu"\ncount = {DIGITS}',
        f'[[device]]\nkind = "gpu"\ncount = 0x{"f" * 5000}',
        f'[[device]]\nkind = "gpu"\nmemory = 0x{"f" * 5000}',
        f'[[device]]\nkind = "gpu"\nruntime_device = 0x{"f" * 5000}',
        f"name = 0x{'f' * 5000}",
        'name = ["x"]\n[[device]]\nkind = "gpu"',
        "x = " + "[" * 1000,
        "\n".join(f'[[device]]\nkind = "k{i}"\ncount = 1000' for i in range(2)),
        'format = "placewright-profile/1"',
    ],
)
def test_clusters_and_constraints(text: str, tmp_path: Path) -> None:
    file = tmp_path / "box.toml"
    file.write_text(text)
    refused(lambda: load_cluster(str(file)), "box.toml")
    refused(lambda: read_constraints(file), "box.toml")


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Any, Path, dict[str, Any]]:
    problem = load("zoo:chain?ops=3", cluster="p100x2")
    file = tmp_path / "p.json"
    place(problem, placer="single").save(file)
    return problem, file, json.loads(file.read_text())


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("execution",), [[]]),
        (("execution",), "a\nb"),
        (("objective",), {}),
        (("priority",), {"softmax_0": 10**400, "relu_1": 1, "add_2": 2}),
        (("assignment", "softmax_0"), [[]]),
        (("problem", "options", "max_segments"), 2**63),
        (("problem", "options", "max_segments"), 2**62),
        (("problem", "options", "max_segments"), 0),
        (("problem", "options", "max_replicas"), -1),
        (("problem", "options", "contiguous"), {"a": 1}),
        (("problem", "options", "contiguous"), "no"),
        (("problem", "options", "track_activations"), ""),
        (("problem", "options", "schedule"), "x"),
        (("problem", "options", "communication"), 3),
        (("problem", "options", "rules"), [{"action": "pin", "pattern": "(", "target": "gpu0"}]),
        (("problem", "cluster"), "nowhere"),
        (("problem", "shapes"), {"x": [10**400]}),
        (("placer",), {}),
        (("measured",), {"runtime": "torch"}),
    ],
)
def test_placements(where: tuple[str, ...], value: Any, saved: tuple[Any, Path, dict[str, Any]]) -> None:
    problem, file, document = saved
    part = document
    for name in where[:-1]:
        part = part[name]
    part[where[-1]] = value
    file.write_text(json.dumps(document))
    refused(lambda: open_placement(file), "p.json")
    if where[0] in ("priority", "assignment", "placer"):
        refused(lambda: read_placement(file, problem), "p.json")


@pytest.mark.parametrize("pattern", ["(x+x+)+y", "(x|xx)*y", "x*x*x*x*x*x*y", r"(.*)*\\1y"])
def test_patterns_that_take_for_ever(pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placewright.patterns.LIMIT_S", 1.0)
    graph, _ = build_graph("names", ["x" * 2000, "b"], [(0, 4.0, [1])])
    problem = load(graph, cluster="p100x2")
    (tmp_path / "wishes.toml").write_text(f'[[pin]]\nops = "{pattern}"\ndevice = "cpu0"')
    wished = read_constraints(tmp_path / "wishes.toml").applied(problem)
    assert "too hard" in refused(lambda: wished.allowed, "wishes.toml")


def test_patterns_inside_patterns_are_found(saved: tuple[Any, Path, dict[str, Any]]) -> None:
    problem, _, _ = saved
    for pattern in (r"^(\w+_)*\d$", "(s|r)+"):
        wished = problem.with_options(rules=(Rule("pin", pattern, "cpu0"),))
        assert (~wished.allowed).any()


@pytest.mark.parametrize("value", [10**400, "x", None, -1.0, [], True])
def test_journals(value: Any, tmp_path: Path) -> None:
    file, settings = tmp_path / "j.partial", {"model": "m"}
    Journal(file, settings).add("passes gpu", [1.0, 2.0, 3.0])
    assert Journal(file, settings, resume=True).found("passes gpu") == [[1.0, 2.0, 3.0]]
    for key, finding in (
        ("passes gpu", [1.0, value]),
        ("setting gpu", value),
        ("setting gpu", [["r", "d", value if value is not True else 1.5, "p", "s"], []]),
        ("curve gpu - host", ["gpu", "host", 8, value]),
    ):
        Journal(file, settings).add("passes gpu", [1.0, 2.0, 3.0])
        with file.open("a") as stream:
            stream.write(json.dumps([key, finding]) + "\n")
        refused(lambda: Journal(file, settings, resume=True), "j.partial")


def test_what_run_printed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from placewright.cli.main import run

    for text in ("[]", "{}", f'{{"measured_s": {DIGITS}}}', '{"measured_s": 1e400}'):
        (tmp_path / "run.json").write_text(text)
        assert run(["report", str(tmp_path / "p.json"), "--run", str(tmp_path / "run.json")]) == 2
        error = capsys.readouterr().err
        assert "run.json" in error
        assert error.count("\n") == 1


def if_model(change: Callable[[Any], None], tmp_path: Path) -> Path:
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    def branch(name: str) -> Any:
        made = helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0])
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node("Constant", [], [name], value=made)], name, [], [value])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("a"), else_branch=branch("b"))
    change(node)
    after = helper.make_node("Einsum", ["y"], ["z"], equation="1")
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node, after], "g", [value("c", TensorProto.BOOL, [])], [value("z", TensorProto.FLOAT, None)]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "if.onnx")
    return tmp_path / "if.onnx"


def test_bodies_that_are_no_graphs(tmp_path: Path) -> None:
    def wrong_type(number: int) -> Callable[[Any], None]:
        return lambda node: setattr(node.attribute[0], "type", number)

    def without(node: Any) -> None:
        del node.attribute[0]

    for change in (wrong_type(1), wrong_type(3), wrong_type(10), without):  # FLOAT, STRING, GRAPHS
        file = if_model(change, tmp_path)
        refused(lambda file=file: read_model(file), "if.onnx")


@pytest.mark.parametrize("op_type", ["Loop", "Scan"])
def test_loops_without_bodies(op_type: str, tmp_path: Path) -> None:
    def loop(node: Any) -> None:
        node.op_type = op_type
        del node.attribute[:]

    refused(lambda: read_model(if_model(loop, tmp_path)), "if.onnx")


def test_a_trip_count_with_too_few_bytes(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["again"])],
        "body",
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, [])],
        [value("again", TensorProto.BOOL, [])],
    )
    trip = TensorProto(name="n", data_type=TensorProto.INT64, raw_data=b"\1\0")
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "c"], [], body=body), helper.make_node("Not", ["c"], ["z"])],
        "g",
        [value("c", TensorProto.BOOL, [])],
        [value("z", TensorProto.BOOL, [])],
        [trip],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "loop.onnx")
    refused(lambda: read_model(tmp_path / "loop.onnx"), "loop.onnx")


def test_functions_that_double_each_other(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]

    def function(i: int) -> Any:
        inner = ("", "Relu") if i == 0 else ("f", f"F{i - 1}")
        nodes = [
            helper.make_node(inner[1], ["x"], ["a"], domain=inner[0]),
            helper.make_node(inner[1], ["a"], ["y"], domain=inner[0]),
        ]
        return helper.make_function("f", f"F{i}", ["x"], ["y"], nodes, opsets)

    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("F40", ["x"], ["y"], domain="f")],
        "g",
        [value("x", TensorProto.FLOAT, [1])],
        [value("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=opsets, functions=[function(i) for i in range(41)])
    onnx.save(model, tmp_path / "laughs.onnx")
    assert "expected at most 1000000" in refused(lambda: read_model(tmp_path / "laughs.onnx"), "laughs.onnx")


def test_processes_apart_end(tmp_path: Path) -> None:
    """What hangs, crashes or takes too much memory is ended; the next question goes to another process."""
    script = tmp_path / "apart.py"
    script.write_text(
        textwrap.dedent("""
        import ctypes, json, sys
        sys.path[:] = json.loads(sys.argv[1])
        from placewright.apart import serve
        def answer(question):
            if question == b"hang":
                while True:
                    pass
            if question == b"crash":
                ctypes.string_at(0)
            if question == b"memory":
                return len(bytearray(2**32))
            if question == b"error":
                raise ValueError("no")
            print("what libraries print is no answer")
            return question * 2
        serve(answer, int(sys.argv[2]))
        """)
    )
    for question, reason in ((b"hang", "longer than 1 s"), (b"crash", "signal"), (b"memory", "2 GiB of memory")):
        with Apart(script) as process:
            assert process.ask(b"a", 60) == b"aa"
            with pytest.raises(Ended, match=reason):
                process.ask(question, 1 if question == b"hang" else 60)


def test_a_script_without_a_main_guard_reads_onnx(tmp_path: Path) -> None:
    file = if_model(lambda node: None, tmp_path)
    script = tmp_path / "script.py"
    script.write_text(f"import placewright\nprint('begins')\nprint(placewright.load({str(file)!r}).n_ops)\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == "begins\n3\n"


HF = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 64,
}
HF_CHANGES: list[dict[str, Any]] = [
    {"num_hidden_layers": 2147483648},
    {"num_hidden_layers": 257},
    {"num_local_experts": 1024, "num_hidden_layers": 100},
    {"architectures": -1},
    {"architectures": [["x"]]},
    {"architectures": [float("nan")]},
    {"torch_dtype": 2},
    {"dtype": "int8"},
    {"num_hidden_layers": -1},
    {"num_key_value_heads": 7},
    {"num_attention_heads": 1, "hidden_size": None},
    {"auto_map": {"AutoConfig": "evil--code.Config"}, "model_type": "unheard-of"},
    {"attn_implementation": "evil/kernel"},
]


@pytest.mark.parametrize("change", HF_CHANGES, ids=lambda change: next(iter(change)))
def test_checkpoint_folders(change: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    from placewright.live.hf import problem_in_this_process

    (tmp_path / "config.json").write_text(json.dumps({**HF, **change}))
    refused(lambda: problem_in_this_process(f"hf:{tmp_path}"), str(tmp_path))


def test_a_checkpoint_folder_is_read_apart(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    (tmp_path / "config.json").write_text(json.dumps(HF))
    assert load(f"hf:{tmp_path}").n_ops > 3
    (tmp_path / "config.json").write_text(json.dumps({**HF, "num_key_value_heads": 7}))
    refused(lambda: load(f"hf:{tmp_path}"), str(tmp_path))


def policy_file(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """A policy that ``train`` could have written, changed."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    from placewright.placers.learned.features import Vocabulary
    from placewright.placers.learned.hsdag import new_policy
    from placewright.placers.learned.hsdag_settings import settings_for

    problem = load("zoo:chain?ops=3", cluster="p100x2")
    settings, vocabulary = settings_for("ours"), Vocabulary.of([problem.graph])
    network, _ = new_policy(settings, vocabulary, problem.n_devices, 0)
    weights = {name: t.detach().clone() for name, t in network.state_dict().items()}
    header: dict[str, Any] = {"settings": settings.document(), "op_types": list(vocabulary.op_types), "history": {}}
    change(header, weights)
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in header.items()}
    save_file(
        {n: t if isinstance(t, torch.Tensor) else torch.tensor(t) for n, t in weights.items()},
        path,
        {"format": "placewright-policy/1", "placer": "hsdag", **texts},
    )
    return path


POLICY_CHANGES: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "shape": lambda h, w: w.update({next(iter(w)): [1.0]}),
    "missing": lambda h, w: w.pop(next(iter(w))),
    "more": lambda h, w: w.update(extra=[1.0]),
    "type": lambda h, w: w.update({next(iter(w)): w[next(iter(w))].to(int)}),
    "not a number": lambda h, w: w[next(iter(w))].fill_(float("nan")),
    "huge weight": lambda h, w: w[next(iter(w))].fill_(1e30),
    "unknown setting": lambda h, w: h["settings"].update(sparkle=1),
    "unknown block": lambda h, w: h["settings"]["blocks"].update(sparkle=1),
    "no blocks": lambda h, w: h["settings"].pop("blocks"),
    "text for a size": lambda h, w: h["settings"].update(hidden="32"),
    "text for a rate": lambda h, w: h["settings"].update(learning_rate="fast"),
    "text for a flag": lambda h, w: h["settings"].update(directed="no"),
    "huge size": lambda h, w: h["settings"].update(hidden=2**40),
    "negative size": lambda h, w: h["settings"].update(batch=-1),
    "choice": lambda h, w: h["settings"].update(update="unheard-of"),
    "settings": lambda h, w: h.update(settings="[" * 100_000),
    "types": lambda h, w: h.update(op_types=[1]),
}


@pytest.mark.parametrize("name", POLICY_CHANGES)
def test_policies(name: str, tmp_path: Path) -> None:
    file = policy_file(tmp_path / "policy.safetensors", POLICY_CHANGES[name])
    problem = load("zoo:chain?ops=3", cluster="p100x2")
    refused(lambda: place(problem, "hsdag", policy=str(file), budget=0.1), "policy.safetensors")


def test_policy_headers(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    from placewright.placers.learned.policy_file import load_policy

    file = tmp_path / "policy.safetensors"
    for content in (b"", struct.pack("<Q", 2**60), struct.pack("<Q", 4) + b"[1,]", struct.pack("<Q", 2) + b"{}"):
        file.write_bytes(content)
        refused(lambda: load_policy(file, "hsdag"), "policy.safetensors")


def stored_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside a checkpoint's state."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, part in entries for p in stored_paths(part, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], change: Any) -> Any:
    if not path:
        return change(value)
    parts = dict(value) if isinstance(value, dict) else list(value)
    if change is None and len(path) == 1:
        del parts[path[0]]
    else:
        parts[path[0]] = replaced(parts[path[0]], path[1:], change)
    return parts


def school(placer: str) -> Any:
    pytest.importorskip("torch")
    from placewright.placers.learned.schooling import new_school

    return new_school(placer, [load("zoo:chain?ops=6", cluster="p100x2")], 200, 1)


@pytest.mark.parametrize("placer", ["hsdag", "gdp"])
def test_checkpoints(placer: str, tmp_path: Path) -> None:
    """Every part of a checkpoint taken out or replaced: refused, or as good as it was for the next step."""
    torch = pytest.importorskip("torch")
    from placewright.placers.learned.schooling import checkpoint_of

    began = school(placer)
    for _ in range(4):
        began.step()
    checkpoint = checkpoint_of(began, tmp_path / "policy")
    checkpoint.save(began, now=True)
    whole = torch.load(checkpoint.path, weights_only=True)
    learner = school(placer)
    assert checkpoint.load(learner)

    def larger(value: Any) -> Any:
        return value + 1000 if isinstance(value, torch.Tensor) and not value.is_floating_point() else [[]]

    def message(path: tuple[Any, ...], change: Any) -> str:
        torch.save({**whole, "state": replaced(whole["state"], path, change)}, checkpoint.path)
        try:
            checkpoint.load(learner)
        except InputError as error:
            return str(error)
        learner.step()
        return ""

    paths = [path for path in stored_paths(whole["state"]) if path and path[-2:-1] != ("policy",)]
    changes = [None, lambda value: True, larger]
    tried = [message(path, changes[i % 3]) for i, path in enumerate(paths[i] for i in range(0, len(paths), 4))]
    told = [text for text in tried if text]
    assert all("policy.checkpoint" in text and text.isprintable() for text in told)
    assert len(told) > 0.7 * len(tried)
