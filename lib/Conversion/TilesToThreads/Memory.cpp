// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles in global memory: slices, and loads into registers.

#include "KernelEmitter.h"

#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/ADT/SmallBitVector.h"
#include "llvm/Support/SaveAndRestore.h"

#include <numeric>

using namespace mlir;
using namespace fa::nvidia;

//===----------------------------------------------------------------------===//
// Slices
//===----------------------------------------------------------------------===//

/// A scalar at another value of a loop's induction variable (in \p map).
Value KernelEmitter::materialize(Value v, IRMapping &map, scf::ForOp loop) {
  if (Value known = map.lookupOrNull(v))
    return known;
  if (!loop || !loop.getRegion().isAncestor(v.getParentRegion()))
    return scalar(v);
  Operation *op = v.getDefiningOp();
  if (!op)
    return {};
  if (auto dim = dyn_cast<tensor::DimOp>(op)) {
    FailureOr<TileValue> source = tile(dim.getSource());
    std::optional<int64_t> d = dim.getConstantIndex();
    if (failed(source) || source->kind != TileValue::Kind::Global || !d)
      return {};
    return source->global->sizes[*d];
  }
  if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
    for (Value index : extract.getIndices()) {
      Value known = materialize(index, map, loop);
      if (!known)
        return {};
      map.map(index, known);
    }
    FailureOr<Value> element = emitExtract(extract, map);
    if (failed(element))
      return {};
    map.map(v, *element);
    return *element;
  }
  for (Value operand : op->getOperands())
    if (!materialize(operand, map, loop))
      return {};
  IRMapping operands;
  for (Value operand : op->getOperands())
    operands.map(operand, materialize(operand, map, loop));
  Operation *copy = b.clone(*op, operands);
  for (auto [from, to] : llvm::zip(op->getResults(), copy->getResults()))
    map.map(from, to);
  return map.lookup(v);
}

std::optional<GlobalSlice> fa::nvidia::inMemory(const TileValue &tensor,
                                                Value zero) {
  if (tensor.kind == TileValue::Kind::Slice)
    return tensor.slice;
  if (tensor.kind != TileValue::Kind::Global)
    return std::nullopt;
  GlobalSlice whole;
  whole.base = tensor.global;
  whole.valid = tensor.global->sizes;
  whole.offsets.assign(whole.valid.size(), zero);
  llvm::append_range(whole.dims, llvm::seq<unsigned>(0, whole.valid.size()));
  return whole;
}

FailureOr<GlobalSlice> KernelEmitter::cutSlice(
    const TileValue &source, OffsetSizeAndStrideOpInterface op,
    llvm::SmallBitVector dropped, IRMapping &map, scf::ForOp loop) {
  auto value = [&](OpFoldResult v) -> Value {
    if (std::optional<int64_t> c = getConstantIntValue(v))
      return index(*c);
    return materialize(cast<Value>(v), map, loop);
  };
  if (!llvm::all_of(op.getMixedStrides(),
                    [](OpFoldResult s) { return isConstantIntValue(s, 1); }))
    return op->emitOpError("expected slices of stride 1"), failure();
  std::optional<GlobalSlice> whole = inMemory(source, index(0));
  if (!whole)
    return op->emitOpError("expected a slice of a tensor in global memory"),
           failure();
  GlobalSlice slice;
  slice.base = whole->base;
  slice.offsets = whole->offsets;
  ArrayRef<unsigned> dims = whole->dims;
  for (auto [d, offset, size] :
       llvm::enumerate(op.getMixedOffsets(), op.getMixedSizes())) {
    Value by = value(offset);
    if (!by)
      return op->emitOpError("has an offset that a thread cannot compute"),
             failure();
    slice.offsets[dims[d]] = add(slice.offsets[dims[d]], by);
    if (dropped.test(d))
      continue;
    slice.dims.push_back(dims[d]);
    std::optional<int64_t> known = getConstantIntValue(size);
    slice.shape.push_back(known ? *known : ShapedType::kDynamic);
    slice.valid.push_back(known ? Value() : value(size));
    if (!known && !slice.valid.back())
      return op->emitOpError("has a size that a thread cannot compute"),
             failure();
  }
  return slice;
}

FailureOr<GlobalSlice> KernelEmitter::resolveSlice(Value v, IRMapping &map,
                                                   scf::ForOp loop) {
  Operation *op = v.getDefiningOp();
  auto type = cast<RankedTensorType>(v.getType());
  if (auto slice = dyn_cast_if_present<tensor::ExtractSliceOp>(op)) {
    FailureOr<TileValue> source = tile(slice.getSource());
    if (failed(source))
      return failure();
    if (source->kind != TileValue::Kind::Global &&
        source->kind != TileValue::Kind::Slice)
      return op->emitOpError("expected a slice of a tensor in global memory"),
             failure();
    return cutSlice(*source, cast<OffsetSizeAndStrideOpInterface>(op),
                    slice.getDroppedDims(), map, loop);
  }
  Value source;
  if (auto pad = dyn_cast_if_present<tensor::PadOp>(op))
    source = pad.getSource();
  else if (auto cast = dyn_cast_if_present<tensor::CastOp>(op))
    source = cast.getSource();
  else
    return mlir::emitError(v.getLoc(), "expected a slice of global memory"),
           failure();
  FailureOr<GlobalSlice> slice = resolveSlice(source, map, loop);
  if (failed(slice))
    return failure();
  for (auto [d, size] : llvm::enumerate(type.getShape())) {
    if (!slice->valid[d] && slice->shape[d] != size)
      slice->valid[d] = index(slice->shape[d]);
    slice->shape[d] = size;
  }
  if (auto pad = dyn_cast<tensor::PadOp>(op)) {
    if (!llvm::all_of(pad.getMixedLowPad(),
                      [](OpFoldResult l) { return isConstantIntValue(l, 0); }))
      return op->emitOpError("expected padding after the tile only"), failure();
    Value padding = pad.getConstantPaddingValue();
    if (!padding)
      return op->emitOpError("expected one padding value"), failure();
    slice->pad = materialize(padding, map, loop);
    if (!slice->pad)
      return failure();
  }
  return slice;
}

FailureOr<TileValue> KernelEmitter::tile(Value v) {
  auto it = tiles.find(v);
  if (it != tiles.end())
    return it->second;
  return mlir::emitError(v.getLoc(), "tensor is not available to the kernel"),
         failure();
}

void KernelEmitter::bindRegisters(Value v, ArrayRef<Value> regs,
                                  const FragmentLayout &layout) {
  TileValue t;
  t.kind = TileValue::Kind::Registers;
  t.layout = layout;
  t.regs.assign(regs.begin(), regs.end());
  t.valid.assign(hopper::getTileType(v.getType()).getRank(), Value());
  tiles[v] = t;
}

LogicalResult KernelEmitter::emitSlicing(Operation *op) {
  Value result = op->getResult(0);
  FailureOr<TileValue> source = tile(op->getOperand(0));
  if (failed(source))
    return failure();
  TileValue t;
  if (source->kind == TileValue::Kind::Global ||
      source->kind == TileValue::Kind::Slice) {
    if (isa<tensor::CastOp>(op) && source->kind == TileValue::Kind::Global) {
      tiles[result] = *source;
      return success();
    }
    IRMapping map;
    FailureOr<GlobalSlice> slice = resolveSlice(result, map, {});
    if (failed(slice))
      return failure();
    t.kind = TileValue::Kind::Slice;
    t.slice = *slice;
    tiles[result] = t;
    return success();
  }
  if (isa<tensor::CastOp>(op)) {
    tiles[result] = *source;
    return success();
  }
  auto slice = dyn_cast<tensor::ExtractSliceOp>(op);
  if (slice && slice.getType().getRank() == 1 &&
      slice.getSourceType().getRank() == 2)
    return emitColumn(slice);
  if (!slice || !llvm::all_of(slice.getMixedOffsets(), [](OpFoldResult o) {
        return isConstantIntValue(o, 0);
      }))
    return op->emitOpError("cannot be distributed: a tile in registers can "
                           "only lose its last rows and columns");
  // What is staged was distributed as the tile that it was made of.
  std::optional<FragmentLayout> layout =
      source->stage ? source->layout : view.layout(slice.getSource());
  if (!layout || slice.getType().getRank() != slice.getSourceType().getRank())
    return op->emitOpError("cannot be distributed");
  auto regs = registers(slice.getSource(), *layout);
  if (failed(regs))
    return failure();
  t.kind = TileValue::Kind::Registers;
  t.layout = *layout;
  t.regs = *regs;
  t.stage = source->stage;
  for (auto [d, size] : llvm::enumerate(slice.getMixedSizes())) {
    std::optional<int64_t> known = getConstantIntValue(size);
    bool whole = known && *known == slice.getSourceType().getDimSize(d);
    t.valid.push_back(whole   ? Value()
                      : known ? index(*known)
                              : scalar(cast<Value>(size)));
    if (!whole && !t.valid.back())
      return failure();
  }
  tiles[result] = t;
  return success();
}

/// The first column of a tile in registers, as a vector along its rows.
LogicalResult KernelEmitter::emitColumn(tensor::ExtractSliceOp op) {
  int64_t rows = op.getSourceType().getDimSize(0);
  bool first =
      op.getDroppedDims().test(1) && op.getType().getDimSize(0) == rows &&
      llvm::all_of(op.getMixedOffsets(),
                   [](OpFoldResult o) { return isConstantIntValue(o, 0); });
  std::optional<FragmentLayout> from = view.layout(op.getSource());
  if (!first || !from)
    return op->emitOpError("cannot be distributed: of the columns of a tile in "
                           "registers only the whole first one can be taken");
  auto regs = registers(op.getSource(), *from);
  if (failed(regs))
    return failure();
  Type type = op.getType().getElementType();
  // The first lane of a quad has it.
  Value leader = mulC(divC(lane(), 4), 4);
  FragmentLayout layout = from->alongRows();
  SmallVector<Value> column;
  for (unsigned v = 0; v < layout.numRegs(); ++v)
    column.push_back(NVVM::ShflOp::create(
        b, loc, type, i32(-1),
        element(*regs, from->reg(v / 2, 0, v % 2 * 2), type, *from), leader,
        i32(31), NVVM::ShflKind::idx, UnitAttr()));
  bindRegisters(op.getResult(), column, layout);
  return success();
}

//===----------------------------------------------------------------------===//
// Global memory and registers
//===----------------------------------------------------------------------===//

Value KernelEmitter::elementPointer(const GlobalTensor &tensor,
                                    ValueRange indices) {
  Value offset;
  for (auto [d, i] : llvm::enumerate(indices)) {
    Value term = toI64(i);
    if (d + 1 != indices.size())
      term = mul(term, tensor.strides[d]);
    offset = offset ? add(offset, term) : term;
  }
  if (!offset)
    return tensor.pointer;
  Type type = tensor.type.getElementType();
  if (type.isInteger(1))
    type = b.getI8Type();
  return LLVM::GEPOp::create(b, loc, globalPointer(), type, tensor.pointer,
                             ArrayRef<LLVM::GEPArg>{offset});
}

Value KernelEmitter::loadElement(Value pointer, Type type) {
  if (type.isInteger(1)) {
    Value byte = LLVM::LoadOp::create(b, loc, b.getI8Type(), pointer);
    return arith::TruncIOp::create(b, loc, type, byte);
  }
  return LLVM::LoadOp::create(b, loc, type, pointer);
}

void KernelEmitter::storeElement(Value value, Value pointer) {
  if (value.getType().isInteger(1))
    value = arith::ExtUIOp::create(b, loc, b.getI8Type(), value);
  LLVM::StoreOp::create(b, loc, value, pointer);
}

/// Whether an index of a read is inside the tensor: max(min(x, size - 1), 0).
static bool isClamped(tensor::ExtractOp op, unsigned d) {
  auto lower = op.getIndices()[d].getDefiningOp<arith::MaxSIOp>();
  auto upper =
      lower ? lower.getLhs().getDefiningOp<arith::MinSIOp>() : arith::MinSIOp();
  if (!upper || !isConstantIntValue(lower.getRhs(), 0))
    return false;
  int64_t size = op.getTensor().getType().getDimSize(d);
  if (!ShapedType::isDynamic(size))
    return getConstantIntValue(upper.getRhs()) == size - 1;
  auto last = upper.getRhs().getDefiningOp<arith::SubIOp>();
  auto dim =
      last ? last.getLhs().getDefiningOp<tensor::DimOp>() : tensor::DimOp();
  return dim && isConstantIntValue(last.getRhs(), 1) &&
         dim.getSource() == op.getTensor() && dim.getConstantIndex() == d;
}

/// A read of a captured tensor. Elements in the padding of a tile have
/// coordinates outside the tensor; their reads are moved to its border.
FailureOr<Value> KernelEmitter::emitExtract(tensor::ExtractOp op,
                                            IRMapping &map) {
  FailureOr<TileValue> source = tile(op.getTensor());
  if (failed(source))
    return failure();
  if (source->kind == TileValue::Kind::Splat)
    return source->splat;
  if (source->kind != TileValue::Kind::Global)
    return op->emitOpError("expected a tensor in global memory"), failure();
  SmallVector<Value> indices;
  for (auto [d, i] : llvm::enumerate(op.getIndices())) {
    Value v = map.lookupOrNull(i);
    if (!v && !(v = scalar(i)))
      return failure();
    if (!isClamped(op, d)) {
      Value last = addC(source->global->sizes[d], -1);
      v = b.createOrFold<arith::MinSIOp>(loc, v, last);
      v = b.createOrFold<arith::MaxSIOp>(loc, v, index(0));
    }
    indices.push_back(v);
  }
  return loadElement(elementPointer(*source->global, indices), op.getType());
}

Value KernelEmitter::clamp(Value coordinate, Value limit, Value &inside) {
  inside = both(inside, less(coordinate, limit));
  Value below =
      b.createOrFold<arith::MinSIOp>(loc, coordinate, addC(limit, -1));
  return b.createOrFold<arith::MaxSIOp>(loc, below, index(0));
}

/// The rows' elements, one by one or, where they are sure to be aligned, in
/// pairs of columns; and of two bytes each, eight columns together, after which
/// the threads that hold a row exchange them.
SmallVector<Value> KernelEmitter::loadRegisters(const GlobalSlice &slice,
                                                const FragmentLayout &layout) {
  SmallVector<Value> regs(layout.numRegs());
  Type type = slice.base->type.getElementType();
  unsigned bytes = type.getIntOrFloatBitWidth() / 8;
  bool pairs = layout.kind() == FragmentLayout::Kind::Accumulator &&
               takesPairs(slice, layout, slice.valid[1], bytes);
  unsigned chunks = pairs && bytes == 2 ? layout.colTiles() / 4 * 4 : 0;
  for (unsigned r = 0, e = layout.numRegs(); r < e; r += pairs ? 2 : 1) {
    if (regs[r])
      continue;
    unsigned colTile = pairs ? r / 4 % layout.colTiles() : 0;
    bool isChunk = colTile < chunks;
    SmallVector<Value> coords;
    if (Value row = rowOf(layout, r))
      coords.push_back(row);
    if (isChunk)
      coords.push_back(toIndex(chunkCol(layout, colTile)));
    else if (Value col = colOf(layout, r))
      coords.push_back(col);
    SmallVector<Value> indices(slice.offsets);
    Value inside;
    for (auto [d, c] : llvm::enumerate(coords)) {
      bool column = layout.kind() == FragmentLayout::Kind::Column || d == 1;
      Value limit = slice.valid[d];
      if (!limit && column && layout.cols() % 8)
        limit = index(layout.cols());
      if (limit)
        c = clamp(c, limit, inside);
      indices[slice.dims[d]] = add(indices[slice.dims[d]], c);
    }
    Value pointer = elementPointer(*slice.base, indices);
    auto keep = [&](unsigned reg, Value v) {
      regs[reg] = inside && slice.pad
                      ? arith::SelectOp::create(b, loc, inside, v, slice.pad)
                      : v;
    };
    auto keepPair = [&](unsigned reg, Value both) {
      for (unsigned i = 0; i < 2; ++i)
        keep(reg + i,
             LLVM::ExtractElementOp::create(b, loc, both, i32(i)).getResult());
    };
    VectorType pair = VectorType::get({2}, type);
    if (isChunk) {
      Value chunk = LLVM::LoadOp::create(
          b, loc, VectorType::get({4}, b.getI32Type()), pointer,
          /*alignment=*/16);
      SmallVector<Value> words;
      for (unsigned k = 0; k < 4; ++k)
        words.push_back(LLVM::ExtractElementOp::create(b, loc, chunk, i32(k)));
      for (auto [k, word] : llvm::enumerate(transposeQuad(words)))
        keepPair(r + 4 * k, LLVM::BitcastOp::create(b, loc, pair, word));
    } else if (pairs) {
      keepPair(r, LLVM::LoadOp::create(b, loc, pair, pointer,
                                       /*alignment=*/2 * bytes));
    } else {
      keep(r, loadElement(pointer, type));
    }
  }
  return regs;
}

FailureOr<SmallVector<Value>>
KernelEmitter::registers(Value v, const FragmentLayout &layout) {
  FailureOr<TileValue> t = tile(v);
  if (failed(t))
    return failure();
  Type type = getElementTypeOrSelf(v.getType());
  switch (t->kind) {
  case TileValue::Kind::Registers:
    if (!(t->layout == layout))
      return mlir::emitError(loc, "a tile is used in a layout that differs "
                                  "from the one it was computed in"),
             failure();
    return t->regs;
  case TileValue::Kind::Shared: {
    SmallVector<Value> regs(layout.numRegs());
    for (unsigned r = 0; r < regs.size(); ++r)
      if (!regs[r])
        loadShared(type, *t, r, regs);
    return isPacked(type, layout) ? packWords(regs) : regs;
  }
  case TileValue::Kind::Splat:
    if (isPacked(type, layout)) {
      SmallVector<Value> same(perWord(type, layout), t->splat);
      return SmallVector<Value>(numWords(type, layout),
                                packWords(same).front());
    }
    return SmallVector<Value>(layout.numRegs(), t->splat);
  case TileValue::Kind::Undefined: {
    if (isPacked(type, layout))
      return SmallVector<Value>(numWords(type, layout), i32(0));
    // Control flow that carries it needs no register for it.
    Value any = LLVM::PoisonOp::create(b, loc, type);
    return SmallVector<Value>(layout.numRegs(), any);
  }
  case TileValue::Kind::Global: {
    // All of a tensor is a tile, too: a slice that is the whole folds away.
    auto type = dyn_cast<RankedTensorType>(v.getType());
    if (!type || !type.hasStaticShape())
      break;
    t->slice.base = t->global;
    t->slice.shape.assign(type.getShape().begin(), type.getShape().end());
    t->slice.offsets.assign(type.getRank(), index(0));
    t->slice.valid.resize(type.getRank());
    t->slice.dims.resize(type.getRank());
    std::iota(t->slice.dims.begin(), t->slice.dims.end(), 0);
    [[fallthrough]];
  }
  case TileValue::Kind::Slice: {
    unsigned rank = layout.kind() == FragmentLayout::Kind::Accumulator ? 2 : 1;
    if (t->slice.dims.size() != rank)
      return mlir::emitError(loc, "expected a slice of rank ") << rank,
             failure();
    if (const SharedTile *load = view.load(v); load && load->layout.isVector())
      return loadVector(*load, layout);
    SmallVector<Value> loaded = loadRegisters(t->slice, layout);
    return isPacked(type, layout) ? packWords(loaded) : loaded;
  }
  }
  return mlir::emitError(v.getLoc(), "expected a tile, got a whole tensor of "
                                     "dynamic shape; slice it first"),
         failure();
}
