# `make demo` and `make test` need Python 3.11+ and make; everything else they install into .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
export FLWR_TELEMETRY_ENABLED = 0

.PHONY: setup demo docker-demo test lint types bench faults clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedsuite needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (a few minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

demo: $(READY)
	@$(BIN)/fedsuite run fedavg

# In containers, with Docker or Podman; TLS=1 adds TLS and SuperNode authentication.
docker-demo:
	@TLS=$(TLS) docker/demo.sh docker-demo

test: $(READY)
	@$(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder

lint: $(READY)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY)
	@$(BIN)/mypy

bench: $(READY)
	@$(BIN)/python -m benchmarks.speed

faults: $(READY)
	@$(BIN)/python -m faults

clean:
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
