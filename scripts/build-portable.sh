#!/usr/bin/env bash
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds dist/libfa.so (and .xz): the compiler behind its C API with LLVM and
# MLIR inside, for machines that have neither. With --tools also a fa-opt that
# needs no LLVM, in build-portable/bin.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=
[ "${1:-}" = --tools ] && tools=fa-opt

FA_BUILD_DIR=build-portable FA_CMAKE_ARGS="-DFA_STATIC_LLVM=ON -DFA_BUILD_TESTS=OFF -DFA_BUILD_PYTHON=OFF" \
  ./scripts/build.sh fa $tools

mkdir -p dist
/usr/lib/llvm-22/bin/llvm-strip -o dist/libfa.so build-portable/lib/libfa.so
xz -T0 -6 --keep --force dist/libfa.so

echo "needs:"
readelf -d dist/libfa.so | sed -n 's/.*NEEDED.*\[\(.*\)\]/  \1/p'
unexpected=$(/usr/lib/llvm-22/bin/llvm-nm -D --defined-only dist/libfa.so | awk '$3 !~ /^fa/ {print $3}')
if [ -n "$unexpected" ]; then
  echo "build-portable.sh: exports more than fa_*: $unexpected" >&2
  exit 1
fi
ls -l dist/libfa.so dist/libfa.so.xz | awk '{printf "%s: %.1f MB\n", $9, $5 / 1e6}'
