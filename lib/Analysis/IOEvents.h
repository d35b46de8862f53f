// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a function reads and writes, by loops, and the sums of that. Private to
// the IO model.

#ifndef FA_LIB_ANALYSIS_IOEVENTS_H
#define FA_LIB_ANALYSIS_IOEVENTS_H

#include "IOSizes.h"

#include <memory>
#include <vector>

namespace fa {

enum class Traffic { Read, Write, Temp };

/// Elements read, written or held, once for each step of the loops around.
struct Event {
  Traffic kind;
  int64_t bytes;
  llvm::SmallVector<Size> sizes;
};

/// One dimension of a loop.
struct LoopDim {
  mlir::Value iv;
  mlir::OpFoldResult lower, upper;
  int64_t step = 1;
  /// An upper bound of the induction variable's range, by name.
  Polynomial extent = Polynomial::symbol("?");
  /// It runs over all of [0, extent).
  bool isExact = true;
  /// A list that it walks through ends here, if it walks through one.
  std::optional<Size> listLength = std::nullopt;
};

/// A region: what happens in each execution of it.
struct Scope {
  llvm::SmallVector<LoopDim> dims;
  llvm::SmallVector<Event> events;
  std::vector<std::unique_ptr<Scope>> loops;
  struct Choice {
    mlir::Value condition;
    std::unique_ptr<Scope> then, otherwise;
  };
  std::vector<Choice> choices;
};

/// Totals of one kind of number.
template <typename T> struct Totals {
  T read = 0, write = 0, temp = 0;
  T &operator[](Traffic kind) {
    return kind == Traffic::Read ? read : kind == Traffic::Write ? write : temp;
  }
};

/// The sums as polynomials.
Totals<Polynomial> countSymbolic(const Scope &scope, SizeTracer &sizes,
                                 bool &isUpperBound);
/// The sums as numbers; nothing where a size is unknown or the loops are too
/// long to walk.
std::optional<Totals<int64_t>>
countNumeric(const Scope &scope, SizeTracer &sizes, bool &isUpperBound);

inline int64_t clampedAdd(int64_t a, int64_t b) {
  int64_t sum;
  return llvm::AddOverflow(a, b, sum) ? (a < 0 ? INT64_MIN : INT64_MAX) : sum;
}

inline int64_t clampedMul(int64_t a, int64_t b) {
  int64_t product;
  return llvm::MulOverflow(a, b, product)
             ? ((a < 0) != (b < 0) ? INT64_MIN : INT64_MAX)
             : product;
}

} // namespace fa

#endif // FA_LIB_ANALYSIS_IOEVENTS_H
