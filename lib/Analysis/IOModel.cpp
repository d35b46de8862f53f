// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Analysis/IOModel.h"
#include "IOEvents.h"

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/Hopper/IR/Hopper.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SetVector.h"

#include <memory>

using namespace mlir;
using namespace fa;

//===----------------------------------------------------------------------===//
// What is read and written where
//===----------------------------------------------------------------------===//

namespace {
/// Finds the events of a function.
class EventFinder {
public:
  EventFinder(func::FuncOp func, const IOOptions &options, SizeTracer &sizes)
      : func(func), options(options), sizes(sizes) {}
  std::unique_ptr<Scope> run();

private:
  void visit(Block &block, bool inTile, Scope &scope);
  void visitOp(Operation &op, bool inTile, Scope &scope);
  void visitFor(scf::ForOp loop, Scope &scope);
  void visitForall(scf::ForallOp loop, bool inTile, Scope &scope);
  void visitSlice(tensor::ExtractSliceOp slice, Scope &scope);
  void visitStyle(DestinationStyleOpInterface op, bool inTile, Scope &scope);
  void visitExtracts(linalg::LinalgOp op, Scope &scope);
  void visitLists(ListBlocksOp op, Scope &scope);
  void findList(LoopDim &dim);
  void addWhole(Traffic kind, Value tensor, Scope &scope);
  template <typename InsertOp> void visitInsert(InsertOp insert, Scope &scope);

  bool inHBM(Value tensor);
  bool isStorage(Value tensor, unsigned depth = 0);
  bool becomesResult(Value tensor, unsigned depth = 0);
  bool isInTile(Operation *op);
  void nameExtent(LoopDim &dim);
  func::FuncOp func;
  const IOOptions &options;
  SizeTracer &sizes;
};
} // namespace

static int64_t bytesOf(Type type) {
  Type element = getElementTypeOrSelf(type);
  if (!element.isIntOrFloat())
    return 8; // An index, or nothing that attention is made of.
  return llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
}

/// A size that is computed.
static Size sizeOf(Value value) {
  Size size;
  size.constant = getConstantIntValue(OpFoldResult(value));
  size.value = value;
  return size;
}

static bool isTileLoop(Operation *op) {
  if (isa<scf::ForOp>(op))
    return true;
  auto forall = dyn_cast<scf::ForallOp>(op);
  return forall && llvm::any_of(forall.getMixedStep(), [](OpFoldResult step) {
           return getConstantIntValue(step) != 1;
         });
}

bool EventFinder::isInTile(Operation *op) {
  for (Operation *p = op->getParentOp(); p && p != func; p = p->getParentOp())
    if (isTileLoop(p))
      return true;
  return false;
}

/// Whether all that happens to a slice is that it is sliced again.
static bool isOnlySliced(Value slice) {
  return llvm::all_of(slice.getUsers(), [](Operation *user) {
    return isa<tensor::ExtractSliceOp, tensor::DimOp>(user);
  });
}

/// Whether a slice only says which tile a slot holds: another role loads it.
static bool isOnlyNamed(Value slice) {
  return !slice.use_empty() &&
         llvm::all_of(slice.getUsers(), [](Operation *user) {
           return isa<hopper::AcquireOp>(user) ||
                  (isa<tensor::PadOp, tensor::CastOp>(user) &&
                   isOnlyNamed(user->getResult(0)));
         });
}

/// Whether a slice is only where lists are written.
static bool isOnlyWritten(Value slice) {
  return llvm::all_of(slice.getUses(), [](OpOperand &use) {
    auto lists = dyn_cast<ListBlocksOp>(use.getOwner());
    return lists && lists.isDpsInit(&use);
  });
}

/// Whether a constant or empty tensor stands for memory: something outside tile
/// loops computes with it, or loops slice it. Else it is what a tile starts
/// from, and was only hoisted.
bool EventFinder::isStorage(Value tensor, unsigned depth) {
  if (depth > 8)
    return true;
  for (OpOperand &use : tensor.getUses()) {
    Operation *user = use.getOwner();
    if (isa<tensor::DimOp>(user))
      continue;
    if (auto loop = dyn_cast<scf::ForOp>(user)) {
      if (isStorage(loop.getTiedLoopRegionIterArg(&use), depth + 1))
        return true;
      continue;
    }
    if (isa<scf::YieldOp>(user) || isa<tensor::InsertSliceOp>(user)) {
      auto insert = dyn_cast<tensor::InsertSliceOp>(user);
      if (insert && insert.getDest() == tensor)
        return true;
      continue;
    }
    if (isa<tensor::ExtractSliceOp>(user) || !isInTile(user))
      return true;
  }
  return false;
}

bool EventFinder::inHBM(Value tensor) {
  if (auto argument = dyn_cast<BlockArgument>(tensor)) {
    Operation *owner = argument.getOwner()->getParentOp();
    if (auto loop = dyn_cast<scf::ForOp>(owner))
      return inHBM(loop.getTiedLoopInit(argument)->get());
    return owner == func || isa<scf::ForallOp>(owner);
  }
  Operation *op = tensor.getDefiningOp();
  unsigned number = cast<OpResult>(tensor).getResultNumber();
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return inHBM(slice.getSource()) && (!isInTile(op) || isOnlySliced(tensor));
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
    return inHBM(insert.getDest());
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return inHBM(loop.getInitArgs()[number]);
  if (auto cast = dyn_cast<tensor::CastOp>(op))
    return inHBM(cast.getSource());
  if (isInTile(op))
    return isa<tensor::EmptyOp, linalg::FillOp>(op) ? false
                                                    : isa<scf::ForallOp>(op);
  if (isa<tensor::EmptyOp, linalg::FillOp>(op))
    return isStorage(tensor);
  return true;
}

/// Whether a tensor's memory can be that of the function's result.
bool EventFinder::becomesResult(Value tensor, unsigned depth) {
  if (depth > 8)
    return false;
  for (OpOperand &use : tensor.getUses()) {
    Operation *user = use.getOwner();
    if (isa<tensor::ParallelInsertSliceOp, func::ReturnOp>(user))
      return true;
    if (auto insert = dyn_cast<tensor::InsertSliceOp>(user);
        insert && insert.getSource() == tensor && !isInTile(user))
      return true;
    if (auto loop = dyn_cast<scf::ForOp>(user);
        loop && becomesResult(loop.getTiedLoopResult(&use), depth + 1))
      return true;
    if (auto loop = dyn_cast<scf::ForallOp>(user);
        loop && becomesResult(loop.getTiedOpResult(&use), depth + 1))
      return true;
    if (auto style = dyn_cast<DestinationStyleOpInterface>(user);
        style && style.isDpsInit(&use) && style->getNumResults() != 0 &&
        becomesResult(style.getTiedOpResult(&use), depth + 1))
      return true;
  }
  return false;
}

void EventFinder::addWhole(Traffic kind, Value tensor, Scope &scope) {
  scope.events.push_back(
      {kind, bytesOf(tensor.getType()), sizes.getSizes(tensor)});
}

/// Sizes and offsets of a slice, named after the tensor they belong to.
template <typename SliceOp>
static SmallVector<Size> sizesOfSlice(SliceOp slice, Value whole,
                                      SizeTracer &tracer) {
  SmallVector<Size> result;
  for (auto [i, size] : llvm::enumerate(slice.getMixedSizes())) {
    Size next;
    OpFoldResult offset = slice.getMixedOffsets()[i];
    next.constant = getConstantIntValue(size);
    next.value = dyn_cast<Value>(size);
    next.offset = walkerOf(offset);
    Size full = tracer.getSize(whole, i);
    // All of a dimension has its name.
    if (isZeroInteger(offset) && next.constant &&
        next.constant == full.constant)
      next.symbol = full.symbol;
    result.push_back(next);
  }
  return result;
}

void EventFinder::visitSlice(tensor::ExtractSliceOp slice, Scope &scope) {
  if (!inHBM(slice.getSource()) || isOnlySliced(slice.getResult()) ||
      isOnlyWritten(slice.getResult()) || isOnlyNamed(slice.getResult()))
    return;
  scope.events.push_back({Traffic::Read, bytesOf(slice.getType()),
                          sizesOfSlice(slice, slice.getSource(), sizes)});
}

template <typename InsertOp>
void EventFinder::visitInsert(InsertOp insert, Scope &scope) {
  if (!inHBM(insert.getDest()))
    return;
  Event event = {Traffic::Write, bytesOf(insert.getSource().getType()),
                 sizesOfSlice(insert, insert.getDest(), sizes)};
  // The destination is often made without names: the source may have them.
  SmallVector<Size> source = sizes.getSizes(insert.getSource());
  unsigned next = 0;
  llvm::SmallBitVector dropped = insert.getDroppedDims();
  for (auto [i, size] : llvm::enumerate(event.sizes))
    if (!dropped.test(i) && next < source.size()) {
      if (size.symbol.empty())
        size.symbol = source[next].symbol;
      ++next;
    }
  scope.events.push_back(event);
}

/// What the indices of a read are computed from, in the op around it and at its
/// edge.
static llvm::SetVector<Value> valuesBehind(tensor::ExtractOp extract,
                                           Operation *around) {
  llvm::SetVector<Value> values(extract.getIndices().begin(),
                                extract.getIndices().end());
  for (size_t i = 0; i < values.size(); ++i)
    if (Operation *def = values[i].getDefiningOp();
        def && around->isProperAncestor(def))
      values.insert(def->operand_begin(), def->operand_end());
  return values;
}

/// Reads of captured tensors in a body: each element that the indices can mean.
void EventFinder::visitExtracts(linalg::LinalgOp op, Scope &scope) {
  op->walk([&](tensor::ExtractOp extract) {
    if (!inHBM(extract.getTensor()))
      return;
    llvm::SmallSetVector<int64_t, 4> loops;
    for (Value value : valuesBehind(extract, op))
      if (auto index = value.getDefiningOp<linalg::IndexOp>();
          index && op->isProperAncestor(index))
        loops.insert(index.getDim());
    Event event = {Traffic::Read, bytesOf(extract.getType()), {}};
    AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
    for (int64_t loop : loops)
      for (auto [i, expr] : llvm::enumerate(map.getResults()))
        if (auto d = dyn_cast<AffineDimExpr>(expr);
            d && d.getPosition() == loop)
          event.sizes.push_back(sizes.getSize(op->getResult(0), i));
    scope.events.push_back(event);
  });
}

/// What a mask reads to list blocks: of a row for each, of a key for each that
/// is looked at.
void EventFinder::visitLists(ListBlocksOp op, Scope &scope) {
  Block &mask = op.getMask().front();
  op->walk([&](tensor::ExtractOp extract) {
    if (!inHBM(extract.getTensor()))
      return;
    llvm::SetVector<Value> of = valuesBehind(extract, op);
    Event event = {Traffic::Read, bytesOf(extract.getType()), {}};
    if (of.contains(mask.getArgument(0)))
      event.sizes.push_back(sizeOf(op.getRows()));
    if (of.contains(mask.getArgument(1)) || of.contains(mask.getArgument(2)))
      event.sizes.push_back(sizeOf(op.getTo()));
    scope.events.push_back(event);
  });
}

void EventFinder::visitStyle(DestinationStyleOpInterface op, bool inTile,
                             Scope &scope) {
  if (!op.hasPureTensorSemantics())
    return; // Bufferized: the rules are those of values.
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op.getOperation());
  bool isFill = isa<linalg::FillOp>(op);
  if (linalgOp)
    visitExtracts(linalgOp, scope);
  auto isFolded = [&](Value init) {
    return options.foldFills && init.getDefiningOp<linalg::FillOp>();
  };
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<RankedTensorType>(operand.get().getType()) ||
        !inHBM(operand.get()))
      continue;
    bool isRead = !op.isDpsInit(&operand) || !linalgOp ||
                  linalgOp.payloadUsesValueFromOperand(&operand);
    if (isRead && !isFill &&
        !(op.isDpsInit(&operand) && isFolded(operand.get())))
      addWhole(Traffic::Read, operand.get(), scope);
  }
  if (inTile)
    return;
  for (OpOperand &init : op.getDpsInitsMutable()) {
    Value result = op.getTiedOpResult(&init);
    if (isFill && !inHBM(result))
      continue;
    bool isStart = isFill && options.foldFills &&
                   llvm::all_of(result.getUses(), [](OpOperand &use) {
                     auto user =
                         dyn_cast<DestinationStyleOpInterface>(use.getOwner());
                     return user && user.isDpsInit(&use);
                   });
    if (!isStart)
      addWhole(Traffic::Write, result, scope);
    if (init.get().getDefiningOp<tensor::EmptyOp>() && !becomesResult(result))
      addWhole(Traffic::Temp, result, scope);
  }
}

/// Names a loop's extent: by its bound, or by the dimension of an argument that
/// the induction variable walks through, which it can't leave.
void EventFinder::nameExtent(LoopDim &dim) {
  std::optional<int64_t> constant = getConstantIntValue(dim.upper);
  std::string name;
  auto walk = [&](Value tensor, ArrayRef<OpFoldResult> offsets) {
    for (auto [i, offset] : llvm::enumerate(offsets)) {
      if (walkerOf(offset) != dim.iv)
        continue;
      Size whole = sizes.getSize(tensor, i);
      if (whole.symbol.empty() ||
          (constant && whole.constant && *constant != *whole.constant))
        continue;
      // Query heads rather than key heads, where they are as many.
      if (name.empty() || Polynomial::nameLess(whole.symbol, name))
        name = whole.symbol;
    }
  };
  SmallVector<Operation *> users(dim.iv.getUsers());
  for (unsigned i = 0; i < users.size(); ++i)
    if (isa<arith::AddIOp, arith::SubIOp>(users[i]) &&
        walkerOf(users[i]->getResult(0)) == dim.iv)
      llvm::append_range(users, users[i]->getUsers());
  for (Operation *user : users) {
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(user))
      walk(slice.getSource(), slice.getMixedOffsets());
    else if (auto insert = dyn_cast<tensor::ParallelInsertSliceOp>(user))
      walk(insert.getDest(), insert.getMixedOffsets());
  }
  if (!name.empty())
    dim.extent = Polynomial::symbol(name);
  else if (constant)
    dim.extent = *constant;
  else if (std::optional<Polynomial> bound =
               sizes.getSymbolic(cast<Value>(dim.upper)))
    dim.extent = *bound;
}

/// A loop over the entries of a list runs at most as often as that is long.
void EventFinder::findList(LoopDim &dim) {
  for (Operation *user : dim.iv.getUsers()) {
    auto extract = dyn_cast<tensor::ExtractOp>(user);
    if (!extract || extract.getIndices().back() != dim.iv ||
        !isa<Value>(dim.upper) || sizes.getSymbolic(cast<Value>(dim.upper)))
      continue;
    unsigned last = extract.getIndices().size() - 1;
    dim.listLength = sizes.getSize(extract.getTensor(), last);
    dim.extent = sizes.getSymbolic(*dim.listLength);
  }
}

void EventFinder::visitFor(scf::ForOp loop, Scope &scope) {
  auto body = std::make_unique<Scope>();
  LoopDim dim = {loop.getInductionVar(),
                 getAsOpFoldResult(loop.getLowerBound()),
                 getAsOpFoldResult(loop.getUpperBound())};
  if (std::optional<int64_t> step =
          getConstantIntValue(getAsOpFoldResult(loop.getStep())))
    dim.step = std::max<int64_t>(*step, 1);
  nameExtent(dim);
  findList(dim);
  auto upper = dyn_cast<Value>(dim.upper);
  dim.isExact = isZeroInteger(dim.lower) &&
                (!upper || upper.getDefiningOp<tensor::DimOp>() ||
                 isa<BlockArgument>(upper));
  body->dims.push_back(dim);
  // What loops carry without an init that was written is memory too.
  for (Value init : loop.getInitArgs())
    if (init.getDefiningOp<tensor::EmptyOp>() && inHBM(init) &&
        !isInTile(loop) &&
        !becomesResult(loop.getResult(llvm::find(loop.getInitArgs(), init) -
                                      loop.getInitArgs().begin())))
      addWhole(Traffic::Temp, init, scope);
  visit(*loop.getBody(), /*inTile=*/true, *body);
  scope.loops.push_back(std::move(body));
}

void EventFinder::visitForall(scf::ForallOp loop, bool inTile, Scope &scope) {
  auto body = std::make_unique<Scope>();
  for (auto [iv, lower, upper, step] :
       llvm::zip(loop.getInductionVars(), loop.getMixedLowerBound(),
                 loop.getMixedUpperBound(), loop.getMixedStep())) {
    LoopDim dim = {iv, lower, upper};
    dim.step = std::max<int64_t>(getConstantIntValue(step).value_or(1), 1);
    nameExtent(dim);
    body->dims.push_back(dim);
  }
  // An output that was not there before is a temporary, unless it is returned.
  for (OpOperand &output : loop.getOutputsMutable())
    if (output.get().getDefiningOp<tensor::EmptyOp>() && !isInTile(loop) &&
        !becomesResult(loop.getTiedOpResult(&output)))
      addWhole(Traffic::Temp, loop.getTiedOpResult(&output), scope);
  inTile |= isTileLoop(loop);
  visit(*loop.getBody(), inTile, *body);
  if (inTile)
    for (Operation &op : loop.getTerminator().getBody()->getOperations())
      if (auto insert = dyn_cast<tensor::ParallelInsertSliceOp>(op))
        visitInsert(insert, *body);
  scope.loops.push_back(std::move(body));
}

void EventFinder::visitOp(Operation &op, bool inTile, Scope &scope) {
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return visitFor(loop, scope);
  if (auto loop = dyn_cast<scf::ForallOp>(op))
    return visitForall(loop, inTile, scope);
  if (auto choice = dyn_cast<scf::IfOp>(op)) {
    Scope::Choice parts = {choice.getCondition(), std::make_unique<Scope>(),
                           std::make_unique<Scope>()};
    visit(*choice.thenBlock(), inTile, *parts.then);
    if (choice.elseBlock())
      visit(*choice.elseBlock(), inTile, *parts.otherwise);
    scope.choices.push_back(std::move(parts));
    return;
  }
  if (auto lists = dyn_cast<ListBlocksOp>(op))
    return visitLists(lists, scope);
  if (auto style = dyn_cast<DestinationStyleOpInterface>(op)) {
    if (isa<linalg::LinalgOp, OnlineSoftmaxOp>(op))
      visitStyle(style, inTile, scope);
    else if (auto insert = dyn_cast<tensor::InsertSliceOp>(op);
             insert && inTile)
      visitInsert(insert, scope);
    return;
  }
  if (auto attention = dyn_cast<AttentionOp>(op)) {
    for (Value operand : op.getOperands())
      addWhole(Traffic::Read, operand, scope);
    for (Value result : op.getResults())
      addWhole(Traffic::Write, result, scope);
    return;
  }
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op); slice && inTile)
    return visitSlice(slice, scope);
  if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
    if (inHBM(extract.getTensor()))
      scope.events.push_back({Traffic::Read, bytesOf(extract.getType()), {}});
    return;
  }
  if (auto pad = dyn_cast<tensor::PadOp>(op); pad && inHBM(pad.getSource())) {
    addWhole(Traffic::Read, pad.getSource(), scope);
    if (!inTile) {
      addWhole(Traffic::Write, pad.getResult(), scope);
      addWhole(Traffic::Temp, pad.getResult(), scope);
    }
    return;
  }
  // Roles of a block, which load and compute for all of its threads.
  if (isa<hopper::ProducerOp, hopper::ConsumersOp>(op))
    for (Region &region : op.getRegions())
      for (Block &block : region)
        visit(block, inTile, scope);
}

void EventFinder::visit(Block &block, bool inTile, Scope &scope) {
  for (Operation &op : block)
    visitOp(op, inTile, scope);
}

std::unique_ptr<Scope> EventFinder::run() {
  auto scope = std::make_unique<Scope>();
  for (Block &block : func.getBody())
    visit(block, /*inTile=*/false, *scope);
  return scope;
}

IOReport fa::computeIO(func::FuncOp func, const IOOptions &options) {
  SizeTracer sizes(func, options);
  std::unique_ptr<Scope> scope = EventFinder(func, options, sizes).run();
  IOReport report;
  Totals<Polynomial> totals = countSymbolic(*scope, sizes, report.isUpperBound);
  report.read = totals.read;
  report.write = totals.write;
  report.temp = totals.temp;
  bool isUpperBound = false;
  if (std::optional<Totals<int64_t>> bytes =
          countNumeric(*scope, sizes, isUpperBound)) {
    report.readBytes = bytes->read;
    report.writeBytes = bytes->write;
    report.tempBytes = bytes->temp;
    report.bytesAreUpperBound = isUpperBound;
  }
  return report;
}
