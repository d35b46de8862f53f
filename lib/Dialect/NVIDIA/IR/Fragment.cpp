// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Dialect/NVIDIA/IR/Fragment.h"

#include <numeric>

using namespace fa::nvidia;

unsigned FragmentLayout::mostRowWarps(int64_t rows, unsigned warps) {
  return rows < 16 ? warps : std::gcd(int64_t(warps), rows / 16);
}

unsigned FragmentLayout::numRegs() const {
  switch (layoutKind) {
  case Kind::Accumulator:
    return rowTiles() * colTiles() * 4;
  case Kind::Row:
    return rowTiles() * 2;
  case Kind::Column:
    return colTiles() * 2;
  }
  return 0;
}

int64_t FragmentLayout::regRow(unsigned reg) const {
  switch (layoutKind) {
  case Kind::Accumulator:
    return int64_t(16) * (reg / (4 * colTiles())) + 8 * (reg / 2 % 2);
  case Kind::Row:
    return int64_t(16) * (reg / 2) + 8 * (reg % 2);
  case Kind::Column:
    return 0;
  }
  return 0;
}

int64_t FragmentLayout::regCol(unsigned reg) const {
  switch (layoutKind) {
  case Kind::Accumulator:
    return int64_t(8) * (reg / 4 % colTiles()) + reg % 2;
  case Kind::Row:
    return 0;
  case Kind::Column:
    return int64_t(8) * (reg / 2) + reg % 2;
  }
  return 0;
}

FragmentLayout::Coord FragmentLayout::coord(unsigned thread,
                                            unsigned reg) const {
  Coord c{regRow(reg), regCol(reg)};
  unsigned warp = thread / 32, lane = thread % 32;
  if (layoutKind != Kind::Column)
    c.row += int64_t(16) * rowTiles() * (warp % rowWarps()) + lane / 4;
  if (layoutKind != Kind::Row)
    c.col += int64_t(8) * colTiles() * (warp / rowWarps());
  if (layoutKind != Kind::Row)
    c.col += 2 * (lane % 4);
  return c;
}

FragmentLayout::Slot FragmentLayout::slot(int64_t row, int64_t col) const {
  unsigned warp = 0, lane = 0, rowTile = 0, half = 0;
  if (layoutKind != Kind::Column) {
    warp = row / (16 * rowTiles());
    rowTile = row / 16 % rowTiles();
    half = row / 8 % 2;
    lane = row % 8 * 4;
  }
  if (layoutKind != Kind::Row)
    lane += col % 8 / 2;
  if (layoutKind != Kind::Row) {
    warp += rowWarps() * (col / (8 * colTiles()));
    col %= 8 * colTiles();
  }
  unsigned thread = warp * 32 + lane;
  if (layoutKind == Kind::Row)
    return {thread, rowTile * 2 + half};
  if (layoutKind == Kind::Column)
    return {thread, unsigned(col / 8 * 2 + col % 2)};
  return {thread, reg(rowTile, col / 8, half * 2 + col % 2)};
}

unsigned FragmentLayout::rowReg(unsigned reg) const {
  return layoutKind == Kind::Row ? reg
                                 : reg / (4 * colTiles()) * 2 + reg / 2 % 2;
}

unsigned FragmentLayout::colReg(unsigned reg) const {
  return layoutKind == Kind::Column ? reg : reg / 4 % colTiles() * 2 + reg % 2;
}

unsigned SharedLayout::group() const {
  unsigned chunks = chunksPerRow(), g = 1;
  while (g < 8 && chunks % (2 * g) == 0)
    g *= 2;
  return g;
}

int64_t SharedLayout::offset(int64_t row, int64_t col) const {
  int64_t chunk = col / elementsPerChunk();
  return row * pitch() + (chunk ^ swizzle(row)) * 16 +
         col % elementsPerChunk() * bytes;
}
