// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Emits the program of one thread for the body of an scf.forall, walking it in
// order. Each tile value of the body is represented as TileValue says.

#ifndef FA_LIB_CONVERSION_TILESTOTHREADS_KERNELEMITTER_H
#define FA_LIB_CONVERSION_TILESTOTHREADS_KERNELEMITTER_H

#include "BlockView.h"
#include "ThreadBuilder.h"
#include "TileValue.h"

#include "fa/Dialect/FA/IR/Matchers.h"
#include "fa/Dialect/FA/IR/TileRanges.h"
#include "fa/Dialect/Hopper/Transforms/Followers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

#include <functional>
#include <limits>

namespace fa::nvidia {

/// Where a block stands among those that wait for each other: its words, behind
/// those of the blocks before it, and how many these are (index).
struct Turns {
  mlir::Value words, number;
};

/// How warps come by the blocks of a kernel that follows (Followers.cpp). All
/// is computed where it is asked for: no register keeps it while tiles are
/// computed.
struct FollowerGrid {
  /// How many there are, how many of them a group has, and how many blocks of
  /// the kernel before (index).
  std::function<mlir::Value()> count, followersOfGroup, blocksOfGroup;
  /// The group of a block by its number (all index), and its induction
  /// variables.
  std::function<std::pair<mlir::Value, llvm::SmallVector<mlir::Value>>(
      mlir::Value)>
      decode;
  /// The group of a block of the kernel before, by its induction variables.
  std::function<mlir::Value(llvm::ArrayRef<mlir::Value>)> groupOf;
  /// The address (i64) of a group's words of 32 bits in global memory: of the
  /// first group the number that is drawn next, how often blocks have counted
  /// themselves, and, where warps zero sums, of how many followers.
  std::function<mlir::Value(mlir::Value)> wordsOf;
  static constexpr int64_t words = 2, wordsWithZeros = 4, countOffset = 4,
                           zeroCountOffset = 8;
  /// Where the scratch of the first of the producer's warps lies in shared
  /// memory; -1: they have none.
  int64_t scratch;
  /// Emits a block by its induction variables, for a warp: the thread's number
  /// in it, in how many steps at a time elements are loaded, and the place of
  /// its scratch, or null.
  std::function<mlir::LogicalResult(llvm::ArrayRef<mlir::Value>, mlir::Value,
                                    unsigned, mlir::Value)>
      emit;
  /// Zeroes the sums that a block reads, likewise; null where they are zero
  /// before the launch.
  std::function<mlir::LogicalResult(llvm::ArrayRef<mlir::Value>, mlir::Value)>
      zero;
  /// How many blocks before it is computed a block's sums are zeroed (index).
  std::function<mlir::Value()> ahead;
};

/// How a block comes by its tiles.
struct TileGrid {
  /// The induction variables of a tile's number (all index).
  std::function<llvm::SmallVector<mlir::Value>(mlir::Value)> decode;
  /// Where tiles wait for each other: the turns of one, by its induction
  /// variables.
  std::function<Turns(llvm::ArrayRef<mlir::Value>)> turns;
  /// The number of tiles (index); the counter and the host's flag of a queue
  /// (i64 addresses). Without a flag the counter is the launch's own, and gives
  /// blocks their first tiles, too.
  mlir::Value count, counter, flag;
  /// None where no kernel follows.
  std::optional<FollowerGrid> follower;
};

class KernelEmitter : private ThreadBuilder {
  /// A ring as it is filled, or as what it holds is taken: each has a position
  /// of its own.
  enum End : unsigned { Fills, Takes };
  using RingEnd = std::pair<mlir::Value, unsigned>;

public:
  KernelEmitter(const BlockView &view, mlir::OpBuilder &builder,
                mlir::Location loc, mlir::Value sharedBase)
      : ThreadBuilder(builder, loc), view(view), sharedBase(sharedBase),
        allowsApproximations(view.isOfShortTypes()) {}

  /// Binds a value outside or an argument of the forall.
  void bindScalar(mlir::Value from, mlir::Value to) { scalars.map(from, to); }
  void bindGlobal(mlir::Value from, const GlobalTensor *tensor) {
    TileValue tile;
    tile.kind = TileValue::Kind::Global;
    tile.global = tensor;
    tiles[from] = tile;
  }
  /// The pointer to a kernel parameter that is a tensor map.
  void bindMap(const TensorMap &map, mlir::Value pointer) {
    maps.push_back({map, pointer});
  }
  mlir::LogicalResult emitBlock(mlir::Block &block);
  /// Emits a block that Hopper's roles share.
  mlir::LogicalResult emitSpecialized(mlir::scf::ForallOp forall,
                                      const TileGrid &grid);
  mlir::LogicalResult emitConstantTile(mlir::arith::ConstantOp op);
  /// Emits a block that computes element by element (Elements.cpp), for so many
  /// threads, of which this is one (i32). They load for `steps` steps before
  /// they compute, or where a warp has `scratch`, the place of so many bytes of
  /// shared memory (i32; null: it has none), copy there ahead.
  mlir::LogicalResult emitElements(mlir::scf::ForallOp forall,
                                   mlir::Value thread, int64_t threads,
                                   unsigned steps, mlir::Value scratch);
  mlir::LogicalResult emitElements(mlir::scf::ForallOp forall) {
    return emitElements(forall, threadId(), view.threads(), stepsOfBlock,
                        /*scratch=*/{});
  }
  /// Writes zeros where such a block reads one of these buffers.
  mlir::LogicalResult emitZeros(mlir::scf::ForallOp forall, mlir::Value thread,
                                int64_t threads,
                                llvm::ArrayRef<unsigned> zeroed);
  /// Emits a block that computes numbers of rows, which lanes share (Rows.cpp).
  mlir::LogicalResult emitRows(mlir::scf::ForallOp forall);
  /// The number of the block among those that have begun (index), by a counter
  /// in global memory.
  mlir::Value drawNumber(mlir::Value counter);
  /// Around the body of blocks that add in an order: the block that is `apart`
  /// before this one, unless that is 0, has ended.
  void beginTurns(const Turns &turns, int64_t apart);
  void endTurns();
  /// A scalar of the program as a value of the kernel; null (and a report)
  /// when it cannot be had.
  mlir::Value scalar(mlir::Value v);
  /// Buffers whose pointer and strides must be multiples of 16 bytes.
  llvm::SmallDenseSet<unsigned> alignedBuffers;

private:
  /// A byte offset in shared memory, as a value and a constant.
  struct SharedPlace {
    mlir::Value offset; // i32
    int64_t constant;
  };
  /// What is being emitted: a loop whose ring is in flight.
  struct LoopFrame {
    mlir::scf::ForOp source;
    mlir::scf::ForOp emitted;
    llvm::SmallVector<const SharedTile *> ring;
    mlir::Value stage; // i32
    mlir::Value iv, upper;
    int ready = -1; // ring loads up to this index are in shared memory
    /// All warps have met in this iteration: what the last one read is free.
    bool hasMet = false;
  };

  //--- Control (Control.cpp), and what needs no file of its own
  mlir::LogicalResult emitOp(mlir::Operation *op);
  mlir::LogicalResult emitFill(mlir::linalg::FillOp fill);
  mlir::LogicalResult emitLinalg(mlir::linalg::LinalgOp op);
  mlir::LogicalResult emitScalarOp(mlir::Operation *op);
  mlir::LogicalResult emitFor(mlir::scf::ForOp op);
  mlir::LogicalResult emitIf(mlir::scf::IfOp op);
  mlir::LogicalResult
  emitBranch(mlir::Block &from, mlir::scf::IfOp source, mlir::Block *to,
             llvm::ArrayRef<llvm::SmallVector<RingEnd, 4>> rings);
  /// A value that control flow carries, as a list of kernel values.
  mlir::FailureOr<llvm::SmallVector<mlir::Value>> flatten(mlir::Value v,
                                                          mlir::Value like);
  /// Binds a value to those kernel values; returns how many it took.
  unsigned bindFlat(mlir::Value v, mlir::ValueRange values,
                    mlir::Value carriedFrom);
  unsigned flatSize(mlir::Value v);
  mlir::Type flatType(mlir::Value v);

  //--- Tiles in global memory (Memory.cpp)
  mlir::Value materialize(mlir::Value v, mlir::IRMapping &map,
                          mlir::scf::ForOp loop);
  mlir::FailureOr<GlobalSlice>
  resolveSlice(mlir::Value tile, mlir::IRMapping &map, mlir::scf::ForOp loop);
  mlir::FailureOr<GlobalSlice> cutSlice(const TileValue &source,
                                        mlir::OffsetSizeAndStrideOpInterface op,
                                        llvm::SmallBitVector dropped,
                                        mlir::IRMapping &map,
                                        mlir::scf::ForOp loop);
  mlir::FailureOr<TileValue> tile(mlir::Value v);
  /// Binds a whole tile to registers, in the layout that the plan gives it or
  /// in another.
  void bindRegisters(mlir::Value v, mlir::ArrayRef<mlir::Value> regs) {
    bindRegisters(v, regs, *view.layout(v));
  }
  void bindRegisters(mlir::Value v, mlir::ArrayRef<mlir::Value> regs,
                     const FragmentLayout &layout);
  /// The tile in registers of this layout.
  mlir::FailureOr<llvm::SmallVector<mlir::Value>>
  registers(mlir::Value v, const FragmentLayout &layout);
  llvm::SmallVector<mlir::Value> loadRegisters(const GlobalSlice &slice,
                                               const FragmentLayout &layout);
  /// A coordinate below a limit, or the border's; and whether it was below it,
  /// and what else is `inside` (or null).
  mlir::Value clamp(mlir::Value coordinate, mlir::Value limit,
                    mlir::Value &inside);
  mlir::Value elementPointer(const GlobalTensor &tensor,
                             mlir::ValueRange indices);
  mlir::Value loadElement(mlir::Value pointer, mlir::Type type);
  void storeElement(mlir::Value value, mlir::Value pointer);
  mlir::FailureOr<mlir::Value> emitExtract(mlir::tensor::ExtractOp op,
                                           mlir::IRMapping &map);
  mlir::LogicalResult emitSlicing(mlir::Operation *op);
  mlir::LogicalResult emitColumn(mlir::tensor::ExtractSliceOp op);
  mlir::LogicalResult emitInsert(mlir::OffsetSizeAndStrideOpInterface op,
                                 mlir::Value source, mlir::Value dest,
                                 llvm::SmallBitVector dropped);
  mlir::LogicalResult emitInPlace(mlir::tensor::InsertSliceOp insert);
  mlir::LogicalResult emitInParallel(mlir::scf::InParallelOp all);
  mlir::LogicalResult emitStore(mlir::Operation *op, mlir::Value source,
                                const GlobalSlice &dest);
  void storeSplat(mlir::Value value, const GlobalSlice &dest);
  /// Goes on where a condition holds, for the insertion guard's life; anywhere
  /// for a null one.
  void enterWhere(mlir::Value condition);
  /// Whether both hold; the first may be null, for one that does.
  mlir::Value both(mlir::Value x, mlir::Value y);
  /// Whether two columns of a thread lie side by side in memory and are sure to
  /// be aligned; if so the kernel asks for it.
  bool takesPairs(const GlobalSlice &slice, const FragmentLayout &layout,
                  mlir::Value colLimit, unsigned bytes) {
    return takesVectors(slice, layout.cols(), colLimit, bytes);
  }
  bool takesVectors(const GlobalSlice &slice, int64_t cols,
                    mlir::Value colLimit, unsigned bytes);
  llvm::SmallVector<mlir::Value>
  transposeQuad(llvm::ArrayRef<mlir::Value> words);
  void storeRows(const TileValue &source, const GlobalSlice &dest);

  //--- Tiles in shared memory (Shared.cpp)
  mlir::LogicalResult issueLoad(const SharedTile &load, mlir::IRMapping &map,
                                mlir::Value stage);
  void copyChunks(const SharedTile &load, const GlobalSlice &slice,
                  SharedPlace base);
  void copyVector(const SharedTile &load, const GlobalSlice &slice,
                  SharedPlace base);
  llvm::SmallVector<mlir::Value> loadVector(const SharedTile &load,
                                            const FragmentLayout &layout);
  void copyElements(const SharedTile &load, const GlobalSlice &slice,
                    SharedPlace base);
  /// Issues loads of a loop's ring for one value of its induction variable.
  mlir::LogicalResult prefetch(const LoopFrame &frame,
                               llvm::ArrayRef<const SharedTile *> loads,
                               mlir::Value iv, mlir::Value stage);
  mlir::LogicalResult refill(const LoopFrame &frame,
                             llvm::ArrayRef<const SharedTile *> loads,
                             unsigned ahead);
  /// Waits for the loads that an op reads.
  mlir::LogicalResult ensureReady(mlir::Operation *op);
  void commit() {
    mlir::NVVM::CpAsyncCommitGroupOp::create(b, loc);
    ++committed;
  }
  void wait(int64_t pending);
  void barrier();
  SharedPlace sharedTile(const SharedTile &load);
  /// A null stage is the only one.
  SharedPlace sharedStage(const SharedTile &load, mlir::Value stage);
  mlir::Value sharedPointer(mlir::Value offset, int64_t constant = 0);
  mlir::Value sharedOffset(const SharedLayout &layout, mlir::Value row,
                           mlir::Value col);
  SharedPlace sharedPlace(const SharedLayout &layout,
                          const FragmentLayout &from, unsigned reg);
  void storeShared(const SharedTile &to, const TileValue &source);

  //--- The order of blocks' additions (Turns.cpp)
  mlir::Value turnWord(int64_t before);
  mlir::Value isFirstThread();
  mlir::Value isTurnThread();
  void meetForTurn();
  void endAdditions();
  /// Past everything: a block has ended, and all before it.
  static constexpr int64_t pastEnd = std::numeric_limits<int64_t>::max();
  void sayPast(mlir::Value place);
  mlir::Value readPast(int64_t before);
  void waitForBlock(int64_t before, mlir::Value until, mlir::Value claim);
  mlir::Value rowInMemory(const GlobalSlice &dest);
  void takeTurn(const GlobalSlice &dest);
  mlir::LogicalResult inTurns(bool ofWarps, bool ofLanes,
                              llvm::function_ref<mlir::LogicalResult()> emit);

  //--- Threads that add what consumers stage (Adders.cpp)
  mlir::Value adderAddress(hopper::StageOp stage, int64_t offset);
  void waitForAdder(hopper::StageOp stage);
  void storeWhere(mlir::Value who, mlir::Value address, mlir::Value word);
  void tellAdder(hopper::StageOp stage, mlir::ValueRange coordinates);
  mlir::LogicalResult emitAdders(mlir::scf::ForallOp forall,
                                 const TileGrid &grid);
  mlir::Value waitForTurn(mlir::Value known, mlir::Value until,
                          mlir::Value claim);
  mlir::FailureOr<mlir::Value> emitAdditions(mlir::Value told);

  //--- Sums that blocks share (Accumulate.cpp)
  mlir::LogicalResult emitAccumulateSlice(AccumulateSliceOp op);
  mlir::LogicalResult emitAccumulate(AccumulateOp op);
  /// What a thread holds of terms, summed where they have the same place.
  struct PlaceSums {
    bool byRow = true, byCol = true;
    FragmentLayout layout;
    /// Of each place: a register whose place it is, and the sum.
    llvm::SmallVector<std::pair<unsigned, mlir::Value>> sums;
  };
  PlaceSums noSums(AccumulateOp op, llvm::SmallVectorImpl<unsigned> &placeOf);
  mlir::FailureOr<PlaceSums> sumInThread(AccumulateOp op);
  mlir::LogicalResult addSums(AccumulateOp op, PlaceSums sums);
  llvm::SmallVector<AccumulateOp> sumsCarriedBy(mlir::scf::ForOp loop);
  void startSums(llvm::ArrayRef<AccumulateOp> sums,
                 llvm::SmallVectorImpl<mlir::Value> &inits);
  mlir::LogicalResult emitReduce(mlir::linalg::ReduceOp op);
  llvm::SmallVector<mlir::Value> gatherFour(llvm::ArrayRef<mlir::Value> first,
                                            llvm::ArrayRef<mlir::Value> second);
  mlir::LogicalResult addAtPlace(AccumulateOp op, mlir::Value row,
                                 mlir::Value col, mlir::Value sum,
                                 mlir::Value condition);
  struct DiagonalSums {
    mlir::Value first; // i32
    llvm::SmallVector<mlir::Value> sums;
  };
  DiagonalSums sumDiagonals(const FragmentLayout &layout,
                            llvm::ArrayRef<mlir::Value> regs);
  /// Adds to memory, atomically: one value or two that lie side by side.
  void emitAdd(mlir::ValueRange values, mlir::Value pointer);

  //--- Lists of blocks (Lists.cpp)
  mlir::LogicalResult emitListBlocks(ListBlocksOp op);
  mlir::Value emitSeen(ListBlocksOp op, mlir::Value key);
  mlir::Value emitSeenElements(ListBlocksOp op, mlir::Value key);
  std::optional<TileRange> emitRange(ListBlocksOp op, mlir::Value key,
                                     mlir::Value what,
                                     const TileSamples &samples);
  mlir::Value warpReduce(llvm::StringRef how, mlir::Value word);

  //--- Contractions (Contraction.cpp)
  mlir::LogicalResult emitContraction(const Contraction &c);
  mlir::LogicalResult emitTensorCore(const Contraction &c,
                                     llvm::SmallVectorImpl<mlir::Value> &acc);
  mlir::LogicalResult emitMultiplyAdds(const Contraction &c,
                                       llvm::SmallVectorImpl<mlir::Value> &acc);
  /// How the lanes of a warp address the four matrices of an ldmatrix.x4.
  enum class Matrices { RowsFirst, ColumnsFirst };
  llvm::SmallVector<mlir::Value, 4>
  loadMatrices(const SharedLayout &layout, SharedPlace base,
               mlir::Value warpRows, int64_t row, mlir::Value warpChunks,
               int64_t col, Matrices order, bool transpose);
  llvm::SmallVector<mlir::Value, 4> loadA(const Contraction &c,
                                          const SharedTile &load,
                                          unsigned rowTile, unsigned step);
  llvm::SmallVector<mlir::Value, 4> packA(const Contraction &c,
                                          mlir::ArrayRef<mlir::Value> regs,
                                          unsigned rowTile, unsigned step);
  mlir::LogicalResult shareEarly(mlir::Value value);
  mlir::LogicalResult convertOperand(mlir::OpOperand *operand);
  mlir::LogicalResult storeOperand(ConvertLayoutOp convert);
  mlir::LogicalResult emitConvertLayout(ConvertLayoutOp op);
  mlir::LogicalResult hoistFragments(mlir::scf::ForOp loop);
  mlir::Value pack(mlir::Value low, mlir::Value high);
  /// Two 16-bit floats of neighbouring columns as one i32.
  mlir::Value packWord(mlir::Value low, mlir::Value high);
  llvm::SmallVector<mlir::Value> packWords(mlir::ArrayRef<mlir::Value> values);
  mlir::Value packBits(mlir::ArrayRef<mlir::Value> bits);
  /// Where a word of 32 elements of i1 has that of a register: the elements of
  /// one tile of 16 x 8 are the same bit of the word's four bytes.
  static unsigned bitOf(unsigned reg) {
    return 8 * (reg % 4) + 7 - reg / 4 % 8;
  }
  /// The element that a register of the layout stands for.
  mlir::Value element(mlir::ArrayRef<mlir::Value> regs, unsigned reg,
                      mlir::Type type, const FragmentLayout &layout);

  //--- Elementwise (Elementwise.cpp)
  mlir::LogicalResult emitElementwise(mlir::linalg::LinalgOp op);
  /// The order in which an operation computes a thread's registers, one at a
  /// time. Where consumers read a tile of i1 it is that of the bits in their
  /// words: ptxas moves seven bits of a byte into predicates at once (R2P) if
  /// they are tested one after the other. On other schedules, in which more
  /// results would be held at a time, it is that of the layout (D=128 on sm_80
  /// would spill 16 bytes more).
  llvm::SmallVector<unsigned> orderOf(mlir::linalg::LinalgOp op,
                                      const FragmentLayout &layout) const;
  mlir::LogicalResult findPackedMaxima(
      mlir::Value tile, const FragmentLayout &layout,
      llvm::MutableArrayRef<llvm::SmallVector<mlir::Value>> chains);
  mlir::LogicalResult emitReduction(mlir::linalg::LinalgOp op);
  mlir::LogicalResult checkBody(mlir::linalg::LinalgOp op);
  /// Clones a body but for `skipped`, for one element; what its values `wanted`
  /// are then.
  mlir::FailureOr<llvm::SmallVector<mlir::Value>>
  cloneBody(mlir::linalg::LinalgOp op, mlir::ValueRange args,
            mlir::ValueRange wanted, mlir::Value row, mlir::Value col,
            mlir::ArrayRef<mlir::Operation *> skipped = {});
  /// Clones a block's operations but the terminator; reads of captured tensors
  /// become loads.
  mlir::FailureOr<llvm::SmallVector<mlir::Value>>
  cloneBlock(mlir::Block &body, mlir::ValueRange args, mlir::ValueRange wanted,
             mlir::IRMapping &map,
             mlir::ArrayRef<mlir::Operation *> skipped = {});
  /// A body's coordinates and arguments for one element.
  mlir::LogicalResult mapBody(mlir::linalg::LinalgOp op, mlir::ValueRange args,
                              mlir::Value row, mlir::Value col,
                              mlir::IRMapping &map);
  mlir::LogicalResult mapOuter(mlir::Operation &op, mlir::IRMapping &map);
  mlir::LogicalResult cloneOperation(mlir::Operation &op, mlir::IRMapping &map);
  mlir::LogicalResult clonePair(mlir::Operation &op,
                                mlir::IRMapping (&maps)[2]);
  mlir::FailureOr<llvm::SmallVector<mlir::Value>>
  emitPairs(mlir::linalg::LinalgOp op, const FragmentLayout &layout);
  mlir::FailureOr<llvm::SmallVector<mlir::Value>>
  elements(mlir::linalg::LinalgOp op, const FragmentLayout &layout,
           unsigned reg);
  /// A reduction of rows: of each result the operation that combines it with
  /// what the rest of the body makes of an element.
  struct RowReduction {
    llvm::SmallVector<mlir::Operation *> combiners;
    llvm::SmallVector<mlir::Value> mapped;
  };
  /// Reports others.
  mlir::FailureOr<RowReduction> matchRowReduction(mlir::linalg::LinalgOp op);
  llvm::SmallVector<mlir::Value> combine(const RowReduction &reduction,
                                         llvm::ArrayRef<mlir::Value> x,
                                         llvm::ArrayRef<mlir::Value> acc);
  /// The value of the lane whose number differs by this bit.
  mlir::Value shuffle(mlir::Value v, unsigned distance);
  mlir::FailureOr<mlir::Value> operandElement(mlir::linalg::LinalgOp op,
                                              mlir::OpOperand *operand,
                                              const FragmentLayout &layout,
                                              unsigned reg);

  //--- Random bits (Random.cpp)
  /// Emits an op that makes a tile of i1 of random bits, or that selects by
  /// one; none where it is another.
  std::optional<mlir::LogicalResult> emitMask(mlir::linalg::LinalgOp op,
                                              const FragmentLayout &layout);
  /// A word of a tile of random bits >= limit: 8 tiles of 16 x 8, of which the
  /// thread's first element lies at (row, col).
  mlir::FailureOr<mlir::Value> emitMaskWord(mlir::linalg::LinalgOp op,
                                            const RandomMask &mask,
                                            mlir::Value row, mlir::Value col,
                                            bool isPart);
  mlir::LogicalResult emitRandomMask(mlir::linalg::LinalgOp op,
                                     const FragmentLayout &layout,
                                     const RandomMask &mask);
  mlir::LogicalResult emitExchangedMask(mlir::linalg::LinalgOp op,
                                        const FragmentLayout &layout,
                                        const RandomMask &mask, int64_t offset);
  mlir::LogicalResult emitKeep(mlir::linalg::LinalgOp op,
                               const FragmentLayout &layout);
  /// A seed, which is the same in all threads, as one that ptxas knows to be:
  /// what is computed of it then takes no registers of each thread.
  mlir::Value uniformSeed(mlir::Value seed);

  //--- Elements one after the other (Elements.cpp)
  static constexpr unsigned stepsOfBlock = 4;
  static constexpr int64_t elementScratch = hopper::followerScratch;
  struct Elements;
  struct ElementOrder;
  Elements elementsFrom(const ElementOrder &order, mlir::Value first);
  std::pair<mlir::Value, mlir::Value> elementsPointer(const GlobalSlice &slice,
                                                      const Elements &at);
  llvm::SmallVector<mlir::Value> loadElements(mlir::Value pointer,
                                              mlir::Type type, unsigned width);
  void padElements(llvm::MutableArrayRef<mlir::Value> values,
                   mlir::Value inside, const GlobalSlice &slice);
  mlir::LogicalResult emitSlices(mlir::scf::ForallOp forall);
  void zeroRows(const GlobalSlice &slice, int64_t cols, mlir::Value rows,
                mlir::Value thread, int64_t threads);
  mlir::LogicalResult emitElementLoop(const ElementOrder &order,
                                      llvm::ArrayRef<mlir::Value> loaded,
                                      mlir::Value source,
                                      const GlobalSlice &dest, unsigned steps);
  mlir::LogicalResult emitCopiedElementLoop(const ElementOrder &order,
                                            mlir::Value loaded,
                                            mlir::Value source,
                                            const GlobalSlice &dest,
                                            mlir::Value scratch);
  mlir::FailureOr<llvm::SmallVector<mlir::Value>> elementsOf(mlir::Value v,
                                                             Elements &at);
  void storeElements(llvm::ArrayRef<mlir::Value> values,
                     const GlobalSlice &dest, const Elements &at);
  mlir::FailureOr<GlobalSlice>
  placeOfResult(mlir::tensor::ParallelInsertSliceOp insert);

  //--- Rows that lanes share (Rows.cpp)
  mlir::LogicalResult reduceRow(mlir::linalg::LinalgOp op, Elements &at);
  Elements rowOfLane(const SharedRows &shared, mlir::Value row,
                     mlir::Value lane, unsigned width);

  //--- Kernels that follow in the same launch (Followers.cpp)
  void countBy(mlir::Value word, mlir::Value number);
  void countAddition(const TileGrid &grid, mlir::scf::ForallOp forall);
  mlir::Value drawFrom(mlir::Value address);
  void waitForCount(mlir::Value word, mlir::Value expected, int64_t sleep);
  void waitForZeros(const FollowerGrid &follower, mlir::Value group);
  void waitForGroup(const FollowerGrid &follower, mlir::Value group);
  mlir::LogicalResult emitZeros(const FollowerGrid &follower,
                                mlir::Value number);
  mlir::LogicalResult emitFollowers(const FollowerGrid &follower,
                                    mlir::Value scratch);
  mlir::LogicalResult emitFollowersOfProducer(mlir::scf::ForallOp forall,
                                              const TileGrid &grid);

  //--- Hopper's roles and their tiles (Roles.cpp)
  /// The producer is one thread that starts TMA's loads, and a warp that copies
  /// vectors; adders are threads of its warpgroup.
  enum class Role { Both, Producer, VectorProducer, Adder, Consumers };
  bool isProducer() const {
    return role == Role::Producer || role == Role::VectorProducer;
  }
  /// Whether it is this part of the producer that fills a ring.
  bool isFilledHere(hopper::RingOp ring) const {
    return role == (ring.getRing().getType().isVector() ? Role::VectorProducer
                                                        : Role::Producer);
  }
  static bool hasVectors(mlir::scf::ForallOp forall);
  /// A word of lane 0, which the compiler can see is the same in all lanes.
  mlir::Value uniform(mlir::Value word);
  mlir::Value warpgroup();
  /// Those of all teams of a block count, where named barriers are numbered.
  mlir::Value warpgroupOfBlock(mlir::Value inTeam);
  void joinTeam(mlir::Value number);
  void initBarriers(mlir::scf::ForallOp forall, hopper::ConsumersOp role);
  void fillOnes(mlir::scf::ForallOp forall);
  mlir::Value firstTile(const TileGrid &grid);
  mlir::Value tileStride();
  mlir::Value isFirstOfWarps(int64_t firstWarp, int64_t count);
  mlir::LogicalResult emitVectorProducer(mlir::scf::ForallOp forall,
                                         const TileGrid &grid);
  mlir::LogicalResult emitConsumers(hopper::ConsumersOp role);
  mlir::LogicalResult emitTiles(mlir::scf::ForallOp forall,
                                const TileGrid &grid);
  mlir::LogicalResult emitProducerTiles(mlir::scf::ForallOp forall,
                                        hopper::TileQueueOp queue,
                                        const TileGrid &grid);
  mlir::LogicalResult emitConsumerTiles(mlir::scf::ForallOp forall,
                                        hopper::TileQueueOp queue,
                                        const TileGrid &grid);
  /// The two barriers and the words of the slot that the count-th tile has.
  struct TileSlot {
    mlir::Value full, empty, words, parity;
  };
  TileSlot tileSlot(hopper::TileQueueOp queue, mlir::Value count);
  llvm::SmallVector<mlir::Value> readSlot(mlir::Value words, unsigned count);
  bool sparesRegisters() const;
  mlir::LogicalResult readNumbersAgain(mlir::scf::ForallOp forall);
  void bindTile(mlir::scf::ForallOp forall, mlir::ValueRange coordinates);
  struct TileLoop {
    mlir::scf::WhileOp loop;
    mlir::Block *test, *body;
    llvm::SmallVector<llvm::SmallVector<RingEnd, 4>> rings;
  };
  TileLoop startTiles(mlir::scf::ForallOp forall,
                      llvm::ArrayRef<mlir::Value> carried);
  void testTile(const TileLoop &tiles, mlir::Value more,
                llvm::ArrayRef<mlir::Value> words);
  void endTile(const TileLoop &tiles, llvm::ArrayRef<mlir::Value> carried);
  mlir::Value drawTile(const TileGrid &grid, mlir::Value tile);
  void returnQueue(const TileGrid &grid);
  void primeTurns(hopper::ConsumersOp role);
  void emitTurn(bool begin);
  void syncTeam();
  void syncWarpgroup();
  void syncWarp();

  //--- Hopper's rings (Rings.cpp), results by TMA (Staging.cpp)
  /// A position in a ring and what follows from it.
  struct Slot {
    hopper::RingOp ring;
    mlir::Value stage; // i32
  };
  /// The ends of a block's rings that this role works at.
  llvm::SmallVector<RingEnd> ringEnds(mlir::scf::ForallOp forall);
  /// The rings whose position an op or its regions move.
  llvm::SmallVector<RingEnd> ringsMovedIn(mlir::Operation *op);
  /// How many tiles went through an end of a ring so far.
  struct RingCount {
    mlir::Value now, base; // i32: now = base + more
    int64_t more = 0;
    bool isSameAs(const RingCount &o) const {
      return base == o.base && more == o.more;
    }
  };
  /// Ends whose counts are the same before an operation and behind it, and in
  /// all its regions wherever these begin and end: one number for them all.
  using RingGroup = llvm::SmallVector<RingEnd, 4>;
  llvm::SmallVector<RingGroup> groupRings(mlir::Operation *op,
                                          llvm::ArrayRef<RingEnd> ends);
  void bindRings(llvm::ArrayRef<RingGroup> groups, mlir::ValueRange counts);
  void appendCounts(llvm::ArrayRef<RingGroup> groups,
                    llvm::SmallVectorImpl<mlir::Value> &counts);
  static bool isAt(mlir::Operation *op, RingEnd end);
  static bool moveTogether(mlir::Operation *op, RingEnd x, RingEnd y);
  mlir::Value ringStage(RingEnd end);
  mlir::Value ringParity(RingEnd end);
  void advance(RingEnd end);
  enum class Barrier { Full, Empty };
  mlir::Value barrierAddress(hopper::RingOp ring, Barrier which,
                             mlir::Value stage);
  void waitBarrier(mlir::Value address, mlir::Value parity);
  mlir::FailureOr<mlir::Value> mapAddress(const TensorMap &map,
                                          mlir::Operation *op);
  mlir::LogicalResult emitAcquire(hopper::AcquireOp acquire);
  mlir::LogicalResult emitPoll(hopper::PollOp poll);
  mlir::LogicalResult emitRelease(hopper::ReleaseOp release);
  mlir::LogicalResult emitLoad(hopper::LoadOp op);
  void loadBox(mlir::Value map, llvm::ArrayRef<mlir::Value> at, int64_t column,
               mlir::Value to, mlir::Value barrier);
  void
  loadByRows(const GlobalSlice &slice, hopper::RingType type, mlir::Value map,
             mlir::Value rowMap, mlir::Value to,
             llvm::function_ref<void(mlir::Value, llvm::ArrayRef<mlir::Value>,
                                     mlir::Value)>
                 loadPanels);
  mlir::LogicalResult emitVectorLoad(hopper::LoadOp op,
                                     const GlobalSlice &slice);
  mlir::LogicalResult emitRead(hopper::ReadOp op);
  void loadShared(mlir::Type element, const TileValue &vector, unsigned reg,
                  llvm::MutableArrayRef<mlir::Value> regs);
  mlir::Value stagedPart(const TileValue &source, mlir::Value number);
  void stageSums(const TileValue &source);
  void stageTurnedSums(const TileValue &source, mlir::Value part);
  mlir::LogicalResult addPart(const TileValue &source, const GlobalSlice &dest,
                              mlir::Value number, llvm::StringRef before,
                              llvm::StringRef after);
  mlir::LogicalResult addStaged(const TileValue &source,
                                const GlobalSlice &dest);
  mlir::LogicalResult emitShare(hopper::ShareOp op);
  void emitArrival(mlir::Value barrier, mlir::Value who);
  mlir::LogicalResult emitStage(hopper::StageOp op);
  void storePanels(const FragmentLayout &layout,
                   llvm::ArrayRef<mlir::Value> words, mlir::Value address,
                   int64_t offset, unsigned firstTile, unsigned endTile);
  void storeTurned(const FragmentLayout &layout,
                   llvm::ArrayRef<mlir::Value> words, mlir::Value address,
                   int64_t offset);
  mlir::LogicalResult storeStaged(const TileValue &source,
                                  const GlobalSlice &dest);
  void fenceShared();
  void waitStores();
  mlir::LogicalResult emitHopper(mlir::Operation *op);

  //--- Hopper's matrix products (Wgmma.cpp)
  /// A product's operand in shared memory: the descriptor of its first step.
  struct SharedOperand {
    mlir::Value low; // i32
    uint32_t high = 0;
    int64_t panelBytes = 0;
    bool isTransposed = false;
  };
  SharedOperand sharedOperand(mlir::Value slot, bool isTransposed,
                              mlir::Value number, int64_t size);
  static int64_t stepOf(const SharedOperand &operand, int64_t step);
  mlir::LogicalResult emitWgmma(hopper::WgmmaOp op);
  mlir::LogicalResult emitWaitGroup(hopper::WaitGroupOp op);
  mlir::LogicalResult emitPin(hopper::PinOp op);
  mlir::LogicalResult emitPartialSums(hopper::PartialSumsOp op);
  mlir::LogicalResult emitExceeds(hopper::ExceedsOp op);

  //--- The thread (KernelEmitter.cpp)
  mlir::Value threadId();
  mlir::Value readThread();
  /// The same number, of which the compiler thinks that it changes with each
  /// iteration: what is computed of it in a loop takes no registers meanwhile.
  mlir::Value again(mlir::Value word);
  mlir::Value threadInTeam(mlir::Value thread);
  mlir::Value lane() { return remC(threadId(), 32); }
  mlir::Value warp() { return divC(threadId(), 32); }
  mlir::Value threadRow(const FragmentLayout &layout);
  mlir::Value threadCol(const FragmentLayout &layout);
  /// The first of the eight columns that are a thread's of four tiles of
  /// columns, of which this is the first, where these go to or come from memory
  /// together.
  mlir::Value chunkCol(const FragmentLayout &layout, unsigned colTile);
  /// Which of the warps that divide a layout's rows this one is, and its first
  /// column, null where that is 0.
  mlir::Value rowWarp(const FragmentLayout &layout);
  mlir::Value warpCol(const FragmentLayout &layout);
  /// Where warps have copies of a tile, whether this one's is the first: what
  /// must be done once is done there. Null where there is one.
  mlir::Value isFirstCopy(const FragmentLayout &layout);
  /// The coordinates of a register's element, as index values; null where the
  /// layout has none.
  mlir::Value rowOf(const FragmentLayout &layout, unsigned reg);
  mlir::Value colOf(const FragmentLayout &layout, unsigned reg);
  const BlockView &view;
  mlir::Value sharedBase;
  /// Functions may be right to what 16-bit numbers ask for.
  bool allowsApproximations;
  mlir::IRMapping scalars;
  llvm::DenseMap<mlir::Value, TileValue> tiles;
  llvm::SmallVector<LoopFrame> frames;
  /// Groups of cp.async committed so far (a lower bound), and for a load
  /// outside rings the number of its group while it is not waited for.
  int64_t committed = 0;
  llvm::DenseMap<const SharedTile *, int64_t> inFlight;
  llvm::DenseMap<mlir::OpOperand *, llvm::SmallVector<mlir::Value>> fragments;
  /// Operands of products that were written to shared memory, and those of them
  /// that no barrier has made visible yet.
  llvm::DenseSet<mlir::Value> written, shared;
  llvm::SmallVector<std::pair<TensorMap, mlir::Value>> maps;
  llvm::DenseMap<RingEnd, RingCount> ringCounts;
  llvm::DenseMap<mlir::Value, Slot> slots;
  /// Sums that threads have staged and not fenced yet, and in which block.
  llvm::MapVector<mlir::Operation *, mlir::Block *> unfenced;
  /// Where the team's shared memory begins; its number, null where there is
  /// one; the warpgroup's in the team.
  mlir::Value smemAddress, team, warpgroupIndex; // i32
  Role role = Role::Both;
  /// What changes with each iteration of the consumers' innermost loop.
  mlir::Value iteration; // i32
  /// The thread's number, read anew in the branch that is being emitted.
  mlir::Value branchThread; // i32
  /// Of blocks that add in an order.
  Turns turns;
  /// What threads have summed so far for places that a loop does not move.
  llvm::DenseMap<mlir::Operation *, PlaceSums> carriedSums;
  /// Binds the induction variables anew before results are stored.
  std::function<mlir::LogicalResult()> rebindTile;
  /// Says that the block's part of its group's sums is added; null: nobody
  /// waits for it.
  std::function<void()> sayAdded;
  /// Says it, unless that has been done.
  void sayOnce() {
    if (auto say = std::exchange(sayAdded, nullptr))
      say();
  }
  /// Seeds by those that they stand for.
  llvm::DenseMap<mlir::Value, mlir::Value> uniformSeeds;
  /// The registers of the operands of the op that is being emitted.
  llvm::DenseMap<std::pair<mlir::Value, unsigned>,
                 llvm::SmallVector<mlir::Value>>
      operandRegs;
};

} // namespace fa::nvidia

#endif // FA_LIB_CONVERSION_TILESTOTHREADS_KERNELEMITTER_H
