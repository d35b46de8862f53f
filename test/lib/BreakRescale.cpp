// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A wrong pass: the state is no longer rescaled when the maximum grows.

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;

namespace {
struct BreakRescalePass
    : PassWrapper<BreakRescalePass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(BreakRescalePass)
  StringRef getArgument() const final { return "test-fa-break-rescale"; }
  StringRef getDescription() const final {
    return "wrong on purpose: alpha = exp(m - m') becomes 1";
  }
  void runOnOperation() override {
    getOperation().walk([](linalg::GenericOp op) {
      // alpha is the exponential on row vectors.
      if (op.getNumLoops() != 1)
        return;
      Operation *yield = op.getBody()->getTerminator();
      Value result = yield->getOperand(0);
      if (!isa_and_nonnull<math::ExpOp, math::Exp2Op>(result.getDefiningOp()))
        return;
      OpBuilder b(yield);
      yield->setOperand(
          0, arith::ConstantOp::create(b, op.getLoc(),
                                       b.getFloatAttr(result.getType(), 1.0)));
    });
  }
};
} // namespace

namespace fa {
void registerTestPasses();
} // namespace fa

void fa::registerTestPasses() { PassRegistration<BreakRescalePass>(); }
