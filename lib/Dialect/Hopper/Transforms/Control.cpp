// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Control.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/OperationSupport.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <numeric>

using namespace mlir;
using namespace fa::hopper;

/// A loop of more trips runs its first and its last ones only.
static constexpr int64_t kMostTrips = 64;
/// Where values that a loop carries decide something, or loops of one role have
/// fewer trips than those of the other, all trips run, if they are not more
/// than these.
static constexpr int64_t kMostCarriedTrips = 1024;
/// Steps that are larger have one trip in any tensor.
static constexpr int64_t kLargestUnit = 1 << 20;
/// Bounds that are larger are of no loop over a tensor (coordinates are below
/// 2^30).
static constexpr int64_t kLargestBound = int64_t(1) << 40;

/// A slot is the number of its acquisition. A float's says which floats are
/// alike: what is computed of the same ones is the same.
static bool isNumber(Type type) {
  return type.isIndex() || isa<SlotType, FloatType>(type) ||
         (type.isInteger() && type.getIntOrFloatBitWidth() <= 64);
}

/// What cuts a tensor out of another one, to be read; or null.
static Operation *viewOf(Value tensor) {
  Operation *op = tensor.getDefiningOp();
  return isa_and_present<tensor::ExtractSliceOp, tensor::CastOp, tensor::PadOp>(
             op)
             ? op
             : nullptr;
}

//===----------------------------------------------------------------------===//
// What has to be run
//===----------------------------------------------------------------------===//

Control::Control(scf::ForallOp forall) : forall(forall) {
  int64_t stages = 1;
  for (auto ring : forall.getBody()->getOps<RingOp>())
    stages = std::max<int64_t>(stages, ring.getRing().getType().getStages());
  forall.walk([&](Operation *op) {
    if (!isStep(op))
      return;
    if (auto release = dyn_cast<ReleaseOp>(op);
        release && release.getCondition())
      need(release.getCondition());
    for (Value operand : op->getOperands())
      if (isa<SlotType>(operand.getType()))
        need(operand);
    if (auto load = dyn_cast<LoadOp>(op))
      need(load.getTile());
    if (auto acquire = dyn_cast<AcquireOp>(op);
        acquire && !isComputed(acquire.getRing()))
      need(acquire.getTile());
    for (Operation *parent = op->getParentOp(); parent != forall;
         parent = parent->getParentOp())
      holdsSteps.insert(parent);
  });
  // Sizes around multiples of what loops and tiles go by.
  llvm::SetVector<int64_t> units, sizes;
  auto addUnit = [&](OpFoldResult step) {
    int64_t unit = getConstantIntValue(step).value_or(1);
    units.insert(0 < unit && unit <= kLargestUnit ? unit : 1);
  };
  for (auto ring : forall.getBody()->getOps<RingOp>())
    units.insert(ring.getRing().getType().rows());
  for (OpFoldResult step : forall.getMixedStep())
    addUnit(step);
  forall.walk([&](Operation *op) {
    if (!holdsSteps.contains(op))
      return;
    if (auto branch = dyn_cast<scf::IfOp>(op))
      need(branch.getCondition());
    auto loop = dyn_cast<scf::ForOp>(op);
    if (!loop)
      return;
    isExpanded |= llvm::any_of(loop.getResultTypes(), llvm::IsaPred<SlotType>);
    for (Value bound :
         {loop.getLowerBound(), loop.getUpperBound(), loop.getStep()})
      need(bound);
    addUnit(loop.getStep());
  });
  for (int64_t unit : units)
    for (int64_t n = 0; n < 2 * stages + 4; ++n)
      for (int64_t around : {0, 1, -1})
        if (n * unit + around >= 0)
          sizes.insert(n * unit + around);
  candidates.assign(sizes.begin(), sizes.end());
  forall.getRegion().walk([&](Block *block) {
    for (Operation &op : *block)
      if (isStep(&op) || holdsSteps.contains(&op) ||
          llvm::any_of(op.getResults(),
                       [&](Value v) { return needed.contains(v); }))
        relevant[block].push_back(&op);
  });
}

/// A number that decides something, and all that it is computed of.
void Control::need(Value value) {
  SmallVector<Value> work{value};
  while (!work.empty()) {
    Value v = work.pop_back_val();
    if (Operation *view = viewOf(v)) {
      work.append(view->operand_begin(), view->operand_end());
      continue;
    }
    if (!isNumber(v.getType()) || !needed.insert(v).second)
      continue;
    if (auto argument = dyn_cast<BlockArgument>(v)) {
      auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
      if (!loop)
        continue;
      if (OpOperand *init = loop.getTiedLoopInit(argument)) {
        work.push_back(init->get());
        work.push_back(loop.getTiedLoopYieldedValue(argument)->get());
      }
      work.append({loop.getLowerBound(), loop.getUpperBound(), loop.getStep()});
      continue;
    }
    Operation *op = v.getDefiningOp();
    work.append(op->operand_begin(), op->operand_end());
    unsigned n = cast<OpResult>(v).getResultNumber();
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      for (Block *block : {branch.thenBlock(), branch.elseBlock()})
        if (block)
          work.push_back(block->getTerminator()->getOperand(n));
    } else if (auto loop = dyn_cast<scf::ForOp>(op)) {
      work.push_back(loop.getYieldedValues()[n]);
    }
  }
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

/// Both roles read it.
bool Control::isOutside(Value value) const {
  Region *region = value.getParentRegion();
  for (Operation &op : *forall.getBody())
    if (isa<ProducerOp, ConsumersOp>(op) && op.getRegion(0).isAncestor(region))
      return false;
  return true;
}

/// SplitMix64 (Steele et al. 2014).
int64_t Control::random() {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return static_cast<int64_t>((z ^ (z >> 31)) >> 1);
}

/// The number for what nothing determines; the same for the same key. As many
/// choices as there are candidates have each of them once, for each key;
/// further rounds pair them with others of other keys.
int64_t Control::candidate(Value value, Key key) {
  auto [it, isNew] = chosen.try_emplace(std::move(key), 0);
  if (!isNew)
    return it->second;
  if (value.getType().isInteger(1)) {
    it->second = random() % 2;
  } else {
    uint64_t count = candidates.size(), which = chosen.size() - 1;
    uint64_t factor = 2 * which + 1;
    while (std::gcd(factor, count) != 1)
      ++factor;
    uint64_t round = number / count;
    it->second =
        candidates[(factor * (number % count) + which * round) % count];
  }
  if (!isa<FloatType>(value.getType()))
    named.push_back({value, it->second});
  return it->second;
}

bool Control::choose(unsigned which) {
  number = which;
  state = which;
  numbers.clear();
  chosen.clear();
  named.clear();
  acquired = 0;
  tooLong = false;
  bool exists = true;
  auto valueOf = [&](OpFoldResult v) -> Number {
    if (std::optional<int64_t> constant = getConstantIntValue(v))
      return constant;
    return evaluate(cast<Value>(v));
  };
  for (auto [iv, low, high, step] :
       llvm::zip(forall.getInductionVars(), forall.getMixedLowerBound(),
                 forall.getMixedUpperBound(), forall.getMixedStep())) {
    if (!needed.contains(iv))
      continue;
    Number from = valueOf(low), to = valueOf(high), by = valueOf(step);
    if (!from || !to || !by || *by <= 0 || *from >= *to) {
      exists = false;
      continue;
    }
    if (std::max({std::abs(*from), std::abs(*to), *by}) > kLargestBound)
      return false;
    int64_t count = (*to - *from + *by - 1) / *by, n = random() % count;
    // The first and the last tile are like no others.
    if (int64_t end = random() % 4; end < 2)
      n = end ? count - 1 : 0;
    numbers[iv] = *from + n * *by;
    if (count > 1)
      chosen.try_emplace({-1, static_cast<int64_t>(named.size())}, n);
    named.push_back({iv, *from + n * *by});
  }
  return exists;
}

void Control::describe(Diagnostic &diagnostic) const {
  diagnostic << "this happens";
  StringRef separator = " where ";
  for (auto [value, number] : named) {
    diagnostic << separator;
    separator = ", ";
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      bool isTile = argument.getOwner()->getParentOp() == forall;
      diagnostic << (isTile ? "the tile's coordinate "
                            : "the function's argument ")
                 << argument.getArgNumber();
    } else {
      diagnostic << "a " << value.getDefiningOp()->getName();
    }
    diagnostic << " is " << number;
  }
  if (named.empty())
    diagnostic << " in each tile";
}

/// The number of operations that compute alike.
int64_t Control::classOf(Operation *op) {
  for (auto [i, other] : llvm::enumerate(classes))
    if (OperationEquivalence::isEquivalentTo(
            op, other, OperationEquivalence::ignoreValueEquivalence, nullptr,
            OperationEquivalence::IgnoreLocations))
      return i;
  classes.push_back(op);
  return classes.size() - 1;
}

/// What an operation computes, and of what: alike for operations that give the
/// same. Nothing where that depends on tiles.
std::optional<Control::Key> Control::keyOf(Operation *op) {
  Key key{classOf(op)};
  for (Value operand : op->getOperands()) {
    std::optional<int64_t> n = isa<TensorType>(operand.getType())
                                   ? identify(operand)
                                   : evaluate(operand);
    if (!n)
      return std::nullopt;
    key.push_back(*n);
  }
  return key;
}

/// A number for a value that both roles read.
int64_t Control::numberOutside(Value value) {
  outside.insert(value);
  return llvm::find(outside, value) - outside.begin();
}

/// The number of a tensor that both roles can read, alike for what each of them
/// cuts out of it.
std::optional<int64_t> Control::identify(Value tensor) {
  std::optional<Key> key;
  if (isOutside(tensor))
    key = Key{-1, numberOutside(tensor)};
  else if (Operation *view = viewOf(tensor))
    key = keyOf(view);
  if (!key)
    return std::nullopt;
  return tensors.try_emplace(*key, tensors.size()).first->second;
}

/// What no arithmetic gives: a size, an element of a tensor. One number for the
/// same operation on the same operands.
Control::Number Control::freeNumber(OpResult result) {
  std::optional<Key> key = keyOf(result.getOwner());
  if (!key)
    return std::nullopt;
  key->push_back(result.getResultNumber());
  return candidate(result, *key);
}

/// By the operation's own folder; nothing where it has none for these operands.
Control::Number Control::fold(OpResult result) {
  Operation *op = result.getOwner();
  SmallVector<Attribute> operands;
  for (Value operand : op->getOperands()) {
    if (!isNumber(operand.getType()))
      return std::nullopt;
    Number n = evaluate(operand);
    if (!n)
      return std::nullopt;
    operands.push_back(isa<FloatType>(operand.getType())
                           ? Attribute()
                           : IntegerAttr::get(operand.getType(), *n));
  }
  SmallVector<OpFoldResult> results;
  if (failed(op->fold(operands, results)) || results.empty())
    return std::nullopt;
  OpFoldResult folded = results[result.getResultNumber()];
  if (auto attribute = dyn_cast<Attribute>(folded)) {
    auto integer = dyn_cast<IntegerAttr>(attribute);
    if (!integer)
      return std::nullopt;
    return integer.getType().isInteger(1) ? integer.getValue().getZExtValue()
                                          : integer.getValue().getSExtValue();
  }
  Value value = cast<Value>(folded);
  return value == result ? std::nullopt : evaluate(value);
}

Control::Number Control::evaluateOp(OpResult result) {
  Operation *op = result.getOwner();
  if (!op->getNumRegions() && isMemoryEffectFree(op)) {
    if (Number n = fold(result))
      return n;
    if (Number n = freeNumber(result))
      return n;
  }
  if (!isOutside(result))
    return std::nullopt;
  return candidate(result, {-3, numberOutside(result)});
}

/// What is known of a number; nothing of what is computed of tiles.
Control::Number Control::evaluate(Value value) {
  if (auto it = numbers.find(value); it != numbers.end())
    return it->second;
  if (!isNumber(value.getType()))
    return std::nullopt;
  if (auto result = dyn_cast<OpResult>(value)) {
    // In a role it has been run, or can't be.
    Number n = evaluateOp(result);
    numbers[value] = n;
    return n;
  }
  // An argument of the function; those of loops are bound where these run.
  auto argument = cast<BlockArgument>(value);
  if (!isOutside(value) || argument.getOwner()->getParentOp() == forall)
    return std::nullopt;
  return numbers[value] = candidate(value, {-2, argument.getArgNumber()});
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

FailureOr<std::optional<Trace>> Control::run(Block &role) {
  Trace trace;
  if (failed(runBlock(role, trace)))
    return failure();
  if (tooLong)
    return std::optional<Trace>();
  return std::optional<Trace>(std::move(trace));
}

static LogicalResult reportUnknown(Operation *op, StringRef what) {
  return op->emitOpError("expected ")
         << what
         << " the same for all threads where rings, products or turns follow "
            "it, got a value computed from tiles";
}

LogicalResult Control::runBlock(Block &block, Trace &trace) {
  auto it = relevant.find(&block);
  if (it == relevant.end())
    return success();
  for (Operation *op : it->second) {
    if (tooLong)
      return success();
    if (auto loop = dyn_cast<scf::ForOp>(op)) {
      if (failed(runFor(loop, trace)))
        return failure();
    } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
      if (failed(runIf(branch, trace)))
        return failure();
    } else if (holdsSteps.contains(op)) {
      return op->emitOpError(
          "expected loops that are scf.for, and branches that "
          "are scf.if, around operations on rings, products "
          "or turns");
    } else if (!isStep(op)) {
      for (OpResult result : op->getResults())
        if (needed.contains(result))
          numbers[result] = evaluateOp(result);
    } else {
      Step step{Step::Run, op};
      if (auto release = dyn_cast<ReleaseOp>(op);
          release && release.getCondition()) {
        Number condition = evaluate(release.getCondition());
        if (!condition)
          return reportUnknown(op, "a condition");
        step.condition = *condition;
      }
      auto acquire = dyn_cast<AcquireOp>(op);
      if (isa<LoadOp>(op) || (acquire && !isComputed(acquire.getRing()))) {
        Value tile = acquire ? acquire.getTile() : cast<LoadOp>(op).getTile();
        std::optional<int64_t> which = identify(tile);
        if (!which)
          return op->emitOpError("expected a slice of a tensor that both roles "
                                 "can read, at coordinates the same for all "
                                 "threads");
        step.tile = *which;
      }
      if (acquire)
        step.slots.push_back(
            *(numbers[acquire.getSlot()] = Number(acquired++)));
      for (Value operand : op->getOperands())
        if (isa<SlotType>(operand.getType()))
          step.slots.push_back(evaluate(operand).value_or(-1));
      trace.push_back(step);
    }
  }
  return success();
}

LogicalResult Control::runFor(scf::ForOp loop, Trace &trace) {
  bool holds = holdsSteps.contains(loop);
  auto carries = [&](Value v) { return needed.contains(v); };
  bool carried = isExpanded ||
                 llvm::any_of(loop.getRegionIterArgs(), carries) ||
                 llvm::any_of(loop.getResults(), carries);
  Number low = evaluate(loop.getLowerBound()),
         high = evaluate(loop.getUpperBound()), step = evaluate(loop.getStep());
  if (!low || !high || !step) {
    if (holds)
      return reportUnknown(loop, "bounds");
    for (Value result : loop.getResults())
      numbers[result] = std::nullopt;
    return success();
  }
  if (*step <= 0)
    return loop.emitOpError("expected a step of at least 1, got ") << *step;
  if (std::max({std::abs(*low), std::abs(*high), *step}) > kLargestBound) {
    tooLong = true;
    return success();
  }
  int64_t trips = *low < *high ? (*high - *low + *step - 1) / *step : 0;
  if (!getConstantIntValue(loop.getLowerBound()) ||
      !getConstantIntValue(loop.getUpperBound()))
    tripsOf[loop].insert(trips);
  if (trips > kMostCarriedTrips && carried) {
    tooLong = true;
    return success();
  }
  SmallVector<Number> values;
  for (Value init : loop.getInitArgs())
    values.push_back(carries(init) ? evaluate(init) : std::nullopt);
  for (int64_t n = 0; n < trips; ++n) {
    if (!carried && n == kMostTrips / 2 && trips > kMostTrips)
      n = trips - kMostTrips / 2;
    numbers[loop.getInductionVar()] = *low + n * *step;
    for (auto [arg, value] : llvm::zip(loop.getRegionIterArgs(), values))
      numbers[arg] = value;
    if (holds)
      trace.push_back({Step::Enter, loop});
    if (failed(runBlock(*loop.getBody(), trace)))
      return failure();
    if (holds)
      trace.push_back({Step::Leave, loop});
    for (auto [value, yielded] : llvm::zip(values, loop.getYieldedValues()))
      value = carries(yielded) ? evaluate(yielded) : std::nullopt;
  }
  for (auto [result, value] : llvm::zip(loop.getResults(), values))
    numbers[result] = value;
  return success();
}

LogicalResult Control::runIf(scf::IfOp branch, Trace &trace) {
  bool holds = holdsSteps.contains(branch);
  Number condition = evaluate(branch.getCondition());
  if (!condition) {
    if (holds)
      return reportUnknown(branch, "a condition");
    for (Value result : branch.getResults())
      numbers[result] = std::nullopt;
    return success();
  }
  Block *block = *condition ? branch.thenBlock() : branch.elseBlock();
  if (!block)
    return success();
  if (holds)
    trace.push_back({Step::Enter, branch});
  if (failed(runBlock(*block, trace)))
    return failure();
  if (holds)
    trace.push_back({Step::Leave, branch});
  for (auto [result, yielded] :
       llvm::zip(branch.getResults(), block->getTerminator()->getOperands()))
    if (needed.contains(result))
      numbers[result] = evaluate(yielded);
  return success();
}
