// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Target/CPU/Program.h"

#include "Image.h"
#include "Jit.h"
#include "fa/Dialect/FA/IR/Limits.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <mutex>

using namespace mlir;
using namespace fa;
using namespace fa::cpu;

namespace {

/// A buffer as compiled code takes it: two pointers, offset, sizes, strides.
std::vector<int64_t> describe(const TensorRef &t) {
  std::vector<int64_t> words;
  words.push_back(reinterpret_cast<int64_t>(t.data));
  words.push_back(reinterpret_cast<int64_t>(t.data));
  words.push_back(0);
  words.insert(words.end(), t.shape.begin(), t.shape.end());
  words.insert(words.end(), t.strides.begin(), t.strides.end());
  return words;
}

llvm::Error makeError(const std::string &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), "%s",
                                 message.c_str());
}

/// A stride that no element uses is 1: then the fast code serves.
TensorRef normalized(TensorRef t) {
  for (int64_t d = 0; d < t.rank(); ++d)
    if (t.shape[d] <= 1)
      t.strides[d] = 1;
  return t;
}

bool hasUnitInnerStride(const TensorRef &t) {
  return t.rank() == 0 || t.strides.back() == 1;
}

std::string printShape(llvm::ArrayRef<int64_t> shape) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "[";
  llvm::interleaveComma(shape, os, [&](int64_t s) {
    if (s < 0)
      os << "?";
    else
      os << s;
  });
  os << "]";
  return text;
}

std::optional<DType> dtypeOf(Type type) {
  if (type.isF16())
    return DType::F16;
  if (type.isBF16())
    return DType::BF16;
  if (type.isF32())
    return DType::F32;
  if (type.isF64())
    return DType::F64;
  if (type.isInteger(1))
    return DType::I1;
  if (type.isInteger(8))
    return DType::I8;
  if (type.isInteger(16))
    return DType::I16;
  if (type.isInteger(32))
    return DType::I32;
  if (type.isInteger(64))
    return DType::I64;
  return std::nullopt;
}

llvm::Expected<Signature> signatureOf(Type type, const std::string &name) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  std::optional<DType> dtype =
      tensor ? dtypeOf(tensor.getElementType()) : std::nullopt;
  if (!dtype) {
    std::string text;
    llvm::raw_string_ostream(text) << type;
    return makeError("expected " + name +
                     " to be a ranked tensor of f16, bf16, f32, f64, i1, i8, "
                     "i16, i32 or i64, got " +
                     text);
  }
  Signature s{name, *dtype, {}};
  for (int64_t d : tensor.getShape())
    s.shape.push_back(ShapedType::isDynamic(d) ? -1 : d);
  return s;
}

} // namespace

struct Program::Impl {
  Image image;
  /// Code for unit inner strides, and for any (made when first needed).
  std::unique_ptr<JitModule> fast, general;
  std::mutex mutex;

  static llvm::Expected<std::unique_ptr<Program>> load(Image image);
  llvm::Error check(const Signature &s, const TensorRef &t) const;
  llvm::Expected<JitModule *> moduleFor(llvm::ArrayRef<TensorRef> tensors);
};

/// Sizes that the analyses count with, and strides whose offsets fit 64 bits:
/// the same that a launch on a GPU takes.
static llvm::Error checkReach(const Signature &s, const TensorRef &t) {
  constexpr int64_t maxReach = int64_t(1) << 62;
  int64_t reach = 0;
  for (auto [size, stride] : llvm::zip(t.shape, t.strides)) {
    if (size > kMaxExtent)
      return makeError("expected sizes of " + s.name + " of at most " +
                       std::to_string(kMaxExtent) + " (2^30 - 1), got " +
                       printShape(t.shape) +
                       "; split the tensor, or give a captured one more "
                       "dimensions and indices");
    int64_t bytes;
    if (llvm::MulOverflow(stride, (size - 1) * sizeOf(t.dtype), bytes) ||
        bytes > maxReach || bytes < -maxReach ||
        (reach += std::abs(bytes)) > maxReach)
      return makeError("expected elements of " + s.name +
                       " less than 2^62 bytes apart, got the stride " +
                       std::to_string(stride) + " in a dimension of size " +
                       std::to_string(size) +
                       "; pass the strides of memory that is there");
  }
  return llvm::Error::success();
}

llvm::Error Program::Impl::check(const Signature &s, const TensorRef &t) const {
  if (t.dtype != s.dtype)
    return makeError("expected " + s.name + " of element type " +
                     nameOf(s.dtype) + ", got " + nameOf(t.dtype));
  bool fits = t.shape.size() == s.shape.size();
  for (size_t d = 0; fits && d < s.shape.size(); ++d)
    fits = t.shape[d] >= 0 && (s.shape[d] < 0 || s.shape[d] == t.shape[d]);
  if (!fits)
    return makeError("expected " + s.name + " of shape " + printShape(s.shape) +
                     ", got " + printShape(t.shape));
  if (t.strides.size() != t.shape.size())
    return makeError("expected " + std::to_string(t.shape.size()) +
                     " strides for " + s.name + ", got " +
                     std::to_string(t.strides.size()));
  if (llvm::is_contained(t.shape, 0))
    return llvm::Error::success();
  if (!t.data)
    return makeError("expected " + s.name + " to have memory, got null");
  return checkReach(s, t);
}

llvm::Expected<JitModule *>
Program::Impl::moduleFor(llvm::ArrayRef<TensorRef> tensors) {
  if (llvm::all_of(tensors, hasUnitInnerStride))
    return fast.get();
  std::lock_guard<std::mutex> lock(mutex);
  if (!general) {
    auto code = generateCode(
        image.text, image.function,
        {image.vectorBits, image.optimize, /*unitInnerStride=*/false});
    if (!code)
      return code.takeError();
    auto made = JitModule::load(*code, image.function);
    if (!made)
      return made.takeError();
    general = std::move(*made);
  }
  return general.get();
}

Program::Program(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
Program::~Program() = default;

/// The function that the options name, or the only public one.
static llvm::Expected<func::FuncOp> findFunction(ModuleOp module,
                                                 const std::string &name) {
  if (!name.empty()) {
    if (auto function = module.lookupSymbol<func::FuncOp>(name))
      return function;
    return makeError("no function @" + name +
                     " in the module; name one that is there");
  }
  func::FuncOp found;
  for (func::FuncOp function : module.getOps<func::FuncOp>()) {
    if (function.isExternal() || !function.isPublic())
      continue;
    if (found)
      return makeError("expected one public function, got @" +
                       found.getName().str() + " and @" +
                       function.getName().str() + "; name the one to compile");
    found = function;
  }
  if (!found)
    return makeError("expected a public function in the module, got none");
  return found;
}

llvm::Expected<std::unique_ptr<Program>>
Program::compile(ModuleOp module, const CompileOptions &options) {
  auto function = findFunction(module, options.function);
  if (!function)
    return function.takeError();
  Image image;
  image.function = function->getName().str();
  image.vectorBits = options.vectorBits;
  image.optimize = options.optimize;
  FunctionType type = function->getFunctionType();
  for (auto [i, t] : llvm::enumerate(type.getInputs())) {
    auto s = signatureOf(t, "argument " + std::to_string(i));
    if (!s)
      return s.takeError();
    image.inputs.push_back(std::move(*s));
  }
  for (auto [i, t] : llvm::enumerate(type.getResults())) {
    auto s = signatureOf(t, "result " + std::to_string(i));
    if (!s)
      return s.takeError();
    image.results.push_back(std::move(*s));
  }
  llvm::raw_string_ostream os(image.text);
  module.print(
      os, OpPrintingFlags().enableDebugInfo(false).printGenericOpForm(false));
  auto code = generateCode(
      image.text, image.function,
      {image.vectorBits, image.optimize, /*unitInnerStride=*/true});
  if (!code)
    return code.takeError();
  image.code = std::move(*code);
  return Impl::load(std::move(image));
}

llvm::Expected<std::unique_ptr<Program>> Program::Impl::load(Image image) {
  auto made = JitModule::load(image.code, image.function);
  if (!made)
    return made.takeError();
  auto impl = std::make_unique<Impl>();
  impl->image = std::move(image);
  impl->fast = std::move(*made);
  return std::unique_ptr<Program>(new Program(std::move(impl)));
}

llvm::Expected<std::string> Program::save() const {
  return impl->image.write();
}

llvm::Expected<std::unique_ptr<Program>> Program::load(llvm::StringRef bytes) {
  llvm::Expected<Image> image = Image::read(bytes);
  if (!image)
    return image.takeError();
  return Impl::load(std::move(*image));
}

unsigned Program::getNumInputs() const { return impl->image.inputs.size(); }
unsigned Program::getNumResults() const { return impl->image.results.size(); }

llvm::Expected<std::vector<TensorRef>>
Program::resultShapes(llvm::ArrayRef<TensorRef> inputs) const {
  if (inputs.size() != impl->image.inputs.size())
    return makeError("expected " + std::to_string(impl->image.inputs.size()) +
                     " inputs, got " + std::to_string(inputs.size()));
  for (auto [s, t] : llvm::zip(impl->image.inputs, inputs))
    if (llvm::Error error = impl->check(s, t))
      return std::move(error);
  size_t dims = 0;
  for (const Signature &s : impl->image.results)
    dims += s.shape.size();
  std::vector<int64_t> sizes(dims, -1);
  if (!impl->fast->hasShapeFunction())
    return makeError("the results' shapes depend on more than the inputs' "
                     "shapes; give tensors of static shape");
  std::vector<std::vector<int64_t>> descriptors;
  for (const TensorRef &t : inputs)
    descriptors.push_back(describe(normalized(t)));
  descriptors.push_back(describe(TensorRef::contiguous(
      sizes.data(), DType::I64, {static_cast<int64_t>(dims)})));
  if (dims)
    if (llvm::Error error = impl->fast->callShapes(descriptors))
      return std::move(error);
  std::vector<TensorRef> refs;
  size_t next = 0;
  for (const Signature &s : impl->image.results) {
    std::vector<int64_t> shape(sizes.begin() + next,
                               sizes.begin() + next + s.shape.size());
    next += s.shape.size();
    refs.push_back(TensorRef::contiguous(nullptr, s.dtype, std::move(shape)));
  }
  return refs;
}

llvm::Error Program::run(llvm::ArrayRef<TensorRef> tensors,
                         const RunOptions &options, RunStatistics *statistics) {
  size_t numInputs = impl->image.inputs.size();
  if (tensors.size() != numInputs + impl->image.results.size())
    return makeError("expected " + std::to_string(numInputs) + " inputs and " +
                     std::to_string(impl->image.results.size()) +
                     " results, got " + std::to_string(tensors.size()) +
                     " tensors");
  auto shapes = resultShapes(tensors.take_front(numInputs));
  if (!shapes) {
    // Static results need no computing.
    llvm::consumeError(shapes.takeError());
    if (llvm::any_of(impl->image.results, [](const Signature &s) {
          return llvm::is_contained(s.shape, -1);
        }))
      return resultShapes(tensors.take_front(numInputs)).takeError();
  }
  for (auto [i, s] : llvm::enumerate(impl->image.results)) {
    const TensorRef &t = tensors[numInputs + i];
    if (llvm::Error error = impl->check(s, t))
      return error;
    if (shapes && (*shapes)[i].shape != t.shape)
      return makeError("expected " + s.name + " of shape " +
                       printShape((*shapes)[i].shape) +
                       " for these inputs, got " + printShape(t.shape));
  }
  std::vector<TensorRef> refs;
  std::vector<std::vector<int64_t>> descriptors;
  for (const TensorRef &t : tensors)
    refs.push_back(normalized(t));
  auto jit = impl->moduleFor(refs);
  if (!jit)
    return jit.takeError();
  for (const TensorRef &t : refs)
    descriptors.push_back(describe(t));
  llvm::Expected<int64_t> peak = (*jit)->call(descriptors, options.threads);
  if (!peak)
    return peak.takeError();
  if (statistics)
    statistics->peakTemporaryBytes = *peak;
  return llvm::Error::success();
}
