#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Installs fa into a prefix, moves that, and uses it as others would.

`check_install.py BUILD WORK PART...` with the parts
  c         the C example by find_package and by pkg-config, with the system's
            compiler; it compares the kernel's numbers with loops itself
  compiler  the C++ example: fa's passes in a program of one's own
  programs  fa-opt, fa-run and fa-lsp-server from the prefix
  library   the C example against a fa that was configured around the build's
            self-contained libfa.so, as on a machine without LLVM
Each part installs for itself, into WORK/PART. Fails at the first thing wrong.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    # What a build of fa may have set is not the user's.
    if name not in ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LD_LIBRARY_PATH", "PKG_CONFIG_PATH")
}
if shutil.which("ccache"):
    # For CMake's projects, also in another folder.
    launchers = {f"CMAKE_{language}_COMPILER_LAUNCHER": "ccache" for language in ("C", "CXX")}
    ENVIRONMENT |= launchers | {"CCACHE_BASEDIR": str(SOURCE), "CCACHE_NOHASHDIR": "1"}


def run(*command, fails=False, **environment):
    """Runs a command; its output, standard error included."""
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT | environment,
    )
    if (done.returncode != 0) != fails:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\nreturned {done.returncode}")
    return done.stdout


def expect(pattern, text):
    """Fails unless the pattern is somewhere in the text."""
    if not re.search(pattern, text):
        sys.exit(f"expected {pattern!r} in\n{text}")


def install(build, work):
    """A prefix that is not where it was installed."""
    shutil.rmtree(work, ignore_errors=True)
    run("cmake", "--install", build, "--prefix", work / "installed")
    prefix = work / "moved"
    (work / "installed").rename(prefix)
    for path in prefix.rglob("*.cmake"):
        for forbidden in (SOURCE, build, work):
            if str(forbidden) in path.read_text():
                sys.exit(f"{path} names {forbidden}")
    if (prefix / "fa").exists():
        sys.exit("the Python package was installed without being asked for")
    return prefix


def configure_and_build(example, prefix, folder, *definitions):
    """The example's own CMake project, with the system's default compilers."""
    run("cmake", "-S", example, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}", *definitions)
    return run("cmake", "--build", folder)


def check_c(prefix, work):
    """The C API."""
    example = prefix / "share/doc/fa/examples/c"

    def check(output):
        expect(r"cpu: largest error [0-9.]+e-0[6-9], ok", output)
        expect(r"sm_90a: \d{5,} bytes of PTX, //!fa.program .*target=sm_90a", output)
        expect(r"status 2: line 2, column \d+: ", output)

    output = configure_and_build(example, prefix, work / "cmake")
    if "warning" in output:
        sys.exit(output)
    check(run(work / "cmake/attention", work / "attention.ptx"))
    expect(r"\.target sm_90a", (work / "attention.ptx").read_text())

    where = {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "fa", "fa-runtime", **where).split()
    version = run("pkg-config", "--modversion", "fa", "fa-runtime", **where).split()
    program = work / "attention"
    run(
        "cc",
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        example / "attention.c",
        "-o",
        program,
        *flags,
        "-lm",
    )
    output = run(program, LD_LIBRARY_PATH=str(prefix / "lib"))
    check(output)
    if set(version) != {re.search(r"fa ([0-9.]+), cpu", output)[1]}:
        sys.exit(f"pkg-config says {version}, the library\n{output}")

    # The launcher needs the runtime only; without a GPU it says so.
    launch = work / "launch"
    flags = run("pkg-config", "--cflags", "--libs", "fa-runtime", **where).split()
    run("cc", "-std=c99", example.parent / "runtime/launch.c", "-o", launch, *flags)
    output = run(launch, fails=True, LD_LIBRARY_PATH=str(prefix / "lib"))
    expect(r"usage|\.ptx", output)

    # A version that is not there is not found.
    project = work / "newer"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(newer C)\nfind_package(fa 99 REQUIRED)\n"
    )
    command = ("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    expect("version: " + re.escape(version[0]), run(*command, fails=True))


def check_compiler(prefix, work):
    """fa's passes in C++."""
    example = prefix / "share/doc/fa/examples/cxx"
    configure_and_build(example, prefix, work / "cmake")
    output = run(work / "cmake/stages", SOURCE / "test/inputs/small/causal-dynamic.mlir")
    expect(r"^1 fa.attention, 0 linalg.generic\n0 fa.attention, [1-9]\d* linalg.generic$", output)


def check_programs(prefix, work):
    """The programs."""
    file = SOURCE / "test/inputs/small/dense-f32.mlir"
    expect("linalg.generic", run(prefix / "bin/fa-opt", file, "--fa-pipeline"))
    expect(r" ok\n", run(prefix / "bin/fa-run", file, "--check"))
    client = SOURCE / "test/tools/fa-lsp-server/Inputs/client.py"
    server = prefix / "bin/fa-lsp-server"
    expect("dense-f32.mlir: none", run(sys.executable, client, server, "diagnose", file))


def check_library(build, work):
    """A fa without LLVM around a library that was made elsewhere."""
    library = build / "lib/selfcontained/libfa.so"
    if not library.exists():
        print(f"library: skipped, no {library}")
        return
    tree = work / "tree"
    options = [f"-DFA_LIBRARY={library}", "-DFA_BUILD_PYTHON=OFF"]
    run("cmake", "-S", SOURCE, "-B", tree, *options)
    run("cmake", "--build", tree, "--parallel", "2")
    prefix = install(tree, work / "prefix")
    example = prefix / "share/doc/fa/examples"
    configure_and_build(example / "c", prefix, work / "cmake")
    expect("cpu: largest error .*, ok", run(work / "cmake/attention"))
    # It has no passes in C++, and says why.
    command = ("cmake", "-S", example / "cxx", "-B", work / "cxx", f"-DCMAKE_PREFIX_PATH={prefix}")
    expect("no component\\s+Compiler", run(*command, fails=True))


def main():
    """Runs the parts that were asked for."""
    build, work = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    parts = {"c": check_c, "compiler": check_compiler, "programs": check_programs}
    for name in sys.argv[3:]:
        if name == "library":
            shutil.rmtree(work / name, ignore_errors=True)
            check_library(build, work / name)
            continue
        prefix = install(build, work / name)
        parts[name](prefix, work / name)
        shutil.rmtree(work / name)
        print(f"{name}: ok")


if __name__ == "__main__":
    main()
