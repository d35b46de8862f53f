// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Control flow, and the way from values to cells.

#include "Agent.h"

#include "fa/Dialect/Hopper/IR/Hopper.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fa;
using namespace fa::run;
using namespace fa::run::interpreter;

/// That of a tensor, or the tensor's in another type: a slot's.
RankedTensorType interpreter::tileTypeOf(Value v) {
  RankedTensorType found;
  v.getType().walk([&](RankedTensorType type) {
    found = type;
    return WalkResult::interrupt();
  });
  return found;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

FailureOr<Cell> Agent::cell(Value v) {
  for (Agent *agent = this; agent; agent = agent->outer) {
    auto it = agent->cells.find(v);
    if (it != agent->cells.end())
      return it->second;
  }
  Operation *op = v.getDefiningOp();
  if (!op)
    op = v.getParentBlock()->getParentOp();
  return shared.failure.at(op, "a value is read that nobody has computed");
}

FailureOr<Number> Agent::number(Value v) {
  FailureOr<Cell> x = cell(v);
  if (failed(x))
    return failure();
  if (x->kind != Cell::Kind::Number)
    return shared.failure.text("expected a number, got a value of another "
                               "kind");
  return x->number;
}

/// Of a product that is in flight nothing can be read.
FailureOr<Tensor> Agent::tensor(Value v) {
  FailureOr<Cell> x = cell(v);
  if (failed(x))
    return failure();
  if (x->kind == Cell::Kind::Tile)
    return x->tile;
  RankedTensorType type = tileTypeOf(v);
  auto kind = type ? ElementKind::of(type.getElementType()) : std::nullopt;
  if (x->kind != Cell::Kind::Pending || !kind || !type.hasStaticShape())
    return shared.failure.text("expected a tile, got a value of another kind");
  return Tensor::makePoison(*kind, type.getShape());
}

FailureOr<int64_t> Agent::index(OpFoldResult v) {
  if (std::optional<int64_t> constant = getConstantIntValue(v))
    return *constant;
  auto value = dyn_cast<Value>(v);
  if (!value)
    return shared.failure.text("expected an integer");
  FailureOr<Number> x = number(value);
  if (failed(x))
    return failure();
  return x->i;
}

LogicalResult Agent::indices(ArrayRef<OpFoldResult> values,
                             SmallVectorImpl<int64_t> &to) {
  for (OpFoldResult v : values) {
    FailureOr<int64_t> i = index(v);
    if (failed(i))
      return failure();
    to.push_back(*i);
  }
  return success();
}

LogicalResult Agent::read(ValueRange values, SmallVectorImpl<Cell> &to) {
  for (Value v : values) {
    FailureOr<Cell> x = cell(v);
    if (failed(x))
      return failure();
    to.push_back(*x);
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void Agent::enter(Operation *op, Block &block) {
  frames.push_back({op, &block, block.begin()});
}

Operation *Agent::place() {
  if (frames.empty())
    return nullptr;
  Frame &frame = frames.back();
  return frame.next == frame.block->end() ? frame.op : &*frame.next;
}

Progress Agent::step() {
  size_t depth = frames.size() - 1;
  if (frames[depth].next == frames[depth].block->end())
    return leave(nullptr);
  Operation *op = &*frames[depth].next;
  if (op->hasTrait<OpTrait::IsTerminator>())
    return leave(op);
  Progress progress;
  if (isa<scf::SCFDialect>(op->getDialect()))
    progress = runControl(op);
  else if (isa_and_nonnull<hopper::HopperDialect>(op->getDialect()))
    progress = runHopper(op);
  else
    progress = succeeded(run(op)) ? Progress::Moved : Progress::Failed;
  if (progress == Progress::Moved || progress == Progress::Met)
    ++frames[depth].next;
  return progress;
}

Progress Agent::runHopper(Operation *op) {
  return fail(op, "is not interpreted outside of a block with roles");
}

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

Progress Agent::runControl(Operation *op) {
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    FailureOr<Number> condition = number(branch.getCondition());
    if (failed(condition))
      return Progress::Failed;
    if (Block *block = condition->i ? branch.thenBlock() : branch.elseBlock())
      enter(op, *block);
    return Progress::Moved;
  }
  if (auto forall = dyn_cast<scf::ForallOp>(op))
    return startForall(forall);
  auto loop = dyn_cast<scf::ForOp>(op);
  if (!loop || loop.getUnsignedCmp())
    return fail(op, "is not interpreted");
  FailureOr<int64_t> first = index(loop.getLowerBound()),
                     end = index(loop.getUpperBound()),
                     by = index(loop.getStep());
  SmallVector<Cell> values;
  if (failed(first) || failed(end) || failed(by) ||
      failed(read(loop.getInitArgs(), values)))
    return Progress::Failed;
  if (*by <= 0)
    return fail(op, "expected a step of at least 1, got " + Twine(*by));
  bool isEmpty = *first >= *end;
  auto targets = isEmpty ? ValueRange(loop.getResults())
                         : ValueRange(loop.getRegionIterArgs());
  for (auto [target, value] : llvm::zip(targets, values))
    set(target, value);
  if (isEmpty)
    return Progress::Moved;
  set(loop.getInductionVar(), Cell::ofInt(*first));
  enter(op, *loop.getBody());
  frames.back().iv = *first;
  frames.back().end = *end;
  frames.back().by = *by;
  return Progress::Moved;
}

Progress Agent::leave(Operation *terminator) {
  Operation *op = frames.back().op;
  if (isa<scf::ForOp>(op))
    return leaveFor(terminator);
  if (isa<scf::ForallOp>(op))
    return leaveForall(terminator);
  if (isa<scf::IfOp>(op))
    return leaveInto(terminator, op->getResults());
  if (auto result = dyn_cast_or_null<func::ReturnOp>(terminator)) {
    if (failed(read(result.getOperands(), results)))
      return Progress::Failed;
    frames.pop_back();
    return Progress::Ended;
  }
  return leaveRole(terminator);
}

Progress Agent::leaveRole(Operation *terminator) {
  return fail(terminator ? terminator : frames.back().op, "is not interpreted");
}

/// A region ends; what it yields becomes these results.
Progress Agent::leaveInto(Operation *terminator, ValueRange results) {
  SmallVector<Cell> values;
  if (terminator && failed(read(terminator->getOperands(), values)))
    return Progress::Failed;
  for (auto [result, value] : llvm::zip(results, values))
    set(result, value);
  frames.pop_back();
  return Progress::Moved;
}

Progress Agent::leaveFor(Operation *terminator) {
  Frame &frame = frames.back();
  auto loop = cast<scf::ForOp>(frame.op);
  // By how far the end is: a sum of both might not be a number.
  if (static_cast<uint64_t>(frame.end) - static_cast<uint64_t>(frame.iv) <=
      static_cast<uint64_t>(frame.by))
    return leaveInto(terminator, loop.getResults());
  SmallVector<Cell> values;
  if (failed(read(terminator->getOperands(), values)))
    return Progress::Failed;
  for (auto [argument, value] : llvm::zip(loop.getRegionIterArgs(), values))
    set(argument, value);
  frame.iv += frame.by;
  set(loop.getInductionVar(), Cell::ofInt(frame.iv));
  frame.next = frame.block->begin();
  return Progress::Moved;
}

//===----------------------------------------------------------------------===//
// Grids
//===----------------------------------------------------------------------===//

LogicalResult interpreter::forallSizes(scf::ForallOp op, Agent &agent,
                                       Failure &failure,
                                       SmallVectorImpl<int64_t> &lower,
                                       SmallVectorImpl<int64_t> &steps,
                                       SmallVectorImpl<int64_t> &counts) {
  SmallVector<int64_t> upper;
  if (failed(agent.indices(op.getMixedLowerBound(), lower)) ||
      failed(agent.indices(op.getMixedUpperBound(), upper)) ||
      failed(agent.indices(op.getMixedStep(), steps)))
    return mlir::failure();
  for (auto [first, end, step] : llvm::zip(lower, upper, steps)) {
    if (step <= 0)
      return failure.at(op, "expected steps of at least 1, got " + Twine(step));
    counts.push_back(end > first ? (end - first - 1) / step + 1 : 0);
  }
  return success();
}

static bool isOfRoles(scf::ForallOp op) {
  return !op.getBody()->getOps<hopper::ConsumersOp>().empty();
}

Progress Agent::startForall(scf::ForallOp op) {
  SmallVector<int64_t> lower, steps, counts;
  if (failed(forallSizes(op, *this, shared.failure, lower, steps, counts)))
    return Progress::Failed;
  int64_t iterations = 1;
  for (int64_t n : counts)
    iterations *= n;
  SmallVector<Tensor> outs;
  for (Value out : op.getOutputs()) {
    FailureOr<Tensor> t = tensor(out);
    if (failed(t))
      return Progress::Failed;
    outs.push_back(t->clone());
  }
  if (isOfRoles(op)) {
    if (failed(runRoles(op, *this, shared, outs)))
      return Progress::Failed;
    iterations = 0;
  }
  for (auto [argument, result, out] :
       llvm::zip(op.getRegionIterArgs(), op.getResults(), outs))
    set(iterations ? Value(argument) : Value(result), Cell::of(out));
  if (iterations == 0)
    return Progress::Moved;
  enter(op, *op.getBody());
  frames.back().iterations = iterations;
  return succeeded(bindIteration(op, 0)) ? Progress::Moved : Progress::Failed;
}

LogicalResult Agent::bindIteration(scf::ForallOp op, int64_t number) {
  SmallVector<int64_t> lower, steps, counts;
  if (failed(forallSizes(op, *this, shared.failure, lower, steps, counts)))
    return failure();
  for (unsigned d = op.getRank(); d-- > 0;) {
    set(op.getInductionVars()[d],
        Cell::ofInt(lower[d] + number % counts[d] * steps[d]));
    number /= counts[d];
  }
  return success();
}

/// Iterations one after another, each of which finds what those before it have
/// written.
Progress Agent::leaveForall(Operation *terminator) {
  Frame &frame = frames.back();
  auto op = cast<scf::ForallOp>(frame.op);
  for (Operation &inner : *op.getTerminator().getBody()) {
    // It has been added where it lies.
    if (isa<ParallelAccumulateOp>(inner))
      continue;
    auto part = dyn_cast<tensor::ParallelInsertSliceOp>(inner);
    if (!part)
      return fail(&inner, "is not interpreted");
    if (failed(insert(part)))
      return Progress::Failed;
  }
  if (++frame.iteration < frame.iterations) {
    frame.next = frame.block->begin();
    return succeeded(bindIteration(op, frame.iteration)) ? Progress::Moved
                                                         : Progress::Failed;
  }
  for (auto [argument, result] :
       llvm::zip(op.getRegionIterArgs(), op.getResults()))
    set(result, cells.lookup(argument));
  frames.pop_back();
  return Progress::Moved;
}
