# Two commands matter: `make demo` and `make test`. Each sets up what it needs in .venv first; where PYTHON names another
# one than that of .venv, as in `make test PYTHON=python3.13`, it is made anew.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := $(abspath $(BIN))/python -m pytest
# With LOWEST=1 the lowest versions that pyproject.toml allows.
LIMITS = $(if $(LOWEST),--constraint $(VENV)/lowest.txt)

.PHONY: demo demo-files test test-fast test-lowest test-slow test-all test-sdist test-device coverage docs links pictures dist lint bench figures clean

# Which Python a command is, and the first that runs: by that name, or one of pyenv that is not in use.
WHICH = $(shell $(1) -c "import sys; print(*sys.version_info[:2], sep='.')" 2>/dev/null)
OF_PYENV = $(wildcard $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions/*/bin/$(PYTHON))
RUNS = $(or $(firstword $(foreach name,$(PYTHON) $(OF_PYENV),$(if $(call WHICH,$(name)),$(name)))),$(PYTHON))
ifneq ($(filter command environment,$(origin PYTHON)),)
ifneq ($(wildcard $(BIN)/python),)
ifneq ($(call WHICH,$(RUNS)),$(call WHICH,$(BIN)/python))
.PHONY: $(VENV)/created
endif
endif
endif

$(VENV)/created:
	@$(RUNS) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
		{ echo "certirl needs Python 3.11 or newer; name one by make PYTHON=python3.12 …"; exit 1; }
	@echo "Creating $(VENV) with Python $(call WHICH,$(RUNS)) …"
	@$(RUNS) -m venv --clear $(VENV)
	@$(if $(LOWEST),$(BIN)/python tests/lowest.py > $(VENV)/lowest.txt)
	@touch $@

$(VENV)/demo: pyproject.toml $(VENV)/created
	@echo "Installing certirl and matplotlib …"
	@$(INSTALL) $(LIMITS) --editable ".[plot]"
	@touch $@

$(VENV)/test: pyproject.toml $(VENV)/created
	@echo "Installing certirl, its optional packages, pytest, ruff and mypy …"
	@$(INSTALL) $(LIMITS) --editable ".[test]"
	@touch $@

$(VENV)/docs: pyproject.toml $(VENV)/created
	@echo "Installing certirl and Sphinx …"
	@$(INSTALL) --editable ".[docs]"
	@touch $@

demo: $(VENV)/demo
	$(BIN)/certirl demo

# What the demo writes is read by every command that reads files.
demo-files: demo
	@mkdir -p build
	$(BIN)/certirl show certirl-demo.npz
	$(BIN)/certirl check certirl-demo.npz
	$(BIN)/certirl report certirl-demo.npz -o build/demo.html
	$(BIN)/certirl export certirl-demo.npz -o build/demo.py

lint: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One BLAS thread per worker: the tests run on all cores already.
test-fast test-slow test-sdist test-device: export OMP_NUM_THREADS := 1
test-fast test-slow test-sdist test-device: export OPENBLAS_NUM_THREADS := 1
# Compiled modules are kept: many tests start an interpreter of their own.
test-fast test-slow test-sdist test-device: export PYTHONDONTWRITEBYTECODE :=

# Nearly every claim, many of them at a reduced size; the linters run beside the tests.
test: $(VENV)/test
	@$(MAKE) --no-print-directory --jobs=2 lint test-fast

test-fast: $(VENV)/test
	$(PYTEST) -n auto --dist worksteal -m "not slow"

# The fast tests with the lowest versions that pyproject.toml allows; they are there for Python 3.11.
test-lowest:
	@$(MAKE) --no-print-directory VENV=.venv-lowest LOWEST=1 demo-files test-fast

# The tests that `make test` leaves out.
test-slow: $(VENV)/test
	$(PYTEST) -n auto --dist worksteal -m slow

test-all: test test-slow

# The wheel, that of the checker alone and the source distribution, and the repository itself, as PyPI and the Scientific Python guide want them.
dist: $(VENV)/test
	@echo "Building the distributions …"
	@$(INSTALL) build twine pyroma check-wheel-contents "sp-repo-review[cli]"
	rm -rf build/dist
	$(BIN)/python -m build --quiet --outdir build/dist
	$(BIN)/python -m build --quiet --wheel --outdir build/dist packaging/check
	$(BIN)/twine check --strict build/dist/*
	$(BIN)/check-wheel-contents build/dist/*.whl
	$(BIN)/pyroma build/dist/*.tar.gz
	$(BIN)/sp-repo-review .

# The source distribution has everything that its own tests read: its pages, and the files of experiments and benchmarks.
FILES = $(shell ls experiments benchmarks | sed -n 's/\.py$$//p' | paste -sd '|')
test-sdist: dist
	rm -rf build/sdist && mkdir -p build/sdist
	tar -xzf build/dist/*.tar.gz -C build/sdist --strip-components 1
	cd build/sdist && PYTHONPATH=$$PWD/src $(PYTEST) -n auto --dist worksteal -m "not slow" $$(grep -rlE "parents\[2\]|parent.parent|^(import|from) ($(FILES))\b" tests --include=test_*.py)

# The path of a GPU on torch's CPU device, or on the GPU if torch finds one; torch is large and only installed for this.
test-device: $(VENV)/test
	@echo "Installing torch …"
	@$(INSTALL) "torch==2.13.0"
	$(PYTEST) tests/kernels/test_tensors.py tests/claims/test_pages.py -k "tensors or gpu"

# The share of the lines of both packages that the fast tests run, file by file in build/coverage; processes that tests start are counted.
coverage: export OMP_NUM_THREADS := 1
coverage: export OPENBLAS_NUM_THREADS := 1
coverage: $(VENV)/test
	@$(INSTALL) "coverage[toml]>=7.10" "pytest-cov>=7"
	$(PYTEST) -n auto --dist worksteal -m "not slow" --cov=certirl --cov=certirl_check --cov-report=term --cov-report=html:build/coverage

# The site, in build/docs/index.html. A link, an anchor or a picture that does not exist is an error.
SPHINX = $(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --conf-dir docs .
docs: $(VENV)/docs
	$(SPHINX) build/docs

# Addresses outside of the repository; needs a network.
links: $(VENV)/docs
	$(SPHINX) --builder linkcheck build/links

# The pictures of the gallery and of the tutorials, by running these pages.
pictures: $(VENV)/test
	$(BIN)/python tests/pages.py

# Every figure of the paper at full size.
figures: $(VENV)/test
	$(BIN)/certirl reproduce all --out experiments/results

bench: $(VENV)/test
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/accuracy.py

clean:
	rm -rf .venv .venv-lowest build dist .pytest_cache .mypy_cache .ruff_cache
