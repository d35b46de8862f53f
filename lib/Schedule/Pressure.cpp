// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Schedule/Pressure.h"

#include "fa/Schedule/Contraction.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace fa;

namespace {
class Pressure {
public:
  Pressure(const BlockProgram &program, unsigned warps,
           llvm::function_ref<unsigned(Value)> warpsOf)
      : program(program), warps(warps), warpsOf(warpsOf) {}
  int64_t estimate() const;

private:
  int64_t registersOf(Value v) const;
  int64_t mostLive(Block &block) const;

  const BlockProgram &program;
  unsigned warps;
  llvm::function_ref<unsigned(Value)> warpsOf;
};
} // namespace

int64_t Pressure::registersOf(Value v) const {
  auto type = dyn_cast<RankedTensorType>(v.getType());
  if (!type || !type.hasStaticShape() || program.isGlobal(v) ||
      program.isLoadedTile(v))
    return 0;
  if (type.getRank() == 2)
    return type.getDimSize(0) * ((type.getDimSize(1) + 7) / 8 * 8) /
           (32 * warpsOf(v)) * type.getElementTypeBitWidth() / 32;
  return std::max<int64_t>(2, type.getDimSize(0) / (8 * warps));
}

/// Of the results of a block's products, and of matrices that are computed of
/// them, the most registers at a time; but for those that a loop carries. What
/// is used for the last time gives its registers to what is computed of it.
int64_t Pressure::mostLive(Block &block) const {
  DenseSet<Value> ofProducts;
  for (Operation &op : block) {
    bool isOfProduct = matchContraction(&op).has_value();
    op.walk([&](Operation *inner) {
      isOfProduct |= !isa<scf::ForOp>(op) &&
                     llvm::any_of(inner->getOperands(), [&](Value v) {
                       return ofProducts.contains(v);
                     });
    });
    for (Value v : op.getResults()) {
      auto type = dyn_cast<RankedTensorType>(v.getType());
      bool isCarried = llvm::any_of(v.getUsers(), [](Operation *user) {
        return isa<scf::YieldOp>(user) && isa<scf::ForOp>(user->getParentOp());
      });
      if (isOfProduct && !isCarried && type && type.getRank() == 2 &&
          !type.getElementType().isInteger(1))
        ofProducts.insert(v);
    }
  }
  auto registers = [&](Value v) {
    return ofProducts.contains(v) ? registersOf(v) : 0;
  };
  DenseMap<Value, Operation *> lastUse;
  for (Operation &op : block)
    op.walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (operand.getParentBlock() == &block)
          lastUse[operand] = &op;
    });
  int64_t live = 0, most = 0;
  for (Operation &op : block) {
    for (Region &region : op.getRegions())
      if (isa<scf::ForOp>(op) && !region.empty())
        most = std::max(most, live + mostLive(region.front()));
    for (auto &[value, last] : lastUse)
      if (last == &op)
        live -= registers(value);
    for (Value result : op.getResults())
      if (lastUse.contains(result))
        live += registers(result);
    most = std::max(most, live);
  }
  return most;
}

/// Registers that a loop carries, those of what is computed in it, and what
/// addresses and temporaries take.
int64_t Pressure::estimate() const {
  scf::ForallOp forall = program.getForall();
  int64_t carriedMost = 0, resultMost = mostLive(*forall.getBody());
  forall.walk([&](scf::ForOp loop) {
    int64_t carried = 0;
    // A loop around another one carries the same.
    for (Value v : loop.getInitArgs())
      // What stays in memory takes no registers.
      if (!program.isGlobal(v))
        carried += registersOf(v);
    carriedMost = std::max(carriedMost, carried);
  });
  // Addresses, coordinates, fragments in flight: seen with ptxas 13. At D=128
  // this admits 128 rows on four warps, which are a fifth faster on an H200
  // than on eight.
  constexpr int64_t others = 32;
  // Bodies that compute with coordinates in every block keep these for their
  // columns; masks of single blocks stand in branches.
  bool coordinates = false;
  forall.walk([&](linalg::IndexOp op) {
    Operation *body = op->getParentOp();
    auto branch = dyn_cast<scf::IfOp>(body->getParentOp());
    coordinates |= isa<scf::ForOp>(body->getParentOp()) ||
                   (branch && body->getBlock() == branch.thenBlock());
  });
  return carriedMost + resultMost + others +
         (coordinates ? kCoordinateRegisters : 0);
}

int64_t fa::estimateRegisters(const BlockProgram &program, unsigned warps,
                              llvm::function_ref<unsigned(Value)> warpsOf) {
  return Pressure(program, warps, warpsOf).estimate();
}
