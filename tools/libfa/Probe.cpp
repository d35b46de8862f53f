// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One function in place of the C API while that is not built: enough to try
// that a self-contained libfa.so works.

#include "fa/Pipelines/Pipelines.h"
#include "fa/Pipelines/Registration.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <cstring>

using namespace mlir;

/// Runs attention IR through the pipeline for a target; the caller frees the
/// resulting text. Null on an error, which goes to stderr.
extern "C" char *fa_probe(const char *source, const char *target) {
  DialectRegistry registry;
  fa::registerDialects(registry);
  fa::registerPasses();
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(source, ParserConfig(&context));
  if (!module)
    return nullptr;
  fa::PipelineOptions options;
  options.target = target;
  PassManager manager(&context);
  if (llvm::Error error = fa::buildPipeline(manager, options)) {
    llvm::errs() << llvm::toString(std::move(error)) << "\n";
    return nullptr;
  }
  if (failed(manager.run(*module)))
    return nullptr;
  std::string text;
  llvm::raw_string_ostream os(text);
  module->print(os);
  return strdup(text.c_str());
}
