// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocks that only compute element by element of what they load: no thread
// holds a tile. Threads take elements one after the other, four that lie side
// by side in memory where these are sure to be aligned, and load some before
// they compute.

#include "Elements.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fa::nvidia;

/// Where elements of a slice lie, of which those outside are moved to its
/// border; and whether they are inside, null where all are.
std::pair<Value, Value> KernelEmitter::elementsPointer(const GlobalSlice &slice,
                                                       const Elements &at) {
  SmallVector<Value> indices(slice.offsets);
  Value inside;
  for (auto [d, dim] : llvm::enumerate(slice.dims)) {
    Value c = d == 0 ? at.row : at.col;
    if (Value limit = slice.valid[d])
      c = clamp(c, limit, inside);
    indices[dim] = add(indices[dim], c);
  }
  return {elementPointer(*slice.base, indices), inside};
}

/// Elements at a place, in memory or where they have been copied to.
SmallVector<Value> KernelEmitter::loadElements(Value pointer, Type type,
                                               unsigned width) {
  if (width == 1)
    return {loadElement(pointer, type)};
  unsigned bytes = type.getIntOrFloatBitWidth() / 8;
  Value all = LLVM::LoadOp::create(b, loc, VectorType::get({width}, type),
                                   pointer, /*alignment=*/width * bytes);
  SmallVector<Value> values;
  for (unsigned i = 0; i < width; ++i)
    values.push_back(LLVM::ExtractElementOp::create(b, loc, all, i32(i)));
  return values;
}

/// Padding where elements are not inside.
void KernelEmitter::padElements(MutableArrayRef<Value> values, Value inside,
                                const GlobalSlice &slice) {
  if (inside && slice.pad)
    for (Value &v : values)
      v = arith::SelectOp::create(b, loc, inside, v, slice.pad);
}

/// The part of a computed tile that lies inside the tensor; null for others.
static tensor::ExtractSliceOp cutOfComputed(Value v, const BlockView &view) {
  auto slice = v.getDefiningOp<tensor::ExtractSliceOp>();
  bool isOfMemory = slice && (view.isGlobal(slice.getSource()) ||
                              view.isLoaded(slice.getSource()));
  return isOfMemory ? tensor::ExtractSliceOp() : slice;
}

/// A tile's elements, computed of what they depend on.
FailureOr<SmallVector<Value>> KernelEmitter::elementsOf(Value v, Elements &at) {
  auto it = at.known.find(v);
  if (it != at.known.end())
    return it->second;
  SmallVector<Value> values;
  auto op = v.getDefiningOp<linalg::LinalgOp>();
  if (op && op.getNumReductionLoops()) {
    if (failed(reduceRow(op, at)))
      return failure();
    return at.known[v];
  }
  if (op && !isa<linalg::FillOp>(*op)) {
    if (failed(checkBody(op)))
      return failure();
    SmallVector<SmallVector<Value>> args;
    for (OpOperand &operand : op->getOpOperands()) {
      args.emplace_back(at.width);
      if (!op.payloadUsesValueFromOperand(&operand))
        continue;
      if (!isa<TensorType>(operand.get().getType())) {
        args.back().assign(at.width, scalar(operand.get()));
        continue;
      }
      auto elements = elementsOf(operand.get(), at);
      if (failed(elements))
        return failure();
      args.back() = *elements;
    }
    Value yielded = op.getBlock()->getTerminator()->getOperand(
        cast<OpResult>(v).getResultNumber());
    for (unsigned i = 0; i < at.width; ++i) {
      SmallVector<Value> ofOne;
      for (auto &values : args)
        ofOne.push_back(values[i]);
      auto computed = cloneBody(op, ofOne, yielded, at.row,
                                at.col ? addC(at.col, i) : Value());
      if (failed(computed))
        return failure();
      values.push_back(computed->front());
    }
  } else if (tensor::ExtractSliceOp slice = cutOfComputed(v, view)) {
    auto elements = elementsOf(slice.getSource(), at);
    if (failed(elements))
      return failure();
    values = *elements;
  } else {
    FailureOr<TileValue> t = tile(v);
    if (failed(t))
      return failure();
    if (t->kind == TileValue::Kind::Splat) {
      values.assign(at.width, t->splat);
    } else if (t->kind == TileValue::Kind::Slice) {
      auto [pointer, inside] = elementsPointer(t->slice, at);
      values =
          loadElements(pointer, t->slice.base->type.getElementType(), at.width);
      padElements(values, inside, t->slice);
    } else {
      return mlir::emitError(v.getLoc(), "expected a tile of memory"),
             failure();
    }
  }
  at.known[v] = values;
  return values;
}

/// Stores elements where they lie inside the tensor.
void KernelEmitter::storeElements(ArrayRef<Value> values,
                                  const GlobalSlice &dest, const Elements &at) {
  OpBuilder::InsertionGuard guard(b);
  SmallVector<Value> indices(dest.offsets);
  Value inside;
  for (auto [d, dim] : llvm::enumerate(dest.dims)) {
    Value c = d == 0 ? at.row : at.col;
    if (Value limit = dest.valid[d])
      inside = both(inside, less(c, limit));
    indices[dim] = add(indices[dim], c);
  }
  enterWhere(inside);
  Value pointer = elementPointer(*dest.base, indices);
  if (values.size() == 1)
    return storeElement(values[0], pointer);
  Type type = dest.base->type.getElementType();
  unsigned bits = type.getIntOrFloatBitWidth();
  SmallVector<Value> words(values);
  if (bits == 16)
    words = packWords(values);
  Value all = LLVM::PoisonOp::create(
      b, loc, VectorType::get(words.size(), words[0].getType()));
  for (auto [i, word] : llvm::enumerate(words))
    all = LLVM::InsertElementOp::create(b, loc, all, word, i32(i));
  LLVM::StoreOp::create(b, loc, all, pointer,
                        /*alignment=*/values.size() * bits / 8);
}

void fa::nvidia::collectLoaded(Value v, const BlockView &view,
                               SmallVectorImpl<Value> &loaded) {
  if (view.isLoaded(v)) {
    if (!llvm::is_contained(loaded, v))
      loaded.push_back(v);
    return;
  }
  if (Operation *op = v.getDefiningOp();
      isa_and_present<linalg::LinalgOp, tensor::ExtractSliceOp>(op))
    for (Value operand : op->getOperands())
      if (isa<TensorType>(operand.getType()))
        collectLoaded(operand, view, loaded);
}

/// Where a tile's elements are, by a thread's number among others that go on
/// together: its own `width` of those from a number on.
struct KernelEmitter::ElementOrder {
  Value thread; // i32
  int64_t threads, cols, elements;
  unsigned width;
  int64_t stride() const { return threads * width; }
  /// All threads go on by whole rows, or by parts of one: then a thread's place
  /// is a sum of what differs and of what does not.
  bool isSum() const {
    return elements % stride() == 0 &&
           (stride() % cols == 0 || cols % stride() == 0);
  }
};

KernelEmitter::Elements KernelEmitter::elementsFrom(const ElementOrder &order,
                                                    Value first) {
  Value own = mulC(order.thread, order.width), row, col;
  if (!order.isSum()) {
    Value place = add(first, own);
    row = divC(place, order.cols);
    col = remC(place, order.cols);
  } else if (order.stride() % order.cols == 0) {
    row = add(divC(first, order.cols), divC(own, order.cols));
    col = remC(own, order.cols);
  } else {
    row = divC(first, order.cols);
    col = add(remC(first, order.cols), own);
  }
  Elements at;
  at.row = toIndex(row);
  at.col = toIndex(col);
  at.width = order.width;
  return at;
}

/// Each thread loads what it needs for some steps before it computes.
LogicalResult KernelEmitter::emitElementLoop(const ElementOrder &order,
                                             ArrayRef<Value> loaded,
                                             Value source,
                                             const GlobalSlice &dest,
                                             unsigned steps) {
  while (steps > 1 && order.elements % (order.stride() * steps))
    --steps;
  OpBuilder::InsertionGuard guard(b);
  Value own = toIndex(mulC(order.thread, order.width));
  // Without whole steps a thread ends when its own elements do.
  bool isSum = order.isSum();
  auto loop = scf::ForOp::create(
      b, loc, index(0),
      isSum ? index(order.elements)
            : arith::SubIOp::create(b, loc, index(order.elements), own)
                  .getResult(),
      index(order.stride() * steps));
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Elements> parts;
  for (unsigned i = 0; i < steps; ++i) {
    parts.push_back(elementsFrom(
        order, addC(toI32(loop.getInductionVar()), i * order.stride())));
    for (Value v : loaded)
      if (failed(elementsOf(v, parts.back())))
        return failure();
  }
  for (Elements &at : parts) {
    auto values = elementsOf(source, at);
    if (failed(values))
      return failure();
    storeElements(*values, dest, at);
  }
  return success();
}

/// With few registers: elements of the one tile of memory are copied to the
/// warp's part of shared memory, half of which is computed of while the other
/// is filled.
LogicalResult KernelEmitter::emitCopiedElementLoop(const ElementOrder &order,
                                                   Value loaded, Value source,
                                                   const GlobalSlice &dest,
                                                   Value scratch) {
  FailureOr<TileValue> t = tile(loaded);
  if (failed(t))
    return failure();
  const GlobalSlice &slice = t->slice;
  Type type = slice.base->type.getElementType();
  constexpr int64_t bytes = 16;
  const int64_t halfBytes = elementScratch / 2,
                steps = halfBytes / (bytes * order.threads),
                batch = steps * order.stride();
  OpBuilder::InsertionGuard guard(b);
  auto placeOf = [&](Value first, int64_t step) {
    Value half = remC(divC(first, batch), 2);
    Value at =
        add(add(scratch, mulC(half, halfBytes)), mulC(order.thread, bytes));
    return sharedPointer(at, step * bytes * order.threads);
  };
  auto copy = [&](Value first) {
    for (int64_t i = 0; i < steps; ++i) {
      Elements at = elementsFrom(order, addC(first, i * order.stride()));
      NVVM::CpAsyncOp::create(b, loc, placeOf(first, i),
                              elementsPointer(slice, at).first, bytes,
                              NVVM::LoadCacheModifierKind::CG, Value());
    }
  };
  copy(i32(0));
  NVVM::CpAsyncCommitGroupOp::create(b, loc);
  // Nobody unrolls what goes on to a number that is not known: addresses of all
  // steps would not fit.
  Value end =
      ptx("mov.u32 $0, $1;", "=r,n", i32(order.elements), b.getI32Type(),
          /*sideEffects=*/false)
          .front();
  auto loop = scf::ForOp::create(b, loc, index(0), toIndex(end), index(batch));
  b.setInsertionPointToStart(loop.getBody());
  Value first = toI32(loop.getInductionVar());
  {
    OpBuilder::InsertionGuard inner(b);
    Value next = addC(first, batch);
    enterWhere(less(next, i32(order.elements)));
    copy(next);
  }
  NVVM::CpAsyncCommitGroupOp::create(b, loc);
  NVVM::CpAsyncWaitGroupOp::create(b, loc, 1);
  for (int64_t i = 0; i < steps; ++i) {
    Elements at = elementsFrom(order, addC(first, i * order.stride()));
    SmallVector<Value> values =
        loadElements(placeOf(first, i), type, order.width);
    padElements(values, elementsPointer(slice, at).second, slice);
    at.known[loaded] = values;
    auto results = elementsOf(source, at);
    if (failed(results))
      return failure();
    storeElements(*results, dest, at);
  }
  return success();
}

/// Slices of memory, and scalars.
LogicalResult KernelEmitter::emitSlices(scf::ForallOp forall) {
  for (Operation &op : forall.getBody()->without_terminator()) {
    if (isa<linalg::LinalgOp>(op) && !isa<linalg::FillOp>(op))
      continue;
    if (op.getNumResults() == 1 && cutOfComputed(op.getResult(0), view))
      continue;
    if (failed(emitOp(&op)))
      return failure();
  }
  return success();
}

/// Zeros in all of a slice whose rows lie one behind the other.
void KernelEmitter::zeroRows(const GlobalSlice &slice, int64_t cols, Value rows,
                             Value thread, int64_t threads) {
  constexpr int64_t width = 4;
  Type type = slice.base->type.getElementType();
  Value first = elementPointer(*slice.base, slice.offsets);
  Value zeros = arith::ConstantOp::create(
      b, loc, b.getZeroAttr(VectorType::get({width}, type)));
  auto loop = scf::ForOp::create(b, loc, toIndex(mulC(thread, width)),
                                 mulC(rows, cols), index(width * threads));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value to = LLVM::GEPOp::create(
      b, loc, globalPointer(), type, first,
      ArrayRef<LLVM::GEPArg>{toI64(loop.getInductionVar())});
  LLVM::StoreOp::create(b, loc, zeros, to,
                        width * type.getIntOrFloatBitWidth() / 8);
}

/// Whether the rows of a slice lie one behind the other, and all its columns
/// are of the tensor.
static bool hasDenseRows(const GlobalSlice &slice, int64_t cols) {
  unsigned last = slice.base->type.getRank() - 1;
  return slice.dims.size() == 2 && slice.dims[0] + 1 == last &&
         slice.dims[1] == last && !slice.valid[1] &&
         getConstantIntValue(slice.base->strides[last - 1]) == cols;
}

LogicalResult KernelEmitter::emitZeros(scf::ForallOp forall, Value thread,
                                       int64_t threads,
                                       ArrayRef<unsigned> zeroed) {
  if (failed(emitSlices(forall)))
    return failure();
  SmallVector<Value> loaded;
  for (Operation &op : forall.getTerminator().getYieldingOps())
    collectLoaded(cast<tensor::ParallelInsertSliceOp>(op).getSource(), view,
                  loaded);
  for (Value v : loaded) {
    FailureOr<TileValue> t = tile(v);
    if (failed(t))
      return failure();
    const GlobalSlice slice = t->slice;
    if (!llvm::is_contained(zeroed, slice.base->buffer))
      continue;
    auto shape = cast<RankedTensorType>(v.getType()).getShape();
    if (shape[1] % 4 == 0 && hasDenseRows(slice, shape[1])) {
      zeroRows(slice, shape[1],
               slice.valid[0] ? slice.valid[0] : index(shape[0]), thread,
               threads);
      continue;
    }
    TileValue zeros;
    zeros.kind = TileValue::Kind::Splat;
    zeros.splat = arith::ConstantOp::create(
        b, loc, b.getZeroAttr(slice.base->type.getElementType()));
    tiles[v] = zeros;
    if (failed(emitElementLoop(
            {thread, threads, shape[1], shape[0] * shape[1], /*width=*/1}, {},
            v, slice, /*steps=*/1)))
      return failure();
  }
  return success();
}

/// Where what a block computes is stored.
FailureOr<GlobalSlice>
KernelEmitter::placeOfResult(tensor::ParallelInsertSliceOp insert) {
  Value whole = insert.getSource();
  if (tensor::ExtractSliceOp slice = cutOfComputed(whole, view))
    whole = slice.getSource();
  IRMapping map;
  FailureOr<TileValue> to = tile(insert.getDest());
  if (failed(to))
    return failure();
  FailureOr<GlobalSlice> dest =
      cutSlice(*to, cast<OffsetSizeAndStrideOpInterface>(insert.getOperation()),
               insert.getDroppedDims(), map, {});
  if (failed(dest))
    return failure();
  auto type = cast<RankedTensorType>(whole.getType());
  for (unsigned d = 0; d < dest->dims.size(); ++d)
    if (!dest->valid[d] && dest->shape[d] < type.getDimSize(d))
      dest->valid[d] = index(dest->shape[d]);
  return dest;
}

LogicalResult KernelEmitter::emitElements(scf::ForallOp forall, Value thread,
                                          int64_t threads, unsigned steps,
                                          Value scratch) {
  if (failed(emitSlices(forall)))
    return failure();
  for (Operation &op : forall.getTerminator().getYieldingOps()) {
    auto insert = cast<tensor::ParallelInsertSliceOp>(op);
    Value source = insert.getSource(), whole = source;
    FailureOr<GlobalSlice> dest = placeOfResult(insert);
    if (failed(dest))
      return failure();
    if (tensor::ExtractSliceOp slice = cutOfComputed(source, view))
      whole = slice.getSource();
    auto type = cast<RankedTensorType>(whole.getType());
    SmallVector<Value> loaded;
    collectLoaded(source, view, loaded);
    // Four elements together, if each tile of memory has them so.
    auto isAligned = [&](const GlobalSlice &slice) {
      unsigned bits = slice.base->type.getElementTypeBitWidth();
      return bits >= 16 &&
             takesVectors(slice, type.getDimSize(1), slice.valid[1], bits / 8);
    };
    bool isWide = type.getDimSize(1) % 4 == 0 && isAligned(*dest),
         isCopied = scratch != nullptr;
    for (Value v : loaded) {
      FailureOr<TileValue> t = tile(v);
      if (failed(t))
        return failure();
      isWide = isWide && isAligned(t->slice);
      isCopied &= t->slice.base->type.getElementTypeBitWidth() == 32;
    }
    ElementOrder order{thread, threads, type.getDimSize(1),
                       type.getNumElements(), isWide ? 4u : 1u};
    isCopied = isCopied && isWide && loaded.size() == 1 &&
               order.elements % (elementScratch / 8) == 0;
    if (isCopied ? failed(emitCopiedElementLoop(order, loaded[0], source, *dest,
                                                scratch))
                 : failed(emitElementLoop(order, loaded, source, *dest, steps)))
      return failure();
  }
  return success();
}
