#!/usr/bin/env bash
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Sets up if needed, builds, and compiles and runs attention IR on the CPU:
# a table with one row per stage for each file, and PTX for sm_80 and sm_90a.
# Everything goes to out/ as well.
#
#   scripts/run.sh [FILE.mlir ...]      without files: the models in test/inputs
#
# Environment: FA_BUILD_DIR, FA_JOBS as for build.sh; FA_SKIP_SETUP=1 leaves
# the machine's packages alone; FA_RUN_ARGS are further arguments for fa-run.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${FA_BUILD_DIR:-build}
chips=(sm_80 sm_90a)

[ -n "${FA_SKIP_SETUP:-}" ] || ./scripts/setup.sh --no-python
./scripts/build.sh fa-opt fa-run

files=("$@")
[ $# -gt 0 ] || files=(test/inputs/*.mlir)
mkdir -p out
read -r -a run_args <<<"${FA_RUN_ARGS:-}"
status=0

# The kernels of one file as PTX for one chip.
emit_ptx() { # FILE CHIP OUTPUT
  "$build/bin/fa-opt" "$1" --fa-pipeline="target=$2" \
    --fa-lower-to-nvidia="chip=$2" --fa-emit-ptx="chip=$2 output=$3" -o /dev/null
}

for file in "${files[@]}"; do
  name=$(basename "$file" .mlir)
  echo
  echo "== $name"
  "$build/bin/fa-run" "$file" --target=cpu --each-stage --io --check "${run_args[@]}" |
    tee "out/$name.txt" || status=1
  for chip in "${chips[@]}"; do
    ptx=out/$name.$chip.ptx
    if emit_ptx "$file" "$chip" "$ptx"; then
      echo "$ptx: $(wc -c <"$ptx") bytes"
    else
      echo "run.sh: no PTX for $name on $chip" >&2
      status=1
    fi
  done
done
exit $status
