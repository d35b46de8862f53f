// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// DLPack's structures in Python capsules, read and made.

#ifndef FA_PYTHON_SRC_DLPACK_H
#define FA_PYTHON_SRC_DLPACK_H

#include <pybind11/pybind11.h>

namespace fa::python {

/// What a capsule of either version says: (pointer, (type code, bits, lanes),
/// shape, strides in elements or None for row-major, writable). The capsule
/// stays the tensor's owner.
pybind11::tuple viewDLPack(const pybind11::capsule &capsule);

/// A capsule for a view (pointer, dtype, shape, strides) on a device (type,
/// index), which holds `owner` until its consumer is done.
pybind11::capsule exportDLPack(const pybind11::tuple &view,
                               const pybind11::tuple &device,
                               pybind11::object owner, bool versioned);

} // namespace fa::python

#endif // FA_PYTHON_SRC_DLPACK_H
