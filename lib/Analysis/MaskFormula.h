// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A mask as a formula over comparisons with 0. Private to the mask analysis.

#ifndef FA_LIB_ANALYSIS_MASKFORMULA_H
#define FA_LIB_ANALYSIS_MASKFORMULA_H

#include "fa/Analysis/MaskIntervals.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace fa {

struct IntegerForm;

/// Dimensions of a formula's affine expressions; its symbols are uniform
/// values. Row i = row offset + Row.
enum MaskDim : unsigned {
  /// Row and column within the block.
  Row = 0,
  Column = 1,
  /// The key j.
  Key = 2,
  /// The first key of the block: Key - Column.
  KeyOffset = 3
};

/// In negation normal form.
struct Formula {
  enum class Kind { True, False, Unknown, AtLeastZero, Flag, And, Or };
  Kind kind;
  mlir::AffineExpr expr = {};
  unsigned flag = 0;
  bool negated = false;
  std::vector<Formula> operands = {};

  static Formula unknown() { return {Kind::Unknown}; }
  static Formula constant(bool value) {
    return {value ? Kind::True : Kind::False};
  }
  static Formula conjunction(llvm::ArrayRef<Formula> operands);
  static Formula disjunction(llvm::ArrayRef<Formula> operands);
};

/// An integer value: an affine expression, or the minimum, maximum or choice
/// of such. `lo` and `hi` bound it.
struct Term {
  enum class Kind { Affine, Min, Max, Select };
  Kind kind = Kind::Affine;
  mlir::AffineExpr expr = {};
  std::vector<Term> operands = {};
  mlir::Value condition = {};
  int64_t lo = 0, hi = 0;
};

/// Reads masks, and collects the uniform values that they use.
class FormulaBuilder {
public:
  explicit FormulaBuilder(const MaskBlock &block)
      : block(block), ctx(block.keyLoop->getContext()) {}

  Formula build(mlir::Value condition, bool negated);

  /// Symbols, and whether each is known not to be negative.
  llvm::SmallVector<mlir::Value> symbols;
  llvm::SmallVector<bool> nonNegative;
  /// Uniform conditions.
  llvm::SmallVector<mlir::Value> flags;

private:
  std::optional<Term> term(mlir::Value value);
  std::optional<Term> termOfOp(mlir::Operation *op);
  std::optional<Term> termOfForm(const IntegerForm &form,
                                 llvm::ArrayRef<Term> operands);
  std::optional<Term> substitute(mlir::AffineExpr expr,
                                 llvm::ArrayRef<Term> dims,
                                 llvm::ArrayRef<Term> symbols);
  std::optional<Term> uniformTerm(mlir::Value value);
  std::optional<Term> scale(const std::optional<Term> &x, int64_t factor);
  std::optional<Term> add(const std::optional<Term> &x,
                          const std::optional<Term> &y);
  /// x div c or x mod c, rounded as the affine kind says.
  std::optional<Term> divide(const std::optional<Term> &x, int64_t c,
                             mlir::AffineExprKind kind);
  std::optional<Term> choice(Term::Kind kind, const std::optional<Term> &x,
                             const std::optional<Term> &y,
                             mlir::Value condition = {});
  bool isNonNegative(const Term &x) const;
  bool isNonNegative(mlir::AffineExpr expr) const;
  bool isUniform(mlir::Value value);

  Formula compare(mlir::arith::CmpIPredicate predicate, mlir::Value x,
                  mlir::Value y);
  /// x + offset <= y.
  Formula lessOrEqual(const Term &x, const Term &y, int64_t offset);
  Formula both(mlir::Value x, bool notX, mlir::Value y, bool notY);

  MaskBlock block;
  mlir::MLIRContext *ctx;
  /// Comparisons and terms left before the analysis gives up: selections and
  /// exclusive ors use their operands twice.
  int budget = 512;
};

/// True where a value is computed inside `loop` by ops that may be cloned
/// before it, or outside of it.
bool isUniformIn(mlir::Operation *loop, mlir::Value value);

} // namespace fa

#endif // FA_LIB_ANALYSIS_MASKFORMULA_H
