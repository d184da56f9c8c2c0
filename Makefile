# `make test` and `make demo` do all the set-up on a fresh machine; a second run installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --disable-pip-version-check --quiet --constraint constraints.txt
RUNTIME := $(VENV)/.runtime
INSTALLED := $(VENV)/.installed
SIMULEVAL := .venv-simuleval

.PHONY: test lint types imports pytest chromium node axe simuleval demo toy-demo bench docs dist clean

test: lint types imports pytest

$(RUNTIME): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# torch first and at its pin: any other order may pull another build of it
	$(PIP) torch
	$(PIP) --editable .
	touch $@

$(INSTALLED): $(RUNTIME)
	$(PIP) --editable '.[dev,docs,serve,hf,ct2]'
	touch $@

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

imports: $(INSTALLED)
	$(BIN)/python -m pytest -p no:xdist -o addopts=-q tests/test_imports.py

pytest: $(INSTALLED) simuleval chromium node axe
	$(BIN)/python -m pytest

# The page's tests drive Debian's Chromium; without it they are skipped.
chromium:
	@if command -v chromium > /dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y chromium > /dev/null; \
	else echo 'no chromium: install it (apt-get install chromium) to test the page, too'; fi

# A test speaks to the server from Node.js; without it that test is skipped.
node:
	@if command -v node > /dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y nodejs > /dev/null; \
	else echo 'no node: install it (apt-get install nodejs) to test the protocol from Node.js, too'; fi

# A test checks the page with axe-core; without npm, or without its registry, that test is skipped.
axe: $(INSTALLED)
	@if [ -f $(VENV)/node_modules/axe-core/axe.min.js ]; then :; \
	elif command -v npm > /dev/null && npm install --silent --no-save --no-package-lock \
		--prefix $(VENV) axe-core@4.14.0 > /dev/null; then :; \
	else echo 'no axe-core: install npm to test the accessibility of the page, too'; fi

# SimulEval pins an old tqdm, so it lives in an environment laid over ours: its own packages come
# first, a .pth file adds everything of ours behind them.
simuleval: $(SIMULEVAL)/.installed

$(SIMULEVAL)/.installed: $(INSTALLED) constraints-simuleval.txt
	$(BIN)/python -m venv $(SIMULEVAL)
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > $(SIMULEVAL)/ours.pth
	echo '$(CURDIR)/src' >> $(SIMULEVAL)/ours.pth
	mv $(SIMULEVAL)/ours.pth "$$($(SIMULEVAL)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")"
	$(SIMULEVAL)/bin/pip install --disable-pip-version-check --quiet --no-deps \
		--requirement constraints-simuleval.txt
	touch $@

# The model in the box translates a German talk live; without one, a toy language is learned in
# half a minute: the live translation of four sentences, then scores.
TOY_TEXT := work/toy-text
TOY := runs/toy/mma-il/final

ifneq ($(wildcard models/de-en/weights.safetensors),)
demo: $(RUNTIME)
	$(BIN)/simultan demo
else
demo: toy-demo
endif

toy-demo: $(TOY)/config.toml
	head -n 4 $(TOY_TEXT)/test.en | $(BIN)/simultan translate $(TOY) --lines --show --pace 4
	$(BIN)/simultan evaluate $(TOY) --source $(TOY_TEXT)/test.en --reference $(TOY_TEXT)/test.fr \
		--out runs/toy/test | grep -E '^(sentences|bleu|ap|al|laal|dal|seconds_per_target_word) '

$(TOY)/config.toml: | $(RUNTIME)
	$(BIN)/simultan toy $(TOY_TEXT)
	$(BIN)/simultan prepare --overwrite --out work/toy --pipeline words --min-count 1 \
		--source $(TOY_TEXT)/train.en --target $(TOY_TEXT)/train.fr \
		--valid-source $(TOY_TEXT)/valid.en --valid-target $(TOY_TEXT)/valid.fr
	@# one thread: so small a model only loses by more
	OMP_NUM_THREADS=1 $(BIN)/simultan train recipes/toy/mma-il.toml --out $(dir $(TOY))

bench: $(INSTALLED)
	for bench in benchmarks/*.py; do $(BIN)/python $$bench || exit 1; done

# The documentation as a site, in site/; any warning is an error.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# A wheel and an sdist, in dist/, as an index would take them.
dist: $(INSTALLED)
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

clean:
	rm -rf $(VENV) $(SIMULEVAL) build dist site src/*.egg-info
