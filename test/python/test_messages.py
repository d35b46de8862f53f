# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What users see who guess: keywords, tracebacks, names; masks that are pickled; NaN."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys

import fa
import naive
import numpy as np
import pytest
import right
from fa._trace import memo, numbers

Q, K, V = naive.inputs(2, 2, 1, 24, 24, 16)
IDS = np.arange(24) // 5
BATCH_IDS = np.stack([IDS, IDS[::-1]])
LENGTHS = np.array([20, 7])


@pytest.mark.parametrize(
    ("keyword", "message"),
    [
        ("attn_mask", "give mask_mod=, .*and score_mod=fa.scores.bias"),
        ("causal", "give is_causal="),
        ("enable_gqa", "give no keyword: q may have a multiple of the heads"),
        ("softmax_scale", "give scale="),
        ("window_size", r"give mask_mod=fa.masks.sliding_window\(left, right\)"),
        ("dropout", "give dropout_p="),
        ("softcap", r"give score_mod=fa.scores.softcap\(cap\)"),
        ("alibi_slopes", r"give score_mod=fa.scores.alibi\(slopes\)"),
        ("block_mask", "give mask_mod=.*a BlockMask"),
        ("cu_seqlens_q", "give fa.attention_varlen"),
        ("nonsense", r"got nonsense=; give one of those in help\(fa.attention\)"),
    ],
)
def test_keywords_of_others(keyword, message):
    with pytest.raises(TypeError, match=f"expected a keyword of fa.attention, got {keyword}=; "):
        fa.attention(Q, K, V, **{keyword: None})
    with pytest.raises(TypeError, match=message):
        fa.attention(Q, K, V, **{keyword: True})


def test_keywords_of_others_for_packed_sequences():
    q, offsets = Q[0].swapaxes(0, 1), np.array([0, Q.shape[2]], np.int32)
    for keyword, message in (("causal", "give is_causal="), ("max_seqlen_q", "reads lengths from")):
        with pytest.raises(TypeError, match=f"of fa.attention_varlen, got {keyword}=; .*{message}"):
            fa.attention_varlen(q, q, q, offsets, **{keyword: True})
    with pytest.raises(TypeError, match=r"got 7; leave out the largest lengths \(max_seqlen_q"):
        fa.attention_varlen(q, q, q, offsets, offsets, 9, 9)


PROGRAM = """\
import fa, numpy as np
x = np.ones((1, 1, 4, 16), np.float32)

def helper(i, j):
    return i if i > j else j

def score(s, b, h, i, j):
    return s + helper(i, j)

fa.attention(x, x, x, score_mod=score)
"""


def test_one_short_traceback(tmp_path):
    """The call, and the user's own lines: nothing of fa's machinery between."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    run = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    frames = re.findall(r'File "(.*)", line (\d+), in (.*)', run.stderr)
    assert [name for _, _, name in frames] == ["<module>", "attention", "score", "helper"]
    assert frames[1][0].endswith("_attention.py") and frames[3][1] == "5"
    assert run.stderr.count("Traceback") == 1
    assert "program.py:5: in helper: needs the truth" in run.stderr.splitlines()[-1]


def test_a_warning_is_at_the_users_line(monkeypatch):
    # What other tests of the process gave these functions is not to count.
    monkeypatch.setattr(memo, "_known", {})
    monkeypatch.setattr(numbers, "_values", {})
    with pytest.warns(UserWarning, match="fa.masks.block_sparse: the number 'rows' had") as caught:
        for size in range(3, 14):
            fa.attention(Q, K, V, mask_mod=fa.masks.block_sparse(np.ones((9, 9), bool), size))
    assert {warning.filename for warning in caught} == {__file__}


def test_what_is_no_mask():
    for maker, arguments in ((fa.masks.sliding_window, "left"), (fa.masks.documents, "ids")):
        with pytest.raises(TypeError, match=rf"{maker.__name__}\(...\) makes one") as caught:
            fa.attention(Q, K, V, mask_mod=maker)
        assert "calling it first" in str(caught.value), arguments
    with pytest.raises(TypeError, match=r"softcap\(...\) makes one"):
        fa.attention(Q, K, V, score_mod=fa.scores.softcap)
    with pytest.raises(
        TypeError, match=r"an array of shape \[24, 24\]; give a function that reads"
    ):
        fa.attention(Q, K, V, mask_mod=np.ones((24, 24), bool))


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ((257, 16), "a head dim in .1, 256., got 257; use PyTorch's scaled_dot_product_attention"),
        ((16, 512), "a value dim in .1, 256., got 512; give v in parts of at most 256 columns"),
        ((0, 16), "a head dim in .1, 256., got 0; give each head elements"),
    ],
)
def test_sizes_of_heads(dims, message):
    q, k, v = naive.inputs(1, 1, 1, 4, 4, max(dims[0], 1), dims[1])
    with pytest.raises(ValueError, match=message):
        fa.attention(q[..., : dims[0]], k[..., : dims[0]], v)


def test_values_in_parts():
    q, k, v = naive.inputs(1, 2, 2, 24, 24, 16, 300)
    parts = [fa.attention(q, k, v[..., at : at + 256]) for at in (0, 256)]
    right.assert_right(np.concatenate(parts, -1), right.attention(q, k, v))


@pytest.mark.ci
def test_modules_that_are_there_without_import():
    pytest.importorskip("torch")
    code = "import sys, fa; assert 'torch' not in sys.modules and not hasattr(fa, 'nothing'); "
    code += "assert callable(fa.torch.use_sdpa) and 'torch' in sys.modules; import fa.torch as t; "
    code += "assert t is fa.torch and callable(fa.transformers.register)"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- Masks and scores that are pickled -------------------------------------------------------

MASKS = {
    "causal": fa.masks.causal,
    "causal_bottom_right": fa.masks.causal_bottom_right,
    "causal_lengths": fa.masks.causal_lengths(LENGTHS, LENGTHS),
    "sliding_window": fa.masks.sliding_window(4, right=2),
    "prefix": fa.masks.prefix(LENGTHS),
    "documents": fa.masks.documents(BATCH_IDS),
    "padding": fa.masks.padding(LENGTHS),
    "dilated": fa.masks.dilated(3, 9),
    "neighbourhood": fa.masks.neighbourhood(5),
    "neighbourhood_2d": fa.masks.neighbourhood_2d((3, 3), 6),
    "attention_sink": fa.masks.attention_sink(7, sinks=2),
    "block_sparse": fa.masks.block_sparse(np.eye(3, dtype=bool), 8),
    "block_sparse_csr": fa.masks.block_sparse_csr(
        np.array([0, 1, 3, 4]), np.array([0, 1, 2, 0]), 3, 8
    ),
    "and_masks": fa.masks.and_masks(fa.masks.causal, fa.masks.documents(IDS)),
    "or_masks": fa.masks.or_masks(fa.masks.padding(LENGTHS), fa.masks.dilated(2)),
    "not_mask": fa.masks.not_mask(fa.masks.sliding_window(3)),
}
SCORES = {
    "softcap": fa.scores.softcap(2.0),
    "alibi": fa.scores.alibi(2),
    "bias": fa.scores.bias(np.ones((24, 24), np.float32)),
    "relative_position": fa.scores.relative_position(np.ones((2, 5), np.float32)),
    "t5_bias": fa.scores.t5_bias(np.ones((8, 2), np.float32), bidirectional=False),
    "compose": fa.scores.compose(fa.scores.softcap(2.0), fa.scores.alibi(2)),
}


def test_all_are_pickled():
    names = set(fa.masks.__all__) - {"block_mask"}
    assert names == set(MASKS) and set(fa.scores.__all__) == set(SCORES)


@pytest.mark.parametrize("name", [*MASKS, *SCORES])
def test_pickled(name):
    what = "mask_mod" if name in MASKS else "score_mod"
    function = (MASKS | SCORES)[name]
    copied = pickle.loads(pickle.dumps(function))
    assert str(fa.trace(**{what: copied})) == str(fa.trace(**{what: function}))
    first, second = (fa.attention(Q, K, V, **{what: f}) for f in (function, copied))
    np.testing.assert_array_equal(first, second)


def test_pickled_when_prepared():
    prepared = fa.prepare(MASKS["and_masks"])
    copied = pickle.loads(pickle.dumps(prepared))
    first, second = (fa.attention(Q, K, V, mask_mod=mask) for mask in (prepared, copied))
    np.testing.assert_array_equal(first, second)
    assert "documents(" in repr(MASKS["documents"]) and MASKS["dilated"].__name__ == "dilated"
    assert "(3, 9)" in repr(MASKS["dilated"])


def test_of_another_process(tmp_path):
    file = tmp_path / "mask.pickle"
    file.write_bytes(pickle.dumps((MASKS["and_masks"], SCORES["compose"])))
    code = "import sys, pickle, fa; m, s = pickle.load(open(sys.argv[1], 'rb')); "
    code += "print(fa.trace(mask_mod=m, score_mod=s))"
    run = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True
    )
    wanted = fa.trace(mask_mod=MASKS["and_masks"], score_mod=SCORES["compose"])
    assert run.stdout.strip() == str(wanted).strip()


def test_compiled_by_torch():
    """torch.compile sees through what was made, outside and inside of the code."""
    torch = pytest.importorskip("torch")
    mask, q, k, v = fa.masks.sliding_window(4), *map(torch.from_numpy, (Q, K, V))

    @torch.compile(backend="eager", fullgraph=True)
    def outside(q, k, v):
        return fa.attention(q, k, v, mask_mod=mask, score_mod=SCORES["softcap"])

    @torch.compile(backend="eager", fullgraph=True)
    def inside(q, k, v):
        own = fa.masks.and_masks(fa.masks.sliding_window(4), fa.masks.causal)
        return fa.attention(q, k, v, mask_mod=own, score_mod=fa.scores.softcap(2.0))

    wanted = right.attention(
        *(Q, K, V),
        mask=lambda b, h, i, j: (j <= i) & (i - j <= 4),
        score=lambda s, *at: 2 * np.tanh(s / 2),
        score_error=right.approximated(2, "cpu"),
    )
    for function in (outside, inside):
        right.assert_right(function(q, k, v), wanted)


# --- NaN -----------------------------------------------------------------------------------


def nans_of(q=Q, k=K, v=V, **options):
    """Where output rows and log-sum-exps are NaN, [B, H, Sq] both; and the output."""
    out, lse = fa.attention(q, k, v, return_lse=True, **options)
    return np.isnan(out).any(-1), np.isnan(lse), out


def with_nan(array, *at):
    result = array.copy()
    result[at] = np.nan
    return result


def test_nan():
    """As docs/functions.md says: of scores where the mask shows them, of v in its column."""
    causal = {"mask_mod": fa.masks.causal}
    rows, sums, _ = nans_of(q=with_nan(Q, 0, 1, 5, 3), **causal)
    wanted = np.zeros((2, 2, 24), bool)
    wanted[0, 1, 5] = True
    assert (rows == wanted).all() and (sums == wanted).all()
    rows, sums, _ = nans_of(k=with_nan(K, 1, 0, 20, 0), **causal)
    wanted = np.zeros((2, 2, 24), bool)
    wanted[1, :, 20:] = True
    assert (rows == wanted).all() and (sums == wanted).all()
    bias = with_nan(np.zeros((24, 24), np.float32), 7, 3)
    bias[2, 9] = np.nan  # hidden
    rows, sums, _ = nans_of(score_mod=fa.scores.bias(bias), **causal)
    wanted = np.zeros((2, 2, 24), bool)
    wanted[..., 7] = True
    assert (rows == wanted).all() and (sums == wanted).all()
    rows, sums, out = nans_of(v=with_nan(V, 0, 0, 3, 2), **causal)
    assert rows[0, :, 3:].all() and not rows[1].any() and not sums.any()
    assert not np.isnan(np.delete(out, 2, -1)).any()


def test_functions_of_nan():
    nothing = float("nan")
    m = fa.math
    given = np.float32([1.0, nothing])
    rows = {
        "fmax": (lambda x: m.fmax(x, 0.5), [1.0, 0.5]),
        "nan_to_num": (lambda x: m.nan_to_num(x), [1.0, 0.0]),
        "less": (lambda x: (x < 2) * 1.0, [1.0, 0.0]),
        "unequal": (lambda x: (x != x) * 1.0, [0.0, 1.0]),
        "integer": (lambda x: (m.cast(x, int) < -1000) * 1.0, [0.0, 1.0]),
        "maximum": (lambda x: m.maximum(x, 0.5), [1.0, nothing]),
        "clamp": (lambda x: m.clamp(x, 0.0, 3.0), [1.0, nothing]),
    }
    q, k = np.zeros((1, 1, 2, 1), np.float32), np.zeros((1, 1, 1, 1), np.float32)
    for name, (function, wanted) in rows.items():
        _, lse = fa.attention(
            *(q, k, k),
            score_mod=lambda s, b, h, i, j, f=function: f(given[i]),
            return_lse=True,
        )
        np.testing.assert_array_equal(lse[0, 0], np.float32(wanted), err_msg=name)
