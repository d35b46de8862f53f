// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors as the interpreter holds them.

#ifndef FA_LIB_RUN_INTERPRETER_VALUES_H
#define FA_LIB_RUN_INTERPRETER_VALUES_H

#include "fa/Target/CPU/TensorRef.h"

#include "mlir/IR/Types.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <memory>
#include <optional>

namespace fa::run::interpreter {

/// What an element is, and how it is kept: floats as f32, rounded to their
/// type; integers, conditions and indices as i64, extended by their sign (a
/// condition is 0 or 1).
struct ElementKind {
  enum Rounding : uint8_t { None, F16, BF16 };
  bool isFloat = false;
  Rounding rounding = None;
  unsigned bits = 64;

  /// Nothing for types that have no place in a kernel, f64 among them.
  static std::optional<ElementKind> of(mlir::Type type);
  static std::optional<ElementKind> of(cpu::DType dtype);
  cpu::DType dtype() const;
};

/// To nearest, ties to even; NaN stays NaN.
float roundTo(ElementKind::Rounding rounding, float x);
void roundAll(ElementKind::Rounding rounding, float *x, int64_t count);
/// An integer of so many bits, extended.
int64_t wrap(int64_t x, unsigned bits);
/// What a number that nobody wrote is.
float poison();

/// A tensor, or a view of one. Nobody writes to what others can see, except to
/// a loop's shared results.
class Tensor {
public:
  Tensor() = default;
  /// Elements are not set.
  static Tensor make(ElementKind kind, llvm::ArrayRef<int64_t> shape);
  /// Floats are NaN.
  static Tensor makePoison(ElementKind kind, llvm::ArrayRef<int64_t> shape);
  /// A copy of a tensor outside.
  static Tensor from(const cpu::TensorRef &tensor, ElementKind kind);
  void copyTo(const cpu::TensorRef &tensor) const;

  bool isValid() const { return buffer != nullptr; }
  ElementKind kind() const { return elementKind; }
  int64_t rank() const { return dims.size(); }
  llvm::ArrayRef<int64_t> shape() const { return dims; }
  llvm::ArrayRef<int64_t> strides() const { return steps; }
  int64_t size() const;
  bool isContiguous() const;
  /// Whether this is the same view of the same memory.
  bool isSameAs(const Tensor &other) const {
    return buffer == other.buffer && offset == other.offset &&
           dims == other.dims && steps == other.steps;
  }
  /// Of the first element.
  float *floats() const { return buffer->floats.get() + offset; }
  int64_t *ints() const { return buffer->ints.get() + offset; }

  /// A view; what it covers must be inside. Dimensions of size 1 that `keeps`
  /// lacks are dropped.
  Tensor slice(llvm::ArrayRef<int64_t> offsets, llvm::ArrayRef<int64_t> sizes,
               llvm::ArrayRef<int64_t> strides) const;
  Tensor dropDims(llvm::function_ref<bool(unsigned)> drops) const;
  /// A view with the dimensions in reverse.
  Tensor transposed() const;
  /// A view of other shape; this must be contiguous.
  Tensor reshaped(llvm::ArrayRef<int64_t> shape) const;
  /// This or a copy of it that is contiguous.
  Tensor contiguous() const;
  /// A copy that nobody else sees.
  Tensor clone() const;
  /// Writes the elements of a tensor of the same shape and kind here.
  void assign(const Tensor &from) const;

private:
  struct Buffer {
    Buffer(bool isFloat, int64_t count);
    ~Buffer();
    bool isFloat;
    int64_t count;
    std::unique_ptr<float[]> floats;
    std::unique_ptr<int64_t[]> ints;
  };
  class Pool;
  std::shared_ptr<Buffer> buffer;
  int64_t offset = 0;
  llvm::SmallVector<int64_t, 4> dims, steps;
  ElementKind elementKind;
};

/// Whether a slice lies inside of a tensor of this shape.
bool isInside(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> offsets,
              llvm::ArrayRef<int64_t> sizes, llvm::ArrayRef<int64_t> strides);

/// Calls `run(a, b, count)` for each row of two strided spaces of one shape,
/// with the offsets of the row's first elements.
void forEachRow(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> a,
                llvm::ArrayRef<int64_t> b,
                llvm::function_ref<void(int64_t, int64_t, int64_t)> run);

} // namespace fa::run::interpreter

#endif // FA_LIB_RUN_INTERPRETER_VALUES_H
