# `make demo` and `make test` are all a newcomer needs; each first makes .venv, once, from constraints.txt, with the
# newest Python found.
# Another Python than the one found: `make PYTHON=/path/to/python3 test`.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow test-nightly docs docs-draft docs-serve test-browser reproduce-quick lint types format check clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
DEMO := build/demo
SITE := build/site
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
export PYTHON
# More options for pytest: `make test PYTEST_OPTIONS='-k kernels'`.
PYTEST_OPTIONS :=
# Two processes run the tests; threads of BLAS beside them would only wait for each other.
TEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(PYTEST_OPTIONS)
# Annotated types and shapes are checked at every call by `make test CHECK_TYPES=yes`, which takes a quarter more time.
CHECK_TYPES :=
TYPE_CHECKS := --jaxtyping-packages=kpp,kpp_models,kpp_areal,kpp_converters,kpp_gpec,kpp_optimization,kpp_pref_shap,kpp_rkhs_shap,kpp_structures,kpp_study,kpp_surrogates,beartype.beartype
# Most of the tests' time goes to compiling small programs.
QUICK_COMPILER := KPP_QUICK_COMPILER=1

help:  ## this list
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/make \1\t\2/p' Makefile | expand -t 24

install: $(STAMP)  ## make .venv with kpp, editable, and its pinned dependencies

# Build tools first and no build isolation, so that a second run finds all it needs installed and asks no network.
$(STAMP): pyproject.toml constraints.txt
	@$(BIN)/python -c '' 2>/dev/null || { python=$$(.ci/find-python) && echo "Making $(VENV) with $$python" && "$$python" -m venv --clear $(VENV); }
	@echo "Installing kpp and its pinned dependencies into $(VENV); the first time this takes some minutes"
	@$(PIP_INSTALL) hatchling
	@$(PIP_INSTALL) --no-build-isolation --editable '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)  ## the main job on the diabetes data: fit, explain, report (a few minutes)
	@echo "kpp fits a Gaussian process to 442 patients with diabetes by NUTS and explains 40 of its predictions, with intervals."
	@echo "It compiles and samples for one to two minutes on two cores; lines below say what runs. Then there is a report to read."
	@$(BIN)/python examples/diabetes_data.py
	@$(BIN)/kpp run examples/diabetes.toml --output $(DEMO) --overwrite
	@echo "Open $(DEMO)/report.html in a browser. Beside it: summary.csv, posterior.nc and explanation.nc (ArviZ reads both)."
	@echo "Your own table: $(BIN)/kpp new study TABLE.csv --target COLUMN --yes && $(BIN)/kpp run study.toml --output results"

test: $(STAMP)  ## the test suite, without the tests marked slow
	@$(QUICK_COMPILER) $(TEST) $(if $(CHECK_TYPES),$(TYPE_CHECKS)) --dist worksteal -m 'not slow and not browser'

test-slow: $(STAMP)  ## the tests marked slow, without those marked nightly
	@$(QUICK_COMPILER) $(TEST) $(if $(CHECK_TYPES),$(TYPE_CHECKS)) --dist worksteal -m 'slow and not nightly and not browser' || [ $$? -eq 5 ]  # 5: there is none

test-nightly: $(STAMP)  ## the tests marked nightly (more than an hour)
	@$(QUICK_COMPILER) $(TEST) $(if $(CHECK_TYPES),$(TYPE_CHECKS)) --dist worksteal -m 'nightly'

$(DOCS_STAMP): $(STAMP)
	@echo "Installing what builds the site"
	@$(PIP_INSTALL) --no-build-isolation --editable '.[dev,docs,browser]'
	@touch $(DOCS_STAMP)

docs: $(DOCS_STAMP)  ## the site, in build/site: runs all pages and examples (some minutes at the first time)
	@$(QUICK_COMPILER) $(BIN)/python -m sphinx -b html -d build/doctrees -W --keep-going -q -j 2 docs $(SITE)
	@echo "Open $(SITE)/index.html in a browser."

# Pictures and outputs of an earlier `make docs` are shown for the gallery; a missing picture is no error here.
docs-draft: $(DOCS_STAMP)  ## the text of the site, in build/draft: runs no code (about a minute)
	@$(BIN)/python -m sphinx -b html -d build/draft_doctrees -D nb_execution_mode=off -D plot_gallery=0 \
		-D suppress_warnings=config.cache,image.not_readable,myst-nb.lexer -W --keep-going -q -j 2 docs build/draft
	@echo "Open build/draft/index.html in a browser."

docs-serve: docs  ## the site at http://localhost:8000
	@$(BIN)/python -m http.server --directory $(SITE) --bind localhost 8000

test-browser: docs  ## the site and the report in Chromium (on Debian: apt-get install chromium)
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m browser tests/browser $(PYTEST_OPTIONS)

reproduce-quick: $(STAMP)  ## quick runs of all experiments of the papers, into build/reproduce
	@$(BIN)/python -m examples.reproduce --all --quick

lint: $(STAMP)  ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy
	@$(BIN)/mypy

format: $(STAMP)  ## let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

check: CHECK_TYPES := yes
check: lint types test  ## what to run before a commit; .ci/run does more

clean:  ## remove what was built, but not .venv
	@rm -rf build dist .jax_cache .mypy_cache .pytest_cache .ruff_cache
