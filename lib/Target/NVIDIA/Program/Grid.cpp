// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ProgramBuilder.h"

#include "fa/Dialect/FA/IR/Matchers.h"

#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

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

FollowerGrid
KernelBuilder::gridOfFollower(scf::ForallOp before, scf::ForallOp follower,
                              KernelEmitter &emitter, const GlobalTensor &words,
                              int64_t wordsOfGroup, int64_t section) {
  // What bounds are made of is known already.
  auto countsOf = [this, &emitter](scf::ForallOp forall) {
    SmallVector<Value> counts;
    if (failed(countTiles(forall, emitter, counts)))
      llvm_unreachable("bounds have been counted before");
    return counts;
  };
  FollowerGrid grid;
  grid.count = [=] { return total(countsOf(follower)); };
  grid.blocksOfGroup = [=] { return countsOf(before).back(); };
  // There may be no group where nobody has asked for a block.
  grid.followersOfGroup = [=]() -> Value {
    SmallVector<Value> own = countsOf(before), its = countsOf(follower);
    Value groups =
        arith::MaxUIOp::create(b, loc, total(ArrayRef(own).drop_back()),
                               arith::ConstantIndexOp::create(b, loc, 1));
    return arith::DivUIOp::create(b, loc, total(its), groups);
  };
  // So many that all groups of a section are zeroed before its blocks wait for
  // each other's, and about as many as blocks that run and those that are drawn
  // next add to.
  grid.ahead = [=, followersOfGroup = grid.followersOfGroup]() -> Value {
    constexpr int64_t perBlock = 6;
    Value running = arith::IndexCastOp::create(
        b, loc, b.getIndexType(),
        NVVM::GridDimXOp::create(b, loc, b.getI32Type()));
    return arith::AddIOp::create(
        b, loc,
        arith::MulIOp::create(
            b, loc, followersOfGroup(),
            arith::ConstantIndexOp::create(b, loc, section + 1)),
        arith::MulIOp::create(
            b, loc, running, arith::ConstantIndexOp::create(b, loc, perBlock)));
  };
  grid.decode = [=](Value number) {
    SmallVector<Value> own = countsOf(before), its = countsOf(follower);
    Value groups = total(ArrayRef(own).drop_back());
    Value perGroup = arith::DivUIOp::create(b, loc, total(its), groups);
    Value group = arith::DivUIOp::create(b, loc, number, perGroup);
    return std::make_pair(group, decode(follower, number, its,
                                        /*descending=*/false));
  };
  grid.groupOf = [=](ArrayRef<Value> numbers) {
    SmallVector<Value> own = countsOf(before);
    Value group = numbers.front();
    for (unsigned d = 1; d + 1 < numbers.size(); ++d)
      group = arith::AddIOp::create(
          b, loc, arith::MulIOp::create(b, loc, group, own[d]), numbers[d]);
    return group;
  };
  grid.wordsOf = [=](Value group) {
    Value first = arith::MulIOp::create(
        b, loc, arith::IndexCastOp::create(b, loc, b.getI64Type(), group),
        arith::ConstantIntOp::create(b, loc, wordsOfGroup, 64));
    Value address =
        LLVM::GEPOp::create(b, loc, words.pointer.getType(), b.getI32Type(),
                            words.pointer, ArrayRef<LLVM::GEPArg>{first});
    return LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), address)
        .getResult();
  };
  return grid;
}
