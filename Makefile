# Two commands matter: `make demo` and `make test`. Each sets up its own .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow test-all test-device lint bench figures clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@

demo: $(VENV)/.installed
	$(BIN)/certirl demo

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One BLAS thread per worker: the tests run on all cores already.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n auto

test: lint
	$(PYTEST) -m "not slow"

# The tests that `make test` leaves out, then both together.
test-slow: $(VENV)/.installed
	$(PYTEST) -m slow

test-all: test test-slow

# The path of a GPU on torch's CPU device, or on the GPU if torch finds one; torch is large and only installed for this.
test-device: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet "torch==2.13.0"
	$(BIN)/pytest tests/test_tensors.py

# Every figure of the paper at full size.
figures: $(VENV)/.installed
	$(BIN)/certirl reproduce all --out experiments/results

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/accuracy.py
	$(BIN)/python benchmarks/recover_time.py
	$(BIN)/python benchmarks/certify_time.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
