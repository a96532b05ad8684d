"""A ``.pt2`` file from a stranger: nothing in it runs, and what is wrong with it is one line and exit code 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from crafted_archives import (
    CRAFTED,
    MALFORMED,
    PROGRAM,
    UNREAD_BY_PLACE,
    archive_of,
    edited,
    entries_of,
    saved,
    written,
)

from placewright.cli.main import run
from placewright.errors import InputError
from placewright.frontends.registry import read_model
from placewright.frontends.torch_archive import load_program

torch = pytest.importorskip("torch")


class Shift(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c = torch.arange(4.0)

    def forward(self, x: Any) -> Any:
        return torch.relu(x) + self.c


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l, self.shift = torch.nn.Linear(4, 4), Shift()

    def forward(self, x: Any) -> Any:
        return self.shift(self.l(x))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ordinary export, and a placement of it."""
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(0)
    torch.export.save(torch.export.export(Net().eval(), (torch.zeros(1, 4),)), folder / "base.pt2")
    model, placement = str(folder / "base.pt2"), str(folder / "placement.json")
    assert run(["place", model, "--cluster", "cores:2", "--placer", "single", "-o", placement]) == 0
    return folder


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A marker that must not appear; a module that makes it lies where ``import`` looks first."""
    marker = tmp_path / "sprung"
    (tmp_path / "evil_module.py").write_text(f"import pathlib\npathlib.Path({str(marker)!r}).touch()\nC = list\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return marker


def verbs(model: Path, base: Path) -> dict[str, list[str]]:
    placement = json.loads((base / "placement.json").read_text())
    mine = model.parent / "placement.json"
    mine.write_text(json.dumps(placement).replace(str(base / "base.pt2"), str(model)))
    return {
        "place": ["place", str(model), "--cluster", "cores:2", "--placer", "single", "--json"],
        "profile": [
            "profile",
            str(model),
            "--cluster",
            "cores:1",
            "--repeats",
            "1",
            "-o",
            str(model.parent / "t.json"),
        ],
        "run": ["run", str(model), str(mine), "--repeats", "1"],
        "export": ["export", str(mine), "--model", str(model), "--to", "device-map", "-o", str(model.parent / "map")],
    }


def check_refused(
    name: str, data: bytes, base: Path, marker: Path, capsys: pytest.CaptureFixture[str], is_read: bool
) -> None:
    model = marker.parent / "crafted.pt2"
    model.write_bytes(data)
    for verb, arguments in verbs(model, base).items():
        code = run(arguments)
        errors = capsys.readouterr().err.splitlines()
        assert not marker.exists(), f"{name}: {verb} ran what is in the file"
        assert "evil_module" not in sys.modules, f"{name}: {verb} imported what the file names"
        if verb == "place" and not is_read:
            continue
        said = [
            line for line in errors if "crafted.pt2" in line and ": opening" not in line and ": loading" not in line
        ]
        assert (code, len(said)) == (2, 1), f"{name}: {verb} gave {code} and said {errors}"


@pytest.mark.parametrize("name", CRAFTED)
def test_nothing_in_a_crafted_archive_runs(
    name: str, base: Path, watched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = written(CRAFTED[name](entries_of(base / "base.pt2"), watched))
    check_refused(name, data, base, watched, capsys, not name.startswith(UNREAD_BY_PLACE))


@pytest.mark.parametrize("name", MALFORMED)
def test_archives_that_can_be_read_in_two_ways_are_refused(
    name: str, base: Path, watched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = MALFORMED[name](entries_of(base / "base.pt2"), watched)
    check_refused(name, data, base, watched, capsys, not name.startswith(UNREAD_BY_PLACE))


def test_the_traps_are_live(base: Path, watched: Path) -> None:
    """Torch itself falls for some of them, so a marker that does not appear means something."""
    data = written(CRAFTED["constant-json"](entries_of(base / "base.pt2"), watched))
    (watched.parent / "crafted.pt2").write_bytes(data)
    torch.export.load(watched.parent / "crafted.pt2")
    assert watched.exists()


def test_torch_gets_no_file_and_no_pickle(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("torch was asked to read")

    for owner, name in ((torch.export, "load"), (torch, "load"), (pickle, "loads"), (torch._C, "PyTorchFileReader")):
        monkeypatch.setattr(owner, name, never)
    program = load_program(base / "base.pt2", "base.pt2")
    assert len(program.state_dict) == 2


def test_what_is_noted_about_nodes_is_left_behind(base: Path, watched: Path) -> None:
    """Stack traces, guards and classes of modules are not read, so what they say is no reason to refuse."""

    def edit(document: Any) -> None:
        evil = f"evil_module.C\n__import__('pathlib').Path({str(watched)!r}).touch()"
        document["guards_code"] = [evil]
        document["torch_version"] = evil
        document["range_constraints"] = {evil: {"min_val": 0, "max_val": None}}
        document["graph_module"]["metadata"] = {"custom": evil}
        document["graph_module"]["treespec_namedtuple_fields"] = {evil: {"field_names": [evil]}}
        for node in document["graph_module"]["graph"]["nodes"]:
            node["metadata"] = {
                "stack_trace": evil,
                "nn_module_stack": f"{evil},{evil},{evil}",
                "source_fn_stack": f"a,{evil}",
                "torch_fn": evil,
                "custom": evil,
                "from_node": evil,
            }

    (watched.parent / "noted.pt2").write_bytes(written(edited(entries_of(base / "base.pt2"), PROGRAM, edit)))
    program = load_program(watched.parent / "noted.pt2", "noted.pt2")
    plain = load_program(base / "base.pt2", "base.pt2")
    x = torch.randn(1, 4)
    assert torch.equal(program.module()(x), plain.module()(x))
    assert not watched.exists()
    assert "evil" not in str(program)


def test_extra_files_are_not_looked_at(base: Path, watched: Path) -> None:
    torch.export.save(
        torch.export.load(base / "base.pt2"), watched.parent / "more.pt2", extra_files={"notes.txt": "evil"}
    )
    assert load_program(watched.parent / "more.pt2", "more.pt2").example_inputs[0][0].shape == (1, 4)


def test_weights_are_views_of_the_file(base: Path) -> None:
    """Tied weights share their memory, and nothing is written back to the file."""

    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
            self.b.weight = self.a.weight
            self.register_buffer("turned", torch.arange(6.0).reshape(2, 3).t())

        def forward(self, x: Any) -> Any:
            return self.b(self.a(x)) + self.turned.sum()

    path = base / "tied.pt2"
    torch.export.save(torch.export.export(Tied().eval(), (torch.ones(1, 8),)), path)
    before = path.read_bytes()
    program, expected = load_program(path, "tied.pt2"), torch.export.load(path)
    state = program.state_dict
    assert state["a.weight"].data_ptr() == state["b.weight"].data_ptr()
    assert {n: (t.shape, t.stride(), t.requires_grad, type(t)) for n, t in state.items()} == {
        n: (t.shape, t.stride(), t.requires_grad, type(t)) for n, t in expected.state_dict.items()
    }
    assert all(torch.equal(t, expected.state_dict[n]) for n, t in state.items())
    state["a.weight"].data.zero_()
    assert path.read_bytes() == before


def test_open_sizes_run_with_the_sizes_of_the_export_or_the_given_ones(tmp_path: Path) -> None:
    class Open(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            n = x.shape[0]
            return torch.cat([x, x.new_ones(n // 2, 4)]).reshape(-1)[: 2 * n], n * 3

    dynamic = {"x": {0: torch.export.Dim("batch", min=4, max=20)}}
    path = tmp_path / "open.pt2"
    torch.export.save(torch.export.export(Open(), (torch.zeros(6, 4),), dynamic_shapes=dynamic), path)
    for shapes, n in ((None, 6), ({"x": (10, 4)}, 10)):
        program = load_program(path, "open.pt2", shapes)
        value, number = program.module()(torch.zeros(n, 4))
        assert (value.shape, number) == ((2 * n,), 3 * n)
    with pytest.raises(InputError, match="exported for 4 to 20"):
        load_program(path, "open.pt2", {"x": (30, 4)})


def test_outputs_in_classes_come_back_in_plain_containers(base: Path, tmp_path: Path) -> None:
    """Classes of packages that are not here, too: nothing is imported for them."""
    leaf: Any = {"type": None, "context": None, "children_spec": []}
    classes = {
        "transformers.modeling_outputs.BaseModelOutput": '["hidden"]',
        "nowhere.at.all.Result": '[["hidden"], []]',
        "collections.namedtuple": "nowhere.Pair",
        "collections.defaultdict": {
            "default_factory_module": "builtins", "default_factory_name": "list", "dict_context": ["hidden"]
        },
    }  # fmt: skip
    for name, context in classes.items():
        odd = {"type": name, "context": context, "children_spec": [leaf]}

        def edit(document: Any, odd: Any = odd) -> None:
            document["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = json.dumps([1, odd])

        path = tmp_path / "output.pt2"
        path.write_bytes(written(edited(entries_of(base / "base.pt2"), PROGRAM, edit)))
        found = load_program(path, "output.pt2").module()(torch.ones(1, 4))
        if name.startswith(("transformers", "collections.default")):
            assert found["hidden"].shape == (1, 4)
        else:
            assert type(found) is tuple
            assert found[0].shape == (1, 4)


def test_versions_of_torch_that_nobody_tried_are_refused(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("2.5.1", "3.0.0+cpu"):
        monkeypatch.setattr(torch, "__version__", version)
        with pytest.raises(InputError, match=rf"this is torch {version[:3]}"):
            load_program(base / "base.pt2", "base.pt2")


def test_loading_takes_no_more_memory_than_the_file(tmp_path: Path) -> None:
    """Of a file of 64 MiB the process may grow by a fifth more than that."""
    if not os.path.exists("/proc/self/clear_refs"):
        pytest.skip("needs Linux")
    net = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(4)])
    torch.export.save(torch.export.export(net, (torch.zeros(1, 2048),)), tmp_path / "large.pt2")
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),)), tmp_path / "small.pt2")
    program = (
        "import sys; from pathlib import Path; from placewright.frontends.torch_archive import load_program\n"
        "def kib(key): return int(next(l for l in open('/proc/self/status') if l.startswith(key)).split()[1])\n"
        "load_program(Path(sys.argv[1]), 'small')\n"
        "open('/proc/self/clear_refs', 'w').write('5')\n"
        "before = kib('VmRSS'); kept = load_program(Path(sys.argv[2]), 'large'); print(kib('VmHWM') - before)"
    )
    files = [str(tmp_path / "small.pt2"), str(tmp_path / "large.pt2")]
    done = subprocess.run([sys.executable, "-c", program, *files], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < 1.2 * (tmp_path / "large.pt2").stat().st_size


def test_the_file_of_an_old_torch_is_placed_and_run(base: Path, tmp_path: Path) -> None:
    """Before 2.7 an archive held what torch.save wrote of the weights."""
    program = torch.export.load(base / "base.pt2")
    names = ["version", "serialized_exported_program.json", "serialized_state_dict.pt", "serialized_constants.pt"]
    contents = [
        b"8.1",
        entries_of(base / "base.pt2")[PROGRAM],
        saved(dict(program.state_dict)),
        saved(program.constants),
        saved(program.example_inputs),
    ]
    path = tmp_path / "old.pt2"
    path.write_bytes(archive_of([*names, "serialized_example_inputs.pt"], contents))
    x = torch.randn(1, 4)
    assert torch.equal(load_program(path, "old.pt2").module()(x), program.module()(x))
    assert read_model(path).n_ops == read_model(base / "base.pt2").n_ops
