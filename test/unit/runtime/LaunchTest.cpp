// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Launching: what is checked, and what the kernel gets.

#include "TestUtil.h"

#include <algorithm>
#include <thread>

namespace {
using Launch = RuntimeTest;
}

/// Launches the usual program with arguments of (2, 256, 512) that `change`
/// spoils, and expects it to be refused.
template <typename Change>
static void expectRefused(Change change,
                          const std::vector<std::string> &parts) {
  Program program = load(attentionImage());
  std::vector<fa_rt_tensor> args = attentionArgs(2, 256, 512);
  change(args);
  expectError(launch(program, args), FA_RT_INVALID_ARGUMENT, parts);
  EXPECT_TRUE(state().launches.empty());
}

TEST_F(Launch, ParametersAreExactlyTheABI) {
  Program program = load(attentionImage());
  Args args = attentionArgs(2, 300, 512);
  args[0].strides[0] = 1 << 20;
  args[0].strides[1] = -64;
  int stream;
  ASSERT_EQ(launch(program, args, &stream), FA_RT_OK) << fa_rt_last_error();

  ASSERT_EQ(state().launches.size(), 1u);
  const fake::Launch &launch = state().launches[0];
  EXPECT_EQ(launch.kernel, "attention_kernel");
  EXPECT_EQ(launch.grid[0], 3u * 12 * 2);
  EXPECT_EQ(launch.grid[1], 1u);
  EXPECT_EQ(launch.grid[2], 1u);
  EXPECT_EQ(launch.block[0], 128u);
  EXPECT_EQ(launch.block[1], 1u);
  EXPECT_EQ(launch.block[2], 1u);
  EXPECT_EQ(launch.smem, 49152u);
  EXPECT_EQ(launch.stream, &stream);

  std::vector<uint64_t> expected;
  for (const fa_rt_tensor &arg : args) {
    expected.push_back(reinterpret_cast<uintptr_t>(arg.data));
    for (int i = 0; i < arg.rank; ++i)
      expected.push_back(static_cast<uint64_t>(arg.shape[i]));
    for (int i = 0; i < arg.rank; ++i)
      expected.push_back(static_cast<uint64_t>(arg.strides[i]));
  }
  EXPECT_EQ(launch.params, expected);
}

TEST_F(Launch, ParametersFollowTheOrderOfArgs) {
  Program program =
      load("//!fa.program version=1 name=p target=sm_80\n"
           "//!fa.arg index=0 name=x role=in type=f32 shape=?\n"
           "//!fa.arg index=1 name=s role=in type=i32 shape=scalar\n"
           "//!fa.launch kernel=k block=32 grid=a0.d0 args=1,0,1\n"
           "//!fa.end\n" +
           code({{"k", 5}}));
  ASSERT_EQ(launch(program, {tensor(FA_RT_F32, {7}, 0x100),
                             tensor(FA_RT_I32, {}, 0x200)}),
            FA_RT_OK)
      << fa_rt_last_error();
  EXPECT_EQ(state().launches[0].params,
            (std::vector<uint64_t>{0x200, 0x100, 7, 1, 0x200}));
}

TEST_F(Launch, GridRoundsUp) {
  Program program = load(attentionImage());
  for (auto [length, blocks] : std::vector<std::pair<int64_t, unsigned>>{
           {1, 1}, {127, 1}, {128, 1}, {129, 2}, {4097, 33}}) {
    state().launches.clear();
    ASSERT_EQ(launch(program, attentionArgs(1, length, 3)), FA_RT_OK)
        << fa_rt_last_error();
    EXPECT_EQ(state().launches[0].grid[0], blocks * 12);
  }
}

TEST_F(Launch, LargestGrid) {
  Program program =
      load("//!fa.program version=1 name=p target=sm_80\n"
           "//!fa.arg index=0 name=x role=in type=f32 shape=?x?x?\n"
           "//!fa.launch kernel=k block=32 grid=a0.d0*a0.d1*a0.d2 args=0\n"
           "//!fa.end\n" +
           code({{"k", 7}}));
  auto grid = [&](int64_t a, int64_t b, int64_t c) {
    // One element, repeated.
    fa_rt_tensor x = tensor(FA_RT_F32, {a, b, c});
    std::fill(std::begin(x.strides), std::end(x.strides), 0);
    return launch(program, {x});
  };
  EXPECT_EQ(grid(2, 3, 357913941), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(state().launches[0].grid[0], 2147483646u);
  std::vector<std::string> parts = {"grid of kernel k", "2147483647"};
  expectError(grid(2, 2, 536870912), FA_RT_INVALID_ARGUMENT, parts);
  expectError(grid(65536, 32768, 1), FA_RT_INVALID_ARGUMENT, parts);
  // A product that wraps to 0 in 64 bits.
  int64_t huge = int64_t(1) << 29;
  expectError(grid(huge, huge, huge), FA_RT_INVALID_ARGUMENT, parts);
  // A factor of 0 makes the grid empty, whatever the others are.
  EXPECT_EQ(grid(huge, huge, 0), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(state().launches.size(), 1u);
}

TEST_F(Launch, AnEmptyGridHasWhatIsLeast) {
  Program program =
      load("//!fa.program version=5 name=p target=sm_80\n"
           "//!fa.arg index=0 name=x role=in type=f32 shape=?x?\n"
           "//!fa.launch kernel=j block=32 grid=a0.d0 args=0\n"
           "//!fa.launch kernel=k block=32 grid=a0.d1 args=0 least=1\n"
           "//!fa.end\n" +
           code({{"j", 5}, {"k", 5}}));
  for (auto [rows, cols, blocks] :
       std::vector<std::tuple<int64_t, int64_t, std::vector<unsigned>>>{
           {2, 3, {2, 3}}, {2, 0, {2, 1}}, {0, 3, {3}}, {0, 0, {}}}) {
    state().launches.clear();
    ASSERT_EQ(launch(program, {tensor(FA_RT_F32, {rows, cols}, 0x100)}),
              FA_RT_OK)
        << fa_rt_last_error();
    std::vector<unsigned> found;
    for (auto &one : state().launches)
      found.push_back(one.grid[0]);
    EXPECT_EQ(found, blocks);
  }
}

TEST_F(Launch, EmptyBatchLaunchesNothing) {
  Program program = load(attentionImage());
  Args args = attentionArgs(0, 256, 512);
  for (fa_rt_tensor &arg : args)
    arg.data = nullptr;
  EXPECT_EQ(launch(program, args), FA_RT_OK) << fa_rt_last_error();
  EXPECT_TRUE(state().launches.empty());
}

/// x is read, y a result that kernels add to.
static const char *const kAddingImage =
    "//!fa.program version=3 name=p target=sm_80\n"
    "//!fa.arg index=0 name=x role=in type=f32 shape=?\n"
    "//!fa.arg index=1 name=y role=out type=f32 shape=?x2 zero=1\n"
    "//!fa.launch kernel=k block=32 grid=a0.d0 args=0,1\n"
    "//!fa.end\n";

TEST_F(Launch, ResultsThatAreAddedToAreZeroed) {
  Program program = load(kAddingImage + code({{"k", 8}}));
  for (int64_t blocks : {3, 0}) { // also where no kernel has anything to do
    void *data;
    ASSERT_EQ(fa_rt_alloc(0, 24, &data), FA_RT_OK);
    auto *numbers = static_cast<float *>(data); // the driver's memory is ours
    std::fill(numbers, numbers + 6, 7.0f);
    fa_rt_tensor y = tensor(FA_RT_F32, {2, 2});
    y.data = data;
    ASSERT_EQ(launch(program, {tensor(FA_RT_F32, {blocks}, 0x100), y}),
              FA_RT_OK)
        << fa_rt_last_error();
    EXPECT_EQ(std::vector<float>(numbers, numbers + 6),
              (std::vector<float>{0, 0, 0, 0, 7, 7}));
    EXPECT_EQ(fa_rt_free(0, data), FA_RT_OK);
  }
}

TEST_F(Launch, ResultsThatAreAddedToHaveNoGaps) {
  Program program = load(kAddingImage + code({{"k", 8}}));
  fa_rt_tensor y = tensor(FA_RT_F32, {4, 2});
  auto run = [&] {
    return launch(program, {tensor(FA_RT_F32, {3}, 0x100), y});
  };
  y.strides[0] = 3;
  expectError(run(), FA_RT_INVALID_ARGUMENT,
              {"argument 1 (y)", "expected a stride of 2 in dimension 0, got 3",
               "without gaps"});
  y.strides[0] = 1; // columns one after the other, with a gap and without
  y.strides[1] = 5;
  expectError(run(), FA_RT_INVALID_ARGUMENT,
              {"expected a stride of 4 in dimension 1, got 5"});
  y.strides[0] = -1;
  y.strides[1] = 4;
  expectError(run(), FA_RT_INVALID_ARGUMENT,
              {"expected a stride of 1 in dimension 0, got -1"});
}

TEST_F(Launch, ResultsThatAreAddedToLieInAnyOrder) {
  Program program = load(kAddingImage + code({{"k", 8}}));
  void *data;
  ASSERT_EQ(fa_rt_alloc(0, 40, &data), FA_RT_OK);
  auto *numbers = static_cast<float *>(data);
  std::fill(numbers, numbers + 10, 7.0f);
  fa_rt_tensor y = tensor(FA_RT_F32, {4, 2});
  y.data = data;
  y.strides[0] = 1;
  y.strides[1] = 4;
  ASSERT_EQ(launch(program, {tensor(FA_RT_F32, {3}, 0x100), y}), FA_RT_OK)
      << fa_rt_last_error();
  EXPECT_EQ(std::vector<float>(numbers, numbers + 10),
            (std::vector<float>{0, 0, 0, 0, 0, 0, 0, 0, 7, 7}));
  EXPECT_EQ(fa_rt_free(0, data), FA_RT_OK);
}

TEST_F(Launch, EmptyKeysStillLaunch) {
  Program program = load(attentionImage());
  Args args = attentionArgs(1, 128, 0);
  args[1].data = args[2].data = nullptr;
  EXPECT_EQ(launch(program, args), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(state().launches.size(), 1u);
}

TEST_F(Launch, NumberOfArguments) {
  expectRefused([](Args &args) { args.pop_back(); },
                {"program 'attention' takes 5 tensors, got 4"});
  Program program = load(attentionImage());
  expectError(fa_rt_program_launch(program.get(), nullptr, 5, nullptr),
              FA_RT_INVALID_ARGUMENT, {"args is NULL"});
  expectError(fa_rt_program_launch(program.get(), nullptr, -1, nullptr),
              FA_RT_INVALID_ARGUMENT, {"takes 5 tensors, got -1"});
  expectError(fa_rt_program_launch(nullptr, nullptr, 0, nullptr),
              FA_RT_INVALID_ARGUMENT, {"program is NULL"});
}

TEST_F(Launch, ElementType) {
  expectRefused([](Args &args) { args[1].dtype = FA_RT_F16; },
                {"argument 1 (key): expected element type bf16, got f16 (2)"});
  expectRefused([](Args &args) { args[1].dtype = 0; },
                {"argument 1 (key): expected element type bf16, got ? (0)"});
}

TEST_F(Launch, Rank) {
  expectRefused([](Args &args) { args[4].rank = 4; },
                {"argument 4 (lse): expected rank 3 (?x12x?), got 4"});
  expectRefused([](Args &args) { args[4].rank = -1; }, {"got -1"});
  expectRefused([](Args &args) { args[4].rank = 1 << 30; }, {"got 1073741824"});
}

TEST_F(Launch, Sizes) {
  expectRefused([](Args &args) { args[1].shape[1] = 8; },
                {"argument 1 (key): expected size 12 in dimension 1 "
                 "(?x12x?x64), got 8"});
  expectRefused([](Args &args) { args[0].shape[2] = -5; },
                {"argument 0 (query): expected a size of at least 0 in "
                 "dimension 2, got -5"});
  expectRefused([](Args &args) { args[2].shape[2] = 511; },
                {"argument 2 (value): expected dimension 2 to have the size "
                 "of dimension 2 of argument 1 (key), got 511 and 512"});
}

TEST_F(Launch, SizesThatKernelsCannotCount) {
  int64_t most = FA_RT_MAX_EXTENT;
  expectRefused(
      [=](Args &args) { args[1].shape[2] = args[2].shape[2] = most + 1; },
      {"argument 1 (key): expected sizes of at most 1073741823 (2^30 - 1), got "
       "1073741824 in dimension 2",
       "32 bits", "split the tensor"});
  expectRefused([=](Args &args) { args[1].shape[2] = INT64_MAX; },
                {"got 9223372036854775807 in dimension 2"});
  Program program = load(attentionImage());
  // More than 2^31 elements are fine: offsets have 64 bits.
  Args args = attentionArgs(1, 128, int64_t(1) << 29);
  EXPECT_EQ(launch(program, args), FA_RT_OK) << fa_rt_last_error();
  args[1].shape[2] = args[2].shape[2] = most;
  EXPECT_EQ(launch(program, args), FA_RT_OK) << fa_rt_last_error();
}

TEST_F(Launch, StridesWhoseOffsetsOverflow) {
  expectRefused([](Args &args) { args[1].strides[2] = INT64_MAX / 8 * 8; },
                {"argument 1 (key): expected elements less than 2^62 bytes "
                 "apart, got the stride 9223372036854775800 in dimension 2 of "
                 "size",
                 "pass the strides"});
  expectRefused([](Args &args) { args[1].strides[2] = -(int64_t(1) << 60); },
                {"got the stride -1152921504606846976"});
  Program program = load(attentionImage());
  // Beyond 32 bits, and negative.
  Args args = attentionArgs(2, 128, 128);
  args[1].strides[2] = int64_t(1) << 40;
  args[2].strides[2] = -(int64_t(1) << 33);
  EXPECT_EQ(launch(program, args), FA_RT_OK) << fa_rt_last_error();
}

TEST_F(Launch, NullData) {
  expectRefused([](Args &args) { args[3].data = nullptr; },
                {"argument 3 (out): data is NULL"});
}

TEST_F(Launch, BroadcastOutput) {
  expectRefused([](Args &args) { args[3].strides[0] = 0; },
                {"argument 3 (out): an output has stride 0 in dimension 0 of "
                 "size 2"});
}

TEST_F(Launch, BroadcastInputIsFine) {
  Program program = load(attentionImage());
  Args args = attentionArgs(2, 128, 128);
  args[1].strides[1] = 0;
  EXPECT_EQ(launch(program, args), FA_RT_OK) << fa_rt_last_error();
}

TEST_F(Launch, RequiredStride) {
  expectRefused([](Args &args) { args[1].strides[3] = 2; },
                {"argument 1 (key): expected stride 1 in dimension 3, got 2"});
}

TEST_F(Launch, RequiredAlignment) {
  expectRefused(
      [](Args &args) { args[0].data = reinterpret_cast<void *>(0x10008); },
      {"argument 0 (query): expected data aligned to 16 bytes", "0x10008"});
  expectRefused([](Args &args) { args[0].strides[2] = 65; },
                {"argument 0 (query): expected the stride of dimension 2 to "
                 "be a multiple of 16 bytes, got 65 elements of 2 bytes"});
}

TEST_F(Launch, StridesOfSizeOneDoNotMatter) {
  Program program = load(attentionImage());
  Args args = attentionArgs(1, 1, 1);
  args[0].strides[0] = 3;
  args[0].strides[2] = 7;
  args[3].strides[0] = 0;
  EXPECT_EQ(launch(program, args), FA_RT_OK) << fa_rt_last_error();
}

TEST_F(Launch, RequirementsDoNotConcernEmptyTensors) {
  Program program = load(attentionImage());
  Args args = attentionArgs(1, 128, 0);
  args[1].strides[3] = 5;
  EXPECT_EQ(launch(program, args), FA_RT_OK) << fa_rt_last_error();
}

TEST_F(Launch, CheckPointers) {
  fa_rt_load_options options;
  fa_rt_load_options_init(&options);
  options.check_pointers = 1;
  std::string image = "//!fa.program version=1 name=p target=sm_80\n"
                      "//!fa.arg index=0 name=x role=in type=f32 shape=?\n"
                      "//!fa.launch kernel=k block=32 grid=1 args=0\n"
                      "//!fa.end\n" +
                      code({{"k", 3}});
  fa_rt_program *loaded = nullptr;
  ASSERT_EQ(
      fa_rt_program_load(0, image.data(), image.size(), &options, &loaded),
      FA_RT_OK)
      << fa_rt_last_error();
  Program program(loaded);
  float host[4];
  int64_t shape[1] = {4};
  expectError(
      launch(program, {fa_rt_tensor_contiguous(host, FA_RT_F32, 1, shape)}),
      FA_RT_INVALID_ARGUMENT,
      {"argument 0 (x)", "not memory that CUDA knows", "copy it to device 0"});
  void *data;
  ASSERT_EQ(fa_rt_alloc(0, 16, &data), FA_RT_OK);
  EXPECT_EQ(
      launch(program, {fa_rt_tensor_contiguous(data, FA_RT_F32, 1, shape)}),
      FA_RT_OK)
      << fa_rt_last_error();
  EXPECT_EQ(fa_rt_free(0, data), FA_RT_OK);
}

TEST_F(Launch, DriverRefuses) {
  Program program = load(attentionImage());
  state().behaviour.launchResult = 701;
  expectError(launch(program, attentionArgs(1, 128, 128)), FA_RT_LAUNCH_FAILED,
              {"attention_kernel", "grid 12", "block 128", "49152 bytes",
               "CUDA_ERROR_FAKE (701)"});
  state().behaviour.launchResult = 2;
  EXPECT_EQ(launch(program, attentionArgs(1, 128, 128)), FA_RT_OUT_OF_MEMORY);
}

TEST_F(Launch, TheCallersContextStays) {
  Program program = load(attentionImage());
  int foreign;
  setCurrentContext(&foreign);
  EXPECT_EQ(launch(program, attentionArgs(1, 128, 128)), FA_RT_OK)
      << fa_rt_last_error();
  EXPECT_EQ(currentContext(), &foreign);
  EXPECT_EQ(contextDepth(), 1);
  state().behaviour.launchResult = 700;
  EXPECT_EQ(launch(program, attentionArgs(1, 128, 128)), FA_RT_LAUNCH_FAILED);
  EXPECT_EQ(currentContext(), &foreign);
  EXPECT_EQ(loadStatus(kAttentionHeader + code({{"other", 0}})),
            FA_RT_BAD_IMAGE);
  EXPECT_EQ(currentContext(), &foreign);
  setCurrentContext(nullptr);
}

TEST_F(Launch, LaunchesRunInOrderAndEmptyOnesAreSkipped) {
  Program program =
      load("//!fa.program version=1 name=p target=sm_80\n"
           "//!fa.arg index=0 name=x role=inout type=f32 shape=?x?\n"
           "//!fa.launch kernel=first block=32 grid=a0.d0 args=0\n"
           "//!fa.launch kernel=second block=64 grid=a0.d1 args=0\n"
           "//!fa.launch kernel=first block=96 grid=2 args=0\n"
           "//!fa.end\n" +
           code({{"first", 5}, {"second", 5}}));
  ASSERT_EQ(launch(program, {tensor(FA_RT_F32, {3, 0})}), FA_RT_OK)
      << fa_rt_last_error();
  ASSERT_EQ(state().launches.size(), 2u);
  EXPECT_EQ(state().launches[0].block[0], 32u);
  EXPECT_EQ(state().launches[1].block[0], 96u);
}

TEST_F(Launch, ManyThreads) {
  Program program = load(attentionImage());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i)
        EXPECT_EQ(launch(program, attentionArgs(1, 128 * (t + 1), 128)),
                  FA_RT_OK);
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(state().launches.size(), 400u);
  for (const fake::Launch &launch : state().launches)
    EXPECT_EQ(launch.grid[0], launch.params[3] / 128 * 12);
}

TEST_F(Launch, Time) {
  Program program = load(attentionImage());
  Args args = attentionArgs(1, 128, 128);
  float milliseconds = 0;
  ASSERT_EQ(fa_rt_program_time(program.get(), args.data(), 5, nullptr, 4,
                               &milliseconds),
            FA_RT_OK)
      << fa_rt_last_error();
  EXPECT_EQ(milliseconds, 2.5f);
  EXPECT_EQ(state().launches.size(), 5u);
  expectError(fa_rt_program_time(program.get(), args.data(), 5, nullptr, 0,
                                 &milliseconds),
              FA_RT_INVALID_ARGUMENT, {"repeats is 0"});
  state().behaviour.synchronizeResult = 700;
  expectError(fa_rt_program_time(program.get(), args.data(), 5, nullptr, 4,
                                 &milliseconds),
              FA_RT_LAUNCH_FAILED, {"waiting for the program", "(700)"});
}
