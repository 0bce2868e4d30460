# Needs Python 3.11 (or newer) and make, nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Ranks are processes: threads inside torch or BLAS only fight over the same cores.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
# The tools find each other (pyright, lit) by PATH.
export PATH := $(CURDIR)/$(BIN):$(PATH)
PYTEST := $(BIN)/python -m pytest -m "not gpu and not exhaustive"
JOBS ?= 2

.PHONY: demo test lint exhaustive bench docs clean

demo: $(VENV)/.run
	$(BIN)/ditron run examples/01_ag_gemm.py --check

test: lint
	$(PYTEST) -q -n $(JOBS) --ignore=tests/runtime tests
	$(PYTEST) -q tests/runtime

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python scripts/check_filecheck.py
	$(BIN)/python scripts/check_op_docs.py
	$(BIN)/python scripts/gen_docs.py --check

exhaustive: $(VENV)/.dev
	$(BIN)/python -m pytest -m exhaustive -q -rP -n $(JOBS) --ignore=tests/runtime tests
	$(BIN)/python -m pytest -m exhaustive -q -rP tests/runtime

bench: $(VENV)/.run
	$(BIN)/python -m benchmarks.run

docs: $(VENV)/.dev
	$(BIN)/python scripts/gen_docs.py

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) -e .
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) -e '.[dev]'
	touch $@
