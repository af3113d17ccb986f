# Every target makes its own .venv first: from requirements.lock, and again whenever that file or pyproject.toml changes.
PYTHON ?= python3
ARGS ?=
SEEDS ?= 0:200

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

venv := .venv
stamp := $(venv)/.stamp
bin := $(venv)/bin

.PHONY: help setup demo test chaos check format bench clean

help: ## show this list
	@grep -hE '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(stamp) ## make or refresh .venv
	@echo "$(venv) fits requirements.lock; try: make demo"

demo: $(stamp) ## run the whole system on this machine; options: make demo ARGS="--minutes 3"
	@$(bin)/hothouse demo $(ARGS)

# Tests that start processes mostly wait, the others compute: side by side they take the time of the longer half.
engine := ray or e2e or browser or chaos or broker or influx
fast_log := $(venv)/fast-tests.log

test: $(stamp) ## run all tests; one file: make test ARGS=tests/edge/test_log.py
ifneq ($(strip $(ARGS)),)
	$(bin)/python -m pytest $(ARGS)
else
	@echo "Two halves run side by side; this is the one with real parts, the other follows ($(fast_log))."
	@nice -n 5 $(bin)/python -m pytest -p no:cacheprovider -m "not ($(engine))" > $(fast_log) 2>&1 & fast=$$!; \
	    trap 'kill $$fast 2> /dev/null || true' EXIT; failed=0; \
	    $(bin)/python -m pytest -m "$(engine)" || failed=1; \
	    wait $$fast || failed=1; cat $(fast_log); exit $$failed
endif

chaos: $(stamp) ## kill parts and compare with the judge; seeds of the simulation: make chaos SEEDS=0:1000
	HOTHOUSE_TEST_SEEDS=$(SEEDS) HOTHOUSE_TEST_KILLS=3 $(bin)/python -m pytest -s tests/chaos $(ARGS)

check: $(stamp) ## formatting, lint, types, import rules, doctests
	$(bin)/ruff format --check .
	$(bin)/ruff check .
	$(bin)/mypy
	$(bin)/lint-imports
	$(bin)/python -m pytest -q -p no:cacheprovider edge models services

format: $(stamp) ## put every file into the house format
	$(bin)/ruff format .
	$(bin)/ruff check --fix .

bench: $(stamp) ## run every benchmark; one of them, with its options: make bench ARGS="predict --requests 500"
	@for name in $(if $(ARGS),"$(ARGS)",$(basename $(notdir $(wildcard benchmarks/[!_]*.py)))); do \
	    echo "== benchmarks.$$name"; $(bin)/python -m benchmarks.$$name; done

clean: ## remove .venv and caches; data folders stay
	rm -rf $(venv) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pip prints a line a package; one line in twenty is enough to see that it moves. Its errors come through as they are.
$(stamp): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; (3, 11) <= v < (3, 14) or sys.exit("Hothouse needs Python 3.11, 3.12 or 3.13; $(PYTHON) is %d.%d. Name another one: make PYTHON=python3.12 ..." % v[:2])'
	@test -x $(bin)/python || { echo "Creating $(venv) with $$($(PYTHON) --version) ..."; $(PYTHON) -m venv $(venv); }
	@echo "Installing $$(wc -l < requirements.lock) packages into $(venv); the first time takes some minutes ..."
	@$(bin)/python -m pip install --disable-pip-version-check -r requirements.lock | { n=0; while read -r word next _; do \
	    case "$$word $$next" in \
	      Collecting*) n=$$((n + 1)); ((n % 20)) || echo "  $$n packages fetched" ;; \
	      "Installing collected") echo "  all fetched; unpacking, some minutes more on a slow disk ..." ;; \
	    esac; done; }
	@PYTHONWARNINGS=ignore $(bin)/python -m pip install --disable-pip-version-check --quiet --no-deps --editable .
	@touch $(stamp)
