# Works in .venv at the root; two commands set everything up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WITH_PINS := -c constraints.txt

.PHONY: demo test bench check clean

demo: $(VENV)/installed
	mkdir -p demo
	$(BIN)/placewright compare zoo:fork-join --cluster laptop-npu --budget 10s
	$(BIN)/placewright place zoo:fork-join --cluster laptop-npu --budget 10s -o demo/placement.json
	$(BIN)/placewright evaluate zoo:fork-join demo/placement.json --cluster laptop-npu
	@echo "The placement is in demo/placement.json"

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

$(VENV)/installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q $(WITH_PINS) -e .
	touch $@

$(VENV)/installed-all: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q $(WITH_PINS) torch==2.13.0
	$(BIN)/python -m pip install -q $(WITH_PINS) -e '.[all,dev]'
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) demo build .mypy_cache .pytest_cache .ruff_cache
