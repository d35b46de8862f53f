// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocks of keys from the last to the first, where scores grow with the key.

#include "fa/Analysis/MaskIntervals.h"
#include "fa/Analysis/Trend.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/Transforms/Passes.h"
#include "fa/Dialect/FA/Transforms/Utils.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"

namespace fa {
#define GEN_PASS_DEF_ORDERKEYSPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-order-keys"

//===----------------------------------------------------------------------===//
// How scores change from key to key
//===----------------------------------------------------------------------===//

/// What a generic yields where the mask lets it through.
static Value unmaskedScore(linalg::GenericOp op) {
  std::optional<ScoreMask> mask = matchScoreMask(op);
  return mask ? mask->unmasked : op.getBody()->getTerminator()->getOperand(0);
}

static Trend trendOf(Value scores, scf::ForOp loop) {
  Trend trend = Trend::None;
  for (linalg::GenericOp op : scoreGenerics(scores))
    trend = join(
        trend, op && op.getNumLoops() == 2
                   ? TrendFinder(loop.getInductionVar()).find(unmaskedScore(op))
                   : Trend::Unknown);
  return trend;
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
struct OrderKeysPass : fa::impl::OrderKeysPassBase<OrderKeysPass> {
  using OrderKeysPassBase::OrderKeysPassBase;

  void runOnOperation() override {
    if (!llvm::is_contained({"auto", "ascending", "descending"}, order)) {
      getOperation().emitError("expected order auto, ascending or descending, "
                               "got ")
          << order;
      return signalPassFailure();
    }
    SmallVector<OnlineSoftmaxOp> merges;
    getOperation().walk([&](OnlineSoftmaxOp op) { merges.push_back(op); });
    for (OnlineSoftmaxOp merge : merges) {
      auto loop = dyn_cast<scf::ForOp>(merge->getParentOp());
      std::optional<int64_t> step =
          loop ? getConstantIntValue(OpFoldResult(loop.getStep()))
               : std::nullopt;
      if (order == "ascending" || !step || followsList(loop))
        continue;
      std::string why =
          order == "descending" ? "that was asked for" : reason(merge, loop);
      if (why.empty())
        continue;
      reverseLoop(loop, *step);
      remark::passed(merge.getLoc(), remark::RemarkOpts::name("Descending")
                                         .category(DEBUG_TYPE)
                                         .function(getOperation().getName()))
          << "put the last keys first: " + why;
    }
  }

  /// Why the last keys are to come first; empty: they are not.
  static std::string reason(OnlineSoftmaxOp merge, scf::ForOp loop) {
    Trend trend = trendOf(merge.getScores(), loop);
    if (trend == Trend::Grows)
      return "scores grow with the key";
    auto rows = loop->getParentOfType<scf::ForOp>();
    if (trend == Trend::Unknown && rows &&
        dependsOn(loop.getUpperBound(), rows.getInductionVar()))
      return "scores change with the key, and the last ones are the nearest";
    return "";
  }
};
} // namespace
