// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocks of rows from the last to the first, where blocks of keys begin at
// different ones.

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/Transforms/Passes.h"
#include "fa/Dialect/FA/Transforms/Utils.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Remarks.h"

namespace fa {
#define GEN_PASS_DEF_ORDERROWSPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-order-rows"

/// Bytes of a row, of what a step reads and adds to, from which on the order of
/// rows is worth the register that it takes (on an H200: D=64, of 512, loses 4
/// to 7% by the Ampere schedule, D=128, of 1024, gains 1 to 5%).
static constexpr int64_t kLongRow = 1024;

static int64_t bytesOfRow(SoftmaxGradOp op) {
  int64_t bytes = 0;
  for (Value matrix : {op.getQuery(), op.getOutGrad(), op.getQueryGrad()}) {
    auto type = cast<RankedTensorType>(matrix.getType());
    bytes += type.getDimSize(1) * type.getElementTypeBitWidth() / 8;
  }
  return bytes;
}

/// Whether a grid's iterations begin the loop at different places, and end it
/// at the same.
static bool endsTogether(scf::ForOp loop, scf::ForallOp grid) {
  auto dependsOnGrid = [&](Value bound) {
    return llvm::any_of(grid.getInductionVars(),
                        [&](Value iv) { return dependsOn(bound, iv); });
  };
  return dependsOnGrid(loop.getLowerBound()) &&
         !dependsOnGrid(loop.getUpperBound());
}

namespace {
struct OrderRowsPass : fa::impl::OrderRowsPassBase<OrderRowsPass> {
  using OrderRowsPassBase::OrderRowsPassBase;

  void runOnOperation() override {
    SmallVector<SoftmaxGradOp> steps;
    getOperation().walk([&](SoftmaxGradOp op) { steps.push_back(op); });
    for (SoftmaxGradOp op : steps) {
      auto loop = dyn_cast<scf::ForOp>(op->getParentOp());
      auto grid =
          loop ? loop->getParentOfType<scf::ForallOp>() : scf::ForallOp();
      std::optional<int64_t> step =
          loop ? getConstantIntValue(OpFoldResult(loop.getStep()))
               : std::nullopt;
      // With a loop over query heads around it, the register is one too many
      // for a producer, which would have local memory.
      bool isAlone = loop && loop->getParentOp() == grid;
      if (!isAlone || !step || followsList(loop) || !endsTogether(loop, grid) ||
          bytesOfRow(op) < kLongRow)
        continue;
      reverseLoop(loop, *step);
      remark::passed(op.getLoc(), remark::RemarkOpts::name("Descending")
                                      .category(DEBUG_TYPE)
                                      .function(getOperation().getName()))
          << "put the last rows first: blocks of keys begin at different ones, "
             "and end at the same";
    }
  }
};
} // namespace
