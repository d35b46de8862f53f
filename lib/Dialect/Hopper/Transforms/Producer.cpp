// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The producer: of the consumers' program the loads of what they acquire, and
// the loops, branches and scalars that these need.

#include "fa/Dialect/Hopper/Transforms/Utils.h"
#include "fa/Schedule/BlockProgram.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace fa::hopper;

void fa::hopper::eraseDead(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
    if (isOpTriviallyDead(&op)) {
      op.erase();
      continue;
    }
    for (Region &region : op.getRegions())
      for (Block &inner : region)
        eraseDead(inner);
  }
}

Value fa::hopper::cloneSlice(OpBuilder &b, Value v, Region &region,
                             IRMapping &map) {
  if (Value known = map.lookupOrNull(v))
    return known;
  Operation *op = v.getDefiningOp();
  if (!op || !region.isAncestor(op->getParentRegion()))
    return v;
  op->walk<WalkOrder::PreOrder>([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      if (!op->isAncestor(operand.getParentRegion()->getParentOp()))
        cloneSlice(b, operand, region, map);
  });
  b.clone(*op, map);
  return map.lookup(v);
}

/// Whether it is a tile that the producer loads.
static bool isProduced(AcquireOp op) { return !isComputed(op.getRing()); }

static bool movesRings(Operation *op) {
  bool found = false;
  op->walk([&](AcquireOp acquire) { found |= isProduced(acquire); });
  return found;
}

/// The loads of what the consumers acquire, in the same order, under the same
/// control.
static void cloneLoads(OpBuilder &b, Block &from, ConsumersOp consumers,
                       IRMapping &map) {
  // A value of the consumers' program in the producer's.
  auto copied = [&](Value v) {
    return cloneSlice(b, v, consumers.getBody(), map);
  };
  for (Operation &op : from) {
    if (auto acquire = dyn_cast<AcquireOp>(op)) {
      if (!isProduced(acquire))
        continue;
      Value tile = copied(acquire.getTile());
      RingType type = acquire.getRing().getType();
      LoadOp::create(b, op.getLoc(), tile, acquire.getRing(), type.tileBytes(),
                     /*by_rows=*/!type.isVector() && !fa::endsWithTensor(tile));
      continue;
    }
    if (!movesRings(&op))
      continue;
    OpBuilder::InsertionGuard guard(b);
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      auto copy = scf::IfOp::create(
          b, op.getLoc(), TypeRange(), copied(branch.getCondition()),
          /*addThenBlock=*/true,
          /*addElseBlock=*/branch.elseBlock() != nullptr);
      for (auto [block, to] :
           {std::pair(branch.thenBlock(), copy.thenBlock()),
            std::pair(branch.elseBlock(), copy.elseBlock())}) {
        if (!block)
          continue;
        b.setInsertionPointToStart(to);
        IRMapping inner = map;
        cloneLoads(b, *block, consumers, inner);
        if (!to->mightHaveTerminator())
          scf::YieldOp::create(b, op.getLoc());
      }
      continue;
    }
    auto source = cast<scf::ForOp>(op);
    auto copy = scf::ForOp::create(
        b, op.getLoc(), copied(source.getLowerBound()),
        copied(source.getUpperBound()), copied(source.getStep()));
    b.setInsertionPointToStart(copy.getBody());
    IRMapping inner = map;
    inner.map(source.getInductionVar(), copy.getInductionVar());
    cloneLoads(b, *source.getBody(), consumers, inner);
  }
}

void fa::hopper::buildProducer(ProducerOp producer, ConsumersOp consumers) {
  Block &body = producer.getBody().front();
  while (!body.empty())
    body.back().erase();
  OpBuilder b = OpBuilder::atBlockBegin(&body);
  IRMapping map;
  cloneLoads(b, consumers.getBody().front(), consumers, map);
}
