// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loading: what is checked against the device and the driver.

#include "TestUtil.h"

#include <fstream>

namespace {
using Load = RuntimeTest;
}

static fake::Behaviour &behaviour() { return state().behaviour; }

/// An image for `target` with one kernel of no parameters.
static std::string imageFor(const std::string &target,
                            const std::string &version = "8.0",
                            const std::string &launchFields = "") {
  return "//!fa.program version=1 name=tiny target=" + target +
         "\n//!fa.launch kernel=k block=32 grid=1 args= " + launchFields +
         "\n//!fa.end\n" + code({{"k", 0}}, target, version);
}

TEST_F(Load, DescribesTheProgram) {
  behaviour().registers = 168;
  behaviour().localBytes = 24;
  behaviour().staticSmem = 1024;
  Program program = load(attentionImage());
  fa_rt_program_desc desc;
  ASSERT_EQ(fa_rt_program_info(program.get(), &desc), FA_RT_OK);
  EXPECT_STREQ(desc.name, "attention");
  EXPECT_STREQ(desc.target, "sm_80");
  EXPECT_EQ(desc.device, 0);
  EXPECT_EQ(desc.num_args, 5);
  EXPECT_EQ(desc.num_temps, 0);
  EXPECT_EQ(desc.num_launches, 1);
  EXPECT_EQ(desc.from_cache, 0);

  fa_rt_launch_desc kernel;
  ASSERT_EQ(fa_rt_program_launch_info(program.get(), 0, &kernel), FA_RT_OK);
  EXPECT_STREQ(kernel.kernel, "attention_kernel");
  EXPECT_EQ(kernel.block, 128);
  EXPECT_EQ(kernel.dynamic_smem, 49152);
  EXPECT_EQ(kernel.static_smem, 1024);
  EXPECT_EQ(kernel.registers, 168);
  EXPECT_EQ(kernel.local_bytes, 24);
  expectError(fa_rt_program_launch_info(program.get(), 1, &kernel),
              FA_RT_INVALID_ARGUMENT, {"launch 1 does not exist: there are 1"});

  fa_rt_arg_desc arg;
  ASSERT_EQ(fa_rt_program_arg_info(program.get(), 4, &arg), FA_RT_OK);
  EXPECT_STREQ(arg.name, "lse");
  EXPECT_EQ(arg.dtype, FA_RT_F32);
  EXPECT_EQ(arg.rank, 3);
  EXPECT_EQ(arg.shape[0], -1);
  EXPECT_EQ(arg.shape[1], 12);
  EXPECT_EQ(arg.role, 2);
  expectError(fa_rt_program_arg_info(program.get(), -1, &arg),
              FA_RT_INVALID_ARGUMENT, {"argument -1 does not exist"});
}

TEST_F(Load, NullPointers) {
  fa_rt_program *program;
  expectError(fa_rt_program_load(0, nullptr, 0, nullptr, &program),
              FA_RT_INVALID_ARGUMENT, {"the image is NULL"});
  expectError(fa_rt_program_load(0, "x", 1, nullptr, nullptr),
              FA_RT_INVALID_ARGUMENT, {"program is NULL"});
  expectError(fa_rt_program_info(nullptr, nullptr), FA_RT_INVALID_ARGUMENT,
              {"program is NULL"});
  fa_rt_program_free(nullptr);
}

TEST_F(Load, OptionsOfAnotherSize) {
  fa_rt_load_options options = {};
  fa_rt_program *program;
  std::string image = attentionImage();
  expectError(
      fa_rt_program_load(0, image.data(), image.size(), &options, &program),
      FA_RT_INVALID_ARGUMENT, {"struct_size 0", "fa_rt_load_options_init"});
}

TEST_F(Load, DeviceThatDoesNotExist) {
  expectError(loadStatus(attentionImage(), 1), FA_RT_INVALID_ARGUMENT,
              {"device 1 does not exist", "there are 1"});
  expectError(loadStatus(attentionImage(), -1), FA_RT_INVALID_ARGUMENT,
              {"device -1 does not exist"});
}

TEST_F(Load, NoDevice) {
  behaviour().deviceCount = 0;
  expectError(loadStatus(attentionImage()), FA_RT_NO_DEVICE,
              {"0 devices", "CUDA_VISIBLE_DEVICES"});
}

TEST_F(Load, SecondDeviceUsesItsOwnContext) {
  behaviour().deviceCount = 2;
  Program first = load(attentionImage(), 0), second = load(attentionImage(), 1);
  EXPECT_EQ(launch(second, attentionArgs(1, 128, 128)), FA_RT_OK)
      << fa_rt_last_error();
}

TEST_F(Load, TargetsThatRun) {
  behaviour().major = 9;
  for (const char *target : {"sm_80", "sm_86", "sm_90", "sm_90a"})
    EXPECT_EQ(loadStatus(imageFor(target)), FA_RT_OK) << fa_rt_last_error();
  behaviour().major = 10;
  behaviour().minor = 3;
  for (const char *target : {"sm_90", "sm_100", "sm_100f", "sm_103a"})
    EXPECT_EQ(loadStatus(imageFor(target)), FA_RT_OK) << fa_rt_last_error();
}

TEST_F(Load, TargetsThatDoNot) {
  behaviour().major = 8;
  behaviour().minor = 6;
  for (const char *target : {"sm_89", "sm_90", "sm_90a", "sm_80a", "sm_100f"})
    expectError(loadStatus(imageFor(target)), FA_RT_INVALID_ARGUMENT,
                {std::string("the image is for ") + target, "Fake GPU 0",
                 "is sm_86", "target=sm_86"});
}

TEST_F(Load, DriverOlderThanThePTX) {
  behaviour().driverVersion = 11040;
  expectError(loadStatus(attentionImage()), FA_RT_DRIVER_TOO_OLD,
              {"driver supports CUDA 11.4 but the image needs PTX 8.0 (CUDA "
               "12.0); update the driver to 525 or later"});
  EXPECT_EQ(loadStatus(imageFor("sm_80", "7.4")), FA_RT_OK)
      << fa_rt_last_error();
}

TEST_F(Load, RejectedPTXCarriesTheLog) {
  behaviour().rejectLog = "ptxas application ptx input, line 7; fatal: no";
  expectError(loadStatus(attentionImage()), FA_RT_DRIVER_REJECTED,
              {"line 7; fatal: no", "CUDA_ERROR_FAKE (218)", "attention"});
  behaviour().rejectResult = 222;
  expectError(loadStatus(attentionImage()), FA_RT_DRIVER_TOO_OLD,
              {"CUDA_ERROR_FAKE (222)"});
}

TEST_F(Load, WithoutTheLinkerTheTextIsLoaded) {
  behaviour().isLinkerBroken = true;
  Program program = load(attentionImage());
  EXPECT_EQ(state().calls, std::vector<std::string>{"moduleLoad ptx"});
}

TEST_F(Load, CubinWithSeparateHeader) {
  std::string image = "\x7f"
                      "ELF fake cubin\n" +
                      code({{"k", 0}}, "sm_80");
  std::string header = imageFor("sm_80");
  header.resize(header.find(".version"));
  fa_rt_load_options options;
  fa_rt_load_options_init(&options);
  options.header = header.c_str();
  fa_rt_program *program = nullptr;
  ASSERT_EQ(
      fa_rt_program_load(0, image.data(), image.size(), &options, &program),
      FA_RT_OK)
      << fa_rt_last_error();
  fa_rt_program_free(program);
  // Machine code does not run on another major version.
  behaviour().major = 9;
  expectError(
      fa_rt_program_load(0, image.data(), image.size(), &options, &program),
      FA_RT_INVALID_ARGUMENT, {"is for sm_80", "is sm_90"});
}

TEST_F(Load, KernelThatIsNotThere) {
  std::string image = kAttentionHeader + code({{"other", 43}});
  expectError(loadStatus(image), FA_RT_BAD_IMAGE,
              {"no kernel 'attention_kernel'", "line 11"});
}

TEST_F(Load, KernelWithOtherParameters) {
  expectError(loadStatus(kAttentionHeader + code({{"attention_kernel", 42}})),
              FA_RT_BAD_IMAGE,
              {"does not take 43 parameters", "number 42 differs"});
  expectError(loadStatus(kAttentionHeader + code({{"attention_kernel", 44}})),
              FA_RT_BAD_IMAGE, {"more than the 43 parameters"});
}

TEST_F(Load, NoDriverCallFailsOnTheWayToALaunch) {
  // What a memory checker reports as an error of the API.
  Program program = load(attentionImage());
  EXPECT_EQ(launch(program, attentionArgs(1, 128, 128)), FA_RT_OK)
      << fa_rt_last_error();
  EXPECT_EQ(state().failures, std::vector<std::string>());
}

TEST_F(Load, MoreSharedMemoryThanTheDeviceHas) {
  behaviour().smemOptin = 101376;
  behaviour().staticSmem = 1000;
  EXPECT_EQ(loadStatus(imageFor("sm_80", "8.0", "smem=100376")), FA_RT_OK)
      << fa_rt_last_error();
  expectError(
      loadStatus(imageFor("sm_80", "8.0", "smem=100377")),
      FA_RT_INVALID_ARGUMENT,
      {"needs 101377 bytes", "100377 dynamic, 1000 static", "allows 101376"});
}

TEST_F(Load, LargeSharedMemoryIsReserved) {
  load(imageFor("sm_80", "8.0", "smem=49152"));
  EXPECT_EQ(state().maxDynamicSmem.count("k"), 0u);
  load(imageFor("sm_80", "8.0", "smem=49153"));
  EXPECT_EQ(state().maxDynamicSmem["k"], 49153);
}

TEST_F(Load, LaunchesOfOneKernelShareTheLargestReservation) {
  load("//!fa.program version=1 name=tiny target=sm_80\n"
       "//!fa.launch kernel=k block=32 smem=90000 grid=1 args=\n"
       "//!fa.launch kernel=k block=32 smem=50000 grid=1 args=\n"
       "//!fa.end\n" +
       code({{"k", 0}}));
  EXPECT_EQ(state().maxDynamicSmem["k"], 90000);
}

TEST_F(Load, MoreThreadsThanTheRegistersAllow) {
  behaviour().maxThreads = 96;
  behaviour().registers = 255;
  expectError(loadStatus(attentionImage()), FA_RT_BAD_IMAGE,
              {"128 threads", "255 registers", "allow 96"});
}

TEST_F(Load, File) {
  TempDirectory directory;
  std::string path = directory.path + "/a.ptx";
  std::ofstream(path) << attentionImage();
  fa_rt_program *program = nullptr;
  ASSERT_EQ(fa_rt_program_load_file(0, path.c_str(), nullptr, &program),
            FA_RT_OK)
      << fa_rt_last_error();
  fa_rt_program_free(program);
  path += ".missing";
  expectError(fa_rt_program_load_file(0, path.c_str(), nullptr, &program),
              FA_RT_IO_ERROR, {path, "No such file"});
  expectError(
      fa_rt_program_load_file(0, directory.path.c_str(), nullptr, &program),
      FA_RT_IO_ERROR, {"directory"});
}

TEST_F(Load, VerboseReportsToStderr) {
  fa_rt_load_options options;
  fa_rt_load_options_init(&options);
  options.verbose = 1;
  std::string image = attentionImage();
  fa_rt_program *program = nullptr;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(
      fa_rt_program_load(0, image.data(), image.size(), &options, &program),
      FA_RT_OK);
  std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("128 registers"), std::string::npos) << text;
  EXPECT_NE(text.find("compiled by the driver in"), std::string::npos) << text;
  fa_rt_program_free(program);
}
