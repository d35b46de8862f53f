// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Against the real driver; skips where there is none.

#include "IntegrationUtil.h"

#include <vector>

/// y[i] = 2 * x[i] by way of a temporary buffer: one kernel adds x to a zeroed
/// buffer, the other one adds it again and writes y.
static const char kHeader[] =
    "//!fa.program version=1 name=twice target=%TARGET%\n"
    "//!fa.arg index=0 name=x role=in type=f32 shape=?\n"
    "//!fa.arg index=1 name=y role=out type=f32 shape=?\n"
    "//!fa.temp index=2 type=f32 shape=a0.d0 zero=1\n"
    "//!fa.same a0.d0=a1.d0\n"
    "//!fa.require a0.s0=1 a1.s0=1 a0.align=4\n"
    "//!fa.launch kernel=add block=128 smem=65536 grid=a0.d0/128 args=0,2,2\n"
    "//!fa.launch kernel=add block=128 smem=65536 grid=a0.d0/128 args=0,2,1\n"
    "//!fa.end\n";

/// add(a, b, c): c[i] = a[i] + b[i], for tensors of rank 1.
static const char kCode[] = R"(.version 7.0
.target %TARGET%
.address_size 64
.visible .entry add(
  .param .u64 a, .param .u64 an, .param .u64 as,
  .param .u64 b, .param .u64 bn, .param .u64 bs,
  .param .u64 c, .param .u64 cn, .param .u64 cs)
{
  .reg .pred %p;
  .reg .b32 %r<4>;
  .reg .b64 %rd<8>;
  .reg .f32 %f<3>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [c];
  ld.param.u64 %rd4, [an];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3;
  cvt.u64.u32 %rd5, %r1;
  setp.ge.u64 %p, %rd5, %rd4;
  @%p bra DONE;
  shl.b64 %rd6, %rd5, 2;
  add.u64 %rd1, %rd1, %rd6;
  add.u64 %rd2, %rd2, %rd6;
  add.u64 %rd3, %rd3, %rd6;
  ld.global.f32 %f1, [%rd1];
  ld.global.f32 %f2, [%rd2];
  add.f32 %f1, %f1, %f2;
  st.global.f32 [%rd3], %f1;
DONE:
  ret;
}
)";

static std::string imageFor(const std::string &target,
                            std::string version = "7.0") {
  std::string image = std::string(kHeader) + kCode;
  auto replaceAll = [&](const std::string &from, const std::string &to) {
    for (size_t at = image.find(from); at != std::string::npos;
         at = image.find(from, at + to.size()))
      image.replace(at, from.size(), to);
  };
  replaceAll("%TARGET%", target);
  replaceAll(".version 7.0", ".version " + version);
  return image;
}

/// Loads, runs and checks the image; *isFromCache tells where the code was.
static void runTwice(const std::string &image, int32_t *isFromCache) {
  fa_rt_program *program = nullptr;
  ASSERT_OK(
      fa_rt_program_load(0, image.data(), image.size(), nullptr, &program));
  fa_rt_program_desc desc;
  ASSERT_OK(fa_rt_program_info(program, &desc));
  *isFromCache = desc.from_cache;
  fa_rt_launch_desc launch;
  ASSERT_OK(fa_rt_program_launch_info(program, 0, &launch));
  EXPECT_GT(launch.registers, 0);

  for (int64_t n : {int64_t(1000), int64_t(1), int64_t(0)}) {
    std::vector<float> x(static_cast<size_t>(n) + 1), y(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i) + 0.5f;
    size_t bytes = static_cast<size_t>(n) * sizeof(float);
    void *dx, *dy;
    ASSERT_OK(fa_rt_alloc(0, bytes, &dx));
    ASSERT_OK(fa_rt_alloc(0, bytes, &dy));
    ASSERT_OK(fa_rt_copy_to_device(0, dx, x.data(), bytes));
    fa_rt_tensor args[2] = {fa_rt_tensor_contiguous(dx, FA_RT_F32, 1, &n),
                            fa_rt_tensor_contiguous(dy, FA_RT_F32, 1, &n)};
    ASSERT_OK(fa_rt_program_launch(program, args, 2, nullptr));
    ASSERT_OK(fa_rt_stream_synchronize(0, nullptr));
    ASSERT_OK(fa_rt_copy_to_host(0, y.data(), dy, bytes));
    for (size_t i = 0; i < static_cast<size_t>(n); ++i)
      ASSERT_EQ(y[i], 2 * x[i]) << i;
    float milliseconds = -1;
    ASSERT_OK(fa_rt_program_time(program, args, 2, nullptr, 5, &milliseconds));
    EXPECT_GE(milliseconds, 0.0f);
    ASSERT_OK(fa_rt_free(0, dx));
    ASSERT_OK(fa_rt_free(0, dy));
  }
  fa_rt_program_free(program);
}

TEST_F(Integration, RunsAndIsCached) {
  int32_t isFromCache = -1;
  runTwice(imageFor("sm_80"), &isFromCache);
  EXPECT_EQ(isFromCache, 0);
  runTwice(imageFor("sm_80"), &isFromCache);
  EXPECT_EQ(isFromCache, 1);
}

TEST_F(Integration, ArchitectureSpecificCode) {
  if (device.cc_major != 9)
    GTEST_SKIP() << "needs a device of compute capability 9.0";
  int32_t isFromCache = -1;
  runTwice(imageFor("sm_90a", "8.0"), &isFromCache);
  EXPECT_EQ(isFromCache, 0);
  runTwice(imageFor("sm_90a", "8.0"), &isFromCache);
  EXPECT_EQ(isFromCache, 1);
}

TEST_F(Integration, RejectedCodeCarriesTheLog) {
  std::string image = imageFor("sm_80");
  image.replace(image.find("shl.b64"), 7, "shq.b64");
  fa_rt_program *program = nullptr;
  EXPECT_EQ(
      fa_rt_program_load(0, image.data(), image.size(), nullptr, &program),
      FA_RT_DRIVER_REJECTED);
  EXPECT_NE(std::string(fa_rt_last_error()).find("shq"), std::string::npos)
      << fa_rt_last_error();
}

TEST_F(Integration, ParameterMismatchIsFound) {
  std::string image = imageFor("sm_80");
  size_t at = image.find("args=0,2,2");
  image.replace(at, 10, "args=0,2");
  fa_rt_program *program = nullptr;
  fa_rt_status status =
      fa_rt_program_load(0, image.data(), image.size(), nullptr, &program);
  if (status == FA_RT_OK && device.driver_version < 12040) {
    fa_rt_program_free(program);
    GTEST_SKIP() << "the driver cannot tell a kernel's parameters";
  }
  EXPECT_EQ(status, FA_RT_BAD_IMAGE) << fa_rt_last_error();
}

TEST_F(Integration, HostPointerIsFoundWhenAsked) {
  fa_rt_load_options options;
  fa_rt_load_options_init(&options);
  options.check_pointers = 1;
  std::string image = imageFor("sm_80");
  fa_rt_program *program = nullptr;
  ASSERT_OK(
      fa_rt_program_load(0, image.data(), image.size(), &options, &program));
  int64_t n = 4;
  std::vector<float> host(4);
  fa_rt_tensor x = fa_rt_tensor_contiguous(host.data(), FA_RT_F32, 1, &n);
  fa_rt_tensor args[2] = {x, x};
  EXPECT_EQ(fa_rt_program_launch(program, args, 2, nullptr),
            FA_RT_INVALID_ARGUMENT);
  fa_rt_program_free(program);
}
