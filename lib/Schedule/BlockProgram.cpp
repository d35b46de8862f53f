// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Schedule/BlockProgram.h"

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace fa;

SmallVector<Operation *> fa::getLoadChain(Value tile) {
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

/// Whether an expression is 0 whatever its operands are.
static bool isZero(AffineExpr expr, ArrayRef<OpFoldResult> operands) {
  SmallVector<Value> values;
  SmallVector<AffineExpr> dims;
  for (OpFoldResult operand : operands) {
    if (std::optional<int64_t> known = getConstantIntValue(operand)) {
      dims.push_back(getAffineConstantExpr(*known, expr.getContext()));
      continue;
    }
    dims.push_back(getAffineDimExpr(values.size(), expr.getContext()));
    values.push_back(cast<Value>(operand));
  }
  AffineMap map = AffineMap::get(values.size(), 0, expr.replaceDims(dims));
  affine::fullyComposeAffineMapAndOperands(&map, &values);
  affine::canonicalizeMapAndOperands(&map, &values);
  return simplifyAffineMap(map).getResult(0) ==
         getAffineConstantExpr(0, expr.getContext());
}

/// Whether a size is that of a tile, or less where the tensor ends. The end may
/// be that of another tensor, which is taken to be of equal size: keys and
/// values are as many. Sizes are compared as expressions, whatever is known of
/// bounds: a loop may never run.
static bool endsWithTensor(OpFoldResult size, int64_t tile, Value tensor,
                           int64_t dim, OpFoldResult offset) {
  if (std::optional<int64_t> known = getConstantIntValue(size);
      known && *known >= tile)
    return true;
  MLIRContext *context = tensor.getContext();
  auto least = isa<Value>(size)
                   ? cast<Value>(size).getDefiningOp<affine::AffineMinOp>()
                   : affine::AffineMinOp();
  AffineMap map = least ? least.getAffineMap()
                        : AffineMap::getMultiDimIdentityMap(1, context);
  SmallVector<OpFoldResult> operands{size};
  if (least)
    operands = getAsOpFoldResult(least.getOperands());
  SmallVector<OpFoldResult> ends;
  int64_t length = cast<RankedTensorType>(tensor.getType()).getDimSize(dim);
  if (!ShapedType::isDynamic(length))
    ends.push_back(IntegerAttr::get(IndexType::get(context), length));
  for (OpFoldResult operand : operands)
    if (auto value = dyn_cast<Value>(operand);
        value && value.getDefiningOp<tensor::DimOp>())
      ends.push_back(value);
  unsigned count = operands.size();
  SmallVector<AffineExpr> symbols;
  for (unsigned s = map.getNumDims(); s < count; ++s)
    symbols.push_back(getAffineDimExpr(s, context));
  AffineExpr end = getAffineDimExpr(count, context),
             start = getAffineDimExpr(count + 1, context);
  return llvm::all_of(map.getResults(), [&](AffineExpr result) {
    auto constant = dyn_cast<AffineConstantExpr>(result);
    if (constant && constant.getValue() >= tile)
      return true;
    AffineExpr own = result.replaceSymbols(symbols);
    return llvm::any_of(ends, [&](OpFoldResult of) {
      SmallVector<OpFoldResult> all(operands);
      all.append({of, offset});
      return isZero(own - (end - start), all);
    });
  });
}

bool fa::endsWithTensor(Value tile) {
  SmallVector<Operation *> chain = getLoadChain(tile);
  if (chain.empty())
    return true;
  auto slice = cast<tensor::ExtractSliceOp>(chain.back());
  auto type = cast<RankedTensorType>(tile.getType());
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  unsigned kept = 0;
  for (int64_t dim = 0; dim < slice.getSourceType().getRank(); ++dim)
    if (!dropped.test(dim) &&
        !::endsWithTensor(slice.getMixedSizes()[dim], type.getDimSize(kept++),
                          slice.getSource(), dim, slice.getMixedOffsets()[dim]))
      return false;
  return true;
}

bool BlockProgram::isOfShortTypes() const {
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

bool BlockProgram::isGlobal(Value value) const {
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
  // A role gives what its body returns.
  if (op->getNumRegions() == 1 && llvm::hasSingleElement(op->getRegion(0))) {
    Operation *last = op->getRegion(0).front().getTerminator();
    return last->hasTrait<OpTrait::ReturnLike>() &&
           last->getNumOperands() == op->getNumResults() &&
           isGlobal(last->getOperand(number));
  }
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
bool BlockProgram::isView(tensor::ExtractSliceOp slice) const {
  return isGlobal(slice.getSource()) && isUpdatedInParts(slice);
}

/// Whether a value is cut out of a tensor in memory that stays there.
static bool isCutOfMemory(const BlockProgram &program, Value value) {
  while (true) {
    SmallVector<Operation *> chain = getLoadChain(value);
    if (chain.empty())
      return false;
    auto slice = cast<tensor::ExtractSliceOp>(chain.back());
    if (program.isGlobal(slice.getSource()))
      return !program.isView(slice);
    value = slice.getSource();
  }
}

bool BlockProgram::isLoadedTile(Value value) const {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.hasStaticShape() && isCutOfMemory(*this, value);
}

bool BlockProgram::isComputed(Value value) const {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.hasStaticShape() && type.getRank() >= 1 &&
         type.getRank() <= 2 && !isLoadedTile(value) && !isGlobal(value) &&
         !isa_and_present<tensor::EmptyOp, linalg::FillOp>(
             value.getDefiningOp());
}

/// Whether an operation on tensors makes no random bits, and has static results
/// of that rank and operands of the same shape, or of one value throughout.
static bool isOfOneShape(linalg::LinalgOp op, int64_t rank) {
  return llvm::all_of(op->getResultTypes(),
                      [&](Type type) {
                        auto tile = dyn_cast<RankedTensorType>(type);
                        return tile && tile.getRank() == rank &&
                               tile.hasStaticShape();
                      }) &&
         op.getNumReductionLoops() == 0 &&
         llvm::all_of(op.getIndexingMapsArray(),
                      [](AffineMap map) {
                        return map.isIdentity() || map.getNumResults() == 0;
                      }) &&
         !makesRandomBits(op);
}

/// Whether an operation of a block computes nothing on tensors: it makes one,
/// cuts one of at least that rank out of memory, or the first part out of
/// another, or is of scalars.
static bool computesNoTile(const BlockProgram &program, Operation &op,
                           int64_t leastRank) {
  if (isa<tensor::ExtractSliceOp, tensor::PadOp, tensor::CastOp>(op)) {
    auto tile = dyn_cast<RankedTensorType>(op.getResult(0).getType());
    if (!tile || tile.getRank() < leastRank || tile.getRank() > 2)
      return false;
    Value source = op.getOperand(0);
    auto slice = dyn_cast<tensor::ExtractSliceOp>(op);
    return program.isGlobal(source) || isCutOfMemory(program, source) ||
           (slice && slice.getDroppedDims().none() && slice.hasUnitStride() &&
            llvm::all_of(slice.getMixedOffsets(), [](OpFoldResult offset) {
              return isConstantIntValue(offset, 0);
            }));
  }
  return isa<tensor::EmptyOp>(op) ||
         (op.getNumRegions() == 0 && isMemoryEffectFree(&op) &&
          llvm::none_of(op.getResultTypes(),
                        [](Type type) { return isa<TensorType>(type); }));
}

/// Whether all that a block stores is of that rank, and computed: maybe more of
/// it than is stored.
static bool storesComputed(const BlockProgram &program, int64_t rank) {
  auto inserts = program.getForall().getTerminator().getYieldingOps();
  return !inserts.empty() && llvm::all_of(inserts, [&](Operation &op) {
    auto insert = dyn_cast<tensor::ParallelInsertSliceOp>(op);
    if (!insert || insert.getSourceType().getRank() != rank ||
        program.isGlobal(insert.getSource()))
      return false;
    Value tile = insert.getSource();
    if (auto slice = tile.getDefiningOp<tensor::ExtractSliceOp>())
      tile = slice.getSource();
    return isa_and_present<linalg::LinalgOp>(tile.getDefiningOp());
  });
}

bool BlockProgram::isElementwise() const {
  return storesComputed(*this, 2) &&
         llvm::all_of(forall.getBody()->without_terminator(),
                      [&](Operation &op) {
                        auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
                        return linalgOp ? isOfOneShape(linalgOp, 2)
                                        : computesNoTile(*this, op, 2);
                      });
}

/// Whether it reduces rows of static tiles, each element where it lies.
static bool isRowReduction(linalg::LinalgOp op) {
  auto generic = dyn_cast<linalg::GenericOp>(op.getOperation());
  return generic && reducesRows(generic) && !op.hasDynamicShape() &&
         llvm::all_of(op.getDpsInputOperands(), [&](OpOperand *operand) {
           return op.getMatchingIndexingMap(operand).isIdentity();
         });
}

std::optional<SharedRows> BlockProgram::findSharedRows() const {
  if (!storesComputed(*this, 1))
    return std::nullopt;
  // Fragments have four lanes a row, which read 64 bytes of it together: fewer
  // would read less, one by itself half of a sector of memory.
  constexpr int64_t vectorBits = 128, warpLanes = 32, fewestLanes = 4;
  SharedRows shared;
  SmallVector<int64_t> vectors;
  int64_t bits = 0;
  for (Operation &op : forall.getBody()->without_terminator()) {
    auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
    if (!linalgOp) {
      if (!computesNoTile(*this, op, 1))
        return std::nullopt;
      continue;
    }
    for (Value operand : op.getOperands())
      if (auto type = dyn_cast<RankedTensorType>(operand.getType());
          type && type.getRank() == 2 && isLoadedTile(operand))
        bits = std::max<int64_t>(bits, type.getElementTypeBitWidth());
    if (isRowReduction(linalgOp)) {
      SmallVector<int64_t> sizes = linalgOp.getStaticLoopRanges();
      if (shared.rows && (shared.rows != sizes[0] || shared.cols != sizes[1]))
        return std::nullopt;
      shared.rows = sizes[0];
      shared.cols = sizes[1];
    } else if (isOfOneShape(linalgOp, 1)) {
      vectors.push_back(
          cast<RankedTensorType>(op.getResult(0).getType()).getDimSize(0));
    } else if (!isOfOneShape(linalgOp, 2)) {
      return std::nullopt;
    }
  }
  if ((bits != 16 && bits != 32) ||
      llvm::any_of(vectors, [&](int64_t size) { return size != shared.rows; }))
    return std::nullopt;
  shared.width = vectorBits / bits;
  if (shared.rows == 0 || shared.cols == 0 || shared.cols % shared.width)
    return std::nullopt;
  int64_t parts = shared.cols / shared.width;
  shared.lanes = std::min<int64_t>(warpLanes, parts & -parts);
  if (shared.lanes < fewestLanes || shared.rows * shared.lanes % warpLanes)
    return std::nullopt;
  return shared;
}

bool BlockProgram::addsTiles() const {
  return forall.walk([](AccumulateSliceOp) { return WalkResult::interrupt(); })
      .wasInterrupted();
}

bool fa::isKnownAhead(Value value, scf::ForOp loop,
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

bool fa::canPrefetch(Value value, scf::ForOp loop) {
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

std::pair<Value, unsigned> fa::memoryOf(Value value, unsigned dim) {
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

/// Whether loops of blocks that come later in a dimension begin later.
bool fa::beginsDependOn(scf::ForallOp forall, Value value) {
  bool found = false;
  forall.walk([&](scf::ForOp loop) {
    found |= dependsOn(loop.getLowerBound(), value);
  });
  return found;
}

/// Whether blocks that come last in a dimension have the longest loops: where
/// these begin may be later, too.
bool fa::endsDependOn(scf::ForallOp forall, Value value) {
  bool found = false;
  forall.walk([&](scf::ForOp loop) {
    found |= dependsOn(loop.getUpperBound(), value);
  });
  return found;
}

bool fa::boundsDependOn(scf::ForallOp forall, Value value) {
  return beginsDependOn(forall, value) || endsDependOn(forall, value);
}

std::optional<int64_t> fa::findOrder(scf::ForallOp forall) {
  std::optional<int64_t> apart;
  forall.walk([&](Operation *op) {
    if (auto sum = dyn_cast<AccumulateSliceOp>(op);
        sum && sum.getOrdered().value_or(0) > 0)
      apart = apart.value_or(0);
    if (auto sum = dyn_cast<AccumulateOp>(op);
        sum && sum.getOrdered().value_or(0) > 0)
      apart = *sum.getOrdered();
  });
  return apart;
}

SmallVector<func::FuncOp> fa::collectPrograms(ModuleOp module) {
  SmallVector<func::FuncOp> funcs;
  for (auto func : module.getOps<func::FuncOp>())
    if (!func.isDeclaration() &&
        !func.getBody().front().getOps<scf::ForallOp>().empty())
      funcs.push_back(func);
  return funcs;
}
