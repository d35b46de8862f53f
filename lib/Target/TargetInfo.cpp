// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "fa/Target/TargetInfo.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/TargetParser/Host.h"

#include <algorithm>
#include <thread>
#include <tuple>

#ifdef __linux__
#include <unistd.h>
#endif

using namespace fa;
using llvm::ArrayRef;

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

/// A row of the table of NVIDIA's chips: "CUDA C++ Programming Guide", compute
/// capabilities; L2, SMs and bandwidth from the data sheets of A100 80 GB,
/// GeForce RTX 3090 and 4090, H200 and GeForce RTX 5090.
static TargetInfo nvidia(llvm::StringRef name, TargetInfo::TensorCores cores,
                         int64_t sharedPerBlockKiB, int64_t sharedPerSMKiB,
                         int64_t threadsPerSM, int64_t multiprocessors,
                         int64_t l2MiB, int64_t bandwidth, int64_t ptx,
                         int64_t driver) {
  TargetInfo t;
  t.name = name;
  t.kind = TargetInfo::Kind::NVIDIA;
  t.tensorCores = cores;
  t.sharedBytesPerBlock = sharedPerBlockKiB << 10;
  t.sharedBytesPerSM = sharedPerSMKiB << 10;
  t.registersPerSM = 65536;
  t.registersPerThread = 255;
  t.threadsPerBlock = 1024;
  t.threadsPerSM = threadsPerSM;
  t.multiprocessors = multiprocessors;
  t.l2Bytes = l2MiB << 20;
  t.memoryBandwidth = bandwidth;
  t.ptxVersion = ptx;
  t.minDriver = driver;
  if (cores == TargetInfo::TensorCores::Wgmma)
    t.base = name.drop_back(); // the "a" of sm_90a
  return t;
}

static const TargetInfo *findChip(llvm::StringRef name,
                                  llvm::SmallVectorImpl<llvm::StringRef> *all) {
  constexpr auto mma = TargetInfo::TensorCores::MmaSync,
                 wgmma = TargetInfo::TensorCores::Wgmma;
  static const TargetInfo table[] = {
      //              smem/block smem/SM threads SMs  L2  GB/s ptx driver
      nvidia("sm_80", mma, 163, 164, 2048, 108, 40, 2039, 80, 525),
      nvidia("sm_86", mma, 99, 100, 1536, 82, 6, 936, 80, 525),
      nvidia("sm_89", mma, 99, 100, 1536, 128, 72, 1008, 80, 525),
      nvidia("sm_90", mma, 227, 228, 2048, 132, 50, 4800, 80, 525),
      nvidia("sm_90a", wgmma, 227, 228, 2048, 132, 50, 4800, 83, 545),
      nvidia("sm_120", mma, 99, 100, 1536, 170, 96, 1792, 87, 570),
  };
  const TargetInfo *found = nullptr;
  for (const TargetInfo &target : table) {
    if (all)
      all->push_back(target.name);
    if (target.name == name)
      found = &target;
  }
  return found;
}

/// This machine, with common values where the system does not say.
static TargetInfo hostCPU() {
  TargetInfo t;
  t.name = "cpu";
  t.kind = TargetInfo::Kind::CPU;
  t.l1Bytes = 32 << 10;
  t.l2Bytes = 1 << 20;
  t.vectorBytes = 16;
  t.multiprocessors = std::max(1u, std::thread::hardware_concurrency());
#ifdef _SC_LEVEL1_DCACHE_SIZE
  if (long l1 = sysconf(_SC_LEVEL1_DCACHE_SIZE); l1 > 0)
    t.l1Bytes = l1;
  if (long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE); l2 > 0)
    t.l2Bytes = l2;
#endif
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  if (features.lookup("avx512f"))
    t.vectorBytes = 64;
  else if (features.lookup("avx2"))
    t.vectorBytes = 32;
  return t;
}

llvm::SmallVector<llvm::StringRef> fa::getKnownTargets() {
  llvm::SmallVector<llvm::StringRef> names = {"cpu"};
  findChip("", &names);
  return names;
}

llvm::Expected<TargetInfo> fa::lookupTarget(llvm::StringRef name) {
  if (name == "cpu")
    return hostCPU();
  if (const TargetInfo *chip = findChip(name, nullptr))
    return *chip;
  return llvm::createStringError("unknown target '" + name.str() +
                                 "'; known targets are " +
                                 llvm::join(getKnownTargets(), ", "));
}

//===----------------------------------------------------------------------===//
// Tile sizes
//===----------------------------------------------------------------------===//

/// Where a length is unknown, sizes are compared at this one.
static constexpr int64_t kTypicalLength = 4096;
/// Rows or columns of one matrix instruction's tile.
static constexpr int64_t kInstructionTile = 16;

static std::string kib(int64_t bytes) {
  return llvm::formatv("{0:F1} KiB", bytes / 1024.0).str();
}

static std::string mib(double bytes) {
  return llvm::formatv("{0:F1} MiB", bytes / 1048576.0).str();
}

/// "1 stage", "2 stages".
static std::string counted(int64_t count, llvm::StringRef name) {
  return llvm::formatv("{0} {1}{2}", count, name, count == 1 ? "" : "s").str();
}

/// No more than the length needs, in whole powers of two of 16 or more.
static int64_t limitToLength(int64_t size, std::optional<int64_t> length) {
  if (!length)
    return size;
  int64_t needed = llvm::PowerOf2Ceil(std::max<int64_t>(*length, 1));
  return std::min(size, std::max(needed, kInstructionTile));
}

/// Bytes that all blocks of rows of one head read and write, at the level that
/// K and V come from for each block.
static double trafficOf(const TileProblem &p, int64_t rows) {
  int64_t sq = p.queryLength.value_or(kTypicalLength),
          sk = p.keyLength.value_or(kTypicalLength);
  int64_t d = p.headDim + p.valueDim, bytes = p.elementBits / 8;
  return double(llvm::divideCeil(sq, rows)) * sk * d * bytes +
         double(sq) * d * bytes;
}

static std::string trafficText(const TileProblem &p, int64_t rows) {
  int64_t sq = p.queryLength.value_or(kTypicalLength);
  std::string where;
  if (!p.queryLength || !p.keyLength)
    where =
        " (an unknown length counts as " + std::to_string(kTypicalLength) + ")";
  return llvm::formatv("K and V are read {0}, {1} a head{2};",
                       counted(llvm::divideCeil(sq, rows), "time"),
                       mib(trafficOf(p, rows)), where)
      .str();
}

/// Registers of a thread by use. The weights P take the place of the scores S
/// that they are made from.
struct RegisterUse {
  int64_t scores, output, other;
  int64_t total() const { return scores + output + other; }
};

static RegisterUse registersOf(const TileProblem &p, const TileSizes &s) {
  int64_t threads = 32 * s.warps;
  // Addresses, row statistics, and fragments in flight.
  constexpr int64_t kOther = 40;
  int64_t scores = llvm::divideCeil(s.rows * s.keys, threads);
  return {scores, int64_t(llvm::divideCeil(s.rows * p.valueDim, threads)),
          kOther};
}

static int64_t sharedBytesOf(const TileProblem &p, const TileSizes &s) {
  int64_t bytes = p.elementBits / 8;
  int64_t q = s.rows * p.headDim,
          ring = s.stages * s.keys * (p.headDim + p.valueDim),
          // 32-bit weights go through shared memory to be an operand.
      weights = p.elementBits < 32 ? 0 : s.rows * s.keys;
  return (q + ring + weights) * bytes;
}

/// Registers of FlashAttention's Algorithm 1: its output is read, rescaled by
/// the old sum and written in each step, while the weights are packed beside
/// the scores.
static RegisterUse registersOfFA1(const TileProblem &p, const TileSizes &s) {
  RegisterUse use = registersOf(p, s);
  use.scores += use.scores * p.elementBits / 32;
  use.other = 72;
  return use;
}

/// The largest tile within the rule's that one block's registers and shared
/// memory hold: 16 rows a warp, since rows of a block save no traffic here,
/// then as many keys as fit.
static llvm::Error fitFA1(const TargetInfo &target, const TileProblem &p,
                          TileSizes &sizes) {
  int64_t keys = sizes.keys;
  sizes.stages = 1;
  for (int64_t rows : {64, 32, 16}) {
    sizes.rows = std::min(sizes.rows, rows);
    sizes.warps = sizes.rows / kInstructionTile;
    for (sizes.keys = keys; sizes.keys > 0; sizes.keys -= kInstructionTile) {
      sizes.sharedBytes = sharedBytesOf(p, sizes);
      sizes.registers = registersOfFA1(p, sizes).total();
      if (sizes.sharedBytes <= target.sharedBytesPerBlock &&
          sizes.registers <= target.registersPerThread)
        return llvm::Error::success();
    }
  }
  return llvm::createStringError(
      llvm::formatv("no tile fits {0} with head dims {1} and {2} of {3} bits: "
                    "the smallest needs {4} of {5} shared memory and {6} of "
                    "{7} registers; use smaller heads",
                    target.name, p.headDim, p.valueDim, p.elementBits,
                    kib(sizes.sharedBytes), kib(target.sharedBytesPerBlock),
                    sizes.registers, target.registersPerThread)
          .str());
}

/// The paper's rule: a quarter of the memory for each of the q, k, v and o
/// blocks.
static llvm::Expected<TileSizes> chooseFA1(const TargetInfo &target,
                                           const TileProblem &p) {
  bool isGPU = target.kind == TargetInfo::Kind::NVIDIA;
  int64_t memory = isGPU ? target.sharedBytesPerBlock : target.l2Bytes;
  int64_t elements = memory / (p.elementBits / 8);
  int64_t d = std::max(p.headDim, p.valueDim);
  int64_t quarter = llvm::divideCeil(elements, 4 * d);
  TileSizes sizes;
  auto whole = [](int64_t x) {
    return std::max(kInstructionTile, x / kInstructionTile * kInstructionTile);
  };
  sizes.keys = limitToLength(whole(quarter), p.keyLength);
  sizes.rows = limitToLength(whole(std::min(quarter, d)), p.queryLength);
  sizes.reason =
      llvm::formatv("FlashAttention's rule, for M = {0} elements in {1} on {2} "
                    "and d = {3}, gives Bc = ceil(M/4d) = {4} and "
                    "Br = min(Bc, d) = {5}, in whole tiles of {6} and no more "
                    "than the lengths",
                    elements, kib(memory), target.name, d, quarter,
                    std::min(quarter, d), kInstructionTile)
          .str();
  if (!isGPU)
    return sizes;
  TileSizes rule = sizes;
  if (llvm::Error error = fitFA1(target, p, sizes))
    return std::move(error);
  RegisterUse use = registersOfFA1(p, sizes);
  if (sizes.rows != rule.rows || sizes.keys != rule.keys)
    sizes.reason +=
        llvm::formatv("; of its {0}x{1} the registers of {2} and "
                      "shared memory hold no more than this",
                      rule.rows, rule.keys, counted(sizes.warps, "warp"))
            .str();
  sizes.reason +=
      llvm::formatv(
          "; a thread takes {0} of {1} registers (S and P {2}, O {3}, "
          "other {4}) and the block {5} of shared memory",
          sizes.registers, target.registersPerThread, use.scores, use.output,
          use.other, kib(sizes.sharedBytes))
          .str();
  return sizes;
}

int64_t fa::blocksPerSM(const TargetInfo &target, int64_t threads,
                        int64_t registers, int64_t sharedBytes) {
  constexpr int64_t kSystemBytes = 1024;
  return std::min({target.sharedBytesPerSM / (sharedBytes + kSystemBytes),
                   target.registersPerSM / (registers * threads),
                   target.threadsPerSM / threads});
}

static int64_t blocksPerSM(const TargetInfo &target, const TileSizes &s) {
  return fa::blocksPerSM(target, 32 * s.warps, s.registers, s.sharedBytes);
}

namespace {
struct Candidate {
  int64_t rows, keys, stages;
};
} // namespace

/// Tiles, the largest first; of those alike, the one with more stages.
static llvm::SmallVector<Candidate> candidatesOnGPU() {
  llvm::SmallVector<Candidate> all;
  for (int64_t rows : {128, 64, 32, 16})
    for (int64_t keys : {64, 32, 16})
      for (int64_t stages : {2, 1})
        all.push_back({rows, keys, stages});
  return all;
}

/// What the smallest tiles need, and the target has not.
static std::string describeMisfit(llvm::StringRef what,
                                  const TargetInfo &target,
                                  const TileProblem &p, int64_t leastShared,
                                  int64_t leastRegisters) {
  return llvm::formatv("{0} fits {1} with head dims {2} and {3} of {4} bits: "
                       "the smallest need {5} of {6} shared memory and {7} of "
                       "{8} registers",
                       what, target.name, p.headDim, p.valueDim, p.elementBits,
                       kib(leastShared), kib(target.sharedBytesPerBlock),
                       leastRegisters, target.registersPerThread)
      .str();
}

static llvm::Expected<TileSizes> chooseOnGPU(const TargetInfo &target,
                                             const TileProblem &p) {
  TileSizes best;
  std::tuple<double, bool, bool, bool> bestCost;
  int64_t leastShared = INT64_MAX, leastRegisters = INT64_MAX;
  for (auto [rows, keys, stages] : candidatesOnGPU()) {
    TileSizes s;
    s.rows = rows;
    s.keys = keys;
    s.stages = stages;
    s.warps = std::min<int64_t>(4, rows / kInstructionTile);
    if (rows != limitToLength(rows, p.queryLength) ||
        keys != limitToLength(keys, p.keyLength))
      continue;
    s.sharedBytes = sharedBytesOf(p, s);
    RegisterUse use = registersOf(p, s);
    s.registers = use.total();
    // The addresses of a second stage are then too many.
    constexpr int64_t kShort = 224;
    if (stages > 1 && s.registers > kShort)
      continue;
    leastShared = std::min(leastShared, s.sharedBytes);
    leastRegisters = std::min(leastRegisters, s.registers);
    if (s.sharedBytes > target.sharedBytesPerBlock ||
        s.registers > target.registersPerThread)
      continue;
    // Least traffic; no steps so short that rescaling the state outweighs
    // what fewer keys gain; with mma.sync no accumulators of more than three
    // quarters of the registers, from where on ptxas spills; two blocks on an
    // SM; then most keys.
    // K and V of different shapes have addresses of their own.
    int64_t accumulators =
        use.scores + use.output + (p.headDim == p.valueDim ? 0 : 8);
    bool crowded = target.tensorCores == TargetInfo::TensorCores::MmaSync &&
                   4 * accumulators > 3 * (target.registersPerThread + 1);
    bool shared = blocksPerSM(target, s) >= 2;
    std::tuple<double, bool, bool, bool> cost = {trafficOf(p, rows), keys < 32,
                                                 crowded, !shared};
    if (best.rows == 0 || cost < bestCost) {
      best = s;
      bestCost = cost;
    }
  }
  if (best.rows == 0)
    return llvm::createStringError(
        describeMisfit("no tile", target, p, leastShared, leastRegisters) +
        "; use smaller heads");
  RegisterUse use = registersOf(p, best);
  best.reason =
      llvm::formatv("{0} {1} in {2} of shared memory, of which a block can "
                    "have {3}; a thread of {4} takes {5} of {6} registers "
                    "(S and P {7}, O {8}, other {9}); an SM holds {10}",
                    trafficText(p, best.rows),
                    best.stages == 1 ? "1 stage fits"
                                     : counted(best.stages, "stage") + " fit",
                    kib(best.sharedBytes), kib(target.sharedBytesPerBlock),
                    counted(best.warps, "warp"), best.registers,
                    target.registersPerThread, use.scores, use.output,
                    use.other, counted(blocksPerSM(target, best), "block"))
          .str();
  return best;
}

/// Gradients: keys outside, rows inside. Warps divide the tiles; a thread holds
/// its part of dK and dV, and of S and dP as they are computed.
static llvm::Expected<TileSizes> chooseGradientsOnGPU(const TargetInfo &target,
                                                      const TileProblem &p) {
  TileSizes best;
  using Cost =
      std::tuple<int64_t, bool, bool, bool, bool, int64_t, int64_t, int64_t>;
  Cost bestCost;
  int64_t leastShared = INT64_MAX, leastRegisters = INT64_MAX;
  int64_t dims = llvm::alignTo(p.headDim, 16) + llvm::alignTo(p.valueDim, 16);
  int64_t bytes = p.elementBits / 8;
  // Into how many parts warps can divide the columns of dK, dV and dQ.
  int64_t both = p.headDim | p.valueDim;
  int64_t parts = both % 8 ? 1 : (both & -both) / 8;
  constexpr int64_t kOther = 32;
  // S and dP, and what a score function or dropout takes: where that does not
  // fit, warps are twice as many; and where these are all, it may spill a
  // little, which costs less than half the rows (measured at D=128: 100 bytes,
  // and 0.89 of the time). Nothing computes all of it at one time: an eighth is
  // left out of what makes a tile crowded, as where warps are chosen.
  constexpr int64_t kMatrices = 2;
  int64_t more = (p.scoreFunction || p.dropout) + p.otherTerms;
  // dS; P and dS as operands where no tensor core takes them from registers.
  int64_t operands = p.elementBits != 16 ? 3 : p.dropout ? 2 : 1;
  for (int64_t stages : {2, 1})
    for (int64_t keys : {128, 64, 32, 16})
      for (int64_t rows : {64, 32, 16}) {
        if (rows != limitToLength(rows, p.queryLength) ||
            keys != limitToLength(keys, p.keyLength))
          continue;
        // Warpgroups would take these, whose sums don't fit their registers.
        if (!p.orderedTerms && fa::takesWgmma(target, p, rows, keys) &&
            keys % 64 == 0)
          continue;
        // Rows of dK and dV are keys, those of dQ rows, in tiles of 16.
        int64_t most = std::min(int64_t(8), std::min(rows, keys) /
                                                kInstructionTile * parts);
        TileSizes s;
        s.rows = rows;
        s.keys = keys;
        s.stages = stages;
        auto registers = [&](int64_t matrices) {
          return (keys * dims + matrices * rows * keys) / (32 * s.warps) +
                 kOther;
        };
        for (s.warps = std::min(int64_t(4), most);; s.warps *= 2) {
          s.registers = registers(kMatrices);
          if (registers(kMatrices + more) <= target.registersPerThread ||
              2 * s.warps > most)
            break;
        }
        // K and V; Q, dO, the log-sum-exp and D in stages; operands.
        s.sharedBytes = bytes * (keys * dims + stages * rows * dims +
                                 operands * keys * rows) +
                        4 * 2 * stages * rows;
        leastShared = std::min(leastShared, s.sharedBytes);
        leastRegisters = std::min(leastRegisters, s.registers);
        if (s.sharedBytes > target.sharedBytesPerBlock)
          continue;
        bool isCrowded =
            registers(kMatrices + more) * 7 / 8 > target.registersPerThread;
        // None that spills, and the one that spills least where all do: of odd
        // multiples of 8 columns from 200 on, which warps can't divide. None
        // that is crowded if there is another; two stages where any tile
        // has them; no short steps; at head dims up to 96 two blocks on an SM
        // rather than one of twice the warps (measured: with score functions
        // 0.87 to 1.01 of the time at D=64 and 0.89 to 0.99 at D=96, but 1.3 at
        // D=128), if their tiles are no smaller than 64x64; most keys, whose
        // number divides what is added to dQ; then most rows.
        bool isAlone = dims <= 192 && (s.warps > 4 || rows * keys < 64 * 64);
        int64_t spilled =
            std::max<int64_t>(0, s.registers - target.registersPerThread);
        Cost cost = {spilled,
                     isCrowded,
                     stages < 2,
                     rows < 32,
                     isAlone,
                     -keys,
                     std::max<int64_t>(s.warps, 4),
                     -rows};
        if (best.rows == 0 || cost < bestCost) {
          best = s;
          bestCost = cost;
        }
      }
  if (best.rows == 0)
    return llvm::createStringError(
        describeMisfit("no tile of gradients", target, p, leastShared,
                       leastRegisters) +
        "; use head dims up to 256, or train with another implementation");
  best.reason =
      llvm::formatv("{0} of shared memory, of which a block can have {1}, hold "
                    "{2}; a thread of {3} takes {4} of {5} registers",
                    kib(best.sharedBytes), kib(target.sharedBytesPerBlock),
                    counted(best.stages, "stage"), counted(best.warps, "warp"),
                    best.registers, target.registersPerThread)
          .str();
  return best;
}

/// Whether the warpgroup-wide matrix instructions and TMA take the operands:
/// 16-bit elements, rows in whole chunks of 16 bytes, one instruction's width.
static bool takesWgmma(const TargetInfo &target, const TileProblem &p) {
  return target.tensorCores == TargetInfo::TensorCores::Wgmma &&
         p.elementBits == 16 && p.headDim % 8 == 0 && p.valueDim % 8 == 0 &&
         p.headDim <= 256 && p.valueDim <= 256;
}

bool fa::takesWgmma(const TargetInfo &target, const TileProblem &problem,
                    int64_t rows, int64_t keys) {
  // Warpgroups of 64 rows, at most four; steps of 16 keys, one box of TMA.
  return ::takesWgmma(target, problem) && rows % 64 == 0 && rows <= 256 &&
         keys % 16 == 0 && keys <= 256;
}

namespace {
/// A tile for head dims up to this one.
struct WgmmaTile {
  int64_t headDim, rows, keys;
};
} // namespace

/// Head dims up to 64: 256 rows, or 128 rows of which a block works on two
/// tiles. Where a mask cuts tiles, the latter leave out more, and are 1 to 3%
/// slower on what is left (S=512, causal: 0.86 of the time); a score function
/// takes registers, and more with what it reads or with a second sum.
static WgmmaTile chooseNarrow(const TileProblem &p) {
  if (p.blockMask)
    return {64, 128, 64};
  if (p.dropout)
    return {64, 256, 64};
  if (p.elementReads || (p.logSumExp && p.scoreFunction))
    return {64, 128, 48};
  return {64, p.scoreFunction || p.maskTests ? 128 : 256, 64};
}

/// Larger head dims.
static WgmmaTile chooseWide(const TileProblem &p) {
  static constexpr WgmmaTile plain[] = {
      {128, 128, 128}, {192, 128, 80}, {256, 128, 64}};
  // A second sum is carried; the largest where a mask spills nothing.
  static constexpr WgmmaTile masked[] = {
      {128, 128, 128}, {192, 128, 80}, {256, 128, 48}};
  // And what a score function needs.
  static constexpr WgmmaTile crowded[] = {
      {128, 128, 112}, {192, 128, 64}, {256, 128, 32}};
  // Keys in whole groups of random bits, which take registers.
  static constexpr WgmmaTile random[] = {
      {128, 192, 64}, {192, 128, 64}, {256, 128, 64}};
  // Tiles that are whole blocks of a mask, of 128 or fewer.
  static constexpr WgmmaTile blocks[] = {
      {128, 128, 128}, {192, 128, 64}, {256, 128, 64}};
  static constexpr WgmmaTile crowdedBlocks[] = {
      {128, 128, 64}, {192, 128, 64}, {256, 128, 32}};
  ArrayRef<WgmmaTile> table = plain;
  if (p.blockMask)
    table = p.logSumExp ? crowdedBlocks : blocks;
  else if (p.dropout)
    table = random;
  else if (p.logSumExp && p.scoreFunction)
    table = crowded;
  else if (p.logSumExp && p.maskTests > 1)
    table = masked;
  return *llvm::find_if(table, [&](const WgmmaTile &tile) {
    return std::max(p.headDim, p.valueDim) <= tile.headDim;
  });
}

/// Rows for as many warpgroups of 64 as have the registers for S, P and O, and
/// keys as long as a stage of K and V, twice, and Q fit in shared memory.
/// Measured on an H200 with the speculated softmax.
static TileSizes chooseForWgmma(const TargetInfo &target,
                                const TileProblem &p) {
  WgmmaTile tile =
      std::max(p.headDim, p.valueDim) <= 64 ? chooseNarrow(p) : chooseWide(p);
  TileSizes s;
  s.rows = tile.rows;
  s.keys = tile.keys;
  if (p.queryLength)
    s.rows = std::min<int64_t>(
        s.rows, llvm::alignTo(std::max<int64_t>(*p.queryLength, 1), 64));
  if (p.keyLength)
    s.keys = std::min<int64_t>(
        s.keys, llvm::alignTo(std::max<int64_t>(*p.keyLength, 1), 16));
  s.warps = s.rows / 16;
  s.stages = 2;
  auto panels = [](int64_t cols) { return llvm::alignTo(cols, 64); };
  s.sharedBytes =
      2 * (s.rows * panels(p.headDim) +
           s.stages * s.keys * (panels(p.headDim) + panels(p.valueDim)));
  s.registers = s.keys / 2 + p.valueDim / 2 + s.keys / 4;
  s.reason = llvm::formatv(
                 "{0} the table's row for head dims up to {1} asks for {2} "
                 "of 64 rows; 2 stages fit in {3} of shared memory, of which "
                 "a block can have {4}; S, P and O take {5} registers of a "
                 "thread",
                 trafficText(p, s.rows), tile.headDim,
                 counted(s.rows / 64, "warpgroup"), kib(s.sharedBytes),
                 kib(target.sharedBytesPerBlock), s.registers)
                 .str();
  return s;
}

/// The columns of a tile of 64 rows, as two warpgroups divide them: sums in
/// whole boxes of 16.
static bool dividesInTwo(int64_t cols) { return cols % 32 == 0 || cols == 16; }

/// Whether gradients keep no more than the weights and theirs, no tile is cut
/// but the last ones, and one loop is all that a block runs.
static bool isPlain(const TileProblem &p) {
  return !(p.scoreFunction || p.elementReads || p.maskTests || p.blockMask ||
           p.dropout || p.otherTerms || p.keepsProducts || p.sharesKeys);
}

/// Rows of gradients at head dim 128: 80, of which dQ is computed transposed,
/// take all registers, and are 5 to 9% faster than 64 of long sequences. Of a
/// short one the last tile would compute more for nothing.
static int64_t rowsOfPlain(const TileProblem &p) {
  constexpr int64_t most = 80, fewer = 64;
  bool isFitting =
      !p.queryLength || 100 * llvm::alignTo(*p.queryLength, most) <=
                            105 * llvm::alignTo(*p.queryLength, fewer);
  return p.headDim == 128 && p.valueDim == 128 && isPlain(p) && isFitting
             ? most
             : fewer;
}

/// Gradients with wgmma: keys for two warpgroups of 64, which hold dK, dV, S
/// and dP of theirs, or, where dK and dV are too wide, divide their columns. As
/// many rows as leave registers for what else is kept. Measured on an H200
/// (2026-11-25 to 27).
static std::optional<TileSizes>
chooseGradientsForWgmma(const TargetInfo &target, const TileProblem &p) {
  if (!takesWgmma(target, p) || p.orderedTerms)
    return std::nullopt;
  int64_t d = std::max(p.headDim, p.valueDim);
  bool divides = dividesInTwo(p.headDim);
  TileSizes s;
  s.stages = 2;
  s.warps = 8;
  if (d <= (p.keepsProducts || p.otherTerms ? 32 : 64)) {
    s.rows = s.keys = 128;
  } else if (d <= 64 && divides) {
    s.rows = 64;
    s.keys = 128;
  } else if (d <= 128 && divides) {
    bool isFull = p.keepsProducts && d > 96;
    s.rows = isFull ? 128 : rowsOfPlain(p);
    s.keys = isFull ? 64 : 128;
  } else if (d <= 128 || (divides && dividesInTwo(p.valueDim))) {
    s.rows = s.keys = 64;
    s.warps = d <= 128 ? 4 : 8;
  } else {
    return std::nullopt;
  }
  // K and V; Q, dO, the log-sum-exp and D in two stages; dS; dQ.
  auto panels = [](int64_t cols) { return llvm::alignTo(cols, 64); };
  int64_t dims = panels(p.headDim) + panels(p.valueDim);
  s.sharedBytes =
      2 * (s.keys * dims + s.stages * s.rows * dims + s.rows * s.keys) +
      4 * (2 * s.stages * s.rows + s.rows * p.headDim);
  s.registers = s.keys * (p.headDim + p.valueDim) / (32 * s.warps) +
                2 * s.rows * s.keys / (32 * s.warps);
  s.reason =
      llvm::formatv(
          "{0} for {1} keys hold dK and dV, S and dP in {2} registers of "
          "a thread; {3} rows in {4} take about {5} of shared memory, "
          "of which a block can have {6}",
          counted(s.warps / 4, "warpgroup"), s.keys, s.registers, s.rows,
          counted(s.stages, "stage"), kib(s.sharedBytes),
          kib(target.sharedBytesPerBlock))
          .str();
  return s;
}

static llvm::Expected<TileSizes> chooseOnCPU(const TargetInfo &target,
                                             const TileProblem &p) {
  // Computation is in f32 where less is stored.
  int64_t bytes = std::max(p.elementBits, 32u) / 8;
  int64_t lanes = target.vectorBytes / bytes;
  int64_t dims = p.headDim + p.valueDim;
  int64_t vectorOfKeys = lanes * std::max(p.headDim, p.valueDim) * bytes;
  TileSizes best;
  int64_t bestSet = 0;
  std::tuple<int64_t, bool, double> bestCost;
  // A vector runs along the keys, a loop over the rows: as many as there are.
  int64_t most = std::max<int64_t>(p.queryLength.value_or(kTypicalLength), 1);
  // A gradient's five products are no faster on 128 rows than on 64 (measured),
  // and under a mask fewer rows are computed for nothing.
  int64_t largest = p.gradients ? 64 : 128;
  for (int64_t candidate : {128, 64, 32, 16})
    for (int64_t keys : {64, 32, 16}) {
      int64_t rows = std::min(candidate, most);
      if (candidate > largest || keys != limitToLength(keys, p.keyLength))
        continue;
      // What does not fit half of L2 comes last, the smallest of it first. Then
      // no short steps (measured: 16 keys take 1.3 times as long as 64), least
      // traffic, most keys.
      int64_t set = bytes * ((rows + keys) * dims + rows * keys);
      if (p.gradients) // their own, and S, P, dP and dS
        set = bytes * (2 * (rows + keys) * dims + 4 * rows * keys);
      std::tuple<int64_t, bool, double> cost = {
          set <= target.l2Bytes / 2 ? 0 : set, keys < 32, trafficOf(p, rows)};
      if (best.rows == 0 || cost < bestCost) {
        best.rows = rows;
        best.keys = keys;
        bestCost = cost;
        bestSet = set;
      }
    }
  best.reason =
      llvm::formatv("{0} the block takes {1} of the {2} of L2, and a vector of "
                    "keys {3} of the {4} of L1",
                    trafficText(p, best.rows), kib(bestSet),
                    kib(target.l2Bytes), kib(vectorOfKeys), kib(target.l1Bytes))
          .str();
  return best;
}

llvm::Error fa::checkElements(const TargetInfo &target, unsigned bits) {
  if (bits <= 32 || target.kind != TargetInfo::Kind::NVIDIA)
    return llvm::Error::success();
  return llvm::createStringError(
      llvm::formatv("expected query, key and value of at most 32 bits on {0}, "
                    "got f{1}; convert them to f32, or compile for cpu, which "
                    "computes in f{1}",
                    target.name, bits)
          .str());
}

llvm::Expected<TileSizes> fa::chooseTileSizes(const TargetInfo &target,
                                              const TileProblem &problem,
                                              TileAlgorithm algorithm) {
  if (problem.headDim < 1 || problem.valueDim < 1 ||
      !llvm::is_contained({16u, 32u, 64u}, problem.elementBits))
    return llvm::createStringError(
        llvm::formatv("expected positive head dims and elements of 16, 32 or "
                      "64 bits, got {0}, {1} and {2}",
                      problem.headDim, problem.valueDim, problem.elementBits)
            .str());
  if (problem.gradients && target.kind == TargetInfo::Kind::NVIDIA) {
    if (auto sizes = chooseGradientsForWgmma(target, problem))
      return *sizes;
    return chooseGradientsOnGPU(target, problem);
  }
  return algorithm == TileAlgorithm::FA1 ? chooseFA1(target, problem)
         : algorithm == TileAlgorithm::FA2 && ::takesWgmma(target, problem)
             ? chooseForWgmma(target, problem)
         : target.kind == TargetInfo::Kind::NVIDIA
             ? chooseOnGPU(target, problem)
             : chooseOnCPU(target, problem);
}
