// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Images of header version 2: tensor maps, and grids of a few waves.

#include "TestUtil.h"

#include <functional>
#include <thread>

namespace {
class TensorMap : public RuntimeTest {
protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    state().behaviour.major = 9;
    state().behaviour.smemOptin = 232448;
    state().behaviour.smCount = 132;
  }
};
} // namespace

static const char *const kHeader =
    "//!fa.program version=2 name=mapped target=sm_90a\n"
    "//!fa.arg index=0 name=query role=in type=bf16 shape=?x12x?x64\n"
    "//!fa.arg index=1 name=key role=in type=f16 shape=?x?x128\n"
    "//!fa.arg index=2 name=out role=out type=f32 shape=?\n"
    "//!fa.map index=0 tensor=0 dim=2 rows=128\n"
    "//!fa.map index=1 tensor=1 dim=1 rows=176\n"
    "//!fa.launch kernel=k block=384 smem=200000 grid=a0.d0*a1.d0 args=0,1,2 "
    "maps=0,1\n"
    "//!fa.end\n";
/// Words of its tensors.
constexpr int kParams = 9 + 7 + 3;

static std::string image() {
  return kHeader + code({{"k", kParams, 2}}, "sm_90a");
}

/// The image with `from` replaced by `to`.
static std::string changed(const std::string &from, const std::string &to) {
  return changed(image(), from, to);
}

static Args goodArgs(uint64_t address = 0x10000) {
  return {tensor(FA_RT_BF16, {2, 12, 300, 64}, address),
          tensor(FA_RT_F16, {3, 500, 128}, 0x20000),
          tensor(FA_RT_F32, {8}, 0x30000)};
}

/// Runs `body` on a thread of its own, which has encoded nothing yet.
static void onNewThread(const std::function<void()> &body) {
  std::thread(body).join();
}

/// Launches, and returns the first kernel's maps.
static std::vector<fake::TensorMap> mapsOf(const Program &program,
                                           const Args &args) {
  state().launches.clear();
  EXPECT_EQ(launch(program, args), FA_RT_OK) << fa_rt_last_error();
  return state().launches.empty() ? std::vector<fake::TensorMap>(2)
                                  : state().launches[0].maps;
}

template <typename T, size_t n>
static std::vector<T> firstOf(const T (&array)[n], size_t count) {
  return std::vector<T>(array, array + count);
}
using Box = std::vector<uint32_t>;

//===----------------------------------------------------------------------===//
// The header
//===----------------------------------------------------------------------===//

TEST_F(TensorMap, GoodHeader) {
  EXPECT_EQ(verify(image()), FA_RT_OK) << fa_rt_last_error();
  EXPECT_EQ(verify(changed("maps=0,1", "maps=1,0 waves=64")), FA_RT_OK)
      << fa_rt_last_error();
  EXPECT_EQ(verify(changed("rows=128", "rows=256")), FA_RT_OK)
      << fa_rt_last_error();
}

static const std::vector<Malformed> kMalformed = {
    {"map index=0 ", "map ", "line 5", "'index' is missing"},
    {"map index=0", "map index=1", "line 5", "expected index=0"},
    {"map index=1", "map index=0", "line 6", "expected index=1"},
    {"map index=0", "map index=16", "line 5", "from 0 to 15 for 'index'"},
    {"tensor=0 ", "", "line 5", "'tensor' is missing"},
    {"tensor=0", "tensor=64", "line 5", "from 0 to 63 for 'tensor'"},
    {"tensor=0", "tensor=3", "line 5", "tensor a3 is unknown"},
    {"tensor=0", "tensor=2", "line 5", "a2 has rank 1"},
    {"dim=2 ", "", "line 5", "'dim' is missing"},
    {"dim=2", "dim=8", "line 5", "from 0 to 7 for 'dim'"},
    {"dim=2", "dim=4", "line 5", "has rank 4, so dimension 4 is unknown"},
    {"dim=2", "dim=3", "line 5", "got rank 4 and dimension 3"},
    {"shape=?x12x?x64", "shape=?x?x?x?x?x?", "line 5", "rank 2 to 5"},
    {"tensor=0 dim=2", "tensor=2 dim=0", "line 5", "got rank 1 and dimension"},
    {"type=bf16", "type=f64", "line 5", "tensor of f16, bf16 or f32, got f64"},
    {"type=bf16", "type=i16", "line 5", "tensor of f16, bf16 or f32, got i16"},
    {" rows=128", "", "line 5", "'rows' is missing"},
    {"rows=128", "rows=0", "line 5", "from 1 to 256 for 'rows'"},
    {"rows=128", "rows=257", "line 5", "from 1 to 256 for 'rows'"},
    {"maps=0,1", "maps=0,2", "line 7", "maps above in 'maps', got '2'"},
    {"maps=0,1", "maps=-1", "line 7", "maps above in 'maps', got '-1'"},
    {"maps=0,1", "maps=0,,1", "line 7", "maps above in 'maps', got ''"},
    {"maps=0,1", "maps=0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0", "line 7",
     "at most 16 tensor maps, got 17"},
    {"maps=0,1", "maps=0,1 waves=0", "line 7", "from 1 to 64 for 'waves'"},
    {"maps=0,1", "maps=0,1 waves=65", "line 7", "from 1 to 64 for 'waves'"},
    {"maps=0,1", "maps=0,1 maps=0", "line 7", "'maps' is given twice"},
    {"rows=128", "rows=128 cols=16", "line 5", "from 32 to 32 for 'cols'"},
    {"rows=128", "rows=128 cols=32", "line 5", "f32 only, got bf16"},
    {"version=2", "version=6", "line 1", "newer than the runtime"},
};

TEST_F(TensorMap, EachMalformedLineIsNamed) {
  expectMalformed(image(), kMalformed);
}

TEST_F(TensorMap, AMapIsDeclaredBeforeItsLaunch) {
  std::string text = image();
  size_t at = text.find("//!fa.map"), to = text.find("//!fa.launch");
  std::string maps = text.substr(at, to - at);
  text.erase(at, maps.size());
  text.insert(text.find("//!fa.end"), maps);
  expectError(verify(text), FA_RT_BAD_IMAGE,
              {"image line 5", "tensor maps above in 'maps', got '0'"});
}

TEST_F(TensorMap, MapsCountAsParameters) {
  // 27 ranks of 9 words and one of 3 are 1,968 bytes; aligned, and with 16
  // maps: 4,032.
  std::string args = "args=0";
  for (int i = 1; i < 27; ++i)
    args += ",0";
  std::string maps = "maps=0";
  for (int i = 1; i < 16; ++i)
    maps += ",0";
  std::string with = args + ",2 " + maps;
  EXPECT_EQ(verify(changed("args=0,1,2 maps=0,1", with)), FA_RT_OK)
      << fa_rt_last_error();
  with = args + ",0,2 " + maps;
  EXPECT_EQ(verify(changed("args=0,1,2 maps=0,1", with)), FA_RT_OK)
      << fa_rt_last_error();
  with = args + ",0,0 " + maps;
  expectError(verify(changed("args=0,1,2 maps=0,1", with)), FA_RT_BAD_IMAGE,
              {"image line 7", "kernel parameters take 4160 bytes", "4096"});
}

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

TEST_F(TensorMap, ArchitectureSpecificCodeIsLoadedWithoutTheLinker) {
  load(image());
  EXPECT_EQ(state().calls, std::vector<std::string>{"moduleLoad ptx"});
  EXPECT_EQ(state().compilations, 0);
  state().calls.clear();
  load(attentionImage());
  EXPECT_EQ(state().calls, std::vector<std::string>{"moduleLoad cubin"});
  EXPECT_EQ(state().compilations, 1);
}

TEST_F(TensorMap, ArchitectureSpecificCodeIsNotCached) {
  TempDirectory directory;
  setenv("FA_CACHE", "1", 1);
  setenv("FA_CACHE_DIR", directory.path.c_str(), 1);
  for (int i = 0; i < 2; ++i) {
    fa_rt_program *program = nullptr;
    std::string text = image();
    ASSERT_EQ(
        fa_rt_program_load(0, text.data(), text.size(), nullptr, &program),
        FA_RT_OK)
        << fa_rt_last_error();
    fa_rt_program_desc desc;
    EXPECT_EQ(fa_rt_program_info(program, &desc), FA_RT_OK);
    EXPECT_EQ(desc.from_cache, 0);
    fa_rt_program_free(program);
  }
  unsetenv("FA_CACHE_DIR");
  EXPECT_EQ(state().calls, (std::vector<std::string>(2, "moduleLoad ptx")));
}

TEST_F(TensorMap, RejectedArchitectureSpecificCodeCarriesTheLog) {
  state().behaviour.rejectLog = "ptxas application ptx input, line 9; no";
  expectError(loadStatus(image()), FA_RT_DRIVER_REJECTED,
              {"line 9; no", "'mapped' for sm_90a", "CUDA_ERROR_FAKE (218)"});
}

TEST_F(TensorMap, KernelWithOtherMaps) {
  auto expectOther = [&](int params, int maps, const char *message) {
    expectError(loadStatus(kHeader + code({{"k", params, maps}}, "sm_90a")),
                FA_RT_BAD_IMAGE, {message});
  };
  expectOther(kParams, 1,
              "does not take 2 tensor maps after 19 parameters of 8 bytes as "
              "its header says: number 1 differs");
  expectOther(kParams, 0, "number 0 differs");
  expectOther(kParams, 3, "more than the 19 parameters");
  expectOther(kParams - 1, 2, "does not take 19 parameters of 8 bytes");
  expectOther(kParams + 1, 2, "number 0 differs");
}

TEST_F(TensorMap, MapsOfAnyNumberOfParametersBefore) {
  // Where the maps begin depends on where 64 bytes end.
  for (int scalars = 1; scalars <= 9; ++scalars) {
    std::string header =
        "//!fa.program version=2 name=p target=sm_90a\n"
        "//!fa.arg index=0 name=x role=in type=bf16 shape=?x64\n"
        "//!fa.arg index=1 name=s role=in type=f32 shape=scalar\n"
        "//!fa.map index=0 tensor=0 dim=0 rows=64\n"
        "//!fa.launch kernel=k block=128 grid=1 maps=0 args=1";
    for (int i = 1; i < scalars; ++i)
      header += ",1";
    EXPECT_EQ(loadStatus(header + "\n//!fa.end\n" +
                         code({{"k", scalars, 1}}, "sm_90a")),
              FA_RT_OK)
        << fa_rt_last_error();
  }
}

//===----------------------------------------------------------------------===//
// Encoding
//===----------------------------------------------------------------------===//

TEST_F(TensorMap, DescribesTheTensorInnermostFirst) {
  onNewThread([] {
    Program program = load(image());
    Args args = goodArgs();
    args[0].strides[0] = 1 << 20;
    args[0].strides[1] = 64; // (batch, length, head, head dim)
    args[0].strides[2] = 12 * 64;
    std::vector<fake::TensorMap> maps = mapsOf(program, args);
    ASSERT_EQ(maps.size(), 2u);
    const fake::TensorMap &q = maps[0], &k = maps[1];
    EXPECT_EQ(q.address, 0x10000u);
    EXPECT_EQ(q.type, 9u); // CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
    EXPECT_EQ(q.rank, 4u);
    EXPECT_EQ(firstOf(q.sizes, 4), (Words{64, 300, 12, 2}));
    EXPECT_EQ(firstOf(q.strides, 3), (Words{12 * 64 * 2, 128, 2 << 20}));
    EXPECT_EQ(firstOf(q.box, 4), (Box{64, 128, 1, 1}));
    EXPECT_EQ(k.address, 0x20000u);
    EXPECT_EQ(k.type, 6u); // CU_TENSOR_MAP_DATA_TYPE_FLOAT16
    EXPECT_EQ(k.rank, 3u);
    EXPECT_EQ(firstOf(k.sizes, 3), (Words{128, 500, 3}));
    EXPECT_EQ(firstOf(k.strides, 2), (Words{256, 256 * 500}));
    EXPECT_EQ(firstOf(k.box, 3), (Box{64, 176, 1}));
    for (const fake::TensorMap &map : maps) {
      EXPECT_EQ(map.swizzle, 3u);    // CU_TENSOR_MAP_SWIZZLE_128B
      EXPECT_EQ(map.interleave, 0u); // CU_TENSOR_MAP_INTERLEAVE_NONE
      EXPECT_EQ(map.promotion, 3u);  // CU_TENSOR_MAP_L2_PROMOTION_L2_256B
      EXPECT_EQ(map.oobFill, 0u);    // zeros
    }
    // The tensors' own words stand before the maps.
    const std::vector<uint64_t> &words = state().launches[0].params;
    ASSERT_EQ(words.size(), size_t(kParams));
    EXPECT_EQ(words[0], 0x10000u);
    EXPECT_EQ(words[9], 0x20000u);
    EXPECT_EQ(words[16], 0x30000u);
  });
}

TEST_F(TensorMap, FollowTheOrderOfTheLaunch) {
  onNewThread([] {
    std::string text = changed("maps=0,1\n", "maps=1,0,1\n");
    text = text.substr(0, text.find(".version")) +
           code({{"k", kParams, 3}}, "sm_90a");
    std::vector<fake::TensorMap> maps = mapsOf(load(text), goodArgs());
    ASSERT_EQ(maps.size(), 3u);
    EXPECT_EQ(maps[0].address, 0x20000u);
    EXPECT_EQ(maps[1].address, 0x10000u);
    EXPECT_EQ(maps[2].address, 0x20000u);
    // The third is the first, taken from the cache.
    EXPECT_EQ(state().encodings, 2);
  });
}

TEST_F(TensorMap, OneTensorMayHaveMapsOfSeveralBoxes) {
  onNewThread([] {
    Program program = load(changed("map index=1 tensor=1 dim=1 rows=176",
                                   "map index=1 tensor=0 dim=1 rows=8"));
    std::vector<fake::TensorMap> maps = mapsOf(program, goodArgs());
    EXPECT_EQ(maps[0].address, maps[1].address);
    EXPECT_EQ(firstOf(maps[0].box, 4), (Box{64, 128, 1, 1}));
    EXPECT_EQ(firstOf(maps[1].box, 4), (Box{64, 1, 8, 1}));
  });
}

/// A program with a map of a temporary buffer of 128 columns.
static std::string imageOfTemporary(const std::string &type, int rows,
                                    const std::string &cols = "") {
  return "//!fa.program version=4 name=p target=sm_90a\n"
         "//!fa.arg index=0 name=x role=in type=bf16 shape=?x?\n"
         "//!fa.temp index=1 type=" +
         type +
         " shape=a0.d0,128\n"
         "//!fa.map index=0 tensor=1 dim=0 rows=" +
         std::to_string(rows) + cols +
         "\n"
         "//!fa.launch kernel=k block=128 grid=1 args=0,1 maps=0\n"
         "//!fa.end\n" +
         code({{"k", 10, 1}}, "sm_90a");
}

TEST_F(TensorMap, IsOfATemporaryBufferToo) {
  onNewThread([] {
    Program program = load(imageOfTemporary("bf16", 64));
    std::vector<fake::TensorMap> maps =
        mapsOf(program, {tensor(FA_RT_BF16, {40, 8})});
    EXPECT_EQ(maps[0].address, state().launches[0].params[5]);
    EXPECT_EQ(firstOf(maps[0].sizes, 2), (Words{128, 40}));
    EXPECT_EQ(firstOf(maps[0].strides, 1), (Words{256}));
  });
}

TEST_F(TensorMap, OfF32HasBoxesOf16ColumnsAsTheyAre) {
  onNewThread([] {
    Program program = load(imageOfTemporary("f32", 16));
    std::vector<fake::TensorMap> maps =
        mapsOf(program, {tensor(FA_RT_BF16, {40, 8})});
    EXPECT_EQ(maps[0].type, 7u); // CU_TENSOR_MAP_DATA_TYPE_FLOAT32
    EXPECT_EQ(firstOf(maps[0].sizes, 2), (Words{128, 40}));
    EXPECT_EQ(firstOf(maps[0].strides, 1), (Words{512}));
    EXPECT_EQ(firstOf(maps[0].box, 2), (Box{16, 16}));
    EXPECT_EQ(maps[0].swizzle, 0u); // CU_TENSOR_MAP_SWIZZLE_NONE
  });
}

TEST_F(TensorMap, OfF32HasBoxesOf32ColumnsInTheSwizzleWhereItSaysSo) {
  onNewThread([] {
    Args args = {tensor(FA_RT_BF16, {40, 8})};
    std::vector<fake::TensorMap> maps =
        mapsOf(load(imageOfTemporary("f32", 16, " cols=32")), args);
    EXPECT_EQ(maps[0].type, 7u); // CU_TENSOR_MAP_DATA_TYPE_FLOAT32
    EXPECT_EQ(firstOf(maps[0].box, 2), (Box{32, 16}));
    EXPECT_EQ(maps[0].swizzle, 3u); // CU_TENSOR_MAP_SWIZZLE_128B
    // The same but for the columns.
    maps = mapsOf(load(imageOfTemporary("f32", 16)), args);
    EXPECT_EQ(firstOf(maps[0].box, 2), (Box{16, 16}));
  });
}

TEST_F(TensorMap, IsKeptForTheSameTensor) {
  onNewThread([] {
    Program program = load(image());
    mapsOf(program, goodArgs());
    EXPECT_EQ(state().encodings, 2);
    std::vector<fake::TensorMap> maps = mapsOf(program, goodArgs());
    EXPECT_EQ(state().encodings, 2);
    EXPECT_EQ(maps[0].address, 0x10000u);
    EXPECT_EQ(maps[1].address, 0x20000u);
    // What is not in a map does not matter.
    Args args = goodArgs();
    args[2] = tensor(FA_RT_F32, {9}, 0x40000);
    mapsOf(program, args);
    EXPECT_EQ(state().encodings, 2);
    // The cache is of the thread, not of the program.
    mapsOf(load(image()), goodArgs());
    EXPECT_EQ(state().encodings, 2);
  });
  onNewThread([] { mapsOf(load(image()), goodArgs()); });
  EXPECT_EQ(state().encodings, 4);
}

TEST_F(TensorMap, IsMadeAnewWhenAnythingChanges) {
  onNewThread([] {
    Program program = load(image());
    mapsOf(program, goodArgs());
    auto expectAnew = [&](auto change, auto check) {
      int before = state().encodings;
      Args args = goodArgs();
      change(args[0]);
      fake::TensorMap map = mapsOf(program, args)[0];
      EXPECT_GE(state().encodings, before + 1);
      check(map);
      // And back.
      map = mapsOf(program, goodArgs())[0];
      EXPECT_EQ(map.address, 0x10000u);
      EXPECT_EQ(firstOf(map.sizes, 4), (Words{64, 300, 12, 2}));
      EXPECT_EQ(map.strides[0], 128u);
    };
    expectAnew(
        [](fa_rt_tensor &q) { q.data = reinterpret_cast<void *>(0x50000); },
        [](fake::TensorMap map) { EXPECT_EQ(map.address, 0x50000u); });
    expectAnew([](fa_rt_tensor &q) { q.shape[2] = 299; },
               [](fake::TensorMap map) { EXPECT_EQ(map.sizes[1], 299u); });
    expectAnew([](fa_rt_tensor &q) { q.shape[0] = 1; },
               [](fake::TensorMap map) { EXPECT_EQ(map.sizes[3], 1u); });
    expectAnew([](fa_rt_tensor &q) { q.strides[2] = 72; },
               [](fake::TensorMap map) { EXPECT_EQ(map.strides[0], 144u); });
    // Another program's box of the same tensor.
    fake::TensorMap map =
        mapsOf(load(changed("rows=128", "rows=64")), goodArgs())[0];
    EXPECT_EQ(map.box[1], 64u);
    map = mapsOf(load(changed("dim=2 rows=128", "dim=1 rows=128")),
                 goodArgs())[0];
    EXPECT_EQ(map.box[2], 128u);
    // The same memory as another type.
    std::string text = changed("type=bf16", "type=f16");
    Args args = goodArgs();
    args[0].dtype = FA_RT_F16;
    EXPECT_EQ(mapsOf(load(text), args)[0].type, 6u);
  });
}

TEST_F(TensorMap, MoreTensorsThanAThreadKeeps) {
  onNewThread([] {
    Program program = load(image());
    for (int round = 0; round < 2; ++round)
      for (uint64_t i = 1; i <= 500; ++i)
        ASSERT_EQ(mapsOf(program, goodArgs(0x1000 * i))[0].address,
                  0x1000u * i);
  });
}

TEST_F(TensorMap, StridesOfSizeOneDoNotMatter) {
  onNewThread([] {
    Program program = load(image());
    Args args = goodArgs();
    args[0] = tensor(FA_RT_BF16, {1, 12, 1, 64}, 0x10000);
    args[0].strides[0] = 3;
    args[0].strides[2] = -7;
    fake::TensorMap map = mapsOf(program, args)[0];
    EXPECT_EQ(firstOf(map.sizes, 4), (Words{64, 1, 12, 1}));
    EXPECT_EQ(map.strides[0] % 16, 0u);
    EXPECT_EQ(map.strides[1], 128u);
    EXPECT_EQ(map.strides[2] % 16, 0u);
  });
}

TEST_F(TensorMap, BroadcastDimensions) {
  onNewThread([] {
    Args args = goodArgs();
    args[0].strides[1] = 0;
    fake::TensorMap map = mapsOf(load(image()), args)[0];
    EXPECT_EQ(map.strides[1], 0u);
    EXPECT_EQ(map.sizes[2], 12u);
  });
}

TEST_F(TensorMap, EmptyTensors) {
  onNewThread([] {
    // No keys: the kernel runs, and never reads through the map.
    Program program = load(changed("grid=a0.d0*a1.d0", "grid=a0.d0"));
    Args args = goodArgs();
    for (uint64_t address : {0, 0x10002}) {
      args[1] = tensor(FA_RT_F16, {3, 0, 128}, address);
      args[1].strides[0] = 1;
      args[1].strides[1] = -5;
      fake::TensorMap map = mapsOf(program, args)[1];
      EXPECT_NE(map.address, 0u);
      EXPECT_EQ(firstOf(map.sizes, 3), (Words{1, 1, 1}));
    }
    EXPECT_EQ(state().refusedEncodings, 0);
  });
}

TEST_F(TensorMap, EmptyGridsEncodeNothing) {
  onNewThread([] {
    Args args = goodArgs();
    args[0] = tensor(FA_RT_BF16, {0, 12, 300, 64}, 0);
    EXPECT_EQ(launch(load(image()), args), FA_RT_OK) << fa_rt_last_error();
    EXPECT_EQ(state().encodings, 0);
    EXPECT_TRUE(state().launches.empty());
  });
}

TEST_F(TensorMap, WhatTMACannotExpress) {
  onNewThread([] {
    Program program = load(image());
    auto expectRefused = [&](auto change,
                             const std::vector<std::string> &parts) {
      Args args = goodArgs();
      change(args[0]);
      state().launches.clear();
      expectError(launch(program, args), FA_RT_INVALID_ARGUMENT, parts);
      EXPECT_TRUE(state().launches.empty());
      // A refusal is not remembered as a map.
      expectError(launch(program, args), FA_RT_INVALID_ARGUMENT, parts);
    };
    expectRefused([](fa_rt_tensor &q) { q.strides[2] = 68; },
                  {"argument 0 (query): TMA cannot express its sizes and "
                   "strides (2 by 230400, 12 by 19200, 300 by 68, 64 by 1 "
                   "elements; sizes up to 2^32, strides in multiples of 16 "
                   "bytes below 2^40)",
                   "CUDA_ERROR_FAKE (1)", "make the tensor contiguous"});
    expectRefused([](fa_rt_tensor &q) { q.strides[1] = -64; },
                  {"argument 0 (query)", "12 by -64"});
    expectRefused([](fa_rt_tensor &q) { q.strides[0] = int64_t(1) << 39; },
                  {"2 by 549755813888"});
    // TMA's sizes go up to 2^32, those of a launch not as far.
    expectRefused([](fa_rt_tensor &q) { q.shape[2] = (int64_t(1) << 32) + 1; },
                  {"got 4294967297 in dimension 2"});
    expectRefused(
        [](fa_rt_tensor &q) { q.data = reinterpret_cast<void *>(0x10008); },
        {"argument 0 (query)"});
    Args args = goodArgs();
    args[0].strides[0] = (int64_t(1) << 39) - 8;
    EXPECT_EQ(mapsOf(program, args)[0].strides[2], (uint64_t(1) << 40) - 16);
    args = goodArgs();
    args[0].shape[2] = FA_RT_MAX_EXTENT;
    EXPECT_EQ(mapsOf(program, args)[0].sizes[1],
              static_cast<uint64_t>(FA_RT_MAX_EXTENT));
  });
}

TEST_F(TensorMap, DriverFails) {
  onNewThread([] {
    Program program = load(image());
    state().behaviour.encodeResult = 999;
    expectError(launch(program, goodArgs()), FA_RT_INVALID_ARGUMENT,
                {"argument 0 (query)", "CUDA_ERROR_FAKE (999)"});
    state().behaviour.encodeResult = 0;
    EXPECT_EQ(mapsOf(program, goodArgs())[0].address, 0x10000u);
  });
}

TEST_F(TensorMap, ManyThreads) {
  Program program = load(image());
  std::vector<std::thread> threads;
  for (uint64_t t = 1; t <= 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i)
        EXPECT_EQ(launch(program, goodArgs(0x100000 * t)), FA_RT_OK);
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(state().launches.size(), 400u);
  for (const fake::Launch &launch : state().launches)
    EXPECT_EQ(launch.maps[0].address, launch.params[0]);
  EXPECT_EQ(state().encodings, 8);
}

//===----------------------------------------------------------------------===//
// Grids of a few waves
//===----------------------------------------------------------------------===//

TEST_F(TensorMap, WavesLimitTheGrid) {
  auto gridOf = [](const std::string &waves, int64_t batch) {
    Program program = load(changed("maps=0,1", "maps=0,1" + waves));
    Args args = goodArgs();
    args[0] = tensor(FA_RT_BF16, {batch, 12, 4, 64}, 0x10000);
    state().launches.clear();
    EXPECT_EQ(launch(program, args), FA_RT_OK) << fa_rt_last_error();
    return state().launches.empty() ? 0 : state().launches[0].grid[0];
  };
  // The grid is 3 times the batch.
  EXPECT_EQ(gridOf("", 1000), 3000u);
  EXPECT_EQ(gridOf(" waves=1", 1000), 132u);
  EXPECT_EQ(gridOf(" waves=2", 1000), 264u);
  EXPECT_EQ(gridOf(" waves=1", 44), 132u);
  EXPECT_EQ(gridOf(" waves=1", 43), 129u);
  EXPECT_EQ(gridOf(" waves=64", 2816), 8448u);
  EXPECT_EQ(gridOf(" waves=64", 2817), 8448u);
  EXPECT_EQ(gridOf(" waves=1", 0), 0u);
}

TEST_F(TensorMap, WavesDoNotRaiseTheLimitOfAGrid) {
  Program program = load(changed("maps=0,1", "maps=0,1 waves=1"));
  Args args = goodArgs();
  args[0] = tensor(FA_RT_BF16, {int64_t(1) << 31, 12, 0, 64}, 0);
  expectError(launch(program, args), FA_RT_INVALID_ARGUMENT,
              {"grid of kernel k exceeds the limit of 2147483647"});
}

//===----------------------------------------------------------------------===//
// The fake itself
//===----------------------------------------------------------------------===//

TEST_F(TensorMap, TheFakeDriverChecksWhatTheRealOneDoes) {
  alignas(64) unsigned char bytes[192];
  struct Call {
    int type = 9;
    uint32_t rank = 3;
    uint64_t address = 0x1000, sizes[6] = {64, 8, 8, 1, 1, 1};
    uint64_t strides[5] = {128, 1024, 16, 16, 16};
    uint32_t box[6] = {64, 8, 1, 1, 1, 1}, steps[6] = {1, 1, 1, 1, 1, 1};
    int interleave = 0, swizzle = 3, promotion = 3, oobFill = 0;
    size_t at = 0;
  };
  auto encode = [&](auto change) {
    Call c;
    change(c);
    return fakeEncode()(bytes + c.at, c.type, c.rank, c.address, c.sizes,
                        c.strides, c.box, c.steps, c.interleave, c.swizzle,
                        c.promotion, c.oobFill);
  };
  EXPECT_EQ(encode([](Call &) {}), 0);
  EXPECT_EQ(encode([](Call &c) { c.rank = 1; }), 0);
  EXPECT_EQ(encode([](Call &c) { c.rank = 5; }), 0);
  EXPECT_NE(encode([](Call &c) { c.rank = 0; }), 0);
  EXPECT_NE(encode([](Call &c) { c.rank = 6; }), 0);
  EXPECT_NE(encode([](Call &c) { c.type = 13; }), 0);
  EXPECT_NE(encode([](Call &c) { c.address = 0x1008; }), 0);
  EXPECT_NE(encode([](Call &c) { c.address = 0; }), 0);
  EXPECT_NE(encode([](Call &c) { c.sizes[1] = 0; }), 0);
  EXPECT_EQ(encode([](Call &c) { c.sizes[1] = uint64_t(1) << 32; }), 0);
  EXPECT_NE(encode([](Call &c) { c.sizes[1] = (uint64_t(1) << 32) + 1; }), 0);
  EXPECT_NE(encode([](Call &c) { c.strides[0] = 24; }), 0);
  EXPECT_EQ(encode([](Call &c) { c.strides[2] = 24; }), 0) << "is not read";
  EXPECT_NE(encode([](Call &c) { c.strides[1] = uint64_t(1) << 40; }), 0);
  EXPECT_NE(encode([](Call &c) { c.box[1] = 0; }), 0);
  EXPECT_EQ(encode([](Call &c) { c.box[1] = 256; }), 0);
  EXPECT_NE(encode([](Call &c) { c.box[1] = 257; }), 0);
  EXPECT_NE(encode([](Call &c) { c.box[0] = 128; }), 0);
  EXPECT_NE(encode([](Call &c) { c.box[0] = 32; }), 0);
  EXPECT_NE(encode([](Call &c) { c.type = 7; }), 0);
  EXPECT_NE(encode([](Call &c) { c.steps[1] = 0; }), 0);
  EXPECT_NE(encode([](Call &c) { c.interleave = 1; }), 0);
  EXPECT_NE(encode([](Call &c) { c.swizzle = 4; }), 0);
  EXPECT_NE(encode([](Call &c) { c.promotion = 4; }), 0);
  EXPECT_NE(encode([](Call &c) { c.oobFill = 2; }), 0);
  EXPECT_NE(encode([](Call &c) { c.at = 16; }), 0);
}
