// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products of 16-bit numbers, summed in f32.

#include "Team.h"

using namespace mlir;
using namespace fa;
using namespace fa::run;
using namespace fa::run::interpreter;

/// c[m,n] += a[m,k] * b[k,n]. Four rows of b at a time: c is read and written
/// less often.
static void multiply(const float *a, const float *b, float *c, int64_t m,
                     int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i) {
    const float *row = a + i * k;
    float *sum = c + i * n;
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

/// A result's sum before the product.
static void loadInit(const Group &group, unsigned number, int64_t first,
                     int64_t count, float *to) {
  if (group.inits.empty()) {
    std::fill_n(to, count, 0.0f);
    return;
  }
  const Cell &init = group.inits[number];
  // Products end in their order: that of an init in flight has ended.
  Tensor t;
  if (init.kind == Cell::Kind::Tile)
    t = init.tile.contiguous();
  else if (init.group && init.group->isDone)
    t = init.group->results[init.result];
  if (t.isValid())
    std::copy_n(t.floats() + first, count, to);
  else
    std::fill_n(to, count, poison());
}

void interpreter::computeProduct(Group &group, int64_t warpgroup) {
  hopper::WgmmaOp op = group.op;
  Tensor a = group.aShared.hold ? group.aShared.hold->stage->content : group.a;
  Tensor b = group.bShared.hold->stage->content;
  constexpr int64_t rows = hopper::warpgroupRows;
  for (auto [number, value] : llvm::enumerate(op.getResults())) {
    RankedTensorType type = tileTypeOf(value);
    ElementKind f32{true, ElementKind::None, 32};
    // Other rows are other warpgroups'.
    Tensor result = Tensor::makePoison(f32, type.getShape());
    group.results.push_back(result);
    int64_t n = type.getDimSize(1), first = rows * warpgroup * n;
    int64_t k = a.shape()[1];
    float *c = result.floats() + first;
    const float *own = a.floats() + rows * warpgroup * k;
    loadInit(group, number, first, rows * n, c);
    if (number == 1) {
      std::vector<float> ones(k * n, 1.0f);
      multiply(own, ones.data(), c, rows, n, k);
    } else if (op.getTransposed()) {
      multiply(own, b.floats(), c, rows, n, k);
    } else {
      std::vector<float> turned(k * n);
      for (int64_t j = 0; j < n; ++j)
        for (int64_t l = 0; l < k; ++l)
          turned[l * n + j] = b.floats()[j * k + l];
      multiply(own, turned.data(), c, rows, n, k);
    }
  }
}
