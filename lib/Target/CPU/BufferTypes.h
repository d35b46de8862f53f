// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_LIB_TARGET_CPU_BUFFERTYPES_H
#define FA_LIB_TARGET_CPU_BUFFERTYPES_H

#include "mlir/IR/BuiltinTypes.h"

namespace fa {

/// The buffer in which a function takes a tensor: dynamic strides and offset,
/// the last stride 1 where asked for.
mlir::MemRefType getBoundaryBufferType(mlir::RankedTensorType type,
                                       bool unitInnerStride);

} // namespace fa

#endif // FA_LIB_TARGET_CPU_BUFFERTYPES_H
