// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Symbolic bounds of intervals of keys, and the intervals themselves.

#ifndef FA_ANALYSIS_BOUND_H
#define FA_ANALYSIS_BOUND_H

#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

#include <memory>
#include <vector>

namespace fa {

struct Condition;

/// An end of an interval of keys: no bound, an affine expression of symbols
/// (AffineSymbolExpr; what they stand for is the owner's business), or the
/// minimum, maximum or choice of such. Immutable and cheap to copy.
class Bound {
public:
  enum class Kind { NegInf, PosInf, Affine, Min, Max, Select };

  static Bound negInf() { return Bound(Kind::NegInf); }
  static Bound posInf() { return Bound(Kind::PosInf); }
  static Bound affine(mlir::AffineExpr expr);
  /// Minimum and maximum, simplified where the difference is a constant.
  static Bound min(const Bound &a, const Bound &b);
  static Bound max(const Bound &a, const Bound &b);
  static Bound select(const Condition &c, const Bound &a, const Bound &b);

  Kind getKind() const { return kind; }
  bool isNegInf() const { return kind == Kind::NegInf; }
  bool isPosInf() const { return kind == Kind::PosInf; }
  mlir::AffineExpr getExpr() const { return expr; }
  llvm::ArrayRef<Bound> getOperands() const { return operands; }
  const Condition &getCondition() const { return *condition; }
  /// Bounds it consists of, conditions included.
  unsigned getSize() const { return size; }
  /// The number, where it is one.
  std::optional<int64_t> getConstant() const;

  bool operator==(const Bound &other) const;
  void print(llvm::raw_ostream &os,
             llvm::function_ref<void(unsigned)> printSymbol) const;

private:
  explicit Bound(Kind kind) : kind(kind) {}
  static Bound minOrMax(Kind kind, const Bound &a, const Bound &b);
  Kind kind;
  unsigned size = 1;
  mlir::AffineExpr expr;
  std::vector<Bound> operands;
  std::shared_ptr<const Condition> condition;
};

/// A condition on uniform values, the same for all rows of a block and keys.
struct Condition {
  enum class Kind {
    /// bounds[0] < bounds[1].
    Less,
    /// bounds[1] - bounds[0] >= bounds[3] - bounds[2].
    NotShorter,
    /// The i1 value of that number, or its negation.
    Flag,
    /// Every one of `all`.
    All
  };
  Kind kind;
  std::vector<Bound> bounds;
  unsigned flag = 0;
  bool negated = false;
  std::vector<Condition> all;

  static Condition less(const Bound &a, const Bound &b) {
    return {Kind::Less, {a, b}, 0, false, {}};
  }
  bool operator==(const Condition &other) const;
  unsigned getSize() const;
};

/// The keys in [lo, hi); nothing where hi <= lo. Keys are never negative, so a
/// lower end without a bound is 0.
struct KeyInterval {
  Bound lo, hi;

  static KeyInterval everything() { return {Bound::negInf(), Bound::posInf()}; }
  static KeyInterval nothing() { return {Bound::posInf(), Bound::negInf()}; }
  /// [lo, hi), with what is known to be everything or nothing made so.
  static KeyInterval get(const Bound &lo, const Bound &hi);
  static KeyInterval select(const Condition &c, const KeyInterval &a,
                            const KeyInterval &b);
  bool isEverything() const { return lo.isNegInf() && hi.isPosInf(); }
  bool isNothing() const { return lo.isPosInf() || hi.isNegInf(); }
  /// Where it is everything if a condition holds and else nothing: that.
  const Condition *getWholeIf() const;
  /// The largest number of keys it can have, where the bounds say so.
  std::optional<int64_t> getMaxLength() const;
  bool operator==(const KeyInterval &o) const {
    return lo == o.lo && hi == o.hi;
  }

  static KeyInterval intersect(const KeyInterval &a, const KeyInterval &b);
  /// The smallest interval that contains both (a larger one where the bounds
  /// would become unwieldy).
  static KeyInterval hull(const KeyInterval &a, const KeyInterval &b);
  /// An interval inside the union of both: the union itself where that is an
  /// interval, else the longer one (one of them where the bounds would become
  /// unwieldy).
  static KeyInterval insideUnion(const KeyInterval &a, const KeyInterval &b);
};

/// Builds bounds as index values from the values of the symbols.
class BoundBuilder {
public:
  /// `unbounded` is what an upper end without a bound becomes.
  BoundBuilder(mlir::OpBuilder &builder, mlir::Location loc,
               llvm::ArrayRef<mlir::OpFoldResult> symbols,
               llvm::ArrayRef<mlir::Value> flags, mlir::OpFoldResult unbounded)
      : b(builder), loc(loc), symbols(symbols), flags(flags),
        unbounded(unbounded) {}
  /// From here on it is made use of that an induction variable stays below the
  /// upper bound of its loop.
  void useLoops() { usesLoops = true; }
  /// affine.apply, affine.min and affine.max where that is possible, else
  /// arith; folded where it is a constant.
  mlir::OpFoldResult build(const Bound &bound);
  mlir::Value build(const Condition &condition);

private:
  mlir::Value value(const Bound &bound);
  mlir::OpFoldResult buildMinOrMax(const Bound &bound);
  mlir::OpBuilder &b;
  mlir::Location loc;
  llvm::ArrayRef<mlir::OpFoldResult> symbols;
  llvm::ArrayRef<mlir::Value> flags;
  mlir::OpFoldResult unbounded;
  bool usesLoops = false;
};

/// An affine expression as a sum: the coefficient of each base expression that
/// is not itself a sum or a multiple, and a constant.
struct AffineSum {
  llvm::SmallVector<std::pair<mlir::AffineExpr, int64_t>> terms;
  int64_t constant = 0;
  static AffineSum get(mlir::AffineExpr expr);
  mlir::AffineExpr toExpr(mlir::MLIRContext *ctx) const;
};
/// The expression as a sum in a canonical order; equal sums are equal.
mlir::AffineExpr canonicalSum(mlir::AffineExpr expr);

} // namespace fa

#endif // FA_ANALYSIS_BOUND_H
