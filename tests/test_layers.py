"""Imports go down only: a room may use the rooms below it, never those beside or above it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import placewright

SOURCES = Path(placewright.__file__).parent

# From the bottom up. A name stands for a module, or for a package with all in it that is not named by itself.
LAYERS = (
    ("_core",),  # core/, compiled
    ("text", "errors", "op_classes", "forked", "kernel_cache"),
    ("extras", "documents", "apart"),
    ("files", "toml_fields", "patterns", "patterns_apart", "reading"),
    # the nouns
    ("graph",),
    ("cluster", "budget"),
    ("profiles", "profile_file"),
    ("costs",),
    ("cluster_file", "problems", "problem_checks"),
    ("constraints", "evaluate"),
    ("placement",),
    # placers
    ("reductions",),
    ("placers.judges",),
    ("placers.units", "placers.child_solver", "placers.base"),
    ("placers.registry",),
    ("placers",),
    ("placers.baselines",),
    ("placers.pipeline", "placers.sequential"),
    ("placers.calls",),
    ("placers.overlap", "placers.pipeline.not_contiguous"),
    ("placers.search",),
    ("placers.auto",),
    # models
    ("frontends",),
    ("zoo",),
    ("costs.measure", "transfer", "explain"),
    # what runs a placement
    ("execute",),
    ("live",),
    ("placers.learned",),
    ("api",),
    ("saved", "environment", "torch", "testing"),
    ("export", "reports"),
    ("",),
    ("cli",),
    ("__main__",),
)

# What still goes up: (from, to). This list may only become shorter.
STILL_UPWARDS = {
    ("costs.measure", "execute"),
    ("frontends", "zoo"),
    ("placement", "frontends"),
    ("placement", "placers.base"),
    ("placement", "reports"),
    ("placers.base", "placers.registry"),
    ("placers.baselines", "placers.overlap"),
    ("placers.calls", "api"),
    ("placers.learned", "api"),
    ("placers.overlap", "placers.search"),
    ("placers.sequential", "api"),
    ("problem_checks", "problems"),
    ("problems", "problem_checks"),
    ("problems", "reports"),
    ("profile_file", "profiles"),
    ("profiles", "frontends"),
    ("profiles", "profile_file"),
    ("reading", "frontends"),
}


def rooms_of_imports() -> set[tuple[str, str]]:
    modules = {module: path for path in SOURCES.rglob("*.py") for module in [_module(path)]}
    return {
        (_room(module), _room(imported))
        for module, path in modules.items()
        for imported in _imported(ast.parse(path.read_text(encoding="utf-8")), {*modules, "_core"})
        if _room(module) != _room(imported)
    }


def test_every_module_has_its_layer() -> None:
    rooms = [room for layer in LAYERS for room in layer]
    assert len(rooms) == len(set(rooms))
    assert {_room(_module(path)) for path in SOURCES.rglob("*.py")} | {"_core"} == set(rooms)


def test_imports_go_down() -> None:
    height = {room: i for i, layer in enumerate(LAYERS) for room in layer}
    upwards = {(a, b) for a, b in rooms_of_imports() if height[b] >= height[a]}
    assert upwards - STILL_UPWARDS == set(), "imports that go up or sideways"
    assert STILL_UPWARDS - upwards == set(), "no longer there: take them off the list"


def _module(path: Path) -> str:
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _room(module: str) -> str:
    """The narrowest room of the list that a module is in."""
    rooms = {room for layer in LAYERS for room in layer}
    while module and module not in rooms:
        module = module.rpartition(".")[0]
    return module


def _imported(tree: ast.AST, modules: set[str]) -> Iterator[str]:
    """The modules of ours that a file names in its imports, also late ones and those for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name.partition(".")[2] in modules else node.module for name in full]
        else:
            continue
        yield from (name.partition(".")[2] for name in names if name.split(".")[0] == "placewright")
