// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_TEST_UNIT_RUNTIME_TESTUTIL_H
#define FA_TEST_UNIT_RUNTIME_TESTUTIL_H

#include "FakeDriver.h"
#include "fa-runtime/fa_runtime.h"

#include "gtest/gtest.h"

#include <memory>

/// The state of the fake driver that the runtime uses.
fake::State &state();
void *currentContext();
void setCurrentContext(void *context);
int contextDepth();
/// What a pool keeps at a synchronisation, in bytes; 0 before there is a pool.
unsigned long long poolThreshold();

struct FreeProgram {
  void operator()(fa_rt_program *program) const { fa_rt_program_free(program); }
};
using Program = std::unique_ptr<fa_rt_program, FreeProgram>;

using Encode = int(void *map, int type, uint32_t rank,
                   unsigned long long address, const uint64_t *sizes,
                   const uint64_t *strides, const uint32_t *box,
                   const uint32_t *steps, int interleave, int swizzle,
                   int promotion, int oobFill);
/// The fake driver's cuTensorMapEncodeTiled.
Encode *fakeEncode();

using Args = std::vector<fa_rt_tensor>;
/// Parameters of 8 bytes.
using Words = std::vector<uint64_t>;

struct KernelCode {
  std::string name;
  /// Parameters of 8 bytes, and tensor maps behind them.
  int params, maps = 0;
};

/// The code of an image.
std::string code(const std::vector<KernelCode> &kernels,
                 const std::string &target = "sm_80",
                 const std::string &version = "8.0");

/// The header of the tests' usual program: attention with 5 arguments.
extern const char *const kAttentionHeader;
/// Its image.
std::string attentionImage();

/// A tensor of `shape`, contiguous, whose data is the made-up `address`.
fa_rt_tensor tensor(int32_t dtype, const std::vector<int64_t> &shape,
                    uint64_t address = 0x10000);
/// Arguments for the usual program: batch b, lengths sq and sk.
Args attentionArgs(int64_t b, int64_t sq, int64_t sk);

/// Loads without the cache; a failure fails the test.
Program load(const std::string &image, int device = 0);
/// The status of a load, for loads that fail.
fa_rt_status loadStatus(const std::string &image, int device = 0);
fa_rt_status launch(const Program &program, const Args &args,
                    void *stream = nullptr);

/// Expects a failure with a message that has each of `parts`.
void expectError(fa_rt_status status, fa_rt_status expected,
                 const std::vector<std::string> &parts);

/// What fa_rt_image_verify says.
fa_rt_status verify(const std::string &image, const char *header = nullptr);
/// A text with `from`, which it must have, replaced by `to`.
std::string changed(std::string text, const std::string &from,
                    const std::string &to);

/// A header that a change makes wrong, and what the message must have of it.
struct Malformed {
  const char *from, *to, *line, *message;
};
/// Expects each change of an image to be refused.
void expectMalformed(const std::string &image,
                     const std::vector<Malformed> &changes);

/// A directory that is removed with its contents.
class TempDirectory {
public:
  TempDirectory();
  ~TempDirectory();
  std::string path;
};

/// Each test starts with a driver that works, no context, no cache.
class RuntimeTest : public ::testing::Test {
protected:
  void SetUp() override;
  void TearDown() override;
};

#endif // FA_TEST_UNIT_RUNTIME_TESTUTIL_H
