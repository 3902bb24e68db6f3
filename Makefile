# What a fresh machine with Python >= 3.11 and make can do: `make` lists it.
# Another interpreter: make test PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip --disable-pip-version-check --quiet install

.DELETE_ON_ERROR:
.PHONY: help test test-slow test-papers demo reproduce check format bench clean

help:
	@echo "make test        run the tests          (ARGS='-k field' is passed on to pytest)"
	@echo "make test-slow   run the slow tests     (minutes; CI runs them, too)"
	@echo "make test-papers run the papers' tests"
	@echo "make demo        run examples/demo.py"
	@echo "make reproduce   the papers' figures and tables, the short way"
	@echo "make check       formatting, lint, types"
	@echo "make format      mend what check can mend"
	@echo "make bench       run the benchmarks      (ARGS is passed on)"
	@echo "make clean       remove environments, caches and build files"

test: $(VENV)/test.stamp
	@$(BIN)/python -m pytest $(ARGS)

test-slow: $(VENV)/test.stamp
	@$(BIN)/python -m pytest -m slow $(ARGS)

test-papers: $(VENV)/test.stamp
	@$(BIN)/python -m pytest -m papers $(ARGS)

demo: $(VENV)/demo.stamp
	@$(BIN)/python examples/demo.py $(ARGS)

reproduce: $(VENV)/papers.stamp
	@$(BIN)/adfpp reproduce --all --quick $(ARGS)

check: $(VENV)/check.stamp
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/test.stamp
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

bench: $(VENV)/test.stamp
	@$(BIN)/python -m benchmarks $(ARGS)

clean:
	@rm -rf .venv .venv-* build dist *.egg-info .pytest_cache .ruff_cache .jax_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each extra of pyproject.toml; a change of that file installs again.
$(VENV)/%.stamp: pyproject.toml | $(BIN)/pip
	@echo "Installing adfpp[$*] into $(VENV)"
	@$(PIP_INSTALL) -e ".[$*]"
	@touch $@

# pip is the last thing that venv puts in place, so a half-made environment is made again.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "adfpp needs Python 3.11 or newer: name one with make PYTHON=..."; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv $(VENV)
