// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One launch of a program: which tensors and words its kernel takes, which
// blocks it has, and the line that describes it.

#include "ProgramBuilder.h"

#include "fa/Dialect/Hopper/Transforms/Followers.h"

#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

Program::Launch::Launch(Program &program, scf::ForallOp forall,
                        const BlockView &view, ArrayRef<std::string> grid,
                        ArrayRef<TensorMap> tensorMaps)
    : program(program), forall(forall), follower(hopper::followerOf(forall)),
      parts{forall}, view(view), grid(grid), tensorMaps(tensorMaps),
      apart(findOrder(forall)), k(forall.getLoc()) {
  name = program.func.getName().str() + "_kernel";
  if (program.foralls.size() > 1)
    name += std::to_string(program.launches.size());
  if (follower)
    parts.push_back(follower);
  if (auto queues = forall.getBody()->getOps<hopper::TileQueueOp>();
      !queues.empty())
    queue = *queues.begin();
  for (scf::ForallOp part : parts) {
    getUsedValuesDefinedAbove(part->getRegions(), captured);
    for (Value v : part.getOutputs())
      captured.insert(v);
  }
}

/// The kernel takes a buffer of the program.
void Program::Launch::use(unsigned buffer) {
  if (!llvm::is_contained(k.order, buffer))
    k.order.push_back(buffer);
}

void Program::Launch::useTensors() {
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
    if (auto it = program.bufferOf.find(v); it != program.bufferOf.end())
      use(it->second);
    else if (Operation *op = v.getDefiningOp(); op && !isa<scf::ForallOp>(op))
      work.append(op->operand_begin(), op->operand_end());
  }
  for (scf::ForallOp part : parts)
    for (Value result : part.getResults())
      use(program.bufferOf[result]);
}

void Program::Launch::useWords() {
  wordsPerBlock = view.handedSum()   ? view.consumers().getWarpgroups()
                  : view.consumers() ? view.warps()
                                     : 1;
  if (apart) {
    SmallVector<std::string> sizes(grid);
    if (wordsPerBlock > 1)
      sizes.push_back(std::to_string(wordsPerBlock));
    use(words = program.addWords(forall, sizes));
    // A queue has a counter of its own.
    if (!queue)
      use(counter = program.addWords(forall, {"1"}));
  }
  if (!follower)
    return;
  SmallVector<std::string> sizes(ArrayRef(grid).drop_back());
  zeroed = program.zeroedInLaunch(forall, follower);
  wordsOfGroup =
      zeroed.empty() ? FollowerGrid::words : FollowerGrid::wordsWithZeros;
  sizes.push_back(std::to_string(wordsOfGroup / 2));
  use(groups = program.addWords(forall, sizes));
  use(taken = program.addWords(forall, {"1"}));
  // What other blocks add while the kernel runs is not to be loaded as what
  // nobody writes.
  for (Value result : forall.getResults())
    if (captured.contains(result))
      changing.push_back(program.bufferOf[result]);
}

void Program::Launch::bindTensors(KernelEmitter &to, scf::ForallOp part) {
  for (auto &[value, buffer] : program.bufferOf)
    if (tensorOf.contains(buffer))
      to.bindGlobal(value, tensorOf[buffer]);
  for (auto [argument, init, result] : llvm::zip(
           part.getRegionIterArgs(), part.getOutputs(), part.getResults()))
    for (Value v : {Value(argument), Value(init)})
      to.bindGlobal(v, tensorOf[program.bufferOf[result]]);
}

void Program::Launch::bindMaps(KernelEmitter &emitter) {
  for (auto [map, pointer] : llvm::zip(tensorMaps, k.mapPointers)) {
    emitter.bindMap(map, pointer);
    auto it = llvm::find(program.maps, map);
    mapNumbers.push_back(std::to_string(it - program.maps.begin()));
    if (it == program.maps.end())
      program.maps.push_back(map);
  }
}

/// Numbers and constants, which blocks read wherever they do.
LogicalResult Program::Launch::emitScalars(KernelEmitter &emitter) {
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
  return success();
}

/// Which tile a number is, and for whom it waits.
void Program::Launch::orderTiles(TileGrid &tiles) {
  // The longest first. What is waited for comes before, and is the block that
  // is further by itself: of two that begin at different places of what they
  // add to, the one that begins later.
  Value last = forall.getInductionVars().back();
  bool backwards =
      apart ? beginsDependOn(forall, last) : endsDependOn(forall, last);
  tiles.decode = [this, backwards](Value tile) {
    if (!apart && !(queue && queue.getLongestFirst()))
      return k.decode(forall, tile, counts, backwards);
    // In the one place where it is needed: no register keeps it.
    auto sumsOf = [&](Value memory) {
      auto argument = cast<BlockArgument>(memory);
      return tensorOf[program.bufferOf[forall.getTiedOpResult(
          forall.getTiedOpOperand(argument))]];
    };
    Value section =
        apart ? k.sectionOfSums(forall, view.target().l2Bytes, sumsOf)
              : arith::ConstantIndexOp::create(k.b, k.loc, queue.getSection())
                    .getResult();
    return k.decodeInSections(forall, tile, counts, section, backwards);
  };
  if (apart)
    tiles.turns = [this, backwards](ArrayRef<Value> ivs) {
      return k.turnsOf(forall, ivs, counts, *tensorOf[words], wordsPerBlock,
                       backwards);
    };
}

/// Blocks of roles, which take tiles from a queue, with those that follow.
LogicalResult Program::Launch::emitRoles(KernelEmitter &emitter, Value shared) {
  TileGrid tiles;
  tiles.count = k.total(counts);
  tiles.counter = k.queueCounter;
  tiles.flag = k.queueFlag;
  orderTiles(tiles);
  if (!follower)
    return emitter.emitSpecialized(forall, tiles);
  FailureOr<BlockView> itsView = BlockView::of(follower);
  if (failed(itsView))
    return failure();
  // With scalars as they are known here, not in a role.
  KernelEmitter bounds = emitter, following(*itsView, k.b, k.loc, shared);
  bindTensors(following, follower);
  auto emitterOf = [&](ArrayRef<Value> numbers) {
    KernelEmitter one = following;
    for (auto [iv, value] : llvm::zip(follower.getInductionVars(), numbers))
      one.bindScalar(iv, value);
    return one;
  };
  tiles.follower = k.gridOfFollower(
      forall, follower, bounds, *tensorOf[groups], wordsOfGroup,
      queue.getLongestFirst() ? queue.getSection() : 1);
  tiles.follower->scratch = hopper::scratchOf(follower);
  tiles.counter = LLVM::PtrToIntOp::create(k.b, k.loc, k.b.getI64Type(),
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
  return emitter.emitSpecialized(forall, tiles);
}

/// Blocks of which each has one tile.
LogicalResult Program::Launch::emitBlocks(KernelEmitter &emitter) {
  SmallVector<Value> ivs;
  if (apart) {
    Value section = arith::ConstantIndexOp::create(k.b, k.loc, kSection);
    ivs = k.decodeInSections(forall,
                             emitter.drawNumber(tensorOf[counter]->pointer),
                             counts, section, /*descending=*/false);
  } else {
    Value block = arith::IndexCastOp::create(
        k.b, k.loc, k.b.getIndexType(),
        NVVM::BlockIdXOp::create(k.b, k.loc, k.b.getI32Type()));
    bool descending = endsDependOn(forall, forall.getInductionVars().back());
    ivs = k.decode(forall, block, counts, descending);
  }
  for (auto [iv, value] : llvm::zip(forall.getInductionVars(), ivs))
    emitter.bindScalar(iv, value);
  if (apart)
    emitter.beginTurns(k.turnsOf(forall, ivs, counts, *tensorOf[words],
                                 wordsPerBlock,
                                 /*backwards=*/false),
                       *apart);
  LogicalResult emitted = view.isElementwise() ? emitter.emitElements(forall)
                          : view.findSharedRows()
                              ? emitter.emitRows(forall)
                              : emitter.emitBlock(*forall.getBody());
  if (succeeded(emitted) && apart)
    emitter.endTurns();
  return emitted;
}

LogicalResult Program::Launch::emit(gpu::GPUModuleOp module) {
  if (follower && failed(hopper::verifyFollower(follower, view.sharedBytes())))
    return failure();
  useTensors();
  useWords();
  llvm::sort(k.order);
  k.b.setInsertionPointToEnd(module.getBody());
  k.makeFunction(name, program.buffers, view.blockThreads(), tensorMaps.size(),
                 queue && !follower, changing);
  for (const GlobalTensor &tensor : k.tensors)
    tensorOf[tensor.buffer] = &tensor;
  auto shared = LLVM::AddressOfOp::create(
      k.b, k.loc, LLVM::LLVMPointerType::get(k.b.getContext(), 3), "fa_smem");
  KernelEmitter emitter(view, k.b, k.loc, shared);
  bindMaps(emitter);
  bindTensors(emitter, forall);
  if (failed(emitScalars(emitter)) ||
      failed(view.consumers() ? emitRoles(emitter, shared)
                              : emitBlocks(emitter)))
    return failure();
  gpu::ReturnOp::create(k.b, k.loc);
  for (unsigned buffer : emitter.alignedBuffers)
    program.buffers[buffer].aligned = true;
  program.hasLeast |= follower != nullptr;
  for (scf::ForallOp part : parts)
    program.requireSameSizes(part);
  return success();
}

std::string Program::Launch::line() const {
  // A block's number goes through it.
  int64_t sharedBytes = std::max<int64_t>(view.sharedBytes(), apart ? 4 : 0);
  auto args = llvm::map_to_vector(
      k.order, [](unsigned buffer) { return std::to_string(buffer); });
  return "kernel=" + name + " block=" + std::to_string(view.blockThreads()) +
         " smem=" + std::to_string(sharedBytes) +
         " grid=" + llvm::join(grid, "*") + " args=" + llvm::join(args, ",") +
         (mapNumbers.empty() ? "" : " maps=" + llvm::join(mapNumbers, ",")) +
         (queue ? " waves=1" : "") + (follower ? " least=1" : "") +
         (queue && !follower ? " queue=1" : "") + program.preparesOf(forall);
}
