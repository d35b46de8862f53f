// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensor maps: how TMA sees a tensor. "CUDA Driver API", tensor map object
// management.

#ifndef FA_RUNTIME_LIB_TENSORMAP_H
#define FA_RUNTIME_LIB_TENSORMAP_H

#include "Driver.h"
#include "Image.h"

namespace fa::rt {

/// What the driver encodes a tensor map into.
struct alignas(64) EncodedMap {
  unsigned char bytes[128];
};

/// The map of a tensor whose pointer, sizes and strides (elements) are `words`,
/// made by the driver or taken from what this thread encoded before. No
/// allocation. Throws INVALID_ARGUMENT if TMA cannot express the tensor.
void encodeTensorMap(const Driver &driver, const ImageHeader &header,
                     const MapDecl &decl, const int64_t *words,
                     EncodedMap &map);

} // namespace fa::rt

#endif // FA_RUNTIME_LIB_TENSORMAP_H
