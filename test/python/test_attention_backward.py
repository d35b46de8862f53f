# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`fa.attention_backward` on arrays of NumPy: against differences of the formula in float64."""

import re

import fa
import numpy as np
import pytest
from fa import scores

B, HQ, HK, SQ, SK, D, DV = 2, 4, 2, 9, 13, 8, 6
STEP = 1e-6


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    shapes = ((B, HQ, SQ, D), (B, HK, SK, D), (B, HK, SK, DV), (HQ, SK), (HQ, SQ, SK), (B, HQ, SQ))
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def formula(q, k, v, bias, seen, lse_weight=0.0):
    """out and lse in float64."""
    q, k, v, bias = (x.astype(np.float64) for x in (q, k, v, bias))
    k, v = (np.repeat(x, HQ // HK, axis=1) for x in (k, v))
    s = 2 * np.tanh(q @ k.swapaxes(-1, -2) / np.sqrt(D) / 2) + bias[:, None, :]
    s = np.where(seen, s, -np.inf)
    top = s.max(-1, keepdims=True)
    p = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = p.sum(-1, keepdims=True)
    out = p / np.where(total == 0, 1, total) @ v
    return out, np.log(np.where(total == 0, 1, total))[..., 0] + np.where(total > 0, top, 0)[..., 0]


def differences(f, x, places):
    """df/dx at some places, by differences."""
    slopes = []
    for place in places:
        moved = [x.astype(np.float64) for _ in range(2)]
        moved[0][place] += STEP
        moved[1][place] -= STEP
        slopes.append((f(moved[0]) - f(moved[1])) / (2 * STEP))
    return np.array(slopes)


@pytest.mark.parametrize("with_lse", [False, True])
def test_differences(with_lse):
    q, k, v, bias, _, lse_grad = arrays()
    out_grad = np.random.default_rng(1).standard_normal((B, HQ, SQ, DV)).astype(np.float32)
    table = fa.array(bias)
    options = {
        "score_mod": lambda s, b, h, i, j: 2 * fa.math.tanh(s / 2) + table[h, j],
        "mask_mod": lambda b, h, i, j: (j <= i + 2) & (i != 4),
    }
    i, j = np.arange(SQ)[:, None], np.arange(SK)
    seen = (j <= i + 2) & (i != 4)  # row 4 sees nothing
    out, lse = fa.attention(q, k, v, return_lse=True, **options)
    given = lse_grad if with_lse else None
    found = fa.attention_backward(q, k, v, out, lse, out_grad, lse_grad=given, **options)
    assert found.captured[0][0] is bias
    results = (*found[:3], found.captured[0][1])
    operands = [q, k, v, bias]
    weights = np.where(seen.any(-1), lse_grad, 0) if with_lse else 0.0
    rng = np.random.default_rng(2)
    for number, (gradient, x) in enumerate(zip(results, operands)):
        assert gradient.shape == x.shape and gradient.dtype == x.dtype

        def loss(y, number=number):
            o, lse64 = formula(*operands[:number], y, *operands[number + 1 :], seen)
            return (o * out_grad).sum() + (lse64 * weights).sum()

        places = [tuple(int(rng.integers(size)) for size in x.shape) for _ in range(12)]
        slopes = differences(loss, x, places)
        mine = np.array([gradient[place] for place in places])
        assert np.abs(mine - slopes).max() <= 1e-5 * max(1.0, np.abs(gradient).max())
    assert not found.q[:, :, 4].any()  # exactly 0
    assert np.abs(found.q).max() > 0.01


def test_dropout_is_that_of_the_seed():
    q, k, v = arrays()[:3]
    options = {"dropout_p": 0.25, "dropout_seed": 11}
    out, lse = fa.attention(q, k, v, return_lse=True, **options)
    out_grad = np.ones_like(out)
    first = fa.attention_backward(q, k, v, out, lse, out_grad, **options)
    again = fa.attention_backward(q, k, v, out, lse, out_grad, **options)
    other = fa.attention_backward(q, k, v, out, lse, out_grad, dropout_p=0.25, dropout_seed=12)
    assert all(np.array_equal(x, y) for x, y in zip(first[:3], again[:3]))
    assert not np.array_equal(first.v, other.v)
    # out is linear in v: sum(out_grad * out) = sum(v_grad * v).
    assert np.isclose((out_grad * out).sum(), (first.v * v).sum(), rtol=1e-4)
    with pytest.raises(ValueError, match="expected the dropout_seed of the forward"):
        fa.attention_backward(q, k, v, out, lse, out_grad, dropout_p=0.25)


def test_empty_and_plain():
    q, k, v = (x[:, :, :0] for x in arrays()[:3])
    out, lse = fa.attention(q, k, v, return_lse=True)
    found = fa.attention_backward(q, k, v, out, lse, out)
    assert [x.shape for x in found[:3]] == [q.shape, k.shape, v.shape]
    assert found.captured == ()


def test_no_queries_or_no_keys():
    q, k, v = arrays()[:3]
    for x, y, z in ((q[:, :, :0], k, v), (q, k[:, :, :0], v[:, :, :0])):
        out, lse = fa.attention(x, y, z, return_lse=True)
        found = fa.attention_backward(x, y, z, out, lse, np.ones_like(out))
        assert all(not gradient.any() for gradient in found[:3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lse": np.zeros((B, HQ, SQ + 1), np.float32)}, "expected lse of shape"),
        ({"lse": np.zeros((B, HQ, SQ), np.float16)}, "element type f32, got .* f16"),
        ({"out": np.zeros((B, HQ, SQ, DV + 1), np.float32)}, "expected out of shape"),
        ({"out_grad": np.zeros((B, HQ, SQ, DV), np.float16)}, "expected out_grad of shape"),
        ({"lse_grad": np.zeros((B, HQ), np.float32)}, "expected lse_grad of shape"),
    ],
)
def test_bad_input(change, message):
    q, k, v = arrays()[:3]
    out, lse = fa.attention(q, k, v, return_lse=True)
    given = {"out": out, "lse": lse, "out_grad": out, "lse_grad": None, **change}
    with pytest.raises(ValueError, match=f"{message}.*give the results of fa.attention"):
        fa.attention_backward(q, k, v, **given)


def test_errors_of_functions():
    q, k, v = arrays()[:3]
    out, lse = fa.attention(q, k, v, return_lse=True)
    with pytest.raises(TypeError, match="expected a keyword of fa.attention_backward, got mask="):
        fa.attention_backward(q, k, v, out, lse, out, mask=None)
    table = fa.array(np.ones(8, np.float32))

    def by_score(s, b, h, i, j):
        return s + table[fa.math.cast(s, "int")]

    with pytest.raises(fa.CompileError, match="an index that depends on the score"):
        fa.attention_backward(q, k, v, out, lse, out, score_mod=by_score)


def test_kernels_of_gradients():
    config = fa.AttentionConfig("f32", HQ, HK, D, DV, is_causal=True)
    kernel = fa.compile(config, backward="none")
    assert list(kernel.stages) == [
        "fa-differentiate",
        "fa-decompose",
        "fa-tile",
        "fa-list-blocks",
        "fa-split-mask-loops",
    ]
    q, k, v = arrays()[:3]
    out, lse = fa.attention(q, k, v, return_lse=True, is_causal=True)
    results = [np.empty_like(x) for x in (q, k, v)]
    kernel(q, k, v, out, lse, out, *results)
    expected = fa.attention_backward(q, k, v, out, lse, out, is_causal=True)
    assert all(np.array_equal(x, y) for x, y in zip(results, expected[:3]))
    with pytest.raises(ValueError, match="unknown backward 'some'"):
        fa.compile(config, backward="some")


def test_stages_of_a_gpus_gradient():
    config = fa.AttentionConfig("bf16", HQ, HK, D, DV, is_causal=True)
    kernel = fa.compile(config, "sm_80", backward="all")
    assert list(kernel.stages) == [
        "fa-differentiate",
        "fa-decompose",
        "fa-parallelize",
        "fa-tile",
        "fa-pad-tiles",
        "fa-clip-loads",
        "fa-list-blocks",
        "fa-split-mask-loops",
        "fa-order-rows",
        "fa-expand-steps",
        "fa-fold-scale-exp2",
        "fa-orient-products",
    ]
    assert "red." in kernel.asm["ptx"] and "acquire" not in kernel.asm["ptx"]
    ordered = fa.compile(config, "sm_80", backward="all", deterministic=True)
    # What is summed in an order goes from the first rows to the last.
    unordered = [stage for stage in kernel.stages if stage != "fa-order-rows"]
    assert list(ordered.stages) == [*unordered, "fa-order-sums"]
    assert "ld.acquire" in ordered.asm["ptx"]  # the block before
    wide = fa.AttentionConfig("bf16", HQ, HK, 256, 256)
    assert "red." in fa.compile(wide, "sm_80", backward="all").asm["ptx"]
    with pytest.raises(ValueError, match="sm_80 has .*; choose smaller tiles"):
        fa.compile(wide, "sm_80", backward="all", rows=64, keys=128).asm  # noqa: B018


@pytest.mark.parametrize("dims", [(40, 24), (24, 40), (8, 8), (56, 8)])
@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_90a"])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_tiles_where_much_is_read(dtype, target, dims):
    """Warps can't divide the columns of these, and four sums of a captured tensor take
    registers: the tile is one that has enough of them."""
    table = np.zeros(8, np.float32)
    variant = fa.trace(
        score_mod=lambda s, b, h, i, j: s + table[b] * table[h] * table[i] * table[j]
    )
    config = fa.AttentionConfig(dtype, HQ, HK, *dims, variant=variant)
    assert "red." in fa.compile(config, target, backward="all").asm["ptx"]


def gradient_of(dim, score_mod, chip="sm_90", dtype="bf16", **options):
    variant = score_mod and fa.trace(score_mod=score_mod)
    config = fa.AttentionConfig(dtype, 8, 8, dim, dim, variant=variant)
    return fa.compile(config, chip, backward="all", **options)


def tile_of(kernel):
    """Rows and keys of a gradient's step, and the threads of its block, of the second kernel."""
    step = re.search(
        r"fa\.softmax_grad.*?tensor<(\d+)x(\d+)xf32>", kernel.stages["fa-pad-tiles"], re.S
    )
    blocks = [int(n) for n in re.findall(r"//!fa.launch.* block=(\d+)", kernel.asm["ptx"])]
    return tuple(map(int, step.groups())), blocks[1]


SLOPES = scores.alibi(np.zeros(8, np.float32))
TABLE = scores.relative_position(np.zeros((8, 255), np.float32))


@pytest.mark.parametrize(
    ("dim", "score_mod", "tile", "threads"),
    [
        (64, None, (32, 128), 128),
        (64, scores.softcap(20.0), (64, 64), 128),
        (64, SLOPES, (64, 64), 128),
        (96, None, (64, 64), 128),
        (96, TABLE, (64, 64), 128),
        (96, SLOPES, (64, 128), 256),  # whose terms take registers, too
        (128, None, (64, 128), 256),
        (128, SLOPES, (64, 128), 256),
    ],
)
def test_tiles_of_a_gpus_gradient(dim, score_mod, tile, threads):
    """Up to D=96 two blocks fit a multiprocessor's registers, with a score function, too."""
    assert tile_of(gradient_of(dim, score_mod)) == (tile, threads)


@pytest.mark.parametrize(
    ("dim", "score_mod", "tile", "threads"),
    [
        (32, scores.softcap(20.0), (128, 128), 384),
        (64, None, (128, 128), 384),
        (64, scores.softcap(20.0), (64, 128), 384),  # whose derivative takes registers
        (64, SLOPES, (64, 128), 384),  # whose weights are not rounded
        (64, TABLE, (128, 128), 384),
        (40, scores.softcap(20.0), (64, 64), 256),  # of whose columns there are no halves
        (80, None, (64, 64), 256),
        (96, scores.softcap(20.0), (64, 128), 384),
        (128, SLOPES, (64, 128), 384),
        (128, scores.softcap(20.0), (128, 64), 384),
        (192, None, (64, 64), 384),
        (256, scores.softcap(20.0), (64, 64), 384),
    ],
)
def test_tiles_of_a_gradient_with_wgmma(dim, score_mod, tile, threads):
    """Two warpgroups, or one, and the producer's."""
    kernel = gradient_of(dim, score_mod, "sm_90a")
    assert tile_of(kernel) == (tile, threads)
    assert kernel.asm["ptx"].count("wgmma.mma_async") >= 20
    assert kernel.notes == []


def sums_of(kernel: fa.Kernel) -> str:
    """The PTX of the kernel that sums gradients: the one with the most products."""
    return max(kernel.asm["ptx"].split(".visible .entry"), key=lambda text: text.count("mma"))


@pytest.mark.parametrize(
    ("dim", "options", "why"),
    [
        (64, {"deterministic": True, "score_mod": SLOPES}, "an ordered fa.accumulate"),
        (64, {"dtype": "f32"}, "its operands are not f16 or bf16"),
        (60, {}, "a multiple of 8 columns"),
        (64, {"schedule": {"rows": 32}}, "expected one sum of whole rows, at most 2 warpgroups"),
    ],
)
def test_gradients_left_to_the_ampere_schedule(dim, options, why):
    kernel = gradient_of(dim, **{"score_mod": None, "chip": "sm_90a"} | options)
    assert "wgmma" not in sums_of(kernel)
    (note,) = kernel.notes
    assert (
        note.startswith("fa-hopper-place: left the kernel to the Ampere schedule") and why in note
    )


@pytest.mark.parametrize(
    ("dim", "schedule"), [(64, None), (80, None), (128, None), (256, None), (256, {"stages": 2})]
)
def test_the_same_bits_with_wgmma(dim, schedule):
    """Each warpgroup's adder has a word, or each warp where what is added does not fit beside
    the rings, as with two stages at D=256, and waits for that of the block before."""
    kernel = gradient_of(dim, None, "sm_90a", deterministic=True, schedule=schedule)
    assert "ld.acquire.gpu" in kernel.asm["ptx"] and kernel.notes == []
    assert kernel.asm["ptx"].count("wgmma.mma_async") >= 20
    rows, threads = tile_of(kernel)
    words = re.search(r"//!fa.temp index=\d+ type=i64 shape=(\S+)", kernel.asm["ptx"])[1]
    count = (threads - 128) // (32 if schedule else 128)
    assert words == f"a0.d0,8,a1.d2/{rows[1]}" + (f",{count}" if count > 1 else "")


def test_schedules_by_name():
    """Each is the only one that may take the program."""
    base = gradient_of(64, None)
    ampere = gradient_of(64, None, "sm_90a", schedule={"by": "ampere"})
    assert ampere.asm["ptx"] == base.asm["ptx"] and ampere.notes == []
    same = gradient_of(64, None, "sm_80", schedule={"by": "ampere"})
    assert same.asm["ptx"] == gradient_of(64, None, "sm_80").asm["ptx"]
    hopper = gradient_of(64, None, "sm_90a", schedule={"persistent": -1})
    assert hopper.asm["ptx"] == gradient_of(64, None, "sm_90a").asm["ptx"]
    with pytest.raises(ValueError, match="does not take this program.*not f16 or bf16"):
        gradient_of(64, None, "sm_90a", dtype="f32", schedule={"persistent": -1})
    with pytest.raises(ValueError, match="for an NVIDIA target only, got 'by=ampere' for cpu"):
        gradient_of(64, None, "cpu", schedule={"by": "ampere"})


@pytest.mark.parametrize(("dim", "is_behind"), [(64, True), (128, False)])
def test_sums_stand_behind_products_where_registers_allow(dim, is_behind):
    """What lanes exchange for a table's gradient comes after a step's last product."""
    lines = sums_of(gradient_of(dim, TABLE)).splitlines()
    products = [at for at, line in enumerate(lines) if "mma.sync" in line]
    exchanged = [at for at, line in enumerate(lines) if "shfl.sync" in line]
    assert exchanged and products
    assert is_behind != any(products[0] < at < products[-1] for at in exchanged)
