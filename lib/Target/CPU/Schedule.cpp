// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Schedule.h"
#include "fa/Target/CPU/Passes.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

namespace fa {
#define GEN_PASS_DEF_SCHEDULECPUPASS
#include "fa/Target/CPU/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-schedule-cpu"

Value fa::dimOf(OpBuilder &b, Location loc, Value buffer, unsigned dim) {
  auto type = cast<MemRefType>(buffer.getType());
  if (!type.isDynamicDim(dim))
    return arith::ConstantIndexOp::create(b, loc, type.getDimSize(dim));
  return memref::DimOp::create(b, loc, buffer, dim);
}

bool fa::hasUnitInnerStride(Value buffer) {
  auto type = dyn_cast<MemRefType>(buffer.getType());
  return type && type.getRank() > 0 && type.isLastDimUnitStride();
}

std::optional<int64_t> fa::constantOf(Value v) {
  return getConstantIntValue(OpFoldResult(v));
}

Value fa::roundDown(OpBuilder &b, Location loc, Value x, int64_t to) {
  if (std::optional<int64_t> constant = constantOf(x))
    return arith::ConstantIndexOp::create(b, loc, *constant / to * to);
  Value width = arith::ConstantIndexOp::create(b, loc, to);
  Value rest = arith::RemUIOp::create(b, loc, x, width);
  return arith::SubIOp::create(b, loc, x, rest);
}

/// Affine functions in the bodies of operations as arithmetic, which has the
/// same form on vectors.
static void expandAffineInBodies(RewriterBase &rewriter, func::FuncOp func) {
  SmallVector<affine::AffineApplyOp> ops;
  func.walk([&](affine::AffineApplyOp op) {
    if (isa<linalg::LinalgOp>(op->getParentOp()))
      ops.push_back(op);
  });
  for (affine::AffineApplyOp op : ops) {
    rewriter.setInsertionPoint(op);
    rewriter.replaceOp(op, *affine::expandAffineMap(rewriter, op.getLoc(),
                                                    op.getAffineMap(),
                                                    op.getMapOperands()));
  }
}

namespace {
struct ScheduleCPUPass : fa::impl::ScheduleCPUPassBase<ScheduleCPUPass> {
  using ScheduleCPUPassBase::ScheduleCPUPassBase;
  void runOnOperation() override {
    if (vectorBits != 128 && vectorBits != 256 && vectorBits != 512) {
      getOperation().emitError()
          << "expected vector-bits to be 128, 256 or 512, got "
          << vectorBits.getValue();
      return signalPassFailure();
    }
    VectorUnit unit;
    unit.bits = vectorBits;
    // AVX-512 has 32 registers, the narrower ones 16.
    unit.rows = rows ? rows : vectorBits == 512 ? 8 : 4;
    IRRewriter rewriter(&getContext());
    expandAffineInBodies(rewriter, getOperation());
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) { ops.push_back(op); });
    while (!ops.empty()) {
      linalg::LinalgOp op = ops.pop_back_val();
      rewriter.setInsertionPoint(op);
      // What a loop carries is already in its place.
      if (auto copy = dyn_cast<linalg::CopyOp>(op.getOperation());
          copy && copy.getDpsInputs()[0] == copy.getDpsInits()[0]) {
        rewriter.eraseOp(op);
        continue;
      }
      if (!op.hasPureBufferSemantics()) {
        op.emitError("expected buffers here; run fa-cpu-bufferize first");
        return signalPassFailure();
      }
      if (succeeded(scheduleContraction(rewriter, op, unit, ops)) ||
          succeeded(scheduleRows(rewriter, op, unit)))
        continue;
      if (failed(linalg::linalgOpToLoops(rewriter, op))) {
        op.emitError("has no loops on the CPU; expected an op whose indexing "
                     "maps are given");
        return signalPassFailure();
      }
      rewriter.eraseOp(op);
    }
  }
};
} // namespace
