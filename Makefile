# Targets for people and for .ci/run; `make` alone lists them.
#   PYTHON=...   the Python to make environments with (3.11 or newer; by default make looks for one)
#   ARGS=...     arguments for demo, bench and broker
#   WORKERS=, CLUSTERS=   how many processes run the tests, and how many run the tests of Spark
#   CARGO=       the cargo that builds native steps
#   MINUTES=     for `make fuzz`: how long
#   HEADERWARE_REQUIRE_ALL=   for `make test`, `test-long` and `test-versions`: skip tests that cannot run here, rather than fail

.DEFAULT_GOAL := help
SHELL := /bin/sh
.DELETE_ON_ERROR:

PYTHON ?=
CARGO ?= cargo
ARGS ?=
BIN := .venv/bin
# Python compiles a module when it first imports it; most modules of pyspark and its like never are.
PIP_FLAGS := --quiet --disable-pip-version-check --no-compile
# Unless told otherwise, a test whose part is missing here fails rather than skips.
REQUIRE_ALL := HEADERWARE_REQUIRE_ALL="$${HEADERWARE_REQUIRE_ALL-1}"
# Many tests wait for a cluster or a deadline, so there are more processes than cores.
WORKERS ?= 6
# Each of these starts a Kafka and a Spark of its own; Spark works all the time.
CLUSTERS ?= 2
# `make test` runs two stages at once, so that one works while the other waits; each has half of the processes.
# Three at once were no faster on two cores, and some tests met deadlines.
HALVED := WORKERS=$$((($(WORKERS) + 1) / 2)) CLUSTERS=$$((($(CLUSTERS) + 1) / 2))
# How long `make fuzz` tries.
MINUTES ?= 10
# The tests of one file run in one process, so that their shared fixtures are made once. If a process dies, the
# others end: with a new one in its place, pytest-xdist may wait for ever.
PARALLEL := --dist loadfile --max-worker-restart 0
QUICK_TESTS := tests/unit tests/vectors tests/property tests/attacks tests/native
# Let Python store compiled modules, so that the processes of tests do not compile them again.
export PYTHONDONTWRITEBYTECODE :=

# The editable install answers to import hooks, which pyright does not run: it needs the root on its path.
STATIC := PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONPATH="$(CURDIR)"

# The demo and the broker run in .venv if it exists, else in a small environment of their own.
DEMO := $(if $(wildcard .venv/.ready),.venv,.venv-demo)

CANDIDATES := $(if $(PYTHON),$(PYTHON),python3.11 python3.12 python3.13 python3 python)
ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

# $(call make_environment,FOLDER): make a virtual environment in FOLDER unless a whole one is there.
define make_environment
@found=''; if ! { $(1)/bin/python -c '$(ENOUGH)' && $(1)/bin/python -m pip --version; } >/dev/null 2>&1; then \
	for candidate in $(CANDIDATES); do \
		if "$$candidate" -c '$(ENOUGH)' >/dev/null 2>&1; then found=$$candidate; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "Python 3.11 or newer, with its venv module, is missing; tried: $(CANDIDATES)." >&2; \
		echo "Install it, for instance with 'apt install python3 python3-venv', 'dnf install python3.11' or" >&2; \
		echo "'brew install python@3.11', or name one: make PYTHON=/path/to/python3 ..." >&2; \
		exit 1; \
	fi; \
	echo "making $(1) with $$found"; \
	"$$found" -m venv --clear $(1); \
fi
endef

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

# $(call install_native,FOLDER): build headerware-native, and install it in an environment.
define install_native
@echo "building headerware-native (minutes the first time)"
@PIP_CONSTRAINT=requirements/native.txt $(1)/bin/python -m pip install $(PIP_FLAGS) --no-deps --force-reinstall ./native/headerware-native
$(call tell_native,$(1))
endef

# $(call tell_native,FOLDER): print the version of headerware-native in an environment, or why it is not used.
tell_native = @$(1)/bin/python -c 'from headerware.core.native import native_module; print("native:", native_module()[1])'

.PHONY: setup
setup: .venv/.ready ## make .venv with everything that development and tests need
	$(call tell_native,.venv)

.venv/.ready: pyproject.toml requirements/dev.txt
	$(call make_environment,.venv)
	@echo "installing into .venv (pyspark alone is 400 MB; this can take minutes)"
	@$(BIN)/python -m pip install $(PIP_FLAGS) --constraint requirements/dev.txt --editable '.[dev]'
	@touch $@

.PHONY: native
native: .venv/.ready ## build headerware-native and install it in .venv; needs cargo
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust 1.88 or newer, then run make native again" >&2; exit 1; }
	$(call install_native,.venv)

.venv-demo/.ready: pyproject.toml requirements/runtime.txt
	$(call make_environment,.venv-demo)
	@echo "installing into .venv-demo"
	@.venv-demo/bin/python -m pip install $(PIP_FLAGS) --constraint requirements/runtime.txt --editable .
	@.venv-demo/bin/python -m pip install $(PIP_FLAGS) --constraint requirements/runtime.txt --no-deps vega_datasets  # without pandas
	@touch $@

.venv-oldest/.ready: pyproject.toml requirements/oldest.txt
	$(call make_environment,.venv-oldest)
	@echo "installing into .venv-oldest"
	@.venv-oldest/bin/python -m pip install $(PIP_FLAGS) --constraint requirements/oldest.txt --editable '.[test]'
	@touch $@

CRATES := $(shell find native -name target -prune -o -name '*.rs' -print -o -name '*.toml' -print 2>/dev/null)

.venv-native/.ready: pyproject.toml requirements/dev.txt
	$(call make_environment,.venv-native)
	@echo "installing into .venv-native"
	@.venv-native/bin/python -m pip install $(PIP_FLAGS) --constraint requirements/dev.txt --editable '.[test,spark]'
	@touch $@

.venv-native/.built: .venv-native/.ready requirements/native.txt $(CRATES)
	$(call install_native,.venv-native)
	@touch $@

.venv-frameworks/.ready: pyproject.toml requirements/frameworks.txt
	$(call make_environment,.venv-frameworks)
	@echo "installing into .venv-frameworks"
	@.venv-frameworks/bin/python -m pip install $(PIP_FLAGS) --constraint requirements/frameworks.txt --editable '.[frameworks]'
	@.venv-frameworks/bin/python -m pip install $(PIP_FLAGS) --constraint requirements/frameworks.txt --no-deps quixstreams
	@touch $@

.venv-newest-spark/.ready: pyproject.toml requirements/newest-spark.txt
	$(call make_environment,.venv-newest-spark)
	@echo "installing into .venv-newest-spark (pyspark alone is 400 MB; this can take minutes)"
	@.venv-newest-spark/bin/python -m pip install $(PIP_FLAGS) --constraint requirements/newest-spark.txt --editable '.[test,spark-connect]'
	@touch $@

.venv-newest-connector/.ready: pyproject.toml requirements/newest-spark.txt
	$(call make_environment,.venv-newest-connector)
	@echo "installing into .venv-newest-connector (pyspark alone is 400 MB; this can take minutes)"
	@sed 's/^pyspark==.*/pyspark==$(NEWEST_CONNECTOR)/' requirements/newest-spark.txt | .venv-newest-connector/bin/python -m pip install $(PIP_FLAGS) --constraint /dev/stdin --editable '.[test,spark-connect]'
	@touch $@

.venv-release/.ready: pyproject.toml requirements/release.txt
	$(call make_environment,.venv-release)
	@echo "installing into .venv-release"
	@.venv-release/bin/python -m pip install $(PIP_FLAGS) --constraint requirements/release.txt --editable '.[release]'
	@touch $@

.venv-docs/.ready: pyproject.toml requirements/docs.txt
	$(call make_environment,.venv-docs)
	@echo "installing into .venv-docs"
	@.venv-docs/bin/python -m pip install $(PIP_FLAGS) --constraint requirements/docs.txt --editable '.[docs]'
	@touch $@

# An environment has the name of its Python: .venv-python3.13
.venv-python%/.ready: pyproject.toml requirements/dev.txt
	$(call make_environment,.venv-python$*)
	@echo "installing into .venv-python$*"
	@.venv-python$*/bin/python -m pip install $(PIP_FLAGS) --constraint requirements/dev.txt --editable '.[test]'
	@touch $@

.PHONY: demo
demo: $(DEMO)/.ready ## run the demo; needs neither Java nor Spark (ARGS=...)
	$(call tell_native,$(DEMO))
	@$(DEMO)/bin/python examples/demo/run.py $(ARGS)

.PHONY: java
java: .venv/.ready
	@$(REQUIRE_ALL); if [ -n "$$HEADERWARE_REQUIRE_ALL" ]; then $(BIN)/python -m headerware.testing.java; fi

# Test files that run a client of confluent-kafka; with another version of it, only these files run again.
RUNS_A_CLIENT := grep -rlE --include='test_*.py' --exclude='test_*docs.py' --exclude=test_package.py \
	--exclude='test_cloudevents*.py' --exclude-dir=spark_bridge \
	'(from|import) confluent_kafka|embedded_cluster|EmbeddedCluster' tests/unit tests/vectors
# The tests that depend most on msgspec, zstandard, cryptography and fastavro, which are the oldest there, too.
OTHERS_OF_THE_OLDEST := tests/unit/core/test_config.py \
	tests/unit/interceptors/test_compress.py tests/unit/interceptors/test_sign.py tests/unit/keyring/test_file.py \
	tests/unit/serdes/test_avro.py

# Tests of what a newer Python may change: annotations, asyncio, threads, forks, start-up.
PYTHON_TESTS := tests/unit/core tests/unit/cli/test_run.py \
	$(patsubst %,tests/unit/clients/test_%.py,aio aio_run carry executor instrumentation)
# The supported versions (the classifiers of pyproject.toml) without the oldest, from the PATH or pyenv.
NEWER_PYTHONS := python3.13 python3.12
NEWER_CANDIDATES = $(foreach python,$(NEWER_PYTHONS),$(python) $(wildcard $(HOME)/.pyenv/versions/*/bin/$(python)))

# pytest itself, not `python -m pytest`, which would put the root on the import path.
define test_with_oldest
@.venv-oldest/bin/python -c 'import confluent_kafka as ck; print("== with confluent-kafka", ck.__version__)'
.venv-oldest/bin/pytest -n $(WORKERS) $(PARALLEL) -m 'not broker' \
	$$({ $(RUNS_A_CLIENT); printf '%s\n' $(OTHERS_OF_THE_OLDEST); } | sort -u)
endef

define test_with_frameworks
$(REQUIRE_ALL) .venv-frameworks/bin/pytest tests/frameworks tests/integration/test_guides.py
endef

# A mirror may not have the connector of the newest Spark yet; this is the newest pyspark whose connector is there.
NEWEST_CONNECTOR := 4.2.0
NEEDS_THE_CONNECTOR := $(patsubst %,tests/spark/test_%.py,kills foreach_batch ledger session connect)

# Tests in which batches go through native code; where few files of a folder do, only these.
NATIVE_TESTS := tests/native tests/attacks tests/vectors tests/unit/core tests/unit/interceptors \
	$(patsubst %,tests/property/test_%.py,batches chains) \
	$(patsubst %,tests/unit/clients/test_%.py,bad_input verified) \
	$(patsubst %,tests/unit/ops/%.py,test_dictionaries test_tail test_verify guard/test_judge) tests/spark/test_native_steps.py

define test_native
MAKEFLAGS= $(CARGO) test --quiet --manifest-path native/Cargo.toml && \
HEADERWARE_REQUIRE_NATIVE=1 .venv-native/bin/pytest -n $(WORKERS) $(PARALLEL) -m 'not broker' $(NATIVE_TESTS) $(ARGS)
endef

define test_with_newest_spark
@.venv-newest-spark/bin/python -c 'import pyspark; print("== with pyspark", pyspark.__version__)'
$(REQUIRE_ALL) .venv-newest-spark/bin/pytest -n $(CLUSTERS) $(PARALLEL) -m 'not broker and not connector and not one_spark' tests/spark tests/unit/spark_bridge
@.venv-newest-connector/bin/python -c 'import pyspark; print("== with pyspark", pyspark.__version__, "and its connector")'
$(REQUIRE_ALL) .venv-newest-connector/bin/pytest -n $(CLUSTERS) $(PARALLEL) -m 'not one_spark' $(NEEDS_THE_CONNECTOR)
endef

# The stages of `make test`, those that take minutes by nature, and those that run tests with other versions; the
# longest first, and at the end what keeps two cores busy alone.
STAGES := test-quick test-spark-frames test-integration test-spark-streams
LONG := test-spark-long test-integration-long test-frameworks test-docs
VERSIONS := test-newest-spark test-oldest test-native test-newest-python

# $(call run_stages,TARGET,STAGES): run all stages, and say at the end which failed.
define run_stages
@log=$$(mktemp); failed=''; \
$(REQUIRE_ALL) $(MAKE) --no-print-directory --keep-going --jobs=2 $(HALVED) FAILED="$$log" $(2:%=stage-%) \
	|| failed=' none of the stages, but make itself'; \
if [ -s "$$log" ]; then failed=''; fi; \
for stage in $(2); do if grep -qx "$$stage" "$$log"; then failed="$$failed $$stage"; fi; done; rm -f "$$log"; \
if [ -n "$$failed" ]; then echo "make $(1): failed:$$failed; 'make STAGE' runs one alone" >&2; exit 1; fi; \
echo 'make $(1): passed: $(2)'
endef

.PHONY: test
test: java ## run the tests in stages, and say at the end which failed; needs Java 17
	$(call run_stages,test,$(STAGES))

.PHONY: test-long
test-long: java ## run the tests that take minutes: programs and brokers are killed, guides and examples run, a browser reads the site
	$(call run_stages,test-long,$(LONG))

.PHONY: test-versions
test-versions: java ## run tests again with the oldest and newest versions of what Headerware depends on
	$(call run_stages,test-versions,$(VERSIONS))

# One stage of several, whose name is stored if it fails.
stage-%:
	@$(MAKE) --no-print-directory $* || { echo $* >> "$(FAILED)"; exit 1; }

.PHONY: test-quick
test-quick: .venv/.ready ## run the tests that need neither a real Kafka nor Spark (ARGS=...)
	$(BIN)/pytest -n $(WORKERS) $(PARALLEL) $(QUICK_TESTS) $(ARGS)

.PHONY: test-integration
test-integration: java ## run the tests that need a real Kafka, but the long ones (ARGS=...)
	$(REQUIRE_ALL) $(BIN)/pytest -n $(WORKERS) $(PARALLEL) -m 'not long' tests/integration $(ARGS)

.PHONY: test-integration-long
test-integration-long: java ## run the tests in which programs and brokers are killed, and the guides and examples (ARGS=...)
	$(REQUIRE_ALL) $(BIN)/pytest -n $(WORKERS) $(PARALLEL) -m long tests/integration $(ARGS)

.PHONY: test-spark
test-spark: java ## run the tests that need Spark (ARGS=...)
	$(REQUIRE_ALL) $(BIN)/pytest -n $(CLUSTERS) $(PARALLEL) tests/spark $(ARGS)

.PHONY: test-spark-frames
test-spark-frames: java ## run the tests of Spark that need no Kafka, but the long ones (ARGS=...)
	@$(MAKE) --no-print-directory test-spark ARGS="-m 'not broker and not long' $(ARGS)"

.PHONY: test-spark-streams
test-spark-streams: java ## run the tests of Spark that need a real Kafka, but the long ones (ARGS=...)
	@$(MAKE) --no-print-directory test-spark CLUSTERS=$$((2 * $(CLUSTERS))) ARGS="-m 'broker and not long' $(ARGS)"  # they wait most of the time

.PHONY: test-spark-long
test-spark-long: java ## run the tests for which Spark is killed, submitted or started anew
	@$(MAKE) --no-print-directory test-spark CLUSTERS=$$((2 * $(CLUSTERS))) ARGS="-m long $(ARGS)"  # they wait, too

.PHONY: test-exhaustive
test-exhaustive: java ## run the property tests and the comparison with Kafka Connect with all their examples
	$(REQUIRE_ALL) HYPOTHESIS_PROFILE=full $(BIN)/pytest -n $(WORKERS) $(PARALLEL) -m hypothesis $(QUICK_TESTS) $(ARGS)
	@$(MAKE) --no-print-directory test-native HYPOTHESIS_PROFILE=full NATIVE_TESTS='-m hypothesis tests/native'

.PHONY: test-oldest
test-oldest: .venv-oldest/.ready ## run the quick tests of clients with the oldest confluent-kafka
	$(test_with_oldest)

.PHONY: test-frameworks
test-frameworks: .venv-frameworks/.ready ## run frameworks and tracers under `headerware run`, and the guides about them
	$(test_with_frameworks)

.PHONY: test-docs
test-docs: docs ## build the site, and read it in a real browser
	$(REQUIRE_ALL) .venv-docs/bin/pytest tests/site $(ARGS)

.PHONY: test-newest-spark
test-newest-spark: java .venv-newest-spark/.ready .venv-newest-connector/.ready ## run tests of Spark with the newest pyspark, and with the newest that has a connector
	$(test_with_newest_spark)

.PHONY: test-python
test-python: $(if $(PYTHON),.venv-$(notdir $(PYTHON))/.ready) ## run the quick tests with another Python (PYTHON=python3.13, ARGS=...)
	@if [ -z '$(PYTHON)' ]; then echo 'name a Python: make test-python PYTHON=python3.13' >&2; exit 1; fi
	.venv-$(notdir $(PYTHON))/bin/pytest -n $(WORKERS) $(PARALLEL) -m 'not broker' $(or $(TESTS),$(QUICK_TESTS)) $(ARGS)

.PHONY: test-newest-python
test-newest-python: .venv/.ready ## run tests of what a newer Python may change with the newest Python here, if any
	@ours=$$($(BIN)/python -c 'import sys; print(sys.version_info[:2])'); for candidate in $(NEWER_CANDIDATES); do \
		if "$$candidate" -c "import sys, venv, ensurepip; sys.exit(sys.version_info[:2] <= $$ours)" 2>/dev/null; then \
			exec $(MAKE) --no-print-directory test-python PYTHON="$$candidate" TESTS='$(PYTHON_TESTS)'; \
		fi; \
	done; \
	echo 'test-newest-python: skipped, because none of these is here and newer than .venv: $(NEWER_PYTHONS)'

# Another make builds, and only after the questions; it shares no jobs with this one.
.PHONY: test-native
test-native: ## build headerware-native by itself, and run the tests that native code can meet; needs cargo
	@$(REQUIRE_ALL); missing=''; \
	if ! command -v $(CARGO) >/dev/null; then missing='cargo is missing'; \
	else \
		$(CARGO) metadata --quiet --no-deps --format-version 1 --manifest-path native/Cargo.toml >/dev/null || exit 1; \
		$(CARGO) fetch --quiet --manifest-path native/Cargo.toml || missing='the crates cannot be fetched'; \
	fi; \
	if [ -n "$$missing" ] && [ -n "$$HEADERWARE_REQUIRE_ALL" ]; then \
		echo "test-native: failed, because $$missing; 'make test-native HEADERWARE_REQUIRE_ALL=' skips it" >&2; exit 1; \
	elif [ -n "$$missing" ]; then echo "test-native: skipped, because $$missing"; exit; fi; \
	MAKEFLAGS= $(AGAIN) --no-print-directory .venv-native/.built && $(test_native)

.PHONY: soak
soak: java ## run clients on a real Kafka through faults, ten minutes (SOAK_MINUTES=); prints figures
	$(REQUIRE_ALL) SOAK_MINUTES="$${SOAK_MINUTES-10}" $(BIN)/pytest -q -s tests/soak $(ARGS)

# The timeout of a test is its usual timeout and all the minutes.
.PHONY: fuzz
fuzz: .venv/.ready ## try changed inputs on each decoder, ten minutes (MINUTES=), and with cargo as long on those in Rust
	@if command -v $(CARGO) >/dev/null; then \
		FUZZ_MINUTES=$(MINUTES) $(CARGO) test --quiet --manifest-path native/Cargo.toml --test fuzzing -- --nocapture; \
	else echo 'fuzz: without the decoders in Rust, because cargo is missing'; fi
	HYPOTHESIS_PROFILE=full FUZZ_MINUTES=$(MINUTES) $(BIN)/pytest -q -s --timeout $$((300 + 60 * $(MINUTES))) tests/property/test_fuzzing.py $(ARGS)

.PHONY: check
check: .venv/.ready ## lint, format, types, the six layers, and links in the documents
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(STATIC) $(BIN)/pyright --verifytypes headerware --ignoreexternal
	$(BIN)/lint-imports
	PYTHONPATH="$(CURDIR)" $(BIN)/python -m tests.links

.PHONY: format
format: .venv/.ready ## format the code and fix what ruff can fix
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

.PHONY: conformance
conformance: .venv/.ready ## write docs/conformance.md from the table that the tests prove
	PYTHONPATH="$(CURDIR)" $(BIN)/python -m tests.unit.clients.test_conformance

.PHONY: map
map: .venv/.ready ## write the map of docs/design.md from the docstrings of all modules
	PYTHONPATH="$(CURDIR)" $(BIN)/python -m tests.unit.test_design

.PHONY: stability
stability: .venv/.ready ## write the list of stable names of docs/stability.md from the code
	PYTHONPATH="$(CURDIR)" $(BIN)/python -m tests.unit.test_stability

.PHONY: pages
pages: .venv/.ready ## write the generated parts of the pages: options, commands, names of the API, figures
	PYTHONPATH="$(CURDIR)" $(BIN)/python -m tests.pages

.PHONY: docs
docs: .venv-docs/.ready ## build the site of the documentation into build/docs; a warning fails the build
	.venv-docs/bin/sphinx-build -W --keep-going -n -q -j auto -d build/doctrees -c docs/site . build/docs
	@echo 'built build/docs/index.html'

.PHONY: screens
screens: .venv/.ready ## draw the pictures of docs/screens again
	HEADERWARE_DRAW_SCREENS=1 $(BIN)/pytest -q tests/unit/cli tests/integration/test_doctor.py -k Screen

.PHONY: notebook
notebook: java ## run examples/spark_bridge.ipynb, and store in it what its cells print; needs Java 17
	$(REQUIRE_ALL) HEADERWARE_DRAW_SCREENS=1 $(BIN)/pytest -q tests/spark/test_notebook.py

# The peers of the bench are in the environment of frameworks, which a run of another group does not need.
PEERS := $(if $(filter --only%,$(ARGS)),$(filter peers --only=peers,$(ARGS)),peers)

.PHONY: bench
bench: .venv/.ready $(if $(PEERS),.venv-frameworks/.ready) ## measure against the raw clients and peers (ARGS=...); needs Java 17
	@$(BIN)/python bench/run.py $(ARGS)

# By another name, because `make -n` would run a line that has $(MAKE) in it.
AGAIN := $(MAKE)

.PHONY: broker
broker: $(DEMO)/.ready ## run a real Kafka in the foreground until Ctrl-C (ARGS='--port 9092'); needs Java 17
	@$(DEMO)/bin/python -m headerware.testing.java
	@found=$(DEMO); if ! $$found/bin/python -m headerware.testing.jars; then \
		echo "making .venv, whose pyspark can fetch them" >&2; \
		$(AGAIN) --no-print-directory setup && found=.venv || exit 1; \
	fi; \
	exec $$found/bin/python -m headerware.testing.broker $(ARGS)

.PHONY: release
release: .venv-release/.ready ## build wheel, sdist and SBOM into dist/ and check them as users install them; 15 minutes
	@.venv-release/bin/python tools/release.py

.PHONY: clean
clean: ## remove environments, caches and what builds leave
	@rm -rf .venv .venv-demo .venv-oldest .venv-native native/target .venv-frameworks .venv-newest-spark .venv-newest-connector .venv-release .venv-docs .venv-python* build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
