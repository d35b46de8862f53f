// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Target/CPU/Program.h"
#include "fa/Pipelines/Registration.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include "gtest/gtest.h"

#include <thread>

using namespace fa;
using namespace fa::cpu;

static const char *const kScale = R"(
func.func @scale(%x: tensor<?x3xf32>) -> tensor<?x3xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x3xf32>
  %e = tensor.empty(%n) : tensor<?x3xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x3xf32>) outs(%e : tensor<?x3xf32>) {
  ^bb0(%a: f32, %o: f32):
    %two = arith.constant 2.0 : f32
    %p = arith.mulf %a, %two : f32
    linalg.yield %p : f32
  } -> tensor<?x3xf32>
  return %y : tensor<?x3xf32>
})";

static llvm::Expected<std::unique_ptr<Program>> compileText(const char *text) {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  return Program::compile(*module);
}

static std::string messageOf(llvm::Error error) {
  return llvm::toString(std::move(error));
}

TEST(Program, RunsOnStridedTensors) {
  auto program = compileText(kScale);
  ASSERT_TRUE(bool(program)) << messageOf(program.takeError());
  // Stored transposed: the last dimension has stride 2.
  float x[] = {1, 4, 2, 5, 3, 6}, y[6] = {};
  TensorRef in{x, DType::F32, {2, 3}, {1, 2}};
  llvm::Error error =
      (*program)->run({in, TensorRef::contiguous(y, DType::F32, {2, 3})});
  ASSERT_FALSE(error) << messageOf(std::move(error));
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(y[i], 2.0f * (i + 1));
}

TEST(Program, NamesWhatDoesNotFit) {
  auto program = compileText(kScale);
  ASSERT_TRUE(bool(program)) << messageOf(program.takeError());
  float x[6] = {}, y[6] = {};
  auto in = TensorRef::contiguous(x, DType::F32, {2, 3});
  auto run = [&](std::vector<TensorRef> tensors) {
    return messageOf((*program)->run(tensors));
  };
  EXPECT_EQ(run({in}), "expected 1 inputs and 1 results, got 1 tensors");
  EXPECT_EQ(run({TensorRef::contiguous(x, DType::F16, {2, 3}), in}),
            "expected argument 0 of element type f32, got f16");
  EXPECT_EQ(run({TensorRef::contiguous(x, DType::F32, {3, 2}), in}),
            "expected argument 0 of shape [?, 3], got [3, 2]");
  EXPECT_EQ(run({in, TensorRef::contiguous(y, DType::F32, {1, 3})}),
            "expected result 0 of shape [2, 3] for these inputs, got [1, 3]");
  EXPECT_EQ(run({in, TensorRef::contiguous(nullptr, DType::F32, {2, 3})}),
            "expected result 0 to have memory, got null");
}

TEST(Program, RunsFromManyThreads) {
  auto program = compileText(kScale);
  ASSERT_TRUE(bool(program)) << messageOf(program.takeError());
  std::vector<std::thread> threads;
  std::vector<int> failures(4, 0);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<float> x(300, float(t)), y(300);
      for (int n = 0; n < 50; ++n) {
        llvm::Error error = (*program)->run(
            {TensorRef::contiguous(x.data(), DType::F32, {100, 3}),
             TensorRef::contiguous(y.data(), DType::F32, {100, 3})});
        failures[t] += bool(error) || y[299] != 2.0f * t;
        llvm::consumeError(std::move(error));
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(failures, std::vector<int>(4, 0));
}

TEST(Program, RejectsAttentionItself) {
  auto program = compileText(R"(
func.func @f(%q: tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32> {
  %o = fa.attention %q, %q, %q : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>,
    tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return %o : tensor<1x1x4x8xf32>
})");
  ASSERT_FALSE(bool(program));
  EXPECT_NE(messageOf(program.takeError()).find("run fa-decompose"),
            std::string::npos);
}
