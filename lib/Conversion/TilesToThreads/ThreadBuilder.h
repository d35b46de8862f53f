// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds the scalars of a thread's program: numbers, addresses, PTX.

#ifndef FA_LIB_CONVERSION_TILESTOTHREADS_THREADBUILDER_H
#define FA_LIB_CONVERSION_TILESTOTHREADS_THREADBUILDER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseMap.h"

#include <tuple>

namespace fa::nvidia {

class ThreadBuilder {
public:
  ThreadBuilder(mlir::OpBuilder &builder, mlir::Location loc)
      : b(builder), loc(loc) {}

  /// PTX as inline assembly; emitPTX makes it convergent.
  llvm::SmallVector<mlir::Value> ptx(llvm::StringRef text,
                                     llvm::StringRef constraints,
                                     mlir::ValueRange operands,
                                     mlir::TypeRange results,
                                     bool sideEffects = true);
  mlir::Value i32(int64_t v) { return constant(b.getI32IntegerAttr(v)); }
  mlir::Value i64(int64_t v) { return constant(b.getI64IntegerAttr(v)); }
  mlir::Value index(int64_t v) { return constant(b.getIndexAttr(v)); }
  mlir::Value constant(mlir::IntegerAttr value);
  /// Of i32, i64 or index.
  mlir::Value constantOf(mlir::Type type, int64_t c);
  /// An integer operation on these, which each block has once: the elements of
  /// a tile share most of what their coordinates are computed from.
  template <typename Op> mlir::Value once(mlir::Value x, mlir::Value y) {
    return once({b.getInsertionBlock(), mlir::TypeID::get<Op>(),
                 x.getAsOpaquePointer(), y.getAsOpaquePointer()},
                [&] { return b.createOrFold<Op>(loc, x, y); });
  }
  mlir::Value castIndex(mlir::Value v, mlir::Type type) {
    return once(
        {b.getInsertionBlock(), mlir::TypeID::get<mlir::arith::IndexCastOp>(),
         v.getAsOpaquePointer(), type.getAsOpaquePointer()},
        [&] { return b.createOrFold<mlir::arith::IndexCastOp>(loc, type, v); });
  }
  /// A block, an operation, and its operands or what else decides its result.
  using OnceKey =
      std::tuple<mlir::Block *, mlir::TypeID, const void *, const void *>;
  mlir::Value once(const OnceKey &key,
                   llvm::function_ref<mlir::Value()> create);
  mlir::Value add(mlir::Value x, mlir::Value y) {
    return once<mlir::arith::AddIOp>(x, y);
  }
  mlir::Value mul(mlir::Value x, mlir::Value y) {
    return once<mlir::arith::MulIOp>(x, y);
  }
  mlir::Value addC(mlir::Value x, int64_t c);
  mlir::Value mulC(mlir::Value x, int64_t c);
  mlir::Value divC(mlir::Value x, int64_t c);
  mlir::Value remC(mlir::Value x, int64_t c);
  mlir::Value xorI(mlir::Value x, mlir::Value y) {
    return once<mlir::arith::XOrIOp>(x, y);
  }
  mlir::Value less(mlir::Value x, mlir::Value y) {
    return b.createOrFold<mlir::arith::CmpIOp>(
        loc, mlir::arith::CmpIPredicate::slt, x, y);
  }
  mlir::Value toI64(mlir::Value v) { return castIndex(v, b.getI64Type()); }
  mlir::Value toI32(mlir::Value v) { return castIndex(v, b.getI32Type()); }
  mlir::Value toIndex(mlir::Value v) { return castIndex(v, b.getIndexType()); }
  mlir::LLVM::LLVMPointerType globalPointer() {
    return mlir::LLVM::LLVMPointerType::get(b.getContext(), 1);
  }
  mlir::LLVM::LLVMPointerType sharedPointerType() {
    return mlir::LLVM::LLVMPointerType::get(b.getContext(), 3);
  }

protected:
  mlir::OpBuilder &b;
  mlir::Location loc;

private:
  llvm::DenseMap<OnceKey, mlir::Value> made;
};

} // namespace fa::nvidia

#endif // FA_LIB_CONVERSION_TILESTOTHREADS_THREADBUILDER_H
