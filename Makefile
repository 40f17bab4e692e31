# Everything runs in .venv, which is built when missing or when the requirements change.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup test check lint types bench docs clean
setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

test: setup
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

check: lint types test

# One table of all speed measurements; fails where a ratio fell 15% under the stored baseline.
bench: setup
	$(BIN)/python benchmarks/run_all.py

# The documentation, in site/: open site/index.html. Nothing is fetched. `mkdocs serve` shows it while writing.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
