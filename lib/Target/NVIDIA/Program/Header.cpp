// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ProgramBuilder.h"

using namespace mlir;
using namespace fa;
using namespace fa::nvidia;

static std::string typeName(Type type) {
  std::string s;
  llvm::raw_string_ostream os(s);
  os << type;
  return s;
}

SmallVector<std::string> Program::header() {
  SmallVector<std::string> lines;
  // Readers of version 1 do not know tensor maps, those of version 2 not that
  // results are zeroed, those of version 3 not how many columns a map has,
  // those of version 4 not that an empty grid may have a block.
  bool zeroes = llvm::any_of(buffers, [](const Buffer &buffer) {
    return buffer.zero && buffer.role == Buffer::Role::Out;
  });
  auto saysCols = [](const TensorMap &map) {
    return map.cols == hopper::StageOp::mostSumCols;
  };
  lines.push_back(std::string("//!fa.program version=") +
                  (hasLeast                       ? "5"
                   : llvm::any_of(maps, saysCols) ? "4"
                   : zeroes                       ? "3"
                   : maps.empty()                 ? "1"
                                                  : "2") +
                  " name=" + func.getName().str() + " target=" + chip);
  for (auto [i, buffer] : llvm::enumerate(buffers)) {
    if (buffer.role == Buffer::Role::Temp)
      continue;
    std::string shape;
    for (int64_t size : buffer.type.getShape())
      shape += (shape.empty() ? "" : "x") +
               (ShapedType::isDynamic(size) ? "?" : std::to_string(size));
    lines.push_back(
        "//!fa.arg index=" + std::to_string(i) + " name=" + buffer.name +
        " role=" + (buffer.role == Buffer::Role::In ? "in" : "out") +
        " type=" + typeName(buffer.type.getElementType()) + " shape=" + shape +
        (buffer.zero ? " zero=1" : ""));
  }
  for (const std::string &s : same)
    lines.push_back("//!fa.same " + s);
  for (auto [i, buffer] : llvm::enumerate(buffers)) {
    if (buffer.role == Buffer::Role::Temp)
      continue;
    std::string name = "a" + std::to_string(i);
    if (buffer.type.getRank())
      lines.push_back("//!fa.require " + name + ".s" +
                      std::to_string(buffer.type.getRank() - 1) + "=1");
    if (buffer.aligned)
      lines.push_back("//!fa.require " + name + ".align=16");
  }
  for (auto [i, buffer] : llvm::enumerate(buffers))
    if (buffer.role == Buffer::Role::Temp)
      lines.push_back("//!fa.temp index=" + std::to_string(i) +
                      " type=" + typeName(buffer.type.getElementType()) +
                      " shape=" + llvm::join(buffer.sizes, ",") +
                      (buffer.zero ? " zero=1" : ""));
  for (auto [i, map] : llvm::enumerate(maps))
    lines.push_back("//!fa.map index=" + std::to_string(i) +
                    " tensor=" + std::to_string(map.buffer) +
                    " dim=" + std::to_string(map.dim) +
                    " rows=" + std::to_string(map.rows) +
                    (saysCols(map) ? " cols=" + std::to_string(map.cols) : ""));
  for (const std::string &launch : launches)
    lines.push_back("//!fa.launch " + launch);
  lines.push_back("//!fa.end");
  return lines;
}
