// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From a gpu.module in the LLVM and NVVM dialects to PTX text.

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Target/FatalErrors.h"
#include "fa/Target/LLVMPasses.h"
#include "fa/Target/NVIDIA/Passes.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Scalar/LoopUnrollPass.h"

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
  // Above the default, code generation numbers values (GVN) where it otherwise
  // looks for equal ones near by: a seventh of the time of a gradient, for
  // machine code of the same size, registers and stack.
  return std::unique_ptr<llvm::TargetMachine>(llvmTarget->createTargetMachine(
      triple, target.chip, target.ptxFeature, options, std::nullopt,
      std::nullopt, llvm::CodeGenOptLevel::Default));
}

/// The passes of O3 that do something for a kernel, in their order: a kernel
/// calls nothing, has its memory in address spaces and no stack, and its tiles
/// are unrolled already. All of O3 takes half as long again.
static constexpr const char *kPasses =
    "function(nvvm-intr-range,simplifycfg,early-cse,sccp,"
    "instcombine<no-verify-fixpoint>,early-cse<memssa>,"
    "speculative-execution<only-if-divergent-target>,correlated-propagation,"
    "instcombine<no-verify-fixpoint>,reassociate,"
    "loop-mssa(loop-instsimplify,licm<no-allowspeculation>,loop-rotate,licm),"
    "simplifycfg<switch-range-to-icmp>,instcombine<no-verify-fixpoint>,"
    "loop(indvars,unroll-full-o3),gvn,sccp,bdce,correlated-propagation,loop-"
    "mssa(licm)),"
    // Parameters that a kernel only reads have read-only loads.
    "cgscc(function-attrs),"
    "function(simplifycfg<forward-switch-cond;switch-range-to-icmp;"
    "switch-to-arithmetic;switch-to-lookup;no-keep-loops;hoist-common-insts;"
    "sink-common-insts>,slp-vectorizer,vector-combine,loop-unroll<O3>,"
    "infer-alignment,instcombine<no-verify-fixpoint>,loop-mssa(licm),"
    "instsimplify,div-rem-pairs,"
    "simplifycfg<hoist-loads-stores-with-cond-faulting;"
    "speculate-unpredictables>)";

static llvm::Error optimize(llvm::Module &module,
                            llvm::TargetMachine &machine) {
  return fa::runLLVMPasses(
      module, machine, kPasses, [](llvm::PassBuilder &builder) {
        // As text, loop-unroll-full has the limits of O2.
        builder.registerPipelineParsingCallback(
            [](StringRef name, llvm::LoopPassManager &manager,
               ArrayRef<llvm::PassBuilder::PipelineElement>) {
              if (name != "unroll-full-o3")
                return false;
              manager.addPass(llvm::LoopFullUnrollPass(/*OptLevel=*/3));
              return true;
            });
      });
}

static llvm::Error generate(llvm::Module &module, llvm::TargetMachine &machine,
                            bool llvmInstead, std::string &text) {
  if (llvm::Error error = optimize(module, machine))
    return error;
  if (llvmInstead) {
    llvm::raw_string_ostream os(text);
    module.print(os, nullptr);
    return llvm::Error::success();
  }
  llvm::SmallString<0> buffer;
  llvm::raw_svector_ostream os(buffer);
  llvm::legacy::PassManager passes;
  // The module was verified when it was translated.
  if (machine.addPassesToEmitFile(passes, os, nullptr,
                                  llvm::CodeGenFileType::AssemblyFile,
                                  /*DisableVerify=*/true))
    return fail("LLVM cannot emit PTX");
  passes.run(module);
  text += buffer;
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// What LLVM can generate
//===----------------------------------------------------------------------===//

/// Whether NVPTX has instructions for an intrinsic on floats. Of others it
/// would make a call of a library that is not there, which is a fatal error.
static bool hasInstructions(StringRef intrinsic, Type type) {
  static const llvm::StringSet<> all = {
      "fma",      "fmuladd", "maxnum",    "minnum",      "maximum", "minimum",
      "fabs",     "floor",   "ceil",      "trunc",       "rint",    "nearbyint",
      "copysign", "sqrt",    "roundeven", "canonicalize"};
  if (all.contains(intrinsic))
    return true;
  // One approximate instruction.
  return intrinsic == "exp2" && type.isF32();
}

/// The float that an operation computes, or null.
static Type floatOf(Operation *op) {
  if (op->getNumResults() != 1)
    return {};
  Type type = getElementTypeOrSelf(op->getResult(0));
  return isa<FloatType>(type) ? type : Type();
}

/// Reports math that LLVM has operations for and NVIDIA GPUs no instructions.
static LogicalResult verifyInstructions(gpu::GPUModuleOp module) {
  WalkResult walk = module.walk([](Operation *op) {
    StringRef name = op->getName().getStringRef();
    Type type = floatOf(op);
    if (!type)
      return WalkResult::advance();
    bool isMath = name.consume_front("llvm.intr.");
    if (auto call = dyn_cast<LLVM::CallIntrinsicOp>(op)) {
      name = call.getIntrin();
      // llvm.fma.f32, but not llvm.nvvm.ex2.approx.ftz.f
      isMath = name.consume_front("llvm.") && !name.starts_with("nvvm.");
      name = name.split('.').first;
    } else if (isa<LLVM::FRemOp>(op)) {
      isMath = true;
    }
    // Reads and conversions are no math; LLVM has instructions for these.
    bool isOnFloats = llvm::all_of(op->getOperandTypes(), [](Type operand) {
      return isa<FloatType, IntegerType>(getElementTypeOrSelf(operand));
    });
    if (!isMath || !isOnFloats || name.starts_with("vector.") ||
        hasInstructions(name, type))
      return WalkResult::advance();
    op->emitOpError("has no instruction on NVIDIA GPUs for ")
        << type
        << "; write it with operations of the math dialect before "
           "fa-lower-to-nvvm, which has formulas for them";
    return WalkResult::interrupt();
  });
  return failure(walk.wasInterrupted());
}

namespace {
/// What a translation works with. After a fatal error it is left as it is:
/// LLVM may hold on to half of it.
struct Translation {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
  std::unique_ptr<llvm::TargetMachine> machine;
  std::string text;
  llvm::Error error = llvm::Error::success();
  ~Translation() { llvm::consumeError(std::move(error)); }
};
} // namespace

/// Prepares and generates; what goes wrong is in the translation's error.
static llvm::Error translate(gpu::GPUModuleOp module, Translation &t,
                             bool llvmInstead) {
  t.module = translateModuleToLLVMIR(module, t.context);
  if (!t.module)
    return fail("the module is not in the LLVM and NVVM dialects; run "
                "fa-lower-to-nvvm first");
  t.module->setTargetTriple(t.machine->getTargetTriple());
  t.module->setDataLayout(t.machine->createDataLayout());
  for (llvm::Function &f : *t.module) {
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
  return generate(*t.module, *t.machine, llvmInstead, t.text);
}

llvm::Expected<std::string> fa::emitPTX(gpu::GPUModuleOp module, StringRef chip,
                                        bool llvmInstead) {
  const NVIDIATarget *target = lookupNVIDIATarget(chip);
  if (!target)
    return fail("unknown target " + chip);
  auto machine = makeTargetMachine(*target);
  if (!machine)
    return machine.takeError();
  if (failed(verifyInstructions(module)))
    return fail("the module has operations that NVIDIA GPUs do not");
  auto translation = std::make_unique<Translation>();
  translation->machine = std::move(*machine);
  auto errors = std::make_shared<std::string>();
  collectDiagnostics(translation->context, errors);
  Translation *t = translation.get();
  if (llvm::Error fatal = catchFatalErrors([&] {
        llvm::consumeError(std::move(t->error));
        t->error = translate(module, *t, llvmInstead);
      })) {
    translation.release();
    return fail("LLVM cannot generate code for " + chip + ": " +
                llvm::toString(std::move(fatal)));
  }
  if (t->error)
    return std::move(t->error);
  if (!errors->empty())
    return fail("LLVM cannot generate code for " + chip + ": " + *errors);
  std::string header;
  if (auto lines = module->getAttrOfType<ArrayAttr>("fa.program"))
    for (auto line : lines.getAsRange<StringAttr>())
      header += (line.getValue() + "\n").str();
  return header + t->text;
}

/// Reports that there is no kernel, and what there is.
static void diagnoseNoKernel(ModuleOp module, StringRef chip) {
  unsigned functions = 0;
  bool hasAttention = false;
  module.walk([&](Operation *op) {
    functions += isa<FunctionOpInterface>(op);
    hasAttention |= isa<fa::AttentionOp>(op);
  });
  InFlightDiagnostic diag =
      module.emitError("expected a kernel (gpu.module) in the module, got ");
  if (functions)
    diag << functions << (functions == 1 ? " function" : " functions")
         << (hasAttention ? " with attention that is not lowered" : "");
  else
    diag << "no function";
  diag << "; run --fa-pipeline=target=" << chip
       << " and --fa-lower-to-nvidia=chip=" << chip
       << " on a module with fa.attention first";
}

namespace {
struct EmitPTX : public fa::impl::EmitPTXPassBase<EmitPTX> {
  using EmitPTXPassBase::EmitPTXPassBase;

  void runOnOperation() override {
    if (getOperation().getOps<gpu::GPUModuleOp>().empty()) {
      diagnoseNoKernel(getOperation(), chip);
      return signalPassFailure();
    }
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
