// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "GPU.h"
#include "Inputs.h"

#include "fa/Analysis/IOModel.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/NVIDIA/IR/NVIDIA.h"
#include "fa/Pipelines/Compile.h"
#include "fa/Run/Interpreter.h"
#include "fa/Target/CPU/Program.h"
#include "fa/Target/TargetInfo.h"

#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

#include "llvm/Support/raw_ostream.h"

#include <chrono>

using namespace mlir;
using namespace fa;
using namespace fa::run;
using cpu::Program;
using cpu::TensorRef;

namespace {

/// What a result of the function is, and so by which rule it is judged.
enum class Role { Output, LogSumExp, Gradient };

class Runner {
public:
  Runner(ModuleOp module, const Options &options)
      : module(module), options(options) {}
  llvm::Error prepare();
  llvm::Error differentiate();
  llvm::Error loadKernel();
  llvm::Error computeReference();
  llvm::Expected<std::vector<Result>> runStages();

private:
  llvm::Error applyPasses(ModuleOp target, const std::string &pipeline);
  llvm::Expected<std::vector<TensorRef>> makeResults(const Program &program);
  llvm::Expected<std::vector<TensorRef>>
  execute(ModuleOp target, unsigned repeat, Result &result);
  llvm::Expected<std::vector<TensorRef>>
  interpretRoles(func::FuncOp function, unsigned repeat, Result &result);
  llvm::Expected<std::vector<TensorRef>>
  reference(const std::string &precision);
  llvm::Error allowWhatRowsMove();
  void judge(const std::vector<TensorRef> &outs, Result &result);
  std::vector<int64_t> countBytes(func::FuncOp function);
  std::string locate(const Comparison &c, size_t number) const;
  llvm::Expected<Result> executeStage(ModuleOp current, const Stage &stage);
  llvm::Expected<Result> executeKernel(ModuleOp current);

  ModuleOp module;
  const Options &options;
  std::string name;
  TensorStore store;
  Problem problem;
  std::vector<TensorRef> inputs, exact;
  /// What each result is, and how far it may be from `exact`.
  std::vector<Role> roles;
  std::vector<Limit> limits;
  /// Of query, key and value, whose roundings all gradients have.
  cpu::DType attentionType = cpu::DType::F32;
  /// What the reference's derivatives of scores are wrong by, as a share of a
  /// gradient: they are differences (ReferenceBackward.cpp).
  double slopeError = 0;
  /// Which inputs are the forward's output and the gradient with respect to it.
  unsigned outInput = 0, outGradInput = 0;
  int64_t tileRows = 64;
  /// What the stages end in on a GPU; null on the CPU.
  std::unique_ptr<GPUProgram> kernel;
};

} // namespace

llvm::Error Runner::prepare() {
  func::FuncOp function;
  for (func::FuncOp f : module.getOps<func::FuncOp>()) {
    if (f.isExternal() ||
        (options.function.empty() ? !f.isPublic()
                                  : f.getName() != options.function))
      continue;
    if (function)
      return runError("expected one public function in the file, got @" +
                      function.getName().str() + " and @" + f.getName().str() +
                      "; choose with --func");
    function = f;
  }
  if (!function)
    return runError(options.function.empty()
                        ? "expected a public function in the file, got none"
                        : "no function @" + options.function +
                              " in the file; choose one that is there");
  name = function.getName().str();
  AttentionOp attention;
  unsigned count = 0;
  function.walk([&](AttentionOp op) {
    attention = op;
    ++count;
  });
  if (options.check && count != 1)
    return runError("--check needs exactly one fa.attention in @" + name +
                    ", got " + std::to_string(count) +
                    "; check the file from which this one was made");
  for (Value v : function.front().getTerminator()->getOperands())
    roles.push_back(attention && attention.getLse() && v == attention.getLse()
                        ? Role::LogSumExp
                        : Role::Output);
  auto made = makeInputs(function, attention, options, store, problem);
  if (!made)
    return made.takeError();
  inputs = std::move(*made);
  return options.backward ? differentiate() : llvm::Error::success();
}

/// From the function to its gradient: what the forward gives it is computed
/// here, exactly, and rounded.
llvm::Error Runner::differentiate() {
  if (llvm::Error error = applyPasses(module, "fa-differentiate"))
    return error;
  auto results = reference("f64");
  if (!results)
    return results.takeError();
  if (llvm::Error error = keepGradient(module, name))
    return error;
  auto gradient = module.lookupSymbol<func::FuncOp>(name);
  bool returnedLse = roles.size() > 1;
  bool lseFirst = returnedLse && roles.front() == Role::LogSumExp;
  unsigned first = inputs.size();
  auto rounded = [&](const TensorRef &exact, cpu::DType dtype) {
    TensorRef t = store.allocate(dtype, exact.shape);
    for (int64_t n = 0; n < t.size(); ++n)
      storeElement(t, n, elementAt(exact, n));
    return t;
  };
  cpu::DType lseType = cpu::DType::F32;
  gradient.walk([&](AttentionBackwardOp op) {
    attentionType = *dtypeOf(op.getElementType());
    lseType = *dtypeOf(op.getComputeType());
    slopeError = op.getScore().empty() ? 0 : 1e-9;
  });
  outInput = first;
  outGradInput = first + 2;
  const TensorRef &out = (*results)[lseFirst], &lse = (*results)[!lseFirst];
  inputs.push_back(rounded(out, attentionType));
  inputs.push_back(rounded(lse, lseType));
  inputs.push_back(
      makeNormal(attentionType, out.shape, first + 2, options, store));
  if (returnedLse)
    inputs.push_back(makeNormal(lseType, lse.shape, first + 3, options, store));
  roles.assign(gradient.getNumResults(), Role::Gradient);
  problem.backward = true;
  return llvm::Error::success();
}

/// Compiles for the GPU and loads the kernels. Comes before the references,
/// which may take minutes: what is missing is said at once.
llvm::Error Runner::loadKernel() {
  if (llvm::Error error = GPUProgram::findDevice())
    return error;
  OwningOpRef<ModuleOp> copy(module.clone());
  for (auto function : llvm::make_early_inc_range(copy->getOps<func::FuncOp>()))
    if (function.getName() != name)
      function.erase();
  for (const Stage &stage : options.stages)
    if (llvm::Error error = applyPasses(*copy, stage.pipeline))
      return error;
  auto ptx = compileToPTX(*copy, options.target);
  if (!ptx)
    return ptx.takeError();
  auto loaded = GPUProgram::load(*ptx);
  if (!loaded)
    return loaded.takeError();
  kernel = std::move(*loaded);
  return llvm::Error::success();
}

/// Runs one pass, on functions or, if it is not made for those, on the module;
/// a pipeline, which says itself what its passes are for, on the module.
llvm::Error Runner::applyPasses(ModuleOp target, const std::string &pipeline) {
  std::string messages;
  ScopedDiagnosticHandler handler(
      target.getContext(), [&](Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
          messages += (messages.empty() ? "" : "; ") + diagnostic.str();
        return success();
      });
  bool parsed = false;
  std::vector<std::string> texts = {pipeline};
  if (PassInfo::lookup(StringRef(pipeline).take_until(
          [](char c) { return c == '{' || c == '('; })))
    texts.insert(texts.begin(), "func.func(" + pipeline + ")");
  for (const std::string &text : texts) {
    PassManager pm(target.getContext());
    std::string ignored;
    llvm::raw_string_ostream os(ignored);
    if (failed(parsePassPipeline(text, pm, os))) {
      if (!parsed)
        messages = ignored;
      continue;
    }
    parsed = true;
    messages.clear();
    if (succeeded(pm.run(target)))
      return llvm::Error::success();
    break;
  }
  return runError("pass '" + pipeline + "' " +
                  (parsed ? "failed: " : "is not known: ") + messages);
}

/// Memory for the results, whose shapes the program knows.
llvm::Expected<std::vector<TensorRef>>
Runner::makeResults(const Program &program) {
  auto shapes = program.resultShapes(inputs);
  if (!shapes)
    return shapes.takeError();
  std::vector<TensorRef> outs;
  for (const TensorRef &t : *shapes)
    outs.push_back(store.allocate(t.dtype, t.shape));
  return outs;
}

llvm::Expected<std::vector<TensorRef>>
Runner::execute(ModuleOp target, unsigned repeat, Result &result) {
  if (nvidia::saysLayouts(target)) {
    // What is computed does not depend on where it lives.
    OwningOpRef<ModuleOp> copy(target.clone());
    nvidia::dropLayouts(*copy);
    return execute(*copy, repeat, result);
  }
  if (auto function = target.lookupSymbol<func::FuncOp>(name);
      function && hasRoles(function))
    return interpretRoles(function, repeat, result);
  cpu::CompileOptions compile;
  compile.function = name;
  compile.vectorBits = options.vectorBits;
  compile.optimize = options.optimize;
  auto program = Program::compile(target, compile);
  if (!program)
    return program.takeError();
  auto outs = makeResults(**program);
  if (!outs)
    return outs.takeError();
  std::vector<TensorRef> all = inputs;
  all.insert(all.end(), outs->begin(), outs->end());
  cpu::RunOptions runOptions;
  runOptions.threads = options.threads;
  result.seconds = 0;
  for (unsigned i = 0; i < std::max(1u, repeat); ++i) {
    cpu::RunStatistics statistics;
    auto start = std::chrono::steady_clock::now();
    if (llvm::Error error = (*program)->run(all, runOptions, &statistics))
      return std::move(error);
    std::chrono::duration<double> time =
        std::chrono::steady_clock::now() - start;
    result.seconds = i ? std::min(result.seconds, time.count()) : time.count();
    result.temporaryBytes = statistics.peakTemporaryBytes;
  }
  result.gigaflops =
      result.seconds > 0 ? problem.flops() / result.seconds * 1e-9 : 0;
  return outs;
}

/// What has roles is no program for the CPU.
llvm::Expected<std::vector<TensorRef>>
Runner::interpretRoles(func::FuncOp function, unsigned repeat, Result &result) {
  InterpreterOptions interpreter;
  interpreter.seed = options.seed;
  auto allocate = [&](cpu::DType dtype, std::vector<int64_t> shape) {
    return store.allocate(dtype, std::move(shape));
  };
  std::vector<TensorRef> outs;
  result.seconds = 0;
  result.temporaryBytes = -1;
  for (unsigned i = 0; i < std::max(1u, repeat); ++i) {
    auto start = std::chrono::steady_clock::now();
    auto made = interpret(function, inputs, allocate, interpreter);
    if (!made)
      return made.takeError();
    std::chrono::duration<double> time =
        std::chrono::steady_clock::now() - start;
    result.seconds = i ? std::min(result.seconds, time.count()) : time.count();
    outs = std::move(*made);
  }
  result.note = "interpreted, seed " + std::to_string(options.seed);
  result.gigaflops =
      result.seconds > 0 ? problem.flops() / result.seconds * 1e-9 : 0;
  return outs;
}

llvm::Expected<std::vector<TensorRef>>
Runner::reference(const std::string &precision) {
  OwningOpRef<ModuleOp> copy(module.clone());
  if (llvm::Error error =
          applyPasses(*copy, "fa-reference{precision=" + precision + "}"))
    return std::move(error);
  Result ignored;
  return execute(*copy, 1, ignored);
}

llvm::Error Runner::computeReference() {
  auto wide = reference("f64");
  if (!wide)
    return wide.takeError();
  exact = std::move(*wide);
  auto same = reference("same");
  if (!same)
    return same.takeError();
  for (auto [role, naive, reference] : llvm::zip(roles, *same, exact)) {
    if (role == Role::LogSumExp) {
      limits.push_back(lseLimit(naive.dtype));
      continue;
    }
    Comparison n = compare(naive, reference, 0);
    limits.push_back(
        role == Role::Gradient
            ? gradientLimit(attentionType, n.maxError, n.maxReference)
            : outputLimit(naive.dtype, n.maxError, n.maxReference));
    limits.back().absolute += slopeError * n.maxReference;
  }
  return roles.front() == Role::Gradient ? allowWhatRowsMove()
                                         : llvm::Error::success();
}

/// Adds to the limits of gradients what they move by if the product of a row's
/// output with its gradient is rounded, which its terms are subtracted from
/// (docs/right.md): as if the log-sum-exp's gradient were another. Where they
/// cancel that is all there is.
llvm::Error Runner::allowWhatRowsMove() {
  const TensorRef out = inputs[outInput], grad = inputs[outGradInput];
  std::vector<int64_t> shape(out.shape.begin(), out.shape.end() - 1);
  int64_t dims = out.shape.back();
  bool isWide = attentionType == cpu::DType::F64;
  // Eight roundings of a sum of products in what is computed in.
  double rounding = 8 * (isWide ? 0x1p-53 : 0x1p-24);
  TensorRef moved =
      store.allocate(isWide ? cpu::DType::F64 : cpu::DType::F32, shape);
  auto placeOf = [](const TensorRef &t, int64_t row) {
    int64_t offset = 0;
    for (int64_t d = 2; d >= 0; row /= t.shape[d--])
      offset += row % t.shape[d] * t.strides[d];
    return offset;
  };
  for (int64_t row = 0; row < moved.size(); ++row) {
    double terms = 0;
    for (int64_t d = 0; d < dims; ++d)
      terms +=
          std::abs(elementAt(out, placeOf(out, row) + d * out.strides[3]) *
                   elementAt(grad, placeOf(grad, row) + d * grad.strides[3]));
    // Signs without a pattern.
    bool isUp = (static_cast<uint64_t>(row) * 0x9e3779b97f4a7c15u) >> 63;
    double error = std::isfinite(terms) ? rounding * terms : 0;
    storeElement(moved, placeOf(moved, row), isUp ? error : -error);
  }
  OwningOpRef<ModuleOp> copy(module.clone());
  auto function = copy->lookupSymbol<func::FuncOp>(name);
  std::vector<TensorRef> given = inputs;
  function.walk([&](AttentionBackwardOp op) {
    if (Value known = op.getLseGrad()) {
      TensorRef &own = given[cast<BlockArgument>(known).getArgNumber()];
      for (int64_t row = 0; row < moved.size(); ++row)
        storeElement(moved, placeOf(moved, row),
                     elementAt(moved, placeOf(moved, row)) +
                         elementAt(own, placeOf(own, row)));
      own = moved;
      return;
    }
    unsigned last = function.getNumArguments();
    if (failed(function.insertArgument(last, op.getLse().getType(), {},
                                       op.getLoc())))
      return;
    op.getLseGradMutable().assign(function.getArgument(last));
    given.push_back(moved);
  });
  if (llvm::Error error = applyPasses(*copy, "fa-reference{precision=f64}"))
    return error;
  std::swap(inputs, given);
  Result ignored;
  auto results = execute(*copy, 1, ignored);
  std::swap(inputs, given);
  if (!results)
    return results.takeError();
  for (auto [limit, other, reference] : llvm::zip(limits, *results, exact))
    limit.absolute += compare(other, reference, 0).maxError;
  return llvm::Error::success();
}

/// "tile rows 64..127 of batch 0, head 3; element [0, 3, 70, 5]"
std::string Runner::locate(const Comparison &c, size_t number) const {
  const std::vector<int64_t> &at = c.firstBadIndex;
  std::string text = "result " + std::to_string(number);
  if (at.size() >= 3) {
    int64_t first = at[2] / tileRows * tileRows;
    int64_t last = std::min(first + tileRows, problem.queries) - 1;
    text += ", tile " + std::to_string(at[2] / tileRows) + " (rows " +
            std::to_string(first) + " to " + std::to_string(last) +
            ") of batch " + std::to_string(at[0]) + ", head " +
            std::to_string(at[1]);
  }
  std::string values;
  llvm::raw_string_ostream os(values);
  os << llvm::format(": got %.9g, expected %.9g", c.firstBadOut,
                     c.firstBadReference);
  return text + ", element " + printIndex(at) + values + " (" +
         std::to_string(c.badElements) + " elements differ)";
}

void Runner::judge(const std::vector<TensorRef> &outs, Result &result) {
  result.checked = true;
  for (size_t i = 0; i < outs.size(); ++i) {
    Comparison c = compare(outs[i], exact[i], limits[i]);
    if (roles[i] != Role::LogSumExp) {
      // Of several the one that is nearest to its limit.
      double share = c.maxError / limits[i].absolute;
      if (i == 0 || share > result.error / result.limit) {
        result.error = c.maxError;
        result.limit = limits[i].absolute;
      }
    } else {
      result.lseError = c.maxError;
    }
    if (!c.passed() && result.passed) {
      result.passed = false;
      result.difference = locate(c, i);
    }
  }
}

/// HBM traffic of a stage by the IO model.
std::vector<int64_t> Runner::countBytes(func::FuncOp function) {
  IOOptions sizes;
  sizes.shape["B"] = problem.batch;
  sizes.shape["Sq"] = problem.queries;
  sizes.shape["Sk"] = problem.keys;
  IOReport report = computeIO(function, sizes);
  return {report.readBytes.value_or(-1), report.writeBytes.value_or(-1),
          report.tempBytes.value_or(-1)};
}

llvm::Expected<Result> Runner::executeStage(ModuleOp current,
                                            const Stage &stage) {
  Result result;
  result.stage = stage.name;
  auto outs = execute(current, options.repeat, result);
  if (!outs)
    return runError("after " + stage.name + ": " +
                    llvm::toString(outs.takeError()));
  if (options.check)
    judge(*outs, result);
  auto function = current.lookupSymbol<func::FuncOp>(name);
  if (options.io)
    result.io = countBytes(function);
  return result;
}

/// The kernel's run, as a stage after the last one, whose IR is `current`.
llvm::Expected<Result> Runner::executeKernel(ModuleOp current) {
  constexpr unsigned kSamples = 10;
  Result result;
  result.stage = "kernel (" + options.target + ")";
  cpu::CompileOptions compile;
  compile.function = name;
  compile.optimize = options.optimize;
  auto program = Program::compile(current, compile);
  if (!program)
    return program.takeError();
  auto outs = makeResults(**program);
  if (!outs)
    return outs.takeError();
  unsigned repeat = options.repeat ? options.repeat : kSamples;
  if (llvm::Error error = kernel->run(inputs, *outs, repeat, result))
    return runError(result.stage + ": " + llvm::toString(std::move(error)));
  result.gigaflops =
      result.seconds > 0 ? problem.flops() / result.seconds * 1e-9 : 0;
  auto note = kernel->describe();
  if (!note)
    return note.takeError();
  result.note = "median of " + std::to_string(repeat) + " on " + *note;
  if (options.check)
    judge(*outs, result);
  if (options.io)
    result.io = countBytes(current.lookupSymbol<func::FuncOp>(name));
  return result;
}

/// The rows of a block, from the loop over them: the widest step in the
/// function's outermost loop whose steps are not 1.
static std::optional<int64_t> rowsOfTile(func::FuncOp function) {
  std::optional<int64_t> rows;
  function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    auto loop = dyn_cast<LoopLikeOpInterface>(op);
    std::optional<SmallVector<OpFoldResult>> steps =
        loop ? loop.getLoopSteps() : std::nullopt;
    if (!steps)
      return WalkResult::advance();
    for (OpFoldResult step : *steps)
      if (std::optional<int64_t> n = getConstantIntValue(step); n && *n > 1)
        rows = std::max(rows.value_or(0), *n);
    return rows ? WalkResult::interrupt() : WalkResult::advance();
  });
  return rows;
}

llvm::Expected<std::vector<Result>> Runner::runStages() {
  OwningOpRef<ModuleOp> current(module.clone());
  std::vector<Result> results;
  Stage last{"as given", ""};
  for (const Stage &stage : options.stages) {
    if (options.backward && stage.name == "fa-differentiate")
      continue; // what `module` has been through
    if (llvm::Error error = applyPasses(*current, stage.pipeline))
      return std::move(error);
    last = stage;
    if (std::optional<int64_t> rows =
            rowsOfTile(current->lookupSymbol<func::FuncOp>(name)))
      tileRows = *rows;
    if (!options.eachStage)
      continue;
    auto result = executeStage(*current, stage);
    if (!result)
      return result.takeError();
    results.push_back(std::move(*result));
  }
  if (kernel || !options.eachStage || options.stages.empty()) {
    auto result =
        kernel ? executeKernel(*current) : executeStage(*current, last);
    if (!result)
      return result.takeError();
    results.push_back(std::move(*result));
  }
  return results;
}

llvm::Expected<std::vector<Result>> fa::run::run(ModuleOp module,
                                                 const Options &options) {
  auto target = lookupTarget(options.target);
  if (!target)
    return target.takeError();
  Runner runner(module, options);
  if (llvm::Error error = runner.prepare())
    return std::move(error);
  if (target->kind == TargetInfo::Kind::NVIDIA)
    if (llvm::Error error = runner.loadKernel())
      return std::move(error);
  if (options.check)
    if (llvm::Error error = runner.computeReference())
      return std::move(error);
  return runner.runStages();
}
