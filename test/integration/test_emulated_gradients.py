# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients by PTX for sm_80 in the emulator, against PyTorch's autograd in float64."""

from __future__ import annotations

import pathlib
import sys

import fa
import numpy as np
import pytest
from ptx_emulator import Kernel, Memory, bf16_to_f32, temporary
from ptx_header import evaluate, parse_header

torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import naive  # noqa: E402
import right  # noqa: E402


def emulate(text, inputs, shapes, random=None, order=None):
    """A program's results for inputs of bfloat16 (as uint16) or float32, and the results'
    shapes; what kernels add to begins at 0. With random numbers blocks run at the same time,
    and all that may add in any order does. `order` is that of the results' dimensions in
    memory."""
    program, memory, address = parse_header(text), Memory(), {}
    arrays = dict(enumerate(inputs))
    for index, arg in list(program.args.items())[len(inputs) :]:
        shape = shapes[index - len(inputs)]
        if order is None:
            arrays[index] = temporary(shape, arg["type"])
        else:
            laid = temporary([shape[dim] for dim in order], arg["type"])
            arrays[index] = laid.transpose(np.argsort(order))
    for index, temp in program.temps.items():
        arrays[index] = temporary(
            [evaluate(e, arrays) for e in temp["shape"].split(",")], temp["type"]
        )
    for index, fields in {**program.args, **program.temps}.items():
        if fields.get("zero") == "1":
            arrays[index][...] = 0
        address[index] = memory.add(arrays[index])
    for launch in program.launches:
        kernel, params = Kernel(text, launch["kernel"]), []
        for index in map(int, launch["args"].split(",")):
            a = arrays[index]
            params += [address[index], *a.shape, *(s // a.itemsize for s in a.strides)]
        grid, sizes = evaluate(launch["grid"], arrays), (int(launch["block"]), int(launch["smem"]))
        if random is not None:
            kernel.run_grid(grid, *sizes, memory, params, random)
            continue
        for block in range(grid):
            kernel.run(block, *sizes, memory, params)
    results = list(program.args)[len(inputs) :]
    return [memory.read_back(address[index], arrays[index]) for index in results]


def encode(tensor):
    """The tensor as an array for the emulator, bfloat16 as uint16."""
    x = tensor.detach()
    return x.view(torch.int16).numpy().view("u2") if x.dtype == torch.bfloat16 else x.numpy()


def decode(array):
    return torch.from_numpy(bf16_to_f32(array) if array.dtype == np.uint16 else array)


SCORE = """score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %slopes[%h] : tensor<?xf32>
    %m = arith.mulf %x, %s : f32
    %d = arith.subi %i, %j : index
    %c = arith.constant 600 : index
    %at = arith.addi %d, %c : index
    %y = tensor.extract %table[%at] : tensor<?xf32>
    %n = arith.addf %m, %y : f32
    %z = tensor.extract %offsets[%j] : tensor<?xf32>
    %t = arith.addf %n, %z : f32
    fa.yield %t : f32
  }"""
MATRIX = """score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %matrix[%h, %i, %j] : tensor<?x?x?xf32>
    %t = arith.addf %s, %x : f32
    fa.yield %t : f32
  }"""
NUMBER = """score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %x = tensor.extract %number[] : tensor<f32>
    %t = arith.mulf %s, %x : f32
    fa.yield %t : f32
  }"""
CAUSAL = """mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %seen = arith.cmpi sle, %j, %i : index
    fa.yield %seen : i1
  }"""


DOCUMENTS = """mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index):
    %mine = tensor.extract %documents[%h, %i] : tensor<?x?xi32>
    %other = tensor.extract %documents[%h, %j] : tensor<?x?xi32>
    %seen = arith.cmpi eq, %mine, %other : i32
    fa.yield %seen : i1
  }"""


def source(dtype, dims, scale, score, mask):
    """Attention of two query heads and one key head; with a score function one of captured
    slopes, distances and a number for each key, of a matrix for each head, or of a number."""
    q, k, v = (f"tensor<?x{h}x?x{d}x{dtype}>" for h, d in zip((2, 1, 1), (*dims[:1], *dims)))
    result = f"tensor<?x2x?x{dims[1]}x{dtype}>"
    captured = {
        "": "",
        SCORE: ", %slopes: tensor<?xf32>, %table: tensor<?xf32>, %offsets: tensor<?xf32>",
        MATRIX: ", %matrix: tensor<?x?x?xf32>",
        NUMBER: ", %number: tensor<f32>",
    }[score]
    captured += ", %documents: tensor<?x?xi32>" if mask is DOCUMENTS else ""
    return f"""func.func @f(%q: {q}, %k: {k}, %v: {v}{captured}) -> {result} {{
      %o = fa.attention %q, %k, %v scale {scale}
        {score} {mask} : ({q}, {k}, {v}) -> {result}
      return %o : {result}
    }}"""


# Of 32 rows and four warps each two divide the columns of what is added to dQ.
# Each two of causal, captured and the tiles' sizes meet in all ways.
@pytest.mark.parametrize(
    ("causal", "score", "tiles"),
    [
        (False, "", (0, 0)),
        (False, SCORE, (32, 64)),
        (True, "", (32, 64)),
        (True, SCORE, (0, 0)),
    ],
    ids=["full-plain", "full-captured-tiles", "causal-plain-tiles", "causal-captured"],
)
@pytest.mark.parametrize(
    ("dtype", "dims", "rows", "keys", "scale"),
    [
        ("bf16", (64, 64), 40, 72, 0.125),
        ("bf16", (32, 48), 70, 33, 0.25),
        ("f32", (16, 16), 40, 72, 1.0),  # sums that are the gradient as they are
        ("f32", (64, 16), 33, 130, 0.125),
    ],
)
def test_gradients(dtype, dims, rows, keys, scale, causal, score, tiles):
    kind = {"bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    check(kind, dims, rows, keys, scale, CAUSAL if causal else "", score, tiles)


@pytest.mark.ci
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_large_heads(kind, causal):
    """Warps divide the columns of all tiles, and the weights go through shared memory."""
    check(kind, (256, 192), 40, 72, 0.0625, CAUSAL if causal else "", SCORE, (0, 0))


@pytest.mark.ci
@pytest.mark.parametrize("order", [(0, 2, 1, 3), (2, 0, 1, 3)])
@pytest.mark.parametrize(
    ("kind", "scale"),
    [(torch.bfloat16, 0.25), (torch.float32, 0.25), (torch.float32, 1.0)],  # as above
)
def test_results_in_another_order(kind, scale, order):
    """Gradients that lie in memory as their operands do, of several heads and entries."""
    check(kind, (32, 48), 70, 130, scale, CAUSAL, "", (32, 32), batch=2, order=order)


@pytest.mark.ci
@pytest.mark.parametrize("mask", ["", CAUSAL], ids=["full", "causal"])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_shared_matrix(kind, mask):
    """The entries of a batch add to one matrix for each head."""
    check(kind, (32, 32), 70, 150, 0.25, mask, MATRIX, (32, 32), batch=2)


def test_capped_scores():
    """In f32 a cap multiplies what its tanh is wrong by: that has to be right to the last bits."""
    q = "tensor<1x2x40x64xf32>"
    text = fa.compile(
        f"""func.func @f(%q: {q}, %k: {q}, %v: {q}) -> {q} {{
          %o = fa.attention %q, %k, %v scale 0.0625 score {{
          ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
            %cap = arith.constant 50.0 : f32
            %x = arith.divf %s, %cap : f32
            %t = math.tanh %x : f32
            %y = arith.mulf %t, %cap : f32
            fa.yield %y : f32
          }} : ({q}, {q}, {q}) -> {q}
          return %o : {q}
        }}""",
        "sm_80",
        backward="all",
    ).asm["ptx"]
    tensors = [torch.from_numpy(x).float() for x in naive.inputs(1, 2, 2, 40, 40, 64, 64)]
    tensors = [x.requires_grad_() for x in tensors]

    def formula(*tensors, dtype=None):
        def capped(s, *at):
            return 50 * torch.tanh(s / 50)

        return naive.differentiable(*tensors, score=capped, scale=0.0625, dtype=dtype)

    with torch.no_grad():
        out, lse = formula(*(x.double() for x in tensors))
    grad = torch.randn(out.shape, generator=torch.manual_seed(1))
    inputs = [encode(x) for x in (*tensors, out.float(), lse.float(), grad)]
    found = emulate(text, inputs, [tuple(x.shape) for x in tensors])
    for got, expected in zip(found, right.gradients(formula, tensors, (grad, None))):
        # With the approximate tanh it is up to 0.4, and 1.1 on an H200.
        assert right.share(decode(got), expected.exact, expected.limit, False) < 0.2


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("tiles", [(0, 0), (32, 64)])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_lists(kind, tiles):
    """Which blocks of rows a block of keys meets is a list, another one for each head."""
    check(kind, (32, 32), 150, 150, 0.25, DOCUMENTS, "", tiles)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("kind", "keys", "tiles", "mask", "score"),
    [
        (torch.float32, 80, (32, 32), "", ""),
        (torch.bfloat16, 80, (32, 32), CAUSAL, SCORE),
        (torch.float32, 150, (0, 0), CAUSAL, SCORE),
        (torch.float32, 150, (32, 32), DOCUMENTS, ""),
        (torch.float32, 80, (32, 32), CAUSAL, NUMBER),
        (torch.bfloat16, 560, (32, 32), "", SCORE),  # of 18 blocks of keys two wait for another
    ],
)
def test_same_bits(kind, keys, tiles, mask, score):
    """In whatever order blocks, warps and lanes come, if that is asked for."""
    rows = 16 if keys > 200 else keys
    args = kind, (32, 32), rows, keys, 0.25, mask, score, tiles
    seeds = (1, 2)

    def run(deterministic):
        return [check(*args, deterministic, np.random.default_rng(seed)) for seed in seeds]

    first, second = run(deterministic=True)
    assert all(np.array_equal(x, y) for x, y in zip(first, second))
    first, second = run(deterministic=False)
    assert not all(np.array_equal(x, y) for x, y in zip(first, second))


def check(
    kind,
    dims,
    rows,
    keys,
    scale,
    mask,
    score,
    tiles,
    deterministic=False,
    random=None,
    batch=1,
    order=None,
):
    """Gradients in the emulator are right; what they are."""
    tensors = [torch.from_numpy(x).to(kind) for x in naive.inputs(batch, 2, 1, rows, keys, *dims)]
    if score is MATRIX:
        tensors.append(torch.randn(2, rows, keys, generator=torch.manual_seed(0)))
    elif score is NUMBER:
        tensors.append(torch.tensor(0.75))
    elif score:
        table = torch.randn(600 + rows, generator=torch.manual_seed(0))
        offsets = torch.randn(keys, generator=torch.manual_seed(2))
        tensors += [torch.tensor([1.0, 0.5]), table, offsets]
    tensors = [x.requires_grad_() for x in tensors]
    fifth, half = rows // 5, rows * 3 // 7
    documents = torch.tensor([[fifth, rows - 2 * fifth, fifth], [half, rows - half, 0]])
    documents = torch.stack([torch.arange(3).repeat_interleave(x) for x in documents]).int()

    def seen(b, h, i, j):
        return documents[h, i] == documents[h, j] if mask is DOCUMENTS else j <= i

    def formula(q, k, v, *captured, dtype=None):
        def scored(s, b, h, i, j):
            if score is MATRIX:
                return s + captured[0][h, i, j]
            if score is NUMBER:
                return s * captured[0]
            slopes, table, offsets = captured
            return s * slopes[h] + table[i - j + 600] + offsets[j]

        return naive.differentiable(
            *(q, k, v),
            score=scored if score else None,
            mask=seen if mask else None,
            scale=scale,
            dtype=dtype,
        )

    with torch.no_grad():
        out, lse = formula(*(x.double() for x in tensors))
    grad = torch.randn(out.shape, generator=torch.manual_seed(1)).to(kind)
    text = fa.compile(
        source({torch.bfloat16: "bf16", torch.float32: "f32"}[kind], dims, scale, score, mask),
        "sm_80",
        rows=tiles[0],
        keys=tiles[1],
        backward="all",
        deterministic=deterministic,
    ).asm["ptx"]
    assert ("prepares=" in text) == (mask is DOCUMENTS)
    inputs = [encode(x) for x in (*tensors, *[documents] * (mask is DOCUMENTS))]
    inputs += [encode(x) for x in (out.to(kind), lse.float(), grad)]
    found = emulate(text, inputs, [tuple(x.shape) for x in tensors], random, order)
    for got, expected in zip(found, right.gradients(formula, tensors, (grad, None))):
        right.assert_right_gradient(decode(got), expected)
    return found
