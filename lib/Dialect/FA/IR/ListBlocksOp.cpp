// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/TileRanges.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"

#include <limits>

using namespace mlir;
using namespace fa;

LogicalResult ListBlocksOp::verify() {
  auto areSizes = [](ArrayRef<int64_t> sizes) {
    return sizes.size() == 2 && sizes[0] >= 1 && sizes[1] >= 1;
  };
  if (!areSizes(getTile()) || tileKeys() % 2)
    return emitOpError("(fa_list_blocks_c1) expected tile to be two sizes of "
                       "at least 1, that of keys even, got [")
           << getTile() << "]";
  if (!areSizes(getEvery()) || tileRows() % getEvery()[0] ||
      tileKeys() % getEvery()[1])
    return emitOpError("(fa_list_blocks_c2) expected every to be two sizes "
                       "that divide those of tile [")
           << getTile() << "], got [" << getEvery() << "]";
  std::optional<int64_t> from = getConstantIntValue(OpFoldResult(getFrom())),
                         rows = getConstantIntValue(OpFoldResult(getRows()));
  if ((from && (*from < 0 || *from % tileKeys())) || (rows && *rows < 1))
    return emitOpError("(fa_list_blocks_c4) expected keys to begin at a "
                       "multiple of ")
           << tileKeys() << " of at least 0, and at least 1 row; got "
           << from.value_or(0) << " and " << rows.value_or(1);
  int64_t counts = getCount().getType().getDimSize(0);
  if (counts != 1 && !ShapedType::isDynamic(counts))
    return emitOpError("(fa_list_blocks_c3) expected count to have one "
                       "element, got ")
           << counts;
  return success();
}

LogicalResult ListBlocksOp::verifyRegions() {
  Block &block = getMask().front();
  bool matches = block.getNumArguments() == 3 &&
                 llvm::all_of(block.getArgumentTypes(),
                              [](Type type) { return type.isIndex(); });
  if (!matches)
    return emitOpError("expected the mask region to take (row, column, key : "
                       "index)");
  auto yield = dyn_cast<YieldOp>(block.getTerminator());
  if (!yield || !yield.getResult().getType().isInteger(1))
    return emitOpError("expected the mask region to end in fa.yield of an i1");
  for (Operation &op : block.without_terminator())
    if (!isMemoryEffectFree(&op))
      return op.emitError("expected no side effects in a mask region");
  return success();
}

namespace {
/// The op as loops over elements.
class ListBuilder {
public:
  ListBuilder(ListBlocksOp op) : op(op), loc(op.getLoc()) {}
  SmallVector<Value> build(OpBuilder &b);

private:
  Value index(OpBuilder &b, int64_t c) {
    return arith::ConstantIndexOp::create(b, loc, c);
  }
  Value evaluate(OpBuilder &b, Value what, ValueRange at);
  std::optional<TileRange> reduce(OpBuilder &b, Value what,
                                  const TileSamples &samples, Value key);
  SmallVector<Value> lookAtRow(OpBuilder &b, Value row, Value key,
                               ValueRange state);
  SmallVector<Value> lookAtAll(OpBuilder &b, Value key);
  SmallVector<Value> look(OpBuilder &b, Value key);
  ListBlocksOp op;
  Location loc;
};
} // namespace

/// A value of the region at a row, a column and a first key.
Value ListBuilder::evaluate(OpBuilder &b, Value what, ValueRange at) {
  IRMapping map;
  Block &mask = op.getMask().front();
  map.map(mask.getArguments(), at);
  for (Operation *inner : sliceInBlock(what, mask))
    b.clone(*inner, map);
  return map.lookupOrDefault(what);
}

/// The least and the largest of a value's samples.
std::optional<TileRange> ListBuilder::reduce(OpBuilder &b, Value what,
                                             const TileSamples &samples,
                                             Value key) {
  bool isCondition = what.getType().isInteger(1);
  unsigned bits = isCondition ? 1 : 64;
  auto constant = [&](int64_t c) -> Value {
    return arith::ConstantIntOp::create(b, loc, c, bits);
  };
  Value zero = index(b, 0), one = index(b, 1);
  Value last = arith::SubIOp::create(b, loc, op.getRows(), one);
  SmallVector<Value> start = {
      constant(isCondition ? 1 : std::numeric_limits<int64_t>::max()),
      constant(isCondition ? 0 : std::numeric_limits<int64_t>::min())};
  auto loop = scf::ForOp::create(
      b, loc, zero, index(b, samples.count()), one, start,
      [&](OpBuilder &in, Location, Value sample, ValueRange state) {
        Value keys = index(in, samples.keys);
        Value row = arith::DivUIOp::create(in, loc, sample, keys);
        Value column = arith::RemUIOp::create(in, loc, sample, keys);
        row = arith::MulIOp::create(in, loc, row, index(in, samples.everyRow));
        // Rows that do not exist are not looked at.
        row = arith::MinSIOp::create(in, loc, row, last);
        column =
            arith::MulIOp::create(in, loc, column, index(in, samples.everyKey));
        Value x = evaluate(in, what, {row, column, key});
        SmallVector<Value> next;
        if (isCondition) {
          next = {arith::AndIOp::create(in, loc, state[0], x),
                  arith::OrIOp::create(in, loc, state[1], x)};
        } else {
          Type i64 = in.getI64Type();
          if (x.getType().isIndex())
            x = arith::IndexCastOp::create(in, loc, i64, x);
          else if (x.getType() != i64)
            x = arith::ExtSIOp::create(in, loc, i64, x);
          next = {arith::MinSIOp::create(in, loc, state[0], x),
                  arith::MaxSIOp::create(in, loc, state[1], x)};
        }
        scf::YieldOp::create(in, loc, next);
      });
  return TileRange{loop.getResult(0), loop.getResult(1)};
}

/// What is known of a block, with one more row.
SmallVector<Value> ListBuilder::lookAtRow(OpBuilder &b, Value row, Value key,
                                          ValueRange state) {
  auto columns = scf::ForOp::create(
      b, loc, index(b, 0), index(b, op.tileKeys()), index(b, op.getEvery()[1]),
      state, [&](OpBuilder &in, Location, Value column, ValueRange s) {
        Value seen = evaluate(in, op.getSeen(), {row, column, key});
        Value at = arith::AddIOp::create(in, loc, key, column);
        Value exists = arith::CmpIOp::create(in, loc, arith::CmpIPredicate::slt,
                                             at, op.getTo());
        seen = arith::AndIOp::create(in, loc, exists, seen);
        Value any = arith::OrIOp::create(in, loc, s[0], seen);
        Value all = arith::AndIOp::create(in, loc, s[1], seen);
        scf::YieldOp::create(in, loc, ValueRange{any, all});
      });
  return columns.getResults();
}

/// Whether some and whether all elements of a block are seen.
SmallVector<Value> ListBuilder::lookAtAll(OpBuilder &b, Value key) {
  Value zero = index(b, 0);
  Value no = arith::ConstantIntOp::create(b, loc, 0, 1);
  Value yes = arith::ConstantIntOp::create(b, loc, 1, 1);
  auto rows = scf::ForOp::create(
      b, loc, zero, op.getRows(), index(b, op.getEvery()[0]),
      ValueRange{no, yes},
      [&](OpBuilder &inRow, Location, Value row, ValueRange state) {
        // Some and not all: no other row changes that.
        Value isMixed = arith::CmpIOp::create(
            inRow, loc, arith::CmpIPredicate::ugt, state[0], state[1]);
        auto seen = scf::IfOp::create(
            inRow, loc, isMixed,
            [&](OpBuilder &in, Location) {
              scf::YieldOp::create(in, loc, state);
            },
            [&](OpBuilder &in, Location) {
              scf::YieldOp::create(in, loc, lookAtRow(in, row, key, state));
            });
        scf::YieldOp::create(inRow, loc, seen.getResults());
      });
  return rows.getResults();
}

/// The same; elements only where ranges do not tell.
SmallVector<Value> ListBuilder::look(OpBuilder &b, Value key) {
  // Each is a loop, and thousands of loops in a function take compilers
  // minutes. What lies beyond is not known: then elements tell.
  constexpr unsigned kMostLoops = 64;
  unsigned loops = 0;
  auto reduceHere =
      [&](Value what, const TileSamples &samples) -> std::optional<TileRange> {
    if (++loops > kMostLoops)
      return std::nullopt;
    return reduce(b, what, samples, key);
  };
  std::optional<TileRange> range = TileRanges(op, b, reduceHere).ofMask();
  if (!range)
    return lookAtAll(b, key);
  Value isMixed = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                        range->lo, range->hi);
  auto branch = scf::IfOp::create(
      b, loc, isMixed,
      [&](OpBuilder &in, Location) {
        scf::YieldOp::create(in, loc, lookAtAll(in, key));
      },
      [&](OpBuilder &in, Location) {
        scf::YieldOp::create(in, loc, ValueRange{range->hi, range->lo});
      });
  return branch.getResults();
}

SmallVector<Value> ListBuilder::build(OpBuilder &builder) {
  Value zero = index(builder, 0), one = index(builder, 1);
  Value keys = index(builder, op.tileKeys());
  auto list = scf::ForOp::create(
      builder, loc, op.getFrom(), op.getTo(), keys,
      ValueRange{zero, op.getEntries()},
      [&](OpBuilder &b, Location, Value key, ValueRange state) {
        SmallVector<Value> seen = look(b, key);
        Type i32 = b.getI32Type();
        Value entry = arith::IndexCastOp::create(b, loc, i32, key);
        // One element may have stood for several: the last may not exist.
        Value end = arith::AddIOp::create(b, loc, key, keys);
        Value exist = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle,
                                            end, op.getTo());
        Value full = arith::AndIOp::create(b, loc, seen[1], exist);
        full = arith::ExtUIOp::create(b, loc, i32, full);
        entry = arith::AddIOp::create(b, loc, entry, full);
        // Overwritten by the next where the block is not seen.
        Value entries =
            tensor::InsertOp::create(b, loc, entry, state[1], state[0]);
        Value next = arith::AddIOp::create(b, loc, state[0], one);
        next = arith::SelectOp::create(b, loc, seen[0], next, state[0]);
        scf::YieldOp::create(b, loc, ValueRange{next, entries});
      });
  Value count = arith::IndexCastOp::create(builder, loc, builder.getI32Type(),
                                           list.getResult(0));
  Value counts =
      tensor::InsertOp::create(builder, loc, count, op.getCount(), zero);
  return {counts, list.getResult(1)};
}

FailureOr<SmallVector<Value>>
ListBlocksOp::decomposeOperation(OpBuilder &builder) {
  return ListBuilder(*this).build(builder);
}
