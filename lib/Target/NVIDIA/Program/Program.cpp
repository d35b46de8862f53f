// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the kernels of a function, gives them their parameters, grid and
// description, and lets KernelEmitter emit their bodies.

#include "Program.h"

#include "ProgramBuilder.h"

#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/Hopper/Transforms/Adders.h"
#include "fa/Dialect/Hopper/Transforms/Followers.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
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
    if (!llvm::is_contained(found, map))
      found.push_back(map);
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
/// measured on an H100 (benchmarks/HISTORY.md, "Where P waits in f32, and zeros
/// in the launch"): not rows of 128 numbers, nor by one warp; for rows of 16
/// its registers do not do.
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

LogicalResult Program::emitKernel(scf::ForallOp forall,
                                  gpu::GPUModuleOp module) {
  // Then it is a part of the launch before.
  if (hopper::followedBy(forall))
    return success();
  if (forall->hasAttr(hopper::followsName))
    return hopper::verifyFollower(forall, 0);
  std::string name = func.getName().str() + "_kernel";
  if (foralls.size() > 1)
    name += std::to_string(launches.size());
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

  std::optional<int64_t> apart = findOrder(forall);
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

  scf::ForallOp follower = hopper::followerOf(forall);
  if (follower && failed(hopper::verifyFollower(follower, view->sharedBytes())))
    return failure();
  SmallVector<scf::ForallOp> parts{forall};
  if (follower)
    parts.push_back(follower);
  SetVector<Value> captured;
  for (scf::ForallOp part : parts) {
    getUsedValuesDefinedAbove(part->getRegions(), captured);
    for (Value v : part.getOutputs())
      captured.insert(v);
  }
  SmallVector<unsigned> order;
  auto use = [&](unsigned buffer) {
    if (!llvm::is_contained(order, buffer))
      order.push_back(buffer);
  };
  // Scalars are computed from sizes of tensors, whose kernels need them too.
  SmallVector<Value> work(captured.begin(), captured.end());
  for (scf::ForallOp part : parts)
    for (OpFoldResult bound : part.getMixedUpperBound())
      if (auto v = dyn_cast<Value>(bound))
        work.push_back(v);
  while (!work.empty()) {
    Value v = work.pop_back_val();
    if (isZeros(v))
      continue;
    if (auto it = bufferOf.find(v); it != bufferOf.end())
      use(it->second);
    else if (Operation *op = v.getDefiningOp(); op && !isa<scf::ForallOp>(op))
      work.append(op->operand_begin(), op->operand_end());
  }
  for (scf::ForallOp part : parts)
    for (Value result : part.getResults())
      use(bufferOf[result]);
  auto queues = forall.getBody()->getOps<hopper::TileQueueOp>();
  hopper::TileQueueOp queue =
      queues.empty() ? hopper::TileQueueOp() : *queues.begin();
  unsigned words = 0, counter = 0;
  int64_t wordsPerBlock = view->handedSum() ? view->consumers().getWarpgroups()
                          : view->consumers() ? view->warps()
                                              : 1;
  if (apart) {
    SmallVector<std::string> wordSizes(sizes);
    if (wordsPerBlock > 1)
      wordSizes.push_back(std::to_string(wordsPerBlock));
    use(words = addWords(forall, wordSizes));
    // A queue has a counter of its own.
    if (!queue)
      use(counter = addWords(forall, {"1"}));
  }
  unsigned groups = 0, taken = 0;
  int64_t wordsOfGroup = 0;
  // What other blocks add while the kernel runs is not to be loaded as what
  // nobody writes.
  SmallVector<unsigned> changing, zeroed;
  if (follower) {
    SmallVector<std::string> wordSizes(ArrayRef(sizes).drop_back());
    zeroed = zeroedInLaunch(forall, follower);
    wordsOfGroup =
        zeroed.empty() ? FollowerGrid::words : FollowerGrid::wordsWithZeros;
    wordSizes.push_back(std::to_string(wordsOfGroup / 2));
    use(groups = addWords(forall, wordSizes));
    use(taken = addWords(forall, {"1"}));
    for (Value result : forall.getResults())
      if (captured.contains(result))
        changing.push_back(bufferOf[result]);
  }
  llvm::sort(order);

  Location loc = forall.getLoc();
  KernelBuilder k{
      OpBuilder::atBlockEnd(module.getBody()), loc, {}, order, {}, {}, {}, {}};
  k.makeFunction(name, buffers, view->blockThreads(), tensorMaps->size(),
                 queue && !follower, changing);
  auto shared = LLVM::AddressOfOp::create(
      k.b, loc, LLVM::LLVMPointerType::get(k.b.getContext(), 3), "fa_smem");
  KernelEmitter emitter(*view, k.b, loc, shared);
  std::string mapNumbers;
  for (auto [map, pointer] : llvm::zip(*tensorMaps, k.mapPointers)) {
    emitter.bindMap(map, pointer);
    auto it = llvm::find(maps, map);
    mapNumbers +=
        (mapNumbers.empty() ? "" : ",") + std::to_string(it - maps.begin());
    if (it == maps.end())
      maps.push_back(map);
  }
  DenseMap<unsigned, const GlobalTensor *> tensorOf;
  for (const GlobalTensor &t : k.tensors)
    tensorOf[t.buffer] = &t;
  auto bindTensors = [&](KernelEmitter &to, scf::ForallOp part) {
    for (auto &entry : bufferOf)
      if (tensorOf.contains(entry.second))
        to.bindGlobal(entry.first, tensorOf[entry.second]);
    for (auto [argument, init, result] : llvm::zip(
             part.getRegionIterArgs(), part.getOutputs(), part.getResults()))
      for (Value v : {Value(argument), Value(init)})
        to.bindGlobal(v, tensorOf[bufferOf[result]]);
  };
  bindTensors(emitter, forall);

  bool descending = endsDependOn(forall, forall.getInductionVars().back());
  SmallVector<Value> counts;
  if (failed(k.countTiles(forall, emitter, counts)))
    return failure();
  if (follower)
    for (Value bound : follower.getDynamicUpperBound())
      if (!emitter.scalar(bound))
        return failure();
  for (Value v : captured)
    if (!isa<TensorType>(v.getType()) && !emitter.scalar(v))
      return failure();
    else if (auto constant = v.getDefiningOp<arith::ConstantOp>();
             constant && isa<TensorType>(v.getType()))
      if (failed(emitter.emitConstantTile(constant)))
        return failure();
  if (view->consumers()) {
    TileGrid tiles;
    tiles.count = k.total(counts);
    tiles.counter = k.queueCounter;
    tiles.flag = k.queueFlag;
    // The longest first. What is waited for comes before, and is the block that
    // is further by itself: of two that begin at different places of what they
    // add to, the one that begins later.
    bool backwards = descending;
    if (apart)
      backwards = beginsDependOn(forall, forall.getInductionVars().back());
    // In the one place where it is needed: no register keeps it.
    auto sumsOf = [&](Value memory) {
      auto argument = cast<BlockArgument>(memory);
      return tensorOf[bufferOf[forall.getTiedOpResult(
          forall.getTiedOpOperand(argument))]];
    };
    tiles.decode = [&](Value tile) {
      if (!apart && !(queue && queue.getLongestFirst()))
        return k.decode(forall, tile, counts, backwards);
      Value section =
          apart ? k.sectionOfSums(forall, view->target().l2Bytes, sumsOf)
                : arith::ConstantIndexOp::create(k.b, loc, queue.getSection())
                      .getResult();
      return k.decodeInSections(forall, tile, counts, section, backwards);
    };
    if (apart)
      tiles.turns = [&](ArrayRef<Value> ivs) {
        return k.turnsOf(forall, ivs, counts, *tensorOf[words], wordsPerBlock,
                         backwards);
      };
    FailureOr<BlockView> itsView = follower ? BlockView::of(follower) : view;
    if (failed(itsView))
      return failure();
    // With scalars as they are known here, not in a role.
    KernelEmitter bounds = emitter, following(*itsView, k.b, loc, shared);
    auto emitterOf = [&](ArrayRef<Value> numbers) {
      KernelEmitter one = following;
      for (auto [iv, value] : llvm::zip(follower.getInductionVars(), numbers))
        one.bindScalar(iv, value);
      return one;
    };
    if (follower) {
      bindTensors(following, follower);
      tiles.follower = k.gridOfFollower(
          forall, follower, bounds, *tensorOf[groups], wordsOfGroup,
          queue.getLongestFirst() ? queue.getSection() : 1);
      tiles.follower->scratch = hopper::scratchOf(follower);
      tiles.counter = LLVM::PtrToIntOp::create(k.b, loc, k.b.getI64Type(),
                                               tensorOf[taken]->pointer);
      tiles.follower->emit = [&](ArrayRef<Value> numbers, Value thread,
                                 unsigned steps, Value scratch) {
        KernelEmitter one = emitterOf(numbers);
        LogicalResult emitted =
            one.emitElements(follower, thread, 32, steps, scratch);
        emitter.alignedBuffers.insert(one.alignedBuffers.begin(),
                                      one.alignedBuffers.end());
        return emitted;
      };
      if (!zeroed.empty())
        tiles.follower->zero = [&](ArrayRef<Value> numbers, Value thread) {
          return emitterOf(numbers).emitZeros(follower, thread, 32, zeroed);
        };
    }
    if (failed(emitter.emitSpecialized(forall, tiles)))
      return failure();
  } else {
    SmallVector<Value> ivs;
    if (apart) {
      Value section = arith::ConstantIndexOp::create(k.b, loc, kSection);
      ivs = k.decodeInSections(forall,
                               emitter.drawNumber(tensorOf[counter]->pointer),
                               counts, section, /*descending=*/false);
    } else {
      Value block = arith::IndexCastOp::create(
          k.b, loc, k.b.getIndexType(),
          NVVM::BlockIdXOp::create(k.b, loc, k.b.getI32Type()));
      ivs = k.decode(forall, block, counts, descending);
    }
    for (auto [iv, value] : llvm::zip(forall.getInductionVars(), ivs))
      emitter.bindScalar(iv, value);
    if (apart)
      emitter.beginTurns(k.turnsOf(forall, ivs, counts, *tensorOf[words],
                                   wordsPerBlock,
                                   /*backwards=*/false),
                         *apart);
    if (view->isElementwise()    ? failed(emitter.emitElements(forall))
        : view->findSharedRows() ? failed(emitter.emitRows(forall))
                                 : failed(emitter.emitBlock(*forall.getBody())))
      return failure();
    if (apart)
      emitter.endTurns();
  }
  gpu::ReturnOp::create(k.b, loc);

  // A block's number goes through it.
  int64_t sharedBytes = std::max<int64_t>(view->sharedBytes(), apart ? 4 : 0);
  for (unsigned buffer : emitter.alignedBuffers)
    buffers[buffer].aligned = true;
  std::string args;
  for (unsigned buffer : order)
    args += (args.empty() ? "" : ",") + std::to_string(buffer);
  launches.push_back(
      "kernel=" + name + " block=" + std::to_string(view->blockThreads()) +
      " smem=" + std::to_string(sharedBytes) +
      " grid=" + llvm::join(sizes, "*") + " args=" + args +
      (mapNumbers.empty() ? "" : " maps=" + mapNumbers) +
      (queue ? " waves=1" : "") + (follower ? " least=1" : "") +
      (queue && !follower ? " queue=1" : "") + preparesOf(forall));
  hasLeast |= follower != nullptr;
  for (scf::ForallOp part : parts)
    requireSameSizes(part);
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
