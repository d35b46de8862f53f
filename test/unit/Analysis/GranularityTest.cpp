// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How coarse values are: the numbers expected, and quotients against brute
// force.

#include "fa/Dialect/FA/IR/Granularity.h"
#include "fa/Analysis/ScalarOpInterface.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace fa;

namespace {

/// The granularity of %x, which `body` computes from the coordinate %i, another
/// %j, the first row %i0 (a multiple of `multiple`), %n and %blocks
/// (tensor<?x?xi1>). The type of %x is `type`.
int64_t granularityOf(const std::string &body, int64_t multiple = 1,
                      const std::string &type = "index") {
  DialectRegistry registry;
  registerScalarModels(registry);
  MLIRContext ctx(registry);
  ctx.loadDialect<arith::ArithDialect, affine::AffineDialect, func::FuncDialect,
                  tensor::TensorDialect>();
  std::string text = R"(
func.func @f(%i: index, %j: index, %i0: index, %n: index,
             %blocks: tensor<?x?xi1>) -> )" +
                     type + R"( {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
)" + body +
                     "\n  return %x : " + type + "\n}";
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &ctx);
  if (!module) {
    ADD_FAILURE() << "does not parse: " << text;
    return -1;
  }
  func::FuncOp func = *module->getOps<func::FuncOp>().begin();
  Value x = func.front().getTerminator()->getOperand(0);
  return getGranularity(x, func.getArgument(0),
                        {{func.getArgument(2), multiple}});
}

TEST(Granularity, QuotientsOfTheCoordinate) {
  EXPECT_EQ(granularityOf("%x = arith.addi %i, %c0 : index"), 1);
  EXPECT_EQ(granularityOf("%x = arith.floordivsi %i, %c128 : index"), 128);
  EXPECT_EQ(granularityOf("%x = arith.divsi %i, %c64 : index"), 64);
  EXPECT_EQ(granularityOf("%x = arith.divui %i, %c64 : index"), 64);
  EXPECT_EQ(granularityOf("%x = affine.apply affine_map<(d) -> (d floordiv "
                          "96)>(%i)"),
            96);
}

TEST(Granularity, RoundingToZero) {
  EXPECT_EQ(granularityOf("%s = arith.subi %i, %c64 : index\n"
                          "%x = arith.floordivsi %s, %c64 : index"),
            64);
  // -64 gives -1, and -63 gives 0.
  EXPECT_EQ(granularityOf("%s = arith.subi %i, %c64 : index\n"
                          "%x = arith.divsi %s, %c64 : index"),
            1);
  EXPECT_EQ(granularityOf("%s = arith.addi %i, %n : index\n"
                          "%x = arith.divui %s, %c1 : index"),
            1);
  EXPECT_EQ(granularityOf("%s = arith.addi %i, %i0 : index\n"
                          "%x = arith.divsi %s, %c64 : index",
                          128),
            64);
}

TEST(Granularity, NarrowIntegersWrap) {
  const std::string quotient = "%c96 = arith.constant 96 : i8\n"
                               "%s = arith.index_cast %i : index to i8\n"
                               "%x = arith.divui %s, %c96 : i8";
  EXPECT_EQ(granularityOf(quotient, 1, "i8"), 1);
  EXPECT_EQ(granularityOf("%c = arith.constant 96 : i32\n"
                          "%s = arith.index_cast %i : index to i32\n"
                          "%x = arith.divui %s, %c : i32",
                          1, "i32"),
            96);
}

TEST(Granularity, Shifts) {
  EXPECT_EQ(granularityOf("%c6 = arith.constant 6 : index\n"
                          "%x = arith.shrsi %i, %c6 : index"),
            64);
  EXPECT_EQ(granularityOf("%c5 = arith.constant 5 : index\n"
                          "%x = arith.shrui %i, %c5 : index"),
            32);
  EXPECT_EQ(granularityOf("%x = arith.shli %i, %c1 : index"), 1);
}

/// Groups must begin at multiples of their size in the block, too.
TEST(Granularity, FirstRowOfTheBlock) {
  std::string quotient = "%s = arith.addi %i, %i0 : index\n"
                         "%x = arith.floordivsi %s, %c64 : index";
  EXPECT_EQ(granularityOf(quotient, 128), 64);
  EXPECT_EQ(granularityOf(quotient, 64), 64);
  EXPECT_EQ(granularityOf(quotient, 96), 32);
  EXPECT_EQ(granularityOf(quotient, 32), 32);
  EXPECT_EQ(granularityOf(quotient, 1), 1);
  EXPECT_EQ(granularityOf("%x = affine.apply affine_map<(d)[s] -> ((d + s) "
                          "floordiv 64)>(%i)[%i0]",
                          96),
            32);
}

TEST(Granularity, OtherOffsets) {
  EXPECT_EQ(granularityOf("%s = arith.addi %i, %c1 : index\n"
                          "%x = arith.floordivsi %s, %c64 : index"),
            1);
  EXPECT_EQ(granularityOf("%s = arith.addi %i, %c32 : index\n"
                          "%x = arith.floordivsi %s, %c128 : index"),
            32);
  EXPECT_EQ(granularityOf("%s = arith.addi %i, %c128 : index\n"
                          "%x = arith.floordivsi %s, %c64 : index"),
            64);
  EXPECT_EQ(granularityOf("%s = arith.addi %i, %n : index\n"
                          "%x = arith.floordivsi %s, %c64 : index"),
            1);
  // Backwards, groups end at multiples.
  EXPECT_EQ(granularityOf("%s = arith.subi %n, %i : index\n"
                          "%x = arith.floordivsi %s, %c64 : index"),
            1);
}

/// Whatever is computed of groups is the same for them.
TEST(Granularity, QuotientsGoOn) {
  EXPECT_EQ(granularityOf("%q = arith.floordivsi %i, %c128 : index\n"
                          "%l = arith.minsi %q, %n : index\n"
                          "%x = arith.maxsi %l, %c0 : index"),
            128);
  EXPECT_EQ(granularityOf("%q = arith.floordivsi %i, %c64 : index\n"
                          "%s = arith.addi %q, %n : index\n"
                          "%x = arith.muli %s, %s : index"),
            64);
  EXPECT_EQ(granularityOf("%q = arith.floordivsi %i, %c64 : index\n"
                          "%x = arith.index_cast %q : index to i32",
                          1, "i32"),
            64);
  EXPECT_EQ(granularityOf("%q = arith.floordivsi %i, %c64 : index\n"
                          "%m = arith.floordivsi %j, %c128 : index\n"
                          "%x = tensor.extract %blocks[%q, %m] : "
                          "tensor<?x?xi1>",
                          1, "i1"),
            64);
  // A group of another size: those of both.
  EXPECT_EQ(granularityOf("%q = arith.floordivsi %i, %c64 : index\n"
                          "%c96 = arith.constant 96 : index\n"
                          "%m = arith.floordivsi %i, %c96 : index\n"
                          "%x = arith.addi %q, %m : index"),
            32);
  // Quotients of quotients could say more than they do.
  EXPECT_EQ(granularityOf("%q = arith.floordivsi %i, %c64 : index\n"
                          "%x = arith.floordivsi %q, %c32 : index"),
            64);
}

TEST(Granularity, OneElementEach) {
  EXPECT_EQ(granularityOf("%x = arith.remui %i, %c64 : index"), 1);
  EXPECT_EQ(granularityOf("%x = arith.muli %i, %c64 : index"), 1);
  EXPECT_EQ(granularityOf("%x = arith.cmpi sle, %j, %i : index", 1, "i1"), 1);
  EXPECT_EQ(granularityOf("%x = arith.ceildivsi %i, %c64 : index"), 1);
  EXPECT_EQ(granularityOf("%x = arith.floordivsi %i, %n : index"), 1);
  // 2 i, of which 64 is the quotient of 32 neighbours.
  EXPECT_EQ(granularityOf("%s = arith.addi %i, %i : index\n"
                          "%x = arith.floordivsi %s, %c64 : index"),
            1);
  // Nothing is known of an op with regions.
  EXPECT_EQ(granularityOf("%t = tensor.generate %n {\n"
                          "^bb0(%a: index):\n"
                          "  tensor.yield %a : index\n"
                          "} : tensor<?xindex>\n"
                          "%x = tensor.extract %t[%c0] : tensor<?xindex>"),
            1);
}

TEST(Granularity, NoDependence) {
  EXPECT_EQ(granularityOf("%x = arith.addi %j, %i0 : index"), 0);
  EXPECT_EQ(granularityOf("%x = arith.floordivsi %j, %c64 : index"), 0);
  EXPECT_EQ(granularityOf("%x = arith.constant true", 1, "i1"), 0);
  EXPECT_EQ(granularityOf("%m = arith.floordivsi %j, %c64 : index\n"
                          "%x = tensor.extract %blocks[%c0, %m] : "
                          "tensor<?x?xi1>",
                          1, "i1"),
            0);
}

/// Whatever is said of a quotient, for all rows of the first blocks.
TEST(Granularity, HoldsForEveryRowOfABlock) {
  for (int64_t multiple : {1, 8, 32, 48, 64, 96, 128, 192})
    for (int64_t shift : {0, 1, 16, 32, 64, 100})
      for (int64_t divisor : {1, 3, 16, 64, 96, 128}) {
        int64_t groups =
            granularityOf("%k = arith.constant " + std::to_string(shift) +
                              " : index\n"
                              "%d = arith.constant " +
                              std::to_string(divisor) +
                              " : index\n"
                              "%a = arith.addi %i, %i0 : index\n"
                              "%s = arith.addi %a, %k : index\n"
                              "%x = arith.floordivsi %s, %d : index",
                          multiple);
        ASSERT_GE(groups, 1);
        for (int64_t block = 0; block < 4; ++block)
          for (int64_t i = 0; i < 256; ++i) {
            int64_t first = block * multiple + shift;
            ASSERT_EQ((first + i) / divisor,
                      (first + i / groups * groups) / divisor)
                << multiple << " " << shift << " " << divisor << " " << i;
          }
      }
}

} // namespace
