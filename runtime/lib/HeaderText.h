// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The lexical level of image headers: lines, fields, numbers, expressions.

#ifndef FA_RUNTIME_LIB_HEADERTEXT_H
#define FA_RUNTIME_LIB_HEADERTEXT_H

#include "Image.h"

#include <utility>

namespace fa::rt {

/// A line of a header, for messages.
struct HeaderLine {
  int number = 0;
  std::string_view text;

  /// Throws BAD_IMAGE that names and quotes the line.
  [[noreturn]] void fail(const std::string &what) const;
};

/// Cuts the first line off `text`, without its line end.
std::string_view takeLine(std::string_view &text);

/// `text` without blanks at both ends.
std::string_view trim(std::string_view text);

/// Splits at `separator`; empty pieces are kept. The empty string has none.
std::vector<std::string_view> split(std::string_view text, char separator);

/// Splits at runs of blanks.
std::vector<std::string_view> splitBlanks(std::string_view text);

/// A decimal number of digits alone that fits int64. False if `text` is none.
bool parseInteger(std::string_view text, int64_t &value);

/// "a<tensor>.d<dim>", or 's' in place of 'd' by `letter`.
bool parseRef(std::string_view text, char letter, DimRef &ref);

/// The key=value fields of one line.
class Fields {
public:
  Fields(const HeaderLine &source, std::string_view text);

  bool has(std::string_view key) const;
  /// The value; an error if the key is missing.
  std::string_view get(std::string_view key) const;
  /// As get, not empty, at most 255 printable characters.
  std::string getName(std::string_view key) const;
  /// A number in [low, high].
  int64_t getInteger(std::string_view key, int64_t low, int64_t high) const;
  /// A product of terms.
  Expr getExpr(std::string_view key) const;
  Expr parseExpr(std::string_view key, std::string_view text) const;

private:
  const HeaderLine &line;
  std::vector<std::pair<std::string_view, std::string_view>> fields;
};

} // namespace fa::rt

#endif // FA_RUNTIME_LIB_HEADERTEXT_H
