#!/usr/bin/env bash
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs the fuzzers on new seeds for as long as one likes. Tests run stored mutants and
# functions only; test/fuzz/README.md describes both.
#
#   scripts/fuzz.sh [--minutes N] [--seed S] [--sanitize] [KIND...]
#
# --minutes N   begin nothing new after N minutes (10)
# --seed S      the first seed (the time): the same seed gives the same mutants
# --sanitize    first build compiler and runtime with AddressSanitizer and
#               UndefinedBehaviorSanitizer into build-sanitize, run the unit tests and the
#               lit tests there, and then the fuzzers of C++ programs
# KIND          general hopper layouts kernels: mutants of IR through fa-opt;
#               schedules: mutants of schedules through hopper-verify and the interpreter;
#               values emulator gradients sm_80 sm_90a: random functions from Python;
#               runtime: damaged images; families: all model families of the installed
#               transformers, once, whose table goes to test/zoo/families.md.
#               Without any: all.
#
# Crashers and logs of failures go to out/fuzz, and the last lines say how to store them. The
# status is 1 where something failed.
#
# Environment: FA_BUILD_DIR (build), FA_JOBS (number of processors): fuzzers that run beside
# each other.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=${FA_JOBS:-$(nproc)}

all=(families general hopper layouts kernels schedules values emulator gradients sm_80 sm_90a runtime)
minutes=10 seed=$(date +%s) sanitize=0 kinds=()
while [ $# -gt 0 ]; do
  case "$1" in
  --minutes) minutes=$2 && shift ;;
  --seed) seed=$2 && shift ;;
  --sanitize) sanitize=1 ;;
  -h | --help) sed -n '5,27s/^# \{0,1\}//p' "$0" && exit 0 ;;
  *)
    [[ " ${all[*]} " == *" $1 "* ]] || {
      echo "fuzz.sh: expected a kind (${all[*]}), got '$1'" >&2
      exit 2
    }
    kinds+=("$1")
    ;;
  esac
  shift
done
build=$(realpath -m "${FA_BUILD_DIR:-build}")
python=python3
[ -x .venv/bin/python ] && python=$PWD/.venv/bin/python
memory=6

sanitized() { # builds, and runs the tests: 1 if one fails
  local probe
  probe=$(clang++-22 -print-file-name=libclang_rt.asan-x86_64.a 2>/dev/null)
  [ -e "$probe" ] || probe=$(clang++-22 -print-resource-dir)/lib/linux/libclang_rt.asan-x86_64.a
  if [ ! -e "$probe" ]; then
    echo "fuzz.sh: clang 22 has no sanitizers here; on Debian: apt-get install libclang-rt-22-dev" >&2
    exit 2
  fi
  FA_BUILD_DIR=$build FA_JOBS=$jobs FA_CMAKE_ARGS="-DFA_SANITIZE=ON -DFA_BUILD_PYTHON=OFF" \
    ./scripts/build.sh fa-opt fa-run fa-hopper-mutants FAUnitTests fa_fake_cuda fa_fake_cuda_old ||
    exit 2
  echo "== ctest"
  local status=0
  (cd "$build" && ctest -j "$jobs" --output-on-failure -E '^(install|docs)\.' | tail -n 20) || status=1
  echo "== lit"
  "$(command -v /usr/lib/llvm-22/bin/lit || command -v lit)" -sv -j "$jobs" --filter-out '(fuzz|style)/' \
    "$build/test" || status=1
  return $status
}

failed=0
if [ $sanitize = 1 ]; then
  build=$PWD/build-sanitize
  # LLVM's and MLIR's shared libraries are not instrumented, so that some checks say nothing
  # true of what crosses into them:
  #   allow_user_poisoning  BumpPtrAllocator's inline functions poison memory in our objects
  #                         and do not unpoison it in LLVM's.
  #   detect_container_overflow  the same of a standard library's containers.
  #   detect_odr_violation  templates and type ids of headers exist in both.
  #   detect_leaks          LLVM frees nothing of what lives as long as the process.
  # new_delete_type_mismatch and alloc_dealloc_mismatch stay on.
  # A status of its own, since fa-opt's is 1 for an error message.
  export ASAN_OPTIONS=exitcode=99:abort_on_error=0:allow_user_poisoning=0
  ASAN_OPTIONS+=:detect_container_overflow=0:detect_odr_violation=0:detect_leaks=0
  export UBSAN_OPTIONS=print_stacktrace=1:exitcode=99
  export ASAN_SYMBOLIZER_PATH=/usr/lib/llvm-22/bin/llvm-symbolizer
  memory=0 # AddressSanitizer reserves 16 TiB
  all=(general hopper layouts kernels schedules runtime)
  sanitized || failed=1
fi
[ ${#kinds[@]} -gt 0 ] || kinds=("${all[@]}")
if [ ! -x "$build/bin/fa-hopper-mutants" ]; then
  echo "fuzz.sh: no $build/bin/fa-hopper-mutants; run scripts/build.sh first" >&2
  exit 2
fi

out=$PWD/out/fuzz
mkdir -p "$out"
failures=$out/failures.$seed
: >"$failures"
end=$(($(date +%s) + minutes * 60))
export PYTHONPATH=$build/python${PYTHONPATH:+:$PYTHONPATH} FA_CACHE_DIR=$out/cache

fuzzer() { # KIND SEED: some seconds to a minute of it
  local mutants="$python test/fuzz/mutate_ir.py --fa-opt $build/bin/fa-opt --jobs 1 --memory $memory"
  local functions="$python test/python/variant_fuzzer.py --seed $2"
  local gradients="$python test/python/gradient_fuzzer.py --seed $2"
  case $1 in
  general) $mutants --seed "$2" --cases 2000 --save "$out/$1-$2" ;;
  hopper | layouts | kernels) $mutants --kind "$1" --seed "$2" --cases 300 --save "$out/$1-$2" ;;
  schedules)
    $python test/fuzz/mutate_schedules.py --bin "$build/bin" --seed "${2}0000" --mutants 500
    ;;
  values) $functions --functions 20 --device cpu ;;
  emulator) $functions --functions 4 --device emulator ;;
  gradients) $gradients --functions 10 --device cpu ;;
  sm_80 | sm_90a) $gradients --functions 5 --device "$1" ;;
  runtime)
    # Nothing of LLVM is in it: here leaks are leaks.
    ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=1 FA_FUZZ_SEED=$2 \
      "$build/bin/FARuntimeTests" --gtest_filter='Mutation.*:*Concurrent*:*Threads*'
    ;;
  esac
}

if [[ " ${kinds[*]} " == *" families "* ]]; then
  echo "== families"
  $python test/zoo/run_zoo.py --seconds $((minutes * 60)) --json "$out/families.json" \
    --table test/zoo/families.md || failed=1
  rest=()
  for kind in "${kinds[@]}"; do [ "$kind" = families ] || rest+=("$kind"); done
  [ ${#rest[@]} -gt 0 ] || exit $failed
  kinds=("${rest[@]}")
fi

worker() { # SEED STEP: all kinds, again and again
  local number=$1 kind log
  while :; do
    for kind in "${kinds[@]}"; do
      [ "$(date +%s)" -lt "$end" ] || return 0
      log=$out/$kind-$number.log
      if fuzzer "$kind" "$number" >"$log" 2>&1; then
        echo "$kind, seed $number: $(tail -n 1 "$log")"
        rm -f "$log"
      else
        echo "$kind, seed $number FAILED: $(tail -n 1 "$log") (in $log)"
        echo "$kind $number" >>"$failures"
      fi
    done
    number=$((number + $2))
  done
}

echo "== ${kinds[*]}: seeds from $seed on, $minutes minutes"
for n in $(seq 0 $((jobs - 1))); do
  # Each worker begins with another kind.
  (
    kinds=("${kinds[@]:n % ${#kinds[@]}}" "${kinds[@]:0:n % ${#kinds[@]}}")
    worker $((seed + n * 100)) $((jobs * 100))
  ) &
done
wait
if [ ! -s "$failures" ]; then
  rm -f "$failures"
  echo "nothing failed"
  exit $failed
fi
echo "$(wc -l <"$failures") runs failed; each is repeated by its kind and seed:"
sort -u "$failures" | while read -r kind number; do
  echo "  scripts/fuzz.sh --minutes 1 --seed $number $kind"
done
cat <<'MESSAGE'
Once it is mended, store it, so that each change runs it:
  IR         test/fuzz/mutate_ir.py --add out/fuzz/KIND-SEED/crash0.mlir
  schedules  echo 'PROGRAM SEED same' >>test/fuzz/corpus/schedules.txt
  functions  PYTHONPATH=build/python test/python/function_corpus.py --add KIND SEED
MESSAGE
exit 1
