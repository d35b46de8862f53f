// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Target/LLVMPasses.h"

#include "llvm/Passes/PassBuilder.h"

llvm::Error
fa::runLLVMPasses(llvm::Module &module, llvm::TargetMachine &machine,
                  llvm::StringRef passes,
                  llvm::function_ref<void(llvm::PassBuilder &)> configure) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  if (configure)
    configure(builder);
  llvm::ModulePassManager manager;
  if (llvm::Error error = builder.parsePassPipeline(manager, passes))
    return error;
  manager.run(module, modules);
  return llvm::Error::success();
}
