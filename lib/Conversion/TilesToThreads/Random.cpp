// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles of i1 that random bits decide: 32 elements in a word.

#include "KernelEmitter.h"

#include "fa/Dialect/FA/IR/Matchers.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fa::nvidia;
using fa::RandomBitsOp;
using fa::RandomMask;
using fa::hopper::ConsumersOp;

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

/// Whether a thread's elements are those that words serve, eight tiles each.
static bool hasWords(const FragmentLayout &layout) {
  return layout.kind() == FragmentLayout::Kind::Accumulator &&
         layout.cols() % 8 == 0;
}

/// All numbers of a word are compared bit by bit, from the limit's lowest 1 on:
/// x >= c of the bits so far, and whether that is so with one more.
FailureOr<Value> KernelEmitter::emitMaskWord(linalg::LinalgOp op,
                                             const RandomMask &mask, Value row,
                                             Value col, bool isPart) {
  auto [random, limit, isTurned] = mask;
  IRMapping map;
  for (auto coordinate : op.getBlock()->getOps<linalg::IndexOp>())
    map.map(coordinate.getResult(),
            (coordinate.getDim() == 0) != isTurned ? row : col);
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
  if (isPart) {
    Value part = remC(divC(toI32(copy.getColumn()), 8), 8);
    kept = arith::ShLIOp::create(b, loc, kept, part);
  }
  copy.erase();
  return kept;
}

LogicalResult KernelEmitter::emitRandomMask(linalg::LinalgOp op,
                                            const FragmentLayout &layout,
                                            const RandomMask &mask) {
  RandomBitsOp random = mask.random;
  bool isPart = (*random.getTile())[1] % RandomBitsOp::kGroupColumns ||
                (layout.colWarps() > 1 &&
                 8 * layout.colTiles() % RandomBitsOp::kGroupColumns);
  SmallVector<Value> masks;
  for (unsigned rowTile = 0; rowTile < layout.rowTiles(); ++rowTile)
    for (unsigned n = 0; n < layout.colTiles(); n += 8) {
      unsigned reg = layout.reg(rowTile, n, 0);
      FailureOr<Value> word = emitMaskWord(op, mask, rowOf(layout, reg),
                                           colOf(layout, reg), isPart);
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

/// Whether only some of a warpgroup's warps may come by an operation: in a
/// branch, where warps decide for themselves.
static bool mayDiverge(Operation *op, ConsumersOp role) {
  auto isOfWarp = [](fa::hopper::ExceedsOp) { return WalkResult::interrupt(); };
  return op->getParentOfType<scf::IfOp>() &&
         role.walk(isOfWarp).wasInterrupted();
}

/// Where threads of a warpgroup exchange words of a tile whose rows are keys;
/// none where they cannot.
static std::optional<int64_t> findExchange(linalg::LinalgOp op,
                                           const FragmentLayout &layout,
                                           const RandomMask &mask) {
  auto role = op->getParentOfType<ConsumersOp>();
  RandomBitsOp random = mask.random;
  if (!role || mayDiverge(op, role) || layout.rowTiles() != 1 ||
      layout.rowWarps() != 4 * role.getWarpgroups() ||
      layout.cols() % RandomBitsOp::kGroupColumns ||
      layout.cols() > ConsumersOp::mostExchanged ||
      (*random.getTile())[1] % RandomBitsOp::kGroupColumns)
    return std::nullopt;
  return role.getExchange();
}

/// A thread makes words of 16 queries and the warpgroup's 64 keys, as it would
/// for a tile of rows of queries, and takes from 16 words of other threads the
/// 4 bits of its own elements: of its two keys, and of two queries that are 8
/// apart. In shared memory the words of a lane are beside each other, 16 bytes
/// for 64 queries, permuted so that lanes read different banks.
LogicalResult KernelEmitter::emitExchangedMask(linalg::LinalgOp op,
                                               const FragmentLayout &layout,
                                               const RandomMask &mask,
                                               int64_t offset) {
  unsigned words = layout.cols() / RandomBitsOp::kGroupColumns;
  Value ownWarp = remC(warp(), 4), quad = divC(lane(), 4),
        inQuad = remC(lane(), 4);
  Value base = add(smemAddress, mulC(warpgroup(), ConsumersOp::exchangeBytes));
  auto chunk = [&](Value number, Value swizzle) {
    return addC(add(base, mulC(xorI(number, swizzle), 16)), offset);
  };
  auto shifted = [&](Value x, int64_t n) -> Value {
    return n < 0 ? arith::ShRUIOp::create(b, loc, x, i32(-n)).getResult()
                 : arith::ShLIOp::create(b, loc, x, i32(n)).getResult();
  };

  SmallVector<Value> own;
  Value firstGroup = mulC(ownWarp, words);
  for (unsigned n = 0; n < words; ++n) {
    Value query =
              add(mulC(addC(firstGroup, n), RandomBitsOp::kGroupRows), quad),
          key = add(mulC(warpgroup(), RandomBitsOp::kGroupColumns),
                    mulC(inQuad, 2));
    FailureOr<Value> word = emitMaskWord(op, mask, toIndex(query), toIndex(key),
                                         /*isPart=*/false);
    if (failed(word))
      return failure();
    // What was of the first of two queries and the second of two keys trades
    // places with what was of the second and the first.
    constexpr int64_t apart = 17, firsts = 0x5555;
    Value differ = arith::AndIOp::create(
        b, loc, xorI(*word, shifted(*word, -apart)), i32(firsts));
    own.push_back(xorI(xorI(*word, differ), shifted(differ, apart)));
  }
  // Nobody reads the words of the iteration before any more.
  syncWarpgroup();
  SmallVector<Value> stored{
      add(chunk(add(mulC(lane(), words), divC(firstGroup, 4)), divC(lane(), 8)),
          mulC(remC(firstGroup, 4), 4))};
  llvm::append_range(stored, own);
  ptx(words == 1 ? "st.shared.u32 [$0], $1;"
                 : "st.shared.v2.u32 [$0], {$1, $2};",
      words == 1 ? "r,r,~{memory}" : "r,r,r,~{memory}", stored, {});
  syncWarpgroup();

  // Two rows of 8 of a word's queries have 16 bits each; the thread's are two
  // beside each other in one of two bytes.
  Value place = add(mulC(remC(quad, 2), 8), mulC(xorI(ownWarp, i32(3)), 2));
  Value wanted = arith::ShLIOp::create(b, loc, i32(0x00030003), place);
  Value number = mulC(add(mulC(inQuad, 8), divC(quad, 2)), words);
  SmallVector<Type> four(4, b.getI32Type());
  SmallVector<Value> masks;
  for (unsigned n = 0; n < words; ++n) {
    Value address = chunk(xorI(number, i32(n)), inQuad), found;
    // The second of two neighbouring queries is four lanes further.
    for (unsigned e : {1, 0})
      for (Value word : ptx(("ld.shared.v4.u32 {$0, $1, $2, $3}, [$4+" +
                             Twine(e * 4 * words * 16) + "];")
                                .str(),
                            "=r,=r,=r,=r,r,~{memory}", address, four)) {
        Value bits = arith::AndIOp::create(b, loc, word, wanted);
        found = found ? arith::OrIOp::create(
                            b, loc,
                            LLVM::FshlOp::create(b, loc, found, found, i32(2)),
                            bits)
                            .getResult()
                      : bits;
      }
    masks.push_back(LLVM::FshrOp::create(b, loc, found, found, place));
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
  if (std::optional<RandomMask> mask = matchRandomMask(op);
      mask && hasWords(layout)) {
    if (!mask->isTurned)
      return emitRandomMask(op, layout, *mask);
    if (std::optional<int64_t> offset = findExchange(op, layout, *mask))
      return emitExchangedMask(op, layout, *mask, *offset);
  }
  if (isKeep(op, layout))
    return emitKeep(op, layout);
  return std::nullopt;
}
