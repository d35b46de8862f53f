// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes over schedules for sm_90a.

#ifndef FA_DIALECT_HOPPER_TRANSFORMS_PASSES_H
#define FA_DIALECT_HOPPER_TRANSFORMS_PASSES_H

#include "fa/Dialect/Hopper/IR/Hopper.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace fa::hopper {
#define GEN_PASS_DECL
#include "fa/Dialect/Hopper/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "fa/Dialect/Hopper/Transforms/Passes.h.inc"

/// Checks one scheduled scf.forall as `hopper-verify` does; reports what is
/// wrong.
mlir::LogicalResult verifySchedule(mlir::scf::ForallOp forall);
} // namespace fa::hopper

#endif // FA_DIALECT_HOPPER_TRANSFORMS_PASSES_H
