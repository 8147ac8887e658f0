# make demo    the main job, with no arguments
# make test    all tests
# make docs    the documentation, in site/
# make setup   the environment alone, in .venv
PYTHON ?= python3
BIN := .venv/bin
DONE := .venv/.complete

.PHONY: demo test lint types docs format setup constraints clean

demo: $(DONE)
	$(BIN)/shortlist demo

test: $(DONE)
	$(BIN)/python -m pytest

lint: $(DONE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DONE)
	$(BIN)/mypy

# Fails on any warning: mkdocs.yml is strict.
docs: $(DONE)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

format: $(DONE)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: $(DONE)

# An environment without its mark was interrupted while it was made, and is made afresh.
$(DONE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "shortlist needs Python 3.11 or newer; this is " + sys.version.split()[0] + ": make PYTHON=python3.11")'
	@test -e $(DONE) || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(DONE)

# Write down what a fresh, unconstrained install of today brings (torch stays as it is).
constraints:
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --upgrade torch==2.13.0 --editable '.[dev]'
	@echo '# Exact versions of everything that `make setup` installs. Refresh: `make constraints`.' > constraints.txt
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' >> constraints.txt
	@touch $(DONE)

clean:
	rm -rf .venv site .mypy_cache .ruff_cache .pytest_cache .hypothesis
