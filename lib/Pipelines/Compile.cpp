// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Pipelines/Compile.h"
#include "fa/Pipelines/Registration.h"
#include "fa/Target/NVIDIA/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include "llvm/ADT/StringExtras.h"

#include <mutex>

using namespace mlir;
using namespace fa;

static llvm::Error compileError(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

/// Registering passes is global.
static void registerPassesOnce() {
  static std::once_flag once;
  std::call_once(once, registerPasses);
}

/// Adds the target's schedule with `schedule` among its options.
static llvm::Error addSchedule(OpPassManager &manager, StringRef target,
                               StringRef schedule) {
  const NVIDIATarget *chip = lookupNVIDIATarget(target);
  if (!chip)
    return compileError("expected schedule options for an NVIDIA target only, "
                        "got '" +
                        schedule + "' for " + target + "; leave them out");
  registerPassesOnce();
  std::string message;
  llvm::raw_string_ostream os(message);
  StringRef name = chip->wgmma ? "fa-schedule-hopper" : "fa-schedule-ampere";
  std::string text = (name + "{chip=" + target + " " + schedule + "}").str();
  if (chip->wgmma)
    text += ",func.func(hopper-verify),fa-hopper-layouts";
  // Braces and commas would be other passes.
  bool plain = schedule.find_first_of("{},()") == StringRef::npos;
  if (!plain || failed(parsePassPipeline(text, manager, os)))
    return compileError("expected options of " + name + ", got '" + schedule +
                        "'" + (message.empty() ? "" : ": ") +
                        StringRef(message).rtrim());
  return llvm::Error::success();
}

/// "by=ampere" is the base row of the target in its place.
static CompileRequest withBase(CompileRequest request) {
  if (request.schedule != "by=ampere")
    return request;
  llvm::Expected<TargetInfo> target = lookupTarget(request.pipeline.target);
  if (!target) {
    llvm::consumeError(target.takeError()); // getStages says it
    return request;
  }
  if (target->kind != TargetInfo::Kind::NVIDIA)
    return request; // addSchedule says it
  request.schedule.clear();
  if (!target->base.empty())
    request.pipeline.target = target->base.str();
  return request;
}

llvm::Error fa::checkOptions(const CompileRequest &given) {
  CompileRequest request = withBase(given);
  llvm::Expected<SmallVector<Stage>> stages = getStages(request.pipeline);
  if (!stages)
    return stages.takeError();
  if (request.schedule.empty())
    return llvm::Error::success();
  OpPassManager manager(ModuleOp::getOperationName());
  return addSchedule(manager, request.pipeline.target, request.schedule);
}

namespace {
/// Collects diagnostics as the text of an error.
class Collector {
public:
  explicit Collector(MLIRContext *context)
      : handler(context, [this](Diagnostic &diagnostic) {
          if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
            return;
          llvm::raw_string_ostream os(text);
          if (!text.empty())
            os << "\n";
          if (auto loc =
                  diagnostic.getLocation()->findInstanceOf<FileLineColLoc>())
            os << "line " << loc.getLine() << ", column " << loc.getColumn()
               << ": ";
          os << diagnostic;
        }) {}
  llvm::Error error(StringRef what) const {
    return compileError(text.empty() ? what.str() + " failed" : text);
  }

  /// The diagnostics, which say where, or the error itself.
  llvm::Error error(llvm::Error otherwise) const {
    if (text.empty())
      return otherwise;
    llvm::consumeError(std::move(otherwise));
    return compileError(text);
  }

private:
  std::string text;
  ScopedDiagnosticHandler handler;
};
} // namespace

namespace {
/// Keeps what passes say that they did not do though a user may expect it: a
/// schedule or a speculated maximum that a program does not get.
class NoteStreamer : public remark::detail::MLIRRemarkStreamerBase {
public:
  explicit NoteStreamer(std::vector<std::string> &notes) : notes(notes) {}

  void streamOptimizationRemark(const remark::detail::Remark &remark) override {
    std::string note = remark.getCategoryName().str() + ": ";
    for (const auto &arg : remark.getArgs())
      if (arg.key == "Remark")
        note += arg.val;
    if (!llvm::is_contained(notes, note))
      notes.push_back(std::move(note));
  }

private:
  std::vector<std::string> &notes;
};
} // namespace

/// The missed remarks of these passes become notes.
static void collectNotes(MLIRContext &context,
                         std::vector<std::string> &notes) {
  remark::RemarkCategories categories;
  categories.missed = "fa-speculate-max|fa-hopper-place";
  // Without an engine there are no notes, and nothing else is missing.
  (void)remark::enableOptimizationRemarks(
      context, std::make_unique<NoteStreamer>(notes),
      std::make_unique<remark::RemarkEmittingPolicyAll>(), categories);
}

/// PTX with its notes as comments behind the header, so that they stay with it
/// where it is kept.
static std::string withNotes(std::string ptx,
                             llvm::ArrayRef<std::string> notes) {
  constexpr llvm::StringLiteral kEnd = "//!fa.end\n";
  size_t end = ptx.find(kEnd.str());
  if (notes.empty() || end == std::string::npos)
    return ptx;
  std::string text;
  for (const std::string &note : notes)
    text += "// fa.note: " + note + "\n";
  return ptx.insert(end + kEnd.size(), text);
}

/// An error with the notes behind it, which may say why.
static llvm::Error withNotes(llvm::Error error,
                             llvm::ArrayRef<std::string> notes) {
  if (notes.empty())
    return error;
  return compileError(llvm::toString(std::move(error)) + " (" +
                      llvm::join(notes, "; ") + ")");
}

/// The attention function to compile: the one named, or the only one.
static llvm::Expected<func::FuncOp> findFunction(ModuleOp module,
                                                 StringRef name) {
  if (!name.empty()) {
    if (auto func = module.lookupSymbol<func::FuncOp>(name))
      return func;
    return compileError("no function '" + name + "' in the module");
  }
  SmallVector<func::FuncOp> functions;
  for (auto func : module.getOps<func::FuncOp>())
    if (func.isPublic() && !func.isExternal())
      functions.push_back(func);
  if (functions.size() != 1)
    return compileError("expected one public function in the module, got " +
                        Twine(functions.size()) + "; name one");
  return functions.front();
}

static llvm::Error runPipeline(ModuleOp module, StringRef text, StringRef name,
                               const Collector &collector) {
  PassManager manager(module.getContext());
  std::string message;
  llvm::raw_string_ostream os(message);
  if (failed(parsePassPipeline(text, manager, os)))
    return compileError(message);
  if (failed(manager.run(module)))
    return collector.error(name);
  return llvm::Error::success();
}

/// A schedule with options of its own; then no other will do.
static llvm::Error runSchedule(ModuleOp module, StringRef target,
                               StringRef schedule, const Collector &collector) {
  PassManager manager(module.getContext());
  if (llvm::Error error = addSchedule(manager, target, schedule))
    return error;
  if (failed(manager.run(module)))
    return collector.error("the schedule");
  if (!nvidia::saysLayouts(module))
    return compileError("the schedule does not take this program; "
                        "leave out its options '" +
                        schedule + "'");
  return llvm::Error::success();
}

llvm::Expected<std::string> fa::compileToPTX(ModuleOp module, StringRef target,
                                             StringRef schedule) {
  Collector collector(module.getContext());
  NVIDIAOptions options;
  options.chip = target.str();
  if (!schedule.empty()) {
    if (llvm::Error error = runSchedule(module, target, schedule, collector))
      return error;
    options.hopper = false;
  }
  PassManager manager(module.getContext());
  buildNVIDIAPipeline(manager, options);
  // Once at the end: verifying thousands of operations after each pass would be
  // half of the time. fa-opt does it, and every test of a stage.
  manager.enableVerifier(false);
  if (failed(manager.run(module)) || failed(verify(module)))
    return collector.error("the NVIDIA schedule");
  auto kernels = module.getOps<gpu::GPUModuleOp>();
  if (kernels.empty())
    return compileError("the module has no kernel; it must be a tile program "
                        "(run the whole fa-pipeline)");
  llvm::Expected<std::string> ptx = emitPTX(*kernels.begin(), target);
  if (!ptx)
    return collector.error(ptx.takeError());
  return ptx;
}

static std::unique_ptr<MLIRContext> makeContext() {
  registerPassesOnce();
  DialectRegistry registry;
  registerDialects(registry);
  auto context =
      std::make_unique<MLIRContext>(registry, MLIRContext::Threading::DISABLED);
  context->loadAllAvailableDialects();
  return context;
}

llvm::Error fa::keepGradient(ModuleOp module, std::string &name) {
  name += "_backward";
  auto gradient = module.lookupSymbol<func::FuncOp>(name);
  if (!gradient)
    return compileError("expected an fa.attention to differentiate, got none; "
                        "give the forward's function");
  for (auto function :
       llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
    if (function != gradient)
      function.erase();
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<CompiledKernel>>
fa::compileKernel(StringRef ir, const CompileRequest &given) {
  CompileRequest request = withBase(given);
  llvm::Expected<SmallVector<Stage>> stages = getStages(request.pipeline);
  if (!stages)
    return stages.takeError();
  std::vector<std::string> notes; // of the context's remarks
  std::unique_ptr<MLIRContext> context = makeContext();
  collectNotes(*context, notes);
  Collector collector(context.get());
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(ir, ParserConfig(context.get()));
  if (!module)
    return collector.error("parsing");
  llvm::Expected<func::FuncOp> func = findFunction(*module, request.function);
  if (!func)
    return func.takeError();
  std::string function = func->getName().str();
  auto kernel = std::make_unique<CompiledKernel>();
  for (const Stage &stage : *stages) {
    if (llvm::Error error =
            runPipeline(*module, stage.pipeline, stage.name, collector))
      return error;
    if (stage.name == "fa-differentiate")
      if (llvm::Error error = keepGradient(*module, function))
        return error;
    CompiledStage kept{stage.name, "", ""};
    if (request.keepStages) {
      if (llvm::Error error = runPipeline(*module, "func.func(fa-annotate-io)",
                                          stage.name, collector))
        return error;
      auto current = module->lookupSymbol<func::FuncOp>(function);
      llvm::raw_string_ostream io(kept.io), text(kept.ir);
      if (Attribute traffic = current->getAttr("fa.io"))
        traffic.print(io);
      current->removeAttr("fa.io");
      module->print(text);
    }
    kernel->stages.push_back(std::move(kept));
  }
  auto compiled = module->lookupSymbol<func::FuncOp>(function);
  kernel->numResults = compiled.getNumResults();
  kernel->numArguments = compiled.getNumArguments() + kernel->numResults;
  if (request.pipeline.target == "cpu") {
    cpu::CompileOptions options;
    options.function = function;
    options.optimize = request.optimize;
    auto program = cpu::Program::compile(*module, options);
    if (!program)
      return program.takeError();
    kernel->program = std::move(*program);
    return kernel;
  }
  llvm::Expected<std::string> ptx =
      compileToPTX(*module, request.pipeline.target, request.schedule);
  if (!ptx)
    return withNotes(ptx.takeError(), notes);
  kernel->ptx = withNotes(std::move(*ptx), notes);
  return kernel;
}
