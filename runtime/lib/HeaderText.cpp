// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "HeaderText.h"

#include "Error.h"

#include <limits>

using namespace fa::rt;

/// A copy that is safe and short enough to print.
static std::string quoted(std::string_view text) {
  constexpr size_t kMaxLength = 160;
  std::string result;
  for (char c : text.substr(0, kMaxLength))
    result += c >= ' ' && c <= '~' ? c : '?';
  if (text.size() > kMaxLength)
    result += "...";
  return result;
}

void HeaderLine::fail(const std::string &what) const {
  fa::rt::fail(FA_RT_BAD_IMAGE, "image line %d: %s, in '%s'", number,
               quoted(what).c_str(), quoted(text).c_str());
}

std::string_view fa::rt::takeLine(std::string_view &text) {
  size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (!line.empty() && line.back() == '\r')
    line.remove_suffix(1);
  return line;
}

static bool isBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view fa::rt::trim(std::string_view text) {
  while (!text.empty() && isBlank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && isBlank(text.back()))
    text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> fa::rt::split(std::string_view text,
                                            char separator) {
  std::vector<std::string_view> pieces;
  if (text.empty())
    return pieces;
  while (true) {
    size_t end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos)
      return pieces;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> fa::rt::splitBlanks(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (text = trim(text); !text.empty(); text = trim(text)) {
    size_t end = 0;
    while (end < text.size() && !isBlank(text[end]))
      ++end;
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return pieces;
}

bool fa::rt::parseInteger(std::string_view text, int64_t &value) {
  if (text.empty())
    return false;
  int64_t result = 0;
  for (char c : text) {
    if (c < '0' || c > '9')
      return false;
    int64_t digit = c - '0';
    if (result > (std::numeric_limits<int64_t>::max() - digit) / 10)
      return false;
    result = result * 10 + digit;
  }
  value = result;
  return true;
}

bool fa::rt::parseRef(std::string_view text, char letter, DimRef &ref) {
  size_t dot = text.find('.');
  if (dot == std::string_view::npos || text.front() != 'a' ||
      dot + 1 >= text.size() || text[dot + 1] != letter)
    return false;
  int64_t tensor, dim;
  if (!parseInteger(text.substr(1, dot - 1), tensor) ||
      !parseInteger(text.substr(dot + 2), dim))
    return false;
  if (tensor >= kMaxTensors || dim >= FA_RT_MAX_RANK)
    return false;
  ref = {static_cast<int>(tensor), static_cast<int>(dim)};
  return true;
}

Fields::Fields(const HeaderLine &source, std::string_view text) : line(source) {
  for (std::string_view field : splitBlanks(text)) {
    size_t equals = field.find('=');
    if (equals == std::string_view::npos || equals == 0)
      line.fail("expected key=value, got '" + std::string(field) + "'");
    std::string_view key = field.substr(0, equals);
    if (has(key))
      line.fail("key '" + std::string(key) + "' is given twice");
    fields.emplace_back(key, field.substr(equals + 1));
  }
}

bool Fields::has(std::string_view key) const {
  for (const auto &field : fields)
    if (field.first == key)
      return true;
  return false;
}

std::string_view Fields::get(std::string_view key) const {
  for (const auto &field : fields)
    if (field.first == key)
      return field.second;
  line.fail("key '" + std::string(key) + "' is missing");
}

std::string Fields::getName(std::string_view key) const {
  std::string_view value = get(key);
  if (value.empty() || value.size() > 255)
    line.fail("expected 1 to 255 characters for '" + std::string(key) + "'");
  for (char c : value)
    if (c <= ' ' || c > '~')
      line.fail("'" + std::string(key) + "' has a character that is not " +
                "printable ASCII");
  return std::string(value);
}

int64_t Fields::getInteger(std::string_view key, int64_t low,
                           int64_t high) const {
  std::string_view text = get(key);
  int64_t value;
  if (!parseInteger(text, value) || value < low || value > high)
    line.fail(format("expected a number from %lld to %lld for '%s', got '%s'",
                     static_cast<long long>(low), static_cast<long long>(high),
                     std::string(key).c_str(), std::string(text).c_str()));
  return value;
}

Expr Fields::getExpr(std::string_view key) const {
  return parseExpr(key, get(key));
}

Expr Fields::parseExpr(std::string_view key, std::string_view text) const {
  Expr expr;
  for (std::string_view piece : split(text, '*')) {
    Term term;
    size_t slash = piece.find('/');
    std::string_view numerator = piece.substr(0, slash);
    term.isConstant = !parseRef(numerator, 'd', term.ref);
    bool isValid = true;
    if (term.isConstant)
      isValid = parseInteger(piece, term.value);
    else if (slash != std::string_view::npos)
      isValid =
          parseInteger(piece.substr(slash + 1), term.value) && term.value > 0;
    if (!isValid)
      line.fail("expected an integer, aN.dK or aN.dK/INT in '" +
                std::string(key) + "', got '" + std::string(piece) + "'");
    expr.push_back(term);
  }
  if (expr.empty() || expr.size() > kMaxTerms)
    line.fail(format("expected 1 to %d factors in '%s', got %zu", kMaxTerms,
                     std::string(key).c_str(), expr.size()));
  return expr;
}
