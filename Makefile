# make demo   the main job, on embedded defaults          make test   everything the tests need, then the tests
# make lint   style, types and the output shown in docs   make bench  ratios against peers, into bench/results/
# make fuzz   every reader fuzzed for 20 seconds         make docs    the output shown in docs, written anew

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PINS := -c constraints.txt

.PHONY: demo test lint docs bench fuzz clean
demo: $(VENV)/.package
	@$(BIN)/llamath count llama-3-8b
	@echo; $(BIN)/llamath verify embedded
	@echo; test -f $(VENV)/.run || echo 'installing torch (some 200 MB), to run the small Llama that comes along'
	@$(MAKE) --no-print-directory $(VENV)/.run
	@echo; $(BIN)/llamath run 'Tell me a story about Anna and a kite.'
	@echo; $(BIN)/llamath run 'Ben was in the park. He had a red ball. Ben went to the barn. Where is the ball?'

test: $(VENV)/.oracles
	$(BIN)/python -m pytest -n 2 $(PYTEST)

lint: $(VENV)/.oracles
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/docs.py --check
	$(BIN)/python tools/glossary.py --check
	$(BIN)/python tools/accuracy.py --check

docs: $(VENV)/.oracles
	$(BIN)/python tools/docs.py
	$(BIN)/python tools/glossary.py
	$(BIN)/python tools/accuracy.py

bench: $(VENV)/.oracles
	$(PIP) install $(PINS) --group bench
	$(BIN)/python bench/counting.py
	$(BIN)/python bench/headers.py
	$(BIN)/python bench/explain.py
	$(BIN)/python bench/design.py
	$(BIN)/python bench/page.py
	$(BIN)/python tools/schema.py
	$(BIN)/python bench/run.py
	$(BIN)/python bench/mixers.py

fuzz: $(VENV)/.oracles
	$(PIP) install $(PINS) --group fuzz || echo 'no atheris for this Python: mutations without a guide'
	@for reader in safetensors gguf pth index config; do $(BIN)/python tools/fuzz.py $$reader --seconds 20 || exit 1; done

$(VENV)/bin/python:
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { apt-get update -qq && apt-get install -y -qq python3-venv python3-pip; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade 'pip>=25.1'

$(VENV)/.package: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install $(PINS) -e .
	@touch $@

$(VENV)/.run: $(VENV)/.package
	@$(PIP) install $(PINS) torch
	@$(PIP) install $(PINS) -e '.[run]'
	@touch $@

# torch first and pinned: whatever depends on it then finds the build for the processor already there
$(VENV)/.oracles: $(VENV)/.package
	$(PIP) install $(PINS) torch
	$(PIP) install $(PINS) --group dev --group oracles
	@command -v chromium >/dev/null || apt-get install -y -qq chromium >/dev/null 2>&1 || echo 'no chromium: the tests of the page that need a browser are left out'
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
