// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "TestUtil.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <unistd.h>

template <typename Fn> static Fn *fakeFunction(const char *name) {
  static void *library = dlopen(FA_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
  }
  return reinterpret_cast<Fn *>(dlsym(library, name));
}

fake::State &state() {
  return *fakeFunction<fake::State *()>("fakeDriverState")();
}
void *currentContext() {
  return fakeFunction<void *()>("fakeCurrentContext")();
}
void setCurrentContext(void *context) {
  fakeFunction<void(void *)>("fakeSetCurrentContext")(context);
}
Encode *fakeEncode() { return fakeFunction<Encode>("cuTensorMapEncodeTiled"); }
int contextDepth() { return fakeFunction<int()>("fakeContextDepth")(); }
unsigned long long poolThreshold() {
  return fakeFunction<unsigned long long()>("fakePoolThreshold")();
}

std::string code(const std::vector<KernelCode> &kernels,
                 const std::string &target, const std::string &version) {
  std::string text =
      ".version " + version + "\n.target " + target + "\n.address_size 64\n";
  for (const auto &[name, params, maps] : kernels) {
    text += ".visible .entry " + name + "(";
    for (int i = 0; i < params + maps; ++i)
      text += std::string(i ? "," : "") +
              (i < params ? "\n  .param .u64 p" + std::to_string(i)
                          : "\n  .param .align 64 .b8 p" + std::to_string(i) +
                                "[128]");
    text += "\n)\n{\n  ret;\n}\n";
  }
  return text;
}

const char *const kAttentionHeader =
    "//!fa.program version=1 name=attention target=sm_80\n"
    "//!fa.arg index=0 name=query role=in type=bf16 shape=?x12x?x64\n"
    "//!fa.arg index=1 name=key role=in type=bf16 shape=?x12x?x64\n"
    "//!fa.arg index=2 name=value role=in type=bf16 shape=?x12x?x64\n"
    "//!fa.arg index=3 name=out role=out type=bf16 shape=?x12x?x64\n"
    "//!fa.arg index=4 name=lse role=out type=f32 shape=?x12x?\n"
    "//!fa.same a0.d0=a1.d0 a0.d0=a2.d0 a0.d0=a3.d0 a0.d0=a4.d0\n"
    "//!fa.same a1.d2=a2.d2 a0.d2=a3.d2 a0.d2=a4.d2\n"
    "//!fa.require a0.s3=1 a1.s3=1\n"
    "//!fa.require a0.align=16\n"
    "//!fa.launch kernel=attention_kernel block=128 smem=49152 "
    "grid=a0.d2/128*12*a0.d0 args=0,1,2,3,4\n"
    "//!fa.end\n";

std::string attentionImage() {
  return kAttentionHeader + code({{"attention_kernel", 4 * 9 + 7}});
}

fa_rt_tensor tensor(int32_t dtype, const std::vector<int64_t> &shape,
                    uint64_t address) {
  return fa_rt_tensor_contiguous(
      reinterpret_cast<void *>(static_cast<uintptr_t>(address)), dtype,
      static_cast<int32_t>(shape.size()), shape.data());
}

std::vector<fa_rt_tensor> attentionArgs(int64_t b, int64_t sq, int64_t sk) {
  return {tensor(FA_RT_BF16, {b, 12, sq, 64}, 0x10000),
          tensor(FA_RT_BF16, {b, 12, sk, 64}, 0x20000),
          tensor(FA_RT_BF16, {b, 12, sk, 64}, 0x30000),
          tensor(FA_RT_BF16, {b, 12, sq, 64}, 0x40000),
          tensor(FA_RT_F32, {b, 12, sq}, 0x50000)};
}

static fa_rt_status loadWithoutCache(const std::string &image, int device,
                                     fa_rt_program **program) {
  fa_rt_load_options options;
  fa_rt_load_options_init(&options);
  options.use_cache = 0;
  return fa_rt_program_load(device, image.data(), image.size(), &options,
                            program);
}

Program load(const std::string &image, int device) {
  fa_rt_program *program = nullptr;
  EXPECT_EQ(loadWithoutCache(image, device, &program), FA_RT_OK)
      << fa_rt_last_error();
  return Program(program);
}

fa_rt_status loadStatus(const std::string &image, int device) {
  fa_rt_program *program = nullptr;
  fa_rt_status status = loadWithoutCache(image, device, &program);
  Program owner(program);
  // Out-parameters are written on success only.
  EXPECT_EQ(status == FA_RT_OK, program != nullptr);
  return status;
}

fa_rt_status launch(const Program &program,
                    const std::vector<fa_rt_tensor> &args, void *stream) {
  return fa_rt_program_launch(program.get(), args.data(),
                              static_cast<int32_t>(args.size()), stream);
}

void expectError(fa_rt_status status, fa_rt_status expected,
                 const std::vector<std::string> &parts) {
  std::string message = fa_rt_last_error();
  EXPECT_STREQ(fa_rt_status_name(status), fa_rt_status_name(expected))
      << message;
  for (const std::string &part : parts)
    EXPECT_NE(message.find(part), std::string::npos)
        << "'" << part << "' is not in '" << message << "'";
}

TempDirectory::TempDirectory() {
  char name[] = "/tmp/fa-runtime-test-XXXXXX";
  if (mkdtemp(name))
    path = name;
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

fa_rt_status verify(const std::string &image, const char *header) {
  return fa_rt_image_verify(image.data(), image.size(), header);
}

std::string changed(std::string text, const std::string &from,
                    const std::string &to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void expectMalformed(const std::string &image,
                     const std::vector<Malformed> &changes) {
  for (const Malformed &m : changes) {
    SCOPED_TRACE(std::string(m.from) + " -> " + m.to);
    expectError(verify(changed(image, m.from, m.to)), FA_RT_BAD_IMAGE,
                {std::string("image ") + m.line, m.message});
  }
}

void RuntimeTest::SetUp() {
  setenv("FA_CACHE", "0", 1);
  fake::State &driver = state();
  driver.behaviour = {};
  driver.launches.clear();
  driver.calls.clear();
  driver.failures.clear();
  driver.maxDynamicSmem.clear();
  driver.compilations = 0;
  driver.encodings = driver.refusedEncodings = 0;
  setCurrentContext(nullptr);
}

void RuntimeTest::TearDown() {
  fake::State &driver = state();
  EXPECT_EQ(driver.memory.size(), 0u) << "device memory was not freed";
  EXPECT_EQ(driver.liveHostBuffers, 0) << "host memory was not freed";
  EXPECT_EQ(driver.liveModules, 0) << "a module was not unloaded";
  EXPECT_EQ(contextDepth(), 0) << "a context was left on the stack";
}

int main(int argc, char **argv) {
  ::testing::InitGoogleTest(&argc, argv);
  setenv("FA_CUDA_DRIVER", FA_FAKE_DRIVER, 1);
  unsetenv("FA_VERBOSE");
  unsetenv("FA_CHECK_POINTERS");
  return RUN_ALL_TESTS();
}
