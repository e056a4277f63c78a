# coordlab: `make demo` shows it, `make test` proves it. Both set up .venv by themselves.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp
# A .venv with the tools of the tests has all that a user needs.
USER_STAMP := $(if $(wildcard $(STAMP)),$(STAMP),$(VENV)/.setup-user-stamp)
RUN := $(BIN)/python -m coordlab
SEED ?= 7
# Every node on Ray, every command that a test runs is a process that imports the lab: what it would
# compile anew each time is a third of `make test`.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup setup-dev fast demo test test-fast check bench soak cluster docs pictures clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(USER_STAMP) ## a virtual environment in .venv with what a user needs, pinned

$(VENV)/.setup-user-stamp: pyproject.toml constraints.txt
	@scripts/setup $(VENV)
	@touch $@

setup-dev: $(STAMP) ## the tools of the tests beside it; every target but setup and demo does this

$(STAMP): pyproject.toml constraints.txt
	@scripts/setup $(VENV) dev
	@touch $@

fast: $(STAMP) ## compile the hot modules into build/: faster virtual time, same digests (needs a C compiler)
	$(BIN)/python -m scripts.compiled

demo: $(USER_STAMP) ## run coordinator_crash on a local Ray (about a minute), analyse it with Spark
	$(RUN) run coordinator_crash --runtime ray --seed $(SEED)
	@$(RUN) doctor --only java

test: $(STAMP) ## every test, layers and types included (needs Java 17 or newer)
	@$(RUN) doctor --only java
	$(BIN)/pytest -n 2 --dist loadgroup --no-loadscope-reorder -m "not soak" --durations=10

test-fast: $(STAMP) ## the tests over in a second, without Ray and Spark: under a minute in all
	$(BIN)/pytest -n 2 --dist loadgroup -m "not soak and not ray and not spark and not slow"

check: $(STAMP) ## format, lint, types, layers; prints the largest modules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@echo "largest modules (lines):"
	@git ls-files '*.py' | grep -v '^tests/' | xargs wc -l | sort -rn | sed -n '2,8p'

bench: $(STAMP) ## benchmarks, each a ratio to a baseline of its run; PART=large_groups|thousand_runs: long ones; writes docs/BENCHMARKS.md
	$(BIN)/python -m benchmarks $(if $(PART),--part $(PART))

soak: $(STAMP) ## real default timeouts, many seeds; PART=experiments|explore|mutants|sight|storage|summaries|clients|local|zookeeper|ray, up to an hour each; writes docs/SOAK.md
	$(BIN)/python -m benchmarks.soak $(if $(PART),--part $(PART))

cluster: $(STAMP) ## runs on three machines made of namespaces, some of which go away (root, Linux); prints a table
	$(BIN)/python -m benchmarks.cluster $(if $(PART),--only $(PART))

docs: $(STAMP) ## write docs/generated from the code
	$(BIN)/python -m scripts.docs.reference

pictures: $(STAMP) ## run experiments and write docs/pictures from their reports (needs chromium)
	$(BIN)/python -m scripts.report_pictures

clean: ## remove the virtual environment and caches; runs/ stays
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
