// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Schedule/Contraction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

static Value lookThroughExtension(Value v) {
  while (auto ext = v.getDefiningOp<arith::ExtFOp>())
    v = ext.getIn();
  return v;
}

/// The body is yield(acc + ext(a) * ext(b)), in any order.
static bool isMultiplyAdd(Block &body) {
  if (body.getNumArguments() != 3)
    return false;
  Value a = body.getArgument(0), b = body.getArgument(1),
        acc = body.getArgument(2);
  auto add = body.getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  if (!add || !acc.getType().isF32())
    return false;
  Value product = add.getLhs() == acc   ? add.getRhs()
                  : add.getRhs() == acc ? add.getLhs()
                                        : Value();
  auto mul = product ? product.getDefiningOp<arith::MulFOp>() : nullptr;
  if (!mul)
    return false;
  Value x = lookThroughExtension(mul.getLhs()),
        y = lookThroughExtension(mul.getRhs());
  return (x == a && y == b) || (x == b && y == a);
}

std::optional<fa::Contraction> fa::matchContraction(Operation *op) {
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp || linalgOp.getNumLoops() != 3 ||
      linalgOp.getNumReductionLoops() != 1 || linalgOp.getNumDpsInputs() != 2 ||
      linalgOp.getNumDpsInits() != 1 || !linalgOp.hasPureTensorSemantics() ||
      !isMultiplyAdd(*linalgOp.getBlock()))
    return std::nullopt;
  SmallVector<AffineMap> maps = linalgOp.getIndexingMapsArray();
  for (AffineMap map : maps)
    if (!map.isProjectedPermutation() || map.getNumResults() != 2)
      return std::nullopt;
  unsigned i = maps[2].getDimPosition(0), j = maps[2].getDimPosition(1);
  unsigned k = 3 - i - j;
  if (linalgOp.getIteratorTypesArray()[k] != utils::IteratorType::reduction)
    return std::nullopt;
  Contraction c;
  c.op = linalgOp;
  unsigned a = maps[0].isFunctionOfDim(i) ? 0 : 1, b = 1 - a;
  if (!maps[a].isFunctionOfDim(i) || !maps[a].isFunctionOfDim(k) ||
      !maps[b].isFunctionOfDim(j) || !maps[b].isFunctionOfDim(k))
    return std::nullopt;
  c.a = linalgOp.getDpsInputOperand(a);
  c.b = linalgOp.getDpsInputOperand(b);
  c.aOuterK = maps[a].getDimPosition(0) == k;
  c.bOuterK = maps[b].getDimPosition(0) == k;
  SmallVector<int64_t> ranges = linalgOp.getStaticLoopRanges();
  c.m = ranges[i], c.n = ranges[j], c.k = ranges[k];
  c.elementType = getElementTypeOrSelf(c.a->get());
  return c;
}

bool fa::isReadInTurn(scf::ForOp loop, ArrayRef<Value> loads,
                      ArrayRef<Contraction> contractions) {
  SmallVector<Operation *> readers(loads.size(), nullptr);
  for (const Contraction &c : contractions)
    for (OpOperand *operand : {c.a, c.b}) {
      const auto *at = llvm::find(loads, operand->get());
      if (at == loads.end())
        continue;
      Operation *&reader = readers[at - loads.begin()];
      if (reader || c.op->getParentOp() != loop)
        return false;
      reader = c.op;
    }
  for (size_t i = 0; i + 1 < readers.size(); ++i)
    if (!readers[i] || !readers[i + 1] || readers[i] == readers[i + 1] ||
        !readers[i]->isBeforeInBlock(readers[i + 1]))
      return false;
  return loads.size() > 1;
}
