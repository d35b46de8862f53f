// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AttentionCommon.h"

#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Limits.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace fa;

Type fa::getComputeType(Type elementType) {
  return elementType.isF64() ? elementType
                             : Float32Type::get(elementType.getContext());
}

double fa::scaleOrDefault(std::optional<APFloat> scale, int64_t headDim) {
  return scale ? scale->convertToDouble()
               : 1.0 / std::sqrt(static_cast<double>(headDim));
}

//===----------------------------------------------------------------------===//
// Syntax
//===----------------------------------------------------------------------===//

ParseResult fa::parseFunctions(OpAsmParser &parser, Region &score, Region &mask,
                               Region &keep, FloatAttr &scale,
                               FloatAttr &times) {
  auto parseFactor = [&](StringRef keyword, FloatAttr &factor) -> ParseResult {
    if (failed(parser.parseOptionalKeyword(keyword)))
      return success();
    return parser.parseAttribute(factor, parser.getBuilder().getF64Type());
  };
  if (parseFactor("scale", scale))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("score")) &&
      parser.parseRegion(score))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("mask")) &&
      parser.parseRegion(mask))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("keep")) &&
      (parser.parseRegion(keep) || parseFactor("times", times)))
    return failure();
  return success();
}

void fa::printFunctions(OpAsmPrinter &printer, Region &score, Region &mask,
                        Region &keep, FloatAttr scale, FloatAttr times) {
  if (scale) {
    printer << " scale ";
    printer.printAttributeWithoutType(scale);
  }
  if (!score.empty()) {
    printer << " score ";
    printer.printRegion(score);
  }
  if (!mask.empty()) {
    printer << " mask ";
    printer.printRegion(mask);
  }
  if (!keep.empty()) {
    printer << " keep ";
    printer.printRegion(keep);
    if (times) {
      printer << " times ";
      printer.printAttributeWithoutType(times);
    }
  }
}

//===----------------------------------------------------------------------===//
// Indices of captured tensors
//===----------------------------------------------------------------------===//

/// Computes sizes of captured tensors before the op: they are the same for all
/// elements, and not every target can ask for them while it computes one.
static void hoistSizes(OpBuilder &builder, Operation *op) {
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
  // A bound on one side leaves the other one open.
  auto outer = wide.getDefiningOp();
  auto isBound = [&](Operation *op) {
    return isa_and_present<arith::MinSIOp, arith::MaxSIOp>(op) &&
           isNarrow(op->getOperand(1));
  };
  Operation *inner =
      isBound(outer) ? outer->getOperand(0).getDefiningOp() : nullptr;
  if (isNarrow(wide) ||
      (isBound(inner) && inner->getName() != outer->getName()))
    return index;
  auto bound = [&](int64_t value) -> Value {
    return arith::ConstantIntOp::create(builder, cast.getLoc(), value, 64);
  };
  wide = arith::MinSIOp::create(builder, cast.getLoc(), wide, bound(last));
  wide = arith::MaxSIOp::create(builder, cast.getLoc(), wide, bound(-last - 1));
  return arith::IndexCastOp::create(builder, cast.getLoc(), index.getType(),
                                    wide);
}

/// An index of a dimension, moved into it.
static Value clampIndex(OpBuilder &builder, Location loc, Value tensor,
                        int64_t dim, Value index) {
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  Value one = arith::ConstantIndexOp::create(builder, loc, 1);
  Value size = tensor::DimOp::create(builder, loc, tensor, dim);
  Value last = arith::SubIOp::create(builder, loc, size, one);
  Value upper =
      arith::MinSIOp::create(builder, loc, saturateCast(builder, index), last);
  return arith::MaxSIOp::create(builder, loc, upper, zero);
}

void fa::clampIndices(OpBuilder &builder, Operation *op) {
  OpBuilder::InsertionGuard guard(builder);
  op->walk([&](tensor::ExtractOp read) {
    builder.setInsertionPoint(read);
    for (auto [dim, index] : llvm::enumerate(read.getIndices()))
      read.getIndicesMutable()[dim].assign(
          clampIndex(builder, read.getLoc(), read.getTensor(), dim, index));
  });
  op->walk([&](YieldAdjointOp yield) {
    auto backward = cast<AttentionBackwardOp>(yield->getParentOp());
    builder.setInsertionPoint(yield);
    unsigned at = 0;
    for (int64_t to : yield.getTo()) {
      Value tensor = backward.getWrt()[to];
      int64_t rank = cast<RankedTensorType>(tensor.getType()).getRank();
      for (int64_t dim = 0; dim < rank; ++dim, ++at)
        yield.getAtMutable()[at].assign(clampIndex(
            builder, yield.getLoc(), tensor, dim, yield.getAt()[at]));
    }
  });
  hoistSizes(builder, op);
}

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

/// A dimension that two operands or results must agree on.
static LogicalResult verifySameDim(const AttentionTypes &t, StringRef what,
                                   StringRef aName, RankedTensorType a,
                                   unsigned aDim, StringRef bName,
                                   RankedTensorType b, unsigned bDim) {
  int64_t x = a.getDimSize(aDim), y = b.getDimSize(bDim);
  if (x == y || ShapedType::isDynamic(x) || ShapedType::isDynamic(y))
    return success();
  return t.op->emitOpError()
         << "expected " << aName << " and " << bName << " to have the same "
         << what << ", got " << x << " and " << y << " (fa_attention_c4)";
}

LogicalResult fa::verifyComputeType(Operation *op, Type elementType,
                                    StringRef name, Type type,
                                    StringRef label) {
  Type expected = getComputeType(elementType), got = getElementTypeOrSelf(type);
  if (got == expected)
    return success();
  return op->emitOpError() << "expected " << name << " of element type "
                           << expected << ", which " << elementType
                           << " is computed in, got " << got << " (" << label
                           << ")";
}

static LogicalResult verifyRanksAndTypes(const AttentionTypes &t) {
  std::pair<StringRef, RankedTensorType> types[] = {
      {"query", t.query}, {"key", t.key}, {"value", t.value}, {"out", t.out}};
  for (auto &[name, type] : types) {
    if (type.getRank() != 4)
      return t.op->emitOpError()
             << "expected " << name << " of rank 4 [B,H,S,D], got rank "
             << type.getRank() << " (fa_attention_c1)";
    if (type.getElementType() != t.query.getElementType())
      return t.op->emitOpError()
             << "expected " << name << " of element type "
             << t.query.getElementType() << " like query, got "
             << type.getElementType() << " (fa_attention_c1)";
  }
  if (t.lse && t.lse.getRank() != 3)
    return t.op->emitOpError() << "expected lse of rank 3 [B,Hq,Sq], got rank "
                               << t.lse.getRank() << " (fa_attention_c1)";
  if (t.lse)
    return verifyComputeType(t.op, t.query.getElementType(), "lse", t.lse,
                             "fa_attention_c1");
  return success();
}

static LogicalResult verifyHeads(const AttentionTypes &t) {
  RankedTensorType query = t.query, key = t.key, value = t.value;
  std::tuple<StringRef, RankedTensorType, unsigned> dims[] = {
      {"query heads", query, 1}, {"key heads", key, 1},
      {"value heads", value, 1}, {"query head dim", query, 3},
      {"key head dim", key, 3},  {"value head dim", value, 3}};
  for (auto &[name, type, dim] : dims)
    if (type.isDynamicDim(dim))
      return t.op->emitOpError() << "expected a static number for " << name
                                 << ", got a dynamic dimension; only batch and "
                                    "lengths may be dynamic (fa_attention_c2)";
  int64_t hq = t.query.getDimSize(1), hk = t.key.getDimSize(1);
  if (hk == 0 || hq == 0 || hq % hk != 0)
    return t.op->emitOpError()
           << "expected the number of key heads to divide the number of query "
              "heads, got "
           << hk << " and " << hq << " (fa_attention_c2)";
  std::pair<StringRef, int64_t> headDims[] = {
      {"head dim", t.query.getDimSize(3)},
      {"value dim", t.value.getDimSize(3)}};
  for (auto &[name, size] : headDims)
    if (size < 1 || size > AttentionOp::kMaxHeadDim)
      return t.op->emitOpError()
             << "expected a " << name << " in [1, " << AttentionOp::kMaxHeadDim
             << "], got " << size
             << "; use heads of a size in it (fa_attention_c3)";
  return success();
}

/// Offsets into a tensor are 64 bits, with room for a tile beyond its end.
static LogicalResult verifySize(const AttentionTypes &t, StringRef name,
                                RankedTensorType type) {
  int64_t elements = 1;
  for (int64_t size : type.getShape()) {
    if (ShapedType::isDynamic(size) || size == 0)
      continue;
    if (size > AttentionOp::kMaxElements / elements)
      return t.op->emitOpError()
             << "expected " << name << " of at most "
             << AttentionOp::kMaxElements << " elements, got " << type
             << "; split the batch, the heads or the length (fa_attention_c3)";
    elements *= size;
  }
  return success();
}

/// Coordinates are what kernels and analyses count with.
LogicalResult fa::verifyExtents(Operation *op, StringRef name,
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

static LogicalResult verifyShapes(const AttentionTypes &t) {
  RankedTensorType q = t.query, k = t.key, v = t.value, o = t.out;
  std::pair<StringRef, RankedTensorType> types[] = {
      {"query", q}, {"key", k}, {"value", v}, {"out", o}};
  for (auto &[name, type] : types)
    if (failed(verifySize(t, name, type)))
      return failure();
  for (auto &[name, type] : types)
    if (failed(verifyExtents(t.op, name, type)))
      return failure();
  if (failed(verifySameDim(t, "batch size", "query", q, 0, "key", k, 0)) ||
      failed(verifySameDim(t, "batch size", "key", k, 0, "value", v, 0)) ||
      failed(verifySameDim(t, "batch size", "query", q, 0, "value", v, 0)) ||
      failed(verifySameDim(t, "batch size", "query", q, 0, "out", o, 0)) ||
      failed(verifySameDim(t, "number of heads", "key", k, 1, "value", v, 1)) ||
      failed(verifySameDim(t, "number of heads", "query", q, 1, "out", o, 1)) ||
      failed(verifySameDim(t, "length", "key", k, 2, "value", v, 2)) ||
      failed(verifySameDim(t, "length", "query", q, 2, "out", o, 2)) ||
      failed(verifySameDim(t, "head dim", "query", q, 3, "key", k, 3)) ||
      failed(verifySameDim(t, "head dim", "value", v, 3, "out", o, 3)))
    return failure();
  // A result's dynamic dimensions are those of its operands.
  auto sameStaticness = [&](StringRef name, RankedTensorType a, unsigned aDim,
                            RankedTensorType b, unsigned bDim) {
    if (a.isDynamicDim(aDim) == b.isDynamicDim(bDim))
      return success();
    return LogicalResult(t.op->emitOpError()
                         << "expected dimension " << aDim << " of " << name
                         << " to be static exactly where its operand's is"
                            " (fa_attention_c4)");
  };
  if (failed(sameStaticness("out", o, 0, q, 0)) ||
      failed(sameStaticness("out", o, 2, q, 2)))
    return failure();
  if (o.isDynamicDim(1) || o.isDynamicDim(3))
    return t.op->emitOpError(
        "expected a static number of heads and value dim in"
        " out (fa_attention_c4)");
  if (!t.lse)
    return success();
  RankedTensorType lse = t.lse;
  if (failed(verifySameDim(t, "batch size", "query", q, 0, "lse", lse, 0)) ||
      failed(
          verifySameDim(t, "number of heads", "query", q, 1, "lse", lse, 1)) ||
      failed(verifySameDim(t, "length", "query", q, 2, "lse", lse, 2)) ||
      failed(sameStaticness("lse", lse, 0, q, 0)) ||
      failed(sameStaticness("lse", lse, 2, q, 2)))
    return failure();
  if (lse.isDynamicDim(1))
    return t.op->emitOpError("expected a static number of heads in lse"
                             " (fa_attention_c4)");
  return success();
}

LogicalResult fa::verifyTypes(const AttentionTypes &t) {
  if (failed(verifyRanksAndTypes(t)) || failed(verifyHeads(t)))
    return failure();
  return verifyShapes(t);
}

LogicalResult fa::verifyFactors(Operation *op, std::optional<APFloat> scale,
                                std::optional<APFloat> times, bool keeps) {
  std::tuple<StringRef, std::optional<APFloat>, StringRef> factors[] = {
      {"scale", scale, "1/sqrt(D)"}, {"times", times, "1"}};
  for (auto &[name, factor, otherwise] : factors)
    if (factor && !factor->isFinite())
      return op->emitOpError() << "expected a finite " << name << ", got "
                               << (factor->isNaN()        ? "nan"
                                   : factor->isNegative() ? "-inf"
                                                          : "inf")
                               << "; give a finite number or leave it out for "
                               << otherwise << " (fa_attention_c5)";
  if (times && !keeps)
    return op->emitOpError("expected times only with a keep region; scale the "
                           "values instead (fa_attention_c5)");
  return success();
}

LogicalResult fa::verifyRegionIsPure(Region &region, StringRef name,
                                     StringRef remedy) {
  for (Operation &inner : region.front())
    if (!isMemoryEffectFree(&inner) ||
        inner.hasTrait<OpTrait::IsIsolatedFromAbove>())
      return inner.emitOpError()
             << "has side effects or is not understood in a " << name
             << " region; " << remedy;
  return success();
}

bool fa::sizesDiffer(int64_t a, int64_t b) {
  return a != b && !ShapedType::isDynamic(a) && !ShapedType::isDynamic(b);
}

LogicalResult fa::verifyLog2Scale(Operation *op, const APFloat &scale,
                                  StringRef label) {
  if (scale.isFinite() && !scale.isZero() && !scale.isNegative())
    return success();
  return op->emitOpError() << "expected a finite log2_scale above 0, got "
                           << scale.convertToDouble() << " (" << label << ")";
}

LogicalResult fa::verifyKeep(Operation *op, MutableArrayRef<Region> regions) {
  if (regions.empty())
    return success();
  if (regions.size() > 1)
    return op->emitOpError()
           << "expected at most one keep region, got " << regions.size();
  Block &block = regions.front().front();
  Type index = IndexType::get(op->getContext());
  if (!llvm::equal(block.getArgumentTypes(), ArrayRef<Type>{index, index}))
    return op->emitOpError()
           << "expected the keep region to take two indices, row and column, "
              "got "
           << block.getNumArguments() << " arguments";
  auto yield = block.empty() ? YieldOp() : dyn_cast<YieldOp>(block.back());
  if (!yield || !yield.getResult().getType().isInteger(1))
    return op->emitOpError(
        "expected the keep region to end in fa.yield of an i1");
  return verifyRegionIsPure(regions.front(), "keep");
}

bool fa::keepsAll(Region &keep) {
  return matchPattern(keep.front().getTerminator()->getOperand(0), m_One());
}

Value fa::keepWeights(OpBuilder &builder, Region &keep, Value matrix) {
  if (keepsAll(keep))
    return matrix;
  return SoftmaxBuilder(builder, matrix.getLoc())
      .keep(matrix, [&](OpBuilder &nested, ValueRange at) {
        return inlineRegion(nested, keep, at);
      });
}

void fa::cloneShifted(OpBuilder &b, Location loc, Region &from, Region &to,
                      unsigned first, ArrayRef<OpFoldResult> offsets) {
  OpBuilder::InsertionGuard guard(b);
  Block &block = from.front();
  SmallVector<Location> locations(block.getNumArguments(), loc);
  Block *copy = b.createBlock(&to, {}, block.getArgumentTypes(), locations);
  IRMapping map;
  map.map(block.getArguments(), copy->getArguments());
  for (unsigned d = 0; d < 2; ++d)
    map.map(block.getArgument(first + d),
            b.createOrFold<arith::AddIOp>(
                loc, copy->getArgument(first + d),
                getValueOrCreateConstantIndexOp(b, loc, offsets[d])));
  for (Operation &op : block)
    b.clone(op, map);
}

LogicalResult fa::verifyAdds(YieldAdjointOp yield, Type computeType,
                             ValueRange gradients, StringRef label) {
  SmallVector<Value> yielded = {yield.getGrad()};
  llvm::append_range(yielded, yield.getTerms());
  for (Value v : yielded)
    if (v.getType() != computeType)
      return yield.emitOpError()
             << "expected " << computeType << ", which is computed in, got "
             << v.getType() << " (" << label << ")";
  if (yield.getTo().size() != yield.getTerms().size())
    return yield.emitOpError() << "expected a captured tensor for each of "
                               << yield.getTerms().size() << " terms, got "
                               << yield.getTo().size() << " (" << label << ")";
  int64_t indices = 0, count = gradients.size();
  for (int64_t to : yield.getTo()) {
    if (to < 0 || to >= count)
      return yield.emitOpError()
             << "expected the number of one of " << count
             << " captured tensors, got " << to << " (" << label << ")";
    indices += cast<RankedTensorType>(gradients[to].getType()).getRank();
  }
  if (static_cast<int64_t>(yield.getAt().size()) != indices)
    return yield.emitOpError() << "expected " << indices
                               << " indices, one for each dimension of the "
                                  "tensor that is added to, got "
                               << yield.getAt().size() << " (" << label << ")";
  return success();
}

LogicalResult fa::verifyRegionArguments(Operation *op, Region &region,
                                        StringRef name, TypeRange arguments) {
  if (llvm::equal(region.front().getArgumentTypes(), arguments))
    return success();
  InFlightDiagnostic diag = op->emitOpError()
                            << "expected the " << name << " region to take (";
  llvm::interleaveComma(arguments, diag);
  diag << "), got (";
  llvm::interleaveComma(region.front().getArgumentTypes(), diag);
  return diag << ") (fa_attention_c6)";
}

static constexpr StringLiteral kPureFunctions =
    "only pure arith, math, scf.if and tensor.extract ops may be used there "
    "(fa_attention_c6)";

/// Checks one region's arguments, its yield and that its ops are pure.
static LogicalResult verifyFunctionRegion(Operation *op, Region &region,
                                          StringRef name, TypeRange arguments,
                                          Type yielded) {
  if (region.empty())
    return success();
  if (failed(verifyRegionArguments(op, region, name, arguments)))
    return failure();
  Block &block = region.front();
  auto yield = block.empty() ? YieldOp() : dyn_cast<YieldOp>(block.back());
  if (!yield)
    return op->emitOpError() << "expected the " << name
                             << " region to end in fa.yield (fa_attention_c6)";
  if (yield.getResult().getType() != yielded)
    return yield.emitOpError()
           << "expected the " << name << " region to yield " << yielded
           << ", got " << yield.getResult().getType() << " (fa_attention_c6)";
  return verifyRegionIsPure(region, name, kPureFunctions);
}

LogicalResult fa::verifyFunctions(Operation *op, Type computeType,
                                  Region &score, Region &mask, Region &keep) {
  Builder b(op->getContext());
  Type index = b.getIndexType();
  Type coordinates[] = {index, index, index, index};
  if (failed(verifyFunctionRegion(op, score, "score",
                                  {computeType, index, index, index, index},
                                  computeType)) ||
      failed(
          verifyFunctionRegion(op, mask, "mask", coordinates, b.getI1Type())) ||
      failed(
          verifyFunctionRegion(op, keep, "keep", coordinates, b.getI1Type())))
    return failure();
  WalkResult walk = op->walk([](tensor::ExtractOp read) {
    return WalkResult(
        verifyExtents(read, "a captured tensor", read.getTensor().getType()));
  });
  return failure(walk.wasInterrupted());
}
