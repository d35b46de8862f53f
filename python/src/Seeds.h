// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Seeds of dropout as PyTorch's CUDA generators give them, computed here: a
// kernel that draws one number takes the host tens of microseconds.

#ifndef FA_PYTHON_SEEDS_H
#define FA_PYTHON_SEEDS_H

#include <pybind11/pybind11.h>

namespace fa::python {

/// Adds what Python needs of this file. `runError` is the class fa.RunError.
void addSeeds(pybind11::module_ &m, pybind11::object runError);

} // namespace fa::python

#endif // FA_PYTHON_SEEDS_H
