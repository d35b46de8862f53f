// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Target/CPU/Passes.h"

#include "fa/Analysis/ScalarOpInterface.h"
#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Affine/IR/ValueBoundsOpInterfaceImpl.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/IR/ValueBoundsOpInterfaceImpl.h"
#include "mlir/Dialect/Arith/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/FuncBufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Linalg/Transforms/SubsetInsertionOpInterfaceImpl.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/IR/ValueBoundsOpInterfaceImpl.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/IR/ValueBoundsOpInterfaceImpl.h"
#include "mlir/Dialect/SCF/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/IR/TensorInferTypeOpInterfaceImpl.h"
#include "mlir/Dialect/Tensor/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Tensor/Transforms/SubsetInsertionOpInterfaceImpl.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/Vector/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Transforms/Passes.h"

#include "llvm/TargetParser/Host.h"

using namespace mlir;
using namespace fa;

CPUOptions CPUOptions::host() {
  CPUOptions options;
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  if (features.lookup("avx512f") && features.lookup("avx512bw") &&
      features.lookup("avx512vl"))
    options.vectorBits = 512;
  else if (features.lookup("avx2") && features.lookup("fma"))
    options.vectorBits = 256;
  else
    options.vectorBits = 128;
  options.nativeBF16 = features.lookup("avx512bf16");
  return options;
}

/// Tensors -> buffers -> vectors.
static void buildSchedule(OpPassManager &pm, const CPUOptions &options) {
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.nest<func::FuncOp>().addPass(createCPUTrimPaddingPass());
  // Nothing between these two: CSE would join what must stay apart.
  pm.nest<func::FuncOp>().addPass(
      createCPUPreparePass({options.unitInnerStride}));
  pm.addPass(createCPUBufferizePass({options.unitInnerStride}));
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  ScheduleCPUPassOptions schedule;
  schedule.vectorBits = options.vectorBits;
  // Bounds of sizes are in affine.min.
  pm.nest<func::FuncOp>().addPass(createScheduleCPUPass(schedule));
  pm.addPass(createLowerAffinePass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createCPUParallelizePass());
}

void fa::buildCPULoweringPipeline(OpPassManager &pm,
                                  const CPUOptions &options) {
  buildSchedule(pm, options);
  pm.nest<func::FuncOp>().addPass(
      createCPUExpandMathPass({options.nativeBF16}));
  pm.nest<func::FuncOp>().addPass(arith::createArithExpandOpsPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  pm.addPass(createSCFToControlFlowPass());
  FinalizeMemRefToLLVMConversionPassOptions memory;
  memory.useAlignedAlloc = true;
  memory.useGenericFunctions = true;
  pm.addPass(createConvertMathToLLVMPass());
  // Takes vectors apart for functions of single numbers.
  pm.addPass(createConvertMathToLibmPass());
  pm.addPass(createConvertVectorToLLVMPass());
  pm.addPass(createFinalizeMemRefToLLVMConversionPass(memory));
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createConvertFuncToLLVMPass());
  pm.addPass(createUBToLLVMConversionPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(createCanonicalizerPass());
}

namespace {
/// Options of the pipelines as text; 0 and "host" ask the machine.
struct CPUPipelineOptions : PassPipelineOptions<CPUPipelineOptions> {
  Option<unsigned> vectorBits{
      *this, "vector-bits",
      llvm::cl::desc("bits of a vector register, 0: this machine's"),
      llvm::cl::init(0)};
  Option<bool> unitInnerStride{
      *this, "unit-inner-stride",
      llvm::cl::desc("tensors have unit stride in their last dimension"),
      llvm::cl::init(true)};
  CPUOptions resolve() const {
    CPUOptions options = CPUOptions::host();
    if (vectorBits)
      options.vectorBits = vectorBits;
    options.unitInnerStride = unitInnerStride;
    return options;
  }
};
} // namespace

void fa::registerCPUPipelines() {
  PassPipelineRegistration<CPUPipelineOptions>(
      "fa-lower-to-cpu", "tensor program -> LLVM dialect for the CPU",
      [](OpPassManager &pm, const CPUPipelineOptions &options) {
        buildCPULoweringPipeline(pm, options.resolve());
      });
  PassPipelineRegistration<CPUPipelineOptions>(
      "fa-cpu-schedule", "tensor program -> vector loops for the CPU",
      [](OpPassManager &pm, const CPUPipelineOptions &options) {
        buildSchedule(pm, options.resolve());
      });
}

void fa::registerCPUDialects(DialectRegistry &registry) {
  registry.insert<FADialect, affine::AffineDialect, arith::ArithDialect,
                  bufferization::BufferizationDialect, cf::ControlFlowDialect,
                  func::FuncDialect, linalg::LinalgDialect, LLVM::LLVMDialect,
                  math::MathDialect, memref::MemRefDialect, scf::SCFDialect,
                  tensor::TensorDialect, vector::VectorDialect>();
  registerScalarModels(registry);
  affine::registerValueBoundsOpInterfaceExternalModels(registry);
  arith::registerValueBoundsOpInterfaceExternalModels(registry);
  memref::registerValueBoundsOpInterfaceExternalModels(registry);
  scf::registerValueBoundsOpInterfaceExternalModels(registry);
  arith::registerBufferizableOpInterfaceExternalModels(registry);
  bufferization::func_ext::registerBufferizableOpInterfaceExternalModels(
      registry);
  linalg::registerBufferizableOpInterfaceExternalModels(registry);
  linalg::registerSubsetOpInterfaceExternalModels(registry);
  scf::registerBufferizableOpInterfaceExternalModels(registry);
  tensor::registerBufferizableOpInterfaceExternalModels(registry);
  tensor::registerSubsetOpInterfaceExternalModels(registry);
  tensor::registerInferTypeOpInterfaceExternalModels(registry);
  vector::registerBufferizableOpInterfaceExternalModels(registry);
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}
