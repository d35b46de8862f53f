// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Damaged images: thousands of seeded mutations must end in an error or a
// program that can be launched, never in a crash. FA_FUZZ_SEED gives others.

#include "TestUtil.h"

#include <cstdlib>
#include <random>

/// The seed that a variable of the environment gives, or another.
static unsigned seedOf(const char *name, unsigned otherwise) {
  const char *text = std::getenv(name);
  return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10))
              : otherwise;
}

namespace {
class Mutation : public RuntimeTest {
protected:
  std::mt19937 random{seedOf("FA_FUZZ_SEED", 20240607)};
  size_t pick(size_t count) { return random() % count; }
  std::string mutate(std::string text);
  std::string number();
  void cutOrRepeatLine(std::string &text);
};
} // namespace

static const char *const kRichHeader =
    "//!fa.program version=2 name=split target=sm_80\n"
    "//!fa.arg index=0 name=x role=in type=bf16 shape=?x12x?x64\n"
    "//!fa.arg index=1 name=y role=inout type=f32 shape=?x12x?\n"
    "//!fa.temp index=2 type=f32 shape=a0.d0,12,a0.d2/64 zero=1\n"
    "//!fa.same a0.d0=a1.d0 a0.d2=a1.d2\n"
    "//!fa.require a0.s3=1 a0.align=16\n"
    "//!fa.map index=0 tensor=0 dim=2 rows=128\n"
    "//!fa.map index=1 tensor=0 dim=1 rows=8\n"
    "//!fa.launch kernel=part block=128 smem=49152 grid=a0.d2/128*12*a0.d0 "
    "args=0,2 maps=1,0 queue=1\n"
    "//!fa.launch kernel=merge block=32 grid=a2.d2*a0.d0 args=2,1 waves=2\n"
    "//!fa.end\n";

std::string Mutation::number() {
  static const char *const kNumbers[] = {
      "0",  "1",          "-1",         "7",
      "8",  "63",         "64",         "65",
      "99", "2147483647", "4294967296", "9223372036854775807",
      "",   "?",          "x",          "9223372036854775808"};
  return kNumbers[pick(std::size(kNumbers))];
}

void Mutation::cutOrRepeatLine(std::string &text) {
  size_t begin = text.rfind('\n', pick(text.size()));
  begin = begin == std::string::npos ? 0 : begin + 1;
  size_t end = text.find('\n', begin);
  std::string line = text.substr(begin, end - begin + 1);
  if (pick(2))
    text.erase(begin, line.size());
  else
    text.insert(begin, line);
}

std::string Mutation::mutate(std::string text) {
  static const char kLetters[] = "0123456789adsx?*/=,.!#\n\r\t \0\xff";
  for (size_t count = 1 + pick(4); count && !text.empty(); --count) {
    size_t at = pick(text.size());
    switch (pick(6)) {
    case 0:
      text[at] = static_cast<char>(random());
      break;
    case 1:
      text[at] = kLetters[pick(sizeof(kLetters) - 1)];
      break;
    case 2:
      text.insert(at, 1, kLetters[pick(sizeof(kLetters) - 1)]);
      break;
    case 3:
      text.erase(at, 1 + pick(8));
      break;
    case 4:
      cutOrRepeatLine(text);
      break;
    case 5:
      // A number in place of a number.
      at = text.find_first_of("0123456789", at);
      if (at != std::string::npos)
        text.replace(at, 1, number());
      break;
    }
  }
  return text;
}

TEST_F(Mutation, NeverCrash) {
  std::string ptx = code({{"part", 9 + 7 + 2, 2}, {"merge", 7 + 7}});
  std::vector<fa_rt_tensor> args = {
      tensor(FA_RT_BF16, {2, 12, 300, 64}, 0x10000),
      tensor(FA_RT_F32, {2, 12, 300}, 0x20000)};
  ASSERT_EQ(launch(load(kRichHeader + ptx), args), FA_RT_OK)
      << fa_rt_last_error();

  int rejected = 0, loaded = 0, launched = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string image = mutate(kRichHeader) + ptx;
    fa_rt_status status =
        fa_rt_image_verify(image.data(), image.size(), nullptr);
    if (status != FA_RT_OK) {
      ++rejected;
      ASSERT_EQ(status, FA_RT_BAD_IMAGE) << fa_rt_last_error();
      ASSERT_STRNE(fa_rt_last_error(), "");
      ASSERT_EQ(loadStatus(image), FA_RT_BAD_IMAGE);
      continue;
    }
    fa_rt_load_options options;
    fa_rt_load_options_init(&options);
    options.use_cache = 0;
    fa_rt_program *program = nullptr;
    if (fa_rt_program_load(0, image.data(), image.size(), &options, &program) !=
        FA_RT_OK)
      continue;
    ++loaded;
    launched += launch(Program(program), args) == FA_RT_OK;
  }
  // The mutations must reach all the stages, or they test nothing.
  EXPECT_GT(rejected, 1000);
  EXPECT_GT(loaded, 900);
  EXPECT_GT(launched, 800);
}

TEST_F(Mutation, EveryPrefix) {
  std::string image = kRichHeader + code({{"part", 18, 2}, {"merge", 14}});
  size_t whole = image.find(".address_size");
  for (size_t size = 0; size < whole - 10; ++size)
    ASSERT_EQ(fa_rt_image_verify(image.data(), size, nullptr), FA_RT_BAD_IMAGE)
        << size;
}
