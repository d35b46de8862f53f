// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pieces of the text and the constraints of inline PTX.

#ifndef FA_LIB_CONVERSION_TILESTOTHREADS_PTXTEXT_H
#define FA_LIB_CONVERSION_TILESTOTHREADS_PTXTEXT_H

#include "llvm/ADT/StringRef.h"

#include <string>

namespace fa::nvidia {

/// Appends a constraint `count` times.
inline void repeat(std::string &to, llvm::StringRef what, size_t count) {
  for (size_t i = 0; i < count; ++i)
    to += (to.empty() ? "" : ",") + what.str();
}

/// Constraints that tie operands to the results, one by one.
inline void tie(std::string &to, size_t count) {
  for (size_t i = 0; i < count; ++i)
    to += "," + std::to_string(i);
}

/// The maximum of two words of two 16-bit numbers each, NaN where one is.
inline llvm::StringRef maximumOfWords(bool isBF16) {
  return isBF16 ? "max.NaN.bf16x2 $0, $1, $2;" : "max.NaN.f16x2 $0, $1, $2;";
}

/// "{$3, $4, $5}".
inline std::string registerList(size_t first, size_t count) {
  std::string list = "{";
  for (size_t i = 0; i < count; ++i)
    list += (i ? ", $" : "$") + std::to_string(first + i);
  return list + "}";
}

} // namespace fa::nvidia

#endif // FA_LIB_CONVERSION_TILESTOTHREADS_PTXTEXT_H
