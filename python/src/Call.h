// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The short way of a call: from the arrays of a library that has the C exchange
// API of DLPack 1.3 (PyTorch 2.11) to the launch on a GPU or the kernel's run
// on the CPU, without a Python object in between. Whatever is unusual is left
// to the Python code, which checks everything and has the messages.

#ifndef FA_PYTHON_CALL_H
#define FA_PYTHON_CALL_H

#include "fa-c/fa.h"
#include "fa-runtime/fa_runtime.h"

#include <pybind11/pybind11.h>

namespace fa::python {

/// Adds what Python needs of this file. `runError` is the class fa.RunError.
void addCalls(pybind11::module_ &m, pybind11::object runError);

/// The runtime's program in a `Program`.
const fa_rt_program *programOf(pybind11::handle program);

/// The compiler's kernel in a `Kernel` for the CPU; null if it is something
/// else.
const fa_kernel *kernelOf(pybind11::handle kernel);

} // namespace fa::python

#endif // FA_PYTHON_CALL_H
