# What people and CI run. `make` alone lists the targets.
# Needs: Python >= 3.11 and make. Another interpreter: make test PYTHON=python3.13

PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TOOLS_READY := $(VENV)/.ready-tools
BENCH_VENV := .venv-bench
BENCH_BIN := $(BENCH_VENV)/bin
BENCH_READY := $(BENCH_VENV)/.ready
SERVER_VENV := .venv-server
SERVER_READY := $(SERVER_VENV)/.ready
EXTRAS := .venv-extras
EXTRAS_READY := $(EXTRAS)/.ready
SBOM_VENV := .venv-sbom
SBOM_READY := $(SBOM_VENV)/.ready

# One thread: parallel test workers do not fight over the cores, and the built-in network is too small to share out. On a busy
# machine two threads wait for each other at every layer, and its audit takes minutes in place of seconds.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
# Without it every process of a test compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = $(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help audit test slow nightly extras check docs site format bench gpu server smoke release-check sbom environment clean distclean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

audit: $(READY) ## Audit the built-in model on real handwritten digits and write a report
	$(ONE_THREAD) $(BIN)/brinell audit

# A worker takes neighbouring tests, so that what a file makes once is made in one worker, and helps the other at the end.
# In another order: make test ARGS="--shuffle 1", or "--shuffle reversed".
test: $(TOOLS_READY) ## Run the tests, but for the slow ones
	$(PYTEST) -m "not slow and not nightly" $(ARGS)

slow: $(TOOLS_READY) ## Run the slow tests: guides, pages in a browser, processes that are killed
	@test -x /usr/bin/chromium || echo "no chromium at /usr/bin: the tests of pages are skipped"
	$(PYTEST) -m "slow and not nightly" $(ARGS)

nightly: $(TOOLS_READY) server extras ## Run the rest: thousands of cases, simulations, the inference server, further packages
	$(PYTEST) -m "nightly or server" $(ARGS)

extras: $(TOOLS_READY) $(EXTRAS_READY) ## Test with clients that few need, beside the environment: Ray, Lightning, accelerate
	PYTHONPATH=$(EXTRAS) $(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) \
		tests/engine/test_ray.py tests/test_harden_examples.py $(ARGS)

check: $(TOOLS_READY) ## Formatting, lint, strict types, import contracts, spelling, names, prose and links, generated docs
	$(MAKE) --no-print-directory --keep-going --output-sync=target --jobs $(WORKERS) check-types check-style check-words check-docs check-pictures

# Types take as long as all others together.
.PHONY: check-types check-style check-words check-docs check-pictures
check-types: $(TOOLS_READY)
	$(BIN)/mypy

check-style: $(TOOLS_READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/codespell

check-words: $(TOOLS_READY)
	$(BIN)/python scripts/check_words.py
	$(BIN)/python scripts/check_rooms.py
	$(BIN)/python scripts/check_docs.py

check-docs: $(TOOLS_READY)
	$(BIN)/python scripts/generate_docs.py --check

# It makes the runs of the README again, which takes half a minute.
check-pictures: $(TOOLS_READY)
	$(ONE_THREAD) $(BIN)/python scripts/pictures.py --check

docs: $(TOOLS_READY) ## Write the generated parts of the documentation and its pictures anew
	$(BIN)/python scripts/generate_docs.py
	$(ONE_THREAD) $(BIN)/python scripts/pictures.py

site: $(TOOLS_READY) ## Build the documentation site in site/; a link that leads nowhere stops it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(TOOLS_READY) ## Format the code and mend what the linter can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(BENCH_READY) $(SERVER_READY) ## Compare with bare passes, separate runs and other libraries (ARGS="--only passes", see benchmarks/run.py)
	$(BENCH_BIN)/python benchmarks/run.py $(ARGS)

# With the environment if there is one, else with any interpreter that has torch: make gpu PYTHON=python3.12
gpu: ## Try every verb on the GPU, compare with the processor and time attacks, in eight minutes (ARGS="--out FILE", see scripts/gpu.py)
	PYTHONPATH=src $(or $(wildcard $(BIN)/python),$(PYTHON)) scripts/gpu.py $(ARGS)

server: $(SERVER_READY) ## Make the environment of the inference server that a test and a benchmark start

smoke: ## Build source archive and wheel in dist/ and try the wheel in an environment that holds only what it needs
	PYTHON=$(PYTHON) $(ONE_THREAD) scripts/check_wheel.sh

release-check: smoke sbom check ## Check what a release consists of (ARGS=--released asks for an owner and a date, too)
	$(BIN)/python scripts/check_release.py dist $(ARGS)

sbom: $(TOOLS_READY) $(SBOM_READY) ## List the packages that a plain installation consists of in sbom.json (CycloneDX)
	$(BIN)/python scripts/sbom.py $(SBOM_VENV)/bin/cyclonedx-py sbom.json

environment: $(TOOLS_READY) ## Make the environment of the tests and checks alone

clean: ## Remove caches and build products
	rm -rf build dist site sbom.json .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find src tests scripts benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## Remove the environments too
	rm -rf $(VENV) $(BENCH_VENV) $(SERVER_VENV) $(SBOM_VENV) $(EXTRAS)

# One pip for all, whichever came with the interpreter. Only wheels are taken, so that a missing one shows; what builds the
# exceptions and ourselves comes in the versions of constraints.txt, too, and does not stay in the environment.
define make-environment
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Brinell needs Python 3.11 or newer; name one with PYTHON=...")'
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --constraint constraints.txt --only-binary :all: pip
endef
INSTALL := -m pip install --quiet --only-binary :all:
OURS := --constraint constraints.txt --build-constraint constraints.txt

# What `brinell audit` needs, and nothing else.
$(READY): pyproject.toml constraints.txt
	$(call make-environment,$(VENV))
	$(BIN)/python $(INSTALL) $(OURS) --editable .
	touch $@

# The rest, for tests, checks and the site.
$(TOOLS_READY): $(READY)
	$(BIN)/python $(INSTALL) $(OURS) --editable '.[dev]' --group site
	touch $@

# torchattacks pins old versions of requests and its kin that break the rest; it runs well without them.
$(BENCH_READY): pyproject.toml constraints.txt benchmarks/constraints.txt
	$(call make-environment,$(BENCH_VENV))
	$(BENCH_BIN)/python $(INSTALL) $(OURS) --editable '.[all]' onnxscript
	$(BENCH_BIN)/python $(INSTALL) --constraint constraints.txt --constraint benchmarks/constraints.txt \
		foolbox adversarial-robustness-toolbox
	$(BENCH_BIN)/python $(INSTALL) --constraint benchmarks/constraints.txt --no-deps torchattacks
	touch $@

# A folder that is looked at before the environment. The second line brings packages that would take a torch of their own along;
# that of the environment serves them.
$(EXTRAS_READY): $(TOOLS_READY) benchmarks/extras-constraints.txt
	rm -rf $(EXTRAS)
	$(BIN)/python $(INSTALL) --target $(EXTRAS) --constraint benchmarks/extras-constraints.txt \
		ray psutil
	$(BIN)/python $(INSTALL) --target $(EXTRAS) --constraint benchmarks/extras-constraints.txt --no-deps \
		accelerate lightning lightning-utilities torchmetrics
	touch $@

# It shares nothing with ours but pip: it pins a web framework of its own.
$(SERVER_READY): benchmarks/server-constraints.txt
	$(call make-environment,$(SERVER_VENV))
	$(SERVER_VENV)/bin/python $(INSTALL) --constraint benchmarks/server-constraints.txt mlserver
	touch $@

# It looks at another environment from outside.
$(SBOM_READY):
	$(call make-environment,$(SBOM_VENV))
	$(SBOM_VENV)/bin/python $(INSTALL) cyclonedx-bom==7.5.0
	touch $@
