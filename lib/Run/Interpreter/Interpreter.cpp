// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Run/Interpreter.h"

#include "Agent.h"

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/Hopper/IR/Hopper.h"

using namespace mlir;
using namespace fa;
using namespace fa::run;
using namespace fa::run::interpreter;

bool fa::run::hasRoles(func::FuncOp function) {
  return function
      .walk([](hopper::ConsumersOp) { return WalkResult::interrupt(); })
      .wasInterrupted();
}

static llvm::Error toError(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

/// Sums of terms that warpgroups have parts of.
static bool isOfRole(Operation *op) {
  return isa<AccumulateOp>(op) && op->getParentOfType<hopper::ConsumersOp>();
}

/// fa's own operations on tensors as what they stand for.
/// Null where there are none.
static OwningOpRef<func::FuncOp> expand(func::FuncOp function,
                                        LogicalResult &expanded) {
  expanded = success();
  auto isExpanded = [](Operation *op) {
    return isa_and_nonnull<FADialect>(op->getDialect()) &&
           !isa<ListBlocksOp, AccumulateSliceOp>(op) && !isOfRole(op) &&
           isa<linalg::AggregatedOpInterface>(op);
  };
  bool found = function
                   .walk([&](Operation *op) {
                     return isExpanded(op) ? WalkResult::interrupt()
                                           : WalkResult::advance();
                   })
                   .wasInterrupted();
  if (!found)
    return {};
  OwningOpRef<func::FuncOp> copy(function.clone());
  SmallVector<Operation *> ops;
  copy->walk([&](Operation *op) {
    if (isExpanded(op))
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    OpBuilder b(op);
    FailureOr<SmallVector<Value>> values =
        cast<linalg::AggregatedOpInterface>(op).decomposeOperation(b);
    if (failed(values)) {
      expanded = failure();
      return copy;
    }
    op->replaceAllUsesWith(*values);
    op->erase();
  }
  return copy;
}

/// Runs a function and gives what it returns.
static llvm::Expected<std::vector<Tensor>>
runFunction(func::FuncOp function, ArrayRef<cpu::TensorRef> inputs,
            const InterpreterOptions &options) {
  if (function.isExternal() || !function.getBody().hasOneBlock())
    return toError("@" + function.getName() +
                   " has no body of one block to interpret");
  if (inputs.size() != function.getNumArguments())
    return toError("@" + function.getName() + " takes " +
                   Twine(function.getNumArguments()) + " tensors, got " +
                   Twine(inputs.size()));
  Shared shared(options);
  Agent agent(shared, nullptr);
  for (auto [argument, input] : llvm::zip(function.getArguments(), inputs)) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    auto kind = type ? ElementKind::of(type.getElementType()) : std::nullopt;
    if (!kind || input.dtype != kind->dtype() ||
        failed(verifyCompatibleShape(type.getShape(), input.shape)))
      return toError("argument " + Twine(argument.getArgNumber()) + " of @" +
                     function.getName() + " is not interpreted");
    agent.set(argument, Cell::of(Tensor::from(input, *kind)));
  }
  agent.enter(function, function.front());
  Progress progress;
  do
    progress = agent.step();
  while (progress == Progress::Moved || progress == Progress::Met);
  if (progress != Progress::Ended)
    return toError(shared.failure.message());
  std::vector<Tensor> results;
  for (const Cell &cell : agent.returned()) {
    if (cell.kind != Cell::Kind::Tile)
      return toError("@" + function.getName() +
                     " returns a value that is no tensor");
    results.push_back(cell.tile);
  }
  return results;
}

llvm::Expected<std::vector<cpu::TensorRef>> fa::run::interpret(
    func::FuncOp function, ArrayRef<cpu::TensorRef> inputs,
    function_ref<cpu::TensorRef(cpu::DType, std::vector<int64_t>)> allocate,
    const InterpreterOptions &options) {
  LogicalResult expanded = success();
  OwningOpRef<func::FuncOp> copy = expand(function, expanded);
  if (failed(expanded))
    return toError("@" + function.getName() +
                   " has an operation that cannot be expanded");
  auto results = runFunction(copy ? *copy : function, inputs, options);
  if (!results)
    return results.takeError();
  std::vector<cpu::TensorRef> refs;
  for (const Tensor &t : *results) {
    refs.push_back(allocate(t.kind().dtype(), t.shape().vec()));
    t.copyTo(refs.back());
  }
  return refs;
}

llvm::Error fa::run::interpret(func::FuncOp function,
                               ArrayRef<cpu::TensorRef> inputs,
                               ArrayRef<cpu::TensorRef> results,
                               const InterpreterOptions &options) {
  size_t next = 0;
  std::string wrong;
  // What does not fit is left where nobody looks.
  std::vector<std::vector<char>> spare;
  auto allocate = [&](cpu::DType dtype, std::vector<int64_t> shape) {
    if (next < results.size() && results[next].dtype == dtype &&
        results[next].shape == shape)
      return results[next++];
    wrong = "result " + std::to_string(next++) +
            " has another type or shape than the function's result";
    cpu::TensorRef t = cpu::TensorRef::contiguous(nullptr, dtype, shape);
    spare.emplace_back(t.size() * sizeOf(dtype) + 1);
    t.data = spare.back().data();
    return t;
  };
  auto made = interpret(function, inputs, allocate, options);
  if (!made)
    return made.takeError();
  if (wrong.empty() && next != results.size())
    wrong = "the function returns " + std::to_string(next) +
            " results, expected " + std::to_string(results.size());
  return wrong.empty() ? llvm::Error::success() : toError(wrong);
}
