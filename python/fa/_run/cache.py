# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled kernels on disk, in the runtime's cache.

A kernel for a GPU is PTX, one for the CPU an image with machine code. Its entry is found by all
that these depend on: the request, the build of the compiler's library and, for the CPU, the
machine. PTX is read without opening that library.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from typing import NamedTuple

from fa import _native

_FORMAT = b"fa.kernel 2"
_HEAD = struct.Struct("<IIIQ")
"""Arguments, results, whether the content is PTX, and the length of the key."""
_PT_NOTE, _NT_GNU_BUILD_ID = 4, 3


class Entry(NamedTuple):
    """A compiled module in the cache."""

    num_args: int
    num_results: int
    ptx: str | None
    """None for the CPU."""
    image: bytes | None
    """None for a GPU."""


def _build_id(path: str) -> bytes | None:
    """The build id in a 64-bit little-endian ELF file, a hash made by the linker."""
    with open(path, "rb") as file:
        header = file.read(64)
        if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
            return None
        (offset,) = struct.unpack_from("<Q", header, 32)
        size, count = struct.unpack_from("<HH", header, 54)
        file.seek(offset)
        table = file.read(size * count)
        for i in range(count):
            kind, _, start, _, _, length = struct.unpack_from("<IIQQQQ", table, size * i)
            if kind != _PT_NOTE:
                continue
            file.seek(start)
            notes, at = file.read(length), 0
            while at + 12 <= len(notes):
                name_size, value_size, kind = struct.unpack_from("<III", notes, at)
                name = at + 12
                value = name + (name_size + 3) // 4 * 4
                if kind == _NT_GNU_BUILD_ID and notes[name : name + 4] == b"GNU\0":
                    return notes[value : value + value_size]
                at = value + (value_size + 3) // 4 * 4
    return None


@functools.cache
def _compiler() -> bytes | None:
    """The build id of the compiler, or its hash; None if the library is not there."""
    path = _native.compiler_path()
    try:
        found = _build_id(path)
        if found:
            return found
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha1").digest()
    except (OSError, ValueError, struct.error):
        return None


def key_of(*request: object) -> bytes | None:
    """The key of a request, whose parts are text and numbers; None: keep nothing."""
    compiler = _compiler()
    if compiler is None:
        return None
    parts = [_FORMAT, compiler, *(str(part).encode() for part in request)]
    # With their lengths: no two requests run together into one key.
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def get(key: bytes) -> Entry | None:
    """The entry of a key. Whatever is wrong with it makes it a miss."""
    value = _native.cache_get(key)
    if value is None:
        return None
    try:
        num_args, num_results, is_ptx, size = _HEAD.unpack_from(value)
        content = value[_HEAD.size + size :]
        if value[_HEAD.size : _HEAD.size + size] != key:
            return None
        texts = (content.decode(), None) if is_ptx else (None, content)
        return Entry(num_args, num_results, *texts)
    except (struct.error, UnicodeDecodeError):
        return None


def put(key: bytes, entry: Entry) -> str | None:
    """Keeps an entry. The reason if that was not possible, which is no error."""
    is_ptx = entry.ptx is not None
    content = entry.ptx.encode() if entry.ptx is not None else entry.image or b""
    value = _HEAD.pack(entry.num_args, entry.num_results, is_ptx, len(key))
    try:
        _native.cache_put(key, value + key + content)
    except _native.RunError as error:
        return str(error)
    return None
