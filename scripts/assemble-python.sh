#!/usr/bin/env bash
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Uses fa on a machine without LLVM: puts together the Python package from the
# self-contained compiler library that build-portable.sh made and from the
# sources of the two small parts that belong to this machine, the runtime
# library and the Python binding. Needs a C++17 compiler, python3 with headers,
# pybind11 and xz.
#
#   scripts/assemble-python.sh [LIBRARY [FOLDER]]
#   PYTHONPATH=FOLDER python3 -c 'import fa'
#
# LIBRARY defaults to dist/libfa.so.xz (or .so), FOLDER to dist/python.
# Environment: CXX (c++), PYTHON (python3).
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
cxx=${CXX:-c++}
python=${PYTHON:-python3}
package=$folder/fa
mkdir -p "$package"
case $library in
*.xz) xz -dkc "$library" >"$package/libfa.so" ;;
*) cp "$library" "$package/libfa.so" ;;
esac
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
flags=(-O2 -std=c++17 -fPIC -shared -fvisibility=hidden)
read -r -a includes <<<"$("$python" -m pybind11 --includes)"
"$cxx" "${flags[@]}" -Iruntime/include runtime/lib/*.cpp \
  -Wl,--version-script=runtime/lib/exports.map -Wl,-soname,libfa_runtime.so.0 \
  -o "$package/libfa_runtime.so.0" -ldl -lpthread &
"$cxx" "${flags[@]}" "${includes[@]}" -Iinclude -Iruntime/include \
  -c python/src/native.cpp -o "$package/native.o" &
for job in $(jobs -p); do wait "$job"; done
"$cxx" -shared "$package/native.o" -o "$package/_native$suffix" \
  "$package/libfa.so" "$package/libfa_runtime.so.0" -Wl,-rpath,"\$ORIGIN"
rm "$package/native.o"
cp python/fa/*.py "$package/"
PYTHONPATH=$folder "$python" -c 'import fa; print("fa", fa.__version__, "in", fa.__path__[0])'
