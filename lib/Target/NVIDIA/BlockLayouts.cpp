// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the warps of a block divide its tiles, and what of products goes through
// shared memory for it.

#include "BlockPlan.h"

#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include "llvm/ADT/EquivalenceClasses.h"
#include <limits>

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

//===----------------------------------------------------------------------===//
// Layouts of vectors
//===----------------------------------------------------------------------===//

/// Values that control flow and slices pass on as they are.
static void visitPassedOn(Operation *op,
                          llvm::function_ref<void(ArrayRef<Value>)> together) {
  if (auto loop = dyn_cast<scf::ForOp>(op)) {
    for (auto [i, result] : llvm::enumerate(loop.getResults()))
      together({result, loop.getInitArgs()[i], loop.getRegionIterArg(i),
                loop.getYieldedValues()[i]});
  } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
    for (auto [i, result] : llvm::enumerate(branch.getResults()))
      together({result, branch.thenYield().getOperand(i),
                branch.elseYield().getOperand(i)});
  } else if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
    together({slice.getSource(), slice.getResult()});
  } else if (auto role = dyn_cast<hopper::ConsumersOp>(op)) {
    for (auto [result, yielded] :
         llvm::zip(role.getResults(),
                   role.getBody().front().getTerminator()->getOperands()))
      together({result, yielded});
  }
}

LogicalResult BlockPlan::inferVectors() {
  using Kind = FragmentLayout::Kind;
  bool changed = true;
  Operation *conflict = nullptr;
  Operation *current = nullptr;
  auto isVector = [&](Value v) {
    auto type = dyn_cast<RankedTensorType>(v.getType());
    return type && type.getRank() == 1 && !isLoadedTile(v) && !isGlobal(v) &&
           !isa_and_present<tensor::EmptyOp, linalg::FillOp>(v.getDefiningOp());
  };
  auto set = [&](Value v, Kind kind) {
    if (!isVector(v))
      return;
    auto [it, inserted] = vectors.insert({v, kind});
    changed |= inserted;
    if (!inserted && it->second != kind && !conflict)
      conflict = current;
  };
  auto unify = [&](ArrayRef<Value> values) {
    for (Value v : values) {
      auto it = vectors.find(v);
      if (it == vectors.end())
        continue;
      Kind kind = it->second;
      for (Value w : values)
        set(w, kind);
      return;
    }
  };
  auto visitLinalg = [&](linalg::LinalgOp op) {
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    SmallVector<Value> same;
    auto visit = [&](Value value, AffineMap map) {
      if (map.getNumResults() != 1 || !isa<AffineDimExpr>(map.getResult(0)))
        return;
      if (op.getNumLoops() == 1)
        same.push_back(value);
      else
        set(value, map.getDimPosition(0) == 0 ? Kind::Row : Kind::Column);
    };
    for (auto [operand, map] : llvm::zip(op->getOperands(), maps))
      visit(operand, map);
    for (auto [i, result] : llvm::enumerate(op->getResults()))
      visit(result, maps[op.getNumDpsInputs() + i]);
    unify(same);
  };
  while (changed && !conflict) {
    changed = false;
    forall.walk([&](Operation *op) {
      current = op;
      if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
        visitLinalg(linalgOp);
      else
        visitPassedOn(op, unify);
    });
  }
  if (conflict)
    return conflict->emitOpError(
        "uses a vector along the rows and along the columns of tiles; store it "
        "to memory and load it again, or compute it twice");
  return success();
}

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

std::optional<FragmentLayout> BlockPlan::layout(Value value) const {
  RankedTensorType type = hopper::getTileType(value.getType());
  if (!type || !type.hasStaticShape() || type.getRank() < 1 ||
      type.getRank() > 2)
    return std::nullopt;
  int64_t size = type.getDimSize(0);
  auto it = classOf.find(value);
  unsigned warps = numWarps, rowWarps = 0;
  if (it != classOf.end()) {
    const LayoutClass &c = classes[it->second];
    rowWarps = c.rowWarps;
    if (c.whole)
      warps = rowWarps = FragmentLayout::mostRowWarps(c.rows, numWarps);
  }
  if (type.getRank() == 2)
    return FragmentLayout::accumulator(size, type.getDimSize(1), warps,
                                       rowWarps);
  auto vector = vectors.find(value);
  if (vector != vectors.end() && vector->second == FragmentLayout::Kind::Column)
    return FragmentLayout::column(size, warps, rowWarps);
  return FragmentLayout::row(size, warps, rowWarps);
}

/// Whether a tile or vector is in registers, with a layout of its own: not one
/// value throughout.
bool BlockPlan::isComputed(Value value) const {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.hasStaticShape() && type.getRank() >= 1 &&
         type.getRank() <= 2 && !isLoadedTile(value) && !isGlobal(value) &&
         !isa_and_present<tensor::EmptyOp, linalg::FillOp>(
             value.getDefiningOp());
}

/// Classes are whole where rows are reduced. Then what meets vectors is, too:
/// warps keep to their rows.
void BlockPlan::inferClasses() {
  llvm::EquivalenceClasses<const void *> alike;
  SmallVector<Value> computed, needWhole;
  bool reduces = false;
  auto together = [&](ArrayRef<Value> values) {
    Value first;
    for (Value v : values) {
      if (!isComputed(v))
        continue;
      alike.insert(v.getAsOpaquePointer());
      computed.push_back(v);
      if (first)
        alike.unionSets(first.getAsOpaquePointer(), v.getAsOpaquePointer());
      first = v;
    }
  };
  auto isVector = [](Value v) {
    auto type = dyn_cast<RankedTensorType>(v.getType());
    return type && type.getRank() == 1;
  };
  SmallVector<Value> meetVectors;
  auto visitLinalg = [&](linalg::LinalgOp op) {
    SmallVector<Value> all(op->getOperands());
    llvm::append_range(all, op->getResults());
    if (isa<linalg::FillOp>(op))
      return;
    if (matchContraction(op)) {
      together({op->getResult(0), op.getDpsInits()[0]});
      return;
    }
    together(all);
    if (op.getNumReductionLoops())
      llvm::append_range(needWhole, all);
    if (op.getNumLoops() == 2 && llvm::any_of(all, isVector))
      llvm::append_range(meetVectors, all);
    reduces |= op.getNumReductionLoops() != 0;
  };
  forall.walk([&](Operation *op) {
    if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
      visitLinalg(linalgOp);
    else
      visitPassedOn(op, together);
    auto slice = dyn_cast<tensor::ExtractSliceOp>(op);
    if (slice && isVector(slice.getResult()) && !isVector(slice.getSource()))
      needWhole.push_back(slice.getSource());
  });
  if (reduces) {
    llvm::append_range(needWhole, meetVectors);
    // From registers products take whole rows.
    for (const Contraction &c : contractions)
      if (!conversion(c.a) && !load(c.a->get()))
        needWhole.push_back(c.a->get());
  }
  DenseMap<const void *, unsigned> numbers;
  for (Value v : computed) {
    const void *leader = alike.getLeaderValue(v.getAsOpaquePointer());
    auto [it, isNew] = numbers.try_emplace(leader, classes.size());
    if (isNew)
      classes.push_back({});
    classOf[v] = it->second;
    LayoutClass &c = classes[it->second];
    auto type = cast<RankedTensorType>(v.getType());
    if (type.getRank() == 2) {
      c.rows = type.getDimSize(0);
      c.cols = type.getDimSize(1);
    } else if (!c.rows) {
      c.rows = type.getDimSize(0);
    }
  }
  for (Value v : needWhole)
    if (auto it = classOf.find(v); it != classOf.end())
      classes[it->second].whole = true;
}

void BlockPlan::addConversion(OpOperand *operand, Type elementType) {
  converted.insert(operand);
  auto type = cast<RankedTensorType>(operand->get().getType());
  LoadPlan conversion;
  conversion.tile = operand->get();
  conversion.elementType = elementType;
  conversion.layout = SharedLayout(type.getDimSize(0), type.getDimSize(1),
                                   type.getElementTypeBitWidth() / 8);
  conversions.insert({operand->get(), conversion});
}

/// Whether the first operand of a product has the layout in registers that its
/// instruction wants: rows where the result has them, with all columns.
bool BlockPlan::isTakenFromRegisters(const Contraction &c) const {
  FragmentLayout from = *layout(c.a->get()), to = *layout(c.op->getResult(0));
  return c.tensorCore() && !c.aOuterK && from.colWarps() == 1 &&
         from.rowWarps() == to.rowWarps();
}

/// How many warps may divide the rows of a class, the most first.
SmallVector<unsigned> BlockPlan::optionsOf(const LayoutClass &c) const {
  SmallVector<unsigned> result;
  unsigned most = FragmentLayout::mostRowWarps(c.rows, numWarps);
  for (unsigned rows = most; rows >= 1; rows /= 2) {
    bool fits = numWarps % rows == 0 && c.rows % (16 * rows) == 0 &&
                (rows == numWarps || c.cols % (8 * (numWarps / rows)) == 0);
    if (fits || rows == most)
      result.push_back(rows);
    if (c.whole || rows % 2)
      break;
  }
  return result;
}

/// Clocks of a step's products, roughly: the bytes that warps read and write in
/// shared memory (128 a clock), what tensor cores multiply, and barriers.
/// The most there is where shared memory does not suffice.
int64_t BlockPlan::costOfLayouts() const {
  constexpr int64_t kBytesAClock = 128, kProductsAClock = 1024, kBarrier = 64;
  int64_t bytes = 0, products = 0, barriers = 0, shared = 0;
  for (auto &[tile, load] : loads)
    shared += load.layout.size() * (load.ringIndex >= 0 ? 2 : 1);
  DenseSet<Value> stored;
  for (const Contraction &c : contractions) {
    FragmentLayout result = *layout(c.op->getResult(0));
    int64_t rows = c.m / result.rowWarps(), cols = c.n / result.colWarps();
    int64_t size = c.elementType.getIntOrFloatBitWidth() / 8;
    bool isComputedA = !load(c.a->get());
    if (!isComputedA || !isTakenFromRegisters(c)) {
      bytes += numWarps * rows * c.k * size;
      if (isComputedA)
        stored.insert(c.a->get());
    }
    if (!load(c.b->get()))
      stored.insert(c.b->get());
    bytes += numWarps * cols * c.k * size;
    products += numWarps * rows * cols * c.k;
  }
  for (Value v : stored) {
    auto type = cast<RankedTensorType>(v.getType());
    int64_t size = type.getNumElements() * type.getElementTypeBitWidth() / 8;
    bytes += size;
    shared += size;
    barriers += kBarrier;
  }
  if (shared > options.target->sharedMemory)
    return std::numeric_limits<int64_t>::max();
  // Another block of threads hides what this one waits for.
  int64_t blocks = std::min<int64_t>(
      2, blocksPerSM(options.target->info, threads(), estimate, shared));
  return (bytes / kBytesAClock + products / kProductsAClock + barriers) * 2 /
         std::max<int64_t>(1, blocks);
}

/// Warps divide the rows of tiles, as many as can, if nothing speaks for their
/// columns: a product whose warps have 32 x 64 of its result reads less than
/// one whose warps have 16 x 128.
void BlockPlan::chooseLayouts() {
  SmallVector<SmallVector<unsigned>> choices;
  int64_t combinations = 1;
  bool anyWhole = false;
  for (LayoutClass &c : classes) {
    choices.push_back(optionsOf(c));
    c.rowWarps = choices.back().front();
    anyWhole |= c.whole;
    if (c.cols)
      combinations *= choices.back().size();
  }
  bool tensorCores = llvm::all_of(
      contractions, [](const Contraction &c) { return c.tensorCore(); });
  constexpr int64_t kMostCombinations = 4096;
  if (tensorCores && !contractions.empty() && !anyWhole &&
      combinations <= kMostCombinations) {
    SmallVector<unsigned> best;
    int64_t least = 0;
    for (int64_t n = 0; n < combinations; ++n) {
      int64_t rest = n;
      for (auto [c, own] : llvm::zip(classes, choices)) {
        if (!c.cols)
          continue;
        c.rowWarps = own[rest % own.size()];
        rest /= own.size();
      }
      int64_t cost = costOfLayouts();
      if (!best.empty() && cost >= least)
        continue;
      least = cost;
      best.clear();
      for (const LayoutClass &c : classes)
        best.push_back(c.rowWarps);
    }
    for (auto [c, rowWarps] : llvm::zip(classes, best))
      c.rowWarps = rowWarps;
  }
  for (const Contraction &c : contractions)
    if (!load(c.a->get()) && !conversion(c.a) && !isTakenFromRegisters(c))
      addConversion(c.a, c.elementType);
}
