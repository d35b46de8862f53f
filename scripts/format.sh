#!/usr/bin/env bash
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Formats the C++ with clang-format 22 and the Python with ruff.
#
#   scripts/format.sh [--check]     --check: change nothing, fail on a difference
set -euo pipefail
cd "$(dirname "$0")/.."
clang_format=$(command -v clang-format-22 || echo /usr/lib/llvm-22/bin/clang-format)
ruff=$(command -v .venv/bin/ruff || command -v ruff || true)

files() { # tracked and new files with one of these endings
  git -c safe.directory='*' ls-files --cached --others --exclude-standard -- "$@" |
    while read -r file; do [ -e "$file" ] && echo "$file"; done || true
}
mapfile -t cxx < <(files '*.cpp' '*.h' '*.c')
mapfile -t python < <(files '*.py')

if [ "${1:-}" = --check ]; then
  status=0
  "$clang_format" --dry-run -Werror "${cxx[@]}" || status=1
  if [ -n "$ruff" ] && [ ${#python[@]} -gt 0 ]; then
    "$ruff" format --quiet --diff "${python[@]}" || status=1
    "$ruff" check --quiet "${python[@]}" || status=1
  fi
  [ $status = 0 ] || echo "format.sh: run scripts/format.sh" >&2
  exit $status
fi
"$clang_format" -i "${cxx[@]}"
if [ -n "$ruff" ]; then
  "$ruff" format --quiet "${python[@]}"
  "$ruff" check --quiet --fix "${python[@]}"
else
  echo "format.sh: no ruff (scripts/setup.sh installs it); Python left as it is" >&2
fi
