// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs that are no attention, scheduled for Hopper by rules: what the
// interpreter computes of the schedule is what the CPU computes of the program.

#include "ProgramFixture.h"

#include "fa/Run/Interpreter.h"
#include "fa/Target/CPU/Program.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

using namespace fa;
using namespace fa::run;
using cpu::DType;
using cpu::TensorRef;

namespace {

class Rules : public ProgramFixture {
protected:
  static void SetUpTestSuite() { registerPasses(); }
  void parse(const std::string &name) {
    module = mlir::parseSourceFile<mlir::ModuleOp>(
        std::string(FA_TEST_INPUTS) + "/tiles/" + name, &context);
    ASSERT_TRUE(module);
  }
  void apply(llvm::StringRef passes) {
    mlir::PassManager pm(&context);
    ASSERT_TRUE(succeeded(mlir::parsePassPipeline(passes, pm)));
    ASSERT_TRUE(succeeded(pm.run(*module)));
  }
  /// Runs the program and its schedule on the same inputs; results, one of each
  /// of these types, have one shape.
  void compareBoth(const std::vector<TensorRef> &inputs,
                   const std::vector<DType> &results,
                   std::vector<int64_t> shape) {
    std::vector<TensorRef> expected, outs, all = inputs;
    for (DType dtype : results) {
      expected.push_back(allocate(dtype, shape));
      outs.push_back(allocate(dtype, shape));
    }
    auto program = cpu::Program::compile(*module);
    ASSERT_TRUE(bool(program)) << llvm::toString(program.takeError());
    llvm::append_range(all, expected);
    ASSERT_FALSE(bool((*program)->run(all)));
    mlir::OwningOpRef<mlir::ModuleOp> before = module->clone();
    apply("fa-schedule-hopper,func.func(hopper-verify)");
    auto function = *module->getOps<mlir::func::FuncOp>().begin();
    ASSERT_TRUE(hasRoles(function));
    for (uint64_t seed = 0; seed < 5; ++seed) {
      InterpreterOptions options;
      options.seed = seed;
      llvm::Error error =
          interpret(function, inputs, llvm::ArrayRef(outs), options);
      ASSERT_FALSE(bool(error)) << llvm::toString(std::move(error));
      // Sums in another order: a rounding of the result, and of what is summed.
      for (size_t i = 0; i < results.size(); ++i) {
        Comparison c = compare(outs[i], expected[i], {0.02, 0.01});
        EXPECT_TRUE(c.passed()) << "seed " << seed << ": error " << c.maxError
                                << " of " << c.maxReference;
        EXPECT_GT(c.maxReference, 1);
      }
    }
    module = std::move(before);
  }
};

} // namespace

// One loop, whose both operands it loads; edges of each kind.
TEST_F(Rules, ScheduleAProductWithAnEpilogue) {
  for (auto [rows, depth] :
       {std::pair<int64_t, int64_t>{128, 64}, {300, 200}, {64, 512}}) {
    parse("gemm.mlir");
    compareBoth({makeInput(DType::BF16, {rows, depth}),
                 makeInput(DType::BF16, {depth, 128}),
                 makeInput(DType::F32, {128})},
                {DType::BF16}, {rows, 128});
  }
}

// No step at all: the bias alone.
TEST_F(Rules, ScheduleAProductOfNothing) {
  parse("gemm.mlir");
  TensorRef bias = makeInput(DType::F32, {128});
  for (int64_t i = 0; i < 128; ++i)
    storeElement(bias, i, i - 64.0);
  compareBoth({makeInput(DType::BF16, {100, 0}),
               makeInput(DType::BF16, {0, 128}), bias},
              {DType::BF16}, {100, 128});
}

// Five products: tiles that are read by rows and by columns, first operands in
// registers and one that warpgroups share, whose product divides columns,
// vectors that follow the loop, two results and one to which blocks add.
TEST_F(Rules, ScheduleFiveProducts) {
  parse("backward.mlir");
  std::vector<TensorRef> inputs;
  for (int i = 0; i < 4; ++i)
    inputs.push_back(makeInput(DType::BF16, {256, 64}));
  TensorRef lse = makeInput(DType::F32, {256});
  for (int64_t i = 0; i < 256; ++i)
    storeElement(lse, i, 6 + 0.01 * i); // no weight is large
  inputs.push_back(lse);
  inputs.push_back(makeInput(DType::F32, {256}));
  compareBoth(inputs, {DType::BF16, DType::BF16, DType::F32}, {256, 64});
}

// A first operand that is loaded and turned, a sum of which warpgroups divide
// the columns, and a second operand that they share.
TEST_F(Rules, ScheduleARunningSum) {
  for (int64_t rows : {128, 300, 520}) {
    parse("linear.mlir");
    std::vector<TensorRef> inputs;
    for (int i = 0; i < 3; ++i)
      inputs.push_back(makeInput(DType::BF16, {rows, 64}));
    compareBoth(inputs, {DType::BF16}, {rows, 64});
  }
}

// Two products with a function between; the first operand of the second stays
// in registers.
TEST_F(Rules, ScheduleTwoProducts) {
  parse("mlp.mlir");
  compareBoth({makeInput(DType::F16, {256, 64}),
               makeInput(DType::F16, {64, 512}),
               makeInput(DType::F16, {512, 128})},
              {DType::F16}, {256, 128});
}
