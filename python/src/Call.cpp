// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Call.h"
#include "Arrays.h"
#include "Compiler.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace py = pybind11;
using namespace fa::python;

// All state here is guarded by the interpreter's lock, and never freed: what it
// refers to may be gone when the process ends.

namespace {

PyObject *runErrorClass = nullptr;

/// A program on a GPU, or a kernel on the CPU; or neither.
struct Runnable {
  const fa_rt_program *program = nullptr;
  const fa_kernel *kernel = nullptr;

  explicit operator bool() const { return program || kernel; }
};

/// How a launch went: done, not for this way (without an exception: nothing was
/// computed), or failed with an exception.
enum class Outcome { Done, Refused, Failed };

/// Lists of blocks that were made, and the stream that they are there on.
struct Lists {
  void *buffer, *stream;
};

Outcome outcomeOf(fa_rt_status status) {
  if (status == FA_RT_OK)
    return Outcome::Done;
  if (status == FA_RT_INVALID_ARGUMENT)
    return Outcome::Refused;
  PyErr_SetString(runErrorClass, fa_rt_last_error());
  return Outcome::Failed;
}

Outcome runOnHost(const fa_kernel *kernel, const fa_rt_tensor *tensors,
                  int32_t count) {
  py::gil_scoped_release release;
  fa_status status = Compiler::get().fa_kernel_run(kernel, tensors, count);
  return status == FA_OK ? Outcome::Done : Outcome::Refused;
}

/// The caller's current stream. Refused where `lists`, if they are given, are
/// not to be used: on another stream than theirs, and in a graph, which may run
/// when they are gone.
Outcome streamOf(const Library &library, int32_t device, const Lists *lists,
                 void *&stream) {
  if (!currentStream(library, device, stream))
    return Outcome::Failed;
  if (!lists)
    return Outcome::Done;
  int32_t isCapturing = 0;
  if (lists->stream != stream)
    return Outcome::Refused;
  Outcome asked =
      outcomeOf(fa_rt_stream_is_capturing(device, stream, &isCapturing));
  return asked == Outcome::Done && isCapturing ? Outcome::Refused : asked;
}

/// A launch with `lists`, if they are given.
Outcome launch(const Library &library, Runnable runnable, int32_t device,
               const fa_rt_tensor *tensors, int32_t count,
               const Lists *lists = nullptr) {
  if (runnable.kernel)
    return runOnHost(runnable.kernel, tensors, count);
  void *stream = nullptr;
  if (Outcome found = streamOf(library, device, lists, stream);
      found != Outcome::Done)
    return found;
  return outcomeOf(
      lists ? fa_rt_program_launch_prepared(runnable.program, tensors, count,
                                            stream, lists->buffer, 1)
            : fa_rt_program_launch(runnable.program, tensors, count, stream));
}

/// A launch whose temporary buffers the library allocates: the stream's order
/// keeps them until it has run. `lists` as in `launch`.
Outcome launchInOwn(Library &library, Runnable runnable, int32_t device,
                    const fa_rt_tensor *tensors, int32_t count,
                    const Lists *lists) {
  if (runnable.kernel)
    return runOnHost(runnable.kernel, tensors, count);
  int64_t bytes = 0;
  Outcome sized = outcomeOf(
      fa_rt_program_workspace_size(runnable.program, tensors, count, &bytes));
  if (sized != Outcome::Done || bytes == 0)
    return sized != Outcome::Done
               ? sized
               : launch(library, runnable, device, tensors, count, lists);
  const int64_t words = (bytes + 3) / 4;
  fa_rt_tensor memory;
  py::object owner = py::reinterpret_steal<py::object>(
      allocate(library, 1, &words, FA_RT_F32, device, memory));
  if (!owner)
    return Outcome::Failed;
  void *stream = nullptr;
  if (Outcome found = streamOf(library, device, lists, stream);
      found != Outcome::Done)
    return found;
  return outcomeOf(
      lists ? fa_rt_program_launch_prepared_in(runnable.program, tensors, count,
                                               stream, lists->buffer, 1,
                                               memory.data, words * 4)
            : fa_rt_program_launch_in(runnable.program, tensors, count, stream,
                                      memory.data, words * 4));
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Captured tensors of a score and a mask function, as fa._trace.captured has
/// it.
constexpr int32_t kMaxCaptures = 16;
/// q, k, v and what is captured; out, lse and the gradients with respect to
/// them; the gradients with respect to q, k and v.
constexpr int32_t kMaxArgs = 3 + kMaxCaptures + 4 + 3;

/// Whether elements of a result share memory.
bool isBroadcast(const fa_rt_tensor &tensor) {
  for (int32_t i = 0; i < tensor.rank; ++i)
    if (tensor.shape[i] > 1 && tensor.strides[i] == 0)
      return true;
  return false;
}

/// A kernel's programs, of each device.
struct Launcher {
  static constexpr const char *name = "fa.launcher";
  struct Loaded {
    int32_t device;
    const fa_rt_program *program;
    py::object owner;
  };
  int32_t numArgs, numResults;
  std::vector<Loaded> programs;

  const fa_rt_program *find(int32_t device) const {
    for (const Loaded &loaded : programs)
      if (loaded.device == device)
        return loaded.program;
    return nullptr;
  }
};

/// launch(launcher, arrays) -> whether the arrays were of the usual kind and
/// the kernel was enqueued.
PyObject *launchKernel(PyObject *, PyObject *const *args, Py_ssize_t count) {
  if (count != 2 || !PyTuple_Check(args[1])) {
    PyErr_SetString(PyExc_TypeError, "expected a launcher and a tuple");
    return nullptr;
  }
  auto *launcher =
      static_cast<Launcher *>(PyCapsule_GetPointer(args[0], Launcher::name));
  if (!launcher)
    return nullptr;
  PyObject *arrays = args[1];
  int32_t numArgs = launcher->numArgs;
  if (PyTuple_GET_SIZE(arrays) != numArgs || numArgs < 1 || numArgs > kMaxArgs)
    Py_RETURN_FALSE;
  Library *library = libraryOf(PyTuple_GET_ITEM(arrays, 0));
  if (!library)
    Py_RETURN_FALSE;
  fa_rt_tensor tensors[kMaxArgs];
  int32_t device = 0;
  for (int32_t i = 0; i < numArgs; ++i) {
    PyObject *array = PyTuple_GET_ITEM(arrays, i);
    int32_t itsDevice = 0;
    if ((i && libraryOf(array) != library) ||
        !read(*library, array, tensors[i], itsDevice) ||
        (i && itsDevice != device) ||
        (i >= numArgs - launcher->numResults && isBroadcast(tensors[i])))
      Py_RETURN_FALSE;
    device = itsDevice;
  }
  const fa_rt_program *program = launcher->find(device);
  if (!program)
    Py_RETURN_FALSE;
  switch (launch(*library, {program, nullptr}, device, tensors, numArgs)) {
  case Outcome::Done:
    Py_RETURN_TRUE;
  case Outcome::Refused:
    Py_RETURN_FALSE;
  case Outcome::Failed:
    break;
  }
  return nullptr;
}

//===----------------------------------------------------------------------===//
// fa.attention
//===----------------------------------------------------------------------===//

/// All that chooses a program. Compared as bytes: it has no padding.
struct Variant {
  const Library *library;
  int64_t queryHeads, keyHeads, headDim, valueDim;
  double scale;
  int32_t dtype, device;
  /// `functions` is the number that Python gave the score and mask functions.
  int32_t flags, functions;

  bool operator==(const Variant &other) const {
    return std::memcmp(this, &other, sizeof(*this)) == 0;
  }
};
static_assert(sizeof(Variant) == 8 + 4 * 8 + 8 + 4 * 4);

/// Of what is compared as bytes.
template <typename T> struct HashBytes {
  size_t operator()(const T &key) const {
    static_assert(sizeof(T) % 8 == 0);
    uint64_t words[sizeof(T) / 8], hash = 0;
    std::memcpy(words, &key, sizeof(key));
    for (uint64_t word : words)
      hash = (hash ^ word ^ hash >> 32) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
  }
};

/// What a coordinate that indexes an array asks of its size in each call, as
/// fa._run.variant has it.
struct Extent {
  /// Of the coordinate's values: batch entries, heads, queries or keys.
  int32_t coordinate;
  /// Which of the captured arrays has the size, and in which dimension; or -1
  /// and the size.
  int32_t array;
  int64_t size;
  /// 0: at least as many elements as values; 1: those, or one; 2: as many, or
  /// one.
  int32_t kind;

  bool admits(const fa_rt_tensor *tensors) const {
    int64_t least =
        coordinate == 3 ? tensors[1].shape[2] : tensors[0].shape[coordinate];
    int64_t own = size;
    if (array >= 0) {
      const fa_rt_tensor &tensor = tensors[3 + array];
      if (size >= tensor.rank)
        return false;
      own = tensor.shape[size];
    }
    return least == 0 || own == least || (own > least && kind != 2) ||
           (own == 1 && kind != 0 && array >= 0);
  }
};

/// The programs of a variant; the second one takes strides that the first one
/// may refuse.
struct Programs {
  Runnable first, second;
  py::object owners;
  std::vector<Extent> extents;
  /// It makes lists of blocks, where none are there.
  bool makesLists = false;
};

using ProgramMap = std::unordered_map<Variant, Programs, HashBytes<Variant>>;

ProgramMap &variants() {
  static auto *all = new ProgramMap;
  return *all;
}

/// What lists of one mask are for: they depend on the lengths, too.
struct ListsKey {
  Variant variant;
  int64_t batch, queries, keys;

  bool operator==(const ListsKey &other) const {
    return std::memcmp(this, &other, sizeof(*this)) == 0;
  }
};

struct Inputs;

/// The calls of a mask whose arrays were promised not to change.
struct PreparedCalls {
  static constexpr const char *name = "fa.prepared_calls";
  struct Call {
    Programs programs;
    Lists lists;
    /// The arguments that the lists were made of, and what these were.
    std::vector<std::pair<int32_t, fa_rt_tensor>> reads;

    bool isOf(const Inputs &inputs) const;
  };
  std::unordered_map<ListsKey, Call, HashBytes<ListsKey>> calls;
};

/// The type of scores and of the log-sum-exp of operands of a type.
int32_t computeType(int32_t dtype) {
  return dtype == FA_RT_F64 ? FA_RT_F64 : FA_RT_F32;
}

constexpr int32_t kCausal = 1, kLogSumExp = 2, kScaled = 4;
/// Of a gradient; of one with respect to the log-sum-exp, too; of one that has
/// the same bits each time.
constexpr int32_t kGradient = 8, kOfLogSumExp = 16, kDeterministic = 32;

/// One call's inputs.
struct Inputs {
  Library *library;
  Variant variant;
  fa_rt_tensor tensors[kMaxArgs];
  /// q, k, v and what is captured.
  int32_t count;
};

/// Reads the tuple of captured tensors. An empty one is nothing to launch with.
bool readCaptured(PyObject *captured, Inputs &inputs) {
  inputs.count = 3;
  if (!PyTuple_Check(captured) || PyTuple_GET_SIZE(captured) > kMaxCaptures)
    return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(captured); ++i) {
    PyObject *array = PyTuple_GET_ITEM(captured, i);
    fa_rt_tensor &tensor = inputs.tensors[inputs.count++];
    int32_t device = 0;
    if (libraryOf(array) != inputs.library ||
        !read(*inputs.library, array, tensor, device) ||
        device != inputs.variant.device)
      return false;
    for (int32_t d = 0; d < tensor.rank; ++d)
      if (tensor.shape[d] == 0)
        return false;
  }
  return true;
}

/// Reads (q, k, v, is_causal, scale, return_lse, functions, captured). False,
/// without an exception, if they are not of the usual kind or don't fit
/// together. Whether what is captured fits the kernel is checked by its launch.
bool readInputs(PyObject *const *args, Inputs &inputs) {
  Library *library = libraryOf(args[0]);
  if (!library || libraryOf(args[1]) != library ||
      libraryOf(args[2]) != library)
    return false;
  auto isBool = [](PyObject *o) { return o == Py_True || o == Py_False; };
  if (!isBool(args[3]) || !isBool(args[5]) ||
      (args[4] != Py_None && !PyFloat_CheckExact(args[4])))
    return false;
  int32_t devices[3];
  fa_rt_tensor *tensors = inputs.tensors;
  for (int i = 0; i < 3; ++i)
    if (!read(*library, args[i], tensors[i], devices[i]) ||
        tensors[i].rank != 4 || tensors[i].dtype != tensors[0].dtype ||
        devices[i] != devices[0])
      return false;
  const int64_t *q = tensors[0].shape, *k = tensors[1].shape,
                *v = tensors[2].shape;
  if (q[0] != k[0] || k[0] != v[0] || k[1] != v[1] || k[2] != v[2] ||
      q[3] != k[3])
    return false;
  inputs.library = library;
  Variant &variant = inputs.variant;
  variant.library = library;
  variant.queryHeads = q[1];
  variant.keyHeads = k[1];
  variant.headDim = q[3];
  variant.valueDim = v[3];
  variant.scale = args[4] == Py_None ? 0 : PyFloat_AS_DOUBLE(args[4]);
  variant.dtype = tensors[0].dtype;
  variant.device = devices[0];
  variant.flags = (args[3] == Py_True ? kCausal : 0) |
                  (args[5] == Py_True ? kLogSumExp : 0) |
                  (args[4] != Py_None ? kScaled : 0);
  variant.functions = static_cast<int32_t>(PyLong_AsLong(args[6]));
  if (PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  return readCaptured(args[7], inputs);
}

constexpr Py_ssize_t kCallArgs = 8;

/// Whether two tensors are the same elements of memory.
static bool isSame(const fa_rt_tensor &x, const fa_rt_tensor &y) {
  return x.data == y.data && x.dtype == y.dtype && x.rank == y.rank &&
         std::equal(x.shape, x.shape + x.rank, y.shape) &&
         std::equal(x.strides, x.strides + x.rank, y.strides);
}

bool PreparedCalls::Call::isOf(const Inputs &inputs) const {
  return std::all_of(reads.begin(), reads.end(), [&](const auto &read) {
    return read.first < inputs.count &&
           isSame(inputs.tensors[read.first], read.second);
  });
}

ListsKey listsKeyOf(const Inputs &inputs) {
  const fa_rt_tensor *tensors = inputs.tensors;
  return {inputs.variant, tensors[0].shape[0], tensors[0].shape[2],
          tensors[1].shape[2]};
}

/// What runs a call. A copy: allocating may run Python code that adds others.
struct Known {
  Runnable first, second;
  py::object owners;
  std::optional<Lists> lists;

  const Lists *itsLists() const { return lists ? &*lists : nullptr; }
};

/// What runs a call with these inputs, if that is known. With `prepared` lists
/// that it has, or what makes none.
std::optional<Known> findKnown(const Inputs &inputs,
                               const PreparedCalls *prepared) {
  const Programs *programs = nullptr;
  std::optional<Lists> lists;
  if (prepared) {
    auto found = prepared->calls.find(listsKeyOf(inputs));
    if (found != prepared->calls.end() && found->second.isOf(inputs)) {
      programs = &found->second.programs;
      lists = found->second.lists;
    }
  }
  if (!programs) {
    auto found = variants().find(inputs.variant);
    if (found == variants().end() || (prepared && found->second.makesLists))
      return std::nullopt;
    programs = &found->second;
  }
  for (const Extent &extent : programs->extents)
    if (!extent.admits(inputs.tensors))
      return std::nullopt;
  return Known{programs->first, programs->second, programs->owners, lists};
}

/// attention(q, k, v, is_causal, scale, return_lse, functions, captured) -> the
/// result, or None if the arrays or the variant are not known here. With
/// `prepared` what it knows counts.
PyObject *runKnown(PyObject *const *args, const PreparedCalls *prepared) {
  Inputs inputs;
  if (!readInputs(args, inputs))
    Py_RETURN_NONE;
  const Variant &variant = inputs.variant;
  const std::optional<Known> known = findKnown(inputs, prepared);
  if (!known)
    Py_RETURN_NONE;
  const Runnable second = known->second;
  Library &library = *inputs.library;
  py::object lse, out = py::reinterpret_steal<py::object>(allocateLike(
                      library, {args[0], &inputs.tensors[0]}, variant.valueDim,
                      variant.device, inputs.tensors[inputs.count]));
  if (!out)
    return nullptr;
  bool hasLSE = variant.flags & kLogSumExp;
  if (hasLSE) {
    lse = py::reinterpret_steal<py::object>(allocate(
        library, 3, inputs.tensors[0].shape, computeType(variant.dtype),
        variant.device, inputs.tensors[inputs.count + 1]));
    if (!lse)
      return nullptr;
  }
  int32_t numArgs = inputs.count + (hasLSE ? 2 : 1);
  Outcome outcome = launch(library, known->first, variant.device,
                           inputs.tensors, numArgs, known->itsLists());
  if (outcome == Outcome::Refused && second)
    outcome = launch(library, second, variant.device, inputs.tensors, numArgs);
  if (outcome == Outcome::Failed)
    return nullptr;
  if (outcome == Outcome::Refused)
    Py_RETURN_NONE;
  return hasLSE ? PyTuple_Pack(2, out.ptr(), lse.ptr()) : out.release().ptr();
}

PyObject *refuseCount(Py_ssize_t expected) {
  return PyErr_Format(PyExc_TypeError, "expected %zd arguments", expected);
}

/// Null with an exception.
const PreparedCalls *preparedOf(PyObject *capsule) {
  return static_cast<const PreparedCalls *>(
      PyCapsule_GetPointer(capsule, PreparedCalls::name));
}

/// A method that calls `run` with so many arguments.
template <auto run, Py_ssize_t expected>
PyObject *runPlain(PyObject *, PyObject *const *args, Py_ssize_t count) {
  return count == expected ? run(args, nullptr) : refuseCount(expected);
}

/// Likewise one that begins with the calls of a prepared mask, of which `run`
/// uses what they know.
template <auto run, Py_ssize_t expected>
PyObject *runPrepared(PyObject *, PyObject *const *args, Py_ssize_t count) {
  if (count != expected + 1)
    return refuseCount(expected + 1);
  const PreparedCalls *prepared = preparedOf(args[0]);
  return prepared ? run(args + 1, prepared) : nullptr;
}

/// What stands for a result that only PyTorch's autograd has to see made.
PyObject *recordedMark = nullptr;

/// The captured arrays of a call's arguments; nothing if they are no tuple.
std::optional<Arrays> capturedOf(PyObject *const *args) {
  PyObject *captured = args[7];
  if (!PyTuple_Check(captured))
    return std::nullopt;
  const Py_ssize_t count = PyTuple_GET_SIZE(captured);
  return Arrays{count ? &PyTuple_GET_ITEM(captured, 0) : nullptr, count};
}

/// attention(...) of arrays that nothing but fa has to see; None for others,
/// too, and `recordedMark` where autograd alone records the call.
PyObject *runUnseen(PyObject *const *args, const PreparedCalls *prepared) {
  const std::optional<Arrays> captured = capturedOf(args);
  if (!captured)
    Py_RETURN_NONE;
  switch (sightOf({args, 3}, *captured)) {
  case Sight::Failed:
    return nullptr;
  case Sight::Seen:
    Py_RETURN_NONE;
  case Sight::Recorded: {
    // What has no memory here, as on a device that fa does not know, or does
    // not fit, goes the long way.
    Inputs inputs;
    PyObject *result = readInputs(args, inputs) ? recordedMark : Py_None;
    Py_INCREF(result);
    return result;
  }
  case Sight::Unseen:
    break;
  }
  return runKnown(args, prepared);
}

//===----------------------------------------------------------------------===//
// The gradient of fa.attention
//===----------------------------------------------------------------------===//

/// A call's arguments; out, lse, the gradients with respect to them, of which
/// the last may be None; and whether bits are the same each time.
constexpr Py_ssize_t kGradientArgs = kCallArgs + 5;

/// Whether a kernel reads the array as it is: rows of unit stride, which begin
/// at 16 bytes on a GPU if they can be read as vectors of 16.
bool hasRows(const fa_rt_tensor &tensor, bool isHost) {
  const int32_t last = tensor.rank - 1;
  const auto size = static_cast<int64_t>(fa_rt_dtype_size(tensor.dtype));
  if (tensor.strides[last] != 1)
    return false;
  if (isHost || tensor.rank != 4 || tensor.shape[last] * size % 16 != 0)
    return true;
  int64_t places = reinterpret_cast<intptr_t>(tensor.data);
  for (int32_t i = 0; i < last; ++i)
    places |= tensor.strides[i] * size;
  return places % 16 == 0;
}

/// Reads the arguments of a gradient behind those of its call. False, without
/// an exception, as `readInputs`.
bool readGradientInputs(PyObject *const *args, Inputs &inputs) {
  if (!readInputs(args, inputs))
    return false;
  Variant &variant = inputs.variant;
  const bool isHost = variant.device == kHost;
  variant.flags = (variant.flags & ~kLogSumExp) | kGradient;
  if (args[kCallArgs + 3] != Py_None)
    variant.flags |= kOfLogSumExp;
  if (args[kCallArgs + 4] == Py_True)
    variant.flags |= kDeterministic;
  const int64_t *q = inputs.tensors[0].shape;
  for (int32_t i = 0; i < 4; ++i) {
    PyObject *array = args[kCallArgs + i];
    if (i == 3 && array == Py_None)
      break;
    const bool isRow = i % 2 == 1;
    fa_rt_tensor &tensor = inputs.tensors[inputs.count++];
    int32_t device = 0;
    if (libraryOf(array) != inputs.library ||
        !read(*inputs.library, array, tensor, device) ||
        device != variant.device || tensor.rank != (isRow ? 3 : 4) ||
        tensor.dtype != (isRow ? computeType(variant.dtype) : variant.dtype) ||
        !std::equal(q, q + 3, tensor.shape) ||
        (!isRow && tensor.shape[3] != variant.valueDim) ||
        !hasRows(tensor, isHost))
      return false;
  }
  return true;
}

/// attention_backward(..., out, lse, out_grad, lse_grad, deterministic) -> the
/// gradients with respect to q, k and v, or None as `attention` and of arrays
/// that something but fa has to see. With `prepared` what it knows counts.
PyObject *runKnownGradient(PyObject *const *args,
                           const PreparedCalls *prepared) {
  const std::optional<Arrays> captured = capturedOf(args);
  if (!captured)
    Py_RETURN_NONE;
  const Sight sight =
      sightOfGradient({{args, 3}, *captured, {args + kCallArgs, 4}});
  if (sight == Sight::Failed)
    return nullptr;
  Inputs inputs;
  if (sight != Sight::Unseen || !readGradientInputs(args, inputs))
    Py_RETURN_NONE;
  const std::optional<Known> known = findKnown(inputs, prepared);
  if (!known)
    Py_RETURN_NONE;
  py::object gradients = py::reinterpret_steal<py::object>(PyTuple_New(3));
  if (!gradients)
    return nullptr;
  for (int32_t i = 0; i < 3; ++i) {
    const fa_rt_tensor &as = inputs.tensors[i];
    PyObject *made =
        allocateLike(*inputs.library, {args[i], &as}, as.shape[3],
                     inputs.variant.device, inputs.tensors[inputs.count++]);
    if (!made)
      return nullptr;
    PyTuple_SET_ITEM(gradients.ptr(), i, made);
  }
  switch (launchInOwn(*inputs.library, known->first, inputs.variant.device,
                      inputs.tensors, inputs.count, known->itsLists())) {
  case Outcome::Done:
    return gradients.release().ptr();
  case Outcome::Refused:
    Py_RETURN_NONE;
  case Outcome::Failed:
    break;
  }
  return nullptr;
}

//===----------------------------------------------------------------------===//
// What is remembered
//===----------------------------------------------------------------------===//

/// Borrowed references to a call's arguments, of which there are so many.
void takeArguments(const py::args &call, PyObject **args, Py_ssize_t count) {
  if (PyTuple_GET_SIZE(call.ptr()) != count) {
    refuseCount(count);
    throw py::error_already_set();
  }
  std::copy_n(&PyTuple_GET_ITEM(call.ptr(), 0), count, args);
}

/// Of each: coordinate, array, size, kind, as `Extent` has them.
using Extents = std::vector<std::tuple<int32_t, int32_t, int64_t, int32_t>>;

std::vector<Extent> extentsOf(const Extents &given, int32_t numCaptured) {
  std::vector<Extent> extents;
  for (const auto &[coordinate, array, size, kind] : given) {
    if (coordinate < 0 || coordinate > 3 || array >= numCaptured ||
        (array >= 0 && size < 0))
      throw py::value_error("expected extents of the call's arrays");
    extents.push_back({coordinate, array, size, kind});
  }
  return extents;
}

Runnable runnableOf(const py::object &owner) {
  if (owner.is_none())
    return {};
  if (const fa_kernel *kernel = kernelOf(owner))
    return {nullptr, kernel};
  return {programOf(owner), nullptr};
}

/// Lists of blocks that programs made, or what would make them: the arguments
/// that they are made of, None where programs make none; where they are, if
/// `calls` is to know them, and the stream that they are there on.
struct MadeLists {
  const std::optional<std::vector<int32_t>> &reads;
  const py::object &calls;
  intptr_t buffer, stream;
};

void remember(const Inputs &inputs, Programs programs, const MadeLists &made) {
  programs.makesLists = made.reads.has_value();
  if (made.calls.is_none()) {
    variants()[inputs.variant] = std::move(programs);
    return;
  }
  auto *calls = static_cast<PreparedCalls *>(
      PyCapsule_GetPointer(made.calls.ptr(), PreparedCalls::name));
  if (!calls)
    throw py::error_already_set();
  PreparedCalls::Call call{std::move(programs),
                           {reinterpret_cast<void *>(made.buffer),
                            reinterpret_cast<void *>(made.stream)},
                           {}};
  for (int32_t index : made.reads.value_or(std::vector<int32_t>())) {
    if (index < 0 || index >= inputs.count)
      throw py::value_error("expected arguments of the call");
    call.reads.push_back({index, inputs.tensors[index]});
  }
  calls->calls[listsKeyOf(inputs)] = std::move(call);
}

/// Has later calls like this one, of so many arguments that `readAll` reads,
/// run the programs. Nothing happens if they would not be of the usual kind.
template <bool (*readAll)(PyObject *const *, Inputs &), Py_ssize_t count>
void rememberCall(py::args call, py::object first, py::object second,
                  const Extents &extents,
                  const std::optional<std::vector<int32_t>> &reads,
                  const py::object &prepared, intptr_t buffer,
                  intptr_t stream) {
  PyObject *args[count];
  takeArguments(call, args, count);
  Inputs inputs;
  if (!readAll(args, inputs))
    return;
  auto numCaptured = static_cast<int32_t>(PyTuple_GET_SIZE(args[7]));
  remember(inputs,
           {runnableOf(first), runnableOf(second),
            py::make_tuple(first, second), extentsOf(extents, numCaptured)},
           {reads, prepared, buffer, stream});
}

using FastCall = PyObject *(PyObject *, PyObject *const *, Py_ssize_t);

PyMethodDef methodOf(const char *name, FastCall *run) {
  return {name,
          reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run)),
          METH_FASTCALL, nullptr};
}

PyMethodDef methods[] = {
    methodOf("launch", &launchKernel),
    methodOf("attention", &runPlain<runKnown, kCallArgs>),
    methodOf("attention_with", &runPrepared<runKnown, kCallArgs>),
    methodOf("unseen_attention", &runPlain<runUnseen, kCallArgs>),
    methodOf("prepared_attention", &runPrepared<runUnseen, kCallArgs>),
    methodOf("attention_backward", &runPlain<runKnownGradient, kGradientArgs>),
    methodOf("prepared_attention_backward",
             &runPrepared<runKnownGradient, kGradientArgs>),
    {nullptr, nullptr, 0, nullptr}};

} // namespace

void fa::python::addCalls(py::module_ &m, py::object runError) {
  runErrorClass = runError.release().ptr();
  addArrays(m, runErrorClass);
  recordedMark = py::str("recorded").release().ptr();
  m.attr("RECORDED") = py::reinterpret_borrow<py::object>(recordedMark);
  if (PyModule_AddFunctions(m.ptr(), methods) != 0)
    throw py::error_already_set();
  auto addRemember = [&m](const char *name, auto *remember) {
    m.def(name, remember, py::kw_only(), py::arg("first"),
          py::arg("second") = py::none(), py::arg("extents"),
          py::arg("reads") = py::none(), py::arg("prepared") = py::none(),
          py::arg("buffer") = 0, py::arg("stream") = 0);
  };
  addRemember("remember_attention", &rememberCall<readInputs, kCallArgs>);
  addRemember("remember_attention_backward",
              &rememberCall<readGradientInputs, kGradientArgs>);
  m.def("prepared_calls", [] {
    return py::capsule(new PreparedCalls, PreparedCalls::name, [](void *calls) {
      delete static_cast<PreparedCalls *>(calls);
    });
  });
  m.def("forget_calls", [](const py::capsule &calls) {
    static_cast<PreparedCalls *>(
        PyCapsule_GetPointer(calls.ptr(), PreparedCalls::name))
        ->calls.clear();
  });
  m.def(
      "launcher",
      [](int32_t numArgs, int32_t numResults) {
        return py::capsule(
            new Launcher{numArgs, numResults, {}}, Launcher::name,
            [](void *launcher) { delete static_cast<Launcher *>(launcher); });
      },
      py::arg("num_args"), py::arg("num_results"));
  m.def(
      "add_program",
      [](const py::capsule &launcher, int32_t device, py::object program) {
        const fa_rt_program *loaded = programOf(program);
        static_cast<Launcher *>(
            PyCapsule_GetPointer(launcher.ptr(), Launcher::name))
            ->programs.push_back({device, loaded, std::move(program)});
      },
      py::arg("launcher"), py::arg("device"), py::arg("program"));
}
