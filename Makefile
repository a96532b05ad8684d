# Works in .venv at the root; two commands set everything up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WITH_PINS := -c constraints.txt

.PHONY: demo test bench check clean

demo: $(VENV)/installed-demo
	$(BIN)/python examples/demo.py

test: $(VENV)/installed-all check
	$(BIN)/pytest -n 2 -q tests src

check: $(VENV)/installed-all
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/installed-all
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/hsdag_graphs.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch first, with its version: where the index has a build without CUDA, that is the one it takes.
$(VENV)/installed-demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q $(WITH_PINS) torch==2.13.0
	$(BIN)/python -m pip install -q $(WITH_PINS) -e '.[openvino,torch,exact]'
	touch $@

$(VENV)/installed-all: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q $(WITH_PINS) torch==2.13.0
	$(BIN)/python -m pip install -q $(WITH_PINS) -e '.[all,dev]'
	touch $@ $(VENV)/installed-demo

clean:
	rm -rf $(VENV) demo build .mypy_cache .pytest_cache .ruff_cache
