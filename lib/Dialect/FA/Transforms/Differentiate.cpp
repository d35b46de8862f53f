// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fa.attention -> its gradient, by reverse mode over the score region.

#include "fa/Analysis/ScalarOpInterface.h"
#include "fa/Dialect/FA/IR/Builders.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/Transforms/Passes.h"
#include "fa/Dialect/FA/Transforms/Utils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SmallBitVector.h"

namespace fa {
#define GEN_PASS_DEF_DIFFERENTIATEPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-differentiate"

//===----------------------------------------------------------------------===//
// Adjoints of scalars
//===----------------------------------------------------------------------===//

namespace {

/// What is added to an element of a captured tensor's gradient.
struct Term {
  Value value;
  int64_t tensor;
  SmallVector<Value> indices;
};

/// Reverse mode over the operations of a block and of the blocks in them.
/// Values are those of the region that is differentiated; `map` leads to their
/// copies, which adjoints are computed with.
class ReverseMode {
public:
  ReverseMode(OpBuilder &builder, ValueRange tensors, Value score)
      : b(builder), tensors(tensors), score(score), real(score.getType()) {}

  /// The region's adjoint where the builder stands: dS of the gradient `g` with
  /// respect to what it yields. `map` leads to the region's arguments.
  FailureOr<Value> run(Region &region, IRMapping &map, Value g);

  SmallVector<Term> terms;

private:
  using Adjoints = DenseMap<Value, Value>;
  void findActive(Block &block);
  bool isDifferentiable(Value v) const {
    return isa<FloatType>(v.getType()) && active.contains(v);
  }
  LogicalResult reverse(Block &block, IRMapping &map, Adjoints &adjoints,
                        SmallVectorImpl<Term> &found);
  LogicalResult reverseOp(Operation *op, IRMapping &map, Adjoints &adjoints,
                          SmallVectorImpl<Term> &found);
  LogicalResult reverseRead(tensor::ExtractOp read, IRMapping &map, Value g,
                            SmallVectorImpl<Term> &found);
  LogicalResult reverseCustom(CustomGradientOp op, IRMapping &map,
                              Adjoints &adjoints);
  LogicalResult reverseIf(scf::IfOp branch, IRMapping &map, Adjoints &adjoints,
                          SmallVectorImpl<Term> &found);
  FailureOr<SmallVector<Value>> reverseBranch(Region &region, Block *into,
                                              IRMapping map,
                                              ArrayRef<Value> yielded,
                                              ArrayRef<Value> outer,
                                              SmallVectorImpl<Term> &found);
  void add(Adjoints &adjoints, Value v, Value g);
  /// A float in the type that adjoints are computed in.
  Value toReal(Value v);
  Value zero(Location loc) {
    return arith::ConstantOp::create(b, loc, b.getFloatAttr(real, 0));
  }

  OpBuilder &b;
  ValueRange tensors;
  Value score;
  Type real;
  /// Values that depend on the score or on what is read from `tensors`.
  DenseSet<Value> active;
};

} // namespace

Value ReverseMode::toReal(Value v) {
  if (!isa<FloatType>(v.getType()))
    return v;
  return convertFloat(b, v.getLoc(), v, real);
}

void ReverseMode::add(Adjoints &adjoints, Value v, Value g) {
  Value &sum = adjoints[v];
  sum = sum ? arith::AddFOp::create(b, g.getLoc(), sum, g).getResult() : g;
}

void ReverseMode::findActive(Block &block) {
  for (Operation &op : block) {
    if (auto custom = dyn_cast<CustomGradientOp>(op)) {
      if (llvm::any_of(custom.getInputs(),
                       [&](Value v) { return active.contains(v); }))
        active.insert(op.result_begin(), op.result_end());
      continue;
    }
    for (Region &region : op.getRegions())
      for (Block &inner : region)
        findActive(inner);
    bool isActive = llvm::any_of(op.getOperands(),
                                 [&](Value v) { return active.contains(v); });
    if (auto read = dyn_cast<tensor::ExtractOp>(op))
      isActive |= llvm::is_contained(tensors, read.getTensor());
    // A loop that uses an active value has active results.
    if (op.getNumRegions() && !isa<scf::IfOp>(op))
      op.walk([&](Operation *inner) {
        isActive |= llvm::any_of(inner->getOperands(),
                                 [&](Value v) { return active.contains(v); });
      });
    if (auto branch = dyn_cast<scf::IfOp>(op))
      for (Region &region : branch->getRegions())
        for (Block &inner : region)
          isActive |= llvm::any_of(inner.getTerminator()->getOperands(),
                                   [&](Value v) { return active.contains(v); });
    if (isActive)
      active.insert(op.result_begin(), op.result_end());
  }
}

FailureOr<Value> ReverseMode::run(Region &region, IRMapping &map, Value g) {
  Block &block = region.front();
  active.insert(score);
  findActive(block);
  for (Operation &op : block.without_terminator())
    cloneAnew(b, op, map);
  Adjoints adjoints;
  Value yielded = block.getTerminator()->getOperand(0);
  if (isDifferentiable(yielded))
    adjoints[yielded] = g;
  if (failed(reverse(block, map, adjoints, terms)))
    return failure();
  Value result = adjoints.lookup(score);
  return result ? result : zero(g.getLoc());
}

LogicalResult ReverseMode::reverse(Block &block, IRMapping &map,
                                   Adjoints &adjoints,
                                   SmallVectorImpl<Term> &found) {
  for (Operation &op : llvm::reverse(block.without_terminator()))
    if (failed(reverseOp(&op, map, adjoints, found)))
      return failure();
  return success();
}

LogicalResult ReverseMode::reverseOp(Operation *op, IRMapping &map,
                                     Adjoints &adjoints,
                                     SmallVectorImpl<Term> &found) {
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return reverseIf(branch, map, adjoints, found);
  if (auto custom = dyn_cast<CustomGradientOp>(op))
    return reverseCustom(custom, map, adjoints);
  Value g =
      op->getNumResults() == 1 ? adjoints.lookup(op->getResult(0)) : Value();
  if (auto read = dyn_cast<tensor::ExtractOp>(op))
    return g ? reverseRead(read, map, g, found) : success();
  auto scalar = dyn_cast<ScalarOpInterface>(op);
  bool needed = g || (op->getNumResults() != 1 &&
                      llvm::any_of(op->getResults(), [&](Value v) {
                        return adjoints.contains(v);
                      }));
  if (!needed)
    return success();
  auto hasNone = [&] {
    return op->emitOpError(
        "has no derivative; write the score function with arith and math "
        "operations on floats, or give it a model (lib/Analysis/"
        "ScalarModels.cpp)");
  };
  if (!scalar)
    return hasNone();
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(toReal(map.lookupOrDefault(operand)));
  Value result = toReal(map.lookup(op->getResult(0)));
  for (auto [n, operand] : llvm::enumerate(op->getOperands())) {
    if (!active.contains(operand))
      continue;
    FailureOr<Value> part = scalar.buildAdjoint(b, n, operands, result, g);
    if (failed(part))
      return hasNone();
    if (*part && isDifferentiable(operand))
      add(adjoints, operand, *part);
  }
  return success();
}

LogicalResult ReverseMode::reverseRead(tensor::ExtractOp read, IRMapping &map,
                                       Value g, SmallVectorImpl<Term> &found) {
  auto tensor = llvm::find(tensors, read.getTensor());
  if (tensor == tensors.end())
    return success();
  Term term{g, tensor - tensors.begin(), {}};
  for (Value index : read.getIndices()) {
    if (active.contains(index))
      return read.emitOpError(
          "reads at an index that depends on the score or on a captured "
          "floating-point tensor, whose gradient would have no fixed place; "
          "compute the index from coordinates and integers");
    term.indices.push_back(map.lookupOrDefault(index));
  }
  found.push_back(std::move(term));
  return success();
}

LogicalResult ReverseMode::reverseCustom(CustomGradientOp op, IRMapping &map,
                                         Adjoints &adjoints) {
  auto hasAdjoint = [&](Value v) { return adjoints.contains(v); };
  if (llvm::none_of(op.getResults(), hasAdjoint))
    return success();
  if (std::optional<StringRef> unknown = op.getUnknown())
    return op.emitOpError() << *unknown;
  Location loc = op.getLoc();
  SmallVector<Value> gradients;
  for (Value result : op.getResults()) {
    Value g = adjoints.lookup(result);
    gradients.push_back(
        convertFloat(b, loc, g ? g : zero(loc), result.getType()));
  }
  for (auto [input, part] :
       llvm::zip(op.getInputs(), op.buildGradients(b, map, gradients)))
    if (isDifferentiable(input))
      add(adjoints, input, toReal(part));
  return success();
}

/// One branch's part of an scf.if's adjoint: the adjoints of `outer`, computed
/// in `into` of those of what the branch yields.
FailureOr<SmallVector<Value>>
ReverseMode::reverseBranch(Region &region, Block *into, IRMapping map,
                           ArrayRef<Value> yielded, ArrayRef<Value> outer,
                           SmallVectorImpl<Term> &found) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(into);
  Adjoints adjoints;
  if (!region.empty()) {
    Block &block = region.front();
    for (Operation &op : block.without_terminator())
      cloneAnew(b, op, map);
    for (auto [v, g] : llvm::zip(block.getTerminator()->getOperands(), yielded))
      if (g && isDifferentiable(v))
        add(adjoints, v, g);
    if (failed(reverse(block, map, adjoints, found)))
      return failure();
  }
  SmallVector<Value> results;
  for (Value v : outer) {
    Value g = adjoints.lookup(v);
    results.push_back(g ? g : zero(v.getLoc()));
  }
  return results;
}

LogicalResult ReverseMode::reverseIf(scf::IfOp branch, IRMapping &map,
                                     Adjoints &adjoints,
                                     SmallVectorImpl<Term> &found) {
  SmallVector<Value> yielded;
  for (Value result : branch.getResults())
    yielded.push_back(adjoints.lookup(result));
  if (llvm::none_of(yielded, [](Value g) { return g != nullptr; }))
    return success();
  Location loc = branch.getLoc();
  // Floats from outside that the branches use: what an adjoint goes on to.
  SetVector<Value> outer;
  branch->walk([&](Operation *op) {
    for (Value v : op->getOperands())
      if (isDifferentiable(v) &&
          !branch->isAncestor(v.getParentBlock()->getParentOp()))
        outer.insert(v);
  });
  Region regions[2];
  SmallVector<Term> parts[2];
  SmallVector<Value> results[2];
  for (unsigned i : {0, 1}) {
    auto made = reverseBranch(branch->getRegion(i), &regions[i].emplaceBlock(),
                              map, yielded, outer.getArrayRef(), parts[i]);
    if (failed(made))
      return failure();
    results[i] = *made;
  }
  // Either branch yields 0 for the other one's terms.
  for (unsigned i : {0, 1}) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(&regions[i].front());
    SmallVector<Value> yields = results[i];
    for (unsigned part : {0, 1})
      for (Term &term : parts[part]) {
        bool isOwn = part == i;
        yields.push_back(isOwn ? term.value : zero(loc));
        for (Value index : term.indices)
          yields.push_back(
              isOwn ? index
                    : arith::ConstantIndexOp::create(b, loc, 0).getResult());
      }
    scf::YieldOp::create(b, loc, yields);
  }
  TypeRange types = regions[0].front().getTerminator()->getOperandTypes();
  auto made = scf::IfOp::create(b, loc, types,
                                map.lookupOrDefault(branch.getCondition()),
                                /*withElseRegion=*/true);
  made.getThenRegion().takeBody(regions[0]);
  made.getElseRegion().takeBody(regions[1]);
  unsigned next = 0;
  for (Value v : outer)
    add(adjoints, v, made.getResult(next++));
  for (unsigned part : {0, 1})
    for (Term &term : parts[part]) {
      Term whole{made.getResult(next++), term.tensor, {}};
      for (size_t i = 0; i < term.indices.size(); ++i)
        whole.indices.push_back(made.getResult(next++));
      found.push_back(std::move(whole));
    }
  return success();
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// The function's arguments to differentiate by beside query, key and value, in
/// their order: those no wider than what is computed in that `wrt` names.
static FailureOr<SmallVector<Value>> differentiableTensors(AttentionOp op,
                                                           StringRef wrt) {
  auto function = op->getParentOfType<func::FuncOp>();
  unsigned width = op.getComputeType().getIntOrFloatBitWidth();
  auto hasGradient = [&](BlockArgument argument) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    return type && isa<FloatType>(type.getElementType()) &&
           type.getElementTypeBitWidth() <= width &&
           !llvm::is_contained(op->getOperands(), Value(argument));
  };
  SmallVector<Value> tensors;
  if (wrt == "none")
    return tensors;
  if (wrt == "all") {
    for (BlockArgument argument : function.getArguments())
      if (hasGradient(argument))
        tensors.push_back(argument);
    return tensors;
  }
  llvm::SmallBitVector chosen(function.getNumArguments());
  SmallVector<StringRef> numbers;
  wrt.split(numbers, '+');
  for (StringRef text : numbers) {
    unsigned number;
    if (text.getAsInteger(10, number) || number >= chosen.size() ||
        !hasGradient(function.getArgument(number))) {
      function.emitError()
          << "expected wrt to be all, none, or the numbers of arguments that "
             "are captured tensors of floats of at most "
          << width << " bits, joined by +; got '" << wrt << "'";
      return failure();
    }
    chosen.set(number);
  }
  for (unsigned number : chosen.set_bits())
    tensors.push_back(function.getArgument(number));
  return tensors;
}

/// What can be differentiated: one attention, of the function's own arguments.
static LogicalResult checkFunction(func::FuncOp function, AttentionOp op) {
  std::pair<StringRef, Value> operands[] = {
      {"query", op.getQuery()}, {"key", op.getKey()}, {"value", op.getValue()}};
  for (auto &[name, v] : operands)
    if (!llvm::is_contained(function.getArguments(), v))
      return op.emitOpError()
             << "expected its " << name << " to be an argument of @"
             << function.getName()
             << ": gradients are with respect to arguments; pass it in";
  for (Value result : function.front().getTerminator()->getOperands())
    if (result != op.getOut() && result != op.getLse())
      return op.emitOpError()
             << "expected @" << function.getName()
             << " to return its own results and nothing else; return other "
                "values from another function";
  if (!llvm::is_contained(function.front().getTerminator()->getOperands(),
                          op.getOut()))
    return op.emitOpError() << "expected @" << function.getName()
                            << " to return the output; return it";
  return success();
}

/// The function returns the log-sum-exp, too. Whether it did already.
static bool returnLogSumExp(OpBuilder &b, func::FuncOp function,
                            AttentionOp &op) {
  auto ret = cast<func::ReturnOp>(function.front().getTerminator());
  if (op.getLse() && llvm::is_contained(ret.getOperands(), op.getLse()))
    return true;
  if (!op.getLse()) {
    RankedTensorType query = op.getQuery().getType();
    SmallVector<Type> types = {
        op.getOut().getType(),
        RankedTensorType::get(query.getShape().drop_back(),
                              op.getComputeType())};
    b.setInsertionPoint(op);
    OperationState state(op.getLoc(), op->getName(), op->getOperands(), types,
                         op->getAttrs());
    for (Region &region : op->getRegions())
      state.addRegion()->takeBody(region);
    auto made = cast<AttentionOp>(b.create(state));
    op.getOut().replaceAllUsesWith(made.getOut());
    op.erase();
    op = made;
  }
  ret->insertOperands(ret.getNumOperands(), op.getLse());
  SmallVector<Type> results(ret.getOperandTypes());
  function.setFunctionType(
      b.getFunctionType(function.getArgumentTypes(), results));
  return false;
}

/// Builds the adjoint region of `backward`.
static LogicalResult buildAdjoint(OpBuilder &b, AttentionOp forward,
                                  AttentionBackwardOp backward,
                                  const IRMapping &outside,
                                  ArrayRef<Value> tensors) {
  if (forward.getScore().empty())
    return success();
  OpBuilder::InsertionGuard guard(b);
  Location loc = forward.getLoc();
  Type index = b.getIndexType(), real = forward.getComputeType();
  SmallVector<Type> types = {real, index, index, index, index, real};
  Block *block = b.createBlock(&backward.getAdjoint(), {}, types,
                               SmallVector<Location>(types.size(), loc));
  Block &score = forward.getScore().front();
  IRMapping map(outside);
  map.map(score.getArguments(), block->getArguments().drop_back());
  ReverseMode mode(b, tensors, score.getArgument(0));
  FailureOr<Value> grad =
      mode.run(forward.getScore(), map, block->getArgument(5));
  if (failed(grad))
    return failure();
  SmallVector<Value> terms, at;
  SmallVector<int64_t> to;
  for (Term &term : mode.terms) {
    terms.push_back(term.value);
    to.push_back(term.tensor);
    llvm::append_range(at, term.indices);
  }
  YieldAdjointOp::create(b, loc, *grad, terms, at, to);
  return success();
}

/// The gradient's function beside `function`.
static LogicalResult differentiate(OpBuilder &b, func::FuncOp function,
                                   AttentionOp op, StringRef wrt) {
  if (failed(checkFunction(function, op)))
    return failure();
  std::string name = (function.getName() + "_backward").str();
  if (function->getParentOfType<ModuleOp>().lookupSymbol(name))
    return function.emitError()
           << "expected no @" << name
           << " beside it, whose name its gradient takes; rename one";
  bool returnedLse = returnLogSumExp(b, function, op);
  Location loc = op.getLoc();
  FailureOr<SmallVector<Value>> tensors = differentiableTensors(op, wrt);
  if (failed(tensors))
    return failure();
  SmallVector<Type> inputs(function.getArgumentTypes()),
      results = {op.getQuery().getType(), op.getKey().getType(),
                 op.getValue().getType()};
  unsigned first = inputs.size();
  inputs.append(
      {op.getOut().getType(), op.getLse().getType(), op.getOut().getType()});
  if (returnedLse)
    inputs.push_back(op.getLse().getType());
  for (Value tensor : *tensors)
    results.push_back(
        cast<RankedTensorType>(tensor.getType()).clone(op.getComputeType()));
  b.setInsertionPointAfter(function);
  auto made = func::FuncOp::create(b, function.getLoc(), name,
                                   b.getFunctionType(inputs, results));
  for (unsigned i = 0; i < first; ++i)
    made.setArgAttrs(i, function.getArgAttrDict(i));
  Block *body = made.addEntryBlock();
  b.setInsertionPointToStart(body);
  IRMapping map;
  map.map(function.getArguments(), body->getArguments().take_front(first));
  for (Operation &inner : function.front().without_terminator())
    if (&inner != op.getOperation())
      b.clone(inner, map);
  SmallVector<Value> mapped;
  for (Value tensor : *tensors)
    mapped.push_back(map.lookup(tensor));
  ValueRange extra = body->getArguments().drop_front(first);
  auto backward = AttentionBackwardOp::create(
      b, loc, results, map.lookup(op.getQuery()), map.lookup(op.getKey()),
      map.lookup(op.getValue()), extra[0], extra[1], extra[2],
      returnedLse ? extra[3] : Value(), mapped, op.getScaleAttr(),
      op.getTimesAttr());
  op.getScore().cloneInto(&backward.getScore(), map);
  op.getMask().cloneInto(&backward.getMask(), map);
  op.getKeep().cloneInto(&backward.getKeep(), map);
  func::ReturnOp::create(b, loc, backward->getResults());
  return buildAdjoint(b, op, backward, map, *tensors);
}

namespace {
struct DifferentiatePass : fa::impl::DifferentiatePassBase<DifferentiatePass> {
  using DifferentiatePassBase::DifferentiatePassBase;
  void runOnOperation() override {
    SmallVector<std::pair<func::FuncOp, AttentionOp>> found;
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>()) {
      SmallVector<AttentionOp> ops;
      function.walk([&](AttentionOp op) { ops.push_back(op); });
      if (ops.size() > 1) {
        ops[1].emitOpError() << "is the second one in @" << function.getName()
                             << ", and gradients are of one; use a function "
                                "for each";
        return signalPassFailure();
      }
      if (!ops.empty())
        found.push_back({function, ops.front()});
    }
    OpBuilder b(&getContext());
    for (auto [function, op] : found)
      if (failed(differentiate(b, function, op, wrt)))
        return signalPassFailure();
    for (auto [function, op] : found)
      if (failed(cleanUp(cast<func::FuncOp>(function->getNextNode()))))
        return signalPassFailure();
    if (!replace)
      return;
    for (auto [function, op] : found)
      function.erase();
  }
};
} // namespace
