#!/usr/bin/env bash
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs everything that needs a GPU, on a machine with the NVIDIA driver; LLVM
# and a build are not needed if dist/ is there (build-portable.sh --tools):
# the runtime's tests with the stress tests, fa-run on the inputs, and where
# PyTorch with CUDA and the fa package are there, the Python tests. Ends with
# `N passed, N failed, N skipped`; fails if anything failed or nothing ran.
#
#   scripts/test-gpu.sh [TARGET ...]     without: sm_80 and the device's own
#
# Tables go to out/gpu/ as well. Environment: FA_BUILD_DIR (build) is looked
# into before dist/; PYTHON (python3); FA_CUDA_DRIVER as for the runtime;
# FA_FUZZ_FUNCTIONS (100): random score and mask functions, FA_TEST_JOBS:
# processes of pytest (needs pytest-xdist).
set -uo pipefail
cd "$(dirname "$0")/.."
build=${FA_BUILD_DIR:-build}
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p out/gpu
passed=0 failed=0 skipped=0

# xz is not everywhere, Python's is.
unxz() { # FILE
  if command -v xz >/dev/null; then xz -dc "$1"; else
    "$python" -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), sys.stdout.buffer)' "$1"
  fi
}

# A program from the build, or from dist, unpacked where need be.
program() { # NAME
  if [ -x "$build/bin/$1" ]; then
    echo "$build/bin/$1"
  elif [ -x "dist/$1" ]; then
    echo "dist/$1"
  elif [ -e "dist/$1.xz" ] && unxz "dist/$1.xz" >"$work/$1"; then
    chmod +x "$work/$1"
    echo "$work/$1"
  else
    echo "test-gpu.sh: no $build/bin/$1, dist/$1 or dist/$1.xz; build with scripts/build.sh, or carry dist/ from scripts/build-portable.sh --tools" >&2
    return 1
  fi
}
fa_run=$(program fa-run) && runtime_tests=$(program FARuntimeIntegrationTests) || exit 1
if [ ! -x "$build/bin/FARuntimeIntegrationTests" ]; then
  export FA_TEST_PTX=${FA_TEST_PTX:-$PWD/dist/causal-dynamic.sm_80.ptx}
fi

# The device's own target, if the compiler has a row for it.
own_target() {
  case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1) in
  8.0) echo sm_80 ;;
  8.6) echo sm_86 ;;
  8.9) echo sm_89 ;;
  9.0) echo sm_90a ;;
  12.0) echo sm_120 ;;
  esac
}
targets=("$@")
if [ $# -eq 0 ]; then
  targets=(sm_80)
  own=$(own_target)
  [ "${own:-sm_80}" = sm_80 ] || targets+=("$own")
fi

# One run of fa-run, counted.
check() { # NAME TARGET ARGUMENTS...
  local name=$1 target=$2 table=out/gpu/$1.$2.txt
  shift 2
  if "$fa_run" "$@" --target="$target" --check >"$table" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: fa-run $* --target=$target --check"
  fi
  # The kernel's row; all of it where something is wrong.
  if grep -q '^kernel (.* ok' "$table" && ! grep -q WRONG "$table"; then
    printf '%-28s %s\n' "$name" "$(grep -m 1 '^kernel (.* ok' "$table")"
  else
    cat "$table"
  fi
}

echo "== the runtime's tests"
"$runtime_tests" 2>&1 | tee out/gpu/runtime.txt
status=${PIPESTATUS[0]}
ok=$(grep -c '^\[       OK \]' out/gpu/runtime.txt)
bad=$(grep -c '^\[  FAILED  \].* (' out/gpu/runtime.txt)
skip=$(grep -c '^\[  SKIPPED \].* (' out/gpu/runtime.txt)
[ "$status" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1 # it crashed
passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))

# What dynamic dimensions are; empty for files without any.
shape_of() { # NAME
  case $1 in
  causal-dynamic | sink-window) echo "B=2,Sq=333,Sk=333" ;;
  decode) echo "B=2,Sk=333" ;;
  block-sparse) echo "B=2,Sq=333,Sk=333,arg3.1=11,arg3.2=21" ;;
  esac
}
for target in "${targets[@]}"; do
  echo "== fa-run, $target: small inputs, every stage and the kernel"
  for file in test/inputs/small/*.mlir; do
    name=$(basename "$file" .mlir)
    check "$name" "$target" "$file" --each-stage --shape "$(shape_of "$name")"
  done
  for length in 1 17 1000 4097; do
    check "causal-dynamic-$length" "$target" test/inputs/small/causal-dynamic.mlir \
      --shape "B=1,Sq=$length,Sk=$length" --layout=bshd
  done
  check causal-dynamic-empty "$target" test/inputs/small/causal-dynamic.mlir --shape "B=0,Sq=64,Sk=64"
  for algorithm in standard fa1; do
    check "softcap-window-$algorithm" "$target" test/inputs/small/softcap-window.mlir --algorithm=$algorithm
  done
  echo "== fa-run, $target: models"
  for file in test/inputs/*.mlir; do
    check "$(basename "$file" .mlir)" "$target" "$file" --io
  done
  echo "== fa-run, $target: gradients"
  for file in test/inputs/small/*.mlir test/inputs/*.mlir; do
    name=$(basename "$file" .mlir)
    for mode in "" --deterministic; do
      check "$name-backward$mode" "$target" "$file" --backward $mode --shape "$(shape_of "$name")"
    done
  done
done

echo "== Python"
for folder in "$build/python" dist/python; do
  [ -d "$folder/fa" ] && export PYTHONPATH=$folder${PYTHONPATH:+:$PYTHONPATH} && break
done
if "$python" -c 'import fa, pytest, torch; assert torch.cuda.is_available()' 2>/dev/null; then
  jobs=()
  [ -z "${FA_TEST_JOBS:-}" ] || jobs=(-n "$FA_TEST_JOBS")
  FA_TEST_DEVICE=cuda FA_FUZZ_FUNCTIONS=${FA_FUZZ_FUNCTIONS:-100} "$python" -m pytest -q "${jobs[@]}" \
    test/integration test/python/test_{variants,variant_fuzz,torch,varlen,block_masks}.py \
    test/python/test_{dropout,gradients,attention_backward,transformers_training}.py |
    tee out/gpu/python.txt
  last=$(tail -n 1 out/gpu/python.txt)
  count() { grep -oE "[0-9]+ $1" <<<"$last" | grep -oE '[0-9]+' || echo 0; }
  passed=$((passed + $(count passed)))
  failed=$((failed + $(count failed) + $(count error)))
  skipped=$((skipped + $(count skipped)))
else
  echo "left out: needs PyTorch with CUDA, pytest and the fa package (scripts/assemble-python.sh)"
  skipped=$((skipped + 1))
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
