// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program with roles that no pass has made: the gradients of keys and values.

#include "ProgramFixture.h"

#include "fa/Run/Interpreter.h"

#include "mlir/Parser/Parser.h"

#include <cmath>
#include <cstring>

using namespace fa;
using namespace fa::run;
using cpu::DType;
using cpu::TensorRef;

/// Keys and values of a block stay; queries and the gradient of their outputs
/// come 64 at a time.
static const char *const kGradients = R"(
#id = affine_map<(i,j)->(i,j)>
#col = affine_map<(i,j)->(j)>
!g = tensor<256x64xbf16>
!r = tensor<256xf32>
!key = tensor<128x64xbf16>
!row = tensor<64x64xbf16>
!tile = tensor<128x64xf32>
!pending = !hopper.pending<tensor<128x64xf32>>
func.func @gradients(%q: !g, %k: !g, %v: !g, %do: !g, %lse: !r, %d: !r) -> (!g, !g) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  %zero = arith.constant 0.0 : f32
  %scale = arith.constant 0.18 : f32
  %e = tensor.empty() : !g
  %r:2 = scf.forall (%j) = (0) to (256) step (128) shared_outs(%o0 = %e, %o1 = %e) -> (!g, !g) {
    %rk = hopper.ring "k" at 1024 barriers 0 : <1, !key>
    %rv = hopper.ring "v" at 17408 barriers 16 : <1, !key>
    %rq = hopper.ring "q" at 33792 barriers 32 : <2, !row>
    %rd = hopper.ring "do" at 50176 barriers 64 : <2, !row>
    hopper.producer registers 40 {
      %kt = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : !g to !key
      %vt = tensor.extract_slice %v[%j, 0] [128, 64] [1, 1] : !g to !key
      hopper.load %kt into %rk bytes 16384 : !key, <1, !key>
      hopper.load %vt into %rv bytes 16384 : !key, <1, !key>
      scf.for %i = %c0 to %c256 step %c64 {
        %qt = tensor.extract_slice %q[%i, 0] [64, 64] [1, 1] : !g to !row
        %dt = tensor.extract_slice %do[%i, 0] [64, 64] [1, 1] : !g to !row
        hopper.load %qt into %rq bytes 8192 : !row, <2, !row>
        hopper.load %dt into %rd bytes 8192 : !row, <2, !row>
      }
    }
    %w:2 = hopper.consumers 2 registers 232 -> (!key, !key) {
      %et = tensor.empty() : !tile
      %eb = tensor.empty() : !key
      %zeros = linalg.fill ins(%zero : f32) outs(%et : !tile) -> !tile
      %kt = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : !g to !key
      %vt = tensor.extract_slice %v[%j, 0] [128, 64] [1, 1] : !g to !key
      %ks = hopper.acquire %rk of %kt : <1, !key> -> <!key>
      %vs = hopper.acquire %rv of %vt : <1, !key> -> <!key>
      %l:2 = scf.for %i = %c0 to %c256 step %c64 iter_args(%dk = %zeros, %dv = %zeros) -> (!tile, !tile) {
        %lt = tensor.extract_slice %lse[%i] [64] [1] : !r to tensor<64xf32>
        %dt = tensor.extract_slice %d[%i] [64] [1] : !r to tensor<64xf32>
        %qt = tensor.extract_slice %q[%i, 0] [64, 64] [1, 1] : !g to !row
        %dot = tensor.extract_slice %do[%i, 0] [64, 64] [1, 1] : !g to !row
        %qs = hopper.acquire %rq of %qt : <2, !row> -> <!row>
        %s0 = hopper.wgmma %ks, %qs : (!hopper.slot<!key>, !hopper.slot<!row>) -> !pending
        %ds = hopper.acquire %rd of %dot : <2, !row> -> <!row>
        %p0 = hopper.wgmma %vs, %ds : (!hopper.slot<!key>, !hopper.slot<!row>) -> !pending
        %s = hopper.wait_group 1, %s0 : !pending
        %p = linalg.generic {indexing_maps = [#id, #col, #id], iterator_types = ["parallel", "parallel"]}
            ins(%s, %lt : !tile, tensor<64xf32>) outs(%et : !tile) {
        ^bb0(%x: f32, %y: f32, %o: f32):
          %m = arith.mulf %x, %scale : f32
          %n = arith.subf %m, %y : f32
          %z = math.exp2 %n : f32
          linalg.yield %z : f32
        } -> !tile
        %dp = hopper.wait_group 0, %p0 : !pending
        %pb = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
            ins(%p : !tile) outs(%eb : !key) {
        ^bb0(%x: f32, %o: bf16):
          %m = arith.truncf %x : f32 to bf16
          linalg.yield %m : bf16
        } -> !key
        %dsb = linalg.generic {indexing_maps = [#id, #id, #col, #id], iterator_types = ["parallel", "parallel"]}
            ins(%p, %dp, %dt : !tile, !tile, tensor<64xf32>) outs(%eb : !key) {
        ^bb0(%x: f32, %y: f32, %w2: f32, %o: bf16):
          %m = arith.subf %y, %w2 : f32
          %n = arith.mulf %m, %x : f32
          %t = arith.truncf %n : f32 to bf16
          linalg.yield %t : bf16
        } -> !key
        %dv0 = hopper.wgmma %pb, %ds transposed init(%dv) : (!key, !hopper.slot<!row>, !tile) -> !pending
        %dk0 = hopper.wgmma %dsb, %qs transposed init(%dk) : (!key, !hopper.slot<!row>, !tile) -> !pending
        %dv1, %dk1 = hopper.wait_group 0, %dv0, %dk0 : !pending, !pending
        hopper.release %qs : <!row>
        hopper.release %ds : <!row>
        scf.yield %dk1, %dv1 : !tile, !tile
      }
      %dkb = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%l#0 : !tile) outs(%eb : !key) {
      ^bb0(%x: f32, %o: bf16):
        %m = arith.truncf %x : f32 to bf16
        linalg.yield %m : bf16
      } -> !key
      %dvb = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%l#1 : !tile) outs(%eb : !key) {
      ^bb0(%x: f32, %o: bf16):
        %m = arith.truncf %x : f32 to bf16
        linalg.yield %m : bf16
      } -> !key
      hopper.yield %dkb, %dvb : !key, !key
    }
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %w#0 into %o0[%j, 0] [128, 64] [1, 1] : !key into !g
      tensor.parallel_insert_slice %w#1 into %o1[%j, 0] [128, 64] [1, 1] : !key into !g
    }
  }
  return %r#0, %r#1 : !g, !g
})";

namespace {

constexpr int64_t kRows = 256, kDim = 64;
using Matrix = std::vector<double>;

/// A program's text, parsed once, with inputs for it.
class Interpreter : public ProgramFixture {
protected:
  Interpreter() {
    for (int n = 0; n < 4; ++n)
      inputs.push_back(makeInput(DType::BF16, {kRows, kDim}));
    for (int n = 0; n < 2; ++n)
      inputs.push_back(makeInput(DType::F32, {kRows}));
  }

  void parse(std::string text) {
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    ASSERT_TRUE(module);
  }
  /// The program with some of its text replaced, where it is first.
  void parseWith(llvm::StringRef from, llvm::StringRef to) {
    std::string text = kGradients;
    size_t at = text.find(from.str());
    ASSERT_NE(at, std::string::npos);
    parse(text.replace(at, from.size(), to.str()));
  }
  llvm::Error run(const InterpreterOptions &options) {
    outs = {allocate(DType::BF16, {kRows, kDim}),
            allocate(DType::BF16, {kRows, kDim})};
    auto function = *module->getOps<mlir::func::FuncOp>().begin();
    return interpret(function, inputs, outs, options);
  }
  /// Whether a run with this seed ends, and without a number that is none.
  bool isRight(uint64_t seed, std::string *message = nullptr) {
    InterpreterOptions options;
    options.seed = seed;
    if (llvm::Error error = run(options)) {
      std::string text = llvm::toString(std::move(error));
      if (message)
        *message = text;
      return false;
    }
    for (const TensorRef &out : outs)
      for (int64_t i = 0; i < kRows * kDim; ++i)
        if (std::isnan(elementAt(out, i)))
          return false;
    return true;
  }
  /// How many of some seeds show that something is wrong.
  int countWrong(int seeds, std::string *message = nullptr) {
    int wrong = 0;
    for (int seed = 0; seed < seeds; ++seed)
      wrong += !isRight(seed, message);
    return wrong;
  }
  double at(int input, int64_t row, int64_t column) {
    return elementAt(inputs[input], row * kDim + column);
  }

  std::vector<TensorRef> inputs, outs;
};

} // namespace

TEST_F(Interpreter, ComputesGradients) {
  parse(kGradients);
  std::vector<Matrix> expected(2, Matrix(kRows * kDim, 0));
  for (int64_t j = 0; j < kRows; ++j)
    for (int64_t i = 0; i < kRows; ++i) {
      double s = 0, dp = 0;
      for (int64_t c = 0; c < kDim; ++c) {
        s += at(1, j, c) * at(0, i, c);
        dp += at(2, j, c) * at(3, i, c);
      }
      double p = std::exp2(0.18 * s - elementAt(inputs[4], i));
      double ds = p * (dp - elementAt(inputs[5], i));
      for (int64_t c = 0; c < kDim; ++c) {
        expected[0][j * kDim + c] += ds * at(0, i, c);
        expected[1][j * kDim + c] += p * at(3, i, c);
      }
    }
  for (uint64_t seed = 0; seed < 20; ++seed) {
    ASSERT_TRUE(isRight(seed));
    for (int n = 0; n < 2; ++n) {
      Comparison c = compare(
          outs[n],
          TensorRef::contiguous(expected[n].data(), DType::F64, {kRows, kDim}),
          {0.25, 0.02});
      EXPECT_TRUE(c.passed()) << "seed " << seed << " result " << n << " error "
                              << c.maxError << " of " << c.maxReference;
    }
  }
}

// What is left to chance is when things happen, not what comes of them.
TEST_F(Interpreter, OrdersDoNotShow) {
  parse(kGradients);
  InterpreterOptions options;
  options.adversarial = false;
  ASSERT_FALSE(run(options));
  std::vector<TensorRef> first = outs;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    ASSERT_TRUE(isRight(seed));
    for (int n = 0; n < 2; ++n)
      EXPECT_EQ(std::memcmp(outs[n].data, first[n].data, kRows * kDim * 2), 0);
  }
}

TEST_F(Interpreter, FindsAWaitForTooFew) {
  parseWith("wait_group 1, %s0", "wait_group 2, %s0");
  EXPECT_EQ(countWrong(10), 10);
  parseWith("wait_group 0, %p0", "wait_group 1, %p0");
  EXPECT_EQ(countWrong(10), 10);
}

// Queries are given back before the product that reads them has ended.
TEST_F(Interpreter, FindsAnEarlyRelease) {
  parseWith("        %dv1, %dk1 = hopper.wait_group 0, %dv0, %dk0 : !pending, "
            "!pending\n        hopper.release %qs : <!row>\n",
            "        hopper.release %qs : <!row>\n        %dv1, %dk1 = "
            "hopper.wait_group 0, %dv0, %dk0 : !pending, !pending\n");
  std::string message;
  EXPECT_EQ(countWrong(10, &message), 10);
  EXPECT_NE(message.find("gives back ring \"q\", stage 0, which hopper.wgmma"),
            std::string::npos)
      << message;
}

TEST_F(Interpreter, FindsReadsAfterTheRelease) {
  std::string message;
  parseWith("        %dv0 = hopper.wgmma",
            "        %early = arith.cmpi eq, %i, %c64 : index\n"
            "        hopper.release %qs if %early : <!row>\n"
            "        %dv0 = hopper.wgmma");
  EXPECT_EQ(countWrong(10, &message), 10);
  EXPECT_NE(message.find("reads ring \"q\", stage 1, which warpgroup"),
            std::string::npos)
      << message;
}

TEST_F(Interpreter, SaysWhoIsStuckAndWhere) {
  std::string message;
  parseWith("        hopper.release %ds : <!row>\n", "");
  EXPECT_EQ(countWrong(10, &message), 10);
  EXPECT_NE(message.find("the block is stuck"), std::string::npos) << message;
  EXPECT_NE(message.find("the producer waits at hopper.load"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("for ring \"do\", position 2, stage 0, to be empty, "
                         "which 0 of 2 warpgroups have released"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("warpgroup 1 waits at hopper.acquire"),
            std::string::npos)
      << message;
}

TEST_F(Interpreter, FindsLoadsThatNobodyTakes) {
  std::string message;
  parseWith("      scf.for %i = %c0 to %c256 step %c64 {\n",
            "      hopper.load %kt into %rk bytes 16384 : !key, <1, !key>\n"
            "      scf.for %i = %c0 to %c256 step %c64 {\n");
  // K's only stage is never given back.
  EXPECT_EQ(countWrong(5, &message), 5);
  EXPECT_NE(message.find("stuck"), std::string::npos) << message;
  parseWith(
      "      %ks = hopper.acquire %rk of %kt : <1, !key> -> <!key>\n",
      "      %ks = hopper.acquire %rk of %kt : <1, !key> -> <!key>\n"
      "      hopper.release %ks : <!key>\n"
      "      %kn = hopper.acquire %rk of %kt polled : <1, !key> -> <!key>\n");
  EXPECT_EQ(countWrong(5, &message), 5);
}

TEST_F(Interpreter, SlicesOutsideAreErrors) {
  std::string message;
  parseWith("(0) to (256) step (128) shared", "(0) to (384) step (128) shared");
  EXPECT_EQ(countWrong(3, &message), 3);
  EXPECT_NE(message.find("expected a slice inside of [256, 64], got offsets "
                         "[256, 0] sizes [128, 64] strides [1, 1]"),
            std::string::npos)
      << message;
}
