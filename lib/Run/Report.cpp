// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Run/Run.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace fa;
using namespace fa::run;

static std::string formatted(const char *format, double x) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format(format, x);
  return text;
}

static std::string bytes(int64_t n) {
  if (n < 0)
    return "?";
  const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double x = static_cast<double>(n);
  int unit = 0;
  for (; x >= 1024 && unit < 4; ++unit)
    x /= 1024;
  return formatted(unit ? "%.1f " : "%.0f ", x) + units[unit];
}

bool fa::run::report(llvm::raw_ostream &os, const std::vector<Result> &results,
                     const Options &options) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> header = {"stage", "ms", "GFLOP/s", "temporaries"};
  if (options.check)
    header.insert(header.end(), {"max error", "limit", "lse error", "verdict"});
  if (options.io)
    header.insert(header.end(), {"read", "written", "temporary"});
  rows.push_back(header);
  bool passed = true;
  for (const Result &r : results) {
    std::vector<std::string> row = {r.stage, formatted("%.3f", r.seconds * 1e3),
                                    formatted("%.1f", r.gigaflops),
                                    bytes(r.temporaryBytes)};
    if (options.check)
      row.insert(row.end(),
                 {formatted("%.2e", r.error), formatted("%.2e", r.limit),
                  r.lseError ? formatted("%.2e", *r.lseError) : "-",
                  r.passed ? "ok" : "WRONG"});
    if (options.io)
      for (int i = 0; i < 3; ++i)
        row.push_back(r.io ? bytes((*r.io)[i]) : "-");
    passed = passed && r.passed;
    rows.push_back(row);
  }
  std::vector<size_t> widths(header.size(), 0);
  for (auto &row : rows)
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  for (auto &row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      std::string space(widths[i] - row[i].size(), ' ');
      os << (i ? "  " : "") << (i ? space + row[i] : row[i] + space);
    }
    os << "\n";
  }
  for (const Result &r : results)
    if (!r.note.empty())
      os << r.stage << ": " << r.note << "\n";
  for (const Result &r : results)
    if (!r.passed) {
      os << "first wrong stage: " << r.stage << ": " << r.difference << "\n";
      break;
    }
  return passed;
}
