// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/Hopper/Transforms/Passes.h"
#include "fa/Target/NVIDIA/Passes.h"
#include "fa/Target/TargetInfo.h"

#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/ConvertToLLVM/ToLLVMPass.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVM.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Affine/IR/ValueBoundsOpInterfaceImpl.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/ValueBoundsOpInterfaceImpl.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Transforms/Passes.h"

#include <list>
#include <string>
#include <vector>

using namespace mlir;

/// What the schedules ask of the target table's rows, made once.
static const std::vector<fa::NVIDIATarget> &getTargets() {
  static const std::vector<fa::NVIDIATarget> targets = [] {
    // The names and features live as long as the process.
    static std::list<std::string> texts;
    std::vector<fa::NVIDIATarget> rows;
    for (StringRef name : fa::getKnownTargets()) {
      llvm::Expected<fa::TargetInfo> info = fa::lookupTarget(name);
      if (!info) {
        llvm::consumeError(info.takeError());
        continue;
      }
      if (info->kind != fa::TargetInfo::Kind::NVIDIA)
        continue;
      const char *chip = texts.emplace_back(name.str()).c_str();
      const char *feature =
          texts.emplace_back("+ptx" + std::to_string(info->ptxVersion)).c_str();
      rows.push_back({chip, info->sharedBytesPerBlock,
                      static_cast<unsigned>(info->registersPerThread), *info,
                      feature,
                      info->tensorCores == fa::TargetInfo::TensorCores::Wgmma});
    }
    return rows;
  }();
  return targets;
}

const fa::NVIDIATarget *fa::lookupNVIDIATarget(StringRef chip) {
  for (const NVIDIATarget &target : getTargets())
    if (chip == target.chip)
      return &target;
  return nullptr;
}

void fa::registerNVIDIADialects(DialectRegistry &registry) {
  registry.insert<hopper::HopperDialect, nvidia::NVIDIADialect,
                  affine::AffineDialect, arith::ArithDialect, gpu::GPUDialect,
                  LLVM::LLVMDialect, math::MathDialect, NVVM::NVVMDialect,
                  scf::SCFDialect, vector::VectorDialect>();
  affine::registerValueBoundsOpInterfaceExternalModels(registry);
  tensor::registerValueBoundsOpInterfaceExternalModels(registry);
  arith::registerConvertArithToLLVMInterface(registry);
  cf::registerConvertControlFlowToLLVMInterface(registry);
  index::registerConvertIndexToLLVMInterface(registry);
  registerConvertMathToLLVMInterface(registry);
  registerConvertNVVMToLLVMInterface(registry);
  ub::registerConvertUBToLLVMInterface(registry);
  vector::registerConvertVectorToLLVMInterface(registry);
  registerBuiltinDialectTranslation(registry);
  registerGPUDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}

void fa::buildNVIDIALoweringPipeline(OpPassManager &pm) {
  OpPassManager &gpu = pm.nest<gpu::GPUModuleOp>();
  gpu.addPass(createLowerAffinePass());
  // No canonicalizer before loops are branches: its patterns for a loop that
  // carries a hundred registers take seconds.
  gpu.addPass(createNormalizeCoordinatesPass());
  gpu.addPass(createCSEPass());
  gpu.addPass(createLowerKernelMathPass());
  gpu.addPass(createCSEPass());
  gpu.addPass(createLoopInvariantCodeMotionPass());
  gpu.addPass(createSCFToControlFlowPass());
  ConvertGpuOpsToNVVMOpsOptions toNVVM;
  // Coordinates are 32 bits; addresses are computed in i64 explicitly.
  toNVVM.indexBitwidth = 32;
  gpu.addPass(createConvertGpuOpsToNVVMOps(toNVVM));
  gpu.addPass(createFinishKernelsPass());
  gpu.addPass(createConvertNVVMToLLVMPass());
  gpu.addPass(createReconcileUnrealizedCastsPass());
  gpu.addPass(createCanonicalizerPass());
  gpu.addPass(createCSEPass());
}

void fa::buildHopperSchedule(OpPassManager &pm, std::unique_ptr<Pass> place) {
  pm.addPass(place ? std::move(place) : createHopperPlacePass());
  OpPassManager &func = pm.nest<func::FuncOp>();
  func.addPass(hopper::createNarrowTilesPass());
  func.addPass(hopper::createScheduleLoopsPass());
  func.addPass(hopper::createExpandLoopsPass());
  func.addPass(hopper::createOrderStepsPass());
  func.addPass(hopper::createFinishSchedulePass());
}

void fa::buildNVIDIAPipeline(OpPassManager &pm, const NVIDIAOptions &options) {
  if (const NVIDIATarget *target = lookupNVIDIATarget(options.chip);
      target && target->wgmma && options.hopper) {
    buildHopperSchedule(pm);
    pm.addNestedPass<func::FuncOp>(hopper::createVerifySchedulePass());
    pm.addPass(createHopperLayoutsPass());
  }
  ScheduleAmperePassOptions schedule;
  schedule.chip = options.chip;
  pm.addPass(createScheduleAmperePass(schedule));
  pm.addPass(createTilesToThreadsPass());
  buildNVIDIALoweringPipeline(pm);
}

namespace {
struct NVIDIAPipelineOptions : PassPipelineOptions<NVIDIAPipelineOptions> {
  Option<std::string> chip{
      *this, "chip", llvm::cl::desc("the target: a row of the target table"),
      llvm::cl::init("sm_80")};
};
} // namespace

/// The options of fa-schedule-hopper are those of its first pass.
static LogicalResult
parseHopperSchedule(OpPassManager &pm, StringRef options,
                    function_ref<LogicalResult(const Twine &)> error) {
  std::unique_ptr<Pass> place = fa::createHopperPlacePass();
  if (failed(place->initializeOptions(options, error)))
    return failure();
  fa::buildHopperSchedule(pm, std::move(place));
  return success();
}

void fa::registerNVIDIAPasses() {
  registerFANVIDIAPasses();
  hopper::registerFAHopperPasses();
  PassPipelineRegistration<>(
      "fa-lower-to-nvvm", "kernels to the LLVM and NVVM dialects",
      [](OpPassManager &pm) { buildNVIDIALoweringPipeline(pm); });
  registerPassPipeline(
      "fa-schedule-hopper",
      "tile programs as two roles on sm_90a; the options are fa-hopper-place's",
      parseHopperSchedule,
      [](function_ref<void(const detail::PassOptions &)>) {});
  PassPipelineRegistration<NVIDIAPipelineOptions>(
      "fa-lower-to-nvidia",
      "tile programs to kernels in the LLVM and NVVM dialects, by the chip's "
      "schedules",
      [](OpPassManager &pm, const NVIDIAPipelineOptions &text) {
        NVIDIAOptions options;
        options.chip = text.chip;
        buildNVIDIAPipeline(pm, options);
      });
}
