// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Weights against a reference from earlier blocks, checked afterwards.

#include "AttentionCommon.h"

#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/IR/StepExpansion.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <cmath>

using namespace mlir;
using namespace fa;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Blocks that take the running maximum before their weights after an overflow
/// that comes at most so many blocks after the last one, or after blocks that
/// did.
static constexpr int64_t kSoon = 2, kWaryBlocks = 32;
/// Such blocks after any other overflow, where weights cannot be shifted.
static constexpr int64_t kFewWaryBlocks = 4;

//===----------------------------------------------------------------------===//
// What is a step
//===----------------------------------------------------------------------===//

LogicalResult SpeculatedSoftmaxOp::inferReturnTypes(
    MLIRContext *context, std::optional<Location>, ValueRange operands,
    DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
    SmallVectorImpl<Type> &types) {
  Adaptor adaptor(operands, attributes, properties, regions);
  llvm::append_range(types, adaptor.getState().getTypes());
  types.push_back(IndexType::get(context));
  return success();
}

LogicalResult SpeculatedSoftmaxOp::verify() {
  if (getState().size() != 3 && getState().size() != 4)
    return emitOpError() << "expected a state of a reference, a sum, an output "
                            "and maybe an exact sum, got "
                         << getState().size()
                         << " tensors (fa_speculated_softmax_c1)";
  RankedTensorType scores = getScores().getType(),
                   values = getValues().getType();
  if (!values.getElementType().isF16() && !values.getElementType().isBF16())
    return emitOpError() << "expected values of f16 or bf16, by whose rounding "
                            "weights are checked, got "
                         << values.getElementType()
                         << " (fa_speculated_softmax_c1)";
  if (scores.getRank() != 2 || values.getRank() != 2 ||
      sizesDiffer(scores.getDimSize(1), values.getDimSize(0)) ||
      !scores.getElementType().isF32())
    return emitOpError() << "expected f32 scores [M,N] and values [N,Dv], got "
                         << scores << " and " << values
                         << " (fa_speculated_softmax_c1)";
  StringRef names[] = {"reference", "sum", "output", "exact sum"};
  for (auto [i, value] : llvm::enumerate(getState())) {
    auto type = cast<RankedTensorType>(value.getType());
    unsigned rank = i == kAcc ? 2 : 1;
    if (type.getRank() != rank || !type.getElementType().isF32() ||
        sizesDiffer(type.getDimSize(0), scores.getDimSize(0)) ||
        (rank == 2 && sizesDiffer(type.getDimSize(1), values.getDimSize(1))))
      return emitOpError() << "expected the " << names[i] << " to be f32 ["
                           << (rank == 2 ? "M,Dv" : "M") << "] of scores "
                           << scores << " and values " << values << ", got "
                           << type << " (fa_speculated_softmax_c1)";
  }
  StringRef label = "fa_speculated_softmax_c2";
  if (failed(verifyLog2Scale(*this, getLog2Scale(), label)))
    return failure();
  double headroom = getHeadroom().convertToDouble(),
         limit = getLimit().convertToDouble(),
         farLimit = getFarLimit().convertToDouble();
  if (!(headroom >= 0 && headroom <= 126))
    return emitOpError() << "expected headroom in [0, 126], got " << headroom
                         << " (" << label << ")";
  if (!(limit > 1 && limit <= 0x1p60))
    return emitOpError() << "expected limit in (1, 2^60], got " << limit << " ("
                         << label << ")";
  if (!(farLimit == 0 || (farLimit > limit && farLimit < kInfinity)))
    return emitOpError() << "expected far_limit 0, or finite and above limit "
                         << limit << ", got " << farLimit << " (" << label
                         << ")";
  return success();
}

LogicalResult SpeculatedSoftmaxOp::verifyRegions() {
  Block &block = getScore().front();
  Type real = Float32Type::get(getContext()),
       index = IndexType::get(getContext());
  if (!llvm::equal(block.getArgumentTypes(),
                   ArrayRef<Type>{real, index, index}))
    return emitOpError() << "expected the score region to take an f32 and two "
                            "indices, row and column, got "
                         << block.getArgumentTypes()
                         << " (fa_speculated_softmax_c3)";
  auto yield = block.empty() ? YieldOp() : dyn_cast<YieldOp>(block.back());
  if (!yield || yield.getResult().getType() != real)
    return emitOpError("expected the score region to end in fa.yield of an f32 "
                       "(fa_speculated_softmax_c3)");
  if (failed(verifyRegionIsPure(getScore(), "score")))
    return failure();
  return verifyKeep(*this, getKeep());
}

//===----------------------------------------------------------------------===//
// Its expansion
//===----------------------------------------------------------------------===//

namespace {
/// Expands one step.
class Speculator {
public:
  Speculator(OpBuilder &builder, SpeculatedSoftmaxOp op, StepExpansion &target)
      : builder(builder), b(builder, op.getLoc()), op(op), target(target),
        loc(op.getLoc()), f32(builder.getF32Type()),
        type(op.getValues().getType().getElementType()), scores(op.getScores()),
        scale(op.getLog2Scale().convertToDouble()),
        headroom(op.getHeadroom().convertToDouble()),
        limit(op.getLimit().convertToDouble()),
        farLimit(op.getFarLimit().convertToDouble()),
        isDifference(op.getSubtractFirst()),
        hasExactSum(op.getState().size() > SpeculatedSoftmaxOp::kExactSum) {}
  SmallVector<Value> build();

private:
  /// The state of a step, its weights as the product reads them, and, where
  /// exact weights are summed, these.
  struct State {
    Value reference, rounded, exact, sum, output, exactSum;
    /// What the weights join.
    SmallVector<Value> sums() const {
      SmallVector<Value> all = {sum, output};
      if (exactSum)
        all.push_back(exactSum);
      return all;
    }
    void setSums(ValueRange all) {
      sum = all[0], output = all[1];
      if (exactSum)
        exactSum = all[2];
    }
    SmallVector<Value> values() const {
      SmallVector<Value> all = sums();
      all.append({reference, rounded});
      if (exact)
        all.push_back(exact);
      return all;
    }
    void setValues(ValueRange all) {
      setSums(all);
      all = all.drop_front(exactSum ? 3 : 2);
      reference = all[0], rounded = all[1];
      if (exact)
        exact = all[2];
    }
  };
  Value negate(Value x);
  Value scored(Value tile);
  Value scoredWeights(Value shift);
  Value exactWeights(Value reference);
  void makeWeights(State &state, Value reference);
  Value rowMax(Value tile);
  Value largest(Value weights);
  Value overflows(Value max, Value reference);
  Value moveReference(Value reference, Value max);
  Value factorOf(Value before, Value after);
  void rescale(State &state, Value factor);
  scf::IfOp branchOn(Value condition, ValueRange kept,
                     llvm::function_ref<SmallVector<Value>()> then);
  scf::IfOp branchBetween(Value condition, TypeRange types,
                          llvm::function_ref<SmallVector<Value>()> then,
                          llvm::function_ref<SmallVector<Value>()> otherwise);
  SmallVector<Value> moveWary(Value tile, Value reference, Value nothing);
  SmallVector<Value> moveWhereWary(Value isWary, Value reference);
  State startAgain(const State &state, Value first, Value max);
  State shiftDown(const State &state, Value top);
  Value nextWary(Value overflowed);
  SmallVector<Value> recover(const State &state, Value first);
  Value anyNotBelow(Value of, double most) {
    return target.anyNotBelow(builder, loc, of, most);
  }
  /// Where weights are dropped, their rounding errors are not those of the sum:
  /// it is of exact weights.
  bool keeps() { return !op.getKeep().empty(); }
  bool sumsExact() { return hasExactSum || keeps(); }
  Value &exactSumOf(State &state) {
    return keeps() ? state.sum : state.exactSum;
  }
  /// Whether some weights that are out of range can be shifted.
  bool canShift() const { return farLimit > limit; }

  OpBuilder &builder;
  SoftmaxBuilder b;
  SpeculatedSoftmaxOp op;
  StepExpansion &target;
  Location loc;
  Type f32, type;
  Value scores;
  double scale, headroom, limit, farLimit;
  bool isDifference, hasExactSum;
};
} // namespace

Value Speculator::negate(Value x) {
  return b.elementwise(
      x, f32, [](OpBuilder &nested, Location l, ValueRange args) -> Value {
        return arith::NegFOp::create(nested, l, args[0]);
      });
}

/// The scores, of what they are made of.
Value Speculator::scored(Value tile) {
  Block &body = op.getScore().front();
  if (body.getTerminator()->getOperand(0) == body.getArgument(0))
    return tile;
  return b.elementwise(
      tile, f32, [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value row = linalg::IndexOp::create(nested, l, 0),
              column = linalg::IndexOp::create(nested, l, 1);
        return inlineRegion(nested, op.getScore(), {args[0], row, column});
      });
}

/// shift + bias or shift - bias, as an fma where that can be.
static Value shiftBias(OpBuilder &b, Value bias, bool isSubtracted,
                       Value shift) {
  Location loc = bias.getLoc();
  if (auto mul = bias.getDefiningOp<arith::MulFOp>()) {
    Value factor = mul.getLhs();
    if (isSubtracted)
      factor = arith::NegFOp::create(b, loc, factor);
    return math::FmaOp::create(b, loc, factor, mul.getRhs(), shift);
  }
  return isSubtracted ? arith::SubFOp::create(b, loc, shift, bias).getResult()
                      : arith::AddFOp::create(b, loc, shift, bias);
}

/// exp2(score c + shift), with `shift` of the rows. Of scores in log2 units
/// that are sums, of which one part knows nothing of the tile, that part joins
/// the shift: it takes no operation of an element more.
Value Speculator::scoredWeights(Value shift) {
  Block &body = op.getScore().front();
  Value score = body.getTerminator()->getOperand(0), x = body.getArgument(0);
  Operation *sum = score.getDefiningOp();
  bool isSum = isa_and_nonnull<arith::AddFOp, arith::SubFOp>(sum) &&
               sum->getBlock() == &body && static_cast<float>(scale) == 1;
  unsigned biasAt = isSum && dependsOn(sum->getOperand(0), x);
  if (!isSum || dependsOn(sum->getOperand(biasAt), x) ||
      (isa<arith::SubFOp>(sum) && biasAt == 0))
    return b.scaledExp2(scored(scores), shift, scale);
  return b.elementwise(
      {scores, shift}, f32,
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value row = linalg::IndexOp::create(nested, l, 0),
              column = linalg::IndexOp::create(nested, l, 1);
        IRMapping map;
        map.map(body.getArguments(), ValueRange{args[0], row, column});
        for (Operation &inner : body.without_terminator())
          if (&inner != sum)
            nested.clone(inner, map);
        Value rest =
            shiftBias(nested, map.lookupOrDefault(sum->getOperand(biasAt)),
                      isa<arith::SubFOp>(sum), args[1]);
        Value exponent = arith::AddFOp::create(
            nested, l, map.lookupOrDefault(sum->getOperand(1 - biasAt)), rest);
        return math::Exp2Op::create(nested, l, exponent);
      });
}

/// The weights before rounding.
Value Speculator::exactWeights(Value reference) {
  if (isDifference)
    return b.exp2Difference(scored(scores), reference, scale, -headroom);
  return scoredWeights(negate(reference));
}

/// The weights, as the product reads them and exact.
void Speculator::makeWeights(State &state, Value reference) {
  Value weights = exactWeights(reference);
  state.rounded = b.convert(weights, type);
  if (sumsExact())
    state.exact = weights;
}

/// The block's largest scores.
Value Speculator::rowMax(Value tile) {
  tile = scored(tile);
  return b.rowMax(tile, b.fill({tensor::getMixedSize(builder, loc, tile, 0)},
                               f32, -kInfinity));
}

/// The rows' largest weights, as f32; not a number where one is not.
Value Speculator::largest(Value weights) {
  return b.reduceRows(
      weights,
      b.fill({tensor::getMixedSize(builder, loc, weights, 0)}, f32, 0.0),
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value weight = arith::ExtFOp::create(nested, l, f32, args[0]);
        return arith::MaximumFOp::create(nested, l, weight, args[1]);
      });
}

/// Whether a row's largest score gives a weight that is not below the limit.
/// Rows without a reference do not count, nor does what is not a number.
Value Speculator::overflows(Value max, Value reference) {
  // In log2 units above the reference.
  Value above = b.elementwise(
      {max, reference}, f32,
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value c = floatConstant(nested, l, f32, scale), distance;
        if (isDifference) {
          Value x = arith::SubFOp::create(nested, l, args[0], args[1]);
          distance = math::FmaOp::create(
              nested, l, x, c, floatConstant(nested, l, f32, -headroom));
        } else {
          Value negative = arith::NegFOp::create(nested, l, args[1]);
          distance = math::FmaOp::create(nested, l, args[0], c, negative);
        }
        Value hasOne =
            arith::CmpFOp::create(nested, l, arith::CmpFPredicate::OGT, args[1],
                                  floatConstant(nested, l, f32, -kInfinity));
        return arith::SelectOp::create(nested, l, hasOne, distance,
                                       floatConstant(nested, l, f32, 0));
      });
  return anyNotBelow(above, std::log2(limit));
}

/// References above all scores so far. All rows move that can: where one has
/// fallen behind its neighbours will soon, too.
Value Speculator::moveReference(Value reference, Value max) {
  return b.elementwise(
      {max, reference}, f32,
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value above = args[0];
        if (!isDifference)
          above = math::FmaOp::create(nested, l, args[0],
                                      floatConstant(nested, l, f32, scale),
                                      floatConstant(nested, l, f32, headroom));
        return arith::MaxNumFOp::create(nested, l, above, args[1]);
      });
}

/// The factor from what was summed against a reference to what is summed
/// against another.
Value Speculator::factorOf(Value before, Value after) {
  if (isDifference)
    return b.exp2Difference(before, b.finiteOrZero(after), scale);
  return b.elementwise(
      {before, b.finiteOrZero(after)}, f32,
      [](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value difference = arith::SubFOp::create(nested, l, args[0], args[1]);
        return math::Exp2Op::create(nested, l, difference);
      });
}

void Speculator::rescale(State &state, Value factor) {
  state.sum = b.multiply(state.sum, factor);
  state.output = b.multiply(state.output, factor);
  if (state.exactSum)
    state.exactSum = b.multiply(state.exactSum, factor);
}

/// A branch that groups of rows may take for themselves.
scf::IfOp
Speculator::branchBetween(Value condition, TypeRange types,
                          llvm::function_ref<SmallVector<Value>()> then,
                          llvm::function_ref<SmallVector<Value>()> otherwise) {
  auto branch = scf::IfOp::create(builder, loc, types, condition,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(builder, loc, otherwise());
  builder.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(builder, loc, then());
  return branch;
}

scf::IfOp Speculator::branchOn(Value condition, ValueRange kept,
                               llvm::function_ref<SmallVector<Value>()> then) {
  return branchBetween(condition, TypeRange(kept), then,
                       [&] { return SmallVector<Value>(kept); });
}

/// With the running maximum: the reference moves, where one has to, before
/// there are weights. Gives it, the factor for what was summed, which is
/// nothing where none moved, and whether one did.
SmallVector<Value> Speculator::moveWary(Value tile, Value reference,
                                        Value nothing) {
  Value max = rowMax(tile);
  Value any = overflows(max, reference);
  scf::IfOp moved = branchOn(any, {reference, nothing}, [&] {
    Value next = moveReference(reference, max);
    return SmallVector<Value>{next, factorOf(reference, next)};
  });
  return {moved.getResult(0), moved.getResult(1), any};
}

/// For some blocks after an overflow. Where scores come out of a branch that
/// masks some blocks, this is in that branch: the common way has one branch.
/// What was summed so far is not touched: it may still be computed.
SmallVector<Value> Speculator::moveWhereWary(Value isWary, Value reference) {
  Value no =
      arith::ConstantOp::create(builder, loc, builder.getBoolAttr(false));
  Value nothing = tensor::EmptyOp::create(
      builder, loc,
      ArrayRef<OpFoldResult>{tensor::getMixedSize(builder, loc, reference, 0)},
      f32);
  SmallVector<Value> kept = {reference, nothing, no};
  auto mask = scores.getDefiningOp<scf::IfOp>();
  if (!mask || mask->getNumResults() != 1 || mask->getBlock() != op->getBlock())
    return branchOn(isWary, kept,
                    [&] { return moveWary(scores, reference, nothing); })
        ->getResults();
  // The mask's branch becomes the one of blocks that are masked or wary.
  Value yes =
      arith::ConstantOp::create(builder, loc, builder.getBoolAttr(true));
  Value common =
      arith::AndIOp::create(builder, loc, mask.getCondition(),
                            arith::XOrIOp::create(builder, loc, isWary, yes));
  Type types[] = {scores.getType(), reference.getType(), nothing.getType(),
                  no.getType()};
  auto merged = scf::IfOp::create(builder, loc, types, common,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(merged.thenBlock());
  IRMapping map;
  for (Operation &inner : mask.thenBlock()->without_terminator())
    builder.clone(inner, map);
  Value whole = map.lookupOrDefault(mask.thenYield().getOperand(0));
  scf::YieldOp::create(builder, loc, ValueRange{whole, reference, nothing, no});
  builder.setInsertionPointToStart(merged.elseBlock());
  Value masked = builder.clone(*mask)->getResult(0);
  scf::IfOp moved = branchOn(
      isWary, kept, [&] { return moveWary(masked, reference, nothing); });
  SmallVector<Value> values{masked};
  llvm::append_range(values, moved.getResults());
  scf::YieldOp::create(builder, loc, values);
  scores = merged.getResult(0);
  return merged->getResults().drop_front();
}

/// Up to which block steps are wary after weights that were out of range.
Value Speculator::nextWary(Value overflowed) {
  Value until = op.getUntil(), position = op.getPosition();
  auto blocksFrom = [&](Value from, int64_t count) -> Value {
    Value blocks = arith::ConstantIndexOp::create(builder, loc, count);
    return arith::AddIOp::create(
        builder, loc, from,
        arith::MulIOp::create(builder, loc, op.getStep(), blocks));
  };
  Value isSoon = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::sle,
                                       position, blocksFrom(until, kSoon));
  int64_t few = canShift() ? 0 : kFewWaryBlocks;
  Value later = arith::SelectOp::create(builder, loc, isSoon,
                                        blocksFrom(position, kWaryBlocks + 1),
                                        blocksFrom(position, few + 1));
  return arith::SelectOp::create(builder, loc, overflowed, later, until);
}

/// The block's weights from its scores, against a reference above all of them.
/// In the first block nothing is summed yet, and nothing to be rescaled.
Speculator::State Speculator::startAgain(const State &state, Value first,
                                         Value max) {
  State next = state;
  next.reference = moveReference(state.reference, max);
  makeWeights(next, b.finiteOrZero(next.reference));
  scf::IfOp sums = branchBetween(
      first, TypeRange(ValueRange(state.sums())), [&] { return state.sums(); },
      [&] {
        State scaled = state;
        rescale(scaled, factorOf(state.reference, next.reference));
        return scaled.sums();
      });
  next.setSums(sums.getResults());
  return next;
}

/// The block's weights, of which `top` are the rows' largest, and what was
/// summed, times a power of two that lays the reference as far above `top` as
/// it is to be: exact, but for what is too small to matter.
Speculator::State Speculator::shiftDown(const State &state, Value top) {
  Type i32 = builder.getI32Type();
  constexpr int64_t mantissaBits = 23, bias = 127;
  auto integer = [&](OpBuilder &nested, Location l, int64_t value) -> Value {
    return arith::ConstantOp::create(nested, l,
                                     builder.getI32IntegerAttr(value));
  };
  // floor(log2(top)) + headroom; rows that are below it stay.
  Value exponent = b.elementwise(
      top, i32, [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value bits = arith::BitcastOp::create(nested, l, i32, args[0]);
        Value biased = arith::ShRUIOp::create(nested, l, bits,
                                              integer(nested, l, mantissaBits));
        int64_t above = std::floor(headroom) - bias;
        Value exponent =
            arith::AddIOp::create(nested, l, biased, integer(nested, l, above));
        return arith::MaxSIOp::create(nested, l, exponent,
                                      integer(nested, l, 0));
      });
  Value factor = b.elementwise(
      exponent, f32,
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value biased =
            arith::SubIOp::create(nested, l, integer(nested, l, bias), args[0]);
        Value bits = arith::ShLIOp::create(nested, l, biased,
                                           integer(nested, l, mantissaBits));
        return arith::BitcastOp::create(nested, l, f32, bits);
      });
  State next = state;
  next.reference = b.elementwise(
      {state.reference, exponent}, f32,
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value up = arith::SIToFPOp::create(nested, l, f32, args[1]);
        return arith::AddFOp::create(nested, l, args[0], up);
      });
  next.rounded = b.elementwise(
      {state.rounded, factor}, type,
      [&](OpBuilder &nested, Location l, ValueRange args) -> Value {
        Value weight = arith::ExtFOp::create(nested, l, f32, args[0]);
        weight = arith::MulFOp::create(nested, l, weight, args[1]);
        return arith::TruncFOp::create(nested, l, type, weight);
      });
  // Not from the exact weights: nothing need keep them.
  if (sumsExact())
    next.exact = exactWeights(next.reference);
  rescale(next, factor);
  return next;
}

/// After weights out of range, or in the first block: the state's values, and
/// up to which block steps are wary.
SmallVector<Value> Speculator::recover(const State &state, Value first) {
  auto restart = [&]() -> SmallVector<Value> {
    Value max = rowMax(scores);
    SmallVector<Value> values = startAgain(state, first, max).values();
    values.push_back(
        arith::SelectOp::create(builder, loc, first, op.getUntil(),
                                nextWary(overflows(max, state.reference))));
    return values;
  };
  if (!canShift())
    return restart();
  Value top = largest(state.rounded);
  Value far =
      arith::OrIOp::create(builder, loc, first, anyNotBelow(top, farLimit));
  SmallVector<Type> types(TypeRange(ValueRange(state.values())));
  types.push_back(builder.getIndexType());
  return branchBetween(far, types, restart,
                       [&] {
                         SmallVector<Value> values =
                             shiftDown(state, top).values();
                         Value yes = arith::ConstantOp::create(
                             builder, loc, builder.getBoolAttr(true));
                         values.push_back(nextWary(yes));
                         return values;
                       })
      ->getResults();
}

SmallVector<Value> Speculator::build() {
  using Op = SpeculatedSoftmaxOp;
  Value isWary = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::slt,
                                       op.getPosition(), op.getUntil());
  SmallVector<Value> moved =
      moveWhereWary(isWary, op.getState()[Op::kReference]);
  State state;
  state.reference = moved[0];
  state.sum = op.getState()[Op::kSum];
  state.output = op.getState()[Op::kAcc];
  if (hasExactSum)
    state.exactSum = op.getState()[Op::kExactSum];
  Value weights = exactWeights(state.reference), part;
  // On the common side the weights before rounding are needed for no more than
  // their sums.
  if (sumsExact()) {
    state.exact = weights;
    part = target.sumRows(builder, loc, weights, exactSumOf(state));
  }
  state.rounded = b.convert(weights, type);
  state.setSums(branchOn(moved[2], state.sums(), [&] {
                  State next = state;
                  rescale(next, moved[1]);
                  return next.sums();
                }).getResults());
  Value any = anyNotBelow(state.rounded, limit);
  Value first = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq,
                                      op.getPosition(), op.getFirst());
  Value repeats = arith::OrIOp::create(builder, loc, first, any);
  State joined = state; // the exact weights are in the sum
  joined.exact = {};
  SmallVector<Type> types(TypeRange(ValueRange(joined.values())));
  types.push_back(builder.getIndexType());
  scf::IfOp branch = branchBetween(
      repeats, types,
      [&] {
        SmallVector<Value> recovered = recover(state, first);
        State next = state;
        next.setValues(ArrayRef(recovered).drop_back());
        if (next.exact) {
          Value &sum = exactSumOf(next);
          sum = target.addRows(builder, loc, next.exact, sum);
          next.exact = {};
        }
        SmallVector<Value> values = next.values();
        values.push_back(recovered.back());
        return values;
      },
      [&] {
        State next = joined;
        if (part) {
          Value &sum = exactSumOf(next);
          sum = b.add(sum, part);
        }
        SmallVector<Value> values = next.values();
        values.push_back(op.getUntil());
        return values;
      });
  joined.setValues(branch.getResults().drop_back());
  if (!keeps())
    joined.sum = target.addRows(builder, loc, b.convert(joined.rounded, f32),
                                joined.sum);
  Value kept = joined.rounded;
  if (keeps())
    kept = b.keep(kept, [&](OpBuilder &nested, ValueRange at) {
      return inlineRegion(nested, op.getKeep().front(), at);
    });
  Value output = b.contractRowsByColumns(kept, op.getValues(), joined.output);
  SmallVector<Value> results = {joined.reference, joined.sum, output};
  if (hasExactSum)
    results.push_back(joined.exactSum);
  results.push_back(branch.getResults().back());
  return results;
}

SmallVector<Value> SpeculatedSoftmaxOp::expand(OpBuilder &builder,
                                               StepExpansion &target) {
  return Speculator(builder, *this, target).build();
}

FailureOr<SmallVector<Value>>
SpeculatedSoftmaxOp::decomposeOperation(OpBuilder &builder) {
  StepExpansion plain;
  return expand(builder, plain);
}
