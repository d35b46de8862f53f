// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass hopper-expand: operations with a delay run in a later iteration.

#include "Delay.h"

#include "fa/Dialect/Hopper/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/RegionUtils.h"

namespace fa::hopper {
#define GEN_PASS_DEF_EXPANDLOOPSPASS
#include "fa/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace fa::hopper

using namespace mlir;
using namespace fa::hopper;

//===----------------------------------------------------------------------===//
// Delays that can be
//===----------------------------------------------------------------------===//

/// What an operation and its regions use of values from without.
static llvm::SetVector<Value> usedBy(Operation *op) {
  llvm::SetVector<Value> used(op->operand_begin(), op->operand_end());
  getUsedValuesDefinedAbove(op->getRegions(), used);
  return used;
}

static LogicalResult checkValue(scf::ForOp loop, Operation *op, Value value) {
  int64_t delay = delayOf(op);
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument) {
    Operation *made = value.getDefiningOp();
    if (made->getBlock() != loop.getBody() || delayOf(made) <= delay)
      return success();
    InFlightDiagnostic diag = op->emitOpError("has a delay of ")
                              << delay << ", and uses a value with one of "
                              << delayOf(made) << "; give it no smaller one";
    diag.attachNote(made->getLoc()) << "this";
    return diag;
  }
  if (argument.getOwner() != loop.getBody() ||
      argument == loop.getInductionVar())
    return success();
  Operation *made =
      loop.getTiedLoopYieldedValue(argument)->get().getDefiningOp();
  if (!made || made->getBlock() != loop.getBody())
    return loop.emitOpError("has operations with a delay, and carries a value "
                            "that it does not compute; use that from outside");
  // Of an iteration later it is made just before.
  if (delayOf(made) == delay || delayOf(made) == delay + 1)
    return success();
  InFlightDiagnostic diag =
      op->emitOpError("has a delay of ")
      << delay << ", and takes from the iteration before a value with one of "
      << delayOf(made) << "; give both the same, or that one more";
  diag.attachNote(made->getLoc()) << "this";
  return diag;
}

/// Tiles are taken and stages are filled in the order of the positions.
static LogicalResult checkRing(Operation *op, Value ring,
                               DenseMap<Value, Operation *> &known) {
  Operation *other = known.insert({ring, op}).first->second;
  if (delayOf(other) == delayOf(op))
    return success();
  InFlightDiagnostic diag = op->emitOpError("has a delay of ")
                            << delayOf(op) << ", and another one of its ring "
                            << delayOf(other)
                            << "; give all the same, or each a ring";
  diag.attachNote(other->getLoc()) << "this one";
  return diag;
}

static LogicalResult checkDelays(scf::ForOp loop) {
  DenseMap<Value, Operation *> acquires, shares;
  for (Operation &op : loop.getBody()->without_terminator()) {
    if (delayOf(&op) < 0)
      return op.emitOpError("expected a delay of at least 0, got ")
             << delayOf(&op);
    for (Value used : usedBy(&op))
      if (failed(checkValue(loop, &op, used)))
        return failure();
    if (auto acquire = dyn_cast<AcquireOp>(op))
      if (failed(checkRing(&op, acquire.getRing(), acquires)))
        return failure();
    if (auto share = dyn_cast<ShareOp>(op))
      if (failed(checkRing(&op, share.getRing(), shares)))
        return failure();
    if (!isa<WgmmaOp>(op))
      continue;
    for (Operation *user : op.getUsers())
      if (delayOf(user) != delayOf(&op)) {
        InFlightDiagnostic diag =
            op.emitOpError("has a delay of ")
            << delayOf(&op)
            << ", and the operation that waits for it or adds to it one of "
            << delayOf(user)
            << "; no product is in flight where an iteration ends: give both "
               "the same";
        diag.attachNote(user->getLoc()) << "this";
        return diag;
      }
  }
  return success();
}

//===----------------------------------------------------------------------===//
// What is computed again
//===----------------------------------------------------------------------===//

/// Numbers and slices of memory, of what the loop does not carry: computed
/// again they cost less than registers that hold them into the next iteration.
static bool isCheap(Value value, scf::ForOp loop) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return argument.getOwner() != loop.getBody() ||
           argument == loop.getInductionVar();
  Operation *op = value.getDefiningOp();
  if (op->getBlock() != loop.getBody())
    return true;
  return (isView(op) || (isNumber(op) && !op->getNumRegions())) &&
         llvm::all_of(usedBy(op),
                      [&](Value used) { return isCheap(used, loop); });
}

namespace {
/// Copies of what is computed again, by operation and delay.
using Copies = DenseMap<std::pair<Operation *, int64_t>, Operation *>;
} // namespace

static Value copyFor(Value value, int64_t delay, scf::ForOp loop,
                     Copies &copies) {
  Operation *op = value.getDefiningOp();
  if (!op || op->getBlock() != loop.getBody() || delayOf(op) == delay)
    return value;
  Operation *&copy = copies[{op, delay}];
  if (!copy) {
    OpBuilder b(op->getContext());
    b.setInsertionPointAfter(op);
    Operation *made = b.clone(*op);
    setDelay(made, delay);
    for (Value used : usedBy(op)) {
      Value its = copyFor(used, delay, loop, copies);
      made->walk(
          [&](Operation *inner) { inner->replaceUsesOfWith(used, its); });
    }
    copies[{op, delay}] = made;
    return made->getResult(cast<OpResult>(value).getResultNumber());
  }
  return copy->getResult(cast<OpResult>(value).getResultNumber());
}

static void computeAgain(scf::ForOp loop) {
  Copies copies;
  for (Operation &op :
       llvm::make_early_inc_range(loop.getBody()->without_terminator())) {
    int64_t delay = delayOf(&op);
    for (Value used : usedBy(&op)) {
      if (!delay || !isCheap(used, loop))
        continue;
      Value its = copyFor(used, delay, loop, copies);
      if (its != used)
        op.walk([&](Operation *inner) { inner->replaceUsesOfWith(used, its); });
    }
  }
}

//===----------------------------------------------------------------------===//
// The pipelined loop
//===----------------------------------------------------------------------===//

static std::optional<int64_t> constantTrips(scf::ForOp loop) {
  auto low = getConstantIntValue(loop.getLowerBound()),
       high = getConstantIntValue(loop.getUpperBound()),
       step = getConstantIntValue(loop.getStep());
  if (!low || !high || !step || *step <= 0)
    return std::nullopt;
  return *low < *high ? (*high - *low + *step - 1) / *step : 0;
}

/// Puts the loop under the question whether it has as many iterations as the
/// largest delay; else it runs as it was.
static void guard(RewriterBase &b, scf::ForOp loop, int64_t delay) {
  Location loc = loop.getLoc();
  b.setInsertionPoint(loop);
  Value before = arith::ConstantIndexOp::create(b, loc, delay - 1);
  Value last = arith::AddIOp::create(
      b, loc, loop.getLowerBound(),
      arith::MulIOp::create(b, loc, before, loop.getStep()));
  Value has = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, last,
                                    loop.getUpperBound());
  auto branch = scf::IfOp::create(b, loc, loop.getResultTypes(), has,
                                  /*withElseRegion=*/true);
  b.replaceAllUsesWith(loop.getResults(), branch.getResults());
  b.setInsertionPointToStart(branch.elseBlock());
  ValueRange otherwise = loop.getInitArgs();
  if (delay > 1) {
    Operation *naive = b.clone(*loop);
    naive->walk([](Operation *op) { op->removeAttr(delayName); });
    otherwise = naive->getResults();
  }
  if (loop.getNumResults())
    scf::YieldOp::create(b, loc, otherwise);
  b.moveOpBefore(loop, branch.thenBlock(), branch.thenBlock()->begin());
  b.setInsertionPointAfter(loop);
  if (loop.getNumResults())
    scf::YieldOp::create(b, loc, loop.getResults());
}

//===----------------------------------------------------------------------===//
// The first iteration
//===----------------------------------------------------------------------===//

static constexpr StringLiteral firstName = "hopper.is_first";

/// Marks the questions whether an iteration is the loop's first one. Whether
/// there are some.
static bool markFirst(scf::ForOp loop) {
  bool found = false;
  loop.walk([&](arith::CmpIOp compare) {
    if (compare.getPredicate() != arith::CmpIPredicate::eq ||
        compare.getLhs() != loop.getInductionVar() ||
        compare.getRhs() != loop.getLowerBound())
      return;
    compare->setAttr(firstName, UnitAttr::get(loop.getContext()));
    found = true;
  });
  return found;
}

/// Notes the answers to those that an operation of the pipelined loop has.
static void answerFirst(Operation *op, bool isFirst) {
  op->walk([&](arith::CmpIOp compare) {
    if (compare->hasAttr(firstName))
      compare->setAttr(firstName, BoolAttr::get(op->getContext(), isFirst));
  });
}

/// Puts the answers in the place of the questions.
static void replaceFirst(Operation *role) {
  role->walk([](arith::CmpIOp compare) {
    Attribute attribute = compare->removeAttr(firstName);
    auto answer = dyn_cast_or_null<BoolAttr>(attribute);
    if (!answer)
      return;
    OpBuilder b(compare);
    compare.replaceAllUsesWith(
        arith::ConstantOp::create(b, compare.getLoc(), answer).getResult());
  });
}

/// Zeros that a product's sum starts from, carried by the loop, take no
/// registers: in the loop's first iteration the sum starts anew.
static void leaveOutZeros(scf::ForOp loop) {
  auto isZero = [](Value v) {
    auto fill = v.getDefiningOp<linalg::FillOp>();
    return fill && matchPattern(fill.getInputs()[0], m_AnyZeroFloat());
  };
  // Also behind the loop, which may have no iteration.
  auto productOf = [](Value v) -> WgmmaOp {
    if (!v.hasOneUse())
      return {};
    auto product = dyn_cast<WgmmaOp>(*v.user_begin());
    return product && llvm::is_contained(product.getInits(), v) &&
                   !product.getCondition()
               ? product
               : WgmmaOp();
  };
  auto numberOf = [&](BlockArgument argument) {
    return argument.getArgNumber() - loop.getNumInductionVars();
  };
  auto startsFromZero = [&](WgmmaOp product) {
    return llvm::all_of(product.getInits(), [&](Value init) {
      auto argument = dyn_cast<BlockArgument>(init);
      if (!argument || argument.getOwner() != loop.getBody() ||
          productOf(init) != product)
        return false;
      unsigned n = numberOf(argument);
      return isZero(loop.getInitArgs()[n]) && productOf(loop.getResult(n));
    });
  };
  for (auto product : loop.getBody()->getOps<WgmmaOp>()) {
    if (product.getInits().empty() || product.getCondition() ||
        !startsFromZero(product))
      continue;
    OpBuilder b(product);
    Location loc = product.getLoc();
    Value lower = loop.getLowerBound();
    Value isLater = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                          loop.getInductionVar(), lower);
    product.getConditionMutable().assign(isLater);
    b.setInsertionPointAfter(loop);
    Value hasRun = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt,
                                         lower, loop.getUpperBound());
    b.setInsertionPoint(loop);
    for (Value init : product.getInits()) {
      unsigned n = numberOf(cast<BlockArgument>(init));
      auto type = cast<RankedTensorType>(init.getType());
      loop.getInitArgsMutable()[n].set(tensor::EmptyOp::create(
          b, loc, type.getShape(), type.getElementType()));
      auto behind = cast<WgmmaOp>(*loop.getResult(n).user_begin());
      behind.getConditionMutable().assign(hasRun);
    }
  }
}

/// Has the pipelined loop count the iterations of what has no delay, up to the
/// bound that it had: most of what reads the number does so for these.
static void countFromFirst(scf::ForOp loop, Value bound, int64_t delay) {
  OpBuilder b(loop);
  Location loc = loop.getLoc();
  Value shift = arith::MulIOp::create(
      b, loc, loop.getStep(), arith::ConstantIndexOp::create(b, loc, delay));
  loop.setLowerBound(
      arith::AddIOp::create(b, loc, loop.getLowerBound(), shift));
  loop.setUpperBound(bound);
  b.setInsertionPointToStart(loop.getBody());
  Value iv = loop.getInductionVar();
  auto before = arith::SubIOp::create(b, loc, iv, shift);
  iv.replaceAllUsesExcept(before, before);
}

/// Folds what is known of each iteration, and drops what is carried for
/// nothing.
static void simplify(Operation *op) {
  MLIRContext *context = op->getContext();
  RewritePatternSet patterns(context);
  scf::IfOp::getCanonicalizationPatterns(patterns, context);
  scf::ForOp::getCanonicalizationPatterns(patterns, context);
  (void)applyPatternsGreedily(op, std::move(patterns));
}

static LogicalResult expand(scf::ForOp loop) {
  if (failed(checkDelays(loop)))
    return failure();
  computeAgain(loop);
  bool asksForFirst = markFirst(loop);
  int64_t most = 0;
  for (Operation &op : *loop.getBody())
    most = std::max(most, delayOf(&op));
  IRRewriter b(loop.getContext());
  if (constantTrips(loop).value_or(0) < most)
    guard(b, loop, most);

  DenseSet<Operation *> known;
  loop->getBlock()->walk([&](arith::SelectOp op) { known.insert(op); });
  scf::PipeliningOption options;
  options.supportDynamicLoops = true;
  options.getScheduleFn = [&](scf::ForOp loop, auto &schedule) {
    for (int64_t delay = most; delay >= 0; --delay)
      for (Operation &op : loop.getBody()->without_terminator())
        if (delayOf(&op) == delay)
          schedule.push_back({&op, delay});
  };
  // There are as many iterations: nothing depends on that.
  options.predicateFn = [](RewriterBase &, Operation *op, Value) { return op; };
  DenseSet<Operation *> copies;
  using Part = scf::PipeliningOption::PipelinerPart;
  options.annotateFn = [&](Operation *op, Part part, unsigned iteration) {
    copies.insert(op);
    // What is left of a comparison in the kernel and behind it may be anything.
    if (part == Part::Prologue)
      answerFirst(op, iteration == delayOf(op));
    else if (part == Part::Kernel && delayOf(op) < most)
      answerFirst(op, false);
    Attribute delay = op->removeAttr(delayName);
    if (isa<AcquireOp>(op) && part == Part::Kernel && delay)
      op->setAttr(behindName, delay);
  };
  Location loc = loop.getLoc();
  Value bound = loop.getUpperBound();
  auto role = loop->getParentOfType<ConsumersOp>();
  b.setInsertionPoint(loop);
  FailureOr<scf::ForOp> kernel = scf::pipelineForLoop(b, loop, options);
  if (failed(kernel))
    return mlir::emitError(loc,
                           "'scf.for' cannot be pipelined by these delays");
  // Neither do tiles and slots before the loop and behind it, each of which it
  // asks too.
  SmallVector<arith::SelectOp> asked;
  (*kernel)->getBlock()->walk([&](arith::SelectOp select) {
    if (isa<TensorType, SlotType>(select.getType()) &&
        !known.contains(select) && !copies.contains(select))
      asked.push_back(select);
  });
  for (arith::SelectOp select : asked)
    b.replaceOp(select, select.getTrueValue());
  // Other loops stay as upstream makes them: gradients' registers were measured
  // so.
  if (asksForFirst) {
    countFromFirst(*kernel, bound, most);
    replaceFirst(role);
    simplify(role);
    SmallVector<scf::ForOp> loops;
    role.walk([&](scf::ForOp inner) { loops.push_back(inner); });
    llvm::for_each(loops, leaveOutZeros);
  }
  return success();
}

namespace {
struct ExpandLoops : public fa::hopper::impl::ExpandLoopsPassBase<ExpandLoops> {
  void runOnOperation() override {
    llvm::SetVector<scf::ForOp> loops;
    WalkResult walk = getOperation().walk([&](Operation *op) {
      if (!op->hasAttr(delayName))
        return WalkResult::advance();
      auto loop = dyn_cast<scf::ForOp>(op->getParentOp());
      if (!loop || !loop->getParentOfType<ConsumersOp>())
        return op->emitOpError("has a delay outside a loop of consumers"),
               WalkResult::interrupt();
      loops.insert(loop);
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      return signalPassFailure();
    for (scf::ForOp loop : loops)
      if (failed(expand(loop)))
        return signalPassFailure();
  }
};
} // namespace
