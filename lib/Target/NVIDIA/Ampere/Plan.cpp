// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Plan.h"

#include "fa/Dialect/FA/IR/FA.h"

#include "llvm/Support/MathExtras.h"

#include <numeric>

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

/// Warps of a block that lists blocks of keys.
static constexpr unsigned kListWarps = 16;
/// And of one that computes element by element, or numbers of rows, at most.
static constexpr unsigned kElementWarps = 4, kRowWarps = 8;

/// Elements of a tile, at most. No shared memory and no registers hold as many,
/// and the bytes of larger ones may not be a number of 64 bits.
static constexpr int64_t kMostElements = 1 << 24;

/// Tiles have sizes that registers and shared memory can be computed of.
LogicalResult AmperePlan::checkTileSizes() {
  WalkResult walk = program.getForall().walk([&](linalg::LinalgOp op) {
    for (Value v : op->getOperands()) {
      auto type = dyn_cast<RankedTensorType>(v.getType());
      if (!type || !type.hasStaticShape() || program.isGlobal(v))
        continue;
      int64_t elements = 1;
      for (int64_t size : type.getShape())
        if (llvm::MulOverflow(elements, size, elements) ||
            elements > kMostElements) {
          op->emitOpError("expected tiles of at most ")
              << kMostElements << " elements, got " << type
              << "; choose smaller tiles";
          return WalkResult::interrupt();
        }
    }
    return WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}

LogicalResult AmperePlan::compute() {
  if (!program.getForall().getBody()->getOps<ListBlocksOp>().empty()) {
    // A warp takes a block of keys at a time; a word each for what it sees.
    numWarps = kListWarps;
    smemBytes = 4 * kListWarps;
    return checkShared(program, *options.target, smemBytes);
  }
  if (program.isElementwise()) {
    numWarps = options.warps ? options.warps : kElementWarps;
    return success();
  }
  if (std::optional<SharedRows> rows = program.findSharedRows()) {
    numWarps = options.warps ? options.warps
                             : std::gcd<int64_t>(kRowWarps, rows->mostWarps());
    return success();
  }
  collectVectorLoads();
  if (failed(collectLoads()) || failed(layouts.inferVectors()))
    return failure();
  SmallVector<Value> fromRegisters;
  for (const Contraction &c : contractions)
    if (!converted.contains(c.a) && !load(c.a->get()))
      fromRegisters.push_back(c.a->get());
  layouts.inferClasses(fromRegisters);
  if (failed(checkTileSizes()) || failed(chooseWarps()))
    return failure();
  delaySums();
  chooseLayouts();
  chooseRings();
  if (failed(placeShared()))
    return failure();
  chooseHoisted();
  return success();
}

/// The type of a tile in shared memory as planned.
static RankedTensorType inShared(Type type, const PlannedLoad &load) {
  bool isRing = load.ringIndex >= 0;
  auto place = SharedAttr::get(type.getContext(), load.offset, load.ringIndex,
                               load.stages, isRing && load.inTurn);
  return cast<RankedTensorType>(type).cloneWithEncoding(place);
}

void AmperePlan::apply() {
  if (!program.getForall().getBody()->getOps<ListBlocksOp>().empty() ||
      program.isElementwise() || program.findSharedRows()) {
    writeBlock(program, *options.target, numWarps, /*teams=*/1, smemBytes);
    return;
  }
  for (OpOperand *operand : hoistedOperands)
    operand->getOwner()->setAttr(NVIDIADialect::hoistedName,
                                 UnitAttr::get(operand->get().getContext()));
  for (auto &[value, load] : loads)
    value.setType(inShared(value.getType(), load));
  writeLayouts(program, layouts);
  for (auto &[value, place] : conversions) {
    OpBuilder b(value.getContext());
    b.setInsertionPointAfterValue(value);
    auto convert = ConvertLayoutOp::create(
        b, value.getLoc(), inShared(value.getType(), place), value);
    for (OpOperand *operand : converted)
      if (operand->get() == value)
        operand->set(convert.getResult());
  }
  writeBlock(program, *options.target, numWarps, /*teams=*/1, smemBytes);
}
