# Everything runs in .venv, which is built when missing or when the requirements change.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup test check lint types bench clean
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

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
