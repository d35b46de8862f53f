// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From PTX to a module, through the driver's compiler and the cache.

#include "Compile.h"

#include "Cache.h"
#include "Environment.h"

#include <chrono>
#include <cstdarg>
#include <cstdio>

using namespace fa::rt;

LoadOptions LoadOptions::from(const fa_rt_load_options *options) {
  fa_rt_load_options given;
  fa_rt_load_options_init(&given);
  if (options) {
    if (options->struct_size < sizeof(given))
      fail(FA_RT_INVALID_ARGUMENT,
           "the load options have struct_size %zu, expected %zu; fill them in "
           "with fa_rt_load_options_init",
           options->struct_size, sizeof(given));
    given = *options;
  }
  LoadOptions result;
  result.useCache = given.use_cache != 0;
  result.verbose = given.verbose != 0 || env::verbose();
  result.checkPointers = given.check_pointers != 0 || env::checkPointers();
  result.header = given.header;
  return result;
}

namespace {
/// The logs of one compilation, as the driver takes and fills them.
class JitLogs {
public:
  explicit JitLogs(bool verbose) {
    setPointer(0, cu::kJitErrorLog, errorText);
    setNumber(1, cu::kJitErrorLogSize, sizeof(errorText));
    setPointer(2, cu::kJitInfoLog, infoText);
    setNumber(3, cu::kJitInfoLogSize, sizeof(infoText));
    setNumber(4, cu::kJitLogVerbose, verbose);
  }
  const char *error() { return terminated(errorText, sizeof(errorText)); }
  const char *info() { return terminated(infoText, sizeof(infoText)); }

  static constexpr unsigned count = 5;
  int keys[count];
  void *values[count];

private:
  void setPointer(int index, int key, void *value) {
    keys[index] = key;
    values[index] = value;
  }
  // The driver wants numbers in the pointer's own bits.
  void setNumber(int index, int key, size_t value) {
    setPointer(index, key, reinterpret_cast<void *>(value));
  }
  static const char *terminated(char *text, size_t size) {
    text[size - 1] = '\0';
    return text;
  }

  char errorText[8192] = {};
  char infoText[8192] = {};
};

/// Destroys the linker's state.
struct Linker {
  explicit Linker(const Driver &driver) : driver(driver) {}
  ~Linker() {
    if (state)
      driver.linkDestroy(state);
  }
  Linker(const Linker &) = delete;
  Linker &operator=(const Linker &) = delete;
  const Driver &driver;
  cu::LinkState state = nullptr;
};

/// Loads one image.
class Loader {
public:
  Loader(const Driver &driver, const Image &image,
         const fa_rt_device_desc &device, const LoadOptions &options)
      : driver(driver), image(image), device(device), options(options) {}

  LoadedModule load();

private:
  std::string cacheKey() const;
  bool loadCached(LoadedModule &result);
  bool compile(std::string &cubin);
  /// Throws if the driver rejects `code`.
  cu::Module loadCode(const std::string &code);
  void note(const char *fmt, ...) const __attribute__((format(printf, 2, 3)));

  const Driver &driver;
  const Image &image;
  const fa_rt_device_desc &device;
  const LoadOptions &options;
};
} // namespace

void Loader::note(const char *fmt, ...) const {
  if (!options.verbose)
    return;
  va_list list;
  va_start(list, fmt);
  std::fprintf(stderr, "fa: %s: ", image.header.name.c_str());
  std::vfprintf(stderr, fmt, list);
  std::fputc('\n', stderr);
  va_end(list);
}

std::string Loader::cacheKey() const {
  // Everything that the machine code depends on.
  return format("cubin:%s:sm_%d%d:driver=%d:", fa_rt_version(), device.cc_major,
                device.cc_minor, device.driver_version) +
         image.code;
}

cu::Module Loader::loadCode(const std::string &code) {
  JitLogs logs(options.verbose);
  cu::Module module = nullptr;
  cu::Result result = driver.moduleLoadDataEx(&module, code.c_str(), logs.count,
                                              logs.keys, logs.values);
  if (result == cu::kSuccess)
    return module;
  if (result == cu::kOutOfMemory)
    driver.failed(result, "loading the code", FA_RT_OUT_OF_MEMORY);
  const char *log = logs.error();
  fail(result == cu::kUnsupportedPTXVersion ? FA_RT_DRIVER_TOO_OLD
                                            : FA_RT_DRIVER_REJECTED,
       "the driver (CUDA %d.%d) rejects the code of '%s' for %s: %s; its log: "
       "%s",
       device.driver_version / 1000, device.driver_version % 1000 / 10,
       image.header.name.c_str(), image.header.targetName.c_str(),
       driver.describe(result).c_str(), *log ? log : "(empty)");
}

bool Loader::compile(std::string &cubin) {
  JitLogs logs(options.verbose);
  Linker linker(driver);
  if (driver.linkCreate(logs.count, logs.keys, logs.values, &linker.state) !=
      cu::kSuccess)
    return false;
  // The driver does not write to the text, whatever its signature says. The
  // size takes in the NUL.
  void *text = const_cast<char *>(image.code.c_str());
  void *code = nullptr;
  size_t size = 0;
  if (driver.linkAddData(linker.state, cu::kJitInputPTX, text,
                         image.code.size() + 1, image.header.name.c_str(), 0,
                         nullptr, nullptr) != cu::kSuccess ||
      driver.linkComplete(linker.state, &code, &size) != cu::kSuccess ||
      !code || !size) {
    note("the driver's linker gave no cubin: %s", logs.error());
    return false;
  }
  if (*logs.info())
    note("%s", logs.info());
  cubin.assign(static_cast<const char *>(code), size);
  return true;
}

bool Loader::loadCached(LoadedModule &result) {
  std::string cubin;
  if (!cache::get(cacheKey(), cubin))
    return false;
  try {
    result.module = loadCode(cubin);
  } catch (const Error &error) {
    // Sound on disk, and refused all the same: compile it anew.
    note("cached code is not usable: %s", error.message.c_str());
    return false;
  }
  result.isFromCache = true;
  return true;
}

LoadedModule Loader::load() {
  LoadedModule result;
  if (!image.isPTX) {
    result.module = loadCode(image.code);
    return result;
  }
  auto start = std::chrono::steady_clock::now();
  if (image.header.target.suffix) {
    // The linker compiles for relocation, which takes the registers that
    // setmaxnreg gives away from warpgroup-wide products: they spill, at a
    // third of the speed. The driver keeps what it loads in its own cache
    // (CUDA_CACHE_PATH).
    result.module = loadCode(image.code);
    std::chrono::duration<double, std::milli> time =
        std::chrono::steady_clock::now() - start;
    note("loaded by the driver in %.1f ms", time.count());
    return result;
  }
  if (options.useCache && loadCached(result)) {
    note("code from the cache, %s", cache::path(cacheKey()).c_str());
    return result;
  }
  std::string cubin;
  bool isCompiled = compile(cubin);
  // Where the linker fails, loading the text gives the log that says why; and
  // some drivers can do the one and not the other.
  result.module = loadCode(isCompiled ? cubin : image.code);
  std::chrono::duration<double, std::milli> time =
      std::chrono::steady_clock::now() - start;
  note("compiled by the driver in %.1f ms", time.count());
  if (!options.useCache || !isCompiled)
    return result;
  std::string reason;
  if (!cache::put(cacheKey(), cubin, reason))
    note("not cached: %s", reason.c_str());
  return result;
}

LoadedModule fa::rt::loadModule(const Driver &driver, const Image &image,
                                const fa_rt_device_desc &device,
                                const LoadOptions &options) {
  return Loader(driver, image, device, options).load();
}

void fa_rt_load_options_init(fa_rt_load_options *options) {
  if (!options)
    return;
  *options = {};
  options->struct_size = sizeof(*options);
  options->use_cache = 1;
}
