// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tile counters: which launches get one, and when it is free again.

#include "TestUtil.h"

#include <atomic>
#include <set>
#include <thread>

namespace {
class Queue : public RuntimeTest {
protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    state().behaviour.major = 9;
  }
};
} // namespace

static std::string header(const std::string &launch) {
  return "//!fa.program version=2 name=queued target=sm_90a\n"
         "//!fa.arg index=0 name=x role=in type=bf16 shape=?x64\n"
         "//!fa.map index=0 tensor=0 dim=0 rows=64\n"
         "//!fa.launch kernel=k block=128 grid=a0.d0 args=0 " +
         launch + "\n//!fa.end\n";
}

static std::string image(const std::string &launch = "maps=0 queue=1",
                         int words = 7, int maps = 1) {
  return header(launch) + code({{"k", words, maps}}, "sm_90a");
}

static Args goodArgs() { return {tensor(FA_RT_BF16, {8, 64}, 0x10000)}; }

/// Launches, and returns the words that the kernel gets after its tensor's.
static Words queueOf(const Program &program) {
  state().launches.clear();
  EXPECT_EQ(launch(program, goodArgs()), FA_RT_OK) << fa_rt_last_error();
  if (state().launches.size() != 1)
    return {};
  const Words &words = state().launches[0].params;
  return Words(words.begin() + 5, words.end());
}

/// What the last block of a kernel does.
static void finish(const Words &queue) {
  auto *flag = reinterpret_cast<std::atomic<uint32_t> *>(
      static_cast<uintptr_t>(queue[1]));
  EXPECT_EQ(flag->load(), 1u);
  flag->store(0);
}

TEST_F(Queue, Header) {
  EXPECT_EQ(verify(image("queue=0")), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(verify(image("maps=0 queue=1")), FA_RT_OK) << fa_rt_last_error();
  expectError(verify(image("queue=2")), FA_RT_BAD_IMAGE,
              {"image line 4", "from 0 to 1 for 'queue'"});
  expectError(verify(image("queue=yes")), FA_RT_BAD_IMAGE,
              {"image line 4", "for 'queue', got 'yes'"});
}

TEST_F(Queue, TwoWordsOfTheKernel) {
  EXPECT_EQ(loadStatus(image()), FA_RT_OK) << fa_rt_last_error();
  expectError(loadStatus(image("maps=0 queue=1", 5)), FA_RT_BAD_IMAGE,
              {"does not take 7 parameters of 8 bytes"});
  expectError(loadStatus(image("maps=0 queue=1", 6)), FA_RT_BAD_IMAGE,
              {"does not take 7 parameters of 8 bytes"});
  expectError(loadStatus(image("maps=0 queue=0", 7)), FA_RT_BAD_IMAGE,
              {"tensor maps after 5 parameters"});
}

TEST_F(Queue, StandsBetweenTheTensorsAndTheMaps) {
  Program program = load(image());
  Words queue = queueOf(program);
  ASSERT_EQ(queue.size(), 2u);
  ASSERT_EQ(state().launches[0].maps.size(), 1u);
  EXPECT_EQ(state().launches[0].maps[0].address, 0x10000u);
  // A counter that is zero, in device memory.
  auto memory = state().memory.upper_bound(queue[0]);
  ASSERT_NE(memory, state().memory.begin());
  --memory;
  EXPECT_LE(queue[0] + 8, memory->first + memory->second);
  EXPECT_EQ(*reinterpret_cast<uint64_t *>(static_cast<uintptr_t>(queue[0])),
            0u);
  finish(queue);
}

TEST_F(Queue, LaunchesInFlightHaveCountersOfTheirOwn) {
  Program program = load(image());
  std::vector<Words> queues;
  std::set<uint64_t> counters, flags;
  for (int i = 0; i < 1024; ++i) {
    queues.push_back(queueOf(program));
    counters.insert(queues.back()[0]);
    flags.insert(queues.back()[1]);
  }
  EXPECT_EQ(counters.size(), 1024u);
  EXPECT_EQ(flags.size(), 1024u);
  EXPECT_EQ(counters.count(0), 0u);
  // All are busy: the kernel goes on without one.
  EXPECT_EQ(queueOf(program), (Words{0, 0}));
  for (const Words &queue : queues)
    finish(queue);
  EXPECT_EQ(counters.count(queueOf(program)[0]), 1u);
}

TEST_F(Queue, ACapturedLaunchHasOneForEver) {
  Program program = load(image());
  std::set<uint64_t> counters;
  state().behaviour.captureStatus = 1;
  for (int i = 0; i < 8192; ++i)
    counters.insert(queueOf(program)[0]);
  EXPECT_EQ(counters.size(), 8192u);
  EXPECT_EQ(counters.count(0), 0u);
  // None is given to another.
  EXPECT_EQ(queueOf(program), (Words{0, 0}));
  state().behaviour.captureStatus = 0;
  for (int i = 0; i < 1024; ++i) {
    Words queue = queueOf(program);
    ASSERT_NE(queue[0], 0u) << i;
    EXPECT_EQ(counters.count(queue[0]), 0u) << i;
    finish(queue);
  }
}

TEST_F(Queue, WhetherAStreamIsCaptured) {
  int32_t is = -1;
  auto ask = [&] { return fa_rt_stream_is_capturing(0, nullptr, &is); };
  ASSERT_EQ(ask(), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(is, 0);
  state().behaviour.captureStatus = 1;
  ASSERT_EQ(ask(), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(is, 1);
  state().behaviour.captureStatus = 0;
  state().behaviour.captureResult = 900; // of the default stream, meanwhile
  ASSERT_EQ(ask(), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(is, 1);
  expectError(fa_rt_stream_is_capturing(0, nullptr, nullptr),
              FA_RT_INVALID_ARGUMENT, {"is_capturing"});
}

TEST_F(Queue, NoneWhereACaptureIsBroken) {
  Program program = load(image());
  state().behaviour.captureStatus = 2; // invalidated
  EXPECT_EQ(queueOf(program), (Words{0, 0}));
  state().behaviour.captureStatus = 0;
  state().behaviour.captureResult = 900;
  EXPECT_EQ(queueOf(program), (Words{0, 0}));
  state().behaviour.captureResult = 0;
  EXPECT_NE(queueOf(program), (Words{0, 0}));
}

TEST_F(Queue, AFailedLaunchGivesItsCounterBack) {
  Program program = load(image());
  state().behaviour.launchResult = 701;
  for (int i = 0; i < 2000; ++i)
    ASSERT_EQ(launch(program, goodArgs()), FA_RT_LAUNCH_FAILED);
  state().behaviour.launchResult = 0;
  for (int i = 0; i < 1024; ++i)
    ASSERT_NE(queueOf(program)[0], 0u) << i;
}

TEST_F(Queue, AMapThatIsRefusedTakesNoCounter) {
  Program program = load(image());
  Args args = goodArgs();
  args[0].strides[0] = 65;
  for (int i = 0; i < 2000; ++i)
    ASSERT_EQ(launch(program, args), FA_RT_INVALID_ARGUMENT);
  for (int i = 0; i < 1024; ++i)
    ASSERT_NE(queueOf(program)[0], 0u) << i;
}

TEST_F(Queue, EmptyGridsTakeNone) {
  Program program = load(image());
  Args args = {tensor(FA_RT_BF16, {0, 64}, 0)};
  for (int i = 0; i < 2000; ++i)
    ASSERT_EQ(launch(program, args), FA_RT_OK);
  for (int i = 0; i < 1024; ++i)
    ASSERT_NE(queueOf(program)[0], 0u) << i;
}

TEST_F(Queue, ProgramsWithoutOneAllocateNothing) {
  Program program = load(image("maps=0", 5));
  EXPECT_TRUE(state().memory.empty());
  EXPECT_EQ(state().liveHostBuffers, 0);
}

TEST_F(Queue, OutOfMemoryLeavesNothing) {
  state().behaviour.allocationsLeft = 0;
  expectError(loadStatus(image()), FA_RT_OUT_OF_MEMORY,
              {"allocating tile counters"});
  state().behaviour.allocationsLeft = -1;
  state().behaviour.hostAllocResult = 2;
  expectError(loadStatus(image()), FA_RT_OUT_OF_MEMORY,
              {"allocating flags of tile counters"});
}

TEST_F(Queue, ManyThreads) {
  Program program = load(image());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i)
        EXPECT_EQ(launch(program, goodArgs()), FA_RT_OK);
    });
  for (std::thread &thread : threads)
    thread.join();
  std::set<uint64_t> counters;
  for (const fake::Launch &launch : state().launches)
    counters.insert(launch.params[5]);
  EXPECT_EQ(counters.size(), 800u);
}
