// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums in global memory to which many blocks add.

#include "KernelEmitter.h"

#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

void KernelEmitter::emitAdd(ValueRange values, Value pointer) {
  SmallVector<Value> operands = {pointer};
  llvm::append_range(operands, values);
  if (values.size() == 4)
    ptx("red.relaxed.gpu.global.add.v4.f32 [$0], {$1, $2, $3, $4};",
        "l,f,f,f,f", operands, {});
  else if (values.size() == 2)
    ptx("red.relaxed.gpu.global.add.v2.f32 [$0], {$1, $2};", "l,f,f", operands,
        {});
  else
    ptx("red.relaxed.gpu.global.add.f32 [$0], $1;", "l,f", operands, {});
}

/// Four columns side by side for each thread of a quad, of two tiles of 8
/// columns of which it has two each: the even threads get those of the first
/// tile, the odd ones those of the second.
SmallVector<Value> KernelEmitter::gatherFour(ArrayRef<Value> first,
                                             ArrayRef<Value> second) {
  Value isOdd = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                      remC(lane(), 2), i32(0));
  auto choose = [&](Value odd, Value even) -> Value {
    return arith::SelectOp::create(b, loc, isOdd, odd, even);
  };
  SmallVector<Value> got;
  for (unsigned e = 0; e < 2; ++e)
    got.push_back(shuffle(choose(first[e], second[e]), 1));
  return {choose(got[0], first[0]), choose(got[1], first[1]),
          choose(second[0], got[0]), choose(second[1], got[1])};
}

/// Each thread adds what it holds; four columns at once after an exchange with
/// its neighbour, where the target can: the fewer rows and the wider an
/// addition, the less it keeps the memory pipe.
LogicalResult KernelEmitter::emitAccumulateSlice(AccumulateSliceOp op) {
  FailureOr<TileValue> to = tile(op.getInit()), from = tile(op.getPart());
  if (failed(to) || failed(from))
    return failure();
  if ((to->kind != TileValue::Kind::Global &&
       to->kind != TileValue::Kind::Slice) ||
      from->kind != TileValue::Kind::Registers ||
      from->layout.kind() != FragmentLayout::Kind::Accumulator)
    return op.emitOpError("cannot be distributed: expected a computed tile and "
                          "a tensor in global memory");
  IRMapping map;
  FailureOr<GlobalSlice> dest =
      cutSlice(*to, cast<OffsetSizeAndStrideOpInterface>(op.getOperation()),
               op.getDroppedDims(), map, {});
  if (failed(dest))
    return failure();
  tiles[op.getResult()] = *to;
  bool isHanded = from->stage && from->stage.getAdders();
  if (op.getOrdered().value_or(0) > 0 && !isHanded)
    takeTurn(*dest);
  if (from->stage)
    return addStaged(*from, *dest);
  const FragmentLayout &layout = from->layout;
  Value rowLimit = from->valid[0] ? from->valid[0] : dest->valid[0],
        colLimit = from->valid[1] ? from->valid[1] : dest->valid[1];
  if (!colLimit && layout.cols() % 8)
    colLimit = index(layout.cols());
  // Additions of two numbers came with sm_90, like wgmma.
  bool pairs =
      view.hasWgmma() && takesPairs(*dest, layout, colLimit, /*bytes=*/4);
  FragmentLayout rows = layout.alongRows();
  unsigned fours = pairs ? layout.colTiles() / 2 * 2 : 0;
  for (unsigned v = 0; v < rows.numRegs(); ++v) {
    OpBuilder::InsertionGuard whole(b);
    auto two = [&](unsigned n) {
      return ArrayRef(from->regs).slice(layout.reg(v / 2, n, v % 2 * 2), 2);
    };
    // Threads of other rows take part in it.
    SmallVector<SmallVector<Value>> gathered;
    for (unsigned n = 0; n < fours; n += 2)
      gathered.push_back(gatherFour(two(n), two(n + 1)));
    Value row = rowOf(rows, v), condition = isFirstCopy(layout);
    // The limit is the same in all threads: a step has it at hand, and would
    // have to keep each of a thread's rows.
    if (rowLimit)
      condition = both(condition, less(toIndex(threadRow(rows)),
                                       addC(rowLimit, -rows.regRow(v))));
    enterWhere(condition);
    SmallVector<Value> indices(dest->offsets);
    indices[dest->dims[0]] = add(indices[dest->dims[0]], row);
    auto pointerTo = [&](Value col) {
      SmallVector<Value> at(indices);
      at[dest->dims[1]] = add(at[dest->dims[1]], toIndex(col));
      return elementPointer(*dest->base, at);
    };
    auto step = [&](Value pointer, int32_t by) -> Value {
      return LLVM::GEPOp::create(b, loc, globalPointer(), b.getF32Type(),
                                 pointer, ArrayRef<LLVM::GEPArg>{by});
    };
    if (fours) {
      Value place = remC(lane(), 4);
      Value col = add(mulC(remC(place, 2), 8), mulC(divC(place, 2), 4));
      if (Value ofWarp = warpCol(layout))
        col = add(col, ofWarp);
      Value pointer = pointerTo(col);
      for (auto [i, values] : llvm::enumerate(gathered))
        emitAdd(values, step(pointer, 16 * i));
    }
    if (fours == layout.colTiles())
      continue;
    Value pointer = pointerTo(threadCol(layout));
    for (unsigned n = fours; n < layout.colTiles(); ++n) {
      if (pairs) {
        emitAdd(two(n), step(pointer, 8 * n));
        continue;
      }
      for (unsigned e = 0; e < 2; ++e) {
        OpBuilder::InsertionGuard inner(b);
        if (colLimit) {
          unsigned reg = layout.reg(v / 2, n, v % 2 * 2) + e;
          enterWhere(less(colOf(layout, reg), colLimit));
        }
        emitAdd(two(n)[e], step(pointer, 8 * n + e));
      }
    }
  }
  return success();
}

/// A matrix summed along its diagonals, of a warp. Sum n of a lane is that of
/// the elements that lie `first` + 32 n rows below their column, counted from
/// the warp's first row and column: neighbours have neighbouring diagonals.
KernelEmitter::DiagonalSums
KernelEmitter::sumDiagonals(const FragmentLayout &layout,
                            ArrayRef<Value> regs) {
  // Register e of half h of tile (t, n) of lane (r, q): 8 (2 t + h - n) + r
  // - 2 q - e. First what has the same 2 t + h - n and e.
  int64_t least = -int64_t(layout.colTiles()),
          count = 2 * layout.rowTiles() + layout.colTiles();
  Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
  SmallVector<Value> even(count, zero), odd(count, zero);
  auto plus = [&](Value x, Value y) -> Value {
    if (x == zero || y == zero)
      return x == zero ? y : x;
    return arith::AddFOp::create(b, loc, x, y);
  };
  for (auto [reg, value] : llvm::enumerate(regs)) {
    int64_t odds = reg % 2;
    int64_t at = (layout.regRow(reg) - layout.regCol(reg) + odds) / 8 - least;
    Value &sum = reg % 2 ? odd[at] : even[at];
    sum = plus(sum, value);
  }
  auto choose = [&](Value condition, Value x, Value y) -> Value {
    return x == y ? x : arith::SelectOp::create(b, loc, condition, x, y);
  };
  auto pull = [&](Value sent, Value from) -> Value {
    if (sent == zero)
      return zero;
    return NVVM::ShflOp::create(b, loc, sent.getType(), i32(-1), sent, from,
                                i32(31), NVVM::ShflKind::idx, UnitAttr());
  };
  // An odd column's are a lane's that has the row above: of the next number,
  // where that leaves the tile.
  Value row = divC(lane(), 4), quad = remC(lane(), 4);
  Value below = add(mulC(remC(addC(row, 1), 8), 4), quad);
  Value isTop = less(row, i32(1));
  auto at = [&](ArrayRef<Value> sums, int64_t i) {
    return i < count ? sums[i] : zero;
  };
  for (int64_t i = 0; i < count; ++i)
    even[i] = plus(even[i], pull(choose(isTop, at(odd, i + 1), odd[i]), below));
  // The four lanes (r + 2 q, q) have diagonals 8 n + r, of numbers n or, where
  // r + 2 q left the tile, n + 1.
  Value hasLeft = less(row, mulC(quad, 2));
  SmallVector<Value> sums;
  for (int64_t n = -1; n < count; ++n)
    sums.push_back(
        choose(hasLeft, at(even, n + 1), n < 0 ? zero : at(even, n)));
  // Each keeps the numbers that are q modulo 4, and has the others' parts.
  for (int64_t bit : {1, 2}) {
    Value keepsOdd = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                           remC(divC(quad, bit), 2), i32(0));
    Value otherQuad = xorI(quad, i32(bit));
    Value rows = mulC(arith::SubIOp::create(b, loc, otherQuad, quad), 2);
    Value other = add(mulC(remC(add(addC(row, 8), rows), 8), 4), otherQuad);
    SmallVector<Value> kept;
    for (size_t n = 0; n < sums.size(); n += 2) {
      Value next = n + 1 < sums.size() ? sums[n + 1] : zero;
      kept.push_back(plus(choose(keepsOdd, next, sums[n]),
                          pull(choose(keepsOdd, sums[n], next), other)));
    }
    sums = kept;
  }
  Value inTile =
      remC(arith::SubIOp::create(b, loc, addC(row, 8), mulC(quad, 2)), 8);
  return {addC(add(inTile, mulC(quad, 8)), 8 * (least - 1)), sums};
}

/// Adds a sum where the places region says, unless it is 0.
LogicalResult KernelEmitter::addAtPlace(AccumulateOp op, Value row, Value col,
                                        Value sum, Value condition) {
  OpBuilder::InsertionGuard guard(b);
  Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
  enterWhere(
      both(condition, arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE,
                                            sum, zero)));
  Block &places = op.getPlaces().front();
  IRMapping map;
  map.map(places.getArguments(), ValueRange{row, col});
  auto indices = cloneBlock(places, ValueRange{row, col},
                            places.getTerminator()->getOperands(), map);
  FailureOr<TileValue> to = tile(op.getInit());
  if (failed(indices) || failed(to))
    return failure();
  emitAdd(sum, elementPointer(*to->global, *indices));
  return success();
}

/// The places that a thread's registers have, without sums; `placeOf` says
/// which one each register has.
KernelEmitter::PlaceSums
KernelEmitter::noSums(AccumulateOp op, SmallVectorImpl<unsigned> &placeOf) {
  PlaceSums result;
  result.byRow = op.placeDependsOn(0);
  result.byCol = op.placeDependsOn(1);
  result.layout = *view.layout(op.getTerms());
  llvm::SmallDenseMap<std::pair<unsigned, unsigned>, unsigned, 16> numbers;
  for (unsigned r = 0; r < result.layout.numRegs(); ++r) {
    auto key = std::make_pair(result.byRow ? result.layout.rowReg(r) : 0,
                              result.byCol ? result.layout.colReg(r) : 0);
    auto [it, isNew] = numbers.try_emplace(key, result.sums.size());
    if (isNew)
      result.sums.push_back({r, Value()});
    placeOf.push_back(it->second);
  }
  return result;
}

FailureOr<KernelEmitter::PlaceSums>
KernelEmitter::sumInThread(AccumulateOp op) {
  SmallVector<unsigned> placeOf;
  PlaceSums result = noSums(op, placeOf);
  auto regs = registers(op.getTerms(), result.layout);
  if (failed(regs))
    return failure();
  for (auto [value, place] : llvm::zip(*regs, placeOf)) {
    Value &sum = result.sums[place].second;
    if (!sum) {
      sum = value;
      continue;
    }
    auto both = arith::AddFOp::create(b, loc, sum, value);
    if (allowsApproximations)
      both.setFastmath(arith::FastMathFlags::contract);
    sum = both;
  }
  return result;
}

/// Sums in the lanes of a warp what has the same place, and adds it; what is 0,
/// as where a mask forbids, is not added.
LogicalResult KernelEmitter::addSums(AccumulateOp op, PlaceSums held) {
  // Lanes that hold other columns, or rows.
  SmallVector<unsigned> distances, dims;
  Value isFirst;
  auto require = [&](Value condition) { isFirst = both(isFirst, condition); };
  if (held.byCol) {
    dims.push_back(1);
  } else {
    distances.append({1, 2});
    require(less(remC(lane(), 4), i32(1)));
  }
  if (held.byRow) {
    dims.push_back(0);
  } else {
    distances.append({4, 8, 16});
    require(less(lane(), i32(4)));
  }
  if (Value copy = isFirstCopy(held.layout))
    require(copy);
  for (auto &[reg, sum] : held.sums)
    for (unsigned distance : distances)
      sum = arith::AddFOp::create(b, loc, sum, shuffle(sum, distance));
  bool isOrdered = op.getOrdered().has_value();
  bool areOwn = op.hasOwnPlaces(dims);
  bool warpsMeet = view.warps() > 1 && !(areOwn && dims.size() == 2);
  return inTurns(isOrdered && warpsMeet, isOrdered && !areOwn, [&] {
    for (auto [reg, sum] : held.sums)
      if (failed(addAtPlace(op, rowOf(held.layout, reg),
                            colOf(held.layout, reg), sum, isFirst)))
        return failure();
    return success();
  });
}

/// Sums that a thread keeps in a few registers while a loop runs: their places
/// do not move with it.
SmallVector<AccumulateOp> KernelEmitter::sumsCarriedBy(scf::ForOp loop) {
  constexpr size_t kMost = 4;
  SmallVector<AccumulateOp> result;
  for (auto op : loop.getBody()->getOps<AccumulateOp>()) {
    std::optional<FragmentLayout> layout = view.layout(op.getTerms());
    llvm::SetVector<Value> read;
    getUsedValuesDefinedAbove(op.getPlaces(), read);
    bool moves = llvm::any_of(read, [&](Value v) {
      return loop.getRegion().isAncestor(v.getParentRegion());
    });
    SmallVector<unsigned> placeOf;
    if (layout && layout->kind() == FragmentLayout::Kind::Accumulator &&
        !moves && noSums(op, placeOf).sums.size() <= kMost)
      result.push_back(op);
  }
  return result;
}

/// Before a loop that carries sums: where these are kept, and zeros.
void KernelEmitter::startSums(ArrayRef<AccumulateOp> sums,
                              SmallVectorImpl<Value> &inits) {
  for (AccumulateOp op : sums) {
    SmallVector<unsigned> placeOf;
    carriedSums[op] = noSums(op, placeOf);
    Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
    inits.append(carriedSums[op].sums.size(), zero);
  }
}

LogicalResult KernelEmitter::emitAccumulate(AccumulateOp op) {
  FailureOr<TileValue> to = tile(op.getInit());
  std::optional<FragmentLayout> layout = view.layout(op.getTerms());
  if (failed(to))
    return failure();
  if (to->kind != TileValue::Kind::Global || !layout ||
      layout->kind() != FragmentLayout::Kind::Accumulator)
    return op.emitOpError("cannot be distributed: expected a computed tile and "
                          "a whole tensor in global memory");
  tiles[op.getResult()] = *to;
  if (op.placeDependsOn(0) && op.placeDependsOn(1) &&
      op.placeIsOfDifference()) {
    auto regs = registers(op.getTerms(), *layout);
    if (failed(regs))
      return failure();
    Value firstCol = warpCol(*layout), isFirst = isFirstCopy(*layout);
    DiagonalSums diagonals = sumDiagonals(*layout, *regs);
    Value firstRow = mulC(rowWarp(*layout), 16 * layout->rowTiles());
    Value row = toIndex(add(firstRow, diagonals.first)),
          col = firstCol ? toIndex(firstCol) : index(0);
    bool isOrdered = op.getOrdered().has_value();
    return inTurns(
        isOrdered && view.warps() > 1, isOrdered && !op.hasOwnPlaces(0), [&] {
          for (auto [n, sum] : llvm::enumerate(diagonals.sums))
            if (failed(addAtPlace(op, addC(row, 32 * n), col, sum, isFirst)))
              return failure();
          return success();
        });
  }
  FailureOr<PlaceSums> own = sumInThread(op);
  if (failed(own))
    return failure();
  auto carried = carriedSums.find(op);
  if (carried == carriedSums.end())
    return addSums(op, *own);
  for (auto [sum, part] : llvm::zip(carried->second.sums, own->sums))
    sum.second = arith::AddFOp::create(b, loc, sum.second, part.second);
  return success();
}

/// A number or elements of a vector in memory, to each of which one thread adds
/// those of the terms that lie above it, in their order.
LogicalResult KernelEmitter::emitReduce(linalg::ReduceOp op) {
  Value init = op.getInits()[0], terms = op.getInputs()[0];
  FailureOr<TileValue> sum = tile(init), added = tile(terms);
  if (failed(sum) || failed(added))
    return failure();
  unsigned above = op.getDimensions().size();
  std::optional<GlobalSlice> to = inMemory(*sum, index(0)),
                             from = inMemory(*added, index(0));
  bool areFirst =
      llvm::equal(op.getDimensions(), llvm::seq<int64_t>(0, int64_t(above)));
  if (!to || !from || !areFirst || to->dims.size() > 1 ||
      op->getNumResults() != 1)
    return op.emitOpError("cannot be distributed: expected tensors in global "
                          "memory, or slices of them, reduced to a number or "
                          "to a vector along their first dimensions");
  auto sizeOf = [&](Value v, int64_t d) {
    auto type = cast<RankedTensorType>(v.getType());
    const GlobalSlice &slice = v == init ? *to : *from;
    return type.isDynamicDim(d) ? slice.valid[d] : index(type.getDimSize(d));
  };
  auto pointerTo = [&](const GlobalSlice &slice, ValueRange place) {
    SmallVector<Value> at(slice.offsets);
    for (auto [dim, i] : llvm::zip_equal(slice.dims, place))
      at[dim] = add(at[dim], i);
    return elementPointer(*slice.base, at);
  };
  bool isNumber = to->dims.empty();
  Value count = isNumber ? index(1) : sizeOf(init, 0);
  OpBuilder::InsertionGuard guard(b);
  auto elements = scf::ForOp::create(b, loc, toIndex(threadId()), count,
                                     index(view.threads()));
  b.setInsertionPoint(elements.getBody()->getTerminator());
  SmallVector<Value> element;
  if (!isNumber)
    element.push_back(elements.getInductionVar());
  Value target = pointerTo(*to, element);
  Type type = getElementTypeOrSelf(init.getType());
  SmallVector<Value> lower(above, index(0)), upper, step(above, index(1));
  for (unsigned d = 0; d < above; ++d)
    upper.push_back(sizeOf(terms, d));
  scf::LoopNest nest = scf::buildLoopNest(
      b, loc, lower, upper, step, loadElement(target, type),
      [&](OpBuilder &, Location, ValueRange at, ValueRange carried) {
        SmallVector<Value> place(at);
        llvm::append_range(place, element);
        IRMapping map;
        Block &body = op.getCombiner().front();
        map.map(body.getArgument(0),
                loadElement(pointerTo(*from, place), type));
        map.map(body.getArgument(1), carried[0]);
        for (Operation &inner : body.without_terminator())
          b.clone(inner, map);
        return scf::ValueVector{
            map.lookup(body.getTerminator()->getOperand(0))};
      });
  storeElement(nest.results[0], target);
  TileValue &result = tiles[op->getResult(0)];
  result.kind = TileValue::Kind::Slice;
  result.slice = *to;
  return success();
}
