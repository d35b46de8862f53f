// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Elementwise ops and row reductions: loops over rows, vectors along columns.

#include "Schedule.h"
#include "fa/Analysis/ScalarOpInterface.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace fa;

namespace {

/// How a row reduction combines an element with the accumulator.
struct Reduction {
  Operation *combiner = nullptr;
  /// The combiner's operand that is not the accumulator.
  unsigned element = 0;
  vector::CombiningKind kind = vector::CombiningKind::ADD;
};

/// Emits one op's loops. The last loop is the one along which vectors run.
class RowScheduler {
public:
  RowScheduler(RewriterBase &rewriter, linalg::LinalgOp op,
               const VectorUnit &unit)
      : b(rewriter), op(op), loc(op.getLoc()), unit(unit),
        last(op.getNumLoops() - 1), body(op.getBlock()) {}

  LogicalResult check();
  void emit();

private:
  LogicalResult checkOperand(OpOperand &operand);
  LogicalResult checkResult(OpOperand &init, Value yielded);
  LogicalResult checkBody();
  bool runsAlongLast(OpOperand &operand) {
    AffineMap map = op.getMatchingIndexingMap(&operand);
    return map.getNumResults() > 0 && map.isFunctionOfDim(last);
  }
  bool isReduced(OpOperand &init) {
    return !runsAlongLast(init) && reductions.count(init.getOperandNumber());
  }

  /// Whether there is a function that becomes a polynomial.
  bool computesFunctions() {
    return llvm::any_of(body->without_terminator(), [](Operation &inner) {
      return isa<math::MathDialect>(inner.getDialect()) &&
             !isa<math::FmaOp>(inner);
    });
  }
  void emitRow();
  /// The body for the columns j...; `lanes` 0 means one scalar. Carries the
  /// reductions' accumulators.
  SmallVector<Value> emitBody(Value j, int64_t lanes, Value mask,
                              ValueRange accumulators);
  Value loadOperand(OpOperand &operand, Value j, int64_t lanes, Value mask);
  Value convert(Operation &inner, IRMapping &map, int64_t lanes, Value j);
  int stepOf(Value index);
  bool isRun(memref::LoadOp load);
  Value computeAt(Value v, ArrayRef<Value> at, IRMapping &map);
  bool movesWithRow(memref::LoadOp load);
  void prefetchRow(memref::LoadOp load, IRMapping &map, Value j);
  Value loadRun(memref::LoadOp load, IRMapping &map, int64_t lanes, Value j);
  Value loadLanes(memref::LoadOp load, IRMapping &map, int64_t lanes);
  Value combineLanes(const Reduction &reduction, Value partial, Value before);
  Value asVector(Value v, int64_t lanes);
  SmallVector<Value> indicesOf(OpOperand &operand, Value j);
  SmallVector<Value> identities(int64_t lanes);
  Value loopTo(Value from, Value to, int64_t step, ValueRange init,
               llvm::function_ref<SmallVector<Value>(Value, ValueRange)> f,
               SmallVector<Value> &results);

  RewriterBase &b;
  linalg::LinalgOp op;
  Location loc;
  VectorUnit unit;
  unsigned last;
  Block *body;
  /// Values of the body that differ between lanes.
  DenseSet<Value> varying;
  bool hasVaryingLoad = false;
  llvm::MapVector<unsigned, Reduction> reductions;
  SmallVector<Value> ivs, sizes;
  /// Row-invariant operands, loaded once for a row.
  DenseMap<unsigned, Value> invariant;
};

} // namespace

LogicalResult RowScheduler::checkOperand(OpOperand &operand) {
  Type type = operand.get().getType();
  if (!isa<MemRefType>(type))
    return success();
  Type element = cast<MemRefType>(type).getElementType();
  if (!element.isIntOrIndexOrFloat() || element.isInteger(1))
    return failure();
  AffineMap map = op.getMatchingIndexingMap(&operand);
  for (auto [i, expr] : llvm::enumerate(map.getResults())) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    if (!dim)
      return failure();
    if (dim.getPosition() == last &&
        (i + 1 != map.getNumResults() || !hasUnitInnerStride(operand.get())))
      return failure();
  }
  return success();
}

/// A vector from memory. In memory a boolean is a byte; a vector of them would
/// be read as bits.
static Value loadVectorOf(OpBuilder &b, Location loc, Value buffer,
                          ValueRange indices, int64_t lanes) {
  auto type = cast<MemRefType>(buffer.getType());
  if (!type.getElementType().isInteger(1))
    return vector::LoadOp::create(
        b, loc, VectorType::get({lanes}, type.getElementType()), buffer,
        indices);
  MemRefType bytes = MemRefType::Builder(type).setElementType(b.getI8Type());
  buffer =
      UnrealizedConversionCastOp::create(b, loc, bytes, buffer).getResult(0);
  auto vectorType = VectorType::get({lanes}, b.getI8Type());
  Value x = vector::LoadOp::create(b, loc, vectorType, buffer, indices);
  return arith::TruncIOp::create(b, loc,
                                 VectorType::get({lanes}, b.getI1Type()), x);
}

static std::optional<vector::CombiningKind> combiningKindOf(Operation *op) {
  using K = vector::CombiningKind;
  return llvm::TypeSwitch<Operation *, std::optional<K>>(op)
      .Case([](arith::AddFOp) { return K::ADD; })
      .Case([](arith::MulFOp) { return K::MUL; })
      .Case([](arith::MaxNumFOp) { return K::MAXNUMF; })
      .Case([](arith::MinNumFOp) { return K::MINNUMF; })
      .Case([](arith::MaximumFOp) { return K::MAXIMUMF; })
      .Case([](arith::MinimumFOp) { return K::MINIMUMF; })
      .Case([](arith::AddIOp) { return K::ADD; })
      .Default([](Operation *) { return std::nullopt; });
}

LogicalResult RowScheduler::checkResult(OpOperand &init, Value yielded) {
  bool reduction =
      op.getIteratorTypesArray()[last] == utils::IteratorType::reduction;
  if (runsAlongLast(init))
    return failure(reduction);
  if (!reduction)
    return failure();
  BlockArgument accumulator = op.getMatchingBlockArgument(&init);
  Operation *combiner = yielded.getDefiningOp();
  if (!combiner || combiner->getBlock() != body || !accumulator.hasOneUse() ||
      *accumulator.user_begin() != combiner ||
      combiner->getNumOperands() != 2 || !yielded.hasOneUse())
    return failure();
  std::optional<vector::CombiningKind> kind = combiningKindOf(combiner);
  if (!kind || !arith::getNeutralElement(combiner))
    return failure();
  unsigned element = combiner->getOperand(0) == accumulator ? 1 : 0;
  reductions[init.getOperandNumber()] = {combiner, element, *kind};
  return success();
}

LogicalResult RowScheduler::checkBody() {
  for (OpOperand &operand : op->getOpOperands())
    if (isa<MemRefType>(operand.get().getType()) && runsAlongLast(operand))
      varying.insert(op.getMatchingBlockArgument(&operand));
  for (auto &[number, reduction] : reductions)
    varying.insert(reduction.combiner->getResult(0));
  for (Operation &inner : body->without_terminator()) {
    auto index = dyn_cast<linalg::IndexOp>(inner);
    bool varies = (index && index.getDim() == last) ||
                  llvm::any_of(inner.getOperands(),
                               [&](Value v) { return varying.contains(v); });
    if (inner.getNumRegions()) {
      // A condition with the same outcome in every lane could stay; one that
      // differs can't, and what its branches read is not in the operands.
      return failure();
    }
    if (!varies)
      continue;
    for (Value result : inner.getResults())
      varying.insert(result);
    if (isa<memref::LoadOp>(inner))
      hasVaryingLoad = true;
    else if (!index && (!OpTrait::hasElementwiseMappableTraits(&inner) ||
                        inner.getNumResults() != 1))
      return failure();
  }
  return success();
}

LogicalResult RowScheduler::check() {
  if (op.getNumLoops() == 0 || !op.hasPureBufferSemantics())
    return failure();
  for (OpOperand &operand : op->getOpOperands())
    if (failed(checkOperand(operand)))
      return failure();
  for (auto [init, yielded] :
       llvm::zip(op.getDpsInitsMutable(), body->getTerminator()->getOperands()))
    if (failed(checkResult(init, yielded)))
      return failure();
  return checkBody();
}

Value RowScheduler::asVector(Value v, int64_t lanes) {
  if (!lanes || isa<VectorType>(v.getType()))
    return v;
  return vector::BroadcastOp::create(b, loc,
                                     VectorType::get({lanes}, v.getType()), v);
}

SmallVector<Value> RowScheduler::indicesOf(OpOperand &operand, Value j) {
  SmallVector<Value> indices;
  for (AffineExpr expr : op.getMatchingIndexingMap(&operand).getResults()) {
    unsigned dim = cast<AffineDimExpr>(expr).getPosition();
    indices.push_back(dim == last ? j : ivs[dim]);
  }
  return indices;
}

Value RowScheduler::loadOperand(OpOperand &operand, Value j, int64_t lanes,
                                Value mask) {
  Value buffer = operand.get();
  auto type = dyn_cast<MemRefType>(buffer.getType());
  if (!type)
    return buffer;
  if (Value known = invariant.lookup(operand.getOperandNumber()))
    return known;
  SmallVector<Value> indices = indicesOf(operand, j);
  if (!lanes || !runsAlongLast(operand))
    return memref::LoadOp::create(b, loc, buffer, indices);
  auto vectorType = VectorType::get({lanes}, type.getElementType());
  if (!mask)
    return vector::LoadOp::create(b, loc, vectorType, buffer, indices);
  Value nothing = arith::ConstantOp::create(b, loc, b.getZeroAttr(vectorType));
  return vector::MaskedLoadOp::create(b, loc, vectorType, buffer, indices, mask,
                                      nothing);
}

/// How an index of the body changes from lane to lane, which is 0 or 1, or 0 or
/// -1; 0 where it is neither.
int RowScheduler::stepOf(Value index) {
  auto step = getStepRange(index, [&](Value v) -> std::optional<StepRange> {
    if (!varying.contains(v))
      return StepRange{};
    if (v.getDefiningOp<linalg::IndexOp>())
      return StepRange{1, 1};
    return std::nullopt;
  });
  if (!step || step->lo < -1 || step->hi > 1 || step->lo * step->hi < 0)
    return 0;
  return step->lo + step->hi > 0 ? 1 : -int(step->lo < 0);
}

/// Whether lanes may have neighbouring elements of a row.
bool RowScheduler::isRun(memref::LoadOp load) {
  if (load.getIndices().empty() || !hasUnitInnerStride(load.getMemRef()))
    return false;
  return stepOf(load.getIndices().back()) != 0 &&
         llvm::none_of(load.getIndices().drop_back(),
                       [&](Value v) { return varying.contains(v); });
}

/// An index of the body for the loops' values `at`; `map` has what it reads of
/// operands.
Value RowScheduler::computeAt(Value v, ArrayRef<Value> at, IRMapping &map) {
  Operation *op = v.getDefiningOp();
  if (!op || op->getBlock() != body)
    return map.lookupOrDefault(v);
  if (auto index = dyn_cast<linalg::IndexOp>(op))
    return at[index.getDim()];
  IRMapping operands;
  for (Value operand : op->getOperands())
    operands.map(operand, computeAt(operand, at, map));
  return b.clone(*op, operands)->getResult(0);
}

/// Whether a load's place moves with the row, as far as coordinates tell.
bool RowScheduler::movesWithRow(memref::LoadOp load) {
  auto known = [&](Value v) -> std::optional<StepRange> {
    if (v.getParentBlock() != body)
      return StepRange{};
    if (auto index = v.getDefiningOp<linalg::IndexOp>())
      return StepRange{0, index.getDim() + 1 == last};
    return std::nullopt;
  };
  bool moves = false;
  for (Value v : load.getIndices()) {
    std::optional<StepRange> step = getStepRange(v, known);
    if (!step)
      return false;
    moves |= !step->isZero();
  }
  return moves;
}

/// Asks for what a row some rows on has in a load's place. Rows lie apart, so
/// that the processor does not see where the next one is.
void RowScheduler::prefetchRow(memref::LoadOp load, IRMapping &map, Value j) {
  constexpr int64_t kAhead = 8;
  constexpr unsigned kKeep = 3;
  Value lastRow = arith::SubIOp::create(
      b, loc, sizes[last - 1], arith::ConstantIndexOp::create(b, loc, 1));
  Value ahead = arith::AddIOp::create(
      b, loc, ivs.back(), arith::ConstantIndexOp::create(b, loc, kAhead));
  SmallVector<Value> at(ivs), indices;
  at.back() = arith::MinSIOp::create(b, loc, ahead, lastRow);
  at.push_back(j);
  for (Value v : load.getIndices())
    indices.push_back(computeAt(v, at, map));
  memref::PrefetchOp::create(b, loc, load.getMemRef(), indices,
                             /*isWrite=*/false, kKeep, /*isDataCache=*/true);
}

/// A load of which lanes may have neighbours: one load of a vector where they
/// do. An index that changes by at most one a lane, and by as many as there are
/// from the first to the last, is in no bound in between.
Value RowScheduler::loadRun(memref::LoadOp load, IRMapping &map, int64_t lanes,
                            Value j) {
  Value index = load.getIndices().back();
  bool falls = stepOf(index) < 0;
  Value distance = arith::ConstantIndexOp::create(b, loc, lanes - 1);
  SmallVector<Value> first(ivs), end(ivs);
  first.push_back(j);
  end.push_back(arith::AddIOp::create(b, loc, j, distance));
  Value low = computeAt(index, first, map), high = computeAt(index, end, map);
  if (falls)
    std::swap(low, high);
  Value isRun =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                            arith::SubIOp::create(b, loc, high, low), distance);
  auto loadVector = [&](OpBuilder &, Location) {
    if (movesWithRow(load))
      prefetchRow(load, map, j);
    SmallVector<Value> indices;
    for (Value v : load.getIndices().drop_back())
      indices.push_back(map.lookupOrDefault(v));
    indices.push_back(low);
    Value x = loadVectorOf(b, loc, map.lookupOrDefault(load.getMemRef()),
                           indices, lanes);
    if (falls)
      x = vector::ShuffleOp::create(
          b, loc, x, x,
          llvm::to_vector(llvm::reverse(llvm::seq<int64_t>(0, lanes))));
    scf::YieldOp::create(b, loc, x);
  };
  return scf::IfOp::create(b, loc, isRun, loadVector,
                           [&](OpBuilder &, Location) {
                             Value x = loadLanes(load, map, lanes);
                             scf::YieldOp::create(b, loc, x);
                           })
      .getResult(0);
}

/// A load whose address differs between lanes: one load a lane.
Value RowScheduler::loadLanes(memref::LoadOp load, IRMapping &map,
                              int64_t lanes) {
  auto type = VectorType::get({lanes}, load.getType());
  Value result = arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
  Value buffer = map.lookupOrDefault(load.getMemRef());
  for (int64_t lane = 0; lane < lanes; ++lane) {
    SmallVector<Value> indices;
    for (Value index : load.getIndices()) {
      Value v = map.lookupOrDefault(index);
      indices.push_back(isa<VectorType>(v.getType())
                            ? vector::ExtractOp::create(b, loc, v, lane)
                            : v);
    }
    Value element = memref::LoadOp::create(b, loc, buffer, indices);
    result = vector::InsertOp::create(b, loc, element, result, lane);
  }
  return result;
}

Value RowScheduler::convert(Operation &inner, IRMapping &map, int64_t lanes,
                            Value j) {
  if (auto index = dyn_cast<linalg::IndexOp>(inner)) {
    if (index.getDim() != last)
      return ivs[index.getDim()];
    if (!lanes)
      return j;
    Value step = vector::StepOp::create(
        b, loc, VectorType::get({lanes}, b.getIndexType()));
    return arith::AddIOp::create(b, loc, asVector(j, lanes), step);
  }
  if (!lanes || !varying.contains(inner.getResult(0)))
    return b.clone(inner, map)->getResult(0);
  if (auto load = dyn_cast<memref::LoadOp>(inner))
    return isRun(load) ? loadRun(load, map, lanes, j)
                       : loadLanes(load, map, lanes);
  SmallVector<Value> operands;
  for (Value operand : inner.getOperands())
    operands.push_back(asVector(map.lookupOrDefault(operand), lanes));
  OperationState state(loc, inner.getName());
  state.addOperands(operands);
  state.addTypes(VectorType::get({lanes}, inner.getResult(0).getType()));
  state.addAttributes(inner.getAttrs());
  return b.create(state)->getResult(0);
}

SmallVector<Value> RowScheduler::emitBody(Value j, int64_t lanes, Value mask,
                                          ValueRange accumulators) {
  IRMapping map;
  unsigned next = 0;
  SmallVector<Value> results;
  for (OpOperand &operand : op->getOpOperands()) {
    BlockArgument argument = op.getMatchingBlockArgument(&operand);
    if (reductions.count(operand.getOperandNumber()))
      map.map(argument, accumulators[next++]);
    else if (!argument.use_empty())
      map.map(argument, loadOperand(operand, j, lanes, mask));
  }
  for (Operation &inner : body->without_terminator())
    map.map(inner.getResult(0), convert(inner, map, lanes, j));
  next = 0;
  for (auto [init, yielded] : llvm::zip(op.getDpsInitsMutable(),
                                        body->getTerminator()->getOperands())) {
    Value value = asVector(map.lookupOrDefault(yielded), lanes);
    if (reductions.count(init.getOperandNumber())) {
      if (mask)
        value =
            arith::SelectOp::create(b, loc, mask, value, accumulators[next]);
      ++next;
      results.push_back(value);
      continue;
    }
    SmallVector<Value> indices = indicesOf(init, j);
    if (!lanes)
      memref::StoreOp::create(b, loc, value, init.get(), indices);
    else if (mask)
      vector::MaskedStoreOp::create(b, loc, init.get(), indices, mask, value);
    else
      vector::StoreOp::create(b, loc, value, init.get(), indices);
  }
  return results;
}

SmallVector<Value> RowScheduler::identities(int64_t lanes) {
  SmallVector<Value> values;
  for (auto &[number, reduction] : reductions) {
    TypedAttr neutral = *arith::getNeutralElement(reduction.combiner);
    // Upstream's neutral element of maxnumf is NaN, which a comparison keeps.
    bool max = reduction.kind == vector::CombiningKind::MAXNUMF,
         min = reduction.kind == vector::CombiningKind::MINNUMF;
    if (max || min) {
      auto type = cast<FloatType>(neutral.getType());
      neutral = b.getFloatAttr(
          type, APFloat::getInf(type.getFloatSemantics(), /*Negative=*/max));
    }
    values.push_back(
        asVector(arith::ConstantOp::create(b, loc, neutral), lanes));
  }
  return values;
}

Value RowScheduler::loopTo(
    Value from, Value to, int64_t step, ValueRange init,
    llvm::function_ref<SmallVector<Value>(Value, ValueRange)> f,
    SmallVector<Value> &results) {
  Value stepValue = arith::ConstantIndexOp::create(b, loc, step);
  auto loop = scf::ForOp::create(
      b, loc, from, to, stepValue, init,
      [&](OpBuilder &, Location, Value iv, ValueRange carried) {
        scf::YieldOp::create(b, loc, f(iv, carried));
      });
  results.assign(loop.getResults().begin(), loop.getResults().end());
  return to;
}

/// The lanes of a reduction's vector, and what was there before, as one.
Value RowScheduler::combineLanes(const Reduction &reduction, Value partial,
                                 Value before) {
  bool max = reduction.kind == vector::CombiningKind::MAXNUMF,
       min = reduction.kind == vector::CombiningKind::MINNUMF;
  if (!max && !min)
    return vector::ReductionOp::create(b, loc, reduction.kind, partial, before,
                                       arith::FastMathFlags::reassoc);
  // LLVM takes the lanes of these one after another, since a NaN is ignored.
  auto combine = [&](Value x, Value y) -> Value {
    if (max)
      return arith::MaxNumFOp::create(b, loc, x, y);
    return arith::MinNumFOp::create(b, loc, x, y);
  };
  int64_t width = cast<VectorType>(partial.getType()).getDimSize(0);
  for (int64_t lanes = width / 2; lanes >= 1; lanes /= 2) {
    auto low = llvm::to_vector(llvm::seq<int64_t>(0, lanes)),
         high = llvm::to_vector(llvm::seq<int64_t>(lanes, 2 * lanes));
    partial = combine(vector::ShuffleOp::create(b, loc, partial, partial, high),
                      vector::ShuffleOp::create(b, loc, partial, partial, low));
  }
  return combine(vector::ExtractOp::create(b, loc, partial, 0), before);
}

void RowScheduler::emitRow() {
  Value zero = arith::ConstantIndexOp::create(b, loc, 0), size = sizes[last];
  for (OpOperand &operand : op->getOpOperands())
    if (isa<MemRefType>(operand.get().getType()) && !runsAlongLast(operand) &&
        !reductions.count(operand.getOperandNumber()) &&
        !op.getMatchingBlockArgument(&operand).use_empty())
      invariant[operand.getOperandNumber()] =
          loadOperand(operand, zero, 0, Value());

  int64_t lanes =
      unit.lanesOf(getElementTypeOrSelf(op.getDpsInits()[0].getType()));
  std::optional<int64_t> constant = constantOf(size);
  bool hasTail = !constant || *constant % lanes != 0;
  Value end = size;
  if (constant) {
    end = arith::ConstantIndexOp::create(b, loc, *constant / lanes * lanes);
  } else {
    Value width = arith::ConstantIndexOp::create(b, loc, lanes);
    Value rest = arith::RemUIOp::create(b, loc, size, width);
    end = arith::SubIOp::create(b, loc, size, rest);
  }
  SmallVector<Value> partial = identities(lanes);
  auto vectorBody = [&](Value j, ValueRange carried) {
    return emitBody(j, lanes, Value(), carried);
  };
  // The constants of a function's polynomial serve several vectors at once.
  // LLVM unrolls loops of known length by itself.
  constexpr int64_t kAtOnce = 4;
  Value begin = zero;
  if (!constant && computesFunctions()) {
    Value many = roundDown(b, loc, size, kAtOnce * lanes);
    auto severalBodies = [&](Value j, ValueRange carried) {
      SmallVector<Value> all(carried);
      for (int64_t i = 0; i < kAtOnce; ++i) {
        Value offset = arith::ConstantIndexOp::create(b, loc, i * lanes);
        all = vectorBody(arith::AddIOp::create(b, loc, j, offset), all);
      }
      return all;
    };
    begin =
        loopTo(zero, many, kAtOnce * lanes, partial, severalBodies, partial);
  }
  loopTo(begin, end, lanes, partial, vectorBody, partial);
  // The last few columns: a vector of which some lanes are off. Where a lane
  // has an address of its own, scalars: it may be out of bounds.
  if (hasTail && !hasVaryingLoad)
    loopTo(
        end, size, lanes, partial,
        [&](Value j, ValueRange carried) {
          Value rest = arith::SubIOp::create(b, loc, size, j);
          Value mask = vector::CreateMaskOp::create(
              b, loc, VectorType::get({lanes}, b.getI1Type()), rest);
          return emitBody(j, lanes, mask, carried);
        },
        partial);
  SmallVector<Value> totals;
  for (auto [value, entry] : llvm::zip(partial, reductions)) {
    OpOperand &init = op->getOpOperand(entry.first);
    Value before =
        memref::LoadOp::create(b, loc, init.get(), indicesOf(init, zero));
    totals.push_back(combineLanes(entry.second, value, before));
  }
  if (hasTail && hasVaryingLoad)
    loopTo(
        end, size, 1, totals,
        [&](Value j, ValueRange carried) {
          return emitBody(j, 0, Value(), carried);
        },
        totals);
  for (auto [value, entry] : llvm::zip(totals, reductions)) {
    OpOperand &init = op->getOpOperand(entry.first);
    memref::StoreOp::create(b, loc, value, init.get(), indicesOf(init, zero));
  }
}

void RowScheduler::emit() {
  // The size of each loop, from the first operand that has it.
  for (unsigned d = 0; d <= last; ++d) {
    Value size;
    for (OpOperand &operand : op->getOpOperands()) {
      if (size || !isa<MemRefType>(operand.get().getType()))
        continue;
      for (auto [i, expr] :
           llvm::enumerate(op.getMatchingIndexingMap(&operand).getResults()))
        if (cast<AffineDimExpr>(expr).getPosition() == d && !size)
          size = dimOf(b, loc, operand.get(), i);
    }
    sizes.push_back(size);
  }
  Value zero = arith::ConstantIndexOp::create(b, loc, 0),
        one = arith::ConstantIndexOp::create(b, loc, 1);
  for (unsigned d = 0; d < last; ++d) {
    auto loop = scf::ForOp::create(b, loc, zero, sizes[d], one);
    ivs.push_back(loop.getInductionVar());
    b.setInsertionPointToStart(loop.getBody());
  }
  emitRow();
}

LogicalResult fa::scheduleRows(RewriterBase &rewriter, linalg::LinalgOp op,
                               const VectorUnit &unit) {
  RowScheduler scheduler(rewriter, op, unit);
  if (failed(scheduler.check()))
    return failure();
  scheduler.emit();
  rewriter.eraseOp(op);
  return success();
}
