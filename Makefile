# On a machine with Python 3.11 and make: `make demo` and `make test` install what they need into .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed-dev
RUNTIME := $(VENV)/.installed

.PHONY: help install demo test pytest check check-all interpreted bench study clean

help:  ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(RUNTIME): $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

$(INSTALLED): $(RUNTIME)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

install: $(INSTALLED)  ## install the package and the developers' tools into .venv

demo: $(RUNTIME)  ## the whole story on an embedded evolving graph
	$(BIN)/dkge demo

test: $(INSTALLED)  ## the tests (and `make check`), seven and a half minutes on two quiet cores where no kernel is compiled yet
	$(MAKE) --no-print-directory --jobs 2 check pytest

pytest: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses 2 --no-loadscope-reorder

check: $(INSTALLED)  ## formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check-all: test interpreted  ## everything, the slow and random tests too
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest tests/kernels tests/graph/test_affected.py
	$(BIN)/python -m pytest -m slow

# Without the compiler, 64-bit hashes wrap around with a warning; everything else is still an error.
interpreted: $(INSTALLED)  ## kernel tests with compilation off: bounds and types are then checked by numpy
	NUMBA_DISABLE_JIT=1 HYPOTHESIS_PROFILE=interpreted $(BIN)/python -m pytest -W ignore::RuntimeWarning \
		tests/kernels tests/graph/test_relation_paths.py

bench: $(INSTALLED)  ## measure; writes benchmarks/results
	$(BIN)/python -m benchmarks.run_all

# Hours; the same command goes on where it was stopped. PyKEEN is no dependency of anything else.
study: $(INSTALLED)  ## measure the study beside the published one (DKGE_DATA), and write study.html
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[study]'
	$(BIN)/python -m benchmarks.study all report

clean:  ## remove what was installed and compiled
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build *.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
