// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fa as a library of passes in one's own MLIR program: registers the dialects,
// builds attention's pipeline, and adds a pass of one's own behind it.
//
//   ./stages attention.mlir

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Pipelines/Pipelines.h"
#include "fa/Pipelines/Registration.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace {
/// Counts what the tile program consists of.
struct CountOps : PassWrapper<CountOps, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CountOps)
  StringRef getArgument() const final { return "count-ops"; }

  void runOnOperation() override {
    int attention = 0, generic = 0;
    getOperation().walk([&](Operation *op) {
      attention += isa<fa::AttentionOp>(op);
      generic += isa<linalg::GenericOp>(op);
    });
    llvm::outs() << attention << " fa.attention, " << generic
                 << " linalg.generic\n";
  }
};
} // namespace

int main(int argc, char **argv) {
  if (argc != 2) {
    llvm::errs() << "expected one file, got " << argc - 1 << "\n";
    return 2;
  }
  DialectRegistry registry;
  fa::registerDialects(registry);
  fa::registerPasses(); // the pipeline names them
  MLIRContext context(registry);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(argv[1], &context);
  if (!module)
    return 1;

  fa::PipelineOptions options;
  options.target = "sm_90a";
  PassManager manager(&context);
  manager.addPass(std::make_unique<CountOps>());
  if (llvm::Error error = fa::buildPipeline(manager, options)) {
    llvm::errs() << llvm::toString(std::move(error)) << "\n";
    return 1;
  }
  manager.addPass(std::make_unique<CountOps>());
  return failed(manager.run(*module));
}
