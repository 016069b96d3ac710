# `make` lists the commands. Only python3 (3.11 or newer, with venv and pip) and make are needed.

PYTHON ?= python3
# One more than there are cores: many tests wait for servers and processes.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)
# An idle test process takes tests from the others. Otherwise one of them would end minutes later.
PARALLEL = -n $(WORKERS) --dist worksteal
# Some containers set it. Every process that a test starts would then compile all modules again,
# which takes 0.2 s each.
unexport PYTHONDONTWRITEBYTECODE
SEED ?= 0
COUNT ?= 1000

VENV := .venv
BIN := $(VENV)/bin
# With --quiet twice, pip prints errors only.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet install
FAST := $(wildcard tests/unit tests/architecture tests/property tests/conformance)
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-annotate

.DEFAULT_GOAL := help
.PHONY: help setup demo check test lint coverage format reference sim chaos bench lock clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/dev.stamp ## create .venv with everything that development needs

demo: $(VENV)/run.stamp ## run the example workflow; needs no service and no set-up
	@$(BIN)/runnel run examples/demo.yaml

check: setup lint ## check format, lint, types and imports, and run the fast tests: under a minute
	@$(BIN)/pytest --quiet $(PARALLEL) -m "not slow" --hypothesis-profile=quick $(FAST)

test: setup lint ## check as above, and run all tests
	@$(BIN)/pytest $(PARALLEL) --durations=15

format: setup ## format the code and apply automatic fixes
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

reference: setup ## generate docs/reference and the JSON Schema of workflow files from the code
	@$(BIN)/python -m runnel.authoring.documents.schema
	@$(BIN)/python -m tools.reference

coverage: setup ## run all tests except measurements, and report lines and branches without a test
	@RUNNEL_BUDGET_FACTOR=5 $(BIN)/pytest --quiet $(PARALLEL) --ignore tests/performance --cov --cov-report=term
	@$(BIN)/python -m tests.branch_coverage

sim: setup ## simulate COUNT seeds from SEED on; the last line has the result
	@$(BIN)/python -m simulation --seed $(SEED) --count $(COUNT)

chaos: setup ## run COUNT executions while servers are killed, paused, wiped and rolled back; SEED=...
	@$(BIN)/python -m tests.chaos --seed $(SEED) --executions $(COUNT)

bench: setup ## run all benchmarks, or a part: ARGS="--quick", see bench/README.md
	@$(BIN)/python -m bench $(ARGS)

lock: ## pin the newest allowed dependencies again in requirements/
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT \
	&& $(PYTHON) -m venv "$$dir" \
	&& "$$dir/bin/python" -m pip --disable-pip-version-check -qq install uv \
	&& rm -f requirements/dev.txt requirements/run.txt \
	&& "$$dir/bin/"$(LOCK) --extra dev -o requirements/dev.txt \
		pyproject.toml requirements/build.in \
	&& "$$dir/bin/"$(LOCK) --constraint requirements/dev.txt -o requirements/run.txt \
		pyproject.toml requirements/build.in

clean: ## remove .venv and every cache
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis \
		.coverage .coverage.* build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

lint: setup
	@$(BIN)/ruff format --quiet --check . \
		|| { echo "some files are not formatted: make format" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo

# Check the version first: an old Python fails much later, with an unhelpful message.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit( \
		f"expected Python 3.11 or newer, got {v[0]}.{v[1]}: try make PYTHON=python3.13")'
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# Each pin file is complete (a test proves it), so pip resolves nothing: a package published since
# then can't change what is installed. Runnel itself is a local folder and has no hash.
PINNED := $(PIP) --no-deps --require-hashes -r
LOCAL := $(PIP) --no-deps --no-build-isolation --editable .

$(VENV)/run.stamp: requirements/run.txt pyproject.toml | $(BIN)/python
	@$(PINNED) requirements/run.txt
	@$(LOCAL)
	@touch $@

$(VENV)/dev.stamp: requirements/dev.txt pyproject.toml | $(BIN)/python
	@$(PINNED) requirements/dev.txt
	@$(LOCAL)
	@touch $(VENV)/run.stamp $@
