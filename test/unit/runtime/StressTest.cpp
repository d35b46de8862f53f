// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Many threads and processes at once, with a program that fa compiled:
// test/inputs/small/causal-dynamic.mlir for sm_80, which every later device
// runs. Its file is FA_TEST_PTX, by default the one made by the build.

#include "IntegrationUtil.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

extern char **environ;

namespace {

constexpr int kHeads = 8, kKeyHeads = 2, kDim = 64;
constexpr int kSets = 16;
/// Bytes between the buffers of two launches; more than a vector store.
constexpr size_t kGap = 256;

std::string ptxPath() {
  if (const char *path = std::getenv("FA_TEST_PTX"))
    return path;
#ifdef FA_TEST_PTX
  return FA_TEST_PTX;
#else
  return "";
#endif
}

struct FreeProgram {
  void operator()(fa_rt_program *program) const { fa_rt_program_free(program); }
};
using Program = std::unique_ptr<fa_rt_program, FreeProgram>;

Program loadFile() {
  fa_rt_program *program = nullptr;
  EXPECT_EQ(fa_rt_program_load_file(0, ptxPath().c_str(), nullptr, &program),
            FA_RT_OK)
      << fa_rt_last_error();
  return Program(program);
}

bool isFromCache(const Program &program) {
  fa_rt_program_desc desc;
  EXPECT_EQ(fa_rt_program_info(program.get(), &desc), FA_RT_OK);
  return desc.from_cache;
}

double widen(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

/// Device memory that frees itself.
class Buffer {
public:
  explicit Buffer(const std::vector<unsigned char> &bytes) {
    EXPECT_EQ(fa_rt_alloc(0, bytes.size(), &data), FA_RT_OK)
        << fa_rt_last_error();
    EXPECT_EQ(fa_rt_copy_to_device(0, data, bytes.data(), bytes.size()),
              FA_RT_OK)
        << fa_rt_last_error();
  }
  ~Buffer() { fa_rt_free(0, data); }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  void *data = nullptr;
};

/// Inputs of one length, what they give, and room for it in a larger buffer.
struct Case {
  int64_t length;
  std::vector<uint16_t> query, key, value;
  std::unique_ptr<Buffer> deviceQuery, deviceKey, deviceValue;
  /// The output followed by the log-sum-exp, as one launch alone leaves them.
  std::vector<unsigned char> expected;

  size_t outBytes() const { return size_t(length) * kHeads * kDim * 2; }
  size_t bytes() const { return outBytes() + size_t(length) * kHeads * 4; }
  size_t slot() const { return (bytes() + kGap + 255) / 256 * 256; }
  fa_rt_status launch(const fa_rt_program *program, void *to,
                      void *stream) const;
};

fa_rt_tensor tensor(void *data, int32_t dtype, int32_t rank, int64_t heads,
                    int64_t length) {
  int64_t shape[4] = {1, heads, length, kDim};
  return fa_rt_tensor_contiguous(data, dtype, rank, shape);
}

fa_rt_status Case::launch(const fa_rt_program *program, void *to,
                          void *stream) const {
  fa_rt_tensor args[5] = {
      tensor(deviceQuery->data, FA_RT_BF16, 4, kHeads, length),
      tensor(deviceKey->data, FA_RT_BF16, 4, kKeyHeads, length),
      tensor(deviceValue->data, FA_RT_BF16, 4, kKeyHeads, length),
      tensor(to, FA_RT_BF16, 4, kHeads, length),
      tensor(static_cast<char *>(to) + outBytes(), FA_RT_F32, 3, kHeads,
             length)};
  return fa_rt_program_launch(program, args, 5, stream);
}

std::vector<unsigned char> bytesOf(const std::vector<uint16_t> &values) {
  std::vector<unsigned char> bytes(values.size() * 2);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// A case of odd length 2 n + 1 with values in [-2, 2) of its own.
Case makeCase(int n) {
  Case c;
  c.length = 2 * n + 1;
  uint32_t state = 12345u + 977u * uint32_t(n);
  auto fill = [&](std::vector<uint16_t> &values, int heads) {
    values.resize(size_t(c.length) * heads * kDim);
    for (uint16_t &v : values) {
      state = state * 1664525u + 1013904223u;
      float x = float(int(state >> 24) - 128) / 64.0f; // exact in bf16
      uint32_t bits;
      std::memcpy(&bits, &x, sizeof(bits));
      v = uint16_t(bits >> 16);
    }
  };
  fill(c.query, kHeads);
  fill(c.key, kKeyHeads);
  fill(c.value, kKeyHeads);
  c.deviceQuery = std::make_unique<Buffer>(bytesOf(c.query));
  c.deviceKey = std::make_unique<Buffer>(bytesOf(c.key));
  c.deviceValue = std::make_unique<Buffer>(bytesOf(c.value));
  return c;
}

/// Causal attention of one row in double; returns the log-sum-exp.
double referenceRow(const Case &c, int head, int64_t row, double *out) {
  size_t keyHead = size_t(head) / (kHeads / kKeyHeads);
  auto at = [&](const std::vector<uint16_t> &t, size_t h, int64_t s, int d) {
    return widen(t[(h * size_t(c.length) + size_t(s)) * kDim + size_t(d)]);
  };
  std::vector<double> scores;
  double max = -INFINITY, sum = 0;
  for (int64_t j = 0; j <= row; ++j) {
    double s = 0;
    for (int d = 0; d < kDim; ++d)
      s += at(c.query, size_t(head), row, d) * at(c.key, keyHead, j, d);
    scores.push_back(s * 0.125);
    max = std::max(max, scores.back());
  }
  std::fill(out, out + kDim, 0.0);
  for (int64_t j = 0; j <= row; ++j) {
    double p = std::exp(scores[size_t(j)] - max);
    sum += p;
    for (int d = 0; d < kDim; ++d)
      out[d] += p * at(c.value, keyHead, j, d);
  }
  for (int d = 0; d < kDim; ++d)
    out[d] /= sum;
  return max + std::log(sum);
}

/// Whether the case's expected bytes are its attention. The limit is wide: what
/// a launch mixes up is wrong by far more than rounding.
void checkExpected(const Case &c) {
  std::vector<double> row(kDim);
  for (int h = 0; h < kHeads; ++h)
    for (int64_t i = 0; i < c.length; ++i) {
      double lse = referenceRow(c, h, i, row.data());
      size_t at = size_t(h) * size_t(c.length) + size_t(i);
      float got;
      std::memcpy(&got, &c.expected[c.outBytes() + at * 4], sizeof(got));
      ASSERT_NEAR(got, lse, 1e-3) << "length " << c.length << " row " << i;
      for (int d = 0; d < kDim; ++d) {
        uint16_t bits;
        std::memcpy(&bits, &c.expected[(at * kDim + size_t(d)) * 2], 2);
        ASSERT_NEAR(widen(bits), row[size_t(d)], 0.03)
            << "length " << c.length << " head " << h << " row " << i;
      }
    }
}

/// Launches one case alone and keeps its output.
void runAlone(const Program &program, Case &c) {
  Buffer out(std::vector<unsigned char>(c.bytes(), 0xff));
  ASSERT_OK(c.launch(program.get(), out.data, nullptr));
  ASSERT_OK(fa_rt_stream_synchronize(0, nullptr));
  c.expected.resize(c.bytes());
  ASSERT_OK(fa_rt_copy_to_host(0, c.expected.data(), out.data, c.bytes()));
}

/// Streams come from the driver: the runtime makes none.
class Streams {
public:
  explicit Streams(size_t count) {
    const char *path = std::getenv("FA_CUDA_DRIVER");
    library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *context = nullptr;
    bool isMade =
        library &&
        call<int(void **, int)>("cuDevicePrimaryCtxRetain", &context, 0) == 0 &&
        call<int(void *)>("cuCtxPushCurrent_v2", context) == 0;
    constexpr unsigned kNonBlocking = 1;
    for (size_t i = 0; isMade && i < count; ++i) {
      void *stream = nullptr;
      isMade = call<int(void **, unsigned)>("cuStreamCreate", &stream,
                                            kNonBlocking) == 0;
      streams.push_back(stream);
    }
    EXPECT_TRUE(isMade) << "no streams";
  }
  ~Streams() {
    for (void *stream : streams)
      call<int(void *)>("cuStreamDestroy_v2", stream);
    void *context = nullptr;
    call<int(void **)>("cuCtxPopCurrent_v2", &context);
  }
  Streams(const Streams &) = delete;
  Streams &operator=(const Streams &) = delete;
  std::vector<void *> streams;

private:
  template <typename Fn, typename... Args>
  int call(const char *name, Args... args) {
    auto *function = reinterpret_cast<Fn *>(dlsym(library, name));
    return function ? function(args...) : -1;
  }
  void *library = nullptr;
};

/// Runs body(0) ... body(count - 1) in threads that start together.
template <typename Body> void inThreads(int count, Body body) {
  std::atomic<int> waiting{count};
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      --waiting;
      while (waiting)
        std::this_thread::yield();
      body(t);
    });
  for (std::thread &thread : threads)
    thread.join();
}

class Stress : public Integration {
protected:
  void SetUp() override {
    Integration::SetUp();
    if (IsSkipped() || HasFatalFailure())
      return;
    if (!std::filesystem::exists(ptxPath()))
      GTEST_SKIP() << "no program at '" << ptxPath()
                   << "'; set FA_TEST_PTX to the PTX of "
                      "test/inputs/small/causal-dynamic.mlir";
  }
};

} // namespace

TEST_F(Stress, TenThousandLaunchesFromFourThreadsOnTwoStreams) {
  constexpr int kThreads = 4, kLaunches = 10000;
  Program program = loadFile();
  ASSERT_TRUE(program);
  std::vector<Case> cases;
  for (int n = 0; n < kSets; ++n) {
    cases.push_back(makeCase(n));
    runAlone(program, cases.back());
    checkExpected(cases.back());
    if (HasFatalFailure())
      return;
  }
  // Launches at the same time have different cases, and every launch writes
  // memory of its own, so that none can hide another.
  auto caseOf = [&](int i) -> const Case & {
    return cases[size_t(i / kThreads + 5 * (i % kThreads)) % kSets];
  };
  std::vector<size_t> offsets;
  size_t total = 0;
  for (int i = 0; i < kLaunches; ++i) {
    offsets.push_back(total);
    total += caseOf(i).slot();
  }
  std::vector<unsigned char> result(total, 0xff);
  Buffer out(result);
  Streams streams(2);
  if (HasFailure())
    return;
  std::atomic<int> failures{0};
  inThreads(kThreads, [&](int t) {
    for (int i = t; i < kLaunches; i += kThreads) {
      void *to = static_cast<char *>(out.data) + offsets[size_t(i)];
      // Both streams from every thread, in an order without a pattern.
      void *stream = streams.streams[uint32_t(i) * 2654435761u >> 31];
      failures += caseOf(i).launch(program.get(), to, stream) != FA_RT_OK;
    }
  });
  EXPECT_EQ(failures, 0);
  for (void *stream : streams.streams)
    ASSERT_OK(fa_rt_stream_synchronize(0, stream));
  ASSERT_OK(fa_rt_copy_to_host(0, result.data(), out.data, total));
  int wrong = 0, trampled = 0;
  for (int i = 0; i < kLaunches; ++i) {
    const Case &c = caseOf(i);
    const unsigned char *slot = &result[offsets[size_t(i)]];
    wrong += std::memcmp(slot, c.expected.data(), c.bytes()) != 0;
    for (size_t b = c.bytes(); b < c.slot(); ++b)
      if (slot[b] != 0xff) {
        ++trampled;
        break;
      }
  }
  EXPECT_EQ(wrong, 0) << "launches whose output differs from a launch alone";
  EXPECT_EQ(trampled, 0) << "launches that wrote past their output";
}

TEST_F(Stress, ThreadsLoadOneProgramAtOnce) {
  constexpr int kThreads = 8;
  Case c = makeCase(11);
  std::vector<Program> programs(kThreads);
  inThreads(kThreads, [&](int t) { programs[size_t(t)] = loadFile(); });
  for (const Program &program : programs) {
    ASSERT_TRUE(program);
    runAlone(program, c);
    checkExpected(c);
  }
  EXPECT_TRUE(isFromCache(loadFile()));
}

/// A process of its own: loads the program when told, runs it, checks it.
/// `folder` gets the file "ready.<number>" and then "go".
static int runChild(const std::string &folder, const std::string &number) {
  using namespace std::chrono_literals;
  int count = 0;
  if (fa_rt_device_count(&count) != FA_RT_OK)
    return 2;
  if (std::FILE *ready = std::fopen((folder + "/ready." + number).c_str(), "w"))
    std::fclose(ready);
  for (int i = 0; !std::filesystem::exists(folder + "/go"); ++i) {
    if (i == 60000)
      return 3;
    std::this_thread::sleep_for(1ms);
  }
  Program program = loadFile();
  if (!program)
    return 4;
  Case c = makeCase(std::atoi(number.c_str()));
  runAlone(program, c);
  checkExpected(c);
  return ::testing::Test::HasFailure() ? 5 : 0;
}

TEST_F(Stress, ProcessesWriteOneCacheEntryAtOnce) {
  using namespace std::chrono_literals;
  constexpr int kProcesses = 6;
  char folder[] = "/tmp/fa-runtime-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  std::vector<pid_t> children;
  for (int n = 0; n < kProcesses; ++n) {
    std::string number = std::to_string(n), self = "/proc/self/exe",
                flag = "--child";
    char *argv[] = {self.data(), flag.data(), folder, number.data(), nullptr};
    pid_t child = -1;
    ASSERT_EQ(
        posix_spawn(&child, self.c_str(), nullptr, nullptr, argv, environ), 0);
    children.push_back(child);
  }
  auto isReady = [&](int n) {
    return std::filesystem::exists(std::string(folder) + "/ready." +
                                   std::to_string(n));
  };
  for (int n = 0, waited = 0; n < kProcesses && waited < 60000; ++waited) {
    while (n < kProcesses && isReady(n))
      ++n;
    std::this_thread::sleep_for(1ms);
  }
  if (std::FILE *go = std::fopen((std::string(folder) + "/go").c_str(), "w"))
    std::fclose(go);
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  // One entry, whole, and nothing left of those who lost the race.
  size_t files = 0;
  for (const auto &entry :
       std::filesystem::recursive_directory_iterator(directory))
    files += entry.is_regular_file();
  EXPECT_EQ(files, 1u);
  Program program = loadFile();
  ASSERT_TRUE(program);
  EXPECT_TRUE(isFromCache(program));
  Case c = makeCase(7);
  runAlone(program, c);
  checkExpected(c);
  std::filesystem::remove_all(folder);
}

int main(int argc, char **argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc == 4 && std::string(argv[1]) == "--child")
    return runChild(argv[2], argv[3]);
  return RUN_ALL_TESTS();
}
