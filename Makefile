# make demo    the main job, with no arguments
# make test    all tests
# make study   long statistical studies, fuzzers and a stress run (about two hours)
# make docs    the documentation, in site/
# make bench   speed and memory beside the peers' (an environment of their own, in .venv-peers)
# make setup   the environment alone, in .venv
PYTHON ?= python3
BIN := .venv/bin
DONE := .venv/.complete
PEERS := .venv-peers/.complete
SPEED := benchmarks/speed

.PHONY: demo test study lint types docs format bench bench-table setup constraints clean

demo: $(DONE)
	$(BIN)/shortlist demo

test: $(DONE)
	$(BIN)/python -m pytest -n 2 --dist loadfile

# What takes too long for every change: accuracies over many calibrations (pasted into
# docs/reliability.md), thousands of damaged files, threads and processes for five minutes.
study: $(DONE)
	$(BIN)/python benchmarks/reliability.py --paste
	$(BIN)/python benchmarks/stress.py
	$(BIN)/python -m pytest -m study --timeout 7200 -s

lint: $(DONE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check_docstrings.py

types: $(DONE)
	$(BIN)/mypy

# Fails on any warning: mkdocs.yml is strict.
docs: $(DONE)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

format: $(DONE)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Everything, or a part: make bench ONLY='lac-1 aps-1'. Keep the machine quiet meanwhile.
bench: $(DONE) $(PEERS)
	$(BIN)/python $(SPEED)/run.py $(if $(ONLY),--only $(ONLY))

# The essential rows of the results, into README.md.
bench-table: $(DONE)
	$(BIN)/python $(SPEED)/table.py --paste

setup: $(DONE)

# An environment without its mark was interrupted while it was made, and is made afresh.
$(DONE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "shortlist needs Python 3.11 or newer; this is " + sys.version.split()[0] + ": make PYTHON=python3.11")'
	@test -e $(DONE) || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(DONE)

$(PEERS): $(SPEED)/requirements.txt $(SPEED)/requirements-torchcp.txt
	@test -e $(PEERS) || $(PYTHON) -m venv --clear .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --requirement $(SPEED)/requirements.txt
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement $(SPEED)/requirements-torchcp.txt
	@touch $(PEERS)

# Write down what a fresh, unconstrained install of today brings (torch stays as it is).
constraints:
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --upgrade torch==2.13.0 --editable '.[dev]'
	@echo '# Exact versions of everything that `make setup` installs. Refresh: `make constraints`.' > constraints.txt
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' >> constraints.txt
	@touch $(DONE)

clean:
	rm -rf .venv .venv-peers site .mypy_cache .ruff_cache .pytest_cache .hypothesis
