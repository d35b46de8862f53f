// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ThreadBuilder.h"

using namespace mlir;
using namespace fa::nvidia;

Value ThreadBuilder::once(const OnceKey &key,
                          llvm::function_ref<Value()> create) {
  Block *block = b.getInsertionBlock();
  Block::iterator point = b.getInsertionPoint();
  auto known = made.find(key);
  if (known != made.end()) {
    // What is computed of operands elsewhere is as far up as they are.
    Operation *op = known->second.getDefiningOp();
    bool isAhead = !op || op->getBlock() != block || point == block->end() ||
                   op->isBeforeInBlock(&*point);
    if (isAhead)
      return known->second;
  }
  Value value = create();
  made[key] = value;
  return value;
}

Value ThreadBuilder::constant(IntegerAttr value) {
  return once(
      {b.getInsertionBlock(), TypeID::get<arith::ConstantOp>(),
       value.getAsOpaquePointer(), nullptr},
      [&]() -> Value { return arith::ConstantOp::create(b, loc, value); });
}

Value ThreadBuilder::constantOf(Type type, int64_t c) {
  return type.isIndex() ? index(c) : type.isInteger(64) ? i64(c) : i32(c);
}

Value ThreadBuilder::addC(Value x, int64_t c) {
  return c == 0 ? x : add(x, constantOf(x.getType(), c));
}

Value ThreadBuilder::mulC(Value x, int64_t c) {
  return c == 1 ? x : mul(x, constantOf(x.getType(), c));
}

Value ThreadBuilder::divC(Value x, int64_t c) {
  return c == 1 ? x : once<arith::DivUIOp>(x, i32(c));
}
Value ThreadBuilder::remC(Value x, int64_t c) {
  return once<arith::RemUIOp>(x, i32(c));
}
SmallVector<Value> ThreadBuilder::ptx(StringRef text, StringRef constraints,
                                      ValueRange operands, TypeRange results,
                                      bool sideEffects) {
  Type type;
  if (results.size() == 1)
    type = results[0];
  else if (results.size() > 1)
    type = LLVM::LLVMStructType::getLiteral(b.getContext(),
                                            SmallVector<Type>(results));
  auto dialect =
      LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT);
  auto tail = LLVM::tailcallkind::TailCallKind::None;
  auto op = LLVM::InlineAsmOp::create(
      b, loc, type ? TypeRange(type) : TypeRange(), operands, text, constraints,
      sideEffects,
      /*is_align_stack=*/false, tail, dialect, ArrayAttr());
  SmallVector<Value> values;
  if (results.size() == 1)
    values.push_back(op.getResult(0));
  for (unsigned i = 0; results.size() > 1 && i < results.size(); ++i)
    values.push_back(LLVM::ExtractValueOp::create(b, loc, op.getResult(0), i));
  return values;
}
