// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Limits.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace fa;

double AttentionOp::getScaleOrDefault() {
  if (std::optional<APFloat> scale = getScale())
    return scale->convertToDouble();
  return 1.0 / std::sqrt(static_cast<double>(getHeadDim()));
}

//===----------------------------------------------------------------------===//
// %q, %k, %v (scale X)? (score {...})? (mask {...})? (keep {...} (times X)?)?
//     attributes : types
//
// By hand, because a region must belong to the state before it is parsed: an
// op before this one may use a value of a region that then turns out to be
// malformed, and the parser cleans up only what the state holds.
//===----------------------------------------------------------------------===//

ParseResult AttentionOp::parse(OpAsmParser &parser, OperationState &result) {
  Region *score = result.addRegion(), *mask = result.addRegion(),
         *keep = result.addRegion();
  SmallVector<OpAsmParser::UnresolvedOperand, 3> operands(3);
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseOperand(operands[0]) || parser.parseComma() ||
      parser.parseOperand(operands[1]) || parser.parseComma() ||
      parser.parseOperand(operands[2]))
    return failure();
  auto parseFactor = [&](StringRef keyword, FloatAttr &factor) -> ParseResult {
    if (failed(parser.parseOptionalKeyword(keyword)))
      return success();
    return parser.parseAttribute(factor, parser.getBuilder().getF64Type());
  };
  FloatAttr scale, times;
  if (parseFactor("scale", scale))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("score")) &&
      parser.parseRegion(*score))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("mask")) &&
      parser.parseRegion(*mask))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("keep")) &&
      (parser.parseRegion(*keep) || parseFactor("times", times)))
    return failure();
  auto &properties = result.getOrAddProperties<AttentionOp::Properties>();
  properties.scale = scale;
  properties.times = times;
  FunctionType type;
  if (parser.parseOptionalAttrDict(result.attributes) ||
      parser.parseColonType(type) ||
      parser.resolveOperands(operands, type.getInputs(), loc, result.operands))
    return failure();
  result.addTypes(type.getResults());
  return success();
}

void AttentionOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getQuery() << ", " << getKey() << ", " << getValue();
  if (FloatAttr scale = getScaleAttr()) {
    printer << " scale ";
    printer.printAttributeWithoutType(scale);
  }
  if (!getScore().empty()) {
    printer << " score ";
    printer.printRegion(getScore());
  }
  if (!getMask().empty()) {
    printer << " mask ";
    printer.printRegion(getMask());
  }
  if (!getKeep().empty()) {
    printer << " keep ";
    printer.printRegion(getKeep());
    if (FloatAttr times = getTimesAttr()) {
      printer << " times ";
      printer.printAttributeWithoutType(times);
    }
  }
  printer.printOptionalAttrDict((*this)->getAttrs(), {"scale", "times"});
  printer << " : ";
  printer.printFunctionalType(*this);
}

/// Computes sizes of captured tensors before the op: they are the same for all
/// elements, and not every target can ask for them while it computes one.
static void hoistSizes(OpBuilder &builder, AttentionOp op) {
  SmallVector<tensor::DimOp> dims;
  op->walk([&](tensor::DimOp dim) {
    if (dim.getConstantIndex() &&
        !op->isAncestor(dim.getSource().getParentRegion()->getParentOp()))
      dims.push_back(dim);
  });
  builder.setInsertionPoint(op);
  for (tensor::DimOp dim : dims) {
    dim.replaceAllUsesWith(tensor::DimOp::create(builder, dim.getLoc(),
                                                 dim.getSource(),
                                                 *dim.getConstantIndex())
                               .getResult());
    dim.erase();
  }
}

/// An index that is cast from 64 bits would wrap where it has 32: what lies
/// beyond these is moved to their border, which is outside of any tensor.
static Value saturateCast(OpBuilder &builder, Value index) {
  auto cast = index.getDefiningOp<arith::IndexCastOp>();
  if (!cast || !cast.getIn().getType().isInteger(64))
    return index;
  constexpr int64_t last = std::numeric_limits<int32_t>::max();
  auto isNarrow = [](Value v) {
    IntegerAttr bound;
    return matchPattern(v, m_Constant(&bound)) && bound.getInt() >= -last - 1 &&
           bound.getInt() <= last;
  };
  Value wide = cast.getIn();
  Operation *def = wide.getDefiningOp();
  if (isNarrow(wide) || (isa_and_present<arith::MinSIOp, arith::MaxSIOp>(def) &&
                         isNarrow(def->getOperand(1))))
    return index;
  auto bound = [&](int64_t value) -> Value {
    return arith::ConstantIntOp::create(builder, cast.getLoc(), value, 64);
  };
  wide = arith::MinSIOp::create(builder, cast.getLoc(), wide, bound(last));
  wide = arith::MaxSIOp::create(builder, cast.getLoc(), wide, bound(-last - 1));
  return arith::IndexCastOp::create(builder, cast.getLoc(), index.getType(),
                                    wide);
}

void AttentionOp::clampCapturedIndices(OpBuilder &builder) {
  OpBuilder::InsertionGuard guard(builder);
  getOperation()->walk([&](tensor::ExtractOp read) {
    Location loc = read.getLoc();
    builder.setInsertionPoint(read);
    Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
    Value one = arith::ConstantIndexOp::create(builder, loc, 1);
    for (auto [dim, index] : llvm::enumerate(read.getIndices())) {
      Value size = tensor::DimOp::create(builder, loc, read.getTensor(), dim);
      Value last = arith::SubIOp::create(builder, loc, size, one);
      Value upper = arith::MinSIOp::create(builder, loc,
                                           saturateCast(builder, index), last);
      Value inside = arith::MaxSIOp::create(builder, loc, upper, zero);
      read.getIndicesMutable()[dim].assign(inside);
    }
  });
  hoistSizes(builder, *this);
}

/// A dimension that two operands or results must agree on.
static LogicalResult verifySameDim(AttentionOp op, StringRef what,
                                   StringRef aName, RankedTensorType a,
                                   unsigned aDim, StringRef bName,
                                   RankedTensorType b, unsigned bDim) {
  int64_t x = a.getDimSize(aDim), y = b.getDimSize(bDim);
  if (x == y || ShapedType::isDynamic(x) || ShapedType::isDynamic(y))
    return success();
  return op.emitOpError() << "expected " << aName << " and " << bName
                          << " to have the same " << what << ", got " << x
                          << " and " << y << " (fa_attention_c4)";
}

static LogicalResult verifyRanksAndTypes(AttentionOp op) {
  std::pair<StringRef, RankedTensorType> types[] = {
      {"query", op.getQuery().getType()},
      {"key", op.getKey().getType()},
      {"value", op.getValue().getType()},
      {"out", op.getOut().getType()}};
  for (auto &[name, type] : types) {
    if (type.getRank() != 4)
      return op.emitOpError()
             << "expected " << name << " of rank 4 [B,H,S,D], got rank "
             << type.getRank() << " (fa_attention_c1)";
    if (type.getElementType() != op.getElementType())
      return op.emitOpError() << "expected " << name << " of element type "
                              << op.getElementType() << " like query, got "
                              << type.getElementType() << " (fa_attention_c1)";
  }
  if (op.getLse() && op.getLse().getType().getRank() != 3)
    return op.emitOpError()
           << "expected lse of rank 3 [B,Hq,Sq], got rank "
           << op.getLse().getType().getRank() << " (fa_attention_c1)";
  return success();
}

static LogicalResult verifyHeads(AttentionOp op) {
  RankedTensorType query = op.getQuery().getType(), key = op.getKey().getType(),
                   value = op.getValue().getType();
  std::tuple<StringRef, RankedTensorType, unsigned> dims[] = {
      {"query heads", query, 1}, {"key heads", key, 1},
      {"value heads", value, 1}, {"query head dim", query, 3},
      {"key head dim", key, 3},  {"value head dim", value, 3}};
  for (auto &[name, type, dim] : dims)
    if (type.isDynamicDim(dim))
      return op.emitOpError() << "expected a static number for " << name
                              << ", got a dynamic dimension; only batch and "
                                 "lengths may be dynamic (fa_attention_c2)";
  int64_t hq = op.getNumQueryHeads(), hk = op.getNumKeyHeads();
  if (hk == 0 || hq == 0 || hq % hk != 0)
    return op.emitOpError()
           << "expected the number of key heads to divide the number of query "
              "heads, got "
           << hk << " and " << hq << " (fa_attention_c2)";
  std::pair<StringRef, int64_t> headDims[] = {{"head dim", op.getHeadDim()},
                                              {"value dim", op.getValueDim()}};
  for (auto &[name, size] : headDims)
    if (size < 1 || size > AttentionOp::kMaxHeadDim)
      return op.emitOpError()
             << "expected a " << name << " in [1, " << AttentionOp::kMaxHeadDim
             << "], got " << size
             << "; use heads of a size in it (fa_attention_c3)";
  return success();
}

/// Offsets into a tensor are 64 bits, with room for a tile beyond its end.
static LogicalResult verifySize(AttentionOp op, StringRef name,
                                RankedTensorType type) {
  int64_t elements = 1;
  for (int64_t size : type.getShape()) {
    if (ShapedType::isDynamic(size) || size == 0)
      continue;
    if (size > AttentionOp::kMaxElements / elements)
      return op.emitOpError()
             << "expected " << name << " of at most "
             << AttentionOp::kMaxElements << " elements, got " << type
             << "; split the batch, the heads or the length (fa_attention_c3)";
    elements *= size;
  }
  return success();
}

/// Coordinates are what kernels and analyses count with.
static LogicalResult verifyExtents(Operation *op, StringRef name,
                                   RankedTensorType type) {
  for (int64_t size : type.getShape())
    if (size > kMaxExtent)
      return op->emitOpError()
             << "expected sizes of " << name << " of at most " << kMaxExtent
             << " (2^30 - 1), got " << type
             << "; kernels count with 32 bits: split it, or give a captured "
                "tensor more dimensions and indices (fa_attention_c3)";
  return success();
}

static LogicalResult verifyShapes(AttentionOp op) {
  RankedTensorType q = op.getQuery().getType(), k = op.getKey().getType(),
                   v = op.getValue().getType(), o = op.getOut().getType();
  if (failed(verifySize(op, "query", q)) || failed(verifySize(op, "key", k)) ||
      failed(verifySize(op, "value", v)) || failed(verifySize(op, "out", o)) ||
      failed(verifyExtents(op, "query", q)) ||
      failed(verifyExtents(op, "key", k)) ||
      failed(verifyExtents(op, "value", v)) ||
      failed(verifyExtents(op, "out", o)))
    return failure();
  if (failed(verifySameDim(op, "batch size", "query", q, 0, "key", k, 0)) ||
      failed(verifySameDim(op, "batch size", "key", k, 0, "value", v, 0)) ||
      failed(verifySameDim(op, "batch size", "query", q, 0, "value", v, 0)) ||
      failed(verifySameDim(op, "batch size", "query", q, 0, "out", o, 0)) ||
      failed(
          verifySameDim(op, "number of heads", "key", k, 1, "value", v, 1)) ||
      failed(
          verifySameDim(op, "number of heads", "query", q, 1, "out", o, 1)) ||
      failed(verifySameDim(op, "length", "key", k, 2, "value", v, 2)) ||
      failed(verifySameDim(op, "length", "query", q, 2, "out", o, 2)) ||
      failed(verifySameDim(op, "head dim", "query", q, 3, "key", k, 3)) ||
      failed(verifySameDim(op, "head dim", "value", v, 3, "out", o, 3)))
    return failure();
  // A result's dynamic dimensions are those of its operands.
  auto sameStaticness = [&](StringRef name, RankedTensorType a, unsigned aDim,
                            RankedTensorType b, unsigned bDim) {
    if (a.isDynamicDim(aDim) == b.isDynamicDim(bDim))
      return success();
    return LogicalResult(op.emitOpError()
                         << "expected dimension " << aDim << " of " << name
                         << " to be static exactly where its operand's is"
                            " (fa_attention_c4)");
  };
  if (failed(sameStaticness("out", o, 0, q, 0)) ||
      failed(sameStaticness("out", o, 2, q, 2)))
    return failure();
  if (o.isDynamicDim(1) || o.isDynamicDim(3))
    return op.emitOpError("expected a static number of heads and value dim in"
                          " out (fa_attention_c4)");
  if (!op.getLse())
    return success();
  RankedTensorType lse = op.getLse().getType();
  if (failed(verifySameDim(op, "batch size", "query", q, 0, "lse", lse, 0)) ||
      failed(
          verifySameDim(op, "number of heads", "query", q, 1, "lse", lse, 1)) ||
      failed(verifySameDim(op, "length", "query", q, 2, "lse", lse, 2)) ||
      failed(sameStaticness("lse", lse, 0, q, 0)) ||
      failed(sameStaticness("lse", lse, 2, q, 2)))
    return failure();
  if (lse.isDynamicDim(1))
    return op.emitOpError("expected a static number of heads in lse"
                          " (fa_attention_c4)");
  return success();
}

LogicalResult AttentionOp::verify() {
  if (failed(verifyRanksAndTypes(*this)) || failed(verifyHeads(*this)) ||
      failed(verifyShapes(*this)))
    return failure();
  std::tuple<StringRef, std::optional<APFloat>, StringRef> factors[] = {
      {"scale", getScale(), "1/sqrt(D)"}, {"times", getTimes(), "1"}};
  for (auto &[name, factor, otherwise] : factors)
    if (factor && !factor->isFinite())
      return emitOpError() << "expected a finite " << name << ", got "
                           << (factor->isNaN()        ? "nan"
                               : factor->isNegative() ? "-inf"
                                                      : "inf")
                           << "; give a finite number or leave it out for "
                           << otherwise << " (fa_attention_c5)";
  if (getTimes() && getKeep().empty())
    return emitOpError("expected times only with a keep region; scale the "
                       "values instead (fa_attention_c5)");
  return success();
}

/// Checks one region's arguments, its yield and that its ops are pure.
static LogicalResult verifyFunctionRegion(AttentionOp op, Region &region,
                                          StringRef name, TypeRange arguments,
                                          Type yielded) {
  if (region.empty())
    return success();
  Block &block = region.front();
  if (!llvm::equal(block.getArgumentTypes(), arguments)) {
    InFlightDiagnostic diag = op.emitOpError()
                              << "expected the " << name << " region to take (";
    llvm::interleaveComma(arguments, diag);
    diag << "), got (";
    llvm::interleaveComma(block.getArgumentTypes(), diag);
    return diag << ") (fa_attention_c6)";
  }
  auto yield = block.empty() ? YieldOp() : dyn_cast<YieldOp>(block.back());
  if (!yield)
    return op.emitOpError() << "expected the " << name
                            << " region to end in fa.yield (fa_attention_c6)";
  if (yield.getResult().getType() != yielded)
    return yield.emitOpError()
           << "expected the " << name << " region to yield " << yielded
           << ", got " << yield.getResult().getType() << " (fa_attention_c6)";
  for (Operation &inner : block)
    if (!isMemoryEffectFree(&inner) ||
        inner.hasTrait<OpTrait::IsIsolatedFromAbove>())
      return inner.emitOpError()
             << "has side effects or is not understood in a " << name
             << " region; only pure arith, math, scf.if and tensor.extract "
                "ops may be used there (fa_attention_c6)";
  return success();
}

LogicalResult AttentionOp::verifyRegions() {
  Builder b(getContext());
  Type index = b.getIndexType();
  if (failed(verifyFunctionRegion(*this, getScore(), "score",
                                  {b.getF32Type(), index, index, index, index},
                                  b.getF32Type())))
    return failure();
  for (auto [name, region] :
       {std::pair<StringRef, Region *>("mask", &getMask()),
        std::pair<StringRef, Region *>("keep", &getKeep())})
    if (failed(verifyFunctionRegion(
            *this, *region, name, {index, index, index, index}, b.getI1Type())))
      return failure();
  WalkResult walk = getOperation()->walk([](tensor::ExtractOp read) {
    return WalkResult(
        verifyExtents(read, "a captured tensor", read.getTensor().getType()));
  });
  return failure(walk.wasInterrupted());
}
