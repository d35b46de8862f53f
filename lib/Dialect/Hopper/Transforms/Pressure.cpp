// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Pressure.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace fa::hopper;

static bool isInRegisters(Value value, DenseSet<Value> &asked) {
  if (isa<PendingType>(value.getType()))
    return true;
  if (!isa<RankedTensorType>(value.getType()) || !asked.insert(value).second)
    return false;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
    return loop &&
           isInRegisters(loop.getTiedLoopYieldedValue(argument)->get(), asked);
  }
  Operation *op = value.getDefiningOp();
  unsigned n = cast<OpResult>(value).getResultNumber();
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return isInRegisters(loop.getYieldedValues()[n], asked);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return isInRegisters(branch.thenYield().getOperand(n), asked);
  // Sums that are staged lie in shared memory from there on.
  if (auto stage = dyn_cast<StageOp>(op))
    return !stage.holdsSums();
  return isa<WaitGroupOp, PinOp, PartialSumsOp>(op) ||
         (isa<linalg::LinalgOp>(op) && !isa<linalg::FillOp>(op));
}

bool fa::hopper::isInRegisters(Value value) {
  DenseSet<Value> asked;
  return ::isInRegisters(value, asked);
}

/// Whether a vector has an element for each column of a matrix, of all of which
/// each thread has some.
static bool isAlongColumns(Value vector) {
  return llvm::any_of(vector.getUses(), [](OpOperand &use) {
    auto op = dyn_cast<linalg::LinalgOp>(use.getOwner());
    if (!op)
      return false;
    AffineMap map = op.getMatchingIndexingMap(&use);
    if (op.getNumLoops() == 2)
      return map.isFunctionOfDim(1);
    return op.getNumLoops() == 1 && op->getNumResults() == 1 &&
           isAlongColumns(op->getResult(0));
  });
}

int64_t fa::hopper::registersOf(Value value, int64_t warpgroups) {
  if (!isInRegisters(value))
    return 0;
  RankedTensorType type = getTileType(value.getType());
  if (!type || !type.hasStaticShape())
    return 0;
  constexpr int64_t threads = 128, registerBits = 32, quad = 4;
  if (type.getRank() < 2)
    return isAlongColumns(value) ? type.getNumElements() / quad : 2;
  return llvm::divideCeil(type.getNumElements() * type.getElementTypeBitWidth(),
                          threads * warpgroups * registerBits);
}

llvm::SetVector<Value> fa::hopper::surelyUsedBy(Operation *op) {
  llvm::SetVector<Value> used(op->operand_begin(), op->operand_end());
  if (auto branch = dyn_cast<scf::IfOp>(op); branch && branch.elseBlock())
    for (Block *side : {branch.thenBlock(), branch.elseBlock()})
      if (llvm::hasSingleElement(*side)) {
        used.insert_range(side->getTerminator()->getOperands());
        return used;
      }
  getUsedValuesDefinedAbove(op->getRegions(), used);
  return used;
}

bool fa::hopper::isCarriedAsName(Operation *op, Value v) {
  auto loop = dyn_cast<scf::ForOp>(op->getParentOp());
  if (!loop || op != loop.getBody()->getTerminator())
    return false;
  auto isName = [](Value carried) {
    return llvm::all_of(carried.getUsers(), llvm::IsaPred<AcquireOp>);
  };
  return llvm::all_of(op->getOpOperands(), [&](OpOperand &operand) {
    unsigned n = operand.getOperandNumber();
    Value argument = loop.getRegionIterArg(n), result = loop.getResult(n);
    return operand.get() != v ||
           (!argument.use_empty() && isName(argument) && isName(result));
  });
}

Pressure::Pressure(Block &block, int64_t warpgroups) : warpgroups(warpgroups) {
  for (Operation &op : block) {
    // It says which tile the stage holds, and reads the stage.
    if (isa<AcquireOp>(op))
      continue;
    for (Value v : surelyUsedBy(&op)) {
      if (!registersOf(v) || isCarriedAsName(&op, v))
        continue;
      used[&op].push_back(v);
      // What is made before the block is there from its begin; where it is not
      // the block's own, to its end.
      bool isAnew = users[v].empty();
      users[v].insert(&op);
      if (isAnew && (isa<BlockArgument>(v) || v.getParentBlock() != &block))
        liveNow += registersOf(v);
      if (v.getParentBlock() != &block)
        users[v].insert(block.getParentOp());
    }
  }
}

Value Pressure::heldBy(Operation *product) const {
  auto wgmma = dyn_cast<WgmmaOp>(product);
  return wgmma && isa<RankedTensorType>(wgmma.getA().getType()) ? wgmma.getA()
                                                                : Value();
}

bool Pressure::holdsOperands() const {
  return llvm::any_of(inFlight,
                      [&](WgmmaOp product) { return bool(heldBy(product)); });
}

size_t Pressure::endedBy(WaitGroupOp wait) const {
  size_t count = 0;
  for (Value v : wait.getValues()) {
    const auto *it = llvm::find(inFlight, v.getDefiningOp());
    if (it != inFlight.end())
      count = std::max<size_t>(count, it - inFlight.begin() + 1);
  }
  return count;
}

SmallVector<Value> Pressure::freedBy(Operation *op) const {
  DenseMap<Value, SmallVector<Operation *>> ended;
  if (auto it = used.find(op); it != used.end())
    for (Value v : it->second)
      if (v != heldBy(op))
        ended[v].push_back(op);
  if (auto wait = dyn_cast<WaitGroupOp>(op))
    for (WgmmaOp product : ArrayRef(inFlight).take_front(endedBy(wait)))
      if (Value held = heldBy(product))
        ended[held].push_back(product);
  SmallVector<Value> freed;
  for (auto &[value, by] : ended)
    if (users.lookup(value).size() == by.size())
      freed.push_back(value);
  return freed;
}

int64_t Pressure::growth(Operation *op) const {
  int64_t change = 0;
  for (Value result : op->getResults())
    if (!result.use_empty())
      change += registersOf(result);
  for (Value freed : freedBy(op))
    change -= registersOf(freed);
  return change;
}

void Pressure::place(Operation *op) {
  liveNow += growth(op);
  if (auto it = used.find(op); it != used.end())
    for (Value v : it->second)
      if (v != heldBy(op))
        users[v].erase(op);
  if (auto wait = dyn_cast<WaitGroupOp>(op)) {
    size_t count = endedBy(wait);
    for (WgmmaOp product : ArrayRef(inFlight).take_front(count))
      if (Value held = heldBy(product))
        users[held].erase(product);
    inFlight.erase(inFlight.begin(), inFlight.begin() + count);
  }
  if (auto product = dyn_cast<WgmmaOp>(op))
    inFlight.push_back(product);
}
