# Angelia's commands. Needs Python 3.11 or newer and make; written for GNU Make 3.81 (macOS) and any POSIX shell.

.DEFAULT_GOAL := help
.PHONY: help run test lint types bench docs soak lab lock clean FORCE

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check --no-input

# A developer's own shell must not reach into the environment that is made here.
export PIP_USER := 0
unexport PYTHONHOME PYTHONPATH

help: ## show this list
	@echo "Angelia: make COMMAND   (PYTHON=/path/to/python3 chooses the Python for a new $(VENV))"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-9s %s\n", $$1, $$2 }'

run: $(VENV)/run.stamp ## start the hub (installs it first; again when its lock changed)
	@exec $(BIN)/angelia up

TESTERS := 3 # at once: most tests wait for a process or a clock; a file is one tester's, the slow ones come first
test: lint types ## lint, types and every test but the soak
	@echo "Testing"
	@$(BIN)/python -m pytest -q -n $(TESTERS) --dist loadfile --no-loadscope-reorder

lint: $(VENV)/dev.stamp ## style, formatting and the layers
	@echo "Linting"
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check . || { echo "Not formatted: run $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/lint-imports --no-logo > $(VENV)/layers.txt 2>&1 || { cat $(VENV)/layers.txt; exit 1; }

types: $(VENV)/dev.stamp ## mypy, strict
	@echo "Checking types"
	@$(BIN)/mypy --no-error-summary

bench: $(VENV)/bench.stamp ## measure, on loopback, in ten minutes at most
	@$(BIN)/python -m bench

docs: $(VENV)/dev.stamp ## check that README, docs and examples say what the code does
	@$(BIN)/python -m pytest -q tests/docs

soak: $(VENV)/dev.stamp ## minutes of load and of killing
	@$(BIN)/python -m pytest -q -m soak

LAB := $(CURDIR)/build/lab
lab: $(VENV)/dev.stamp ## real agents on a stand-in model, behind a real hub (root, npm; installs them first)
	@$(BIN)/python -m tests.lab $(LAB) --write $(AGENTS)

# The newest versions that pyproject.toml allows, for every Python and system at once; uv lives only as long as this runs.
UV_COMPILE := $(VENV)-lock/bin/uv pip compile -q --no-config --universal --python-version 3.11 --upgrade \
	--generate-hashes --no-emit-index-url --custom-compile-command "make lock"
lock: $(VENV)/made-for ## write requirements/*.lock anew
	@$(BIN)/python -m venv --clear $(VENV)-lock
	@$(VENV)-lock/bin/python -m pip -qq --disable-pip-version-check install uv
	@$(UV_COMPILE) pyproject.toml --group build -o requirements/run.lock
	@$(UV_COMPILE) pyproject.toml --group dev -c requirements/run.lock -o requirements/dev.lock
	@$(UV_COMPILE) --group bench -o requirements/bench.lock
	@rm -rf $(VENV)-lock

clean: ## remove what the other commands made
	@rm -rf $(VENV) $(VENV)-lock .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	@find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the environment: a stamp for each step, so that a second `make run` starts at once

# Scripts in a venv name its folder, so a checkout that was moved or copied gets a new one; so does one whose Python went.
ifneq ($(shell test -x $(BIN)/python && cat $(VENV)/made-for 2>/dev/null),$(CURDIR))
$(VENV)/made-for: FORCE
endif

$(VENV)/made-for:
	@found=; bare=; \
	for python in $(if $(PYTHON),"$(PYTHON)",python3.13 python3.12 python3.11 python3); do \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue; \
	  if "$$python" -c 'import ensurepip, venv' 2>/dev/null; then found=$$python; break; fi; \
	  bare=$$python; \
	done; \
	if [ -z "$$found" ] && [ -n "$$bare" ]; then \
	  echo "$$bare cannot make virtual environments: install its venv package (on Debian and Ubuntu: python3-venv)." >&2; exit 1; \
	elif [ -z "$$found" ]; then \
	  echo "Angelia needs Python 3.11 or newer, and $(if $(PYTHON),$(PYTHON) is not one,there is none on the PATH; or name one: make run PYTHON=/path/to/python3)." >&2; exit 1; \
	fi; \
	echo "Making $(VENV) with $$found" && "$$found" -m venv --clear $(VENV) && echo "$(CURDIR)" > $@

$(VENV)/run.stamp: $(VENV)/made-for requirements/run.lock pyproject.toml
	@echo "Installing what Angelia runs on"
	@$(PIP) install --require-hashes -r requirements/run.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements/dev.lock
	@echo "Installing the test tools"
	@$(PIP) install --require-hashes -r requirements/dev.lock
	@touch $@

# Where a peer cannot be had, the rest is measured all the same, and the results say so; it is tried again the next time.
$(VENV)/bench.stamp: $(VENV)/dev.stamp requirements/bench.lock
	@echo "Installing what the hub is measured against"
	@if $(PIP) install --require-hashes -r requirements/bench.lock; then touch $@; \
	else echo "It could not be installed: the figures that need it are left out."; fi
