#!/usr/bin/env bash
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Sets up if needed, builds and runs every test: lit, ctest, pytest. Ends
# with the line `N passed, N failed, N skipped`; fails if anything failed.
#
# Environment: FA_BUILD_DIR, FA_JOBS as for build.sh; FA_SKIP_SETUP=1 leaves
# the machine's packages alone.
set -uo pipefail
cd "$(dirname "$0")/.."
export FA_BUILD_DIR=${FA_BUILD_DIR:-build}
jobs=${FA_JOBS:-$(nproc)}
build=$(realpath -m "$FA_BUILD_DIR")

if [ -z "${FA_SKIP_SETUP:-}" ]; then
  ./scripts/setup.sh || exit 1
fi
if ! ./scripts/build.sh all FAUnitTests; then
  echo "test.sh: the build failed" >&2
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi

reports=$build/test-reports
rm -rf "$reports" && mkdir -p "$reports"

suites=(lit ctest)

echo "== lit"
lit=$(command -v /usr/lib/llvm-22/bin/lit || command -v lit)
"$lit" -sv -j "$jobs" --xunit-xml-output "$reports/lit.xml" "$build/test"

echo "== ctest: GoogleTest, what is installed, the page on passes"
(cd "$build" && ctest -j "$jobs" --output-on-failure --output-junit "$reports/ctest.xml" | tail -n 40)

if [ -d "$build/python/fa" ]; then
  echo "== pytest"
  suites+=(pytest)
  python=python3
  [ -x .venv/bin/python ] && python=.venv/bin/python
  folders=()
  for folder in test/python test/integration; do [ -d "$folder" ] && folders+=("$folder"); done
  export PYTHONPATH=$build/python${PYTHONPATH:+:$PYTHONPATH}
  # One process for each job, which takes over tests of one that is behind.
  "$python" -m pytest -q -n "$jobs" --dist worksteal --durations 15 \
    --junitxml "$reports/pytest.xml" "${folders[@]}" --ignore=test/python/test_jax.py
  # In a process of its own: what is traced depends on whether JAX is imported.
  suites+=(jax)
  "$python" -m pytest -q --junitxml "$reports/jax.xml" test/python/test_jax.py
else
  echo "== no Python module was built: pytest has nothing to test"
fi

python3 scripts/count_tests.py "$reports" "${suites[@]}"
