#!/usr/bin/env bash
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds dist/libfa.so (and .xz): the compiler behind its C API with LLVM and
# MLIR inside, for machines that have neither.
#
#   scripts/build-portable.sh [--tools]
#
# With --tools also what scripts/test-gpu.sh runs on a GPU machine: fa-run, the
# runtime's GPU tests, and a PTX file for those. They need glibc 2.35 (Ubuntu
# 22.04, Debian 12) and what it brings; fa-opt, as self-contained, stays in
# build-portable/bin.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
"") tools=() options= ;;
--tools) tools=(fa-opt fa-run FARuntimeIntegrationTests) options=-DFA_RUNTIME_TESTS=ON ;;
*) echo "build-portable.sh: unknown option '$1'; known: --tools" >&2; exit 2 ;;
esac
limit=60000000 # bytes of all compressed files

FA_BUILD_DIR=build-portable \
  FA_CMAKE_ARGS="-DFA_STATIC_LLVM=ON -DFA_BUILD_TESTS=OFF -DFA_BUILD_PYTHON=OFF $options" \
  ./scripts/build.sh fa "${tools[@]}"

mkdir -p dist
files=(libfa.so)
/usr/lib/llvm-22/bin/llvm-strip -o dist/libfa.so build-portable/lib/libfa.so
for tool in fa-run FARuntimeIntegrationTests; do
  [ ${#tools[@]} -gt 0 ] || break
  files+=("$tool")
  /usr/lib/llvm-22/bin/llvm-strip -o "dist/$tool" "build-portable/bin/$tool"
done
for file in "${files[@]}"; do xz -T0 -6 --keep --force "dist/$file"; done
if [ ${#tools[@]} -gt 0 ]; then
  cp build-portable/runtime/test/causal-dynamic.sm_80.ptx dist/
fi

# Nothing but what every glibc system has, so that it runs elsewhere.
for file in "${files[@]}"; do
  needed=$(readelf -d "dist/$file" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
  echo "$file needs: ${needed//$'\n'/ }"
  unusual=$(grep -vxE 'lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so\.[0-9]+|ld-linux-x86-64\.so\.2' <<<"$needed" || true)
  if [ -n "$unusual" ]; then
    echo "build-portable.sh: dist/$file needs a library that other machines may lack: $unusual" >&2
    exit 1
  fi
  youngest=$(readelf --version-info -W "dist/$file" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1)
  if [ "$(printf '%s\nGLIBC_2.35\n' "$youngest" | sort -V | tail -n 1)" != GLIBC_2.35 ]; then
    echo "build-portable.sh: dist/$file asks for $youngest, expected GLIBC_2.35 or older; put what it asks for into lib/Support/GlibcCompat.cpp" >&2
    exit 1
  fi
done
unexpected=$(/usr/lib/llvm-22/bin/llvm-nm -D --defined-only dist/libfa.so | awk '$3 !~ /^fa/ {print $3}')
if [ -n "$unexpected" ]; then
  echo "build-portable.sh: exports more than fa_*: $unexpected" >&2
  exit 1
fi
for file in "${files[@]}"; do
  ls -l "dist/$file" "dist/$file.xz" | awk '{printf "%s: %.1f MiB\n", $9, $5 / 1048576}'
done
total=$(cat dist/*.xz | wc -c)
if [ "$total" -gt $limit ]; then
  echo "build-portable.sh: dist/*.xz are $total bytes, the limit is $limit; leave something out" >&2
  exit 1
fi
