#!/usr/bin/env bash
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs what fa needs on Debian 12: LLVM/MLIR 22 and the build tools from
# Debian's packages (bookworm-security has LLVM 22), and Python packages into
# .venv. Installs only what is missing, so a second run takes a second.
#
#   scripts/setup.sh [--no-python] [--no-torch]
#
# --no-torch leaves out packages that only tests need: PyTorch, transformers and JAX.
# The next run without it installs them.
set -euo pipefail
cd "$(dirname "$0")/.."

with_python=1 with_torch=1
for arg in "$@"; do
  case "$arg" in
  --no-python) with_python=0 ;;
  --no-torch) with_torch=0 ;;
  *) echo "setup.sh: unknown option '$arg'; known: --no-python, --no-torch" >&2; exit 2 ;;
  esac
done

packages=(
  clang-22 lld-22 clang-format-22 llvm-22-dev llvm-22-tools
  libmlir-22-dev mlir-22-tools            # the compiler's foundations
  cmake ninja-build ccache git xz-utils   # the build
  libstdc++-12-dev libc6-dev              # C++ headers for clang
  zlib1g-dev libzstd-dev                  # named by LLVM's CMake package
  libgtest-dev python3-psutil             # the tests (psutil: lit's timeouts)
  gcc g++ make pkg-config                 # the tests of an install and a wheel, as a user builds
  python3 python3-venv python3-dev        # the Python module
)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
    missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
      echo "setup.sh: need root or sudo to install: ${missing[*]}" >&2; exit 1; }
    sudo=(sudo)
  fi
  echo "setup: installing ${missing[*]}"
  apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)
  "${apt[@]}" update
  if ! apt-cache show clang-22 libmlir-22-dev >/dev/null 2>&1; then
    cat >&2 <<'MESSAGE'
setup.sh: this machine's package sources have no LLVM/MLIR 22. On Debian 12 it
comes with the security updates: add the suite bookworm-security of Debian's
standard sources to /etc/apt/sources.list. On another distribution install
LLVM/MLIR 22 yourself and point CMake at it with -DMLIR_DIR=.../lib/cmake/mlir.
MESSAGE
    exit 1
  fi
  # apt's hundreds of lines are for its failures only.
  if ! output=$("${apt[@]}" install -y --no-install-recommends "${missing[@]}" 2>&1); then
    echo "$output" >&2
    exit 1
  fi
fi

[ "$with_python" = 1 ] || { echo "setup: done (without Python)"; exit 0; }

# The virtual environment, brought up to date when the list changes.
stamp=.venv/.fa-requirements
if ! cmp -s scripts/requirements.txt "$stamp"; then
  echo "setup: Python packages into .venv"
  [ -x .venv/bin/python ] || /usr/bin/python3 -m venv .venv
  .venv/bin/pip install --quiet --disable-pip-version-check -r scripts/requirements.txt
  cp scripts/requirements.txt "$stamp"
fi

# Packages that only tests need, pinned: PyTorch, with which tests compare;
# transformers, which fa is an attention implementation of; JAX, whose functions fa
# reads as jaxprs.
torch=torch==2.13.0
torch_download="2.6 GiB" # this version from PyPI: 0.5 GiB, the rest is CUDA
transformers=transformers==5.23.0
jax=jax==0.10.2

pip_install() { # PACKAGE...
  .venv/bin/pip install --quiet --disable-pip-version-check --only-binary :all: "$@"
}
give_up() { # PACKAGE
  cat >&2 <<MESSAGE
setup.sh: pip could not install $1; its error is above. Run the command
again when pip reaches a package index, or leave out PyTorch, transformers and JAX,
whose tests are then skipped: --no-torch.
MESSAGE
  exit 1
}
# .venv/.fa-NAME says which package was installed.
is_installed() { # NAME PACKAGE...: one of these
  local installed
  installed=$(cat ".venv/.fa-$1" 2>/dev/null) || return 1
  [[ " ${*:2} " == *" $installed "* ]]
}
install_package() { # NAME PACKAGE [PACKAGE THAT STAYS AS IT IS...]
  is_installed "$1" "$2" && return
  pip_install "${@:2}" || give_up "$2"
  echo "$2" >".venv/.fa-$1"
}
# The CPU build (0.2 GiB) where one of pip's indexes has it.
install_torch() {
  local output
  is_installed torch "$torch" "$torch+cpu" && return
  if output=$(pip_install "$torch+cpu" 2>&1); then
    echo "$torch+cpu" >.venv/.fa-torch
    return
  fi
  # No index answered, or the download broke off.
  if [[ $output != *"No matching distribution found"* || $output == *"from versions: none"* ]]; then
    echo "$output" >&2
    give_up "$torch"
  fi
  echo "setup: pip's indexes have no CPU build of PyTorch; the one with CUDA's libraries is" \
    "about $torch_download to download (--no-torch leaves it out)"
  install_package torch "$torch"
}
if [ "$with_torch" = 1 ]; then
  install_torch
  install_package transformers "$transformers" "$(cat .venv/.fa-torch)"
  install_package jax "$jax"
fi
echo "setup: done"
