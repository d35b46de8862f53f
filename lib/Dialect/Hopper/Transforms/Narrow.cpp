// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass hopper-narrow: a tile that a product takes rounded is kept rounded
// where it would wait for another product's result.

#include "Pressure.h"

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
  bool fit() const;
  void narrow();

private:
  llvm::SetVector<Operation *> productsBefore(Value value) const;
  bool waitsForMore(linalg::GenericOp user, Value tile) const;

  Block &body;
  int64_t warpgroups, most;
};
} // namespace

/// Whether threads can hold what the loop carries and all that its products
/// give at the same time.
bool LoopTiles::fit() const {
  int64_t all = 0;
  for (Value carried : body.getArguments())
    all += registersOf(carried, warpgroups);
  for (auto product : body.getOps<WgmmaOp>())
    if (product.getInits().empty())
      for (Value result : product.getResults())
        all += registersOf(result, warpgroups);
  return all <= most;
}

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

static bool isRead(Value tile) {
  return llvm::any_of(tile.getUsers(), [](Operation *user) {
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

/// Whether an operation also waits for a product that the tile does not need.
bool LoopTiles::waitsForMore(linalg::GenericOp user, Value tile) const {
  llvm::SetVector<Operation *> own = productsBefore(tile);
  return llvm::any_of(user->getOperands(), [&](Value operand) {
    return llvm::any_of(productsBefore(operand), [&](Operation *product) {
      return !own.contains(product);
    });
  });
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

void LoopTiles::narrow() {
  for (auto round : llvm::to_vector(body.getOps<linalg::GenericOp>())) {
    if (!isRounding(round) || !isRead(round.getResult(0)))
      continue;
    Value tile = round.getDpsInputs()[0];
    Operation *made = tile.getDefiningOp();
    if (!made || made->getBlock() != &body || !isInRegisters(tile))
      continue;
    SmallVector<linalg::GenericOp> later;
    for (Operation *user : tile.getUsers())
      if (auto generic = dyn_cast<linalg::GenericOp>(user);
          generic && generic != round && waitsForMore(generic, tile))
        later.push_back(generic);
    if (later.empty())
      continue;
    round->moveAfter(made);
    for (linalg::GenericOp user : later)
      readRounded(user, tile, round.getResult(0));
  }
}

namespace {
struct NarrowTiles : public fa::hopper::impl::NarrowTilesPassBase<NarrowTiles> {
  void runOnOperation() override {
    getOperation().walk([](ConsumersOp role) {
      role.walk([&](scf::ForOp loop) {
        if (LoopTiles tiles(loop, role); !tiles.fit())
          tiles.narrow();
      });
    });
  }
};
} // namespace
