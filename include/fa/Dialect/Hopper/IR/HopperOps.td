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
    The `hopper` dialect is the schedule of a tile program on one SM of sm_90a:

    - warp specialization: the warps that load and the warps that compute;
    - the rings of tiles in shared memory by which they hand data over;
    - the matrix products in flight while other work is done;
    - the registers of each role.

    The arithmetic stays in `linalg` on tensors.

    A block of a scheduled `scf.forall` runs two roles at the same time:
    `hopper.producer` (one thread that fills rings by TMA) and
    `hopper.consumers` (1 to 4 warpgroups of 64 rows each). They meet only at
    rings. A ring's position advances by one with each `hopper.load` (producer)
    and each `hopper.acquire` (consumers), in program order. So both roles must
    visit its tiles in the same order. Each stage has a pair of mbarriers,
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
    `stages` tiles of 16-bit elements, or `stages` vectors of numbers of 8 to 64
    bits. A tile lies as panels of 64 columns. Each row of a panel is 128 bytes
    in the 128-byte swizzle of TMA and wgmma. A `turned` tile lies there with
    rows and columns exchanged: its few columns would leave the rest of a panel
    empty. A vector lies as in global memory.
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
    /// Rows of the largest box of TMA, and the most columns so that 8 rows fit
    /// into shared memory.
    static constexpr int64_t maxRows = 256, maxCols = sharedBytes / 8 / 2;
    /// Vectors hold at most as many elements as are in the largest panel.
    static constexpr int64_t maxElements = maxRows * panelCols;
    /// Whether a tile or vector can lie in a ring.
    static bool takes(::mlir::RankedTensorType tile);
    bool isVector() const { return getTile().getRank() == 1; }
    int64_t elementBytes() const {
      return getTile().getElementTypeBitWidth() / 8;
    }
    /// Sizes of a tile in shared memory.
    int64_t rows() const { return getTile().getDimSize(getTurned() ? 1 : 0); }
    int64_t cols() const { return getTile().getDimSize(getTurned() ? 0 : 1); }
    int64_t panels() const { return (cols() + panelCols - 1) / panelCols; }
    int64_t panelBytes() const { return rows() * rowBytes; }
    /// Bytes of one tile, and of its TMA loads: columns and rows outside the
    /// tensor arrive as zeros. Bytes of a vector are a multiple of 16.
    int64_t tileBytes() const {
      return isVector() ? (rows() * elementBytes() + 15) / 16 * 16
                        : panels() * panelBytes();
    }
  }];
}

def Hopper_SlotType : Hopper_Type<"Slot", "slot"> {
  let summary = "a full stage of a ring, held by the consumers";
  let parameters = (ins "::mlir::RankedTensorType":$tile);
  let assemblyFormat = "`<` $tile `>`";
  let genVerifyDecl = 1;
}

def Hopper_PendingType : Hopper_Type<"Pending", "pending"> {
  let summary = "the result of a matrix product in flight";
  let description = [{
    The registers of a product's result while the tensor cores may still write
    them. Nothing can read them. The value has one use in the product's block:
    a `hopper.wait_group`, which gives the tile, or the next product, which adds
    to it. So a result is complete wherever it is a tensor.
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
    The first stage begins at byte `offset`. The mbarriers lie at `barriers`:
    `full` of each stage, then `empty` of each stage, 8 bytes each.

    - `ones`: each stage is followed by one more panel whose elements are all 1,
      written once. A product with it sums the rows of the other operand.
    - `computed`: the consumers fill the ring by `hopper.share`; the producer
      does not know it.
    - `unguarded`, for a computed ring: no warp waits for its stages to be
      empty, and none arrives at `empty`. The order of the consumers' steps
      proves it. The consumers release a stage before they fill another one, and
      wait for that to be full before they fill the first again.
    - `with` another ring: its stages fill and empty with those of that ring and
      share their mbarriers. It holds vectors that are needed while a tile is
      held.
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
  let summary = "persistent blocks that take one tile after the other";
  let description = [{
    Without this op each iteration of the `scf.forall` is a block. With it there
    is one persistent block for each multiprocessor. A block's first tile is its
    own number. The producer draws further tiles, as tickets, from a counter in
    global memory, or, if a launch has no counter, in steps of the number of
    blocks. It hands each tile's coordinates to the consumers through one of two
    slots in shared memory. Each slot has a pair of mbarriers; all take 96 bytes
    at `barriers`.

    `longest_first` is LPT order (longest processing time first): the last
    dimension runs backwards, outside of the others. These are divided into
    sections of `section` values, one section after the other. Tiles of equal
    length then run together, and the blocks at work share L2. If blocks add in
    an order, a section has as many values as L2 holds sums for, also without
    `longest_first`: the tile that another one waits for has a head start.

    `teams` gives a block several sets of consumers. Each team takes tiles of
    its own. It has its own rings and queue in the next part of shared memory,
    and its own loading warp in the producer's warpgroup. One team's products
    run under the ends of another's tiles.
  }];
  let arguments = (ins I64Attr:$barriers, UnitAttr:$longest_first,
                       DefaultValuedAttr<I64Attr, "1">:$section,
                       DefaultValuedAttr<I64Attr, "1">:$teams);
  let assemblyFormat = [{
    `barriers` $barriers (`longest_first` $longest_first^ `section` $section)?
    (`teams` $teams^)? attr-dict
  }];
  let extraClassDeclaration = [{
    /// Tiles on their way to the consumers. Each slot says in words of 32 bits
    /// whether there is one, and its coordinates, at most seven.
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
    One thread of a warpgroup of its own runs the region. If there are rings of
    vectors, another warp of that warpgroup runs it for those. Each thread of
    the warpgroup keeps `registers` registers (setmaxnreg).
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
    `warpgroups` times 128 threads run the region together: a team, if the
    block's queue has several. Warpgroup `w` holds rows `64*w` to `64*w+63` of
    every tile, or some of the columns of a tile with fewer rows. The results
    are the tiles that the block produces.

    Registers:
    - `registers`: the registers that each thread takes (setmaxnreg).
    - `spare`: the registers of these that `hopper-order` and `hopper-narrow`
      keep free of tiles. Addresses, counters and temporaries take about 28. If
      results in flight leave ptxas 13 fewer than 56, it serialises the products
      (C7512).
    - `free`: a smaller number than `spare`, for points at which no product in
      flight reads registers. Registers that a product reads stay in place until
      it ends.

    Schedule:
    - `carried_first`: `hopper-order` starts the products of carried values,
      which are an iteration late, before others.
    - `sums_first`: of products of a kind, `hopper-order` starts those whose
      result adders add before others, and hands the result over at once.
    - `shares_later`: `hopper-schedule` delays the readers of tiles that
      warpgroups share by another iteration.
    - `streams`: `hopper-order` computes a tile that is only shared under
      products, though registers would not hold it. Threads put it into its ring
      piece by piece.
    - `turns`: `hopper-finish` has the warpgroups take turns at the tensor
      cores.

    `exchange` is the first byte of 1024 bytes of shared memory for each
    warpgroup. Random bits are made for rows of queries. If a tile's rows are
    keys, the threads of a warpgroup exchange their bits there. Without
    `exchange` each thread makes the bits of each of its elements, some 32 times
    as many.
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
    /// Bits that a warpgroup exchanges at once are of 64 keys and this many
    /// queries; and their bytes.
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
    slice of a tensor in global memory (padded with zeros). The loads complete
    the stage's full barrier after `bytes` bytes. A vector may be padded with
    any number. The lanes of a warp copy it, and each lane arrives at the
    barrier.

    A box of TMA ends where its tensor does. With `by_rows` the tile may end
    before. Such a tile is loaded row by row, each a box of its own. Rows behind
    the tile's end are boxes outside of the tensor, which arrive as zeros.
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
    Each warp waits until the stage is empty, that is, until all warps have
    released it. It writes its part of `tile` there, makes it visible to the
    tensor cores, and arrives at the stage's full barrier. The stage is full
    when all warps have arrived. So a product can read tiles that other
    warpgroups have computed, and computed tiles as its second operand or
    turned.
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
    The stage holds `tile`: the producer's load of that tile, or the consumers'
    own `hopper.share`, has filled it. The consumers read the tile nowhere else;
    the operand names it, and the producer is built from it. `polled` says that
    a `hopper.poll` before has found the stage full. The stage of a ring `with`
    another one is full when that ring's stage is. It takes that ring's slot and
    is released with it.
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
  let summary = "waits for the next stage of a ring without taking it";
  let arguments = (ins Hopper_RingType:$ring);
  let assemblyFormat = "$ring attr-dict `:` type($ring)";
  let hasVerifier = 1;
}

def Hopper_ReleaseOp : Hopper_Op<"release"> {
  let summary = "gives a stage back to be filled again";
  let description = [{
    Arrives at the stage's empty barrier: one lane of each warp for a tile,
    every lane for a vector, which each lane reads itself. A stage of an
    `unguarded` ring has no arrivals. A condition, which must be the same for
    all threads, limits the release to where it holds.
  }];
  let arguments = (ins Hopper_SlotType:$slot, Optional<I1>:$condition);
  let assemblyFormat = "$slot (`if` $condition^)? attr-dict `:` type($slot)";
  let hasVerifier = 1;
}

def Hopper_ReadOp : Hopper_Op<"read"> {
  let summary = "reads a vector of a ring into registers";
  let description = [{
    Each thread holds the elements of the rows or columns that it holds of
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
    is a tile in shared memory, [m, k] or, with its `transposed`, [k, m]; or it
    is a computed tile [m, k] in registers. `b` is in shared memory, [n, k] or,
    with `transposed`, [k, n]. The warpgroups divide the result's rows, 64 for
    each. If there are fewer rows, they divide its columns (`Division`).

    Without `inits`, and if the condition is false, the sum starts from zero.
    The condition must be the same for all threads. A second result (f32, m x
    8), with its init, gets `sum_k a[i,k]` added in each column: its ring has
    `ones`.

    The results are complete after a `hopper.wait_group`. Until then `a` in
    registers and the stages must stay unchanged. An init may be pending itself:
    products complete in order.
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
    other. One warpgroup computes on the other units while another's products
    run. Named barriers hand on the turn.
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
  let summary = "computes the values here, not later";
  let description = [{
    No computation of the values moves down across this point. The op keeps work
    that is to run under a matrix product in front of the wait for it.
  }];
  let arguments = (ins Variadic<Hopper_Computed>:$values);
  let results = (outs Variadic<Hopper_Computed>:$results);
  let assemblyFormat = "$values attr-dict `:` type($values)";
  let hasVerifier = 1;
}

def Hopper_PartialSumsOp : Hopper_Op<"partial_sums", [Pure]> {
  let summary = "sums of a tile's rows, by columns modulo 8";
  let description = [{
    `out[i,c] = acc[i,c] + sum_j tile[i, 8j+c]` in f32: the sums that a thread
    can make alone. The eight partial sums of a row are added once, after the
    loop.
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
    True in each warp that holds an element that is not below `limit`. A NaN is
    not below it. Warps may differ. So a row without such an element must get
    the same values on either side of a branch on the result.
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
    The tile is laid out as in a ring, at byte `offset`. Inserting the result
    into a tensor in global memory is then a TMA store by one thread of each
    warpgroup. No ring may use the memory. If there is room for only some
    `columns`, they are staged and stored section by section; each store has
    read its section before the next is staged.

    A tile of f32 is staged whole, as the parts of 16 rows that the warps hold.
    A part lies as panels of 32 columns in the 128-byte swizzle, or of 16
    columns without a swizzle if a warpgroup's columns are no multiple of 32.
    Adding the result to a tensor in global memory (`fa.accumulate_slice`) is
    then a TMA reduction by one thread of each warp.

    With `adders` the reduction is done by adders: threads of the producer's
    warpgroup, one for each warpgroup of consumers. The consumers tell an adder
    the coordinates. The adder waits for memory and, if blocks add in an order,
    for its turn. The consumers wait only until it has read the part that they
    staged before. A warpgroup and its adder meet in 64 bytes of shared memory,
    the first ones at byte `adders`: a pair of mbarriers, the coordinates, and
    the mbarrier phase that each warp has seen. A block has at most two adders,
    for one tile of one tensor.

    A `turned` tile of f32 has rows and columns exchanged: it is the transpose
    of the result, from a product whose own rows the warpgroups cannot divide.
    It lies in memory as the result does, for adders: each warpgroup has 64 of
    its columns.
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
    /// Bytes of a warp's part of a panel of f32.
    int64_t sumPanelBytes() { return sumRows * sumCols() * 4; }
    /// The producer has other warps left for as many adders.
    static constexpr int64_t maxAdders = 2;
    /// Bytes of an adder: full, empty, whether there is something to add and up
    /// to seven coordinates, and a word for each warp.
    static constexpr int64_t emptyOffset = barrierBytes,
                             wordsOffset = 2 * barrierBytes,
                             phasesOffset = wordsOffset + 4 * 8,
                             adderBytes = phasesOffset + 4 * 4;
    /// Whether the warps' parts of a tile of f32, or the warpgroups' parts of a
    /// turned one, are whole panels.
    static bool takesSums(::mlir::RankedTensorType tile, int64_t warpgroups,
                          bool turned);
    bool holdsSums() { return getTile().getType().getElementType().isF32(); }
    /// Where the bytes of all adders end.
    int64_t addersEnd();
    /// Columns in shared memory at a time: whole panels, except the tile's
    /// last ones.
    int64_t sectionCols();
    /// Bytes of shared memory.
    int64_t bytes();
  }];
  let hasVerifier = 1;
}

#endif // FA_DIALECT_HOPPER_IR_HOPPEROPS
