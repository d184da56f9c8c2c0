# `make test` and `make demo` do all the set-up on a fresh machine; a second run installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --disable-pip-version-check --quiet --constraint constraints.txt
INSTALLED := $(VENV)/.installed

.PHONY: test lint types imports pytest bench clean

test: lint types imports pytest

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# torch first and at its pin: any other order may pull another build of it
	$(PIP) torch
	$(PIP) --editable '.[dev]'
	touch $@

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

imports: $(INSTALLED)
	$(BIN)/python -m pytest -p no:xdist -o addopts=-q tests/test_imports.py

pytest: $(INSTALLED)
	$(BIN)/python -m pytest

bench: $(INSTALLED)
	for bench in benchmarks/*.py; do $(BIN)/python $$bench || exit 1; done

clean:
	rm -rf $(VENV) build dist src/*.egg-info
