// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A contraction over the inner dimension of both operands, for few rows: dot
// products of rows. Packing the right operand would take longer than the
// products, so it is read as it lies, and what is shuffled is the sums.

#include "Schedule.h"

using namespace mlir;
using namespace fa;

namespace {
class DotScheduler {
public:
  DotScheduler(RewriterBase &rewriter, Location loc, Value a, Value b, Value c,
               const VectorUnit &unit)
      : b(rewriter), loc(loc), lhs(a), rhs(b), out(c),
        real(getElementTypeOrSelf(c)), lanes(unit.lanesOf(real)),
        hasManyRegisters(unit.bits == 512),
        sumType(VectorType::get({lanes}, real)) {}
  void emit();

private:
  Value index(int64_t x) { return arith::ConstantIndexOp::create(b, loc, x); }
  Value add(Value x, int64_t y) {
    return y ? Value(arith::AddIOp::create(b, loc, x, index(y))) : x;
  }
  Value load(Value buffer, Value row, Value column, Value mask);
  SmallVector<Value> accumulate(ArrayRef<Value> is, ArrayRef<Value> js);
  Value reduceTogether(SmallVector<Value> sums);
  void emitBlock(Value i, int64_t rows, Value j, int64_t columns);

  RewriterBase &b;
  Location loc;
  /// out[i,j] += sum_k lhs[i,k] rhs[j,k]
  Value lhs, rhs, out;
  Type real;
  int64_t lanes;
  bool hasManyRegisters;
  VectorType sumType;
};
} // namespace

Value DotScheduler::load(Value buffer, Value row, Value column, Value mask) {
  Type element = cast<MemRefType>(buffer.getType()).getElementType();
  auto type = VectorType::get({lanes}, element);
  Value at[] = {row, column}, x;
  if (mask) {
    Value nothing = arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
    x = vector::MaskedLoadOp::create(b, loc, type, buffer, at, mask, nothing);
  } else {
    x = vector::LoadOp::create(b, loc, type, buffer, at);
  }
  return element == real ? x : arith::ExtFOp::create(b, loc, sumType, x);
}

/// A vector of partial sums for each pair of rows.
SmallVector<Value> DotScheduler::accumulate(ArrayRef<Value> is,
                                            ArrayRef<Value> js) {
  Value k = dimOf(b, loc, lhs, 1), whole = roundDown(b, loc, k, lanes);
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(sumType));
  SmallVector<Value> sums(is.size() * js.size(), zero);
  auto step = [&](Value kk, Value mask, ValueRange carried) {
    SmallVector<Value> rows, next;
    for (Value i : is)
      rows.push_back(load(lhs, i, kk, mask));
    for (Value j : js) {
      Value column = load(rhs, j, kk, mask);
      for (Value row : rows)
        next.push_back(
            vector::FMAOp::create(b, loc, row, column, carried[next.size()]));
    }
    return next;
  };
  auto loop = scf::ForOp::create(
      b, loc, index(0), whole, index(lanes), sums,
      [&](OpBuilder &, Location, Value kk, ValueRange carried) {
        scf::YieldOp::create(b, loc, step(kk, Value(), carried));
      });
  sums.assign(loop.getResults().begin(), loop.getResults().end());
  if (std::optional<int64_t> size = constantOf(k); size && *size % lanes == 0)
    return sums;
  Value rest = arith::SubIOp::create(b, loc, k, whole);
  Value mask = vector::CreateMaskOp::create(
      b, loc, VectorType::get({lanes}, b.getI1Type()), rest);
  return step(whole, mask, sums);
}

/// The totals of as many vectors, in one: each round adds the halves of every
/// segment, of two vectors where there are still two.
Value DotScheduler::reduceTogether(SmallVector<Value> sums) {
  for (int64_t segment = lanes; segment > 1; segment /= 2) {
    bool isPaired = sums.size() > 1;
    int64_t width = cast<VectorType>(sums[0].getType()).getDimSize(0);
    SmallVector<int64_t> low, high;
    for (int64_t start = 0; start < (isPaired ? 2 * width : width);
         start += segment)
      for (int64_t lane = 0; lane < segment / 2; ++lane) {
        low.push_back(start + lane);
        high.push_back(start + segment / 2 + lane);
      }
    SmallVector<Value> next;
    for (size_t x = 0; x < sums.size(); x += 2) {
      Value first = sums[x], second = isPaired ? sums[x + 1] : first;
      next.push_back(arith::AddFOp::create(
          b, loc, vector::ShuffleOp::create(b, loc, first, second, low),
          vector::ShuffleOp::create(b, loc, first, second, high)));
    }
    sums = next;
  }
  return sums.front();
}

void DotScheduler::emitBlock(Value i, int64_t rows, Value j, int64_t columns) {
  SmallVector<Value> is, js;
  for (int64_t r = 0; r < rows; ++r)
    is.push_back(add(i, r));
  for (int64_t c = 0; c < columns; ++c)
    js.push_back(add(j, c));
  SmallVector<Value> sums = accumulate(is, js);
  auto type = VectorType::get({columns}, real);
  for (int64_t r = 0; r < rows; ++r) {
    SmallVector<Value> ofRow;
    for (int64_t c = 0; c < columns; ++c)
      ofRow.push_back(sums[c * rows + r]);
    Value total = reduceTogether(ofRow);
    Value before =
        vector::LoadOp::create(b, loc, type, out, ValueRange{is[r], j});
    Value after = arith::AddFOp::create(b, loc, before, total);
    vector::StoreOp::create(b, loc, after, out, ValueRange{is[r], j});
  }
}

void DotScheduler::emit() {
  // Half of the registers are sums.
  int64_t sums = hasManyRegisters ? 16 : 8;
  Value m = dimOf(b, loc, out, 0), n = dimOf(b, loc, out, 1), done = index(0);
  for (int64_t rows : {4, 1}) {
    Value until = roundDown(b, loc, m, rows);
    std::optional<int64_t> x = constantOf(done), y = constantOf(until);
    if (x && y && *x >= *y)
      continue;
    OpBuilder::InsertionGuard guard(b);
    auto blocks = scf::ForOp::create(b, loc, done, until, index(rows));
    done = until;
    b.setInsertionPointToStart(blocks.getBody());
    Value i = blocks.getInductionVar();
    int64_t columns = std::min(sums / rows, lanes);
    Value from = index(0), whole = roundDown(b, loc, n, columns);
    for (auto [to, step] :
         {std::pair(whole, columns), std::pair(n, int64_t(1))}) {
      std::optional<int64_t> first = constantOf(from), end = constantOf(to);
      if (first && end && *first >= *end)
        continue;
      OpBuilder::InsertionGuard inner(b);
      auto loop = scf::ForOp::create(b, loc, from, to, index(step));
      b.setInsertionPointToStart(loop.getBody());
      emitBlock(i, rows, loop.getInductionVar(), step);
      from = to;
    }
  }
}

void fa::emitDots(RewriterBase &rewriter, Location loc, Value a, Value b,
                  Value c, const VectorUnit &unit) {
  DotScheduler(rewriter, loc, a, b, c, unit).emit();
}
