# Two commands on a fresh machine: `make run` and `make test`. The rest is for people who change semel.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TEST_JOBS ?= 2
REPORT := $(CURDIR)/soak-report.jsonl

.PHONY: install run test check docs dashboards screenshots pictures demo bench bench-smoke peers soak mutation lock clean help

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml requirements-dev.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

install: $(STAMP) ## make .venv with everything in it

run: $(STAMP) ## serve on 127.0.0.1:8080 with the embedded store
	$(BIN)/semel serve $(ARGS)

test: $(STAMP) ## the whole suite
	$(BIN)/python -m pytest -n $(TEST_JOBS) -m "not soak" $(ARGS)

check: $(STAMP) ## lint, types, presets
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/semel check policies

docs: $(STAMP) ## redraw the generated parts of the documents
	$(BIN)/python -m docs.reference

dashboards: $(STAMP) ## write the Grafana dashboards anew
	$(BIN)/python -m dashboards

screenshots: $(STAMP) ## take the pictures of the operator's page anew; needs Chromium
	$(BIN)/python -m tests.browser.pictures docs/pictures

pictures: $(STAMP) ## draw the dashboards from a real Prometheus's data, and a run's timeline; four minutes
	$(BIN)/python -m tests.dashboards.pictures docs/pictures
	$(BIN)/python -m tests.runs.pictures docs/pictures

demo: $(STAMP) ## what semel does, shown in seconds
	$(BIN)/semel demo $(ARGS)

bench: $(STAMP) ## ratios against bare servers and peers, measured in one run; ten minutes
	$(BIN)/python -m benchmarks --table docs/benchmarks.md $(ARGS)

bench-smoke: $(STAMP) ## all of it, small: does everything work? Half a minute; judges nothing
	BENCH_SMALL=1 $(BIN)/python -m benchmarks $(ARGS)

peers: $(STAMP) ## the same crashes against other projects, each from its package; ten minutes
	$(BIN)/python -m benchmarks.peers --page docs/peers.md $(ARGS)

# `make soak ARGS=tests/proof` is the proof alone.
soak: $(STAMP) ## the same tests with the full counts, and the core's mutants; hours. soak-report.jsonl says what was done
	rm -f $(REPORT)
	SEMEL_SOAK=1 SEMEL_REPORT=$(REPORT) $(BIN)/python -m pytest -n $(TEST_JOBS) --timeout 5400 $(ARGS)
	SEMEL_REPORT=$(REPORT) $(BIN)/python -m tests.proof.mutation
	$(BIN)/python -m tests.proof.page $(REPORT)

mutation: $(STAMP) ## break every line of the core, one at a time: does a test see it?
	$(BIN)/python -m tests.proof.mutation $(ARGS)

lock: ## write requirements-dev.lock anew; needs uv (pip install uv)
	$(PYTHON) -m uv pip compile --quiet --universal --extra dev --no-header --output-file requirements-dev.lock pyproject.toml

clean: ## remove what make made
	rm -rf $(VENV) .peers dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
