# AmazonELECTRA: `make demo` runs the whole graph on a synthetic dump; `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
INSTALLED := $(VENV)/.installed
STORE  ?= store

.DEFAULT_GOAL := help
.PHONY: help install demo check test bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

install: $(INSTALLED)  ## make .venv and install the pinned packages
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(INSTALLED)  ## the whole graph on a synthetic dump, at most 5 minutes on 2 cores
	$(BIN)/amazon-electra sample --reviews 20000 --seed 0 --output sample.json.gz
	$(BIN)/amazon-electra run --dump sample.json.gz --preset tiny --store $(STORE)

check: $(INSTALLED)  ## ruff, ruff format, mypy, the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_import_rules.py

test: $(INSTALLED)  ## the tests (fast ones; the slow ones have targets of their own)
	$(BIN)/python -m pytest

bench: $(INSTALLED)  ## measure speed: prints tables
	for bench in tests/bench/[a-z]*.py; do $(BIN)/python $$bench || exit 1; done

clean:  ## remove the environment, the store and what tools left behind
	rm -rf $(VENV) $(STORE) sample.json.gz build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
