// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Image headers, without a driver.

#include "TestUtil.h"

/// The usual image with `from` replaced by `to`.
static std::string changed(const std::string &from, const std::string &to) {
  return changed(attentionImage(), from, to);
}

TEST(Header, Good) {
  EXPECT_EQ(verify(attentionImage()), FA_RT_OK) << fa_rt_last_error();
}

TEST(Header, TrailingNulIsNotPartOfTheText) {
  EXPECT_EQ(verify(attentionImage() + '\0'), FA_RT_OK) << fa_rt_last_error();
}

TEST(Header, CarriageReturnsCommentsAndBlankLinesAreFine) {
  std::string image = "// made by hand\n\n" + attentionImage();
  std::string windows;
  for (char c : image)
    windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  EXPECT_EQ(verify(windows), FA_RT_OK) << fa_rt_last_error();
}

TEST(Header, SeparateHeader) {
  EXPECT_EQ(verify(code({{"attention_kernel", 43}}), kAttentionHeader),
            FA_RT_OK)
      << fa_rt_last_error();
}

TEST(Header, UnknownKeysAreIgnored) {
  EXPECT_EQ(verify(changed("block=128", "block=128 cluster=2")), FA_RT_OK);
}

TEST(Header, ScalarsAndAllTypes) {
  for (const char *type :
       {"f32", "f16", "bf16", "f64", "i1", "i8", "i16", "i32", "i64", "u8",
        "u16", "u32", "u64", "f8E4M3FN", "f8E5M2"}) {
    std::string header = "//!fa.program version=1 name=n target=sm_90a\n"
                         "//!fa.arg index=0 name=x role=inout shape= type=" +
                         std::string(type) +
                         "\n//!fa.temp index=1 type=f32 shape=scalar\n"
                         "//!fa.launch kernel=k block=1 grid=1 args=\n"
                         "//!fa.end\n";
    EXPECT_EQ(verify(header + code({}, "sm_90a")), FA_RT_OK)
        << fa_rt_last_error();
  }
}

TEST(Header, TypesHaveNamesAndSizes) {
  for (int32_t dtype = FA_RT_F32; dtype <= FA_RT_F8E5M2; ++dtype) {
    EXPECT_STRNE(fa_rt_dtype_name(dtype), "?");
    EXPECT_GT(fa_rt_dtype_size(dtype), 0u);
  }
  EXPECT_STREQ(fa_rt_dtype_name(0), "?");
  EXPECT_EQ(fa_rt_dtype_size(99), 0u);
  EXPECT_EQ(fa_rt_dtype_size(FA_RT_BF16), 2u);
}

static const std::vector<Malformed> kMalformed = {
    {"version=1", "version=0", "line 1", "from 1 to 1000000"},
    {"version=1", "version=1 version=1", "line 1", "given twice"},
    {"version=1", "version=6", "line 1", "newer than the runtime"},
    {"version=1 ", "", "line 1", "'version' is missing"},
    {"name=attention ", "", "line 1", "'name' is missing"},
    {"target=sm_80", "target=gfx942", "line 1", "expected a target"},
    {"target=sm_80", "target=sm_", "line 1", "expected a target"},
    {"index=0 ", "", "line 2", "'index' is missing"},
    {"index=1", "index=0", "line 3", "declared on line 2"},
    {"index=1", "index=-1", "line 3", "from 0 to 63"},
    {"index=1", "index=64", "line 3", "from 0 to 63"},
    {"index=4", "index=9", "line 12", "has index 4"},
    {"role=in ", "role=into ", "line 2", "expected role in, out or inout"},
    {"type=bf16", "type=bfloat", "line 2", "unknown type 'bfloat'"},
    {"?x12x?x64", "?x12x?x", "line 2", "integers or '?'"},
    {"?x12x?x64", "?x-1x?x64", "line 2", "integers or '?'"},
    {"?x12x?x64", "1x1x1x1x1x1x1x1x1", "line 2", "at most 8"},
    {"?x12x?x64", "99999999999999999999", "line 2", "integers or '?'"},
    {"name=query", "query", "line 2", "expected key=value"},
    {"name=query", "name=", "line 2", "1 to 255 characters"},
    {"name=query", "name=qu\x01ry", "line 2", "printable ASCII"},
    {"a0.d0=a1.d0 a0", "a0.d0 a0", "line 7", "aN.dK=aM.dL"},
    {"a0.d0=a1.d0 a0", "a0.d0=a1.d0=a2.d0 a0", "line 7", "aN.dK=aM.dL"},
    {"a0.d0=a1.d0 a0", "a0.d0=b1.d0 a0", "line 7", "aN.dK=aM.dL"},
    {"a0.d0=a1.d0 a0", "a0.d0=a9.d0 a0", "line 7", "a9 is unknown"},
    {"a0.d0=a1.d0 a0", "a0.d4=a1.d0 a0", "line 7", "has rank 4"},
    {"a0.d2=a4.d2\n", "a0.d2=a4.d2\n//!fa.same\n", "line 9", "expected aN"},
    {"a0.s3=1", "a0.s4=1", "line 9", "has rank 4"},
    {"a0.s3=1", "a0.t3=1", "line 9", "aN.sK=INT or aN.align=INT"},
    {"a0.s3=1", "a0.s3=x", "line 9", "aN.sK=INT or aN.align=INT"},
    {"a0.align=16", "a0.align=0", "line 10", "aN.align=INT"},
    {"a0.align=16", "a7.align=16", "line 10", "a7 is unknown"},
    {"a0.align=16", "a0.swizzle=3", "line 10", "aN.align=INT"},
    {"a0.align=16", "", "line 10", "expected aN.sK=INT"},
    {"kernel=attention_kernel ", "", "line 11", "'kernel' is missing"},
    {"block=128", "block=0", "line 11", "from 1 to 1024"},
    {"block=128", "block=1025", "line 11", "from 1 to 1024"},
    {"smem=49152", "smem=-1", "line 11", "for 'smem'"},
    {"grid=a0.d2/128*12", "grid=a0.d2/0*12", "line 11", "aN.dK/INT"},
    {"grid=a0.d2/128*12", "grid=a0.d2/*12", "line 11", "aN.dK/INT"},
    {"grid=a0.d2/128*12", "grid=4/2*12", "line 11", "aN.dK/INT"},
    {"grid=a0.d2/128*12", "grid=a0.d2+1*12", "line 11", "aN.dK/INT"},
    {"grid=a0.d2/128*12", "grid=a0.d5/128*12", "line 11", "has rank 4"},
    {"grid=a0.d2/128*12", "grid=a5.d0*12", "line 11", "a5 is unknown"},
    {"grid=a0.d2/128*12*a0.d0", "grid=", "line 11", "1 to 16 factors"},
    {"grid=a0.d2/128", "grid=1*1*1*1*1*1*1*1*1*1*1*1*1*1*1", "line 11",
     "1 to 16 factors"},
    {"args=0,1,2,3,4", "args=0,1,2,3,5", "line 11", "5 in 'args'"},
    {"args=0,1,2,3,4", "args=0,,1", "line 11", "indices of tensors"},
    {"args=0,1,2,3,4", "args=99", "line 11", "indices of tensors"},
    {"//!fa.launch", "//!fa.tma", "line 11", "unknown directive 'tma'"},
    {"//!fa.end\n", "", "line 12", "no //!fa.end"},
    {"//!fa.same a1",
     "//!fa.program version=1 name=a target=sm_80 b=", "line 8", "given twice"},
};

TEST(Header, EachMalformedLineIsNamed) {
  expectMalformed(attentionImage(), kMalformed);
}

TEST(Header, WithoutLaunch) {
  std::string image = attentionImage();
  size_t begin = image.find("//!fa.launch");
  image.erase(begin, image.find("//!fa.end") - begin);
  expectError(verify(image), FA_RT_BAD_IMAGE, {"no //!fa.launch"});
}

TEST(Header, NewerImageNamesBothVersions) {
  expectError(verify(changed("version=1", "version=7")), FA_RT_BAD_IMAGE,
              {"newer than the runtime", "version 7", "up to 5", "update"});
}

TEST(Header, ProgramLineComesFirst) {
  expectError(verify("//!fa.end\n" + attentionImage()), FA_RT_BAD_IMAGE,
              {"image line 1", "expected //!fa.program first"});
}

TEST(Header, ArgumentsComeBeforeTemps) {
  expectError(
      verify(changed("//!fa.arg index=2 name=value role=in type=bf16",
                     "//!fa.temp index=2 type=bf16 shape=4\n//!fa.arg index=5 "
                     "name=v role=in type=bf16")),
      FA_RT_BAD_IMAGE, {"argument 3 comes after a temporary buffer"});
}

TEST(Header, TempSizesComeFromEarlierTensors) {
  std::string temp = "//!fa.temp index=5 type=f32 shape=";
  std::string same = "//!fa.same a1";
  EXPECT_EQ(verify(changed(same, temp + "a0.d0,12,a1.d2/64*2\n" + same)),
            FA_RT_OK)
      << fa_rt_last_error();
  expectError(verify(changed(same, temp + "a5.d0\n" + same)), FA_RT_BAD_IMAGE,
              {"image line 8", "a5 is unknown"});
  expectError(verify(changed(same, temp + "4,,4\n" + same)), FA_RT_BAD_IMAGE,
              {"image line 8", "1 to 16 factors"});
  expectError(verify(changed(same, temp + "4 zero=2\n" + same)),
              FA_RT_BAD_IMAGE, {"image line 8", "from 0 to 1 for 'zero'"});
}

TEST(Header, TooManyParameters) {
  std::string image = attentionImage();
  std::string args = "args=0,1,2,3,4";
  std::string more = "args=0";
  for (int i = 0; i < 60; ++i)
    more += ",0";
  expectError(verify(changed(args, more)), FA_RT_BAD_IMAGE,
              {"kernel parameters take 4392 bytes", "4096"});
}

TEST(Header, NotAnImage) {
  expectError(fa_rt_image_verify(nullptr, 0, nullptr), FA_RT_INVALID_ARGUMENT,
              {"NULL"});
  expectError(verify(""), FA_RT_BAD_IMAGE, {"no //!fa.program"});
  expectError(verify("hello"), FA_RT_BAD_IMAGE, {"no //!fa.program"});
  expectError(verify(code({})), FA_RT_BAD_IMAGE, {"no //!fa.program"});
  expectError(verify(std::string("a\0b", 3)), FA_RT_BAD_IMAGE,
              {"NUL at byte 1"});
  expectError(verify("\x7f"
                     "ELF..."),
              FA_RT_BAD_IMAGE, {"cubin without a header"});
}

TEST(Header, CodeMustFollowAndAgree) {
  expectError(verify(kAttentionHeader), FA_RT_BAD_IMAGE, {"no PTX"});
  expectError(verify(kAttentionHeader + code({}, "sm_90a")), FA_RT_BAD_IMAGE,
              {"target=sm_80", ".target sm_90a"});
}

TEST(Header, ContiguousStrides) {
  fa_rt_tensor t = tensor(FA_RT_F32, {2, 3, 4});
  EXPECT_EQ(t.strides[0], 12);
  EXPECT_EQ(t.strides[1], 4);
  EXPECT_EQ(t.strides[2], 1);
  int64_t shape[1] = {1};
  EXPECT_EQ(fa_rt_tensor_contiguous(nullptr, FA_RT_F32, 9, shape).rank, 9);
}
