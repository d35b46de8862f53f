# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is too large for a kernel, or for the machine, is an error that says so."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import fa
import numpy as np
import pytest

RNG = np.random.default_rng(0)
Q = RNG.standard_normal((1, 1, 4, 16)).astype(np.float32)


def test_captured_array_beyond_what_kernels_count() -> None:
    n = 2**31
    table = np.broadcast_to(np.ones(1, bool), n + 16)

    def mask(b, h, i, j):
        return table[j + n]

    with pytest.raises(
        ValueError,
        match=rf"array of shape \[{n + 16}\], whose size in dimension 0 is above 1073741823 "
        r"\(2\^30 - 1\).*give it more dimensions",
    ):
        fa.attention(Q, Q, Q, mask_mod=mask)


def test_captured_array_with_more_elements_than_32_bits_count() -> None:
    """The remedy: two indices. Offsets have 64 bits."""
    n, width = 2**31, 2**16
    line = np.arange(width) % 3 != 0
    table = np.broadcast_to(line, (n // width + 1, width))

    def mask(b, h, i, j):
        at = j + n
        return table[at // width, at % width]

    _, lse = fa.attention(Q, Q, Q, mask_mod=mask, return_lse=True)
    s = (Q[0, 0] @ Q[0, 0].T) * 16**-0.5
    s[:, ~line[:4]] = -np.inf
    np.testing.assert_allclose(lse[0, 0], np.logaddexp.reduce(s, axis=1), rtol=1e-5)


def test_index_beyond_64_bit_arithmetic_is_outside() -> None:
    """What lies beyond 32 bits lies beyond the array: the last entry."""
    table = np.array([False, False, False, True])

    def mask(b, h, i, j):
        return table[j + 2**40]

    _, lse = fa.attention(Q, Q, Q, mask_mod=mask, return_lse=True)
    assert np.isfinite(lse).all()


def test_keys_beyond_what_kernels_count() -> None:
    k = np.broadcast_to(Q[:, :, :1], (1, 1, 2**30, 16))
    with pytest.raises(ValueError, match=r"at most 1073741823 \(2\^30 - 1\).*1073741824"):
        fa.attention(Q, k, k)


def in_process(body: str) -> str:
    """What a process of its own prints, whose end is as it should be."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, (result.returncode, result.stdout, result.stderr[-2000:])
    return result.stdout


@pytest.mark.ci
@pytest.mark.parametrize("algorithm", ["standard", "fa2"])
def test_without_memory_for_temporaries(algorithm: str) -> None:
    """The process lives, names the numbers, and goes on."""
    text = in_process(f"""
        import os, resource
        import numpy as np
        import fa

        kernel = fa.compile(
            '''func.func @f(%q: tensor<1x1x?x64xf32>) -> tensor<1x1x?x64xf32> {{
              %o = fa.attention %q, %q, %q
                : (tensor<1x1x?x64xf32>, tensor<1x1x?x64xf32>, tensor<1x1x?x64xf32>)
                -> tensor<1x1x?x64xf32>
              return %o : tensor<1x1x?x64xf32>
            }}''',
            algorithm={algorithm!r},
        )
        def run(n):
            q = np.ones((1, 1, n, 64), np.float32)
            out = np.zeros_like(q)
            kernel(q, out)
            return out
        run(100)
        pages = int(open("/proc/self/statm").read().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + (600 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            run(20000)
            print("done")
        except fa.RunError as error:
            print("RunError:", error)
        print(abs(run(100) - 1).max() < 1e-5)
    """)
    assert text.splitlines()[-1] == "True"
    if algorithm == "fa2":
        assert text.splitlines()[0] == "done"
        return
    # S alone is 20000 x 20000 of 4 bytes.
    found = re.match(
        r"RunError: expected (\d+) bytes of memory for a temporary.*; use a tiled algorithm", text
    )
    assert found and int(found[1]) >= 1_600_000_000, text


def test_fatal_error_of_the_compiler() -> None:
    """What LLVM cannot compile is an error, and no end of the process."""
    text = in_process("""
        import fa
        ir = '''func.func @f(%q: tensor<1x1x8x16xf32>)
            -> (tensor<1x1x8x16xf32>, tensor<1xf32>) {
          %zero = arith.constant 0 : index
          %x = tensor.extract %q[%zero, %zero, %zero, %zero] : tensor<1x1x8x16xf32>
          %e = llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz.f"(%x) : (f32) -> f32
          %t = tensor.from_elements %e : tensor<1xf32>
          %o = fa.attention %q, %q, %q
            : (tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>)
            -> tensor<1x1x8x16xf32>
          return %o, %t : tensor<1x1x8x16xf32>, tensor<1xf32>
        }'''
        try:
            fa.compile(ir)
        except fa.CompileError as error:
            print("CompileError:", error)
        print("lives")
    """)
    assert text.startswith(
        "CompileError: LLVM can't generate code for @f: Cannot select"
    ) and text.endswith("lives\n"), text
