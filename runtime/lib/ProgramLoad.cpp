// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Compile.h"
#include "Program.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

using namespace fa::rt;

fa_rt_program::~fa_rt_program() {
  if (!module)
    return;
  // Errors have nowhere to go; at process exit the driver may be gone already.
  try {
    ScopedContext scope(driver, context);
    queues.reset();
    driver.moduleUnload(module);
  } catch (...) {
  }
}

/// Fixes where each tensor's words stand.
static void layOutWords(fa_rt_program &program) {
  uint32_t offset = 0;
  for (const TensorDecl &decl : program.header.tensors) {
    program.offsets.push_back(offset);
    offset += 1 + 2 * static_cast<uint32_t>(decl.rank);
  }
}

static int readAttribute(const Driver &driver, cu::Function function,
                         cu::FunctionAttribute attribute) {
  int value = 0;
  driver.check(driver.funcGetAttribute(&value, attribute, function),
               "reading a kernel attribute");
  return value;
}

/// The driver reads as many parameters as the kernel declares: make sure that
/// the header passes the same, since fewer would have it read past our array.
/// How many there are PTX text says; the driver would only by a call that
/// fails, which tools such as the memory checker report.
static void checkParams(const Driver &driver, const Kernel &kernel,
                        const Image &image) {
  size_t count = kernel.params.size() + (kernel.hasQueue ? 2 : 0),
         maps = kernel.maps.size(), offset, size;
  bool canAsk = driver.funcGetParamInfo != nullptr;
  for (size_t i = 0; canAsk && i < count; ++i)
    if (driver.funcGetParamInfo(kernel.function, i, &offset, &size) !=
            cu::kSuccess ||
        offset != 8 * i || size != 8)
      fail(FA_RT_BAD_IMAGE,
           "kernel %s does not take %zu parameters of 8 bytes as its header "
           "says: number %zu differs; compile it anew",
           kernel.desc.kernel, count, i);
  for (size_t i = 0; canAsk && i < maps; ++i)
    if (driver.funcGetParamInfo(kernel.function, count + i, &offset, &size) !=
            cu::kSuccess ||
        // Aligned where the parameters lie, not from their beginning.
        offset < 8 * count + 128 * i || offset >= 8 * count + 128 * i + 64 ||
        size != 128)
      fail(FA_RT_BAD_IMAGE,
           "kernel %s does not take %zu tensor maps after %zu parameters of 8 "
           "bytes as its header says: number %zu differs; compile it anew",
           kernel.desc.kernel, maps, count, i);
  int declared =
      image.isPTX ? countParameters(image.code, kernel.desc.kernel) : -1;
  if (declared > static_cast<int>(count + maps))
    fail(FA_RT_BAD_IMAGE,
         "kernel %s takes %d parameters, more than the %zu parameters and %zu "
         "tensor maps of its header; compile it anew",
         kernel.desc.kernel, declared, count, maps);
}

/// Checks the launch's shared memory against the device, and opts into it.
static void reserveSharedMemory(const fa_rt_program &program,
                                const LaunchDecl &decl, const Kernel &kernel,
                                const fa_rt_device_desc &device) {
  constexpr int64_t kWithoutOptIn = 48 * 1024;
  const fa_rt_launch_desc &desc = kernel.desc;
  int64_t total = int64_t(desc.dynamic_smem) + desc.static_smem;
  if (total > device.smem_optin)
    fail(FA_RT_INVALID_ARGUMENT,
         "kernel %s needs %lld bytes of shared memory (%d dynamic, %d static) "
         "but device %d (%s) allows %d for a block; compile for this device or "
         "with smaller tiles",
         desc.kernel, static_cast<long long>(total), desc.dynamic_smem,
         desc.static_smem, program.device, device.name, device.smem_optin);
  if (total <= kWithoutOptIn)
    return;
  // Launches of one kernel share the attribute: it takes the largest.
  int largest = 0;
  for (const LaunchDecl &other : program.header.launches)
    if (other.kernel == decl.kernel)
      largest = std::max(largest, other.smem);
  program.driver.check(
      program.driver.funcSetAttribute(kernel.function,
                                      cu::kFuncMaxDynamicShared, largest),
      format("reserving %d bytes of shared memory for kernel %s", largest,
             desc.kernel)
          .c_str());
}

static Kernel resolveKernel(const fa_rt_program &program, const Image &image,
                            const LaunchDecl &decl,
                            const fa_rt_device_desc &device) {
  const Driver &driver = program.driver;
  Kernel kernel;
  for (int index : decl.args) {
    size_t tensor = static_cast<size_t>(index);
    uint32_t words =
        1 + 2 * static_cast<uint32_t>(program.header.tensors[tensor].rank);
    for (uint32_t i = 0; i < words; ++i)
      kernel.params.push_back(program.offsets[tensor] + i);
  }
  kernel.maps = decl.maps;
  kernel.hasQueue = decl.hasQueue;
  kernel.maxGrid = static_cast<unsigned>(decl.waves * device.sm_count);
  cu::Result result = driver.moduleGetFunction(&kernel.function, program.module,
                                               decl.kernel.c_str());
  if (result != cu::kSuccess)
    fail(FA_RT_BAD_IMAGE,
         "the image has no kernel '%s', which line %d of its header launches: "
         "%s; compile it anew",
         decl.kernel.c_str(), decl.line, driver.describe(result).c_str());

  fa_rt_launch_desc &desc = kernel.desc;
  desc.kernel = decl.kernel.c_str();
  desc.block = decl.block;
  desc.dynamic_smem = decl.smem;
  desc.static_smem =
      readAttribute(driver, kernel.function, cu::kFuncSharedBytes);
  desc.registers = readAttribute(driver, kernel.function, cu::kFuncRegisters);
  desc.local_bytes =
      readAttribute(driver, kernel.function, cu::kFuncLocalBytes);
  int maxThreads = readAttribute(driver, kernel.function, cu::kFuncMaxThreads);
  if (decl.block > maxThreads)
    fail(FA_RT_BAD_IMAGE,
         "kernel %s is launched with %d threads a block but its %d registers "
         "a thread allow %d; compile it with smaller tiles",
         desc.kernel, decl.block, desc.registers, maxThreads);
  checkParams(driver, kernel, image);
  reserveSharedMemory(program, decl, kernel, device);
  return kernel;
}

static void report(const fa_rt_program &program) {
  for (const Kernel &kernel : program.kernels)
    std::fprintf(stderr,
                 "fa: %s: kernel %s: block %d, shared memory %d+%d bytes, "
                 "%d registers, %d bytes local\n",
                 program.header.name.c_str(), kernel.desc.kernel,
                 kernel.desc.block, kernel.desc.dynamic_smem,
                 kernel.desc.static_smem, kernel.desc.registers,
                 kernel.desc.local_bytes);
}

/// The pool of a device that temporary buffers come from, made once in a
/// process. The device's default one gives everything back to the system at the
/// next synchronisation, and mapping it again takes a launch's time and more.
static cu::MemPool poolOf(const Driver &driver, cu::Device handle) {
  constexpr uint64_t kKept = uint64_t(256) << 20;
  static std::mutex mutex;
  static std::map<cu::Device, cu::MemPool> pools;
  if (!driver.memPoolCreate || !driver.memPoolSetAttribute ||
      !driver.memAllocFromPoolAsync)
    return nullptr;
  std::lock_guard<std::mutex> lock(mutex);
  auto [it, isNew] = pools.try_emplace(handle, nullptr);
  if (!isNew)
    return it->second;
  cu::MemPoolProps props;
  props.locationId = handle;
  cu::MemPool pool = nullptr;
  uint64_t kept = kKept;
  if (driver.memPoolCreate(&pool, &props) == cu::kSuccess &&
      driver.memPoolSetAttribute(pool, cu::kPoolReleaseThreshold, &kept) ==
          cu::kSuccess)
    it->second = pool;
  return it->second;
}

static fa_rt_program *loadProgram(int ordinal, std::string_view bytes,
                                  const fa_rt_load_options *given) {
  LoadOptions options = LoadOptions::from(given);
  Image image = parseImage(bytes, options.header);

  const Driver &driver = Driver::get();
  cu::Device handle = deviceHandle(driver, ordinal);
  fa_rt_device_desc device = describeDevice(driver, handle);
  checkTarget(image, ordinal, device);
  if (image.isPTX)
    checkPTXVersion(image.ptxVersion, device.driver_version);

  auto program = std::make_unique<fa_rt_program>(driver);
  program->device = ordinal;
  program->context = primaryContext(driver, ordinal);
  ScopedContext scope(driver, program->context);
  LoadedModule loaded = loadModule(driver, image, device, options);
  program->module = loaded.module;
  program->isFromCache = loaded.isFromCache;
  program->checkPointers = options.checkPointers;
  program->header = std::move(image.header);
  layOutWords(*program);
  for (const LaunchDecl &decl : program->header.launches)
    program->kernels.push_back(resolveKernel(*program, image, decl, device));

  bool hasQueues = false;
  for (const Kernel &kernel : program->kernels)
    hasQueues = hasQueues || kernel.hasQueue;
  if (hasQueues) {
    program->queues = std::make_unique<QueuePool>(driver);
    program->queues->allocate();
  }

  int hasPools = 0;
  program->hasAsyncAlloc =
      driver.memAllocAsync && driver.memFreeAsync &&
      driver.deviceGetAttribute(&hasPools, cu::kDevMemoryPools, handle) ==
          cu::kSuccess &&
      hasPools;
  if (program->hasAsyncAlloc)
    program->pool = poolOf(driver, handle);
  if (options.verbose)
    report(*program);
  return program.release();
}

fa_rt_status fa_rt_program_load(int device, const void *image, size_t size,
                                const fa_rt_load_options *options,
                                fa_rt_program **program) {
  return guarded([&] {
    requireNonNull(image, "the image");
    requireNonNull(program, "program");
    *program =
        loadProgram(device, {static_cast<const char *>(image), size}, options);
  });
}

static std::string readWholeFile(const char *path) {
  std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(path, "rb"),
                                              std::fclose);
  std::string contents;
  char buffer[4096];
  size_t count;
  while (file && (count = std::fread(buffer, 1, sizeof(buffer), file.get())))
    contents.append(buffer, count);
  if (!file || std::ferror(file.get()))
    fail(FA_RT_IO_ERROR, "cannot read the image %s: %s", path,
         std::strerror(errno));
  return contents;
}

fa_rt_status fa_rt_program_load_file(int device, const char *path,
                                     const fa_rt_load_options *options,
                                     fa_rt_program **program) {
  return guarded([&] {
    requireNonNull(path, "the path");
    requireNonNull(program, "program");
    *program = loadProgram(device, readWholeFile(path), options);
  });
}

void fa_rt_program_free(fa_rt_program *program) { delete program; }

fa_rt_status fa_rt_program_info(const fa_rt_program *program,
                                fa_rt_program_desc *desc) {
  return guarded([&] {
    requireNonNull(program, "program");
    requireNonNull(desc, "desc");
    const ImageHeader &header = program->header;
    desc->name = header.name.c_str();
    desc->target = header.targetName.c_str();
    desc->device = program->device;
    desc->num_args = header.numArgs;
    desc->num_temps =
        static_cast<int32_t>(header.tensors.size()) - header.numArgs;
    desc->num_launches = static_cast<int32_t>(program->kernels.size());
    desc->from_cache = program->isFromCache;
  });
}

static void checkIndex(int32_t index, size_t count, const char *what) {
  if (index < 0 || static_cast<size_t>(index) >= count)
    fail(FA_RT_INVALID_ARGUMENT, "%s %d does not exist: there are %zu", what,
         index, count);
}

fa_rt_status fa_rt_program_launch_info(const fa_rt_program *program,
                                       int32_t index, fa_rt_launch_desc *desc) {
  return guarded([&] {
    requireNonNull(program, "program");
    requireNonNull(desc, "desc");
    checkIndex(index, program->kernels.size(), "launch");
    *desc = program->kernels[static_cast<size_t>(index)].desc;
  });
}

fa_rt_status fa_rt_program_arg_info(const fa_rt_program *program, int32_t index,
                                    fa_rt_arg_desc *desc) {
  return guarded([&] {
    requireNonNull(program, "program");
    requireNonNull(desc, "desc");
    checkIndex(index, static_cast<size_t>(program->header.numArgs), "argument");
    const TensorDecl &decl =
        program->header.tensors[static_cast<size_t>(index)];
    desc->name = decl.name.c_str();
    desc->dtype = decl.dtype;
    desc->rank = decl.rank;
    std::copy(std::begin(decl.shape), std::end(decl.shape), desc->shape);
    desc->role = decl.role;
  });
}
