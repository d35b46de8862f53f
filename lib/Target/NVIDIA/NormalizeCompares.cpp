// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pass fa-normalize-compares: masks as one comparison an element.

#include "fa/Target/NVIDIA/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"
#include "llvm/ADT/MapVector.h"

namespace fa {
#define GEN_PASS_DEF_NORMALIZECOMPARESPASS
#include "fa/Target/NVIDIA/Passes.h.inc"
} // namespace fa

using namespace mlir;

namespace {
/// A sum of values with signs, and a constant.
struct LinearForm {
  llvm::MapVector<Value, int64_t> terms;
  int64_t constant = 0;

  void add(Value v, int64_t sign) {
    if (std::optional<int64_t> c = getConstantIntValue(v)) {
      constant += sign * *c;
    } else if (auto sum = v.getDefiningOp<arith::AddIOp>()) {
      add(sum.getLhs(), sign);
      add(sum.getRhs(), sign);
    } else if (auto difference = v.getDefiningOp<arith::SubIOp>()) {
      add(difference.getLhs(), sign);
      add(difference.getRhs(), -sign);
    } else {
      terms[v] += sign;
    }
  }
  bool hasUnitTerms() const {
    return llvm::all_of(terms, [](auto &entry) {
      return entry.second >= -1 && entry.second <= 1;
    });
  }
};

struct MoveToOneSide : OpRewritePattern<arith::CmpIOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::CmpIOp op,
                                PatternRewriter &b) const override {
    using P = arith::CmpIPredicate;
    if (!op.getLhs().getType().isIndex() ||
        !llvm::is_contained({P::slt, P::sle, P::sgt, P::sge, P::eq, P::ne},
                            op.getPredicate()))
      return b.notifyMatchFailure(op, "not a signed comparison of coordinates");
    if (getConstantIntValue(op.getLhs()) || getConstantIntValue(op.getRhs()))
      return b.notifyMatchFailure(op, "has a constant side already");
    LinearForm form;
    form.add(op.getRhs(), 1);
    form.add(op.getLhs(), -1);
    if (form.constant == 0 || form.terms.empty() || !form.hasUnitTerms())
      return b.notifyMatchFailure(op, "no constant to separate");
    Location loc = op.getLoc();
    Value difference;
    for (auto &[value, factor] : form.terms) {
      if (factor == 0)
        continue;
      if (!difference && factor == -1)
        difference = arith::ConstantIndexOp::create(b, loc, 0);
      if (!difference)
        difference = value;
      else if (factor == 1)
        difference = arith::AddIOp::create(b, loc, difference, value);
      else
        difference = arith::SubIOp::create(b, loc, difference, value);
    }
    if (!difference)
      return b.notifyMatchFailure(op, "constant");
    Value constant = arith::ConstantIndexOp::create(b, loc, -form.constant);
    b.replaceOpWithNewOp<arith::CmpIOp>(op, op.getPredicate(), constant,
                                        difference);
    return success();
  }
};

struct NormalizeCompares
    : public fa::impl::NormalizeComparesPassBase<NormalizeCompares> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<MoveToOneSide>(&getContext());
    FrozenRewritePatternSet frozen(std::move(patterns));
    // Kernels with roles: elsewhere what is computed once takes registers that
    // the tiles need.
    for (auto kernel : getOperation().getOps<gpu::GPUFuncOp>())
      if (kernel->hasAttr("fa.first_map"))
        walkAndApplyPatterns(kernel, frozen);
  }
};
} // namespace
