// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/Hopper/Transforms/Followers.h"

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/Hopper/Transforms/Adders.h"
#include "fa/Schedule/BlockProgram.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fa;
using namespace fa::hopper;

static scf::ForallOp forallBefore(scf::ForallOp forall) {
  for (Operation *op = forall->getPrevNode(); op; op = op->getPrevNode())
    if (auto before = dyn_cast<scf::ForallOp>(op))
      return before;
  return {};
}

scf::ForallOp fa::hopper::followedBy(scf::ForallOp forall) {
  return forall->hasAttr(followsName) ? forallBefore(forall) : scf::ForallOp();
}

scf::ForallOp fa::hopper::followerOf(scf::ForallOp forall) {
  for (Operation *op = forall->getNextNode(); op; op = op->getNextNode())
    if (auto next = dyn_cast<scf::ForallOp>(op))
      return next->hasAttr(followsName) ? next : scf::ForallOp();
  return {};
}

int64_t fa::hopper::freeWarps(scf::ForallOp forall) {
  bool hasVectors =
      llvm::any_of(forall.getBody()->getOps<RingOp>(), [](RingOp ring) {
        return ring.getRing().getType().isVector();
      });
  int64_t taken = teamsOf(forall) * (hasVectors ? 2 : 1) + addersOf(forall);
  return std::max<int64_t>(0, warpgroupThreads / 32 - taken);
}

/// How many numbers of a forall's dimension belong to one of the forall before:
/// several for query heads that share a key head. None where that isn't known.
static std::optional<int64_t> ratioOf(scf::ForallOp before,
                                      scf::ForallOp forall, unsigned d) {
  OpFoldResult from = before.getMixedUpperBound()[d],
               to = forall.getMixedUpperBound()[d];
  if (from == to)
    return 1;
  std::optional<int64_t> few = getConstantIntValue(from),
                         many = getConstantIntValue(to);
  if (!few || !many || *few < 1 || *many % *few)
    return std::nullopt;
  return *many / *few;
}

/// Whether a value is `ratio` times a number.
static bool isMultiple(OpFoldResult value, Value number, int64_t ratio) {
  auto v = dyn_cast<Value>(value);
  if (!v || v == number)
    return v && ratio == 1;
  auto apply = v.getDefiningOp<affine::AffineApplyOp>();
  if (!apply || apply.getNumOperands() != 1 || apply.getOperand(0) != number)
    return false;
  auto product =
      dyn_cast<AffineBinaryOpExpr>(apply.getAffineMap().getResult(0));
  auto factor = product && product.getKind() == AffineExprKind::Mul
                    ? dyn_cast<AffineConstantExpr>(product.getRHS())
                    : AffineConstantExpr();
  return factor && factor.getValue() == ratio;
}

/// Whether what is used of a tensor is a part of it for each group of blocks:
/// slices that begin at `ratio` times the block's numbers, and have as many.
static bool isSlicedByGroups(Value tensor, ValueRange numbers,
                             ArrayRef<int64_t> ratios) {
  return llvm::all_of(tensor.getUses(), [&](OpOperand &use) {
    Operation *user = use.getOwner();
    if (auto sum = dyn_cast<ParallelAccumulateOp>(user))
      return sum.getDest() == tensor;
    auto slice = dyn_cast<OffsetSizeAndStrideOpInterface>(user);
    if (!slice || !isa<tensor::ExtractSliceOp, tensor::InsertSliceOp>(user))
      return false;
    if (auto insert = dyn_cast<tensor::InsertSliceOp>(user);
        insert && insert.getDest() != tensor)
      return false;
    for (auto [d, ratio] : llvm::enumerate(ratios))
      if (!isMultiple(slice.getMixedOffsets()[d], numbers[d], ratio) ||
          !isConstantIntValue(slice.getMixedSizes()[d], ratio))
        return false;
    return true;
  });
}

bool fa::hopper::canFollow(scf::ForallOp forall, std::string &why) {
  scf::ForallOp before = forallBefore(forall);
  if (!before || !consumersOf(before) ||
      before.getBody()->getOps<TileQueueOp>().empty()) {
    why = "there is no kernel before it that has roles and a hopper.tile_queue";
    return false;
  }
  // Its registers are taken: gradients of captured tensors and sums in an order
  // would keep what says how far they are in local memory.
  bool addsOthers = findOrder(before).has_value();
  before.walk([&](AccumulateOp) { addsOthers = true; });
  if (addsOthers) {
    why = "the kernel before it adds in an order, or numbers of computed tiles";
    return false;
  }
  if (!BlockProgram(forall).isElementwise()) {
    why = "its blocks do not compute element by element";
    return false;
  }
  unsigned last = before.getRank() - 1;
  if (forall.getRank() != before.getRank() || last == 0) {
    why = "the two have grids of other ranks, " +
          std::to_string(before.getRank()) + " and " +
          std::to_string(forall.getRank());
    return false;
  }
  SmallVector<int64_t> ratios;
  for (unsigned d = 0; d < last; ++d) {
    std::optional<int64_t> ratio = ratioOf(before, forall, d);
    bool areSingle = isConstantIntValue(before.getMixedStep()[d], 1) &&
                     isConstantIntValue(forall.getMixedStep()[d], 1);
    if (!areSingle || !ratio || (*ratio != 1 && d + 1 != last)) {
      why = "their grids differ in dimension " + std::to_string(d);
      return false;
    }
    ratios.push_back(*ratio);
  }
  SmallVector<int64_t> ones(ratios.size(), 1);
  bool readsSums = false;
  for (auto [argument, result] :
       llvm::zip(before.getRegionIterArgs(), before.getResults())) {
    bool isRead = llvm::any_of(result.getUsers(), [&](Operation *user) {
      return forall->isAncestor(user);
    });
    if (!isRead)
      continue;
    readsSums = true;
    // Only what is added is there in time: blocks say when it is.
    bool isSum = llvm::any_of(argument.getUsers(), [](Operation *user) {
      return isa<ParallelAccumulateOp>(user);
    });
    bool isOfGroups =
        isSum && isSlicedByGroups(argument, before.getInductionVars(), ratios);
    for (OpOperand &use : result.getUses())
      if (forall->isAncestor(use.getOwner()))
        isOfGroups &= use.getOwner() != forall;
    isOfGroups =
        isOfGroups && isSlicedByGroups(result, forall.getInductionVars(), ones);
    if (!isOfGroups) {
      why = "a block reads more of result " +
            std::to_string(result.getResultNumber()) +
            " than the blocks of its group add";
      return false;
    }
  }
  if (!readsSums)
    why = "it reads nothing that the kernel before adds up";
  return readsSums;
}

int64_t fa::hopper::scratchOf(scf::ForallOp follower) {
  auto place = follower->getAttrOfType<IntegerAttr>(followsName);
  return place ? place.getInt() : -1;
}

LogicalResult fa::hopper::verifyFollower(scf::ForallOp forall,
                                         int64_t sharedBytes) {
  std::string why;
  if (!canFollow(forall, why))
    return forall.emitOpError("cannot follow the kernel before it: ")
           << why << "; remove " << followsName;
  int64_t begin = scratchOf(forall),
          bytes = freeWarps(followedBy(forall)) * followerScratch;
  if (begin != -1 && (begin < 0 || begin % 16 != 0 || bytes > sharedBytes ||
                      begin > sharedBytes - bytes))
    return forall.emitOpError("has ")
           << followsName << " = " << begin << ", from where on " << bytes
           << " bytes of scratch do not lie in the block's " << sharedBytes
           << " bytes of shared memory at a multiple of 16; expected that, or "
              "-1 for none";
  return success();
}
