// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Runtime.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/APInt.h"
#include "llvm/ADT/bit.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>

#include <pthread.h>
#include <sys/resource.h>
#ifdef __linux__
#include <sys/sysinfo.h>
#endif

using namespace fa::cpu;

//===----------------------------------------------------------------------===//
// Running out of memory
//===----------------------------------------------------------------------===//

/// Memory and swap of the machine, or what the process's control group has of
/// them: beyond it the system ends some process, perhaps this one.
static uint64_t machineLimit() {
  uint64_t limit = std::numeric_limits<uint64_t>::max();
#ifdef __linux__
  struct sysinfo info;
  if (sysinfo(&info) == 0)
    limit = (uint64_t(info.totalram) + info.totalswap) * info.mem_unit;
  if (FILE *file = std::fopen("/sys/fs/cgroup/memory.max", "r")) {
    unsigned long long bytes;
    if (std::fscanf(file, "%llu", &bytes) == 1)
      limit = std::min<uint64_t>(limit, bytes);
    std::fclose(file);
  }
#endif
  return limit;
}

/// Most bytes that temporaries can have, as far as that is known.
static uint64_t memoryLimit() {
  static const uint64_t machine = machineLimit();
  uint64_t limit = machine;
  for (auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit own;
    if (getrlimit(resource, &own) == 0 && own.rlim_cur != RLIM_INFINITY)
      limit = std::min<uint64_t>(limit, own.rlim_cur);
  }
  return limit;
}

namespace {
/// Where a thread goes on when compiled code gets no memory: it has no way to
/// report that, and nothing to clean up.
struct Rescue {
  std::jmp_buf place;
  Rescue *outer = nullptr;
  int64_t mark = 0;
  Shortage shortage;
};
thread_local Rescue *rescue = nullptr;

/// Bytes of all threads' chunks.
std::atomic<uint64_t> heldBytes{0};

/// Ends the compiled code that this thread runs.
[[noreturn]] void runOut(Shortage shortage) {
  rescue->shortage = shortage;
  std::longjmp(rescue->place, 1);
}

/// A thread's memory for temporaries: a stack of chunks, bumped and released
/// in order. What was used once is kept for the next time, up to a limit.
class Arena {
public:
  ~Arena() {
    for (Chunk &chunk : chunks)
      freeChunk(chunk);
  }
  void *allocate(uint64_t bytes) {
    if (bytes > std::numeric_limits<uint64_t>::max() / 2)
      runOut({bytes, heldBytes.load(), memoryLimit()});
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    // Buffers that start at the same place modulo 4 KiB fight for one set of
    // the cache: shift each by a line.
    bytes += kAlignment;
    while (current < chunks.size() &&
           chunks[current].used + bytes > chunks[current].size)
      ++current;
    if (current == chunks.size())
      addChunk(bytes);
    Chunk &chunk = chunks[current];
    void *result = chunk.memory + chunk.used;
    chunk.used += bytes;
    total += bytes;
    peak = std::max(peak, total);
    return result;
  }
  /// A mark is the number of bytes in use.
  int64_t mark() const { return static_cast<int64_t>(total); }
  void release(int64_t to) {
    uint64_t excess = total - static_cast<uint64_t>(to);
    while (excess > 0) {
      Chunk &chunk = chunks[current];
      uint64_t part = std::min(excess, chunk.used);
      chunk.used -= part;
      excess -= part;
      if (chunk.used == 0 && current > 0)
        --current;
    }
    total = static_cast<uint64_t>(to);
  }
  uint64_t takePeak() {
    uint64_t result = peak;
    peak = total;
    if (total == 0)
      trim();
    return result;
  }

private:
  static constexpr uint64_t kAlignment = 64, kChunk = 1 << 20, kKept = 64 << 20;
  struct Chunk {
    char *memory = nullptr;
    uint64_t size = 0, used = 0;
  };
  void addChunk(uint64_t bytes) {
    uint64_t size = (std::max(bytes, kChunk) + 4095) / 4096 * 4096;
    // Of what the system promises and does not have one would hear by a signal.
    uint64_t held = heldBytes.load(), limit = memoryLimit();
    void *memory = held <= limit && size <= limit - held
                       ? std::aligned_alloc(4096, size)
                       : nullptr;
    if (!memory)
      runOut({bytes, held, limit});
    heldBytes += size;
    chunks.push_back({static_cast<char *>(memory), size, 0});
  }
  static void freeChunk(const Chunk &chunk) {
    std::free(chunk.memory);
    heldBytes -= chunk.size;
  }
  void trim() {
    uint64_t kept = 0;
    for (size_t i = 0; i < chunks.size(); ++i) {
      kept += chunks[i].size;
      if (kept <= kKept)
        continue;
      for (size_t j = i; j < chunks.size(); ++j)
        freeChunk(chunks[j]);
      chunks.resize(i);
      break;
    }
    current = 0;
  }
  std::vector<Chunk> chunks;
  size_t current = 0;
  uint64_t total = 0, peak = 0;
};

using RangeFunction = void (*)(void *, int64_t, int64_t);

/// One parallel loop: threads take chunks until none is left.
struct Job {
  RangeFunction function = nullptr;
  void *context = nullptr;
  int64_t count = 0, chunk = 1;
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> peak{0};
  /// The first shortage of a thread, after which none takes more.
  std::atomic<bool> failed{false};
  Shortage shortage;
  unsigned wanted = 0;  // helpers that may still join
  unsigned working = 0; // helpers that have joined and not left
};

thread_local Arena arena;
/// 0: not inside runWithThreads.
thread_local unsigned allowedThreads = 0;
thread_local int64_t helperPeak = 0;

/// Runs `work` on `arguments`; whether memory lasted. Not inlined: what is
/// changed between the two returns of setjmp is in memory.
template <typename... Arguments>
__attribute__((noinline)) bool
runRescued(Rescue &own, void (*work)(Arguments...), Arguments... arguments) {
  own.outer = rescue;
  own.mark = arena.mark();
  rescue = &own;
  if (setjmp(own.place) == 0) {
    work(arguments...);
    rescue = rescue->outer;
    return true;
  }
  // Here `own` is found by the thread: registers may be those of before.
  Rescue *self = rescue;
  arena.release(self->mark);
  rescue = self->outer;
  return false;
}

void takeChunks(Job *job) {
  for (;;) {
    int64_t begin = job->next.fetch_add(job->chunk, std::memory_order_relaxed);
    if (begin >= job->count)
      return;
    job->function(job->context, begin,
                  std::min(begin + job->chunk, job->count));
  }
}

void workOn(Job &job) {
  Rescue own;
  if (runRescued(own, takeChunks, &job))
    return;
  if (!job.failed.exchange(true))
    job.shortage = own.shortage;
  job.next.store(job.count);
}

/// Helper threads for all programs of the process, started when first wanted.
class Pool {
public:
  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stopping = true;
    }
    wake.notify_all();
    for (pthread_t thread : threads)
      pthread_join(thread, nullptr);
  }
  void run(Job &job, unsigned helpers) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      while (threads.size() < helpers) {
        auto start = [](void *self) -> void * {
          static_cast<Pool *>(self)->serve();
          return nullptr;
        };
        pthread_t thread;
        // Where there is no memory for a thread, the others do its work.
        if (pthread_create(&thread, nullptr, start, this) != 0)
          break;
        threads.push_back(thread);
      }
      job.wanted = helpers;
      jobs.push_back(&job);
    }
    wake.notify_all();
    workOn(job);
    std::unique_lock<std::mutex> lock(mutex);
    jobs.erase(std::find(jobs.begin(), jobs.end(), &job));
    done.wait(lock, [&] { return job.working == 0; });
  }

private:
  Job *findJob() {
    for (Job *job : jobs)
      if (job->wanted > 0 &&
          job->next.load(std::memory_order_relaxed) < job->count)
        return job;
    return nullptr;
  }
  void serve() {
    allowedThreads = 1;
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      Job *job = nullptr;
      wake.wait(lock, [&] { return stopping || (job = findJob()); });
      if (stopping)
        return;
      --job->wanted;
      ++job->working;
      lock.unlock();
      workOn(*job);
      job->peak += static_cast<int64_t>(arena.takePeak());
      lock.lock();
      --job->working;
      done.notify_all();
    }
  }
  std::mutex mutex;
  std::condition_variable wake, done;
  std::vector<pthread_t> threads;
  std::vector<Job *> jobs;
  bool stopping = false;
};

Pool &pool() {
  static Pool instance;
  return instance;
}

extern "C" void faCpuParallelFor(RangeFunction function, void *context,
                                 int64_t count) {
  if (count <= 0)
    return;
  unsigned threads = static_cast<unsigned>(
      std::min<int64_t>(std::max(allowedThreads, 1u), count));
  if (threads == 1)
    return function(context, 0, count);
  Job job;
  job.function = function;
  job.context = context;
  job.count = count;
  // Iterations may differ in cost by much (causal): small chunks, but not so
  // small that a row of a vector takes an atomic each.
  job.chunk = std::max<int64_t>(1, count / (threads * 32));
  // Loops inside the loop stay on their thread.
  unsigned allowed = allowedThreads;
  allowedThreads = 1;
  pool().run(job, threads - 1);
  allowedThreads = allowed;
  helperPeak = std::max(helperPeak, job.peak.load());
  if (job.failed)
    runOut(job.shortage);
}

extern "C" int64_t faCpuMark() { return arena.mark(); }
extern "C" void faCpuRelease(int64_t mark) { arena.release(mark); }
extern "C" void *faCpuAllocate(uint64_t, uint64_t bytes) {
  return arena.allocate(bytes);
}
extern "C" void faCpuFree(void *) {}

} // namespace

unsigned fa::cpu::hardwareThreads() {
  return std::max(1u, std::thread::hardware_concurrency());
}

llvm::Expected<int64_t> fa::cpu::runWithThreads(unsigned threads,
                                                void (*entry)(void **),
                                                void **arguments) {
  unsigned before = allowedThreads;
  allowedThreads = threads ? threads : hardwareThreads();
  helperPeak = 0;
  Rescue own;
  bool lasted = runRescued(own, entry, arguments);
  allowedThreads = before;
  int64_t peak = static_cast<int64_t>(arena.takePeak()) + helperPeak;
  if (!lasted)
    return llvm::make_error<OutOfMemoryError>(own.shortage);
  return peak;
}

char OutOfMemoryError::ID = 0;

void OutOfMemoryError::log(llvm::raw_ostream &os) const {
  os << "expected " << shortage.bytes << " bytes of memory for a temporary";
  if (shortage.held)
    os << " beside " << shortage.held << " in use";
  if (shortage.bytes + shortage.held > shortage.limit)
    os << ", got a limit of " << shortage.limit;
  else
    os << ", and the system has none left of " << shortage.limit;
  os << "; use a tiled algorithm (fa2), fewer threads or a smaller batch";
}

std::error_code OutOfMemoryError::convertToErrorCode() const {
  return std::make_error_code(std::errc::not_enough_memory);
}

/// To the nearest, ties to even; a NaN stays one. Of integers: a conversion
/// would be a call of this function.
static __bf16 truncateToBF16(float value) {
  uint32_t bits = llvm::bit_cast<uint32_t>(value);
  uint16_t half = (bits & 0x7FFFFFFF) > 0x7F800000
                      ? bits >> 16 | 0x40
                      : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return llvm::bit_cast<__bf16>(half);
}

/// A double as 16 bits, rounded once.
template <typename T>
static T truncateDouble(double value, const llvm::fltSemantics &semantics) {
  llvm::APFloat x(value);
  bool losesInfo;
  x.convert(semantics, llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  auto bits = static_cast<uint16_t>(x.bitcastToAPInt().getZExtValue());
  return llvm::bit_cast<T>(bits);
}

static __bf16 truncateDoubleToBF16(double value) {
  return truncateDouble<__bf16>(value, llvm::APFloat::BFloat());
}

static _Float16 truncateDoubleToF16(double value) {
  return truncateDouble<_Float16>(value, llvm::APFloat::IEEEhalf());
}

std::vector<std::pair<const char *, void *>> fa::cpu::runtimeSymbols() {
  auto address = [](auto *f) { return reinterpret_cast<void *>(f); };
  return {{"fa_cpu_parallel_for", address(&faCpuParallelFor)},
          {"fa_cpu_mark", address(&faCpuMark)},
          {"fa_cpu_release", address(&faCpuRelease)},
          {"_mlir_memref_to_llvm_aligned_alloc", address(&faCpuAllocate)},
          {"_mlir_memref_to_llvm_free", address(&faCpuFree)},
          // What LLVM calls for single elements where no instruction does it.
          {"__truncsfbf2", address(&truncateToBF16)},
          {"__truncdfbf2", address(&truncateDoubleToBF16)},
          {"__truncdfhf2", address(&truncateDoubleToF16)}};
}
