// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Codegen.h"

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Target/CPU/Passes.h"
#include "fa/Target/FatalErrors.h"
#include "fa/Target/LLVMPasses.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/Passes.h"

#include "llvm/Analysis/LoopInfo.h"
#include "llvm/ExecutionEngine/Orc/CompileUtils.h"
#include "llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Utils/LoopUtils.h"

#include <mutex>

using namespace mlir;
using namespace fa;
using namespace fa::cpu;

static llvm::Error makeError(const std::string &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), "%s",
                                 message.c_str());
}

/// Whether only index arithmetic is left in a function.
static bool isCheap(func::FuncOp function) {
  bool cheap = true;
  function.walk([&](Operation *op) {
    if (op != function &&
        !isa<func::ReturnOp, tensor::DimOp, tensor::FromElementsOp>(op) &&
        !isa<arith::ArithDialect, affine::AffineDialect>(op->getDialect()))
      cheap = false;
  });
  return cheap;
}

/// Adds a function that computes the dimensions of the results from the same
/// arguments; drops it again where that takes more than their shapes.
static LogicalResult addShapeFunction(ModuleOp module, func::FuncOp function,
                                      const std::string &name, bool &added) {
  OpBuilder b(module.getContext());
  b.setInsertionPointToEnd(module.getBody());
  auto shapes = cast<func::FuncOp>(b.clone(*function));
  shapes.setName(name);
  auto ret = cast<func::ReturnOp>(shapes.front().getTerminator());
  b.setInsertionPoint(ret);
  Location loc = ret.getLoc();
  SmallVector<Value> dims;
  for (Value v : ret.getOperands())
    for (int64_t d = 0; d < cast<RankedTensorType>(v.getType()).getRank(); ++d)
      dims.push_back(arith::IndexCastOp::create(
          b, loc, b.getI64Type(),
          b.createOrFold<tensor::DimOp>(loc, getShapeSource(v), d)));
  added = false;
  if (dims.empty()) {
    shapes.erase();
    return success();
  }
  // A result has the sizes of its destination, whatever a loop computes.
  shapes.walk([](tensor::DimOp dim) {
    dim.getSourceMutable().assign(getShapeSource(dim.getSource()));
  });
  Value all = tensor::FromElementsOp::create(b, loc, dims);
  ret.getOperandsMutable().assign(all);
  shapes.setFunctionType(b.getFunctionType(
      function.getFunctionType().getInputs(), {all.getType()}));
  shapes.setResAttrsAttr(nullptr);
  PassManager pm(module.getContext(), func::FuncOp::getOperationName());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(memref::createResolveRankedShapeTypeResultDimsPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(memref::createResolveRankedShapeTypeResultDimsPass());
  pm.addPass(createCanonicalizerPass());
  if (failed(pm.run(shapes)))
    return failure();
  added = isCheap(shapes);
  if (!added)
    shapes.erase();
  return success();
}

/// Tells the optimiser that memory of the runtime's allocator has no alias.
static void annotateRuntime(ModuleOp module) {
  Builder b(module.getContext());
  if (auto alloc = module.lookupSymbol<LLVM::LLVMFuncOp>(
          "_mlir_memref_to_llvm_aligned_alloc"))
    alloc.setResultAttr(0, LLVM::LLVMDialect::getNoAliasAttrName(),
                        b.getUnitAttr());
}

static LogicalResult lower(ModuleOp module, const std::string &name,
                           const CodegenOptions &given, bool &hasShapes) {
  auto function = module.lookupSymbol<func::FuncOp>(name);
  auto found = function.walk([](Operation *op) {
    if (!isa<AttentionOp, AttentionBackwardOp>(op))
      return WalkResult::advance();
    op->emitError("can't be executed as it is; run fa-decompose or "
                  "fa-reference first");
    return WalkResult::interrupt();
  });
  if (found.wasInterrupted())
    return failure();
  // Other functions are not compiled unless this one needs them.
  function.setPublic();
  for (func::FuncOp other : module.getOps<func::FuncOp>())
    if (other != function && !other.isExternal())
      other.setPrivate();
  if (failed(addShapeFunction(module, function, name + "__shapes", hasShapes)))
    return failure();
  for (func::FuncOp entry : module.getOps<func::FuncOp>())
    if (entry.isPublic())
      entry->setAttr(LLVM::LLVMDialect::getEmitCWrapperAttrName(),
                     UnitAttr::get(module.getContext()));
  CPUOptions options = CPUOptions::host();
  if (given.vectorBits)
    options.vectorBits = given.vectorBits;
  options.unitInnerStride = given.unitInnerStride;
  PassManager pm(module.getContext());
  pm.addPass(createSymbolDCEPass());
  buildCPULoweringPipeline(pm, options);
  if (failed(pm.run(module)))
    return failure();
  annotateRuntime(module);
  return success();
}

/// Keeps LLVM from vectorizing loops that divide integers under a condition.
/// LLVM 22 computes such a division once where it is the same in all
/// iterations, but only if the condition holds for the first lane, and uses it
/// in the others: an address made of it is garbage then.
static void keepDivisionsScalar(llvm::Function &function) {
  if (function.isDeclaration())
    return;
  llvm::DominatorTree dominators(function);
  llvm::LoopInfo loops(dominators);
  for (llvm::Loop *loop : loops.getLoopsInPreorder()) {
    llvm::BasicBlock *latch = loop->getLoopLatch();
    auto dividesSometimes = [&](llvm::BasicBlock *block) {
      return !dominators.dominates(block, latch) &&
             llvm::any_of(*block, [](llvm::Instruction &op) {
               return op.isIntDivRem() &&
                      !isa<llvm::Constant>(op.getOperand(1));
             });
    };
    if (latch && llvm::any_of(loop->blocks(), dividesSometimes))
      llvm::addStringMetadataToLoop(loop, "llvm.loop.vectorize.enable", 0);
  }
}

/// Adds the function's entry, which takes an array of pointers to descriptors
/// and calls the wrapper that takes them one by one.
static void addEntry(llvm::Module &module, llvm::StringRef function) {
  llvm::Function *wrapper =
      module.getFunction(("_mlir_ciface_" + function).str());
  llvm::LLVMContext &context = module.getContext();
  auto *pointer = llvm::PointerType::getUnqual(context);
  auto *type = llvm::FunctionType::get(llvm::Type::getVoidTy(context),
                                       {pointer}, /*isVarArg=*/false);
  auto *entry =
      llvm::Function::Create(type, llvm::Function::ExternalLinkage,
                             MachineCode::entryName(function), module);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(context, "", entry));
  llvm::SmallVector<llvm::Value *> arguments;
  for (unsigned i = 0; i < wrapper->arg_size(); ++i)
    arguments.push_back(b.CreateLoad(
        pointer, b.CreateConstGEP1_64(pointer, entry->getArg(0), i)));
  b.CreateCall(wrapper, arguments);
  b.CreateRetVoid();
}

llvm::Expected<llvm::orc::JITTargetMachineBuilder> cpu::hostMachine() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  auto builder = llvm::orc::JITTargetMachineBuilder::detectHost();
  return builder;
}

/// Passes that take a tenth of the time of LLVM's -O1 and give most of its
/// gain.
static constexpr const char *kFastPasses =
    "function(sroa,early-cse,simplifycfg,instcombine<no-verify-fixpoint>,"
    "loop-mssa(licm))";

/// Instructions from which on a module is optimized by the fast passes alone: a
/// function of thousands of operations, for which others take a minute.
static constexpr unsigned kLargeModule = 50000;

static llvm::Error optimize(llvm::Module &module, llvm::TargetMachine &machine,
                            unsigned level) {
  if (module.getInstructionCount() > kLargeModule) {
    level = 0;
    machine.setOptLevel(llvm::CodeGenOptLevel::None);
  }
  if (level == 0)
    return runLLVMPasses(module, machine, kFastPasses);
  return makeOptimizingTransformer(level, /*sizeLevel=*/0, &machine)(&module);
}

/// Machine code for this machine; `errors` takes LLVM's diagnostics.
static llvm::Expected<MachineCode>
emitObject(ModuleOp module, const std::string &function, bool hasShapes,
           const CodegenOptions &options, std::shared_ptr<std::string> errors) {
  auto builder = hostMachine();
  if (!builder)
    return builder.takeError();
  builder->setCodeGenOptLevel(llvm::CodeGenOpt::getLevel(options.optimize)
                                  .value_or(llvm::CodeGenOptLevel::Aggressive));
  auto machine = builder->createTargetMachine();
  if (!machine)
    return machine.takeError();
  llvm::LLVMContext context;
  collectDiagnostics(context, std::move(errors));
  std::unique_ptr<llvm::Module> made = translateModuleToLLVMIR(module, context);
  if (!made)
    return makeError("translation to LLVM IR failed");
  made->setDataLayout((*machine)->createDataLayout());
  made->setTargetTriple((*machine)->getTargetTriple());
  llvm::for_each(*made, keepDivisionsScalar);
  addEntry(*made, function);
  MachineCode code;
  code.hasShapes = hasShapes;
  if (hasShapes)
    addEntry(*made, MachineCode::shapesOf(function));
  if (llvm::Error error = optimize(*made, **machine, options.optimize))
    return std::move(error);
  auto object = llvm::orc::SimpleCompiler(**machine)(*made);
  if (!object)
    return object.takeError();
  code.object = (*object)->getBuffer().str();
  return code;
}

llvm::Expected<MachineCode> cpu::generateCode(llvm::StringRef text,
                                              const std::string &function,
                                              const CodegenOptions &options) {
  DialectRegistry registry;
  registerCPUDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  context.allowUnregisteredDialects();
  std::string messages;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    // A module's functions may all have the same to say.
    std::string message = diagnostic.str();
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error &&
        !StringRef(messages).contains(message))
      messages += (messages.empty() ? "" : "; ") + message;
    return success();
  });
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(text, ParserConfig(&context));
  bool hasShapes = false;
  if (!module || failed(lower(*module, function, options, hasShapes)))
    return makeError("can't compile @" + function + " for the CPU: " +
                     (messages.empty() ? "a pass failed" : messages));
  auto errors = std::make_shared<std::string>();
  std::optional<llvm::Expected<MachineCode>> code;
  if (llvm::Error fatal = catchFatalErrors([&] {
        code.emplace(emitObject(*module, function, hasShapes, options, errors));
      }))
    return makeError("LLVM can't generate code for @" + function + ": " +
                     llvm::toString(std::move(fatal)));
  if (!*code)
    return code->takeError();
  if (!errors->empty())
    return makeError("LLVM can't generate code for @" + function + ": " +
                     *errors);
  return std::move(*code);
}
