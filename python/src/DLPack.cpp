// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "DLPack.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace py = pybind11;

//===----------------------------------------------------------------------===//
// The binary interface: "DLPack: Open In Memory Tensor Structure", 0.8 and 1.0
//===----------------------------------------------------------------------===//

namespace {

struct Device {
  int32_t type, index;
};

struct DataType {
  uint8_t code, bits;
  uint16_t lanes;
};

struct Tensor {
  void *data;
  Device device;
  int32_t rank;
  DataType dtype;
  int64_t *shape;
  /// In elements; null for row-major.
  int64_t *strides;
  uint64_t byteOffset;
};

/// The content of a capsule "dltensor".
struct Managed {
  static constexpr const char *name = "dltensor";
  Tensor tensor;
  void *context;
  void (*deleter)(Managed *);
};

/// The content of a capsule "dltensor_versioned".
struct Versioned {
  static constexpr const char *name = "dltensor_versioned";
  uint32_t major, minor;
  void *context;
  void (*deleter)(Versioned *);
  uint64_t flags;
  Tensor tensor;
};

constexpr uint64_t kReadOnly = 1, kCopied = 2;

constexpr uint8_t kFloat = 2, kBFloat = 4;

} // namespace

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// The sizes or strides as a tuple.
static py::tuple words(const int64_t *values, int32_t count) {
  py::tuple result(count);
  for (int32_t i = 0; i < count; ++i)
    result[i] = values[i];
  return result;
}

static py::tuple describe(const Tensor &t, bool writable) {
  uintptr_t pointer = reinterpret_cast<uintptr_t>(t.data) + t.byteOffset;
  py::object strides = py::none();
  if (t.strides)
    strides = words(t.strides, t.rank);
  return py::make_tuple(
      pointer, py::make_tuple(t.dtype.code, t.dtype.bits, t.dtype.lanes),
      words(t.shape, t.rank), strides, writable);
}

py::tuple fa::python::viewDLPack(const py::capsule &capsule) {
  const char *name = PyCapsule_GetName(capsule.ptr());
  std::string text = name ? name : "";
  if (text == Managed::name)
    return describe(capsule.get_pointer<Managed>()->tensor, true);
  if (text != Versioned::name)
    throw py::value_error("expected a new DLPack capsule, got one named '" +
                          text + "'; a capsule can be taken once");
  auto *managed = capsule.get_pointer<Versioned>();
  if (managed->major != 1)
    throw py::value_error("expected DLPack of version 1, got " +
                          std::to_string(managed->major) + "." +
                          std::to_string(managed->minor) +
                          "; the producer must heed max_version");
  return describe(managed->tensor, !(managed->flags & (kReadOnly | kCopied)));
}

//===----------------------------------------------------------------------===//
// Making
//===----------------------------------------------------------------------===//

namespace {
/// A managed tensor, its sizes, and what keeps its memory alive.
template <typename M> struct Export {
  M managed = {};
  std::vector<int64_t> shape, strides;
  py::object owner;

  static void free(M *managed) {
    // Consumers may be done on any thread, and after Python is.
    if (!Py_IsInitialized())
      return;
    py::gil_scoped_acquire gil;
    delete static_cast<Export *>(managed->context);
  }
};
} // namespace

/// A capsule that nobody took frees its tensor; one that was taken is renamed.
template <typename M> static void freeUntaken(PyObject *capsule) {
  if (!PyCapsule_IsValid(capsule, M::name))
    return;
  auto *managed = static_cast<M *>(PyCapsule_GetPointer(capsule, M::name));
  managed->deleter(managed);
}

static DataType typeNamed(const std::string &name) {
  if (name == "f64")
    return {kFloat, 64, 1};
  if (name == "f32")
    return {kFloat, 32, 1};
  if (name == "f16")
    return {kFloat, 16, 1};
  if (name == "bf16")
    return {kBFloat, 16, 1};
  throw py::value_error("expected element type f64, f32, f16 or bf16, got " +
                        name);
}

template <typename M>
static py::capsule makeCapsule(const py::tuple &view, const py::tuple &device,
                               py::object owner) {
  auto made = std::make_unique<Export<M>>();
  for (py::handle size : py::tuple(view[2]))
    made->shape.push_back(size.cast<int64_t>());
  for (py::handle stride : py::tuple(view[3]))
    made->strides.push_back(stride.cast<int64_t>());
  made->owner = std::move(owner);
  Tensor &t = made->managed.tensor;
  t.data = reinterpret_cast<void *>(view[0].cast<uintptr_t>());
  t.device = {device[0].cast<int32_t>(), device[1].cast<int32_t>()};
  t.rank = static_cast<int32_t>(made->shape.size());
  t.dtype = typeNamed(view[1].cast<std::string>());
  t.shape = made->shape.data();
  t.strides = made->strides.data();
  made->managed.context = made.get();
  made->managed.deleter = &Export<M>::free;
  if constexpr (std::is_same_v<M, Versioned>)
    made->managed.major = 1;
  PyObject *capsule = PyCapsule_New(&made->managed, M::name, &freeUntaken<M>);
  if (!capsule)
    throw py::error_already_set();
  made.release();
  return py::reinterpret_steal<py::capsule>(capsule);
}

py::capsule fa::python::exportDLPack(const py::tuple &view,
                                     const py::tuple &device, py::object owner,
                                     bool versioned) {
  return versioned ? makeCapsule<Versioned>(view, device, std::move(owner))
                   : makeCapsule<Managed>(view, device, std::move(owner));
}
