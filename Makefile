PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Debian's browser, for the tests of pages; nothing is done, and no right needed, where it is there.
BROWSER := chromium
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

# Thousands of small stores are made, and each waits for the disk at every commit: memory does not.
SCRATCH := $(shell df -k --output=avail /dev/shm 2>/dev/null | awk 'NR > 1 && $$1 > 6000000 {print "/dev/shm"}')

.PHONY: demo browser test lint format bench experiments clean

# What a newcomer runs first: a table of texts upgraded while it is searched, no download, no torch.
demo: $(VENV)/demo.stamp
	$(BIN)/crossfade demo -o demo

browser:
	@command -v $(BROWSER) >/dev/null || { $(AS_ROOT) apt-get update -qq && \
	  $(AS_ROOT) apt-get install -y --no-install-recommends $(BROWSER) fonts-dejavu-core; }

# Three processes for two processors: servers and killed processes are waited for half of the time.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) \* 3 / 2)

# In the order of the files, in which long ones come first: else one process waits for the other's last.
test: $(VENV)/dev.stamp browser
	$(if $(SCRATCH),TMPDIR=$(SCRATCH) )$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadscope --no-loadscope-reorder \
	  --durations=25

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# DATA names a folder with the feature files of docs/results.md, for the benchmarks that need them.
bench: $(VENV)/bench.stamp
	$(BIN)/python -m benchmarks query
	$(BIN)/python -m benchmarks evaluate
	$(BIN)/python -m benchmarks apply
	$(if $(DATA),$(BIN)/python -m benchmarks solvers --data $(DATA))

# The two figures of the paper that need no data; `python -m experiments list` names the rest.
experiments: $(VENV)/dev.stamp
	$(BIN)/python -m experiments run regularization
	$(BIN)/python -m experiments run mnist

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo]'
	touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/bench.stamp: $(VENV)/dev.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	touch $@

clean:
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
