# Two commands for a newcomer: `make demo` and `make test`. Everything else is for people who change the code.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.installed-base
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt

.PHONY: demo test check fix bench results docs clean install

# What the tool itself needs; the tests need far more (`install`).
$(BASE): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed (apt install python3 python3-venv)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) -V)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	@touch $@

$(STAMP): $(BASE)
	$(PIP) -e '.[dev]'
	@touch $@

install: $(STAMP)

demo: $(BASE)
	$(BIN)/splitveil demo --out runs/demo

# Bytecode is kept, whatever the environment says: without it every process that a test starts compiles the package anew.
test: $(STAMP)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --maxprocesses 6 --dist worksteal

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) test

fix: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BASE)
	$(BIN)/splitveil bench

results: $(STAMP)
	$(BIN)/python scripts/make_results.py

docs: $(STAMP)
	$(PIP) -e '.[docs]'
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site runs .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
