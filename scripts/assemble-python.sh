#!/usr/bin/env bash
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Uses fa on a machine without LLVM: puts together the Python package in a
# folder from the self-contained compiler library that build-portable.sh made
# and from the sources of the two small parts that belong to this machine, the
# runtime library and the Python binding. It is the wheel's content
# (pyproject.toml) without pip. Needs CMake, a C++17 compiler, python3 with
# headers, pybind11 and xz.
#
#   scripts/assemble-python.sh [LIBRARY [FOLDER]]
#   PYTHONPATH=FOLDER python3 -c 'import fa'
#
# LIBRARY defaults to dist/libfa.so.xz (or .so), FOLDER to dist/python.
# Environment: CXX (c++), PYTHON (python3), FA_BUILD_DIR (build-assemble).
set -euo pipefail
cd "$(dirname "$0")/.."
library=${1:-dist/libfa.so.xz}
[ -e "$library" ] || library=${library%.xz}
if [ ! -e "$library" ]; then
  echo "assemble-python.sh: no ${library}{,.xz}; build it on a machine with" \
    "LLVM 22: scripts/build-portable.sh" >&2
  exit 1
fi
folder=${2:-dist/python}
python=${PYTHON:-python3}
build=${FA_BUILD_DIR:-build-assemble}
mkdir -p "$build"
case $library in
*.xz) xz -dkc "$library" >"$build/libfa.so" && library=$build/libfa.so ;;
esac
executable=$("$python" -c 'import sys; print(sys.executable)')
cmake -S . -B "$build" --log-level=WARNING -DCMAKE_BUILD_TYPE=Release \
  "-DFA_LIBRARY=$(realpath "$library")" \
  "-DPython3_EXECUTABLE=$executable" "-DPYTHON_EXECUTABLE=$executable"
cmake --build "$build" --target FAPython --parallel
cmake --install "$build" --component python --prefix "$folder"
PYTHONPATH=$folder "$python" -c 'import fa; print("fa", fa.__version__, "in", fa.__path__[0])'
