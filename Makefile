# The project's commands. `make help` lists them; every other target creates `.venv` and installs what it needs.

PYTHON ?= python3
SPEC ?= sm80_hgemm_tn
FUZZ ?=
SEED ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COMPILES := $(VENV)/.compiles
PYTEST := $(BIN)/pytest -n auto --maxprocesses 8 --dist worksteal $(if $(SEED),--seed $(SEED))

.DEFAULT_GOAL := help
.NOTPARALLEL:  # targets would install into one environment at once
.PHONY: help run quick test test-slow test-all test-drawn test-gpu fuzz check format bench-cost gallery mutants clean

help: ## list these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | sort | \
	  while IFS="$$(printf '\t')" read -r name what; do printf '  make %-11s %s\n' "$$name" "$$what"; done

run: $(COMPILES) ## the main job: plan SPEC, build its kernel, run it (on the CPU without a GPU or torch), check the result
	$(BIN)/cutegen plan $(SPEC)
	$(BIN)/cutegen build $(SPEC)
	$(BIN)/cutegen run $(SPEC) --device auto

quick: $(INSTALLED) ## a few tests of every package, for daily work: those in tests/quick.txt
	$(BIN)/pytest -n auto --maxprocesses 2 -m "not slow and not gpu" @tests/quick.txt

test: $(INSTALLED) ## the fast tests that need no GPU; SEED=7 draws the inputs of the run that printed this seed, SEED=new others
	$(PYTEST) -m "not slow and not gpu"

test-slow: $(INSTALLED) ## the slow tests that need no GPU
	$(PYTEST) -m "slow and not gpu"

test-all: $(INSTALLED) ## every test; without a GPU, those that need one are skipped
	$(PYTEST)

test-drawn: $(INSTALLED) ## what CI runs: every fast test, and the fifth of the slow ones that this commit draws
	$(PYTEST) --draw $$(git rev-parse HEAD || echo none)

test-gpu: $(INSTALLED) ## the tests that need a GPU, one at a time
	$(BIN)/pytest -m gpu $(if $(SEED),--seed $(SEED))

fuzz: $(INSTALLED) ## the full fuzz run, for hours; FUZZ="--kind specs --seed 2000 --count 500 --jobs 2" runs a slice
	$(BIN)/python -m tests.fuzz $(FUZZ)

check: $(INSTALLED) ## check lint, formatting, spelling, prose, types and import directions
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell
	$(BIN)/proselint check --config tests/house/proselint.json $$(git ls-files '*.md')
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(INSTALLED) ## reformat the sources and apply the linter's fixes
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench-cost: $(INSTALLED) ## time import, plan, cold and warm build, and a cache hit in process
	$(BIN)/python benchmarks/cost.py

mutants: $(INSTALLED) ## plant small mistakes in the sources and list those that no fast test notices (MUTANTS="--sample 100")
	$(BIN)/python -m tests.mutation $(MUTANTS)

gallery: $(INSTALLED) ## draw docs/pictures and write docs/gallery.md
	$(BIN)/python scripts/make_gallery.py

clean: ## remove .venv and the tools' caches and outputs
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache

# Stamps, valid until the project file or the constraints change: COMPILES has what plans, compiles and runs; INSTALLED has everything.
$(COMPILES): EXTRAS :=
$(INSTALLED): EXTRAS := [torch,dev]
$(COMPILES) $(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("cutegen needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.$(EXTRAS)' --constraint constraints.txt
	@touch $(COMPILES) $@
