// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel that computes, element by element, of what the blocks of the kernel
// before it have added up: its blocks are computed in the same launch.

#ifndef FA_DIALECT_HOPPER_TRANSFORMS_FOLLOWERS_H
#define FA_DIALECT_HOPPER_TRANSFORMS_FOLLOWERS_H

#include "fa/Dialect/Hopper/IR/Hopper.h"

#include <string>

namespace fa::hopper {

/// An attribute of a forall, an integer: it follows the forall before it, whose
/// warps compute its blocks. Blocks of the two whose numbers in all but the
/// last dimension are the same are a group: each of the second's begins when
/// all of the first's have added what they add. The number is the byte of
/// shared memory from which on the producer's warps have scratch for it, or -1:
/// they have none.
inline constexpr llvm::StringLiteral followsName = "hopper.follows";

/// Bytes of a warp's scratch.
inline constexpr int64_t followerScratch = 8192;

/// Warps of a block's producer that have no work of their own: they compute
/// what follows.
int64_t freeWarps(mlir::scf::ForallOp forall);

/// The forall that another follows; null where it has a launch of its own.
mlir::scf::ForallOp followedBy(mlir::scf::ForallOp forall);
/// The forall that follows; null where none does.
mlir::scf::ForallOp followerOf(mlir::scf::ForallOp forall);

/// Whether a forall can follow the one before it; else says in `why` what is in
/// the way.
bool canFollow(mlir::scf::ForallOp forall, std::string &why);

/// Where the scratch of the first free warp begins; -1: there is none.
int64_t scratchOf(mlir::scf::ForallOp follower);

/// Reports a forall that follows one whose blocks have so many bytes of shared
/// memory, and can't.
mlir::LogicalResult verifyFollower(mlir::scf::ForallOp forall,
                                   int64_t sharedBytes);

} // namespace fa::hopper

#endif // FA_DIALECT_HOPPER_TRANSFORMS_FOLLOWERS_H
