// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every element of a tile is in exactly the registers that the table says.

#include "fa/Dialect/NVIDIA/IR/Fragment.h"

#include <gtest/gtest.h>
#include <map>
#include <set>
#include <vector>

using namespace fa::nvidia;

namespace {

struct Shape {
  int64_t rows, cols;
  unsigned warps, rowWarps = 0;
};
const Shape shapes[] = {{16, 8, 1},   {64, 64, 4},  {128, 64, 4},
                        {128, 64, 8}, {64, 20, 2},  {32, 256, 2},
                        {128, 80, 4}, {256, 16, 4}, {16, 1, 1}};
// More warps than tiles of 16 rows, or more than are to divide rows: the others
// divide the columns.
const Shape divided[] = {{64, 64, 8},      {64, 128, 8},    {32, 96, 4},
                         {16, 32, 4},      {128, 64, 8, 4}, {128, 128, 8, 2},
                         {128, 128, 8, 1}, {64, 256, 8, 2}};

TEST(FragmentTest, AccumulatorFollowsTheInstructionsTable) {
  // PTX ISA, mma.m16n8k16: c0, c1 at row lane/4, c2, c3 eight below; columns
  // 2*(lane%4) and the next.
  auto layout = FragmentLayout::accumulator(16, 8, 1);
  ASSERT_EQ(layout.numRegs(), 4u);
  for (unsigned lane = 0; lane < 32; ++lane)
    for (unsigned reg = 0; reg < 4; ++reg) {
      auto c = layout.coord(lane, reg);
      EXPECT_EQ(c.row, lane / 4 + (reg >= 2 ? 8 : 0));
      EXPECT_EQ(c.col, lane % 4 * 2 + (reg & 1));
    }
}

TEST(FragmentTest, AccumulatorHoldsEachElementOnce) {
  std::vector<Shape> all(std::begin(shapes), std::end(shapes));
  all.insert(all.end(), std::begin(divided), std::end(divided));
  for (const Shape &s : all) {
    auto layout =
        FragmentLayout::accumulator(s.rows, s.cols, s.warps, s.rowWarps);
    std::map<std::pair<int64_t, int64_t>, int> seen;
    for (unsigned thread = 0; thread < 32 * s.warps; ++thread)
      for (unsigned reg = 0; reg < layout.numRegs(); ++reg) {
        auto c = layout.coord(thread, reg);
        ASSERT_GE(c.row, 0);
        ASSERT_LT(c.row, s.rows);
        ASSERT_LT(c.col, (s.cols + 7) / 8 * 8);
        ++seen[{c.row, c.col}];
        auto slot = layout.slot(c.row, c.col);
        EXPECT_EQ(slot.thread, thread);
        EXPECT_EQ(slot.reg, reg);
        // The part of the register is the same in all threads.
        auto first = layout.coord(thread, 0);
        EXPECT_EQ(layout.regRow(reg) + first.row, c.row);
        EXPECT_EQ(layout.regCol(reg) + first.col, c.col);
      }
    EXPECT_EQ(int64_t(seen.size()), s.rows * ((s.cols + 7) / 8 * 8));
    for (auto &entry : seen)
      EXPECT_EQ(entry.second, 1);
  }
}

TEST(FragmentTest, RowVectorsAreTheSameInAQuad) {
  for (const Shape &s : shapes) {
    auto layout = FragmentLayout::accumulator(s.rows, s.cols, s.warps);
    auto row = FragmentLayout::row(s.rows, s.warps);
    std::map<int64_t, std::set<unsigned>> holders;
    for (unsigned thread = 0; thread < 32 * s.warps; ++thread) {
      for (unsigned reg = 0; reg < row.numRegs(); ++reg)
        holders[row.coord(thread, reg).row].insert(thread);
      for (unsigned reg = 0; reg < layout.numRegs(); ++reg)
        EXPECT_EQ(row.coord(thread, layout.rowReg(reg)).row,
                  layout.coord(thread, reg).row);
    }
    ASSERT_EQ(int64_t(holders.size()), s.rows);
    for (auto &entry : holders) {
      EXPECT_EQ(entry.second.size(), 4u);
      unsigned first = *entry.second.begin();
      EXPECT_EQ(first % 4, 0u);
      EXPECT_EQ(*entry.second.rbegin(), first + 3);
      EXPECT_EQ(row.slot(entry.first, 0).thread, first);
    }
  }
}

TEST(FragmentTest, VectorsGoWithRowsAndColumns) {
  std::vector<Shape> all(std::begin(shapes), std::end(shapes));
  all.insert(all.end(), std::begin(divided), std::end(divided));
  for (const Shape &s : all) {
    auto layout =
        FragmentLayout::accumulator(s.rows, s.cols, s.warps, s.rowWarps);
    FragmentLayout row = layout.alongRows(), column = layout.alongColumns();
    for (unsigned thread = 0; thread < 32 * s.warps; ++thread)
      for (unsigned reg = 0; reg < layout.numRegs(); ++reg) {
        auto c = layout.coord(thread, reg);
        EXPECT_EQ(row.coord(thread, layout.rowReg(reg)).row, c.row);
        EXPECT_EQ(column.coord(thread, layout.colReg(reg)).col, c.col);
      }
  }
}

TEST(FragmentTest, LayoutsAreEqualIfThreadsHaveTheSame) {
  auto four = FragmentLayout::accumulator(64, 64, 4);
  EXPECT_FALSE(FragmentLayout::accumulator(64, 64, 8) == four);
  EXPECT_TRUE(FragmentLayout::accumulator(64, 64, 4, 4) == four);
  // Warps have copies of a vector along the rows.
  EXPECT_TRUE(FragmentLayout::row(64, 8) == four.alongRows());
  EXPECT_TRUE(FragmentLayout::column(64, 8) == four.alongColumns());
  auto parts = FragmentLayout::accumulator(64, 64, 8, 2);
  EXPECT_FALSE(parts.alongColumns() == four.alongColumns());
  EXPECT_FALSE(parts.alongRows() == four.alongRows());
}

TEST(SharedLayoutTest, PlacesEachElementOnce) {
  for (unsigned bytes : {2u, 4u})
    for (int64_t cols : {8, 16, 20, 32, 64, 72, 80, 96, 128, 256}) {
      SharedLayout layout(40, cols, bytes);
      std::set<int64_t> seen;
      for (int64_t r = 0; r < layout.paddedRows(); ++r)
        for (int64_t c = 0; c < layout.paddedCols(); ++c) {
          int64_t at = layout.offset(r, c);
          EXPECT_EQ(at % bytes, 0);
          EXPECT_LT(at, layout.size());
          EXPECT_TRUE(seen.insert(at).second);
        }
    }
}

TEST(SharedLayoutTest, EightRowsOfAColumnHaveEightBankGroups) {
  for (int64_t cols : {16, 32, 64, 80, 96, 128, 144, 256}) {
    SharedLayout layout(64, cols, 2);
    for (int64_t row = 0; row < 64; row += 8)
      for (int64_t col = 0; col < layout.paddedCols(); col += 8) {
        std::set<int64_t> groups;
        for (int64_t r = 0; r < 8; ++r)
          groups.insert(layout.offset(row + r, col) / 16 % 8);
        EXPECT_EQ(groups.size(), 8u) << cols << " columns, row " << row;
      }
  }
}

} // namespace
