// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether a result is right: out against a reference in higher precision. The
// rule is also test/python/right.py's, with the same constants: where one
// changes, so does the other (test_right.py has both judge the same data).
// docs/right.md says why it is as it is.

#ifndef FA_RUN_COMPARE_H
#define FA_RUN_COMPARE_H

#include "fa/Target/CPU/TensorRef.h"

#include <string>
#include <vector>

namespace fa {
namespace run {

/// The element of a float tensor, widened. An f16 or bf16 is exact.
double elementAt(const cpu::TensorRef &tensor, int64_t offset);
/// Stores a number, rounded to nearest even.
void storeElement(const cpu::TensorRef &tensor, int64_t offset, double value);
/// Widens one 16-bit number.
double widenF16(uint16_t bits);
double widenBF16(uint16_t bits);
uint16_t narrowF16(double value);
uint16_t narrowBF16(double value);

struct Comparison {
  /// Largest |out - reference| over the elements where both are finite.
  double maxError = 0;
  /// Largest finite |reference|.
  double maxReference = 0;
  /// Where it is.
  std::vector<int64_t> maxErrorIndex;
  /// First element whose error is above the limit, or that is NaN or infinite
  /// where the reference is something else. Empty: none.
  std::vector<int64_t> firstBadIndex;
  double firstBadOut = 0, firstBadReference = 0;
  int64_t badElements = 0;
  bool passed() const { return firstBadIndex.empty(); }
};

/// How far an element may be from its reference.
struct Limit {
  Limit(double absolute = 0, double relative = 0, bool exactZeros = false)
      : absolute(absolute), relative(relative), exactZeros(exactZeros) {}
  /// Of every element.
  double absolute;
  /// Of the reference's own size. The larger of the two counts.
  double relative;
  /// Where the reference is 0 the element must be, too.
  bool exactZeros;
};

/// Compares element by element. NaN and infinities must be where the reference
/// has the same. Shapes must be equal.
Comparison compare(const cpu::TensorRef &out, const cpu::TensorRef &reference,
                   Limit limit);

/// The rule for an output: of 16-bit type twice the error of the naive formula
/// in the same type plus 1e-5, of f32 1e-5 of the largest reference (at least
/// 1e-5 absolute is not granted to tiny outputs), of f64 1e-12 of it. Rows that
/// see nothing are 0, exactly.
Limit outputLimit(cpu::DType dtype, double naiveError, double maxReference);
/// The rule for a gradient: of 16-bit type three times the error of the naive
/// formula plus 1e-5, of f32 and f64 as for an output. Elements that are 0 by
/// cancellation alone are none by other roundings.
Limit gradientLimit(cpu::DType dtype, double naiveError, double maxReference);
/// The rule for a log-sum-exp: of f32 1e-4, or eight roundings of a number of
/// its size; of f64 1e-12, or as many. (The maximum is rounded, and so are the
/// scale with log2 e, the product with it, and what a score function adds; the
/// logarithm is added, and the sum multiplied by ln 2, which is rounded too.)
Limit lseLimit(cpu::DType dtype);

/// "[0, 1, 2]"
std::string printIndex(const std::vector<int64_t> &index);

} // namespace run
} // namespace fa

#endif // FA_RUN_COMPARE_H
