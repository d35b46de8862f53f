// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random bits from a counter: Philox4x32 (Salmon, Moraes, Dror and Shaw 2011,
// "Parallel random numbers: as easy as 1, 2, 3", section 3.3) with 7 rounds,
// the fewest that pass BigCrush there, and with 9: two rounds more mix every
// word with every other.

#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace fa;

static constexpr unsigned kRounds = 7, kMoreRounds = 2;
/// The multipliers, and what is added to the key after each round.
static constexpr uint32_t kMultipliers[] = {0xD2511F53, 0xCD9E8D57},
                          kWeyl[] = {0x9E3779B9, 0xBB67AE85};

LogicalResult RandomBitsOp::verify() {
  if (std::optional<ArrayRef<int64_t>> tile = getTile();
      tile && (tile->size() != 2 ||
               llvm::any_of(*tile, [](int64_t size) { return size < 1; })))
    return emitOpError() << "expected a tile of two sizes of at least 1, got ["
                         << *tile << "] (fa_random_bits_c1)";
  return success();
}

bool RandomBitsOp::isInGroups() {
  std::optional<ArrayRef<int64_t>> tile = getTile();
  if (!tile || (*tile)[0] % kGroupRows)
    return false;
  int64_t columns = (*tile)[1];
  return columns % kGroupColumns == 0 ||
         (columns % 8 == 0 && kGroupColumns % columns == 0);
}

namespace {
/// Arithmetic of 32 bits.
class Bits {
public:
  Bits(OpBuilder &b, Location loc) : b(b), loc(loc) {}
  Value constant(uint32_t c) {
    return arith::ConstantOp::create(
        b, loc, b.getI32IntegerAttr(static_cast<int32_t>(c)));
  }
  Value ofIndex(Value v) {
    return b.createOrFold<arith::IndexCastOp>(loc, b.getI32Type(), v);
  }
  Value add(Value x, Value y) {
    return b.createOrFold<arith::AddIOp>(loc, x, y);
  }
  Value bitXor(Value x, Value y) {
    return b.createOrFold<arith::XOrIOp>(loc, x, y);
  }
  Value bitOr(Value x, Value y) {
    return b.createOrFold<arith::OrIOp>(loc, x, y);
  }
  Value mask(Value x, uint32_t bits) {
    return b.createOrFold<arith::AndIOp>(loc, x, constant(bits));
  }
  Value left(Value x, unsigned n) {
    return b.createOrFold<arith::ShLIOp>(loc, x, constant(n));
  }
  Value right(Value x, unsigned n) {
    return b.createOrFold<arith::ShRUIOp>(loc, x, constant(n));
  }

  OpBuilder &b;
  Location loc;
};
} // namespace

/// Rounds of Philox4x32 on a counter of four words and a key of two.
static void mix(Bits &bits, SmallVector<Value> &counter,
                SmallVector<Value> &key, unsigned rounds) {
  for (unsigned round = 0; round < rounds; ++round) {
    Value low[2], high[2];
    for (unsigned i = 0; i < 2; ++i) {
      auto product = arith::MulUIExtendedOp::create(
          bits.b, bits.loc, counter[2 * i], bits.constant(kMultipliers[i]));
      low[i] = product.getLow();
      high[i] = product.getHigh();
    }
    counter = {bits.bitXor(bits.bitXor(high[1], counter[1]), key[0]), low[1],
               bits.bitXor(bits.bitXor(high[0], counter[3]), key[1]), low[0]};
    for (unsigned i = 0; i < 2; ++i)
      key[i] = bits.add(key[i], bits.constant(kWeyl[i]));
  }
}

SmallVector<Value> RandomBitsOp::buildWords(OpBuilder &builder,
                                            unsigned first) {
  Bits bits(builder, getLoc());
  Value i = bits.ofIndex(getRow()), j = bits.ofIndex(getColumn());
  Value rows = bits.bitOr(bits.left(bits.right(i, 4), 3), bits.mask(i, 7));
  Value columns = bits.bitOr(bits.left(bits.right(j, 6), 3), bits.mask(j, 6));
  Type i32 = builder.getI32Type();
  Value shift = arith::ConstantOp::create(builder, getLoc(),
                                          builder.getI64IntegerAttr(32));
  Value high = arith::ShRUIOp::create(builder, getLoc(), getSeed(), shift);
  SmallVector<Value> key;
  for (Value half : {Value(getSeed()), high})
    key.push_back(arith::TruncIOp::create(builder, getLoc(), i32, half));
  SmallVector<Value> counter{rows, columns, bits.ofIndex(getHead()),
                             bits.ofIndex(getBatch())};
  mix(bits, counter, key, kRounds);
  SmallVector<Value> words = counter;
  if (first < 4) {
    mix(bits, counter, key, kMoreRounds);
    words.insert(words.begin(), counter.begin(), counter.end());
  }
  words.erase(words.begin(), words.end() - (8 - first));
  return words;
}

Value RandomBitsOp::expand(OpBuilder &builder) {
  Bits bits(builder, getLoc());
  Value i = bits.ofIndex(getRow()), j = bits.ofIndex(getColumn());
  // 16 * (i / 8 % 2) + 8 * (j % 2) + 7 - j / 8 % 8
  Value byte =
      bits.bitOr(bits.mask(bits.left(i, 1), 16), bits.mask(bits.left(j, 3), 8));
  Value place = bits.bitOr(
      byte, bits.bitXor(bits.mask(bits.right(j, 3), 7), bits.constant(7)));
  Value result;
  for (auto [n, word] : llvm::enumerate(buildWords(builder, 0))) {
    Value shifted = arith::ShRUIOp::create(builder, getLoc(), word, place);
    Value bit = bits.left(bits.mask(shifted, 1), n);
    result = result ? bits.bitOr(result, bit) : bit;
  }
  return arith::TruncIOp::create(builder, getLoc(), builder.getI8Type(),
                                 result);
}
