// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fa.attention as loops over one row at a time: the definition, in float64 or
// in the inputs' own precision. Shares nothing with the other passes.

#include "ReferenceBuilder.h"

#include "fa/Target/CPU/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

#include <limits>

namespace fa {
#define GEN_PASS_DEF_REFERENCEPASS
#include "fa/Target/CPU/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-reference"

namespace {
/// The loops of one fa.attention.
class ForwardReference : public ReferenceBuilder {
public:
  ForwardReference(RewriterBase &rewriter, AttentionOp op, bool wide)
      : ReferenceBuilder(rewriter, op, wide), op(op) {}
  SmallVector<Value> build();

private:
  Value weightedSum(Value row, Value sum, Value at[3], Value keyHead);
  AttentionOp op;
};
} // namespace

Value ReferenceBuilder::add(Value x, Value y) {
  // Sums of a reference may be reordered: only so are they fast.
  auto flags = arith::FastMathFlagsAttr::get(
      b.getContext(),
      arith::FastMathFlags::reassoc | arith::FastMathFlags::contract);
  return arith::AddFOp::create(b, loc, x, y, flags);
}

Value ReferenceBuilder::emptyRow(Value size) {
  return tensor::EmptyOp::create(
      b, loc, ArrayRef<OpFoldResult>{getAsOpFoldResult(size)}, real);
}

Value ReferenceBuilder::loop(Value count, ValueRange init,
                             llvm::function_ref<Value(Value, Value)> f) {
  return scf::ForOp::create(
             b, loc, index(0), count, index(1), init,
             [&](OpBuilder &, Location, Value i, ValueRange carried) {
               OpBuilder::InsertionGuard guard(b);
               scf::YieldOp::create(b, loc, f(i, carried[0]));
             })
      .getResult(0);
}

/// A read of a captured tensor, its indices clamped as the op defines.
Value ReferenceBuilder::clampedRead(tensor::ExtractOp extract, IRMapping &map) {
  Value tensor = map.lookupOrDefault(extract.getTensor());
  SmallVector<Value> indices;
  for (auto [dim, operand] : llvm::enumerate(extract.getIndices())) {
    Value size = b.createOrFold<tensor::DimOp>(loc, tensor, dim);
    Value end = arith::SubIOp::create(b, loc, size, index(1));
    Value i = arith::MinSIOp::create(b, loc, map.lookupOrDefault(operand), end);
    indices.push_back(arith::MaxSIOp::create(b, loc, i, index(0)));
  }
  return read(tensor, indices);
}

/// One op of a score or mask function with what attention computes in widened
/// to `real`.
void ReferenceBuilder::cloneOp(Operation &inner, IRMapping &map) {
  auto isComputed = [&](Type t) {
    return smooth ? isa<FloatType>(t) : t == computed;
  };
  if (auto constant = dyn_cast<arith::ConstantOp>(inner);
      constant && isComputed(constant.getType())) {
    map.map(inner.getResult(0),
            number(cast<FloatAttr>(constant.getValue()).getValueAsDouble()));
    return;
  }
  if (auto custom = dyn_cast<CustomGradientOp>(inner))
    return cloneCustom(custom, map);
  bool isScalarMath =
      isa<arith::ArithDialect, math::MathDialect>(inner.getDialect()) &&
      !isa<arith::BitcastOp>(inner);
  bool widens = isScalarMath || inner.getNumRegions();
  IRMapping local(map);
  for (Value operand : inner.getOperands()) {
    Value v = map.lookupOrDefault(operand);
    if (isComputed(operand.getType()))
      local.map(operand, convertFloat(v, widens ? real : computed));
  }
  // extf to it from its narrower neighbours becomes extf to real; truncf from
  // real. Where both sides are the same nothing is left to do.
  if (isa<arith::ExtFOp, arith::TruncFOp>(inner)) {
    Type to = inner.getResult(0).getType();
    map.map(inner.getResult(0),
            convertFloat(local.lookupOrDefault(inner.getOperand(0)),
                         isComputed(to) ? real : to));
    return;
  }
  if (auto extract = dyn_cast<tensor::ExtractOp>(inner)) {
    Value value = clampedRead(extract, local);
    if (&inner == moved)
      value = arith::AddFOp::create(b, loc, toReal(value), shift);
    map.map(inner.getResult(0), value);
    return;
  }
  OperationState state(inner.getLoc(), inner.getName());
  for (Value operand : inner.getOperands())
    state.operands.push_back(local.lookupOrDefault(operand));
  for (Type t : inner.getResultTypes())
    state.types.push_back(widens && isComputed(t) ? real : t);
  state.addAttributes(inner.getAttrs());
  for (unsigned i = 0; i < inner.getNumRegions(); ++i)
    state.addRegion();
  Operation *copy = b.create(state);
  map.map(inner.getResults(), copy->getResults());
  for (auto [from, to] : llvm::zip(inner.getRegions(), copy->getRegions())) {
    if (from.empty())
      continue;
    OpBuilder::InsertionGuard guard(b);
    SmallVector<Type> types;
    for (Type t : from.getArgumentTypes())
      types.push_back(isComputed(t) ? real : t);
    Block *block =
        b.createBlock(&to, {}, types, SmallVector<Location>(types.size(), loc));
    map.map(from.getArguments(), block->getArguments());
    b.setInsertionPointToStart(block);
    cloneBlock(from.front(), map);
    Operation *end = from.front().getTerminator();
    SmallVector<Value> yields;
    for (Value v : end->getOperands()) {
      Value y = map.lookupOrDefault(v);
      yields.push_back(isComputed(v.getType()) ? toReal(y) : y);
    }
    scf::YieldOp::create(b, loc, yields);
  }
}

/// Its values.
void ReferenceBuilder::cloneCustom(CustomGradientOp inner, IRMapping &map) {
  for (auto [result, v] : llvm::zip(inner.getResults(), inner.getValues()))
    map.map(result, map.lookupOrDefault(v));
}

void ReferenceBuilder::cloneBlock(Block &block, IRMapping &map) {
  for (Operation &inner : block.without_terminator())
    cloneOp(inner, map);
}

Value ReferenceBuilder::cloneFunction(Region &region, ValueRange arguments) {
  IRMapping map;
  map.map(region.front().getArguments(), arguments);
  cloneBlock(region.front(), map);
  Value result =
      map.lookupOrDefault(region.front().getTerminator()->getOperand(0));
  return isa<FloatType>(result.getType()) ? toReal(result) : result;
}

Value ReferenceBuilder::keyHeadOf(Value head) {
  return arith::DivUIOp::create(b, loc, head, index(group));
}

Value ReferenceBuilder::product(Value x, ValueRange at, Value y,
                                ValueRange with, int64_t dims) {
  return loop(index(dims), number(0.0), [&](Value d, Value sum) -> Value {
    SmallVector<Value> xs(at), ys(with);
    xs.push_back(d);
    ys.push_back(d);
    return add(sum, multiply(toReal(read(x, xs)), toReal(read(y, ys))));
  });
}

Value ReferenceBuilder::scaledProduct(const Value at[3], Value j) {
  Value dot = rounded(product(query, {at[0], at[1], at[2]}, key,
                              {at[0], keyHeadOf(at[1]), j}, headDim));
  return rounded(multiply(dot, number(factor)));
}

Value ReferenceBuilder::scores(const Value at[3]) {
  Value batch = at[0], head = at[1], i = at[2];
  Value none = number(-std::numeric_limits<double>::infinity());
  auto score = [&](Value j) -> Value {
    Value s = scaledProduct(at, j);
    if (scoreRegion.empty())
      return s;
    return rounded(cloneFunction(scoreRegion, {s, batch, head, i, j}));
  };
  return loop(keys, emptyRow(keys), [&](Value j, Value row) -> Value {
    Value s;
    if (maskRegion.empty()) {
      s = score(j);
    } else {
      Value seen = cloneFunction(maskRegion, {batch, head, i, j});
      auto yield = [&](Value v) { scf::YieldOp::create(b, loc, v); };
      s = scf::IfOp::create(
              b, loc, seen,
              [&](OpBuilder &, Location) {
                OpBuilder::InsertionGuard guard(b);
                yield(score(j));
              },
              [&](OpBuilder &, Location) {
                OpBuilder::InsertionGuard guard(b);
                yield(none);
              })
              .getResult(0);
    }
    return tensor::InsertOp::create(b, loc, s, row, ValueRange{j});
  });
}

Value ReferenceBuilder::weigh(Value row, Value &max, Value &sum) {
  Value none = number(-std::numeric_limits<double>::infinity());
  max = loop(keys, none, [&](Value j, Value m) -> Value {
    // A NaN score makes the row NaN.
    return arith::MaximumFOp::create(b, loc, read(row, j), m);
  });
  Value empty =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, max, none);
  Value shift = arith::SelectOp::create(b, loc, empty, number(0.0), max);
  Value weights = loop(keys, row, [&](Value j, Value r) -> Value {
    Value x = arith::SubFOp::create(b, loc, read(r, j), shift);
    return tensor::InsertOp::create(b, loc, math::ExpOp::create(b, loc, x), r,
                                    ValueRange{j});
  });
  sum = loop(keys, number(0.0), [&](Value j, Value l) -> Value {
    return add(l, read(weights, j));
  });
  return weights;
}

Value ReferenceBuilder::divisorOf(Value sum) {
  Value empty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, sum,
                                      number(0.0));
  return arith::SelectOp::create(b, loc, empty, number(1.0), sum);
}

/// The output's row.
Value ForwardReference::weightedSum(Value row, Value sum, Value at[3],
                                    Value keyHead) {
  Value dims = index(valueDim);
  Value zero = number(0.0);
  Value divisor = divisorOf(sum);
  Value out = loop(dims, emptyRow(dims), [&](Value d, Value r) -> Value {
    return tensor::InsertOp::create(b, loc, zero, r, ValueRange{d});
  });
  return loop(keys, out, [&](Value j, Value o) -> Value {
    Value p = rounded(arith::DivFOp::create(b, loc, read(row, j), divisor));
    if (!keepRegion.empty()) {
      Value kept = cloneFunction(keepRegion, {at[0], at[1], at[2], j});
      p = arith::SelectOp::create(b, loc, kept, p, zero);
    }
    if (keptFactor)
      p = rounded(multiply(p, number(*keptFactor)));
    // A weight of 0 adds nothing. Masked keys have it, often half of them.
    Value counts =
        arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE, p, zero);
    Value used = arith::SelectOp::create(b, loc, counts, dims, index(0));
    return loop(used, o, [&](Value d, Value r) -> Value {
      Value v = toReal(read(value, {at[0], keyHead, j, d}));
      Value next = add(read(r, d), arith::MulFOp::create(b, loc, p, v));
      return tensor::InsertOp::create(b, loc, next, r, ValueRange{d});
    });
  });
}

SmallVector<Value> ForwardReference::build() {
  b.setInsertionPoint(op);
  keys = b.createOrFold<tensor::DimOp>(loc, op.getKey(), 2);
  SmallVector<OpFoldResult> shape =
      tensor::getMixedSizes(b, loc, op.getQuery());
  SmallVector<OpFoldResult> grid(shape.begin(), shape.begin() + 3);
  shape[3] = b.getIndexAttr(op.getValueDim());
  SmallVector<Value> inits = {
      tensor::EmptyOp::create(b, loc, shape, wide ? real : element)};
  if (op.getLse())
    inits.push_back(tensor::EmptyOp::create(b, loc, grid, real));
  auto forall = scf::ForallOp::create(b, loc, grid, inits, std::nullopt);
  b.setInsertionPoint(forall.getTerminator());
  Value at[3] = {forall.getInductionVar(0), forall.getInductionVar(1),
                 forall.getInductionVar(2)};
  Value keyHead = keyHeadOf(at[1]);
  Value max, sum;
  Value weights = weigh(scores(at), max, sum);
  Value row = weightedSum(weights, sum, at, keyHead);
  Type outElement = wide ? real : element;
  Value dims = index(valueDim);
  Value out = row;
  if (outElement != real) {
    Value empty = tensor::EmptyOp::create(
        b, loc, ArrayRef<OpFoldResult>{getAsOpFoldResult(dims)}, outElement);
    out = loop(dims, empty, [&](Value d, Value r) -> Value {
      return tensor::InsertOp::create(
          b, loc, convertFloat(read(row, d), outElement), r, ValueRange{d});
    });
  }
  SmallVector<Value> parts = {out};
  if (op.getLse()) {
    Value lse =
        arith::AddFOp::create(b, loc, max, math::LogOp::create(b, loc, sum));
    parts.push_back(tensor::FromElementsOp::create(b, loc, lse));
  }
  OpFoldResult one = b.getIndexAttr(1), zero = b.getIndexAttr(0);
  for (auto [part, into] : llvm::zip(parts, forall.getRegionIterArgs())) {
    SmallVector<OpFoldResult> offsets(at, at + 3), sizes(3, one),
        strides(3, one);
    if (part == out) {
      offsets.push_back(zero);
      sizes.push_back(shape[3]);
      strides.push_back(one);
    }
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(forall.getTerminator().getBody());
    tensor::ParallelInsertSliceOp::create(b, loc, part, into, offsets, sizes,
                                          strides);
  }
  return SmallVector<Value>(forall.getResults());
}

namespace {
struct ReferencePass : fa::impl::ReferencePassBase<ReferencePass> {
  using ReferencePassBase::ReferencePassBase;

  LogicalResult replace(RewriterBase &rewriter, Operation *op,
                        ArrayRef<Value> results) {
    for (Operation *user : op->getUsers())
      if (precision == "f64" && !isa<func::ReturnOp>(user))
        return user->emitError(
            "uses attention's result; expected the function to "
            "return it, because in float64 its type is another");
    rewriter.replaceOp(op, results);
    return success();
  }

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (precision != "f64" && precision != "same") {
      func.emitError() << "expected precision to be f64 or same, got "
                       << precision;
      return signalPassFailure();
    }
    IRRewriter rewriter(&getContext());
    SmallVector<AttentionOp> ops;
    func.walk([&](AttentionOp op) { ops.push_back(op); });
    bool wide = precision == "f64";
    for (AttentionOp op : ops) {
      op.clampCapturedIndices(rewriter);
      if (failed(replace(rewriter, op,
                         ForwardReference(rewriter, op, wide).build())))
        return signalPassFailure();
    }
    SmallVector<AttentionBackwardOp> gradients;
    func.walk([&](AttentionBackwardOp op) { gradients.push_back(op); });
    for (AttentionBackwardOp op : gradients) {
      op.clampCapturedIndices(rewriter);
      if (failed(replace(rewriter, op,
                         buildBackwardReference(rewriter, op, wide))))
        return signalPassFailure();
    }
    if (!func.isExternal())
      func.setFunctionType(rewriter.getFunctionType(
          func.getArgumentTypes(),
          func.front().getTerminator()->getOperandTypes()));
  }
};
} // namespace
