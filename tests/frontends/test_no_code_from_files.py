"""What may run code, by name: every place in the sources that does so is listed here, with the reason why it may."""

from __future__ import annotations

import ast
from pathlib import Path

import placewright

SOURCES = Path(placewright.__file__).parent

# Calls that run code, import by name, or unpickle; by the last parts of what is called.
RUNS_CODE = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "import_module",
    "run_path",
    "run_module",
    "spec_from_file_location",
    "sympify",
    "parse_expr",
    "pickle.load",
    "pickle.loads",
    "Unpickler",
    "torch.load",
    "export.load",
    "load_pt2",
    "np.load",
    "numpy.load",
    "yaml.load",
    "joblib.load",
    "marshal.loads",
    "shelve.open",
    "hub.load",
    "jit.load",
    "load_library",
    "add_extension",
    "CDLL",
    "from_pretrained",
    "get_class_from_dynamic_module",
    "register_custom_ops_library",
}
SAFE_ARGUMENTS = {
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "from_pretrained": ("trust_remote_code", False),
}
ALLOWED = {
    ("__init__.py", "import_module"): "our own modules, by a table",
    ("evaluate/__init__.py", "import_module"): "our own modules, by a table",
    ("export/registry.py", "import_module"): "our own modules, by a table",
    ("frontends/registry.py", "import_module"): "our own modules, by a table",
    ("placers/registry.py", "import_module"): "our own modules, by a table",
    ("frontends/openvino_conversion.py", "importlib.import_module"): "one module of OpenVINO",
    ("apart.py", "pickle.loads"): "what a child process of ours sends back",
    ("execute/torch_code.py", "exec"): "a function whose text holds nothing but numbered names",
    ("execute/torch_code.py", "compile"): "a function whose text holds nothing but numbered names",
    ("execute/torch_workers.py", "ctypes.CDLL"): "the process's own C library",
    ("live/hf.py", "transformers.AutoConfig.from_pretrained"): "configurations that name code do not get there",
}


def called(node: ast.Call) -> str:
    """The dotted name of what is called, as far as it is one."""
    parts: list[str] = []
    part: ast.expr = node.func
    while isinstance(part, ast.Attribute):
        parts.append(part.attr)
        part = part.value
    return ".".join(reversed([*parts, part.id] if isinstance(part, ast.Name) else [*parts, "?"]))


def found_in(tree: ast.AST) -> list[tuple[str, int]]:
    """Calls that may run code, and their lines."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = called(node)
        danger = next((d for d in RUNS_CODE if name == d or name.endswith("." + d)), None)
        is_mode = name.endswith(".eval") and not node.args  # a module's evaluation mode
        if danger is None or name == "re.compile" or is_mode:
            continue
        keyword, value = SAFE_ARGUMENTS.get(danger, ("", None))
        is_safe = any(k.arg == keyword and getattr(k.value, "value", None) is value for k in node.keywords)
        if not (keyword and is_safe):
            found.append((name, node.lineno))
    return found


def test_the_scan_sees_what_it_looks_for() -> None:
    text = "torch.load(f); torch.load(f, weights_only=True); eval(x); re.compile(x); a.b.from_pretrained(p)"
    assert [name for name, _ in found_in(ast.parse(text))] == ["torch.load", "eval", "a.b.from_pretrained"]


def test_code_runs_only_where_this_list_says_so() -> None:
    found = {
        (path.relative_to(SOURCES).as_posix(), name)
        for path in SOURCES.rglob("*.py")
        for name, _ in found_in(ast.parse(path.read_text()))
    }
    assert found <= set(ALLOWED)
