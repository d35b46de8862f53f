// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "BlockView.h"

#include "fa/Dialect/Hopper/Transforms/Adders.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

BlockView::BlockView(scf::ForallOp forall, BlockAttr block, TargetInfo info)
    : program(forall), block(block), info(std::move(info)),
      role(hopper::consumersOf(forall)), handed(hopper::findHandedSum(forall)),
      hasTileSums(program.addsTiles()) {}

FailureOr<BlockView> BlockView::of(scf::ForallOp forall) {
  auto block = forall->getAttrOfType<BlockAttr>(NVIDIADialect::blockName);
  if (!block)
    return forall.emitOpError("does not say where its tiles live; run "
                              "--fa-schedule-ampere, or --fa-schedule-hopper "
                              "and --fa-hopper-layouts");
  llvm::Expected<TargetInfo> info = lookupTarget(block.getChip());
  if (!info)
    return forall.emitOpError() << llvm::toString(info.takeError());
  if (block.getShared() > info->sharedBytesPerBlock)
    return forall.emitOpError("has ")
           << block.getShared() << " bytes of shared memory a block, and "
           << block.getChip() << " has " << info->sharedBytesPerBlock
           << "; choose smaller tiles";
  BlockView view(forall, block, *info);
  if (view.role && !view.hasWgmma())
    return forall.emitOpError("has roles, which ")
           << block.getChip() << " cannot run; only sm_90a can";
  if (view.role && view.warps() != 4 * view.role.getWarpgroups())
    return forall.emitOpError("expected ")
           << 4 * view.role.getWarpgroups() << " warps for "
           << view.role.getWarpgroups() << " warpgroups of consumers, got "
           << view.warps();
  if (view.teams() != hopper::teamsOf(forall))
    return forall.emitOpError("expected the teams of its tile queue, ")
           << hopper::teamsOf(forall) << ", got " << view.teams();
  if (view.isElementwise())
    return view;
  if (std::optional<SharedRows> rows = view.findSharedRows()) {
    if (rows->mostWarps() % view.warps())
      return forall.emitOpError("expected warps to divide ")
             << rows->mostWarps() << " (" << rows->rows << " rows of "
             << rows->lanes << " lanes), got " << view.warps()
             << "; choose another number, or leave it out";
    return view;
  }
  view.collectTiles();
  if (failed(hopper::verifyAdders(forall)) ||
      failed(hopper::verifyOrder(forall)) || failed(view.verifyTiles()) ||
      failed(view.verifyShared()))
    return failure();
  return view;
}

//===----------------------------------------------------------------------===//
// What is said
//===----------------------------------------------------------------------===//

void BlockView::collectTiles() {
  program.getForall().walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (std::optional<Contraction> c = matchContraction(op))
      contractions.push_back(*c);
    for (Value value : op->getResults()) {
      auto type = dyn_cast<RankedTensorType>(value.getType());
      auto place = type ? dyn_cast_if_present<SharedAttr>(type.getEncoding())
                        : SharedAttr();
      if (!place)
        continue;
      SharedTile tile;
      tile.tile = value;
      auto loop = dyn_cast<scf::ForOp>(op->getParentOp());
      tile.loop = loop ? loop : op->getParentOfType<scf::ForOp>();
      tile.ringIndex = place.getRing();
      tile.stages = place.getStages();
      tile.inTurn = place.getInTurn();
      tile.layout = sharedLayoutOf(type);
      tile.elementType = type.getElementType();
      tile.offset = place.getOffset();
      tiles.insert({value, tile});
    }
  });
}

SmallVector<const SharedTile *> BlockView::ring(scf::ForOp loop) const {
  SmallVector<const SharedTile *> result;
  for (auto &entry : tiles)
    if (entry.second.loop == loop && entry.second.ringIndex >= 0)
      result.push_back(&entry.second);
  llvm::sort(result, [](const SharedTile *x, const SharedTile *y) {
    return x->ringIndex < y->ringIndex;
  });
  return result;
}

SmallVector<const SharedTile *> BlockView::loadsReadIn(Operation *op) const {
  SmallVector<const SharedTile *> result;
  op->walk([&](linalg::LinalgOp reader) {
    for (Value operand : reader->getOperands())
      if (const SharedTile *l = load(operand); l && l->layout.isVector())
        result.push_back(l);
  });
  for (const Contraction &c : contractions)
    if (op->isAncestor(c.op))
      for (OpOperand *operand : {c.a, c.b})
        if (const SharedTile *l = load(operand->get()))
          result.push_back(l);
  return result;
}

std::optional<FragmentLayout> BlockView::layout(Value value) const {
  RankedTensorType type = hopper::getTileType(value.getType());
  if (!type || !type.hasStaticShape() || type.getRank() < 1 ||
      type.getRank() > 2)
    return std::nullopt;
  if (std::optional<FragmentLayout> layout = layoutOf(type))
    return layout;
  // What no thread holds yet is taken by all warps.
  int64_t rows = type.getDimSize(0);
  return type.getRank() == 2
             ? FragmentLayout::accumulator(rows, type.getDimSize(1), warps())
             : FragmentLayout::row(rows, warps());
}

//===----------------------------------------------------------------------===//
// Whether it can be
//===----------------------------------------------------------------------===//

/// The operation that a value is a result or an argument of.
static Operation *ownerOf(Value value) {
  if (Operation *op = value.getDefiningOp())
    return op;
  return cast<BlockArgument>(value).getOwner()->getParentOp();
}

/// Sums that are staged are in no registers from there on.
static bool liesStaged(Value value) {
  auto stage = value.getDefiningOp<hopper::StageOp>();
  return stage && stage.holdsSums();
}

LogicalResult BlockView::verifyTiles() {
  auto verify = [&](Value value) -> LogicalResult {
    RankedTensorType type = hopper::getTileType(value.getType());
    bool isTile =
        isa<hopper::PendingType>(value.getType()) || program.isComputed(value);
    if (!type || !isTile || shared(value) || liesStaged(value))
      return success();
    auto fragment = dyn_cast_if_present<FragmentAttr>(type.getEncoding());
    if (!fragment)
      return ownerOf(value)->emitOpError("has a tile ")
             << type << " that no thread holds; give it a #nvidia.fragment";
    // The checks of types were of what was parsed.
    auto emitError = [&] { return ownerOf(value)->emitOpError(); };
    if (failed(fragment.verifyEncoding(type.getShape(), type.getElementType(),
                                       emitError)))
      return failure();
    if (warps() % fragment.getWarps())
      return ownerOf(value)->emitOpError("expected its tile's warps to divide "
                                         "the block's, ")
             << warps() << ", got " << fragment.getWarps();
    return success();
  };
  WalkResult walk = program.getForall().walk([&](Operation *op) {
    if (op == program.getForall())
      return WalkResult::advance();
    SmallVector<Value> values(op->getResults());
    if (!isa<linalg::LinalgOp>(op))
      for (Region &region : op->getRegions())
        llvm::append_range(values, region.getArguments());
    for (Value value : values)
      if (failed(verify(value)))
        return WalkResult::interrupt();
    return WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}

LogicalResult BlockView::verifyContraction(const Contraction &c) {
  bool isHoisted = c.op->hasAttr(NVIDIADialect::hoistedName);
  const SharedTile *a = shared(c.a->get());
  if (!shared(c.b->get()))
    return c.op->emitOpError("expected its second operand in shared memory "
                             "(#nvidia.shared), got ")
           << c.b->get().getType();
  bool fits = c.tensorCore() && !c.aOuterK;
  if (!a && fits)
    fits = layout(c.a->get())->isOperandOf(*layout(c.op->getResult(0)));
  if (!a && !fits)
    return c.op->emitOpError("expected its first operand in shared memory "
                             "(#nvidia.shared), or its "
                             "rows in the registers of the warps that have the "
                             "result's, got ")
           << c.a->get().getType();
  auto loop = c.op->getParentOfType<scf::ForOp>();
  if (isHoisted && (!a || !a->isLoaded() || !c.tensorCore() || !loop ||
                    loop->isAncestor(a->tile.getDefiningOp())))
    return c.op->emitOpError("expected the first operand of a product that is ")
           << NVIDIADialect::hoistedName
           << " to be loaded before the loop, in 16 bits";
  return success();
}

LogicalResult BlockView::verifyShared() {
  SmallVector<std::pair<int64_t, int64_t>> taken;
  for (auto &[value, tile] : tiles) {
    Operation *op = value.getDefiningOp();
    auto emitError = [&] { return op->emitOpError(); };
    auto type = cast<RankedTensorType>(value.getType());
    if (failed(cast<SharedAttr>(type.getEncoding())
                   .verifyEncoding(type.getShape(), type.getElementType(),
                                   emitError)))
      return failure();
    if (tile.isLoaded() && !program.isLoadedTile(value))
      return op->emitOpError("expected a tile in shared memory to be cut out "
                             "of one in global memory, or to be put there by "
                             "nvidia.convert_layout");
    if (tile.ringIndex >= 0 &&
        (!tile.isLoaded() || !tile.loop || !canPrefetch(value, tile.loop)))
      return op->emitOpError("expected a tile of a ring to be loaded by a loop "
                             "from values that are known before its iteration");
    int64_t end = tile.offset + tile.layout.size() * tile.stages;
    if (end > sharedBytes())
      return op->emitOpError("has a tile that ends at byte ")
             << end << " of shared memory, and the block has " << sharedBytes()
             << "; place it lower, or give the block more";
    taken.push_back({tile.offset, end});
  }
  llvm::sort(taken);
  for (size_t i = 0; i + 1 < taken.size(); ++i)
    if (taken[i].second > taken[i + 1].first)
      return program.getForall().emitOpError("has two tiles at byte ")
             << taken[i + 1].first << " of shared memory; one ends at "
             << taken[i].second << ": place the other from there on";
  WalkResult walk = program.getForall().walk([&](scf::ForOp loop) {
    SmallVector<const SharedTile *> loads = ring(loop);
    SmallVector<Value> values;
    for (auto [i, load] : llvm::enumerate(loads)) {
      values.push_back(load->tile);
      if (load->ringIndex != int(i) || load->stages != loads[0]->stages ||
          load->inTurn != loads[0]->inTurn) {
        load->tile.getDefiningOp()->emitOpError(
            "expected the loads of a loop's ring to be numbered from 0 and to "
            "have as many stages, got ring ")
            << load->ringIndex << " of " << load->stages << " stages for load "
            << i;
        return WalkResult::interrupt();
      }
    }
    bool inTurn = !loads.empty() && loads[0]->inTurn;
    if (inTurn ? isReadInTurn(loop, values, contractions)
               : loads.empty() || loads[0]->stages > 1)
      return WalkResult::advance();
    loop.emitOpError(
        "expected a ring of two stages or more, or one whose loads "
        "are read in turn, each by one product of the loop");
    return WalkResult::interrupt();
  });
  if (walk.wasInterrupted())
    return failure();
  for (const Contraction &c : contractions)
    if (!role && failed(verifyContraction(c)))
      return failure();
  return success();
}
