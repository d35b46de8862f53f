// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Call.h"
#include "Compiler.h"

#include <pybind11/stl.h>

#include <cstring>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace py = pybind11;
using namespace fa::python;

// All state here is guarded by the interpreter's lock, and never freed: what it
// refers to may be gone when the process ends.

namespace {

//===----------------------------------------------------------------------===//
// The binary interface: DLPackExchangeAPI of DLPack 1.3
//===----------------------------------------------------------------------===//

constexpr int32_t kCPU = 1, kCUDA = 2;
/// The number of the one device that is no GPU.
constexpr int32_t kHost = -1;

struct DLTensor {
  void *data;
  int32_t deviceType, device;
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape;
  /// In elements; null for row-major.
  int64_t *strides;
  uint64_t byteOffset;
};

struct ExchangeAPI {
  uint32_t major, minor;
  void *previous;
  void *allocator, *fromObject, *toObject;
  /// Fills in a tensor that refers to the object; -1 with a Python exception.
  int (*view)(void *object, DLTensor *tensor);
  int (*currentStream)(int32_t deviceType, int32_t device, void **stream);
};

//===----------------------------------------------------------------------===//
// Libraries
//===----------------------------------------------------------------------===//

/// What is known of an array library.
struct Library {
  const ExchangeAPI *api;
  /// empty(shape, dtype=, device=), and the names of the last two; and a
  /// row-major array of an array's shape, type and device, or null.
  PyObject *empty, *keywords, *emptyLike;
  PyObject *f64, *f32, *f16, *bf16;
  /// index -> the library's device, kHost -> the CPU; and those that were asked
  /// for, by index + 1.
  PyObject *deviceOf;
  std::vector<PyObject *> devices;

  PyObject *dtype(int32_t type) const {
    return type == FA_RT_F64   ? f64
           : type == FA_RT_F32 ? f32
           : type == FA_RT_F16 ? f16
                               : bf16;
  }
  /// A borrowed reference; null with an exception.
  PyObject *device(int32_t index);
};

struct Known {
  PyTypeObject *type;
  Library *library;
};

std::vector<Known> &known() {
  static auto *all = new std::vector<Known>;
  return *all;
}

/// Null if the object's class, exactly, is of no such library.
Library *libraryOf(PyObject *object) {
  for (const Known &entry : known())
    if (Py_TYPE(object) == entry.type)
      return entry.library;
  return nullptr;
}

PyObject *Library::device(int32_t index) {
  size_t at = static_cast<size_t>(index - kHost);
  if (at >= devices.size())
    devices.resize(at + 1, nullptr);
  if (!devices[at])
    devices[at] = PyObject_CallFunction(deviceOf, "i", index);
  return devices[at];
}

int32_t dtypeOf(const DLTensor &tensor) {
  if (tensor.lanes != 1)
    return 0;
  switch (tensor.code << 8 | tensor.bits) {
  case 2 << 8 | 64:
    return FA_RT_F64;
  case 2 << 8 | 32:
    return FA_RT_F32;
  case 2 << 8 | 16:
    return FA_RT_F16;
  case 4 << 8 | 16:
    return FA_RT_BF16;
  case 0 << 8 | 32:
    return FA_RT_I32;
  case 0 << 8 | 64:
    return FA_RT_I64;
  case 0 << 8 | 8:
  case 1 << 8 | 8:
    return FA_RT_I8;
  case 6 << 8 | 8:
    return FA_RT_I1;
  }
  return 0;
}

/// Reads an array in the memory of a GPU or the CPU. False, without an
/// exception, if it is elsewhere or can't be described; `device` is its number.
bool read(const Library &library, PyObject *object, fa_rt_tensor &tensor,
          int32_t &device) {
  DLTensor view;
  if (library.api->view(object, &view) != 0) {
    PyErr_Clear();
    return false;
  }
  int32_t dtype = dtypeOf(view);
  bool isHost = view.deviceType == kCPU;
  if ((!isHost && (view.deviceType != kCUDA || view.device < 0)) || !dtype ||
      view.rank < 0 || view.rank > FA_RT_MAX_RANK)
    return false;
  void *data = static_cast<char *>(view.data) + view.byteOffset;
  device = isHost ? kHost : view.device;
  if (!view.strides) {
    tensor = fa_rt_tensor_contiguous(data, dtype, view.rank, view.shape);
    return true;
  }
  tensor.data = data;
  tensor.dtype = dtype;
  tensor.rank = view.rank;
  for (int32_t i = 0; i < view.rank; ++i) {
    tensor.shape[i] = view.shape[i];
    tensor.strides[i] = view.strides[i];
  }
  return true;
}

/// Whether elements of a result share memory.
bool isBroadcast(const fa_rt_tensor &tensor) {
  for (int32_t i = 0; i < tensor.rank; ++i)
    if (tensor.shape[i] > 1 && tensor.strides[i] == 0)
      return true;
  return false;
}

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

/// `lists`, if they are given, are used on their stream; on another one the
/// launch is refused.
Outcome launch(const Library &library, Runnable runnable, int32_t device,
               const fa_rt_tensor *tensors, int32_t count,
               const Lists *lists = nullptr) {
  if (runnable.kernel) {
    fa_status status;
    {
      py::gil_scoped_release release;
      status = Compiler::get().fa_kernel_run(runnable.kernel, tensors, count);
    }
    return status == FA_OK ? Outcome::Done : Outcome::Refused;
  }
  void *stream = nullptr;
  if (library.api->currentStream(kCUDA, device, &stream) != 0)
    return Outcome::Failed;
  if (lists && lists->stream != stream)
    return Outcome::Refused;
  fa_rt_status status =
      lists ? fa_rt_program_launch_prepared(runnable.program, tensors, count,
                                            stream, lists->buffer, 1)
            : fa_rt_program_launch(runnable.program, tensors, count, stream);
  if (status == FA_RT_OK)
    return Outcome::Done;
  if (status == FA_RT_INVALID_ARGUMENT)
    return Outcome::Refused;
  PyErr_SetString(runErrorClass, fa_rt_last_error());
  return Outcome::Failed;
}

//===----------------------------------------------------------------------===//
// What PyTorch sees
//===----------------------------------------------------------------------===//

/// How to ask whether PyTorch has to see a call itself: fa._run.arrays says
/// when.
struct Watch {
  /// Its tensors' class, and the other one that is as plain.
  PyTypeObject *plain, *parameter;
  /// Functions without arguments, none of which is to hold.
  std::vector<PyObject *> states;
  /// An object and the name of its attribute, which is to be below 0.
  PyObject *levelOwner, *levelName;
  /// Likewise a function: whether gradients are recorded, of tensors with an
  /// attribute of that name; and one of a tensor.
  PyObject *isRecording, *isRecorded, *isNegated;
  /// A function: whether the types of arguments are converted.
  PyObject *isConverting;

  bool isPlain(PyObject *object) const {
    return Py_TYPE(object) == plain || Py_TYPE(object) == parameter;
  }
  bool isTensor(PyObject *object) const {
    return isPlain(object) || PyType_IsSubtype(Py_TYPE(object), plain);
  }
  /// 1 or 0; -1 with an exception.
  int inGeneral() const;
  int ofTensors(PyObject *const *arrays, Py_ssize_t count) const;
};

/// Null while there is no PyTorch.
const Watch *watch = nullptr;

/// The truth of a new reference; -1 with an exception, as for null.
int truth(PyObject *value) {
  if (!value)
    return -1;
  int result = PyObject_IsTrue(value);
  Py_DECREF(value);
  return result;
}

int Watch::inGeneral() const {
  for (PyObject *state : states)
    if (int holds = truth(PyObject_CallNoArgs(state)))
      return holds;
  PyObject *level = PyObject_GetAttr(levelOwner, levelName);
  if (!level)
    return -1;
  long number = PyLong_AsLong(level);
  Py_DECREF(level);
  return PyErr_Occurred() ? -1 : number >= 0;
}

int Watch::ofTensors(PyObject *const *arrays, Py_ssize_t count) const {
  int recording = truth(PyObject_CallNoArgs(isRecording));
  if (recording < 0)
    return -1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!isPlain(arrays[i])) {
      if (isTensor(arrays[i]))
        return 1;
      continue;
    }
    PyObject *args[] = {nullptr, arrays[i]};
    if (int holds = truth(PyObject_Vectorcall(
            isNegated, args + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr)))
      return holds;
    if (recording)
      if (int holds = truth(PyObject_GetAttr(arrays[i], isRecorded)))
        return holds;
  }
  return 0;
}

/// is_seen(arrays) -> whether PyTorch has to see a call with the arrays,
/// the first of which is the query.
PyObject *isSeen(PyObject *, PyObject *const *args, Py_ssize_t count) {
  if (count != 1 || !PyTuple_Check(args[0]) || !PyTuple_GET_SIZE(args[0])) {
    PyErr_SetString(PyExc_TypeError, "expected a tuple of arrays");
    return nullptr;
  }
  PyObject *const *arrays = &PyTuple_GET_ITEM(args[0], 0);
  int seen = 0;
  if (watch && watch->isTensor(arrays[0]))
    seen = watch->inGeneral();
  if (watch && !seen)
    seen = watch->ofTensors(arrays, PyTuple_GET_SIZE(args[0]));
  return seen < 0 ? nullptr : PyBool_FromLong(seen);
}

/// Has calls with tensors of the classes watched; what is given is kept.
void watchTensors(const py::type &plain, const py::type &parameter,
                  const py::tuple &states, const py::object &levelOwner,
                  const py::str &levelName, const py::object &isRecording,
                  const py::str &isRecorded, const py::object &isNegated,
                  const py::object &isConverting) {
  auto kept = [](const py::object &object) { return object.inc_ref().ptr(); };
  auto *made = new Watch{reinterpret_cast<PyTypeObject *>(kept(plain)),
                         reinterpret_cast<PyTypeObject *>(kept(parameter)),
                         {},
                         kept(levelOwner),
                         kept(levelName),
                         kept(isRecording),
                         kept(isRecorded),
                         kept(isNegated),
                         kept(isConverting)};
  for (py::handle state : states)
    made->states.push_back(state.inc_ref().ptr());
  watch = made;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Captured tensors of a score and a mask function, as fa._trace.captured has
/// it.
constexpr int32_t kMaxCaptures = 16;
/// q, k, v, what is captured, out and lse.
constexpr int32_t kMaxArgs = 3 + kMaxCaptures + 2;

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
    /// The arguments that the lists were made of, and where they were.
    std::vector<std::pair<int32_t, const void *>> reads;

    bool isOf(const Inputs &inputs) const;
  };
  std::unordered_map<ListsKey, Call, HashBytes<ListsKey>> calls;
};

constexpr int32_t kCausal = 1, kLogSumExp = 2, kScaled = 4;

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

/// A new array of the library; null with an exception.
PyObject *makeArray(Library &library, int rank, const int64_t *shape,
                    int32_t dtype, int32_t device) {
  PyObject *where = library.device(device);
  if (!where)
    return nullptr;
  py::object sizes = py::reinterpret_steal<py::object>(PyTuple_New(rank));
  if (!sizes)
    return nullptr;
  for (int i = 0; i < rank; ++i) {
    PyObject *size = PyLong_FromLongLong(shape[i]);
    if (!size)
      return nullptr;
    PyTuple_SET_ITEM(sizes.ptr(), i, size);
  }
  PyObject *args[] = {nullptr, sizes.ptr(), library.dtype(dtype), where};
  return PyObject_Vectorcall(library.empty, args + 1,
                             1 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                             library.keywords);
}

/// A new array, read into `tensor`; null with an exception. `like` is null or
/// an array of the same shape, type and device, which takes half as long.
PyObject *allocate(Library &library, PyObject *like, int rank,
                   const int64_t *shape, int32_t dtype, int32_t device,
                   fa_rt_tensor &tensor) {
  PyObject *array = like && library.emptyLike
                        ? PyObject_CallOneArg(library.emptyLike, like)
                        : makeArray(library, rank, shape, dtype, device);
  int32_t itsDevice = 0;
  if (!array || (read(library, array, tensor, itsDevice) &&
                 itsDevice == device && tensor.dtype == dtype))
    return array;
  Py_DECREF(array);
  PyErr_SetString(runErrorClass, "the array library gave an array of another "
                                 "device or type than was asked for");
  return nullptr;
}

constexpr Py_ssize_t kCallArgs = 8;

bool PreparedCalls::Call::isOf(const Inputs &inputs) const {
  for (const auto &[index, data] : reads)
    if (index >= inputs.count || inputs.tensors[index].data != data)
      return false;
  return true;
}

ListsKey listsKeyOf(const Inputs &inputs) {
  const fa_rt_tensor *tensors = inputs.tensors;
  return {inputs.variant, tensors[0].shape[0], tensors[0].shape[2],
          tensors[1].shape[2]};
}

/// attention(q, k, v, is_causal, scale, return_lse, functions, captured) -> the
/// result, or None if the arrays or the variant are not known here. With
/// `prepared` what it knows counts.
PyObject *runKnown(PyObject *const *args, const PreparedCalls *prepared) {
  Inputs inputs;
  if (known().empty() || !readInputs(args, inputs))
    Py_RETURN_NONE;
  const Variant &variant = inputs.variant;
  const Programs *programs = nullptr;
  Lists made{};
  const Lists *lists = nullptr;
  if (prepared) {
    auto found = prepared->calls.find(listsKeyOf(inputs));
    if (found == prepared->calls.end() || !found->second.isOf(inputs))
      Py_RETURN_NONE;
    programs = &found->second.programs;
    made = found->second.lists;
    lists = &made;
  } else {
    auto found = variants().find(variant);
    if (found == variants().end())
      Py_RETURN_NONE;
    programs = &found->second;
  }
  for (const Extent &extent : programs->extents)
    if (!extent.admits(inputs.tensors))
      Py_RETURN_NONE;
  // Copied: allocating may run Python code that adds variants.
  const Runnable first = programs->first, second = programs->second;
  const py::object owners = programs->owners;
  Library &library = *inputs.library;
  const int64_t shape[] = {inputs.tensors[0].shape[0], variant.queryHeads,
                           inputs.tensors[0].shape[2], variant.valueDim};
  PyObject *like = variant.valueDim == variant.headDim ? args[0] : nullptr;
  py::object lse, out = py::reinterpret_steal<py::object>(
                      allocate(library, like, 4, shape, variant.dtype,
                               variant.device, inputs.tensors[inputs.count]));
  if (!out)
    return nullptr;
  bool hasLSE = variant.flags & kLogSumExp;
  if (hasLSE) {
    lse = py::reinterpret_steal<py::object>(
        allocate(library, nullptr, 3, shape,
                 variant.dtype == FA_RT_F64 ? FA_RT_F64 : FA_RT_F32,
                 variant.device, inputs.tensors[inputs.count + 1]));
    if (!lse)
      return nullptr;
  }
  int32_t numArgs = inputs.count + (hasLSE ? 2 : 1);
  Outcome outcome =
      launch(library, first, variant.device, inputs.tensors, numArgs, lists);
  if (outcome == Outcome::Refused && second)
    outcome = launch(library, second, variant.device, inputs.tensors, numArgs);
  if (outcome == Outcome::Failed)
    return nullptr;
  if (outcome == Outcome::Refused)
    Py_RETURN_NONE;
  return hasLSE ? PyTuple_Pack(2, out.ptr(), lse.ptr()) : out.release().ptr();
}

PyObject *refuseCount() {
  PyErr_SetString(PyExc_TypeError, "expected 8 arguments");
  return nullptr;
}

PyObject *runAttention(PyObject *, PyObject *const *args, Py_ssize_t count) {
  return count == kCallArgs ? runKnown(args, nullptr) : refuseCount();
}

/// attention(...) of arrays that nothing but fa has to see; else None, too.
PyObject *runUnseen(PyObject *const *args, const PreparedCalls *prepared) {
  if (watch && PyTuple_Check(args[7])) {
    PyObject *captured = args[7];
    int seen = watch->inGeneral();
    if (!seen)
      seen = truth(PyObject_CallNoArgs(watch->isConverting));
    if (!seen)
      seen = watch->ofTensors(args, 3);
    if (!seen && PyTuple_GET_SIZE(captured))
      seen = watch->ofTensors(&PyTuple_GET_ITEM(captured, 0),
                              PyTuple_GET_SIZE(captured));
    if (seen < 0)
      return nullptr;
    if (seen)
      Py_RETURN_NONE;
  }
  return runKnown(args, prepared);
}

PyObject *runUnseenAttention(PyObject *, PyObject *const *args,
                             Py_ssize_t count) {
  return count == kCallArgs ? runUnseen(args, nullptr) : refuseCount();
}

/// prepared_attention(calls, ...): unseen_attention by what the calls know.
PyObject *runPreparedAttention(PyObject *, PyObject *const *args,
                               Py_ssize_t count) {
  if (count != kCallArgs + 1)
    return refuseCount();
  auto *prepared = static_cast<PreparedCalls *>(
      PyCapsule_GetPointer(args[0], PreparedCalls::name));
  return prepared ? runUnseen(args + 1, prepared) : nullptr;
}

/// Has later calls like this one run the programs. Nothing happens if they
/// would not be of the usual kind.
void rememberAttention(
    py::args call, py::object first, py::object second,
    const std::vector<std::tuple<int32_t, int32_t, int64_t, int32_t>> &extents,
    const py::object &prepared, intptr_t buffer, intptr_t stream,
    const std::vector<int32_t> &reads) {
  PyObject *args[kCallArgs];
  if (call.size() != kCallArgs)
    throw py::type_error("expected 8 arguments");
  for (size_t i = 0; i < kCallArgs; ++i)
    args[i] = PyTuple_GET_ITEM(call.ptr(), static_cast<Py_ssize_t>(i));
  Inputs inputs;
  if (!readInputs(args, inputs))
    return;
  std::vector<Extent> asked;
  for (const auto &[coordinate, array, size, kind] : extents) {
    if (coordinate < 0 || coordinate > 3 || array >= inputs.count - 3 ||
        (array >= 0 && size < 0))
      throw py::value_error("expected extents of the call's arrays");
    asked.push_back({coordinate, array, size, kind});
  }
  auto runnableOf = [](const py::object &owner) -> Runnable {
    if (owner.is_none())
      return {};
    if (const fa_kernel *kernel = kernelOf(owner))
      return {nullptr, kernel};
    return {programOf(owner), nullptr};
  };
  Programs programs{runnableOf(first), runnableOf(second),
                    py::make_tuple(first, second), std::move(asked)};
  if (prepared.is_none()) {
    variants()[inputs.variant] = std::move(programs);
    return;
  }
  auto *calls = static_cast<PreparedCalls *>(
      PyCapsule_GetPointer(prepared.ptr(), PreparedCalls::name));
  if (!calls)
    throw py::error_already_set();
  Lists lists{reinterpret_cast<void *>(buffer),
              reinterpret_cast<void *>(stream)};
  std::vector<std::pair<int32_t, const void *>> made;
  for (int32_t index : reads) {
    if (index < 0 || index >= inputs.count)
      throw py::value_error("expected arguments of the call");
    made.push_back({index, inputs.tensors[index].data});
  }
  calls->calls[listsKeyOf(inputs)] = {std::move(programs), lists,
                                      std::move(made)};
}

/// Whether the arrays of the classes can be read; then calls are for them, too.
bool addLibrary(const py::sequence &types, const py::object &capsule,
                const py::object &empty, const py::dict &dtypes,
                const py::object &deviceOf, const py::object &emptyLike) {
  constexpr const char *kName = "dlpack_exchange_api";
  if (!PyCapsule_IsValid(capsule.ptr(), kName))
    return false;
  const auto *api = static_cast<const ExchangeAPI *>(
      PyCapsule_GetPointer(capsule.ptr(), kName));
  if (api->major != 1 || !api->view || !api->currentStream)
    return false;
  auto *library = new Library{
      api,
      py::object(empty).release().ptr(),
      py::make_tuple(py::str("dtype"), py::str("device")).release().ptr(),
      emptyLike.is_none() ? nullptr : py::object(emptyLike).release().ptr(),
      py::object(dtypes["f64"]).release().ptr(),
      py::object(dtypes["f32"]).release().ptr(),
      py::object(dtypes["f16"]).release().ptr(),
      py::object(dtypes["bf16"]).release().ptr(),
      py::object(deviceOf).release().ptr(),
      {}};
  py::object(capsule).release();
  for (py::handle type : types) {
    if (!PyType_Check(type.ptr()))
      throw py::type_error("expected classes");
    auto *entry = reinterpret_cast<PyTypeObject *>(type.inc_ref().ptr());
    known().insert(known().begin(), {entry, library});
  }
  return true;
}

PyMethodDef methods[] = {
    {"launch",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&launchKernel)),
     METH_FASTCALL, nullptr},
    {"attention",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&runAttention)),
     METH_FASTCALL, nullptr},
    {"unseen_attention",
     reinterpret_cast<PyCFunction>(
         reinterpret_cast<void (*)()>(&runUnseenAttention)),
     METH_FASTCALL, nullptr},
    {"prepared_attention",
     reinterpret_cast<PyCFunction>(
         reinterpret_cast<void (*)()>(&runPreparedAttention)),
     METH_FASTCALL, nullptr},
    {"is_seen",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&isSeen)),
     METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};

} // namespace

void fa::python::addCalls(py::module_ &m, py::object runError) {
  runErrorClass = runError.release().ptr();
  if (PyModule_AddFunctions(m.ptr(), methods) != 0)
    throw py::error_already_set();
  m.def("add_library", &addLibrary, py::arg("types"), py::arg("api"),
        py::arg("empty"), py::arg("dtypes"), py::arg("device_of"),
        py::arg("empty_like") = py::none());
  m.def("watch_tensors", &watchTensors, py::kw_only(), py::arg("plain"),
        py::arg("parameter"), py::arg("states"), py::arg("level_owner"),
        py::arg("level_name"), py::arg("is_recording"), py::arg("is_recorded"),
        py::arg("is_negated"), py::arg("is_converting"));
  m.def("remember_attention", &rememberAttention, py::kw_only(),
        py::arg("first"), py::arg("second"), py::arg("extents"),
        py::arg("prepared") = py::none(), py::arg("buffer") = 0,
        py::arg("stream") = 0, py::arg("reads") = std::vector<int32_t>());
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
