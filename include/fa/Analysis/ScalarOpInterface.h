// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of scalar semantics: what is known of the operations that score
// functions consist of.

#ifndef FA_ANALYSIS_SCALAROPINTERFACE_H
#define FA_ANALYSIS_SCALAROPINTERFACE_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

#include "fa/Analysis/ScalarOpInterface.h.inc"

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace fa {

/// Gives operations of arith and math their models. An operation without one
/// has no derivative: a float that comes of it can't be differentiated.
void registerScalarModels(mlir::DialectRegistry &registry);

} // namespace fa

#endif // FA_ANALYSIS_SCALAROPINTERFACE_H
