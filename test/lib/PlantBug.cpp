// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A pass that makes a program wrong, between any two passes: what fa-run
// --check must find. It knows the operations that a mistake of a pass would
// concern, not which pass ran before.

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;

namespace {

/// Makes one mistake in a function; whether it found where.
using Mistake = bool (*)(func::FuncOp);

Value constantLike(OpBuilder &b, Location loc, Type type, double value) {
  return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value));
}

/// Scores times 1.01: of the constants that elements of a block are multiplied
/// with.
bool breakScale(func::FuncOp function) {
  bool found = false;
  function.walk([&](Operation *op) {
    auto generic = op->getParentOfType<linalg::GenericOp>();
    if (!isa<arith::MulFOp, math::FmaOp>(op) || !generic ||
        generic.getNumLoops() < 2)
      return;
    for (unsigned i = 0; i < 2; ++i) {
      FloatAttr scale;
      if (!matchPattern(op->getOperand(i), m_Constant(&scale)))
        continue;
      OpBuilder b(op);
      op->setOperand(i, constantLike(b, op->getLoc(), scale.getType(),
                                     1.01 * scale.getValueAsDouble()));
      found = true;
    }
  });
  return found;
}

/// `<=` becomes `<`, and `<` becomes `<=`, wherever coordinates are compared
/// so: a diagonal is gone, or one too many.
bool breakMask(func::FuncOp function) {
  using arith::CmpIPredicate;
  bool found = false;
  function.walk([&](arith::CmpIOp op) {
    std::pair<CmpIPredicate, CmpIPredicate> pairs[] = {
        {CmpIPredicate::sle, CmpIPredicate::slt},
        {CmpIPredicate::slt, CmpIPredicate::sle},
        {CmpIPredicate::sge, CmpIPredicate::sgt},
        {CmpIPredicate::sgt, CmpIPredicate::sge}};
    for (auto [from, to] : pairs)
      if (op.getPredicate() == from) {
        op.setPredicate(to);
        found = true;
        break;
      }
  });
  return found;
}

/// The innermost loops end one step early.
bool breakBound(func::FuncOp function) {
  bool found = false;
  function.walk([&](scf::ForOp loop) {
    bool isInnermost =
        !loop.getBody()
             ->walk([](scf::ForOp) { return WalkResult::interrupt(); })
             .wasInterrupted();
    if (!isInnermost)
      return;
    OpBuilder b(loop);
    loop.setUpperBound(arith::SubIOp::create(
        b, loop.getLoc(), loop.getUpperBound(), loop.getStep()));
    found = true;
  });
  return found;
}

/// The state is not rescaled when the maximum grows: alpha = exp(m - m')
/// becomes 1. It is the exponential on row vectors.
bool breakRescale(func::FuncOp function) {
  bool found = false;
  function.walk([&](linalg::GenericOp op) {
    if (op.getNumLoops() != 1)
      return;
    Operation *yield = op.getBody()->getTerminator();
    Value result = yield->getOperand(0);
    if (!isa_and_nonnull<math::ExpOp, math::Exp2Op>(result.getDefiningOp()))
      return;
    OpBuilder b(yield);
    yield->setOperand(0, constantLike(b, op.getLoc(), result.getType(), 1.0));
    found = true;
  });
  return found;
}

/// The log-sum-exp is the logarithm of the sum, without the maximum.
bool breakLSE(func::FuncOp function) {
  bool found = false;
  function.walk([&](Operation *op) {
    if (!isa<math::LogOp, math::Log2Op>(op))
      return;
    for (Operation *user : llvm::make_early_inc_range(op->getUsers()))
      if (isa<arith::AddFOp>(user)) {
        user->getResult(0).replaceAllUsesWith(op->getResult(0));
        found = true;
      }
  });
  return found;
}

/// Sums of weights are 1.02 times what they are: of the first sum of rows that
/// has no product in it.
bool breakSum(func::FuncOp function) {
  bool found = false;
  function.walk([&](linalg::GenericOp op) {
    auto add = op.getBody()
                   ->getTerminator()
                   ->getOperand(0)
                   .getDefiningOp<arith::AddFOp>();
    if (found || op.getNumReductionLoops() != 1 || op.getNumLoops() != 2 ||
        !add || op.getNumDpsInputs() != 1)
      return;
    OpBuilder b(add);
    Value factor = constantLike(b, op.getLoc(), add.getType(), 1.02);
    Value wrong = arith::MulFOp::create(b, op.getLoc(), add.getLhs(), factor);
    add->setOperand(0, wrong);
    found = true;
  });
  return found;
}

/// Query heads read the next group's keys: of h / group the group is too large.
bool breakGroup(func::FuncOp function) {
  bool found = false;
  function.walk([&](affine::AffineApplyOp op) {
    AffineMap map = op.getAffineMap();
    if (map.getNumResults() != 1)
      return;
    auto expr = dyn_cast<AffineBinaryOpExpr>(map.getResult(0));
    if (!expr || expr.getKind() != AffineExprKind::FloorDiv)
      return;
    AffineExpr wrong = expr.getLHS().floorDiv(expr.getRHS() * 2);
    op.setMap(AffineMap::get(map.getNumDims(), map.getNumSymbols(), wrong));
    found = true;
  });
  return found;
}

/// Weights keep three bits of their fraction, as in an 8-bit float.
bool breakPrecision(func::FuncOp function) {
  bool found = false;
  function.walk([&](Operation *op) {
    auto generic = op->getParentOfType<linalg::GenericOp>();
    if (!isa<math::ExpOp, math::Exp2Op>(op) || !generic ||
        generic.getNumLoops() < 2)
      return;
    OpBuilder b(op->getContext());
    b.setInsertionPointAfter(op);
    Location loc = op->getLoc();
    Type i32 = b.getI32Type();
    Value weight = op->getResult(0);
    if (!weight.getType().isF32())
      return;
    Value bits = arith::BitcastOp::create(b, loc, i32, weight);
    Value half =
        arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(1 << 19));
    Value keep = arith::ConstantOp::create(
        b, loc, b.getI32IntegerAttr(static_cast<int32_t>(0xfff00000u)));
    Value sum = arith::AddIOp::create(b, loc, bits, half);
    Value coarse = arith::BitcastOp::create(
        b, loc, weight.getType(), arith::AndIOp::create(b, loc, sum, keep));
    weight.replaceAllUsesExcept(coarse, bits.getDefiningOp());
    found = true;
  });
  return found;
}

/// A score function's derivative is 1.02 times what it is.
bool breakAdjoint(func::FuncOp function) {
  bool found = false;
  function.walk([&](Operation *op) {
    if (op->getName().getStringRef() != "fa.yield_adjoint")
      return;
    OpBuilder b(op);
    Value grad = op->getOperand(0);
    Value factor = constantLike(b, op->getLoc(), grad.getType(), 1.02);
    op->setOperand(0, arith::MulFOp::create(b, op->getLoc(), grad, factor));
    found = true;
  });
  return found;
}

/// What is added to a captured tensor's gradient goes to another one's place,
/// that of the row or the key before.
bool breakPlace(func::FuncOp function) {
  bool found = false;
  function.walk([&](Operation *op) {
    if (op->getName().getStringRef() != "fa.yield_adjoint")
      return;
    OpBuilder b(op);
    for (OpOperand &operand : op->getOpOperands())
      if (operand.get().getType().isIndex()) {
        Value one = arith::ConstantIndexOp::create(b, op->getLoc(), 1);
        operand.set(arith::SubIOp::create(b, op->getLoc(), operand.get(), one));
        found = true;
      }
  });
  return found;
}

/// Rows' D is forgotten: P * dP in place of P * (dP - D).
bool breakDelta(func::FuncOp function) {
  constexpr unsigned delta = 7;
  bool found = false;
  function.walk([&](Operation *op) {
    if (op->getName().getStringRef() != "fa.softmax_grad")
      return;
    OpBuilder b(op);
    Value rows = op->getOperand(delta);
    auto type = cast<RankedTensorType>(rows.getType());
    Value zero = constantLike(b, op->getLoc(), type.getElementType(), 0);
    op->setOperand(
        delta,
        linalg::FillOp::create(b, op->getLoc(), zero, rows).getResult(0));
    found = true;
  });
  return found;
}

struct PlantBugPass : PassWrapper<PlantBugPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PlantBugPass)
  PlantBugPass() = default;
  PlantBugPass(const PlantBugPass &other) : PassWrapper(other) {}
  StringRef getArgument() const final { return "test-fa-plant"; }
  StringRef getDescription() const final { return "wrong on purpose"; }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect>();
  }
  void runOnOperation() override {
    std::pair<StringRef, Mistake> mistakes[] = {
        {"scale", breakScale},     {"mask", breakMask},
        {"bound", breakBound},     {"rescale", breakRescale},
        {"lse", breakLSE},         {"sum", breakSum},
        {"group", breakGroup},     {"precision", breakPrecision},
        {"adjoint", breakAdjoint}, {"place", breakPlace},
        {"delta", breakDelta}};
    for (auto [name, mistake] : mistakes) {
      if (name != bug)
        continue;
      // A mistake that is not made would pass for one that is found.
      if (!mistake(getOperation())) {
        getOperation().emitError() << "found nothing to break by '" << bug
                                   << "'; plant it after another pass";
        signalPassFailure();
      }
      return;
    }
    getOperation().emitError() << "expected a bug that can be planted, got '"
                               << bug << "'; add it to PlantBug.cpp";
    signalPassFailure();
  }
  Option<std::string> bug{*this, "bug", llvm::cl::desc("what to do wrong")};
};
} // namespace

namespace fa {
void registerTestPasses();
void registerPlantHopper();
} // namespace fa

void fa::registerTestPasses() {
  PassRegistration<PlantBugPass>();
  registerPlantHopper();
}
