// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether the places of fa.accumulate are those of a difference of coordinates,
// and whether coordinates have places of their own.

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
bool ask(const std::string &body, llvm::function_ref<bool(AccumulateOp)> what) {
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
  module->walk([&](AccumulateOp op) { result = what(op); });
  return result;
}
bool isOfDifference(const std::string &body) {
  return ask(body, [](AccumulateOp op) { return op.placeIsOfDifference(); });
}
bool hasOwn(const std::string &body, llvm::ArrayRef<unsigned> dims) {
  return ask(body, [&](AccumulateOp op) { return op.hasOwnPlaces(dims); });
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

// 2^70 ways lead from the place to the coordinates, more than a factor counts.
TEST(Places, ThatShareOperands) {
  std::string body = "%v0 = arith.subi %i, %j : index\n";
  for (int n = 0; n < 70; ++n) {
    std::string v = "%v" + std::to_string(n);
    body += "%v" + std::to_string(n + 1) + " = arith.addi " + v + ", " + v +
            " : index\n";
  }
  body += "%x = arith.minsi %v70, %c3 : index";
  EXPECT_TRUE(isOfDifference(body));
  EXPECT_FALSE(hasOwn(body, {0, 1}));
}

TEST(Places, OfTheirOwn) {
  std::string row = "%x = arith.addi %i, %i0 : index";
  EXPECT_TRUE(hasOwn(row, 0));
  EXPECT_FALSE(hasOwn(row, 1));
  EXPECT_FALSE(hasOwn(row, {0, 1}));
  std::string difference = "%x = arith.subi %i, %j : index";
  EXPECT_TRUE(hasOwn(difference, 0));
  EXPECT_FALSE(hasOwn(difference, {0, 1}));
  EXPECT_TRUE(hasOwn("%x = arith.muli %j, %c3 : index", 1));
  EXPECT_FALSE(hasOwn("%x = arith.divsi %j, %c3 : index", 1));
  EXPECT_FALSE(hasOwn("%x = arith.maxsi %j, %c3 : index", 1));
  EXPECT_FALSE(hasOwn("%x = tensor.extract %buckets[%j] : tensor<?xindex>", 1));
  // A tensor has an element for each coordinate; a number that is none may be
  // clamped to the last one.
  std::string clamp = "%c0 = arith.constant 0 : index\n"
                      "%c1 = arith.constant 1 : index\n"
                      "%n = tensor.dim %init, %c0 : tensor<?xf32>\n"
                      "%last = arith.subi %n, %c1 : index\n"
                      "%y = arith.minsi %at, %last : index\n"
                      "%x = arith.maxsi %y, %c0 : index";
  EXPECT_TRUE(hasOwn("%at = arith.muli %j, %i : index\n" + clamp, {}));
  EXPECT_FALSE(hasOwn("%at = arith.muli %j, %c3 : index\n" + clamp, 1));
  EXPECT_FALSE(hasOwn("%at = arith.addi %j, %c3 : index\n" + clamp, 1));
  EXPECT_TRUE(hasOwn("%zero = arith.constant 0 : index\n"
                     "%at = arith.addi %j, %zero : index\n" +
                         clamp,
                     1));
}

} // namespace
