// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Body.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fa::run;
using namespace fa::run::interpreter;

//===----------------------------------------------------------------------===//
// Failures
//===----------------------------------------------------------------------===//

std::string interpreter::describe(Operation *op) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << op->getName() << " (";
  op->getLoc()->print(os);
  os << ")";
  return text;
}

LogicalResult Failure::text(const Twine &message) {
  if (first.empty())
    first = message.str();
  return failure();
}

LogicalResult Failure::at(Operation *op, const Twine &message) {
  return text(describe(op) + ": " + message);
}

//===----------------------------------------------------------------------===//
// Bodies
//===----------------------------------------------------------------------===//

FailureOr<std::unique_ptr<Body>> Body::make(Block &block, Failure &failure) {
  auto body = std::make_unique<Body>();
  body->block = &block;
  for (BlockArgument argument : block.getArguments())
    body->registerOf(argument);
  if (failed(body->build(block, body->top, failure)))
    return mlir::failure();
  body->isRead.assign(block.getNumArguments(), false);
  for (BlockArgument argument : block.getArguments())
    body->isRead[argument.getArgNumber()] = !argument.use_empty();
  body->registers.resize(body->numbers.size());
  body->tensors.resize(body->capturedTensors.size());
  return body;
}

FailureOr<Body *> interpreter::bodyOf(Operation *op, Block &block,
                                      Bodies &bodies, Failure &failure) {
  std::unique_ptr<Body> &body = bodies[op];
  if (!body) {
    auto made = Body::make(block, failure);
    if (failed(made))
      return mlir::failure();
    body = std::move(*made);
  }
  return body.get();
}

/// Whether a value is defined in a block or what is nested in it.
static bool isInsideOf(Block *block, Value v) {
  Operation *parent = v.getParentBlock()->getParentOp();
  return v.getParentBlock() == block ||
         block->getParentOp()->isProperAncestor(parent);
}

unsigned Body::registerOf(Value v) {
  auto [it, isNew] = numbers.try_emplace(v, numbers.size());
  if (isNew && !isInsideOf(block, v))
    captured.push_back({v, it->second});
  return it->second;
}

LogicalResult Body::build(Block &from, Sequence &sequence, Failure &failure) {
  for (Operation &op : from.without_terminator()) {
    Step step;
    if (failed(buildStep(op, step, failure)))
      return mlir::failure();
    sequence.steps.push_back(std::move(step));
  }
  for (Value v : from.getTerminator()->getOperands())
    sequence.yields.push_back(registerOf(v));
  return success();
}

LogicalResult Body::buildStep(Operation &op, Step &step, Failure &failure) {
  step.op = &op;
  for (Value result : op.getResults())
    step.results.push_back(registerOf(result));
  if (auto index = dyn_cast<linalg::IndexOp>(op)) {
    step.number = index.getDim();
    if (indices.size() <= step.number) {
      indices.resize(step.number + 1);
      indexIsRead.resize(step.number + 1);
    }
    indexIsRead[step.number] = true;
    return success();
  }
  if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
    step.number = capturedTensors.size();
    capturedTensors.push_back(extract.getTensor());
    for (Value v : extract.getIndices())
      step.operands.push_back(registerOf(v));
    return success();
  }
  for (Value v : op.getOperands())
    step.operands.push_back(registerOf(v));
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    step.thenSide = std::make_unique<Sequence>();
    step.elseSide = std::make_unique<Sequence>();
    if (failed(build(*branch.thenBlock(), *step.thenSide, failure)) ||
        (branch.elseBlock() &&
         failed(build(*branch.elseBlock(), *step.elseSide, failure))))
      return mlir::failure();
    return success();
  }
  if (isa<affine::AffineApplyOp, affine::AffineMinOp, affine::AffineMaxOp>(op))
    return success();
  auto kind = op.getNumResults() == 1
                  ? ElementKind::of(op.getResult(0).getType())
                  : std::nullopt;
  if (!kind)
    return failure.at(&op, "is not interpreted in a body");
  if (isa<arith::ConstantOp>(op)) {
    step.scalar = {&op, *kind, *kind};
    return success();
  }
  step.kernel = lookupKernel(&op);
  auto from = op.getNumOperands() ? ElementKind::of(op.getOperand(0).getType())
                                  : std::nullopt;
  if (!step.kernel || !from)
    return failure.at(&op, "is not interpreted in a body");
  step.scalar = {&op, *from, *kind};
  return success();
}

LogicalResult Body::bind(Scope &scope, Failure &failure) {
  for (auto [value, number] : captured) {
    auto kind = ElementKind::of(value.getType());
    if (!kind)
      return failure.text("a value of a type that is not interpreted is read");
    FailureOr<Number> x = scope.number(value);
    if (failed(x))
      return mlir::failure();
    if (kind->isFloat)
      registers[number].setFloat(x->f);
    else
      registers[number].setInt(x->i);
  }
  for (auto [value, tensor] : llvm::zip(capturedTensors, tensors)) {
    FailureOr<Tensor> t = scope.tensor(value);
    if (failed(t))
      return mlir::failure();
    tensor = *t;
  }
  return success();
}

LogicalResult Body::run(Sequence &sequence, int64_t count, const Lanes *mask,
                        Failure &failure) {
  for (Step &step : sequence.steps)
    if (failed(runStep(step, count, mask, failure)))
      return mlir::failure();
  return success();
}

static void runAffine(Operation *op, ArrayRef<const Lanes *> operands,
                      Lanes &result, int64_t count) {
  AffineMap map = cast<AffineMapAttr>(op->getAttr("map")).getValue();
  unsigned dims = map.getNumDims();
  ArrayRef<const Lanes *> d = operands.take_front(dims),
                          s = operands.drop_front(dims);
  evaluateAffine(map.getResult(0), d, s, result, count);
  bool isMin = isa<affine::AffineMinOp>(op);
  for (AffineExpr expr : map.getResults().drop_front()) {
    Lanes next, before;
    evaluateAffine(expr, d, s, next, count);
    std::swap(before, result);
    bool uniform = before.isUniform() && next.isUniform();
    mapLanes(before.ints(), before.step(), next.ints(), next.step(),
             result.makeInts(uniform ? 1 : count, uniform), count,
             [&](int64_t a, int64_t b) {
               return isMin ? std::min(a, b) : std::max(a, b);
             });
  }
}

LogicalResult Body::runStep(Step &step, int64_t count, const Lanes *mask,
                            Failure &failure) {
  if (step.kernel) {
    SmallVector<const Lanes *, 4> operands;
    for (unsigned number : step.operands)
      operands.push_back(&registers[number]);
    step.kernel(step.scalar, operands, registers[step.results[0]], count);
    return success();
  }
  if (isa<tensor::ExtractOp>(step.op))
    return runExtract(step, count, mask, failure);
  if (isa<scf::IfOp>(step.op))
    return runBranch(step, count, mask, failure);
  Lanes &result = registers[step.results[0]];
  if (isa<linalg::IndexOp>(step.op)) {
    result.share(indices[step.number]);
    return success();
  }
  if (auto constant = dyn_cast<arith::ConstantOp>(step.op)) {
    if (auto number = dyn_cast<FloatAttr>(constant.getValue()))
      result.setFloat(static_cast<float>(number.getValueAsDouble()));
    else
      result.setInt(
          wrap(cast<IntegerAttr>(constant.getValue()).getValue().getSExtValue(),
               step.scalar.to.bits));
    return success();
  }
  SmallVector<const Lanes *, 4> operands;
  for (unsigned number : step.operands)
    operands.push_back(&registers[number]);
  runAffine(step.op, operands, result, count);
  return success();
}

/// Reads elements; what lies outside is an error where the lane is there.
LogicalResult Body::runExtract(Step &step, int64_t count, const Lanes *mask,
                               Failure &failure) {
  const Tensor &t = tensors[step.number];
  Lanes &result = registers[step.results[0]];
  bool uniform = true;
  SmallVector<const Lanes *, 4> at;
  for (unsigned number : step.operands) {
    at.push_back(&registers[number]);
    uniform &= at.back()->isUniform();
  }
  int64_t n = uniform ? 1 : count;
  bool isFloat = t.kind().isFloat;
  float *floats = isFloat ? result.makeFloats(n, uniform) : nullptr;
  int64_t *ints = isFloat ? nullptr : result.makeInts(n, uniform);
  for (int64_t lane = 0; lane < n; ++lane) {
    int64_t offset = 0;
    bool isInside = true;
    for (auto [d, index] : llvm::enumerate(at)) {
      int64_t i = index->ints()[lane * index->step()];
      isInside &= i >= 0 && i < t.shape()[d];
      offset += i * t.strides()[d];
    }
    if (!isInside) {
      bool isThere = !mask || mask->ints()[lane * mask->step()];
      if (isThere)
        return failure.at(step.op, "reads outside of its tensor");
      if (isFloat)
        floats[lane] = poison();
      else
        ints[lane] = 0;
      continue;
    }
    if (isFloat)
      floats[lane] = t.floats()[offset];
    else
      ints[lane] = t.ints()[offset];
  }
  return success();
}

/// Both sides, each for the lanes that take it; one side where all do.
LogicalResult Body::runBranch(Step &step, int64_t count, const Lanes *mask,
                              Failure &failure) {
  const Lanes &condition = registers[step.operands[0]];
  if (condition.isUniform()) {
    Sequence &side = *condition.ints() ? *step.thenSide : *step.elseSide;
    if (failed(run(side, count, mask, failure)))
      return mlir::failure();
    for (auto [result, value] : llvm::zip(step.results, side.yields))
      registers[result].share(registers[value]);
    return success();
  }
  Lanes taken[2];
  for (bool isElse : {false, true}) {
    int64_t *to = taken[isElse].makeInts(count, false);
    for (int64_t i = 0; i < count; ++i)
      to[i] = (condition.ints()[i] != 0) != isElse &&
              (!mask || mask->ints()[i * mask->step()]);
  }
  if (failed(run(*step.thenSide, count, &taken[0], failure)) ||
      failed(run(*step.elseSide, count, &taken[1], failure)))
    return mlir::failure();
  for (auto [n, result] : llvm::enumerate(step.results)) {
    auto kind = ElementKind::of(step.op->getResult(n).getType());
    if (!kind)
      return failure.at(step.op, "is not interpreted in a body");
    registers[result].choose(condition, registers[step.thenSide->yields[n]],
                             registers[step.elseSide->yields[n]], kind->isFloat,
                             count);
  }
  return success();
}
