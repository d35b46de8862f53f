// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Driver, devices, memory, messages.

#include "TestUtil.h"

#include <cstring>
#include <thread>

namespace {
using Driver = RuntimeTest;

/// The library opens the driver once in a process, so tests of a driver that
/// cannot be opened run in a process of their own.
class DriverDeathTest : public ::testing::Test {
protected:
  void SetUp() override {
    ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  }
};
} // namespace

/// Loads with the driver at `path`, prints what came of it, and exits.
[[noreturn]] static void loadWithDriver(const char *path) {
  setenv("FA_CUDA_DRIVER", path, 1);
  std::string image = attentionImage();
  fa_rt_program *program = nullptr;
  fa_rt_status status =
      fa_rt_program_load(0, image.data(), image.size(), nullptr, &program);
  std::fprintf(stderr, "%s: %s\n", fa_rt_status_name(status),
               fa_rt_last_error());
  std::_Exit(0);
}

TEST_F(DriverDeathTest, NoDriver) {
  EXPECT_EXIT(loadWithDriver("/nowhere/libcuda.so.1"),
              ::testing::ExitedWithCode(0),
              "FA_RT_NO_DRIVER: no NVIDIA driver: dlopen of "
              "/nowhere/libcuda.so.1 failed .*No such file.*; install the "
              "NVIDIA driver or run with target=cpu");
}

TEST_F(DriverDeathTest, DriverWithoutAnEntryPoint) {
  EXPECT_EXIT(loadWithDriver(FA_FAKE_OLD_DRIVER), ::testing::ExitedWithCode(0),
              "FA_RT_DRIVER_TOO_OLD: .* has no function cuLinkCreate_v2; "
              "update the NVIDIA driver");
}

/// Launches a program with a tensor map, prints what came of it, and exits.
[[noreturn]] static void launchMapped(const char *driver) {
  setenv("FA_CUDA_DRIVER", driver, 1);
  std::string image = "//!fa.program version=2 name=mapped target=sm_80\n"
                      "//!fa.arg index=0 name=x role=in type=f16 shape=?x64\n"
                      "//!fa.map index=0 tensor=0 dim=0 rows=64\n"
                      "//!fa.launch kernel=k block=32 grid=1 args=0 maps=0\n"
                      "//!fa.end\n" +
                      code({{"k", 5, 1}});
  Program program = load(image);
  fa_rt_status status = launch(program, {tensor(FA_RT_F16, {8, 64})});
  std::fprintf(stderr, "%s: %s\n", fa_rt_status_name(status),
               fa_rt_last_error());
  std::_Exit(0);
}

TEST_F(DriverDeathTest, DriverWithoutTensorMaps) {
  EXPECT_EXIT(launchMapped(FA_FAKE_DRIVER_11), ::testing::ExitedWithCode(0),
              "FA_RT_DRIVER_TOO_OLD: the driver has no cuTensorMapEncodeTiled "
              ".CUDA 12.0., which program 'mapped' needs; update the driver");
}

[[noreturn]] static void loadWithInitResult(int result) {
  state().behaviour.initResult = result;
  loadWithDriver(FA_FAKE_DRIVER);
}

TEST_F(DriverDeathTest, DriverSeesNoDevice) {
  EXPECT_EXIT(loadWithInitResult(100), ::testing::ExitedWithCode(0),
              "FA_RT_NO_DEVICE: no GPU: .*nvidia-smi");
}

TEST_F(DriverDeathTest, DriverDoesNotStart) {
  EXPECT_EXIT(loadWithInitResult(803), ::testing::ExitedWithCode(0),
              "FA_RT_NO_DRIVER: .*does not start: cuInit gave "
              "CUDA_ERROR_FAKE .803.");
}

[[noreturn]] static void failThenStart() {
  state().behaviour.initResult = 999;
  int count = 0;
  fa_rt_status first = fa_rt_device_count(&count);
  state().behaviour.initResult = 0;
  fa_rt_status second = fa_rt_device_count(&count);
  std::_Exit(first == FA_RT_NO_DRIVER && second == FA_RT_OK ? 0 : 1);
}

TEST_F(DriverDeathTest, AFailedStartIsTriedAgain) {
  EXPECT_EXIT(failThenStart(), ::testing::ExitedWithCode(0), "");
}

TEST_F(Driver, DeviceInfo) {
  int count = 0;
  ASSERT_EQ(fa_rt_device_count(&count), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(count, 1);
  fa_rt_device_desc desc;
  ASSERT_EQ(fa_rt_device_info(0, &desc), FA_RT_OK) << fa_rt_last_error();
  EXPECT_STREQ(desc.name, "Fake GPU 0");
  EXPECT_EQ(desc.cc_major, 8);
  EXPECT_EQ(desc.cc_minor, 0);
  EXPECT_EQ(desc.sm_count, 108);
  EXPECT_EQ(desc.smem_optin, 166912);
  EXPECT_EQ(desc.l2_size, 41943040);
  EXPECT_EQ(desc.driver_version, 12040);
  expectError(fa_rt_device_info(7, &desc), FA_RT_INVALID_ARGUMENT,
              {"device 7 does not exist"});
  expectError(fa_rt_device_info(0, nullptr), FA_RT_INVALID_ARGUMENT, {"NULL"});
  expectError(fa_rt_device_count(nullptr), FA_RT_INVALID_ARGUMENT, {"NULL"});
}

TEST_F(Driver, MemoryRoundTrip) {
  void *data = nullptr;
  ASSERT_EQ(fa_rt_alloc(0, 16, &data), FA_RT_OK) << fa_rt_last_error();
  char from[16] = "fifteen letters", to[16] = "";
  EXPECT_EQ(fa_rt_copy_to_device(0, data, from, 16), FA_RT_OK);
  EXPECT_EQ(fa_rt_copy_to_host(0, to, data, 16), FA_RT_OK);
  EXPECT_STREQ(to, from);
  EXPECT_EQ(fa_rt_free(0, data), FA_RT_OK);
}

TEST_F(Driver, MemoryOfNoBytes) {
  void *data = &data;
  EXPECT_EQ(fa_rt_alloc(0, 0, &data), FA_RT_OK);
  EXPECT_EQ(data, nullptr);
  EXPECT_EQ(fa_rt_copy_to_device(0, nullptr, nullptr, 0), FA_RT_OK);
  EXPECT_EQ(fa_rt_copy_to_host(0, nullptr, nullptr, 0), FA_RT_OK);
  EXPECT_EQ(fa_rt_free(0, nullptr), FA_RT_OK);
}

TEST_F(Driver, MemoryErrors) {
  void *data;
  state().behaviour.allocationsLeft = 0;
  expectError(fa_rt_alloc(0, 123, &data), FA_RT_OUT_OF_MEMORY,
              {"allocating 123 bytes", "out of memory"});
  expectError(fa_rt_copy_to_device(0, nullptr, "x", 1), FA_RT_INVALID_ARGUMENT,
              {"the device address is NULL"});
  state().behaviour.synchronizeResult = 700;
  expectError(fa_rt_stream_synchronize(0, nullptr), FA_RT_LAUNCH_FAILED,
              {"waiting for the stream", "(700)"});
}

TEST_F(Driver, LastErrorIsOfTheThread) {
  fa_rt_device_desc desc;
  EXPECT_NE(fa_rt_device_info(41, &desc), FA_RT_OK);
  std::string other = "?";
  std::thread([&] {
    EXPECT_STREQ(fa_rt_last_error(), "");
    EXPECT_NE(fa_rt_device_info(42, &desc), FA_RT_OK);
    other = fa_rt_last_error();
  }).join();
  EXPECT_NE(other.find("device 42"), std::string::npos) << other;
  EXPECT_NE(std::strstr(fa_rt_last_error(), "device 41"), nullptr);
  // A success leaves the message.
  EXPECT_EQ(fa_rt_device_info(0, &desc), FA_RT_OK);
  EXPECT_NE(std::strstr(fa_rt_last_error(), "device 41"), nullptr);
}

TEST(Version, NamesAndNumbers) {
  EXPECT_STREQ(fa_rt_version(), "0.1.0");
  for (int status = FA_RT_OK; status <= FA_RT_INTERNAL; ++status)
    EXPECT_STRNE(fa_rt_status_name(static_cast<fa_rt_status>(status)),
                 "FA_RT_UNKNOWN");
}
