// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Values.h"

#include "fa/Run/Compare.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

using namespace mlir;
using namespace fa::run;
using namespace fa::run::interpreter;
using fa::cpu::DType;
using fa::cpu::TensorRef;

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

std::optional<ElementKind> ElementKind::of(Type type) {
  if (type.isF32())
    return ElementKind{true, None, 32};
  if (type.isF16())
    return ElementKind{true, F16, 16};
  if (type.isBF16())
    return ElementKind{true, BF16, 16};
  if (type.isIndex())
    return ElementKind{false, None, 64};
  if (auto integer = dyn_cast<IntegerType>(type);
      integer && integer.getWidth() <= 64)
    return ElementKind{false, None, integer.getWidth()};
  return std::nullopt;
}

std::optional<ElementKind> ElementKind::of(DType dtype) {
  switch (dtype) {
  case DType::F16:
    return ElementKind{true, F16, 16};
  case DType::BF16:
    return ElementKind{true, BF16, 16};
  case DType::F32:
    return ElementKind{true, None, 32};
  case DType::F64:
    return std::nullopt;
  case DType::I1:
    return ElementKind{false, None, 1};
  case DType::I8:
    return ElementKind{false, None, 8};
  case DType::I16:
    return ElementKind{false, None, 16};
  case DType::I32:
    return ElementKind{false, None, 32};
  case DType::I64:
    return ElementKind{false, None, 64};
  }
  return std::nullopt;
}

DType ElementKind::dtype() const {
  if (isFloat)
    return rounding == F16    ? DType::F16
           : rounding == BF16 ? DType::BF16
                              : DType::F32;
  switch (bits) {
  case 1:
    return DType::I1;
  case 8:
    return DType::I8;
  case 16:
    return DType::I16;
  case 32:
    return DType::I32;
  default:
    return DType::I64;
  }
}

static float roundBF16(float x) {
  uint32_t bits = llvm::bit_cast<uint32_t>(x);
  if (std::isnan(x))
    return x;
  bits += 0x7FFF + (bits >> 16 & 1);
  return llvm::bit_cast<float>(bits & 0xFFFF0000u);
}

static float roundF16(float x) {
  uint32_t bits = llvm::bit_cast<uint32_t>(x), sign = bits & 0x80000000u,
           size = bits ^ sign;
  if (size >= 0x7F800000u)
    return x;
  // From the middle between the largest f16 and the next one on: infinite.
  if (size >= 0x477FF000u)
    return llvm::bit_cast<float>(sign | 0x7F800000u);
  if (size < 0x38800000u) {
    // Multiples of 2^-24, which is what an f32 between 0.5 and 1 can hold.
    float small = (llvm::bit_cast<float>(size) + 0.5f) - 0.5f;
    return llvm::bit_cast<float>(sign | llvm::bit_cast<uint32_t>(small));
  }
  size += 0xFFF + (size >> 13 & 1);
  return llvm::bit_cast<float>(sign | (size & ~0x1FFFu));
}

float interpreter::roundTo(ElementKind::Rounding rounding, float x) {
  switch (rounding) {
  case ElementKind::F16:
    return roundF16(x);
  case ElementKind::BF16:
    return roundBF16(x);
  case ElementKind::None:
    return x;
  }
  return x;
}

void interpreter::roundAll(ElementKind::Rounding rounding, float *x,
                           int64_t count) {
  if (rounding == ElementKind::F16)
    for (int64_t i = 0; i < count; ++i)
      x[i] = roundF16(x[i]);
  if (rounding == ElementKind::BF16)
    for (int64_t i = 0; i < count; ++i)
      x[i] = roundBF16(x[i]);
}

int64_t interpreter::wrap(int64_t x, unsigned bits) {
  if (bits >= 64)
    return x;
  return bits == 1 ? x & 1 : llvm::SignExtend64(x, bits);
}

float interpreter::poison() { return std::numeric_limits<float>::quiet_NaN(); }

//===----------------------------------------------------------------------===//
// Strided spaces
//===----------------------------------------------------------------------===//

void interpreter::forEachRow(
    ArrayRef<int64_t> shape, ArrayRef<int64_t> a, ArrayRef<int64_t> b,
    function_ref<void(int64_t, int64_t, int64_t)> run) {
  if (llvm::is_contained(shape, 0))
    return;
  if (shape.empty())
    return run(0, 0, 1);
  unsigned outer = shape.size() - 1;
  SmallVector<int64_t, 4> at(outer, 0);
  int64_t i = 0, j = 0;
  while (true) {
    run(i, j, shape.back());
    int d = static_cast<int>(outer) - 1;
    for (; d >= 0; --d) {
      i += a[d];
      j += b[d];
      if (++at[d] < shape[d])
        break;
      i -= a[d] * shape[d];
      j -= b[d] * shape[d];
      at[d] = 0;
    }
    if (d < 0)
      return;
  }
}

bool interpreter::isInside(ArrayRef<int64_t> shape, ArrayRef<int64_t> offsets,
                           ArrayRef<int64_t> sizes, ArrayRef<int64_t> strides) {
  for (auto [dim, offset, size, stride] :
       llvm::zip(shape, offsets, sizes, strides)) {
    if (size < 0 || offset < 0 || offset > dim)
      return false;
    int64_t last = 0;
    if (size > 0 &&
        (llvm::MulOverflow(size - 1, stride, last) ||
         llvm::AddOverflow(last, offset, last) || last < 0 || last >= dim))
      return false;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

namespace fa::run::interpreter {
/// Memory of tiles that are gone, for others of their size: a tile is large
/// enough for malloc to ask the system each time, which costs more than what is
/// computed. One for each thread.
class Tensor::Pool {
public:
  template <typename T> std::unique_ptr<T[]> take(int64_t count) {
    auto &free = ofType<T>()[count];
    if (free.empty())
      return std::unique_ptr<T[]>(new T[count]);
    std::unique_ptr<T[]> memory = std::move(free.back());
    free.pop_back();
    bytes -= count * sizeof(T);
    return memory;
  }
  template <typename T> void give(std::unique_ptr<T[]> memory, int64_t count) {
    if (bytes + count * sizeof(T) > kMostBytes)
      return;
    bytes += count * sizeof(T);
    ofType<T>()[count].push_back(std::move(memory));
  }
  static Pool &get() {
    static thread_local Pool pool;
    return pool;
  }

private:
  static constexpr size_t kMostBytes = 32 << 20;
  template <typename T>
  using Free = std::map<int64_t, std::vector<std::unique_ptr<T[]>>>;
  template <typename T> Free<T> &ofType() {
    if constexpr (std::is_same_v<T, float>)
      return floats;
    else
      return ints;
  }
  size_t bytes = 0;
  Free<float> floats;
  Free<int64_t> ints;
};
} // namespace fa::run::interpreter

Tensor::Buffer::Buffer(bool isFloat, int64_t count)
    : isFloat(isFloat), count(count) {
  if (isFloat)
    floats = Pool::get().take<float>(count);
  else
    ints = Pool::get().take<int64_t>(count);
}

Tensor::Buffer::~Buffer() {
  if (isFloat)
    Pool::get().give(std::move(floats), count);
  else
    Pool::get().give(std::move(ints), count);
}

int64_t Tensor::size() const {
  int64_t n = 1;
  for (int64_t d : dims)
    n *= d;
  return n;
}

static SmallVector<int64_t, 4> contiguousStrides(ArrayRef<int64_t> shape) {
  SmallVector<int64_t, 4> strides(shape.size());
  int64_t stride = 1;
  for (unsigned d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(1, shape[d]);
  }
  return strides;
}

Tensor Tensor::make(ElementKind kind, ArrayRef<int64_t> shape) {
  Tensor t;
  t.elementKind = kind;
  t.dims.assign(shape.begin(), shape.end());
  t.steps = contiguousStrides(shape);
  t.buffer = std::make_shared<Buffer>(kind.isFloat, t.size());
  return t;
}

Tensor Tensor::makePoison(ElementKind kind, ArrayRef<int64_t> shape) {
  Tensor t = make(kind, shape);
  if (kind.isFloat)
    std::fill_n(t.floats(), t.size(), poison());
  else // A number that is far from all coordinates.
    std::fill_n(t.ints(), t.size(),
                wrap(static_cast<int64_t>(0xA5A5A5A5A5A5A5A5ull), kind.bits));
  return t;
}

bool Tensor::isContiguous() const {
  int64_t stride = 1;
  for (unsigned d = dims.size(); d-- > 0;) {
    if (dims[d] != 1 && steps[d] != stride)
      return false;
    stride *= std::max<int64_t>(1, dims[d]);
  }
  return true;
}

Tensor Tensor::slice(ArrayRef<int64_t> offsets, ArrayRef<int64_t> sizes,
                     ArrayRef<int64_t> strides) const {
  Tensor t = *this;
  for (unsigned d = 0; d < dims.size(); ++d) {
    t.offset += offsets[d] * steps[d];
    t.dims[d] = sizes[d];
    t.steps[d] = steps[d] * strides[d];
  }
  return t;
}

Tensor Tensor::dropDims(function_ref<bool(unsigned)> drops) const {
  Tensor t = *this;
  t.dims.clear();
  t.steps.clear();
  for (unsigned d = 0; d < dims.size(); ++d)
    if (!drops(d)) {
      t.dims.push_back(dims[d]);
      t.steps.push_back(steps[d]);
    }
  return t;
}

Tensor Tensor::transposed() const {
  Tensor t = *this;
  std::reverse(t.dims.begin(), t.dims.end());
  std::reverse(t.steps.begin(), t.steps.end());
  return t;
}

Tensor Tensor::reshaped(ArrayRef<int64_t> shape) const {
  Tensor t = *this;
  t.dims.assign(shape.begin(), shape.end());
  t.steps = contiguousStrides(shape);
  return t;
}

Tensor Tensor::clone() const {
  Tensor t = make(elementKind, dims);
  t.assign(*this);
  return t;
}

Tensor Tensor::contiguous() const { return isContiguous() ? *this : clone(); }

template <typename T>
static void assignRows(T *to, const T *from, ArrayRef<int64_t> shape,
                       ArrayRef<int64_t> toSteps, ArrayRef<int64_t> fromSteps) {
  int64_t di = shape.empty() ? 1 : toSteps.back(),
          dj = shape.empty() ? 1 : fromSteps.back();
  forEachRow(shape, toSteps, fromSteps, [&](int64_t i, int64_t j, int64_t n) {
    if (di == 1 && dj == 1) {
      std::memcpy(to + i, from + j, n * sizeof(T));
      return;
    }
    for (int64_t x = 0; x < n; ++x)
      to[i + x * di] = from[j + x * dj];
  });
}

void Tensor::assign(const Tensor &from) const {
  if (elementKind.isFloat)
    assignRows(floats(), from.floats(), dims, steps, from.steps);
  else
    assignRows(ints(), from.ints(), dims, steps, from.steps);
}

//===----------------------------------------------------------------------===//
// Tensors outside
//===----------------------------------------------------------------------===//

/// An integer of a tensor outside. Of 64 bits a double has not all.
static int64_t loadInt(const TensorRef &t, int64_t offset) {
  if (t.dtype == DType::I64)
    return static_cast<const int64_t *>(t.data)[offset];
  auto x = static_cast<int64_t>(elementAt(t, offset));
  return t.dtype == DType::I1 ? x & 1 : x;
}

static void storeInt(const TensorRef &t, int64_t offset, int64_t x) {
  if (t.dtype == DType::I64)
    static_cast<int64_t *>(t.data)[offset] = x;
  else
    storeElement(t, offset, static_cast<double>(x));
}

Tensor Tensor::from(const TensorRef &tensor, ElementKind kind) {
  Tensor t = make(kind, tensor.shape);
  int64_t step = tensor.strides.empty() ? 1 : tensor.strides.back();
  forEachRow(tensor.shape, t.steps, tensor.strides,
             [&](int64_t i, int64_t j, int64_t n) {
               for (int64_t x = 0; x < n; ++x)
                 if (kind.isFloat)
                   t.floats()[i + x] =
                       static_cast<float>(elementAt(tensor, j + x * step));
                 else
                   t.ints()[i + x] = loadInt(tensor, j + x * step);
             });
  return t;
}

void Tensor::copyTo(const TensorRef &tensor) const {
  int64_t to = dims.empty() ? 1 : tensor.strides.back(),
          from = dims.empty() ? 1 : steps.back();
  forEachRow(dims, tensor.strides, steps, [&](int64_t i, int64_t j, int64_t n) {
    for (int64_t x = 0; x < n; ++x)
      if (elementKind.isFloat)
        storeElement(tensor, i + x * to, floats()[j + x * from]);
      else
        storeInt(tensor, i + x * to, ints()[j + x * from]);
  });
}
