// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Layouts.h"

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/Hopper/IR/Hopper.h"
#include "fa/Schedule/Contraction.h"

#include "llvm/ADT/EquivalenceClasses.h"

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

//===----------------------------------------------------------------------===//
// Vectors
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

LogicalResult Layouts::inferVectors() {
  using Kind = FragmentLayout::Kind;
  bool changed = true;
  Operation *conflict = nullptr;
  Operation *current = nullptr;
  auto isVector = [&](Value v) {
    auto type = dyn_cast<RankedTensorType>(v.getType());
    return type && type.getRank() == 1 && !program.isLoadedTile(v) &&
           !program.isGlobal(v) &&
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
    program.getForall().walk([&](Operation *op) {
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
// Classes
//===----------------------------------------------------------------------===//

std::optional<FragmentLayout> Layouts::of(Value value) const {
  RankedTensorType type = hopper::getTileType(value.getType());
  if (!type || !type.hasStaticShape() || type.getRank() < 1 ||
      type.getRank() > 2)
    return std::nullopt;
  int64_t size = type.getDimSize(0);
  auto it = classOf.find(value);
  unsigned warps = numWarps, rowWarps = 0;
  if (it != classOf.end()) {
    const Class &c = classes[it->second];
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

/// Classes are whole where rows are reduced. Then what meets vectors is, too:
/// warps keep to their rows.
void Layouts::inferClasses(ArrayRef<Value> fromRegisters) {
  llvm::EquivalenceClasses<const void *> alike;
  SmallVector<Value> computed, needWhole;
  bool reduces = false;
  auto together = [&](ArrayRef<Value> values) {
    Value first;
    for (Value v : values) {
      if (!program.isComputed(v))
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
  program.getForall().walk([&](Operation *op) {
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
    llvm::append_range(needWhole, fromRegisters);
  }
  DenseMap<const void *, unsigned> numbers;
  for (Value v : computed) {
    const void *leader = alike.getLeaderValue(v.getAsOpaquePointer());
    auto [it, isNew] = numbers.try_emplace(leader, classes.size());
    if (isNew)
      classes.push_back({});
    classOf[v] = it->second;
    Class &c = classes[it->second];
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

unsigned Layouts::warpsOf(Value tile, unsigned warps) const {
  if (!isWhole(tile))
    return warps;
  auto type = cast<RankedTensorType>(tile.getType());
  return FragmentLayout::mostRowWarps(type.getDimSize(0), warps);
}

void Layouts::divideRows() {
  for (Class &c : classes)
    if (c.cols)
      c.rowWarps = FragmentLayout::mostRowWarps(c.rows, numWarps);
}
