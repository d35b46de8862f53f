// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The hot path: checks the arguments, writes the kernel parameters into arrays
// on the stack, enqueues.

#include "Program.h"
#include "TensorMap.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <limits>

using namespace fa::rt;

static std::string shapeText(const TensorDecl &decl) {
  std::string text;
  for (int i = 0; i < decl.rank; ++i)
    text += (i ? "x" : "") +
            (decl.shape[i] < 0 ? "?" : std::to_string(decl.shape[i]));
  return decl.rank ? text : "scalar";
}

/// Throws INVALID_ARGUMENT that names the argument. Apart from the hot path.
__attribute__((noinline, cold, format(printf, 3, 4))) [[noreturn]] static void
failArg(const ImageHeader &header, size_t index, const char *fmt, ...) {
  char text[512];
  va_list list;
  va_start(list, fmt);
  std::vsnprintf(text, sizeof(text), fmt, list);
  va_end(list);
  fail(FA_RT_INVALID_ARGUMENT, "argument %zu (%s): %s", index,
       header.tensors[index].name.c_str(), text);
}

static long long print(int64_t value) { return static_cast<long long>(value); }

static bool isEmpty(const fa_rt_tensor &tensor) {
  for (int i = 0; i < tensor.rank; ++i)
    if (tensor.shape[i] == 0)
      return true;
  return false;
}

/// Sizes that kernels can count, and strides whose offsets fit 64 bits with
/// room for what a tile reaches beyond its tensor.
static void checkReach(const ImageHeader &header, size_t index,
                       const fa_rt_tensor &arg) {
  constexpr int64_t kMaxReach = int64_t(1) << 62;
  int64_t reach = static_cast<int64_t>(fa_rt_dtype_size(arg.dtype));
  for (int i = 0; i < arg.rank; ++i) {
    if (arg.shape[i] > FA_RT_MAX_EXTENT)
      failArg(header, index,
              "expected sizes of at most %lld (2^30 - 1), got %lld in "
              "dimension %d; kernels count with 32 bits: split the tensor, or "
              "give a captured one more dimensions and indices",
              print(FA_RT_MAX_EXTENT), print(arg.shape[i]), i);
    int64_t bytes;
    if (__builtin_mul_overflow(
            arg.strides[i],
            (arg.shape[i] - 1) *
                static_cast<int64_t>(fa_rt_dtype_size(arg.dtype)),
            &bytes) ||
        bytes > kMaxReach || bytes < -kMaxReach ||
        (reach += bytes < 0 ? -bytes : bytes) > kMaxReach)
      failArg(header, index,
              "expected elements less than 2^62 bytes apart, got the stride "
              "%lld in dimension %d of size %lld; pass the strides of memory "
              "that is there",
              print(arg.strides[i]), i, print(arg.shape[i]));
  }
}

static void checkArg(const ImageHeader &header, size_t index,
                     const fa_rt_tensor &arg) {
  const TensorDecl &decl = header.tensors[index];
  if (arg.dtype != decl.dtype)
    failArg(header, index, "expected element type %s, got %s (%d)",
            fa_rt_dtype_name(decl.dtype), fa_rt_dtype_name(arg.dtype),
            arg.dtype);
  if (arg.rank != decl.rank)
    failArg(header, index, "expected rank %d (%s), got %d", decl.rank,
            shapeText(decl).c_str(), arg.rank);
  for (int i = 0; i < decl.rank; ++i) {
    if (arg.shape[i] < 0)
      failArg(header, index,
              "expected a size of at least 0 in dimension %d, "
              "got %lld",
              i, print(arg.shape[i]));
    if (decl.shape[i] >= 0 && arg.shape[i] != decl.shape[i])
      failArg(header, index,
              "expected size %lld in dimension %d (%s), got %lld",
              print(decl.shape[i]), i, shapeText(decl).c_str(),
              print(arg.shape[i]));
  }
  if (isEmpty(arg))
    return;
  if (!arg.data)
    failArg(header, index,
            "data is NULL but the tensor has elements; pass a "
            "device pointer");
  checkReach(header, index, arg);
  if (!(decl.role & kRoleOut))
    return;
  for (int i = 0; i < decl.rank; ++i)
    if (arg.shape[i] > 1 && arg.strides[i] == 0)
      failArg(header, index,
              "an output has stride 0 in dimension %d of size %lld, so its "
              "elements share memory; pass a tensor that is not broadcast",
              i, print(arg.shape[i]));
}

static void checkSame(const ImageHeader &header, const SameDims &same,
                      const fa_rt_tensor *args) {
  size_t lhs = static_cast<size_t>(same.lhs.tensor);
  size_t rhs = static_cast<size_t>(same.rhs.tensor);
  int64_t left = args[lhs].shape[same.lhs.dim];
  int64_t right = args[rhs].shape[same.rhs.dim];
  if (left != right)
    failArg(header, rhs,
            "expected dimension %d to have the size of dimension %d of "
            "argument %zu (%s), got %lld and %lld",
            same.rhs.dim, same.lhs.dim, lhs, header.tensors[lhs].name.c_str(),
            print(right), print(left));
}

static void checkAlignment(const ImageHeader &header, const Requirement &need,
                           const fa_rt_tensor &arg) {
  size_t index = static_cast<size_t>(need.tensor);
  uint64_t align = static_cast<uint64_t>(need.value);
  uint64_t address = reinterpret_cast<uintptr_t>(arg.data);
  if (address % align)
    failArg(header, index,
            "expected data aligned to %lld bytes, got the address %#llx; copy "
            "the tensor",
            print(need.value), static_cast<unsigned long long>(address));
  int64_t size = static_cast<int64_t>(fa_rt_dtype_size(arg.dtype));
  for (int i = 0; i + 1 < arg.rank; ++i)
    // Wrapping is harmless: what it changes is a multiple of 2^64.
    if (arg.shape[i] > 1 && static_cast<uint64_t>(arg.strides[i]) *
                                static_cast<uint64_t>(size) % align)
      failArg(header, index,
              "expected the stride of dimension %d to be a multiple of %lld "
              "bytes, got %lld elements of %lld bytes; make the tensor "
              "contiguous",
              i, print(need.value), print(arg.strides[i]), print(size));
}

static void checkRequirement(const ImageHeader &header, const Requirement &need,
                             const fa_rt_tensor *args) {
  size_t index = static_cast<size_t>(need.tensor);
  const fa_rt_tensor &arg = args[index];
  if (isEmpty(arg))
    return;
  if (need.kind == Requirement::Align)
    return checkAlignment(header, need, arg);
  if (arg.shape[need.dim] > 1 && arg.strides[need.dim] != need.value)
    failArg(header, index,
            "expected stride %lld in dimension %d, got %lld; make the tensor "
            "contiguous",
            print(need.value), need.dim, print(arg.strides[need.dim]));
}

/// Asks the driver whose memory the argument is.
static void checkPointer(const fa_rt_program &program, size_t index,
                         const fa_rt_tensor &arg) {
  if (isEmpty(arg))
    return;
  const Driver &driver = program.driver;
  cu::DevicePtr address = reinterpret_cast<uintptr_t>(arg.data);
  unsigned type = 0, isManaged = 0;
  int owner = -1;
  if (driver.pointerGetAttribute(&type, cu::kPtrMemoryType, address) !=
      cu::kSuccess)
    failArg(program.header, index,
            "data (%p) is not memory that CUDA knows; copy it to device %d",
            arg.data, program.device);
  driver.pointerGetAttribute(&isManaged, cu::kPtrIsManaged, address);
  driver.pointerGetAttribute(&owner, cu::kPtrDeviceOrdinal, address);
  if (type != cu::kMemoryTypeHost && !isManaged && owner != program.device)
    failArg(program.header, index,
            "data is on device %d, the program on device %d; copy it there",
            owner, program.device);
}

static void checkArgs(const fa_rt_program &program, const fa_rt_tensor *args,
                      int32_t nargs) {
  const ImageHeader &header = program.header;
  if (nargs != header.numArgs)
    fail(FA_RT_INVALID_ARGUMENT, "program '%s' takes %d tensors, got %d",
         header.name.c_str(), header.numArgs, nargs);
  if (nargs)
    requireNonNull(args, "args");
  for (size_t i = 0; i < static_cast<size_t>(nargs); ++i)
    checkArg(header, i, args[i]);
  for (const SameDims &same : header.same)
    checkSame(header, same, args);
  for (const Requirement &need : header.requirements)
    checkRequirement(header, need, args);
  if (program.checkPointers)
    for (size_t i = 0; i < static_cast<size_t>(nargs); ++i)
      checkPointer(program, i, args[i]);
}

namespace {
/// What one launch call works with. Left uninitialised: most of it is unused.
struct Frame {
  explicit Frame(const fa_rt_program &program) : program(program) {}

  /// The arguments, and the sizes that follow of the temporary buffers.
  void fill(const fa_rt_tensor *args, int32_t nargs);
  bool evaluate(const Expr &expr, int64_t limit, int64_t &value) const;
  int64_t &size(size_t tensor, int dim) {
    return words[program.offsets[tensor] + 1 + static_cast<uint32_t>(dim)];
  }
  int64_t size(size_t tensor, int dim) const {
    return words[program.offsets[tensor] + 1 + static_cast<uint32_t>(dim)];
  }
  int64_t &stride(size_t tensor, int dim) {
    return size(tensor, program.header.tensors[tensor].rank + dim);
  }
  void addArg(size_t index, const fa_rt_tensor &arg);
  void sizeTemp(size_t index);

  const fa_rt_program &program;
  int64_t words[kMaxTensors * kMaxTensorWords];
  int64_t tempBytes[kMaxTensors];
  int64_t grids[kMaxLaunches];
};

/// Memory of the caller's for temporary buffers: for what launches prepare, and
/// for all. Null where it gives none.
struct CallerMemory {
  char *prepared = nullptr;
  char *workspace = nullptr;
  /// Of the workspace.
  int64_t bytes = 0;
};

/// Temporary buffers, given back in the order opposite to that they came in.
class Temps {
public:
  Temps(const fa_rt_program &program, cu::Stream stream)
      : program(program), stream(stream) {}
  ~Temps();
  Temps(const Temps &) = delete;
  Temps &operator=(const Temps &) = delete;
  void allocate(Frame &frame, CallerMemory memory);

private:
  struct Zeros;
  static cu::DevicePtr take(CallerMemory &memory, bool isPrepared,
                            int64_t bytes);
  cu::DevicePtr allocateOwn(size_t index, size_t size);

  const fa_rt_program &program;
  cu::Stream stream;
  struct Buffer {
    cu::DevicePtr data;
    bool isAsync;
  };
  Buffer buffers[kMaxTensors];
  size_t count = 0;
};
} // namespace

void Frame::addArg(size_t index, const fa_rt_tensor &arg) {
  words[program.offsets[index]] =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(arg.data));
  for (int i = 0; i < arg.rank; ++i) {
    size(index, i) = arg.shape[i];
    stride(index, i) = arg.strides[i];
  }
}

/// False if the product exceeds `limit`. A factor of 0 wins over any other.
bool Frame::evaluate(const Expr &expr, int64_t limit, int64_t &value) const {
  int64_t product = 1;
  bool fits = true;
  for (const Term &term : expr) {
    int64_t factor = term.value;
    if (!term.isConstant) {
      int64_t numerator =
          size(static_cast<size_t>(term.ref.tensor), term.ref.dim);
      factor = numerator / term.value + (numerator % term.value != 0);
    }
    if (factor == 0) {
      value = 0;
      return true;
    }
    fits = fits && product <= limit / factor;
    if (fits)
      product *= factor;
  }
  value = product;
  return fits;
}

void Frame::fill(const fa_rt_tensor *args, int32_t nargs) {
  size_t numArgs = static_cast<size_t>(nargs);
  for (size_t i = 0; i < numArgs; ++i)
    addArg(i, args[i]);
  for (size_t i = numArgs; i < program.header.tensors.size(); ++i)
    sizeTemp(i);
}

/// Sizes a temporary buffer, row-major.
void Frame::sizeTemp(size_t index) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const TensorDecl &decl = program.header.tensors[index];
  int64_t bytes = static_cast<int64_t>(fa_rt_dtype_size(decl.dtype));
  bool isEmpty = false, fits = true;
  for (int i = 0; i < decl.rank; ++i) {
    int64_t value = 0;
    fits = evaluate(decl.dims[static_cast<size_t>(i)], kMax, value) && fits;
    size(index, i) = value;
    isEmpty = isEmpty || value == 0;
  }
  int64_t elements = 1;
  for (int i = decl.rank - 1; i >= 0; --i) {
    stride(index, i) = elements;
    int64_t value = size(index, i);
    fits = fits && (value == 0 || elements <= kMax / bytes / value);
    if (fits && value)
      elements *= value;
  }
  if (!fits && !isEmpty)
    fail(FA_RT_INVALID_ARGUMENT,
         "temporary buffer %zu of program '%s' would have more than 2^63 - 1 "
         "bytes; pass smaller tensors",
         index, program.header.name.c_str());
  words[program.offsets[index]] = 0;
  tempBytes[index] = isEmpty ? 0 : elements * bytes;
}

static int64_t alignBuffer(int64_t bytes) {
  constexpr int64_t kAlign = 256;
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

Temps::~Temps() {
  bool isSynchronized = false;
  while (count) {
    const Buffer &buffer = buffers[--count];
    if (buffer.isAsync) {
      program.driver.memFreeAsync(buffer.data, stream);
      continue;
    }
    // Kernels may still use it: nothing but waiting makes this safe.
    if (!isSynchronized)
      program.driver.streamSynchronize(stream);
    isSynchronized = true;
    program.driver.memFree(buffer.data);
  }
}

/// Memory for a buffer of the caller's, null if it gave none.
cu::DevicePtr Temps::take(CallerMemory &memory, bool isPrepared,
                          int64_t bytes) {
  char *&next =
      isPrepared && memory.prepared ? memory.prepared : memory.workspace;
  if (!next)
    return 0;
  auto data = static_cast<cu::DevicePtr>(reinterpret_cast<uintptr_t>(next));
  next += alignBuffer(bytes);
  return data;
}

/// Memory for a buffer that is freed when the kernels have run.
cu::DevicePtr Temps::allocateOwn(size_t index, size_t size) {
  const Driver &driver = program.driver;
  Buffer buffer = {0, program.hasAsyncAlloc};
  cu::Result result = cu::kNotSupported;
  if (program.pool)
    result =
        driver.memAllocFromPoolAsync(&buffer.data, size, program.pool, stream);
  else if (buffer.isAsync)
    result = driver.memAllocAsync(&buffer.data, size, stream);
  if (result == cu::kNotSupported) {
    buffer.isAsync = false;
    result = driver.memAlloc(&buffer.data, size);
  }
  if (result != cu::kSuccess)
    driver.failed(result,
                  format("allocating temporary buffer %zu of %lld bytes", index,
                         print(static_cast<int64_t>(size)))
                      .c_str(),
                  FA_RT_LAUNCH_FAILED);
  buffers[count++] = buffer;
  return buffer.data;
}

/// Zeroes what follows each other in a caller's memory with one call. Buffers
/// of the driver's may do so by chance, and are not one.
struct Temps::Zeros {
  const Driver &driver;
  cu::Stream stream;
  cu::DevicePtr begin = 0, next = 0;
  size_t size = 0;

  void add(cu::DevicePtr data, size_t bytes, bool isOwn) {
    if (isOwn || data != next)
      flush();
    if (size == 0)
      begin = data;
    size = static_cast<size_t>(data - begin) + bytes;
    int64_t taken = alignBuffer(static_cast<int64_t>(bytes));
    next = data + static_cast<cu::DevicePtr>(taken);
    if (isOwn)
      flush();
  }
  void flush() {
    if (size)
      driver.check(driver.memsetD8Async(begin, 0, size, stream),
                   "zeroing a temporary buffer", FA_RT_LAUNCH_FAILED);
    size = 0;
  }
};

void Temps::allocate(Frame &frame, CallerMemory memory) {
  const std::vector<TensorDecl> &tensors = program.header.tensors;
  Zeros zeros{program.driver, stream};
  auto allocateOne = [&](size_t i) {
    int64_t bytes = frame.tempBytes[i];
    if (bytes == 0)
      return;
    size_t size = static_cast<size_t>(bytes);
    bool isKept = memory.prepared && tensors[i].isPrepared;
    cu::DevicePtr data = take(memory, tensors[i].isPrepared, bytes);
    bool isOwn = data == 0;
    if (isOwn)
      data = allocateOwn(i, size);
    frame.words[program.offsets[i]] = static_cast<int64_t>(data);
    if (tensors[i].isZeroed && !isKept)
      zeros.add(data, size, isOwn);
  };
  // In a caller's memory those that are zeroed lie side by side.
  auto isFirst = [&](size_t i) {
    return memory.workspace && tensors[i].isZeroed && !tensors[i].isPrepared;
  };
  size_t numArgs = static_cast<size_t>(program.header.numArgs);
  for (bool first : {true, false})
    for (size_t i = numArgs; i < tensors.size(); ++i)
      if (isFirst(i) == first)
        allocateOne(i);
  zeros.flush();
}

/// The number of elements of a result that lies in memory without gaps, its
/// dimensions in any order; fails for another one.
static int64_t countDense(const TensorDecl &decl, size_t number,
                          const fa_rt_tensor &arg) {
  int dims[FA_RT_MAX_RANK], count = 0;
  for (int d = arg.rank - 1; d >= 0; --d)
    if (arg.shape[d] != 1)
      dims[count++] = d;
  // The last of several dimensions with one stride comes first.
  std::sort(dims, dims + count, [&](int a, int b) {
    return std::make_pair(arg.strides[a], b) <
           std::make_pair(arg.strides[b], a);
  });
  int64_t elements = 1;
  for (int i = 0; i < count; ++i)
    elements *= arg.shape[dims[i]];
  int64_t inner = 1;
  for (int i = 0; elements != 0 && i < count; inner *= arg.shape[dims[i++]])
    if (arg.strides[dims[i]] != inner)
      fail(FA_RT_INVALID_ARGUMENT,
           "argument %zu (%s): expected a stride of %lld in dimension %d, got "
           "%lld; kernels add to it: pass it without gaps in memory",
           number, decl.name.c_str(), print(inner), dims[i],
           print(arg.strides[dims[i]]));
  return elements;
}

/// Zeroes results that kernels add to, whatever these do.
static void zeroResults(const fa_rt_program &program, const fa_rt_tensor *args,
                        cu::Stream stream) {
  for (size_t i = 0; i < static_cast<size_t>(program.header.numArgs); ++i) {
    const TensorDecl &decl = program.header.tensors[i];
    if (!decl.isZeroed)
      continue;
    const fa_rt_tensor &arg = args[i];
    int64_t elements = countDense(decl, i, arg);
    size_t bytes = static_cast<size_t>(elements) *
                   static_cast<size_t>(fa_rt_dtype_size(decl.dtype));
    if (bytes)
      program.driver.check(
          program.driver.memsetD8Async(
              static_cast<cu::DevicePtr>(reinterpret_cast<uintptr_t>(arg.data)),
              0, bytes, stream),
          "zeroing a result", FA_RT_LAUNCH_FAILED);
  }
}

/// Evaluates the grids. False if all of them are empty; else a kernel that has
/// work beside its grid's has a block at least.
static bool sizeGrids(const fa_rt_program &program, Frame &frame) {
  bool hasWork = false;
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    const LaunchDecl &decl = program.header.launches[i];
    if (!frame.evaluate(decl.grid, kMaxGrid, frame.grids[i]))
      fail(FA_RT_INVALID_ARGUMENT,
           "the grid of kernel %s exceeds the limit of %lld blocks; split the "
           "batch",
           decl.kernel.c_str(), print(kMaxGrid));
    hasWork = hasWork || frame.grids[i] != 0;
  }
  for (size_t i = 0; hasWork && i < program.kernels.size(); ++i)
    frame.grids[i] =
        std::max<int64_t>(frame.grids[i], program.header.launches[i].least);
  return hasWork;
}

static void launchKernels(const fa_rt_program &program, Frame &frame,
                          cu::Stream stream, bool isPrepared) {
  void *params[kMaxParamBytes / 8 + kMaxMaps + 2];
  EncodedMap maps[kMaxMaps];
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    const Kernel &kernel = program.kernels[i];
    if (frame.grids[i] == 0 ||
        (isPrepared && program.header.launches[i].prepares))
      continue;
    size_t numParams = kernel.params.size();
    for (size_t j = 0; j < numParams; ++j)
      params[j] = &frame.words[kernel.params[j]];
    for (size_t j = 0; j < kernel.maps.size(); ++j) {
      const MapDecl &decl =
          program.header.maps[static_cast<size_t>(kernel.maps[j])];
      encodeTensorMap(program.driver, program.header, decl,
                      frame.words +
                          program.offsets[static_cast<size_t>(decl.tensor)],
                      maps[j]);
    }
    QueuePool::Slot queue;
    if (kernel.hasQueue) {
      queue = program.queues->take(stream);
      params[numParams++] = &queue.counter;
      params[numParams++] = &queue.flag;
    }
    for (size_t j = 0; j < kernel.maps.size(); ++j)
      params[numParams++] = &maps[j];
    unsigned grid = static_cast<unsigned>(frame.grids[i]);
    if (kernel.maxGrid)
      grid = std::min(grid, kernel.maxGrid);
    unsigned block = static_cast<unsigned>(kernel.desc.block);
    unsigned smem = static_cast<unsigned>(kernel.desc.dynamic_smem);
    cu::Result result =
        program.driver.launchKernel(kernel.function, grid, 1, 1, block, 1, 1,
                                    smem, stream, params, nullptr);
    if (result != cu::kSuccess)
      QueuePool::giveBack(queue);
    if (result != cu::kSuccess)
      fail(result == cu::kOutOfMemory ? FA_RT_OUT_OF_MEMORY
                                      : FA_RT_LAUNCH_FAILED,
           "launching kernel %s (grid %u, block %u, %u bytes of shared memory) "
           "failed: %s; the cause may be earlier work on the device",
           kernel.desc.kernel, grid, block, smem,
           program.driver.describe(result).c_str());
  }
}

/// The bytes of the temporary buffers, of all or of those that are prepared.
static int64_t bytesOfTemps(const fa_rt_program &program, const Frame &frame,
                            bool preparedOnly) {
  const std::vector<TensorDecl> &tensors = program.header.tensors;
  int64_t total = 0;
  for (size_t i = static_cast<size_t>(program.header.numArgs);
       i < tensors.size(); ++i)
    if (!preparedOnly || tensors[i].isPrepared)
      total += alignBuffer(frame.tempBytes[i]);
  return total;
}

/// Launches that prepare are left out if `isPrepared`.
static void launch(const fa_rt_program &program, const fa_rt_tensor *args,
                   int32_t nargs, cu::Stream stream, CallerMemory memory = {},
                   bool isPrepared = false) {
  checkArgs(program, args, nargs);
  Frame frame(program);
  frame.fill(args, nargs);
  if (memory.workspace &&
      bytesOfTemps(program, frame, /*preparedOnly=*/false) > memory.bytes)
    fail(FA_RT_INVALID_ARGUMENT,
         "expected a workspace of at least %lld bytes, got %lld; ask "
         "fa_rt_program_workspace_size for these arguments",
         print(bytesOfTemps(program, frame, /*preparedOnly=*/false)),
         print(memory.bytes));
  bool hasWork = sizeGrids(program, frame);
  if (!hasWork && !program.header.zeroesResults)
    return;
  ScopedContext scope(program.driver, program.context);
  if (program.header.zeroesResults)
    zeroResults(program, args, stream);
  if (!hasWork)
    return;
  if (program.header.tensors.size() == static_cast<size_t>(nargs))
    return launchKernels(program, frame, stream, isPrepared);
  Temps temps(program, stream);
  temps.allocate(frame, memory);
  launchKernels(program, frame, stream, isPrepared);
}

fa_rt_status fa_rt_program_launch(const fa_rt_program *program,
                                  const fa_rt_tensor *args, int32_t nargs,
                                  void *stream) {
  return guarded([&] {
    requireNonNull(program, "program");
    launch(*program, args, nargs, static_cast<cu::Stream>(stream));
  });
}

static fa_rt_status sizeTemps(const fa_rt_program *program,
                              const fa_rt_tensor *args, int32_t nargs,
                              bool preparedOnly, int64_t *bytes) {
  return guarded([&] {
    requireNonNull(program, "program");
    requireNonNull(bytes, "bytes");
    checkArgs(*program, args, nargs);
    Frame frame(*program);
    frame.fill(args, nargs);
    *bytes = bytesOfTemps(*program, frame, preparedOnly);
  });
}

fa_rt_status fa_rt_program_prepared_size(const fa_rt_program *program,
                                         const fa_rt_tensor *args,
                                         int32_t nargs, int64_t *bytes) {
  return sizeTemps(program, args, nargs, /*preparedOnly=*/true, bytes);
}

fa_rt_status fa_rt_program_workspace_size(const fa_rt_program *program,
                                          const fa_rt_tensor *args,
                                          int32_t nargs, int64_t *bytes) {
  return sizeTemps(program, args, nargs, /*preparedOnly=*/false, bytes);
}

fa_rt_status fa_rt_program_launch_in(const fa_rt_program *program,
                                     const fa_rt_tensor *args, int32_t nargs,
                                     void *stream, void *workspace,
                                     int64_t bytes) {
  return guarded([&] {
    requireNonNull(program, "program");
    requireNonNull(workspace, "workspace");
    CallerMemory memory;
    memory.workspace = static_cast<char *>(workspace);
    memory.bytes = bytes;
    launch(*program, args, nargs, static_cast<cu::Stream>(stream), memory);
  });
}

fa_rt_status fa_rt_program_launch_prepared(const fa_rt_program *program,
                                           const fa_rt_tensor *args,
                                           int32_t nargs, void *stream,
                                           void *prepared,
                                           int32_t is_prepared) {
  return guarded([&] {
    requireNonNull(program, "program");
    requireNonNull(prepared, "prepared");
    CallerMemory memory;
    memory.prepared = static_cast<char *>(prepared);
    launch(*program, args, nargs, static_cast<cu::Stream>(stream), memory,
           is_prepared != 0);
  });
}

fa_rt_status fa_rt_program_launch_prepared_in(const fa_rt_program *program,
                                              const fa_rt_tensor *args,
                                              int32_t nargs, void *stream,
                                              void *prepared,
                                              int32_t is_prepared,
                                              void *workspace, int64_t bytes) {
  return guarded([&] {
    requireNonNull(program, "program");
    requireNonNull(prepared, "prepared");
    requireNonNull(workspace, "workspace");
    CallerMemory memory;
    memory.prepared = static_cast<char *>(prepared);
    memory.workspace = static_cast<char *>(workspace);
    memory.bytes = bytes;
    launch(*program, args, nargs, static_cast<cu::Stream>(stream), memory,
           is_prepared != 0);
  });
}

namespace {
/// A CUDA event.
struct Event {
  explicit Event(const Driver &driver) : driver(driver) {
    driver.check(driver.eventCreate(&event, 0), "creating an event");
  }
  ~Event() { driver.eventDestroy(event); }
  Event(const Event &) = delete;
  Event &operator=(const Event &) = delete;
  const Driver &driver;
  cu::Event event = nullptr;
};
} // namespace

fa_rt_status fa_rt_program_time(const fa_rt_program *program,
                                const fa_rt_tensor *args, int32_t nargs,
                                void *stream, int32_t repeats,
                                float *milliseconds) {
  return guarded([&] {
    requireNonNull(program, "program");
    requireNonNull(milliseconds, "milliseconds");
    if (repeats < 1)
      fail(FA_RT_INVALID_ARGUMENT, "repeats is %d; pass at least 1", repeats);
    const Driver &driver = program->driver;
    cu::Stream queue = static_cast<cu::Stream>(stream);
    ScopedContext scope(driver, program->context);
    Event start(driver), stop(driver);
    launch(*program, args, nargs, queue);
    driver.check(driver.eventRecord(start.event, queue), "recording an event");
    for (int32_t i = 0; i < repeats; ++i)
      launch(*program, args, nargs, queue);
    driver.check(driver.eventRecord(stop.event, queue), "recording an event");
    driver.check(driver.eventSynchronize(stop.event), "waiting for the program",
                 FA_RT_LAUNCH_FAILED);
    float total = 0;
    driver.check(driver.eventElapsedTime(&total, start.event, stop.event),
                 "reading the time");
    *milliseconds = total / static_cast<float>(repeats);
  });
}
