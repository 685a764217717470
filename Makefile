# make demo       count a model, verify a checkpoint and run the bundled model
# make test       install what the tests need and run them        make test-fast  the tests of a minute, without torch or a browser
# make test-all   before a release: the whole product of cases, and fuzzing
# make lint       style, types, and the output shown in the docs   make docs       regenerate the output shown in the docs
# make format     format Python, C++ and the page at 100 columns
# make bench      ratios against peers, into bench/results/        make fuzz       fuzz every reader of files for 20 seconds
# make site       build the documentation site, with the gallery, into site/; with SITE_URL=https://… links to it show pictures
# make web        build the page's script and style from web/ (needs node and npm; using and testing the page does not)
# make wasm       compile the engine of pages to WebAssembly (checking and testing it does not need the compiler)
# make sanitize   the native engine under the address and undefined-behavior sanitizers: random shapes, mutated configs and programs
# make release    build all distributions twice, compare, list their parts, and sign their sums
# make lock       choose and pin the packages of demo and tests anew
#
# With CPython 3.11 on Linux, x86-64, pip accepts only files with the sha256 sums in requirements/. Elsewhere, or with LOCKED=0, versions
# are pinned by constraints.txt without sums. The sums of torch are those of its build without CUDA, which is at
# https://download.pytorch.org/whl/cpu where your package index does not have it (PIP_EXTRA_INDEX_URL).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PINS := -c constraints.txt
LOCKED ?= $(shell $(PYTHON) -c 'import platform as p; print(p.python_version_tuple()[:2] == ("3", "11") and p.system() + p.machine() == "Linuxx86_64")')

# $(call install,LOCK,REQUIREMENTS): the pinned files of requirements/LOCK.txt, or the requirements by the pinned versions
ifeq ($(LOCKED),True)
install = $(PIP) install --require-hashes -r requirements/$(1).txt
else
install = echo 'Installing without sums: requirements/ is for CPython 3.11 on Linux, x86-64' && $(PIP) install $(PINS) $(2)
endif

# Processes of the tests: one more than cores, as some wait for a browser, a server or a disk
WORKERS ?= 3

# without bytecode, every process that a test starts compiles the package again
unexport PYTHONDONTWRITEBYTECODE

ENGINE := $(wildcard native/*.cpp native/*.h native/*/*.cpp native/*/*.h)

.PHONY: demo counted compiler test test-fast test-all lint types style page-style format docs bench fuzz sanitize release lock browser web wasm site clean
demo: compiler
	@$(MAKE) --no-print-directory -j 2 $(VENV)/.native counted
	@test -f $(VENV)/.native || { echo 'Installing torch (about 200 MB) instead of the native engine'; $(PIP) install $(PINS) torch numpy; }
	@echo; $(BIN)/llamath run 'Tell me a story about Anna and a kite.'
	@echo; $(BIN)/llamath run 'Ben was in the park. He had a red ball. Ben went to the barn. Where is the ball?'

# What needs no engine, while the engine is compiled
counted: $(VENV)/.package
	@$(BIN)/llamath count llama-3-8b
	@echo; $(BIN)/llamath verify embedded
	@echo; test -f $(VENV)/.run || echo 'Installing a tokenizer and compiling the native engine to run the bundled model'
	@$(MAKE) --no-print-directory $(VENV)/.run

test: $(VENV)/.oracles $(VENV)/.engine browser compiler
	@$(BIN)/python -m llamath.native.library_cache || true
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST)

test-fast: $(VENV)/.oracles $(VENV)/.engine compiler
	@$(BIN)/python -m llamath.native.library_cache || true
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" $(PYTEST)

test-all: $(VENV)/.oracles $(VENV)/.engine browser compiler
	@$(BIN)/python -m llamath.native.library_cache || true
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --all $(PYTEST)
	$(MAKE) fuzz

# What is generated and kept, and compared by no test: each tool compares it with what it would write
GENERATED := docs family_forms accuracy wasm

lint: $(VENV)/.oracles $(VENV)/.engine
	@$(MAKE) --no-print-directory --jobs 2 --output-sync style types page-style $(GENERATED:%=current-%)

types:
	$(BIN)/mypy

style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(ENGINE)

current-%:
	$(BIN)/python tools/$*.py --check

page-style:
	@if command -v npm >/dev/null && (cd web && npm ci --silent); then cd web && npx prettier --check --log-level warn . && npx tsc && node build.mjs --check; \
	else echo 'The page is not checked: npm or its packages are not there. A test compares its sources with the sum kept beside it.'; fi

# Each language in its own format, 100 columns
format: $(VENV)/.oracles
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(ENGINE)
	cd web && npm ci --silent && npx prettier --write --log-level warn .

docs: $(VENV)/.oracles $(VENV)/.engine
	$(BIN)/python tools/signatures.py
	$(BIN)/python tools/package_files.py
	$(BIN)/python tools/conformance.py
	$(BIN)/python tools/docs.py
	$(BIN)/python tools/config_reference.py
	$(BIN)/python tools/family_forms.py
	$(BIN)/python tools/accuracy.py

bench: $(VENV)/.oracles $(VENV)/.engine
	$(PIP) install $(PINS) --group bench
	$(BIN)/python bench/counting.py
	$(BIN)/python bench/peers.py $(VENV)/peers.jsonl
	$(BIN)/python bench/written_code.py
	$(BIN)/python bench/headers.py
	$(BIN)/python bench/explain.py
	$(BIN)/python bench/design.py
	$(BIN)/python bench/record.py
	$(BIN)/python bench/page.py
	$(BIN)/python bench/live_page.py
	$(BIN)/python tools/schema.py
	$(BIN)/python bench/run.py
	$(BIN)/python bench/mixers.py
	$(BIN)/python bench/native_kernels.py

fuzz: $(VENV)/.oracles $(VENV)/.engine
	$(PIP) install $(PINS) --group fuzz || echo 'atheris has no build for this Python: fuzzing without coverage guidance'
	@for reader in safetensors gguf pth index files names sums values config regex adapter dcp deepspeed npz pipeline; do $(BIN)/python tools/fuzz.py $$reader --seconds 20 || exit 1; done

sanitize: $(VENV)/.run
	$(BIN)/python native/tests/sanitize.py

# zig compiles the engine for each machine; LLAMATH_SIGNING_KEY is an SSH key
release: $(VENV)/.run
	@$(call install,wasm,ziglang zopfli)
	$(BIN)/python tools/dist.py
	$(BIN)/python tools/emulate.py dist

lock: $(VENV)/.package
	$(BIN)/python tools/lock.py

$(VENV)/bin/python:
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { apt-get update -qq && apt-get install -y -qq python3-venv python3-pip; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.package: $(VENV)/bin/python pyproject.toml constraints.txt requirements/package.txt
	@$(call install,package,--upgrade 'pip>=25.1' hatchling editables click)
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

# llamath-native, by its path: no index has it
$(VENV)/.engine: $(VENV)/.package native/pyproject.toml
	$(PIP) install --no-deps --no-build-isolation -e native
	@touch $@

$(VENV)/.run: $(VENV)/.engine requirements/demo.txt
	@$(call install,demo,tokenizers jinja2 numpy)
	@touch $@

# The native engine is compiled into the user's cache: for the demo for this processor, for tests for every instruction set
$(VENV)/.native: $(ENGINE)
	@mkdir -p $(VENV); if PYTHONPATH=src:native $(PYTHON) -B -m llamath.native.library_cache --own; then touch $@; fi

# Root installs a compiler where it is missing, others use torch instead
compiler:
	@command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || [ "$$(id -u)" != 0 ] || \
		{ apt-get update -qq && apt-get install -y -qq g++ >/dev/null; } || true

# without sums, torch is installed first, so that packages that depend on it find the CPU build already there
$(VENV)/.oracles: $(VENV)/.package requirements/test.txt
	@$(call install,test,torch)
	@test '$(LOCKED)' = True || $(PIP) install $(PINS) --group dev --group oracles
	@touch $@

# The page is tested in Debian's Chromium and Firefox; root installs them where they are missing
browser:
	@command -v chromium-headless-shell >/dev/null || [ "$$(id -u)" != 0 ] || \
		{ apt-get update -qq && { apt-get install -y -qq --no-install-recommends chromium-headless-shell >/dev/null || \
		apt-get install -y -qq chromium >/dev/null; }; } || echo 'Chromium cannot be installed'
	@command -v firefox-esr >/dev/null || command -v firefox >/dev/null || [ "$$(id -u)" != 0 ] || \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends firefox-esr >/dev/null; } || echo 'Firefox cannot be installed'

# The built page is committed, so that neither users nor tests need node; tests compare the sources with the sum kept beside it
web:
	cd web && npm ci --silent && npx tsc && node build.mjs

# zig is a compiler with its libraries in one package of 100 MB. The page's sum covers the module: `make web` comes after it
wasm: $(VENV)/.engine
	@$(call install,wasm,ziglang)
	$(BIN)/python tools/wasm.py

# Links between pages are checked: a broken one is an error
site: $(VENV)/.engine
	@$(call install,site,sphinx myst-parser furo sphinx-copybutton resvg-py)
	SITE_URL=$(SITE_URL) $(BIN)/python -m sphinx -W --keep-going -q -b html docs site
	@if [ -d web/node_modules/pyodide ]; then mkdir -p site/gallery/pyodide; \
	cd web/node_modules/pyodide && cp pyodide.mjs pyodide.asm.* python_stdlib.zip pyodide-lock.json \
	$(CURDIR)/site/gallery/pyodide; fi
	$(BIN)/llamath export -o site/gallery --force $(if $(SITE_URL),--poster $(SITE_URL)/gallery)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
