# `make` lists the commands. Only python3 (3.11 or newer, with venv and pip) and make are needed.

PYTHON ?= python3
# One more than there are cores: many tests wait for servers and processes.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)
# Who has nothing left to do takes from the others: otherwise one of them ends minutes later.
PARALLEL = -n $(WORKERS) --dist worksteal
# Without it every process that a test starts would compile all anew: 0.2 s each, in containers
# whose environment says so.
unexport PYTHONDONTWRITEBYTECODE
SEED ?= 0
COUNT ?= 1000

VENV := .venv
BIN := $(VENV)/bin
# Twice quiet: pip then speaks of errors only.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet install
FAST := $(wildcard tests/unit tests/architecture tests/property tests/conformance)
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-annotate

.DEFAULT_GOAL := help
.PHONY: help setup demo check test lint coverage format reference sim chaos bench lock clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/dev.stamp ## make .venv with all that development needs

demo: $(VENV)/run.stamp ## run the example workflow, with no service and no set-up of yours
	@$(BIN)/runnel run examples/demo.yaml

check: setup lint ## format, lint, types, imports and the fast tests: under a minute
	@$(BIN)/pytest --quiet $(PARALLEL) -m "not slow" --hypothesis-profile=quick $(FAST)

test: setup lint ## everything
	@$(BIN)/pytest $(PARALLEL) --durations=15

format: setup ## format the code and fix what can be fixed
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

reference: setup ## write docs/reference and the JSON Schema of workflow files anew, from the code
	@$(BIN)/python -m runnel.authoring.documents.schema
	@$(BIN)/python -m tools.reference

coverage: setup ## the whole suite but its measurements, with the lines and branches it leaves out
	@RUNNEL_BUDGET_FACTOR=5 $(BIN)/pytest --quiet $(PARALLEL) --ignore tests/performance --cov --cov-report=term
	@$(BIN)/python -m tests.branch_coverage

sim: setup ## simulate: SEED=first COUNT=how many; the last line says what came of it
	@$(BIN)/python -m simulation --seed $(SEED) --count $(COUNT)

chaos: setup ## kill, pause, wipe and roll back the servers of a real deployment: SEED=... COUNT=how many executions
	@$(BIN)/python -m tests.chaos --seed $(SEED) --executions $(COUNT)

bench: setup ## measure everything, or what ARGS say: ARGS="--quick", see bench/README.md
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

# The version is checked first because an old Python fails much later, in words that do not help.
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
