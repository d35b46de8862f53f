// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "GPU.h"

#include "Inputs.h"

#include "fa-runtime/fa_runtime.h"

#include <algorithm>

using namespace fa;
using namespace fa::run;
using cpu::DType;
using cpu::TensorRef;

static constexpr int kDevice = 0;

static llvm::Error check(fa_rt_status status) {
  if (status == FA_RT_OK)
    return llvm::Error::success();
  return runError(fa_rt_last_error());
}

static int32_t runtimeType(DType dtype) {
  switch (dtype) {
  case DType::F16:
    return FA_RT_F16;
  case DType::BF16:
    return FA_RT_BF16;
  case DType::F32:
    return FA_RT_F32;
  case DType::F64:
    return FA_RT_F64;
  case DType::I1:
    return FA_RT_I1;
  case DType::I8:
    return FA_RT_I8;
  case DType::I16:
    return FA_RT_I16;
  case DType::I32:
    return FA_RT_I32;
  case DType::I64:
    return FA_RT_I64;
  }
  return 0;
}

/// Bytes from the first element to behind the last one. Strides of the tensors
/// here are not negative.
static size_t spanOf(const TensorRef &t) {
  int64_t last = 0;
  for (int64_t d = 0; d < t.rank(); ++d) {
    if (t.shape[d] == 0)
      return 0;
    last += (t.shape[d] - 1) * t.strides[d];
  }
  return (last + 1) * cpu::sizeOf(t.dtype);
}

namespace {
/// Copies of host tensors in device memory, layout included.
class DeviceTensors {
public:
  ~DeviceTensors() {
    for (const fa_rt_tensor &t : tensors)
      fa_rt_free(kDevice, t.data);
  }
  llvm::Error add(const TensorRef &host) {
    fa_rt_tensor t = {};
    t.dtype = runtimeType(host.dtype);
    t.rank = static_cast<int32_t>(host.rank());
    if (t.rank > FA_RT_MAX_RANK)
      return runError("a tensor has rank " + std::to_string(t.rank) +
                      ", the runtime takes at most " +
                      std::to_string(FA_RT_MAX_RANK) +
                      "; merge dimensions in the file");
    std::copy(host.shape.begin(), host.shape.end(), t.shape);
    std::copy(host.strides.begin(), host.strides.end(), t.strides);
    size_t bytes = spanOf(host);
    if (llvm::Error error = check(fa_rt_alloc(kDevice, bytes, &t.data)))
      return error;
    tensors.push_back(t);
    return check(fa_rt_copy_to_device(kDevice, t.data, host.data, bytes));
  }
  llvm::Error copyBack(size_t number, const TensorRef &host) const {
    return check(fa_rt_copy_to_host(kDevice, host.data, tensors[number].data,
                                    spanOf(host)));
  }
  std::vector<fa_rt_tensor> tensors;
};
} // namespace

llvm::Error GPUProgram::findDevice() {
  int count = 0;
  return check(fa_rt_device_count(&count));
}

llvm::Expected<std::unique_ptr<GPUProgram>>
GPUProgram::load(const std::string &ptx) {
  fa_rt_program *program = nullptr;
  if (llvm::Error error = check(fa_rt_program_load(
          kDevice, ptx.data(), ptx.size(), nullptr, &program)))
    return std::move(error);
  return std::unique_ptr<GPUProgram>(new GPUProgram(program));
}

GPUProgram::~GPUProgram() { fa_rt_program_free(program); }

/// Seconds of a launch: the median of `repeat` samples.
static llvm::Expected<double> measure(const fa_rt_program *program,
                                      const std::vector<fa_rt_tensor> &args,
                                      unsigned repeat) {
  constexpr float kSample = 2.0f; // milliseconds
  auto time = [&](int32_t launches, float &ms) {
    return check(fa_rt_program_time(program, args.data(),
                                    static_cast<int32_t>(args.size()),
                                    /*stream=*/nullptr, launches, &ms));
  };
  float first = 0;
  if (llvm::Error error = time(1, first))
    return std::move(error);
  // A launch shorter than the host takes to enqueue it is timed in company.
  auto launches = static_cast<int32_t>(
      std::clamp(kSample / std::max(first, 1e-3f), 1.0f, 200.0f));
  std::vector<float> samples(std::max(1u, repeat));
  for (float &sample : samples)
    if (llvm::Error error = time(launches, sample))
      return std::move(error);
  std::sort(samples.begin(), samples.end());
  size_t half = samples.size() / 2;
  float median = samples.size() % 2 ? samples[half]
                                    : (samples[half - 1] + samples[half]) / 2;
  return median * 1e-3;
}

llvm::Error GPUProgram::run(llvm::ArrayRef<TensorRef> inputs,
                            llvm::ArrayRef<TensorRef> outs, unsigned repeat,
                            Result &result) const {
  DeviceTensors device;
  for (const TensorRef &t : inputs)
    if (llvm::Error error = device.add(t))
      return error;
  for (const TensorRef &t : outs) {
    // All ones are NaN in every float type.
    auto *bytes = static_cast<unsigned char *>(t.data);
    std::fill(bytes, bytes + spanOf(t), 0xff);
    if (llvm::Error error = device.add(t))
      return error;
  }
  auto seconds = measure(program, device.tensors, repeat);
  if (!seconds)
    return seconds.takeError();
  result.seconds = *seconds;
  for (size_t i = 0; i < outs.size(); ++i)
    if (llvm::Error error = device.copyBack(inputs.size() + i, outs[i]))
      return error;
  fa_rt_program_desc desc;
  if (llvm::Error error = check(fa_rt_program_info(program, &desc)))
    return error;
  // Where there are temporary buffers only the runtime knows their sizes.
  result.temporaryBytes = desc.num_temps ? -1 : 0;
  return llvm::Error::success();
}

llvm::Expected<std::string> GPUProgram::describe() const {
  fa_rt_device_desc device;
  fa_rt_program_desc desc;
  if (llvm::Error error = check(fa_rt_device_info(kDevice, &device)))
    return std::move(error);
  if (llvm::Error error = check(fa_rt_program_info(program, &desc)))
    return std::move(error);
  std::string text = device.name;
  for (int32_t i = 0; i < desc.num_launches; ++i) {
    fa_rt_launch_desc launch;
    if (llvm::Error error =
            check(fa_rt_program_launch_info(program, i, &launch)))
      return std::move(error);
    text += "\n  " + std::string(launch.kernel) + ": " +
            std::to_string(launch.block) + " threads, " +
            std::to_string(launch.dynamic_smem + launch.static_smem) +
            " bytes of shared memory, " + std::to_string(launch.registers) +
            " registers, " + std::to_string(launch.local_bytes) +
            " bytes local";
  }
  return text;
}
