# What people and CI run. `make` alone lists the targets.
# Needs: Python >= 3.11 and make. Another interpreter: make test PYTHON=python3.13

PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_VENV := .venv-bench
BENCH_BIN := $(BENCH_VENV)/bin
BENCH_READY := $(BENCH_VENV)/.ready
SERVER_VENV := .venv-server
SERVER_READY := $(SERVER_VENV)/.ready

# One thread: parallel test workers do not fight over the cores, and the built-in network is too small to share out. On a busy
# machine two threads wait for each other at every layer, and its audit takes minutes in place of seconds.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help audit test check docs format bench server clean distclean environment

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

audit: $(READY) ## Audit the built-in model on real handwritten digits and write a report
	$(ONE_THREAD) $(BIN)/brinell audit

test: $(READY) ## Run the tests
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

check: $(READY) ## Formatting, lint, strict types, import contracts, spelling, generated docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python scripts/generate_docs.py --check

docs: $(READY) ## Write the generated parts of the documentation anew
	$(BIN)/python scripts/generate_docs.py

format: $(READY) ## Format the code and mend what the linter can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(BENCH_READY) ## Compare with bare passes, separate runs and other libraries (ARGS="--only passes", see benchmarks/run.py)
	$(BENCH_BIN)/python benchmarks/run.py $(ARGS)

server: $(SERVER_READY) ## Make the environment of the inference server that a test and a benchmark start

environment: $(READY) ## Make the environment alone

clean: ## Remove caches and build products
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find src tests scripts benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## Remove the environments too
	rm -rf $(VENV) $(BENCH_VENV) $(SERVER_VENV)

# hatchling comes first and builds without isolation, so that the build itself uses the versions of constraints.txt.
define make-environment
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Brinell needs Python 3.11 or newer; name one with PYTHON=...")'
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --constraint constraints.txt hatchling editables
endef

$(READY): pyproject.toml constraints.txt
	$(call make-environment,$(VENV))
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $@

# torchattacks pins old versions of requests and its kin that break the rest; it runs well without them.
$(BENCH_READY): pyproject.toml constraints.txt benchmarks/constraints.txt
	$(call make-environment,$(BENCH_VENV))
	$(BENCH_BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[all]' onnxscript
	$(BENCH_BIN)/python -m pip install --quiet --constraint constraints.txt --constraint benchmarks/constraints.txt \
		foolbox adversarial-robustness-toolbox stable-baselines3
	$(BENCH_BIN)/python -m pip install --quiet --constraint benchmarks/constraints.txt --no-deps torchattacks
	touch $@

# It shares nothing with ours: it pins a web framework of its own.
$(SERVER_READY): benchmarks/server-constraints.txt
	$(PYTHON) -m venv $(SERVER_VENV)
	$(SERVER_VENV)/bin/python -m pip install --quiet --constraint benchmarks/server-constraints.txt mlserver
	touch $@
