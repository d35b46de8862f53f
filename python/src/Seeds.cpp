// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Seeds.h"

#include "fa-runtime/fa_runtime.h"

namespace py = pybind11;

namespace {

/// The first two words of Philox4x32-10 of a 64-bit key and a counter's lower
/// half, whose upper one is 0, the first word on top. Source: Salmon et al.,
/// Parallel random numbers: as easy as 1, 2, 3 (2011).
uint64_t philox(uint64_t key, uint64_t counter) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = key >> 32;
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = counter >> 32, c2 = 0,
           c3 = 0;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t x = uint64_t(0xD2511F53) * c0, y = uint64_t(0xCD9E8D57) * c2;
    c0 = static_cast<uint32_t>(y >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(y);
    c2 = static_cast<uint32_t>(x >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(x);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return static_cast<uint64_t>(c0) << 32 | c1;
}

/// What torch.randint(0, 2**63 - 1, ()) gives on a GPU whose generator has this
/// seed and this offset, a multiple of 4: numbers are made four at a time.
int64_t seedOf(uint64_t seed, uint64_t offset) {
  return static_cast<int64_t>(philox(seed, offset / 4) %
                              ((uint64_t(1) << 63) - 1));
}

} // namespace

void fa::python::addSeeds(py::module_ &m, py::object runError) {
  m.def("seed_of", &seedOf, py::arg("seed"), py::arg("offset"));
  static PyObject *error = runError.release().ptr();
  m.def(
      "write_seed",
      [](int device, intptr_t stream, intptr_t to, uint64_t seed,
         uint64_t offset) {
        fa_rt_status status = fa_rt_stream_write_i64(
            device, reinterpret_cast<void *>(stream),
            reinterpret_cast<void *>(to), seedOf(seed, offset));
        if (status != FA_RT_OK && status != FA_RT_DRIVER_TOO_OLD) {
          PyErr_SetString(error, fa_rt_last_error());
          throw py::error_already_set();
        }
        return status == FA_RT_OK;
      },
      py::arg("device"), py::arg("stream"), py::arg("to"), py::arg("seed"),
      py::arg("offset"));
}
