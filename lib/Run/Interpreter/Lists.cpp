// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fa.list_blocks: the mask of all elements of a block of keys at a time.

#include "Agent.h"

#include "fa/Dialect/FA/IR/FA.h"

using namespace mlir;
using namespace fa;
using namespace fa::run;
using namespace fa::run::interpreter;

namespace {
/// Of a block of keys.
struct Seen {
  bool any = false, all = true;
};
} // namespace

/// What is seen of the keys from `key` on, of which so many exist.
static LogicalResult lookAt(Body &body, int64_t rows, int64_t keys, int64_t key,
                            Failure &failure, Seen &seen) {
  int64_t count = rows * keys;
  int64_t *row = body.argument(0).makeInts(count, false),
          *column = body.argument(1).makeInts(count, false);
  for (int64_t i = 0; i < count; ++i) {
    row[i] = i / keys;
    column[i] = i % keys;
  }
  body.argument(2).setInt(key);
  if (failed(body.run(count, failure)))
    return mlir::failure();
  const Lanes &mask = body.yielded(0);
  for (int64_t i = 0; i < count; ++i) {
    bool isSeen = mask.ints()[i * mask.step()];
    seen.any |= isSeen;
    seen.all &= isSeen;
  }
  return success();
}

LogicalResult Agent::runListBlocks(Operation *op) {
  auto list = cast<ListBlocksOp>(op);
  FailureOr<int64_t> rows = index(list.getRows()), from = index(list.getFrom()),
                     to = index(list.getTo());
  FailureOr<Tensor> count = tensor(list.getCount()),
                    entries = tensor(list.getEntries());
  if (failed(rows) || failed(from) || failed(to) || failed(count) ||
      failed(entries))
    return failure();
  auto body = bodyOf(op, list.getMask().front(), shared.bodies, shared.failure);
  if (failed(body) || failed((*body)->bind(*this, shared.failure)))
    return failure();
  Tensor newCount = count->clone(), newEntries = entries->clone();
  int64_t listed = 0, keys = list.tileKeys();
  for (int64_t key = *from; key < *to; key += keys) {
    Seen seen;
    if (failed(lookAt(**body, *rows, std::min(keys, *to - key), key,
                      shared.failure, seen)))
      return failure();
    if (!seen.any)
      continue;
    if (listed >= newEntries.size())
      return shared.failure.at(op, "has no place for entry " + Twine(listed));
    // What lies past the end counts as not seen.
    newEntries.ints()[listed++] = key + (seen.all && key + keys <= *to);
  }
  if (newCount.size() < 1)
    return shared.failure.at(op, "has no place for the count");
  newCount.ints()[0] = listed;
  set(list.getNewCount(), Cell::of(newCount));
  set(list.getNewEntries(), Cell::of(newEntries));
  return success();
}
