#!/usr/bin/env python3
# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/adding-a-pass.md, done by the letter.

`adding_a_pass.py BUILD WORK` applies the page's blocks in their order to copies of
the files that they name, in WORK. A block belongs to the file that the paragraph
before it names last, followed by a colon: `diff` changes it, `cpp` and `mlir` are
the whole of a new file.

The page's commands come last. `scripts/build.sh` would compile every file that
includes the changed Passes.h.inc, which takes minutes. Here TableGen and the compiler
run with the commands of BUILD on the files that the page changes or adds and on the
one that registers passes. The new objects are linked before the libraries of BUILD,
whose objects of the same files are then left out. The other commands run as they
stand, in WORK, which has all lit tests. Fails at the first thing that does not do
what the page says.
"""

from __future__ import annotations

import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PAGE = SOURCE / "docs/adding-a-pass.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
FILE = re.compile(r"`([\w./-]+)`:\s*\Z")


def change(text, diff, name):
    """Applies a diff without line numbers: its old lines must be there once."""
    lines = diff.splitlines()
    old = "".join(line[1:] + "\n" for line in lines if line[:1] != "+")
    new = "".join(line[1:] + "\n" for line in lines if line[:1] != "-")
    if text.count(old) != 1:
        sys.exit(f"{PAGE}: {name} has {text.count(old)} times, expected once:\n{old}")
    return text.replace(old, new)


def run(command, folder):
    """Runs a command, in words or as text for a shell; its output."""
    print("+", command if isinstance(command, str) else shlex.join(command), flush=True)
    if isinstance(command, str):
        command = ["bash", "-euo", "pipefail", "-c", command]
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    print(done.stdout, end="", flush=True)
    if done.returncode != 0:
        sys.exit(f"{PAGE}: returned {done.returncode}: {shlex.join(command)}")
    return done.stdout


class Tree:
    """The changed files in WORK, with the commands and the objects of BUILD."""

    def __init__(self, build, work):
        self.build, self.work = build, work
        commands = subprocess.run(
            ["ninja", "-C", build, "-t", "compdb"], check=True, capture_output=True, text=True
        )
        self.edges = json.loads(commands.stdout)
        self.created, self.changed = [], []  # as the page names them
        shutil.rmtree(work, ignore_errors=True)
        # The lit tests, which the page's commands choose from.
        shutil.copytree(SOURCE / "test", work / "test", copy_function=os.symlink)

    def write(self, name, kind, text):
        """Changes the copy of a file, or adds one."""
        path = self.work / name
        if kind == "diff":
            text = change((path if path.exists() else SOURCE / name).read_text(), text, name)
            self.changed.append(name)
        elif (SOURCE / name).exists() or path.exists():
            sys.exit(f"{PAGE}: {name} is called a new file and exists")
        elif not (SOURCE / name).parent.is_dir():
            sys.exit(f"{PAGE}: there is no folder for {name}")
        else:
            self.created.append(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def edge(self, file):
        """BUILD's command that reads the source file."""
        name = str(SOURCE / file)
        return next(e["command"] for e in self.edges if name in e["command"].split())

    def compiled_like(self, name):
        """The source file whose flags are those of a file: itself, or a neighbour."""
        if name not in self.created:
            return name
        lists = str(pathlib.Path(name).parent / "CMakeLists.txt")
        if lists not in self.changed:
            sys.exit(f"{PAGE}: {name} is in no CMakeLists.txt")
        sources = re.findall(r"^ +(\w+\.cpp)$", (self.work / lists).read_text(), re.M)
        if pathlib.Path(name).name not in sources:
            sys.exit(f"{PAGE}: {lists} does not list {name}")
        others = [str(pathlib.Path(lists).parent / s) for s in sources]
        return next(s for s in others if s not in self.created)

    def generate(self, name):
        """Runs TableGen on a changed .td; its flags are BUILD's, its output WORK's."""
        command = next(c for c in self.edge(name).split(" && ") if "tblgen" in c)
        words = shlex.split(command)
        output = self.work / "build" / pathlib.Path(name).parent / words[words.index("-o") + 1]
        words[words.index("-o") + 1] = str(output)
        words[words.index(str(SOURCE / name))] = str(self.work / name)
        del words[words.index("-d") : words.index("-d") + 2]
        words.insert(1, f"-I{self.work / 'include'}")
        output.parent.mkdir(parents=True, exist_ok=True)
        run(words, self.build)
        # mlir_tablegen(... -name FA) declares registerFAPasses.
        return "register" + words[words.index("-name") + 1] + "Passes"

    def compile(self, name):
        """Compiles a file that the page changes or adds; the object."""
        like = self.compiled_like(name)
        words = shlex.split(self.edge(like))
        place = self.work if (self.work / name).exists() else SOURCE
        path, output = place / name, self.work / "build" / (name + ".o")
        output.parent.mkdir(parents=True, exist_ok=True)
        words[words.index(str(SOURCE / like))] = str(path)
        for option, value in {"-o": output, "-MT": output, "-MF": f"{output}.d"}.items():
            words[words.index(option) + 1] = str(value)
        first = next(i for i, word in enumerate(words) if word.startswith(("-D", "-I")))
        headers = [self.work / "include", self.work / "build/include"]
        words[first:first] = [f"-I{folder}" for folder in headers]
        # Headers beside the original.
        words[first:first] = ["-iquote", str((SOURCE / like).parent)]
        if name in self.created:
            words.append("-Werror")
        run(words, self.build)
        return str(output)

    def make(self, targets):
        """Stands in for `scripts/build.sh TARGETS`."""
        known = {".td", ".cpp", ".txt", ".mlir"}
        names = [*self.changed, *self.created]
        if not {pathlib.Path(name).suffix for name in names} <= known:
            sys.exit(f"{PAGE}: only {', '.join(known)} are built here, got {names}")
        registers = [self.generate(name) for name in names if name.endswith(".td")]
        sources = {name for name in names if name.endswith(".cpp")}
        for path in (SOURCE / "lib").rglob("*.cpp"):
            if any(f"{name}()" in path.read_text() for name in registers):
                sources.add(str(path.relative_to(SOURCE)))
        with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count())) as pool:
            objects = list(pool.map(self.compile, sorted(sources)))
        (self.work / "build/bin").mkdir()
        for target in targets:
            output = f"bin/{target}"
            (edge,) = (e for e in self.edges if e["output"] == output)
            # CMake writes `: && LINK && :`.
            words = shlex.split(edge["command"])[2:-2]
            words[words.index("-o") + 1] = str(self.work / "build" / output)
            words[words.index("-o") : words.index("-o")] = objects
            run(words, self.build)

    @functools.cached_property
    def tools(self):
        """The folder of LLVM's programs."""
        return re.search(r"(\S+)/mlir-tblgen ", json.dumps(self.edges))[1]

    def configure_lit(self):
        """What CMake makes of test/lit.site.cfg.py.in."""
        text = (SOURCE / "test/lit.site.cfg.py.in").read_text()
        values = {
            "LIT_SITE_CFG_IN_HEADER": "path = str",
            "FA_BINARY_DIR": self.work / "build",
            "FA_SOURCE_DIR": self.work,
            "LLVM_TOOLS_BINARY_DIR": self.tools,
            "Python3_EXECUTABLE": sys.executable,
        }
        for name, value in values.items():
            text = text.replace(f"@{name}@", str(value))
        # lit looks for tests beside the real file.
        configuration = self.work / "test/lit.cfg.py"
        configuration.unlink()
        shutil.copy(SOURCE / "test/lit.cfg.py", configuration)
        (self.work / "build/test").mkdir(parents=True)
        (self.work / "build/test/lit.site.cfg.py").write_text(text)

    def execute(self, commands):
        """The page's commands; what they print."""
        self.configure_lit()
        output = ""
        for command in commands.splitlines():
            program, *words = command.split()
            if program == "scripts/build.sh":
                self.make(words)
            else:
                output += run(command, self.work)
        return output


def main():
    """Goes through the page."""
    build, work = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    tree = Tree(build, work)
    page = PAGE.read_text()
    output, end = "", 0
    for block in BLOCK.finditer(page):
        kind, text = block.groups()
        named = FILE.search(page[end : block.start()])
        end = block.end()
        if kind == "sh":
            output += tree.execute(text)
        elif named:
            tree.write(named[1], kind, text)
        else:
            sys.exit(f"{PAGE}: no file is named before this block:\n{block[0]}")
    # The test that the page writes is the one that was run.
    if not re.search(r"^ *Passed *: *1 ", output, re.M) or len(tree.created) != 2:
        sys.exit(f"{PAGE}: expected two new files and one test that passed, got {tree.created}")
    formatter = shutil.which("clang-format-22") or f"{tree.tools}/clang-format"
    if pathlib.Path(formatter).exists():
        sources = [n for n in [*tree.created, *tree.changed] if n.endswith(".cpp")]
        style = f"--style=file:{SOURCE / '.clang-format'}"
        run([formatter, style, "--dry-run", "-Werror", *sources], work)


if __name__ == "__main__":
    main()
