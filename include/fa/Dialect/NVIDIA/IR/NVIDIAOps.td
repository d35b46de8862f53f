// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_DIALECT_NVIDIA_IR_NVIDIAOPS
#define FA_DIALECT_NVIDIA_IR_NVIDIAOPS

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/TensorEncoding.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def NVIDIA_Dialect : Dialect {
  let name = "nvidia";
  let cppNamespace = "::fa::nvidia";
  let summary = "Layouts of a block's tiles on an NVIDIA GPU";
  let description = [{
    The `nvidia` dialect stands between a schedule and the program of a thread.
    The encoding of a tile's type is its layout: its elements live in the
    registers of a block's threads (`#nvidia.fragment`) or in shared memory
    (`#nvidia.shared`). The arithmetic stays in `linalg` on tensors. Its order
    and its warps come from the `hopper` dialect or from the encodings' stages.
    A type without an encoding is a tensor in global memory, a slice of one that
    each thread reads where it needs it, or one value throughout.

    An `scf.forall` whose tiles have layouts has an attribute `nvidia.block`
    (`#nvidia.block`). A product with the attribute `nvidia.hoisted` reads the
    fragments of its first operand, a tile in shared memory, before the loop
    around it.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let extraClassDeclaration = [{
    /// Names of the attributes of operations.
    static constexpr ::llvm::StringLiteral blockName = "nvidia.block";
    static constexpr ::llvm::StringLiteral hoistedName = "nvidia.hoisted";
  }];
}

class NVIDIA_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<NVIDIA_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

def NVIDIA_FragmentKind : I32EnumAttr<"FragmentKind", "a tile or a vector of it", [
    I32EnumAttrCase<"Tile", 0, "tile">, I32EnumAttrCase<"Rows", 1, "rows">,
    I32EnumAttrCase<"Columns", 2, "columns">]> {
  let cppNamespace = "::fa::nvidia";
  let genSpecializedAttr = 0;
}

def NVIDIA_FragmentAttr : NVIDIA_Attr<"Fragment", "fragment",
    [DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let summary = "a tile in the registers of a block's threads";
  let description = [{
    A `tile` has the layout of the accumulators of mma.m16n8, repeated. A vector
    along a tile's `rows` or `columns` is held by the threads that hold these.
    `row_warps` of `warps` warps divide the rows, the others the columns. A
    block with more warps holds copies. `FragmentLayout` (Fragment.h) maps the
    registers of a thread to elements.
  }];
  let parameters = (ins EnumParameter<NVIDIA_FragmentKind>:$kind,
                        "unsigned":$rowWarps, "unsigned":$warps);
  let assemblyFormat = [{
    `<` $kind `,` `row_warps` `=` $rowWarps `of` $warps `>`
  }];
  let genMnemonicAlias = 1;
}

def NVIDIA_SharedAttr : NVIDIA_Attr<"Shared", "shared",
    [DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let summary = "a tile in shared memory";
  let description = [{
    At byte `offset` of the block's shared memory, in rows whose chunks of 16
    bytes are permuted (`SharedLayout`, Fragment.h). With a `ring` the tile is
    that load in the ring of its loop. The ring has `stages` stages, filled
    ahead of the iterations that read them. A step fills all loads together or,
    with `in_turn`, each load once the tile before has been read. Without a ring
    the tile is loaded where it stands.
  }];
  let parameters = (ins "int64_t":$offset,
                        DefaultValuedParameter<"int64_t", "-1">:$ring,
                        DefaultValuedParameter<"unsigned", "1">:$stages,
                        DefaultValuedParameter<"bool", "false">:$in_turn);
  let assemblyFormat = "`<` struct(params) `>`";
  let genMnemonicAlias = 1;
}

def NVIDIA_BlockAttr : NVIDIA_Attr<"Block", "block"> {
  let summary = "a block's warps and shared memory";
  let description = [{
    `warps` warps hold a tile. A block with several `teams` has that many times
    the warps, and each team has its part of the `shared` bytes of shared
    memory.
  }];
  let parameters = (ins StringRefParameter<"the target">:$chip,
                        "unsigned":$warps, "unsigned":$teams,
                        "int64_t":$shared);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def NVIDIA_ConvertLayoutOp : Op<NVIDIA_Dialect, "convert_layout", [Pure]> {
  let summary = "the same tile in another place or layout";
  let description = [{
    From registers to shared memory, for a product that takes its operand from
    there. The tile is written once: where the first product reads it, or as
    soon as it is computed, if all warps have met since the last product read
    that memory. Or to registers, from global memory or from one value
    throughout: the tile is read where it is needed.
  }];
  let arguments = (ins AnyRankedTensor:$source);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$source attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

#endif // FA_DIALECT_NVIDIA_IR_NVIDIAOPS
