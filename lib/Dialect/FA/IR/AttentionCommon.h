// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What attention and its gradients have in common: syntax, verification, and
// reads of captured tensors.

#ifndef FA_LIB_DIALECT_FA_IR_ATTENTIONCOMMON_H
#define FA_LIB_DIALECT_FA_IR_ATTENTIONCOMMON_H

#include "fa/Dialect/FA/IR/FA.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OpImplementation.h"

#include <optional>

namespace fa {

/// The scale given, or 1/sqrt(D).
double scaleOrDefault(std::optional<llvm::APFloat> scale, int64_t headDim);

/// (scale X)? (score {...})? (mask {...})? (keep {...} (times X)?)?
///
/// By hand, because a region must belong to the operation's state before it is
/// parsed: an op before it may use a value of a region that then turns out to
/// be malformed, and the parser cleans up only what the state holds.
mlir::ParseResult parseFunctions(mlir::OpAsmParser &parser, mlir::Region &score,
                                 mlir::Region &mask, mlir::Region &keep,
                                 mlir::FloatAttr &scale,
                                 mlir::FloatAttr &times);
void printFunctions(mlir::OpAsmPrinter &printer, mlir::Region &score,
                    mlir::Region &mask, mlir::Region &keep,
                    mlir::FloatAttr scale, mlir::FloatAttr times);

/// Makes the clamping of captured tensors' indices explicit in an op's regions,
/// of reads and of what is added to gradients, and computes the tensors' sizes
/// before the op.
void clampIndices(mlir::OpBuilder &builder, mlir::Operation *op);

/// Types of one attention; `lse` may be null.
struct AttentionTypes {
  mlir::Operation *op;
  mlir::RankedTensorType query, key, value, out, lse;
};
/// Constraints fa_attention_c1 to c4.
mlir::LogicalResult verifyTypes(const AttentionTypes &types);
/// Constraint fa_attention_c5; `keeps`: there is a keep region.
mlir::LogicalResult verifyFactors(mlir::Operation *op,
                                  std::optional<llvm::APFloat> scale,
                                  std::optional<llvm::APFloat> times,
                                  bool keeps);
/// Constraint fa_attention_c6, and c3 of what the op's regions read.
mlir::LogicalResult verifyFunctions(mlir::Operation *op, mlir::Type computeType,
                                    mlir::Region &score, mlir::Region &mask,
                                    mlir::Region &keep);
/// Its parts, for a region that ends in another way.
mlir::LogicalResult verifyRegionArguments(mlir::Operation *op,
                                          mlir::Region &region,
                                          llvm::StringRef name,
                                          mlir::TypeRange arguments);
mlir::LogicalResult
verifyRegionIsPure(mlir::Region &region, llvm::StringRef name,
                   llvm::StringRef remedy = "only pure ops may be used there");
/// What an adjoint yields has the compute type, and what it adds goes to one of
/// `gradients`, with an index for each of its dimensions; `label` is the
/// constraint's.
mlir::LogicalResult verifyAdds(YieldAdjointOp yield, mlir::Type computeType,
                               mlir::ValueRange gradients,
                               llvm::StringRef label);
/// A tensor is of the compute type of elements of `elementType`; `label` is the
/// constraint's.
mlir::LogicalResult verifyComputeType(mlir::Operation *op,
                                      mlir::Type elementType,
                                      llvm::StringRef name, mlir::Type type,
                                      llvm::StringRef label);
/// Whether two sizes are known not to agree.
bool sizesDiffer(int64_t a, int64_t b);
/// Scores are multiplied by a finite number above 0; `label` is the
/// constraint's.
mlir::LogicalResult verifyLog2Scale(mlir::Operation *op,
                                    const llvm::APFloat &scale,
                                    llvm::StringRef label);
/// A step's keep region, of which there is one or none, takes row and column,
/// and yields an i1.
mlir::LogicalResult verifyKeep(mlir::Operation *op,
                               llvm::MutableArrayRef<mlir::Region> regions);
/// Whether a step's keep region is true of every element.
bool keepsAll(mlir::Region &keep);
/// A matrix where a step's keep region holds, 0 elsewhere.
mlir::Value keepWeights(mlir::OpBuilder &builder, mlir::Region &keep,
                        mlir::Value matrix);
/// Clones a step's region for a tile of its rows and keys, which begins at
/// `offsets`. The region's arguments at `first` and behind it are the row and
/// the key within the step.
void cloneShifted(mlir::OpBuilder &builder, mlir::Location loc,
                  mlir::Region &from, mlir::Region &to, unsigned first,
                  llvm::ArrayRef<mlir::OpFoldResult> offsets);
/// Sizes of a tensor are at most kMaxExtent (fa_attention_c3).
mlir::LogicalResult verifyExtents(mlir::Operation *op, llvm::StringRef name,
                                  mlir::RankedTensorType type);

} // namespace fa

#endif // FA_LIB_DIALECT_FA_IR_ATTENTIONCOMMON_H
