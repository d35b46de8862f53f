// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step of softmax as warps make it: sums that each thread keeps of its own
// columns until after the loop, and branches that a warp takes for its rows.

#include "Schedule.h"

#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/IR/StepExpansion.h"
#include "fa/Dialect/FA/Utils/CleanUp.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

/// Columns of which a thread has one in each 8: a row's sum is spread over so
/// many places until after the loop.
static constexpr int64_t kPartialSums = 8;

namespace {
class WarpExpansion : public fa::StepExpansion {
public:
  Value addRows(OpBuilder &b, Location loc, Value tile, Value init) override {
    if (cast<RankedTensorType>(init.getType()).getRank() == 1)
      return StepExpansion::addRows(b, loc, tile, init);
    return PartialSumsOp::create(b, loc, init.getType(), tile, init);
  }
  /// Pinned: in a branch that reads it the weights would be kept for it.
  Value sumRows(OpBuilder &b, Location loc, Value tile, Value like) override {
    Value sums = StepExpansion::sumRows(b, loc, tile, like);
    return PinOp::create(b, loc, TypeRange(sums.getType()), sums)
        .getResults()[0];
  }
  /// Of some rows, by the warp that has them.
  Value anyNotBelow(OpBuilder &b, Location loc, Value of,
                    double limit) override {
    FloatAttr rounded = b.getFloatAttr(getElementTypeOrSelf(of), limit);
    return ExceedsOp::create(b, loc, b.getI1Type(), of,
                             b.getF64FloatAttr(rounded.getValueAsDouble()));
  }
};
} // namespace

/// The sum that a loop carries for a step alone, from zero, in partial sums;
/// the rest is added after the loop.
static void carryPartialSums(OpOperand &operand, OpResult stepResult) {
  auto loop = dyn_cast<scf::ForOp>(stepResult.getOwner()->getParentOp());
  BlockArgument carried = fa::matchCarried(loop, operand.get(), stepResult);
  if (!carried || !carried.hasOneUse() || !stepResult.hasOneUse())
    return;
  OpOperand *init = loop.getTiedLoopInit(carried);
  std::optional<APFloat> start = fa::matchFill(init->get());
  if (!start || !start->isZero())
    return;
  auto type = cast<RankedTensorType>(carried.getType());
  auto wide = RankedTensorType::get({type.getDimSize(0), kPartialSums},
                                    type.getElementType());
  OpBuilder b(loop);
  fa::SoftmaxBuilder before(b, loop.getLoc());
  init->set(before.fill(
      {b.getIndexAttr(wide.getDimSize(0)), b.getIndexAttr(kPartialSums)},
      type.getElementType(), 0.0));
  OpResult result = loop.getTiedLoopResult(carried);
  for (Value v : {Value(carried), Value(stepResult), Value(result)})
    v.setType(wide);
  b.setInsertionPointAfter(loop);
  fa::SoftmaxBuilder after(b, loop.getLoc());
  Value zeros = after.fill({b.getIndexAttr(type.getDimSize(0))},
                           type.getElementType(), 0.0);
  Value total = after.rowSum(result, zeros);
  result.replaceAllUsesExcept(total, total.getDefiningOp());
}

LogicalResult fa::nvidia::expandForWarps(func::FuncOp func) {
  IRRewriter rewriter(func.getContext());
  WarpExpansion target;
  for (Operation *op : collectSoftmaxes(func)) {
    if (auto step = dyn_cast<SpeculatedSoftmaxOp>(op)) {
      for (unsigned i :
           {SpeculatedSoftmaxOp::kSum, SpeculatedSoftmaxOp::kExactSum})
        if (i < step.getState().size())
          carryPartialSums(step.getStateMutable()[i], step->getResult(i));
    } else if (auto merge = cast<OnlineSoftmaxOp>(op);
               merge.getUnnormalized()) {
      carryPartialSums(merge.getSumMutable(),
                       cast<OpResult>(merge.getNewSum()));
    }
    expandSoftmax(rewriter, op, target);
  }
  return cleanUp(func);
}

void fa::nvidia::takeWholeSums(Value sums) {
  for (Operation *user : llvm::make_early_inc_range(sums.getUsers())) {
    auto total = cast<linalg::GenericOp>(user);
    OpBuilder b(total);
    auto type = cast<RankedTensorType>(total.getResult(0).getType());
    SmallVector<OpFoldResult> zero(2, b.getIndexAttr(0)),
        one(2, b.getIndexAttr(1)),
        sizes{b.getIndexAttr(type.getDimSize(0)), b.getIndexAttr(1)};
    Value column = tensor::ExtractSliceOp::create(b, total.getLoc(), type, sums,
                                                  zero, sizes, one);
    total.getResult(0).replaceAllUsesWith(column);
    total.erase();
  }
}
