// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Run/Compare.h"

#include "gtest/gtest.h"

#include <cmath>
#include <limits>

using namespace fa;
using namespace fa::run;
using cpu::DType;
using cpu::TensorRef;

static constexpr double kInf = std::numeric_limits<double>::infinity();
static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

static Comparison compareValues(std::vector<float> out, std::vector<double> ref,
                                Limit limit) {
  auto n = static_cast<int64_t>(out.size());
  return compare(TensorRef::contiguous(out.data(), DType::F32, {n}),
                 TensorRef::contiguous(ref.data(), DType::F64, {n}), limit);
}

TEST(Compare, EqualPasses) {
  EXPECT_TRUE(compareValues({1, 2, 3}, {1, 2, 3}, 0).passed());
}

TEST(Compare, NamesTheFirstBadElement) {
  Comparison c = compareValues({1, 2.5, 4}, {1, 2, 3}, 0.25);
  EXPECT_FALSE(c.passed());
  EXPECT_EQ(c.firstBadIndex, std::vector<int64_t>{1});
  EXPECT_EQ(c.badElements, 2);
  EXPECT_EQ(c.maxError, 1);
  EXPECT_EQ(c.maxErrorIndex, std::vector<int64_t>{2});
  EXPECT_EQ(c.maxReference, 3);
}

TEST(Compare, NaNPassesOnlyWhereTheReferenceHasIt) {
  EXPECT_FALSE(compareValues({float(kNaN)}, {0}, 1e30).passed());
  EXPECT_FALSE(compareValues({0}, {kNaN}, 1e30).passed());
  EXPECT_FALSE(compareValues({float(kInf)}, {kNaN}, 1e30).passed());
  EXPECT_TRUE(compareValues({float(kNaN)}, {kNaN}, 0).passed());
}

TEST(Compare, InfinitiesMustBeTheSame) {
  EXPECT_TRUE(compareValues({-float(kInf)}, {-kInf}, 0).passed());
  EXPECT_FALSE(compareValues({float(kInf)}, {-kInf}, 1e30).passed());
  EXPECT_FALSE(compareValues({0}, {-kInf}, 1e30).passed());
  EXPECT_FALSE(compareValues({float(kInf)}, {1}, kInf).passed());
}

TEST(Compare, FollowsStrides) {
  float out[] = {1, 9, 2, 9, 3, 9, 4, 9};
  double ref[] = {1, 3, 2, 5}; // transposed
  TensorRef a{out, DType::F32, {2, 2}, {4, 2}};
  TensorRef b{ref, DType::F64, {2, 2}, {1, 2}};
  Comparison c = compare(a, b, 0);
  EXPECT_EQ(c.firstBadIndex, (std::vector<int64_t>{1, 1}));
}

TEST(Compare, EmptyPasses) { EXPECT_TRUE(compareValues({}, {}, 0).passed()); }

TEST(Compare, AllF16RoundTrip) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    double x = widenF16(bits);
    if (!std::isnan(x)) {
      EXPECT_EQ(narrowF16(x), bits);
    }
  }
}

TEST(Compare, AllBF16RoundTrip) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    double x = widenBF16(bits);
    if (!std::isnan(x)) {
      EXPECT_EQ(narrowBF16(x), bits);
    }
  }
}

TEST(Compare, NarrowingRoundsToNearestEven) {
  EXPECT_EQ(narrowF16(1 + 0x1p-11), narrowF16(1.0));
  EXPECT_EQ(narrowF16(1 + 3 * 0x1p-11), narrowF16(1 + 0x1p-9));
  EXPECT_EQ(narrowF16(65520), 0x7c00);
  EXPECT_EQ(narrowF16(65519), 0x7bff);
  EXPECT_EQ(narrowBF16(1 + 0x1p-8), narrowBF16(1.0));
  EXPECT_EQ(narrowBF16(1 + 3 * 0x1p-8), narrowBF16(1 + 0x1p-6));
  EXPECT_EQ(narrowBF16(3.4e38), 0x7f80);
}

// The numbers are also those of test_limits in test/python/test_right.py.
TEST(Compare, Limits) {
  for (DType dtype : {DType::BF16, DType::F16})
    EXPECT_DOUBLE_EQ(outputLimit(dtype, 0.25, 100).absolute, 0.5 + 1e-5);
  EXPECT_DOUBLE_EQ(outputLimit(DType::F32, 0.25, 2).absolute, 2e-5);
  EXPECT_EQ(outputLimit(DType::F32, 0.25, 2).relative, 0);
  EXPECT_DOUBLE_EQ(lseLimit(DType::F32).absolute, 1e-4);
  EXPECT_DOUBLE_EQ(lseLimit(DType::F32).relative, 8 * 0x1.0p-24);
  EXPECT_DOUBLE_EQ(outputLimit(DType::F64, 0.25, 2).absolute, 2e-12);
  EXPECT_DOUBLE_EQ(gradientLimit(DType::F64, 0.25, 2).absolute, 2e-12);
  EXPECT_DOUBLE_EQ(lseLimit(DType::F64).absolute, 1e-12);
  EXPECT_DOUBLE_EQ(lseLimit(DType::F64).relative, 8 * 0x1.0p-53);
}

TEST(Compare, TheLargerOfBothLimitsCounts) {
  EXPECT_TRUE(
      compareValues({1e4f, 1}, {1e4 + 4e-3, 1 + 1e-4}, lseLimit(DType::F32))
          .passed());
  EXPECT_EQ(compareValues({1e4f, 1}, {1e4 + 6e-3, 1}, lseLimit(DType::F32))
                .firstBadIndex,
            std::vector<int64_t>{0});
  EXPECT_EQ(compareValues({1e4f, 1}, {1e4, 1 + 2e-4}, lseLimit(DType::F32))
                .firstBadIndex,
            std::vector<int64_t>{1});
}

TEST(Compare, RowsThatSeeNothingAreExact) {
  Limit output = outputLimit(DType::BF16, 0.1, 1);
  EXPECT_TRUE(compareValues({0, -0.0f, 1}, {0, 0, 1}, output).passed());
  EXPECT_FALSE(compareValues({1e-30f, 0, 1}, {0, 0, 1}, output).passed());
  EXPECT_TRUE(
      compareValues({-float(kInf)}, {-kInf}, lseLimit(DType::F32)).passed());
  EXPECT_FALSE(compareValues({-1e30f}, {-kInf}, lseLimit(DType::F32)).passed());
  // A log-sum-exp may be near 0.
  EXPECT_TRUE(compareValues({1e-8f}, {0}, lseLimit(DType::F32)).passed());
}

TEST(Compare, MistakesFail) {
  std::vector<double> exact = {1.5, -0.75, 0.125, 1};
  auto changed = [&](double times, double plus) {
    std::vector<float> out;
    for (double x : exact)
      out.push_back(static_cast<float>(x * times + plus));
    return out;
  };
  // bf16's own error at 1.5 is 2^-8 at most.
  Limit output = outputLimit(DType::BF16, 0x1.0p-8, 1.5);
  EXPECT_TRUE(compareValues(changed(1.003, 0), exact, output).passed());
  EXPECT_FALSE(compareValues(changed(1.02, 0), exact, output).passed());
  EXPECT_FALSE(
      compareValues(changed(1, 0.015), exact, lseLimit(DType::F32)).passed());
  EXPECT_TRUE(
      compareValues(changed(1, 5e-5), exact, lseLimit(DType::F32)).passed());
  Limit wide = outputLimit(DType::F32, 0, 1.5);
  EXPECT_FALSE(compareValues(changed(1 + 2e-5, 0), exact, wide).passed());
  EXPECT_TRUE(compareValues(changed(1 + 5e-6, 0), exact, wide).passed());
}
