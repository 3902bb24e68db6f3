# What a fresh machine with Python >= 3.11 and make can do: `make` lists it.
# Another interpreter: make test PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

BIN := $(VENV)/bin
PIP_INSTALL := -m pip --disable-pip-version-check --quiet install

# The lowest versions of pyproject.toml have an environment of their own, and run a few files of tests that are quick and
# reach all that adfpp depends on: JAX and NumPyro, SciPy, tables, ArviZ with netCDF files, pictures and the report.
LOWEST ?= .venv-lowest
LOWEST_TESTS := $(addprefix tests/, cli/test_main.py engine/trace io judge/test_compare.py learn/test_learner.py \
  model/local model/test_reader.py papers/test_laboratory.py show)

.DELETE_ON_ERROR:
.PHONY: help test test-slow test-papers test-lowest demo reproduce check format bench clean

help:
	@echo "make test        run the tests          (ARGS='-k field' is passed on to pytest)"
	@echo "make test-slow   run the slow tests     (minutes; CI runs them, too)"
	@echo "make test-papers run the papers' tests"
	@echo "make test-lowest run a few tests with the lowest versions of pyproject.toml (Python 3.11)"
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

# Old versions use what newer packages around them deprecate. They keep no compiled programs, which nobody would use again.
test-lowest: $(LOWEST)/lowest.stamp
	@JAX_ENABLE_COMPILATION_CACHE=false $(LOWEST)/bin/python -m pytest -W ignore::DeprecationWarning \
	  $(LOWEST_TESTS) $(ARGS)

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

# One stamp for each extra of pyproject.toml; a change of that file installs again. `check` contains `test`, and that the
# others, so that an environment that has the larger one is not set up again for the smaller ones.
WITHIN_test := demo papers
WITHIN_check := test $(WITHIN_test)
$(VENV)/%.stamp: pyproject.toml | $(BIN)/pip
	@echo "Installing adfpp[$*] into $(VENV)"
	@$(BIN)/python $(PIP_INSTALL) -e ".[$*]"
	@touch $(patsubst %,$(VENV)/%.stamp,$* $(WITHIN_$*))

$(LOWEST)/lowest.stamp: pyproject.toml .ci/lowest.py | $(LOWEST)/bin/pip
	@echo "Installing the lowest versions into $(LOWEST)"
	@$(LOWEST)/bin/python .ci/lowest.py > $(LOWEST)/lowest.txt
	@$(LOWEST)/bin/python $(PIP_INSTALL) -c $(LOWEST)/lowest.txt -e ".[test]"
	@touch $@

# pip is the last thing that venv puts in place, so a half-made environment is made again.
$(sort $(BIN)/pip $(LOWEST)/bin/pip): %/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "adfpp needs Python 3.11 or newer: name one with make PYTHON=..."; exit 1; }
	@echo "Making $* with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv $*
