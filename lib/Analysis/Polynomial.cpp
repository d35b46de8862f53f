// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Analysis/Polynomial.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace fa;

static unsigned rankOf(const std::string &name) {
  static const char *known[] = {"B", "Hq", "Hk", "Sq", "Sk", "D", "Dv"};
  return llvm::find(known, name) - std::begin(known);
}

bool Polynomial::NameOrder::operator()(const std::string &a,
                                       const std::string &b) const {
  unsigned x = rankOf(a), y = rankOf(b);
  return x != y ? x < y : a < b;
}

Polynomial::Polynomial(int64_t constant) {
  if (constant != 0)
    terms[{}] = constant;
}

Polynomial Polynomial::symbol(llvm::StringRef name) {
  Polynomial result;
  result.terms[{{name.str(), 1}}] = 1;
  return result;
}

Polynomial Polynomial::ceilDiv(const Polynomial &x, int64_t divisor) {
  if (divisor == 1)
    return x;
  if (std::optional<int64_t> c = x.getConstant())
    return *c / divisor + (*c % divisor > 0);
  return symbol("ceildiv(" + x.str() + ", " + std::to_string(divisor) + ")");
}

std::optional<int64_t> Polynomial::getConstant() const {
  if (terms.empty())
    return 0;
  if (terms.size() == 1 && terms.begin()->first.empty())
    return terms.begin()->second;
  return std::nullopt;
}

Polynomial Polynomial::operator+(const Polynomial &other) const {
  Polynomial result = *this;
  for (auto &[monomial, factor] : other.terms) {
    int64_t &sum = result.terms[monomial];
    if (llvm::AddOverflow(sum, factor, sum))
      sum = factor < 0 ? INT64_MIN : INT64_MAX;
    if (sum == 0)
      result.terms.erase(monomial);
  }
  return result;
}

Polynomial Polynomial::operator*(const Polynomial &other) const {
  Polynomial result;
  for (auto &[a, x] : terms)
    for (auto &[b, y] : other.terms) {
      Monomial product = a;
      for (auto &[name, power] : b)
        product[name] += power;
      Polynomial term;
      int64_t factor;
      if (llvm::MulOverflow(x, y, factor))
        factor = (x < 0) != (y < 0) ? INT64_MIN : INT64_MAX;
      term.terms[product] = factor;
      result = result + term;
    }
  return result;
}

std::string Polynomial::str() const {
  using Term = std::pair<Monomial, int64_t>;
  std::vector<Term> sorted(terms.begin(), terms.end());
  auto degree = [](const Term &term) {
    unsigned sum = 0;
    for (auto &factor : term.first)
      sum += factor.second;
    return sum;
  };
  auto isBefore = [&](const Term &a, const Term &b) {
    if (degree(a) != degree(b))
      return degree(a) > degree(b);
    return std::lexicographical_compare(
        a.first.begin(), a.first.end(), b.first.begin(), b.first.end(),
        [](const auto &x, const auto &y) {
          if (x.first != y.first)
            return NameOrder()(x.first, y.first);
          return x.second > y.second;
        });
  };
  llvm::sort(sorted, isBefore);
  std::string text;
  for (auto &[monomial, factor] : sorted) {
    if (!text.empty())
      text += " + ";
    std::string product =
        factor == 1 && !monomial.empty() ? "" : std::to_string(factor);
    for (auto &[name, power] : monomial) {
      if (!product.empty())
        product += "*";
      product += name;
      if (power > 1)
        product += "^" + std::to_string(power);
    }
    text += product;
  }
  return text.empty() ? "0" : text;
}

double
Polynomial::evaluate(std::function<double(llvm::StringRef)> valueOf) const {
  double sum = 0;
  for (auto &[monomial, factor] : terms) {
    double product = factor;
    for (auto &[name, power] : monomial)
      product *= std::pow(valueOf(name), power);
    sum += product;
  }
  return sum;
}
