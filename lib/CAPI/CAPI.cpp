// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The compiler behind its C boundary. No exception, no C++ type and no MLIR
// type crosses it.

#include "fa-c/fa.h"
#include "fa/Dialect/FA/IR/Limits.h"
#include "fa/Pipelines/Compile.h"

#include <memory>
#include <mutex>
#include <string>

using namespace fa;

static_assert(FA_RT_MAX_EXTENT == kMaxExtent,
              "the runtime refuses values that the compiler does not expect");

static thread_local std::string lastError;

static fa_status fail(fa_status status, llvm::Error error) {
  lastError = llvm::toString(std::move(error));
  return status;
}

static fa_status fail(fa_status status, std::string message) {
  lastError = std::move(message);
  return status;
}

static fa_status failThreads(int32_t threads) {
  return fail(FA_INVALID_ARGUMENT,
              "expected a number of threads >= 0 (0: all), got " +
                  std::to_string(threads));
}

struct fa_kernel {
  std::unique_ptr<CompiledKernel> kernel;
  int32_t threads = 0;
  /// Of a program of the CPU target, made when it is asked for.
  mutable std::string image;
  mutable std::once_flag imageOnce;
};

static fa_kernel *makeKernel(std::unique_ptr<CompiledKernel> compiled,
                             int32_t threads) {
  auto *kernel = new fa_kernel;
  kernel->kernel = std::move(compiled);
  kernel->threads = threads;
  return kernel;
}

const char *fa_version(void) { return FA_VERSION; }

const char *fa_last_error(void) { return lastError.c_str(); }

void fa_compile_options_init(fa_compile_options *options) {
  if (!options)
    return;
  *options = {};
  options->struct_size = sizeof(fa_compile_options);
  options->target = "cpu";
  options->algorithm = "fa2";
  options->speculate = "auto";
  options->order = "auto";
  options->optimize = 3;
}

fa_status fa_compile(const char *ir, size_t size,
                     const fa_compile_options *options, fa_kernel **kernel) {
  if (!ir || !kernel)
    return fail(FA_INVALID_ARGUMENT,
                std::string("expected IR text and a place for the kernel, got "
                            "a null pointer"));
  fa_compile_options defaults;
  fa_compile_options_init(&defaults);
  if (!options)
    options = &defaults;
  if (options->struct_size != sizeof(fa_compile_options))
    return fail(FA_INVALID_ARGUMENT,
                "expected options of " +
                    std::to_string(sizeof(fa_compile_options)) +
                    " bytes, got " + std::to_string(options->struct_size) +
                    "; call fa_compile_options_init and build against the "
                    "library's own header");
  CompileRequest request;
  if (options->target)
    request.pipeline.target = options->target;
  if (options->algorithm)
    request.pipeline.algorithm = options->algorithm;
  if (options->function)
    request.function = options->function;
  request.pipeline.rows = options->rows;
  request.pipeline.keys = options->keys;
  if (options->speculate)
    request.pipeline.speculate = options->speculate;
  if (options->order)
    request.pipeline.order = options->order;
  if (options->backward)
    request.pipeline.backward = options->backward;
  request.pipeline.deterministic = options->deterministic != 0;
  if (options->schedule)
    request.schedule = options->schedule;
  request.keepStages = options->keep_stages != 0;
  if (llvm::Error error = checkOptions(request))
    return fail(FA_INVALID_ARGUMENT, std::move(error));
  if (options->threads < 0)
    return failThreads(options->threads);
  if (options->optimize < 0 || options->optimize > 3)
    return fail(FA_INVALID_ARGUMENT,
                "expected optimize to be 0, 1, 2 or 3, got " +
                    std::to_string(options->optimize));
  request.optimize = options->optimize;
  llvm::Expected<std::unique_ptr<CompiledKernel>> compiled =
      compileKernel(llvm::StringRef(ir, size), request);
  if (!compiled)
    return fail(FA_COMPILE_ERROR, compiled.takeError());
  *kernel = makeKernel(std::move(*compiled), options->threads);
  return FA_OK;
}

const void *fa_kernel_image(const fa_kernel *kernel, size_t *size) {
  if (size)
    *size = 0;
  if (!kernel || !size || !kernel->kernel->program)
    return nullptr;
  std::call_once(kernel->imageOnce, [&] {
    llvm::Expected<std::string> image = kernel->kernel->program->save();
    if (image)
      kernel->image = std::move(*image);
    else
      lastError = llvm::toString(image.takeError());
  });
  *size = kernel->image.size();
  return kernel->image.empty() ? nullptr : kernel->image.data();
}

fa_status fa_kernel_load(const void *image, size_t size, int32_t threads,
                         fa_kernel **kernel) {
  if (!image || !kernel)
    return fail(FA_INVALID_ARGUMENT,
                std::string("expected an image and a place for the kernel, got "
                            "a null pointer"));
  if (threads < 0)
    return failThreads(threads);
  llvm::Expected<std::unique_ptr<cpu::Program>> program = cpu::Program::load(
      llvm::StringRef(static_cast<const char *>(image), size));
  if (!program)
    return fail(FA_INVALID_ARGUMENT, program.takeError());
  auto loaded = std::make_unique<CompiledKernel>();
  loaded->numResults = (*program)->getNumResults();
  loaded->numArguments = (*program)->getNumInputs() + loaded->numResults;
  loaded->program = std::move(*program);
  *kernel = makeKernel(std::move(loaded), threads);
  return FA_OK;
}

const char *fa_host(void) {
  static const std::string name = [] {
    llvm::Expected<std::string> found = cpu::hostName();
    if (found)
      return *found;
    llvm::consumeError(found.takeError());
    return std::string();
  }();
  return name.c_str();
}

void fa_kernel_free(fa_kernel *kernel) { delete kernel; }

int32_t fa_kernel_num_args(const fa_kernel *kernel) {
  return kernel ? kernel->kernel->numArguments : 0;
}

int32_t fa_kernel_num_results(const fa_kernel *kernel) {
  return kernel ? kernel->kernel->numResults : 0;
}

int32_t fa_kernel_num_stages(const fa_kernel *kernel) {
  return kernel ? static_cast<int32_t>(kernel->kernel->stages.size()) : 0;
}

/// The i-th stage, or null.
static const CompiledStage *stageOf(const fa_kernel *kernel, int32_t i) {
  if (!kernel || i < 0 || i >= fa_kernel_num_stages(kernel))
    return nullptr;
  return &kernel->kernel->stages[i];
}

const char *fa_kernel_stage_name(const fa_kernel *kernel, int32_t i) {
  const CompiledStage *stage = stageOf(kernel, i);
  return stage ? stage->name.c_str() : nullptr;
}

const char *fa_kernel_stage_ir(const fa_kernel *kernel, int32_t i) {
  const CompiledStage *stage = stageOf(kernel, i);
  return stage ? stage->ir.c_str() : nullptr;
}

const char *fa_kernel_stage_io(const fa_kernel *kernel, int32_t i) {
  const CompiledStage *stage = stageOf(kernel, i);
  return stage ? stage->io.c_str() : nullptr;
}

const char *fa_kernel_ptx(const fa_kernel *kernel) {
  return kernel && !kernel->kernel->ptx.empty() ? kernel->kernel->ptx.c_str()
                                                : nullptr;
}

/// The compiler's element type for the runtime's, if it has one.
static std::optional<cpu::DType> dtypeOf(int32_t dtype) {
  switch (dtype) {
  case FA_RT_F32:
    return cpu::DType::F32;
  case FA_RT_F16:
    return cpu::DType::F16;
  case FA_RT_BF16:
    return cpu::DType::BF16;
  case FA_RT_F64:
    return cpu::DType::F64;
  case FA_RT_I1:
    return cpu::DType::I1;
  case FA_RT_I8:
    return cpu::DType::I8;
  case FA_RT_I16:
    return cpu::DType::I16;
  case FA_RT_I32:
    return cpu::DType::I32;
  case FA_RT_I64:
    return cpu::DType::I64;
  default:
    return std::nullopt;
  }
}

fa_status fa_kernel_run(const fa_kernel *kernel, const fa_rt_tensor *args,
                        int32_t nargs) {
  if (!kernel || (nargs > 0 && !args))
    return fail(FA_INVALID_ARGUMENT,
                std::string("expected a kernel and its tensors, got a null "
                            "pointer"));
  if (!kernel->kernel->program)
    return fail(FA_RUN_ERROR,
                std::string("the kernel is for an NVIDIA target; load its PTX "
                            "with fa_rt_program_load, or compile for cpu"));
  std::vector<cpu::TensorRef> tensors;
  for (int32_t i = 0; i < nargs; ++i) {
    const fa_rt_tensor &arg = args[i];
    std::optional<cpu::DType> dtype = dtypeOf(arg.dtype);
    if (!dtype || arg.rank < 0 || arg.rank > FA_RT_MAX_RANK)
      return fail(FA_INVALID_ARGUMENT,
                  "tensor " + std::to_string(i) +
                      ": unknown element type or rank; fill in dtype and rank "
                      "(at most " +
                      std::to_string(FA_RT_MAX_RANK) + ")");
    tensors.push_back({arg.data,
                       *dtype,
                       {arg.shape, arg.shape + arg.rank},
                       {arg.strides, arg.strides + arg.rank}});
  }
  cpu::RunOptions options;
  options.threads = kernel->threads;
  if (llvm::Error error = kernel->kernel->program->run(tensors, options))
    return fail(error.isA<cpu::OutOfMemoryError>() ? FA_RUN_ERROR
                                                   : FA_INVALID_ARGUMENT,
                std::move(error));
  return FA_OK;
}
