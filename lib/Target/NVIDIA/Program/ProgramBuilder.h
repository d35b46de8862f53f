// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What makes a program:
//
//   Buffers.cpp  its tensors, and what of their sizes a launch must check
//   Grid.cpp     which tile a block has, and which tiles wait for each other
//   Header.cpp   the lines that describe it
//   Launch.cpp   its launches: what each takes, and its blocks
//   Program.cpp  its kernels, one after the other, and their parameters

#ifndef FA_LIB_TARGET_NVIDIA_PROGRAM_PROGRAMBUILDER_H
#define FA_LIB_TARGET_NVIDIA_PROGRAM_PROGRAMBUILDER_H

#include "../../../Conversion/TilesToThreads/KernelEmitter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "llvm/ADT/SetVector.h"

#include <string>
#include <vector>

namespace fa::nvidia {

/// A tensor of the program: an argument, a result, or a temporary.
struct Buffer {
  enum class Role { In, Out, Temp } role;
  mlir::RankedTensorType type;
  std::string name;
  /// The sizes as expressions over arguments; empty for an unknown size.
  llvm::SmallVector<std::string> sizes;
  bool aligned = false;
  /// Zeroed before the first kernel.
  bool zero = false;
};

/// Collects what describes a program while its kernels are made.
class Program {
public:
  explicit Program(mlir::func::FuncOp func) : func(func) {}
  mlir::LogicalResult build(mlir::OpBuilder &builder);

private:
  class Launch;

  mlir::LogicalResult collectBuffers();
  mlir::FailureOr<llvm::SmallVector<std::string>>
  gridOf(mlir::scf::ForallOp forall);
  mlir::LogicalResult emitKernel(mlir::scf::ForallOp forall,
                                 mlir::gpu::GPUModuleOp module);
  std::string sizeExpression(mlir::Value v);
  void requireSameSizes(mlir::scf::ForallOp forall);
  mlir::FailureOr<llvm::SmallVector<TensorMap>>
  collectMaps(mlir::scf::ForallOp forall);
  void sameSize(mlir::Value tensor, unsigned dim, mlir::Value bound);
  llvm::SmallVector<std::string> header();
  std::string preparesOf(mlir::scf::ForallOp forall);
  llvm::SmallVector<unsigned> zeroedInLaunch(mlir::scf::ForallOp forall,
                                             mlir::scf::ForallOp follower);
  unsigned addWords(mlir::scf::ForallOp forall,
                    llvm::ArrayRef<std::string> sizes);

  mlir::func::FuncOp func;
  std::string chip;
  llvm::SmallVector<mlir::scf::ForallOp> foralls;
  llvm::SmallVector<Buffer> buffers;
  llvm::DenseMap<mlir::Value, unsigned> bufferOf;
  llvm::SmallVector<std::string> launches, same;
  /// The tensor maps of all launches, as the header numbers them.
  llvm::SmallVector<TensorMap> maps;
  /// A launch has a block at least: its grid may be empty where what follows in
  /// it is not (without keys dQ is 0).
  bool hasLeast = false;
};

/// A new tensor of zeros.
bool isZeros(mlir::Value v);

/// Of blocks that wait for each other, how many may run at once with the same
/// number in the grid's last dimension: more than a GPU holds, so that those
/// waited for began long before, and few enough for the cache.
inline constexpr int64_t kSection = 256;

/// Makes one kernel.
struct KernelBuilder {
  explicit KernelBuilder(mlir::Location loc) : b(loc.getContext()), loc(loc) {}

  mlir::OpBuilder b;
  mlir::Location loc;
  mlir::gpu::GPUFuncOp kernel;
  llvm::SmallVector<unsigned> order;
  std::vector<GlobalTensor> tensors;
  llvm::SmallVector<mlir::Value> mapPointers;

  void makeFunction(llvm::StringRef name, llvm::ArrayRef<Buffer> buffers,
                    int64_t threads, unsigned numMaps, bool hasQueue,
                    llvm::ArrayRef<unsigned> changing);
  mlir::Value queueCounter, queueFlag;

  mlir::LogicalResult countTiles(mlir::scf::ForallOp forall,
                                 KernelEmitter &emitter,
                                 llvm::SmallVectorImpl<mlir::Value> &counts);
  mlir::Value total(llvm::ArrayRef<mlir::Value> counts);
  llvm::SmallVector<mlir::Value> decode(mlir::scf::ForallOp forall,
                                        mlir::Value tile,
                                        llvm::ArrayRef<mlir::Value> counts,
                                        bool descending);
  llvm::SmallVector<mlir::Value>
  decodeInSections(mlir::scf::ForallOp forall, mlir::Value tile,
                   llvm::ArrayRef<mlir::Value> counts, mlir::Value section,
                   bool descending);
  Turns turnsOf(mlir::scf::ForallOp forall, llvm::ArrayRef<mlir::Value> ivs,
                llvm::ArrayRef<mlir::Value> counts, const GlobalTensor &words,
                int64_t wordsPerBlock, bool backwards);
  /// How warps come by the blocks of a kernel that follows another, without how
  /// these are emitted: `words` has so many of 32 bits for each group, and
  /// blocks of `section` groups run side by side.
  FollowerGrid gridOfFollower(mlir::scf::ForallOp before,
                              mlir::scf::ForallOp follower,
                              KernelEmitter &emitter, const GlobalTensor &words,
                              int64_t wordsOfGroup, int64_t section);
  mlir::Value
  sectionOfSums(mlir::scf::ForallOp forall, int64_t l2Bytes,
                llvm::function_ref<const GlobalTensor *(mlir::Value)> tensorOf);
};

/// One launch: its kernel, and what that takes. A kernel that follows in the
/// same launch is a part of it.
class Program::Launch {
public:
  Launch(Program &program, mlir::scf::ForallOp forall, const BlockView &view,
         llvm::ArrayRef<std::string> grid,
         llvm::ArrayRef<TensorMap> tensorMaps);
  mlir::LogicalResult emit(mlir::gpu::GPUModuleOp module);
  /// What the header says of it, once it is emitted.
  std::string line() const;

private:
  void use(unsigned buffer);
  void useTensors();
  void useWords();
  void bindTensors(KernelEmitter &to, mlir::scf::ForallOp part);
  void bindMaps(KernelEmitter &emitter);
  mlir::LogicalResult emitScalars(KernelEmitter &emitter);
  void orderTiles(TileGrid &tiles);
  mlir::LogicalResult emitRoles(KernelEmitter &emitter, mlir::Value shared);
  mlir::LogicalResult emitBlocks(KernelEmitter &emitter);

  Program &program;
  mlir::scf::ForallOp forall, follower;
  llvm::SmallVector<mlir::scf::ForallOp> parts;
  BlockView view;
  llvm::SmallVector<std::string> grid;
  llvm::SmallVector<TensorMap> tensorMaps;
  /// Where blocks wait for each other (findOrder).
  std::optional<int64_t> apart;
  std::string name;
  hopper::TileQueueOp queue;
  /// What the parts read of outside.
  llvm::SetVector<mlir::Value> captured;
  KernelBuilder k;
  llvm::DenseMap<unsigned, const GlobalTensor *> tensorOf;
  llvm::SmallVector<std::string> mapNumbers;
  llvm::SmallVector<mlir::Value> counts;
  /// Buffers of words: of blocks that wait for each other, and the number that
  /// blocks draw; of the groups that a follower waits for, and its counter.
  unsigned words = 0, counter = 0, groups = 0, taken = 0;
  int64_t wordsPerBlock = 1, wordsOfGroup = 0;
  /// Buffers that other blocks add to meanwhile, and those that the launch
  /// itself zeroes.
  llvm::SmallVector<unsigned> changing, zeroed;
};

} // namespace fa::nvidia

#endif // FA_LIB_TARGET_NVIDIA_PROGRAM_PROGRAMBUILDER_H
