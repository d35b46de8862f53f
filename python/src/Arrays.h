// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Arrays of the libraries that have the C exchange API of DLPack 1.3 (PyTorch
// 2.11): read and made without a Python object in between; and what PyTorch has
// to see of them.

#ifndef FA_PYTHON_ARRAYS_H
#define FA_PYTHON_ARRAYS_H

#include "fa-runtime/fa_runtime.h"

#include <pybind11/pybind11.h>

#include <initializer_list>
#include <vector>

namespace fa::python {

/// Adds what Python needs of this file. `runError` is the class fa.RunError,
/// which is kept.
void addArrays(pybind11::module_ &m, PyObject *runError);

//===----------------------------------------------------------------------===//
// Libraries
//===----------------------------------------------------------------------===//

/// The number of the one device that is no GPU.
constexpr int32_t kHost = -1;

struct ExchangeAPI;

/// What is known of an array library.
struct Library {
  const ExchangeAPI *api;
  /// empty(shape, dtype=, device=), row-major, and the names of the last two;
  /// and an array of another one's type, device and sizes, but for the last one
  /// if that is given, with dimensions in its order in memory where its last
  /// one is the innermost; or null.
  PyObject *empty, *keywords, *emptyLike;
  /// The library's own functions that these two are of, which take less time,
  /// and one without arguments: whether what they give would be filled. All
  /// null where it has none.
  PyObject *ownEmpty, *ownEmptyLike, *isFilling;
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

/// Null if the object's class, exactly, is of no such library.
Library *libraryOf(PyObject *object);

/// Reads an array in the memory of a GPU or the CPU. False, without an
/// exception, if it is elsewhere or can't be described; `device` is its number.
bool read(const Library &library, PyObject *object, fa_rt_tensor &tensor,
          int32_t &device);

/// The caller's current stream on a GPU. False with an exception.
bool currentStream(const Library &library, int32_t device, void *&stream);

/// An array, and what was read of it.
struct Like {
  PyObject *array;
  const fa_rt_tensor *tensor;
};

/// A new row-major array, read into `tensor`; null with an exception.
PyObject *allocate(Library &library, int rank, const int64_t *shape,
                   int32_t dtype, int32_t device, fa_rt_tensor &tensor);

/// Likewise one of the type and the device of another, which has dimensions,
/// and of its sizes, but for the last one, which is `last`; its dimensions lie
/// in memory as `emptyLike` says, or row-major where the library has none.
PyObject *allocateLike(Library &library, Like like, int64_t last,
                       int32_t device, fa_rt_tensor &tensor);

//===----------------------------------------------------------------------===//
// What PyTorch sees
//===----------------------------------------------------------------------===//

/// What PyTorch has to do with a call: nothing, its autograd alone records it,
/// or it has to see the call itself. fa._run.arrays says when.
enum class Sight { Failed, Unseen, Recorded, Seen };

/// Arguments in a row.
struct Arrays {
  PyObject *const *first;
  Py_ssize_t count;
};

/// Of a call as it was given, with a query, a key and a value, and what its
/// functions captured: Seen, too, where torch.autocast converts one of the
/// inputs. Failed with an exception.
Sight sightOf(Arrays inputs, Arrays captured);

/// Of a call's gradient, whose arrays torch.autocast leaves as they are.
Sight sightOfGradient(std::initializer_list<Arrays> arguments);

} // namespace fa::python

#endif // FA_PYTHON_ARRAYS_H
