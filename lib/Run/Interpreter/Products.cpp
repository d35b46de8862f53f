// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products of 16-bit numbers, summed in f32.

#include "Team.h"

using namespace mlir;
using namespace fa;
using namespace fa::run;
using namespace fa::run::interpreter;

/// c[m,n] += a[m,k] * b[k,n], rows of c `stride` apart. Four rows of b at a
/// time: c is read and written less often.
static void multiply(const float *a, const float *b, float *c, int64_t m,
                     int64_t n, int64_t k, int64_t stride) {
  for (int64_t i = 0; i < m; ++i) {
    const float *row = a + i * k;
    float *sum = c + i * stride;
    int64_t l = 0;
    for (; l + 4 <= k; l += 4) {
      float x0 = row[l], x1 = row[l + 1], x2 = row[l + 2], x3 = row[l + 3];
      const float *b0 = b + l * n, *b1 = b0 + n, *b2 = b1 + n, *b3 = b2 + n;
      for (int64_t j = 0; j < n; ++j)
        sum[j] += x0 * b0[j] + x1 * b1[j] + (x2 * b2[j] + x3 * b3[j]);
    }
    for (; l < k; ++l)
      for (int64_t j = 0; j < n; ++j)
        sum[j] += row[l] * b[l * n + j];
  }
}

/// A copy of rows of a matrix, or of its columns, turned.
static std::vector<float> rowsOf(const Tensor &t, bool isTurned, int64_t first,
                                 int64_t end) {
  int64_t rows = t.shape()[0], cols = t.shape()[1];
  const float *from = t.floats();
  if (!isTurned)
    return std::vector<float>(from + first * cols, from + end * cols);
  std::vector<float> to((end - first) * rows);
  for (int64_t i = first; i < end; ++i)
    for (int64_t j = 0; j < rows; ++j)
      to[(i - first) * rows + j] = from[j * cols + i];
  return to;
}

/// A result's part before the product.
static Tensor initOf(const Group &group, unsigned number) {
  const Cell &init = group.inits[number];
  // Products end in their order: that of an init in flight has ended.
  if (init.kind == Cell::Kind::Tile)
    return init.tile;
  if (init.group && init.group->isDone)
    return init.group->results[init.result];
  return Tensor();
}

Tensor interpreter::viewPart(const Tensor &tile, int64_t warpgroup,
                             int64_t warpgroups) {
  auto [firstRow, endRow, firstCol, endCol] =
      hopper::Division::of(tile.shape(), warpgroups)
          .part(tile.shape(), warpgroup);
  return tile.slice({firstRow, firstCol},
                    {endRow - firstRow, endCol - firstCol}, {1, 1});
}

void interpreter::computeProduct(Group &group, int64_t warpgroup,
                                 int64_t warpgroups) {
  hopper::WgmmaOp op = group.op;
  Tensor a = group.aShared.hold ? group.aShared.hold->stage->content : group.a;
  Tensor b = group.bShared.hold->stage->content;
  for (auto [number, value] : llvm::enumerate(op.getResults())) {
    RankedTensorType type = tileTypeOf(value);
    ElementKind f32{true, ElementKind::None, 32};
    // Other parts are other warpgroups'.
    Tensor result = Tensor::makePoison(f32, type.getShape());
    group.results.push_back(result);
    auto [firstRow, endRow, firstCol, endCol] =
        hopper::Division::of(type.getShape(), warpgroups)
            .part(type.getShape(), warpgroup);
    Tensor part = viewPart(result, warpgroup, warpgroups);
    if (group.inits.empty()) {
      for (int64_t i = firstRow; i < endRow; ++i)
        std::fill_n(result.floats() + i * type.getDimSize(1) + firstCol,
                    endCol - firstCol, 0.0f);
    } else if (Tensor init = initOf(group, number); init.isValid()) {
      part.assign(viewPart(init, warpgroup, warpgroups));
    }
    std::vector<float> own = rowsOf(a, op.getATransposed(), firstRow, endRow);
    int64_t m = endRow - firstRow, n = endCol - firstCol, k = own.size() / m;
    // Rows of b [n,k], or columns of b [k,n], as [k,n].
    std::vector<float> other(k * n, 1.0f);
    if (number == 0) {
      std::vector<float> rows = rowsOf(b, op.getTransposed(), firstCol, endCol);
      for (int64_t j = 0; j < n; ++j)
        for (int64_t l = 0; l < k; ++l)
          other[l * n + j] = rows[j * k + l];
    }
    multiply(own.data(), other.data(), part.floats(), m, n, k,
             type.getDimSize(1));
  }
}
