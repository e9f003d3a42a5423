# make serve      start Tessera on this machine with the demo model and say how to ask it about a picture
# make test       lint, unit, integration and end-to-end tests (what CI runs)
# make test-all   the same and the slow proofs: second engines, wheels, chaos
# make lint       ruff and mypy alone
#
# All of them first create .venv with everything they need; only Python 3.11 and make have to be there.
# EXTRA=cpu|gpu picks the build of vLLM (default: gpu where an NVIDIA driver answers); CONFIG=FILE picks what is served.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
EXTRA  ?= auto
GPU    := $(shell nvidia-smi -L 2>/dev/null)
CONFIG ?= $(if $(GPU),configs/demo-one-gpu.yaml,config.yaml)
BIN    := .venv/bin
PYTEST := $(BIN)/python -m pytest

# No telemetry, and nothing that colours or pages the output of a job.
export RAY_USAGE_STATS_ENABLED = 0
export VLLM_NO_USAGE_STATS = 1

.PHONY: help serve test test-all lint format environment clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

environment:
	@$(PYTHON) .ci/environment.py .venv --extra $(EXTRA) --with test

# On the console: errors, requests, and what is waited for. vLLM tells much more, and Serve warns of every slow start.
serve: export VLLM_LOGGING_LEVEL ?= ERROR
ifeq ($(GPU),)
# Ray's own processes, Serve's proxy among them, grow with the number of their heaps too (see llm_pool/placement.py).
serve: export MALLOC_ARENA_MAX ?= 2
endif
serve: export RAY_SERVE_SLOW_STARTUP_WARNING_S ?= 600
serve: environment
	@test -f demo/checkpoint/config.json || $(BIN)/python -m demo.make_checkpoint demo/checkpoint
	@$(BIN)/python -m router.config --check $(CONFIG)
	@$(BIN)/python -m demo.announce --config $(CONFIG) & \
	PATH="$(CURDIR)/$(BIN):$$PATH" exec $(BIN)/serve run $(CONFIG)

lint: environment
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: environment
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

test: lint
	@$(PYTEST) -m "not slow and not gpu"

test-all: lint
	@$(PYTEST)

clean:
	@rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
