// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The on-disk cache: one file for each entry, whose name is the key's hash.

#ifndef FA_RUNTIME_LIB_CACHE_H
#define FA_RUNTIME_LIB_CACHE_H

#include <cstdint>
#include <string>
#include <string_view>

namespace fa::rt {

/// 128-bit FNV-1a. Not meant to resist an attacker.
class Hash128 {
public:
  Hash128();
  void add(std::string_view bytes);
  /// The hash's bytes, the most significant one first.
  void write(unsigned char (&bytes)[16]) const;
  std::string hex() const;

private:
  uint64_t high, low;
};

namespace cache {

/// The path of the entry for a key, empty if the cache is off.
std::string path(std::string_view key);

/// True and the value on a hit. Whatever is wrong with the entry is a miss.
bool get(std::string_view key, std::string &value);

/// False and a reason if the entry could not be written. True if the cache is
/// off.
bool put(std::string_view key, std::string_view value, std::string &reason);

} // namespace cache
} // namespace fa::rt

#endif // FA_RUNTIME_LIB_CACHE_H
