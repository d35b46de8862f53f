// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The facts of each target, and the tile sizes that follow from them. A new
// chip is a row in the table in lib/Target/TargetInfo.cpp.

#ifndef FA_TARGET_TARGETINFO_H
#define FA_TARGET_TARGETINFO_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>

namespace fa {

struct TargetInfo {
  enum class Kind { CPU, NVIDIA };
  /// The widest matrix instructions of a chip.
  enum class TensorCores { None, MmaSync, Wgmma };

  llvm::StringRef name;
  Kind kind;
  TensorCores tensorCores = TensorCores::None;

  /// The row of the same chip with fewer matrix instructions, empty if there is
  /// none. Programs that this row's schedule does not take are tiled for that
  /// row's schedule.
  llvm::StringRef base;

  /// NVIDIA: shared memory that one block can opt in to, and that of an SM, in
  /// bytes; 32-bit registers of an SM, and the most of a thread.
  int64_t sharedBytesPerBlock = 0, sharedBytesPerSM = 0;
  int64_t registersPerSM = 0, registersPerThread = 0;
  int64_t threadsPerBlock = 0, threadsPerSM = 0;
  /// SMs of the chip's largest part; on the CPU its hardware threads.
  int64_t multiprocessors = 0;
  int64_t l2Bytes = 0;
  /// GB/s; 0: not known.
  int64_t memoryBandwidth = 0;
  /// PTX ISA version to emit, 10 * major + minor, and the first driver (major
  /// version, Linux) that takes it.
  int64_t ptxVersion = 0, minDriver = 0;

  /// CPU: first-level data cache and vector width in bytes.
  int64_t l1Bytes = 0, vectorBytes = 0;
};

/// The target's row; for "cpu", this machine. An unknown name is an error that
/// lists the known ones.
llvm::Expected<TargetInfo> lookupTarget(llvm::StringRef name);
/// "cpu", "sm_80", ...
llvm::SmallVector<llvm::StringRef> getKnownTargets();

/// The order of loops for which to choose tile sizes.
enum class TileAlgorithm {
  /// One product a kernel, scores and weights in memory.
  Standard,
  /// Blocks of keys outside, the state goes through memory: FlashAttention.
  FA1,
  /// Blocks of rows outside, the state stays on chip: FlashAttention-2.
  FA2
};

/// One head's sizes, and the work in its tiles. Dynamic lengths are unknown.
struct TileProblem {
  int64_t headDim = 0, valueDim = 0;
  unsigned elementBits = 16;
  /// The log-sum-exp is a result: it is summed beside the normalisation.
  bool logSumExp = false;
  /// Scores have a function beyond scaling and masking, or each reads captured
  /// tensors.
  bool scoreFunction = false;
  /// A captured tensor is read for each element.
  bool elementReads = false;
  /// Comparisons and reads of a mask for an element. Rows see different keys,
  /// so the mask cuts some tiles. 0 without such a mask.
  int64_t maskTests = 0;
  /// The mask is the same throughout blocks of rows and keys. Tile sizes that
  /// are powers of two match most block sizes.
  bool blockMask = false;
  /// Weights are dropped at random.
  bool dropout = false;
  /// The backward: gradients of rows and of keys are summed.
  bool gradients = false;
  /// Gradients of captured tensors are summed, too, whose terms are not the
  /// scores' gradient.
  bool otherTerms = false;
  /// Blocks add the gradients of captured tensors in an order.
  bool orderedTerms = false;
  /// The score function's derivative reads the products, which are kept beside
  /// the weights.
  bool keepsProducts = false;
  /// Heads share keys: a loop over these heads sums the keys' gradients.
  bool sharesKeys = false;
  std::optional<int64_t> queryLength = std::nullopt, keyLength = std::nullopt;
};

struct TileSizes {
  /// Br and Bc.
  int64_t rows = 0, keys = 0;
  /// NVIDIA: warps of a block, and stages of the ring of K and V tiles.
  int64_t warps = 0, stages = 0;
  /// NVIDIA: shared memory and registers of a thread that the choice takes.
  int64_t sharedBytes = 0, registers = 0;
  /// The reason, with the numbers: for fa-tile's remark.
  std::string reason;
};

/// How many blocks an SM of an NVIDIA target runs at a time, given the threads
/// and shared memory of a block and the registers of a thread. One block
/// computes while another waits.
int64_t blocksPerSM(const TargetInfo &target, int64_t threads,
                    int64_t registers, int64_t sharedBytes);

/// Whether the target's warpgroup-wide matrix instructions and TMA take both
/// products of attention on tiles of `rows` x `keys`.
bool takesWgmma(const TargetInfo &target, const TileProblem &problem,
                int64_t rows, int64_t keys);

/// Reports an error if the target has no compute type for elements of so many
/// bits: f64, on a GPU.
llvm::Error checkElements(const TargetInfo &target, unsigned bits);

/// FA1: the paper's rule, Bc = ceil(M/4d) and Br = min(ceil(M/4d), d) with M
/// elements on chip, then whole tiles of matrix instructions, and on a GPU no
/// more than the registers and the shared memory of a block hold. FA2: as many
/// rows as fit, since K and V are read again for each block of rows; then few
/// enough keys that nothing spills and, if possible, two blocks share an SM;
/// then as many keys as fit. An error names the part that does not fit.
llvm::Expected<TileSizes> chooseTileSizes(const TargetInfo &target,
                                          const TileProblem &problem,
                                          TileAlgorithm algorithm);

} // namespace fa

#endif // FA_TARGET_TARGETINFO_H
