# semhealth: `make run` shows it, `make test` proves it. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
PYTEST_ARGS ?=

.PHONY: help run test lint audit format bench docs clean
.DEFAULT_GOAL := help

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10
	@echo
	@echo "  make run                                simulated API, traffic and sidecar, with a live table"
	@echo "  make run DURATION=20                    the same for 20 seconds, then a summary"
	@echo "  make run UPSTREAM=https://api.openai.com  the sidecar alone, in front of that API"
	@echo "  make test WITHOUT_EMBEDDERS=1           without torch and ONNX Runtime; what needs them is skipped"
	@echo "  make test WITHOUT_CLIENTS=1             without the vendors' clients; what needs them is skipped"
	@echo "  ARGS='--listen 127.0.0.1:8090 --set stall_threshold=2s' reaches the command line"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "semhealth needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet 'pip>=25.1'

$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) install --quiet --constraint constraints.txt --group dev
	@touch $@

$(VENV)/.embedders: $(VENV)/.dev
	$(PIP) install --quiet --constraint constraints.txt --group embedders
	@touch $@

# Bytecode is written when a client is first used: it takes longer than all the rest.
$(VENV)/.clients: $(VENV)/.dev
	$(PIP) install --quiet --no-compile --constraint constraints.txt --group clients
	@touch $@

run: $(VENV)/.core ## Run it: with UPSTREAM in front of that API, else in front of a simulated one
ifdef UPSTREAM
	@$(BIN)/semhealth run --upstream '$(UPSTREAM)' $(ARGS)
else
	@$(BIN)/semhealth demo $(if $(DURATION),--duration $(DURATION)) $(ARGS)
endif

test: $(VENV)/$(if $(WITHOUT_EMBEDDERS),.dev,.embedders) $(if $(WITHOUT_CLIENTS),,$(VENV)/.clients) ## Run every test; as root on Debian, install what they need first
	@.ci/packages
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.dev ## ruff, mypy --strict, import-linter, yamllint, bandit, hadolint, compose-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/yamllint --strict .
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive collector exporters
	$(BIN)/hadolint deploy/Dockerfile
	$(BIN)/compose-lint --config deploy/compose-lint.yml --fail-on low docker-compose.yml

audit: $(VENV)/.core ## Look for known vulnerabilities of what is installed; asks the advisory service of the index
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/pip install --quiet pip-audit
	$(VENV)/audit/bin/pip-audit --path "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

format: $(VENV)/.dev ## Put the code in its usual form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## Measure the sidecar against its peers; see bench/README.md
	$(BIN)/python -m bench.proxy $(ARGS)

docs: $(VENV)/.dev ## Write the generated pages, dashboards and schemas anew
	$(BIN)/python -m tools.build_config_docs
	$(BIN)/python -m tools.build_dashboards
	$(BIN)/python -m tools.build_findings_index
	$(BIN)/python -m tools.build_prometheus_rule
	$(BIN)/semhealth metrics > docs/metrics.md

clean: ## Remove what make made
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
