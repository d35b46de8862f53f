// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "FakeDriver.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2;
constexpr int kNoDevice = 100, kInvalidContext = 201, kNotFound = 500;
constexpr char kCubinMagic[] = "\x7f"
                               "ELF fake cubin\n";

struct Param {
  size_t offset, size;
};
struct Function {
  std::string name;
  std::vector<Param> params;
  /// Kernels of other modules may have the same name.
  int maxDynamicSmem = 0;
};
struct Module {
  std::map<std::string, Function> functions;
};
struct Link {
  std::string cubin;
  std::vector<int> keys;
  std::vector<void *> values;
};

fake::State state;
/// Calls fail with and without the state's own lock.
std::mutex failuresMutex;
thread_local std::vector<void *> contexts;
/// Of the one pool there is, which stays for the whole process: its address is
/// the pool.
unsigned long long poolThreshold = 0;
constexpr int kReleaseThreshold = 4;
/// The primary contexts are the addresses of these.
char primaries[8];

bool isCurrentContextPrimary() {
  if (contexts.empty())
    return false;
  char *context = static_cast<char *>(contexts.back());
  return context >= primaries && context < primaries + sizeof(primaries);
}

/// What a call ends with; failures are noted, as the memory checker's API
/// errors are.
int ended(const char *call, int result) {
  if (result != kSuccess) {
    std::lock_guard<std::mutex> lock(failuresMutex);
    state.failures.push_back(call);
  }
  return result;
}

void record(const std::string &call) { state.calls.push_back(call); }

/// For programs that cannot reach the state: FAKE_CUDA_CC=90 is the device's
/// compute capability, FAKE_CUDA_VERSION=12020 the driver's CUDA version,
/// FAKE_CUDA_SMEM=232448 the bytes of shared memory that a block can opt into.
void configureFromEnvironment() {
  if (const char *text = std::getenv("FAKE_CUDA_CC")) {
    state.behaviour.major = std::atoi(text) / 10;
    state.behaviour.minor = std::atoi(text) % 10;
  }
  if (const char *text = std::getenv("FAKE_CUDA_VERSION"))
    state.behaviour.driverVersion = std::atoi(text);
  if (const char *text = std::getenv("FAKE_CUDA_SMEM"))
    state.behaviour.smemOptin = std::atoi(text);
}

/// With FAKE_CUDA_LOG=1 each launch is a line on stderr: grid, block, shared
/// memory, then the parameters, a pointer as the bytes that are left there.
void logLaunch(const fake::Launch &launch) {
  const char *text = std::getenv("FAKE_CUDA_LOG");
  if (!text || std::strcmp(text, "1") != 0)
    return;
  std::string line = "fake launch " + launch.kernel +
                     " grid=" + std::to_string(launch.grid[0]) +
                     " block=" + std::to_string(launch.block[0]) +
                     " smem=" + std::to_string(launch.smem) + ":";
  for (uint64_t word : launch.params) {
    auto it = state.memory.upper_bound(word);
    bool isPointer = it != state.memory.begin() &&
                     word < std::prev(it)->first + std::prev(it)->second;
    line += isPointer ? " &" + std::to_string(std::prev(it)->first +
                                              std::prev(it)->second - word)
                      : " " + std::to_string(static_cast<int64_t>(word));
  }
  std::fprintf(stderr, "%s\n", line.c_str());
}

/// The size and alignment of a parameter: ".param .u64 p", or
/// ".param .align 64 .b8 p[128]".
void parseParam(const std::string &text, Function &function) {
  size_t size = 8, align = 8;
  if (size_t at = text.find(".align "); at != std::string::npos)
    align = static_cast<size_t>(std::atoi(text.c_str() + at + 7));
  if (size_t at = text.find('['); at != std::string::npos)
    size = static_cast<size_t>(std::atoi(text.c_str() + at + 1));
  size_t end = function.params.empty() ? 0
                                       : function.params.back().offset +
                                             function.params.back().size;
  if (align)
    end = (end + align - 1) / align * align;
  function.params.push_back({end, size});
}

/// The kernels of PTX text and their parameters.
void parseEntries(const std::string &text, Module &module) {
  const std::string marker = ".entry ";
  for (size_t at = text.find(marker); at != std::string::npos;
       at = text.find(marker, at + 1)) {
    size_t begin = at + marker.size(), open = text.find('(', begin);
    if (open == std::string::npos)
      return;
    size_t close = text.find(')', open);
    Function function;
    function.name = text.substr(begin, open - begin);
    std::string params = text.substr(open, close - open);
    for (size_t p = params.find(".param"); p != std::string::npos;) {
      size_t next = params.find(".param", p + 1);
      parseParam(params.substr(p, next - p), function);
      p = next;
    }
    module.functions[function.name] = function;
  }
}

void writeLog(unsigned count, const int *keys, void **values,
              const std::string &log) {
  char *buffer = nullptr;
  size_t size = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (keys[i] == 5)
      buffer = static_cast<char *>(values[i]);
    if (keys[i] == 6)
      size = reinterpret_cast<uintptr_t>(values[i]);
  }
  if (buffer && size)
    std::snprintf(buffer, size, "%s", log.c_str());
}

/// Allocations follow each other without gaps, as a driver's may, and begin
/// again when all of them have been freed.
constexpr size_t kArenaBytes = size_t(1) << 20;
alignas(256) char arena[kArenaBytes];

bool isOfArena(unsigned long long pointer) {
  auto begin = reinterpret_cast<uintptr_t>(arena);
  return pointer >= begin && pointer < begin + kArenaBytes;
}

/// Null where it has no room left.
void *takeFromArena(size_t size) {
  static size_t used = 0;
  if (state.memory.empty())
    used = 0;
  size_t begin = used;
  if (size > kArenaBytes - begin)
    return nullptr;
  used = std::min(kArenaBytes, begin + (size + 255) / 256 * 256);
  return arena + begin;
}

int allocate(unsigned long long *pointer, size_t size, const char *call) {
  if (!isCurrentContextPrimary())
    return kInvalidContext;
  std::lock_guard<std::mutex> lock(state.mutex);
  record(std::string(call) + " " + std::to_string(size));
  if (state.behaviour.allocationsLeft == 0 || size > (size_t(1) << 28))
    return kOutOfMemory;
  if (state.behaviour.allocationsLeft > 0)
    --state.behaviour.allocationsLeft;
  void *memory = takeFromArena(size);
  if (!memory && posix_memalign(&memory, 256, size) != 0)
    return kOutOfMemory;
  // What device memory holds at first is anything.
  std::memset(memory, 0xcd, size);
  *pointer = reinterpret_cast<uintptr_t>(memory);
  state.memory[*pointer] = size;
  return kSuccess;
}

int release(unsigned long long pointer, const char *call) {
  if (!isCurrentContextPrimary())
    return kInvalidContext;
  std::lock_guard<std::mutex> lock(state.mutex);
  auto it = state.memory.find(pointer);
  if (it == state.memory.end())
    return kInvalidValue;
  record(std::string(call) + " " + std::to_string(it->second));
  if (!isOfArena(pointer))
    std::free(reinterpret_cast<void *>(static_cast<uintptr_t>(pointer)));
  state.memory.erase(it);
  return kSuccess;
}

int deviceAttribute(int attribute) {
  const fake::Behaviour &b = state.behaviour;
  switch (attribute) {
  case 8:
    return 49152;
  case 16:
    return b.smCount;
  case 38:
    return 41943040;
  case 75:
    return b.major;
  case 76:
    return b.minor;
  case 97:
    return b.smemOptin;
  case 115:
    return b.hasPools;
  }
  return 0;
}

#ifndef FAKE_WITHOUT_TENSOR_MAPS
/// What "CUDA Driver API" demands of a tiled map without interleave; 0 stands
/// for a type that it does not have.
bool isEncodable(uint32_t elementBytes, uint32_t rank, uint64_t address,
                 const uint64_t *sizes, const uint64_t *strides,
                 const uint32_t *box, const uint32_t *steps, int swizzle) {
  constexpr uint64_t kMaxSize = uint64_t(1) << 32, kMaxStride = uint64_t(1)
                                                                << 40;
  if (!elementBytes || rank < 1 || rank > 5 || !address || address % 16)
    return false;
  for (uint32_t i = 0; i < rank; ++i) {
    if (sizes[i] < 1 || sizes[i] > kMaxSize || box[i] < 1 || box[i] > 256 ||
        steps[i] < 1 || steps[i] > 8)
      return false;
    if (i + 1 < rank && (strides[i] % 16 || strides[i] >= kMaxStride))
      return false;
  }
  // Swizzles of 32, 64 and 128 bytes, as wide as the box.
  uint32_t boxBytes = box[0] * elementBytes;
  return boxBytes % 16 == 0 && swizzle >= 0 && swizzle <= 3 &&
         (swizzle == 0 || boxBytes == uint32_t(16) << swizzle);
}
#endif

} // namespace

extern "C" {

fake::State *fakeDriverState() { return &state; }
void fakeSetCurrentContext(void *context) {
  contexts.clear();
  if (context)
    contexts.push_back(context);
}
void *fakeCurrentContext() {
  return contexts.empty() ? nullptr : contexts.back();
}
int fakeContextDepth() { return static_cast<int>(contexts.size()); }

int cuInit(unsigned) {
  configureFromEnvironment();
  return ended("cuInit", state.behaviour.initResult);
}
int cuDriverGetVersion(int *version) {
  *version = state.behaviour.driverVersion;
  return kSuccess;
}
int cuGetErrorString(int, const char **text) {
  *text = "made up by the fake driver";
  return kSuccess;
}
int cuGetErrorName(int, const char **name) {
  *name = "CUDA_ERROR_FAKE";
  return kSuccess;
}
int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ended("cuDeviceGet",
               ordinal < state.behaviour.deviceCount ? kSuccess : kNoDevice);
}
int cuDeviceGetCount(int *count) {
  *count = state.behaviour.deviceCount;
  return kSuccess;
}
int cuDeviceGetName(char *name, int size, int device) {
  std::snprintf(name, static_cast<size_t>(size), "Fake GPU %d", device);
  return kSuccess;
}
int cuDeviceGetAttribute(int *value, int attribute, int) {
  *value = deviceAttribute(attribute);
  return kSuccess;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = &primaries[device];
  return kSuccess;
}
int cuCtxPushCurrent_v2(void *context) {
  contexts.push_back(context);
  return kSuccess;
}
int cuCtxPopCurrent_v2(void **context) {
  if (contexts.empty())
    return ended("cuCtxPopCurrent_v2", kInvalidContext);
  *context = contexts.back();
  contexts.pop_back();
  return kSuccess;
}
int cuCtxGetCurrent(void **context) {
  *context = fakeCurrentContext();
  return kSuccess;
}

int cuModuleLoadDataEx(void **module, const void *image, unsigned count,
                       int *keys, void **values) {
  if (!isCurrentContextPrimary())
    return ended("cuModuleLoadDataEx", kInvalidContext);
  std::lock_guard<std::mutex> lock(state.mutex);
  const fake::Behaviour &b = state.behaviour;
  std::string text(static_cast<const char *>(image));
  bool isCubin = text.compare(0, 4, kCubinMagic, 4) == 0;
  if (isCubin ? b.rejectsCubins : !b.rejectLog.empty()) {
    writeLog(count, keys, values, b.rejectLog);
    return ended("cuModuleLoadDataEx", isCubin ? 209 : b.rejectResult);
  }
  record(isCubin ? "moduleLoad cubin" : "moduleLoad ptx");
  auto *result = new Module;
  parseEntries(text, *result);
  *module = result;
  ++state.liveModules;
  return kSuccess;
}
int cuModuleUnload(void *module) {
  if (!isCurrentContextPrimary())
    return ended("cuModuleUnload", kInvalidContext);
  std::lock_guard<std::mutex> lock(state.mutex);
  delete static_cast<Module *>(module);
  --state.liveModules;
  return kSuccess;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  auto &functions = static_cast<Module *>(module)->functions;
  auto it = functions.find(name);
  if (it == functions.end())
    return ended("cuModuleGetFunction", kNotFound);
  *function = &it->second;
  return kSuccess;
}
int cuFuncGetAttribute(int *value, int attribute, void *) {
  const fake::Behaviour &b = state.behaviour;
  *value = attribute == 0   ? b.maxThreads
           : attribute == 1 ? b.staticSmem
           : attribute == 3 ? b.localBytes
           : attribute == 4 ? b.registers
                            : 0;
  return kSuccess;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  std::lock_guard<std::mutex> lock(state.mutex);
  if (attribute != 8 ||
      value + state.behaviour.staticSmem > state.behaviour.smemOptin)
    return ended("cuFuncSetAttribute", kInvalidValue);
  static_cast<Function *>(function)->maxDynamicSmem = value;
  state.maxDynamicSmem[static_cast<Function *>(function)->name] = value;
  return kSuccess;
}
int cuFuncGetParamInfo(void *function, size_t index, size_t *offset,
                       size_t *size) {
  const auto &params = static_cast<Function *>(function)->params;
  if (index >= params.size())
    return ended("cuFuncGetParamInfo", kInvalidValue);
  *offset = params[index].offset;
  *size = params[index].size;
  return kSuccess;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz,
                   unsigned bx, unsigned by, unsigned bz, unsigned smem,
                   void *stream, void **params, void **) {
  if (!isCurrentContextPrimary())
    return ended("cuLaunchKernel", kInvalidContext);
  std::lock_guard<std::mutex> lock(state.mutex);
  fake::Behaviour &b = state.behaviour;
  if (b.launchesLeft == 0)
    return ended("cuLaunchKernel", b.launchResult ? b.launchResult : 719);
  if (b.launchesLeft > 0)
    --b.launchesLeft;
  else if (b.launchResult)
    return ended("cuLaunchKernel", b.launchResult);
  const auto *kernel = static_cast<Function *>(function);
  if (gx == 0 || bx == 0)
    return ended("cuLaunchKernel", kInvalidValue);
  if (smem > 49152 && kernel->maxDynamicSmem < int(smem))
    return ended("cuLaunchKernel", kInvalidValue);
  fake::Launch launch = {
      kernel->name, {gx, gy, gz}, {bx, by, bz}, smem, stream, {}, {}};
  for (size_t i = 0; i < kernel->params.size(); ++i) {
    uint64_t word;
    fake::TensorMap map;
    if (kernel->params[i].size == sizeof(map)) {
      std::memcpy(&map, params[i], sizeof(map));
      // A kernel that reads anything else as a map faults.
      if (map.magic != fake::kTensorMapMagic)
        return ended("cuLaunchKernel", kInvalidValue);
      launch.maps.push_back(map);
      continue;
    }
    std::memcpy(&word, params[i], sizeof(word));
    launch.params.push_back(word);
  }
  record("launch " + kernel->name);
  logLaunch(launch);
  state.launches.push_back(std::move(launch));
  return kSuccess;
}

int cuMemAlloc_v2(unsigned long long *pointer, size_t size) {
  return ended("cuMemAlloc_v2", allocate(pointer, size, "memAlloc"));
}
int cuMemFree_v2(unsigned long long pointer) {
  return ended("cuMemFree_v2", release(pointer, "memFree"));
}
int cuMemAllocAsync(unsigned long long *pointer, size_t size, void *) {
  if (state.behaviour.asyncAllocResult)
    return ended("cuMemAllocAsync", state.behaviour.asyncAllocResult);
  return ended("cuMemAllocAsync", allocate(pointer, size, "memAllocAsync"));
}
int cuMemPoolCreate(void **pool, const void *) {
  *pool = &poolThreshold;
  return kSuccess;
}
int cuMemPoolSetAttribute(void *, int attribute, void *value) {
  if (attribute != kReleaseThreshold)
    return ended("cuMemPoolSetAttribute", kInvalidValue);
  std::memcpy(&poolThreshold, value, sizeof(poolThreshold));
  return kSuccess;
}
int cuMemAllocFromPoolAsync(unsigned long long *pointer, size_t size,
                            void *pool, void *stream) {
  if (pool != &poolThreshold)
    return ended("cuMemAllocFromPoolAsync", kInvalidValue);
  return cuMemAllocAsync(pointer, size, stream);
}
unsigned long long fakePoolThreshold() { return poolThreshold; }
int cuMemFreeAsync(unsigned long long pointer, void *) {
  return ended("cuMemFreeAsync", release(pointer, "memFreeAsync"));
}
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) {
  std::memcpy(reinterpret_cast<void *>(to), from, size);
  return kSuccess;
}
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) {
  std::memcpy(to, reinterpret_cast<void *>(from), size);
  return kSuccess;
}
int cuMemsetD8Async(unsigned long long to, unsigned char value, size_t size,
                    void *) {
  std::lock_guard<std::mutex> lock(state.mutex);
  record("memset " + std::to_string(size));
  auto it = state.memory.upper_bound(to);
  if (it != state.memory.begin() && isOfArena(to)) {
    --it;
    if (to + size > it->first + it->second)
      return kInvalidValue;
  }
  std::memset(reinterpret_cast<void *>(to), value, size);
  return kSuccess;
}
int cuMemHostAlloc(void **memory, size_t size, unsigned) {
  if (!isCurrentContextPrimary())
    return ended("cuMemHostAlloc", kInvalidContext);
  std::lock_guard<std::mutex> lock(state.mutex);
  if (state.behaviour.hostAllocResult)
    return ended("cuMemHostAlloc", state.behaviour.hostAllocResult);
  *memory = std::malloc(size);
  ++state.liveHostBuffers;
  return kSuccess;
}
int cuMemFreeHost(void *memory) {
  if (!isCurrentContextPrimary())
    return ended("cuMemFreeHost", kInvalidContext);
  std::lock_guard<std::mutex> lock(state.mutex);
  std::free(memory);
  --state.liveHostBuffers;
  return kSuccess;
}
int cuStreamIsCapturing(void *, int *status) {
  *status = state.behaviour.captureStatus;
  return ended("cuStreamIsCapturing", state.behaviour.captureResult);
}
int cuStreamSynchronize(void *) {
  std::lock_guard<std::mutex> lock(state.mutex);
  record("synchronize");
  return ended("cuStreamSynchronize", state.behaviour.synchronizeResult);
}

#ifndef FAKE_WITHOUT_TENSOR_MAPS
int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank,
                           unsigned long long address, const uint64_t *sizes,
                           const uint64_t *strides, const uint32_t *box,
                           const uint32_t *steps, int interleave, int swizzle,
                           int promotion, int oobFill) {
  static const uint32_t kElementBytes[] = {1, 2, 4, 4, 8, 8, 2,
                                           4, 8, 2, 4, 4, 4};
  uint32_t elementBytes = type >= 0 && type < 13 ? kElementBytes[type] : 0;
  std::lock_guard<std::mutex> lock(state.mutex);
  if (reinterpret_cast<uintptr_t>(map) % 64 || interleave != 0 ||
      promotion < 0 || promotion > 3 || oobFill < 0 || oobFill > 1 ||
      !isEncodable(elementBytes, rank, address, sizes, strides, box, steps,
                   swizzle)) {
    ++state.refusedEncodings;
    return ended("cuTensorMapEncodeTiled", kInvalidValue);
  }
  if (state.behaviour.encodeResult)
    return ended("cuTensorMapEncodeTiled", state.behaviour.encodeResult);
  ++state.encodings;
  fake::TensorMap made = {};
  made.address = address;
  std::copy_n(sizes, rank, made.sizes);
  std::copy_n(strides, rank - 1, made.strides);
  std::copy_n(box, rank, made.box);
  made.type = static_cast<uint32_t>(type);
  made.rank = rank;
  made.interleave = static_cast<uint32_t>(interleave);
  made.swizzle = static_cast<uint32_t>(swizzle);
  made.promotion = static_cast<uint32_t>(promotion);
  made.oobFill = static_cast<uint32_t>(oobFill);
  made.magic = fake::kTensorMapMagic;
  std::memcpy(map, &made, sizeof(made));
  return kSuccess;
}
#endif

#ifndef FAKE_WITHOUT_LINKER
int cuLinkCreate_v2(unsigned count, int *keys, void **values, void **link) {
  auto *result = new Link;
  result->keys.assign(keys, keys + count);
  result->values.assign(values, values + count);
  *link = result;
  return kSuccess;
}
int cuLinkAddData_v2(void *link, int, void *data, size_t size, const char *,
                     unsigned, int *, void **) {
  auto *state_ = static_cast<Link *>(link);
  std::lock_guard<std::mutex> lock(state.mutex);
  const fake::Behaviour &b = state.behaviour;
  if (b.isLinkerBroken || !b.rejectLog.empty()) {
    writeLog(static_cast<unsigned>(state_->keys.size()), state_->keys.data(),
             state_->values.data(), b.rejectLog);
    return ended("cuLinkAddData_v2", b.rejectResult);
  }
  // The driver wants the NUL counted.
  if (size == 0 || static_cast<char *>(data)[size - 1] != '\0')
    return ended("cuLinkAddData_v2", kInvalidValue);
  ++state.compilations;
  state_->cubin = kCubinMagic + std::string(static_cast<char *>(data));
  return kSuccess;
}
int cuLinkComplete(void *link, void **cubin, size_t *size) {
  auto *state_ = static_cast<Link *>(link);
  *cubin = &state_->cubin[0];
  *size = state_->cubin.size();
  return kSuccess;
}
int cuLinkDestroy(void *link) {
  delete static_cast<Link *>(link);
  return kSuccess;
}
#endif

int cuPointerGetAttribute(void *value, int attribute,
                          unsigned long long pointer) {
  std::lock_guard<std::mutex> lock(state.mutex);
  auto it = state.memory.upper_bound(pointer);
  if (it == state.memory.begin())
    return ended("cuPointerGetAttribute", kInvalidValue);
  --it;
  if (pointer >= it->first + it->second)
    return ended("cuPointerGetAttribute", kInvalidValue);
  int result = attribute == 2 ? 2 : 0; // Device memory of device 0.
  std::memcpy(value, &result, sizeof(result));
  return kSuccess;
}

int cuEventCreate(void **event, unsigned) {
  *event = new char;
  return kSuccess;
}
int cuEventDestroy_v2(void *event) {
  delete static_cast<char *>(event);
  return kSuccess;
}
int cuEventRecord(void *, void *) { return kSuccess; }
int cuEventSynchronize(void *) { return state.behaviour.synchronizeResult; }
int cuEventElapsedTime(float *milliseconds, void *, void *) {
  *milliseconds = 10.0f;
  return kSuccess;
}

} // extern "C"
