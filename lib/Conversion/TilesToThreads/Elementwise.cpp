// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Elementwise operations and row reductions: a body is cloned for each register
// of the layout.

#include "KernelEmitter.h"
#include "PTXText.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace fa::nvidia;

/// Bodies may hold scalar operations, coordinates and reads of captured
/// tensors.
LogicalResult KernelEmitter::checkBody(linalg::LinalgOp op) {
  for (Operation &inner : *op.getBlock()) {
    if (inner.getNumRegions() == 0)
      continue;
    bool bad = false;
    inner.walk([&](Operation *nested) {
      bad |= isa<linalg::IndexOp, tensor::ExtractOp>(nested);
    });
    if (bad)
      return inner.emitOpError("reads coordinates or tensors inside a region; "
                               "use arith.select in the body instead");
  }
  return success();
}

/// Results that are no better than 16-bit data ask for: functions may be
/// computed by formulas that are right to 2e-6 of the largest result.
static void allowApproximations(Operation *op) {
  op->walk([](math::TanhOp tanh) {
    tanh.setFastmath(tanh.getFastmath() | arith::FastMathFlags::afn);
  });
  op->walk([](arith::MulFOp product) {
    product.setFastmath(product.getFastmath() | arith::FastMathFlags::contract);
  });
}

static void mapArguments(Block &body, ValueRange args, IRMapping &map) {
  for (auto [arg, value] : llvm::zip(body.getArguments(), args))
    if (value)
      map.map(arg, value);
}

LogicalResult KernelEmitter::mapBody(linalg::LinalgOp op, ValueRange args,
                                     Value row, Value col, IRMapping &map) {
  for (auto coordinate : op.getBlock()->getOps<linalg::IndexOp>()) {
    Value v = coordinate.getDim() == 0 ? (row ? row : col) : col;
    if (!v)
      return op->emitOpError("asks for a coordinate that its layout lacks");
    map.map(coordinate.getResult(), v);
  }
  mapArguments(*op.getBlock(), args, map);
  return success();
}

FailureOr<SmallVector<Value>>
KernelEmitter::cloneBody(linalg::LinalgOp op, ValueRange args,
                         ValueRange wanted, Value row, Value col,
                         ArrayRef<Operation *> skipped) {
  IRMapping map;
  if (failed(mapBody(op, args, row, col, map)))
    return failure();
  return cloneBlock(*op.getBlock(), {}, wanted, map, skipped);
}

/// What an operation reads of outside the body it is in.
LogicalResult KernelEmitter::mapOuter(Operation &op, IRMapping &map) {
  WalkResult walk = op.walk([&](Operation *nested) {
    for (Value operand : nested->getOperands()) {
      if (op.isAncestor(operand.getParentRegion()->getParentOp()) ||
          map.contains(operand))
        continue;
      Value v = scalar(operand);
      if (!v)
        return WalkResult::interrupt();
      map.map(operand, v);
    }
    return WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}

LogicalResult KernelEmitter::cloneOperation(Operation &op, IRMapping &map) {
  if (isa<linalg::IndexOp>(op))
    return success();
  if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
    FailureOr<Value> v = emitExtract(extract, map);
    if (succeeded(v))
      map.map(extract.getResult(), *v);
    return v;
  }
  if (failed(mapOuter(op, map)))
    return failure();
  if (auto random = dyn_cast<RandomBitsOp>(op)) {
    auto copy = cast<RandomBitsOp>(b.clone(op, map));
    map.map(random.getBits(), copy.expand(b));
    copy.erase();
    return success();
  }
  Operation *copy = b.clone(op, map);
  if (allowsApproximations)
    allowApproximations(copy);
  return success();
}

FailureOr<SmallVector<Value>>
KernelEmitter::cloneBlock(Block &body, ValueRange args, ValueRange wanted,
                          IRMapping &map, ArrayRef<Operation *> skipped) {
  mapArguments(body, args, map);
  for (Operation &inner : body.without_terminator())
    if (!llvm::is_contained(skipped, &inner) &&
        failed(cloneOperation(inner, map)))
      return failure();
  SmallVector<Value> results;
  for (Value v : wanted) {
    Value r = map.lookupOrNull(v);
    if (!r)
      r = scalar(v);
    if (!r)
      return failure();
    results.push_back(r);
  }
  return results;
}

/// Whether one instruction of sm_90 computes two numbers of 16 bits.
static bool isOfPairs(Operation &op) {
  return isa<arith::AddFOp, arith::SubFOp, arith::MulFOp>(op) &&
         op.getResult(0).getType().isBF16();
}

/// An operation for two columns that share a register.
LogicalResult KernelEmitter::clonePair(Operation &op, IRMapping (&maps)[2]) {
  auto type = VectorType::get({2}, op.getResult(0).getType());
  SmallVector<Value> operands;
  for (IRMapping &map : maps)
    if (failed(mapOuter(op, map)))
      return failure();
  for (Value v : op.getOperands())
    operands.push_back(LLVM::BitcastOp::create(
        b, loc, type, packWord(maps[0].lookup(v), maps[1].lookup(v))));
  Operation *both = b.create(loc, op.getName().getIdentifier(), operands,
                             TypeRange{type}, op.getAttrs());
  for (auto [i, map] : llvm::enumerate(maps))
    map.map(op.getResult(0),
            LLVM::ExtractElementOp::create(b, loc, both->getResult(0), i32(i)));
  return success();
}

/// The words of a tile whose body computes numbers of 16 bits.
FailureOr<SmallVector<Value>>
KernelEmitter::emitPairs(linalg::LinalgOp op, const FragmentLayout &layout) {
  SmallVector<Value> words;
  Block &body = *op.getBlock();
  Value yielded = body.getTerminator()->getOperand(0);
  for (unsigned r = 0, e = layout.numRegs(); r < e; r += 2) {
    IRMapping maps[2];
    for (auto [i, map] : llvm::enumerate(maps)) {
      auto args = elements(op, layout, r + i);
      if (failed(args) || failed(mapBody(op, *args, rowOf(layout, r + i),
                                         colOf(layout, r + i), map)))
        return failure();
    }
    for (Operation &inner : body.without_terminator()) {
      if (isOfPairs(inner) ? failed(clonePair(inner, maps))
                           : failed(cloneOperation(inner, maps[0])) ||
                                 failed(cloneOperation(inner, maps[1])))
        return failure();
    }
    words.push_back(packWord(maps[0].lookup(yielded), maps[1].lookup(yielded)));
  }
  return words;
}

/// The element of an operand that goes with a register of the op's layout.
FailureOr<Value> KernelEmitter::operandElement(linalg::LinalgOp op,
                                               OpOperand *operand,
                                               const FragmentLayout &layout,
                                               unsigned reg) {
  using Kind = FragmentLayout::Kind;
  Value v = operand->get();
  if (!isa<TensorType>(v.getType()))
    return scalar(v);
  AffineMap map = op.getMatchingIndexingMap(operand);
  FailureOr<TileValue> t = tile(v);
  if (failed(t))
    return failure();
  if (t->kind == TileValue::Kind::Splat)
    return t->splat;
  auto once = [&](const FragmentLayout &as, unsigned r) -> FailureOr<Value> {
    auto key = std::make_pair(v, unsigned(as.kind()));
    auto it = operandRegs.find(key);
    if (t->kind == TileValue::Kind::Shared) {
      SmallVector<Value> &regs = operandRegs[key];
      regs.resize(as.numRegs());
      if (!regs[r])
        loadShared(getElementTypeOrSelf(v), *t, r, regs);
      return regs[r];
    }
    if (it == operandRegs.end()) {
      auto regs = registers(v, as);
      if (failed(regs))
        return failure();
      it = operandRegs.insert({key, *regs}).first;
    }
    return element(it->second, r, getElementTypeOrSelf(v), as);
  };
  if (map.isIdentity())
    return once(layout, reg);
  if (map.getNumResults() == 1 && layout.kind() == Kind::Accumulator) {
    if (auto dim = dyn_cast<AffineDimExpr>(map.getResult(0))) {
      if (dim.getPosition() == 0)
        return once(layout.alongRows(), layout.rowReg(reg));
      return once(layout.alongColumns(), layout.colReg(reg));
    }
  }
  if (map.getNumResults() == 0 && t->kind == TileValue::Kind::Slice)
    return loadElement(elementPointer(*t->slice.base, t->slice.offsets),
                       getElementTypeOrSelf(v));
  op->emitOpError("cannot be distributed: operand ")
      << operand->getOperandNumber() << " is indexed by "
      << AffineMapAttr::get(map) << ", expected the identity or one dimension";
  return failure();
}

/// The elements of all operands that the body reads; null of others.
FailureOr<SmallVector<Value>>
KernelEmitter::elements(linalg::LinalgOp op, const FragmentLayout &layout,
                        unsigned reg) {
  SmallVector<Value> args;
  for (OpOperand &operand : op->getOpOperands()) {
    if (!op.payloadUsesValueFromOperand(&operand)) {
      args.push_back(Value());
      continue;
    }
    FailureOr<Value> v = operandElement(op, &operand, layout, reg);
    if (failed(v) || !*v)
      return failure();
    args.push_back(*v);
  }
  return args;
}

SmallVector<unsigned>
KernelEmitter::orderOf(linalg::LinalgOp op,
                       const FragmentLayout &layout) const {
  auto order = llvm::to_vector(llvm::seq(layout.numRegs()));
  bool readsBits = llvm::any_of(op.getDpsInputs(), [](Value input) {
    auto type = dyn_cast<RankedTensorType>(input.getType());
    return type && type.getRank() == 2 && type.getElementType().isInteger(1);
  });
  if (view.consumers() && readsBits)
    llvm::sort(order, [](unsigned x, unsigned y) {
      return std::pair(x / 32, bitOf(x)) < std::pair(y / 32, bitOf(y));
    });
  return order;
}

LogicalResult KernelEmitter::emitElementwise(linalg::LinalgOp op) {
  Value first = op->getResult(0);
  std::optional<FragmentLayout> layout = view.layout(first);
  if (!layout || failed(checkBody(op)))
    return layout ? failure()
                  : op->emitOpError("expected results of static shape and rank "
                                    "1 or 2, got ")
                        << first.getType();
  for (OpOperand &init : op.getDpsInitsMutable())
    if (!op.getMatchingIndexingMap(&init).isIdentity())
      return op->emitOpError("expected results indexed by the identity");
  if (std::optional<LogicalResult> done = emitMask(op, *layout))
    return *done;
  operandRegs.clear();
  if (view.consumers() && op->getNumResults() == 1 &&
      isPacked(getElementTypeOrSelf(first), *layout) &&
      llvm::any_of(*op.getBlock(), isOfPairs)) {
    auto words = emitPairs(op, *layout);
    if (failed(words))
      return failure();
    bindRegisters(first, *words);
    return success();
  }
  SmallVector<SmallVector<Value>> results(
      op->getNumResults(), SmallVector<Value>(layout->numRegs()));
  for (unsigned r : orderOf(op, *layout)) {
    auto args = elements(op, *layout, r);
    if (failed(args))
      return failure();
    auto yields =
        cloneBody(op, *args, op.getBlock()->getTerminator()->getOperands(),
                  rowOf(*layout, r), colOf(*layout, r));
    if (failed(yields))
      return failure();
    for (auto [list, v] : llvm::zip(results, *yields))
      list[r] = v;
  }
  for (auto [result, regs] : llvm::zip(op->getResults(), results))
    bindRegisters(result, isPacked(getElementTypeOrSelf(result), *layout)
                              ? packWords(regs)
                              : regs);
  return success();
}

/// Whether the order in which an operation combines many values is open: a
/// reduction of a tile begins with partial ones.
static bool isAssociative(Operation *op) {
  return isa<arith::AddFOp, arith::MulFOp, arith::MaxNumFOp, arith::MinNumFOp,
             arith::MaximumFOp, arith::MinimumFOp, arith::AddIOp, arith::MulIOp,
             arith::MaxSIOp, arith::MinSIOp, arith::MaxUIOp, arith::MinUIOp,
             arith::AndIOp, arith::OrIOp, arith::XOrIOp>(op);
}

/// The single operation that combines the accumulator with the rest of the
/// body, or null. \p other is its other operand.
static Operation *matchCombiner(linalg::LinalgOp op, unsigned result,
                                Value &other) {
  Block &body = *op.getBlock();
  BlockArgument acc = body.getArgument(op.getNumDpsInputs() + result);
  Operation *combiner =
      body.getTerminator()->getOperand(result).getDefiningOp();
  if (!combiner || combiner->getNumOperands() != 2 ||
      combiner->getNumResults() != 1 || !acc.hasOneUse() ||
      *acc.getUsers().begin() != combiner)
    return nullptr;
  other = combiner->getOperand(combiner->getOperand(0) == acc ? 1 : 0);
  return combiner->getOperand(0) == combiner->getOperand(1) ? nullptr
                                                            : combiner;
}

/// The input whose largest elements a reduction finds, extended: of 16 bits,
/// whole tiles of columns. The largest is one of them, so that it is found of
/// two at a time and extended by itself: no register holds a single one. Null
/// otherwise.
static OpOperand *matchPackedMaximum(linalg::LinalgOp op, Operation *combiner,
                                     Value mapped,
                                     const FragmentLayout &layout) {
  auto extended = mapped.getDefiningOp<arith::ExtFOp>();
  if (!isa<arith::MaximumFOp>(combiner) || !extended ||
      op.getNumDpsInputs() != 1 || op.getNumDpsInits() != 1 ||
      layout.cols() % 8)
    return nullptr;
  OpOperand *input = op.getDpsInputOperand(0);
  Type type = getElementTypeOrSelf(input->get());
  return extended.getIn() == op.getBlock()->getArgument(0) &&
                 (type.isBF16() || type.isF16()) &&
                 op.getMatchingIndexingMap(input).isIdentity()
             ? input
             : nullptr;
}

/// Of each row of a thread: of its even columns, and of its odd ones.
LogicalResult
KernelEmitter::findPackedMaxima(Value tile, const FragmentLayout &layout,
                                MutableArrayRef<SmallVector<Value>> chains) {
  auto words = registers(tile, layout);
  if (failed(words))
    return failure();
  Type type = getElementTypeOrSelf(tile);
  SmallVector<Value> tops(chains.size() / 2);
  for (auto [w, word] : llvm::enumerate(*words)) {
    Value &top = tops[layout.rowReg(2 * w)];
    top = top ? ptx(maximumOfWords(type.isBF16()), "=r,r,r", {top, word},
                    b.getI32Type(), false)
                    .front()
              : word;
  }
  for (auto [v, top] : llvm::enumerate(tops))
    for (unsigned e : {0, 1})
      chains[2 * v + e] = {arith::ExtFOp::create(
          b, loc, b.getF32Type(), element({top}, e, type, layout))};
  return success();
}

FailureOr<KernelEmitter::RowReduction>
KernelEmitter::matchRowReduction(linalg::LinalgOp op) {
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  unsigned inputs = op.getNumDpsInputs(), outs = op.getNumDpsInits();
  bool rows = op.getNumLoops() == 2 && op.getNumReductionLoops() == 1 &&
              op.getIteratorTypesArray()[1] == utils::IteratorType::reduction;
  for (unsigned i = 0; rows && i < outs; ++i)
    rows = maps[inputs + i].getNumResults() == 1 &&
           maps[inputs + i].getDimPosition(0) == 0;
  if (!rows || failed(checkBody(op)))
    return op->emitOpError("cannot be distributed: of reductions only those "
                           "along a tile's rows (dimension 1) can");
  RowReduction reduction;
  reduction.mapped.resize(outs);
  for (unsigned i = 0; i < outs; ++i)
    if (Operation *c = matchCombiner(op, i, reduction.mapped[i]))
      reduction.combiners.push_back(c);
  if (reduction.combiners.size() != outs ||
      !llvm::all_of(reduction.combiners, isAssociative))
    return op->emitOpError("cannot be distributed: expected each result to be "
                           "one associative operation on the accumulator, such "
                           "as a sum or a maximum; compute the rest in an "
                           "elementwise operation");
  return reduction;
}

SmallVector<Value> KernelEmitter::combine(const RowReduction &reduction,
                                          ArrayRef<Value> x,
                                          ArrayRef<Value> acc) {
  SmallVector<Value> results;
  for (auto [i, combiner] : llvm::enumerate(reduction.combiners)) {
    IRMapping map;
    bool accFirst = combiner->getOperand(1) == reduction.mapped[i];
    map.map(combiner->getOperand(0), accFirst ? acc[i] : x[i]);
    map.map(combiner->getOperand(1), accFirst ? x[i] : acc[i]);
    results.push_back(b.clone(*combiner, map)->getResult(0));
  }
  return results;
}

/// A reduction along the rows: over the thread's registers, then over the quad,
/// then with the initial value.
LogicalResult KernelEmitter::emitReduction(linalg::LinalgOp op) {
  FailureOr<RowReduction> reduction = matchRowReduction(op);
  if (failed(reduction))
    return failure();
  unsigned outs = op.getNumDpsInits();
  SmallVector<int64_t> ranges = op.getStaticLoopRanges();
  FragmentLayout layout = view.wholeRows(ranges[0], ranges[1]);
  FragmentLayout vector = layout.alongRows();

  // The rest of the body maps an element first.
  auto elementOf = [&](unsigned reg) -> FailureOr<SmallVector<Value>> {
    SmallVector<Value> args;
    for (OpOperand *operand : op.getDpsInputOperands()) {
      FailureOr<Value> v = operandElement(op, operand, layout, reg);
      if (failed(v) || !*v)
        return failure();
      args.push_back(*v);
    }
    return cloneBody(op, args, reduction->mapped, rowOf(layout, reg),
                     colOf(layout, reg), reduction->combiners);
  };

  operandRegs.clear();
  SmallVector<SmallVector<Value>> results(outs,
                                          SmallVector<Value>(vector.numRegs()));
  // Two chains for each row, of the even and the odd columns; one where a
  // thread has no registers to spare.
  bool twoChains = view.consumers() != nullptr;
  SmallVector<SmallVector<Value>> chains(2 * vector.numRegs());
  OpOperand *packed = twoChains
                          ? matchPackedMaximum(op, reduction->combiners[0],
                                               reduction->mapped[0], layout)
                          : nullptr;
  if (packed && failed(findPackedMaxima(packed->get(), layout, chains)))
    return failure();
  for (unsigned r = 0, e = packed ? 0 : layout.numRegs(); r < e; ++r) {
    auto element = elementOf(r);
    if (failed(element))
      return failure();
    SmallVector<Value> &acc =
        chains[2 * layout.rowReg(r) + (twoChains ? r % 2 : 0)];
    if (acc.empty()) {
      acc = *element;
      continue;
    }
    SmallVector<Value> next = combine(*reduction, *element, acc);
    if (layout.regCol(r) + 8 > layout.cols()) // may lie in the padding
      for (unsigned i = 0; i < outs; ++i)
        next[i] = arith::SelectOp::create(
            b, loc, less(colOf(layout, r), index(layout.cols())), next[i],
            acc[i]);
    acc = next;
  }
  SmallVector<SmallVector<Value>> partial;
  for (unsigned v = 0; v < vector.numRegs(); ++v) {
    partial.push_back(chains[2 * v]);
    if (twoChains)
      partial.back() = combine(*reduction, chains[2 * v + 1], chains[2 * v]);
    for (unsigned distance : {1, 2}) {
      SmallVector<Value> other;
      for (Value x : partial[v])
        other.push_back(shuffle(x, distance));
      partial[v] = combine(*reduction, other, partial[v]);
    }
    SmallVector<Value> init;
    for (OpOperand &operand : op.getDpsInitsMutable()) {
      auto regs = registers(operand.get(), vector);
      if (failed(regs))
        return failure();
      init.push_back((*regs)[v]);
    }
    SmallVector<Value> last = combine(*reduction, partial[v], init);
    for (unsigned i = 0; i < outs; ++i)
      results[i][v] = last[i];
  }
  for (auto [result, regs] : llvm::zip(op->getResults(), results))
    bindRegisters(result, regs, vector);
  return success();
}

Value KernelEmitter::shuffle(Value v, unsigned distance) {
  Type type = v.getType();
  Value x = v;
  unsigned width = type.getIntOrFloatBitWidth();
  if (type.isBF16() || type.isF16())
    x = arith::ExtFOp::create(b, loc, b.getF32Type(), v);
  else if (isa<IntegerType>(type) && width < 32)
    x = arith::ExtUIOp::create(b, loc, b.getI32Type(), v);
  auto one = [&](Value part) -> Value {
    return NVVM::ShflOp::create(b, loc, part.getType(), i32(-1), part,
                                i32(distance), i32(31), NVVM::ShflKind::bfly,
                                UnitAttr());
  };
  if (width == 64) {
    Value bits =
        isa<FloatType>(type)
            ? Value(arith::BitcastOp::create(b, loc, b.getI64Type(), v))
            : v;
    Value low = arith::TruncIOp::create(b, loc, b.getI32Type(), bits);
    Value high = arith::TruncIOp::create(
        b, loc, b.getI32Type(), arith::ShRUIOp::create(b, loc, bits, i64(32)));
    low = arith::ExtUIOp::create(b, loc, b.getI64Type(), one(low));
    high = arith::ExtUIOp::create(b, loc, b.getI64Type(), one(high));
    bits = arith::OrIOp::create(b, loc, low,
                                arith::ShLIOp::create(b, loc, high, i64(32)));
    return isa<FloatType>(type)
               ? Value(arith::BitcastOp::create(b, loc, type, bits))
               : bits;
  }
  x = one(x);
  if (type.isBF16() || type.isF16())
    return arith::TruncFOp::create(b, loc, type, x);
  if (isa<IntegerType>(type) && width < 32)
    return arith::TruncIOp::create(b, loc, type, x);
  return x;
}
