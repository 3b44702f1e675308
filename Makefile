# The project's commands. `make help` lists them; every other one makes `.venv` and installs what it needs by itself.

PYTHON ?= python3
SPEC ?= sm80_hgemm_tn
FUZZ ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COMPILES := $(VENV)/.compiles
PYTEST := $(BIN)/pytest -n auto --maxprocesses 8 --dist worksteal

.DEFAULT_GOAL := help
.NOTPARALLEL:  # two installations into one environment
.PHONY: help run quick test test-slow test-all test-drawn test-gpu fuzz check format bench-cost gallery mutants clean

help: ## these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | sort | \
	  while IFS="$$(printf '\t')" read -r name what; do printf '  make %-11s %s\n' "$$name" "$$what"; done

run: $(COMPILES) ## the main job: plan SPEC, build its kernel, run it (on the CPU where there is no GPU, or no torch), check the result
	$(BIN)/cutegen plan $(SPEC)
	$(BIN)/cutegen build $(SPEC)
	$(BIN)/cutegen run $(SPEC) --device auto

quick: $(INSTALLED) ## some tests of every room, for daily work: those that tests/quick.txt lists
	$(BIN)/pytest -n auto --maxprocesses 2 -m "not slow and not gpu" @tests/quick.txt

test: $(INSTALLED) ## the fast tests, which need no GPU
	$(PYTEST) -m "not slow and not gpu"

test-slow: $(INSTALLED) ## the tests that `make test` leaves out and that need no GPU
	$(PYTEST) -m "slow and not gpu"

test-all: $(INSTALLED) ## every test; those that need a GPU are skipped where there is none
	$(PYTEST)

test-drawn: $(INSTALLED) ## every fast test, and of the slow ones the third that this commit draws: what CI runs
	$(PYTEST) --draw $$(git rev-parse HEAD || echo none)

test-gpu: $(INSTALLED) ## the tests that need a GPU, one after the other
	$(BIN)/pytest -m gpu

fuzz: $(INSTALLED) ## hostile testing in full, for hours: FUZZ="--kind specs --seed 2000 --count 500 --jobs 2" for a slice
	$(BIN)/python -m tests.fuzz $(FUZZ)

check: $(INSTALLED) ## lint, formatting, spelling, prose, types, and the directions of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell
	$(BIN)/proselint check --config tests/house/proselint.json $$(git ls-files '*.md')
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(INSTALLED) ## reformat the sources, and mend what the linter can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench-cost: $(INSTALLED) ## what using cutegen costs: import, plan, cold and warm build, a hit in process
	$(BIN)/python benchmarks/cost.py

mutants: $(INSTALLED) ## plant small mistakes in the sources and list those that no fast test sees (MUTANTS="--sample 100")
	$(BIN)/python -m tests.mutation $(MUTANTS)

gallery: $(INSTALLED) ## draw docs/pictures again, and write docs/gallery.md
	$(BIN)/python scripts/make_gallery.py

clean: ## remove .venv and what the tools leave behind
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache

# Up to date until the project file or the constraints change: with what plans, compiles and runs, or with everything.
$(COMPILES): EXTRAS :=
$(INSTALLED): EXTRAS := [torch,dev]
$(COMPILES) $(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("cutegen needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.$(EXTRAS)' --constraint constraints.txt
	@touch $(COMPILES) $@
