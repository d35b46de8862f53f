// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocks that compute numbers of rows, such as sums, of tiles in memory: no
// thread holds a tile. Lanes that lie side by side share a row, of which each
// loads vectors of 16 bytes, and reduce it together.

#include "Elements.h"

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

/// Reduces a row: what a lane has of it, then over the lanes that share it,
/// then with the initial value.
LogicalResult KernelEmitter::reduceRow(linalg::LinalgOp op, Elements &at) {
  FailureOr<RowReduction> reduction = matchRowReduction(op);
  if (failed(reduction))
    return failure();
  SmallVector<Value> results;
  for (Elements &part : at.parts) {
    SmallVector<SmallVector<Value>> inputs;
    for (OpOperand *operand : op.getDpsInputOperands()) {
      auto elements = elementsOf(operand->get(), part);
      if (failed(elements))
        return failure();
      inputs.push_back(*elements);
    }
    for (unsigned i = 0; i < part.width; ++i) {
      SmallVector<Value> args;
      for (auto &elements : inputs)
        args.push_back(elements[i]);
      auto element = cloneBody(op, args, reduction->mapped, part.row,
                               addC(part.col, i), reduction->combiners);
      if (failed(element))
        return failure();
      results =
          results.empty() ? *element : combine(*reduction, *element, results);
    }
  }
  for (unsigned distance = 1; distance < at.lanes; distance *= 2) {
    SmallVector<Value> others;
    for (Value v : results)
      others.push_back(shuffle(v, distance));
    results = combine(*reduction, others, results);
  }
  SmallVector<Value> inits;
  for (OpOperand &operand : op.getDpsInitsMutable()) {
    auto init = elementsOf(operand.get(), at);
    if (failed(init))
      return failure();
    inits.push_back(init->front());
  }
  results = combine(*reduction, results, inits);
  for (auto [result, v] : llvm::zip(op->getResults(), results))
    at.known[result] = {v};
  return success();
}

/// A row, and a lane's parts of it.
KernelEmitter::Elements KernelEmitter::rowOfLane(const SharedRows &shared,
                                                 Value row, Value lane,
                                                 unsigned width) {
  Elements at;
  at.row = row;
  at.lanes = shared.lanes;
  int64_t stride = shared.lanes * shared.width;
  for (int64_t first = 0; first < shared.cols; first += stride)
    for (int64_t i = 0; i < shared.width; i += width) {
      Elements part;
      part.row = row;
      part.col = toIndex(addC(mulC(lane, shared.width), first + i));
      part.width = width;
      at.parts.push_back(part);
    }
  return at;
}

LogicalResult KernelEmitter::emitRows(scf::ForallOp forall) {
  const SharedRows shared = *view.findSharedRows();
  if (failed(emitSlices(forall)))
    return failure();
  std::vector<std::pair<Value, GlobalSlice>> results;
  SmallVector<Value> loaded;
  for (Operation &op : forall.getTerminator().getYieldingOps()) {
    auto insert = cast<tensor::ParallelInsertSliceOp>(op);
    FailureOr<GlobalSlice> place = placeOfResult(insert);
    if (failed(place))
      return failure();
    results.push_back({insert.getSource(), *place});
    collectLoaded(insert.getSource(), view, loaded);
  }
  // One element at a time where vectors are not sure to be aligned.
  unsigned width = shared.width;
  int64_t tilesRead = 0;
  for (Value v : loaded) {
    FailureOr<TileValue> t = tile(v);
    if (failed(t))
      return failure();
    const GlobalSlice &slice = t->slice;
    if (slice.dims.size() != 2)
      continue;
    ++tilesRead;
    unsigned bytes = slice.base->type.getElementTypeBitWidth() / 8;
    if (!takesVectors(slice, shared.cols, slice.valid[1], bytes))
      width = 1;
  }

  // Rows that a thread loads before it computes: so many vectors of 16 bytes.
  constexpr int64_t mostVectors = 16;
  const int64_t atATime = view.threads() / shared.lanes,
                ofThread = shared.rows / atATime,
                vectors =
                    tilesRead * shared.cols / (shared.width * shared.lanes);
  int64_t steps = std::clamp<int64_t>(
      mostVectors / std::max<int64_t>(vectors, 1), 1, ofThread);
  while (ofThread % steps)
    --steps;
  Value lane = remC(threadId(), shared.lanes),
        first = toIndex(divC(threadId(), shared.lanes));
  OpBuilder::InsertionGuard guard(b);
  auto loop = scf::ForOp::create(b, loc, index(0), index(shared.rows),
                                 index(atATime * steps));
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Elements> rows;
  for (int64_t i = 0; i < steps; ++i) {
    Value row = add(first, addC(loop.getInductionVar(), i * atATime));
    Elements &at = rows.emplace_back(rowOfLane(shared, row, lane, width));
    for (Value v : loaded) {
      if (cast<RankedTensorType>(v.getType()).getRank() == 1) {
        if (failed(elementsOf(v, at)))
          return failure();
        continue;
      }
      for (Elements &part : at.parts)
        if (failed(elementsOf(v, part)))
          return failure();
    }
  }
  for (Elements &at : rows)
    for (auto &[source, place] : results) {
      auto values = elementsOf(source, at);
      if (failed(values))
        return failure();
      OpBuilder::InsertionGuard inner(b);
      enterWhere(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, lane,
                                       i32(0)));
      storeElements(*values, place, at);
    }
  return success();
}
