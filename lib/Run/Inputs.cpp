// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Inputs.h"

#include "fa/Dialect/FA/IR/FA.h"
#include "fa/Dialect/FA/IR/Limits.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>
#include <unistd.h>

using namespace mlir;
using namespace fa;
using namespace fa::run;
using cpu::DType;
using cpu::TensorRef;

llvm::Error fa::run::runError(const std::string &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), "%s",
                                 message.c_str());
}

TensorRef TensorStore::allocate(DType dtype, std::vector<int64_t> shape,
                                const std::string &layout) {
  TensorRef t = TensorRef::contiguous(nullptr, dtype, std::move(shape));
  int64_t elements = std::max<int64_t>(t.size(), 1);
  if (layout == "bshd" && t.rank() == 4) {
    t.strides[1] = t.shape[3];
    t.strides[2] = t.shape[1] * t.shape[3];
    t.strides[0] = t.shape[2] * t.strides[2];
  } else if (layout == "strided") {
    int64_t stride = 2;
    for (int64_t d = t.rank() - 1; d >= 0; --d) {
      t.strides[d] = stride;
      stride *= t.shape[d] + 1;
    }
    elements = stride;
  }
  memory.emplace_back(elements * cpu::sizeOf(dtype) + 64);
  auto address = reinterpret_cast<uintptr_t>(memory.back().data());
  t.data = reinterpret_cast<void *>((address + 63) / 64 * 64);
  return t;
}

std::optional<DType> fa::run::dtypeOf(Type t) {
  std::pair<bool, DType> types[] = {
      {t.isF16(), DType::F16},       {t.isBF16(), DType::BF16},
      {t.isF32(), DType::F32},       {t.isF64(), DType::F64},
      {t.isInteger(1), DType::I1},   {t.isInteger(8), DType::I8},
      {t.isInteger(16), DType::I16}, {t.isInteger(32), DType::I32},
      {t.isInteger(64), DType::I64}};
  for (auto [is, dtype] : types)
    if (is)
      return dtype;
  return std::nullopt;
}

namespace {

/// A counter-based generator (splitmix64): element n of argument a is the same
/// on every machine and in every order.
struct Generator {
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  /// In (0, 1).
  double uniform() { return ((next() >> 11) + 0.5) * 0x1.0p-53; }
  double normal() {
    return std::sqrt(-2 * std::log(uniform())) *
           std::cos(6.283185307179586 * uniform());
  }
};

/// f(offset, index) of every element.
template <typename F> void forEachOffset(const TensorRef &t, F f) {
  std::vector<int64_t> index(t.shape.size(), 0);
  int64_t offset = 0;
  for (int64_t n = t.size(); n > 0; --n) {
    f(offset, index);
    for (int64_t d = t.rank() - 1; d >= 0; --d) {
      offset += t.strides[d];
      if (++index[d] < t.shape[d])
        break;
      offset -= t.strides[d] * t.shape[d];
      index[d] = 0;
    }
  }
}

/// What normal values of an operand of attention become so that mistakes show
/// (Options::data). Of its other dimensions only the last two matter.
class Telling {
public:
  Telling(AttentionOp attention, const Problem &problem)
      : attention(attention), keys(problem.keys), queries(problem.queries),
        few(std::max<int64_t>(1, problem.keys / 8) | 1) {}

  double operator()(BlockArgument argument, ArrayRef<int64_t> at,
                    ArrayRef<int64_t> shape, double x) {
    if (!attention || at.size() != 4)
      return x;
    int64_t row = at[2], column = at[3], dim = shape[3];
    bool isNear = row % 8 == (keys - 1) % 8;
    if (argument == attention.getQuery()) {
      if (dim == 1 || column > 1)
        return x / 2;
      bool strong = column == 0 || row == queries - 1;
      return strong ? std::sqrt(static_cast<double>(dim)) : 0;
    }
    if (argument == attention.getKey() && dim > 1 && column <= 1) {
      if (column == 0)
        return isNear ? 0 : -2;
      return row % few == (keys - 1) % few ? 0 : -8;
    }
    if (argument == attention.getValue())
      return column % 2 == 0 ? x + 1 : isNear ? x + 3 : x - 3;
    return x;
  }

private:
  AttentionOp attention;
  int64_t keys, queries, few;
};

/// The name of a dimension in --shape.
std::string nameOfDim(AttentionOp attention, BlockArgument argument,
                      int64_t dim) {
  if (attention && argument.getArgNumber() < 1000) {
    if (dim == 0 &&
        (argument == attention.getQuery() || argument == attention.getKey() ||
         argument == attention.getValue()))
      return "B";
    if (dim == 2 && argument == attention.getQuery())
      return "Sq";
    if (dim == 2 &&
        (argument == attention.getKey() || argument == attention.getValue()))
      return "Sk";
  }
  return "arg" + std::to_string(argument.getArgNumber()) + "." +
         std::to_string(dim);
}

/// The machine's memory, in bytes.
double memoryBytes() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}
std::string gibibytes(double bytes) {
  return llvm::formatv("{0:F1} GiB", bytes / (1 << 30)).str();
}

llvm::Expected<std::vector<int64_t>>
shapeOf(AttentionOp attention, BlockArgument argument, const Options &options) {
  std::vector<int64_t> shape;
  auto type = cast<RankedTensorType>(argument.getType());
  for (int64_t d = 0; d < type.getRank(); ++d) {
    std::string name = nameOfDim(attention, argument, d);
    auto given = options.shape.find(name);
    if (!type.isDynamicDim(d)) {
      if (given != options.shape.end() && given->second != type.getDimSize(d))
        return runError(
            "expected " + name + "=" + std::to_string(type.getDimSize(d)) +
            ", which the function fixes, got " + std::to_string(given->second) +
            "; make the dimension dynamic in the file");
      shape.push_back(type.getDimSize(d));
      continue;
    }
    if (given == options.shape.end())
      return runError("dimension " + std::to_string(d) + " of argument " +
                      std::to_string(argument.getArgNumber()) +
                      " is dynamic; give its size: --shape \"" + name +
                      "=...\"");
    if (given->second > kMaxExtent)
      return runError("expected " + name + " in [0, " +
                      std::to_string(kMaxExtent) + "], got " +
                      std::to_string(given->second) +
                      "; kernels count with 32 bits: choose a smaller size");
    shape.push_back(given->second);
  }
  // One argument may have an eighth of the memory: there are others, results
  // and references.
  double bytes = cpu::sizeOf(*dtypeOf(type.getElementType()));
  for (int64_t size : shape)
    bytes *= size;
  double most = memoryBytes() / 8;
  if (bytes > most)
    return runError("argument " + std::to_string(argument.getArgNumber()) +
                    " has " + gibibytes(bytes) + ", and this machine takes " +
                    gibibytes(most) + " of one: choose smaller sizes");
  return shape;
}

/// {fa.range = [lo, hi]} of an argument.
std::optional<std::pair<double, double>> rangeOf(func::FuncOp function,
                                                 unsigned argument) {
  auto range = function.getArgAttrOfType<ArrayAttr>(argument, "fa.range");
  if (!range || range.size() != 2)
    return std::nullopt;
  auto number = [](Attribute a) {
    if (auto i = dyn_cast<IntegerAttr>(a))
      return static_cast<double>(i.getInt());
    if (auto f = dyn_cast<FloatAttr>(a))
      return f.getValueAsDouble();
    return 0.0;
  };
  return std::make_pair(number(range[0]), number(range[1]));
}

void fill(const TensorRef &t, Generator random, const std::string &data,
          std::optional<std::pair<double, double>> range, int64_t keys,
          llvm::function_ref<double(ArrayRef<int64_t>, double)> change) {
  forEachOffset(t, [&](int64_t offset, ArrayRef<int64_t> index) {
    double x;
    if (!cpu::isFloat(t.dtype)) {
      auto [lo, hi] = range.value_or(std::make_pair(
          t.dtype == DType::I1 ? 0.0 : 1.0,
          t.dtype == DType::I1 ? 1.0 : std::max<double>(1, keys)));
      x = std::floor(lo + random.uniform() * (hi - lo + 1));
    } else if (range) {
      x = range->first + random.uniform() * (range->second - range->first);
    } else if (data == "uniform") {
      x = 2 * random.uniform() - 1;
    } else {
      x = data == "zero" ? 0 : random.normal() * (data == "large" ? 10 : 1);
      if (data == "telling")
        x = change(index, x);
    }
    storeElement(t, offset, x);
  });
}

} // namespace

llvm::Expected<std::vector<TensorRef>>
fa::run::makeInputs(func::FuncOp function, AttentionOp attention,
                    const Options &options, TensorStore &store,
                    Problem &problem) {
  std::vector<TensorRef> inputs;
  auto at = [&](Value v) -> std::vector<int64_t> {
    if (auto argument = dyn_cast<BlockArgument>(v))
      if (argument.getArgNumber() < inputs.size())
        return inputs[argument.getArgNumber()].shape;
    auto shape = cast<RankedTensorType>(v.getType()).getShape();
    return {shape.begin(), shape.end()};
  };
  for (BlockArgument argument : function.getArguments()) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    std::optional<DType> dtype =
        type ? dtypeOf(type.getElementType()) : std::nullopt;
    if (!dtype)
      return runError("expected argument " +
                      std::to_string(argument.getArgNumber()) +
                      " to be a ranked tensor of numbers; put scalars into a "
                      "tensor of rank 0");
    auto shape = shapeOf(attention, argument, options);
    if (!shape)
      return shape.takeError();
    inputs.push_back(store.allocate(*dtype, *shape, options.layout));
  }
  if (attention) {
    std::vector<int64_t> q = at(attention.getQuery()),
                         k = at(attention.getKey());
    problem = {q[0], q[1], q[2], k[2], q[3], attention.getValueDim()};
  }
  Telling telling(attention, problem);
  for (auto [i, t] : llvm::enumerate(inputs))
    fill(t, Generator{options.seed * 1000003 + i * 0x5851f42d4c957f2dull},
         options.data, rangeOf(function, i), problem.keys,
         [&, i = i](ArrayRef<int64_t> at, double x) {
           return telling(function.getArgument(i), at, inputs[i].shape, x);
         });
  return inputs;
}

TensorRef fa::run::makeNormal(DType dtype, std::vector<int64_t> shape,
                              unsigned number, const Options &options,
                              TensorStore &store) {
  TensorRef t = store.allocate(dtype, std::move(shape), options.layout);
  fill(t, Generator{options.seed * 1000003 + number * 0x5851f42d4c957f2dull},
       "normal", std::nullopt, 0,
       [](ArrayRef<int64_t>, double x) { return x; });
  return t;
}
