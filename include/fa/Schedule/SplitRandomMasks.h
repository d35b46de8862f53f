// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_SCHEDULE_SPLITRANDOMMASKS_H
#define FA_SCHEDULE_SPLITRANDOMMASKS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fa {

/// What random bits decide in elementwise operations becomes a tile of its own,
/// of i1: it depends on nothing that is computed, and is made for many elements
/// at once.
void splitRandomMasks(mlir::func::FuncOp func);

} // namespace fa

#endif // FA_SCHEDULE_SPLITRANDOMMASKS_H
