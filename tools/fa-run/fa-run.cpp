// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Pipelines/Registration.h"
#include "fa/Run/Run.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/WithColor.h"
#include "llvm/Support/raw_ostream.h"

#ifdef FA_TEST_PASSES
namespace fa {
void registerTestPasses();
} // namespace fa
#endif

namespace cl = llvm::cl;

namespace {
/// fa-run's flags. They are made after LLVM's own are dropped, because some of
/// those (threads) have the same names.
struct Flags {
  cl::OptionCategory category{"fa-run"};
  cl::opt<std::string> input{cl::Positional, cl::desc("FILE"), cl::init("-"),
                             cl::cat(category)};
  cl::opt<std::string> function{"func", cl::cat(category),
                                cl::desc("the function to run")};
  cl::opt<std::string> target{"target", cl::init("cpu"), cl::cat(category),
                              cl::desc("cpu, sm_80, sm_90a, ...")};
  cl::opt<bool> check{"check", cl::cat(category),
                      cl::desc("compare with a float64 reference")};
  cl::opt<bool> backward{
      "backward", cl::cat(category),
      cl::desc("run the function's gradient (fa-differentiate)")};
  cl::opt<bool> deterministic{
      "deterministic", cl::cat(category),
      cl::desc("gradients have the same bits each time, also on a GPU")};
  cl::opt<bool> eachStage{"each-stage", cl::cat(category),
                          cl::desc("execute the IR after every pass")};
  cl::opt<bool> io{"io", cl::cat(category),
                   cl::desc("print the bytes of fa.io")};
  cl::opt<unsigned> threads{"threads", cl::init(0), cl::cat(category),
                            cl::desc("threads of the CPU target; 0 for all")};
  cl::opt<unsigned> vectorBits{
      "vector-bits", cl::init(0), cl::cat(category),
      cl::desc(
          "bits of a vector register: 128, 256 or 512; 0 for the machine's")};
  cl::opt<unsigned> optimize{
      "optimize", cl::init(3), cl::ZeroOrMore, cl::cat(category),
      cl::desc(
          "optimization level of the CPU target, 0 to 3, as a C compiler's "
          "-O; 0 compiles in a third of the time")};
  cl::opt<std::string> shape{
      "shape", cl::cat(category),
      cl::desc("sizes of dynamic dimensions: B=2,Sq=333,Sk=1000,arg3.0=4")};
  cl::opt<uint64_t> seed{"seed", cl::init(0), cl::cat(category),
                         cl::desc("seed of the inputs")};
  cl::opt<std::string> data{"data", cl::init("telling"), cl::cat(category),
                            cl::desc("telling (normal, in a form that shows "
                                     "mistakes), normal, uniform, large or "
                                     "zero")};
  cl::opt<std::string> layout{
      "layout", cl::init("bhsd"), cl::cat(category),
      cl::desc("layout of the inputs: bhsd, bshd or strided")};
  cl::opt<unsigned> repeat{
      "repeat", cl::init(0), cl::cat(category),
      cl::desc("runs on the CPU, whose best time counts, or samples on a GPU, "
               "whose median counts; 0 for 1 on the CPU and 10 on a GPU")};
  cl::opt<std::string> passes{
      "passes", cl::cat(category),
      cl::desc("passes before execution, separated by commas; by default the "
               "target's pipeline")};
  cl::opt<std::string> algorithm{"algorithm", cl::init("fa2"),
                                 cl::cat(category),
                                 cl::desc("standard, fa1 or fa2")};
  cl::opt<std::string> stopAfter{"stop-after", cl::cat(category),
                                 cl::desc("the last pass to run; its result "
                                          "runs on the CPU")};
  cl::opt<int64_t> rows{"rows", cl::init(0), cl::cat(category),
                        cl::desc("rows of a tile, 0 to choose")};
  cl::opt<int64_t> keys{"keys", cl::init(0), cl::cat(category),
                        cl::desc("keys of a tile, 0 to choose")};
};
} // namespace

static int fail(const llvm::Twine &message) {
  llvm::WithColor::error(llvm::errs(), "fa-run") << message << "\n";
  return 1;
}

/// The options as the library takes them.
static llvm::Expected<fa::run::Options> makeOptions(const Flags &flags) {
  fa::run::Options options;
  options.function = flags.function;
  options.target = flags.target;
  options.check = flags.check;
  options.backward = flags.backward;
  options.eachStage = flags.eachStage;
  options.io = flags.io;
  options.threads = flags.threads;
  options.vectorBits = flags.vectorBits;
  if (flags.optimize > 3)
    return llvm::createStringError(
        "expected --optimize to be 0, 1, 2 or 3, got " +
        llvm::Twine(flags.optimize.getValue()));
  options.optimize = flags.optimize;
  options.seed = flags.seed;
  options.data = flags.data;
  options.layout = flags.layout;
  options.repeat = flags.repeat;
  auto expect = [](llvm::StringRef what, llvm::StringRef value,
                   llvm::ArrayRef<llvm::StringRef> choices) -> llvm::Error {
    if (llvm::is_contained(choices, value))
      return llvm::Error::success();
    return llvm::createStringError("expected --" + what + " to be one of " +
                                   llvm::join(choices, ", ") + ", got '" +
                                   value + "'");
  };
  if (llvm::Error error =
          expect("data", flags.data,
                 {"telling", "normal", "uniform", "large", "zero"}))
    return std::move(error);
  if (llvm::Error error =
          expect("layout", flags.layout, {"bhsd", "bshd", "strided"}))
    return std::move(error);
  auto sizes = fa::run::parseShape(flags.shape);
  if (!sizes)
    return sizes.takeError();
  options.shape = *sizes;
  if (flags.passes.getNumOccurrences()) {
    auto stages = fa::run::parseStages(flags.passes);
    if (!stages)
      return stages.takeError();
    options.stages = *stages;
    return options;
  }
  fa::PipelineOptions pipeline;
  pipeline.target = flags.target;
  pipeline.algorithm = flags.algorithm;
  pipeline.backward = flags.backward ? "all" : "";
  pipeline.deterministic = flags.deterministic;
  pipeline.stopAfter = flags.stopAfter;
  pipeline.rows = flags.rows;
  pipeline.keys = flags.keys;
  auto stages = fa::getStages(pipeline);
  if (!stages)
    return stages.takeError();
  options.stages.assign(stages->begin(), stages->end());
  if (!pipeline.stopAfter.empty())
    options.target = "cpu";
  return options;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::ResetCommandLineParser();
  Flags flags;
  cl::ParseCommandLineOptions(
      argc, argv, "fa-run: runs an attention function and judges the result\n");
  mlir::DialectRegistry registry;
  fa::registerDialects(registry);
  fa::registerPasses();
#ifdef FA_TEST_PASSES
  fa::registerTestPasses();
#endif
  auto options = makeOptions(flags);
  if (!options)
    return fail(llvm::toString(options.takeError()));
  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> file =
      mlir::openInputFile(flags.input, &message);
  if (!file)
    return fail(message);
  mlir::MLIRContext context(registry);
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(file), llvm::SMLoc());
  mlir::SourceMgrDiagnosticHandler handler(sources, &context);
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::parseSourceFile<mlir::ModuleOp>(sources, &context);
  if (!module)
    return 1;
  auto results = fa::run::run(*module, *options);
  if (!results)
    return fail(llvm::toString(results.takeError()));
  return fa::run::report(llvm::outs(), *results, *options) ? 0 : 1;
}
