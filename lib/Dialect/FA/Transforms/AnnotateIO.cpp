// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The IO model's result as an attribute.

#include "fa/Analysis/IOModel.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/Transforms/Passes.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"

namespace fa {
#define GEN_PASS_DEF_ANNOTATEIOPASS
#include "fa/Dialect/FA/Transforms/Passes.h.inc"
} // namespace fa

using namespace mlir;
using namespace fa;

#define DEBUG_TYPE "fa-annotate-io"

static constexpr StringLiteral kAttribute = "fa.io";

static std::string withChange(std::optional<int64_t> before, int64_t now) {
  std::string text = std::to_string(now);
  if (before && *before != 0) {
    double percent = 100.0 * (double(now) - double(*before)) / double(*before);
    text += " (" + std::string(percent >= 0 ? "+" : "") +
            llvm::formatv("{0:F1}", percent).str() + " %)";
  }
  return text;
}

namespace {
struct AnnotateIOPass : fa::impl::AnnotateIOPassBase<AnnotateIOPass> {
  using AnnotateIOPassBase::AnnotateIOPassBase;

  /// Reads "B=4,Sq=1024".
  LogicalResult parseShape(IOOptions &options) {
    for (StringRef part : llvm::split(StringRef(shape), ',')) {
      if (part.trim().empty())
        continue;
      auto [name, number] = part.split('=');
      int64_t value;
      if (number.trim().getAsInteger(10, value) || value < 0)
        return getOperation().emitError() << "expected shape=B=4,Sq=1024,... "
                                             "with sizes of 0 or more, got '"
                                          << part << "'";
      options.shape[name.trim()] = value;
    }
    return success();
  }

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (func.isExternal())
      return;
    IOOptions options;
    options.foldFills = foldFills;
    if (failed(parseShape(options)))
      return signalPassFailure();
    IOReport report = computeIO(func, options);
    Builder b(&getContext());
    NamedAttrList attributes;
    attributes.set("read", b.getStringAttr(report.read.str()));
    attributes.set("write", b.getStringAttr(report.write.str()));
    attributes.set("temp", b.getStringAttr(report.temp.str()));
    if (report.isUpperBound)
      attributes.set("upper_bound", b.getUnitAttr());
    if (report.readBytes) {
      attributes.set("read_bytes", b.getI64IntegerAttr(*report.readBytes));
      attributes.set("write_bytes", b.getI64IntegerAttr(*report.writeBytes));
      attributes.set("temp_bytes", b.getI64IntegerAttr(*report.tempBytes));
      if (report.bytesAreUpperBound)
        attributes.set("bytes_upper_bound", b.getUnitAttr());
    }
    emitRemark(report, func->getAttrOfType<DictionaryAttr>(kAttribute));
    func->setAttr(kAttribute, attributes.getDictionary(&getContext()));
  }

  /// What changed since the last annotation.
  void emitRemark(const IOReport &report, DictionaryAttr before) {
    if (!report.readBytes)
      return;
    auto old = [&](StringRef name) -> std::optional<int64_t> {
      auto value = before ? before.getAs<IntegerAttr>(name) : IntegerAttr();
      return value ? std::optional<int64_t>(value.getInt()) : std::nullopt;
    };
    std::optional<int64_t> oldRead = old("read_bytes"),
                           oldWrite = old("write_bytes"), oldTotal;
    if (oldRead && oldWrite)
      oldTotal = *oldRead + *oldWrite;
    func::FuncOp func = getOperation();
    remark::analysis(func.getLoc(), remark::RemarkOpts::name("IO")
                                        .category(DEBUG_TYPE)
                                        .function(func.getName()))
        << "the function reads " + withChange(oldRead, *report.readBytes) +
               " bytes of HBM and writes " +
               withChange(oldWrite, *report.writeBytes) + ", together " +
               withChange(oldTotal, *report.readBytes + *report.writeBytes) +
               "; its temporaries take " +
               withChange(old("temp_bytes"), *report.tempBytes);
  }
};
} // namespace
