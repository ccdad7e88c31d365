PYTHON ?= .venv/bin/python

.PHONY: install lint test site bench ci

install:  ## a virtual environment with everything that development needs
	python3 -m venv .venv
	.venv/bin/pip install -e '.[dev]'

lint:  ## ruff, mypy, import-linter, deptry, codespell
	.ci/lint $(dir $(PYTHON))

test:  ## all tests
	$(PYTHON) -m pytest -q -n 2

site:  ## the documentation as a site, in build/site/index.html
	$(PYTHON) -m sphinx -q --fail-on-warning --keep-going docs build/site

bench:  ## quality of the plans, speed, scaling, papers: docs/benchmarks.md anew (hours)
	$(PYTHON) -m benchmarks --docs

ci:  ## what has to hold before a change goes in, from a fresh installation
	.ci/run
