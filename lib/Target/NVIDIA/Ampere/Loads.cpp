// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which tiles go through shared memory, in rings or not, and where they lie.

#include "Plan.h"

#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

//===----------------------------------------------------------------------===//
// Loads and rings
//===----------------------------------------------------------------------===//

void AmperePlan::addLoad(Value tile) {
  if (loads.contains(tile))
    return;
  auto type = cast<RankedTensorType>(tile.getType());
  PlannedLoad load;
  load.layout = sharedLayoutOf(type);
  Operation *parent = tile.getDefiningOp()->getParentOp();
  auto loop = dyn_cast<scf::ForOp>(parent);
  load.loop = loop ? loop : parent->getParentOfType<scf::ForOp>();
  if (loop && canPrefetch(tile, loop)) {
    load.ringIndex = ring(loop).size();
  }
  loads.insert({tile, load});
}

SmallVector<Value> AmperePlan::ring(scf::ForOp loop) const {
  SmallVector<Value> result;
  for (auto &[tile, load] : loads)
    if (load.loop == loop && load.ringIndex >= 0)
      result.push_back(tile);
  return result;
}

/// Whether a vector meets the columns of matrices, by itself or by what is
/// computed of it.
static bool isAlongColumns(Value vector) {
  return llvm::any_of(vector.getUses(), [](OpOperand &use) {
    auto op = dyn_cast<linalg::LinalgOp>(use.getOwner());
    if (!op)
      return false;
    if (op.getNumLoops() == 1)
      return llvm::any_of(op->getResults(), isAlongColumns);
    AffineMap map = op.getMatchingIndexingMap(&use);
    return map.getNumResults() == 1 &&
           map.getResult(0) == getAffineDimExpr(1, map.getContext());
  });
}

/// Vectors along the columns of a loop's tiles follow it in a ring: every
/// thread needs many of their elements, and all rows the same.
void AmperePlan::collectVectorLoads() {
  program.getForall().walk([&](linalg::LinalgOp op) {
    auto loop = dyn_cast<scf::ForOp>(op->getParentOp());
    for (OpOperand *operand : op.getDpsInputOperands()) {
      Value tile = operand->get();
      auto type = dyn_cast<RankedTensorType>(tile.getType());
      if (!loop || !type || type.getRank() != 1 ||
          !program.isLoadedTile(tile) ||
          tile.getParentBlock() != loop.getBody() ||
          type.getElementTypeBitWidth() != 32 || !canPrefetch(tile, loop) ||
          !isAlongColumns(tile))
        continue;
      auto pad = tile.getDefiningOp<tensor::PadOp>();
      if (!pad || matchPattern(pad.getConstantPaddingValue(), m_AnyZeroFloat()))
        addLoad(tile);
    }
  });
}

LogicalResult AmperePlan::collectLoads() {
  WalkResult walk = program.getForall().walk([&](linalg::LinalgOp op) {
    std::optional<Contraction> c = matchContraction(op);
    if (!c)
      return WalkResult::advance();
    Type other = getElementTypeOrSelf(c->b->get());
    if (other != c->elementType ||
        !(c->elementType.isF32() || c->elementType.isF16() ||
          c->elementType.isBF16())) {
      op->emitOpError("expected both operands of a contraction to be f16, "
                      "bf16 or f32 alike, got ")
          << c->elementType << " and " << other
          << "; convert them, or compile for cpu, which takes f64, too";
      return WalkResult::interrupt();
    }
    if (c->op.hasDynamicShape()) {
      op->emitOpError("expected tiles of static sizes, got operands of ")
          << c->a->get().getType() << " and " << c->b->get().getType()
          << "; run --fa-pad-tiles first";
      return WalkResult::interrupt();
    }
    contractions.push_back(*c);
    for (OpOperand *operand : {c->a, c->b}) {
      if (program.isLoadedTile(operand->get())) {
        addLoad(operand->get());
        continue;
      }
      bool inRegisters = operand == c->a && c->tensorCore() && !c->aOuterK;
      if (inRegisters)
        continue;
      addConversion(operand);
    }
    return WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

/// Loads and conversions one after another; gives the bytes that they take.
int64_t AmperePlan::placeLoads() {
  int64_t offset = 0;
  auto take = [&](PlannedLoad &load) {
    load.offset = offset;
    offset += (load.layout.size() * load.stages + 127) / 128 * 128;
  };
  for (auto &entry : loads)
    take(entry.second);
  for (auto &entry : conversions)
    take(entry.second);
  return offset;
}

/// How many stages rings have, and when a stage is filled again.
void AmperePlan::chooseRings() {
  bool allInTurn = options.inTurn != 0 &&
                   llvm::all_of(contractions, [](const Contraction &c) {
                     return c.tensorCore();
                   });
  for (auto &entry : loads) {
    PlannedLoad &load = entry.second;
    load.inTurn = load.ringIndex >= 0 &&
                  isReadInTurn(load.loop, ring(load.loop), contractions);
    allInTurn &= load.inTurn || load.ringIndex < 0;
  }
  auto setStages = [&](unsigned stages) {
    for (auto &entry : loads)
      if (entry.second.ringIndex >= 0)
        entry.second.stages = stages;
  };
  auto isAlone = [&](unsigned stages) {
    setStages(stages);
    return blocksPerSM(options.target->info, 32 * numWarps, estimate,
                       placeLoads()) < 2;
  };
  unsigned stages = options.stages ? options.stages : 2;
  // With one stage fewer addresses are live at a time, and another block may
  // compute while this one waits. Two are faster (3% at D=128) where neither
  // matters, and so are all loads of a step together (4% at D=64).
  if (!options.stages && allInTurn &&
      (estimate > int64_t(options.hoistRegisters) ||
       (isAlone(stages) && !isAlone(1))))
    stages = 1;
  setStages(stages);
  bool inTurn = options.inTurn < 0 ? stages == 1 : options.inTurn != 0;
  for (auto &entry : loads) {
    PlannedLoad &load = entry.second;
    load.inTurn &= inTurn;
    if (load.ringIndex >= 0 && stages == 1 && !load.inTurn)
      load.ringIndex = -1;
  }
}

LogicalResult AmperePlan::placeShared() {
  smemBytes = placeLoads();
  for (bool fewer = true; fewer && smemBytes > options.target->sharedMemory;
       smemBytes = placeLoads()) {
    fewer = false;
    for (auto &entry : loads) {
      PlannedLoad &load = entry.second;
      if (load.ringIndex < 0 || load.stages <= (load.inTurn ? 1 : 2))
        continue;
      --load.stages;
      fewer = true;
    }
  }
  if (smemBytes > options.target->sharedMemory) {
    for (auto &entry : loads) {
      entry.second.ringIndex = -1;
      entry.second.stages = 1;
    }
    smemBytes = placeLoads();
  }
  return checkShared(program, *options.target, smemBytes);
}
