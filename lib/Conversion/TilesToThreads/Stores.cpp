// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Results from registers to global memory.

#include "KernelEmitter.h"

#include "mlir/Dialect/Utils/StaticValueUtils.h"

#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace fa::nvidia;

LogicalResult KernelEmitter::emitInsert(OffsetSizeAndStrideOpInterface op,
                                        Value source, Value dest,
                                        llvm::SmallBitVector dropped) {
  loc = op.getLoc();
  FailureOr<TileValue> to = tile(dest);
  if (failed(to))
    return failure();
  IRMapping map;
  if (to->kind != TileValue::Kind::Global && to->kind != TileValue::Kind::Slice)
    return op->emitOpError("expected a destination in global memory");
  FailureOr<GlobalSlice> slice = cutSlice(*to, op, dropped, map, {});
  if (failed(slice))
    return failure();
  return emitStore(op, source, *slice);
}

/// A slice written into a tensor in memory, in a loop or not.
LogicalResult KernelEmitter::emitInPlace(tensor::InsertSliceOp insert) {
  if (!view.isGlobal(insert.getDest()))
    return insert.emitOpError("cannot be distributed: only a tensor in global "
                              "memory can take a slice");
  if (failed(emitInsert(insert, insert.getSource(), insert.getDest(),
                        insert.getDroppedDims())))
    return failure();
  tiles[insert.getResult()] = tiles[insert.getDest()];
  if (!frames.empty())
    barrier();
  return success();
}

LogicalResult KernelEmitter::emitInParallel(scf::InParallelOp all) {
  for (Operation &inner : all.getYieldingOps()) {
    if (isa<ParallelAccumulateOp>(inner))
      continue; // added where it lies
    auto insert = dyn_cast<tensor::ParallelInsertSliceOp>(inner);
    if (!insert ||
        failed(emitInsert(insert, insert.getSource(), insert.getDest(),
                          insert.getDroppedDims())))
      return failure();
  }
  return success();
}

LogicalResult KernelEmitter::emitStore(Operation *op, Value source,
                                       const GlobalSlice &dest) {
  FailureOr<TileValue> from = tile(source);
  if (failed(from))
    return failure();
  TileValue regs = *from;
  if (from->kind == TileValue::Kind::Slice && from->slice.base == dest.base &&
      view.isGlobal(source))
    return success(); // updated in place
  if (from->kind == TileValue::Kind::Splat) {
    storeSplat(from->splat, dest);
    return success();
  }
  if (from->kind != TileValue::Kind::Registers) {
    std::optional<FragmentLayout> layout = view.layout(source);
    if (!layout)
      return op->emitOpError()
             << "expected a tile of static shape and rank 1 or 2 to store, got "
             << source.getType()
             << ", which is no tile of a block; a loop that adds to memory "
                "does so by fa.accumulate, and a block stores its own tiles";
    auto values = registers(source, *layout);
    if (failed(values))
      return failure();
    regs.kind = TileValue::Kind::Registers;
    regs.layout = *layout;
    regs.regs = *values;
    regs.valid.assign(dest.dims.size(), Value());
  }
  if (regs.stage)
    return storeStaged(regs, dest);
  unsigned rank =
      regs.layout.kind() == FragmentLayout::Kind::Accumulator ? 2 : 1;
  if (dest.dims.size() != rank)
    return op->emitOpError("cannot be distributed: expected a slice of rank ")
           << rank << ", got " << dest.dims.size();
  for (unsigned d = 0; d < rank; ++d)
    if (!regs.valid[d])
      regs.valid[d] = dest.valid[d];
  if (regs.layout.kind() == FragmentLayout::Kind::Column)
    return op->emitOpError("cannot store a vector that lies along columns");
  // Before what is stored now would have to come to memory first.
  sayOnce();
  storeRows(regs, dest);
  return success();
}

Value KernelEmitter::both(Value x, Value y) {
  return x ? b.createOrFold<arith::AndIOp>(loc, x, y) : y;
}

void KernelEmitter::enterWhere(Value condition) {
  if (!condition)
    return;
  auto guarded = scf::IfOp::create(b, loc, condition);
  b.setInsertionPointToStart(guarded.thenBlock());
}

bool KernelEmitter::takesVectors(const GlobalSlice &slice, int64_t cols,
                                 Value colLimit, unsigned bytes) {
  bool pairs = !colLimit && cols * bytes % 16 == 0 && bytes > 1 &&
               slice.dims[1] + 1 == slice.offsets.size() &&
               isConstantIntValue(slice.offsets.back(), 0);
  if (pairs)
    alignedBuffers.insert(slice.base->buffer);
  return pairs;
}

/// One value everywhere: element by element, whatever the size.
void KernelEmitter::storeSplat(Value value, const GlobalSlice &dest) {
  OpBuilder::InsertionGuard guard(b);
  SmallVector<Value> sizes;
  Value count = index(1);
  for (auto [size, known] : llvm::zip(dest.valid, dest.shape)) {
    sizes.push_back(size ? size : index(known));
    count = mul(count, sizes.back());
  }
  auto loop = scf::ForOp::create(b, loc, toIndex(threadId()), count,
                                 index(view.threads()));
  b.setInsertionPointToStart(loop.getBody());
  Value rest = loop.getInductionVar();
  SmallVector<Value> indices(dest.offsets);
  for (unsigned d = sizes.size(); d-- > 0;) {
    Value i = rest;
    if (d) {
      i = arith::RemUIOp::create(b, loc, rest, sizes[d]);
      rest = arith::DivUIOp::create(b, loc, rest, sizes[d]);
    }
    indices[dest.dims[d]] = add(indices[dest.dims[d]], i);
  }
  storeElement(value, elementPointer(*dest.base, indices));
}

/// Four words of each thread of a quad, transposed: the thread at place c gets
/// the words number c of all four, in order.
SmallVector<Value> KernelEmitter::transposeQuad(ArrayRef<Value> words) {
  SmallVector<Value> w(words);
  for (unsigned distance : {1u, 2u}) {
    Value upper = arith::CmpIOp::create(
        b, loc, arith::CmpIPredicate::ne,
        arith::AndIOp::create(b, loc, lane(), i32(distance)), i32(0));
    for (unsigned i = 0; i < 4; ++i) {
      if (i & distance)
        continue;
      Value &low = w[i], &high = w[i + distance];
      Value sent = arith::SelectOp::create(b, loc, upper, low, high);
      Value got = shuffle(sent, distance);
      low = arith::SelectOp::create(b, loc, upper, got, low);
      high = arith::SelectOp::create(b, loc, upper, high, got);
    }
  }
  return w;
}

/// Each thread stores what it holds; pairs of columns together where they are
/// sure to be aligned, and of two bytes each, eight columns together after an
/// exchange between the threads that hold a row.
void KernelEmitter::storeRows(const TileValue &source,
                              const GlobalSlice &dest) {
  const FragmentLayout &layout = source.layout;
  llvm::SaveAndRestore thread(branchThread, readThread());
  bool vector = layout.kind() == FragmentLayout::Kind::Row;
  Type type = dest.base->type.getElementType();
  unsigned bytes = std::max(1u, type.getIntOrFloatBitWidth() / 8);
  Value rowLimit = source.valid[0],
        colLimit = vector ? Value() : source.valid[1];
  if (!vector && !colLimit && layout.cols() % 8)
    colLimit = index(layout.cols());
  bool pairs = !vector && takesPairs(dest, layout, colLimit, bytes);

  FragmentLayout rows = layout.alongRows();
  unsigned chunks =
      pairs && isPacked(type, layout) ? layout.colTiles() / 4 * 4 : 0;
  for (unsigned v = 0; v < rows.numRegs(); ++v) {
    OpBuilder::InsertionGuard whole(b);
    Value row = rowOf(rows, v), condition = isFirstCopy(layout);
    if (rowLimit)
      condition = both(condition, less(row, rowLimit));
    if (vector)
      condition = both(condition,
                       arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq,
                                             remC(lane(), 4), i32(0)));
    SmallVector<Value> indices(dest.offsets);
    indices[dest.dims[0]] = add(indices[dest.dims[0]], row);
    if (chunks) {
      SmallVector<Value> of(indices);
      of[dest.dims[1]] = add(of[dest.dims[1]], toIndex(chunkCol(layout, 0)));
      Value pointer = elementPointer(*dest.base, of);
      for (unsigned n = 0; n < chunks; n += 4) {
        SmallVector<Value> words;
        for (unsigned k = 0; k < 4; ++k)
          words.push_back(LLVM::BitcastOp::create(
              b, loc, b.getI32Type(),
              source.regs[layout.reg(v / 2, n + k, v % 2 * 2) / 2]));
        words = transposeQuad(words);
        // Threads of other rows took part.
        OpBuilder::InsertionGuard inner(b);
        enterWhere(condition);
        Value chunk = LLVM::PoisonOp::create(
            b, loc, VectorType::get({4}, b.getI32Type()));
        for (unsigned k = 0; k < 4; ++k)
          chunk =
              LLVM::InsertElementOp::create(b, loc, chunk, words[k], i32(k));
        Value at = LLVM::GEPOp::create(b, loc, globalPointer(), type, pointer,
                                       ArrayRef<LLVM::GEPArg>{int32_t(8 * n)});
        LLVM::StoreOp::create(b, loc, chunk, at, /*alignment=*/16);
      }
      if (chunks == layout.colTiles())
        continue;
    }
    enterWhere(condition);
    if (!vector)
      indices[dest.dims[1]] =
          add(indices[dest.dims[1]], toIndex(threadCol(layout)));
    Value pointer = elementPointer(*dest.base, indices);
    if (vector) {
      storeElement(source.regs[v], pointer);
      continue;
    }
    for (unsigned n = chunks; n < layout.colTiles(); ++n) {
      unsigned reg = layout.reg(v / 2, n, v % 2 * 2);
      Type step = bytes == 1 ? b.getI8Type() : type;
      Value at = LLVM::GEPOp::create(b, loc, globalPointer(), step, pointer,
                                     ArrayRef<LLVM::GEPArg>{int32_t(8 * n)});
      if (pairs) {
        Value both = isPacked(type, layout)
                         ? source.regs[reg / 2]
                         : pack(source.regs[reg], source.regs[reg + 1]);
        LLVM::StoreOp::create(b, loc, both, at, /*alignment=*/2 * bytes);
        continue;
      }
      for (unsigned e = 0; e < 2; ++e) {
        OpBuilder::InsertionGuard inner(b);
        if (colLimit)
          enterWhere(less(colOf(layout, reg + e), colLimit));
        Value to = e ? LLVM::GEPOp::create(b, loc, globalPointer(), step, at,
                                           ArrayRef<LLVM::GEPArg>{1})
                     : at;
        storeElement(element(source.regs, reg + e, type, layout), to);
      }
    }
  }
}
