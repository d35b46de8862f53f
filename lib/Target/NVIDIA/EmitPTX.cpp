// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From a gpu.module in the LLVM and NVVM dialects to PTX text.

#include "fa/Target/NVIDIA/Passes.h"

#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Triple.h"

#include <mutex>

namespace fa {
#define GEN_PASS_DEF_EMITPTXPASS
#include "fa/Target/NVIDIA/Passes.h.inc"
} // namespace fa

using namespace mlir;

static llvm::Error fail(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

static llvm::Expected<std::unique_ptr<llvm::TargetMachine>>
makeTargetMachine(const fa::NVIDIATarget &target) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *llvmTarget =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!llvmTarget)
    return fail(error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Fast;
  return std::unique_ptr<llvm::TargetMachine>(llvmTarget->createTargetMachine(
      triple, target.chip, target.ptxFeature, options, std::nullopt,
      std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

/// What a fatal error inside LLVM would report is reported here instead.
namespace {
struct Diagnostics : llvm::DiagnosticHandler {
  explicit Diagnostics(std::string &text) : text(text) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo &info) override {
    if (info.getSeverity() != llvm::DS_Error)
      return true;
    llvm::raw_string_ostream os(text);
    llvm::DiagnosticPrinterRawOStream printer(os);
    info.print(printer);
    return true;
  }
  std::string &text;
};
} // namespace

static llvm::Error generate(llvm::Module &module, llvm::TargetMachine &machine,
                            bool llvmInstead, std::string &text) {
  auto optimize = makeOptimizingTransformer(3, 0, &machine);
  if (llvm::Error error = optimize(&module))
    return error;
  if (llvmInstead) {
    llvm::raw_string_ostream os(text);
    module.print(os, nullptr);
    return llvm::Error::success();
  }
  llvm::SmallString<0> buffer;
  llvm::raw_svector_ostream os(buffer);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, os, nullptr,
                                  llvm::CodeGenFileType::AssemblyFile))
    return fail("LLVM cannot emit PTX");
  passes.run(module);
  text += buffer;
  return llvm::Error::success();
}

llvm::Expected<std::string> fa::emitPTX(gpu::GPUModuleOp module, StringRef chip,
                                        bool llvmInstead) {
  const NVIDIATarget *target = lookupNVIDIATarget(chip);
  if (!target)
    return fail("unknown target " + chip);
  auto machine = makeTargetMachine(*target);
  if (!machine)
    return machine.takeError();
  llvm::LLVMContext context;
  std::string errors;
  context.setDiagnosticHandler(std::make_unique<Diagnostics>(errors));
  std::unique_ptr<llvm::Module> llvmModule =
      translateModuleToLLVMIR(module, context);
  if (!llvmModule)
    return fail("the module is not in the LLVM and NVVM dialects; run "
                "fa-lower-to-nvvm first");
  llvmModule->setTargetTriple((*machine)->getTargetTriple());
  llvmModule->setDataLayout((*machine)->createDataLayout());
  for (llvm::Function &f : *llvmModule) {
    if (f.isDeclaration() && !f.isIntrinsic())
      return fail("call of a function without a body: " + f.getName());
    if (!f.isDeclaration())
      f.addFnAttr("denormal-fp-math-f32", "preserve-sign,preserve-sign");
    // Instructions of a whole warp must not be copied into branches.
    for (llvm::Instruction &i : llvm::instructions(f))
      if (auto *call = llvm::dyn_cast<llvm::CallInst>(&i);
          call && call->isInlineAsm() && call->mayHaveSideEffects())
        call->setConvergent();
  }
  std::string text;
  llvm::Error error = llvm::Error::success();
  llvm::CrashRecoveryContext recovery;
  bool survived = recovery.RunSafely([&] {
    llvm::consumeError(std::move(error));
    error = generate(*llvmModule, **machine, llvmInstead, text);
  });
  if (!survived || !errors.empty()) {
    llvm::consumeError(std::move(error));
    return fail("LLVM cannot translate the module: " + errors);
  }
  if (error)
    return std::move(error);
  std::string header;
  if (auto lines = module->getAttrOfType<ArrayAttr>("fa.program"))
    for (auto line : lines.getAsRange<StringAttr>())
      header += (line.getValue() + "\n").str();
  return header + text;
}

namespace {
struct EmitPTX : public fa::impl::EmitPTXPassBase<EmitPTX> {
  using EmitPTXPassBase::EmitPTXPassBase;

  void runOnOperation() override {
    std::error_code code;
    llvm::ToolOutputFile file(output, code, llvm::sys::fs::OF_Text);
    if (code) {
      getOperation().emitError("cannot write ")
          << output << ": " << code.message();
      return signalPassFailure();
    }
    for (auto module : getOperation().getOps<gpu::GPUModuleOp>()) {
      llvm::Expected<std::string> text = fa::emitPTX(module, chip, printLLVM);
      if (!text) {
        module.emitError(llvm::toString(text.takeError()));
        return signalPassFailure();
      }
      file.os() << *text;
    }
    file.keep();
  }
};
} // namespace
