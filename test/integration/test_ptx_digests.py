# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a digest of PTX depends on."""

from __future__ import annotations

import ptx_digests
import pytest

PTX = """\
//!fa.launch kernel=f block=32
.reg .b32 %r<9>;
.reg .pred %p<2>;
// a comment
ld.global.u32 %r7, [%rd1];
add.s32 %r3, %r7, 1;
@%p1 bra $L__BB0_3;
st.global.u32 [%rd1], %r3;
$L__BB0_3:
ret;
"""


def test_names_do_not_matter():
    other = PTX.replace("%r7", "%r12").replace("%r<9>", "%r<14>").replace("BB0_3", "BB0_5")
    assert ptx_digests.digest(other.replace("// a comment", "// another")) == ptx_digests.digest(
        PTX
    )


@pytest.mark.parametrize(
    ("what", "becomes"),
    [
        ("%r7, 1", "%r7, 2"),
        ("add.s32 %r3, %r7", "add.s32 %r7, %r3"),
        ("[%rd1], %r3", "[%rd1], %r7"),
        ("block=32", "block=64"),
        ("@%p1 bra $L__BB0_3;\n", ""),
    ],
)
def test_instructions_do(what, becomes):
    assert what in PTX
    assert ptx_digests.digest(PTX.replace(what, becomes)) != ptx_digests.digest(PTX)
