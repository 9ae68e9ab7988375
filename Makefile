# Every target sets up .venv by itself; the second time that takes no time.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
export OMP_NUM_THREADS ?= 1

.PHONY: setup run test long check bench bench-peers bench-more soak results docs mutants package oldest audit sbom clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "mdmt needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) pip
	$(PIP) -e '.[all]' --group dev
	@touch $(READY)

run: $(READY)
	$(BIN)/mdmt compare permuted-digits --methods van,ewc,a-gem,er,mega,mdmt-r --tasks 5 --seeds 3
	@$(BIN)/mdmt report runs --out runs/report.html

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not long"

# Some hundred kills, the accuracies of all twelve methods, the report in a browser.
long: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m long tests

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Speed, as ratios: bench/results.json and the tables of docs/performance.md. Some ten minutes.
bench: $(READY)
	$(BIN)/python bench/speed.py

# The library that steps are compared with, in an environment of its own; without it its columns are left out.
bench-peers: bench/.peers/ready

bench/.peers/ready: constraints.txt
	@test -x bench/.peers/bin/python || $(PYTHON) -m venv bench/.peers
	bench/.peers/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch avalanche-lib==0.6.0 quadprog
	@touch bench/.peers/ready

# Data, memory of a comparison, the report, and the table of docs/which-method.md.
bench-more: $(READY)
	$(BIN)/python bench/data.py
	$(BIN)/python bench/memory.py
	$(BIN)/python bench/report.py
	$(BIN)/mdmt compare permuted-digits --methods all --tasks 5 --seeds 3 --out runs/bench

# 1,000 tasks, 10^6 steps, 200 deliveries: what grows. results/soak.json, docs/performance.md; most of an hour.
soak: $(READY)
	$(BIN)/python bench/soak.py

# What the records in results/ say: RESULTS.md, the tables of README and docs; docs/results.html, which git ignores.
results: $(READY)
	$(BIN)/python bench/results.py write

# The pages in docs/ and the docstrings as a site; a warning is an error.
docs: $(READY)
	$(BIN)/python -m sphinx -q -W --keep-going docs build/docs
	@echo "build/docs/index.html"

mutants: $(READY)
	$(BIN)/python tests/mutants/run.py

# A wheel and an sdist in dist/, and the commands from the wheel alone in an empty environment.
package: $(READY)
	$(BIN)/python tests/package.py

# The tests that meet other packages, with the oldest that pyproject.toml allows; an environment of its own.
oldest: $(READY)
	$(BIN)/python tests/oldest.py

# Licences, versions and, with pip-audit and a connection, known vulnerabilities of all that mdmt brings along.
audit: $(READY)
	$(BIN)/python bench/supply.py audit

sbom: $(READY)
	$(BIN)/python bench/supply.py sbom dist/sbom.json

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
