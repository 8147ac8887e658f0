# make demo         compare all methods on two data sets
# make test         run all tests
# make study        run long statistical studies, fuzzers and a stress test (about two hours)
# make lint         check style and docstrings
# make types        check types
# make format       fix the style
# make docs         build the documentation in site/
# make gallery      run the home page and the gallery, and paste their results
# make package      build the wheel and the sdist, install each and use it
# make bench        compare speed and memory with other libraries (their environment is .venv-peers)
# make bench-table  paste the results of `make bench` into the documents
# make setup        create the environment in .venv
# make constraints  update constraints.txt
# make clean        delete everything that these targets create
PYTHON ?= python3
BIN := .venv/bin
DEMO := .venv/.demo
DONE := .venv/.complete
PEERS := .venv-peers/.complete
SPEED := benchmarks/speed

.PHONY: demo test study lint types docs gallery package format bench bench-table setup constraints clean

demo: $(DEMO)
	$(BIN)/shortlist demo

test: $(DONE)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# These take too long for every change: the accuracy over many calibrations (pasted into
# docs/reliability.md), five minutes of threads and processes, and thousands of damaged files.
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

# Any warning is an error, because mkdocs.yml is strict.
docs: $(DONE)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

# With the environment of `make bench`, the blocks of other libraries run too.
gallery: $(DONE)
	$(BIN)/python tools/gallery.py $(if $(wildcard $(PEERS)),--peers .venv-peers/bin/python)

package: $(DONE)
	$(BIN)/python tools/check_package.py

format: $(DONE)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# To run some benchmarks only: make bench ONLY='lac-1 aps-1'. Other programs disturb the times: the
# script itself starts the two processes of the "busy" columns.
bench: $(DONE) $(PEERS)
	$(BIN)/python $(SPEED)/run.py $(if $(ONLY),--only $(ONLY))

# Paste a summary of the results into README.md and docs/speed.md.
bench-table: $(DONE)
	$(BIN)/python $(SPEED)/table.py --paste

setup: $(DONE)

# The demo needs few packages; everything else is added to the same environment. The files $(DEMO)
# and $(DONE) are created last. Without $(DEMO), the environment is created again.
$(DEMO): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "shortlist needs Python 3.11 or newer; this is " + sys.version.split()[0] + ": make PYTHON=python3.11")'
	@test -e $(DEMO) || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[cli]' matplotlib
	@touch $(DEMO)

$(DONE): $(DEMO)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(DONE)

$(PEERS): $(SPEED)/requirements.txt $(SPEED)/requirements-torchcp.txt
	@test -e $(PEERS) || $(PYTHON) -m venv --clear .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --requirement $(SPEED)/requirements.txt
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement $(SPEED)/requirements-torchcp.txt
	@touch $(PEERS)

# Record the versions that an installation without constraints has today (except that of torch).
constraints:
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --upgrade torch==2.13.0 --editable '.[dev]'
	@echo '# Exact versions of everything that `make setup` installs. Refresh: `make constraints`.' > constraints.txt
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' >> constraints.txt
	@touch $(DEMO) $(DONE)

clean:
	rm -rf .venv .venv-peers site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
