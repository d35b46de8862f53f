// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Pipelines/Pipelines.h"
#include "fa/Target/TargetInfo.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace fa;

static llvm::Error optionError(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

using StageTexts = SmallVector<std::pair<std::string, std::string>>;

/// A GPU's schedule up to what its threads hold. Targets schedule by
/// themselves; these stages are there only where they are asked for, for a look
/// at what comes of them.
static StageTexts scheduleStages(const TargetInfo &target) {
  StageTexts stages;
  if (target.kind != TargetInfo::Kind::NVIDIA)
    return stages;
  if (target.tensorCores == TargetInfo::TensorCores::Wgmma)
    stages.append({{"fa-schedule-hopper", ""}, {"fa-hopper-layouts", ""}});
  stages.push_back({"fa-schedule-ampere", "chip=" + target.name.str()});
  return stages;
}

/// Of one function it makes two, or it is for all of a module's.
static bool isForModules(StringRef name) {
  return llvm::is_contained({"fa-differentiate", "fa-schedule-hopper",
                             "fa-hopper-layouts", "fa-schedule-ampere"},
                            name);
}

/// Stages up to the tile program: each a pass and its options.
static StageTexts stagesOf(const PipelineOptions &options,
                           const TargetInfo &target, bool speculate,
                           bool schedules) {
  std::string grid = "target=" + options.target +
                     " rows=" + std::to_string(options.rows) +
                     " keys=" + std::to_string(options.keys);
  std::string tile = grid + " algorithm=" + options.algorithm;
  // The order matters to a reference that earlier blocks give.
  std::string order =
      options.order == "auto" && !speculate ? "ascending" : options.order;
  // Coordinates in kernels have 32 bits.
  std::string bits =
      target.kind == TargetInfo::Kind::NVIDIA ? "index-bits=32" : "";
  if (!options.backward.empty()) {
    StageTexts stages = {
        // Of the function itself there is no tile program.
        {"fa-differentiate",
         "wrt=" + options.backward + (schedules ? " replace=1" : "")},
        {"fa-decompose", ""}};
    if (target.kind == TargetInfo::Kind::NVIDIA) {
      // Heads alone do not fill a GPU, and its tiles have one size.
      std::string ordered = options.deterministic ? " ordered=1" : "";
      stages.append({{"fa-parallelize", grid + ordered},
                     {"fa-tile", tile + ordered},
                     {"fa-pad-tiles", ""},
                     {"fa-clip-loads", ""},
                     {"fa-list-blocks", bits},
                     {"fa-split-mask-loops", bits}});
      // Warpgroups exchange random bits
      // (benchmarks/experiments/2026-11-28-dropout-exchanged-bits.md).
      bool exchanges = target.tensorCores == TargetInfo::TensorCores::Wgmma;
      // What has an order goes from the first rows to the last.
      if (!options.deterministic)
        stages.push_back({"fa-order-rows", ""});
      stages.append(
          {{"fa-expand-steps", ""},
           {"fa-fold-scale-exp2", ""},
           {"fa-orient-products", exchanges ? "random-columns=64" : ""}});
      if (options.deterministic)
        stages.push_back({"fa-order-sums", ""});
    } else if (options.algorithm != "standard") {
      stages.append({{"fa-tile", tile},
                     {"fa-list-blocks", bits},
                     {"fa-split-mask-loops", bits}});
    }
    return stages;
  }
  // On a tensor core's way the operation more would be seen.
  std::string large = target.kind == TargetInfo::Kind::NVIDIA
                          ? "large-products=wide"
                          : "large-products=all";
  if (options.algorithm == "standard")
    return {{"fa-decompose", ""},
            {"fa-distribute", tile},
            {"fa-pad-tiles", ""},
            {"fa-fold-scale-exp2", large}};
  if (options.algorithm == "fa1")
    return {{"fa-decompose", ""},
            {"fa-online-softmax", ""},
            {"fa-tile", tile},
            {"fa-distribute", tile},
            {"fa-pad-tiles", ""},
            {"fa-defer-normalization", ""},
            {"fa-fold-scale-exp2", large}};
  StageTexts stages = {{"fa-decompose", ""},
                       {"fa-online-softmax", ""},
                       {"fa-tile", tile},
                       {"fa-interchange", ""},
                       {"fa-pad-tiles", ""},
                       {"fa-clip-loads", ""},
                       {"fa-list-blocks", bits},
                       {"fa-split-mask-loops", bits},
                       {"fa-order-keys", "order=" + order},
                       {"fa-defer-normalization", ""},
                       {"fa-fuse", ""},
                       {"fa-fold-scale-exp2", large}};
  if (speculate)
    stages.push_back({"fa-speculate-max", "target=" + options.target});
  return stages;
}

/// Whether the running maximum is to leave the loop. By itself where tensor
/// cores are so fast that the softmax between them decides the time.
static llvm::Expected<bool> speculates(const PipelineOptions &options,
                                       const TargetInfo &target) {
  if (options.speculate == "auto")
    return options.algorithm == "fa2" &&
           target.tensorCores == TargetInfo::TensorCores::Wgmma;
  if (options.speculate == "off")
    return false;
  if (options.speculate != "on")
    return optionError("unknown speculate '" + options.speculate +
                       "'; expected auto, on or off");
  if (options.algorithm != "fa2")
    return optionError("expected speculate auto or off with algorithm " +
                       options.algorithm +
                       ", got on; only fa2 carries the "
                       "maximum in its loop");
  return true;
}

llvm::Expected<SmallVector<Stage>>
fa::getStages(const PipelineOptions &options) {
  if (!llvm::is_contained({"standard", "fa1", "fa2"}, options.algorithm))
    return optionError("unknown algorithm '" + options.algorithm +
                       "'; expected standard, fa1 or fa2");
  llvm::Expected<TargetInfo> target = lookupTarget(options.target);
  if (!target)
    return target.takeError();
  // What would be other options of a pass, or other passes.
  if (options.backward.find_first_not_of("0123456789+") != std::string::npos &&
      !llvm::is_contained({"all", "none"}, options.backward))
    return optionError(
        "unknown backward '" + options.backward +
        "'; expected all, none, or the numbers of arguments that "
        "are captured tensors, joined by +");
  if (options.rows < 0 || options.keys < 0)
    return optionError("expected tile sizes of at least 1, or 0 to choose, "
                       "got rows=" +
                       Twine(options.rows) + " keys=" + Twine(options.keys));
  if (!llvm::is_contained({"auto", "ascending", "descending"}, options.order))
    return optionError("unknown order '" + options.order +
                       "'; expected auto, ascending or descending");
  if (options.order == "descending" && options.algorithm != "fa2")
    return optionError("expected order auto or ascending with algorithm " +
                       options.algorithm +
                       ", got descending; only fa2 has a loop over keys in a "
                       "block of rows");
  llvm::Expected<bool> speculate = speculates(options, *target);
  if (!speculate)
    return speculate.takeError();
  SmallVector<Stage> stages;
  std::string names;
  StageTexts schedule = scheduleStages(*target);
  bool schedules = llvm::any_of(
      schedule, [&](auto &stage) { return stage.first == options.stopAfter; });
  StageTexts texts = stagesOf(options, *target, *speculate, schedules);
  if (schedules)
    llvm::append_range(texts, schedule);
  for (auto &[name, arguments] : texts) {
    std::string text = name;
    if (!arguments.empty())
      text += "{" + arguments + "}";
    stages.push_back(
        {name, isForModules(name) ? text : "func.func(" + text + ")"});
    if (name == options.stopAfter)
      return stages;
    names += (names.empty() ? "" : ", ") + name;
  }
  if (!options.stopAfter.empty())
    return optionError("no stage '" + options.stopAfter +
                       "' to stop after; the stages of algorithm " +
                       options.algorithm + " are " + names);
  return stages;
}

llvm::Error fa::buildPipeline(OpPassManager &manager,
                              const PipelineOptions &options) {
  llvm::Expected<SmallVector<Stage>> stages = getStages(options);
  if (!stages)
    return stages.takeError();
  for (const Stage &stage : *stages) {
    std::string message;
    llvm::raw_string_ostream os(message);
    if (failed(parsePassPipeline(stage.pipeline, manager, os)))
      return optionError("stage " + stage.name + ": " + message);
  }
  return llvm::Error::success();
}

namespace {
struct TextOptions : PassPipelineOptions<TextOptions> {
  Option<std::string> target{*this, "target",
                             llvm::cl::desc("cpu, sm_80, sm_90a, ..."),
                             llvm::cl::init("cpu")};
  Option<std::string> algorithm{*this, "algorithm",
                                llvm::cl::desc("standard, fa1 or fa2"),
                                llvm::cl::init("fa2")};
  Option<std::string> backward{
      *this, "backward",
      llvm::cl::desc("the functions' gradients, by query, key, value and "
                     "captured tensors: all, none, or numbers of arguments, as "
                     "3+5"),
      llvm::cl::init("")};
  Option<std::string> stopAfter{*this, "stop-after",
                                llvm::cl::desc("the last pass to run")};
  Option<int64_t> rows{*this, "rows", llvm::cl::desc("rows of a tile"),
                       llvm::cl::init(0)};
  Option<int64_t> keys{*this, "keys", llvm::cl::desc("keys of a tile"),
                       llvm::cl::init(0)};
  Option<std::string> speculate{
      *this, "speculate", llvm::cl::desc("fa-speculate-max: auto, on or off"),
      llvm::cl::init("auto")};
  Option<std::string> order{
      *this, "order",
      llvm::cl::desc("fa-order-keys: auto, ascending or descending"),
      llvm::cl::init("auto")};
  Option<bool> deterministic{
      *this, "deterministic",
      llvm::cl::desc("gradients have the same bits each time"),
      llvm::cl::init(false)};
};
} // namespace

void fa::registerPipelines() {
  registerPassPipeline(
      "fa-pipeline", "attention to the tile program, or a prefix of that",
      [](OpPassManager &manager, StringRef text,
         function_ref<LogicalResult(const Twine &)> error) -> LogicalResult {
        auto parsed = TextOptions::createFromString(text);
        if (!parsed)
          return failure();
        PipelineOptions options;
        options.target = parsed->target;
        options.algorithm = parsed->algorithm;
        options.backward = parsed->backward;
        options.stopAfter = parsed->stopAfter;
        options.rows = parsed->rows;
        options.keys = parsed->keys;
        options.speculate = parsed->speculate;
        options.order = parsed->order;
        options.deterministic = parsed->deterministic;
        if (llvm::Error e = buildPipeline(manager, options))
          return error(llvm::toString(std::move(e)));
        return success();
      },
      [](function_ref<void(const detail::PassOptions &)> options) {
        options(TextOptions());
      });
}
