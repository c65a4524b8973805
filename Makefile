# asterism: `make` or `make help` lists what can be made. Everything runs in .venv, pinned by constraints.txt.
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help env env-dev demo test test-slow check bench docs clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: .venv/installed  ## make the environment in .venv: the package and its [train] extra

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"asterism needs Python 3.11 or newer, {sys.executable} is {sys.version.split()[0]}: make PYTHON=python3.12 env")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e ".[train]"
	@touch $@

env-dev: .venv/installed-dev

.venv/installed-dev: .venv/installed
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e ".[dev]"
	@touch $@

demo: env  ## train and compare five heads on generated data: a table, and runs/demo/index.html
	$(BIN)/asterism demo

test: env-dev  ## the test suite, under five minutes
	$(BIN)/python -m pytest

test-slow: env-dev  ## the long tests too
	$(BIN)/python -m pytest -m "slow or not slow"

check: env-dev  ## ruff, types, import graph, documentation build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_house.py
	$(BIN)/sphinx-build -q -E -W -b html docs docs/_build/html

bench: env  ## the benchmarks: each prints a table of ratios measured side by side
	$(BIN)/python benchmarks/head.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/prototypes.py

docs: env-dev  ## the documentation, as docs/_build/html/index.html
	$(BIN)/sphinx-build -q -E -W -b html docs docs/_build/html

clean:  ## remove the environment and what was built, never runs
	rm -rf .venv docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
