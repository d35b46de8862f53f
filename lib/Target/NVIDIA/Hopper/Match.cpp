// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which programs the rules of fa-hopper-place take: what each role can know,
// operands and vectors that can lie in rings, operations that consumers run.

#include "Placement.h"

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/Hopper/Transforms/Adders.h"

#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

/// Whether both roles can tell a number, or where a tile is cut from: it
/// depends on nothing that is computed of tiles.
static bool isKnownToBoth(Value value, scf::ForallOp forall) {
  SmallVector<Value> work{value};
  DenseSet<Value> seen;
  while (!work.empty()) {
    Value v = work.pop_back_val();
    if (!seen.insert(v).second ||
        !forall.getRegion().isAncestor(v.getParentRegion()))
      continue;
    if (auto argument = dyn_cast<BlockArgument>(v)) {
      Operation *parent = argument.getOwner()->getParentOp();
      auto loop = dyn_cast<scf::ForOp>(parent);
      if (parent != forall && !(loop && v == loop.getInductionVar()))
        return false;
      continue;
    }
    Operation *op = v.getDefiningOp();
    bool isView =
        isa<tensor::ExtractSliceOp, tensor::PadOp, tensor::CastOp>(op);
    if (!isView && (op->getNumRegions() || !isMemoryEffectFree(op)))
      return false;
    work.append(op->operand_begin(), op->operand_end());
  }
  return true;
}

/// Whether both roles can tell how often an operation runs.
static bool isUnderKnownControl(Operation *op, scf::ForallOp forall) {
  for (Operation *parent = op->getParentOp(); parent != forall;
       parent = parent->getParentOp()) {
    SmallVector<Value> numbers;
    if (auto loop = dyn_cast<scf::ForOp>(parent))
      numbers = {loop.getLowerBound(), loop.getUpperBound(), loop.getStep()};
    else if (auto branch = dyn_cast<scf::IfOp>(parent))
      numbers = {branch.getCondition()};
    else
      return false;
    for (Value number : numbers)
      if (!isKnownToBoth(number, forall))
        return false;
  }
  return true;
}

/// What is in shared memory lies there as it is loaded or computed; products
/// read it either way round. From registers they take the rows that a warpgroup
/// has, which are its own ones where warpgroups divide nothing else.
bool Placement::matchOperand(const Contraction &c, OpOperand &operand,
                             bool isFirst, std::string &why) {
  Value v = operand.get();
  auto type = cast<RankedTensorType>(v.getType());
  if (isLoaded(v)) {
    if (!canLoadByTMA(v, why))
      return false;
    if (!isKnownToBoth(v, forall)) {
      why = "a tile is loaded from where only computed tiles tell";
      return false;
    }
    tiles.insert({v, {}});
    return true;
  }
  if (c.k % 16) {
    why = "a computed operand has " + std::to_string(c.k) +
          " columns, and a multiple of 16 is expected";
    return false;
  }
  Division own = Division::of(type.getShape(), warpgroups);
  if (isFirst && !c.aOuterK && own.cols == 1) {
    inRegisters.insert(&operand);
    return true;
  }
  // Columns that do not fill panels take memory for nothing, where rows do not.
  bool liesTurned = type.getDimSize(1) % RingType::panelCols &&
                    type.getDimSize(0) % RingType::panelCols == 0 &&
                    takesShare(type, warpgroups, /*turned=*/true);
  if (!liesTurned && !takesShare(type, warpgroups, /*turned=*/false)) {
    why = "warpgroups would have to share a computed operand of " +
          std::to_string(type.getDimSize(0)) + " x " +
          std::to_string(type.getDimSize(1)) + ", of which each of " +
          std::to_string(warpgroups) +
          " is expected to have 64 rows and a multiple of 16 columns";
    return false;
  }
  tiles[v].isComputed = true;
  tiles[v].isTurned = liesTurned;
  return true;
}

/// A result whose rows warpgroups cannot divide, and whose columns they can, is
/// computed transposed, where it is added to memory and nothing else.
void Placement::turnProducts() {
  for (Contraction &c : contractions) {
    if (ShapedType::isDynamic(c.m) || c.m % warpgroupRows == 0 ||
        c.n % warpgroupRows)
      continue;
    Value result = c.op->getResult(0);
    bool isAdded = llvm::all_of(result.getUsers(), [&](Operation *user) {
      if (auto slice = dyn_cast<tensor::ExtractSliceOp>(user);
          slice && slice->hasOneUse())
        user = *slice->user_begin();
      auto sum = dyn_cast<fa::AccumulateSliceOp>(user);
      return sum && addedTile(sum) == result;
    });
    auto fill = c.op.getDpsInits()[0].getDefiningOp<linalg::FillOp>();
    if (!isAdded || !fill ||
        !matchPattern(fill.getInputs()[0], m_AnyZeroFloat()))
      continue;
    std::swap(c.a, c.b);
    std::swap(c.aOuterK, c.bOuterK);
    std::swap(c.m, c.n);
    turned.insert(c.op);
  }
}

bool Placement::matchContractions(std::string &why) {
  for (const Contraction &c : contractions) {
    if (!c.tensorCore() || getElementTypeOrSelf(c.b->get()) != c.elementType) {
      why = "its operands are not f16 or bf16";
      return false;
    }
    if ((c.aOuterK || c.bOuterK) && c.k % 16) {
      why = "expected a transposed operand's sums over a multiple of 16, got " +
            std::to_string(c.k);
      return false;
    }
    if (!isUnderKnownControl(c.op, forall)) {
      why = "a contraction is in a loop or branch that computed tiles decide";
      return false;
    }
  }
  if (!chooseWarpgroups(why))
    return false;
  return llvm::all_of(contractions, [&](const Contraction &c) {
    return matchOperand(c, *c.a, true, why) &&
           matchOperand(c, *c.b, false, why);
  });
}

/// Terms of captured tensors' gradients in an order: warps and lanes would take
/// turns while products are in flight.
static bool isOrderedSum(Operation *op) {
  auto sum = dyn_cast<fa::AccumulateOp>(op);
  return sum && sum.getOrdered();
}

/// Whether a tile is written into a larger tensor that a loop of contractions
/// carries: what the next iteration reads there, ahead of its turn, would have
/// to wait for it.
static bool writesCarriedMemory(tensor::InsertSliceOp insert,
                                ArrayRef<fa::Contraction> contractions) {
  auto into = dyn_cast<BlockArgument>(insert.getDest());
  return into && isa<scf::ForOp>(into.getParentBlock()->getParentOp()) &&
         llvm::any_of(contractions, [&](const fa::Contraction &c) {
           return c.op->getBlock() == into.getParentBlock();
         });
}

/// Operations that the consumers run as they are.
bool Placement::matchRest(std::string &why) {
  WalkResult walk = forall.getBody()->walk([&](Operation *op) {
    bool isKnown = isa<linalg::LinalgOp, scf::ForOp, scf::IfOp, scf::YieldOp,
                       scf::InParallelOp, linalg::YieldOp, linalg::IndexOp,
                       fa::ParallelAccumulateOp, fa::AccumulateOp,
                       fa::YieldPlacesOp, PinOp>(op) ||
                   op->getDialect()->getNamespace() == "tensor" ||
                   (!op->getNumRegions() && isMemoryEffectFree(op));
    isKnown &= !isOrderedSum(op);
    if (!isKnown)
      why = (isOrderedSum(op) ? "it has an ordered " : "it has a ") +
            op->getName().getStringRef().str();
    return isKnown ? WalkResult::advance() : WalkResult::interrupt();
  });
  return !walk.wasInterrupted();
}

/// Loaded in a loop, from where both roles can tell, for operations beside it;
/// in branches few blocks have them.
bool Placement::isVectorForRing(Value vector) {
  auto type = dyn_cast<RankedTensorType>(vector.getType());
  if (!type || type.getRank() != 1 || !isLoaded(vector) ||
      vector.getParentBlock() == forall.getBody() ||
      !isKnownToBoth(vector, forall) ||
      !isUnderKnownControl(vector.getDefiningOp(), forall))
    return false;
  for (Operation *op : getLoadChain(vector))
    if (auto pad = dyn_cast<tensor::PadOp>(op);
        pad && !pad.getConstantPaddingValue())
      return false;
  bool areBeside = llvm::all_of(vector.getUsers(), [&](Operation *user) {
    return isa<linalg::LinalgOp>(user) &&
           user->getBlock() == vector.getParentBlock();
  });
  return areBeside && RingType::takes(type);
}

/// A loaded tile that is held wherever the vector is read: of what is computed
/// of that a product is made that reads the tile. Of several the one that is
/// held longest; null where there is none.
Value Placement::findLeader(Value vector) {
  Operation *last = nullptr;
  Value leader;
  for (const Contraction &c : contractions) {
    if (c.op->getBlock() != vector.getParentBlock() ||
        (last && !last->isBeforeInBlock(c.op)))
      continue;
    bool followsAll = llvm::all_of(vector.getUsers(), [&](Operation *user) {
      return llvm::all_of(user->getResults(), [&](Value made) {
        return fa::dependsOn(c.op->getResult(0), made);
      });
    });
    if (!followsAll)
      continue;
    for (OpOperand *operand : {c.a, c.b}) {
      auto it = tiles.find(operand->get());
      if (it == tiles.end() || it->second.isComputed ||
          operand->get().getParentBlock() != vector.getParentBlock())
        continue;
      leader = operand->get();
      last = c.op;
    }
  }
  return leader;
}

void Placement::matchVectors() {
  bool comeWithTiles = options.companions >= 0 ? options.companions > 0
                                               : choice && choice->companions;
  forall.walk([&](linalg::LinalgOp op) {
    for (Value operand : op->getOperands())
      if (isVectorForRing(operand) && !tiles.contains(operand))
        tiles[operand].with = comeWithTiles ? findLeader(operand) : Value();
  });
}

bool Placement::match(std::string &why) {
  forall.walk([&](linalg::LinalgOp op) {
    if (auto c = matchContraction(op))
      contractions.push_back(*c);
  });
  if (contractions.empty()) {
    why = "it has no contraction";
    return false;
  }
  turnProducts();
  if (!matchRest(why) || !matchContractions(why))
    return false;
  WalkResult walk = forall.walk([&](tensor::InsertSliceOp insert) {
    return WalkResult(failure(writesCarriedMemory(insert, contractions)));
  });
  if (walk.wasInterrupted()) {
    why = "a loop of contractions carries a tensor of which it writes tiles";
    return false;
  }
  choice = measured();
  matchVectors();
  findRowSums();
  return chooseStages(why);
}
