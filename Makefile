# Every target makes its own .venv first: from requirements.lock, and again whenever that file or pyproject.toml changes.
PYTHON ?= python3
ARGS ?=
SEEDS ?= 0:200
MINUTES ?= 10
HOURS ?= 24
ACCELERATOR ?= cpu

# Each process that Ray starts would compile our modules again.
export PYTHONDONTWRITEBYTECODE =

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

venv := .venv
stamp := $(venv)/.stamp
bin := $(venv)/bin

.PHONY: help setup demo test unit processes long home-assistant seeds chaos check lint types format bench soak sbom audit hashes secrets kubernetes-secrets kubernetes-rules e2e e2e-kubernetes clean

help: ## show this list
	@grep -hE '^[a-z0-9-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-18s %s\n", $$1, $$2}'

setup: $(stamp) ## make or refresh .venv
	@echo "$(venv) fits requirements.lock; try: make demo"

demo: $(stamp) ## run the whole system on this machine; options: make demo ARGS="--minutes 3"
	@$(bin)/hothouse demo $(ARGS)

# Tests that start processes mostly wait, so two parts run side by side. Those of a browser go with the plain ones, each
# file with a browser of its own: they wait, too, and those of a broker do, so that three run at a time on two cores.
engine := ray or chaos or e2e
engine_folders := tests/broker tests/browser tests/chaos tests/e2e tests/prometheus tests/ray
left_out := thorough or long or compose or home_assistant

test: $(stamp) ## run the tests, but for the thorough and the long ones; one file: make test ARGS=tests/edge/log/test_log.py
ifneq ($(strip $(ARGS)),)
	$(bin)/python -m pytest $(ARGS)
else
	@echo "Two parts run side by side; this is the first, the other follows ($(venv)/test-plain.log)."
	@failed=0; trap 'kill $$pid 2> /dev/null || true' EXIT; \
	    nice -n 5 $(bin)/python -m pytest -p no:cacheprovider -n 3 --dist loadfile \
	        -m "not ($(engine) or $(left_out))" > $(venv)/test-plain.log 2>&1 & pid=$$!; \
	    $(bin)/python -m pytest -m "($(engine)) and not ($(left_out))" $(engine_folders) || failed=1; \
	    wait $$pid || failed=1; cat $(venv)/test-plain.log; exit $$failed
endif

# All but the long tests, in two parts, as CI runs them. A test of the first keeps a core busy: as many run as there are.
starts := ray or broker or kafka or influx or s3 or browser or chaos or e2e

unit: $(stamp) ## run the tests that start no process and ask no server, thorough ones, too
	$(bin)/python -m pytest -p no:cacheprovider -n logical --maxprocesses 8 --dist loadfile $(ARGS) -m "not ($(starts) or long or compose or home_assistant)"

processes: $(stamp) ## run the tests that start processes or ask servers, but for the long ones
	$(bin)/python -m pytest -p no:cacheprovider -m "($(starts)) and not (long or compose or home_assistant)"

# The whole system with its log on Kafka, where HOTHOUSE_SERVERS names a script that starts one; then with its log in a file.
long: $(stamp) ## run the few tests that take minutes each
	$(bin)/python -m pytest -m long $(ARGS)

# Home Assistant's package wants a Python and a hundred packages of its own. Where they cannot be had, one line says why.
home-assistant: $(stamp) ## ask Home Assistant itself whether it takes what is published for it; needs Python 3.13
	@$(bin)/python -m tests.services.home_assistant.environment
	$(bin)/python -m pytest -p no:cacheprovider -m home_assistant tests/services/home_assistant

seeds: $(stamp) ## made-up crashes around every durable step, some four seconds each: make seeds SEEDS=0:5000
	HOTHOUSE_TEST_SEEDS=$(SEEDS) $(bin)/python -m pytest -s tests/chaos/test_simulation.py

chaos: $(stamp) ## kill parts for ten minutes, settle the ledger: make chaos MINUTES=2 SEEDS=0:1000
	@failed=0; for log in $(if $(HOTHOUSE_SERVERS),kafka) sqlite; do \
	    $(bin)/python -m tests.chaos.run --whole --log $$log --minutes $(MINUTES) || failed=1; done; \
	    HOTHOUSE_TEST_SEEDS=$(SEEDS) HOTHOUSE_TEST_KILLS=3 $(bin)/python -m pytest -s tests/chaos $(ARGS) || failed=1; \
	    exit $$failed

# Both need Docker, and no .venv.
secrets: ## make the secrets of deploy/compose.yaml: passwords, tokens, the broker's rules
	@deploy/secrets.sh

kubernetes-secrets: secrets ## bring them into a namespace of the cluster that KUBECONFIG names: make kubernetes-secrets ARGS=hothouse
	@deploy/kubernetes/secrets.sh $(ARGS)

# Text, so that comments and the form of long lines stay; tests/kubernetes/test_monitoring.py compares the two.
rules := deploy/kubernetes/components/monitoring/rules.yaml

kubernetes-rules: ## write Prometheus' rules once more, as Prometheus' operator takes them
	@{ echo "# Made by make kubernetes-rules, of deploy/prometheus/hothouse.rules.yml: change that."; \
	    printf '%s\n' 'apiVersion: monitoring.coreos.com/v1' 'kind: PrometheusRule' 'metadata: {name: hothouse}' 'spec:'; \
	    sed '1d; s/^./  &/' deploy/prometheus/hothouse.rules.yml; } > $(rules)

e2e: ## the whole system in containers: build, run, kill, cut, balance the ledger; KEEP=1 leaves it running
	@$(PYTHON) -m tests.compose.run $(if $(KEEP),--keep) $(ARGS)

e2e-kubernetes: ## the whole system on the cluster that KUBECONFIG names: bring up, kill, evict, balance the ledger; KEEP=1
	@$(PYTHON) -m tests.kubernetes.run $(if $(KEEP),--keep) $(ARGS)

# Types take longer than all else: with -j2 the two run side by side.
check: lint types ## formatting, lint, types, import rules, doctests

lint: $(stamp)
	$(bin)/ruff format --check .
	$(bin)/ruff check .
	$(bin)/lint-imports
	$(bin)/python -m pytest -q -p no:cacheprovider edge models services tests/test_import_rules.py

types: $(stamp)
	$(bin)/mypy

format: $(stamp) ## put every file into the house format
	$(bin)/ruff format .
	$(bin)/ruff check --fix .

bench: $(stamp) ## run every benchmark; one of them, with its options: make bench ARGS="predict --requests 500"
	@for name in $(if $(ARGS),"$(ARGS)",$(basename $(notdir $(wildcard benchmarks/[!_]*.py)))); do \
	    echo "== benchmarks.$$name"; $(bin)/python -m benchmarks.$$name; done

soak: $(stamp) ## the whole system for hours: nothing may grow; make soak HOURS=1
	$(bin)/python -m benchmarks.soak --hours $(HOURS) $(ARGS)

# For a release. The tools have an environment of their own; what they print is in dist/.
release := .venv-release

sbom: $(stamp) $(release)/.stamp ## what this environment holds, as CycloneDX: dist/hothouse.cdx.json
	@mkdir -p dist
	$(release)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o dist/hothouse.cdx.json $(bin)/python

audit: $(release)/.stamp ## look requirements.lock up among known weaknesses; needs the package index's advisories
	$(release)/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off -r requirements.lock

# As deploy/images/*.Dockerfile install them: of what an image needs the locked version, and of that every file that the index has.
hashed := $(release)/bin/uv pip compile --quiet --no-annotate --generate-hashes --constraint requirements.lock --python-version 3.11 \
    --custom-compile-command "make hashes" $(ARGS)

hashes: $(release)/.stamp ## what the images install, with the hash of each file: dist/hashes; ACCELERATOR=cuda as for the build
	@rm -rf dist/hashes && mkdir -p dist/hashes
	$(hashed) --extra kafka -o dist/hashes/edge.txt pyproject.toml
	$(hashed) --extra cluster --extra traces $(if $(filter cpu,$(ACCELERATOR)),--torch-backend cpu) -o dist/hashes/cluster.txt pyproject.toml
	grep '^setuptools==' requirements.lock | $(hashed) -o dist/hashes/build.txt -

$(release)/.stamp: requirements.release.lock
	@test -x $(release)/bin/python || $(PYTHON) -m venv $(release)
	$(release)/bin/python -m pip install --disable-pip-version-check --quiet -r requirements.release.lock
	@touch $@

clean: ## remove .venv and caches; data folders stay
	rm -rf $(venv) $(release) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
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
