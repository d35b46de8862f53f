#!/usr/bin/env bash
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Sets up if needed, builds and runs the tests: lit, ctest, pytest. Ends with
# the line `N passed, N failed, N skipped`; fails if a test failed or a suite
# took longer than test/budgets.toml allows.
#
#   scripts/test.sh [--quick] [--stop] [--no-torch]
#
# --quick runs the quick tier, for use after each edit: a few cases of each
# test, and nothing that is of CI's tier alone. Without it every test of CI
# runs.
# --stop ends at the first failure. --no-torch is setup.sh's.
#
# scripts/fuzz.sh runs new seeds of the fuzzers; test/README.md describes the tiers.
#
# Environment: FA_BUILD_DIR, FA_JOBS as for build.sh; FA_SKIP_SETUP=1 leaves
# the machine's packages alone.
set -uo pipefail
cd "$(dirname "$0")/.."
export FA_BUILD_DIR=${FA_BUILD_DIR:-build}
jobs=${FA_JOBS:-$(nproc)}
build=$(realpath -m "$FA_BUILD_DIR")

tier=ci stop=0 setup=()
for arg in "$@"; do
  case "$arg" in
  --quick) tier=quick ;;
  --stop) stop=1 ;;
  --no-torch) setup+=("$arg") ;;
  *) echo "test.sh: unknown option '$arg'; known: --quick, --stop, --no-torch" >&2; exit 2 ;;
  esac
done

if [ -z "${FA_SKIP_SETUP:-}" ]; then
  ./scripts/setup.sh "${setup[@]}" || exit 1
fi
if ! ./scripts/build.sh all FAUnitTests; then
  echo "test.sh: the build failed" >&2
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
python=python3
[ -x .venv/bin/python ] && python=$PWD/.venv/bin/python

reports=$build/test-reports
rm -rf "$reports" && mkdir -p "$reports"

suites=()
# Runs a suite, whose report is NAME.xml, and notes its seconds: elapsed, user, system.
suite() { # NAME COMMAND...
  local name=$1 TIMEFORMAT='%R %U %S' status
  shift
  echo "== $name"
  suites+=("$name")
  { time "$@" 2>&3; } 3>&2 2>"$reports/$name.seconds"
  status=$?
  if [ $stop = 1 ] && [ $status != 0 ]; then finish; fi
}
finish() {
  "$python" scripts/count_tests.py "$reports" "$tier" "${suites[@]}"
  exit
}

run_lit() {
  local options=(-sv -j "$jobs" --param "tier=$tier" --xunit-xml-output "$reports/lit.xml")
  [ $stop = 0 ] || options+=(--max-failures 1)
  "$(command -v /usr/lib/llvm-22/bin/lit || command -v lit)" "${options[@]}" "$build/test"
}
run_ctest() {
  local options=(-j "$jobs" --output-on-failure --output-junit "$reports/ctest.xml")
  [ $stop = 0 ] || options+=(--stop-on-failure)
  [ $tier = ci ] || options+=(--label-exclude ci)
  (cd "$build" && ctest "${options[@]}" | tail -n 40)
}
run_pytest() { # REPORT ARGUMENTS...
  local options=(-q --junitxml "$reports/$1.xml" --tier "$tier")
  shift
  [ $stop = 0 ] || options+=(-x)
  PYTHONPATH=$build/python${PYTHONPATH:+:$PYTHONPATH} "$python" -m pytest "${options[@]}" "$@"
}

suite lit run_lit
suite ctest run_ctest
if [ -d "$build/python/fa" ]; then
  # A process for each job takes over tests of one that is behind.
  suite pytest run_pytest pytest -n "$jobs" --dist worksteal --durations 15 \
    test/python test/integration --ignore=test/python/test_jax.py
  # Kernels on the CPU as users have them: conftest.py has LLVM do less.
  if [ $tier = ci ]; then
    FA_CPU_OPTIMIZE=3 suite optimized run_pytest optimized -n "$jobs" --tier quick \
      test/python/test_attention.py test/python/test_attention_backward.py \
      test/python/test_float64.py test/python/test_variants.py
  fi
  # In a process of its own: what is traced depends on whether JAX is imported.
  suite jax run_pytest jax test/python/test_jax.py
else
  echo "== no Python module was built: pytest has nothing to test"
fi
finish
