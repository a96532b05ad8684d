# Works in .venv at the root; two commands set everything up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WITH_PINS := -c constraints.txt

HOURS := 2
OWN_VERSION = $(shell $(PYTHON) -c "import sys; print('%d.%d' % sys.version_info[:2])")
WITHOUT_TORCH = build/without-torch-$(OWN_VERSION)

SECONDS := 600
PROBLEMS := 2000
# The compiled core: our own builds take every warning for an error.
CORE := pyproject.toml $(shell find core -name '*.cpp' -o -name '*.h' -o -name CMakeLists.txt)
STRICT := -C cmake.define.PLACEWRIGHT_STRICT=ON
.PHONY: demo test check core sanitize wheel flavours random fuzz nightly test-without-torch bench clean

demo: $(VENV)/installed-demo
	$(BIN)/python examples/demo.py

# All parts in turn, whatever came of those before; the time of each at the end.
test: $(VENV)/installed-all
	$(BIN)/python tests/parts.py

check: $(VENV)/installed-all
	$(BIN)/python tests/parts.py format "format of the core" lint types

# After a change in core/: build it again, and write the types of what it offers. Nothing builds it on import.
core: $(VENV)/installed-all
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation $(STRICT) -e .
	$(BIN)/python -m nanobind.stubgen -q -m placewright._core -r -O src/placewright

# `make sanitize PROBLEMS=20000`: random problems through the core, with address and undefined-behaviour sanitizers.
sanitize: $(VENV)/installed-all
	$(BIN)/python tests/sanitized.py --problems $(PROBLEMS)

# Into build/dist, with a look at its tag: a stable ABI that was dropped in silence is an error.
wheel: $(VENV)/installed-all
	$(BIN)/python tests/install/flavours.py --wheel

# The wheel with each extra alone, and where nothing may be written; one environment after the other, up to 3 GB.
flavours: $(VENV)/installed-all
	$(BIN)/python tests/install/flavours.py --wheel
	$(BIN)/python tests/install/flavours.py --alone --read-only

random: $(VENV)/installed-all
	$(BIN)/python tests/parts.py "random problems"

# `make fuzz SECONDS=3600`: changed files through all readers; goes on where the last run stopped, findings in build/fuzz.
fuzz: $(VENV)/installed-all
	$(BIN)/python benchmarks/fuzz_readers.py --seconds $(SECONDS) --state build/fuzz

# `make nightly HOURS=8`: the flavours, then other random problems and changed files in turn; goes on where the last run stopped.
nightly: $(VENV)/installed-all
	$(BIN)/python tests/nightly.py $(HOURS)

# `make test-without-torch PYTHON=python3.14`: the plain install and the tests on another Python. torch's build without
# CUDA is not there for every Python; tests and modules that need torch are skipped, with the reason.
test-without-torch:
	$(PYTHON) -m venv $(WITHOUT_TORCH)
	$(WITHOUT_TORCH)/bin/python -m pip install -q $(WITH_PINS) -e '.[openvino,onnx,exact,partition,test]'
	$(WITHOUT_TORCH)/bin/python tests/parts.py wheel installation "plain install"
	$(WITHOUT_TORCH)/bin/pytest -n 2 -q -rs --doctest-ignore-import-errors --ignore=src/placewright/torch.py \
		--ignore=src/placewright/environment.py tests src

bench: $(VENV)/installed-all
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/hsdag_graphs.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch first, with its version: where the index has a build without CUDA, that is the one it takes.
$(VENV)/installed-demo: $(VENV)/bin/python $(CORE) constraints.txt
	$(BIN)/python -m pip install -q $(WITH_PINS) torch==2.13.0
	$(BIN)/python -m pip install -q $(WITH_PINS) $(STRICT) -e '.[openvino,torch,exact]'
	touch $@

$(VENV)/installed-all: $(VENV)/bin/python $(CORE) constraints.txt
	$(BIN)/python -m pip install -q $(WITH_PINS) torch==2.13.0
	$(BIN)/python -m pip install -q $(WITH_PINS) $(STRICT) -e '.[all,dev]'
	touch $@ $(VENV)/installed-demo

clean:
	rm -rf $(VENV) demo build .mypy_cache .pytest_cache .ruff_cache
