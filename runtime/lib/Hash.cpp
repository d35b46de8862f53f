// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Cache.h"

using namespace fa::rt;

__extension__ using UInt128 = unsigned __int128;

Hash128::Hash128() : high(0x6c62272e07bb0142ull), low(0x62b821756295c58dull) {}

void Hash128::add(std::string_view bytes) {
  // The FNV prime for 128 bits: 2^88 + 0x13b.
  const UInt128 prime = (static_cast<UInt128>(1) << 88) + 0x13b;
  UInt128 hash = (static_cast<UInt128>(high) << 64) | low;
  for (char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= prime;
  }
  high = static_cast<uint64_t>(hash >> 64);
  low = static_cast<uint64_t>(hash);
}

void Hash128::write(unsigned char (&bytes)[16]) const {
  for (int i = 0; i < 8; ++i) {
    bytes[i] = static_cast<unsigned char>(high >> (56 - 8 * i));
    bytes[8 + i] = static_cast<unsigned char>(low >> (56 - 8 * i));
  }
}

std::string Hash128::hex() const {
  unsigned char bytes[16];
  write(bytes);
  std::string result;
  for (unsigned char byte : bytes) {
    result += "0123456789abcdef"[byte >> 4];
    result += "0123456789abcdef"[byte & 15];
  }
  return result;
}
