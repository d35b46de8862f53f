// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where the elements of a block's tile live: in which register of which
// thread, and at which byte of shared memory. These are the only places that
// know; loads, contractions, elementwise bodies, coordinates, reductions and
// stores all ask them.

#ifndef FA_DIALECT_NVIDIA_IR_FRAGMENT_H
#define FA_DIALECT_NVIDIA_IR_FRAGMENT_H

#include <cstdint>

namespace fa::nvidia {

/// A tile distributed over the registers of a block's threads.
///
/// `Accumulator`: the C fragment of mma.m16n8 repeated. The block's rows are
/// split over its warps, each warp holds `rowTiles()` consecutive tiles of 16
/// rows; register (t, n, e) of a thread holds row
/// 16*(warp*rowTiles + t) + lane/4 + 8*(e/2) and column
/// 8*n + 2*(lane%4) + e%2. Columns are padded to a multiple of 8. `rowWarps()`
/// warps divide the rows, as many as there are tiles of 16 rows if nothing else
/// is said, and the others the columns: those of warp w begin at
/// 8 * colTiles() * (w / rowWarps()). A block of more warps than the layout's
/// has copies of the tile: warp w holds what warp w % warps() does.
///
/// `Row`: a vector along the rows of an accumulator: register (t, h) holds
/// row 16*(warp*rowTiles + t) + lane/4 + 8*h, the same in all four lanes of a
/// quad.
///
/// `Column`: a vector along the columns: register (n, e) holds column
/// 8*n + 2*(lane%4) + e, the same in all lanes with equal lane%4; of an
/// accumulator whose columns are divided those of the warp's part.
class FragmentLayout {
public:
  enum class Kind { Accumulator, Row, Column };
  struct Coord {
    int64_t row, col;
  };
  struct Slot {
    unsigned thread, reg;
  };

  /// With 0 row warps as many as can.
  static FragmentLayout accumulator(int64_t rows, int64_t cols, unsigned warps,
                                    unsigned rowWarps = 0) {
    return FragmentLayout(Kind::Accumulator, rows, cols, warps,
                          rowWarps ? rowWarps : mostRowWarps(rows, warps));
  }
  static FragmentLayout row(int64_t rows, unsigned warps,
                            unsigned rowWarps = 0) {
    return FragmentLayout(Kind::Row, rows, 1, warps,
                          rowWarps ? rowWarps : mostRowWarps(rows, warps));
  }
  static FragmentLayout column(int64_t cols, unsigned warps,
                               unsigned rowWarps = 0) {
    return FragmentLayout(Kind::Column, 1, cols, warps,
                          rowWarps ? rowWarps : warps);
  }
  FragmentLayout() : FragmentLayout(Kind::Row, 0, 0, 1, 1) {}
  /// How many of these warps can divide rows.
  static unsigned mostRowWarps(int64_t rows, unsigned warps);

  /// The layouts of vectors along the rows and the columns of this accumulator.
  FragmentLayout alongRows() const {
    return row(numRows, numWarps, numRowWarps);
  }
  FragmentLayout alongColumns() const {
    return column(numCols, numWarps, numRowWarps);
  }

  Kind kind() const { return layoutKind; }
  int64_t rows() const { return numRows; }
  int64_t cols() const { return numCols; }
  unsigned warps() const { return numWarps; }
  /// A thread has the same elements in the same registers.
  bool operator==(const FragmentLayout &o) const {
    // A whole vector along the columns is the same in all warps.
    bool isAnywhere = layoutKind == Kind::Column && colWarps() == 1;
    return layoutKind == o.layoutKind && numRows == o.numRows &&
           numCols == o.numCols && colWarps() == o.colWarps() &&
           (isAnywhere || rowWarps() == o.rowWarps());
  }

  /// Whether a product with such a result takes its first operand of this
  /// layout from registers: rows where the result has them, with all columns.
  bool isOperandOf(const FragmentLayout &result) const {
    return colWarps() == 1 && rowWarps() == result.rowWarps();
  }

  /// Warps that divide the rows, and those that divide the columns.
  unsigned rowWarps() const { return numRowWarps; }
  unsigned colWarps() const {
    return layoutKind == Kind::Row ? 1 : numWarps / numRowWarps;
  }
  /// Tiles of 16 rows in a warp, tiles of 8 columns in a row of a warp.
  unsigned rowTiles() const { return numRows / (16 * rowWarps()); }
  unsigned colTiles() const { return (numCols / colWarps() + 7) / 8; }
  unsigned numRegs() const;

  /// The element's coordinate is the sum of a part that depends on the thread
  /// and a part that depends on the register, this one.
  int64_t regRow(unsigned reg) const;
  int64_t regCol(unsigned reg) const;

  /// The element that a register of a thread holds (its column may lie in the
  /// padding).
  Coord coord(unsigned thread, unsigned reg) const;
  /// The first thread that holds an element, and its register.
  Slot slot(int64_t row, int64_t col) const;

  /// The registers of the row and column layouts that go with a register of
  /// this accumulator.
  unsigned rowReg(unsigned reg) const;
  unsigned colReg(unsigned reg) const;
  /// Register of element e (0 to 3) of the 16x8 tile (rowTile, colTile).
  unsigned reg(unsigned rowTile, unsigned colTile, unsigned e) const {
    return (rowTile * colTiles() + colTile) * 4 + e;
  }

private:
  FragmentLayout(Kind kind, int64_t rows, int64_t cols, unsigned warps,
                 unsigned rowWarps)
      : layoutKind(kind), numRows(rows), numCols(cols), numWarps(warps),
        numRowWarps(rowWarps) {}
  Kind layoutKind;
  int64_t numRows, numCols;
  unsigned numWarps, numRowWarps;
};

/// A row-major tile in shared memory, in chunks of 16 bytes that are permuted
/// within a row so that 8 consecutive rows' chunks of one column fall in
/// different banks. Rows and columns are padded to multiples of 16.
class SharedLayout {
public:
  SharedLayout() = default;
  SharedLayout(int64_t rows, int64_t cols, unsigned elementBytes)
      : numRows(rows), numCols(cols), bytes(elementBytes) {}

  /// One row, which has no others' banks to avoid and is not padded.
  static SharedLayout vector(int64_t size, unsigned elementBytes) {
    return SharedLayout(1, size, elementBytes);
  }
  bool isVector() const { return numRows == 1; }

  int64_t rows() const { return numRows; }
  int64_t cols() const { return numCols; }
  unsigned elementBytes() const { return bytes; }
  int64_t paddedRows() const {
    return isVector() ? 1 : (numRows + 15) / 16 * 16;
  }
  int64_t paddedCols() const { return (numCols + 15) / 16 * 16; }
  int64_t pitch() const { return paddedCols() * bytes; }
  int64_t size() const { return paddedRows() * pitch(); }
  unsigned chunksPerRow() const { return pitch() / 16; }
  unsigned elementsPerChunk() const { return 16 / bytes; }
  /// Chunks are permuted in groups of this many (a power of two, at most 8):
  /// chunk c of row r lies at c ^ ((r / (8 / group)) % group).
  unsigned group() const;
  unsigned swizzle(int64_t row) const { return row / (8 / group()) % group(); }
  int64_t offset(int64_t row, int64_t col) const;

private:
  int64_t numRows = 0, numCols = 0;
  unsigned bytes = 2;
};

} // namespace fa::nvidia

#endif // FA_DIALECT_NVIDIA_IR_FRAGMENT_H
