// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations without a region of their own program: scalars and tensors.

#include "Agent.h"

#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fa;
using namespace fa::run;
using namespace fa::run::interpreter;

static std::string listed(ArrayRef<int64_t> values) {
  std::string text = "[";
  for (int64_t v : values)
    text += (text.size() > 1 ? ", " : "") + std::to_string(v);
  return text + "]";
}

/// Whether there is memory for a tensor, surely.
static bool isSmall(ArrayRef<int64_t> shape) {
  int64_t size = 1;
  for (int64_t d : shape)
    if (d < 0 || llvm::MulOverflow(size, d, size))
      return false;
  return size <= int64_t(1) << 30;
}

LogicalResult Agent::run(Operation *op) {
  if (auto linalg = dyn_cast<linalg::LinalgOp>(op)) {
    SmallVector<Tensor> tensors;
    if (failed(
            runLinalg(linalg, shared.bodies, *this, shared.failure, tensors)))
      return failure();
    for (auto [result, tensor] : llvm::zip(op->getResults(), tensors))
      set(result, Cell::of(tensor));
    return success();
  }
  bool isKnown = true;
  LogicalResult ran = runTensor(op, isKnown);
  return isKnown ? ran : runScalar(op);
}

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

static void setLanes(Lanes &lanes, ElementKind kind, Number x) {
  if (kind.isFloat)
    lanes.setFloat(x.f);
  else
    lanes.setInt(x.i);
}

LogicalResult Agent::runScalar(Operation *op) {
  if (isa<affine::AffineApplyOp, affine::AffineMinOp, affine::AffineMaxOp>(op))
    return runAffine(op);
  if (auto select = dyn_cast<arith::SelectOp>(op);
      select && select.getCondition().getType().isInteger(1)) {
    FailureOr<Number> condition = number(select.getCondition());
    if (failed(condition))
      return failure();
    FailureOr<Cell> chosen =
        cell(condition->i ? select.getTrueValue() : select.getFalseValue());
    if (failed(chosen))
      return failure();
    set(select.getResult(), *chosen);
    return success();
  }
  Kernel kernel = lookupKernel(op);
  auto to = op->getNumResults() == 1
                ? ElementKind::of(op->getResult(0).getType())
                : std::nullopt;
  if (!kernel || !to || op->getNumOperands() == 0 || op->getNumOperands() > 3)
    return shared.failure.at(op, "is not interpreted");
  Lanes operands[3], result;
  SmallVector<const Lanes *, 3> pointers;
  Scalar scalar{op, *to, *to};
  for (auto [n, v] : llvm::enumerate(op->getOperands())) {
    auto kind = ElementKind::of(v.getType());
    FailureOr<Number> x = number(v);
    if (failed(x) || !kind)
      return shared.failure.at(op, "is not interpreted");
    if (n == 0)
      scalar.from = *kind;
    setLanes(operands[n], *kind, *x);
    pointers.push_back(&operands[n]);
  }
  kernel(scalar, pointers, result, 1);
  Number x;
  if (to->isFloat)
    x.f = *result.floats();
  else
    x.i = *result.ints();
  set(op->getResult(0), Cell::of(x));
  return success();
}

LogicalResult Agent::runAffine(Operation *op) {
  AffineMap map = cast<AffineMapAttr>(op->getAttr("map")).getValue();
  std::vector<Lanes> operands(op->getNumOperands());
  SmallVector<const Lanes *> pointers;
  for (auto [v, lanes] : llvm::zip(op->getOperands(), operands)) {
    FailureOr<Number> x = number(v);
    if (failed(x))
      return failure();
    lanes.setInt(x->i);
    pointers.push_back(&lanes);
  }
  auto dims = ArrayRef(pointers).take_front(map.getNumDims()),
       symbols = ArrayRef(pointers).drop_front(map.getNumDims());
  std::optional<int64_t> result;
  for (AffineExpr expr : map.getResults()) {
    Lanes x;
    evaluateAffine(expr, dims, symbols, x, 1);
    int64_t next = *x.ints();
    result = !result                        ? next
             : isa<affine::AffineMinOp>(op) ? std::min(*result, next)
                                            : std::max(*result, next);
  }
  set(op->getResult(0), Cell::ofInt(*result));
  return success();
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

LogicalResult Agent::runTensor(Operation *op, bool &isKnown) {
  if (isa<arith::ConstantOp>(op))
    return runConstant(op);
  if (isa<tensor::EmptyOp, tensor::SplatOp>(op))
    return runEmpty(op);
  if (auto dim = dyn_cast<tensor::DimOp>(op)) {
    FailureOr<Tensor> t = tensor(dim.getSource());
    FailureOr<int64_t> d = index(dim.getDimension());
    if (failed(t) || failed(d))
      return failure();
    if (*d < 0 || *d >= t->rank())
      return shared.failure.at(op, "asks for dimension " + Twine(*d) +
                                       " of a tensor of rank " +
                                       Twine(t->rank()));
    set(dim.getResult(), Cell::ofInt(t->shape()[*d]));
    return success();
  }
  if (auto cast = dyn_cast<tensor::CastOp>(op)) {
    FailureOr<Tensor> t = tensor(cast.getSource());
    if (failed(t))
      return failure();
    if (auto type = dyn_cast<RankedTensorType>(cast.getType()))
      if (failed(verifyCompatibleShape(type.getShape(), t->shape())))
        return shared.failure.at(op, "has a tensor of another shape");
    set(cast.getResult(), Cell::of(*t));
    return success();
  }
  if (auto extract = dyn_cast<tensor::ExtractOp>(op))
    return runExtract(extract);
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return runExtractSlice(slice);
  if (auto slice = dyn_cast<tensor::InsertSliceOp>(op))
    return runInsertSlice(slice);
  if (auto sum = dyn_cast<AccumulateSliceOp>(op))
    return accumulate(sum);
  if (auto sum = dyn_cast<AccumulateOp>(op))
    return accumulate(sum);
  if (auto pad = dyn_cast<tensor::PadOp>(op))
    return runPad(pad);
  if (auto insert = dyn_cast<tensor::InsertOp>(op))
    return runInsert(insert);
  if (isa<ListBlocksOp>(op))
    return runListBlocks(op);
  if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op))
    return runReshape(op);
  isKnown = false;
  return success();
}

static Number numberOf(Attribute attribute, ElementKind kind) {
  if (auto number = dyn_cast<FloatAttr>(attribute))
    return {0, static_cast<float>(number.getValueAsDouble())};
  return {
      wrap(cast<IntegerAttr>(attribute).getValue().getSExtValue(), kind.bits),
      0};
}

static void fill(const Tensor &t, Number x) {
  if (t.kind().isFloat)
    std::fill_n(t.floats(), t.size(), x.f);
  else
    std::fill_n(t.ints(), t.size(), x.i);
}

LogicalResult Agent::runConstant(Operation *op) {
  auto constant = cast<arith::ConstantOp>(op);
  auto kind = ElementKind::of(getElementTypeOrSelf(constant.getType()));
  if (!kind)
    return shared.failure.at(op, "is not interpreted");
  auto elements = dyn_cast<DenseElementsAttr>(constant.getValue());
  if (!elements) {
    if (!isa<FloatAttr, IntegerAttr>(constant.getValue()))
      return shared.failure.at(op, "is not interpreted");
    set(constant.getResult(), Cell::of(numberOf(constant.getValue(), *kind)));
    return success();
  }
  Tensor t = Tensor::make(*kind, elements.getType().getShape());
  int64_t i = 0;
  for (Attribute attribute : elements.getValues<Attribute>()) {
    Number x = numberOf(attribute, *kind);
    if (kind->isFloat)
      t.floats()[i++] = x.f;
    else
      t.ints()[i++] = x.i;
  }
  set(constant.getResult(), Cell::of(t));
  return success();
}

/// What is not set yet is poison.
LogicalResult Agent::runEmpty(Operation *op) {
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  auto kind = type ? ElementKind::of(type.getElementType()) : std::nullopt;
  if (!kind)
    return shared.failure.at(op, "is not interpreted");
  auto splat = dyn_cast<tensor::SplatOp>(op);
  ValueRange sizes = op->getOperands();
  if (splat)
    sizes = sizes.drop_front();
  SmallVector<int64_t> shape(type.getShape());
  for (int64_t &size : shape) {
    if (!ShapedType::isDynamic(size))
      continue;
    FailureOr<int64_t> given = index(sizes.front());
    sizes = sizes.drop_front();
    if (failed(given))
      return failure();
    if (*given < 0)
      return shared.failure.at(op, "has a size of " + Twine(*given));
    size = *given;
  }
  if (!isSmall(shape))
    return shared.failure.at(op, "is too large to be interpreted: " +
                                     listed(shape));
  Tensor t = Tensor::makePoison(*kind, shape);
  if (splat) {
    FailureOr<Number> x = number(splat.getInput());
    if (failed(x))
      return failure();
    fill(t, *x);
  }
  set(op->getResult(0), Cell::of(t));
  return success();
}

/// Where an element lies, of indices that `indexOf` gives by dimension.
static FailureOr<int64_t>
offsetOf(Operation *op, const Tensor &t,
         function_ref<FailureOr<int64_t>(int64_t)> indexOf, Failure &failure) {
  int64_t offset = 0;
  for (int64_t d = 0; d < t.rank(); ++d) {
    FailureOr<int64_t> i = indexOf(d);
    if (failed(i))
      return mlir::failure();
    if (*i < 0 || *i >= t.shape()[d])
      return failure.at(op, "expected an index below " + Twine(t.shape()[d]) +
                                " in dimension " + Twine(d) + ", got " +
                                Twine(*i));
    offset += *i * t.strides()[d];
  }
  return offset;
}

FailureOr<int64_t> Agent::elementOf(Operation *op, const Tensor &t,
                                    ValueRange at) {
  return offsetOf(
      op, t, [&](int64_t d) { return index(at[d]); }, shared.failure);
}

LogicalResult Agent::runExtract(tensor::ExtractOp op) {
  FailureOr<Tensor> t = tensor(op.getTensor());
  if (failed(t))
    return failure();
  FailureOr<int64_t> offset = elementOf(op, *t, op.getIndices());
  if (failed(offset))
    return failure();
  Number x;
  if (t->kind().isFloat)
    x.f = t->floats()[*offset];
  else
    x.i = t->ints()[*offset];
  set(op.getResult(), Cell::of(x));
  return success();
}

LogicalResult Agent::runInsert(tensor::InsertOp op) {
  FailureOr<Tensor> t = tensor(op.getDest());
  FailureOr<Number> x = number(op.getScalar());
  if (failed(t) || failed(x))
    return failure();
  Tensor result = t->clone();
  FailureOr<int64_t> offset = elementOf(op, result, op.getIndices());
  if (failed(offset))
    return failure();
  if (t->kind().isFloat)
    result.floats()[*offset] = x->f;
  else
    result.ints()[*offset] = x->i;
  set(op.getResult(), Cell::of(result));
  return success();
}

/// The part of a tensor that an operation reads or writes.
static FailureOr<Tensor> sliceOf(OffsetSizeAndStrideOpInterface op,
                                 const Tensor &t,
                                 const llvm::SmallBitVector &dropped,
                                 Agent &agent, Failure &failure) {
  SmallVector<int64_t> offsets, sizes, strides;
  if (failed(agent.indices(op.getMixedOffsets(), offsets)) ||
      failed(agent.indices(op.getMixedSizes(), sizes)) ||
      failed(agent.indices(op.getMixedStrides(), strides)))
    return mlir::failure();
  if (!isInside(t.shape(), offsets, sizes, strides))
    return failure.at(op, "expected a slice inside of " + listed(t.shape()) +
                              ", got offsets " + listed(offsets) + " sizes " +
                              listed(sizes) + " strides " + listed(strides));
  return t.slice(offsets, sizes, strides).dropDims([&](unsigned d) {
    return dropped.test(d);
  });
}

/// Whether a tensor is one that a grid's iterations add to, where it lies.
static bool isAddedTo(Value tensor) {
  return llvm::any_of(tensor.getUses(), [](OpOperand &use) {
    if (isa<AccumulateSliceOp, AccumulateOp>(use.getOwner()))
      return cast<DestinationStyleOpInterface>(use.getOwner()).isDpsInit(&use);
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(use.getOwner()))
      return isAddedTo(slice.getResult());
    auto loop = dyn_cast<scf::ForOp>(use.getOwner());
    BlockArgument carried =
        loop ? loop.getTiedLoopRegionIterArg(&use) : BlockArgument();
    return carried && isAddedTo(carried);
  });
}

LogicalResult Agent::runExtractSlice(tensor::ExtractSliceOp op) {
  FailureOr<Tensor> t = tensor(op.getSource());
  if (failed(t))
    return failure();
  auto part = sliceOf(op, *t, op.getDroppedDims(), *this, shared.failure);
  if (failed(part))
    return failure();
  // A view of what a grid's iterations write would change under its reader.
  bool isWritten =
      isa<BlockArgument>(op.getSource()) &&
      isa<scf::ForallOp>(op.getSource().getParentBlock()->getParentOp()) &&
      !isAddedTo(op.getResult());
  set(op.getResult(), Cell::of(isWritten ? part->clone() : *part));
  return success();
}

static LogicalResult checkSizes(Operation *op, ArrayRef<int64_t> to,
                                ArrayRef<int64_t> from, Failure &failure) {
  if (to != from)
    return failure.at(op, "expected a source of sizes " + listed(to) +
                              ", got " + listed(from));
  return success();
}

LogicalResult Agent::runInsertSlice(tensor::InsertSliceOp op) {
  FailureOr<Tensor> from = tensor(op.getSource()), dest = tensor(op.getDest());
  if (failed(from) || failed(dest))
    return failure();
  // What was added to where it lies is there.
  auto there = sliceOf(op, *dest, op.getDroppedDims(), *this, shared.failure);
  if (failed(there))
    return failure();
  if (there->isSameAs(*from)) {
    set(op.getResult(), Cell::of(*dest));
    return success();
  }
  Tensor result = dest->clone();
  auto part = sliceOf(op, result, op.getDroppedDims(), *this, shared.failure);
  if (failed(part) ||
      failed(checkSizes(op, part->shape(), from->shape(), shared.failure)))
    return failure();
  part->assign(*from);
  set(op.getResult(), Cell::of(result));
  return success();
}

Agent::Part Agent::partOf(Value v, ArrayRef<int64_t> shape) {
  return {SmallVector<int64_t>(shape.size(), 0), SmallVector<int64_t>(shape)};
}

/// Of what an operation writes to a slice of a tensor this one's part, and the
/// place where that lies.
FailureOr<std::pair<Tensor, Tensor>>
Agent::partAndPlace(OffsetSizeAndStrideOpInterface op, Value source,
                    const Tensor &dest, const llvm::SmallBitVector &dropped) {
  FailureOr<Tensor> from = tensor(source);
  if (failed(from))
    return failure();
  auto to = sliceOf(op, dest, dropped, *this, shared.failure);
  if (failed(to) ||
      failed(checkSizes(op, to->shape(), from->shape(), shared.failure)))
    return failure();
  Part own = partOf(source, from->shape());
  SmallVector<int64_t> strides(from->rank(), 1);
  return std::pair(from->slice(own.offsets, own.sizes, strides),
                   to->slice(own.offsets, own.sizes, strides));
}

LogicalResult Agent::insert(tensor::ParallelInsertSliceOp op) {
  FailureOr<Tensor> dest = tensor(op.getDest());
  if (failed(dest))
    return failure();
  auto parts = partAndPlace(op, op.getSource(), *dest, op.getDroppedDims());
  if (failed(parts))
    return failure();
  parts->second.assign(parts->first);
  return success();
}

/// Where the sum lies: others may add to it at the same time.
LogicalResult Agent::accumulate(AccumulateSliceOp op) {
  FailureOr<Tensor> sum = tensor(op.getInit());
  if (failed(sum))
    return failure();
  auto parts = partAndPlace(op, op.getPart(), *sum, op.getDroppedDims());
  if (failed(parts))
    return failure();
  if (!sum->kind().isFloat)
    return shared.failure.at(op, "is interpreted of floats alone");
  Tensor part = parts->first.contiguous(), next = parts->second.clone();
  for (int64_t i = 0; i < next.size(); ++i)
    next.floats()[i] += part.floats()[i];
  parts->second.assign(next);
  set(op.getResult(), Cell::of(*sum));
  return success();
}

/// Likewise, element by element; what is 0 need not have a place.
LogicalResult Agent::accumulate(AccumulateOp op) {
  FailureOr<Tensor> sum = tensor(op.getInit()), terms = tensor(op.getTerms());
  if (failed(sum) || failed(terms))
    return failure();
  if (!sum->kind().isFloat)
    return shared.failure.at(op, "is interpreted of floats alone");
  auto made = bodyOf(op, op.getPlaces().front(), shared.bodies, shared.failure);
  if (failed(made) || failed((*made)->bind(*this, shared.failure)))
    return failure();
  Body &body = **made;
  Part own = partOf(op.getTerms(), terms->shape());
  Tensor part = terms
                    ->slice(own.offsets, own.sizes,
                            SmallVector<int64_t>(terms->rank(), 1))
                    .contiguous();
  int64_t count = part.size(), inner = count;
  if (count == 0) {
    set(op.getResult(), Cell::of(*sum));
    return success();
  }
  for (int64_t d = 0; d < part.rank(); ++d) {
    inner /= own.sizes[d];
    int64_t *at = body.argument(d).makeInts(count, /*isUniform=*/false);
    for (int64_t i = 0; i < count; ++i)
      at[i] = own.offsets[d] + i / inner % own.sizes[d];
  }
  if (failed(body.run(count, shared.failure)))
    return failure();
  for (int64_t i = 0; i < count; ++i) {
    float term = part.floats()[i];
    if (term == 0)
      continue;
    FailureOr<int64_t> offset = offsetOf(
        op, *sum,
        [&](int64_t d) -> FailureOr<int64_t> {
          const Lanes &places = body.yielded(d);
          return places.ints()[i * places.step()];
        },
        shared.failure);
    if (failed(offset))
      return failure();
    sum->floats()[*offset] += term;
  }
  set(op.getResult(), Cell::of(*sum));
  return success();
}

LogicalResult Agent::runPad(tensor::PadOp op) {
  FailureOr<Tensor> t = tensor(op.getSource());
  SmallVector<int64_t> low, high;
  if (failed(t) || failed(indices(op.getMixedLowPad(), low)) ||
      failed(indices(op.getMixedHighPad(), high)))
    return failure();
  Value padding = op.getConstantPaddingValue();
  Number x;
  Attribute constant;
  if (padding && matchPattern(padding, m_Constant(&constant))) {
    x = numberOf(constant, t->kind());
  } else if (padding) {
    FailureOr<Number> given = number(padding);
    if (failed(given))
      return failure();
    x = *given;
  } else {
    return shared.failure.at(op, "pads with a value that is no constant");
  }
  SmallVector<int64_t> shape;
  for (auto [size, before, after] : llvm::zip(t->shape(), low, high)) {
    if (before < 0 || after < 0)
      return shared.failure.at(op, "expected padding of at least 0, got " +
                                       listed(low) + " and " + listed(high));
    shape.push_back(before + size + after);
  }
  auto type = op.getResultType();
  if (failed(verifyCompatibleShape(type.getShape(), shape)))
    return shared.failure.at(op, "makes a tensor of sizes " + listed(shape));
  if (!isSmall(shape))
    return shared.failure.at(op, "is too large to be interpreted: " +
                                     listed(shape));
  bool isWhole = llvm::equal(shape, t->shape());
  Tensor result = *t;
  if (!isWhole) {
    result = Tensor::make(t->kind(), shape);
    fill(result, x);
    SmallVector<int64_t> strides(t->rank(), 1);
    result.slice(low, t->shape(), strides).assign(*t);
  }
  set(op.getResult(), Cell::of(result));
  return success();
}

LogicalResult Agent::runReshape(Operation *op) {
  FailureOr<Tensor> t = tensor(op->getOperand(0));
  if (failed(t))
    return failure();
  SmallVector<int64_t> shape;
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op)) {
    if (failed(
            indices(getMixedValues(expand.getStaticOutputShape(),
                                   expand.getOutputShape(), op->getContext()),
                    shape)))
      return failure();
  } else {
    for (const ReassociationIndices &dims :
         cast<tensor::CollapseShapeOp>(op).getReassociationIndices()) {
      shape.push_back(1);
      for (int64_t d : dims)
        shape.back() *= t->shape()[d];
    }
  }
  int64_t size = 1;
  for (int64_t d : shape)
    size *= d;
  if (!isSmall(shape) || size != t->size())
    return shared.failure.at(op, "expected " + Twine(t->size()) +
                                     " elements, got sizes " + listed(shape));
  set(op->getResult(0), Cell::of(t->contiguous().reshaped(shape)));
  return success();
}
