// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of scalar semantics: what is known of the operations that score
// functions and masks consist of. It stands before all other analyses and the
// dialect, which ask it.

#ifndef FA_ANALYSIS_SCALAROPINTERFACE_H
#define FA_ANALYSIS_SCALAROPINTERFACE_H

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

#include <limits>
#include <optional>

namespace fa {

/// The numbers that a value can be, in float64. A NaN is in every range but one
/// that is surely finite, and a zero has no sign: 1 / x is not negative where x
/// is not.
struct NumberRange {
  double lo = -std::numeric_limits<double>::infinity();
  double hi = std::numeric_limits<double>::infinity();
  /// Surely a number within bounds that are numbers, and no NaN.
  bool isFinite = false;
  bool isZero() const { return isFinite && lo == 0 && hi == 0; }
  bool isNonNegative() const { return lo >= 0; }
  bool isNonPositive() const { return hi <= 0; }
};

/// How a value changes as another one grows.
enum class Trend { None, Grows, Falls, Unknown };

/// The trend of -x, where x has this one.
Trend negate(Trend x);
/// Of what grows with both of two values.
Trend join(Trend x, Trend y);
/// Of f(x), where x has the trend `inner` and f `outer` in x.
Trend compose(Trend outer, Trend inner);

/// What an operation computes of integers: results of an affine map of its
/// operands (dimensions first, then symbols), and of several the least or the
/// largest.
struct IntegerForm {
  enum class Kind { Unknown, Minimum, Maximum };
  Kind kind = Kind::Unknown;
  mlir::AffineMap map = {};
  /// Operands that must not be negative; where one is, it computes something
  /// else.
  llvm::SmallVector<unsigned, 2> nonNegative = {};

  bool isKnown() const { return kind != Kind::Unknown; }
  /// Whether it depends on an operand, or asks that one not to be negative.
  bool reads(unsigned operand) const;
  /// Its trend in an operand, if operands have these ranges.
  Trend getTrend(unsigned operand,
                 llvm::ArrayRef<NumberRange> operandRanges) const;
};

/// The form of an operation; unknown where it has no model.
IntegerForm getIntegerForm(mlir::Operation *op);

/// Whether an operation may compute something else than its integer form, since
/// that has more bits than the result; said by its overflow flags. On 64 bits
/// and on indices it is taken not to.
bool mayWrap(mlir::Operation *op);

/// Between which numbers the change of an integer is.
struct StepRange {
  int64_t lo = 0, hi = 0;
  bool isZero() const { return lo == 0 && hi == 0; }
};

/// By how much a value changes where others take a step, of which `known` says
/// how far each goes; none where operations do not tell. A run of places is one
/// that changes by 0 or 1: within bounds it stays, elsewhere it goes on.
std::optional<StepRange>
getStepRange(mlir::Value value,
             llvm::function_ref<std::optional<StepRange>(mlir::Value)> known);

} // namespace fa

#include "fa/Analysis/ScalarOpInterface.h.inc"

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace fa {

/// Gives operations of affine, arith and math their models. Of an operation
/// without one nothing is known: a float that comes of it can't be
/// differentiated, and a mask that it is part of is evaluated element by
/// element.
void registerScalarModels(mlir::DialectRegistry &registry);

} // namespace fa

#endif // FA_ANALYSIS_SCALAROPINTERFACE_H
