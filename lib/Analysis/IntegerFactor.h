// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_LIB_ANALYSIS_INTEGERFACTOR_H
#define FA_LIB_ANALYSIS_INTEGERFACTOR_H

#include "mlir/IR/AffineMap.h"

#include <optional>

namespace fa {

/// By how much an expression grows with one of the operands of its map,
/// dimensions and then symbols, where that is a constant.
std::optional<int64_t> getFactor(mlir::AffineExpr expr, unsigned operand,
                                 mlir::AffineMap map);

} // namespace fa

#endif // FA_LIB_ANALYSIS_INTEGERFACTOR_H
