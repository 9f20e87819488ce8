# `make demo` and `make test` are all the set-up there is: both create .venv first.
# TORCH=torch takes the newest release with CUDA; the default is the release that the tests run with.
PYTHON ?= python3
TORCH ?= torch==2.13.*
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install demo demo-short test test-slow check bench bench-gpu clean

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bertpre needs Python 3.11 or newer; try make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

# The whole job on the standard library's documentation: vocabulary, examples, pretraining, fine-tuning.
demo: install
	$(BIN)/python data/demo.py

# The same with the step counts cut, for CI.
demo-short: install
	$(BIN)/python data/demo.py --short

test: install
	$(BIN)/python -m pytest -m "not slow"

test-slow: install
	$(BIN)/python -m pytest -m slow

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: install
	$(BIN)/python tests/bench.py
	$(BIN)/python tests/bench_pretrain.py
	$(BIN)/python tests/bench_vocabulary.py
	$(BIN)/python tests/bench_data.py
	$(BIN)/python tests/bench_finetuning.py
	$(BIN)/python tests/bench_tagging.py
	$(BIN)/python tests/bench_generation.py

# Eight minutes on a machine with an NVIDIA GPU, with a PyTorch that has CUDA: make TORCH=torch ...
bench-gpu: install
	$(BIN)/python tests/bench_gpu.py

clean:
	rm -rf $(VENV) data/demo
