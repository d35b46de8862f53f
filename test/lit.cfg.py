# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# lit's configuration. Features that a test may require or mark unsupported:
#   fa-run  the program is built
#   fake-cuda  the driver made of host memory is built: %fake_cuda, and
#              %fake_cuda_old without an entry point
#   ptxas   NVIDIA's assembler is on the PATH
#   nvdisasm  and its disassembler
#   gpu     the driver finds a device
#   ci      every test runs, not the quick tier alone (--param tier=quick)
#   clang-format  version 22 is installed (the style check)
#   numpy   the interpreter that runs the tests has it
#   python  the Python module is built and can be imported

import ctypes
import os
import shutil
import subprocess

import lit.formats
from lit.llvm import llvm_config
from lit.llvm.subst import ToolSubst

config.name = "fa"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["inputs", "Inputs", "unit", "python", "CMakeLists.txt"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.fa_obj_root, "test")

# A hanging pass is a failure, not a stuck suite. Needs psutil.
try:
    import psutil  # noqa: F401

    lit_config.maxIndividualTestTime = 900
except ImportError:
    pass

llvm_config.with_system_environment(["HOME", "TMP", "TEMP", "LD_LIBRARY_PATH", "FA_CACHE_DIR"])
llvm_config.use_default_substitutions()

fa_bin = os.path.join(config.fa_obj_root, "bin")
config.substitutions.append(("%fa_src", config.fa_src_root))
config.substitutions.append(("%inputs", os.path.join(config.fa_src_root, "test", "inputs")))
config.substitutions.append(("%fa_bin", fa_bin))
# %python is the interpreter of lit itself.
config.substitutions.append(("%fa_python", config.python_executable))

llvm_config.add_tool_substitutions(
    [
        ToolSubst("fa-opt", unresolved="fatal"),
        # Most of a run's time would be LLVM's; a later --optimize overrules this one.
        ToolSubst("fa-run", extra_args=["--optimize=0"], unresolved="ignore"),
        ToolSubst("split-file", unresolved="fatal"),
        ToolSubst("mlir-tblgen", unresolved="ignore"),
        ToolSubst("%python", config.python_executable, unresolved="ignore"),
    ],
    [fa_bin, config.llvm_tools_dir],
)
llvm_config.with_environment("PATH", config.llvm_tools_dir, append_path=True)
llvm_config.with_environment("PATH", fa_bin, append_path=True)


def have_gpu():
    """Whether the driver is there and finds a device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        return (
            driver.cuInit(0) == 0
            and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
            and count.value > 0
        )
    except OSError:
        return False


def have_python_module():
    """Whether `import fa` works with the interpreter that CMake found."""
    folder = os.path.join(config.fa_obj_root, "python")
    if not os.path.isdir(os.path.join(folder, "fa")):
        return False
    env = dict(os.environ, PYTHONPATH=folder)
    done = subprocess.run(
        [config.python_executable, "-c", "import fa"], env=env, capture_output=True
    )
    return done.returncode == 0


if lit_config.params.get("tier", "ci") == "ci":
    config.available_features.add("ci")
if os.path.exists(os.path.join(fa_bin, "fa-run")):
    config.available_features.add("fa-run")
fake_cuda = os.path.join(config.fa_obj_root, "test", "unit", "runtime", "libfa_fake_cuda")
if os.path.exists(fake_cuda + ".so"):
    config.available_features.add("fake-cuda")
    config.substitutions.append(("%fake_cuda_old", fake_cuda + "_old.so"))
    config.substitutions.append(("%fake_cuda", fake_cuda + ".so"))
ptxas = shutil.which("ptxas")
if ptxas:
    config.available_features.add("ptxas")
    llvm_config.with_environment("PATH", os.path.dirname(ptxas), append_path=True)
nvdisasm = shutil.which("nvdisasm")
if nvdisasm:
    config.available_features.add("nvdisasm")
    llvm_config.with_environment("PATH", os.path.dirname(nvdisasm), append_path=True)
if os.path.exists(os.path.join(config.llvm_tools_dir, "clang-format")):
    config.available_features.add("clang-format")
if have_gpu():
    config.available_features.add("gpu")
if (
    subprocess.run([config.python_executable, "-c", "import numpy"], capture_output=True).returncode
    == 0
):
    config.available_features.add("numpy")
if have_python_module():
    config.available_features.add("python")
