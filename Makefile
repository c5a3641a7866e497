# Everything a person or a CI machine runs. Each target sets up first what is missing; nothing is done twice.
#
#   make setup                     .venv with the pinned versions, then the embedded models' weights
#   make setup PYTHON=python3.12   with another interpreter
#   make setup TORCH_INDEX=URL     torch from another package index (a CPU-only or another CUDA build)

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
TORCH_INDEX ?=
SEED ?= 0
TEST_PROCESSES ?= 2
PYTEST_ARGS ?=

VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
INSTALLED := $(VENV)/.installed

.PHONY: help setup weights demo test lint format lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) weights ## make .venv and fetch the model weights (minutes the first time)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Sharpwave needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Install a newer Python and run: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12" >&2; exit 1; }
	@echo "[1/3] making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

$(INSTALLED): requirements.lock pyproject.toml | $(VENV)/bin/python
	@echo "[2/3] installing the pinned packages (several hundred MB the first time)"
	@if [ -n "$(TORCH_INDEX)" ]; then \
	  $(PIP) install --index-url "$(TORCH_INDEX)" --no-deps "$$(grep '^torch==' requirements.lock)"; fi
	@$(PIP) install --requirement requirements.lock
	@$(PIP) install --no-deps --editable .
	@touch $@

# The weights live in the user's cache, which several checkouts share and which may be deleted or moved at any
# time, so their stamp lies beside them and is looked at by the shell.
weights: $(INSTALLED)
	@stamp="$${SHARPWAVE_HOME:-$$HOME/.cache/sharpwave}/.fetched"; \
	if [ ! -e "$$stamp" ] || [ carriers/model_registry.py -nt "$$stamp" ]; then \
	  echo "[3/3] fetching and converting the embedded models"; \
	  $(VENV)/bin/sharpwave models --fetch && mkdir -p "$$(dirname "$$stamp")" && touch "$$stamp"; fi

demo: setup ## the whole memory loop on real models and facts; results in runs/demo
	@$(VENV)/bin/sharpwave demo --seed $(SEED)

test: setup ## every test, offline
	@$(VENV)/bin/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

lint: setup ## format, style, types and import rules
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: $(INSTALLED) ## rewrite the code in the house format
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

lock: $(INSTALLED) ## write requirements.lock anew from what .venv holds
	@$(PIP) freeze --exclude-editable | sed -E 's/^(torch==[^+]*)\+.*/\1/' > requirements.lock
	@touch $(INSTALLED)

clean: ## remove caches and .venv; keeps runs, stores and model weights
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
