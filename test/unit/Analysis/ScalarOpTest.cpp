// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A dialect of scalar functions that fa does not know, and their models: what
// docs/adding-a-scalar-function.md says is all that the analyses need. And an
// operation without a model, of which nothing is known.

#include "fa/Analysis/MaskIntervals.h"
#include "fa/Analysis/Trend.h"
#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Granularity.h"
#include "fa/Dialect/FA/IR/TileRanges.h"
#include "fa/Dialect/FA/Transforms/Passes.h"
#include "fa/Pipelines/Registration.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace fa;

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

namespace fa::test {

template <typename OpTy>
class ScalarOp : public Op<OpTy, OpTrait::OneResult, OpTrait::VariadicOperands,
                           OpTrait::ZeroRegions, OpTrait::ZeroSuccessors,
                           ConditionallySpeculatable::Trait,
                           OpTrait::AlwaysSpeculatableImplTrait,
                           MemoryEffectOpInterface::Trait> {
public:
  using Op<
      OpTy, OpTrait::OneResult, OpTrait::VariadicOperands, OpTrait::ZeroRegions,
      OpTrait::ZeroSuccessors, ConditionallySpeculatable::Trait,
      OpTrait::AlwaysSpeculatableImplTrait, MemoryEffectOpInterface::Trait>::Op;
  static ArrayRef<StringRef> getAttributeNames() { return {}; }
  void getEffects(
      SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &) {}
};

/// 1 / (1 + exp(-x)).
struct LogisticOp : ScalarOp<LogisticOp> {
  using ScalarOp::ScalarOp;
  static StringLiteral getOperationName() { return "score.logistic"; }
};
/// |x - y|.
struct DistanceOp : ScalarOp<DistanceOp> {
  using ScalarOp::ScalarOp;
  static StringLiteral getOperationName() { return "score.distance"; }
};
/// x / 64, rounded down.
struct BlockOp : ScalarOp<BlockOp> {
  using ScalarOp::ScalarOp;
  static StringLiteral getOperationName() { return "score.block"; }
};
/// Has no model.
struct OpaqueOp : ScalarOp<OpaqueOp> {
  using ScalarOp::ScalarOp;
  static StringLiteral getOperationName() { return "score.opaque"; }
};

struct ScoreDialect : Dialect {
  explicit ScoreDialect(MLIRContext *ctx)
      : Dialect(getDialectNamespace(), ctx, TypeID::get<ScoreDialect>()) {
    addOperations<LogisticOp, DistanceOp, BlockOp, OpaqueOp>();
  }
  static StringRef getDialectNamespace() { return "score"; }
};

//===----------------------------------------------------------------------===//
// Models
//===----------------------------------------------------------------------===//

struct LogisticModel
    : ScalarOpInterface::ExternalModel<LogisticModel, LogisticOp> {
  NumberRange inferRange(Operation *, ArrayRef<NumberRange>) const {
    return {0, 1};
  }
  Trend getTrend(Operation *, unsigned, ArrayRef<NumberRange>) const {
    return Trend::Grows;
  }
  /// g y (1 - y).
  FailureOr<Value> buildAdjoint(Operation *op, OpBuilder &b, unsigned,
                                ValueRange, Value y, Value g) const {
    Location loc = op->getLoc();
    Value one = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(1));
    Value rest = arith::SubFOp::create(b, loc, one, y);
    Value slope = arith::MulFOp::create(b, loc, y, rest);
    return arith::MulFOp::create(b, loc, g, slope).getResult();
  }
};

struct DistanceModel
    : ScalarOpInterface::ExternalModel<DistanceModel, DistanceOp> {
  IntegerForm getIntegerForm(Operation *op) const {
    AffineExpr x = getAffineDimExpr(0, op->getContext()),
               y = getAffineDimExpr(1, op->getContext());
    return {IntegerForm::Kind::Maximum,
            AffineMap::get(2, 0, {x - y, y - x}, op->getContext())};
  }
};

struct BlockModel : ScalarOpInterface::ExternalModel<BlockModel, BlockOp> {
  IntegerForm getIntegerForm(Operation *op) const {
    AffineExpr x = getAffineDimExpr(0, op->getContext());
    return {IntegerForm::Kind::Minimum, AffineMap::get(1, 0, x.floorDiv(64))};
  }
};

} // namespace fa::test

using namespace fa::test;

//===----------------------------------------------------------------------===//
// What follows from them
//===----------------------------------------------------------------------===//

namespace {

class ScalarOps : public testing::Test {
protected:
  ScalarOps() {
    DialectRegistry registry;
    registerDialects(registry);
    registry.insert<ScoreDialect>();
    registry.addExtension(+[](MLIRContext *context, ScoreDialect *) {
      LogisticOp::attachInterface<LogisticModel>(*context);
      DistanceOp::attachInterface<DistanceModel>(*context);
      BlockOp::attachInterface<BlockModel>(*context);
    });
    ctx.appendDialectRegistry(registry);
    ctx.loadAllAvailableDialects();
  }

  func::FuncOp parse(const std::string &text) {
    module = parseSourceString<ModuleOp>(text, &ctx);
    if (!module) {
      ADD_FAILURE() << "does not parse: " << text;
      return {};
    }
    return *module->getOps<func::FuncOp>().begin();
  }
  /// %x of %i, %j (the key) and %s.
  Value valueOf(const std::string &body, const std::string &type) {
    func::FuncOp func =
        parse("func.func @f(%i: index, %j: index, %s: f32) -> " + type +
              " {\n" + body + "\nreturn %x : " + type + "\n}");
    key = func.getArgument(1);
    return func.front().getTerminator()->getOperand(0);
  }
  Trend trendOf(const std::string &body, const std::string &type = "f32") {
    Value value = valueOf(body, type);
    return TrendFinder(key).find(value);
  }
  /// The intervals of keys of a mask that computes %m of %i and %j.
  std::string intervalsOf(const std::string &body);
  /// Whether ranges of %a and %b, which 64 rows and 64 keys read, give one of
  /// the mask %m.
  bool hasTileRange(const std::string &body);

  MLIRContext ctx;
  OwningOpRef<ModuleOp> module;
  Value key;
};

const std::string position = R"(
  %n = arith.index_cast %j : index to i32
  %t = arith.sitofp %n : i32 to f32
)";
std::string unary(const std::string &name) {
  return "\"score." + name + "\"(%t) : (f32) -> f32\n";
}

TEST_F(ScalarOps, HaveTrends) {
  EXPECT_EQ(trendOf(position + "%x = " + unary("logistic")), Trend::Grows);
  EXPECT_EQ(trendOf(position + "%y = " + unary("logistic") +
                    "%x = arith.subf %s, %y : f32"),
            Trend::Falls);
  EXPECT_EQ(trendOf(position + "%x = " + unary("opaque")), Trend::Unknown);
  EXPECT_EQ(trendOf("%x = \"score.opaque\"(%s) : (f32) -> f32"), Trend::None);
}

TEST_F(ScalarOps, TrendsFollowFromIntegerForms) {
  EXPECT_EQ(trendOf("%x = \"score.block\"(%j) : (index) -> index", "index"),
            Trend::Grows);
  EXPECT_EQ(trendOf("%x = \"score.block\"(%i) : (index) -> index", "index"),
            Trend::None);
  EXPECT_EQ(trendOf("%x = \"score.distance\"(%i, %j) : (index, index) -> index",
                    "index"),
            Trend::Unknown);
}

TEST_F(ScalarOps, HaveRanges) {
  Value value = valueOf(R"(
    %y = "score.logistic"(%s) : (f32) -> f32
    %c = arith.constant -3.0 : f32
    %x = arith.mulf %y, %c : f32)",
                        "f32");
  NumberRange range = NumberRanges().of(value);
  EXPECT_EQ(range.lo, -3);
  EXPECT_EQ(range.hi, 0);
  // A factor that is not negative keeps the trend of the other.
  std::string times = "%x = arith.mulf %w, %t : f32";
  EXPECT_EQ(trendOf(position + "%w = \"score.logistic\"(%s) : (f32) -> f32\n" +
                    times),
            Trend::Grows);
  EXPECT_EQ(
      trendOf(position + "%w = \"score.opaque\"(%s) : (f32) -> f32\n" + times),
      Trend::Unknown);
}

TEST_F(ScalarOps, AreFiniteWhereTypesHoldThem) {
  auto isFinite = [&](const std::string &body, const char *type = "f32") {
    return NumberRanges().of(valueOf(body, type)).isFinite;
  };
  std::string number = R"(
    %d = arith.subi %i, %j : index
    %n = arith.index_cast %d : index to i64
    %f = arith.sitofp %n : i64 to f32
)";
  EXPECT_TRUE(isFinite(number + "%x = arith.mulf %f, %f : f32"));
  EXPECT_TRUE(isFinite(number + "%x = math.sin %f : f32"));
  // 2^63 is more than the largest f16, and its third power than the largest
  // f32.
  EXPECT_FALSE(isFinite(number + "%x = arith.truncf %f : f32 to f16", "f16"));
  EXPECT_FALSE(isFinite(number + R"(
    %g = arith.mulf %f, %f : f32
    %x = arith.mulf %g, %f : f32)"));
  // No bound keeps a score from being NaN, and a root is of what may be less
  // than 0.
  EXPECT_FALSE(isFinite("%x = math.sin %s : f32"));
  EXPECT_FALSE(isFinite("%x = math.erfc %s : f32"));
  EXPECT_FALSE(isFinite(number + "%x = math.sqrt %f : f32"));
  EXPECT_FALSE(isFinite(number + "%x = arith.divf %f, %f : f32"));
}

TEST_F(ScalarOps, HaveGranularity) {
  auto granularityOf = [&](const std::string &body) {
    Value value = valueOf(body, "index");
    return getGranularity(value, key);
  };
  EXPECT_EQ(granularityOf("%x = \"score.block\"(%j) : (index) -> index"), 64);
  EXPECT_EQ(granularityOf(R"(
    %y = "score.block"(%j) : (index) -> index
    %x = "score.distance"(%i, %y) : (index, index) -> index)"),
            64);
  EXPECT_EQ(granularityOf("%x = \"score.opaque\"(%j) : (index) -> index"), 1);
}

std::string ScalarOps::intervalsOf(const std::string &body) {
  func::FuncOp func = parse(R"(
func.func @f(%t: tensor<4x4xf32>, %Sq: index, %Sk: index) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c7 = arith.constant 7 : index
  %none = arith.constant 0xFF800000 : f32
  scf.for %i0 = %c0 to %Sq step %c4 {
    scf.for %j0 = %c0 to %Sk step %c4 {
      %s = linalg.generic {indexing_maps = [affine_map<(x, y) -> (x, y)>],
          iterator_types = ["parallel", "parallel"]}
          outs(%t : tensor<4x4xf32>) {
      ^bb0(%o: f32):
        %row = linalg.index 0 : index
        %column = linalg.index 1 : index
        %i = arith.addi %i0, %row : index
        %j = arith.addi %j0, %column : index
)" + body + R"(
        %r = arith.select %m, %o, %none : f32
        linalg.yield %r : f32
      } -> tensor<4x4xf32>
    }
  }
  return
})");
  linalg::GenericOp scores;
  func.walk([&](linalg::GenericOp op) { scores = op; });
  auto loop = cast<scf::ForOp>(scores->getParentOp());
  MaskIntervals intervals = MaskIntervals::compute(
      *matchScoreMask(scores), {scores, loop.getInductionVar(), loop, 4});
  if (!intervals.decided)
    return "undecided";
  std::string text;
  llvm::raw_string_ostream os(text);
  intervals.print(os);
  return text;
}

TEST_F(ScalarOps, AreUnderstoodInMasks) {
  std::string own = intervalsOf(R"(
    %d = "score.distance"(%i, %j) : (index, index) -> index
    %m = arith.cmpi sle, %d, %c7 : index)");
  std::string written = intervalsOf(R"(
    %a = arith.subi %i, %j : index
    %b = arith.subi %j, %i : index
    %d = arith.maxsi %a, %b : index
    %m = arith.cmpi sle, %d, %c7 : index)");
  EXPECT_EQ(own, written);
  EXPECT_NE(own, "undecided");
  EXPECT_EQ(intervalsOf(R"(
    %d = "score.opaque"(%i, %j) : (index, index) -> index
    %m = arith.cmpi sle, %d, %c7 : index)"),
            "undecided");
}

bool ScalarOps::hasTileRange(const std::string &body) {
  func::FuncOp func = parse(R"(
func.func @f(%ids: tensor<?xi64>, %rows: index, %from: index, %to: index,
             %c: tensor<1xi32>, %e: tensor<?xi32>) -> tensor<?xi32> {
  %n, %list = fa.list_blocks rows %rows keys %from to %to tile [64, 64]
      every [1, 1] outs(%c, %e : tensor<1xi32>, tensor<?xi32>) mask {
  ^bb0(%r: index, %column: index, %key: index):
    %j = arith.addi %column, %key : index
    %a64 = tensor.extract %ids[%r] : tensor<?xi64>
    %b64 = tensor.extract %ids[%j] : tensor<?xi64>
    %a = arith.trunci %a64 : i64 to i32
    %b = arith.trunci %b64 : i64 to i32
)" + body + R"(
    fa.yield %m : i1
  }
  return %list : tensor<?xi32>
})");
  ListBlocksOp list;
  func.walk([&](ListBlocksOp op) { list = op; });
  OpBuilder builder(list);
  auto reduce = [&](Value, const TileSamples &) -> std::optional<TileRange> {
    Value lo = arith::ConstantIntOp::create(builder, list.getLoc(), 2, 64),
          hi = arith::ConstantIntOp::create(builder, list.getLoc(), 9, 64);
    return TileRange{lo, hi};
  };
  return TileRanges(list, builder, reduce).ofMask().has_value();
}

TEST_F(ScalarOps, HaveRangesOfTiles) {
  // i32 numbers that rows and keys read, and a difference that may not wrap.
  auto body = [](const std::string &name) {
    return R"(
    %u = arith.subi %a, %b overflow<nsw> : i32
    %v = arith.index_cast %u : i32 to index
    %k = arith.constant 1 : index
    %w = "score.)" +
           name + R"("(%v) : (index) -> index
    %m = arith.cmpi slt, %w, %k : index)";
  };
  EXPECT_TRUE(hasTileRange(body("block")));
  EXPECT_FALSE(hasTileRange(body("opaque")));
}

//===----------------------------------------------------------------------===//
// Derivatives
//===----------------------------------------------------------------------===//

/// A value of the operations that the model builds.
double evaluate(Value v, const DenseMap<Value, double> &known) {
  if (auto it = known.find(v); it != known.end())
    return it->second;
  Operation *op = v.getDefiningOp();
  if (APFloat c(0.0f); matchPattern(v, m_ConstantFloat(&c)))
    return c.convertToDouble();
  auto x = [&](unsigned i) { return evaluate(op->getOperand(i), known); };
  if (isa<LogisticOp>(op))
    return 1 / (1 + std::exp(-x(0)));
  if (isa<arith::MulFOp>(op))
    return x(0) * x(1);
  if (isa<arith::AddFOp>(op))
    return x(0) + x(1);
  if (isa<arith::SubFOp>(op))
    return x(0) - x(1);
  ADD_FAILURE() << op->getName().getStringRef().str();
  return 0;
}

std::string attentionWith(const std::string &name) {
  return R"(
func.func @f(%q: tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32> {
  %o = fa.attention %q, %q, %q score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %y = "score.)" +
         name + R"("(%s) : (f32) -> f32
    fa.yield %y : f32
  } : (tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>)
   -> tensor<1x1x8x16xf32>
  return %o : tensor<1x1x8x16xf32>
})";
}

TEST_F(ScalarOps, HaveDerivatives) {
  parse(attentionWith("logistic"));
  PassManager pm(&ctx);
  pm.addPass(createDifferentiatePass());
  ASSERT_TRUE(succeeded(pm.run(*module)));
  AttentionBackwardOp backward;
  module->walk([&](AttentionBackwardOp op) { backward = op; });
  ASSERT_TRUE(backward);
  Block &adjoint = backward.getAdjoint().front();
  double s = 0.7, g = 1.5, y = 1 / (1 + std::exp(-s));
  DenseMap<Value, double> known = {{adjoint.getArgument(0), s},
                                   {adjoint.getArguments().back(), g}};
  EXPECT_NEAR(evaluate(adjoint.getTerminator()->getOperand(0), known),
              g * y * (1 - y), 1e-12);
}

TEST_F(ScalarOps, WithoutAModelHaveNoDerivative) {
  parse(attentionWith("opaque"));
  std::string message;
  ScopedDiagnosticHandler handler(&ctx, [&](Diagnostic &diagnostic) {
    message += diagnostic.str();
    return success();
  });
  PassManager pm(&ctx);
  pm.addPass(createDifferentiatePass());
  EXPECT_TRUE(failed(pm.run(*module)));
  EXPECT_NE(message.find("has no derivative"), std::string::npos) << message;
}

} // namespace
