# Two commands for a newcomer: `make demo` and `make test`. `make help` lists the rest.
.DEFAULT_GOAL := help
.PHONY: help setup setup-browser demo test check bench faults clean
export PYTHON

RUN := .venv/bin/python

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## everything into .venv and .jars; does nothing when it is there
	@setup/setup.sh

setup-browser: ## Chromium, which the tests of the console look at its pages with
	@setup/setup_browser.sh

demo: setup ## a broker, a living source, a job, and its changing results
	@.venv/bin/retally demo

test: setup ## all tests; ARGS="-k name" picks some
	@$(RUN) -m pytest $(ARGS)

check: setup ## format, lint, types, and the tests that start no JVM
	@$(RUN) -m ruff format --check .
	@$(RUN) -m ruff check .
	@$(RUN) -m mypy
	@$(RUN) -m pytest -q -m "not spark and not broker and not browser and not faults and not slow"

bench: setup ## throughput and latency, with Flink in the same run
	@$(RUN) -m bench $(ARGS)

faults: setup ## kills, races, long histories; ARGS="--resume" goes on where it was
	@$(RUN) -m pytest -m faults tests $(ARGS)

clean: ## take away what the set-up and the tools made
	@rm -rf .venv .jars .jars.partial build *.egg-info .mypy_cache .ruff_cache .pytest_cache \
	    .hypothesis spark-warehouse metastore_db derby.log
