# Everything a person types. Each target sets up what it needs; `make` alone says what there is.
SHELL  := /bin/bash
PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/.ready
PYTEST := $(BIN)/pytest -m "not real and not chaos"
CHAOS  := tests/tasks/remote tests/tasks/test_supervisor.py tests/flows/test_ways_out.py tests/flows/test_chaos.py \
          tests/flows/test_prefect_end_to_end.py tests/flows/test_nightly.py tests/flows/test_fleet.py \
          tests/flows/test_confirm.py tests/flows/test_bisect.py tests/flows/test_run.py tests/flows/test_live.py tests/flows/test_stories.py \
          tests/flows/test_own_server.py tests/real
WIDE   := -n 4 --dist worksteal   # they wait more than they compute, also on two cores

.DEFAULT_GOAL := help
.PHONY: help rehearse test check real chaos bench prefect deploy lock

help:  ## what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' Makefile

rehearse: $(READY)  ## the whole decision tree against a simulated host on this machine; no GPU, no server, no SSH
	@$(BIN)/bringup rehearse

test: $(READY)  ## the test suite
	@$(PYTEST) $(WIDE)

check: $(READY)  ## ruff, mypy, the layer rules, then the test suite
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(PYTEST) -q tests/test_layers.py
	@$(PYTEST) $(WIDE)

real: $(READY)  ## a real SGLang on this CPU, over a real sshd: float16 is found out, bfloat16 serves
	@$(BIN)/python tests/real/build.py
	@$(BIN)/pytest -m "real and not chaos" -s tests/real

chaos: $(READY)  ## the full fault matrix: every part killed at every stage, and the host looked at afterwards
	@$(BIN)/pytest -v --durations=0 $(CHAOS)

bench: $(READY)  ## how fast the parts are, measured on this machine
	@$(BIN)/python -m tests.measure

prefect: $(READY)  ## a Prefect server and a worker on this machine, until Ctrl-C
	@$(BIN)/python -m deployments.serve

deploy: $(READY)  ## deploy glm5-bringup, glm5-nightly and glm5-fleet to the server that runs
	@$(BIN)/python -m deployments.deploy

lock:  ## write requirements.lock anew from pyproject.toml (needs uv)
	uv pip compile --universal --python-version 3.11 --extra dev --generate-hashes --no-annotate --quiet \
	  --custom-compile-command "make lock" --output-file requirements.lock pyproject.toml

# The stamp is written last, so a broken install is made again. Every file installed is one whose hash the lock knows;
# setuptools, which the editable install needs, is among them, hence no build isolation.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("make: $(PYTHON) is Python %d.%d; 3.11 or newer is needed: make PYTHON=/path/to/python3.11" % sys.version_info[:2])'
	@echo "setting up .venv (once; about a minute)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
