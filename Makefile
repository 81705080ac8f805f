# Everything here sets up what it needs; `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gristmill
WHEELS := $(CACHE)/wheels
LLAMA := 0.3.36
LLAMA_FLAGS := -DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON \
  -DGGML_BMI2=ON -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_TESTS=OFF
TORCH_NEEDS := torch|filelock|fsspec|jinja2|markupsafe|mpmath|networkx|sympy|typing[-_]extensions|setuptools
READY := $(VENV)/.ready
NOTES := $(VENV)/.notes
SPREAD ?= -n 2 --dist loadfile
export DO_NOT_TRACK := 1
export HF_HUB_OFFLINE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help venv llama notes models demo test test-slow check bench format clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

venv: $(READY) ## Make the virtual environment with the pinned packages

# The constraints file is complete, so nothing is left to resolve. torch, with what its build here needs, is unpacked beside
# the rest: that takes a third off the two minutes.
$(READY): pyproject.toml constraints.txt
	@echo "== Setting up $(VENV): some 180 pinned packages, some 1.5 GB; a minute or two when pip has them cached"
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' \
	  || { echo "Python 3.11 or 3.12 is needed, $$($(PYTHON) --version) is there: make PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@grep -viE '^llama[-_]cpp[-_]python==' constraints.txt > $(VENV)/all.txt
	@grep -viE '^($(TORCH_NEEDS))==' $(VENV)/all.txt > $(VENV)/rest.txt; \
	  $(PIP) install -qq --no-compile torch --constraint constraints.txt & torch=$$!; \
	  $(PIP) install -qq --no-compile --no-deps --requirement $(VENV)/rest.txt && wait $$torch
	@$(PIP) install -qq --no-compile --no-deps --requirement $(VENV)/all.txt
	@$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@touch $@
	@echo "== $(VENV) is ready"

notes: $(NOTES) ## Compile and install llama.cpp, which only notes by a local LLM need

$(NOTES): $(READY)
	@ls $(WHEELS)/llama_cpp_python-$(LLAMA)-* >/dev/null 2>&1 || $(MAKE) --no-print-directory llama
	@$(PIP) install -qq --no-compile --no-deps --no-index --find-links $(WHEELS) llama-cpp-python==$(LLAMA)
	@touch $@

# Portable: no instructions beyond AVX2, so that the kept wheel runs on another processor too; without the parts of
# llama.cpp that are not used.
llama:
	@echo "== Compiling llama-cpp-python $(LLAMA) once, for notes by a local LLM: 4 to 12 minutes on two cores"
	@mkdir -p $(WHEELS)
	@CMAKE_ARGS="$(LLAMA_FLAGS)" $(PIP) wheel --quiet --no-deps --no-binary llama-cpp-python \
	  --wheel-dir $(WHEELS) llama-cpp-python==$(LLAMA)
	@echo "== Kept in $(WHEELS)"

models: $(READY) ## Fetch and verify the models of the default settings
	@echo "== Models: fetched once into the model folder, then only verified"
	@$(BIN)/gristmill models fetch

demo: models ## Build, publish and ask an index over the demo documents
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh infra/demo/demo.sh

test: models notes ## Run the tests (not the slow ones)
	@echo "== Tests"
	@$(BIN)/python -m pytest -m 'not slow' $(SPREAD)

test-slow: models notes ## Run all the tests, the slow ones too
	@$(BIN)/python -m pytest
	@$(BIN)/python -m pytest --orchestrator prefect tests/test_flows_incremental.py tests/test_flows_kills.py tests/test_flows_interrupts.py

check: models notes ## What CI runs: formatter, linter, types, import contracts, tests
	@echo "== Formatter"
	@$(BIN)/ruff format --check .
	@echo "== Linter"
	@$(BIN)/ruff check .
	@echo "== Types"
	@$(BIN)/mypy
	@echo "== Import contracts"
	@$(BIN)/lint-imports --no-cache
	@echo "== Tests"
	@$(BIN)/python -m pytest -m 'not slow' $(SPREAD)

DATA ?= ../shared
bench: models notes ## Measure again what the README claims (an hour and more); DATA=folder with bench/ and corpora/
	@$(BIN)/gristmill models fetch --notes llm
	@$(BIN)/python tests/benchmarks/quality.py $(DATA) .bench
	@$(BIN)/python tests/benchmarks/cutting.py $(DATA)/corpora/ancient-history/books
	@$(BIN)/python tests/benchmarks/citations.py $(DATA)/corpora/ancient-history/books
	@$(BIN)/python tests/benchmarks/chunking.py $(DATA)/bench/chunking --work .bench
	@$(BIN)/gristmill models fetch multilingual-e5-small-4bit
	@$(BIN)/python tests/benchmarks/embedders.py $(DATA)/bench/chunking .bench/embedders
	@$(BIN)/python tests/benchmarks/throughput.py $(DATA)/corpora/ancient-history/books --work .bench
	@$(BIN)/python tests/benchmarks/scale.py
	@$(BIN)/python tests/benchmarks/churn.py --work .bench
	@$(BIN)/python tests/benchmarks/runtimes.py $(DATA)/corpora/ancient-history/books/10657.txt
	@$(BIN)/python tests/benchmarks/books.py $(DATA)/corpora/ancient-history/books --vectors-for 10657.txt
	@$(BIN)/python tests/benchmarks/notes.py $(addprefix $(DATA)/corpora/ancient-history/books/,10657.txt 10706.txt 674.txt)

format: $(READY) ## Format the code and sort its imports
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

clean: ## Remove the virtual environment and the indexes of demo and benchmarks
	rm -rf $(VENV) .demo .bench
