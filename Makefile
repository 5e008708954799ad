# `make demo` and `make test` need Python 3.11+ and make; everything else they install into .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# One worker more than cores, since tests of real processes wait for them; one thread each, since
# they compute side by side; bytecode also where the environment forbids it, since all share it.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder
FAST := not slow and not ray and not deploy and not docker
DEMO := num-clients=10 num-rounds=10 freeloaders=4 results-dir=demo/runs --engine ray
export FLWR_TELEMETRY_ENABLED = 0

.PHONY: setup demo docker-demo test test-fast coverage lint types docs bench faults mutants fuzz clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedsuite needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (a few minutes the first time) ..."
	@$(PIP) -e '.[dev]'
	@touch $(READY)

# Four of ten clients are freeloaders: TACO expels them, FedAvg does not. Both on Flower's Ray engine.
demo: $(READY)
	@rm -rf demo
	$(BIN)/fedsuite run taco $(DEMO) --name taco
	$(BIN)/fedsuite run fedavg $(DEMO) --name fedavg
	$(BIN)/fedsuite compare demo/runs
	$(BIN)/fedsuite report demo/runs -o demo/report

# In containers, with Docker or Podman; TLS=1 adds TLS and SuperNode authentication.
docker-demo:
	@TLS=$(TLS) docker/demo.sh docker-demo

# COVERAGE=1 also measures branch coverage, and fails below the threshold in pyproject.toml.
test: $(READY)
	@$(PYTEST) $(if $(COVERAGE),--cov)

test-fast: $(READY)
	@$(PYTEST) -m "$(FAST)"

coverage:
	@$(MAKE) --no-print-directory test COVERAGE=1

lint: $(READY)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY)
	@$(BIN)/mypy

# Not --quiet, which also hides warnings from --strict.
docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(READY)
	@$(BIN)/python -m benchmarks.speed

faults: $(READY)
	@$(BIN)/python -m faults

# A sample by SEED; fails if tests notice less than 85 % of it.
mutants: $(READY)
	@$(BIN)/python -m mutants --seed $(or $(SEED),0)

# Random settings and odd data by SEED; fails on any traceback, hang or setting without effect.
fuzz: $(READY)
	@$(BIN)/python -m fuzz --seed $(or $(SEED),0)

clean:
	rm -rf .venv build site *.egg-info .mypy_cache .ruff_cache .hypothesis .mutants .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
