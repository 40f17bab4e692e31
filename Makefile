# Everything runs in .venv, which is built when missing or when the requirements change.
PYTHON ?= python3
BIN := .venv/bin
DEMO ?= runs/demo

.PHONY: setup demo test check lint types coverage hostile fuzz mutants bench docs readme dist-check clean
setup: .venv/.ready

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Python 3.10 or newer is needed: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/.ready: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

# What the demo needs, where the developers' set-up is not there already.
.venv/.demo: pyproject.toml constraints.txt | .venv/bin/python
	{ test .venv/.ready -nt pyproject.toml && test .venv/.ready -nt constraints.txt; } || \
	  $(BIN)/python -m pip install --quiet -c constraints.txt -e '.[vision,sklearn,report,review]'
	touch $@

# The whole way on embedded pictures: compare, train, recover, report. `make demo DEMO=runs/other` for another folder.
demo: .venv/.demo
	$(BIN)/onelabel demo --out $(DEMO)

test: setup
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

check: lint types test

# What is too slow for the tests: bad machines one by one, signals to every command, damaged files by the thousand, mutants.
hostile: setup
	ONELABEL_HOSTILE=1 $(BIN)/python -m pytest tests/hostile

fuzz: setup
	ONELABEL_FUZZ=1000 $(BIN)/python -m pytest -n auto tests/fuzz/test_fuzz.py

mutants: setup
	OMP_NUM_THREADS=1 $(BIN)/python tests/hostile/mutate.py losses --count 60
	OMP_NUM_THREADS=1 $(BIN)/python tests/hostile/mutate.py metrics --count 60

# Lines covered by the tests, the command line left out; fails under 90%. htmlcov/index.html shows them.
coverage: setup
	$(BIN)/python -m pytest -n auto --dist loadfile --cov=onelabel --cov-report=term:skip-covered --cov-report=html

# One table of all speed measurements; fails where a ratio fell 15% under the stored baseline.
bench: setup
	$(BIN)/python benchmarks/run_all.py

# The documentation, in site/: open site/index.html. Nothing is fetched. `mkdocs serve` shows it while writing.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# docs/benchmarks.md and its figures from the committed results, and the README's tables from it and from docs/results/demo.json.
readme: setup
	$(BIN)/python docs/generate/bench_figures.py
	$(BIN)/onelabel bench docs
	$(BIN)/python docs/generate/readme_results.py
	$(BIN)/python docs/generate/demo_table.py
	$(BIN)/python docs/generate/roll_call.py
	$(BIN)/python docs/generate/selection_table.py

# The wheel and the sdist, each installed into a clean environment and tried.
dist-check: setup
	bash tests/packaging/smoke.sh

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
