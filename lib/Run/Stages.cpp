// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Inputs.h"

#include <cstdlib>

using namespace fa;
using namespace fa::run;

static std::string trimmed(const std::string &s) {
  size_t a = s.find_first_not_of(" \t\n"), b = s.find_last_not_of(" \t\n");
  return a == std::string::npos ? "" : s.substr(a, b - a + 1);
}

llvm::Expected<std::vector<Stage>>
fa::run::parseStages(const std::string &text) {
  std::vector<Stage> stages;
  std::string current;
  int depth = 0;
  auto flush = [&] {
    std::string pipeline = trimmed(current);
    current.clear();
    if (!pipeline.empty())
      stages.push_back(
          {trimmed(pipeline.substr(0, pipeline.find('{'))), pipeline});
  };
  for (char c : text) {
    if (c == '{' || c == '(')
      ++depth;
    if (c == '}' || c == ')')
      --depth;
    if (depth < 0)
      break;
    if (c == ',' && depth == 0)
      flush();
    else
      current += c;
  }
  if (depth != 0)
    return runError("expected balanced brackets in the passes, got '" + text +
                    "'");
  flush();
  return stages;
}

llvm::Expected<std::map<std::string, int64_t>>
fa::run::parseShape(const std::string &text) {
  std::map<std::string, int64_t> shape;
  auto parts = parseStages(text);
  if (!parts)
    return parts.takeError();
  for (const Stage &part : *parts) {
    size_t equals = part.pipeline.find('=');
    const char *number =
        equals == std::string::npos ? "" : part.pipeline.c_str() + equals + 1;
    char *end = nullptr;
    int64_t value = std::strtoll(number, &end, 10);
    if (end == number || *end || value < 0)
      return runError("expected --shape as \"B=2,Sq=333\" with sizes of at "
                      "least 0, got '" +
                      part.pipeline + "'");
    shape[trimmed(part.pipeline.substr(0, equals))] = value;
  }
  return shape;
}
