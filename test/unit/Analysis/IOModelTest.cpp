// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The IO model's growth laws, and its numbers against its polynomials.

#include "fa/Analysis/IOModel.h"
#include "fa/Dialect/FA/Transforms/Passes.h"
#include "fa/Pipelines/Registration.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace fa;

namespace {

TEST(Polynomial, PrintsInAFixedOrder) {
  auto s = [](const char *name) { return Polynomial::symbol(name); };
  Polynomial p = s("D") * s("Sq") * 2 + s("Sk") * s("Sq") * s("B") + 7 +
                 s("Sq") * s("Sq") + Polynomial::ceilDiv(s("Sk"), 64) * s("B");
  EXPECT_EQ(p.str(), "B*Sq*Sk + B*ceildiv(Sk, 64) + Sq^2 + 2*Sq*D + 7");
  EXPECT_EQ((p + p * -1).str(), "0");
  EXPECT_EQ(Polynomial::ceilDiv(100, 64).str(), "2");
  EXPECT_EQ(p.evaluate([](llvm::StringRef) { return 2.0; }), 8 + 4 + 4 + 8 + 7);
}

enum class Stage { Standard, FA1, FA2, StandardKernels, FA1Kernels };

class IOModel : public testing::Test {
protected:
  IOModel() {
    DialectRegistry registry;
    registerDialects(registry);
    ctx.appendDialectRegistry(registry);
    ctx.loadAllAvailableDialects();
  }

  IOReport run(Stage stage, int64_t length, int64_t rows = 0,
               int64_t keys = 0) {
    std::string type = "tensor<1x1x" + std::to_string(length) + "x64xf32>";
    std::string text =
        "func.func @f(%q: " + type + ", %k: " + type + ", %v: " + type +
        ") -> " + type + " { %o = fa.attention %q, %k, %v : (" + type + ", " +
        type + ", " + type + ") -> " + type + " return %o : " + type + " }";
    auto module = parseSourceString<ModuleOp>(text, &ctx);
    PassManager pm(&ctx);
    OpPassManager &func = pm.nest<func::FuncOp>();
    func.addPass(createDecomposePass());
    if (stage != Stage::Standard && stage != Stage::StandardKernels) {
      func.addPass(createOnlineSoftmaxPass());
      TilePassOptions options;
      options.rows = rows;
      options.keys = keys;
      func.addPass(createTilePass(options));
    }
    if (stage == Stage::FA2)
      func.addPass(createInterchangePass());
    if (stage == Stage::StandardKernels || stage == Stage::FA1Kernels) {
      DistributePassOptions options;
      options.rows = rows;
      options.keys = keys;
      func.addPass(createDistributePass(options));
    }
    EXPECT_TRUE(module && succeeded(pm.run(*module)));
    IOReport report = computeIO(*module->getOps<func::FuncOp>().begin());
    EXPECT_TRUE(report.readBytes.has_value());
    return report;
  }
  static double total(const IOReport &r) {
    return double(*r.readBytes) + double(*r.writeBytes);
  }
  MLIRContext ctx;
};

constexpr double kDim = 64;

TEST_F(IOModel, StandardIsLinearPlusQuadratic) {
  // a N d + b N^2, without a remainder: third differences vanish, and
  // b is the sum of the matrices' bytes.
  double t1 = total(run(Stage::Standard, 1024)),
         t2 = total(run(Stage::Standard, 2048)),
         t3 = total(run(Stage::Standard, 3072)),
         t4 = total(run(Stage::Standard, 4096));
  EXPECT_EQ(t4 - 3 * t3 + 3 * t2 - t1, 0);
  double b = (t3 - 2 * t2 + t1) / 2 / (1024.0 * 1024.0);
  // In f32, P needs no conversion: 7 matrices are read and 5 written.
  EXPECT_EQ(b, 4 * 7 + 4 * 5);
}

TEST_F(IOModel, FlashAttentionIsInverseInMemory) {
  // The paper's rule for M elements on chip; total = c N^2 d^2 / M * 4 bytes
  // plus what is linear in N. c is near 4 * 3: q is read, O read and written.
  double previous = 0;
  for (int64_t memory : {16384, 32768, 65536, 131072}) {
    int64_t n = 8192, keys = memory / (4 * kDim),
            rows = std::min<int64_t>(keys, kDim);
    double t = total(run(Stage::FA1, n, rows, keys));
    double law = double(n) * n * kDim * kDim / memory * 4;
    double c = t / law;
    EXPECT_GT(c, 11.5) << memory;
    EXPECT_LT(c, 14.0) << memory;
    if (previous != 0)
      EXPECT_NEAR(previous / t, 2, 0.1) << memory;
    previous = t;
  }
}

TEST_F(IOModel, FlashAttention2SavesTheState) {
  // The same tiles: k and v read for each block of rows (2d), against q, O, m
  // and l read and O, m and l written for each block of keys (3d + 4).
  double fa1 = total(run(Stage::FA1, 8192, 64, 64)),
         fa2 = total(run(Stage::FA2, 8192, 64, 64));
  EXPECT_NEAR(fa1 / fa2, (3 * kDim + 4) / (2 * kDim), 0.05);
}

TEST_F(IOModel, NumbersAreThePolynomials) {
  for (Stage stage : {Stage::Standard, Stage::FA1, Stage::FA2,
                      Stage::StandardKernels, Stage::FA1Kernels})
    for (int64_t n : {64, 333, 1000, 1024}) {
      IOReport r = run(stage, n, 64, 32);
      auto valueOf = [&](llvm::StringRef name) -> double {
        if (name == "B" || name == "Hq" || name == "Hk")
          return 1;
        if (name == "D" || name == "Dv")
          return kDim;
        if (name.starts_with("ceildiv"))
          return (n + (name.contains("32") ? 31 : 63)) /
                 (name.contains("32") ? 32 : 64);
        EXPECT_TRUE(name == "Sq" || name == "Sk") << name.str();
        return n;
      };
      EXPECT_FALSE(r.isUpperBound);
      EXPECT_EQ(r.read.evaluate(valueOf), *r.readBytes) << r.read.str();
      EXPECT_EQ(r.write.evaluate(valueOf), *r.writeBytes) << r.write.str();
      EXPECT_EQ(r.temp.evaluate(valueOf), *r.tempBytes) << r.temp.str();
    }
}

} // namespace
