// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fa.attention_backward as loops over one row at a time: the definition, in
// float64 or in the inputs' own precision. Shares nothing with the other
// passes, and derivatives of scores are differences: a wrong rule for one
// shows.

#include "ReferenceBuilder.h"

#include "fa/Dialect/FA/IR/Builders.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace fa;

namespace {

/// How far scores and what is read are moved for a difference. In float64 its
/// error is some 1e-10, of what is rounded and of what is curved.
constexpr double kStep = 0x1p-20;

/// The score function in float64, and its slopes.
class Slopes : ReferenceBuilder {
public:
  Slopes(RewriterBase &rewriter, AttentionBackwardOp op)
      : ReferenceBuilder(rewriter, op, /*wide=*/true) {
    smooth = true;
    scoreRegion.walk([&](tensor::ExtractOp extract) {
      if (llvm::is_contained(op.getWrt(), extract.getTensor()) &&
          !extract->getParentOfType<CustomGradientOp>())
        reads.push_back(extract);
    });
  }

  /// df/ds at s, an f64.
  Value byScore(Value s, ValueRange at) {
    setPoint(s, at);
    auto f = [&](double step) {
      return call(add(toReal(s), number(step)), at);
    };
    return difference(f);
  }
  /// df/dx of what the n-th of `reads` reads.
  Value byRead(unsigned n, Value s, ValueRange at) {
    setPoint(s, at);
    auto f = [&](double step) {
      moved = reads[n];
      shift = number(step);
      Value result = call(toReal(s), at);
      moved = nullptr;
      return result;
    };
    return difference(f);
  }
  /// Where it reads.
  SmallVector<Value> placeOf(unsigned n, Value s, ValueRange at) {
    setPoint(s, at);
    llvm::SaveAndRestore<bool> state(isAtPoint, true);
    IRMapping map(point);
    SmallVector<Value> place;
    for (Value i : reads[n].getIndices())
      place.push_back(atPoint(i, map));
    return place;
  }

  SmallVector<tensor::ExtractOp> reads;

private:
  /// Where differences are taken around.
  void setPoint(Value s, ValueRange at) {
    SmallVector<Value> arguments = {toReal(s)};
    llvm::append_range(arguments, at);
    point.clear();
    point.map(scoreRegion.front().getArguments(), arguments);
  }
  /// A value of the region at the point, computed here whatever branch it is
  /// in.
  Value atPoint(Value v, IRMapping &map) {
    Operation *def = v.getDefiningOp();
    if (map.contains(v) || !def ||
        !scoreRegion.isAncestor(def->getParentRegion()))
      return map.lookupOrDefault(v);
    def->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (!def->isAncestor(operand.getParentBlock()->getParentOp()))
          atPoint(operand, map);
    });
    cloneOp(*def, map);
    return map.lookup(v);
  }
  /// A function of its inputs that has its values and the gradient that it
  /// gives, at the point: v + sum dv/dx (x - x at the point).
  void cloneCustom(CustomGradientOp op, IRMapping &map) override;
  Value call(Value s, ValueRange at) {
    SmallVector<Value> arguments = {s};
    llvm::append_range(arguments, at);
    return cloneFunction(scoreRegion, arguments);
  }
  Value difference(llvm::function_ref<Value(double)> f) {
    Value more = f(kStep), less = f(-kStep);
    return multiply(arith::SubFOp::create(b, loc, more, less),
                    number(0.5 / kStep));
  }
  IRMapping point;
  /// Whether values at the point are computed.
  bool isAtPoint = false;
};

class BackwardReference : ReferenceBuilder {
public:
  BackwardReference(RewriterBase &rewriter, AttentionBackwardOp op, bool wide)
      : ReferenceBuilder(rewriter, op, wide), op(op), slopes(rewriter, op) {}
  SmallVector<Value> build();

private:
  SmallVector<Value> row(const Value at[3], ValueRange grads);
  SmallVector<Value> element(const Value at[3], Value j, Value weights,
                             Value divisor, Value weightGrads, Value delta,
                             ValueRange grads);
  Value keptOr0(const Value at[3], Value j, Value x);
  Value addTo(Value tensor, ValueRange at, Value x) {
    return tensor::InsertOp::create(b, loc, add(read(tensor, at), x), tensor,
                                    at);
  }

  AttentionBackwardOp op;
  Slopes slopes;
};

} // namespace

void Slopes::cloneCustom(CustomGradientOp op, IRMapping &map) {
  if (isAtPoint)
    return ReferenceBuilder::cloneCustom(op, map);
  llvm::SaveAndRestore<bool> state(isAtPoint, true);
  llvm::SaveAndRestore<Operation *> still(moved, nullptr);
  IRMapping around(point);
  SmallVector<Value> results, steps;
  for (Value v : op.getValues())
    results.push_back(toReal(atPoint(v, around)));
  for (Value x : op.getInputs())
    steps.push_back(arith::SubFOp::create(
        b, loc, toReal(map.lookupOrDefault(x)), toReal(atPoint(x, around))));
  for (unsigned n = 0; n < results.size() && !steps.empty(); ++n) {
    Block &block = op.getGradient().front();
    IRMapping inner(around);
    for (auto [m, g] : llvm::enumerate(block.getArguments()))
      inner.map(g, number(m == n));
    // What the region uses from above comes first.
    block.walk([&](Operation *used) {
      for (Value v : used->getOperands())
        if (!op->isAncestor(v.getParentBlock()->getParentOp()))
          atPoint(v, inner);
    });
    cloneBlock(block, inner);
    for (auto [x, step] :
         llvm::zip(block.getTerminator()->getOperands(), steps))
      results[n] =
          add(results[n], multiply(toReal(inner.lookupOrDefault(x)), step));
  }
  map.map(op.getResults(), results);
}

/// x times what is kept of the weight; 0 where that is dropped.
Value BackwardReference::keptOr0(const Value at[3], Value j, Value x) {
  if (!keepRegion.empty()) {
    Value kept = cloneFunction(keepRegion, {at[0], at[1], at[2], j});
    x = arith::SelectOp::create(b, loc, kept, x, number(0.0));
  }
  return keptFactor ? multiply(x, number(*keptFactor)) : x;
}

/// What the weight of (i, j) adds.
SmallVector<Value> BackwardReference::element(const Value at[3], Value j,
                                              Value weights, Value divisor,
                                              Value weightGrads, Value delta,
                                              ValueRange grads) {
  Value batch = at[0], head = at[1], i = at[2], keyHead = keyHeadOf(head);
  SmallVector<Value> sums(grads);
  Value p = rounded(arith::DivFOp::create(b, loc, read(weights, j), divisor));
  Value g =
      multiply(p, arith::SubFOp::create(b, loc, read(weightGrads, j), delta));
  Value s = scaledProduct(at, j), ds = g;
  SmallVector<Value> coordinates = {batch, head, i, j};
  if (!scoreRegion.empty()) {
    ds = multiply(g, toReal(slopes.byScore(s, coordinates)));
    for (unsigned n = 0; n < slopes.reads.size(); ++n) {
      auto tensor = llvm::find(op.getWrt(), slopes.reads[n].getTensor());
      Value &sum = sums[3 + (tensor - op.getWrt().begin())];
      Value slope = toReal(slopes.byRead(n, s, coordinates));
      sum = addTo(sum, slopes.placeOf(n, s, coordinates), multiply(g, slope));
    }
  }
  ds = multiply(rounded(ds), number(factor));
  Value kept = rounded(keptOr0(at, j, p));
  auto add = [&](Value sum, ArrayRef<Value> place, Value by, Value from,
                 ArrayRef<Value> where, int64_t dims) {
    return loop(index(dims), sum, [&](Value d, Value carried) -> Value {
      SmallVector<Value> to(place), source(where);
      to.push_back(d);
      source.push_back(d);
      return addTo(carried, to, multiply(by, toReal(read(from, source))));
    });
  };
  Value keyPlace[] = {batch, keyHead, j}, rowPlace[] = {batch, head, i};
  sums[0] = add(sums[0], rowPlace, ds, key, keyPlace, headDim);
  sums[1] = add(sums[1], keyPlace, ds, query, rowPlace, headDim);
  sums[2] = add(sums[2], keyPlace, kept, op.getOutGrad(), rowPlace, valueDim);
  return sums;
}

/// What row i of a head adds.
SmallVector<Value> BackwardReference::row(const Value at[3], ValueRange grads) {
  Value batch = at[0], head = at[1], i = at[2], keyHead = keyHeadOf(head);
  Value max, sum;
  Value weights = weigh(scores(at), max, sum), divisor = divisorOf(sum);
  Value weightGrads =
      loop(keys, emptyRow(keys), [&](Value j, Value carried) -> Value {
        Value dot = rounded(product(op.getOutGrad(), {batch, head, i}, value,
                                    {batch, keyHead, j}, valueDim));
        return tensor::InsertOp::create(b, loc, keptOr0(at, j, dot), carried,
                                        j);
      });
  Value delta = loop(keys, number(0.0), [&](Value j, Value carried) -> Value {
    Value p = rounded(arith::DivFOp::create(b, loc, read(weights, j), divisor));
    return this->add(carried, multiply(p, read(weightGrads, j)));
  });
  if (op.getLseGrad())
    delta = arith::SubFOp::create(
        b, loc, delta, toReal(read(op.getLseGrad(), {batch, head, i})));
  auto steps = scf::ForOp::create(b, loc, index(0), keys, index(1), grads);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(steps.getBody());
  Value j = steps.getInductionVar();
  // A weight of 0 adds nothing, and what is masked may have no score.
  Value counts = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE,
                                       read(weights, j), number(0.0));
  auto branch = scf::IfOp::create(b, loc, grads.getTypes(), counts,
                                  /*withElseRegion=*/true);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, loc, steps.getRegionIterArgs());
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, loc,
                       element(at, j, weights, divisor, weightGrads, delta,
                               steps.getRegionIterArgs()));
  b.setInsertionPointToEnd(steps.getBody());
  scf::YieldOp::create(b, loc, branch.getResults());
  return SmallVector<Value>(steps.getResults());
}

SmallVector<Value> BackwardReference::build() {
  b.setInsertionPoint(op);
  keys = b.createOrFold<tensor::DimOp>(loc, key, 2);
  SoftmaxBuilder builder(b, loc);
  SmallVector<Value> grads, likes = {query, key, value};
  llvm::append_range(likes, op.getWrt());
  for (Value like : likes)
    grads.push_back(
        builder.fill(tensor::getMixedSizes(b, loc, like), real, 0.0));
  SmallVector<Value> ends;
  for (unsigned d = 0; d < 3; ++d)
    ends.push_back(b.createOrFold<tensor::DimOp>(loc, query, d));
  Value zero = index(0), one = index(1);
  scf::LoopNest nest = scf::buildLoopNest(
      b, loc, {zero, zero, zero}, ends, {one, one, one}, grads,
      [&](OpBuilder &, Location, ValueRange ivs,
          ValueRange carried) -> scf::ValueVector {
        Value at[3] = {ivs[0], ivs[1], ivs[2]};
        SmallVector<Value> sums = row(at, carried);
        return scf::ValueVector(sums.begin(), sums.end());
      });
  b.setInsertionPoint(op);
  SmallVector<Value> results;
  for (auto [grad, type] : llvm::zip(nest.results, op.getResultTypes()))
    results.push_back(wide ? grad
                           : builder.convert(grad, getElementTypeOrSelf(type)));
  return results;
}

SmallVector<Value> fa::buildBackwardReference(RewriterBase &rewriter,
                                              AttentionBackwardOp op,
                                              bool wide) {
  return BackwardReference(rewriter, op, wide).build();
}
