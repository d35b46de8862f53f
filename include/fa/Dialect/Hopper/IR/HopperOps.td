// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_DIALECT_HOPPER_IR_HOPPEROPS
#define FA_DIALECT_HOPPER_IR_HOPPEROPS

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Hopper_Dialect : Dialect {
  let name = "hopper";
  let cppNamespace = "::fa::hopper";
  let summary = "A tile program's schedule on NVIDIA's sm_90a";
  let description = [{
    The `hopper` dialect says *when* and *by whom* the steps of a tile program
    are done on one SM of sm_90a: which warps load and which compute, through
    which rings of tiles in shared memory they hand data over, which matrix
    products are in flight while something else is computed, and how many
    registers each role has. What is computed stays in `linalg` on tensors.

    A block of a scheduled `scf.forall` runs two roles at the same time:
    `hopper.producer` (one thread that fills rings by TMA) and
    `hopper.consumers` (1 to 4 warpgroups of 64 rows each). They meet only at
    rings. A ring's position advances by one with each `hopper.load` (producer)
    and each `hopper.acquire` (consumers), in program order, so both roles must
    visit its tiles in the same order; each stage has a pair of mbarriers,
    `full` and `empty`, whose parity follows from the position.
  }];
  let useDefaultTypePrinterParser = 1;
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

class Hopper_Type<string name, string typeMnemonic>
    : TypeDef<Hopper_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def Hopper_RingType : Hopper_Type<"Ring", "ring"> {
  let summary = "a ring of tiles in shared memory";
  let description = [{
    `stages` tiles of 16-bit elements. A tile lies as panels of 64 columns, each
    row of a panel 128 bytes in TMA's and wgmma's 128-byte swizzle. A `turned`
    tile lies there with rows and columns exchanged: its columns, which do not
    fill panels, would take memory for nothing. Or `stages` vectors of numbers of
    8 to 64 bits, as they lie in memory.
  }];
  let parameters = (ins "unsigned":$stages, "::mlir::RankedTensorType":$tile,
                        DefaultValuedParameter<"bool", "false">:$turned);
  let assemblyFormat = "`<` $stages `,` $tile `` custom<Turned>($turned) `` `>`";
  let builders = [TypeBuilder<(ins "unsigned":$stages,
                                   "::mlir::RankedTensorType":$tile),
                              "return $_get($_ctxt, stages, tile, false);">];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// A row of a panel: columns, and bytes of 16-bit elements.
    static constexpr int64_t panelCols = 64, rowBytes = 128;
    /// Rows of the largest box of TMA, and columns of which 8 rows fit into
    /// shared memory.
    static constexpr int64_t maxRows = 256, maxCols = sharedBytes / 8 / 2;
    /// Vectors hold at most as many elements as are in the largest panel.
    static constexpr int64_t maxElements = maxRows * panelCols;
    /// Whether a tile or vector can lie in a ring.
    static bool takes(::mlir::RankedTensorType tile);
    bool isVector() const { return getTile().getRank() == 1; }
    int64_t elementBytes() const {
      return getTile().getElementTypeBitWidth() / 8;
    }
    /// As a tile lies in shared memory.
    int64_t rows() const { return getTile().getDimSize(getTurned() ? 1 : 0); }
    int64_t cols() const { return getTile().getDimSize(getTurned() ? 0 : 1); }
    int64_t panels() const { return (cols() + panelCols - 1) / panelCols; }
    int64_t panelBytes() const { return rows() * rowBytes; }
    /// Bytes of one tile, which is also what its TMA loads deliver: columns and
    /// rows outside the tensor arrive as zeros. A vector's are a multiple of 16.
    int64_t tileBytes() const {
      return isVector() ? (rows() * elementBytes() + 15) / 16 * 16
                        : panels() * panelBytes();
    }
  }];
}

def Hopper_SlotType : Hopper_Type<"Slot", "slot"> {
  let summary = "a full tile of a ring, as the consumers hold it";
  let parameters = (ins "::mlir::RankedTensorType":$tile);
  let assemblyFormat = "`<` $tile `>`";
  let genVerifyDecl = 1;
}

def Hopper_PendingType : Hopper_Type<"Pending", "pending"> {
  let summary = "what a matrix product in flight will give";
  let description = [{
    The registers of a product's result while the tensor cores may still write
    them: nothing can read them. The one use is a `hopper.wait_group`, which
    gives the tile, or the next product that adds to it, in the block of the
    product: so a result is complete wherever it is a tensor.
  }];
  let parameters = (ins "::mlir::RankedTensorType":$tile);
  let assemblyFormat = "`<` $tile `>`";
  let genVerifyDecl = 1;
}

def Hopper_Tile : RankedTensorOf<[F16, BF16, F32]>;
def Hopper_TileOrPending : AnyTypeOf<[Hopper_Tile, Hopper_PendingType]>;
def Hopper_Vector : 1DTensorOf<[AnyType]>;
def Hopper_Loaded : AnyTypeOf<[Hopper_Tile, Hopper_Vector]>;
def Hopper_Computed : RankedTensorOf<[F16, BF16, F32, I1]>;
def Hopper_SlotOrTile : AnyTypeOf<[Hopper_SlotType, Hopper_Tile]>;

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

class Hopper_Op<string mnemonic, list<Trait> traits = []>
    : Op<Hopper_Dialect, mnemonic, traits>;

def Hopper_RingOp : Hopper_Op<"ring"> {
  let summary = "places a ring in shared memory";
  let description = [{
    `offset` is where the first stage begins, `barriers` where its mbarriers
    lie: `full` of each stage, then `empty` of each stage, 8 bytes each. With
    `ones` each stage is followed by one more panel whose elements are all 1,
    written once: a product with it sums the rows of the other operand. With
    `computed` the consumers fill it themselves, by `hopper.share`, and the
    producer does not know it; `unguarded`, nobody waits for such a ring's stages
    to be empty, nor says that they are: the order of the consumers' steps shows
    it. They give a stage back before they fill another one, and wait for that to
    be full before they fill the first again.

    The stages of a ring `with` another one fill and empty with those of that,
    whose mbarriers they share: vectors that are needed while a tile is held.
  }];
  let arguments = (ins Optional<Hopper_RingType>:$with, StrAttr:$name,
                       I64Attr:$offset, I64Attr:$barriers, UnitAttr:$ones,
                       UnitAttr:$computed, UnitAttr:$unguarded);
  let results = (outs Hopper_RingType:$ring);
  let assemblyFormat = [{
    $name `at` $offset `barriers` $barriers (`ones` $ones^)?
    (`computed` $computed^)? (`unguarded` $unguarded^)?
    (`with` $with^ `:` type($with) `in`)? attr-dict `:` type($ring)
  }];
  let extraClassDeclaration = [{
    /// Bytes of a stage, with its panel of ones.
    int64_t stageBytes() {
      RingType type = getRing().getType();
      return type.tileBytes() + (getOnes() ? type.panelBytes() : 0);
    }
    /// Bytes of all stages.
    int64_t bytes() { return stageBytes() * getRing().getType().getStages(); }
    /// Bytes of the mbarriers of one kind, `full` or `empty`.
    int64_t barriersBytes() {
      return barrierBytes * getRing().getType().getStages();
    }
    /// Where the last mbarrier ends.
    int64_t barriersEnd() { return getBarriers() + 2 * barriersBytes(); }
  }];
  let hasVerifier = 1;
}

def Hopper_TileQueueOp : Hopper_Op<"tile_queue",
    [HasParent<"::mlir::scf::ForallOp">]> {
  let summary = "blocks stay and take one tile after the other";
  let description = [{
    Without it each iteration of the `scf.forall` is a block. With it there is
    one block for each multiprocessor; its first tile is its own number, and the
    producer draws the others from a counter in global memory (or, where a
    launch has none, in steps of the number of blocks). It hands each tile's
    coordinates to the consumers through one of two slots in shared memory, each
    with a pair of mbarriers, in 96 bytes at `barriers`.

    With `longest_first` the last dimension runs backwards outside of the
    others, in sections of `section` of these: tiles of equal length come
    together, and the blocks at work share what L2 holds. Where blocks add in an
    order, sections are of as many as L2 holds the sums of, without
    `longest_first`, too: what a tile waits for has a head start.

    With `teams` a block has its consumers that many times: each team takes
    tiles of its own, with rings and a queue of its own in the next part of
    shared memory, and a warp of the producer's warpgroup that loads for it. One
    team's products run under the ends of another's tiles.
  }];
  let arguments = (ins I64Attr:$barriers, UnitAttr:$longest_first,
                       DefaultValuedAttr<I64Attr, "1">:$section,
                       DefaultValuedAttr<I64Attr, "1">:$teams);
  let assemblyFormat = [{
    `barriers` $barriers (`longest_first` $longest_first^ `section` $section)?
    (`teams` $teams^)? attr-dict
  }];
  let extraClassDeclaration = [{
    /// Tiles on their way to the consumers. Of each: whether there is one, and
    /// up to seven coordinates, in words of 32 bits.
    static constexpr int64_t slots = 2, slotBytes = 32;
    /// From `barriers`: full of each slot, empty of each, and the slots.
    static constexpr int64_t emptyOffset = slots * barrierBytes,
                             slotsOffset = 2 * emptyOffset,
                             bytes = slotsOffset + slots * slotBytes;
  }];
  let hasVerifier = 1;
}

def Hopper_ProducerOp : Hopper_Op<"producer",
    [SingleBlock, NoTerminator, HasParent<"::mlir::scf::ForallOp">]> {
  let summary = "the role that fills the rings";
  let description = [{
    One thread of a warpgroup of its own runs the region, and, where there are
    rings of vectors, another warp of it for those; `registers` is what a thread
    of that warpgroup keeps (setmaxnreg).
  }];
  let arguments = (ins I64Attr:$registers);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "`registers` $registers attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def Hopper_ConsumersOp : Hopper_Op<"consumers",
    [SingleBlockImplicitTerminator<"YieldOp">,
     HasParent<"::mlir::scf::ForallOp">]> {
  let summary = "the role that computes";
  let description = [{
    `warpgroups` times 128 threads run the region together (a team, where the
    block's queue has several); warpgroup `w` holds
    rows `64*w` to `64*w+63` of every tile, or of a tile of fewer rows some of
    the columns. `registers` is what each of their
    threads takes (setmaxnreg), and `spare` how many of these `hopper-order` and
    `hopper-narrow` leave to what is no tile: addresses, counters and temporaries
    take about 28, and ptxas 13 has products one after the other (C7512) where
    results in flight leave it fewer than 56. Where no product in flight reads
    registers, which stay where they are until it ends, `free` may be left, fewer
    than `spare`.

    With `carried_first`, `hopper-order` starts products of what a loop carries,
    those that are an iteration late, before others, and with `sums_first` before
    others of their kind those that adders add, which are then handed to them at
    once. With `shares_later`, `hopper-schedule` has what reads tiles that
    warpgroups share come another iteration later. With `streams`, `hopper-order`
    has a tile that is only shared computed under products though registers would
    not hold it: threads put it into its ring piece by piece. With `turns`,
    `hopper-finish` has the warpgroups take turns at the tensor cores.

    Random bits are made for rows of queries. Of tiles whose rows are keys, the
    threads of a warpgroup exchange them in its 1024 bytes of shared memory from
    byte `exchange` on, where that is given; else each thread makes those of each
    of its elements, some 32 times as many. The results are the tiles that the
    block produces.
  }];
  let arguments = (ins I64Attr:$warpgroups, I64Attr:$registers,
                       DefaultValuedAttr<I64Attr, "56">:$spare,
                       UnitAttr:$carried_first, UnitAttr:$sums_first,
                       UnitAttr:$shares_later, UnitAttr:$streams,
                       UnitAttr:$turns, OptionalAttr<I64Attr>:$spare_free,
                       OptionalAttr<I64Attr>:$exchange);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $warpgroups `registers` $registers (`spare` $spare^)?
    (`free` $spare_free^)?
    (`carried_first` $carried_first^)? (`sums_first` $sums_first^)?
    (`shares_later` $shares_later^)? (`streams` $streams^)?
    (`turns` $turns^)? (`exchange` $exchange^)?
    (`->` `(` type($results)^ `)`)? attr-dict-with-keyword $body
  }];
  let extraClassDeclaration = [{
    /// Registers that addresses and counters take where nothing is computed
    /// while products are in flight.
    static constexpr int64_t leastSpare = 24;
    /// Bits that a warpgroup exchanges at once: of 64 keys and so many queries;
    /// and their bytes.
    static constexpr int64_t mostExchanged = 128, exchangeBytes = 1024;
    /// Where the shared memory of all warpgroups' exchanges ends.
    int64_t exchangeEnd() {
      return *getExchange() + int64_t(getWarpgroups()) * exchangeBytes;
    }
  }];
  let hasVerifier = 1;
}

def Hopper_YieldOp : Hopper_Op<"yield",
    [Terminator, Pure, ReturnLike, HasParent<"ConsumersOp">]> {
  let summary = "the tiles that the consumers produce";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
  let builders = [OpBuilder<(ins), [{ build($_builder, $_state, {}); }]>];
}

def Hopper_LoadOp : Hopper_Op<"load"> {
  let summary = "fills the next stage of a ring from global memory";
  let description = [{
    Waits until the stage is empty, then starts loads of the panels of `tile`, a
    slice of a tensor in global memory (padded with zeros), that complete the
    stage's full barrier after `bytes` bytes. A vector, padded with any number,
    is copied by the lanes of a warp, which arrive at the barrier.

    A box of TMA ends where its tensor does. With `by_rows` the tile may end
    before: a tile that does is loaded row by row, each a box of its own, and the
    rows behind its end are boxes outside of the tensor, which are zeros.
  }];
  let arguments = (ins Hopper_Loaded:$tile, Hopper_RingType:$ring,
                       I64Attr:$bytes, UnitAttr:$by_rows);
  let assemblyFormat = [{
    $tile `into` $ring `bytes` $bytes (`by_rows` $by_rows^)? attr-dict `:`
    type($tile) `,` type($ring)
  }];
  let hasVerifier = 1;
}

def Hopper_ShareOp : Hopper_Op<"share"> {
  let summary = "fills the next stage of a ring with a computed tile";
  let description = [{
    Each warp waits until the stage is empty, which all have given back, writes
    its part of `tile` there, lets the tensor cores see it, and arrives at the
    stage's full barrier: it is full when all warps have. So a product can read
    what other warpgroups have computed, and what it wants as its second operand
    or turned.
  }];
  let arguments = (ins Hopper_Tile:$tile, Hopper_RingType:$ring);
  let assemblyFormat = [{
    $tile `into` $ring attr-dict `:` type($tile) `,` type($ring)
  }];
  let hasVerifier = 1;
}

def Hopper_AcquireOp : Hopper_Op<"acquire", [
    TypesMatchWith<"the tile is of the ring's type", "ring", "tile",
                   "::llvm::cast<RingType>($_self).getTile()">]> {
  let summary = "waits for the next stage of a ring to be full";
  let description = [{
    `tile` is what the stage holds: the producer's load of that tile, or their
    own `hopper.share`, has filled it. The consumers do not read it from anywhere
    else; it says what they compute, and the producer is made of it. With
    `polled` the stage is known to be full, by a `hopper.poll` before. The stage
    of a ring `with` another one is full when that of the other is, whose slot
    this takes, and is given back with it.
  }];
  let arguments = (ins Hopper_RingType:$ring, Hopper_Loaded:$tile,
                       Optional<Hopper_SlotType>:$with, UnitAttr:$polled);
  let results = (outs Hopper_SlotType:$slot);
  let assemblyFormat = [{
    $ring `of` $tile (`with` $with^ `:` type($with) `in`)? (`polled` $polled^)?
    attr-dict `:` type($ring) `->` type($slot)
  }];
  let hasVerifier = 1;
}

def Hopper_PollOp : Hopper_Op<"poll"> {
  let summary = "waits for the next stage of a ring, and does not take it";
  let arguments = (ins Hopper_RingType:$ring);
  let assemblyFormat = "$ring attr-dict `:` type($ring)";
  let hasVerifier = 1;
}

def Hopper_ReleaseOp : Hopper_Op<"release"> {
  let summary = "gives a stage back to the producer";
  let description = [{
    One arrival of each warp. With a condition only where it holds (it must be
    the same for all threads).
  }];
  let arguments = (ins Hopper_SlotType:$slot, Optional<I1>:$condition);
  let assemblyFormat = "$slot (`if` $condition^)? attr-dict `:` type($slot)";
  let hasVerifier = 1;
}

def Hopper_ReadOp : Hopper_Op<"read"> {
  let summary = "a vector of a ring, in registers";
  let description = [{
    Each thread has the elements that go with the rows or columns that it has of
    tiles.
  }];
  let arguments = (ins Hopper_SlotType:$slot);
  let results = (outs Hopper_Vector:$result);
  let assemblyFormat = "$slot attr-dict `:` type($slot) `->` type($result)";
  let hasVerifier = 1;
}

def Hopper_WgmmaOp : Hopper_Op<"wgmma", [AttrSizedOperandSegments]> {
  let summary = "starts a matrix product on the tensor cores";
  let description = [{
    `c[i,j] += sum_k a(i,k) * b(j,k)` in f32, asynchronously, as one group. `a`
    is a tile in shared memory, [m, k] or, with its `transposed`, [k, m], or, as
    an operand from registers, a computed tile [m, k]; `b` is in shared memory,
    [n, k] or, with `transposed`, [k, n]. The warpgroups divide the result's
    rows, 64 for each, and where there are fewer rows than that its columns
    (`Division`). Without `inits`, and where a condition does not hold (it must
    be the same for all threads), the sum starts from zero. A second result (f32, m x 8), with its
    init, gets `sum_k a[i,k]` added in each column: its ring has `ones`.

    What a result will be is known after a `hopper.wait_group`; `a` in registers
    and the stages must stay as they are until then. An init may itself be
    pending: products complete in order.
  }];
  let arguments = (ins Hopper_SlotOrTile:$a, Hopper_SlotType:$b,
                       Variadic<Hopper_TileOrPending>:$inits,
                       Optional<I1>:$condition, UnitAttr:$a_transposed,
                       UnitAttr:$transposed);
  let results = (outs Variadic<Hopper_PendingType>:$results);
  let assemblyFormat = [{
    $a (`transposed` $a_transposed^)? `,` $b (`transposed` $transposed^)?
    (`init` `(` $inits^ `)`)? (`if` $condition^)? attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def Hopper_WaitGroupOp : Hopper_Op<"wait_group",
    [DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "waits until at most `pending` groups are in flight";
  let description = "The results are the values, which are then complete.";
  let arguments = (ins I64Attr:$pending, Variadic<Hopper_PendingType>:$values);
  let results = (outs Variadic<Hopper_Tile>:$results);
  let assemblyFormat = "$pending `,` $values attr-dict `:` type($values)";
  let hasVerifier = 1;
}

def Hopper_TurnBeginOp : Hopper_Op<"turn_begin"> {
  let summary = "waits for this warpgroup's turn on the tensor cores";
  let description = [{
    Ping-pong: consumers start their matrix products one warpgroup after the
    other, so that one computes on the other units while the other's products
    run. Named barriers hand the turn round.
  }];
  let assemblyFormat = "attr-dict";
  let hasVerifier = 1;
}

def Hopper_TurnEndOp : Hopper_Op<"turn_end"> {
  let summary = "gives the turn to the next warpgroup";
  let assemblyFormat = "attr-dict";
  let hasVerifier = 1;
}

def Hopper_PinOp : Hopper_Op<"pin", [AllTypesMatch<["values", "results"]>]> {
  let summary = "has the values computed here, not later";
  let description = [{
    Nothing moves a computation down across this point: it keeps the work that
    is to run under a matrix product in front of the wait for it.
  }];
  let arguments = (ins Variadic<Hopper_Computed>:$values);
  let results = (outs Variadic<Hopper_Computed>:$results);
  let assemblyFormat = "$values attr-dict `:` type($values)";
  let hasVerifier = 1;
}

def Hopper_PartialSumsOp : Hopper_Op<"partial_sums", [Pure]> {
  let summary = "sums of a tile's rows, by columns modulo 8";
  let description = [{
    `out[i,c] = acc[i,c] + sum_j tile[i, 8j+c]` in f32: what a thread can sum
    alone. The eight partial sums of a row are added once, after the loop.
  }];
  let arguments = (ins Hopper_Tile:$tile, Hopper_Tile:$acc);
  let results = (outs Hopper_Tile:$result);
  let assemblyFormat = [{
    $tile `,` $acc attr-dict `:` type($tile) `,` type($acc) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Hopper_ExceedsOp : Hopper_Op<"exceeds", [Pure]> {
  let summary = "whether a warp holds an element that is not below a limit";
  let description = [{
    True in each warp that holds an element that is not below `limit`; a NaN is
    not. Warps may differ, so what depends on the result must be the same for
    a row on either side unless that row itself has such an element.
  }];
  let arguments = (ins Hopper_Tile:$tile, F64Attr:$limit);
  let results = (outs I1:$result);
  let assemblyFormat = "$tile `limit` $limit attr-dict `:` type($tile)";
  let hasVerifier = 1;
}

def Hopper_StageOp : Hopper_Op<"stage",
    [DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "puts a computed tile into shared memory for TMA";
  let description = [{
    The tile is laid out as in a ring, at byte `offset`; inserting the result
    into a tensor in global memory is then a TMA store by one thread of each
    warpgroup. No ring may use the memory. Where there is room for some
    `columns` only, as many are put there and stored at a time, each once the
    store before has read its own.

    A tile of f32 is put there at once, as the parts of 16 rows that warps have of
    it, each as panels of 32 columns in the 128-byte swizzle, or of 16 as they are
    where a warpgroup has other columns than a multiple of 32; adding the result to a tensor in global
    memory (`fa.accumulate_slice`) is then a TMA reduction by one thread of each
    warp. Or, with `adders`, by a thread of the producer's for each warpgroup, its
    adder, to which the consumers tell where: it waits for memory and, where
    blocks add in an order, for its turn; the consumers wait only until it has
    read what they staged before. A warpgroup and its adder meet in 64 bytes of
    shared memory, the first ones at byte `adders`: a pair of mbarriers, the
    coordinates, and which phase of the mbarriers each warp has seen. A block has
    at most two, for one tile of one tensor.

    A `turned` tile of f32 has rows and columns exchanged: it is the transpose of
    the result, which a product gives whose own rows warpgroups cannot divide. It
    lies there as the result, for adders: a warpgroup has 64 of its columns.
  }];
  let arguments = (ins Hopper_Tile:$tile, UnitAttr:$turned, I64Attr:$offset,
                       OptionalAttr<I64Attr>:$columns,
                       OptionalAttr<I64Attr>:$adders);
  let results = (outs Hopper_Tile:$result);
  let assemblyFormat = [{
    $tile (`turned` $turned^)? `at` $offset (`by` $columns^)?
    (`adders` $adders^)? attr-dict `:` type($tile)
  }];
  let extraClassDeclaration = [{
    /// Rows that a warp has of a panel of f32.
    static constexpr int64_t sumRows = 16;
    /// Columns of a panel of f32. L2 adds 128 bytes at once as fast as 64.
    static constexpr int64_t leastSumCols = 16, mostSumCols = 32;
    int64_t sumCols();
    /// Rows that a warp, or with adders a warpgroup, adds at once.
    int64_t addedRows();
    /// Bytes of what a warp has of a panel of f32.
    int64_t sumPanelBytes() { return sumRows * sumCols() * 4; }
    /// The producer has other warps left for as many adders.
    static constexpr int64_t maxAdders = 2;
    /// Of an adder: full, empty, whether something is to be added and up to
    /// seven coordinates, and a word for each warp.
    static constexpr int64_t emptyOffset = barrierBytes,
                             wordsOffset = 2 * barrierBytes,
                             phasesOffset = wordsOffset + 4 * 8,
                             adderBytes = phasesOffset + 4 * 4;
    /// Whether the parts that warps have of a tile of f32 are whole panels, or
    /// those that warpgroups have of a turned one.
    static bool takesSums(::mlir::RankedTensorType tile, int64_t warpgroups,
                          bool turned);
    bool holdsSums() { return getTile().getType().getElementType().isF32(); }
    /// Where the bytes of all adders end.
    int64_t addersEnd();
    /// How many columns are in shared memory at a time, in whole panels but for
    /// the tile's last ones.
    int64_t sectionCols();
    /// Bytes of shared memory.
    int64_t bytes();
  }];
  let hasVerifier = 1;
}

#endif // FA_DIALECT_HOPPER_IR_HOPPEROPS
