// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tests against the real driver; they skip where there is none.

#ifndef FA_TEST_UNIT_RUNTIME_INTEGRATIONUTIL_H
#define FA_TEST_UNIT_RUNTIME_INTEGRATIONUTIL_H

#include "fa-runtime/fa_runtime.h"

#include "gtest/gtest.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#define ASSERT_OK(call) ASSERT_EQ(call, FA_RT_OK) << fa_rt_last_error()

/// Each test has device 0 and an empty cache.
class Integration : public ::testing::Test {
protected:
  void SetUp() override {
    int count = 0;
    fa_rt_status status = fa_rt_device_count(&count);
    if (status == FA_RT_NO_DRIVER || status == FA_RT_NO_DEVICE)
      GTEST_SKIP() << fa_rt_last_error();
    ASSERT_EQ(status, FA_RT_OK) << fa_rt_last_error();
    char name[] = "/tmp/fa-runtime-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory = name;
    setenv("FA_CACHE_DIR", name, 1);
    setenv("FA_CACHE", "1", 1);
    ASSERT_EQ(fa_rt_device_info(0, &device), FA_RT_OK) << fa_rt_last_error();
  }
  void TearDown() override {
    std::error_code ignored;
    if (!directory.empty())
      std::filesystem::remove_all(directory, ignored);
  }
  fa_rt_device_desc device = {};
  std::string directory;
};

#endif // FA_TEST_UNIT_RUNTIME_INTEGRATIONUTIL_H
