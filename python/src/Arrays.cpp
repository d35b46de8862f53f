// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Arrays.h"

#include <algorithm>

namespace py = pybind11;
using namespace fa::python;

// All state here is guarded by the interpreter's lock, and never freed: what it
// refers to may be gone when the process ends.

//===----------------------------------------------------------------------===//
// The binary interface: DLPackExchangeAPI of DLPack 1.3
//===----------------------------------------------------------------------===//

namespace {

constexpr int32_t kCPU = 1, kCUDA = 2;

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

} // namespace

struct fa::python::ExchangeAPI {
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

namespace {

PyObject *runErrorClass = nullptr;

struct Known {
  PyTypeObject *type;
  Library *library;
};

std::vector<Known> &known() {
  static auto *all = new std::vector<Known>;
  return *all;
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

} // namespace

Library *fa::python::libraryOf(PyObject *object) {
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

bool fa::python::read(const Library &library, PyObject *object,
                      fa_rt_tensor &tensor, int32_t &device) {
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

bool fa::python::currentStream(const Library &library, int32_t device,
                               void *&stream) {
  return library.api->currentStream(kCUDA, device, &stream) == 0;
}

namespace {

/// The truth of a new reference; -1 with an exception, as for null.
int truth(PyObject *value) {
  if (!value)
    return -1;
  int result = PyObject_IsTrue(value);
  Py_DECREF(value);
  return result;
}

/// Whether the library's own functions give arrays as they are wanted, nobody
/// having filled them: 1 or 0; -1 with an exception.
int isOwnUsual(const Library &library) {
  if (!library.isFilling)
    return 0;
  int fills = truth(PyObject_CallNoArgs(library.isFilling));
  return fills < 0 ? -1 : !fills;
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
  int isOwn = isOwnUsual(library);
  if (isOwn < 0)
    return nullptr;
  PyObject *args[] = {nullptr, sizes.ptr(), library.dtype(dtype), where};
  return PyObject_Vectorcall(isOwn ? library.ownEmpty : library.empty, args + 1,
                             1 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                             library.keywords);
}

/// Reads a new array, which is given on if it is what was asked for.
PyObject *readNew(const Library &library, PyObject *array, int32_t dtype,
                  int32_t device, fa_rt_tensor &tensor) {
  int32_t itsDevice = 0;
  if (!array || (read(library, array, tensor, itsDevice) &&
                 itsDevice == device && tensor.dtype == dtype))
    return array;
  Py_DECREF(array);
  PyErr_SetString(runErrorClass, "the array library gave an array of another "
                                 "device or type than was asked for");
  return nullptr;
}

/// Whether the last dimension is the innermost one, and no other could be.
bool endsInnermost(const fa_rt_tensor &tensor) {
  const int32_t last = tensor.rank - 1;
  return tensor.shape[last] > 1 && tensor.strides[last] == 1;
}

} // namespace

PyObject *fa::python::allocate(Library &library, int rank, const int64_t *shape,
                               int32_t dtype, int32_t device,
                               fa_rt_tensor &tensor) {
  return readNew(library, makeArray(library, rank, shape, dtype, device), dtype,
                 device, tensor);
}

PyObject *fa::python::allocateLike(Library &library, Like like, int64_t last,
                                   int32_t device, fa_rt_tensor &tensor) {
  const fa_rt_tensor &as = *like.tensor;
  const bool isAlike = last == as.shape[as.rank - 1];
  if (!library.emptyLike) {
    int64_t shape[FA_RT_MAX_RANK];
    std::copy_n(as.shape, as.rank, shape);
    shape[as.rank - 1] = last;
    return allocate(library, as.rank, shape, as.dtype, device, tensor);
  }
  // The first case of fa._run.arrays.in_order_of, which has all others.
  if (isAlike && endsInnermost(as)) {
    int isOwn = isOwnUsual(library);
    if (isOwn < 0)
      return nullptr;
    if (isOwn) {
      PyObject *array = readNew(
          library, PyObject_CallOneArg(library.ownEmptyLike, like.array),
          as.dtype, device, tensor);
      if (!array || endsInnermost(tensor))
        return array;
      Py_DECREF(array);
    }
  }
  PyObject *array =
      isAlike ? PyObject_CallOneArg(library.emptyLike, like.array)
              : PyObject_CallFunction(library.emptyLike, "OL", like.array,
                                      static_cast<long long>(last));
  return readNew(library, array, as.dtype, device, tensor);
}

//===----------------------------------------------------------------------===//
// What PyTorch sees
//===----------------------------------------------------------------------===//

namespace {

/// How to ask what PyTorch has to do with a call.
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
  /// A function without arguments: whether torch.autocast is on; and one of a
  /// call's query, key and value: whether it converts one of them.
  PyObject *isConverting, *isConverted;

  bool isPlain(PyObject *object) const {
    return Py_TYPE(object) == plain || Py_TYPE(object) == parameter;
  }
  bool isTensor(PyObject *object) const {
    return isPlain(object) || PyType_IsSubtype(Py_TYPE(object), plain);
  }
  /// Whether a mode or a transform is there: 1 or 0; -1 with an exception.
  int inGeneral() const;
  /// Whether torch.autocast converts one of the arrays, likewise.
  int converts(Arrays arrays) const;
  Sight ofTensors(Arrays arrays) const;
  /// Of all of them, modes and transforms apart.
  Sight ofAll(std::initializer_list<Arrays> all) const;
};

/// Null while there is no PyTorch.
const Watch *watch = nullptr;

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

int Watch::converts(Arrays arrays) const {
  int holds = truth(PyObject_CallNoArgs(isConverting));
  return holds <= 0 ? holds
                    : truth(PyObject_Vectorcall(isConverted, arrays.first,
                                                arrays.count, nullptr));
}

Sight Watch::ofTensors(Arrays arrays) const {
  int recording = truth(PyObject_CallNoArgs(isRecording));
  if (recording < 0)
    return Sight::Failed;
  Sight sight = Sight::Unseen;
  for (Py_ssize_t i = 0; i < arrays.count; ++i) {
    PyObject *array = arrays.first[i];
    if (!isPlain(array)) {
      if (isTensor(array))
        return Sight::Seen;
      continue;
    }
    PyObject *args[] = {nullptr, array};
    if (int holds = truth(PyObject_Vectorcall(
            isNegated, args + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr)))
      return holds < 0 ? Sight::Failed : Sight::Seen;
    if (!recording || sight == Sight::Recorded)
      continue;
    if (int holds = truth(PyObject_GetAttr(array, isRecorded))) {
      if (holds < 0)
        return Sight::Failed;
      sight = Sight::Recorded;
    }
  }
  return sight;
}

Sight Watch::ofAll(std::initializer_list<Arrays> all) const {
  Sight sight = Sight::Unseen;
  for (Arrays arrays : all) {
    Sight own = arrays.count ? ofTensors(arrays) : Sight::Unseen;
    if (own == Sight::Failed || own == Sight::Seen)
      return own;
    if (own == Sight::Recorded)
      sight = own;
  }
  return sight;
}

} // namespace

Sight fa::python::sightOf(Arrays inputs, Arrays captured) {
  if (!watch)
    return Sight::Unseen;
  int seen = watch->inGeneral();
  if (!seen)
    seen = watch->converts(inputs);
  if (seen)
    return seen < 0 ? Sight::Failed : Sight::Seen;
  return watch->ofAll({inputs, captured});
}

Sight fa::python::sightOfGradient(std::initializer_list<Arrays> arguments) {
  if (!watch)
    return Sight::Unseen;
  if (int seen = watch->inGeneral())
    return seen < 0 ? Sight::Failed : Sight::Seen;
  return watch->ofAll(arguments);
}

namespace {

/// is_seen(arrays) -> whether PyTorch has to see a call with the arrays,
/// the first of which is the query.
PyObject *isSeen(PyObject *, PyObject *const *args, Py_ssize_t count) {
  if (count != 1 || !PyTuple_Check(args[0]) || !PyTuple_GET_SIZE(args[0])) {
    PyErr_SetString(PyExc_TypeError, "expected a tuple of arrays");
    return nullptr;
  }
  Arrays arrays{&PyTuple_GET_ITEM(args[0], 0), PyTuple_GET_SIZE(args[0])};
  if (!watch)
    Py_RETURN_FALSE;
  int seen = watch->isTensor(arrays.first[0]) ? watch->inGeneral() : 0;
  if (seen)
    return seen < 0 ? nullptr : PyBool_FromLong(seen);
  Sight sight = watch->ofTensors(arrays);
  return sight == Sight::Failed ? nullptr
                                : PyBool_FromLong(sight != Sight::Unseen);
}

/// Has calls with tensors of the classes watched; what is given is kept.
void watchTensors(const py::type &plain, const py::type &parameter,
                  const py::tuple &states, const py::object &levelOwner,
                  const py::str &levelName, const py::object &isRecording,
                  const py::str &isRecorded, const py::object &isNegated,
                  const py::object &isConverting,
                  const py::object &isConverted) {
  auto kept = [](const py::object &object) { return object.inc_ref().ptr(); };
  auto *made = new Watch{reinterpret_cast<PyTypeObject *>(kept(plain)),
                         reinterpret_cast<PyTypeObject *>(kept(parameter)),
                         {},
                         kept(levelOwner),
                         kept(levelName),
                         kept(isRecording),
                         kept(isRecorded),
                         kept(isNegated),
                         kept(isConverting),
                         kept(isConverted)};
  for (py::handle state : states)
    made->states.push_back(state.inc_ref().ptr());
  watch = made;
}

/// Whether the arrays of the classes can be read; then calls are for them, too.
/// `own` is a tuple of `Library`'s own functions, or None.
bool addLibrary(const py::sequence &types, const py::object &capsule,
                const py::object &empty, const py::dict &dtypes,
                const py::object &deviceOf, const py::object &emptyLike,
                const py::object &own) {
  constexpr const char *kName = "dlpack_exchange_api";
  if (!PyCapsule_IsValid(capsule.ptr(), kName))
    return false;
  const auto *api = static_cast<const ExchangeAPI *>(
      PyCapsule_GetPointer(capsule.ptr(), kName));
  if (api->major != 1 || !api->view || !api->currentStream)
    return false;
  PyObject *ownFunctions[3] = {};
  if (!own.is_none())
    for (int i = 0; i < 3; ++i)
      ownFunctions[i] = py::object(own[py::int_(i)]).release().ptr();
  auto *library = new Library{
      api,
      py::object(empty).release().ptr(),
      py::make_tuple(py::str("dtype"), py::str("device")).release().ptr(),
      emptyLike.is_none() ? nullptr : py::object(emptyLike).release().ptr(),
      ownFunctions[0],
      ownFunctions[1],
      ownFunctions[2],
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
    {"is_seen",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&isSeen)),
     METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};

} // namespace

void fa::python::addArrays(py::module_ &m, PyObject *runError) {
  runErrorClass = runError;
  if (PyModule_AddFunctions(m.ptr(), methods) != 0)
    throw py::error_already_set();
  m.def("add_library", &addLibrary, py::arg("types"), py::arg("api"),
        py::arg("empty"), py::arg("dtypes"), py::arg("device_of"),
        py::arg("empty_like") = py::none(), py::arg("own") = py::none());
  m.def("watch_tensors", &watchTensors, py::kw_only(), py::arg("plain"),
        py::arg("parameter"), py::arg("states"), py::arg("level_owner"),
        py::arg("level_name"), py::arg("is_recording"), py::arg("is_recorded"),
        py::arg("is_negated"), py::arg("is_converting"),
        py::arg("is_converted"));
}
