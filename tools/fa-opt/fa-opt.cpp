// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Pipelines/Registration.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  fa::registerDialects(registry);
  fa::registerPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(
      argc, argv, "fa-opt: runs fa's passes on attention IR\n", registry));
}
