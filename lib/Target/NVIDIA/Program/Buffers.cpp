// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ProgramBuilder.h"

#include "fa/Dialect/FA/IR/Matchers.h"

#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

/// A size as the header writes it: an integer or aN.dK; empty if it is neither.
std::string Program::sizeExpression(Value v) {
  if (std::optional<int64_t> c = getConstantIntValue(v))
    return std::to_string(*c);
  if (auto blocks = matchCeilQuotient(v)) {
    std::string size = sizeExpression(blocks->first);
    bool isSize = !size.empty() && !StringRef(size).contains('/');
    return isSize ? size + "/" + std::to_string(blocks->second) : "";
  }
  auto dim = v.getDefiningOp<tensor::DimOp>();
  if (!dim || !dim.getConstantIndex())
    return "";
  unsigned d = *dim.getConstantIndex();
  Value source = dim.getSource();
  auto ranked = dyn_cast<RankedTensorType>(source.getType());
  if (!ranked || d >= ranked.getRank())
    return "";
  if (auto empty = source.getDefiningOp<tensor::EmptyOp>()) {
    if (!empty.getType().isDynamicDim(d))
      return std::to_string(empty.getType().getDimSize(d));
    return sizeExpression(empty.getDynamicSize(d));
  }
  if (auto forall = source.getDefiningOp<scf::ForallOp>()) {
    unsigned n = cast<OpResult>(source).getResultNumber();
    auto type = cast<RankedTensorType>(source.getType());
    if (!type.isDynamicDim(d))
      return std::to_string(type.getDimSize(d));
    if (auto empty = forall.getOutputs()[n].getDefiningOp<tensor::EmptyOp>())
      return sizeExpression(empty.getDynamicSize(d));
    return "";
  }
  auto it = bufferOf.find(source);
  if (it == bufferOf.end())
    return "";
  return "a" + std::to_string(it->second) + ".d" + std::to_string(d);
}

bool fa::nvidia::isZeros(Value v) {
  auto fill = v.getDefiningOp<linalg::FillOp>();
  return fill && matchPattern(fill.getInputs()[0], m_AnyZeroFloat()) &&
         fill.getOutputs()[0].getDefiningOp<tensor::EmptyOp>();
}

/// The new tensor that an output starts from, zeros or nothing; null where it
/// continues another one.
static tensor::EmptyOp newTensor(Value init) {
  if (isZeros(init))
    init = init.getDefiningOp<linalg::FillOp>().getOutputs()[0];
  return init.getDefiningOp<tensor::EmptyOp>();
}

LogicalResult Program::collectBuffers() {
  auto name = [&](DictionaryAttr attrs, StringRef prefix, unsigned i) {
    if (attrs)
      if (auto given = attrs.getAs<StringAttr>("fa.name"))
        return given.str();
    return (prefix + Twine(i)).str();
  };
  for (auto [i, arg] : llvm::enumerate(func.getArguments())) {
    auto type = dyn_cast<RankedTensorType>(arg.getType());
    if (!type)
      return func.emitOpError("expected tensor arguments, got ")
             << arg.getType() << " for argument " << i;
    bufferOf[arg] = buffers.size();
    buffers.push_back(
        {Buffer::Role::In, type, name(func.getArgAttrDict(i), "arg", i), {}});
  }
  auto ret = cast<func::ReturnOp>(func.getBody().front().getTerminator());
  for (auto [i, v] : llvm::enumerate(ret.getOperands())) {
    auto type = dyn_cast<RankedTensorType>(v.getType());
    Buffer buffer = {
        Buffer::Role::Out, type, name(func.getResultAttrDict(i), "out", i), {}};
    buffer.zero = isZeros(v);
    if (!buffer.zero &&
        (!type || !v.getDefiningOp<scf::ForallOp>() || bufferOf.contains(v)))
      return ret.emitOpError("expected every result to be the result of an "
                             "scf.forall, once; result ")
             << i << " is not";
    if (!buffer.zero)
      bufferOf[v] = buffers.size();
    buffers.push_back(buffer);
  }
  // From the last kernel to the first: a kernel that continues an earlier
  // result works in place.
  for (scf::ForallOp forall : llvm::reverse(foralls))
    for (auto [result, init] :
         llvm::zip(forall.getResults(), forall.getOutputs())) {
      if (!bufferOf.contains(result)) {
        bufferOf[result] = buffers.size();
        auto type = cast<RankedTensorType>(result.getType());
        buffers.push_back({Buffer::Role::Temp, type, "", {}});
      }
      buffers[bufferOf[result]].zero |= isZeros(init);
      if (newTensor(init))
        continue;
      if (!init.getDefiningOp<scf::ForallOp>() || !init.hasOneUse())
        return forall.emitOpError(
            "expected its results to start from tensor.empty or from an "
            "earlier scf.forall's result that nothing else reads");
      bufferOf[init] = bufferOf[result];
    }
  for (scf::ForallOp forall : foralls)
    for (auto [result, init] :
         llvm::zip(forall.getResults(), forall.getOutputs())) {
      tensor::EmptyOp empty = newTensor(init);
      if (!empty)
        continue;
      Buffer &buffer = buffers[bufferOf[result]];
      for (int64_t d = 0; d < buffer.type.getRank(); ++d) {
        bool dynamic = buffer.type.isDynamicDim(d);
        buffer.sizes.push_back(dynamic
                                   ? sizeExpression(empty.getDynamicSize(d))
                                   : std::to_string(buffer.type.getDimSize(d)));
        if (buffer.sizes.back().empty())
          return forall.emitOpError("has a result whose size ")
                 << d << " is not a constant or the size of an argument";
        if (dynamic && buffer.role == Buffer::Role::Out)
          same.push_back("a" + std::to_string(bufferOf[result]) + ".d" +
                         std::to_string(d) + "=" + buffer.sizes.back());
      }
    }
  return success();
}

//===----------------------------------------------------------------------===//
// What a launch must check
//===----------------------------------------------------------------------===//

void Program::sameSize(Value tensor, unsigned dim, Value bound) {
  auto it = bufferOf.find(tensor);
  auto type = cast<RankedTensorType>(tensor.getType());
  std::string is = sizeExpression(bound);
  if (it == bufferOf.end() || !type.isDynamicDim(dim) || is.empty())
    return;
  // A temporary is allocated in that size: nothing to check.
  if (buffers[it->second].role == Buffer::Role::Temp)
    return;
  std::string name =
      "a" + std::to_string(it->second) + ".d" + std::to_string(dim);
  std::string line = name < is ? name + "=" + is : is + "=" + name;
  if (name != is && !llvm::is_contained(same, line))
    same.push_back(line);
}

/// The tensor.dim operations outside a region that a value is computed from.
static void collectDims(Value v, Region &region, SmallVectorImpl<Value> &dims,
                        unsigned depth = 0) {
  Operation *op = v.getDefiningOp();
  if (!op || depth > 8)
    return;
  if (isa<tensor::DimOp>(op)) {
    dims.push_back(v);
    return;
  }
  if (region.isAncestor(op->getParentRegion()))
    for (Value operand : op->getOperands())
      collectDims(operand, region, dims, depth + 1);
}

/// A slice's offset that runs to the size of one tensor must stay inside the
/// tensor it cuts.
void Program::requireSameSizes(scf::ForallOp forall) {
  forall.walk([&](tensor::ExtractSliceOp slice) {
    if (!bufferOf.contains(slice.getSource()))
      return;
    for (auto [d, offset, size] :
         llvm::enumerate(slice.getMixedOffsets(), slice.getMixedSizes())) {
      SmallVector<Value> dims;
      if (auto v = dyn_cast<Value>(size)) {
        collectDims(v, forall.getRegion(), dims);
      } else if (auto v = dyn_cast<Value>(offset)) {
        auto arg = dyn_cast<BlockArgument>(v);
        if (arg && arg.getOwner()->getParentOp() == forall &&
            arg.getArgNumber() < forall.getRank())
          if (auto bound = dyn_cast<Value>(
                  forall.getMixedUpperBound()[arg.getArgNumber()]))
            dims.push_back(bound);
      }
      if (dims.size() == 1)
        sameSize(slice.getSource(), d, dims.front());
    }
  });
}
