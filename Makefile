# Everything that the README tells you to type. Each target first prepares what it needs, once: system packages (Debian and
# Ubuntu), a virtual environment in .venv with the pinned packages of pyproject.toml, and the binaries.
#
#   make demo     run the examples, checked against PyTorch: on the GPUs that are here, else as four processes on the CPU
#   make test     run the tests, without the slow ones (those that need GPUs say so and skip)
#                 SLOW=1: with them; make test-slow: only them      PYTEST_ARGS="-k ring -x", "-n0"
#   make lint     ruff, mypy, clang-format            make format   let ruff and clang-format rewrite
#   make bench    run the benchmarks                  make docs     write docs/ops.md and tested.md anew
#   make build    build the plugin and the runtime into triton_dist/_C         CMAKE_ARGS="-DTRITON_DIR=… -DMLIR_DIR=…"
#   make plugins  build also the plugins for the other versions of Triton that are supported (downloads some 700 MB, once)
#   make test-plugins   run the smoke set with each of those versions
#   make wheels   build the source distribution and the wheel for every Python and every supported Triton, into dist/
#                 REPOSITORY=https://…: the links of the README lead there, for an index of packages
#   make clean    remove what was built (not .venv)
#
# PYTHON=python3.12 picks the interpreter; PIP_ARGS=… is handed to pip (on a machine without a GPU, an index that holds
# PyTorch's CPU builds saves a download of some GB).
PYTHON ?= python3
PIP_ARGS ?=
CMAKE_ARGS ?=
REPOSITORY ?=
PYTEST_ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
CLANG_FORMAT ?= clang-format-22
GPUS := $(shell nvidia-smi -L 2>/dev/null)
EXTRAS := dev mlir $(if $(GPUS),cuda13 bench)
# Three test files at a time, in the order of tests/conftest.py: many wait for processes. One where there are GPUs, which
# tests do not share.
TEST_PROCESSES := $(if $(GPUS),,-n3 --dist=loadfile --no-loadscope-reorder)
CXX_SOURCES = $(shell git ls-files --cached --others --exclude-standard '*.cpp' '*.h')

.PHONY: demo test test-slow lint format bench docs build plugins test-plugins wheels clean
.DEFAULT_GOAL := build

demo: build
	@$(PY) -m triton_dist.demo

test: MARKED := $(if $(SLOW),,-m 'not slow')
test-slow: MARKED := -m slow
test test-slow: build
	@$(PY) -m pytest $(TEST_PROCESSES) $(MARKED) $(PYTEST_ARGS)

bench: build
	@$(PY) benchmarks

docs: build
	@$(PY) scripts/generate_op_docs.py
	@$(PY) scripts/op_coverage.py > docs/tested.md
	@$(PY) scripts/results_index.py > benchmarks/results/README.md

lint: build/build.ninja
	@cmake --build build --target op_table
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(CLANG_FORMAT) --dry-run -Werror $(CXX_SOURCES)
	$(PY) -m mypy

format: $(VENV)/.ready
	$(PY) -m ruff check --fix-only
	$(PY) -m ruff format
	$(CLANG_FORMAT) -i $(CXX_SOURCES)

build: build/build.ninja
	@cmake --build build

plugins: build/build.ninja
	@cmake --build build --target plugins

test-plugins: build plugins
	@bash scripts/test_other_tritons.sh $(abspath $(PY)) $(PYTEST_ARGS)

wheels: plugins
	@$(PY) scripts/extras.py wheels >$(VENV)/requirements-wheels.txt
	@$(PY) -m pip install -q $(PIP_ARGS) -r $(VENV)/requirements-wheels.txt
	@REPOSITORY=$(REPOSITORY) bash scripts/build_wheels.sh $(abspath $(PY)) $(CMAKE_ARGS)

build/build.ninja: $(VENV)/.ready
	@echo "== Configuring (build/configure.log)"
	@mkdir -p build
	@cmake -G Ninja -S . -B build -DPython_EXECUTABLE=$(abspath $(PY)) $(CMAKE_ARGS) >build/configure.log

# The packages, and this source tree as an editable install whose binaries are left to `cmake --build`: what stays is the
# start-up hook, so that triton and triton_dist may be imported in any order. It knows where each module is, so it is made
# anew where packages are.
$(VENV)/.ready: pyproject.toml triton_dist.pth scripts/extras.py $(wildcard triton_dist/*/__init__.py) | $(VENV)/.system-packages
	@echo "== Installing Python packages into $(VENV)"
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install -q $(PIP_ARGS) 'pip>=23.1'  # Debian 12's does not know -C
	@$(PY) scripts/extras.py $(EXTRAS) >$(VENV)/requirements.txt
	@$(PY) -m pip install -q $(PIP_ARGS) -r $(VENV)/requirements.txt
	@$(PY) -m pip install -q --no-build-isolation --no-deps -C wheel.cmake=false -e .
	@touch $@

$(VENV)/.system-packages: scripts/install_system_packages.sh cmake/supported_triton.json
	@bash scripts/install_system_packages.sh $(PYTHON)
	@mkdir -p $(VENV)
	@touch $@

clean:
	rm -rf build dist triton_dist/_C
