# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`attn_implementation="fa"` against "eager", of small models made from configurations."""

from __future__ import annotations

import subprocess
import sys
import warnings

import fa
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

import fa.transformers as fa_transformers  # noqa: E402
import right  # noqa: E402
from models import (  # noqa: E402
    BATCH,
    DECODERS,
    IDS,
    LEFT,
    LENGTH,
    ONES,
    OTHERS,
    RIGHT,
    Calls,
    error,
    inputs_of,
    model_of,
    result_of,
)
from transformers import masking_utils  # noqa: E402

# --- Models -------------------------------------------------------------------------


PADDINGS = {"none": None, "ones": ONES, "right": RIGHT, "left": LEFT}


def is_right(got, expected, rows=None):
    """By the rule of float32 (docs/right.md): 1e-5 of the largest expected number."""
    limit = right.output_limit("float32", 0, expected.abs().max().item())
    return error(got, expected, rows) <= limit


@pytest.fixture(autouse=True)
def takes_all(monkeypatch):
    """Tests are of what fa takes, also where PyTorch is faster (bfloat16 with AMX)."""
    monkeypatch.setattr(fa_transformers, "slower", lambda *call: None)


@pytest.mark.parametrize(
    ("name", "padding"),
    [
        *((name, padding) for name in [*DECODERS, "bert"] for padding in ("right", "left")),
        *((name, padding) for name in ("llama", "gemma2", "bert") for padding in ("none", "ones")),
    ],
)
def test_prefill(name, padding):
    padding = PADDINGS[padding]
    inputs = inputs_of(name, padding)
    expected = result_of(model_of(name, "eager"), inputs)
    calls = Calls()
    got = result_of(model_of(name, "fa"), inputs)
    assert calls.routed == 2 and not calls.fell_back and not calls.mask_tensors
    assert is_right(got, expected, padding)


@pytest.mark.parametrize("name", ["t5", "vit", "whisper"])
def test_encoders_and_decoders(name):
    expected = result_of(model_of(name, "eager"), inputs_of(name))
    calls = Calls()
    got = result_of(model_of(name, "fa"), inputs_of(name))
    assert calls.routed == (2 if name == "vit" else 6) and not calls.fell_back
    assert not calls.mask_tensors
    assert is_right(got, expected)


def test_t5_with_padding():
    inputs = {**inputs_of("t5", RIGHT), "decoder_attention_mask": ONES[:, :20]}
    expected = result_of(model_of("t5", "eager"), inputs)
    assert is_right(result_of(model_of("t5", "fa"), inputs), expected)


@pytest.mark.parametrize("name", [*DECODERS, *OTHERS])
def test_bfloat16(name):
    """No further from float32 than twice what the model's own attention is."""
    padding = LEFT if name in DECODERS else None
    inputs = inputs_of(name, padding)
    exact = result_of(model_of(name, "eager"), inputs)
    inputs = {
        key: value.bfloat16() if value.is_floating_point() else value
        for key, value in inputs.items()
    }
    own = result_of(model_of(name, "eager", torch.bfloat16), inputs)
    calls = Calls()
    got = result_of(model_of(name, "fa", torch.bfloat16), inputs)
    assert got.dtype == torch.bfloat16 and not calls.fell_back and calls.routed
    assert error(got, exact, padding) <= 2 * error(own, exact, padding) + 1e-5


def decoded(model, padding, cache):
    """Logits of a prompt and of tokens that follow one by one."""
    start = LENGTH - 12
    outs, counts = [], []
    with torch.no_grad():
        for begin, end in [(0, start), *((at, at + 1) for at in range(start, LENGTH))]:
            positions = (padding[:, :end].cumsum(-1) - 1).clamp(min=0)[:, begin:end]
            out = model(
                input_ids=IDS[:, begin:end],
                attention_mask=padding[:, :end],
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            )
            outs.append(out.logits)
            counts.append(fa.compile_count())
    return torch.cat(outs, 1), counts


def cache_of(kind, model):
    if kind == "dynamic":
        return transformers.DynamicCache(config=model.config)
    return transformers.StaticCache(config=model.config, max_cache_len=LENGTH + 9)


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize(
    ("name", "kind", "padding"),
    [
        *((name, kind, "left") for name in DECODERS for kind in ("dynamic", "static")),
        *(("llama", kind, "ones") for kind in ("dynamic", "static")),
    ],
)
def test_cached_decoding(name, kind, padding):
    padding = PADDINGS[padding]
    eager, model = model_of(name, "eager"), model_of(name, "fa")
    expected, _ = decoded(eager, padding, cache_of(kind, eager))
    calls = Calls()
    got, counts = decoded(model, padding, cache_of(kind, model))
    assert not calls.fell_back and not calls.mask_tensors
    assert is_right(got, expected, padding)
    assert counts[2] == counts[-1], "a kernel for each token"


class QuantizedCache(transformers.Cache):
    """Of 8 bits by transformers' own code: the others need libraries that are not here."""

    def __init__(self, config):
        from transformers.cache_utils import Fp8QuantizedLayer

        super().__init__(layers=[Fp8QuantizedLayer() for _ in range(config.num_hidden_layers)])


def by_reason(reason):
    def leave(monkeypatch):
        monkeypatch.setattr(fa_transformers, "_known", lambda *call: None)
        monkeypatch.setattr(fa_transformers, "_reason", lambda *call: reason)

    return leave


def untraced(monkeypatch):
    attention = fa_transformers.attention

    def refuse(*tensors, mask_mod=None, **options):
        if mask_mod is not None and mask_mod.__qualname__.startswith("_at_offsets"):
            raise TypeError("not traced")
        return attention(*tensors, mask_mod=mask_mod, **options)

    monkeypatch.setattr(fa_transformers, "attention", refuse)
    monkeypatch.setattr(fa_transformers, "_can_be_traced", lambda function: False)


def as_matrix(how):
    def leave(monkeypatch):
        is_mask = fa_transformers.AttentionMask

        def matrix(module, mask, query, key):
            mask = how(mask) if isinstance(mask, is_mask) else mask
            return False, None, mask if mask is None else mask[..., : key.shape[2]]

        monkeypatch.setattr(fa_transformers, "_split_mask", matrix)

    return leave


WAYS = {
    "few queries": by_reason("few queries"),
    "not traced": untraced,
    "read": as_matrix(lambda mask: mask[:]),
    "cropped": as_matrix(lambda mask: mask.seen("cropped")),
}
REASONS = ("tensor class", "dropout", "dtype", "device", "shape", "heads", "head dim", "scale")
REASONS += ("deterministic", "gradient", "few scores")
CACHES = {"dynamic": None, "static": None, "quantized": QuantizedCache}


@pytest.mark.filterwarnings('ignore:attn_implementation="fa" left a call')
@pytest.mark.parametrize(
    ("name", "kind", "way"),
    [
        *(
            (name, kind, way)
            for name in ("llama", "mistral", "gemma3", "llama4")
            for kind in CACHES
            for way in WAYS
            if kind != "quantized" or name == "llama"  # its layers are all alike
        ),
        *(("llama", "static", reason) for reason in REASONS),
    ],
)
def test_each_way_out_of_fa_with_a_cache(name, kind, way, monkeypatch):
    """A mask that becomes a tensor when the layer has updated its cache."""
    one_layer = {"num_hidden_layers": 1} if kind == "quantized" else {}
    outs = []
    for implementation in ("eager", "fa"):
        model = model_of(name, implementation, **one_layer)
        cache = CACHES[kind](model.config) if CACHES[kind] else cache_of(kind, model)
        if implementation == "fa":
            WAYS.get(way, by_reason(way))(monkeypatch)
        outs.append([])
        # A prompt, tokens one by one, and several that continue the cache.
        for begin, end in ((0, 16), (16, 17), (17, 18), (18, 29), (29, LENGTH)):
            positions = (LEFT[:, :end].cumsum(-1) - 1).clamp(min=0)[:, begin:end]
            with torch.no_grad():
                out = model(
                    input_ids=IDS[:, begin:end],
                    attention_mask=LEFT[:, :end],
                    position_ids=positions,
                    past_key_values=cache,
                )
            outs[-1].append(out.logits)
    expected, got = (torch.cat(out, 1) for out in outs)
    assert is_right(got, expected, LEFT)


def test_several_tokens_that_continue_a_cache():
    for name in ("llama", "gemma2"):
        eager, model = model_of(name, "eager"), model_of(name, "fa")
        outs = []
        for one in (eager, model):
            cache = transformers.DynamicCache(config=one.config)
            with torch.no_grad():
                one(input_ids=IDS[:, :23], past_key_values=cache)
                outs.append(one(input_ids=IDS[:, 23:], past_key_values=cache).logits)
        assert is_right(outs[1], outs[0])


@pytest.mark.usefixtures("empty_cache")
def test_window_that_the_cache_outgrows():
    """Two kernels more at the most: one where keys begin to be forgotten."""
    eager, model = model_of("mistral", "eager"), model_of("mistral", "fa")
    prompt = IDS[:, :3]
    options = {"max_new_tokens": 24, "min_new_tokens": 24, "do_sample": False}
    expected = eager.generate(prompt, attention_mask=ONES[:, :3], **options)
    before = fa.compile_count()
    assert torch.equal(model.generate(prompt, attention_mask=ONES[:, :3], **options), expected)
    assert fa.compile_count() - before <= 4


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("name", DECODERS)
def test_generate(name, cache):
    options = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}
    if cache is not None:
        options["cache_implementation"] = cache
    expected = model_of(name, "eager").generate(IDS, attention_mask=LEFT, **options)
    calls, model = Calls(), model_of(name, "fa")
    got = model.generate(IDS, attention_mask=LEFT, **options)
    assert torch.equal(got, expected)
    assert calls.routed == 24 and not calls.fell_back and not calls.mask_tensors
    before = fa.compile_count()
    model.generate(IDS, attention_mask=LEFT, **{**options, "max_new_tokens": 20})
    assert fa.compile_count() == before


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize("name", ["t5", "whisper"])
def test_generate_of_encoder_decoders(name):
    inputs = inputs_of(name, RIGHT)
    del inputs["decoder_input_ids"]
    options = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}
    expected = model_of(name, "eager").generate(**inputs, **options)
    model = model_of(name, "fa")
    assert torch.equal(model.generate(**inputs, **options), expected)
    before = fa.compile_count()
    model.generate(**inputs, **{**options, "max_new_tokens": 20, "min_new_tokens": 20})
    assert fa.compile_count() == before


def test_beams():
    options = {"max_new_tokens": 8, "do_sample": False, "num_beams": 3}
    expected = model_of("llama", "eager").generate(IDS, attention_mask=LEFT, **options)
    got = model_of("llama", "fa").generate(IDS, attention_mask=LEFT, **options)
    assert torch.equal(got, expected)


def test_set_attn_implementation():
    model = model_of("gemma2", "eager")
    expected = result_of(model, inputs_of("gemma2", LEFT))
    model.set_attn_implementation("fa")
    calls = Calls()
    assert is_right(result_of(model, inputs_of("gemma2", LEFT)), expected, LEFT)
    assert calls.routed == 2


def test_packed_sequences():
    """Positions that begin again say where a sequence ends."""
    positions = torch.cat([torch.arange(17), torch.arange(23)])[None].expand(BATCH, -1)
    inputs = {"input_ids": IDS, "position_ids": positions, "use_cache": False}
    for name in ("llama", "gemma2"):
        expected = result_of(model_of(name, "eager"), inputs)
        calls = Calls()
        got = result_of(model_of(name, "fa"), inputs)
        assert is_right(got, expected) and not calls.mask_tensors
        alone = result_of(
            model_of(name, "fa"), {"input_ids": IDS[:, 17:], "position_ids": positions[:, 17:]}
        )
        assert is_right(got[:, 17:], alone)


# --- torch.compile ------------------------------------------------------------------


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "padding"),
    [
        *((name, "left") for name in DECODERS),
        *((name, "none") for name in ("llama", "t5", "vit", "whisper")),
        ("bert", "right"),
    ],
)
def test_compiled(name, padding):
    padding = PADDINGS[padding]
    inputs = inputs_of(name, padding)
    if name != "vit" and name != "bert":
        inputs["use_cache"] = False
    expected = result_of(model_of(name, "eager"), inputs)
    torch._dynamo.reset()
    try:
        result_of(torch.compile(model_of(name, "eager"), backend="eager", fullgraph=True), inputs)
        fullgraph = True
    except torch._dynamo.exc.Unsupported:
        fullgraph = False
    torch._dynamo.reset()
    calls = Calls()
    compiled = torch.compile(model_of(name, "fa"), backend="aot_eager", fullgraph=fullgraph)
    got = result_of(compiled, inputs)
    assert calls.routed and not calls.fell_back and not calls.mask_tensors
    assert is_right(got, expected, padding)


@pytest.mark.ci
@pytest.mark.usefixtures("empty_cache")
def test_compiled_for_other_lengths():
    torch._dynamo.reset()
    eager, model = model_of("gemma2", "eager"), model_of("gemma2", "fa")
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    for length in (40, 33, 21):
        inputs = {"input_ids": IDS[:, :length], "use_cache": False}
        inputs["attention_mask"] = LEFT[:, :length]
        expected = result_of(eager, inputs)
        assert is_right(result_of(compiled, inputs), expected, LEFT[:, :length])
        if length == 33:
            before = fa.compile_count()
    assert fa.compile_count() == before


@pytest.mark.ci
@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss"])
def test_compiled_generate(name):
    """transformers compiles the forward of a static cache, whose masks come from outside."""
    torch._dynamo.reset()
    compile_config = transformers.CompileConfig(fullgraph=True, backend="aot_eager", mode=None)
    compile_config._compile_all_devices = True
    options = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}
    expected = model_of(name, "eager").generate(IDS, attention_mask=LEFT, **options)
    options.update(cache_implementation="static", compile_config=compile_config)
    model = model_of(name, "fa")
    torch._dynamo.utils.counters.clear()
    got = model.generate(IDS, attention_mask=LEFT, **options)
    assert torch.equal(got, expected)
    assert 1 <= torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


# --- Mask functions -------------------------------------------------------------------

QUERIES, KEYS = 24, 37
STARTS = torch.tensor([0, 5])
GROUPS = torch.randint(-1, 3, (BATCH, KEYS + 20), generator=torch.Generator().manual_seed(2))
POSITIONS = torch.cat([torch.arange(20), torch.arange(KEYS)])[None].expand(BATCH, -1)


def every_other(b, h, q_idx, kv_idx):
    return (q_idx + kv_idx) % 2 == 0


def to_the_first(b, h, q_idx, kv_idx):
    return torch.where(q_idx < 30, kv_idx, q_idx) < 3


MASKS = {
    "causal": masking_utils.causal_mask_function,
    "bidirectional": masking_utils.bidirectional_mask_function,
    "window": masking_utils.sliding_window_causal_mask_function(9),
    "window both ways": masking_utils.sliding_window_bidirectional_mask_function(9),
    "chunks": masking_utils.chunked_causal_mask_function(7, STARTS),
    "blocks": masking_utils.or_masks(
        masking_utils.causal_mask_function, masking_utils.blockwise_overlay(GROUPS)
    ),
    "packed": masking_utils.packed_sequence_compatibility_function(
        masking_utils.causal_mask_function, POSITIONS, GROUPS
    ),
    "padding": masking_utils.padding_mask_function(GROUPS >= 0),
    "offsets": masking_utils.add_offsets_to_mask_function(
        masking_utils.causal_mask_function, 3, torch.tensor(2)
    ),
    "and": masking_utils.and_masks(masking_utils.causal_mask_function, every_other),
    "or": masking_utils.or_masks(masking_utils.sliding_window_overlay(5), to_the_first),
}
OFFSETS = {
    "none": (0, 0),
    "continued": (KEYS - QUERIES, 0),
    "forgotten": (KEYS - QUERIES + 4, 4),
    "numbers": (9, 4),
    "tensor": (torch.tensor(9), 0),
    "tensors": (torch.tensor([9]), torch.tensor(4, dtype=torch.int32)),
}


class Layer(torch.nn.Module):
    is_causal = True
    num_key_value_groups = 2


def vectors(queries=QUERIES, keys=KEYS, heads=4, key_heads=2):
    generator = torch.Generator().manual_seed(5)
    q = torch.randn(BATCH, heads, queries, 16, generator=generator)
    k = torch.randn(BATCH, key_heads, keys, 16, generator=generator)
    return q, k, torch.randn(BATCH, key_heads, keys, 8, generator=generator)


def by_eager(q, k, v, seen=None, added=None, softcap=None, s_aux=None, scaling=None):
    """Attention written out in float64."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scaling is None else scaling)
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    scores = scores if added is None else scores + added
    scores = scores if seen is None else scores.masked_fill(~seen, -torch.inf)
    if s_aux is not None:
        sinks = s_aux.double()[None, :, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, sinks], -1)
    weights = torch.softmax(scores, -1).nan_to_num(0.0)[..., : k.shape[2]]
    return (weights @ v).transpose(1, 2)


def arguments(function, q_offset, kv_offset, padding=None):
    return {
        "batch_size": BATCH,
        "q_length": QUERIES,
        "kv_length": KEYS,
        "q_offset": q_offset,
        "kv_offset": kv_offset,
        "mask_function": function,
        "attention_mask": padding,
        "allow_is_causal_skip": False,
    }


@pytest.mark.parametrize(
    ("name", "offsets", "padding"),
    [
        *((name, offsets, "short") for name in MASKS for offsets in OFFSETS),
        *(("window", offsets, padding) for offsets in OFFSETS for padding in (None, "long")),
    ],
)
def test_mask_functions(name, offsets, padding):
    if padding is not None:
        generator = torch.Generator().manual_seed(7)
        length = KEYS - 3 if padding == "short" else KEYS + 6
        padding = torch.rand(BATCH, length, generator=generator) < 0.8
    given = arguments(MASKS[name], *OFFSETS[offsets], padding)
    matrix = masking_utils.sdpa_mask(**given)
    q, k, v = vectors()
    calls = Calls()
    mask = fa_transformers.mask(**given)
    out, weights = fa_transformers.attention_forward(Layer(), q, k, v, mask)
    assert weights is None and out.shape == (BATCH, QUERIES, 4, 8)
    assert calls.routed == 1 and not calls.mask_tensors
    assert is_right(out, by_eager(q, k, v, matrix))
    assert torch.equal(mask.seen("read").expand(matrix.shape), matrix)


@pytest.mark.usefixtures("empty_cache")
def test_offsets_are_no_part_of_a_kernel():
    q, k, v = vectors()
    counts = []
    for step in range(4):
        for q_offset, kv_offset in ((5 + step, 0), (5 + step, 1 + step), (torch.tensor(step), 0)):
            given = arguments(MASKS["window"], q_offset, kv_offset, torch.ones(BATCH, KEYS) > 0)
            fa_transformers.attention_forward(Layer(), q, k, v, fa_transformers.mask(**given))
        counts.append(fa.compile_count())
    assert counts[0] == counts[-1]


def test_functions_that_nobody_needs_are_not_read():
    """Such a mask is there all the same, as that of "eager" is."""
    ones = torch.ones(BATCH, KEYS, dtype=torch.bool)
    sizes = {"batch_size": BATCH, "kv_length": KEYS}
    causal = masking_utils.causal_mask_function

    def is_alone(**given):
        mask = fa_transformers.mask(**given)
        assert torch.equal(
            mask.bool(), masking_utils.sdpa_mask(**given, allow_is_causal_skip=False)
        )
        return mask.is_causal_alone

    for more in ({}, {"attention_mask": ones}):
        given = {**sizes, **more, "mask_function": causal}
        assert is_alone(q_length=KEYS, **given)
        assert is_alone(q_length=1, q_offset=KEYS - 1, **given)
        assert not is_alone(q_length=1, q_offset=KEYS - 2, **given)
        assert is_alone(q_length=5, q_offset=torch.tensor(0), **given)
        assert not is_alone(q_length=1, q_offset=torch.tensor(0), **given)
        assert not is_alone(q_length=5, q_offset=torch.tensor(1), **given)
        assert not is_alone(q_length=5, q_offset=KEYS - 5, **given)
        assert not is_alone(q_length=KEYS, local_size=9, **given)
        asked = fa_transformers.mask(q_length=KEYS, allow_is_causal_skip=False, **given)
        assert not asked.is_causal_alone
        both = {**given, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": True}
        assert fa_transformers.mask(q_length=5, **both) is None
    ones[1, 30] = False
    given = {**sizes, "attention_mask": ones, "mask_function": causal}
    assert not is_alone(q_length=KEYS, **given)
    assert is_alone(q_length=30, q_offset=torch.tensor(0), **given)
    assert not is_alone(q_length=31, q_offset=torch.tensor(0), **given)


def test_a_function_that_can_not_be_traced_is_a_matrix_and_said_once():
    def by_value(b, h, q_idx, kv_idx):
        return torch.tril(torch.ones(QUERIES, KEYS, dtype=torch.bool), 13)[None, None]

    q, k, v = vectors()
    given = arguments(by_value, 13, 0)
    mask = fa_transformers.mask(**given)
    expected = by_eager(q, k, v, masking_utils.sdpa_mask(**given))
    calls = Calls()
    with pytest.warns(UserWarning, match="can't trace a mask function of this model"):
        out, _ = fa_transformers.attention_forward(Layer(), q, k, v, mask)
    assert is_right(out, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for again in (mask, fa_transformers.mask(**given)):
            out, _ = fa_transformers.attention_forward(Layer(), q, k, v, again)
            assert is_right(out, expected)
    assert calls.routed == 3 and calls.mask_tensors == {"not traced": 2}


def test_a_mask_is_a_tensor_for_who_wants_one():
    """Code that reads the mask gets the numbers of "eager"; logical operations get booleans."""
    given = {**arguments(MASKS["causal"], 9, 0), "dtype": torch.bfloat16}
    matrix = masking_utils.sdpa_mask(**given)
    numbers = masking_utils.eager_mask(**given)
    mask = fa_transformers.mask(**given)
    assert mask.shape == (BATCH, 1, QUERIES, KEYS) and mask.size(-1) == KEYS
    assert mask.dim() == mask.ndim == 4 and mask.dtype == numbers.dtype == torch.bfloat16
    assert mask.device == torch.device("cpu") and len(mask) == BATCH
    calls = Calls()
    assert mask.contiguous() is mask and mask.to("cpu") is mask and mask.to(mask.dtype) is mask
    assert mask.to(device=torch.device("cpu"), non_blocking=True) is mask
    assert not calls.mask_tensors
    assert mask.to("meta").device == torch.device("meta")
    assert torch.equal(mask.to(torch.bool), matrix) and torch.equal(mask.bool(), matrix)
    for read in (
        lambda x: x[:, :, 1:],
        lambda x: x.float(),
        lambda x: x.to(torch.float32),
        lambda x: torch.zeros(BATCH, 4, QUERIES, KEYS) + x,
        lambda x: 1.0 - x,
        lambda x: x * 0.5,
        lambda x: x == 0,
        lambda x: torch.cat([x, x], -1),
        lambda x: torch.nn.functional.pad(x, (0, 2)),
        lambda x: x.masked_fill(~matrix, -7.0),
        lambda x: torch.where(matrix, 0.0, x.float()),
    ):
        assert torch.equal(read(mask), read(numbers))
    for read in (
        lambda x: ~x,
        lambda x: x & matrix.roll(1, -1),
        lambda x: matrix.roll(1, -1) | x,
        lambda x: x.logical_not(),
        lambda x: torch.logical_and(matrix.roll(1, -1), x),
        lambda x: torch.where(x, 1, 0),
        lambda x: torch.zeros(BATCH, 4, QUERIES, KEYS).masked_fill(x, 1.0),
        lambda x: x.all(-1),
    ):
        assert torch.equal(read(mask), read(matrix))
    q, k, v = vectors(key_heads=4)
    by_torch = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert is_right(by_torch.transpose(1, 2), by_eager(q, k, v, matrix))
    assert calls.mask_tensors == {"read": 1}


def test_fewer_keys_than_the_mask_has():
    q, k, v = vectors(keys=30)
    mask = fa_transformers.mask(**arguments(MASKS["window"], KEYS - QUERIES, 0))
    calls = Calls()
    out, _ = fa_transformers.attention_forward(Layer(), q, k, v, mask)
    assert is_right(out, by_eager(q, k, v, mask.seen("read")[..., :30]))
    assert calls.mask_tensors == {"cropped": 1}


def test_more_keys_than_the_mask_has():
    """Keys that a layer adds after the mask was made: nobody says who sees them."""
    q, k, v = vectors(keys=KEYS + 3)
    mask = fa_transformers.mask(**arguments(MASKS["causal"], 9, 0))
    with pytest.raises(ValueError, match=f"one of {KEYS} keys for {KEYS + 3} keys in Layer"):
        fa_transformers.attention_forward(Layer(), q, k, v, mask)


def test_fewer_batch_entries_than_queries_have():
    """What the function reads of the second entry is not there: the matrix broadcasts."""
    q, k, v = vectors()
    given = {**arguments(MASKS["padding"], 0, 0), "batch_size": 1}
    mask = fa_transformers.mask(**given)
    out, _ = fa_transformers.attention_forward(Layer(), q, k, v, mask)
    seen = (GROUPS[:1, :KEYS] >= 0)[:, None, None]
    assert is_right(out, by_eager(q, k, v, seen))


# --- The layer's function ---------------------------------------------------------------


@pytest.mark.parametrize(
    "shape", [(BATCH, 4, QUERIES, KEYS), (BATCH, 1, QUERIES, KEYS + 5), (KEYS,)]
)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_of_the_users_own(kind, shape):
    generator = torch.Generator().manual_seed(9)
    q, k, v = vectors()
    shape = shape if len(shape) > 1 else (1, 1, 1, *shape)
    seen = torch.rand(shape, generator=generator) < 0.7
    matrix = seen if kind == "bool" else torch.randn(shape, generator=generator)
    out, _ = fa_transformers.attention_forward(Layer(), q, k, v, matrix)
    matrix = matrix[..., :KEYS]
    expected = by_eager(q, k, v, **{"seen" if kind == "bool" else "added": matrix})
    assert is_right(out, expected)


def test_softcap_bias_and_sinks_together():
    q, k, v = vectors()
    bias = torch.randn(1, KEYS, QUERIES, 4).permute(0, 3, 2, 1)
    mask = fa_transformers.mask(**arguments(MASKS["window"], KEYS - QUERIES, 0))
    options = {"softcap": 1.5, "s_aux": torch.tensor([0.3, -2.0, 4.0, 0.0]), "scaling": 0.7}
    out, _ = fa_transformers.attention_forward(
        Layer(), q, k, v, mask, position_bias=bias, **options
    )
    expected = by_eager(q, k, v, mask.seen("read"), bias, **options)
    assert is_right(out, expected)


def test_sinks():
    """Also where a row sees nothing, and where there is no sink."""
    q, k, v = vectors()
    seen = torch.ones(BATCH, 1, QUERIES, KEYS, dtype=torch.bool)
    seen[0, :, 3:7] = False
    s_aux = torch.tensor([1.0, -torch.inf, 60.0, -60.0])
    out, _ = fa_transformers.attention_forward(Layer(), q, k, v, seen, s_aux=s_aux)
    assert (out[0, 3:7] == 0).all()
    assert is_right(out, by_eager(q, k, v, seen, s_aux=s_aux))
    for wrong in (s_aux * 1.02, s_aux + 0.015, torch.full((4,), -torch.inf)):
        assert not is_right(out, by_eager(q, k, v, seen, s_aux=wrong))


def test_sinks_in_half_precision():
    """Of 16-bit attention the factor of the sinks is float32."""
    q, k, v = (x.half() for x in vectors())
    s_aux = torch.tensor([1.0, 0.1, -1.0, 2.0])
    options = {"s_aux": s_aux, "is_causal": False}
    out, _ = fa_transformers.attention_forward(Layer(), q, k, v, None, **options)
    plain, _ = fa_transformers.attention_forward(Layer(), q, k, v, None, is_causal=False)
    assert out.dtype == torch.float16
    exact, exact_plain = by_eager(q, k, v, s_aux=s_aux), by_eager(q, k, v)
    # One rounding of each, of which the second is of numbers below 2.
    assert error(out, exact) <= error(plain, exact_plain) + 2**-11 * exact.abs().max().item()


def test_causal_where_nothing_else_is_said():
    q, k, v = vectors()
    seen = torch.ones(QUERIES, KEYS, dtype=torch.bool).tril()
    out, _ = fa_transformers.attention_forward(Layer(), q, k, v, None)
    assert is_right(out, by_eager(q, k, v, seen))
    out, _ = fa_transformers.attention_forward(Layer(), q, k, v, None, is_causal=False)
    assert is_right(out, by_eager(q, k, v))
    out, _ = fa_transformers.attention_forward(Layer(), q[:, :, -1:], k, v, None)
    assert is_right(out, by_eager(q[:, :, -1:], k, v))


def test_a_layer_of_a_model_without_a_mask_sees_all():
    """Whatever its attribute says: its mask comes from `mask`, and None is none with "eager"."""
    q, k, v = vectors()
    layer = Layer()
    layer.config = transformers.LlamaConfig()
    out, _ = fa_transformers.attention_forward(layer, q, k, v, None)
    assert is_right(out, by_eager(q, k, v))
    out, _ = fa_transformers.attention_forward(layer, q, k, v, None, is_causal=True)
    assert is_right(out, by_eager(q, k, v, torch.ones(QUERIES, KEYS, dtype=torch.bool).tril()))


def test_large_heads_fall_back():
    q, k, v = (torch.randn(1, heads, 9, 512) for heads in (2, 1, 1))
    calls = Calls()
    out, _ = fa_transformers.attention_forward(Layer(), q, k, v, None, is_causal=False)
    assert is_right(out, by_eager(q, k, v)) and calls.fell_back == {"head dim": 1}


def test_what_is_known_is_asked_nothing_more(monkeypatch):
    """But where PyTorch is faster, and where a model has more to say."""
    q, k, v = vectors()
    if q.is_cuda:
        pytest.skip("float32, which PyTorch computes there")
    fa_transformers.attention_forward(Layer(), q, k, v, None)

    def asked(*arguments):
        raise LookupError("asked")

    monkeypatch.setattr(fa_transformers, "_reason", asked)
    calls = Calls()
    out, _ = fa_transformers.attention_forward(Layer(), q, k, v, None)
    seen = torch.ones(QUERIES, KEYS, dtype=torch.bool).tril()
    assert is_right(out, by_eager(q, k, v, seen)) and out.is_contiguous() and calls.routed == 1
    for more in ({"softcap": 1.5}, {"dropout": 0.25}, {"s_aux": torch.zeros(q.shape[1])}):
        with pytest.raises(LookupError):
            fa_transformers.attention_forward(Layer(), q, k, v, None, **more)
    monkeypatch.setattr(fa_transformers, "slower", lambda *tensors: "gradient")
    with pytest.raises(LookupError):
        fa_transformers.attention_forward(Layer(), q, k, v, None)


def test_learned_queries_of_one_batch_entry():
    q, k, v = vectors()
    out, _ = fa_transformers.attention_forward(Layer(), q[:1], k, v, None, is_causal=False)
    assert is_right(out, by_eager(q[:1], k, v))


def test_dropout():
    """Weights are dropped or divided by the share of what is kept."""
    q = torch.zeros(1, 1, 64, 16)
    torch.manual_seed(0)
    eye = torch.eye(64)[None, None]
    calls = Calls()
    out, _ = fa_transformers.attention_forward(
        Layer(), q, q, eye, None, is_causal=False, dropout=0.25
    )
    kept = out != 0
    assert calls.routed == 1 and 0.65 < kept.float().mean() < 0.85
    assert error(out[kept], torch.full_like(out[kept], 1 / 64 / 0.75)) <= 1e-6


# --- What PyTorch computes ----------------------------------------------------------------


def test_other_types_fall_back(monkeypatch):
    """Those that fa does not take where the model is: of float64 a GPU."""
    monkeypatch.setattr("fa._torch.sdpa._DTYPES", (torch.float32,))
    q, k, v = (x.double() for x in vectors())
    options = {"softcap": 1.5, "s_aux": torch.tensor([0.3, -2.0, 4.0, 0.0])}
    for more in ({}, options):
        calls = Calls()
        mask = fa_transformers.mask(**arguments(MASKS["window"], KEYS - QUERIES, 0))
        out, _ = fa_transformers.attention_forward(Layer(), q, k, v, mask, **more)
        assert calls.fell_back == {"dtype": 1} and calls.mask_tensors == {"fell back": 1}
        assert is_right(out, by_eager(q, k, v, mask.seen("read"), **more))
        out, _ = fa_transformers.attention_forward(Layer(), q, k, v, None, **more)
        seen = torch.ones(QUERIES, KEYS, dtype=torch.bool).tril()
        assert is_right(out, by_eager(q, k, v, seen, **more))


def test_float64_on_the_cpu():
    q, k, v = (x.double().cpu() for x in vectors())
    sinks = torch.tensor([0.3, -2.0, 4.0, 0.0])
    mask = fa_transformers.mask(**arguments(MASKS["window"], KEYS - QUERIES, 0))
    calls = Calls()
    for more in ({}, {"s_aux": sinks}):
        out, _ = fa_transformers.attention_forward(Layer(), q, k, v, mask, **more)
        assert out.dtype == torch.float64
        assert error(out, by_eager(q, k, v, mask.seen("read"), **more)) <= 1e-12
    assert calls.fell_back == {}


def test_statistics_read_as_a_sentence():
    statistics = fa_transformers.Statistics(3, {"gradient": 2}, {"read": 1})
    assert str(statistics) == "3 by fa, 2 by PyTorch (gradient 2), mask tensors: read 1"
    copy = fa_transformers.statistics()
    copy.fell_back["gradient"] += 1
    assert copy != fa_transformers.statistics()


# --- Errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["output_attentions", "indices", "block_indices", "sinks", "cache"]
)
def test_arguments_that_would_be_ignored(name):
    q, k, v = vectors()
    value = True if name == "output_attentions" else torch.zeros(3)
    with pytest.raises(NotImplementedError, match=f"without {name} .*; use model.set_attn"):
        fa_transformers.attention_forward(Layer(), q, k, v, None, **{name: value})
    fa_transformers.attention_forward(Layer(), q, k, v, None, **{name: None})


def test_output_attentions_of_a_model():
    with pytest.raises(NotImplementedError, match="the weights are never made"):
        result_of(model_of("llama", "fa"), {"input_ids": IDS, "output_attentions": True})


OWN = {
    # Scores of its own, to which it adds the mask that the interface made.
    "MPNetModel": ("MPNetConfig", {}, "eager"),
    # The same, causal.
    "BloomForCausalLM": ("BloomConfig", {"n_layer": 2, "n_head": 4}, "eager"),
    # Layers chosen by the name of the implementation, here beside some that ask the interface.
    "SamVisionModel": ("SamVisionConfig", {"image_size": 64, "window_size": 2}, "sdpa"),
    # The same, of all layers.
    "FalconForCausalLM": ("FalconConfig", {}, "sdpa"),
}


@pytest.mark.parametrize("kind", OWN)
def test_attention_of_a_models_own(kind):
    """It computes as without fa, and its class is named."""
    config, options, own = OWN[kind]
    sizes = {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "intermediate_size": 64, "initializer_range": 0.2}
    outs = []
    for implementation in (own, "fa"):
        given = getattr(transformers, config)(**sizes, **options)
        torch.manual_seed(1)
        before = fa_transformers.statistics().own_attention
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            model = getattr(transformers, kind)._from_config(
                given, attn_implementation=implementation
            )
        after = fa_transformers.statistics().own_attention
        assert after - before == ({kind: 1} if implementation == "fa" else {})
        is_text = kind != "SamVisionModel"
        pixels = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(3))
        inputs = (
            {"input_ids": IDS, "attention_mask": RIGHT} if is_text else {"pixel_values": pixels}
        )
        outs.append(result_of(model.eval(), inputs))
    assert model.config._attn_implementation == own
    assert is_right(*outs[::-1], RIGHT if is_text else None)
    assert f"{kind} " in str(fa_transformers.statistics())


def test_a_warning_names_a_model_with_attention_of_its_own(monkeypatch):
    monkeypatch.setattr(fa_transformers, "_said", set())
    config = transformers.FalconConfig(
        vocab_size=128, hidden_size=64, num_hidden_layers=1, num_attention_heads=4
    )
    with pytest.warns(UserWarning, match='FalconModel .* computes as with "sdpa"; .*use_sdpa'):
        transformers.FalconModel._from_config(config, attn_implementation="fa")


def test_a_model_made_of_others_asks_the_interface():
    from transformers import LlavaForConditionalGeneration

    assert fa_transformers._asks_interface(LlavaForConditionalGeneration)
    users_own = type("UsersOwn", (transformers.LlamaForCausalLM,), {"__module__": "__main__"})
    assert fa_transformers._asks_interface(users_own)


def test_register():
    fa_transformers.register()  # again
    fa_transformers.register("other-fa")
    assert "other-fa" in transformers.AttentionInterface()
    for name in ("sdpa", "eager", "flash_attention_2"):
        with pytest.raises(ValueError, match=f"no attention for, got '{name}'; take another one"):
            fa_transformers.register(name)


@pytest.mark.ci
def test_without_transformers():
    code = "import sys; sys.modules['transformers'] = None; import fa; import fa.transformers"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "expected transformers 5 with its attention interface" in found.stderr
    assert "pip install 'transformers>=5'" in found.stderr.splitlines()[-1]


def test_register_with_an_older_transformers(monkeypatch):
    monkeypatch.setattr(fa_transformers, "sdpa_mask", lambda batch_size, cache_position: None)
    with pytest.raises(ImportError, match="from q_length and q_offset, got 5.*; pip install -U"):
        fa_transformers.register()
