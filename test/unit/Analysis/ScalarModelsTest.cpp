// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of scalar semantics against upstream's constant folding, at random
// numbers. (Derivatives are tested by
// test/Dialect/FA/Transforms/differentiate-run.mlir.)

#include "fa/Analysis/ScalarOpInterface.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

#include <random>

using namespace mlir;
using namespace fa;

namespace {

class ScalarModels : public testing::Test {
protected:
  ScalarModels() {
    DialectRegistry registry;
    registerScalarModels(registry);
    ctx.appendDialectRegistry(registry);
    ctx.loadDialect<affine::AffineDialect, arith::ArithDialect,
                    func::FuncDialect, math::MathDialect>();
  }

  /// The operation that gives %r of %x and %y.
  Operation *parse(const std::string &op, const std::string &type) {
    module = parseSourceString<ModuleOp>("func.func @f(%x: " + type +
                                             ", %y: " + type + ") {\n" + op +
                                             "\nreturn\n}",
                                         &ctx);
    if (!module) {
      ADD_FAILURE() << "does not parse: " << op;
      return nullptr;
    }
    func::FuncOp func = *module->getOps<func::FuncOp>().begin();
    return func.front().getTerminator()->getPrevNode();
  }
  /// What upstream says that it is of numbers, but for two functions of which
  /// it says nothing.
  static std::optional<double> foldFloats(Operation *op, ArrayRef<double> x) {
    if (isa<math::RsqrtOp>(op))
      return 1 / std::sqrt(x[0]);
    if (isa<math::CbrtOp>(op))
      return std::cbrt(x[0]);
    SmallVector<Attribute> operands;
    for (double number : x)
      operands.push_back(
          FloatAttr::get(Float64Type::get(op->getContext()), number));
    SmallVector<OpFoldResult> results;
    if (failed(op->fold(operands, results)) || results.empty())
      return std::nullopt;
    auto number = dyn_cast_if_present<FloatAttr>(
        dyn_cast_if_present<Attribute>(results[0]));
    return number ? std::optional<double>(number.getValueAsDouble())
                  : std::nullopt;
  }
  void checkFloats(const std::string &name, unsigned numOperands);
  void checkIntegers(const std::string &op, const std::string &type);

  MLIRContext ctx;
  OwningOpRef<ModuleOp> module;
  std::mt19937 random{1};
};

/// Numbers in a range lie in the result's, and move it the way that its trend
/// says.
void ScalarModels::checkFloats(const std::string &name, unsigned numOperands) {
  Operation *op =
      parse("%r = " + name + (numOperands == 1 ? " %x" : " %x, %y") + " : f64",
            "f64");
  auto scalar = dyn_cast<ScalarOpInterface>(op);
  ASSERT_TRUE(scalar) << name;
  constexpr double kEnds[] = {-4, -1.5, -1, -0.5, 0, 0.25, 1, 2, 5};
  auto end = [&] { return kEnds[random() % std::size(kEnds)]; };
  unsigned found = 0;
  for (unsigned i = 0; i < 2000; ++i) {
    SmallVector<NumberRange> ranges;
    SmallVector<double> x;
    for (unsigned n = 0; n < numOperands; ++n) {
      auto [lo, hi] = std::minmax({end(), end()});
      ranges.push_back({lo, hi, /*isFinite=*/true});
      x.push_back(std::uniform_real_distribution<>(lo, hi)(random));
    }
    std::optional<double> y = foldFloats(op, x);
    NumberRange range = scalar.inferRange(ranges);
    if (y && !std::isfinite(*y))
      EXPECT_FALSE(range.isFinite) << name << " of " << x[0] << " is " << *y;
    if (!y || !std::isfinite(*y))
      continue;
    ++found;
    double slack = 1e-6 * (1 + std::abs(*y));
    EXPECT_TRUE(range.lo - slack <= *y && *y <= range.hi + slack)
        << name << " of " << x[0] << " is " << *y << ", not in " << range.lo
        << " to " << range.hi;
    for (unsigned n = 0; n < numOperands; ++n) {
      double less = x[n];
      x[n] = std::uniform_real_distribution<>(less, ranges[n].hi)(random);
      std::optional<double> next = foldFloats(op, x);
      x[n] = less;
      Trend trend = scalar.getTrend(n, ranges);
      if (!next || !std::isfinite(*next) || trend == Trend::Unknown)
        continue;
      double step = trend == Trend::Falls ? *y - *next : *next - *y;
      EXPECT_GE(step, -slack) << name << " from " << less;
    }
  }
  EXPECT_GT(found, 100u) << name << " was not folded";
}

TEST_F(ScalarModels, FunctionsOfOneNumber) {
  for (const char *name :
       {"arith.negf",    "math.absf",  "math.exp",   "math.exp2",  "math.expm1",
        "math.log",      "math.log2",  "math.log10", "math.log1p", "math.sqrt",
        "math.rsqrt",    "math.cbrt",  "math.tanh",  "math.sin",   "math.cos",
        "math.tan",      "math.sinh",  "math.cosh",  "math.asin",  "math.acos",
        "math.atan",     "math.asinh", "math.acosh", "math.atanh", "math.erf",
        "math.erfc",     "math.floor", "math.ceil",  "math.trunc", "math.round",
        "math.roundeven"})
    checkFloats(name, 1);
}

TEST_F(ScalarModels, FunctionsOfTwoNumbers) {
  for (const char *name :
       {"arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.remf",
        "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf",
        "math.copysign", "math.atan2", "math.powf"})
    checkFloats(name, 2);
}

/// Where nothing wraps and nothing is negative that must not be, the form is
/// what upstream computes.
void ScalarModels::checkIntegers(const std::string &text,
                                 const std::string &type) {
  for (int64_t c : {1, 2, 3, 16, 30}) {
    Operation *op = parse("%c = arith.constant " + std::to_string(c) + " : " +
                              type + "\n%r = " + text + " : " + type,
                          type);
    IntegerForm form = getIntegerForm(op);
    ASSERT_TRUE(form.isKnown()) << text;
    for (int64_t x = -70; x < 70; x += 3)
      for (int64_t y = -70; y < 70; y += 7) {
        SmallVector<int64_t> values = {x, y};
        SmallVector<Attribute> operands;
        for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
          if (operand.getDefiningOp())
            values[i] = c;
          operands.push_back(IntegerAttr::get(operand.getType(), values[i]));
        }
        values.resize(operands.size());
        if (llvm::any_of(form.nonNegative,
                         [&](unsigned i) { return values[i] < 0; }))
          continue;
        SmallVector<OpFoldResult> results;
        ASSERT_TRUE(succeeded(op->fold(operands, results))) << text;
        // An operation may be one of its operands.
        auto same = llvm::find(op->getOperands(),
                               dyn_cast_if_present<Value>(results[0]));
        int64_t folded = same != op->operand_end()
                             ? values[same.getIndex()]
                             : *getConstantIntValue(results[0]);
        SmallVector<int64_t> numbers;
        for (AffineExpr expr : form.map.getResults()) {
          SmallVector<Attribute> indices;
          for (int64_t value : values)
            indices.push_back(IntegerAttr::get(IndexType::get(&ctx), value));
          SmallVector<Attribute> number;
          auto map = AffineMap::get(form.map.getNumDims(), 0, expr);
          ASSERT_TRUE(succeeded(map.constantFold(indices, number)));
          numbers.push_back(cast<IntegerAttr>(number[0]).getInt());
        }
        int64_t expected = form.kind == IntegerForm::Kind::Minimum
                               ? *llvm::min_element(numbers)
                               : *llvm::max_element(numbers);
        if (!llvm::isInt<32>(expected))
          continue;
        EXPECT_EQ(folded, expected) << text << " of " << x << ", " << y;
      }
  }
}

TEST_F(ScalarModels, Integers) {
  for (const char *type : {"i32", "index"}) {
    for (const char *op : {"addi", "subi", "minsi", "maxsi", "minui", "maxui"})
      checkIntegers("arith." + std::string(op) + " %x, %y", type);
    for (const char *op : {"muli", "shli", "floordivsi", "ceildivsi", "divsi",
                           "divui", "remsi", "remui", "shrsi", "shrui"})
      checkIntegers("arith." + std::string(op) + " %x, %c", type);
    checkIntegers("math.absi %x", type);
  }
}

} // namespace
