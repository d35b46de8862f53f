// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles of i1 that random bits decide: 32 elements in a word.

#include "KernelEmitter.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fa::nvidia;

Value KernelEmitter::uniformSeed(Value seed) {
  Value &known = uniformSeeds[seed];
  if (!known) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfterValue(seed);
    auto half = [&](Value wide) -> Value {
      Value word = arith::TruncIOp::create(b, loc, b.getI32Type(), wide);
      return arith::ExtUIOp::create(b, loc, b.getI64Type(), uniform(word));
    };
    Value high = half(arith::ShRUIOp::create(b, loc, seed, i64(32)));
    known = arith::OrIOp::create(b, loc, half(seed),
                                 arith::ShLIOp::create(b, loc, high, i64(32)));
  }
  return known;
}

namespace {
/// Random bits of a tile's elements, and what they must reach.
struct RandomMask {
  fa::RandomBitsOp random;
  uint8_t limit;
};
} // namespace

/// Whether an op without inputs gives random bits >= c.
static std::optional<RandomMask> matchRandomMask(linalg::LinalgOp op,
                                                 const FragmentLayout &layout) {
  Value result = op.getBlock()->getTerminator()->getOperand(0);
  auto compare = result.getDefiningOp<arith::CmpIOp>();
  auto random =
      compare ? compare.getLhs().getDefiningOp<fa::RandomBitsOp>() : nullptr;
  APInt limit;
  if (!random || op.getNumDpsInputs() || op->getNumResults() != 1 ||
      compare.getPredicate() != arith::CmpIPredicate::uge ||
      layout.kind() != FragmentLayout::Kind::Accumulator || layout.cols() % 8 ||
      !random.isInGroups() ||
      !matchPattern(compare.getRhs(), m_ConstantInt(&limit)))
    return std::nullopt;
  return RandomMask{random, static_cast<uint8_t>(limit.getZExtValue())};
}

/// All numbers of a word are compared bit by bit, from the limit's lowest 1 on:
/// x >= c of the bits so far, and whether that is so with one more.
FailureOr<Value> KernelEmitter::emitMaskWord(linalg::LinalgOp op,
                                             const FragmentLayout &layout,
                                             RandomBitsOp random, uint8_t limit,
                                             Value row, Value col) {
  IRMapping map;
  for (auto coordinate : op.getBlock()->getOps<linalg::IndexOp>())
    map.map(coordinate.getResult(), coordinate.getDim() == 0 ? row : col);
  SmallVector<Value> operands(random->getOperands());
  Operation *result =
      op.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
  auto values = cloneBlock(*op.getBlock(), {Value()}, operands, map,
                           {random.getOperation(), result});
  if (failed(values))
    return failure();
  for (auto [operand, value] : llvm::zip(operands, *values))
    map.map(operand, value);
  map.map(random.getSeed(), uniformSeed(map.lookup(random.getSeed())));
  auto copy = cast<RandomBitsOp>(b.clone(*random, map));
  unsigned first = limit ? llvm::countr_zero(limit) : 8;
  Value kept = i32(-1);
  for (auto [n, word] : llvm::enumerate(copy.buildWords(b, first)))
    if (limit >> (first + n) & 1)
      kept = arith::AndIOp::create(b, loc, word, kept);
    else
      kept = arith::OrIOp::create(b, loc, word, kept);
  // A part of a group: its first bits go where the group's are.
  if ((*random.getTile())[1] % RandomBitsOp::kGroupColumns ||
      (layout.colWarps() > 1 &&
       8 * layout.colTiles() % RandomBitsOp::kGroupColumns)) {
    Value part = remC(divC(toI32(copy.getColumn()), 8), 8);
    kept = arith::ShLIOp::create(b, loc, kept, part);
  }
  copy.erase();
  return kept;
}

LogicalResult KernelEmitter::emitRandomMask(linalg::LinalgOp op,
                                            const FragmentLayout &layout,
                                            RandomBitsOp random,
                                            uint8_t limit) {
  SmallVector<Value> masks;
  for (unsigned rowTile = 0; rowTile < layout.rowTiles(); ++rowTile)
    for (unsigned n = 0; n < layout.colTiles(); n += 8) {
      unsigned reg = layout.reg(rowTile, n, 0);
      FailureOr<Value> word = emitMaskWord(
          op, layout, random, limit, rowOf(layout, reg), colOf(layout, reg));
      if (failed(word))
        return failure();
      // Words of 8 tiles, in which several rows of fewer tiles lie.
      unsigned tile = reg / 4, count = std::min(8u, layout.colTiles());
      int64_t valid = (0xFF << (8 - count) & 0xFF) * 0x01010101ll;
      Value part =
          count == 8
              ? *word
              : arith::AndIOp::create(b, loc, *word, i32(valid)).getResult();
      if (tile % 8 == 0)
        masks.push_back(part);
      else
        masks.back() = arith::OrIOp::create(
            b, loc, masks.back(),
            arith::ShRUIOp::create(b, loc, part, i32(tile % 8)));
    }
  bindRegisters(op->getResult(0), masks);
  return success();
}

/// Whether an op is select(bit, x, 0) of a tile of 16-bit floats and one of i1.
static bool isKeep(linalg::LinalgOp op, const FragmentLayout &layout) {
  auto words = [&](unsigned i) {
    return perWord(getElementTypeOrSelf(op.getDpsInputs()[i]), layout);
  };
  if (op.getNumDpsInputs() != 2 || op->getNumResults() != 1 || words(0) != 2 ||
      words(1) != 32 ||
      !llvm::all_of(op.getIndexingMapsArray(),
                    [](AffineMap map) { return map.isIdentity(); }))
    return false;
  Block &body = *op.getBlock();
  auto select =
      body.getTerminator()->getOperand(0).getDefiningOp<arith::SelectOp>();
  return select && select.getCondition() == body.getArgument(1) &&
         select.getTrueValue() == body.getArgument(0) &&
         matchPattern(select.getFalseValue(), m_AnyZeroFloat());
}

/// Spreads each bit over its half of a word.
LogicalResult KernelEmitter::emitKeep(linalg::LinalgOp op,
                                      const FragmentLayout &layout) {
  auto words = registers(op.getDpsInputs()[0], layout),
       masks = registers(op.getDpsInputs()[1], layout);
  if (failed(words) || failed(masks))
    return failure();
  SmallVector<Value> kept;
  for (unsigned tile = 0, e = layout.numRegs() / 4; tile < e; ++tile) {
    Value bits =
        arith::ShLIOp::create(b, loc, (*masks)[tile / 8], i32(tile % 8));
    for (unsigned half = 0; half < 2; ++half) {
      // Selectors of prmt with 8 in them repeat a byte's highest bit.
      Value mask = ptx("prmt.b32 $0, $1, 0, $2;", "=r,r,n",
                       {bits, i32(half ? 0xBBAA : 0x9988)}, b.getI32Type(),
                       /*sideEffects=*/false)
                       .front();
      kept.push_back(
          arith::AndIOp::create(b, loc, (*words)[2 * tile + half], mask));
    }
  }
  bindRegisters(op->getResult(0), kept);
  return success();
}

std::optional<LogicalResult>
KernelEmitter::emitMask(linalg::LinalgOp op, const FragmentLayout &layout) {
  if (std::optional<RandomMask> mask = matchRandomMask(op, layout))
    return emitRandomMask(op, layout, mask->random, mask->limit);
  if (isKeep(op, layout))
    return emitKeep(op, layout);
  return std::nullopt;
}
