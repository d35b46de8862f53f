// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Target/TargetInfo.h"

#include "gtest/gtest.h"

using namespace fa;

namespace {

TargetInfo target(llvm::StringRef name) {
  llvm::Expected<TargetInfo> t = lookupTarget(name);
  if (!t) {
    ADD_FAILURE() << llvm::toString(t.takeError());
    return {};
  }
  return *t;
}

TileSizes choose(llvm::StringRef name, TileProblem problem,
                 TileAlgorithm algorithm = TileAlgorithm::FA2) {
  llvm::Expected<TileSizes> s =
      chooseTileSizes(target(name), problem, algorithm);
  if (!s) {
    ADD_FAILURE() << llvm::toString(s.takeError());
    return {};
  }
  EXPECT_FALSE(s->reason.empty());
  return *s;
}

TileProblem heads(int64_t d, unsigned bits = 16) { return {d, d, bits}; }

#define EXPECT_TILE(sizes, r, c)                                               \
  do {                                                                         \
    TileSizes s_ = (sizes);                                                    \
    EXPECT_TRUE(s_.rows == (r) && s_.keys == (c)) << s_.reason;                \
  } while (false)

TEST(TargetInfo, PlainGradientsOfHopperHave80Rows) {
  TileProblem p = heads(128);
  p.gradients = true;
  EXPECT_TILE(choose("sm_90a", p), 80, 128);
  // 7 tiles of 80 for 512 queries would compute 560.
  p.queryLength = 512;
  EXPECT_TILE(choose("sm_90a", p), 64, 128);
  p.queryLength = 2048;
  EXPECT_TILE(choose("sm_90a", p), 80, 128);
  for (bool TileProblem::*more :
       {&TileProblem::scoreFunction, &TileProblem::dropout,
        &TileProblem::blockMask}) {
    TileProblem other = p;
    other.*more = true;
    EXPECT_TILE(choose("sm_90a", other), 64, 128);
  }
  p.maskTests = 1;
  EXPECT_TILE(choose("sm_90a", p), 64, 128);
  p = heads(96);
  p.gradients = true;
  EXPECT_TILE(choose("sm_90a", p), 64, 128);
}

TEST(TargetInfo, UnknownNameListsTheKnown) {
  llvm::Expected<TargetInfo> t = lookupTarget("sm_75");
  ASSERT_FALSE(bool(t));
  EXPECT_EQ(llvm::toString(t.takeError()),
            "unknown target 'sm_75'; known targets are cpu, sm_80, sm_86, "
            "sm_89, sm_90, sm_90a, sm_120");
}

TEST(TargetInfo, RowsAreComplete) {
  for (llvm::StringRef name : getKnownTargets()) {
    TargetInfo t = target(name);
    EXPECT_EQ(t.name, name);
    EXPECT_GT(t.l2Bytes, 0);
    EXPECT_GT(t.multiprocessors, 0);
    if (t.kind == TargetInfo::Kind::CPU) {
      EXPECT_GE(t.l1Bytes, 8 << 10);
      EXPECT_GE(t.vectorBytes, 16);
      continue;
    }
    // A block can't have what its SM lacks; 1 KiB is the system's.
    EXPECT_EQ(t.sharedBytesPerBlock + 1024, t.sharedBytesPerSM) << name.str();
    EXPECT_NE(t.tensorCores, TargetInfo::TensorCores::None);
    EXPECT_GE(t.ptxVersion, 80);
    EXPECT_GE(t.minDriver, 525);
    EXPECT_GT(t.memoryBandwidth, 0);
    EXPECT_GE(t.threadsPerSM, t.threadsPerBlock);
    if (t.tensorCores == TargetInfo::TensorCores::Wgmma)
      EXPECT_EQ(target(t.base).tensorCores, TargetInfo::TensorCores::MmaSync);
    else
      EXPECT_EQ(t.base, "");
  }
}

TEST(TileSizes, OnGPUsByHeadDim) {
  for (llvm::StringRef name : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_120"}) {
    EXPECT_TILE(choose(name, heads(64)), 128, 64);
    EXPECT_EQ(choose(name, heads(64)).warps, 4);
    EXPECT_EQ(choose(name, heads(64)).stages, 2);
  }
  // S and O take 192 registers: one stage, 64 KiB, two blocks on an A100.
  EXPECT_TILE(choose("sm_80", heads(128)), 128, 64);
  EXPECT_EQ(choose("sm_80", heads(128)).stages, 1);
  EXPECT_TILE(choose("sm_90", heads(128)), 128, 64);
  // With 32 keys two blocks share 100 KiB, too.
  EXPECT_TILE(choose("sm_89", heads(128)), 128, 32);
  // K and V of different shapes take a few registers more.
  EXPECT_TILE(choose("sm_80", {64, 128, 16}), 128, 32);
  EXPECT_TILE(choose("sm_80", {192, 128, 16}), 128, 32);
  // Spilling a little costs less than steps of 16 keys.
  EXPECT_TILE(choose("sm_80", heads(160)), 128, 32);
  // One stage of 64 keys takes 96 KiB: two blocks on sm_90, one on sm_86, and
  // on an A100 32 keys leave room for two.
  EXPECT_TILE(choose("sm_80", heads(256)), 64, 32);
  EXPECT_TILE(choose("sm_90", heads(256)), 64, 64);
  EXPECT_EQ(choose("sm_90", heads(256)).stages, 1);
  EXPECT_TILE(choose("sm_86", heads(256)), 64, 64);
}

TEST(TileSizes, OnHopperByHeadDim) {
  EXPECT_TILE(choose("sm_90a", heads(64)), 256, 64);
  EXPECT_EQ(choose("sm_90a", heads(64)).warps, 16);
  EXPECT_TILE(choose("sm_90a", heads(128)), 128, 128);
  EXPECT_TILE(choose("sm_90a", heads(256)), 128, 64);
  TileProblem lse = heads(128);
  lse.logSumExp = true;
  EXPECT_TILE(choose("sm_90a", lse), 128, 128);
  // A second sum leaves registers for a causal mask, and for no other.
  TileProblem wide = heads(256);
  wide.logSumExp = true;
  for (auto [tests, keys] : {std::pair(0, 64), {1, 64}, {2, 48}}) {
    wide.maskTests = tests;
    EXPECT_TILE(choose("sm_90a", wide), 128, keys);
  }
  // Masks and score functions have tiles of which a block works on two.
  TileProblem mask = heads(64), score = heads(64);
  mask.maskTests = 1;
  score.scoreFunction = true;
  EXPECT_TILE(choose("sm_90a", mask), 128, 64);
  EXPECT_TILE(choose("sm_90a", score), 128, 64);
  score.elementReads = true;
  EXPECT_TILE(choose("sm_90a", score), 128, 48);
  lse.scoreFunction = true;
  EXPECT_TILE(choose("sm_90a", lse), 128, 112);
  // At head dim 64 a second sum has registers where nothing else takes more.
  TileProblem narrow = heads(64);
  narrow.logSumExp = true;
  EXPECT_TILE(choose("sm_90a", narrow), 256, 64);
  narrow.maskTests = 1;
  EXPECT_TILE(choose("sm_90a", narrow), 128, 64);
  narrow.scoreFunction = true;
  EXPECT_TILE(choose("sm_90a", narrow), 128, 48);
  // Random bits come in groups of 64 keys.
  for (int64_t d : {64, 128, 192, 256}) {
    TileProblem dropout = heads(d);
    dropout.dropout = dropout.logSumExp = true;
    EXPECT_EQ(choose("sm_90a", dropout).keys % 64, 0) << d;
  }
  // Rows that are not whole chunks of 16 bytes are not for TMA.
  EXPECT_TILE(choose("sm_90a", heads(44)), 128, 64);
}

TEST(TileSizes, NumbersAreThoseOfTheTile) {
  TileSizes s = choose("sm_80", heads(64));
  // Q 128*64, two stages of K and V 64*64 each, 2 bytes.
  EXPECT_EQ(s.sharedBytes, 2 * (128 * 64 + 2 * 2 * 64 * 64));
  // Of 128 threads: S 128*64, O 128*64; 40 others.
  EXPECT_EQ(s.registers, 64 + 64 + 40);
  EXPECT_NE(s.reason.find("K and V are read 32 times"), std::string::npos)
      << s.reason;
}

TEST(TileSizes, EveryChoiceFits) {
  for (llvm::StringRef name : getKnownTargets())
    for (unsigned bits : {16u, 32u})
      for (int64_t d : {1, 16, 32, 64, 80, 96, 128, 192, 256})
        for (int64_t dv : {16, 64, 128, 256}) {
          TargetInfo t = target(name);
          TileProblem p = {d, dv, bits};
          for (TileAlgorithm algorithm :
               {TileAlgorithm::FA1, TileAlgorithm::FA2}) {
            TileSizes s = choose(name, p, algorithm);
            EXPECT_GE(s.rows, 16);
            EXPECT_GE(s.keys, 16);
            EXPECT_EQ(s.rows % 16 + s.keys % 16, 0);
            if (t.kind != TargetInfo::Kind::NVIDIA)
              continue;
            EXPECT_LE(s.sharedBytes, t.sharedBytesPerBlock) << s.reason;
            EXPECT_LE(s.registers, t.registersPerThread) << s.reason;
          }
        }
}

TEST(TileSizes, AreNoLargerThanTheLengths) {
  TileProblem decode = heads(128);
  decode.queryLength = 1;
  EXPECT_TILE(choose("sm_80", decode), 16, 64);
  EXPECT_EQ(choose("sm_80", decode).warps, 1);
  TileProblem narrow = heads(64);
  narrow.queryLength = 40;
  narrow.keyLength = 20;
  EXPECT_TILE(choose("sm_80", narrow), 64, 32);
}

TEST(TileSizes, FlashAttentionsRule) {
  // M = 163 KiB / 2 = 83456 elements: ceil(M / 4*64) = 326; whole tiles: 320.
  // Registers of 128 threads hold S and P of 192 keys: 96 + 48 + 32 + 72.
  TileSizes s = choose("sm_80", heads(64), TileAlgorithm::FA1);
  EXPECT_TILE(s, 64, 192);
  EXPECT_EQ(s.registers, 248);
  EXPECT_NE(s.reason.find("Bc = ceil(M/4d) = 326 and Br = min(Bc, d) = 64"),
            std::string::npos)
      << s.reason;
  EXPECT_NE(s.reason.find("of its 64x320 the registers of 4 warps and shared "
                          "memory hold no more than this; a thread takes 248 "
                          "of 255 registers"),
            std::string::npos)
      << s.reason;
  // d = 256: ceil(M / 1024) = 82 < d.
  EXPECT_TILE(choose("sm_80", heads(256), TileAlgorithm::FA1), 64, 64);
  // What fits as it is says nothing of that.
  TileProblem little = heads(64);
  little.keyLength = 128;
  s = choose("sm_80", little, TileAlgorithm::FA1);
  EXPECT_TILE(s, 64, 128);
  EXPECT_EQ(s.reason.find("of its"), std::string::npos) << s.reason;
}

TEST(TileSizes, OnCPUsByCaches) {
  TargetInfo cpu = target("cpu");
  cpu.l1Bytes = 48 << 10;
  cpu.l2Bytes = 2 << 20;
  cpu.vectorBytes = 64;
  auto onCPU = [&](int64_t d) {
    return llvm::cantFail(
        chooseTileSizes(cpu, heads(d, 32), TileAlgorithm::FA2));
  };
  EXPECT_TILE(onCPU(64), 128, 64);
  EXPECT_TILE(onCPU(128), 128, 64);
  EXPECT_TILE(onCPU(256), 128, 64);
  // Smaller caches, smaller blocks; what is twice as wide takes half as much.
  cpu.l2Bytes = 256 << 10;
  EXPECT_TILE(onCPU(128), 64, 32);
  TileSizes wide =
      llvm::cantFail(chooseTileSizes(cpu, heads(64, 64), TileAlgorithm::FA2));
  EXPECT_TILE(wide, 64, 32);
  // Nothing fits: the smallest.
  cpu.l2Bytes = 16 << 10;
  EXPECT_TILE(onCPU(128), 16, 16);
}

TEST(TileSizes, OnCPUsAsManyRowsAsThereAre) {
  TileProblem problem = heads(64, 32);
  for (int64_t rows : {1, 5, 16, 100}) {
    problem.queryLength = rows;
    EXPECT_EQ(choose("cpu", problem).rows, rows);
  }
  problem.queryLength = 0;
  EXPECT_EQ(choose("cpu", problem).rows, 1);
}

TEST(TileSizes, BadProblemsAreErrors) {
  llvm::Expected<TileSizes> s =
      chooseTileSizes(target("sm_80"), {0, 64, 16}, TileAlgorithm::FA2);
  ASSERT_FALSE(bool(s));
  EXPECT_EQ(
      llvm::toString(s.takeError()),
      "expected positive head dims and elements of 16, 32 or 64 bits, got 0, "
      "64 and 16");
  s = chooseTileSizes(target("sm_86"), {4096, 4096, 16}, TileAlgorithm::FA2);
  ASSERT_FALSE(bool(s));
  EXPECT_NE(llvm::toString(s.takeError()).find("no tile fits sm_86"),
            std::string::npos);
}

TEST(TileSizes, NoGPUComputesInF64) {
  EXPECT_FALSE(checkElements(target("cpu"), 64));
  EXPECT_FALSE(checkElements(target("sm_90a"), 32));
  EXPECT_EQ(llvm::toString(checkElements(target("sm_80"), 64)),
            "expected query, key and value of at most 32 bits on sm_80, got "
            "f64; convert them to f32, or compile for cpu, which computes in "
            "f64");
}

} // namespace
