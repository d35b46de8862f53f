// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Polynomials in named sizes, as the IO model prints them.

#ifndef FA_ANALYSIS_POLYNOMIAL_H
#define FA_ANALYSIS_POLYNOMIAL_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace fa {

/// A sum of products of named sizes with integer coefficients. Names are
/// opaque: "Sq", "ceildiv(Sk, 64)".
class Polynomial {
public:
  Polynomial() = default;
  /*implicit*/ Polynomial(int64_t constant);
  static Polynomial symbol(llvm::StringRef name);
  /// ceildiv(x, divisor), as a number where x is one.
  static Polynomial ceilDiv(const Polynomial &x, int64_t divisor);

  Polynomial operator+(const Polynomial &other) const;
  Polynomial operator*(const Polynomial &other) const;
  bool operator==(const Polynomial &other) const {
    return terms == other.terms;
  }
  bool isZero() const { return terms.empty(); }
  std::optional<int64_t> getConstant() const;

  /// Highest degree first, then B, Hq, Hk, Sq, Sk, D, Dv before other names:
  /// "4*B*Hq*Sq*Sk + 2*B*Hq*Sq*D".
  std::string str() const;
  /// The order of names in a product.
  static bool nameLess(const std::string &a, const std::string &b) {
    return NameOrder()(a, b);
  }
  /// The value, given those of the names.
  double evaluate(std::function<double(llvm::StringRef)> valueOf) const;

private:
  struct NameOrder {
    bool operator()(const std::string &a, const std::string &b) const;
  };
  /// Names and their powers.
  using Monomial = std::map<std::string, unsigned, NameOrder>;
  std::map<Monomial, int64_t> terms;
};

} // namespace fa

#endif // FA_ANALYSIS_POLYNOMIAL_H
