// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles that TMA can load, and lists that loops follow.

#include "Schedule.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

int64_t fa::nvidia::tileBytes(Value tile, bool isTurned) {
  auto type = cast<RankedTensorType>(tile.getType());
  return RingType::get(type.getContext(), 1, type, isTurned).tileBytes();
}

/// Whether an expression is 0 whatever its operands are.
static bool isZero(AffineExpr expr, ArrayRef<OpFoldResult> operands) {
  SmallVector<Value> values;
  SmallVector<AffineExpr> dims;
  for (OpFoldResult operand : operands) {
    if (std::optional<int64_t> known = getConstantIntValue(operand)) {
      dims.push_back(getAffineConstantExpr(*known, expr.getContext()));
      continue;
    }
    dims.push_back(getAffineDimExpr(values.size(), expr.getContext()));
    values.push_back(cast<Value>(operand));
  }
  AffineMap map = AffineMap::get(values.size(), 0, expr.replaceDims(dims));
  affine::fullyComposeAffineMapAndOperands(&map, &values);
  affine::canonicalizeMapAndOperands(&map, &values);
  return map.getResult(0) == getAffineConstantExpr(0, expr.getContext());
}

/// Whether a size is that of a tile, or less where the tensor ends: a TMA load
/// takes the tile's size, and zeros past the end. The end may be that of
/// another tensor, which is taken to be of equal size: keys and values are as
/// many. Sizes are compared as expressions, whatever is known of bounds: a loop
/// may never run.
static bool endsWithTensor(OpFoldResult size, int64_t tile, Value tensor,
                           int64_t dim, OpFoldResult offset) {
  if (std::optional<int64_t> known = getConstantIntValue(size);
      known && *known >= tile)
    return true;
  MLIRContext *context = tensor.getContext();
  auto least = isa<Value>(size)
                   ? cast<Value>(size).getDefiningOp<affine::AffineMinOp>()
                   : affine::AffineMinOp();
  AffineMap map = least ? least.getAffineMap()
                        : AffineMap::getMultiDimIdentityMap(1, context);
  SmallVector<OpFoldResult> operands{size};
  if (least)
    operands = getAsOpFoldResult(least.getOperands());
  SmallVector<OpFoldResult> ends;
  int64_t length = cast<RankedTensorType>(tensor.getType()).getDimSize(dim);
  if (!ShapedType::isDynamic(length))
    ends.push_back(IntegerAttr::get(IndexType::get(context), length));
  for (OpFoldResult operand : operands)
    if (auto value = dyn_cast<Value>(operand);
        value && value.getDefiningOp<tensor::DimOp>())
      ends.push_back(value);
  unsigned count = operands.size();
  SmallVector<AffineExpr> symbols;
  for (unsigned s = map.getNumDims(); s < count; ++s)
    symbols.push_back(getAffineDimExpr(s, context));
  AffineExpr end = getAffineDimExpr(count, context),
             start = getAffineDimExpr(count + 1, context);
  return llvm::all_of(map.getResults(), [&](AffineExpr result) {
    auto constant = dyn_cast<AffineConstantExpr>(result);
    if (constant && constant.getValue() >= tile)
      return true;
    AffineExpr own = result.replaceSymbols(symbols);
    return llvm::any_of(ends, [&](OpFoldResult of) {
      SmallVector<OpFoldResult> all(operands);
      all.append({of, offset});
      return isZero(own - (end - start), all);
    });
  });
}

bool fa::nvidia::canLoadByTMA(Value v, std::string &why) {
  auto type = cast<RankedTensorType>(v.getType());
  std::string name;
  llvm::raw_string_ostream(name) << type;
  if (!type.hasStaticShape() || type.getDimSize(0) > RingType::maxRows ||
      type.getDimSize(0) < 8 || type.getDimSize(0) % 8) {
    why = "expected a multiple of 8 rows, at most " +
          std::to_string(RingType::maxRows) + ", got the tile " + name;
    return false;
  }
  if (type.getDimSize(1) % 8 || type.getDimSize(1) < 8) {
    why = "rows of " + name + " are not whole chunks of 16 bytes";
    return false;
  }
  if (type.getDimSize(1) > RingType::maxCols) {
    why = "the tile " + name + " has more than " +
          std::to_string(RingType::maxCols) +
          " columns, of which 8 rows do not fit into shared memory";
    return false;
  }
  SmallVector<Operation *> chain = getLoadChain(v);
  for (Operation *op : chain)
    if (auto pad = dyn_cast<tensor::PadOp>(op)) {
      Value padding = pad.getConstantPaddingValue();
      if (!padding || !matchPattern(padding, m_AnyZeroFloat())) {
        why = "the tile " + name + " is not padded with zeros";
        return false;
      }
    }
  auto slice = cast<tensor::ExtractSliceOp>(chain.back());
  RankedTensorType base = slice.getSourceType();
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  bool last = base.getRank() <= 5 && !dropped.test(base.getRank() - 1);
  if (!last || isLoaded(slice.getSource())) {
    why = "the tile " + name +
          " is not a slice of rows along the last dimension of a tensor "
          "of rank 5 or less";
    return false;
  }
  unsigned kept = 0;
  for (int64_t dim = 0; dim < base.getRank(); ++dim) {
    if (dropped.test(dim))
      continue;
    if (endsWithTensor(slice.getMixedSizes()[dim], type.getDimSize(kept++),
                       slice.getSource(), dim, slice.getMixedOffsets()[dim]))
      continue;
    why = "the tile " + name +
          " is padded before its tensor ends, where TMA would load the rest";
    return false;
  }
  return true;
}

bool fa::nvidia::readsItsEnd(scf::ForOp loop) {
  SmallVector<Value> worklist = {loop.getUpperBound()};
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val().getDefiningOp();
    if (isa_and_nonnull<tensor::ExtractOp>(op))
      return true;
    if (op)
      llvm::append_range(worklist, op->getOperands());
  }
  return false;
}
