# Two commands on a fresh machine: `make run`, `make test`. Both install what they need into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One more than there are cores: tests also wait for processes to start, and for faults to be noticed.
SPREAD := -n $(shell echo $$(( $$(nproc 2>/dev/null || sysctl -n hw.ncpu) + 1 ))) --dist loadfile --no-loadscope-reorder
# Failed tests run once more, alone: see the script.
TESTS := $(BIN)/python scripts/run_tests.py
KILLS ?= 200
RAY_RUNS ?= 30
FAULTS ?= 500
FLIPS ?= 1000
DAMAGED ?= 2000
SEEDS ?= 10
LOSSES ?= 20
RUNS ?= 20
SINCE ?= HEAD~1

.DEFAULT_GOAL := help

help:  ## show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /|/' | awk -F'|' '{printf "  make %-14s %s\n", $$1, $$2}'

install: $(STAMP)  ## make .venv with everything that runs and tests need

$(STAMP): pyproject.toml constraints.txt worker/tokenization_worker/tokenizers/ranks/packaged_ranks.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; found " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12 ...")'
	@echo "installing into $(VENV): this takes a minute or two, once"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/tokjob fetch-ranks
	@touch $@

run: install  ## tokenize real text from this machine, verify it, say how to load it
	$(BIN)/python examples/run_local.py

test: install compile  ## the tests, in as many processes as there are cores; of large tables a sample
	$(TESTS) $(SPREAD) -m 'not exhaustive and not testbed and not e2e and not peers'

test-unit: install compile  ## the pure tests of each room, in 20 s: what to run after every edit
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n 2 --dist loadfile tests/unit  # kept: modules with their assertions

test-fast: install compile  ## what takes no more than three minutes of them
	$(TESTS) $(SPREAD) -m 'not slow and not exhaustive and not testbed and not e2e and not peers'

test-all: install compile  ## the tests, with every case of every table
	$(TESTS) $(SPREAD) -m 'not testbed and not e2e and not peers'

test-testbed: install compile  ## what needs a real control plane: Go builds it once, 10 minutes
	@PYTHONPATH=tests $(BIN)/python -m testbed build
	REQUIRE_TESTBED=1 $(TESTS) $(SPREAD) --dist load --maxschedchunk 1 -m testbed tests/operator

test-core: install compile  ## the core of test-testbed: a whole job, CRD rules, a failed run, a killed operator, a GitOps commit
	@PYTHONPATH=tests $(BIN)/python -m testbed build --core
	REQUIRE_TESTBED=1 $(TESTS) $(SPREAD) --dist load --maxschedchunk 1 -m 'testbed and core' tests/operator

test-peers: install  ## each format read by its own reader; PEER=NAME: only that one (readers come from the package index)
	PYTHONPATH=tests $(TESTS) -q -m peers tests/peers $(if $(PEER),-k '$(PEER)')

e2e: install  ## Pods of our own images on a real node of this machine; E2E=NAME: only the tests of that name
	PYTHONPATH=tests $(BIN)/python -m e2e $(if $(E2E),-k '$(E2E)')

e2e-soak: install  ## the first of its tests RUNS times, each on a node of its own
	PYTHONPATH=tests $(BIN)/python -m e2e --runs $(RUNS) -k test_an_example

cluster: install  ## start a control plane with KubeRay and nodes without machines, for a person
	@PYTHONPATH=tests $(BIN)/python -m testbed up

cluster-down: install  ## stop it
	@PYTHONPATH=tests $(BIN)/python -m testbed down

broken-jobs: install  ## twelve broken jobs for a person who is to find out why with kubectl and tokjob explain
	@PYTHONPATH=tests $(BIN)/python tests/support/cluster/broken_jobs.py $(BROKEN_ARGS)

load: install  ## 300 jobs at once on one operator: time, memory, requests, share of a core
	PYTHONPATH=tests $(BIN)/python tests/support/cluster/load.py $(LOAD_ARGS)

dashboard-picture: install  ## draw docs/dashboard.svg from what Prometheus has of a few minutes of an operator
	PYTHONPATH=tests $(BIN)/python tests/support/cluster/picture.py

prove: install  ## every long proof once, with a table at the end (PROOFS='chaos e2e': only these)
	$(BIN)/python scripts/prove.py $(PROOFS)

compile: install  # thousands of processes of the tests import the package; the environment may forbid them to keep this
	@PYTHONPATH=tests $(BIN)/python -m support.compiled_training & \
	$(BIN)/python -m compileall -q worker operator tests/support $(COLLECT); status=$$?; wait $$! && exit $$status

# pytest keeps test modules with their assertions, so that not every process of the run makes them; the run tells errors.
test test-all: COLLECT = && { PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q --collect-only > /dev/null || true; }

lint: install  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=benchmarks:tests $(BIN)/mypy benchmarks/*.py
	MYPYPATH=tests $(BIN)/mypy -p testbed
	MYPYPATH=tests $(BIN)/mypy --follow-imports silent -p e2e
	$(BIN)/lint-imports

format: install  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: install  ## write crds/ and docs/job-reference.md from the models, the chart's README from its values
	$(BIN)/tokjob crd --write crds
	cp crds/*.yaml charts/tokenization-operator/files/crds/
	$(BIN)/python -c 'from pathlib import Path; from tokenization_worker.api.schema.reference import generate_reference; Path("docs/job-reference.md").write_text(generate_reference(), encoding="utf-8")'
	$(BIN)/python scripts/chart_readme.py

chaos: install  ## kill KILLS local runs and RAY_RUNS on Ray, put FAULTS scripts of faults before the store, compare bytes
	PYTHONPATH=tests $(BIN)/python tests/support/faults/chaos.py --kills $(KILLS)
	PYTHONPATH=tests $(BIN)/python tests/support/faults/chaos.py --kills $(KILLS) --layout rows
	PYTHONPATH=tests $(BIN)/python tests/support/faults/chaos.py --kills $(KILLS) --layout packed-rows
	PYTHONPATH=tests $(BIN)/python tests/support/faults/chaos.py --kills $(KILLS) --layout shuffle
	PYTHONPATH=tests $(BIN)/python tests/support/faults/chaos.py --kills $(KILLS) --layout shuffled-rows
	PYTHONPATH=tests $(BIN)/python tests/support/faults/chaos.py --kills $(KILLS) --layout shuffled-packed-rows
	PYTHONPATH=tests $(BIN)/python tests/support/faults/ray_chaos.py --runs $(RAY_RUNS)
	PYTHONPATH=tests $(BIN)/python tests/support/faults/fault_chaos.py --faults $(FAULTS)
	PYTHONPATH=tests $(BIN)/python tests/support/faults/fault_chaos.py --faults $(FAULTS) --layout shuffle

motion: install  ## change the file that a run reads, in every way and at every moment (MOTION_ARGS='--only gz,cut')
	PYTHONPATH=tests $(BIN)/python tests/support/faults/sources_in_motion.py $(MOTION_ARGS)

flips: install  ## flip FLIPS single bits of outputs, one at a time: nothing wrong may be accepted in silence
	PYTHONPATH=tests $(BIN)/python tests/support/faults/flips.py --flips $(FLIPS) $(FLIPS_ARGS)

parquet-bytes: install  ## change a byte in each of DAMAGED Parquet files: none may end the process that reads it
	PYTHONPATH=tests $(BIN)/python tests/support/faults/parquet_bytes.py --files $(DAMAGED)

chaos-operator: install  ## SEEDS times 60 random edits, deletions and kills of two operators on a real API server
	SEEDS=$(SEEDS) REQUIRE_TESTBED=1 $(BIN)/python -m pytest -q -m testbed tests/operator/test_many.py -k whatever

chaos-replicas: install  ## kill, freeze or cut off the leader of two replicas LOSSES times under 60 jobs
	LOSSES=$(LOSSES) REQUIRE_TESTBED=1 $(BIN)/python -m pytest -q -s -m testbed tests/operator/test_replicas.py

mutants: install compile  ## break guarantees one at a time in a copy, those that the work since SINCE touches: tests must turn red
	$(BIN)/python scripts/mutants.py --since $(SINCE)

mutants-all: install compile  ## break every guarantee that tests/mutants lists
	$(BIN)/python scripts/mutants.py --all

bench: install  ## compare with the leanest loop and with peers (CORPUS=folder of .jsonl.zst)
	$(BIN)/python benchmarks/compare.py $(if $(CORPUS),--corpus $(CORPUS)) $(BENCH_ARGS)

bench-ray: install  ## compare a run on Ray with local processes (CORPUS=folder of .jsonl.zst)
	$(BIN)/python benchmarks/ray_overhead.py $(if $(CORPUS),--corpus $(CORPUS)) $(BENCH_ARGS)

bench-gcs: install  ## compare our reads and writes of gs:// with a plain loop of the same client calls, on the emulator
	$(BIN)/python benchmarks/gcs_speed.py $(BENCH_ARGS)

straggler: install  ## one huge compressed file beside equal files (CORPUS=folder of .jsonl.zst)
	$(BIN)/python benchmarks/straggler.py $(if $(CORPUS),--corpus $(CORPUS)) $(BENCH_ARGS)

startup: install  ## time a run on 1 MB and `tokjob --help`
	$(BIN)/python benchmarks/startup.py

bench-versions: install  ## compare with another installed version (OTHER=its virtual environment)
	$(BIN)/python benchmarks/versions.py $(OTHER) $(BENCH_ARGS)

bench-formats: install  ## compare four formats at once with Npy alone (CORPUS=folder of .jsonl.zst)
	$(BIN)/python benchmarks/formats.py $(if $(CORPUS),--corpus $(CORPUS)) $(BENCH_ARGS)

bench-sequences: install  ## compare packed rows and shuffled documents with the order of the source (CORPUS=folder of .jsonl.zst)
	$(BIN)/python benchmarks/packing.py $(if $(CORPUS),--corpus $(CORPUS))
	$(BIN)/python benchmarks/sequences.py $(if $(CORPUS),--corpus $(CORPUS)) $(BENCH_ARGS)

bench-train: install  ## compare the training of a tokenizer with other trainers (CORPUS=folder of .jsonl.zst; BIG=3GB: so much text alone)
	$(BIN)/python benchmarks/train.py $(if $(CORPUS),--corpus $(CORPUS)) $(if $(BIG),--big $(BIG)) $(BENCH_ARGS)

windows: install  ## time windows of tokens, and rows, at random places of a dataset
	$(BIN)/python benchmarks/windows.py $(BENCH_ARGS)

scale: install  ## 500,000 files and 200,000 ranges on a store of 50 ms a call (SCALE_ARGS='--ranges 2000 --files 500')
	$(BIN)/python benchmarks/scale.py $(SCALE_ARGS)

scale-shuffle: install  ## a shuffle of 1 and 4.25 TB of tokens on that store (SCALE_ARGS='--terabytes 0.05')
	$(BIN)/python benchmarks/scale_shuffle.py $(SCALE_ARGS)

memory: install  ## peak memory of a worker on hostile inputs (writes up to 20 GB below TMPDIR)
	$(BIN)/python benchmarks/memory.py

clean:  ## remove what the other targets made
	rm -rf $(VENV) build dist out .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

.PHONY: help install run test test-unit test-fast test-all test-testbed test-core test-peers prove e2e e2e-soak cluster cluster-down broken-jobs load dashboard-picture compile lint format generate chaos motion flips parquet-bytes chaos-operator chaos-replicas mutants mutants-all bench bench-versions bench-formats bench-sequences bench-train bench-ray bench-gcs straggler startup windows scale scale-shuffle memory clean
