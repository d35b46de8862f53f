// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass hopper-narrow: a tile that a product takes rounded is kept rounded
// where it would wait for another product's result and registers cannot hold
// both.

#include "Pressure.h"

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/Hopper/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace fa::hopper {
#define GEN_PASS_DEF_NARROWTILESPASS
#include "fa/Dialect/Hopper/Transforms/Passes.h.inc"
} // namespace fa::hopper

using namespace mlir;
using namespace fa::hopper;

namespace {
/// The tiles of a loop of consumers.
class LoopTiles {
public:
  LoopTiles(scf::ForOp loop, ConsumersOp role)
      : body(*loop.getBody()), warpgroups(role.getWarpgroups()),
        most(role.getRegisters() - role.getSpare()) {}
  void narrow();

private:
  llvm::SetVector<Operation *> productsBefore(Value value) const;
  llvm::SetVector<Operation *> awaitedBy(linalg::GenericOp user,
                                         Value tile) const;
  bool fit(Value tile, const llvm::SetVector<Operation *> &awaited) const;

  Block &body;
  int64_t warpgroups, most;
};
} // namespace

/// A tile as what it is rounded to, element by element.
static bool isRounding(linalg::GenericOp op) {
  Block &block = *op.getBody();
  auto yield = cast<linalg::YieldOp>(block.getTerminator());
  auto round = yield.getOperand(0).getDefiningOp<arith::TruncFOp>();
  return op.getNumDpsInputs() == 1 && op.getNumResults() == 1 && round &&
         round.getIn() == block.getArgument(0) &&
         llvm::all_of(op.getIndexingMapsArray(),
                      [](AffineMap map) { return map.isIdentity(); });
}

/// Whether a rounding of each element of a tile stays that element's: it is
/// rounded anyway, or added at a place that no other element of its row or
/// column has. A sum of a row's elements, which may cancel, would keep the
/// roundings and lose the rest.
static bool keepsElementsApart(linalg::GenericOp op) {
  return llvm::all_of(op->getUsers(), [](Operation *user) {
    if (auto sum = dyn_cast<fa::AccumulateOp>(user))
      return sum.hasOwnPlaces({0}) && sum.hasOwnPlaces({1});
    auto round = dyn_cast<linalg::GenericOp>(user);
    return round && isRounding(round);
  });
}

/// Whether a product reads the tile, or what is chosen of it.
static bool isRead(Value tile) {
  return llvm::any_of(tile.getUsers(), [&](Operation *user) {
    if (auto generic = dyn_cast<linalg::GenericOp>(user))
      return generic.getNumResults() == 1 &&
             generic.getResult(0).getType() == tile.getType() &&
             isRead(generic.getResult(0));
    return isa<WgmmaOp, ShareOp>(user);
  });
}

/// The products of the body that a value depends on.
llvm::SetVector<Operation *> LoopTiles::productsBefore(Value value) const {
  llvm::SetVector<Operation *> seen, products;
  SmallVector<Value> work{value};
  while (!work.empty()) {
    Operation *op = work.pop_back_val().getDefiningOp();
    op = op ? body.findAncestorOpInBlock(*op) : nullptr;
    if (!op || !seen.insert(op))
      continue;
    if (isa<WgmmaOp>(op))
      products.insert(op);
    op->walk([&](Operation *inner) {
      work.append(inner->operand_begin(), inner->operand_end());
    });
  }
  return products;
}

/// The products that an operation waits for and the tile does not need.
llvm::SetVector<Operation *> LoopTiles::awaitedBy(linalg::GenericOp user,
                                                  Value tile) const {
  llvm::SetVector<Operation *> awaited, own = productsBefore(tile);
  for (Value operand : user->getOperands())
    awaited.set_union(productsBefore(operand));
  awaited.set_subtract(own);
  return awaited;
}

/// Whether threads can hold a tile beside what the loop carries and the results
/// that are awaited. It is rounded when these have been used.
bool LoopTiles::fit(Value tile,
                    const llvm::SetVector<Operation *> &awaited) const {
  int64_t all = registersOf(tile, warpgroups);
  for (Value carried : body.getArguments())
    all += registersOf(carried, warpgroups);
  for (Operation *product : awaited)
    for (Value result : product->getResults())
      all += registersOf(result, warpgroups);
  return all <= most;
}

/// The user reads the rounded tile in place of the tile.
static void readRounded(linalg::GenericOp user, Value tile, Value rounded) {
  for (OpOperand *operand : user.getDpsInputOperands()) {
    if (operand->get() != tile)
      continue;
    operand->set(rounded);
    BlockArgument number = user.getMatchingBlockArgument(operand);
    Type wide = number.getType();
    number.setType(getElementTypeOrSelf(rounded));
    OpBuilder b = OpBuilder::atBlockBegin(user.getBody());
    auto extended = arith::ExtFOp::create(b, user.getLoc(), wide, number);
    number.replaceAllUsesExcept(extended, extended);
  }
}

/// A product with a rounded tile that is rounded itself, and nothing else, is
/// one of rounded numbers: threads make two of them at once, and nothing is
/// extended. Of bf16: another factor may be past the numbers of f16, and the
/// product not. Erases both operations, the product's and the rounding.
static void multiplyRounded(linalg::GenericOp user) {
  if (user.getNumResults() != 1 || !user.getResult(0).hasOneUse())
    return;
  auto last =
      dyn_cast<linalg::GenericOp>(*user.getResult(0).getUsers().begin());
  if (!last || !isRounding(last))
    return;
  Type narrow = getElementTypeOrSelf(last.getResult(0));
  if (!narrow.isBF16())
    return;
  auto yield = cast<linalg::YieldOp>(user.getBody()->getTerminator());
  auto product = yield.getOperand(0).getDefiningOp<arith::MulFOp>();
  if (!product || !product->hasOneUse())
    return;
  for (auto [x, y] : {std::pair(product.getLhs(), product.getRhs()),
                      std::pair(product.getRhs(), product.getLhs())}) {
    auto extended = x.getDefiningOp<arith::ExtFOp>();
    if (!extended || extended.getIn().getType() != narrow)
      continue;
    OpBuilder b(product);
    Location loc = product.getLoc();
    Value other = arith::TruncFOp::create(b, loc, narrow, y);
    yield.setOperand(0, arith::MulFOp::create(b, loc, extended.getIn(), other));
    product.erase();
    // It is yielded where the rounding was.
    b.setInsertionPoint(user);
    auto made = linalg::GenericOp::create(
        b, user.getLoc(), last.getResultTypes(), user.getDpsInputs(),
        last.getDpsInits(), user.getIndexingMapsArray(),
        user.getIteratorTypesArray());
    made.getRegion().takeBody(user.getRegion());
    made.getMatchingBlockArgument(made.getDpsInitOperand(0)).setType(narrow);
    last.replaceAllUsesWith(made);
    last.erase();
    user.erase();
    return;
  }
}

void LoopTiles::narrow() {
  llvm::SetVector<Operation *> narrowed;
  for (auto round : llvm::to_vector(body.getOps<linalg::GenericOp>())) {
    if (!isRounding(round) || !isRead(round.getResult(0)))
      continue;
    Value tile = round.getDpsInputs()[0];
    Operation *made = tile.getDefiningOp();
    if (!made || made->getBlock() != &body || !isInRegisters(tile))
      continue;
    SmallVector<linalg::GenericOp> later;
    llvm::SetVector<Operation *> awaited;
    bool staysApart = true;
    for (Operation *user : tile.getUsers()) {
      auto generic = dyn_cast<linalg::GenericOp>(user);
      if (!generic || generic == round)
        continue;
      llvm::SetVector<Operation *> products = awaitedBy(generic, tile);
      if (products.empty())
        continue;
      later.push_back(generic);
      staysApart &= keepsElementsApart(generic);
      awaited.set_union(products);
    }
    if (later.empty() || !staysApart || fit(tile, awaited))
      continue;
    round->moveAfter(made);
    for (linalg::GenericOp user : later) {
      readRounded(user, tile, round.getResult(0));
      narrowed.insert(user);
    }
  }
  // At the end: it erases roundings, over which the loop above goes.
  for (Operation *user : narrowed)
    multiplyRounded(cast<linalg::GenericOp>(user));
}

namespace {
struct NarrowTiles : public fa::hopper::impl::NarrowTilesPassBase<NarrowTiles> {
  void runOnOperation() override {
    getOperation().walk([](ConsumersOp role) {
      role.walk([&](scf::ForOp loop) { LoopTiles(loop, role).narrow(); });
    });
  }
};
} // namespace
