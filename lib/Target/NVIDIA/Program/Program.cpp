// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the kernels of a function, gives them their parameters, grid and
// description, and lets KernelEmitter emit their bodies.

#include "Program.h"

#include "../../../Conversion/TilesToThreads/KernelEmitter.h"

#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/Hopper/Transforms/Adders.h"

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

namespace {

/// A tensor of the program: an argument, a result, or a temporary.
struct Buffer {
  enum class Role { In, Out, Temp } role;
  RankedTensorType type;
  std::string name;
  /// The sizes as expressions over arguments; empty for an unknown size.
  SmallVector<std::string> sizes;
  bool aligned = false;
  /// Zeroed before the first kernel.
  bool zero = false;
};

/// Collects what describes a program while its kernels are made.
class Program {
public:
  explicit Program(func::FuncOp func) : func(func) {}
  LogicalResult build(OpBuilder &builder);

private:
  LogicalResult collectBuffers();
  LogicalResult emitKernel(scf::ForallOp forall, gpu::GPUModuleOp module);
  std::string sizeExpression(Value v);
  void requireSameSizes(scf::ForallOp forall);
  FailureOr<SmallVector<TensorMap>> collectMaps(scf::ForallOp forall);
  void sameSize(Value tensor, unsigned dim, Value bound);
  SmallVector<std::string> header();
  std::string preparesOf(scf::ForallOp forall);
  unsigned addWords(scf::ForallOp forall, ArrayRef<std::string> sizes);

  func::FuncOp func;
  std::string chip;
  SmallVector<scf::ForallOp> foralls;
  SmallVector<Buffer> buffers;
  DenseMap<Value, unsigned> bufferOf;
  SmallVector<std::string> launches, same;
  /// The tensor maps of all launches, as the header numbers them.
  SmallVector<TensorMap> maps;
};

} // namespace

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

/// A new tensor of zeros.
static bool isZeros(Value v) {
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

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

namespace {
/// Makes one kernel.
struct KernelBuilder {
  OpBuilder b;
  Location loc;
  gpu::GPUFuncOp kernel;
  SmallVector<unsigned> order;
  std::vector<GlobalTensor> tensors;
  SmallVector<Value> mapPointers;

  void makeFunction(StringRef name, ArrayRef<Buffer> buffers, int64_t threads,
                    unsigned numMaps, bool hasQueue);
  Value queueCounter, queueFlag;

  LogicalResult countTiles(scf::ForallOp forall, KernelEmitter &emitter,
                           SmallVectorImpl<Value> &counts);
  Value total(ArrayRef<Value> counts);
  SmallVector<Value> decode(scf::ForallOp forall, Value tile,
                            ArrayRef<Value> counts, bool descending);
  SmallVector<Value> decodeInSections(scf::ForallOp forall, Value tile,
                                      ArrayRef<Value> counts, Value section,
                                      bool descending);
  Turns turnsOf(scf::ForallOp forall, ArrayRef<Value> ivs,
                ArrayRef<Value> counts, const GlobalTensor &words,
                int64_t wordsPerBlock, bool backwards);
  Value sectionOfSums(scf::ForallOp forall, int64_t l2Bytes,
                      llvm::function_ref<const GlobalTensor *(Value)> tensorOf);
};
} // namespace

void KernelBuilder::makeFunction(StringRef name, ArrayRef<Buffer> buffers,
                                 int64_t threads, unsigned numMaps,
                                 bool hasQueue) {
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
    tensors.push_back(t);
    at += 1 + 2 * rank;
  }
}

static int64_t stepOf(scf::ForallOp forall, unsigned d) {
  return *getConstantIntValue(forall.getMixedStep()[d]);
}

/// The number of tiles along each dimension, as index values.
LogicalResult KernelBuilder::countTiles(scf::ForallOp forall,
                                        KernelEmitter &emitter,
                                        SmallVectorImpl<Value> &counts) {
  for (int64_t d = 0; d < forall.getRank(); ++d) {
    int64_t step = stepOf(forall, d);
    OpFoldResult bound = forall.getMixedUpperBound()[d];
    if (std::optional<int64_t> c = getConstantIntValue(bound)) {
      counts.push_back(
          arith::ConstantIndexOp::create(b, loc, llvm::divideCeil(*c, step)));
      continue;
    }
    Value v = emitter.scalar(cast<Value>(bound));
    if (!v)
      return failure();
    v = arith::AddIOp::create(b, loc, v,
                              arith::ConstantIndexOp::create(b, loc, step - 1));
    counts.push_back(arith::DivUIOp::create(
        b, loc, v, arith::ConstantIndexOp::create(b, loc, step)));
  }
  return success();
}

Value KernelBuilder::total(ArrayRef<Value> counts) {
  Value product = arith::ConstantIndexOp::create(b, loc, 1);
  for (Value count : counts)
    product = b.createOrFold<arith::MulIOp>(loc, product, count);
  return product;
}

/// Whether iterations of the grid that differ in a dimension add to the same
/// matrix: terms with a place for each row and column, whatever the dimension.
static bool isMatrixOfAll(AccumulateOp sum, Value number) {
  auto places = cast<YieldPlacesOp>(sum.getPlaces().front().getTerminator());
  return sum.placeDependsOn(0) && sum.placeDependsOn(1) &&
         !sum.placeIsOfDifference() &&
         llvm::none_of(places.getOperands(),
                       [&](Value place) { return dependsOn(place, number); });
}

/// The grid's dimensions from the outermost to that in which tiles follow each
/// other: as they are, but that of all but the last those in which blocks add
/// to the same matrix come behind the others, so that L2 holds it.
static SmallVector<unsigned> orderDims(scf::ForallOp forall) {
  SmallVector<AccumulateOp> sums;
  forall.walk([&](AccumulateOp sum) { sums.push_back(sum); });
  unsigned last = forall.getRank() - 1;
  SmallVector<unsigned> order, behind;
  for (unsigned d = 0; d < last; ++d) {
    bool isShared = llvm::any_of(sums, [&](AccumulateOp sum) {
      return isMatrixOfAll(sum, forall.getInductionVar(d));
    });
    (isShared ? behind : order).push_back(d);
  }
  llvm::append_range(order, behind);
  order.push_back(last);
  return order;
}

/// The induction variables from a tile's number, the last dimension fastest.
SmallVector<Value> KernelBuilder::decode(scf::ForallOp forall, Value tile,
                                         ArrayRef<Value> counts,
                                         bool descending) {
  SmallVector<Value> ivs(forall.getRank());
  SmallVector<unsigned> order = orderDims(forall);
  Value rest = tile;
  for (unsigned d : llvm::reverse(order)) {
    Value i = rest;
    if (d != order.front()) {
      i = arith::RemUIOp::create(b, loc, rest, counts[d]);
      rest = arith::DivUIOp::create(b, loc, rest, counts[d]);
    }
    if (descending && d + 1 == forall.getRank()) {
      Value last = arith::SubIOp::create(
          b, loc, counts[d], arith::ConstantIndexOp::create(b, loc, 1));
      i = arith::SubIOp::create(b, loc, last, i);
    }
    ivs[d] = arith::MulIOp::create(
        b, loc, i, arith::ConstantIndexOp::create(b, loc, stepOf(forall, d)));
  }
  return ivs;
}

/// The last dimension, backwards or not, outside of `section` values of the
/// others taken together.
SmallVector<Value> KernelBuilder::decodeInSections(scf::ForallOp forall,
                                                   Value tile,
                                                   ArrayRef<Value> counts,
                                                   Value section,
                                                   bool descending) {
  auto sub = [&](Value x, Value y) -> Value {
    return arith::SubIOp::create(b, loc, x, y);
  };
  Value blocks = counts.back(), others = total(counts.drop_back());
  Value perSection = arith::MulIOp::create(b, loc, section, blocks);
  Value number = arith::DivUIOp::create(b, loc, tile, perSection);
  Value in = arith::RemUIOp::create(b, loc, tile, perSection);
  Value begin = arith::MulIOp::create(b, loc, number, section);
  // The last section may be smaller.
  Value size = arith::MinUIOp::create(b, loc, section, sub(others, begin));
  Value block = arith::DivUIOp::create(b, loc, in, size);
  if (descending) {
    Value one = arith::ConstantIndexOp::create(b, loc, 1);
    block = sub(sub(blocks, one), block);
  }
  Value other = arith::AddIOp::create(b, loc, begin,
                                      arith::RemUIOp::create(b, loc, in, size));
  Value ordered = arith::AddIOp::create(
      b, loc, arith::MulIOp::create(b, loc, other, blocks), block);
  return decode(forall, ordered, counts, /*descending=*/false);
}

/// Blocks that differ only in the last dimension follow each other, backwards
/// or not.
Turns KernelBuilder::turnsOf(scf::ForallOp forall, ArrayRef<Value> ivs,
                             ArrayRef<Value> counts, const GlobalTensor &words,
                             int64_t wordsPerBlock, bool backwards) {
  Value linear, number;
  for (auto [d, iv] : llvm::enumerate(ivs)) {
    number = b.createOrFold<arith::DivUIOp>(
        loc, iv, arith::ConstantIndexOp::create(b, loc, stepOf(forall, d)));
    if (backwards && d + 1 == ivs.size())
      number = arith::SubIOp::create(
          b, loc,
          arith::SubIOp::create(b, loc, counts[d],
                                arith::ConstantIndexOp::create(b, loc, 1)),
          number);
    if (linear)
      linear = b.createOrFold<arith::MulIOp>(loc, linear, counts[d]);
    linear =
        linear ? b.createOrFold<arith::AddIOp>(loc, linear, number) : number;
  }
  linear = b.createOrFold<arith::MulIOp>(
      loc, linear, arith::ConstantIndexOp::create(b, loc, wordsPerBlock));
  linear = arith::IndexCastOp::create(b, loc, b.getI64Type(), linear);
  return {LLVM::GEPOp::create(b, loc, words.pointer.getType(), b.getI64Type(),
                              words.pointer, ArrayRef<LLVM::GEPArg>{linear}),
          number};
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
        dim,
        stage.getAdders() ? hopper::warpgroupRows : hopper::StageOp::sumRows};
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

/// Of blocks that wait for each other, how many may run at once with the same
/// number in the grid's last dimension: more than a GPU holds, so that those
/// waited for began long before, and few enough for the cache.
static constexpr int64_t kSection = 256;

/// To how many matrices blocks of one number in the last dimension add before
/// those of the next begin: as many as the cache holds with what is read for
/// them. What blocks wait for has a head start so.
Value KernelBuilder::sectionOfSums(
    scf::ForallOp forall, int64_t l2Bytes,
    llvm::function_ref<const GlobalTensor *(Value)> tensorOf) {
  // Sums, of f32, have about a third: what is read for them takes as much.
  int64_t most = llvm::bit_floor<uint64_t>(l2Bytes / 3 / 4);
  Value section = arith::ConstantIndexOp::create(b, loc, kSection);
  forall.walk([&](AccumulateSliceOp sum) {
    Value elements = arith::ConstantIndexOp::create(b, loc, 1);
    for (unsigned d = 0; d < sum.getInit().getType().getRank(); ++d) {
      auto [memory, dim] = memoryOf(sum.getInit(), d);
      if (!isa<BlockArgument>(memory))
        return;
      elements = b.createOrFold<arith::MulIOp>(loc, elements,
                                               tensorOf(memory)->sizes[dim]);
    }
    Value one = arith::ConstantIndexOp::create(b, loc, 1);
    Value held = arith::DivUIOp::create(
        b, loc, arith::ConstantIndexOp::create(b, loc, most),
        arith::MaxUIOp::create(b, loc, elements, one));
    section = arith::MinUIOp::create(b, loc, section,
                                     arith::MaxUIOp::create(b, loc, held, one));
  });
  return section;
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

LogicalResult Program::emitKernel(scf::ForallOp forall,
                                  gpu::GPUModuleOp module) {
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

  SetVector<Value> captured;
  getUsedValuesDefinedAbove(forall->getRegions(), captured);
  for (Value v : forall.getOutputs())
    captured.insert(v);
  SmallVector<unsigned> order;
  auto use = [&](unsigned buffer) {
    if (!llvm::is_contained(order, buffer))
      order.push_back(buffer);
  };
  // Scalars are computed from sizes of tensors, whose kernels need them too.
  SmallVector<Value> work(captured.begin(), captured.end());
  for (OpFoldResult bound : forall.getMixedUpperBound())
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
  for (Value result : forall.getResults())
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
  llvm::sort(order);

  Location loc = forall.getLoc();
  KernelBuilder k{
      OpBuilder::atBlockEnd(module.getBody()), loc, {}, order, {}, {}, {}, {}};
  k.makeFunction(name, buffers, view->blockThreads(), tensorMaps->size(),
                 queue != nullptr);
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
  for (auto &entry : bufferOf)
    if (tensorOf.contains(entry.second))
      emitter.bindGlobal(entry.first, tensorOf[entry.second]);
  for (auto [arg, result] :
       llvm::zip(forall.getRegionIterArgs(), forall.getResults()))
    emitter.bindGlobal(arg, tensorOf[bufferOf[result]]);
  for (auto [init, result] :
       llvm::zip(forall.getOutputs(), forall.getResults()))
    emitter.bindGlobal(init, tensorOf[bufferOf[result]]);

  bool descending = endsDependOn(forall, forall.getInductionVars().back());
  SmallVector<Value> counts;
  if (failed(k.countTiles(forall, emitter, counts)))
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
    if (failed(emitter.emitBlock(*forall.getBody())))
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
  launches.push_back("kernel=" + name +
                     " block=" + std::to_string(view->blockThreads()) +
                     " smem=" + std::to_string(sharedBytes) +
                     " grid=" + llvm::join(sizes, "*") + " args=" + args +
                     (mapNumbers.empty() ? "" : " maps=" + mapNumbers) +
                     (queue ? " waves=1 queue=1" : "") + preparesOf(forall));
  requireSameSizes(forall);
  return success();
}

//===----------------------------------------------------------------------===//
// The description
//===----------------------------------------------------------------------===//

static std::string typeName(Type type) {
  std::string s;
  llvm::raw_string_ostream os(s);
  os << type;
  return s;
}

SmallVector<std::string> Program::header() {
  SmallVector<std::string> lines;
  // Readers of version 1 do not know tensor maps, those of version 2 not that
  // results are zeroed.
  bool zeroes = llvm::any_of(buffers, [](const Buffer &buffer) {
    return buffer.zero && buffer.role == Buffer::Role::Out;
  });
  lines.push_back(std::string("//!fa.program version=") +
                  (zeroes         ? "3"
                   : maps.empty() ? "1"
                                  : "2") +
                  " name=" + func.getName().str() + " target=" + chip);
  for (auto [i, buffer] : llvm::enumerate(buffers)) {
    if (buffer.role == Buffer::Role::Temp)
      continue;
    std::string shape;
    for (int64_t size : buffer.type.getShape())
      shape += (shape.empty() ? "" : "x") +
               (ShapedType::isDynamic(size) ? "?" : std::to_string(size));
    lines.push_back(
        "//!fa.arg index=" + std::to_string(i) + " name=" + buffer.name +
        " role=" + (buffer.role == Buffer::Role::In ? "in" : "out") +
        " type=" + typeName(buffer.type.getElementType()) + " shape=" + shape +
        (buffer.zero ? " zero=1" : ""));
  }
  for (const std::string &s : same)
    lines.push_back("//!fa.same " + s);
  for (auto [i, buffer] : llvm::enumerate(buffers)) {
    if (buffer.role == Buffer::Role::Temp)
      continue;
    std::string name = "a" + std::to_string(i);
    if (buffer.type.getRank())
      lines.push_back("//!fa.require " + name + ".s" +
                      std::to_string(buffer.type.getRank() - 1) + "=1");
    if (buffer.aligned)
      lines.push_back("//!fa.require " + name + ".align=16");
  }
  for (auto [i, buffer] : llvm::enumerate(buffers))
    if (buffer.role == Buffer::Role::Temp)
      lines.push_back("//!fa.temp index=" + std::to_string(i) +
                      " type=" + typeName(buffer.type.getElementType()) +
                      " shape=" + llvm::join(buffer.sizes, ",") +
                      (buffer.zero ? " zero=1" : ""));
  for (auto [i, map] : llvm::enumerate(maps))
    lines.push_back("//!fa.map index=" + std::to_string(i) +
                    " tensor=" + std::to_string(map.buffer) +
                    " dim=" + std::to_string(map.dim) +
                    " rows=" + std::to_string(map.rows));
  for (const std::string &launch : launches)
    lines.push_back("//!fa.launch " + launch);
  lines.push_back("//!fa.end");
  return lines;
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
