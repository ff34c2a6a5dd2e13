# gkafka: everything a clone needs. `make help` lists the targets.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready
BUILT  := $(VENV)/.built
GSSAPI := $(VENV)/.gssapi
SOURCES := setup.py pyproject.toml $(wildcard gkafka/*/*.pyx gkafka/records/*.pxi gkafka/records/*.h)

# Many container images set it. Each of the hundreds of programs that the tests start would compile gkafka anew.
unexport PYTHONDONTWRITEBYTECODE

# On a terminal pip shows what it does, which takes minutes the first time. A log is spared that.
QUIET := $(if $(shell test -t 2 && echo terminal),,--quiet)

.DELETE_ON_ERROR:
.PHONY: help venv lint built-and-linted near check test thorough mutants programs first-minutes stalls demo demo-full bench hops bench-spark spark-matrix faults bars fuzz soak clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "  PYTHON=python3.12 chooses the interpreter of a new .venv, SITE=folder the site of the demo, DEMO_PAGES=n its size."

venv: $(READY)  ## .venv with all packages and gkafka, compiled if there is a C compiler
	@$(MAKE) --no-print-directory $(BUILT) FIRST=$(GSSAPI)

# pip knows what is there already: a second run with other requirements only adds to it.
$(READY): requirements.txt
	@test -x $(PY) || { echo "making $(VENV)" && $(PYTHON) -m venv $(VENV); }
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "gkafka needs Python 3.10 or newer: make venv PYTHON=python3.12")'
	@echo "installing the packages of requirements.txt into $(VENV): downloaded once, Spark is the largest"
	@$(PY) -m pip install $(QUIET) --disable-pip-version-check 'pip>=25.1' # older ones show nothing while they install
	$(PY) -m pip install $(QUIET) --disable-pip-version-check -r requirements.txt
	@touch $@

# There is no wheel of it for Linux, so it is built, which takes a minute, Kerberos' headers and a compiler. Where it cannot be, it is tried again the next
# time, and the tests of Kerberos are left out. FIRST is what is built before gkafka: two pips at once get in each other's way, and the demo needs no Kerberos.
$(GSSAPI): $(READY)
	@if command -v krb5-config >/dev/null && command -v cc >/dev/null; then \
	  echo "building gssapi, for the tests of Kerberos (once)"; \
	  $(PY) -m pip install $(QUIET) --disable-pip-version-check 'gssapi>=1.8' && touch $@ || \
	  echo "gssapi could not be built: the tests of Kerberos are left out" >&2; \
	fi

$(BUILT): $(READY) $(SOURCES) | $(FIRST)
	@echo "building gkafka's compiled parts (once, and when they change)"
	PYTHONWARNINGS=ignore $(PY) -m pip install $(QUIET) --disable-pip-version-check --no-build-isolation --no-deps -e .
	@$(PY) -c 'from gkafka.records import IMPLEMENTATION as name; print("gkafka.records:", name)'
	@touch $@

# The examples with a cache of their own: what was found under other options is found anew, 12 seconds each time.
lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m mypy --cache-dir .mypy_cache/examples --disable-error-code import-untyped --no-warn-unused-ignores examples/*.py examples/crawl_pipeline/*.py

near: $(BUILT)  ## the tests nearest to what differs from the last commit, or to FILE=gkafka/core/fetcher.py (2 minutes)
	$(PY) -m tests.near $(FILE)

built-and-linted: $(READY)
	@$(MAKE) --no-print-directory -j2 lint $(BUILT) FIRST=$(GSSAPI) # types are checked while the compiled parts are built

check: built-and-linted  ## lint, types and the tests that talk to no broker and no other peer, without the thorough ones (90 seconds)
	$(PY) -m tests.stages check

test: built-and-linted  ## everything: all tests, also on the Python twin with recording handlers, real Kafka of all versions, faults, Spark, the demo in a small form
	$(PY) -m tests.stages test

thorough: $(BUILT) $(GSSAPI)  ## more seeds, more examples and more shots of what `make test` tries in short, more releases, the other handler
	$(PY) -m tests.stages thorough

mutants: $(BUILT)  ## does a test notice each of the mistakes of tests/mutants? (some minutes)
	$(PY) tests/mutants/run.py

programs: $(BUILT)  ## programs of pykafka and kafka-python beside the originals on real Kafka, what still differs and why (PROGRAM=name for one; some minutes)
	$(PY) -m tests.programs $(PROGRAM)

first-minutes: $(READY)  ## what a newcomer sees: the commands of README and docs/local-kafka.md in an empty environment, with warnings and silences (half an hour)
	$(PY) -m tests.firstminutes

stalls: $(BUILT)  ## how long the hub stands still, what idle clients cost, with limits; only on a machine that does nothing else (3 minutes)
	$(PY) benchmarks/stalls.py

demo: $(BUILT)  ## crawl a web site into a real Kafka, follow it in PySpark, kill -9 that midway, report, compare every number
	$(PY) examples/crawl_pipeline/run.py

demo-full: $(BUILT)  ## the same with a site of 10,140 pages and more than a million links (some minutes)
	$(PY) examples/crawl_pipeline/run.py --package openjdk-17-doc --start /api/index.html --cap 100000 --kill-after 300000 --out demo-out/full

bench: $(BUILT)  ## gkafka beside the other clients that are installed, as a table
	$(PY) benchmarks/run.py

hops: $(BUILT)  ## how many functions and files a batch, a confirmed record and an answer of Fetch pass through, and their CPU time, as a table (2 minutes)
	$(PY) benchmarks/hops.py

bench-spark: $(BUILT)  ## format("gkafka") beside the JVM connector and a source on confluent-kafka, as a table (BENCH=--quick for the short form)
	$(PY) benchmarks/spark.py $(BENCH)

spark-matrix: $(BUILT)  ## the streams, sinks and reads of Spark on 4.0, 4.1 and 4.2 (SPARK=4.1.4 for one; fetches 900 MB each, the first time)
	$(PY) -m tests.spark.matrix $(SPARK)

faults: $(BUILT)  ## faults under load on a real three-node Kafka, beside confluent-kafka, as a table (FAULT=F03 for one, SEED=n)
	$(PY) -m tests.faults $(addprefix --fault ,$(FAULT)) $(addprefix --seed ,$(SEED))

bars: $(BUILT) $(GSSAPI)  ## the bars of security, each by the tests that hold it, as a list (BAR=G28 for one; some minutes)
	$(PY) -m tests.bars $(BAR)

fuzz: $(BUILT)  ## every decoder, by 600,000 mutants each, 1e7 in all; findings become files of tests/fuzz/corpus (TARGET=zstd, EXECUTIONS=n; an hour)
	GKAFKA_IMPL=cython $(PY) -m tests.fuzz --executions $(or $(EXECUTIONS),600000) $(addprefix --target ,$(TARGET))

soak: $(BUILT) $(GSSAPI)  ## what has no end, tried longest: 10,000 random schedules of groups, 200,000 pieces of garbage, ten minutes of restarts (half an hour)
	$(PY) -m pytest -q -n 2 -m soak -o faulthandler_timeout=2000 --ignore=tests/live tests

clean:  ## remove what was built; .venv goes, too
	rm -rf $(VENV) build dist demo-out *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f gkafka/records/_speed.c gkafka/handlers/_syscalls.c gkafka/handlers/_locks.c gkafka/*/*.so
	find gkafka tests examples benchmarks pyspark_gkafka -name __pycache__ -prune -exec rm -rf {} +
