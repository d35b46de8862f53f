// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What threads of the producer's add for the consumers.

#include "fa/Dialect/Hopper/Transforms/Adders.h"

#include "fa/Schedule/BlockProgram.h"

using namespace mlir;
using namespace fa;
using namespace fa::hopper;

Value fa::hopper::addedTile(AccumulateSliceOp sum) {
  Value part = sum.getPart();
  auto slice = part.getDefiningOp<tensor::ExtractSliceOp>();
  return slice ? slice.getSource() : part;
}

StageOp fa::hopper::stageOf(AccumulateSliceOp sum) {
  return addedTile(sum).getDefiningOp<StageOp>();
}

bool fa::hopper::isHanded(AccumulateSliceOp sum) {
  StageOp stage = stageOf(sum);
  return stage && stage.getAdders();
}

AccumulateSliceOp fa::hopper::findHandedSum(scf::ForallOp forall) {
  AccumulateSliceOp handed;
  forall.walk([&](AccumulateSliceOp sum) {
    if (!isHanded(sum))
      return WalkResult::advance();
    handed = sum;
    return WalkResult::interrupt();
  });
  return handed;
}

int64_t fa::hopper::addersOf(scf::ForallOp forall) {
  return findHandedSum(forall) ? consumersOf(forall).getWarpgroups() : 0;
}

/// The sum that a staged tile is handed to adders for: each time it is staged
/// they are told once where to. Null where that is not so.
static AccumulateSliceOp sumOfStaged(StageOp stage) {
  SmallVector<Operation *> sums = sumsOf(stage);
  auto sum = sums.size() == 1 ? dyn_cast<AccumulateSliceOp>(sums.front())
                              : AccumulateSliceOp();
  if (!sum || stageOf(sum) != stage || !stage->hasOneUse() ||
      sum->getBlock() != stage->getBlock())
    return {};
  auto hasAdders = [](StageOp other) {
    return other.getAdders() ? WalkResult::interrupt() : WalkResult::advance();
  };
  for (Operation *op = stage->getNextNode(); op != sum; op = op->getNextNode())
    if (op->walk(hasAdders).wasInterrupted())
      return {};
  return sum;
}

/// What is handed to adders is one sum, or copies of it, and all that blocks
/// add in an order.
LogicalResult fa::hopper::verifyAdders(scf::ForallOp forall) {
  AccumulateSliceOp handed = findHandedSum(forall);
  auto told = [](AccumulateSliceOp sum) {
    StageOp stage = stageOf(sum);
    return std::make_tuple(*stage.getAdders(), stage.getOffset(),
                           stage.getTile().getType(), stage.getTurned(),
                           memoryOf(sum.getInit(), 0).first,
                           sum.getDroppedDims(), sum.getOrdered());
  };
  WalkResult walk = forall.walk([&](StageOp stage) {
    if (!stage.getAdders() || sumOfStaged(stage))
      return WalkResult::advance();
    stage.emitOpError("has adders, and its tile goes not to one "
                      "fa.accumulate_slice in its block, before another is "
                      "staged; add it there, or have no adders");
    return WalkResult::interrupt();
  });
  if (walk.wasInterrupted())
    return failure();
  SmallVector<AccumulateSliceOp> others;
  forall.walk([&](AccumulateSliceOp sum) {
    if (isHanded(sum) ? told(sum) != told(handed)
                      : sum.getOrdered().value_or(0) > 0)
      others.push_back(sum);
  });
  if (!handed || others.empty())
    return success();
  InFlightDiagnostic diag = others.front().emitOpError(
      "is another sum than the adders', and in an order or adders', too; they "
      "take one, of one tensor and one tile: leave both to the consumers");
  diag.attachNote(handed.getLoc()) << "the adders'";
  return diag;
}

LogicalResult fa::hopper::verifyOrder(scf::ForallOp forall) {
  std::optional<int64_t> apart = findOrder(forall);
  if (!apart || !consumersOf(forall))
    return success();
  if (forall.getBody()->getOps<TileQueueOp>().empty())
    return forall.emitOpError("adds in an order, and its blocks take no tiles "
                              "from a hopper.tile_queue; add one");
  if (*apart > 0)
    return forall.emitOpError("has roles, and an fa.accumulate for which "
                              "blocks wait for the end of that ")
           << *apart << " before; 0 is expected there, or no roles";
  return success();
}
