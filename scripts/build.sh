#!/usr/bin/env bash
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Configures (once) and builds everything into build/, incrementally.
#
#   scripts/build.sh [ninja targets...]
#
# Environment: FA_BUILD_DIR (build), FA_JOBS (number of processors),
# FA_CMAKE_ARGS (further arguments for CMake).
set -euo pipefail
cd "$(dirname "$0")/.."
build=${FA_BUILD_DIR:-build}
jobs=${FA_JOBS:-$(nproc)}

args=(-DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1
  -DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22
  -DLLVM_USE_LINKER=lld -DMLIR_DIR=/usr/lib/llvm-22/lib/cmake/mlir
  "-DFA_LIT_JOBS=$jobs")
if command -v ccache >/dev/null; then args+=(-DFA_CCACHE=ON); fi
if [ -x .venv/bin/python ]; then
  python=$PWD/.venv/bin/python
  args+=("-DPython3_EXECUTABLE=$python" "-DPython_EXECUTABLE=$python"
    "-Dpybind11_DIR=$("$python" -m pybind11 --cmakedir)")
fi
read -r -a extra <<<"${FA_CMAKE_ARGS:-}"
args+=("${extra[@]}")

# Configure again only if the arguments changed; ninja sees the rest.
if [ ! -e "$build/build.ninja" ] || [ "$(cat "$build/.fa-args" 2>/dev/null)" != "${args[*]}" ]; then
  # Without what it found of another Python: run.sh builds before there is a .venv.
  cmake -G Ninja -S . -B "$build" -U '*Python3*' -U 'pybind11*' "${args[@]}"
  echo "${args[*]}" >"$build/.fa-args"
fi
exec ninja -C "$build" -j "$jobs" "$@"
