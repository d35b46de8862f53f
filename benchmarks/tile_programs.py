# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times tile programs that are no attention on a Hopper GPU: a matrix product and an MLP.

bf16, normal numbers. The product A B of two square matrices races torch.matmul
(cuBLAS), and relu(A B + bias), in one kernel, torch.relu of torch.addmm. The MLP
relu(X U) W, whose hidden layer never reaches memory, races the same in PyTorch and
its roof: the longer of its operations at the rate that cuBLAS reaches on the
product, and the bytes of X, U, W and the result at the bandwidth that a copy reaches,
both in the same rounds.

A variant is a tile (M x N x K, or rows x hidden columns) and options: `group`, how
many blocks of rows take a block of columns one after the other (1: a block of rows
takes all columns first), and any of the schedule (`stages=3 ping-pong=1`).
Interleaved in one process, order rotated, L2 flushed. One large product after the
other takes a GPU to its limit of power, where clocks fall and what needs less power is
faster; so products race again with rests in between. Before that each result is
compared with float64 by the tests' rule (test/python/right.py).
"""

from __future__ import annotations

import functools
import string
import sys
from typing import Any

from timing import Timer, provenance, race_options, result_path, write

GEMMS = (
    "128x256x64 group=16, 128x256x64 group=1, 128x256x64 group=16 stages=4 stage-stores=2, "
    "256x128x64 group=8, 256x128x64 group=8 stages=4 stage-stores=1, 128x128x64 group=16"
)
MLPS = "128x128, 128x128 stage-stores=0, 128x64, 64x128 teams=2"
MLP_SIZES = "16384x4096, 65536x4096, 131072x512"
"""Rows x columns of the hidden layer; X and the result have 128 columns."""
REST = 20_000_000
"""Clocks of a rest, about 10 ms."""

# --- The programs ------------------------------------------------------------------

GEMM = """\
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (j)>
!matrix = tensor<${size}x${size}xbf16>
!sums = tensor<${m}x${n}xf32>
!tile = tensor<${m}x${n}xbf16>

func.func @gemm(%a: !matrix, %b: !matrix${bias}) -> !matrix {
  %first = arith.constant 0 : index
  %step = arith.constant ${k} : index
  %end = arith.constant ${size} : index
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : !matrix
  %all = scf.forall (%p) = (0) to (${blocks}) step (1) shared_outs(%out = %empty) -> (!matrix) {
    %i = affine.apply affine_map<(p) -> ((p floordiv ${section} * ${group} + p mod ${group}) * ${m})>(%p)
    %j = affine.apply affine_map<(p) -> (p mod ${section} floordiv ${group} * ${n})>(%p)
    %e = tensor.empty() : !sums
    %e16 = tensor.empty() : !tile
    %none = linalg.fill ins(%zero : f32) outs(%e : !sums) -> !sums
    %sum = scf.for %k = %first to %end step %step iter_args(%acc = %none) -> (!sums) {
      %at = tensor.extract_slice %a[%i, %k] [${m}, ${k}] [1, 1] : !matrix to tensor<${m}x${k}xbf16>
      %bt = tensor.extract_slice %b[%k, %j] [${k}, ${n}] [1, 1] : !matrix to tensor<${k}x${n}xbf16>
      %next = linalg.matmul ins(%at, %bt : tensor<${m}x${k}xbf16>, tensor<${k}x${n}xbf16>) outs(%acc : !sums) -> !sums
      scf.yield %next : !sums
    }
${done}
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %done into %out[%i, %j] [${m}, ${n}] [1, 1] : !tile into !matrix
    }
  }
  return %all : !matrix
}
"""

ROUNDED = """\
    %done = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%sum : !sums) outs(%e16 : !tile) {
    ^bb0(%v: f32, %o: bf16):
      %short = arith.truncf %v : f32 to bf16
      linalg.yield %short : bf16
    } -> !tile"""

EPILOGUE = """\
    %biases = tensor.extract_slice %bias[%j] [${n}] [1] : tensor<${size}xbf16> to tensor<${n}xbf16>
    %done = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%sum, %biases : !sums, tensor<${n}xbf16>) outs(%e16 : !tile) {
    ^bb0(%v: f32, %y: bf16, %o: bf16):
      %y32 = arith.extf %y : bf16 to f32
      %vy = arith.addf %v, %y32 : f32
      %positive = arith.maximumf %vy, %zero : f32
      %short = arith.truncf %positive : f32 to bf16
      linalg.yield %short : bf16
    } -> !tile"""

MLP = """\
#id = affine_map<(i, j) -> (i, j)>
!x = tensor<${rows}x128xbf16>
!u = tensor<128x${hidden}xbf16>
!w = tensor<${hidden}x128xbf16>
!tile = tensor<${m}x128xbf16>
!sums = tensor<${m}x128xf32>
!hidden = tensor<${m}x${h}xf32>
!short = tensor<${m}x${h}xbf16>

func.func @mlp(%x: !x, %u: !u, %w: !w) -> !x {
  %first = arith.constant 0 : index
  %step = arith.constant ${h} : index
  %end = arith.constant ${hidden} : index
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : !x
  %all = scf.forall (%i) = (0) to (${rows}) step (${m}) shared_outs(%out = %empty) -> (!x) {
    %e = tensor.empty() : !sums
    %e16 = tensor.empty() : !tile
    %eh = tensor.empty() : !hidden
    %eh16 = tensor.empty() : !short
    %none = linalg.fill ins(%zero : f32) outs(%e : !sums) -> !sums
    %noneh = linalg.fill ins(%zero : f32) outs(%eh : !hidden) -> !hidden
    %xt = tensor.extract_slice %x[%i, 0] [${m}, 128] [1, 1] : !x to !tile
    %sum = scf.for %k = %first to %end step %step iter_args(%acc = %none) -> (!sums) {
      %ut = tensor.extract_slice %u[0, %k] [128, ${h}] [1, 1] : !u to tensor<128x${h}xbf16>
      %wt = tensor.extract_slice %w[%k, 0] [${h}, 128] [1, 1] : !w to tensor<${h}x128xbf16>
      %h = linalg.matmul ins(%xt, %ut : !tile, tensor<128x${h}xbf16>) outs(%noneh : !hidden) -> !hidden
      %relu = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%h : !hidden) outs(%eh16 : !short) {
      ^bb0(%p: f32, %o: bf16):
        %positive = arith.maximumf %p, %zero : f32
        %short = arith.truncf %positive : f32 to bf16
        linalg.yield %short : bf16
      } -> !short
      %next = linalg.matmul ins(%relu, %wt : !short, tensor<${h}x128xbf16>) outs(%acc : !sums) -> !sums
      scf.yield %next : !sums
    }
${done}
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %done into %out[%i, 0] [${m}, 128] [1, 1] : !tile into !x
    }
  }
  return %all : !x
}
"""


def filled(template: str, **values: object) -> str:
    """A program of its template."""
    return string.Template(template).substitute(values)


def gemm_program(size: int, m: int, n: int, k: int, group: int, epilogue: bool = False) -> str:
    """A B of square matrices, or relu(A B + bias)."""
    if size % (m * group) or size % n or size % k:
        raise ValueError(f"expected tiles that divide {size}, got {m}x{n}x{k} group={group}")
    columns = size // n
    given = dict(size=size, m=m, n=n, k=k, group=group, section=group * columns)
    bias = f", %bias: tensor<{size}xbf16>" if epilogue else ""
    done = filled(EPILOGUE if epilogue else ROUNDED, **given)
    return filled(GEMM, blocks=size // m * columns, bias=bias, done=done, **given)


def mlp_program(rows: int, hidden: int, m: int, h: int) -> str:
    """relu(X U) W, some columns of the hidden layer at a time."""
    if rows % m or hidden % h:
        raise ValueError(f"expected tiles that divide {rows} x {hidden}, got {m}x{h}")
    return filled(MLP, rows=rows, hidden=hidden, m=m, h=h, done=ROUNDED)


# --- The races ---------------------------------------------------------------------


def sizes(text: str) -> list[int]:
    """Those of "128x256x64"."""
    return [int(size) for size in text.split("x")]


def variants(text: str) -> dict[str, tuple[list[int], dict[str, int]]]:
    """Tile and options of each variant of a list, by its own words."""
    found = {}
    for name in text.split(","):
        tile, *words = name.split()
        options = {key: int(value) for key, value in (word.split("=") for word in words)}
        found[name.strip()] = sizes(tile), options
    return found


def checked(program: str, options: dict[str, int], inputs: Any, exact: Any, naive: Any) -> Any:
    """A call of a program, and its largest error as a share of what is allowed.

    Args:
        program: the text.
        options: of the Hopper schedule.
        inputs: tensors.
        exact: the result in float64.
        naive: PyTorch's, which says what is allowed.
    """
    import fa
    import right
    import torch

    kernel = fa.compile(program, "sm_90a", schedule=options or None)
    if "wgmma.mma_async" not in kernel.asm["ptx"]:
        raise ValueError(f"expected a program for the Hopper schedule: {'; '.join(kernel.notes)}")
    out = torch.full_like(naive, float("nan"))
    call = functools.partial(kernel, *inputs, out)
    call()
    error, naive_error = ((x.double() - exact).abs().max().item() for x in (out, naive))
    limit = right.output_limit(right.dtype_of(naive), naive_error, exact.abs().max().item())
    if not error <= limit:
        raise AssertionError(f"expected an error of at most {limit:.3g}, got {error:.3g}")
    return call, error / limit


def told(
    what: str, flops: float, ms: dict[str, float], goals: dict[str, float], shares: Any
) -> Any:
    """Prints and gives a race's row: of each call the speed over that of each goal."""
    print(f"{what:50} {'ms':>8} {'TFLOP/s':>8} " + " ".join(f"{x:>8}" for x in goals) + "    error")
    ratios = {name: {goal: x / ms[name] for goal, x in goals.items()} for name in ms}
    for name, time in ms.items():
        error = f"{shares[name]:8.2f}" if name in shares else ""
        numbers = " ".join(f"{x:8.3f}" for x in ratios[name].values())
        print(f"  {name:48} {time:8.3f} {flops / time / 1e9:8.0f} {numbers} {error}", flush=True)
    best = min(shares, key=lambda name: ms[name])
    return dict(what=what, flops=flops, ms=ms, ratios=ratios, share_of_limit=shares, best=best)


def rested(calls: dict[str, Any], timer: Timer) -> dict[str, float]:
    """Milliseconds of calls that each follow a rest of the GPU, with its clocks up."""
    import torch

    spaced = {}
    for name, call in calls.items():
        spaced[f"before {name}"] = functools.partial(torch.cuda._sleep, REST)
        spaced[name] = call
    ms = timer(spaced)
    return {name: ms[name] for name in calls}


def race_gemm(size: int, listed: str, epilogue: bool, timer: Timer) -> list[dict[str, Any]]:
    """Milliseconds of all variants and of PyTorch, without and with rests."""
    import torch

    a, b, bias = (
        torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        for shape in ((size, size), (size, size), (size,))
    )
    own = torch.empty_like(a)
    exact = a.double() @ b.double()
    calls: dict[str, Any] = {"torch": functools.partial(torch.matmul, a, b, out=own)}
    if epilogue:
        exact = torch.relu(exact + bias.double())
        calls["torch"] = lambda: torch.relu_(torch.addmm(bias, a, b, out=own))
    calls["torch"]()
    shares = {}
    for name, (tile, options) in variants(listed).items():
        program = gemm_program(size, *tile, options.pop("group", 1), epilogue)
        inputs = (a, b, bias) if epilogue else (a, b)
        calls[name], shares[name] = checked(program, options, inputs, exact, own)
    what = f"{'relu(A B + bias)' if epilogue else 'A B'}, {size}^3"
    return [
        told(name, 2 * size**3, ms, {"/ torch": ms["torch"]}, shares)
        for name, ms in ((what, timer(calls)), (f"{what}, rested", rested(calls, timer)))
    ]


def race_mlp(rows: int, hidden: int, size: int, listed: str, timer: Timer) -> dict[str, Any]:
    """Milliseconds of all variants and of PyTorch, and the roof."""
    import torch

    def normal(*shape: int, scale: float = 1.0) -> Any:
        return (scale * torch.randn(shape, device="cuda")).to(torch.bfloat16)

    x, u, w = normal(rows, 128), normal(128, hidden, scale=128**-0.5), normal(hidden, 128)
    a, b, c = normal(size, size), normal(size, size), normal(1 << 29)
    calls: dict[str, Any] = {
        "torch": lambda: torch.relu_(x @ u) @ w,
        "cuBLAS": functools.partial(torch.matmul, a, b, out=torch.empty_like(a)),
        "copy": functools.partial(torch.empty_like(c).copy_, c),
    }
    exact = torch.relu(x.double() @ u.double()) @ w.double()
    shares = {}
    for name, (tile, options) in variants(listed).items():
        program = mlp_program(rows, hidden, *tile)
        calls[name], shares[name] = checked(program, options, (x, u, w), exact, calls["torch"]())
    ms = timer(calls)
    rate, bandwidth = 2 * size**3 / ms.pop("cuBLAS"), 2 * c.nbytes / ms.pop("copy")
    flops, moved = 4 * rows * hidden * 128, 2 * 128 * (2 * rows + 2 * hidden)
    roof = max(flops / rate, moved / bandwidth)
    print(f"roof: {rate / 1e9:.0f} TFLOP/s, {bandwidth / 1e9:.2f} TB/s: {roof:.4f} ms")
    goals = {"/ roof": roof, "/ torch": ms["torch"]}
    row = told(f"relu(X U) W, {rows} x 128, {hidden} hidden", flops, ms, goals, shares)
    return dict(**row, roof=dict(ms=roof, tflops=rate / 1e9, tbytes=bandwidth / 1e9))


def main() -> int:
    """Runs all races, or those that are named."""
    options = race_options(__doc__, "tile_programs", rounds=20)
    options.add_argument("--parts", default="gemm,epilogue,mlp")
    options.add_argument("--size", type=int, default=8192, help="of the square matrices (8192)")
    options.add_argument("--gemm", default=GEMMS, help=f"variants ({GEMMS})")
    options.add_argument("--mlp", default=MLPS, help=f"variants ({MLPS})")
    options.add_argument("--mlp-sizes", default=MLP_SIZES, help=f"rows x hidden ({MLP_SIZES})")
    args = options.parse_args()
    timer = Timer(args.rounds)
    result = dict(benchmark="tile_programs", **provenance(args.commit))
    print(result["device"])
    for part in args.parts.split(","):
        if part == "mlp":
            result[part] = [
                race_mlp(*sizes(text), args.size, args.mlp, timer)
                for text in args.mlp_sizes.split(",")
            ]
        else:
            result[part] = race_gemm(args.size, args.gemm, part == "epilogue", timer)
    write(result_path("tile_programs", args.out), result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
