// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "BlockPlan.h"

#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <numeric>

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

/// What coordinates in every block of keys take.
static constexpr int64_t kCoordinateRegisters = 32;

/// Warps of a block that lists blocks of keys.
static constexpr unsigned kListWarps = 16;

//===----------------------------------------------------------------------===//
// Contractions
//===----------------------------------------------------------------------===//

static Value lookThroughExtension(Value v) {
  while (auto ext = v.getDefiningOp<arith::ExtFOp>())
    v = ext.getIn();
  return v;
}

/// The body is yield(acc + ext(a) * ext(b)), in any order.
static bool isMultiplyAdd(Block &body) {
  if (body.getNumArguments() != 3)
    return false;
  Value a = body.getArgument(0), b = body.getArgument(1),
        acc = body.getArgument(2);
  auto add = body.getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!add || !acc.getType().isF32())
    return false;
  Value product = add.getLhs() == acc   ? add.getRhs()
                  : add.getRhs() == acc ? add.getLhs()
                                        : Value();
  auto mul = product ? product.getDefiningOp<arith::MulFOp>() : nullptr;
  if (!mul)
    return false;
  Value x = lookThroughExtension(mul.getLhs()),
        y = lookThroughExtension(mul.getRhs());
  return (x == a && y == b) || (x == b && y == a);
}

std::optional<Contraction> fa::nvidia::matchContraction(Operation *op) {
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp || linalgOp.getNumLoops() != 3 ||
      linalgOp.getNumReductionLoops() != 1 || linalgOp.getNumDpsInputs() != 2 ||
      linalgOp.getNumDpsInits() != 1 || !linalgOp.hasPureTensorSemantics() ||
      !isMultiplyAdd(*linalgOp.getBlock()))
    return std::nullopt;
  SmallVector<AffineMap> maps = linalgOp.getIndexingMapsArray();
  for (AffineMap map : maps)
    if (!map.isProjectedPermutation() || map.getNumResults() != 2)
      return std::nullopt;
  unsigned i = maps[2].getDimPosition(0), j = maps[2].getDimPosition(1);
  unsigned k = 3 - i - j;
  if (linalgOp.getIteratorTypesArray()[k] != utils::IteratorType::reduction)
    return std::nullopt;
  Contraction c;
  c.op = linalgOp;
  unsigned a = maps[0].isFunctionOfDim(i) ? 0 : 1, b = 1 - a;
  if (!maps[a].isFunctionOfDim(i) || !maps[a].isFunctionOfDim(k) ||
      !maps[b].isFunctionOfDim(j) || !maps[b].isFunctionOfDim(k))
    return std::nullopt;
  c.a = linalgOp.getDpsInputOperand(a);
  c.b = linalgOp.getDpsInputOperand(b);
  c.aOuterK = maps[a].getDimPosition(0) == k;
  c.bOuterK = maps[b].getDimPosition(0) == k;
  SmallVector<int64_t> ranges = linalgOp.getStaticLoopRanges();
  c.m = ranges[i], c.n = ranges[j], c.k = ranges[k];
  c.elementType = getElementTypeOrSelf(c.a->get());
  return c;
}

//===----------------------------------------------------------------------===//
// Where values live
//===----------------------------------------------------------------------===//

SmallVector<Operation *> fa::nvidia::getLoadChain(Value tile) {
  SmallVector<Operation *> chain;
  while (Operation *op = tile.getDefiningOp()) {
    chain.push_back(op);
    if (isa<tensor::ExtractSliceOp>(op))
      return chain;
    if (!isa<tensor::PadOp, tensor::CastOp>(op))
      break;
    tile = op->getOperand(0);
  }
  return {};
}

bool BlockPlan::isOfShortTypes() const {
  return forall
      .walk([](Operation *op) {
        for (Type type : op->getResultTypes())
          if (auto tile = dyn_cast<RankedTensorType>(type);
              tile && isa<FloatType>(tile.getElementType()) &&
              tile.getElementTypeBitWidth() == 16)
            return WalkResult::interrupt();
        return WalkResult::advance();
      })
      .wasInterrupted();
}

bool BlockPlan::isGlobal(Value value) const {
  if (!isa<RankedTensorType>(value.getType()))
    return false;
  if (!forall.getRegion().isAncestor(value.getParentRegion()))
    return true;
  if (auto arg = dyn_cast<BlockArgument>(value)) {
    Operation *parent = arg.getOwner()->getParentOp();
    if (parent == forall)
      return true;
    if (auto loop = dyn_cast<scf::ForOp>(parent))
      return arg.getArgNumber() > 0 &&
             isGlobal(loop.getInitArgs()[arg.getArgNumber() - 1]);
    return false;
  }
  unsigned number = cast<OpResult>(value).getResultNumber();
  Operation *op = value.getDefiningOp();
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return isGlobal(loop.getInitArgs()[number]);
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return isGlobal(branch.thenYield().getOperand(number));
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
    return isGlobal(insert.getDest());
  if (auto cast = dyn_cast<tensor::CastOp>(op))
    return isGlobal(cast.getSource());
  if (auto sum = dyn_cast<AccumulateSliceOp>(op))
    return isGlobal(sum.getInit());
  if (auto sum = dyn_cast<AccumulateOp>(op))
    return isGlobal(sum.getInit());
  if (isa<ListBlocksOp, linalg::ReduceOp>(op))
    return isGlobal(
        cast<DestinationStyleOpInterface>(op).getDpsInits()[number]);
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return isView(slice);
  return false;
}

/// True where something writes parts of a tensor in place, in a loop or not.
static bool isUpdatedInParts(Value value) {
  return llvm::any_of(value.getUses(), [](OpOperand &use) {
    if (auto insert = dyn_cast<tensor::InsertSliceOp>(use.getOwner()))
      return insert.getDest() == use.get();
    if (isa<AccumulateSliceOp, AccumulateOp, ListBlocksOp, linalg::ReduceOp>(
            use.getOwner()))
      return cast<DestinationStyleOpInterface>(use.getOwner()).isDpsInit(&use);
    auto loop = dyn_cast<scf::ForOp>(use.getOwner());
    BlockArgument carried =
        loop ? loop.getTiedLoopRegionIterArg(&use) : BlockArgument();
    return carried && isUpdatedInParts(carried);
  });
}

/// A slice of a tensor in memory that is updated part by part stays there.
bool BlockPlan::isView(tensor::ExtractSliceOp slice) const {
  return isGlobal(slice.getSource()) && isUpdatedInParts(slice);
}

bool BlockPlan::isLoadedTile(Value value) const {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !type.hasStaticShape())
    return false;
  while (true) {
    SmallVector<Operation *> chain = getLoadChain(value);
    if (chain.empty())
      return false;
    auto slice = cast<tensor::ExtractSliceOp>(chain.back());
    if (isGlobal(slice.getSource()))
      return !isView(slice);
    value = slice.getSource();
  }
}

//===----------------------------------------------------------------------===//
// Loads and rings
//===----------------------------------------------------------------------===//

bool fa::nvidia::isKnownAhead(Value value, scf::ForOp loop,
                              llvm::function_ref<bool(Operation *)> takes) {
  SmallVector<Value> work{value};
  DenseSet<Value> seen;
  while (!work.empty()) {
    Value v = work.pop_back_val();
    if (!seen.insert(v).second || v == loop.getInductionVar() ||
        !loop.getRegion().isAncestor(v.getParentRegion()))
      continue;
    Operation *op = v.getDefiningOp();
    if (!op || !takes(op))
      return false;
    work.append(op->operand_begin(), op->operand_end());
  }
  return true;
}

bool fa::nvidia::canPrefetch(Value value, scf::ForOp loop) {
  return isKnownAhead(value, loop, [&](Operation *op) {
    if (op->getBlock() != loop.getBody())
      return false;
    if (isa<tensor::PadOp, tensor::ExtractSliceOp, tensor::CastOp>(op))
      return true;
    if (auto extract = dyn_cast<tensor::ExtractOp>(op))
      return loop.isDefinedOutsideOfLoop(extract.getTensor());
    return !op->getNumRegions() && isPure(op) &&
           (isa<tensor::DimOp>(op) ||
            llvm::none_of(op->getOperandTypes(),
                          [](Type t) { return isa<TensorType>(t); }));
  });
}

void BlockPlan::addLoad(Value tile) {
  if (loads.contains(tile))
    return;
  auto type = cast<RankedTensorType>(tile.getType());
  LoadPlan load;
  load.tile = tile;
  load.elementType = type.getElementType();
  unsigned bytes = type.getElementTypeBitWidth() / 8;
  load.layout =
      type.getRank() == 1
          ? SharedLayout::vector(type.getDimSize(0), bytes)
          : SharedLayout(type.getDimSize(0), type.getDimSize(1), bytes);
  Operation *parent = tile.getDefiningOp()->getParentOp();
  auto loop = dyn_cast<scf::ForOp>(parent);
  load.loop = loop ? loop : parent->getParentOfType<scf::ForOp>();
  if (loop && canPrefetch(tile, loop)) {
    load.ringIndex = ring(loop).size();
  }
  loads.insert({tile, load});
}

SmallVector<const LoadPlan *> BlockPlan::ring(scf::ForOp loop) const {
  SmallVector<const LoadPlan *> result;
  for (auto &entry : loads)
    if (entry.second.loop == loop && entry.second.ringIndex >= 0)
      result.push_back(&entry.second);
  return result;
}

/// Whether each load of a ring has one reader, in the loop's own block, and
/// readers come in the order of the ring.
bool BlockPlan::isReadInTurn(scf::ForOp loop) const {
  SmallVector<const LoadPlan *> loads = ring(loop);
  SmallVector<Operation *> readers(loads.size(), nullptr);
  for (const Contraction &c : contractions)
    for (OpOperand *operand : {c.a, c.b}) {
      const LoadPlan *l = load(operand->get());
      if (!l || l->loop != loop || l->ringIndex < 0)
        continue;
      if (readers[l->ringIndex] || c.op->getParentOp() != loop)
        return false;
      readers[l->ringIndex] = c.op;
    }
  for (size_t i = 0; i + 1 < readers.size(); ++i)
    if (!readers[i] || !readers[i + 1] || readers[i] == readers[i + 1] ||
        !readers[i]->isBeforeInBlock(readers[i + 1]))
      return false;
  return loads.size() > 1;
}

SmallVector<const LoadPlan *> BlockPlan::loadsReadIn(Operation *op) const {
  SmallVector<const LoadPlan *> result;
  op->walk([&](linalg::LinalgOp reader) {
    for (Value operand : reader->getOperands())
      if (const LoadPlan *l = load(operand); l && l->layout.isVector())
        result.push_back(l);
  });
  for (const Contraction &c : contractions)
    if (op->isAncestor(c.op))
      for (OpOperand *operand : {c.a, c.b})
        if (const LoadPlan *l = load(operand->get()))
          result.push_back(l);
  return result;
}

/// Whether a vector meets the columns of matrices, by itself or by what is
/// computed of it.
static bool isAlongColumns(Value vector) {
  return llvm::any_of(vector.getUses(), [](OpOperand &use) {
    auto op = dyn_cast<linalg::LinalgOp>(use.getOwner());
    if (!op)
      return false;
    if (op.getNumLoops() == 1)
      return llvm::any_of(op->getResults(), isAlongColumns);
    AffineMap map = op.getMatchingIndexingMap(&use);
    return map.getNumResults() == 1 &&
           map.getResult(0) == getAffineDimExpr(1, map.getContext());
  });
}

/// Vectors along the columns of a loop's tiles follow it in a ring: every
/// thread needs many of their elements, and all rows the same.
void BlockPlan::collectVectorLoads() {
  forall.walk([&](linalg::LinalgOp op) {
    auto loop = dyn_cast<scf::ForOp>(op->getParentOp());
    for (OpOperand *operand : op.getDpsInputOperands()) {
      Value tile = operand->get();
      auto type = dyn_cast<RankedTensorType>(tile.getType());
      if (!loop || !type || type.getRank() != 1 || !isLoadedTile(tile) ||
          tile.getParentBlock() != loop.getBody() ||
          type.getElementTypeBitWidth() != 32 || !canPrefetch(tile, loop) ||
          !isAlongColumns(tile))
        continue;
      auto pad = tile.getDefiningOp<tensor::PadOp>();
      if (!pad || matchPattern(pad.getConstantPaddingValue(), m_AnyZeroFloat()))
        addLoad(tile);
    }
  });
}

LogicalResult BlockPlan::collectLoads() {
  WalkResult walk = forall.walk([&](linalg::LinalgOp op) {
    std::optional<Contraction> c = matchContraction(op);
    if (!c)
      return WalkResult::advance();
    Type other = getElementTypeOrSelf(c->b->get());
    if (other != c->elementType ||
        !(c->elementType.isF32() || c->elementType.isF16() ||
          c->elementType.isBF16())) {
      op->emitOpError("expected both operands of a contraction to be f16, "
                      "bf16 or f32 alike, got ")
          << c->elementType << " and " << other
          << "; convert them, or compile for cpu, which takes f64, too";
      return WalkResult::interrupt();
    }
    if (ShapedType::isDynamic(c->m) || ShapedType::isDynamic(c->n) ||
        ShapedType::isDynamic(c->k)) {
      op->emitOpError("expected static tile sizes (run --fa-pad-tiles first)");
      return WalkResult::interrupt();
    }
    contractions.push_back(*c);
    for (OpOperand *operand : {c->a, c->b}) {
      if (isLoadedTile(operand->get())) {
        addLoad(operand->get());
        continue;
      }
      bool inRegisters = operand == c->a && c->tensorCore() && !c->aOuterK;
      if (inRegisters)
        continue;
      addConversion(operand, c->elementType);
    }
    return WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}

//===----------------------------------------------------------------------===//
// Budget
//===----------------------------------------------------------------------===//

int64_t BlockPlan::registersOf(Value v, unsigned warps) const {
  auto type = dyn_cast<RankedTensorType>(v.getType());
  if (!type || !type.hasStaticShape() || isGlobal(v) || isLoadedTile(v))
    return 0;
  if (type.getRank() == 2) {
    if (isWhole(v))
      warps = FragmentLayout::mostRowWarps(type.getDimSize(0), warps);
    return type.getDimSize(0) * ((type.getDimSize(1) + 7) / 8 * 8) /
           (32 * warps) * type.getElementTypeBitWidth() / 32;
  }
  return std::max<int64_t>(2, type.getDimSize(0) / (8 * warps));
}

/// Of the results of a block's products, and of matrices that are computed of
/// them, the most registers at a time; but for those that a loop carries. What
/// is used for the last time gives its registers to what is computed of it.
int64_t BlockPlan::mostLive(Block &block, unsigned warps) const {
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
    return ofProducts.contains(v) ? registersOf(v, warps) : 0;
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
        most = std::max(most, live + mostLive(region.front(), warps));
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
int64_t BlockPlan::estimateRegisters(unsigned warps) const {
  int64_t carriedMost = 0, resultMost = mostLive(*forall.getBody(), warps);
  forall.walk([&](scf::ForOp loop) {
    int64_t carried = 0;
    // A loop around another one carries the same.
    for (Value v : loop.getInitArgs())
      // What stays in memory takes no registers.
      if (!isGlobal(v))
        carried += registersOf(v, warps);
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

/// Warps that can divide a tile's rows and columns, at most; 0 for any.
int64_t BlockPlan::mostWarps(Value tile) const {
  auto type = dyn_cast<RankedTensorType>(tile.getType());
  if (!type || type.getRank() != 2 || !type.hasStaticShape())
    return 0;
  auto powerOf2 = [](int64_t x) { return x & -x; };
  int64_t rows = powerOf2(type.getDimSize(0) / 16);
  int64_t columns = type.getDimSize(1);
  return isWhole(tile) || columns % 8 ? rows : rows * powerOf2(columns / 8);
}

LogicalResult BlockPlan::chooseWarps() {
  int64_t divisor = 0;
  Operation *bad = nullptr;
  auto visit = [&](Value v) {
    auto type = dyn_cast<RankedTensorType>(v.getType());
    if (!type || type.getRank() != 2 || !type.hasStaticShape() ||
        isLoadedTile(v) || isGlobal(v))
      return;
    // Of tiles of 16 rows.
    int64_t rows = type.getDimSize(0);
    if (rows % 16)
      bad = v.getDefiningOp();
    divisor = std::gcd(divisor, rows % 16 ? rows : 16 * mostWarps(v));
  };
  forall.walk([&](linalg::LinalgOp op) {
    // One value throughout has any layout.
    if (isa<linalg::FillOp>(op))
      return;
    for (Value v : op->getResults())
      visit(v);
    for (OpOperand *operand : op.getDpsInputOperands())
      if (!matchContraction(op) && isLoadedTile(operand->get()))
        if (auto type = dyn_cast<RankedTensorType>(operand->get().getType()))
          if (type.getRank() == 2 && type.hasStaticShape())
            divisor = std::gcd(divisor, type.getDimSize(0));
  });
  if (!divisor)
    forall.walk([&](linalg::LinalgOp op) {
      for (Value v : op->getResults())
        if (auto type = dyn_cast<RankedTensorType>(v.getType()))
          if (type.getRank() == 1 && type.hasStaticShape())
            divisor = std::gcd(divisor, type.getDimSize(0));
    });
  if (!divisor)
    divisor = 64;
  if (bad || divisor % 16)
    return (bad ? bad : forall.getOperation())
               ->emitOpError("expected tiles whose number of rows is a "
                             "multiple of 16, got ")
           << divisor << "; choose another tile size";
  int64_t most = (divisor / 16) & -(divisor / 16);
  if (options.warps) {
    if ((divisor / 16) % options.warps)
      return forall.emitOpError("expected warps to divide ")
             << divisor / 16 << " (tiles of 16 rows in a block), got "
             << options.warps;
    numWarps = options.warps;
  } else {
    numWarps = std::min<int64_t>(4, most);
    while (estimateRegisters(numWarps) > options.target->registers &&
           numWarps < 8 && most >= 2 * numWarps)
      numWarps *= 2;
  }
  estimate = estimateRegisters(numWarps);
  // It is an estimate, and coordinates may take less: what is some above the
  // limit may spill a little, or nothing.
  int64_t least = estimate - estimate / 8 - kCoordinateRegisters;
  if (least > options.target->registers)
    return forall.emitOpError("needs about ")
           << estimate << " registers a thread with " << numWarps
           << " warps, and " << options.target->chip << " has "
           << options.target->registers << "; choose smaller tiles";
  return success();
}

/// Captured tensors' sums go behind a step's products, whose results are on
/// their way while lanes exchange terms, where registers hold the terms for so
/// long (measured at D=64: a table's gradient adds 0.19 of the time, and 0.31
/// before the products).
void BlockPlan::delaySums() {
  forall.walk([&](scf::ForOp loop) {
    Operation *last = nullptr;
    SmallVector<AccumulateOp> sums;
    for (Operation &op : *loop.getBody()) {
      if (matchContraction(&op))
        last = &op;
      if (auto sum = dyn_cast<AccumulateOp>(op))
        sums.push_back(sum);
    }
    // The last first: what reads another's result stays behind it.
    for (AccumulateOp sum : llvm::reverse(sums)) {
      if (!last || !sum->isBeforeInBlock(last))
        continue;
      // Of a user in a region the operation that the region is of counts.
      if (llvm::any_of(sum->getUsers(), [&](Operation *user) {
            Operation *at = loop.getBody()->findAncestorOpInBlock(*user);
            return at == last || at->isBeforeInBlock(last);
          }))
        continue;
      Operation *next = sum->getNextNode();
      sum->moveAfter(last);
      int64_t later = estimateRegisters(numWarps);
      if (later > options.target->registers)
        sum->moveBefore(next);
      else
        estimate = later;
    }
  });
}

LogicalResult BlockPlan::checkShared() {
  if (smemBytes > options.target->sharedMemory)
    return forall.emitOpError("needs ")
           << smemBytes << " bytes of shared memory a block, and "
           << options.target->chip << " has " << options.target->sharedMemory
           << "; choose smaller tiles";
  return success();
}

/// Loads and conversions one after another; gives the bytes that they take.
int64_t BlockPlan::placeLoads() {
  int64_t offset = 0;
  auto take = [&](LoadPlan &load) {
    load.offset = offset;
    offset += (load.layout.size() * load.stages + 127) / 128 * 128;
  };
  for (auto &entry : loads)
    take(entry.second);
  for (auto &entry : conversions)
    take(entry.second);
  return offset;
}

/// How many stages rings have, and when a stage is filled again.
void BlockPlan::chooseRings() {
  bool allInTurn = options.inTurn != 0 &&
                   llvm::all_of(contractions, [](const Contraction &c) {
                     return c.tensorCore();
                   });
  for (auto &entry : loads) {
    LoadPlan &load = entry.second;
    load.inTurn = load.ringIndex >= 0 && isReadInTurn(load.loop);
    allInTurn &= load.inTurn || load.ringIndex < 0;
  }
  auto setStages = [&](unsigned stages) {
    for (auto &entry : loads)
      if (entry.second.ringIndex >= 0)
        entry.second.stages = stages;
  };
  auto isAlone = [&](unsigned stages) {
    setStages(stages);
    return blocksPerSM(options.target->info, threads(), estimate,
                       placeLoads()) < 2;
  };
  unsigned stages = options.stages ? options.stages : 2;
  // With one stage fewer addresses are live at a time, and another block may
  // compute while this one waits. Two are faster (3% at D=128) where neither
  // matters, and so are all loads of a step together (4% at D=64).
  if (!options.stages && allInTurn &&
      (estimate > int64_t(options.hoistRegisters) ||
       (isAlone(stages) && !isAlone(1))))
    stages = 1;
  setStages(stages);
  bool inTurn = options.inTurn < 0 ? stages == 1 : options.inTurn != 0;
  for (auto &entry : loads) {
    LoadPlan &load = entry.second;
    load.inTurn &= inTurn;
    if (load.ringIndex >= 0 && stages == 1 && !load.inTurn)
      load.ringIndex = -1;
  }
}

LogicalResult BlockPlan::placeShared() {
  smemBytes = placeLoads();
  for (bool fewer = true; fewer && smemBytes > options.target->sharedMemory;
       smemBytes = placeLoads()) {
    fewer = false;
    for (auto &entry : loads) {
      LoadPlan &load = entry.second;
      if (load.ringIndex < 0 || load.stages <= (load.inTurn ? 1 : 2))
        continue;
      --load.stages;
      fewer = true;
    }
  }
  if (smemBytes > options.target->sharedMemory) {
    for (auto &entry : loads) {
      entry.second.ringIndex = -1;
      entry.second.stages = 1;
    }
    smemBytes = placeLoads();
  }
  return checkShared();
}

/// Fragments of an operand that was loaded outside the loop stay in registers
/// while the budget allows.
void BlockPlan::chooseHoisted() {
  for (const Contraction &c : contractions) {
    const LoadPlan *a = load(c.a->get());
    auto loop = c.op->getParentOfType<scf::ForOp>();
    if (!a || !loop || !c.tensorCore() || a->loop == loop ||
        (a->loop && loop->isAncestor(a->loop)))
      continue;
    int64_t regs =
        layout(c.op->getResult(0))->rowTiles() * ((c.k + 15) / 16) * 4;
    if (estimate + regs > options.hoistRegisters)
      continue;
    estimate += regs;
    hoistedOperands.insert(c.a);
  }
}

hopper::ConsumersOp BlockPlan::consumers() const {
  auto roles = forall.getBody()->getOps<hopper::ConsumersOp>();
  return roles.empty() ? hopper::ConsumersOp() : *roles.begin();
}

hopper::StageOp fa::nvidia::stageOf(AccumulateSliceOp sum) {
  Value part = sum.getPart();
  if (auto slice = part.getDefiningOp<tensor::ExtractSliceOp>())
    part = slice.getSource();
  return part.getDefiningOp<hopper::StageOp>();
}

std::pair<Value, unsigned> fa::nvidia::memoryOf(Value value, unsigned dim) {
  while (true) {
    Operation *op = value.getDefiningOp();
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
      if (!loop)
        return {value, dim};
      value = loop.getTiedLoopInit(argument)->get();
    } else if (auto loop = dyn_cast<scf::ForOp>(op)) {
      value = loop.getInitArgs()[cast<OpResult>(value).getResultNumber()];
    } else if (auto sum = dyn_cast<AccumulateSliceOp>(op)) {
      value = sum.getInit();
    } else if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
      llvm::SmallBitVector dropped = slice.getDroppedDims();
      unsigned kept = 0, d = 0;
      for (; d < dropped.size(); ++d)
        if (!dropped.test(d) && kept++ == dim)
          break;
      dim = d;
      value = slice.getSource();
    } else {
      return {value, dim};
    }
  }
}

/// The sum that a staged tile is handed to adders for: each time it is staged
/// they are told once where to. Null where that is not so.
static AccumulateSliceOp sumOfStaged(hopper::StageOp stage) {
  Value part = stage.getResult();
  if (part.hasOneUse())
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(*part.user_begin()))
      part = slice.getResult();
  auto sum = part.hasOneUse() ? dyn_cast<AccumulateSliceOp>(*part.user_begin())
                              : AccumulateSliceOp();
  if (!sum || sum.getPart() != part || sum->getBlock() != stage->getBlock())
    return {};
  auto isHanded = [](hopper::StageOp other) {
    return other.getAdders() ? WalkResult::interrupt() : WalkResult::advance();
  };
  for (Operation *op = stage->getNextNode(); op != sum; op = op->getNextNode())
    if (op->walk(isHanded).wasInterrupted())
      return {};
  return sum;
}

/// What is handed to adders is one sum, or copies of it, and all that blocks
/// add in an order.
LogicalResult BlockPlan::findHandedSum() {
  auto told = [](AccumulateSliceOp sum) {
    hopper::StageOp stage = stageOf(sum);
    return std::make_tuple(*stage.getAdders(), stage.getOffset(),
                           stage.getTile().getType(),
                           memoryOf(sum.getInit(), 0).first,
                           sum.getDroppedDims(), sum.getOrdered());
  };
  WalkResult walk = forall.walk([&](hopper::StageOp stage) {
    if (!stage.getAdders() || sumOfStaged(stage))
      return WalkResult::advance();
    stage.emitOpError("has adders, and its tile goes not to one "
                      "fa.accumulate_slice in its block, before another is "
                      "staged; add it there, or have no adders");
    return WalkResult::interrupt();
  });
  if (walk.wasInterrupted())
    return failure();
  SmallVector<AccumulateSliceOp> others;
  forall.walk([&](AccumulateSliceOp sum) {
    hopper::StageOp stage = stageOf(sum);
    bool isHanded = stage && stage.getAdders();
    if (isHanded && !handed)
      handed = sum;
    else if (isHanded ? told(sum) != told(handed)
                      : sum.getOrdered().value_or(0) > 0)
      others.push_back(sum);
  });
  if (!handed || others.empty())
    return success();
  InFlightDiagnostic diag = others.front().emitOpError(
      "is another sum than the adders', and in an order or adders', too; they "
      "take one, of one tensor and one tile: leave both to the consumers");
  diag.attachNote(handed.getLoc()) << "the adders'";
  return diag;
}

/// A Hopper schedule has decided already: its rings say where they lie.
LogicalResult BlockPlan::placeRings() {
  numWarps = 4 * consumers().getWarpgroups();
  auto takes = [&](int64_t end) { smemBytes = std::max(smemBytes, end); };
  forall.walk([&](Operation *op) {
    if (auto ring = dyn_cast<hopper::RingOp>(op)) {
      takes(ring.getOffset() + ring.bytes());
      takes(ring.barriersEnd());
    }
    if (auto stage = dyn_cast<hopper::StageOp>(op)) {
      takes(stage.getOffset() + stage.bytes());
      if (stage.getAdders())
        takes(stage.addersEnd());
    }
    if (auto queue = dyn_cast<hopper::TileQueueOp>(op))
      takes(queue.getBarriers() + hopper::TileQueueOp::bytes);
  });
  numTeams = hopper::teamsOf(forall);
  if (numTeams > 1)
    smemBytes = numTeams * llvm::alignTo(smemBytes, hopper::tileAlignment);
  return checkShared();
}

LogicalResult BlockPlan::compute() {
  hasTileSums =
      forall.walk([](AccumulateSliceOp) { return WalkResult::interrupt(); })
          .wasInterrupted();
  if (!forall.getBody()->getOps<ListBlocksOp>().empty()) {
    // A warp takes a block of keys at a time; a word each for what it sees.
    numWarps = kListWarps;
    smemBytes = 4 * kListWarps;
    return checkShared();
  }
  if (consumers()) {
    if (failed(inferVectors()) || failed(findHandedSum()) ||
        failed(placeRings()))
      return failure();
    // What vectors meet says whether warps divide columns, too.
    inferClasses();
    for (LayoutClass &c : classes)
      if (c.cols)
        c.rowWarps = FragmentLayout::mostRowWarps(c.rows, numWarps);
    return success();
  }
  collectVectorLoads();
  if (failed(collectLoads()) || failed(inferVectors()))
    return failure();
  inferClasses();
  if (failed(chooseWarps()))
    return failure();
  delaySums();
  chooseLayouts();
  chooseRings();
  if (failed(placeShared()))
    return failure();
  chooseHoisted();
  return success();
}
