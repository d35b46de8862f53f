// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What tests of programs have: a context, a module, and memory for tensors.

#ifndef FA_TEST_UNIT_RUN_PROGRAMFIXTURE_H
#define FA_TEST_UNIT_RUN_PROGRAMFIXTURE_H

#include "fa/Pipelines/Registration.h"
#include "fa/Run/Compare.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"

#include "gtest/gtest.h"

#include <random>

namespace fa::run {

class ProgramFixture : public ::testing::Test {
protected:
  ProgramFixture() : context(makeRegistry()) {}
  static mlir::DialectRegistry makeRegistry() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }
  cpu::TensorRef allocate(cpu::DType dtype, std::vector<int64_t> shape) {
    cpu::TensorRef t =
        cpu::TensorRef::contiguous(nullptr, dtype, std::move(shape));
    memory.emplace_back(t.size() * sizeOf(dtype));
    t.data = memory.back().data();
    return t;
  }
  /// Normal values of deviation 1/2.
  cpu::TensorRef makeInput(cpu::DType dtype, std::vector<int64_t> shape) {
    cpu::TensorRef t = allocate(dtype, std::move(shape));
    std::normal_distribution<double> normal(0, 0.5);
    for (int64_t i = 0; i < t.size(); ++i)
      storeElement(t, i, normal(random));
    return t;
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::mt19937 random{7};
  std::vector<std::vector<char>> memory;
};

} // namespace fa::run

#endif // FA_TEST_UNIT_RUN_PROGRAMFIXTURE_H
