// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Contractions: mma.sync m16n8k16 on operands from shared memory by ldmatrix or
// from registers; plain multiply-adds for f32.

#include "KernelEmitter.h"

using namespace mlir;
using namespace fa::nvidia;

/// Two values of neighbouring columns as one vector.
Value KernelEmitter::pack(Value low, Value high) {
  auto type = VectorType::get({2}, low.getType());
  Value v = LLVM::PoisonOp::create(b, loc, type);
  v = LLVM::InsertElementOp::create(b, loc, v, low, i32(0));
  return LLVM::InsertElementOp::create(b, loc, v, high, i32(1));
}

Value KernelEmitter::packWord(Value low, Value high) {
  // Conversions of a pair are one instruction.
  auto x = low.getDefiningOp<arith::TruncFOp>(),
       y = high.getDefiningOp<arith::TruncFOp>();
  if (x && y && x.getIn().getType().isF32() && y.getIn().getType().isF32()) {
    StringRef text = low.getType().isBF16() ? "cvt.rn.bf16x2.f32 $0, $1, $2;"
                                            : "cvt.rn.f16x2.f32 $0, $1, $2;";
    return ptx(text, "=r,f,f", {y.getIn(), x.getIn()}, b.getI32Type(),
               /*sideEffects=*/false)
        .front();
  }
  return LLVM::BitcastOp::create(b, loc, b.getI32Type(), pack(low, high));
}

Value KernelEmitter::packBits(ArrayRef<Value> bits) {
  Value word;
  for (auto [reg, bit] : llvm::enumerate(bits)) {
    Value wide = arith::ExtUIOp::create(b, loc, b.getI32Type(), bit);
    Value placed = arith::ShLIOp::create(b, loc, wide, i32(bitOf(reg)));
    word = word ? arith::OrIOp::create(b, loc, word, placed) : placed;
  }
  return word;
}

SmallVector<Value> KernelEmitter::packWords(ArrayRef<Value> values) {
  SmallVector<Value> words;
  if (values.front().getType().isInteger(1)) {
    for (; !values.empty();
         values = values.drop_front(std::min<size_t>(32, values.size())))
      words.push_back(packBits(values.take_front(32)));
    return words;
  }
  for (unsigned i = 0; i + 1 < values.size(); i += 2)
    words.push_back(packWord(values[i], values[i + 1]));
  return words;
}

Value KernelEmitter::element(ArrayRef<Value> regs, unsigned reg, Type type,
                             const FragmentLayout &layout) {
  if (!isPacked(type, layout))
    return regs[reg];
  if (type.isInteger(1)) {
    Value shifted =
        arith::ShRUIOp::create(b, loc, regs[reg / 32], i32(bitOf(reg)));
    return arith::TruncIOp::create(b, loc, type, shifted);
  }
  Value pair = LLVM::BitcastOp::create(b, loc, VectorType::get({2}, type),
                                       regs[reg / 2]);
  return LLVM::ExtractElementOp::create(b, loc, pair, i32(reg % 2));
}

/// ldmatrix.x4: four 8x8 matrices, two along the rows and two along the
/// columns from (row, col). RowsFirst: the second matrix lies below the first.
/// \p warpRows and \p warpChunks (or null) say where the warp's part begins.
SmallVector<Value, 4>
KernelEmitter::loadMatrices(const SharedLayout &layout, SharedPlace base,
                            Value warpRows, int64_t row, Value warpChunks,
                            int64_t col, Matrices order, bool transpose) {
  unsigned group = layout.group();
  Value matrix = divC(lane(), 8), inMatrix = remC(lane(), 8);
  Value low = remC(matrix, 2), high = divC(matrix, 2);
  bool rowsFirst = order == Matrices::RowsFirst;
  Value laneRow = add(inMatrix, mulC(rowsFirst ? low : high, 8));
  Value laneChunk = rowsFirst ? high : low;
  // Rows of 8 begin at a multiple of 8, where the permutation repeats.
  Value swizzle = remC(divC(inMatrix, 8 / group), group);
  int64_t chunk = col / layout.elementsPerChunk();
  int64_t constant = row * layout.pitch();
  Value swizzled;
  int64_t inGroup = 0;
  if (warpChunks) {
    swizzled = xorI(add(addC(warpChunks, chunk), laneChunk), swizzle);
  } else {
    // chunk is even: adding laneChunk is xor, and bits above the group stay.
    inGroup = chunk % group;
    constant += (chunk - inGroup) * 16;
    swizzled = xorI(laneChunk, swizzle);
    if (inGroup && !view.addsTiles())
      swizzled = xorI(swizzled, i32(inGroup));
  }
  Value rows = warpRows ? add(laneRow, warpRows) : laneRow;
  Value offset = add(mulC(rows, layout.pitch()), mulC(swizzled, 16));
  offset = add(offset, base.offset);
  // Rows and stages begin at multiples of a group, so that its bits may be
  // changed last: of a thread's addresses only one outlives the step.
  if (inGroup && view.addsTiles())
    offset = xorI(offset, i32(16 * inGroup));
  Value pointer = sharedPointer(offset, base.constant + constant);
  auto type = LLVM::LLVMStructType::getLiteral(
      b.getContext(), SmallVector<Type>(4, b.getI32Type()));
  auto shape = NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8);
  Value loaded = NVVM::LdMatrixOp::create(b, loc, type, pointer, 4,
                                          transpose ? NVVM::MMALayout::col
                                                    : NVVM::MMALayout::row,
                                          shape, NVVM::LdStMatrixEltType::B16);
  SmallVector<Value, 4> parts;
  for (int64_t i = 0; i < 4; ++i)
    parts.push_back(LLVM::ExtractValueOp::create(b, loc, loaded, i));
  return parts;
}

/// The A fragment of 16 rows and 16 k from shared memory.
SmallVector<Value, 4> KernelEmitter::loadA(const Contraction &c,
                                           const SharedTile &load,
                                           unsigned rowTile, unsigned step) {
  FragmentLayout result = *view.layout(c.op->getResult(0));
  unsigned rowsPerWarp = 16 * result.rowTiles();
  SharedPlace base = sharedTile(load);
  if (!c.aOuterK)
    return loadMatrices(load.layout, base, mulC(rowWarp(result), rowsPerWarp),
                        16 * rowTile, Value(), 16 * step, Matrices::RowsFirst,
                        /*transpose=*/false);
  Value warpChunks =
      mulC(rowWarp(result), rowsPerWarp / load.layout.elementsPerChunk());
  return loadMatrices(load.layout, base, Value(), 16 * step, warpChunks,
                      16 * rowTile, Matrices::ColumnsFirst,
                      /*transpose=*/true);
}

/// The A fragment of 16 rows and 16 k from an accumulator: its registers are
/// where the instruction wants them, in pairs.
SmallVector<Value, 4> KernelEmitter::packA(const Contraction &c,
                                           ArrayRef<Value> regs,
                                           unsigned rowTile, unsigned step) {
  FragmentLayout layout = *view.layout(c.a->get());
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(c.elementType));
  SmallVector<Value, 4> parts;
  for (unsigned half = 0; half < 2; ++half)
    for (unsigned below = 0; below < 2; ++below) {
      if (2 * step + half >= layout.colTiles()) {
        parts.push_back(i32(0));
        continue;
      }
      unsigned reg = layout.reg(rowTile, 2 * step + half, 2 * below);
      if (c.k % 8 == 0 || layout.regCol(reg) + 8 <= c.k) {
        parts.push_back(regs[reg / 2]);
        continue;
      }
      SmallVector<Value, 2> pair;
      for (unsigned e = 0; e < 2; ++e)
        pair.push_back(arith::SelectOp::create(
            b, loc, less(colOf(layout, reg + e), index(c.k)),
            element(regs, reg + e, c.elementType, layout), zero));
      parts.push_back(packWord(pair[0], pair[1]));
    }
  return parts;
}

LogicalResult KernelEmitter::emitTensorCore(const Contraction &c,
                                            SmallVectorImpl<Value> &acc) {
  FragmentLayout layout = *view.layout(c.op->getResult(0));
  unsigned steps = (c.k + 15) / 16, rowTiles = layout.rowTiles();
  const SharedTile *a = view.shared(c.a->get());
  const SharedTile *bTile = view.shared(c.b->get());
  SmallVector<Value> aRegs;
  if (!a) {
    auto regs = registers(c.a->get(), *view.layout(c.a->get()));
    if (failed(regs))
      return failure();
    aRegs = *regs;
  }
  bool bf16 = c.elementType.isBF16();
  auto pairType = VectorType::get({2}, c.elementType);
  auto operand = [&](Value v) -> Value {
    return bf16 ? v : LLVM::BitcastOp::create(b, loc, pairType, v);
  };
  auto type = bf16 ? NVVM::MMATypes::bf16 : NVVM::MMATypes::f16;
  auto resultType = LLVM::LLVMStructType::getLiteral(
      b.getContext(), SmallVector<Type>(4, b.getF32Type()));
  auto multiply = [&](ArrayRef<Value> aParts, Value b0, Value b1,
                      unsigned reg) {
    SmallVector<Value> as, bs{operand(b0), operand(b1)};
    for (Value v : aParts)
      as.push_back(operand(v));
    SmallVector<Value> cs(acc.begin() + reg, acc.begin() + reg + 4);
    Value d = NVVM::MmaOp::create(
        b, loc, resultType, as, bs, cs, ArrayRef<int64_t>{16, 8, 16},
        std::nullopt, std::nullopt, std::array<NVVM::MMATypes, 2>{type, type},
        std::array<NVVM::MMALayout, 2>{NVVM::MMALayout::row,
                                       NVVM::MMALayout::col});
    for (unsigned i = 0; i < 4; ++i)
      acc[reg + i] = LLVM::ExtractValueOp::create(b, loc, d, i);
  };
  auto hoisted = fragments.find(c.a);
  for (unsigned step = 0; step < steps; ++step) {
    SmallVector<SmallVector<Value, 4>> as;
    for (unsigned t = 0; t < rowTiles; ++t) {
      if (!a) {
        as.push_back(packA(c, aRegs, t, step));
      } else if (hoisted != fragments.end()) {
        auto from = hoisted->second.begin() + (t * steps + step) * 4;
        as.push_back(SmallVector<Value, 4>(from, from + 4));
      } else {
        as.push_back(loadA(c, *a, t, step));
      }
    }
    SharedPlace base = sharedTile(*bTile);
    Value first = warpCol(layout), firstChunk;
    if (first)
      firstChunk = divC(first, bTile->layout.elementsPerChunk());
    for (unsigned n = 0; n < layout.colTiles(); n += 2) {
      SmallVector<Value, 4> bs =
          c.bOuterK ? loadMatrices(bTile->layout, base, Value(), 16 * step,
                                   firstChunk, 8 * n, Matrices::RowsFirst,
                                   /*transpose=*/true)
                    : loadMatrices(bTile->layout, base, first, 8 * n, Value(),
                                   16 * step, Matrices::ColumnsFirst,
                                   /*transpose=*/false);
      for (unsigned t = 0; t < rowTiles; ++t)
        for (unsigned h = 0; h < 2 && n + h < layout.colTiles(); ++h)
          multiply(as[t], bs[2 * h], bs[2 * h + 1], layout.reg(t, n + h, 0));
    }
  }
  return success();
}

/// f32: each thread multiplies the rows and columns of its own elements, both
/// operands from shared memory.
LogicalResult KernelEmitter::emitMultiplyAdds(const Contraction &c,
                                              SmallVectorImpl<Value> &acc) {
  FragmentLayout layout = *view.layout(c.op->getResult(0));
  const SharedTile *a = view.shared(c.a->get());
  const SharedTile *bTile = view.shared(c.b->get());
  SharedPlace aBase = sharedTile(*a), bBase = sharedTile(*bTile);
  OpBuilder::InsertionGuard guard(b);
  auto loop = scf::ForOp::create(b, loc, index(0), index(c.k), index(1),
                                 ValueRange(acc));
  b.setInsertionPointToStart(loop.getBody());
  Value k = toI32(loop.getInductionVar());
  auto element = [&](const SharedTile &load, SharedPlace base, bool outerK,
                     Value other) {
    Value offset =
        sharedOffset(load.layout, outerK ? k : other, outerK ? other : k);
    return loadElement(sharedPointer(add(offset, base.offset), base.constant),
                       load.elementType);
  };
  FragmentLayout rows = layout.alongRows();
  SmallVector<Value> as, bs;
  for (unsigned r = 0; r < rows.numRegs(); ++r)
    as.push_back(element(*a, aBase, c.aOuterK, toI32(rowOf(rows, r))));
  // The warp's own columns, where warps divide these.
  for (unsigned r = 0; r < 2 * layout.colTiles(); ++r)
    bs.push_back(element(*bTile, bBase, c.bOuterK,
                         toI32(colOf(layout, layout.reg(0, r / 2, r % 2)))));
  SmallVector<Value> next;
  for (unsigned r = 0; r < layout.numRegs(); ++r) {
    Value product = arith::MulFOp::create(b, loc, as[layout.rowReg(r)],
                                          bs[layout.colReg(r)]);
    next.push_back(
        arith::AddFOp::create(b, loc, loop.getRegionIterArg(r), product));
  }
  scf::YieldOp::create(b, loc, next);
  acc.assign(loop.getResults().begin(), loop.getResults().end());
  return success();
}

/// What a product of the same block takes from shared memory is written there
/// as soon as it is computed; other products may stand between.
LogicalResult KernelEmitter::shareEarly(Value value) {
  for (Operation *user : value.getUsers()) {
    auto convert = dyn_cast<ConvertLayoutOp>(user);
    if (!convert || !view.shared(convert.getResult()) || frames.empty() ||
        !frames.back().hasMet)
      continue;
    for (Operation *product : convert->getUsers())
      if (product->getParentOp() == frames.back().source &&
          value.getParentBlock() == product->getBlock())
        return storeOperand(convert);
  }
  return success();
}

/// Makes a computed operand visible to all warps.
LogicalResult KernelEmitter::convertOperand(OpOperand *operand) {
  auto convert = operand->get().getDefiningOp<ConvertLayoutOp>();
  if (!convert || !view.shared(operand->get()))
    return success();
  if (written.contains(operand->get())) {
    // No barrier since: it is not there for others yet.
    if (shared.contains(operand->get()))
      barrier();
    return success();
  }
  // Who read there before was this product in the last iteration.
  bool isFree = !frames.empty() && frames.back().hasMet &&
                operand->getOwner()->getParentOp() == frames.back().source;
  if (!isFree)
    barrier();
  if (failed(storeOperand(convert)))
    return failure();
  barrier();
  return success();
}

/// A computed operand to shared memory.
LogicalResult KernelEmitter::storeOperand(ConvertLayoutOp convert) {
  FragmentLayout layout = *view.layout(convert.getSource());
  auto regs = registers(convert.getSource(), layout);
  if (failed(regs))
    return failure();
  TileValue t;
  t.kind = TileValue::Kind::Registers;
  t.layout = layout;
  t.regs = *regs;
  storeShared(*view.shared(convert.getResult()), t);
  written.insert(convert.getResult());
  shared.insert(convert.getResult());
  return success();
}

/// What goes to shared memory does so where a product reads it; anything else
/// is read in its new layout.
LogicalResult KernelEmitter::emitConvertLayout(ConvertLayoutOp op) {
  if (view.shared(op.getResult()))
    return success();
  FailureOr<TileValue> source = tile(op.getSource());
  if (succeeded(source))
    tiles[op.getResult()] = TileValue(*source);
  return source;
}

LogicalResult KernelEmitter::emitContraction(const Contraction &c) {
  Value result = c.op->getResult(0);
  FragmentLayout layout = *view.layout(c.op->getResult(0));
  auto init = registers(c.op.getDpsInits()[0], layout);
  if (failed(init) || failed(convertOperand(c.a)) ||
      failed(convertOperand(c.b)))
    return failure();
  SmallVector<Value> acc = *init;
  if (failed(c.tensorCore() ? emitTensorCore(c, acc)
                            : emitMultiplyAdds(c, acc)))
    return failure();
  bindRegisters(result, acc, layout);
  return success();
}

/// Fragments that do not change in a loop are read before it.
LogicalResult KernelEmitter::hoistFragments(scf::ForOp loop) {
  loop.walk([&](linalg::LinalgOp op) {
    std::optional<Contraction> c = matchContraction(op);
    if (!c || op->getParentOfType<scf::ForOp>() != loop ||
        !op->hasAttr(NVIDIADialect::hoistedName))
      return;
    const SharedTile *a = view.load(c->a->get());
    FragmentLayout layout = *view.layout(op->getResult(0));
    SmallVector<Value> list;
    for (unsigned t = 0; t < layout.rowTiles(); ++t)
      for (unsigned step = 0; step < (c->k + 15) / 16; ++step)
        list.append(loadA(*c, *a, t, step));
    fragments[c->a] = list;
  });
  return success();
}
