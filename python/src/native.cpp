// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fa._native: the C API and the runtime library as Python sees them.

#include "Call.h"
#include "Compiler.h"
#include "DLPack.h"
#include "fa-runtime/fa_runtime.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace py = pybind11;
using fa::python::Compiler;

namespace {

struct CompileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct RunError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Turns a status of the compiler into an exception.
void check(const Compiler &compiler, fa_status status) {
  const char *message = compiler.fa_last_error();
  switch (status) {
  case FA_OK:
    return;
  case FA_INVALID_ARGUMENT:
    throw py::value_error(message);
  case FA_COMPILE_ERROR:
    throw CompileError(message);
  case FA_RUN_ERROR:
    break;
  }
  throw RunError(message);
}

/// The compiler's library, opened if it is not yet.
const Compiler &openCompiler() {
  try {
    return Compiler::get();
  } catch (const std::runtime_error &error) {
    throw RunError(error.what());
  }
}

/// How many modules this process compiled.
std::atomic<int64_t> compilations{0};

/// Turns a status of the runtime into an exception.
void check(fa_rt_status status) {
  if (status == FA_RT_OK)
    return;
  if (status == FA_RT_INVALID_ARGUMENT)
    throw py::value_error(fa_rt_last_error());
  throw RunError(fa_rt_last_error());
}

int32_t dtypeOf(const std::string &name) {
  for (int32_t dtype = FA_RT_F32; dtype <= FA_RT_F8E5M2; ++dtype)
    if (name == fa_rt_dtype_name(dtype))
      return dtype;
  throw py::value_error("unknown element type '" + name + "'");
}

/// (pointer, dtype, shape, strides in elements) as the C structs.
std::vector<fa_rt_tensor> tensorsOf(const py::sequence &views) {
  std::vector<fa_rt_tensor> tensors(views.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    py::tuple view = views[i];
    fa_rt_tensor &tensor = tensors[i];
    tensor.data = reinterpret_cast<void *>(view[0].cast<uintptr_t>());
    tensor.dtype = dtypeOf(view[1].cast<std::string>());
    py::sequence shape = view[2], strides = view[3];
    if (shape.size() > FA_RT_MAX_RANK || shape.size() != strides.size())
      throw py::value_error("expected a tensor of rank at most " +
                            std::to_string(FA_RT_MAX_RANK) + ", got rank " +
                            std::to_string(shape.size()));
    tensor.rank = static_cast<int32_t>(shape.size());
    for (int32_t d = 0; d < tensor.rank; ++d) {
      tensor.shape[d] = shape[d].cast<int64_t>();
      tensor.strides[d] = strides[d].cast<int64_t>();
    }
  }
  return tensors;
}

/// A program on one GPU.
class Program {
public:
  Program(int device, const std::string &ptx) {
    py::gil_scoped_release release;
    fa_rt_program *loaded = nullptr;
    status =
        fa_rt_program_load(device, ptx.data(), ptx.size(), nullptr, &loaded);
    program.reset(loaded);
  }
  void checkLoaded() const { check(status); }

  void launch(const py::sequence &views, uintptr_t stream) const {
    std::vector<fa_rt_tensor> tensors = tensorsOf(views);
    check(fa_rt_program_launch(program.get(), tensors.data(),
                               static_cast<int32_t>(tensors.size()),
                               reinterpret_cast<void *>(stream)));
  }

  /// Bytes of its temporary buffers for these arguments.
  int64_t workspaceSize(const py::sequence &views) const {
    std::vector<fa_rt_tensor> tensors = tensorsOf(views);
    int64_t bytes = 0;
    check(fa_rt_program_workspace_size(program.get(), tensors.data(),
                                       static_cast<int32_t>(tensors.size()),
                                       &bytes));
    return bytes;
  }

  /// A launch with these in memory of the caller's.
  void launchIn(const py::sequence &views, uintptr_t stream,
                uintptr_t workspace, int64_t bytes) const {
    std::vector<fa_rt_tensor> tensors = tensorsOf(views);
    check(fa_rt_program_launch_in(program.get(), tensors.data(),
                                  static_cast<int32_t>(tensors.size()),
                                  reinterpret_cast<void *>(stream),
                                  reinterpret_cast<void *>(workspace), bytes));
  }

  /// Bytes that it prepares for these arguments.
  int64_t preparedSize(const py::sequence &views) const {
    std::vector<fa_rt_tensor> tensors = tensorsOf(views);
    int64_t bytes = 0;
    check(fa_rt_program_prepared_size(program.get(), tensors.data(),
                                      static_cast<int32_t>(tensors.size()),
                                      &bytes));
    return bytes;
  }

  /// A launch with prepared buffers of the caller's, and all others, if there
  /// is a workspace.
  void launchPrepared(const py::sequence &views, uintptr_t stream,
                      uintptr_t prepared, bool isPrepared, uintptr_t workspace,
                      int64_t bytes) const {
    std::vector<fa_rt_tensor> tensors = tensorsOf(views);
    auto count = static_cast<int32_t>(tensors.size());
    auto *queue = reinterpret_cast<void *>(stream),
         *lists = reinterpret_cast<void *>(prepared);
    check(workspace
              ? fa_rt_program_launch_prepared_in(
                    program.get(), tensors.data(), count, queue, lists,
                    isPrepared, reinterpret_cast<void *>(workspace), bytes)
              : fa_rt_program_launch_prepared(program.get(), tensors.data(),
                                              count, queue, lists, isPrepared));
  }

  const fa_rt_program *get() const { return program.get(); }

  py::list resources() const {
    fa_rt_program_desc desc;
    check(fa_rt_program_info(program.get(), &desc));
    py::list all;
    for (int32_t i = 0; i < desc.num_launches; ++i) {
      fa_rt_launch_desc launch;
      check(fa_rt_program_launch_info(program.get(), i, &launch));
      py::dict entry;
      entry["kernel"] = launch.kernel;
      entry["threads"] = launch.block;
      entry["dynamic_smem"] = launch.dynamic_smem;
      entry["static_smem"] = launch.static_smem;
      entry["registers"] = launch.registers;
      entry["local_bytes"] = launch.local_bytes;
      all.append(entry);
    }
    return all;
  }

private:
  struct Free {
    void operator()(fa_rt_program *p) const { fa_rt_program_free(p); }
  };
  std::unique_ptr<fa_rt_program, Free> program;
  fa_rt_status status;
};

/// Memory of a GPU. Freeing it waits for the device.
class DeviceMemory {
public:
  DeviceMemory(int device, size_t size) : device(device) {
    check(fa_rt_alloc(device, size, &data));
  }
  DeviceMemory(const DeviceMemory &) = delete;
  DeviceMemory &operator=(const DeviceMemory &) = delete;
  ~DeviceMemory() { fa_rt_free(device, data); }
  uintptr_t pointer() const { return reinterpret_cast<uintptr_t>(data); }

private:
  int device;
  void *data = nullptr;
};

/// What the compiler made of one module.
class Kernel {
public:
  Kernel(const std::string &ir, const std::string &target,
         const std::string &algorithm, int64_t rows, int64_t keys,
         const std::string &speculate, const std::string &order,
         const std::string &schedule, const std::string &backward,
         bool deterministic, int32_t optimize, int32_t threads, bool keepStages)
      : compiler(openCompiler()) {
    fa_compile_options options;
    compiler.fa_compile_options_init(&options);
    options.target = target.c_str();
    options.algorithm = algorithm.c_str();
    options.rows = rows;
    options.keys = keys;
    options.speculate = speculate.c_str();
    options.order = order.c_str();
    options.schedule = schedule.c_str();
    options.backward = backward.empty() ? nullptr : backward.c_str();
    options.deterministic = deterministic;
    options.optimize = optimize;
    options.threads = threads;
    options.keep_stages = keepStages;
    fa_kernel *compiled = nullptr;
    ++compilations;
    fa_status status;
    {
      py::gil_scoped_release release;
      status = compiler.fa_compile(ir.data(), ir.size(), &options, &compiled);
      kernel.reset(compiled);
    }
    check(compiler, status);
  }

  /// From the bytes of `image`.
  Kernel(const std::string &image, int32_t threads) : compiler(openCompiler()) {
    fa_kernel *loaded = nullptr;
    fa_status status;
    {
      py::gil_scoped_release release;
      status =
          compiler.fa_kernel_load(image.data(), image.size(), threads, &loaded);
      kernel.reset(loaded);
    }
    check(compiler, status);
  }

  /// Of the CPU target; None of another, and where there can be none.
  py::object image() const {
    size_t size = 0;
    const void *data = compiler.fa_kernel_image(kernel.get(), &size);
    return data ? py::object(py::bytes(static_cast<const char *>(data), size))
                : py::object(py::none());
  }

  std::vector<std::pair<std::string, std::string>> stages() const {
    return named(compiler.fa_kernel_stage_ir);
  }
  std::vector<std::pair<std::string, std::string>> io() const {
    return named(compiler.fa_kernel_stage_io);
  }
  int32_t numArgs() const { return compiler.fa_kernel_num_args(kernel.get()); }
  int32_t numResults() const {
    return compiler.fa_kernel_num_results(kernel.get());
  }
  py::object ptx() const {
    const char *text = compiler.fa_kernel_ptx(kernel.get());
    return text ? py::object(py::str(text)) : py::object(py::none());
  }
  const fa_kernel *get() const { return kernel.get(); }

  void run(const py::sequence &views) const {
    std::vector<fa_rt_tensor> tensors = tensorsOf(views);
    fa_status result;
    {
      py::gil_scoped_release release;
      result = compiler.fa_kernel_run(kernel.get(), tensors.data(),
                                      static_cast<int32_t>(tensors.size()));
    }
    check(compiler, result);
  }

private:
  using Text = const char *(*)(const fa_kernel *, int32_t);
  std::vector<std::pair<std::string, std::string>> named(Text text) const {
    std::vector<std::pair<std::string, std::string>> all;
    for (int32_t i = 0; i < compiler.fa_kernel_num_stages(kernel.get()); ++i)
      all.emplace_back(compiler.fa_kernel_stage_name(kernel.get(), i),
                       text(kernel.get(), i));
    return all;
  }
  struct Free {
    void operator()(fa_kernel *k) const { Compiler::get().fa_kernel_free(k); }
  };
  const Compiler &compiler;
  std::unique_ptr<fa_kernel, Free> kernel;
};

/// The best target whose code runs on a device with its driver.
std::string targetOfDevice(int device) {
  fa_rt_device_desc desc;
  check(fa_rt_device_info(device, &desc));
  if (desc.cc_major < 8)
    throw RunError(std::string("device ") + desc.name +
                   " has compute capability " + std::to_string(desc.cc_major) +
                   "." + std::to_string(desc.cc_minor) +
                   "; fa needs 8.0 or later");
  // What sm_90a is emitted as, PTX 8.3, came with CUDA 12.3.
  if (desc.cc_major == 9 && desc.cc_minor == 0 && desc.driver_version >= 12030)
    return "sm_90a";
  return "sm_80";
}

/// The value of a key in the cache on disk, or None.
py::object cacheGet(const std::string &key) {
  void *data = nullptr;
  size_t size = 0;
  check(fa_rt_cache_get(key.data(), key.size(), &data, &size));
  if (!data)
    return py::none();
  std::unique_ptr<void, decltype(&fa_rt_cache_release)> owner(
      data, fa_rt_cache_release);
  return py::bytes(static_cast<const char *>(data), size);
}

void cachePut(const std::string &key, const std::string &value) {
  check(fa_rt_cache_put(key.data(), key.size(), value.data(), value.size()));
}

/// The file of a key, "" if the cache is off.
std::string cachePath(const std::string &key) {
  char path[4096];
  size_t length = 0;
  check(fa_rt_cache_path(key.data(), key.size(), path, sizeof(path), &length));
  return path;
}

} // namespace

const fa_rt_program *fa::python::programOf(py::handle program) {
  return program.cast<const Program &>().get();
}

const fa_kernel *fa::python::kernelOf(py::handle kernel) {
  return py::isinstance<Kernel>(kernel) ? kernel.cast<const Kernel &>().get()
                                        : nullptr;
}

PYBIND11_MODULE(_native, m) {
  m.doc() = "The fa compiler and runtime.";
  py::register_exception<CompileError>(m, "CompileError", PyExc_ValueError);
  py::register_exception<RunError>(m, "RunError", PyExc_RuntimeError);
  fa::python::addCalls(m, m.attr("RunError"));
  m.attr("__version__") = FA_VERSION;
  m.def("compiler_path", &Compiler::path);
  m.def("compiler_is_loaded", &Compiler::isLoaded);
  m.def("compilations", [] { return compilations.load(); });
  m.def("cache_get", &cacheGet, py::arg("key"));
  m.def("cache_put", &cachePut, py::arg("key"), py::arg("value"));
  m.def("cache_path", &cachePath, py::arg("key"));
  m.def("target_of_device", &targetOfDevice, py::arg("device"));
  m.def(
      "compile",
      [](const std::string &ir, const std::string &target,
         const std::string &algorithm, int64_t rows, int64_t keys,
         const std::string &speculate, const std::string &order,
         const std::string &schedule, const std::string &backward,
         bool deterministic, int32_t optimize, int32_t threads,
         bool keepStages) {
        return std::make_unique<Kernel>(
            ir, target, algorithm, rows, keys, speculate, order, schedule,
            backward, deterministic, optimize, threads, keepStages);
      },
      py::arg("ir"), py::arg("target"), py::arg("algorithm"), py::arg("rows"),
      py::arg("keys"), py::arg("speculate"), py::arg("order"),
      py::arg("schedule"), py::arg("backward"), py::arg("deterministic"),
      py::arg("optimize"), py::arg("threads"), py::arg("keep_stages"));
  m.def("host", [] { return openCompiler().fa_host(); });
  m.def(
      "load_image",
      [](const std::string &image, int32_t threads) {
        return std::make_unique<Kernel>(image, threads);
      },
      py::arg("image"), py::arg("threads"));
  m.def(
      "load",
      [](int device, const std::string &ptx) {
        auto program = std::make_unique<Program>(device, ptx);
        program->checkLoaded();
        return program;
      },
      py::arg("device"), py::arg("ptx"));
  m.def(
      "synchronize",
      [](int device, uintptr_t stream) {
        fa_rt_status status;
        {
          py::gil_scoped_release release;
          status = fa_rt_stream_synchronize(device,
                                            reinterpret_cast<void *>(stream));
        }
        check(status);
      },
      py::arg("device"), py::arg("stream"));
  m.def("dlpack_view", &fa::python::viewDLPack, py::arg("capsule"));
  m.def("dlpack_export", &fa::python::exportDLPack, py::arg("view"),
        py::arg("device"), py::arg("owner"), py::arg("versioned"));
  py::class_<DeviceMemory>(m, "DeviceMemory")
      .def(py::init<int, size_t>(), py::arg("device"), py::arg("size"))
      .def_property_readonly("pointer", &DeviceMemory::pointer);
  py::class_<Kernel>(m, "Kernel")
      .def("stages", &Kernel::stages)
      .def("io", &Kernel::io)
      .def("ptx", &Kernel::ptx)
      .def("image", &Kernel::image)
      .def("num_args", &Kernel::numArgs)
      .def("num_results", &Kernel::numResults)
      .def("run", &Kernel::run, py::arg("views"));
  py::class_<Program>(m, "Program")
      .def("launch", &Program::launch, py::arg("views"), py::arg("stream"))
      .def("workspace_size", &Program::workspaceSize, py::arg("views"))
      .def("launch_in", &Program::launchIn, py::arg("views"), py::arg("stream"),
           py::arg("workspace"), py::arg("bytes"))
      .def("prepared_size", &Program::preparedSize, py::arg("views"))
      .def("launch_prepared", &Program::launchPrepared, py::arg("views"),
           py::arg("stream"), py::arg("prepared"), py::arg("is_prepared"),
           py::arg("workspace") = 0, py::arg("bytes") = 0)
      .def("resources", &Program::resources);
}
