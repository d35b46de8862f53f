// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "AttentionCommon.h"

#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace fa;

LogicalResult AccumulateOp::verifyRegions() {
  Block &block = getPlaces().front();
  Type index = IndexType::get(getContext());
  unsigned rank = getTerms().getType().getRank(),
           places = getInit().getType().getRank();
  if (!llvm::equal(block.getArgumentTypes(), SmallVector<Type>(rank, index)))
    return emitOpError() << "expected the region to take " << rank
                         << " indices, one for each dimension of terms, got "
                         << block.getNumArguments()
                         << " arguments (fa_accumulate_c1)";
  auto yield =
      block.empty() ? YieldPlacesOp() : dyn_cast<YieldPlacesOp>(block.back());
  if (!yield || yield.getPlaces().size() != places)
    return emitOpError() << "expected the region to end in fa.yield_places of "
                         << places
                         << " indices, one for each dimension of the result"
                            " (fa_accumulate_c1)";
  return verifyRegionIsPure(getPlaces(), "places");
}

FailureOr<SmallVector<Value>> AccumulateOp::decomposeOperation(OpBuilder &b) {
  Location loc = getLoc();
  Value zero = arith::ConstantIndexOp::create(b, loc, 0),
        one = arith::ConstantIndexOp::create(b, loc, 1);
  SmallVector<Value> sizes;
  for (OpFoldResult size : tensor::getMixedSizes(b, loc, getTerms()))
    sizes.push_back(getValueOrCreateConstantIndexOp(b, loc, size));
  auto add = [&](OpBuilder &b, Location loc, ValueRange at,
                 ValueRange carried) -> scf::ValueVector {
    IRMapping map;
    map.map(getPlaces().front().getArguments(), at);
    for (Operation &inner : getPlaces().front().without_terminator())
      b.clone(inner, map);
    SmallVector<Value> place;
    for (Value index : getPlaces().front().getTerminator()->getOperands())
      place.push_back(map.lookupOrDefault(index));
    Value term = tensor::ExtractOp::create(b, loc, getTerms(), at);
    Value old = tensor::ExtractOp::create(b, loc, carried[0], place);
    Value sum = arith::AddFOp::create(b, loc, old, term);
    return {tensor::InsertOp::create(b, loc, sum, carried[0], place)};
  };
  if (sizes.empty())
    return SmallVector<Value>{add(b, loc, {}, {getInit()}).front()};
  scf::LoopNest nest =
      scf::buildLoopNest(b, loc, SmallVector<Value>(sizes.size(), zero), sizes,
                         SmallVector<Value>(sizes.size(), one), getInit(), add);
  return SmallVector<Value>(nest.results);
}
