// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the kernels of a function, one after the other, and gives them their
// grids, parameters and tensor maps. How each is emitted and described is in
// Launch.cpp.

#include "Program.h"

#include "ProgramBuilder.h"

#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/Hopper/Transforms/Adders.h"
#include "fa/Dialect/Hopper/Transforms/Followers.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

void KernelBuilder::makeFunction(StringRef name, ArrayRef<Buffer> buffers,
                                 int64_t threads, unsigned numMaps,
                                 bool hasQueue, ArrayRef<unsigned> changing) {
  auto pointer = LLVM::LLVMPointerType::get(b.getContext(), 1);
  SmallVector<Type> types;
  for (unsigned buffer : order) {
    types.push_back(pointer);
    types.append(2 * buffers[buffer].type.getRank(), b.getI64Type());
  }
  if (hasQueue)
    types.append(2, b.getI64Type());
  unsigned firstMap = types.size();
  types.append(numMaps, LLVM::LLVMPointerType::get(b.getContext()));
  kernel = gpu::GPUFuncOp::create(b, loc, name, b.getFunctionType(types, {}));
  kernel->setAttr(gpu::GPUDialect::getKernelFuncAttrName(), b.getUnitAttr());
  kernel.setKnownBlockSizeAttr(
      b.getDenseI32ArrayAttr({int32_t(threads), 1, 1}));
  // Where fa-finish-kernels finds the tensor maps.
  if (numMaps)
    kernel->setAttr("fa.first_map", b.getI64IntegerAttr(firstMap));
  b.setInsertionPointToStart(&kernel.getBody().front());
  for (unsigned i = 0; i < numMaps; ++i)
    mapPointers.push_back(kernel.getArgument(firstMap + i));
  if (hasQueue) {
    queueCounter = kernel.getArgument(firstMap - 2);
    queueFlag = kernel.getArgument(firstMap - 1);
  }
  unsigned at = 0;
  for (unsigned buffer : order) {
    GlobalTensor t;
    t.buffer = buffer;
    t.type = buffers[buffer].type;
    int64_t rank = t.type.getRank();
    if (!llvm::is_contained(changing, buffer))
      kernel.setArgAttr(at, LLVM::LLVMDialect::getNoAliasAttrName(),
                        b.getUnitAttr());
    t.pointer = kernel.getArgument(at);
    for (int64_t d = 0; d < rank; ++d) {
      Value size = kernel.getArgument(at + 1 + d);
      t.sizes.push_back(t.type.isDynamicDim(d)
                            ? Value(arith::IndexCastOp::create(
                                  b, loc, b.getIndexType(), size))
                            : Value(arith::ConstantIndexOp::create(
                                  b, loc, t.type.getDimSize(d))));
      t.strides.push_back(kernel.getArgument(at + 1 + rank + d));
    }
    // A temporary buffer is row-major: what follows in few registers adds
    // numbers then.
    bool isKnown = buffers[buffer].role == Buffer::Role::Temp &&
                   llvm::is_contained(changing, buffer);
    int64_t stride = 1;
    for (int64_t d = rank; isKnown && d-- > 0; stride *= t.type.getDimSize(d)) {
      t.strides[d] = arith::ConstantIntOp::create(b, loc, stride, 64);
      isKnown = !t.type.isDynamicDim(d);
    }
    tensors.push_back(t);
    at += 1 + 2 * rank;
  }
}

/// The tensor maps that a block's TMA loads, stores and reductions need.
FailureOr<SmallVector<TensorMap>> Program::collectMaps(scf::ForallOp forall) {
  SmallVector<TensorMap> found;
  // Stores of what is staged: into the results, by warpgroup.
  forall.getTerminator()->walk([&](tensor::ParallelInsertSliceOp insert) {
    auto role = insert.getSource().getDefiningOp<hopper::ConsumersOp>();
    if (!role)
      return;
    unsigned number = cast<OpResult>(insert.getSource()).getResultNumber();
    Value source = role.getBody().front().getTerminator()->getOperand(number);
    if (auto slice = source.getDefiningOp<tensor::ExtractSliceOp>())
      source = slice.getSource();
    if (!source.getDefiningOp<hopper::StageOp>())
      return;
    BlockArgument arg = cast<BlockArgument>(insert.getDest());
    Value result = forall.getTiedOpResult(forall.getTiedOpOperand(arg));
    TensorMap map{bufferOf[result], firstKeptDim(insert.getDroppedDims()),
                  hopper::warpgroupRows};
    if (!llvm::is_contained(found, map))
      found.push_back(map);
  });
  // Sums of what is staged, by warp or by warpgroup.
  forall.walk([&](AccumulateSliceOp sum) {
    hopper::StageOp stage = hopper::stageOf(sum);
    if (!stage)
      return;
    auto [memory, dim] =
        memoryOf(sum.getInit(), firstKeptDim(sum.getDroppedDims()));
    auto argument = dyn_cast<BlockArgument>(memory);
    if (!argument || argument.getOwner() != forall.getBody())
      return;
    TensorMap map{
        bufferOf[forall.getTiedOpResult(forall.getTiedOpOperand(argument))],
        dim, stage.addedRows(), stage.sumCols()};
    if (!llvm::is_contained(found, map))
      found.push_back(map);
  });
  WalkResult walk = forall.walk([&](hopper::LoadOp load) {
    if (load.getRing().getType().isVector())
      return WalkResult::advance();
    SmallVector<Operation *> chain = getLoadChain(load.getTile());
    if (chain.empty()) {
      load.emitOpError("expected a slice of a tensor in global memory");
      return WalkResult::interrupt();
    }
    auto slice = cast<tensor::ExtractSliceOp>(chain.back());
    auto it = bufferOf.find(slice.getSource());
    if (it == bufferOf.end()) {
      load.emitOpError("expected a slice of an argument or a temporary");
      return WalkResult::interrupt();
    }
    TensorMap map{it->second, firstKeptDim(slice.getDroppedDims()),
                  load.getRing().getType().rows()};
    SmallVector<TensorMap> needed{map};
    if (load.getByRows()) {
      map.rows = 1;
      needed.push_back(map);
    }
    for (const TensorMap &each : needed)
      if (!llvm::is_contained(found, each))
        found.push_back(each);
    return WalkResult::advance();
  });
  if (walk.wasInterrupted())
    return failure();
  return found;
}

/// Lists of blocks depend on the arguments whose elements they are made of, and
/// on sizes: callers may use them again.
std::string Program::preparesOf(scf::ForallOp forall) {
  if (forall.getBody()->getOps<ListBlocksOp>().empty())
    return "";
  llvm::SmallSetVector<unsigned, 4> reads;
  forall.walk([&](tensor::ExtractOp op) {
    if (auto it = bufferOf.find(op.getTensor()); it != bufferOf.end())
      reads.insert(it->second);
  });
  std::string text;
  for (unsigned buffer : reads)
    text += (text.empty() ? "" : ",") + std::to_string(buffer);
  return " prepares=" + (text.empty() ? "-" : text);
}

/// Words of 64 bits that blocks share, 0 before the first kernel.
unsigned Program::addWords(scf::ForallOp forall, ArrayRef<std::string> sizes) {
  SmallVector<int64_t> shape(sizes.size(), ShapedType::kDynamic);
  auto type =
      RankedTensorType::get(shape, IntegerType::get(forall.getContext(), 64));
  Buffer buffer = {Buffer::Role::Temp, type, "",
                   SmallVector<std::string>(sizes)};
  buffer.zero = true;
  buffers.push_back(buffer);
  return buffers.size() - 1;
}

/// Sums that begin with zeros and that nobody reads but what follows: the
/// kernel's free warps zero what that reads, and nobody does it before. As
/// measured on an H100
/// (benchmarks/experiments/2026-11-28-zeros-in-launch.md): not rows of 128
/// numbers, nor by one warp; for rows of 16 its registers do not do.
SmallVector<unsigned> Program::zeroedInLaunch(scf::ForallOp forall,
                                              scf::ForallOp follower) {
  SmallVector<unsigned> zeroed;
  constexpr int64_t fewestWarps = 2, fewestColumns = 32, mostColumns = 64;
  if (hopper::freeWarps(forall) < fewestWarps)
    return zeroed;
  for (auto [result, init] :
       llvm::zip(forall.getResults(), forall.getOutputs())) {
    Buffer &buffer = buffers[bufferOf[result]];
    bool isFollowed = llvm::all_of(result.getUsers(), [&](Operation *user) {
      return isa<tensor::DimOp>(user) || follower->isProperAncestor(user);
    });
    int64_t columns = buffer.type.getShape().back();
    if (buffer.role != Buffer::Role::Temp || !isZeros(init) || !isFollowed ||
        columns < fewestColumns || columns > mostColumns)
      continue;
    buffer.zero = false;
    zeroed.push_back(bufferOf[result]);
  }
  return zeroed;
}

/// A kernel's grid, a size for each dimension of blocks, as expressions.
FailureOr<SmallVector<std::string>> Program::gridOf(scf::ForallOp forall) {
  SmallVector<std::string> sizes;
  for (auto [lower, upper, step] :
       llvm::zip(forall.getMixedLowerBound(), forall.getMixedUpperBound(),
                 forall.getMixedStep())) {
    std::optional<int64_t> s = getConstantIntValue(step);
    if (!isConstantIntValue(lower, 0) || !s)
      return forall.emitOpError(
          "expected bounds from 0 and constant steps to make a grid");
    std::string size;
    if (std::optional<int64_t> u = getConstantIntValue(upper))
      size = std::to_string(llvm::divideCeil(*u, *s));
    else if (size = sizeExpression(cast<Value>(upper)); size.empty())
      return forall.emitOpError(
          "expected upper bounds that are sizes of arguments to make a grid");
    else if (*s != 1)
      size += "/" + std::to_string(*s);
    sizes.push_back(size);
  }
  return sizes;
}

LogicalResult Program::emitKernel(scf::ForallOp forall,
                                  gpu::GPUModuleOp module) {
  // Then it is a part of the launch before.
  if (hopper::followedBy(forall))
    return success();
  if (forall->hasAttr(hopper::followsName))
    return hopper::verifyFollower(forall, 0);
  FailureOr<SmallVector<std::string>> grid = gridOf(forall);
  if (failed(grid))
    return failure();
  FailureOr<BlockView> view = BlockView::of(forall);
  FailureOr<SmallVector<TensorMap>> tensorMaps = collectMaps(forall);
  if (failed(view) || failed(tensorMaps))
    return failure();
  if (chip.empty())
    chip = view->target().name;
  if (chip != view->target().name)
    return forall.emitOpError("expected one target for a function's kernels, "
                              "got ")
           << chip << " and " << view->target().name;
  Launch launch(*this, forall, *view, *grid, *tensorMaps);
  if (failed(launch.emit(module)))
    return failure();
  launches.push_back(launch.line());
  return success();
}

LogicalResult Program::build(OpBuilder &builder) {
  for (Operation &op : func.getBody().front()) {
    if (auto forall = dyn_cast<scf::ForallOp>(op))
      foralls.push_back(forall);
    else if (!isPure(&op) && !isa<func::ReturnOp>(op))
      return op.emitOpError("expected only scf.forall beside scalars in a "
                            "function to schedule");
  }
  if (failed(collectBuffers()))
    return failure();
  auto module = gpu::GPUModuleOp::create(builder, func.getLoc(),
                                         func.getName().str() + "_gpu");
  OpBuilder inner = OpBuilder::atBlockBegin(module.getBody());
  auto bytes = LLVM::LLVMArrayType::get(inner.getI8Type(), 0);
  LLVM::GlobalOp::create(inner, func.getLoc(), bytes, /*isConstant=*/false,
                         LLVM::Linkage::External, "fa_smem", Attribute(),
                         /*alignment=*/hopper::tileAlignment, /*addrSpace=*/3);
  for (scf::ForallOp forall : foralls)
    if (failed(emitKernel(forall, module)))
      return failure();
  SmallVector<Attribute> lines;
  for (const std::string &line : header())
    lines.push_back(builder.getStringAttr(line));
  module->setAttr("fa.program", builder.getArrayAttr(lines));
  return success();
}

LogicalResult fa::nvidia::buildProgram(func::FuncOp func, OpBuilder &builder) {
  return Program(func).build(builder);
}
