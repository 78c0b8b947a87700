# Two commands for a newcomer: `make demo` and `make test`. `make help` lists the rest.
.DEFAULT_GOAL := help
.PHONY: help setup setup-browser lock sbom wheel demo test test-all test-rest check pictures bench \
    figures faults explore compose-test cdc-test clean
export PYTHON
# Tests and the service start hundreds of our processes: none should compile what another one has.
export PYTHONDONTWRITEBYTECODE :=

RUN := .venv/bin/python
# Each worker has a broker and a Spark of its own, some 4 GB. A file's tests stay in one worker. On
# two cores the third one works while others wait.
WORKERS ?= 3
PYTEST := $(RUN) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## everything into .venv and .jars; does nothing when it is there
	@setup/setup.sh

setup-browser: ## install Chromium for the console's browser tests
	@setup/setup_browser.sh

lock: ## renew the lock files after a change of dependencies; ARGS=--upgrade takes the newest
	@$(or $(wildcard $(RUN)),python3) -m setup.lock $(ARGS)

sbom: setup ## the list of everything that is installed, as CycloneDX JSON, in build/
	@mkdir -p build
	@$(RUN) -m setup.sbom $(ARGS) > build/sbom.cdx.json
	@echo "sbom: build/sbom.cdx.json"

wheel: setup ## the engine and its client in build/: pip install build/wheel/*.whl, then retally setup
	@rm -rf build/lib build/bdist.* build/wheel client/build
	@$(RUN) -m setup.wheel
	@ls build/wheel/*.whl

demo: ## a broker, a changing source, the service and two jobs
	@setup/setup.sh --user
	@.venv/bin/retally demo

test: setup ## the tests of every part, with a real broker, Spark and LMDB; ARGS="-k name" picks
	@$(PYTEST) -m "not slow and not faults" $(ARGS)

test-rest: setup ## what make test leaves out: more cases, longer histories
	@$(PYTEST) -m "slow and not faults" $(ARGS)

test-all: ## both, one after the other
	@$(MAKE) test
	@$(MAKE) test-rest

check: setup ## lock files, format, lint, types, and the tests that start no JVM
	@$(RUN) -m ruff format --check .
	@$(RUN) -m ruff check .
	@$(RUN) -m mypy
	@$(PYTEST) -q -m "not spark and not broker and not browser and not faults and not slow"

pictures: setup ## screenshots of all pages of the console, in build/pictures
	@$(RUN) -m tests.support.console.gallery $(or $(ARGS),build/pictures)

bench: setup ## throughput and latency, with Flink in the same run
	@$(RUN) -m bench $(ARGS)

figures: setup ## figures of the pages, from what make bench and make test have kept
	@$(RUN) -m bench.report
	@$(RUN) -m tests.support.runner.costs

faults: setup ## kills, races, long histories, then explore; ARGS="--resume" goes on where it was
	@$(RUN) -m pytest -m faults tests $(ARGS)
	@$(if $(ARGS),,$(MAKE) explore)

compose-test: setup ## docs/deploy.md on a Docker engine, with kills; ARGS="-k kill" picks some
	@$(RUN) -m pytest -n 0 -s tests/compose $(ARGS)

cdc-test: setup ## jobs behind real MariaDB, MySQL, canal and Debezium; ARGS="-k mariadb" picks some
	@$(RUN) -m pytest -n 0 -s tests/cdc $(ARGS)

explore: setup ## the properties, with twenty times as many examples, new ones each time
	@EXPLORE=1 EXAMPLES=20 $(PYTEST) -m hypothesis $(ARGS)

clean: ## take away what the set-up and the tools made
	@rm -rf client/build client/*.egg-info .venv .java .java.partial .jars .jars.partial build *.egg-info .mypy_cache .ruff_cache .pytest_cache \
	    .hypothesis spark-warehouse metastore_db derby.log
