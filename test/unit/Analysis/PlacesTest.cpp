// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether the places of fa.accumulate are those of a difference of coordinates.

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Pipelines/Registration.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace fa;

namespace {

/// What is said of places that `body` computes as %x from %i and %j, a block's
/// first row %i0, %flag and %buckets (tensor<?xindex>).
bool isOfDifference(const std::string &body) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext ctx(registry);
  std::string text = R"(
func.func @f(%terms: tensor<?x?xf32>, %init: tensor<?xf32>, %i0: index,
             %flag: i1, %buckets: tensor<?xindex>) -> tensor<?xf32> {
  %c3 = arith.constant 3 : index
  %r = fa.accumulate %terms into %init at {
    ^bb0(%i: index, %j: index):
)" + body + R"(
      fa.yield_places %x
  } : tensor<?x?xf32> into tensor<?xf32>
  return %r : tensor<?xf32>
})";
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &ctx);
  if (!module) {
    ADD_FAILURE() << "does not parse: " << text;
    return false;
  }
  bool result = false;
  module->walk([&](AccumulateOp op) { result = op.placeIsOfDifference(); });
  return result;
}

TEST(Places, OfADifference) {
  EXPECT_TRUE(isOfDifference("%x = arith.subi %i, %j : index"));
  EXPECT_TRUE(isOfDifference("%y = arith.addi %i, %i0 : index\n"
                             "%z = arith.subi %j, %y : index\n"
                             "%x = arith.muli %z, %c3 : index"));
  EXPECT_TRUE(isOfDifference(
      "%x = affine.apply affine_map<(i, j)[s] -> (i - j + s)>(%i, %j)[%i0]"));
  // Whatever is computed of one.
  EXPECT_TRUE(isOfDifference("%d = arith.subi %i, %j : index\n"
                             "%e = arith.maxsi %d, %c3 : index\n"
                             "%x = tensor.extract %buckets[%e] : "
                             "tensor<?xindex>"));
}

TEST(Places, OfMoreThanADifference) {
  EXPECT_FALSE(isOfDifference("%x = arith.addi %i, %j : index"));
  EXPECT_FALSE(isOfDifference("%x = arith.addi %i, %i0 : index"));
  EXPECT_FALSE(isOfDifference("%y = arith.muli %j, %c3 : index\n"
                              "%x = arith.subi %i, %y : index"));
  EXPECT_FALSE(isOfDifference("%y = tensor.extract %buckets[%i] : "
                              "tensor<?xindex>\n"
                              "%x = arith.subi %y, %j : index"));
  EXPECT_FALSE(isOfDifference("%y = arith.divsi %i, %c3 : index\n"
                              "%z = arith.divsi %j, %c3 : index\n"
                              "%x = arith.subi %y, %z : index"));
  // What a region reads is no operand.
  EXPECT_FALSE(isOfDifference("%x = scf.if %flag -> index {\n"
                              "  scf.yield %i : index\n"
                              "} else {\n"
                              "  scf.yield %c3 : index\n"
                              "}"));
}

} // namespace
