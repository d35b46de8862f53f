// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Target/CPU/Program.h"
#include "fa/Pipelines/Registration.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include "llvm/Support/Endian.h"
#include "llvm/Support/xxhash.h"

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

TEST(Program, IsTheSameAfterSaveAndLoad) {
  auto compiled = compileText(kScale);
  ASSERT_TRUE(bool(compiled)) << messageOf(compiled.takeError());
  auto image = (*compiled)->save();
  ASSERT_TRUE(bool(image)) << messageOf(image.takeError());
  auto program = Program::load(*image);
  ASSERT_TRUE(bool(program)) << messageOf(program.takeError());
  EXPECT_EQ((*program)->getNumInputs(), 1u);
  EXPECT_EQ((*program)->getNumResults(), 1u);
  float x[] = {1, 4, 2, 5, 3, 6};
  // The second needs code for any strides, made from the IR.
  for (std::vector<int64_t> strides : {std::vector<int64_t>{3, 1}, {1, 2}}) {
    float y[6] = {};
    llvm::Error error =
        (*program)->run({{x, DType::F32, {2, 3}, strides},
                         TensorRef::contiguous(y, DType::F32, {2, 3})});
    ASSERT_FALSE(error) << messageOf(std::move(error));
    for (int i = 0; i < 6; ++i)
      EXPECT_EQ(y[i], 2 * x[i / 3 * strides[0] + i % 3 * strides[1]]);
  }
  auto again = (*program)->save();
  ASSERT_TRUE(bool(again)) << messageOf(again.takeError());
  EXPECT_EQ(*again, *image);
}

TEST(Program, RefusesImagesOfOthers) {
  auto program = compileText(kScale);
  ASSERT_TRUE(bool(program)) << messageOf(program.takeError());
  auto image = (*program)->save();
  auto host = hostName();
  ASSERT_TRUE(image && host);
  size_t at = image->find(*host);
  ASSERT_NE(at, std::string::npos);
  std::string other = *image;
  other.replace(at, 4, "GCC ");
  // With the right hash of what is wrong.
  uint64_t hash = llvm::xxh3_64bits(llvm::StringRef(other).drop_front(16));
  llvm::support::endian::write64le(&other[8], hash);
  std::string message = messageOf(Program::load(other).takeError());
  EXPECT_NE(message.find("expected an image for this machine, LLVM 22"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("got one for GCC "), std::string::npos) << message;
}

TEST(Program, RefusesDamagedImages) {
  auto program = compileText(kScale);
  ASSERT_TRUE(bool(program)) << messageOf(program.takeError());
  auto image = (*program)->save();
  ASSERT_TRUE(bool(image)) << messageOf(image.takeError());
  auto isRefused = [](llvm::StringRef bytes) {
    auto loaded = Program::load(bytes);
    if (loaded)
      return false;
    return messageOf(loaded.takeError()).find("anew") != std::string::npos;
  };
  for (size_t size = 0; size < image->size(); size += 1 + size / 7)
    EXPECT_TRUE(isRefused(llvm::StringRef(*image).take_front(size))) << size;
  EXPECT_TRUE(isRefused(*image + "x"));
  for (size_t at = 0; at < image->size(); at += 1 + at / 7) {
    std::string flipped = *image;
    flipped[at] ^= 1;
    EXPECT_TRUE(isRefused(flipped)) << at;
  }
  // Sizes that lie are seen where the hash is right, too.
  for (uint64_t size : {uint64_t(1) << 40, ~uint64_t(0)}) {
    std::string lying = *image;
    llvm::support::endian::write64le(&lying[16], size);
    uint64_t hash = llvm::xxh3_64bits(llvm::StringRef(lying).drop_front(16));
    llvm::support::endian::write64le(&lying[8], hash);
    auto loaded = Program::load(lying);
    EXPECT_FALSE(bool(loaded));
    llvm::consumeError(loaded.takeError());
  }
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

TEST(Program, RefusesSizesAndStridesBeyondItsArithmetic) {
  auto program = compileText(kScale);
  ASSERT_TRUE(bool(program)) << messageOf(program.takeError());
  // One row, repeated: nothing of it is read.
  float x[3] = {};
  auto run = [&](int64_t rows, int64_t stride) {
    TensorRef t{x, DType::F32, {rows, 3}, {stride, 1}};
    return messageOf((*program)->run({t, t}));
  };
  EXPECT_EQ(run(int64_t(1) << 30, 0),
            "expected sizes of argument 0 of at most 1073741823 (2^30 - 1), "
            "got [1073741824, 3]; split the tensor, or give a captured one "
            "more dimensions and indices");
  EXPECT_EQ(run(3, INT64_MAX / 2),
            "expected elements of argument 0 less than 2^62 bytes apart, got "
            "the stride 4611686018427387903 in a dimension of size 3; pass the "
            "strides of memory that is there");
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

TEST(Program, SurvivesWhatLLVMCannotCompile) {
  // An instruction of another machine: a fatal error in LLVM.
  auto program = compileText(R"(
func.func @f(%x: tensor<1xf32>) -> tensor<1xf32> {
  %c0 = arith.constant 0 : index
  %a = tensor.extract %x[%c0] : tensor<1xf32>
  %b = llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"(%a) : (f32) -> f32
  %y = tensor.from_elements %b : tensor<1xf32>
  return %y : tensor<1xf32>
})");
  ASSERT_FALSE(bool(program));
  std::string message = messageOf(program.takeError());
  EXPECT_NE(message.find("LLVM can't generate code for @f: Cannot select"),
            std::string::npos)
      << message;
  // And goes on.
  program = compileText(kScale);
  ASSERT_TRUE(bool(program)) << messageOf(program.takeError());
  float x[] = {1, 2, 3}, y[3] = {};
  llvm::Error error =
      (*program)->run({TensorRef::contiguous(x, DType::F32, {1, 3}),
                       TensorRef::contiguous(y, DType::F32, {1, 3})});
  ASSERT_FALSE(error) << messageOf(std::move(error));
  EXPECT_EQ(y[2], 6.0f);
}

TEST(Program, EndsWithoutMemoryForItsTemporaries) {
  // A temporary of 4 n^2 bytes, which what follows reads in two orders.
  const char *text = R"(
func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %e = tensor.empty(%n, %n) : tensor<?x?xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>,
      affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%x, %x : tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<?x?xf32>
  %v = tensor.empty(%n) : tensor<?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%v : tensor<?xf32>) -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%s, %s : tensor<?x?xf32>, tensor<?x?xf32>) outs(%z : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %q = arith.addf %o, %p : f32
    linalg.yield %q : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
})";
  auto program = compileText(text);
  ASSERT_TRUE(bool(program)) << messageOf(program.takeError());
  auto run = [&](int64_t n) {
    std::vector<float> x(n, 1), y(n);
    llvm::Error error =
        (*program)->run({TensorRef::contiguous(x.data(), DType::F32, {n}),
                         TensorRef::contiguous(y.data(), DType::F32, {n})});
    bool isShort = error.isA<OutOfMemoryError>();
    return std::make_pair(isShort, messageOf(std::move(error)));
  };
  // 16 TiB.
  auto [isShort, message] = run(int64_t(1) << 21);
  EXPECT_TRUE(isShort) << message;
  EXPECT_NE(message.find("expected 17592186044"), std::string::npos) << message;
  EXPECT_NE(message.find("got a limit of "), std::string::npos) << message;
  EXPECT_NE(message.find("use a tiled algorithm (fa2), fewer threads"),
            std::string::npos)
      << message;
  // What comes after has all memory.
  EXPECT_EQ(run(64).second, "");
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
