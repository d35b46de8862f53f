// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether a result is right: out against a reference in higher precision.

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

/// Compares element by element with an absolute limit. NaN and infinities must
/// be where the reference has the same. Shapes must be equal.
Comparison compare(const cpu::TensorRef &out, const cpu::TensorRef &reference,
                   double limit);

/// The rule for an output: of 16-bit type twice the error of the naive formula
/// in the same type plus 1e-5, of f32 1e-5 of the largest reference (at least
/// 1e-5 absolute is not granted to tiny outputs).
double outputLimit(cpu::DType dtype, double naiveError, double maxReference);
/// The rule for a log-sum-exp.
inline double lseLimit() { return 1e-4; }

/// "[0, 1, 2]"
std::string printIndex(const std::vector<int64_t> &index);

} // namespace run
} // namespace fa

#endif // FA_RUN_COMPARE_H
