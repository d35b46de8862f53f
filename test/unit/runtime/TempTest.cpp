// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Temporary buffers.

#include "TestUtil.h"

#include <algorithm>
#include <iterator>

namespace {
using Temp = RuntimeTest;
}

/// Two buffers: f32 [d0, 12, ceil(d1/64)] and, zeroed, i32 [d1 of the first].
static const char *const kHeader =
    "//!fa.program version=1 name=split target=sm_80\n"
    "//!fa.arg index=0 name=x role=inout type=f32 shape=?x?\n"
    "//!fa.temp index=1 type=f32 shape=a0.d0,12,a0.d1/64\n"
    "//!fa.temp index=2 type=i32 shape=a1.d1*2 zero=1\n"
    "//!fa.launch kernel=part block=32 grid=a1.d2*a0.d0 args=0,1,2\n"
    "//!fa.launch kernel=merge block=32 grid=a0.d0 args=1,0\n"
    "//!fa.end\n";

static std::string image() {
  return kHeader + code({{"part", 5 + 7 + 3}, {"merge", 7 + 5}});
}

static std::vector<fa_rt_tensor> args(int64_t a, int64_t b) {
  return {tensor(FA_RT_F32, {a, b})};
}

/// The calls since the program was loaded.
static std::vector<std::string> calls() {
  std::vector<std::string> result;
  for (const std::string &call : state().calls)
    if (call.compare(0, 10, "moduleLoad") != 0)
      result.push_back(call);
  return result;
}

TEST_F(Temp, AllocatedUsedAndFreedInOrder) {
  Program program = load(image());
  fa_rt_program_desc desc;
  ASSERT_EQ(fa_rt_program_info(program.get(), &desc), FA_RT_OK);
  EXPECT_EQ(desc.num_args, 1);
  EXPECT_EQ(desc.num_temps, 2);
  ASSERT_EQ(launch(program, args(3, 100)), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(calls(), (std::vector<std::string>{
                         "memAllocAsync 288", "memAllocAsync 96", "memset 96",
                         "launch part", "launch merge", "memFreeAsync 96",
                         "memFreeAsync 288"}));
  // Shape and row-major strides of the first one; both kernels see it.
  const fake::Launch &part = state().launches[0], &merge = state().launches[1];
  EXPECT_EQ(part.grid[0], 6u);
  std::vector<uint64_t> first(part.params.begin() + 5,
                              part.params.begin() + 12);
  EXPECT_EQ(std::vector<uint64_t>(first.begin() + 1, first.end()),
            (std::vector<uint64_t>{3, 12, 2, 24, 2, 1}));
  EXPECT_NE(first[0], 0u);
  EXPECT_EQ(
      std::vector<uint64_t>(merge.params.begin(), merge.params.begin() + 7),
      first);
  EXPECT_EQ(part.params[13], 24u);
  EXPECT_EQ(part.params[14], 1u);
}

TEST_F(Temp, MemoryStaysInAPoolOfTheRuntimes) {
  Program program = load(image());
  ASSERT_EQ(launch(program, args(3, 100)), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(calls()[0], "memAllocAsync 288");
  EXPECT_EQ(poolThreshold(), 256ull << 20);
  EXPECT_TRUE(state().failures.empty());
}

TEST_F(Temp, EmptyBufferIsNull) {
  Program program = load(image());
  ASSERT_EQ(launch(program, args(3, 0)), FA_RT_OK) << fa_rt_last_error();
  // The first kernel's grid is empty too, the second one runs.
  EXPECT_EQ(calls(),
            (std::vector<std::string>{"memAllocAsync 96", "memset 96",
                                      "launch merge", "memFreeAsync 96"}));
  EXPECT_EQ(state().launches[0].params[0], 0u);
}

TEST_F(Temp, NothingIsAllocatedForNoLaunch) {
  Program program = load(image());
  ASSERT_EQ(launch(program, args(0, 0)), FA_RT_OK) << fa_rt_last_error();
  EXPECT_TRUE(calls().empty());
}

TEST_F(Temp, OutOfMemoryFreesWhatThereWas) {
  Program program = load(image());
  state().behaviour.allocationsLeft = 1;
  expectError(launch(program, args(3, 100)), FA_RT_OUT_OF_MEMORY,
              {"temporary buffer 2 of 96 bytes", "out of memory"});
  EXPECT_TRUE(state().memory.empty());
  EXPECT_TRUE(state().launches.empty());
}

TEST_F(Temp, FailedLaunchFreesBuffers) {
  Program program = load(image());
  state().behaviour.launchesLeft = 1;
  expectError(launch(program, args(3, 100)), FA_RT_LAUNCH_FAILED, {"merge"});
  EXPECT_TRUE(state().memory.empty());
}

static const std::vector<std::string> kSynchronousCalls = {
    "memAlloc 288", "memAlloc 96", "memset 96",  "launch part",
    "launch merge", "synchronize", "memFree 96", "memFree 288"};

TEST_F(Temp, DeviceWithoutPools) {
  state().behaviour.hasPools = false;
  Program program = load(image());
  ASSERT_EQ(launch(program, args(3, 100)), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(calls(), kSynchronousCalls);
}

TEST_F(Temp, AsyncAllocationNotSupported) {
  state().behaviour.asyncAllocResult = 801;
  Program program = load(image());
  ASSERT_EQ(launch(program, args(3, 100)), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(calls(), kSynchronousCalls);
}

TEST_F(Temp, SizeThatOverflows) {
  std::string text = image();
  text.replace(text.find("shape=a0.d0,"), 12, "shape=a0.d0*a0.d0*a0.d0,");
  Program program = load(text);
  expectError(launch(program, args(FA_RT_MAX_EXTENT, 64)),
              FA_RT_INVALID_ARGUMENT, {"temporary buffer 1", "2^63 - 1 bytes"});
  EXPECT_TRUE(state().memory.empty());
}

/// The first kernel fills buffer 1 from x, whatever the second one reads.
static std::string preparing() {
  std::string text = kHeader;
  size_t at = text.find("args=0,1,2\n");
  text.replace(at, 11, "args=0,1 prepares=0\n");
  at = text.find("args=1,0\n");
  text.replace(at, 9, "args=1,0,2\n");
  return text + code({{"part", 5 + 7}, {"merge", 7 + 5 + 3}});
}

TEST_F(Temp, PreparedBuffersAreTheCallers) {
  Program program = load(preparing());
  std::vector<fa_rt_tensor> given = args(3, 100);
  int64_t bytes = -1;
  ASSERT_EQ(fa_rt_program_prepared_size(program.get(), given.data(), 1, &bytes),
            FA_RT_OK)
      << fa_rt_last_error();
  EXPECT_EQ(bytes, 512); // 288, aligned
  auto run = [&](bool isPrepared) {
    state().calls.clear();
    state().launches.clear();
    return fa_rt_program_launch_prepared(
        program.get(), given.data(), 1, nullptr, reinterpret_cast<void *>(4096),
        isPrepared);
  };
  ASSERT_EQ(run(false), FA_RT_OK) << fa_rt_last_error();
  std::vector<std::string> rest = {"memAllocAsync 96", "memset 96",
                                   "launch merge", "memFreeAsync 96"};
  std::vector<std::string> all = rest;
  all.insert(all.begin() + 2, "launch part");
  EXPECT_EQ(calls(), all);
  EXPECT_EQ(state().launches[0].params[5], 4096u);
  EXPECT_EQ(state().launches[1].params[0], 4096u);
  ASSERT_EQ(run(true), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(calls(), rest);
  EXPECT_EQ(state().launches[0].params[0], 4096u);
  // By itself a launch prepares in buffers of its own.
  state().calls.clear();
  ASSERT_EQ(launch(program, given), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(calls(), (std::vector<std::string>{
                         "memAllocAsync 288", "memAllocAsync 96", "memset 96",
                         "launch part", "launch merge", "memFreeAsync 96",
                         "memFreeAsync 288"}));
}

TEST_F(Temp, WorkspaceIsTheCallers) {
  alignas(256) static unsigned char memory[768];
  auto at = [](size_t offset) {
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(memory + offset));
  };
  for (const std::string &text : {image(), preparing()}) {
    std::fill(std::begin(memory), std::end(memory), 1);
    Program program = load(text);
    std::vector<fa_rt_tensor> given = args(3, 100);
    int64_t bytes = -1;
    ASSERT_EQ(
        fa_rt_program_workspace_size(program.get(), given.data(), 1, &bytes),
        FA_RT_OK)
        << fa_rt_last_error();
    EXPECT_EQ(bytes, 512 + 256); // 288 and 96, aligned
    auto run = [&](int64_t size) {
      state().calls.clear();
      state().launches.clear();
      return fa_rt_program_launch_in(program.get(), given.data(), 1, nullptr,
                                     memory, size);
    };
    expectError(run(bytes - 1), FA_RT_INVALID_ARGUMENT,
                {"at least 768 bytes, got 767"});
    EXPECT_TRUE(calls().empty());
    ASSERT_EQ(run(bytes), FA_RT_OK) << fa_rt_last_error();
    EXPECT_EQ(calls(), (std::vector<std::string>{"memset 96", "launch part",
                                                 "launch merge"}));
    // What is zeroed, the second one alone, comes first.
    EXPECT_EQ(state().launches[0].params[5], at(256));
    EXPECT_EQ(state().launches[1].params[0], at(256));
    EXPECT_EQ(state().launches[text == image() ? 0 : 1].params[12], at(0));
    EXPECT_EQ(memory[95], 0);
    EXPECT_EQ(memory[96], 1);
    EXPECT_EQ(memory[256], 1);
  }
}

TEST_F(Temp, PreparedBuffersAndWorkspaceAreTheCallers) {
  alignas(256) static unsigned char memory[768];
  alignas(256) static unsigned char lists[512];
  Program program = load(preparing());
  std::vector<fa_rt_tensor> given = args(3, 100);
  auto run = [&](bool isPrepared, int64_t size) {
    state().calls.clear();
    state().launches.clear();
    return fa_rt_program_launch_prepared_in(program.get(), given.data(), 1,
                                            nullptr, lists, isPrepared, memory,
                                            size);
  };
  expectError(run(true, 767), FA_RT_INVALID_ARGUMENT,
              {"at least 768 bytes, got 767"});
  EXPECT_TRUE(calls().empty());
  ASSERT_EQ(run(false, 768), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(calls(), (std::vector<std::string>{"memset 96", "launch part",
                                               "launch merge"}));
  auto at = [](const unsigned char *place) {
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(place));
  };
  EXPECT_EQ(state().launches[0].params[5], at(lists));
  EXPECT_EQ(state().launches[1].params[0], at(lists));
  EXPECT_EQ(state().launches[1].params[12], at(memory));
  ASSERT_EQ(run(true, 768), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(calls(), (std::vector<std::string>{"memset 96", "launch merge"}));
  EXPECT_EQ(state().launches[0].params[0], at(lists));
  expectError(fa_rt_program_launch_prepared_in(program.get(), given.data(), 1,
                                               nullptr, lists, 1, nullptr, 768),
              FA_RT_INVALID_ARGUMENT, {"workspace"});
}

// One call zeroes what lies side by side in a caller's memory.
TEST_F(Temp, WorkspaceIsZeroedTogether) {
  alignas(256) static unsigned char memory[768];
  std::string text = image();
  size_t first = text.find("//!fa.temp index=1");
  ASSERT_NE(first, std::string::npos);
  text.insert(text.find('\n', first), " zero=1");
  Program program = load(text);
  std::vector<fa_rt_tensor> given = args(3, 100);
  std::fill(std::begin(memory), std::end(memory), 1);
  state().calls.clear();
  ASSERT_EQ(fa_rt_program_launch_in(program.get(), given.data(), 1, nullptr,
                                    memory, sizeof(memory)),
            FA_RT_OK)
      << fa_rt_last_error();
  EXPECT_EQ(calls(), (std::vector<std::string>{"memset 608", "launch part",
                                               "launch merge"}));
  // The driver's own are allocations each, which no call crosses.
  state().calls.clear();
  ASSERT_EQ(launch(program, given), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(calls(), (std::vector<std::string>{
                         "memAllocAsync 288", "memset 288", "memAllocAsync 96",
                         "memset 96", "launch part", "launch merge",
                         "memFreeAsync 96", "memFreeAsync 288"}));
  EXPECT_EQ(memory[287], 0);
  EXPECT_EQ(memory[512 + 95], 0);
  EXPECT_EQ(memory[512 + 96], 1);
}

TEST_F(Temp, NoWorkspace) {
  Program program = load(image());
  std::vector<fa_rt_tensor> given = args(3, 100);
  expectError(fa_rt_program_launch_in(program.get(), given.data(), 1, nullptr,
                                      nullptr, 1 << 20),
              FA_RT_INVALID_ARGUMENT, {"workspace"});
}

TEST_F(Temp, NothingIsPrepared) {
  Program program = load(image());
  std::vector<fa_rt_tensor> given = args(3, 100);
  int64_t bytes = -1;
  ASSERT_EQ(fa_rt_program_prepared_size(program.get(), given.data(), 1, &bytes),
            FA_RT_OK);
  EXPECT_EQ(bytes, 0);
  EXPECT_EQ(fa_rt_program_launch_prepared(program.get(), given.data(), 1,
                                          nullptr, nullptr, 0),
            FA_RT_INVALID_ARGUMENT);
}
