// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/Transforms/Passes.h"
#include "fa/Target/NVIDIA/Passes.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  registry.insert<fa::FADialect, mlir::func::FuncDialect, mlir::affine::AffineDialect,
    mlir::arith::ArithDialect, mlir::linalg::LinalgDialect, mlir::math::MathDialect,
    mlir::scf::SCFDialect, mlir::tensor::TensorDialect>();
  fa::registerFAPasses();
  fa::registerNVIDIADialects(registry);
  fa::registerNVIDIAPasses();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "fa's optimizer driver\n", registry));
}
