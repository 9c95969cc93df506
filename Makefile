# agymc: `make demo` shows it, `make test` checks it. Both make their own .venv from nothing.
# Wants GNU make and Python 3.11 or later (`make clean test PYTHON=/path/to/python3.13` picks one).

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?=
PIP_INSTALL := $(BIN)/python -m pip install -qq --no-input --disable-pip-version-check

# A stamp is as new as the last installation from pyproject.toml, so a repeat installs nothing.
# The package is installed editable: a change in src/ needs no installation either.
VENV_STAMP := $(VENV)/.made
DEMO_STAMP := $(VENV)/.installed-demo
TEST_STAMP := $(VENV)/.installed-test

BENCH_VENV := .venv-bench
BENCH_STAMP := $(BENCH_VENV)/.installed-bench
BENCH_FLAGS :=

DEMO_PICTURE := build/demo-mosaic.png
DEMO_FLAGS := CartPole-v1 --num-envs 200 --episodes 5 --seed 0 --record $(DEMO_PICTURE) --compare
PYTEST_FLAGS := -q -n 2 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench clean
.NOTPARALLEL:

help: ## say what can be made
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' Makefile

demo: $(DEMO_STAMP) ## run 200 CartPoles at once, with a picture in build/
	@mkdir -p $(dir $(DEMO_PICTURE))
	$(BIN)/agymc run $(DEMO_FLAGS)

# No test needs a display: SDL, which draws for pygame, is told to draw into memory.
test: export SDL_VIDEODRIVER := dummy
test: export SDL_AUDIODRIVER := dummy
# NumPy's linear algebra starts a thread per CPU, which spins, in each of thousands of processes.
test: export OPENBLAS_NUM_THREADS := 1
test: lint ## check everything: lint, then all tests (PYTEST_FLAGS="-k name" for some)
	@# Thousands of worker processes import these. Where bytecode is not written by default (as
	@# PYTHONDONTWRITEBYTECODE has it), each of them would compile it all again.
	@$(BIN)/python -m compileall -q src tests
	$(BIN)/pytest $(PYTEST_FLAGS)

lint: $(TEST_STAMP) ## check style, format, types and layers
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# In a virtual environment of its own: the peers want older versions of this and that.
bench: $(BENCH_STAMP) ## measure agymc and its peers at all works (about an hour, some GB for the peers)
	@mkdir -p build/bench
	$(BENCH_VENV)/bin/python benchmarks/panel.py --json build/bench/panel.json --plot build/bench/panel.png $(BENCH_FLAGS)

clean: ## remove all that make made, .venv too
	rm -rf $(VENV) $(BENCH_VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(DEMO_STAMP): pyproject.toml $(VENV_STAMP)
	@echo "Installing agymc with what the demo needs into $(VENV) ..."
	@$(PIP_INSTALL) -e '.[cli,render,classic]'
	@touch $@

$(BENCH_STAMP): pyproject.toml
	@$(MAKE) --no-print-directory VENV=$(BENCH_VENV) $(BENCH_VENV)/.made
	@echo "Installing agymc with its peers into $(BENCH_VENV) ..."
	@$(BENCH_VENV)/bin/python -m pip install -qq --no-input --disable-pip-version-check -e '.[all]' --group peers
	@touch $@

$(TEST_STAMP): pyproject.toml $(VENV_STAMP)
	@echo "Installing agymc with what the tests need into $(VENV) ..."
	@$(PIP_INSTALL) -e '.[all]' --group dev
	@touch $@

# The first Python that is new enough and able to make a virtual environment. pip 25.1 knows --group.
$(VENV_STAMP):
	@for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
	    "$$python" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' \
	        >/dev/null 2>&1 || continue; \
	    echo "Making $(VENV) with $$("$$python" --version) ..."; \
	    rm -rf $(VENV); \
	    "$$python" -m venv $(VENV) && $(PIP_INSTALL) 'pip>=25.1' && touch $@; \
	    exit; \
	done; \
	echo "agymc needs Python 3.11 or later with its venv module, and found none:" \
	    "$(or $(PYTHON),python3) is $$($(or $(PYTHON),python3) --version 2>/dev/null || echo missing)." >&2; \
	echo "Install one (on Debian or Ubuntu: apt install python3 python3-venv)," \
	    "or name it: make $(or $(MAKECMDGOALS),test) PYTHON=/path/to/python" >&2; \
	exit 1
