# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= python3.11
BIN := .venv/bin
SETUP := .venv/.ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo demo-kafka test lint coverage bench report screenshots setup clean

setup: $(SETUP)

# Installs again only when the dependencies changed; constraints.txt pins what was tested together.
$(SETUP): pyproject.toml constraints.txt
	@echo "== set-up: .venv with watersmeet, Spark and the tools that check it (a few minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[spark,dev]'
	@$(BIN)/python -m spark_adapter.java
	@echo "== set-up: compiling the searches' hot loops"
	@$(BIN)/python -m solvers.jtree.warm
	@touch $@

demo: $(SETUP)
	@$(BIN)/python -m app.demo

demo-kafka: $(SETUP)
	@$(BIN)/python -m app.demo_kafka

test: $(SETUP) lint
	@$(BIN)/python -m tests.app.tools
	@echo "== tests"
	@$(BIN)/python -m pytest -n 3 --dist loadscope --durations=15

# Apart from the tests, which take half as long again under it.
coverage: $(SETUP)
	@$(BIN)/python -m tests.app.tools
	@$(BIN)/python -m pytest -n 2 --dist loadscope --cov --cov-report=term:skip-covered

lint: $(SETUP)
	@echo "== lint: ruff, mypy, import-linter, sizes"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.sizes

bench: $(SETUP)
	@$(BIN)/python -m tests.bench

# Goes on where it was broken off; QUICK=--quick runs smaller settings into build/report.
report: $(SETUP)
	@$(BIN)/python -m tests.bench.report $(QUICK)

screenshots: $(SETUP)
	@$(BIN)/python -m tests.browser.screenshots

clean:
	rm -rf .venv .demo .screenshots build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
