// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass fa-schedule-hopper: a tile program's loop, rotated before its
// accumulating contraction, as the program of two roles.
//
//   for n { S = Q K_n; softmax; O = O' + P V_n }
//
// becomes, for the consumers,
//
//   S = Q K_0; softmax
//   for n from 1 { S = Q K_n and O = O' + P V_{n-1} in flight together;
//                  softmax }
//   O = O' + P V_last
//
// and the producer is the slice of that program which feeds its rings. The
// rotation, the ping-pong of warpgroups and the softmax under the second
// product are those of Shah et al. 2024, "FlashAttention-3", section 3.

#include "Program.h"

#include "fa/Dialect/FA/Transforms/Passes.h"
#include "fa/Dialect/Hopper/IR/Hopper.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace fa {
#define GEN_PASS_DEF_SCHEDULEHOPPERPASS
#define GEN_PASS_DEF_LOWERHOPPERPASS
#include "fa/Target/NVIDIA/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa::nvidia;
using namespace fa::hopper;

namespace {

/// What the schedule of one block is to be; -1: chosen.
struct HopperOptions {
  const fa::NVIDIATarget *target;
  int overlap = -1, pingPong = -1, stages = -1, persistent = -1, stage = -1,
      ones = -1, split = 0;
  int64_t heads = -1;
};

/// Barriers take the first bytes of shared memory.
constexpr int64_t firstTile = tileAlignment;

/// The schedule of one scf.forall.
class HopperSchedule {
public:
  HopperSchedule(scf::ForallOp forall, const HopperOptions &options)
      : forall(forall), options(options) {}

  /// Recognises what can be scheduled; else says in `why` what stands against
  /// it.
  bool match(std::string &why);
  /// Rewrites the body.
  LogicalResult build();

private:
  bool matchTiles(std::string &why);
  bool isTile(Value v, std::string &why);
  void chooseParameters();
  void splitRowSums();
  void findSums();
  void sinkSums();
  void findMask();
  Value splitPoint(OpBuilder &b, Value from);
  void decideByWarp();
  bool collectSums(Value v, Value carried, DenseSet<Operation *> &chain);

  RingOp makeRing(OpBuilder &b, StringRef name, Value tile, unsigned stages,
                  bool ones = false);
  bool isAccumulated(unsigned i) const {
    return i == outputIndex || (sums && i == sumsIndex);
  }
  void buildPipeline(OpBuilder &b, IRMapping &outer);
  void cloneOps(OpBuilder &b, ArrayRef<Operation *> ops, IRMapping &map,
                Value isFirst);
  void cloneIf(OpBuilder &b, scf::IfOp op, IRMapping &map);
  Value cloneTile(OpBuilder &b, Value tile, Value iv);
  Value acquire(OpBuilder &b, RingOp ring, Value tile, bool polled = false);
  void releaseQ(OpBuilder &b, Value next);
  void pollNextK(OpBuilder &b, Value next);
  bool canStage();
  void stageStores();
  WgmmaOp scores(OpBuilder &b, Value k);
  WgmmaOp output(OpBuilder &b, Value p, Value v, ValueRange inits);
  void buildProducer(OpBuilder &b, Block &from, IRMapping &map);
  static bool movesRings(Operation *op);

  scf::ForallOp forall;
  HopperOptions options;
  scf::ForOp loop;
  /// S = Q K and O = P V.
  Contraction first, second;
  /// The loop's result that the second contraction makes.
  unsigned outputIndex = 0;
  /// The sums of P's rows, where the tensor cores make them too, and the loop's
  /// result that they are.
  PartialSumsOp sums;
  unsigned sumsIndex = 0;
  /// Of a block of keys: its scores stay as they are, no mask cuts it. True up
  /// to some block and false from there on, if not null; then it is
  /// `iv + wholeOffset <= wholeBound`.
  Value wholeTile, wholeBound;
  int64_t wholeOffset = 0;

  int64_t warpgroups = 0, consumerRegisters = 0, producerRegisters = 0;
  bool overlap = false, pingPong = false, persistent = false;
  /// The result is staged where Q lay.
  bool reuseQ = false;
  int64_t nextOffset = firstTile, nextBarrier = 0;
  RingOp qRing, kRing, vRing;
  Value qSlot;
  ConsumersOp consumers;
  /// The tile that an acquired slot holds, as a value at the acquire.
  DenseMap<Operation *, Value> tileOf;
};

} // namespace

//===----------------------------------------------------------------------===//
// What can be scheduled
//===----------------------------------------------------------------------===//

static bool isLoaded(Value v) { return !getLoadChain(v).empty(); }

/// A loaded tile that TMA can load: rows of one dimension by the last
/// dimension.
bool HopperSchedule::isTile(Value v, std::string &why) {
  auto type = cast<RankedTensorType>(v.getType());
  std::string name;
  llvm::raw_string_ostream(name) << type;
  if (!type.hasStaticShape() || type.getDimSize(0) > RingType::maxRows ||
      type.getDimSize(0) < 8 || type.getDimSize(0) % 8) {
    why = "the tile " + name + " has not a multiple of 8 rows, at most " +
          std::to_string(RingType::maxRows);
    return false;
  }
  if (type.getDimSize(1) % 8 || type.getDimSize(1) < 8) {
    why = "rows of " + name + " are not whole chunks of 16 bytes";
    return false;
  }
  if (type.getDimSize(1) > RingType::maxCols) {
    why = "the tile " + name + " has more than " +
          std::to_string(RingType::maxCols) +
          " columns, of which 8 rows do not fit into shared memory";
    return false;
  }
  SmallVector<Operation *> chain = getLoadChain(v);
  for (Operation *op : chain)
    if (auto pad = dyn_cast<tensor::PadOp>(op)) {
      Value padding = pad.getConstantPaddingValue();
      if (!padding || !matchPattern(padding, m_AnyZeroFloat())) {
        why = "the tile " + name + " is not padded with zeros";
        return false;
      }
    }
  auto slice = cast<tensor::ExtractSliceOp>(chain.back());
  RankedTensorType base = slice.getSourceType();
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  bool last = base.getRank() <= 5 && !dropped.test(base.getRank() - 1) &&
              isConstantIntValue(slice.getMixedOffsets().back(), 0);
  if (!last || isLoaded(slice.getSource())) {
    why = "the tile " + name +
          " is not a slice of rows along the last dimension of a tensor "
          "of rank 5 or less";
    return false;
  }
  return true;
}

bool HopperSchedule::match(std::string &why) {
  SmallVector<Contraction> found;
  forall.walk([&](linalg::LinalgOp op) {
    if (auto c = matchContraction(op))
      found.push_back(*c);
  });
  if (found.size() != 2) {
    why = "it has " + std::to_string(found.size()) +
          " contractions, and two are expected";
    return false;
  }
  first = found[0], second = found[1];
  loop = first.op->getParentOfType<scf::ForOp>();
  if (!loop || second.op->getParentOp() != loop ||
      first.op->getParentOp() != loop || loop->getParentOp() != forall) {
    why = "its contractions are not both in one loop of the block";
    return false;
  }
  for (const Contraction &c : found)
    if (!c.tensorCore() || getElementTypeOrSelf(c.b->get()) != c.elementType) {
      why = "its operands are not f16 or bf16";
      return false;
    }
  if (first.aOuterK || first.bOuterK || second.aOuterK || !second.bOuterK) {
    why = "its operands are not Q [i,d], K [j,d], P [i,j] and V [j,d]";
    return false;
  }
  Value init = first.op.getDpsInits()[0];
  auto fill = init.getDefiningOp<linalg::FillOp>();
  if (!fill || !matchPattern(fill.getInputs()[0], m_AnyZeroFloat())) {
    why = "the scores do not start from zero";
    return false;
  }
  Value result = second.op->getResult(0);
  if (!result.hasOneUse() || !isa<scf::YieldOp>(*result.getUsers().begin())) {
    why = "the second contraction is not what the loop carries";
    return false;
  }
  outputIndex = result.getUses().begin()->getOperandNumber();
  return matchTiles(why);
}

bool HopperSchedule::matchTiles(std::string &why) {
  auto inLoop = [&](Value v) {
    return loop.getRegion().isAncestor(v.getParentRegion());
  };
  Value q = first.a->get(), k = first.b->get(), v = second.b->get();
  if (!isLoaded(q) || !isLoaded(k) || !isLoaded(v) || inLoop(q) || !inLoop(k) ||
      !inLoop(v) || isLoaded(second.a->get())) {
    why = "Q is not loaded before the loop, or K and V not in it";
    return false;
  }
  if (!isTile(q, why) || !isTile(k, why) || !isTile(v, why))
    return false;
  if (first.m % warpgroupRows || first.m > maxWarpgroups * warpgroupRows ||
      first.m != second.m) {
    why = "a block has " + std::to_string(first.m) +
          " rows, not 64, 128, 192 or 256";
    return false;
  }
  if (second.k % 16 || second.n % 8 || second.n > 256 || first.n % 8) {
    why = "a tile has " + std::to_string(second.k) + " keys and " +
          std::to_string(second.n) +
          " value columns; expected multiples of 16 and 8, the latter at most "
          "256";
    return false;
  }
  return true;
}

/// The generic op whose body is one operation of type Op on its block
/// arguments, or null.
template <typename Op> static linalg::GenericOp matchBody(Value v) {
  auto generic = v.getDefiningOp<linalg::GenericOp>();
  if (!generic || generic->getNumResults() != 1)
    return {};
  Block &body = *generic.getBody();
  return body.getTerminator()->getOperand(0).getDefiningOp<Op>() &&
                 llvm::hasSingleElement(body.without_terminator())
             ? generic
             : linalg::GenericOp();
}

//===----------------------------------------------------------------------===//
// Sums of rows
//===----------------------------------------------------------------------===//

/// The body is yield(x * y) of two values.
static bool isProduct(linalg::GenericOp op) {
  auto yield = op.getBody()->getTerminator();
  auto mul = yield->getOperand(0).getDefiningOp<arith::MulFOp>();
  return mul && op->getNumResults() == 1 && isa<BlockArgument>(mul.getLhs()) &&
         isa<BlockArgument>(mul.getRhs());
}

/// yield(acc + x) or yield(acc + ext x).
static bool isRowSum(linalg::GenericOp op) {
  if (op.getNumDpsInputs() != 1 || op.getNumLoops() != 2 ||
      op.getNumReductionLoops() != 1 || op->getNumResults() != 1 ||
      op.getIteratorTypesArray()[1] != utils::IteratorType::reduction)
    return false;
  Block &body = *op.getBody();
  auto add = body.getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!add)
    return false;
  Value acc = body.getArgument(1);
  Value other = add.getLhs() == acc   ? add.getRhs()
                : add.getRhs() == acc ? add.getLhs()
                                      : Value();
  if (!other)
    return false;
  if (auto ext = other.getDefiningOp<arith::ExtFOp>())
    other = ext.getIn();
  return other == body.getArgument(0) &&
         op.getIndexingMapsArray()[0].isIdentity();
}

/// Whether `v` is the carried row vector, scaled or chosen between scaled
/// versions, and nothing else sees what is on the way: `chain` are the
/// operations on it.
bool HopperSchedule::collectSums(Value v, Value carried,
                                 DenseSet<Operation *> &chain) {
  if (v == carried)
    return true;
  Operation *op = v.getDefiningOp();
  if (!op)
    return false;
  if (auto branch = dyn_cast<scf::IfOp>(op)) {
    unsigned i = cast<OpResult>(v).getResultNumber();
    if (!branch.elseBlock())
      return false;
    chain.insert(op);
    chain.insert(branch.thenYield());
    chain.insert(branch.elseYield());
    return collectSums(branch.thenYield().getOperand(i), carried, chain) &&
           collectSums(branch.elseYield().getOperand(i), carried, chain);
  }
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic || generic.getNumLoops() != 1 || !isProduct(generic) ||
      generic.getNumDpsInputs() != 2)
    return false;
  chain.insert(op);
  for (Value input : generic.getDpsInputs())
    if (collectSums(input, carried, chain))
      return true;
  return false;
}

static AffineMap rowMap(MLIRContext *context) {
  return AffineMap::get(2, 0, getAffineDimExpr(0, context));
}

/// A carried sum of rows as partial sums that a thread makes alone
/// (tensor<rows x 8>); the rest is added after the loop.
void HopperSchedule::splitRowSums() {
  MLIRContext *context = loop.getContext();
  for (unsigned i = 0; i < loop.getNumRegionIterArgs(); ++i) {
    Value carried = loop.getRegionIterArg(i);
    auto type = dyn_cast<RankedTensorType>(carried.getType());
    auto sum = loop.getYieldedValues()[i].getDefiningOp<linalg::GenericOp>();
    auto init = loop.getInitArgs()[i].getDefiningOp<linalg::FillOp>();
    if (!type || type.getRank() != 1 || !sum || !isRowSum(sum) || !init ||
        !matchPattern(init.getInputs()[0], m_AnyZeroFloat()) ||
        !sum->hasOneUse())
      continue;
    DenseSet<Operation *> chain;
    if (!collectSums(sum.getDpsInits()[0], carried, chain))
      continue;
    chain.insert(sum);
    // Nothing else may see the carried value or what is made of it.
    auto onlyChain = [&](Value v) {
      return llvm::all_of(
          v.getUsers(), [&](Operation *user) { return chain.contains(user); });
    };
    bool alone = onlyChain(carried);
    for (Operation *op : chain)
      if (auto generic = dyn_cast<linalg::GenericOp>(op); generic && op != sum)
        alone &= onlyChain(op->getResult(0));
    if (!alone)
      continue;

    auto wide =
        RankedTensorType::get({type.getDimSize(0), 8}, type.getElementType());
    OpBuilder b(loop);
    Location loc = sum.getLoc();
    Value zero = init.getInputs()[0];
    Value empty = tensor::EmptyOp::create(b, loc, wide, ValueRange());
    Value start = linalg::FillOp::create(b, loc, zero, empty).getResult(0);
    // From the carried value to the sum, in order.
    std::function<void(Value)> widen = [&](Value v) {
      v.setType(wide);
      for (Operation *user : llvm::make_early_inc_range(v.getUsers())) {
        if (user == sum)
          continue;
        if (auto yield = dyn_cast<scf::YieldOp>(user)) {
          for (OpOperand &operand : yield->getOpOperands())
            if (operand.get() == v && yield->getParentOp() != loop) {
              Value result =
                  yield->getParentOp()->getResult(operand.getOperandNumber());
              if (result.getType() != wide)
                widen(result);
            }
          continue;
        }
        auto generic = cast<linalg::GenericOp>(user);
        OpBuilder inner(generic);
        SmallVector<AffineMap> maps;
        for (Value input : generic.getDpsInputs())
          maps.push_back(input.getType() == wide
                             ? AffineMap::getMultiDimIdentityMap(2, context)
                             : rowMap(context));
        maps.push_back(AffineMap::getMultiDimIdentityMap(2, context));
        SmallVector<utils::IteratorType> loops(2,
                                               utils::IteratorType::parallel);
        auto scaled = linalg::GenericOp::create(
            inner, generic.getLoc(), TypeRange(wide), generic.getDpsInputs(),
            ValueRange(empty), maps, loops);
        IRMapping map;
        generic.getRegion().cloneInto(&scaled.getRegion(), map);
        Value before = generic.getResult(0), after = scaled.getResult(0);
        before.replaceAllUsesWith(after);
        generic.erase();
        widen(after);
      }
    };
    loop.getInitArgsMutable()[i].set(start);
    widen(carried);
    b.setInsertionPoint(sum);
    Value partial = PartialSumsOp::create(b, loc, wide, sum.getDpsInputs()[0],
                                          sum.getDpsInits()[0]);
    sum.getResult(0).replaceAllUsesWith(partial);
    sum.erase();
    Value result = loop.getResult(i);
    result.setType(wide);
    b.setInsertionPointAfter(loop);
    Value narrow = tensor::EmptyOp::create(b, loc, type, ValueRange());
    Value from = linalg::FillOp::create(b, loc, zero, narrow).getResult(0);
    auto total = linalg::GenericOp::create(
        b, loc, TypeRange(type), ValueRange(result), ValueRange(from),
        ArrayRef<AffineMap>{AffineMap::getMultiDimIdentityMap(2, context),
                            rowMap(context)},
        ArrayRef<utils::IteratorType>{utils::IteratorType::parallel,
                                      utils::IteratorType::reduction},
        [](OpBuilder &b, Location loc, ValueRange args) {
          Value next = arith::AddFOp::create(b, loc, args[0], args[1]);
          linalg::YieldOp::create(b, loc, next);
        });
    result.replaceAllUsesExcept(total.getResult(0), total);
  }
}

/// Sums of what the second contraction reads can be one more panel of V that is
/// all ones.
void HopperSchedule::findSums() {
  for (auto [i, value] : llvm::enumerate(loop.getYieldedValues())) {
    auto partial = value.getDefiningOp<PartialSumsOp>();
    if (!partial || partial->getParentOp() != loop)
      continue;
    Value tile = partial.getTile();
    if (auto ext = matchBody<arith::ExtFOp>(tile))
      tile = ext.getDpsInputs()[0];
    if (tile != second.a->get())
      continue;
    sums = partial;
    sumsIndex = i;
    // Every column is the whole sum.
    for (Operation *user :
         llvm::make_early_inc_range(loop.getResult(i).getUsers())) {
      auto total = cast<linalg::GenericOp>(user);
      OpBuilder b(total);
      auto type = cast<RankedTensorType>(total.getResult(0).getType());
      SmallVector<OpFoldResult> zero(2, b.getIndexAttr(0)),
          one(2, b.getIndexAttr(1)),
          sizes{b.getIndexAttr(type.getDimSize(0)), b.getIndexAttr(1)};
      Value column = tensor::ExtractSliceOp::create(
          b, total.getLoc(), type, loop.getResult(i), zero, sizes, one);
      total.getResult(0).replaceAllUsesWith(column);
      total.erase();
    }
    return;
  }
}

/// Sums of what a branch yields, in the branch: the weights need not be kept
/// for them, and on the common side the block's part is summed early.
void HopperSchedule::sinkSums() {
  SmallVector<PartialSumsOp> all(loop.getBody()->getOps<PartialSumsOp>());
  for (PartialSumsOp op : all) {
    auto branch = op.getTile().getDefiningOp<scf::IfOp>();
    if (!branch || op.getAcc().getDefiningOp() != branch ||
        !op.getAcc().hasOneUse() || !op.getTile().hasOneUse() ||
        !branch.elseBlock())
      continue;
    unsigned tile = cast<OpResult>(op.getTile()).getResultNumber(),
             acc = cast<OpResult>(op.getAcc()).getResultNumber();
    Type type = op.getResult().getType();
    Location loc = op.getLoc();
    for (Block *side : {branch.thenBlock(), branch.elseBlock()}) {
      Operation *yield = side->getTerminator();
      OpBuilder b(yield);
      Value weights = yield->getOperand(tile);
      if (weights.getParentBlock() != loop.getBody()) {
        yield->setOperand(acc, PartialSumsOp::create(b, loc, type, weights,
                                                     yield->getOperand(acc)));
        continue;
      }
      OpBuilder before(branch);
      before.setInsertionPointAfterValue(weights);
      auto zero =
          arith::ConstantOp::create(before, loc, before.getF32FloatAttr(0));
      Value empty = tensor::EmptyOp::create(
          before, loc, cast<RankedTensorType>(type), ValueRange());
      Value start = linalg::FillOp::create(before, loc, ValueRange(zero),
                                           ValueRange(empty))
                        .getResult(0);
      Value part = PartialSumsOp::create(before, loc, type, weights, start);
      AffineMap identity =
          AffineMap::getMultiDimIdentityMap(2, loop.getContext());
      SmallVector<AffineMap> maps(3, identity);
      SmallVector<utils::IteratorType> loops(2, utils::IteratorType::parallel);
      auto sum = linalg::GenericOp::create(
          b, loc, TypeRange(type), ValueRange{yield->getOperand(acc), part},
          ValueRange(empty), maps, loops,
          [](OpBuilder &b, Location loc, ValueRange args) {
            Value next = arith::AddFOp::create(b, loc, args[0], args[1]);
            linalg::YieldOp::create(b, loc, next);
          });
      yield->setOperand(acc, sum.getResult(0));
    }
    op.getResult().replaceAllUsesWith(op.getAcc());
    op.erase();
  }
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

/// A branch of the loop that leaves the scores of whole blocks as they are.
void HopperSchedule::findMask() {
  SmallVector<Value> conditions;
  for (auto branch : loop.getBody()->getOps<scf::IfOp>())
    if (branch.elseBlock() && branch.getNumResults() == 1 &&
        branch.thenBlock()->getOperations().size() == 1)
      conditions.push_back(branch.getCondition());
  if (conditions.size() != 1)
    return;
  auto compare = conditions[0].getDefiningOp<arith::CmpIOp>();
  if (!compare || compare.getPredicate() != arith::CmpIPredicate::sle ||
      !loop.isDefinedOutsideOfLoop(compare.getRhs()))
    return;
  Value iv = loop.getInductionVar(), end = compare.getLhs();
  if (auto apply = end.getDefiningOp<affine::AffineApplyOp>()) {
    // d0 + c
    AffineExpr rest = apply.getAffineMap().getResult(0) -
                      getAffineDimExpr(0, loop.getContext());
    auto constant =
        dyn_cast<AffineConstantExpr>(simplifyAffineExpr(rest, 1, 0));
    if (!constant || apply.getMapOperands().size() != 1 ||
        apply.getMapOperands()[0] != iv || apply.getAffineMap().getNumSymbols())
      return;
    wholeOffset = constant.getValue();
  } else if (end != iv) {
    return;
  }
  wholeTile = compare;
  wholeBound = compare.getRhs();
}

/// The first block, counted in steps from `from`, that the mask may cut; at
/// most the loop's end.
Value HopperSchedule::splitPoint(OpBuilder &b, Value from) {
  Location loc = loop.getLoc();
  auto index = [&](int64_t c) -> Value {
    return arith::ConstantIndexOp::create(b, loc, c);
  };
  Value step = loop.getStep();
  // Blocks with from + n * step + offset <= bound.
  Value room = arith::SubIOp::create(b, loc, wholeBound, from);
  room = arith::SubIOp::create(b, loc, room, index(wholeOffset));
  room = arith::AddIOp::create(b, loc, room, step);
  room = arith::MaxSIOp::create(b, loc, room, index(0));
  Value count = arith::DivUIOp::create(b, loc, room, step);
  Value split = arith::AddIOp::create(
      b, loc, from, arith::MulIOp::create(b, loc, count, step));
  return arith::MinSIOp::create(b, loc, split, loop.getUpperBound());
}

//===----------------------------------------------------------------------===//
// Branches of rows
//===----------------------------------------------------------------------===//

/// A branch on "some row of P is not below the limit" that treats each row for
/// itself is taken by warp, from P's registers; which rows they are is found in
/// the branch.
void HopperSchedule::decideByWarp() {
  SmallVector<scf::IfOp> branches(loop.getBody()->getOps<scf::IfOp>());
  for (scf::IfOp branch : branches) {
    auto either = branch.getCondition().getDefiningOp<arith::OrIOp>();
    if (!branch->hasAttr(fa::kRowwiseAttr) || !either)
      continue;
    auto extract = either.getRhs().getDefiningOp<tensor::ExtractOp>();
    auto any = extract ? matchBody<arith::OrIOp>(extract.getTensor())
                       : linalg::GenericOp();
    auto need = any ? matchBody<arith::CmpFOp>(any.getDpsInputs()[0])
                    : linalg::GenericOp();
    auto top = need ? matchBody<arith::MaximumFOp>(need.getDpsInputs()[0])
                    : linalg::GenericOp();
    if (!top)
      continue;
    auto compare = cast<arith::CmpFOp>(need.getBody()->front());
    FloatAttr limit;
    if (compare.getPredicate() != arith::CmpFPredicate::UGE ||
        compare.getLhs() != need.getBody()->getArgument(0) ||
        !matchPattern(compare.getRhs(), m_Constant(&limit)))
      continue;
    OpBuilder b(either);
    Value exceeds = ExceedsOp::create(
        b, extract.getLoc(), b.getI1Type(), top.getDpsInputs()[0],
        b.getF64FloatAttr(limit.getValueAsDouble()));
    either.getRhsMutable().set(exceeds);
    b.setInsertionPointToStart(branch.thenBlock());
    IRMapping map;
    b.clone(*top, map);
    Operation *inside = b.clone(*need, map);
    need.getResult(0).replaceUsesWithIf(
        inside->getResult(0), [&](OpOperand &use) {
          return branch.getThenRegion().isAncestor(
              use.getOwner()->getParentRegion());
        });
    for (Operation *op : {extract.getOperation(), any.getOperation(),
                          need.getOperation(), top.getOperation()})
      if (op->use_empty())
        op->erase();
  }
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

/// Registers a thread by role. A block enters with 65536 for all its threads,
/// in multiples of 8 each, and gives them out again.
static void roleRegisters(int64_t warpgroups, int64_t &producer,
                          int64_t &consumer) {
  static constexpr int64_t table[][2] = {
      {56, 256}, {40, 232}, {32, 160}, {32, 112}};
  producer = table[warpgroups - 1][0];
  consumer = table[warpgroups - 1][1];
}

void HopperSchedule::chooseParameters() {
  warpgroups = first.m / warpgroupRows;
  // Softmax under the second product needs the registers of S, P and O at
  // once, and pays where a warpgroup's softmax is longer than its neighbour's
  // products.
  int64_t live = first.n / 2 + first.n / 4 + second.n / 2;
  roleRegisters(warpgroups, producerRegisters, consumerRegisters);
  overlap =
      options.overlap >= 0 ? options.overlap : warpgroups <= 2 && live <= 170;
  pingPong = options.pingPong >= 0 ? options.pingPong
                                   : warpgroups > 1 && second.n <= 128;
  persistent = options.persistent != 0;
}

RingOp HopperSchedule::makeRing(OpBuilder &b, StringRef name, Value tile,
                                unsigned stages, bool ones) {
  auto type = RingType::get(b.getContext(), stages,
                            cast<RankedTensorType>(tile.getType()));
  auto ring = RingOp::create(b, tile.getLoc(), type, name, nextOffset,
                             nextBarrier, ones);
  nextOffset += llvm::alignTo(ring.bytes(), tileAlignment);
  nextBarrier = ring.barriersEnd();
  return ring;
}

//===----------------------------------------------------------------------===//
// Cloning
//===----------------------------------------------------------------------===//

static void eraseDead(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
    if (isOpTriviallyDead(&op)) {
      op.erase();
      continue;
    }
    for (Region &region : op.getRegions())
      for (Block &inner : region)
        eraseDead(inner);
  }
}

static std::optional<bool> constantBool(Value v) {
  if (std::optional<int64_t> c = getConstantIntValue(v))
    return *c != 0;
  return std::nullopt;
}

/// A product with a tile of zeros is that tile: the factors of attention's
/// state are finite.
static Value foldZeroProduct(linalg::GenericOp op, IRMapping &map) {
  if (!isProduct(op) || op.getNumReductionLoops())
    return {};
  for (OpOperand *input : op.getDpsInputOperands()) {
    Value v = map.lookupOrDefault(input->get());
    auto fill = v.getDefiningOp<linalg::FillOp>();
    if (fill && v.getType() == op.getResult(0).getType() &&
        matchPattern(fill.getInputs()[0], m_AnyZeroFloat()))
      return v;
  }
  return {};
}

/// Clones an elementwise operation; values that are the same everywhere go into
/// its body, and inputs that the folded body does not read are left out.
static bool cloneFolded(OpBuilder &b, linalg::GenericOp op, IRMapping &map) {
  if (op.getNumReductionLoops())
    return false;
  SmallVector<Value> constants;
  bool any = false;
  for (Value input : op.getDpsInputs()) {
    auto fill = map.lookupOrDefault(input).getDefiningOp<linalg::FillOp>();
    Attribute value;
    bool known = fill && matchPattern(fill.getInputs()[0], m_Constant(&value));
    constants.push_back(known ? fill.getInputs()[0] : Value());
    any |= known;
  }
  if (!any)
    return false;
  auto copy = cast<linalg::GenericOp>(b.clone(*op, map));
  Block &body = *copy.getBody();
  for (auto [i, constant] : llvm::enumerate(constants))
    if (constant)
      body.getArgument(i).replaceAllUsesWith(constant);
  for (Operation &inner :
       llvm::make_early_inc_range(body.without_terminator())) {
    OpBuilder at(&inner);
    SmallVector<Value> folded;
    // A fold in place gives no values.
    if (inner.getNumResults() && succeeded(at.tryFold(&inner, folded)) &&
        !folded.empty()) {
      inner.replaceAllUsesWith(folded);
      inner.erase();
    }
  }
  eraseDead(body);
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  SmallVector<AffineMap> oldMaps = copy.getIndexingMapsArray();
  llvm::BitVector unused(body.getNumArguments());
  for (auto [i, input] : llvm::enumerate(copy.getDpsInputs())) {
    if (body.getArgument(i).use_empty()) {
      unused.set(i);
      continue;
    }
    inputs.push_back(input);
    maps.push_back(oldMaps[i]);
  }
  for (unsigned i = copy.getNumDpsInputs(); i < oldMaps.size(); ++i)
    maps.push_back(oldMaps[i]);
  auto smaller = linalg::GenericOp::create(
      b, copy.getLoc(), copy.getResultTypes(), inputs, copy.getDpsInits(), maps,
      copy.getIteratorTypesArray());
  body.eraseArguments(unused);
  smaller.getRegion().takeBody(copy.getRegion());
  map.map(op.getResults(), smaller.getResults());
  copy.erase();
  return true;
}

/// A branch whose side is known is that side.
void HopperSchedule::cloneIf(OpBuilder &b, scf::IfOp op, IRMapping &map) {
  std::optional<bool> known =
      constantBool(map.lookupOrDefault(op.getCondition()));
  if (!known) {
    b.clone(*op, map);
    return;
  }
  Block *side = *known ? op.thenBlock() : op.elseBlock();
  if (!side)
    return;
  for (Operation &inner : side->without_terminator()) {
    auto generic = dyn_cast<linalg::GenericOp>(inner);
    if (Value zero = generic ? foldZeroProduct(generic, map) : Value())
      map.map(generic.getResult(0), zero);
    else if (!generic || !cloneFolded(b, generic, map))
      b.clone(inner, map);
  }
  for (auto [result, value] :
       llvm::zip(op.getResults(), side->getTerminator()->getOperands()))
    map.map(result, map.lookupOrDefault(value));
}

/// Clones operations of the loop's body for one iteration. `isFirst` is what a
/// comparison of the induction variable with the lower bound gives there.
void HopperSchedule::cloneOps(OpBuilder &b, ArrayRef<Operation *> ops,
                              IRMapping &map, Value isFirst) {
  for (Operation *op : ops) {
    if (op->getNumResults() == 1 && map.contains(op->getResult(0)))
      continue;
    auto compare = dyn_cast<arith::CmpIOp>(op);
    if (compare && compare.getPredicate() == arith::CmpIPredicate::eq &&
        compare.getLhs() == loop.getInductionVar() &&
        compare.getRhs() == loop.getLowerBound()) {
      map.map(compare.getResult(), isFirst);
      continue;
    }
    if (auto either = dyn_cast<arith::OrIOp>(op)) {
      Value x = map.lookupOrDefault(either.getLhs()),
            y = map.lookupOrDefault(either.getRhs());
      std::optional<bool> cx = constantBool(x), cy = constantBool(y);
      if (cx || cy) {
        Value folded = cx ? (*cx ? x : y) : (*cy ? y : x);
        map.map(either.getResult(), folded);
        continue;
      }
    }
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      cloneIf(b, branch, map);
      continue;
    }
    if (auto generic = dyn_cast<linalg::GenericOp>(op))
      if (Value zero = foldZeroProduct(generic, map)) {
        map.map(generic.getResult(0), zero);
        continue;
      }
    b.clone(*op, map);
  }
}

/// A value of a region for what `map` knows otherwise: what computes it in the
/// region, once more.
static Value cloneSlice(OpBuilder &b, Value v, Region &region, IRMapping &map) {
  if (Value known = map.lookupOrNull(v))
    return known;
  Operation *op = v.getDefiningOp();
  if (!op || !region.isAncestor(op->getParentRegion()))
    return v;
  op->walk<WalkOrder::PreOrder>([&](Operation *inner) {
    for (Value operand : inner->getOperands())
      if (!op->isAncestor(operand.getParentRegion()->getParentOp()))
        cloneSlice(b, operand, region, map);
  });
  b.clone(*op, map);
  return map.lookup(v);
}

/// The slice that a tile is, for another value of the induction variable.
Value HopperSchedule::cloneTile(OpBuilder &b, Value tile, Value iv) {
  IRMapping map;
  map.map(loop.getInductionVar(), iv);
  return cloneSlice(b, tile, loop.getRegion(), map);
}

Value HopperSchedule::acquire(OpBuilder &b, RingOp ring, Value tile,
                              bool polled) {
  auto type = SlotType::get(b.getContext(), ring.getRing().getType().getTile());
  auto op = AcquireOp::create(b, tile.getLoc(), type, ring.getRing(), polled);
  tileOf[op] = tile;
  return op.getSlot();
}

/// Q is free for the next tile after the last block's scores.
void HopperSchedule::releaseQ(OpBuilder &b, Value next) {
  if (!persistent || reuseQ)
    return;
  Value isLast = arith::CmpIOp::create(
      b, loop.getLoc(), arith::CmpIPredicate::sge, next, loop.getUpperBound());
  ReleaseOp::create(b, loop.getLoc(), qSlot, isLast);
}

/// Waits for the next K tile, if there is one. Between the softmax and the wait
/// for the second product it keeps the assembler from moving the latter up.
void HopperSchedule::pollNextK(OpBuilder &b, Value next) {
  Location loc = loop.getLoc();
  Value more = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, next,
                                     loop.getUpperBound());
  auto poll = scf::IfOp::create(b, loc, more);
  OpBuilder inner = OpBuilder::atBlockBegin(poll.thenBlock());
  PollOp::create(inner, loc, kRing.getRing());
}

WgmmaOp HopperSchedule::scores(OpBuilder &b, Value k) {
  return WgmmaOp::create(b, first.op.getLoc(), first.op->getResultTypes(),
                         qSlot, k, ValueRange(), /*transposed=*/false);
}

WgmmaOp HopperSchedule::output(OpBuilder &b, Value p, Value v,
                               ValueRange inits) {
  return WgmmaOp::create(b, second.op.getLoc(), inits.getTypes(), p, v, inits,
                         /*transposed=*/true);
}

//===----------------------------------------------------------------------===//
// The consumers
//===----------------------------------------------------------------------===//

void HopperSchedule::buildPipeline(OpBuilder &b, IRMapping &outer) {
  Location loc = loop.getLoc();
  Value lower = loop.getLowerBound(), upper = loop.getUpperBound(),
        step = loop.getStep();
  Value q = first.a->get(), k = first.b->get(), v = second.b->get(),
        p = second.a->get(), acc = second.op.getDpsInits()[0],
        s = first.op->getResult(0);

  // The body without its contractions and loads.
  DenseSet<Operation *> loads;
  for (Value tile : {k, v})
    loads.insert_range(getLoadChain(tile));
  SmallVector<Operation *> ops;
  for (Operation &op : loop.getBody()->without_terminator())
    if (&op != first.op && &op != second.op && &op != sums &&
        !loads.contains(&op))
      ops.push_back(&op);

  // What must wait for the second contraction: what reads its result, and what
  // makes its next operand.
  DenseSet<Value> late;
  for (unsigned i = 0; i < loop.getNumRegionIterArgs(); ++i)
    if (isAccumulated(i))
      late.insert(loop.getRegionIterArg(i));
  SmallVector<Operation *> earlyOps, lateOps;
  for (Operation *op : ops) {
    bool isLate = false;
    op->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        isLate |= late.contains(operand);
    });
    for (Value result : op->getResults()) {
      auto type = dyn_cast<RankedTensorType>(result.getType());
      isLate |= type && type.getRank() == 2 &&
                type.getElementType() == first.elementType;
    }
    if (isLate)
      late.insert(op->result_begin(), op->result_end());
    (isLate ? lateOps : earlyOps).push_back(op);
  }
  if (!overlap) {
    earlyOps = ops;
    lateOps.clear();
  }
  // Tiles that are computed early for the late operations.
  SetVector<Value> pinned;
  for (Operation *op : lateOps)
    if (auto generic = dyn_cast<linalg::GenericOp>(op))
      for (Value input : generic.getDpsInputs()) {
        auto type = dyn_cast<RankedTensorType>(input.getType());
        auto from = input.getDefiningOp<linalg::GenericOp>();
        if (type && type.getRank() == 2 && from &&
            from->getParentOp() == loop && !late.contains(input))
          pinned.insert(input);
      }

  auto constant = [&](bool value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getBoolAttr(value));
  };
  Value isFirst = constant(true), isLater = constant(false);
  if (!qSlot)
    qSlot = acquire(b, qRing, q);

  // The first block's scores and softmax.
  IRMapping map = outer;
  for (auto [arg, init] :
       llvm::zip(loop.getRegionIterArgs(), loop.getInitArgs()))
    map.map(arg, init);
  Value length = arith::SubIOp::create(b, loc, upper, lower);
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  Value whole = arith::DivUIOp::create(
      b, loc, arith::SubIOp::create(b, loc, length, one), step);
  Value last = arith::AddIOp::create(
      b, loc, lower, arith::MulIOp::create(b, loc, whole, step));
  map.map(loop.getInductionVar(), lower);
  Value second0;
  {
    Value slot = acquire(b, kRing, cloneTile(b, k, lower));
    Value pending = scores(b, slot).getResults()[0];
    auto wait = WaitGroupOp::create(b, loc, pending.getType(), 0, pending);
    ReleaseOp::create(b, loc, slot, Value());
    second0 = arith::AddIOp::create(b, loc, lower, step);
    releaseQ(b, second0);
    map.map(s, wait.getResults()[0]);
    cloneOps(b, ops, map, isFirst);
  }

  // The rotated loop carries O (and the sums) before it is added to, and P.
  auto carried = [&](unsigned i, Value yielded) -> Value {
    if (sums && i == sumsIndex)
      return sums.getAcc();
    return i == outputIndex ? acc : yielded;
  };
  SmallVector<Value> inits;
  for (auto [i, value] : llvm::enumerate(loop.getYieldedValues()))
    inits.push_back(map.lookupOrDefault(carried(i, value)));
  auto accumulators = [&](ValueRange state) {
    SmallVector<Value> values{state[outputIndex]};
    if (sums)
      values.push_back(state[sumsIndex]);
    return values;
  };
  inits.push_back(map.lookupOrDefault(p));
  if (overlap)
    pollNextK(b, second0);
  // One loop for a range of blocks whose scores `known` (or not) leaves as they
  // are.
  auto emitLoop = [&](Value from, Value to, ValueRange state,
                      std::optional<bool> known) -> SmallVector<Value> {
    OpBuilder::InsertionGuard guard(b);
    auto steady = scf::ForOp::create(b, loc, from, to, step, state);
    b.setInsertionPointToStart(steady.getBody());
    Value iv = steady.getInductionVar();
    Value kSlot = acquire(b, kRing, cloneTile(b, k, iv), /*polled=*/overlap);
    if (pingPong)
      TurnBeginOp::create(b, loc);
    Value pendingS = scores(b, kSlot).getResults()[0];
    Value before = arith::SubIOp::create(b, loc, iv, step);
    Value vSlot = acquire(b, vRing, cloneTile(b, v, before));
    SmallVector<Value> pendingO =
        output(b, steady.getRegionIterArgs().back(), vSlot,
               accumulators(steady.getRegionIterArgs()))
            .getResults();
    if (pingPong)
      TurnEndOp::create(b, loc);

    IRMapping in = outer;
    if (known)
      in.map(wholeTile, constant(*known));
    in.map(loop.getInductionVar(), iv);
    for (auto [i, arg] : llvm::enumerate(loop.getRegionIterArgs()))
      if (!isAccumulated(i))
        in.map(arg, steady.getRegionIterArg(i));
    auto waitFor = [&](int64_t pending, ValueRange values) {
      return WaitGroupOp::create(b, loc, values.getTypes(), pending, values)
          .getResults();
    };
    auto bindOutput = [&](ValueRange values) {
      in.map(loop.getRegionIterArg(outputIndex), values[0]);
      if (sums)
        in.map(loop.getRegionIterArg(sumsIndex), values[1]);
    };
    if (overlap) {
      in.map(s, waitFor(1, pendingS)[0]);
      ReleaseOp::create(b, loc, kSlot, Value());
      Value next = arith::AddIOp::create(b, loc, iv, step);
      releaseQ(b, next);
      cloneOps(b, earlyOps, in, isLater);
      if (!pinned.empty()) {
        SmallVector<Value> values;
        for (Value value : pinned)
          values.push_back(in.lookup(value));
        auto pin = PinOp::create(b, loc, TypeRange(ValueRange(values)), values);
        for (auto [value, result] : llvm::zip(pinned, pin.getResults()))
          in.map(value, result);
      }
      pollNextK(b, next);
      bindOutput(waitFor(0, pendingO));
      ReleaseOp::create(b, loc, vSlot, Value());
      cloneOps(b, lateOps, in, isLater);
    } else {
      SmallVector<Value> pending{pendingS};
      pending.append(pendingO);
      ValueRange all = waitFor(0, pending);
      in.map(s, all[0]);
      bindOutput(all.drop_front());
      ReleaseOp::create(b, loc, kSlot, Value());
      ReleaseOp::create(b, loc, vSlot, Value());
      releaseQ(b, arith::AddIOp::create(b, loc, iv, step));
      cloneOps(b, earlyOps, in, isLater);
    }
    SmallVector<Value> yields;
    for (auto [i, value] : llvm::enumerate(loop.getYieldedValues()))
      yields.push_back(in.lookupOrDefault(carried(i, value)));
    yields.push_back(in.lookupOrDefault(p));
    scf::YieldOp::create(b, loc, yields);
    return SmallVector<Value>(steady.getResults());
  };
  SmallVector<Value> state = inits;
  if (wholeTile) {
    Value split = splitPoint(b, second0);
    state = emitLoop(second0, split, state, true);
    state = emitLoop(split, upper, state, false);
  } else {
    state = emitLoop(second0, upper, state, std::nullopt);
  }

  // The last block's second contraction.
  Value slot = acquire(b, vRing, cloneTile(b, v, last));
  ValueRange pending =
      output(b, state.back(), slot, accumulators(state)).getResults();
  auto wait = WaitGroupOp::create(b, loc, pending.getTypes(), 0, pending);
  ReleaseOp::create(b, loc, slot, Value());
  for (unsigned i = 0; i < loop.getNumResults(); ++i)
    outer.map(loop.getResult(i), i == outputIndex   ? wait.getResults()[0]
                                 : isAccumulated(i) ? wait.getResults()[1]
                                                    : state[i]);
}

//===----------------------------------------------------------------------===//
// The producer
//===----------------------------------------------------------------------===//

bool HopperSchedule::movesRings(Operation *op) {
  bool found = false;
  op->walk([&](AcquireOp) { found = true; });
  return found;
}

/// The loads of what the consumers acquire, in the same order, under the same
/// control.
void HopperSchedule::buildProducer(OpBuilder &b, Block &from, IRMapping &map) {
  // A value of the consumers' program in the producer's.
  auto copied = [&](Value v) {
    return cloneSlice(b, v, consumers.getBody(), map);
  };
  for (Operation &op : from) {
    if (auto acquire = dyn_cast<AcquireOp>(op)) {
      Value tile = copied(tileOf[&op]);
      LoadOp::create(b, op.getLoc(), tile, acquire.getRing(),
                     acquire.getRing().getType().tileBytes());
      continue;
    }
    if (!movesRings(&op))
      continue;
    OpBuilder::InsertionGuard guard(b);
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      auto copy = scf::IfOp::create(
          b, op.getLoc(), TypeRange(), copied(branch.getCondition()),
          /*addThenBlock=*/true,
          /*addElseBlock=*/branch.elseBlock() != nullptr);
      for (auto [block, to] :
           {std::pair(branch.thenBlock(), copy.thenBlock()),
            std::pair(branch.elseBlock(), copy.elseBlock())}) {
        if (!block)
          continue;
        b.setInsertionPointToStart(to);
        IRMapping inner = map;
        buildProducer(b, *block, inner);
        if (!to->mightHaveTerminator())
          scf::YieldOp::create(b, op.getLoc());
      }
      continue;
    }
    auto source = cast<scf::ForOp>(op);
    auto copy = scf::ForOp::create(
        b, op.getLoc(), copied(source.getLowerBound()),
        copied(source.getUpperBound()), copied(source.getStep()));
    b.setInsertionPointToStart(copy.getBody());
    IRMapping inner = map;
    inner.map(source.getInductionVar(), copy.getInductionVar());
    buildProducer(b, *source.getBody(), inner);
  }
}

/// Whether a tile that is inserted is cut only where the tensor ends, which is
/// what TMA does by itself.
static bool isCutByTensor(tensor::ParallelInsertSliceOp insert,
                          RankedTensorType tile) {
  llvm::SmallBitVector dropped = insert.getDroppedDims();
  unsigned at = 0;
  for (unsigned d = 0; d < dropped.size(); ++d) {
    if (dropped.test(d))
      continue;
    OpFoldResult size = insert.getMixedSizes()[d];
    int64_t whole = tile.getDimSize(at++);
    if (getConstantIntValue(size) == whole)
      continue;
    auto value = dyn_cast<Value>(size);
    auto min = value ? value.getDefiningOp<affine::AffineMinOp>()
                     : affine::AffineMinOp();
    if (!min || min.getMap().getNumResults() != 2)
      return false;
    auto constant = dyn_cast<AffineConstantExpr>(min.getMap().getResult(0));
    if (!constant)
      constant = dyn_cast<AffineConstantExpr>(min.getMap().getResult(1));
    auto offset = dyn_cast<Value>(insert.getMixedOffsets()[d]);
    if (!constant || constant.getValue() != whole || !offset ||
        !llvm::is_contained(min.getOperands(), offset))
      return false;
  }
  return at == 2;
}

/// Whether TMA can store what an insertion inserts.
static bool isStageable(tensor::ParallelInsertSliceOp insert,
                        RankedTensorType tile) {
  return tile && tile.getRank() == 2 && tile.hasStaticShape() &&
         tile.getElementTypeBitWidth() == 16 && tile.getDimSize(1) % 8 == 0 &&
         insert.getDestType().getRank() <= 5 && isCutByTensor(insert, tile);
}

/// Whether exactly one result will be staged.
bool HopperSchedule::canStage() {
  unsigned count = 0;
  forall.getTerminator()->walk([&](tensor::ParallelInsertSliceOp insert) {
    Value tile = insert.getSource();
    if (auto slice = tile.getDefiningOp<tensor::ExtractSliceOp>())
      tile = slice.getSource();
    count += isStageable(insert, dyn_cast<RankedTensorType>(tile.getType()));
  });
  return count == 1;
}

/// Results of 16-bit elements go through shared memory, where they have room.
void HopperSchedule::stageStores() {
  if (options.stage == 0)
    return;
  Operation *yield = consumers.getBody().front().getTerminator();
  forall.getTerminator()->walk([&](tensor::ParallelInsertSliceOp insert) {
    if (insert.getSource().getDefiningOp() != consumers)
      return;
    unsigned number = cast<OpResult>(insert.getSource()).getResultNumber();
    Value value = yield->getOperand(number);
    auto slice = value.getDefiningOp<tensor::ExtractSliceOp>();
    Value tile = slice ? slice.getSource() : value;
    auto type = dyn_cast<RankedTensorType>(tile.getType());
    if (!isStageable(insert, type))
      return;
    int64_t bytes = RingType::get(type.getContext(), 1, type).tileBytes();
    if (!reuseQ && nextOffset + bytes > options.target->sharedMemory)
      return;
    OpBuilder b(slice ? slice : yield);
    Value staged =
        StageOp::create(b, tile.getLoc(), type, tile,
                        reuseQ ? int64_t(qRing.getOffset()) : nextOffset,
                        reuseQ ? qSlot : Value());
    if (!reuseQ)
      nextOffset += bytes;
    if (slice)
      slice.getSourceMutable().set(staged);
    else
      yield->setOperand(number, staged);
  });
}

LogicalResult HopperSchedule::build() {
  decideByWarp();
  if (options.split)
    findMask();
  splitRowSums();
  chooseParameters();
  sinkSums();
  bool wantOnes = options.ones != 0 && second.n % RingType::panelCols == 0 &&
                  second.n <= 128;
  OpBuilder b(loop);
  Location loc = loop.getLoc();
  qRing = makeRing(b, "q", first.a->get(), 1);
  int64_t available = options.target->sharedMemory - nextOffset;
  auto bytes = [&](Value tile) {
    return RingType::get(b.getContext(), 1,
                         cast<RankedTensorType>(tile.getType()))
        .tileBytes();
  };
  int64_t panelOfOnes = second.k * RingType::rowBytes;
  auto fits = [&](int64_t ones) {
    return 2 * (bytes(first.b->get()) + bytes(second.b->get()) + ones) <=
           available;
  };
  if (wantOnes && fits(panelOfOnes))
    findSums();
  int64_t perStage =
      bytes(first.b->get()) + bytes(second.b->get()) + (sums ? panelOfOnes : 0);
  // The output is staged where two stages leave room for it.
  int64_t staging = first.m * RingType::rowBytes *
                    llvm::divideCeil(second.n, RingType::panelCols);
  if (options.stage != 0 && 2 * perStage + staging <= available)
    available -= staging;
  else
    reuseQ = options.stage != 0 && persistent && canStage() &&
             staging <= qRing.bytes();
  int64_t stages = options.stages > 0
                       ? options.stages
                       : std::min<int64_t>(4, available / perStage);
  if (stages < 1 || stages > 8 || stages * perStage > available)
    return forall.emitOpError("needs ")
           << nextOffset + std::max<int64_t>(stages, 1) * perStage
           << " bytes of shared memory a block with "
           << std::max<int64_t>(stages, 1) << " stages, and "
           << options.target->chip << " has " << options.target->sharedMemory
           << "; choose smaller tiles";
  kRing = makeRing(b, "k", first.b->get(), stages);
  vRing = makeRing(b, "v", second.b->get(), stages, sums != nullptr);
  if (persistent) {
    // Measured on an H200 at lengths from 512 to 16384: fewer leave short tiles
    // to the end, more do not share what L2 holds.
    int64_t heads = options.heads > 0                   ? options.heads
                    : std::max(first.k, second.n) <= 64 ? 32
                                                        : 16;
    bool longestFirst =
        boundsDependOn(forall, forall.getInductionVars().back());
    TileQueueOp::create(b, loc, nextBarrier, longestFirst, heads);
    nextBarrier += TileQueueOp::bytes;
  }
  auto producer = ProducerOp::create(b, loc, producerRegisters);
  producer.getBody().emplaceBlock();

  // The consumers: the loop and what follows it.
  SmallVector<Operation *> rest;
  for (Operation *op = loop->getNextNode(); op != forall.getTerminator();
       op = op->getNextNode())
    rest.push_back(op);
  SetVector<Value> wanted;
  forall.getTerminator()->walk([&](Operation *op) {
    for (Value v : op->getOperands())
      if (Operation *def = v.getDefiningOp())
        if (def == loop || llvm::is_contained(rest, def))
          wanted.insert(v);
  });
  SmallVector<Value> results = wanted.takeVector();
  consumers = ConsumersOp::create(b, loc, TypeRange(ValueRange(results)),
                                  warpgroups, consumerRegisters);
  Block &body = consumers.getBody().emplaceBlock();
  b.setInsertionPointToStart(&body);
  if (reuseQ)
    qSlot = acquire(b, qRing, first.a->get());
  IRMapping outer;
  std::optional<int64_t> low = getConstantIntValue(loop.getLowerBound()),
                         high = getConstantIntValue(loop.getUpperBound());
  if (low && high && *low < *high) {
    buildPipeline(b, outer);
  } else {
    // A block may have nothing to visit.
    Value some =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt,
                              loop.getLowerBound(), loop.getUpperBound());
    auto guarded = scf::IfOp::create(b, loc, loop.getResultTypes(), some,
                                     /*addThenBlock=*/true,
                                     /*addElseBlock=*/true);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(guarded.thenBlock());
      IRMapping inner;
      buildPipeline(b, inner);
      SmallVector<Value> values;
      for (Value result : loop.getResults())
        values.push_back(inner.lookup(result));
      scf::YieldOp::create(b, loc, values);
      b.setInsertionPointToStart(guarded.elseBlock());
      scf::YieldOp::create(b, loc, loop.getInitArgs());
    }
    for (auto [from, to] : llvm::zip(loop.getResults(), guarded.getResults()))
      outer.map(from, to);
  }
  for (Operation *op : rest)
    b.clone(*op, outer);
  SmallVector<Value> yielded;
  for (Value v : results)
    yielded.push_back(outer.lookupOrDefault(v));
  fa::hopper::YieldOp::create(b, loc, yielded);
  for (auto [from, to] : llvm::zip(results, consumers.getResults()))
    from.replaceUsesWithIf(to, [&](OpOperand &use) {
      return forall.getTerminator()->isAncestor(use.getOwner());
    });
  for (Operation *op : llvm::reverse(rest))
    op->erase();
  loop.erase();

  stageStores();
  OpBuilder p = OpBuilder::atBlockBegin(&producer.getBody().front());
  IRMapping map;
  buildProducer(p, body, map);
  eraseDead(*forall.getBody());
  return success();
}

//===----------------------------------------------------------------------===//
// The passes
//===----------------------------------------------------------------------===//

static bool isScheduled(func::FuncOp func) {
  bool found = false;
  func.walk([&](ConsumersOp) { found = true; });
  return found;
}

namespace {
struct ScheduleHopper
    : public fa::impl::ScheduleHopperPassBase<ScheduleHopper> {
  using ScheduleHopperPassBase::ScheduleHopperPassBase;

  void runOnOperation() override {
    HopperOptions options{fa::lookupNVIDIATarget(chip),
                          overlap,
                          pingPong,
                          stages,
                          persistent,
                          stage,
                          ones,
                          split,
                          heads};
    if (!options.target || StringRef(chip) != "sm_90a") {
      getOperation().emitError("expected the target sm_90a, got ") << chip;
      return signalPassFailure();
    }
    for (func::FuncOp func : collectPrograms(getOperation()))
      for (auto forall : func.getBody().front().getOps<scf::ForallOp>()) {
        HopperSchedule schedule(forall, options);
        std::string why;
        if (!schedule.match(why)) {
          remark::missed(forall.getLoc(), remark::RemarkOpts::name("schedule")
                                              .category("fa-schedule-hopper"))
              << "left to the Ampere schedule: " << why;
          continue;
        }
        if (failed(schedule.build()))
          return signalPassFailure();
      }
  }
};

struct LowerHopper : public fa::impl::LowerHopperPassBase<LowerHopper> {
  using LowerHopperPassBase::LowerHopperPassBase;

  void runOnOperation() override {
    ScheduleOptions options{fa::lookupNVIDIATarget("sm_90a"), 1, 0, 0};
    for (func::FuncOp func : collectPrograms(getOperation())) {
      if (!isScheduled(func))
        continue;
      OpBuilder builder(func);
      if (failed(buildProgram(func, options, builder)))
        return signalPassFailure();
      func.erase();
    }
  }
};
} // namespace
