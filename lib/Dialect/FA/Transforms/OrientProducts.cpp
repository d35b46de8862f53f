// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which of C and C^T each product of a tile program computes.

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/Transforms/Passes.h"
#include "fa/Dialect/FA/Transforms/Utils.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace fa {
#define GEN_PASS_DEF_ORIENTPRODUCTSPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-orient-products"

namespace {
/// Matrices that must be transposed together, from the results of products to
/// the operands of others: elementwise operations hang them together.
class Component {
public:
  /// Collects what hangs together with a product's result; false where some of
  /// it must stay as it is.
  bool collect(Value start);
  bool contains(Value v) const { return values.contains(v); }
  /// Whether fewer operands of products need shared memory when transposed.
  bool prefersTranspose(int64_t randomColumns);
  void transpose(RewriterBase &rewriter);

private:
  bool visit(Value v);
  bool visitUse(OpOperand &use);
  bool visitElementwise(linalg::GenericOp op);
  bool exchangesBits(int64_t mostColumns);

  llvm::SetVector<Value> values;
  llvm::SetVector<Operation *> elementwise, products, branches;
  SmallVector<OpOperand *> operands; // of products
  SmallVector<AccumulateOp> sums;
};
} // namespace

static bool isMatrix(Value v) {
  auto type = dyn_cast<RankedTensorType>(v.getType());
  return type && type.getRank() == 2;
}

/// Two loops, and matrices that are indexed by both in order.
bool Component::visitElementwise(linalg::GenericOp op) {
  if (elementwise.contains(op))
    return true;
  if (op.getNumLoops() != 2 || op.getNumReductionLoops())
    return false;
  elementwise.insert(op);
  for (OpOperand &operand : op->getOpOperands()) {
    AffineMap map = op.getMatchingIndexingMap(&operand);
    if (map.getNumResults() == 2 && !map.isIdentity())
      return false;
    if (op.isDpsInit(&operand)) {
      if (!isMatrix(operand.get()) ||
          !op.getMatchingBlockArgument(&operand).use_empty())
        return false;
    } else if (isMatrix(operand.get())) {
      values.insert(operand.get());
    }
  }
  values.insert(op->result_begin(), op->result_end());
  return true;
}

bool Component::visitUse(OpOperand &use) {
  Operation *user = use.getOwner();
  if (isAnyProduct(user)) {
    operands.push_back(&use);
    return cast<linalg::GenericOp>(user).isDpsInput(&use);
  }
  if (auto generic = dyn_cast<linalg::GenericOp>(user))
    return generic.isDpsInput(&use) && visitElementwise(generic);
  if (auto sum = dyn_cast<AccumulateOp>(user)) {
    sums.push_back(sum);
    return sum.getTerms() == use.get();
  }
  if (auto yield = dyn_cast<scf::YieldOp>(user))
    if (auto branch = dyn_cast<scf::IfOp>(yield->getParentOp())) {
      unsigned n = use.getOperandNumber();
      branches.insert(branch);
      values.insert(branch.getResult(n));
      return true;
    }
  return false;
}

bool Component::visit(Value v) {
  Operation *def = v.getDefiningOp();
  if (!def)
    return false;
  if (isAnyProduct(def)) {
    // A sum over a loop's steps stays as it is carried.
    auto product = cast<linalg::GenericOp>(def);
    if (!product.getDpsInits()[0].getDefiningOp<linalg::FillOp>())
      return false;
    products.insert(def);
  } else if (auto branch = dyn_cast<scf::IfOp>(def)) {
    unsigned n = cast<OpResult>(v).getResultNumber();
    branches.insert(branch);
    for (scf::YieldOp yield : {branch.thenYield(), branch.elseYield()})
      values.insert(yield.getOperand(n));
  } else if (auto generic = dyn_cast<linalg::GenericOp>(def)) {
    if (!visitElementwise(generic))
      return false;
  } else {
    return false;
  }
  return llvm::all_of(v.getUses(),
                      [&](OpOperand &use) { return visitUse(use); });
}

bool Component::collect(Value start) {
  values.insert(start);
  for (size_t n = 0; n < values.size(); ++n)
    if (!visit(values[n]))
      return false;
  // A branch gives nothing else.
  return llvm::all_of(branches, [&](Operation *op) {
    return llvm::all_of(op->getResults(),
                        [&](Value v) { return values.contains(v); });
  });
}

/// Tensor cores take their first operand from registers, as rows of the
/// result; what is not that, or lies the other way, goes through shared memory.
static bool isTakenFromRegisters(OpOperand *operand, bool transposed) {
  auto op = cast<linalg::GenericOp>(operand->getOwner());
  AffineMap map = op.getMatchingIndexingMap(operand),
            result = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  return map.getResult(transposed ? 1 : 0) == result.getResult(0);
}

/// Random bits are made for rows of queries, in groups. Threads exchange those
/// of whole groups, which pays off where products take little time. Sums over
/// places are made of dS in f32, beside which bits have no registers.
bool Component::exchangesBits(int64_t mostColumns) {
  auto isOfGroups = [](Value v) {
    auto type = cast<RankedTensorType>(v.getType());
    return type.hasStaticShape() &&
           llvm::all_of(type.getShape(), [](int64_t size) {
             return size % RandomBitsOp::kGroupColumns == 0;
           });
  };
  if (!sums.empty() || !llvm::all_of(values, isOfGroups))
    return false;
  llvm::SetVector<Operation *> all = products;
  for (OpOperand *operand : operands)
    all.insert(operand->getOwner());
  return llvm::all_of(all, [&](Operation *op) {
    return llvm::all_of(cast<linalg::GenericOp>(op).getInputs(), [&](Value v) {
      auto type = cast<RankedTensorType>(v.getType());
      return type.getElementTypeBitWidth() == 16 &&
             (values.contains(v) ||
              (type.hasStaticShape() && type.getDimSize(1) <= mostColumns));
    });
  });
}

bool Component::prefersTranspose(int64_t randomColumns) {
  if (llvm::any_of(elementwise, makesRandomBits) &&
      !exchangesBits(randomColumns))
    return false;
  auto taken = [&](bool transposed) {
    return llvm::count_if(operands, [&](OpOperand *operand) {
      return isTakenFromRegisters(operand, transposed);
    });
  };
  return taken(true) > taken(false);
}

static RankedTensorType transposed(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return RankedTensorType::get({tensor.getDimSize(1), tensor.getDimSize(0)},
                               tensor.getElementType());
}

/// The affine map with its first two dimensions exchanged.
static AffineMap exchangeDims(AffineMap map) {
  MLIRContext *ctx = map.getContext();
  SmallVector<AffineExpr> dims;
  for (unsigned d = 0; d < map.getNumDims(); ++d)
    dims.push_back(getAffineDimExpr(d < 2 ? 1 - d : d, ctx));
  return map.replaceDimsAndSymbols(dims, {}, map.getNumDims(), 0);
}

/// An empty or constant tensor of the other shape.
static Value transposedInit(RewriterBase &rewriter, Value init) {
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPointAfterValue(init);
  RankedTensorType type = transposed(init.getType());
  Value empty = tensor::EmptyOp::create(rewriter, init.getLoc(),
                                        type.getShape(), type.getElementType());
  auto fill = init.getDefiningOp<linalg::FillOp>();
  if (!fill)
    return empty;
  return linalg::FillOp::create(rewriter, init.getLoc(), fill.getInputs(),
                                empty)
      .getResult(0);
}

void Component::transpose(RewriterBase &rewriter) {
  auto setMap = [&](linalg::GenericOp op, OpOperand *operand, AffineMap map) {
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    maps[operand->getOperandNumber()] = map;
    op.setIndexingMapsAttr(rewriter.getAffineMapArrayAttr(maps));
  };
  for (OpOperand *operand : operands) {
    auto op = cast<linalg::GenericOp>(operand->getOwner());
    AffineMap map = op.getMatchingIndexingMap(operand);
    setMap(op, operand,
           AffineMap::get(map.getNumDims(), 0,
                          {map.getResult(1), map.getResult(0)},
                          map.getContext()));
  }
  auto setInit = [&](linalg::GenericOp op) {
    for (OpOperand &init : op.getDpsInitsMutable())
      init.set(transposedInit(rewriter, init.get()));
  };
  for (Operation *product : products) {
    auto op = cast<linalg::GenericOp>(product);
    for (OpOperand *operand : op.getDpsInputOperands())
      setMap(op, operand, exchangeDims(op.getMatchingIndexingMap(operand)));
    setInit(op);
  }
  for (Operation *generic : elementwise) {
    auto op = cast<linalg::GenericOp>(generic);
    for (OpOperand *operand : op.getDpsInputOperands())
      if (!isMatrix(operand->get()))
        setMap(op, operand, exchangeDims(op.getMatchingIndexingMap(operand)));
    op.walk([](linalg::IndexOp index) { index.setDim(1 - index.getDim()); });
    setInit(op);
  }
  for (AccumulateOp sum : sums) {
    Block &places = sum.getPlaces().front();
    Value row = places.addArgument(rewriter.getIndexType(), sum.getLoc());
    places.getArgument(0).replaceAllUsesWith(row);
    places.eraseArgument(0); // now (column, row)
  }
  for (Value v : values)
    v.setType(transposed(v.getType()));
}

/// Transposes what should be, all that hangs together at once.
static void orient(RewriterBase &rewriter, scf::ForOp loop,
                   int64_t randomColumns) {
  SmallVector<Value> results;
  for (auto op : loop.getBody()->getOps<linalg::GenericOp>())
    if (isAnyProduct(op))
      results.push_back(op->getResult(0));
  llvm::SmallDenseSet<Value> done;
  for (Value result : results) {
    if (done.contains(result))
      continue;
    Component component;
    bool isFree = component.collect(result);
    for (Value other : results)
      if (component.contains(other))
        done.insert(other);
    if (isFree && component.prefersTranspose(randomColumns))
      component.transpose(rewriter);
  }
}

namespace {
struct OrientProductsPass
    : fa::impl::OrientProductsPassBase<OrientProductsPass> {
  using OrientProductsPassBase::OrientProductsPassBase;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    IRRewriter rewriter(&getContext());
    SmallVector<scf::ForOp> loops;
    func.walk([&](scf::ForOp loop) { loops.push_back(loop); });
    for (scf::ForOp loop : loops)
      orient(rewriter, loop, randomColumns);
    if (failed(cleanUp(func)))
      signalPassFailure();
  }
};
} // namespace
