# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls on a GPU that is not there: the runtime's fake driver, and a small array
library with the C exchange API of DLPack. test_call.py runs each function in a
process of its own: `fake_gpu.py NAME`."""

from __future__ import annotations

import ctypes
import sys
import warnings

import fa
import numpy as np
from fa import _native
from fa._run import arrays as _arrays
from fa._run import call as _attention
from fa._run.config import AttentionConfig

NAME = b"dlpack_exchange_api"
CODES = {
    **{"f32": (2, 32), "f16": (2, 16), "bf16": (4, 16), "f64": (2, 64)},
    **{"i32": (0, 32), "i64": (0, 64), "i1": (6, 8)},
}
STREAM = 0x1234


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("kind", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


class Tensor:
    """An array on a GPU, with an address and nothing there."""

    next = 1 << 40

    def __init__(self, shape, dtype="f16", device=0, strides=None, kind=2):
        self.shape, self.dtype, self.device, self.kind = tuple(shape), dtype, device, kind
        self.strides = strides or _arrays._contiguous(self.shape)
        self.pointer = Tensor.next
        Tensor.next += 1 << 24
        self.sizes = (ctypes.c_int64 * len(self.shape))(*self.shape)
        self.steps = (ctypes.c_int64 * len(self.shape))(*self.strides)


class Child(Tensor):
    """A subclass, of which the library may want to do more."""


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
def view_dlpack(tensor, out):
    code, bits = CODES[tensor.dtype]
    out[0] = DLTensor(tensor.pointer, tensor.kind, tensor.device, len(tensor.shape), code, bits, 1)
    out[0].shape, out[0].strides = tensor.sizes, tensor.steps
    return 0


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def current_stream(kind, device, out):
    out[0] = STREAM
    return 0


class ExchangeAPI(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("others", ctypes.c_void_p * 4),
        ("view", type(view_dlpack)),
        ("stream", type(current_stream)),
    ]


API = ExchangeAPI((1, 3), (None,) * 4, view_dlpack, current_stream)
views = 0


def capsule(api):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(api), NAME, None)


def empty(shape, *, dtype, device):
    """A result, or the memory of temporary buffers, which the fake driver fills."""
    tensor = Tensor(shape, dtype, device)
    if len(shape) == 1:
        tensor.memory = ctypes.create_string_buffer(4 * shape[0] + 256)
        tensor.pointer = -(-ctypes.addressof(tensor.memory) // 256) * 256
    return tensor


def view(tensor):
    """The long way, counted."""
    global views
    views += 1
    return _arrays.View(
        tensor.pointer, tensor.dtype, tensor.shape, tuple(tensor.strides), tensor.device
    )


copied = []


def copy(tensor):
    """Noted, with a new address and no strides of its own."""
    copied.append(tensor)
    return Tensor(tensor.shape, tensor.dtype, tensor.device)


def install():
    dtypes = {name: name for name in ("f64", "f32", "f16", "bf16")}
    assert _native.add_library([Tensor], capsule(API), empty, dtypes, lambda index: index)
    library = _arrays.Library(
        "fake",
        view,
        lambda like, shape, dtype, device: empty(shape, dtype=dtype, device=device),
        lambda device: STREAM,
        is_native=True,
        copy=copy,
    )
    _arrays._LIBRARIES.update({Tensor: library, Child: library})


def inputs(batch=2, heads=4, key_heads=2, rows=64, keys=96, dim=64, value=64, dtype="f16"):
    return (
        Tensor((batch, heads, rows, dim), dtype),
        Tensor((batch, key_heads, keys, dim), dtype),
        Tensor((batch, key_heads, keys, value), dtype),
    )


def long_way(call, *args, **options):
    """What a call gives, and whether it went the long way."""
    before = views
    result = call(*args, **options)
    return result, views != before


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}: {text}")


def attention():
    """The second call of a variant takes the short way, whatever its lengths."""
    for options in ({}, {"is_causal": True}, {"scale": 0.5}, {"scale": 0.25}):
        assert long_way(fa.attention, *inputs(), **options)[1]
        for rows in (64, 1, 300):
            out, is_long = long_way(fa.attention, *inputs(rows=rows), **options)
            assert not is_long and type(out) is Tensor
            assert (out.shape, out.dtype, out.device) == ((2, 4, rows, 64), "f16", 0)
    assert long_way(fa.attention, *inputs(), return_lse=True)[1]
    (out, lse), is_long = long_way(fa.attention, *inputs(), return_lse=True)
    assert not is_long
    assert (lse.shape, lse.dtype) == ((2, 4, 64), "f32") and out.shape == (2, 4, 64, 64)


def variants():
    """Another type, head count or head dimension is another variant."""
    for changed in (
        {},
        {"dtype": "bf16"},
        {"heads": 2},
        {"key_heads": 1},
        {"dim": 128},
        {"value": 128},
    ):
        assert long_way(fa.attention, *inputs(**changed))[1], changed
        assert not long_way(fa.attention, *inputs(**changed))[1], changed


def unusual():
    """What the short way does not take goes the long way, with its messages."""
    q, k, v = inputs()
    fa.attention(q, k, v)
    assert long_way(fa.attention, q, k, v, scale=2)[1]
    assert long_way(fa.attention, q, k, v, is_causal=1)[1]
    assert long_way(fa.attention, q, k, v, schedule={"speculate": "off"})[1]
    child = Child(q.shape)
    assert long_way(fa.attention, child, k, v)[1]
    raises(
        ValueError,
        "expected key and value to have the same length, got 96 and 95",
        lambda: fa.attention(q, k, Tensor((2, 2, 95, 64))),
    )
    raises(
        ValueError,
        "expected key of element type f16 like query, got bf16",
        lambda: fa.attention(q, Tensor(k.shape, "bf16"), v),
    )
    raises(
        ValueError,
        "expected query of rank 4",
        lambda: fa.attention(Tensor((4, 64, 64)), k, v),
    )
    raises(
        ValueError,
        "value of the same library and device as query",
        lambda: fa.attention(q, k, Tensor(v.shape, device=1)),
    )
    raises(
        ValueError,
        "value of the same library and device as query",
        lambda: fa.attention(q, k, np.zeros(v.shape, np.float16)),
    )
    raises(ValueError, "expected a finite scale", lambda: fa.attention(q, k, v, scale=np.inf))
    raises(
        ValueError,
        "data is NULL but the tensor has elements",
        lambda: setattr(q, "pointer", 0) or fa.attention(q, k, v),
    )


def strides():
    """Strides that TMA cannot express: the second kernel, also the short way."""
    q, k, v = inputs()
    fa.attention(q, k, v)
    odd = Tensor(q.shape, strides=(1 << 41, 64 * 64, 64, 1))
    asked = []
    kernel = _attention._kernel
    _attention._kernel = lambda config, target, schedule: (
        asked.append(target) or kernel(config, target, schedule)
    )
    for is_first in (True, False):
        assert long_way(fa.attention, odd, k, v)[1] == is_first
        assert not long_way(fa.attention, q, k, v)[1]
    assert asked == ["sm_90a", "sm_90"]
    assert not copied


def moved(shape, by=2, **options):
    """A tensor whose first element is not where a vector of 16 bytes begins."""
    tensor = Tensor(shape, **options)
    tensor.pointer += by
    return tensor


def copies():
    """What no load of 16 bytes takes is copied in each call, and said once."""
    q, k, v = inputs()
    cut = (4 * 64 * 65, 64 * 65, 65, 1)  # x[..., 1:] of head dim 65
    unreadable = (
        moved(q.shape),
        moved(q.shape, 8),
        moved(q.shape, 0, strides=cut),
        moved(q.shape, strides=cut),
        Tensor(q.shape, strides=(4 * 64 * 128, 64 * 128, 128, 2)),
        Tensor(q.shape, strides=(4 * 64 * 64, 64 * 64, 1, 64)),
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x in unreadable:
            for _ in range(2):  # and again: its values may be others
                out, is_long = long_way(fa.attention, x, k, v)
                assert is_long and copied == [x] and out.shape == q.shape
                copied.clear()
            assert not long_way(fa.attention, q, k, v)[1]
        fa.attention(unreadable[0], moved(k.shape, 4), moved(v.shape, 6))
        assert len(copied) == 3
        copied.clear()
    assert len(caught) == 1 and caught[0].filename == __file__
    assert "query of shape [2, 4, 64, 64] with strides [16384, 4096, 64, 1] at an address 2" in str(
        caught[0].message
    )
    # Rows that no vector could hold are read element by element.
    q, k, v = inputs(dim=20, value=12)
    fa.attention(moved(q.shape), moved(k.shape), moved(v.shape))
    assert not copied
    # The strides of a dimension of one element say nothing.
    one = moved((1, 1, 1, 64), 0, strides=(3, 5, 7, 1))
    fa.attention(one, *(Tensor((1, 1, 96, 64)) for _ in range(2)))
    assert not copied


def copies_of_a_gradient():
    """Likewise."""
    q, k, v = inputs()
    out, lse, out_grad = Tensor(q.shape), Tensor(q.shape[:3], "f32"), Tensor(q.shape)
    wrong = moved(q.shape), moved(k.shape, strides=(2 * 96 * 65, 96 * 65, 65, 1)), moved(v.shape)
    with warnings.catch_warnings(record=True):
        for _ in range(2):
            gradients, is_long = long_way(fa.attention_backward, *wrong, out, lse, out_grad)
            assert is_long and copied == list(wrong)
            assert [x.shape for x in gradients[:3]] == [x.shape for x in (q, k, v)]
            copied.clear()
    gradients, is_long = long_way(fa.attention_backward, q, k, v, out, lse, out_grad)
    assert not is_long and not copied


def functions():
    """Score and mask functions and what they capture: the short way from the second call."""
    q, k, v = inputs()

    def call(slopes, ids, factor=0.5, **options):
        def score_mod(score, b, h, q_idx, kv_idx):
            return score + slopes[h] * (q_idx - kv_idx) * factor

        def mask_mod(b, h, q_idx, kv_idx):
            return ids[b, q_idx] == ids[b, kv_idx]

        return fa.attention(q, k, v, score_mod=score_mod, mask_mod=mask_mod, **options)

    slopes, ids = Tensor((4,), "f32"), Tensor((2, 96), "i32")

    def is_short(*args):
        before = views
        call(*args)
        return views - before == 2  # tracing looks at each captured array once

    assert not is_short(slopes, ids)
    before = fa.compile_count()
    assert is_short(slopes, ids) and is_short(Tensor((8,), "f32"), ids)
    assert fa.compile_count() == before
    (out, lse), is_long = long_way(call, slopes, ids, return_lse=True)
    assert is_long and out.shape == (2, 4, 64, 64) and lse.shape == (2, 4, 64)
    # Another type, number or stride is another variant.
    compiled = fa.compile_count()
    call(Tensor((4,), "bf16"), ids)
    call(slopes, Tensor((2, 96), "i64"))
    call(slopes, ids, 0.25)
    call(Tensor((4,), "f32", strides=(3,)), ids)
    assert fa.compile_count() == compiled + 4
    call(Tensor((8,), "f32", strides=(5,)), ids)
    call(Tensor((4,), "f32", strides=(1,)), Tensor((2, 99), "i32", strides=(0, 1)))
    assert fa.compile_count() == compiled + 4
    raises(
        ValueError,
        "captured array 0 to have elements, got shape [0] for 64 queries and 96 keys; give it",
        lambda: call(Tensor((0,), "f32"), ids),
    )
    raises(
        ValueError,
        "captured array 0 (Tensor of shape [4]) to be of the same library and device as query, "
        "got CUDA device 1 and CUDA device 0; move it",
        lambda: call(Tensor((4,), "f32", device=1), ids),
    )
    raises(
        ValueError,
        "captured array 1 (ndarray of shape [2, 64]) to be of the same library and device as "
        "query, got the CPU and CUDA device 0; move it",
        lambda: call(slopes, np.zeros((2, 64), np.int32)),
    )
    raises(
        fa.TraceError,
        "2 indices for a captured array of shape [64]",
        lambda: call(slopes, Tensor((64,), "i32")),
    )
    # What a coordinate indexes is looked at in each call, on the short way, too.
    for short in (Tensor((3,), "f32"), Tensor((1,), "f32")):
        raises(ValueError, "which h indexes, to have at least 4", lambda s=short: call(s, ids))
    raises(
        ValueError,
        "dimension 1 of captured array 1, which kv_idx indexes, to have at least 96 elements "
        "(keys), got shape [2, 64]; give it these, or keep the index in range, as "
        "fa.math.minimum(kv_idx, 63) does",
        lambda: call(slopes, Tensor((2, 64), "i32")),
    )
    # Strides that TMA cannot express: the second kernel, with what is captured.
    q = Tensor(q.shape, strides=(1 << 41, 64 * 64, 64, 1))
    assert not is_short(slopes, ids)
    assert is_short(slopes, ids)


def prepared():
    """Lists that are there: the short way, for the arrays and lengths that they are of."""
    from fa._run.variant import number_of

    q, k, v = inputs()
    ids, others = Tensor((2, 96), "i32"), Tensor((2, 96), "i32")

    def mask_mod(b, h, q_idx, kv_idx):
        return ids[b, q_idx] == ids[b, kv_idx]

    variant = fa.trace(mask_mod=mask_mod)
    config = AttentionConfig("f16", 4, 2, 64, 64, variant=variant)
    made = fa.compile(config, "sm_90a")
    assert made.list_reads == (3,)
    number = number_of(config.variant)
    calls = _native.prepared_calls()

    def known(*arrays, of=ids):
        return _native.prepared_attention(calls, *arrays, False, None, False, number, (of,))

    assert known(q, k, v) is None
    _native.remember_attention(
        *(q, k, v, False, None, False, number, (ids,)),
        first=made.program(0),
        second=None,
        extents=[],
        prepared=calls,
        buffer=1 << 20,
        stream=STREAM,
        reads=made.list_reads,
    )
    assert known(q, k, v).shape == (2, 4, 64, 64)
    assert known(*inputs()).shape == (2, 4, 64, 64)
    assert known(q, k, v, of=others) is None
    assert known(*inputs(rows=65)) is None
    _native.forget_calls(calls)
    assert known(q, k, v) is None
    # What makes no lists is known whether or not a mask was prepared, what makes them is not.
    rest = (False, None, False, number, (ids,))
    for reads in (None, made.list_reads):
        _native.remember_attention(
            *(q, k, v, *rest), first=made.program(0), second=None, extents=[], reads=reads
        )
        assert _native.attention(q, k, v, *rest) is not None
        assert (known(q, k, v) is None) == (reads is not None)


def prepared_gradient():
    """Lists that are there, of a gradient, whose other buffers lie beside them."""
    from fa._run.variant import number_of

    q, k, v = inputs()
    ids, others = Tensor((2, 96), "i32"), Tensor((2, 96), "i32")
    results = (Tensor((2, 4, 64, 64)), Tensor((2, 4, 64), "f32"), Tensor((2, 4, 64, 64)))

    def mask_mod(b, h, q_idx, kv_idx):
        return ids[b, q_idx] == ids[b, kv_idx]

    config = AttentionConfig("f16", 4, 2, 64, 64, variant=fa.trace(mask_mod=mask_mod))
    made = fa.compile(config, "sm_90a", backward="none")
    assert made.list_reads == (3,)
    calls, number = _native.prepared_calls(), number_of(config.variant)

    def known(*arrays, of=ids, deterministic=False):
        rest = (False, None, False, number, (of,), *results, None, deterministic)
        return _native.prepared_attention_backward(calls, *arrays, *rest)

    def remember(**lists):
        _native.remember_attention_backward(
            *(q, k, v, False, None, False, number, (ids,), *results, None, False),
            first=made.program(0),
            extents=[],
            reads=made.list_reads,
            **lists,
        )

    assert known(q, k, v) is None
    remember()  # which makes its own lists
    assert known(q, k, v) is None
    remember(prepared=calls, buffer=1 << 20, stream=STREAM)
    assert [x.shape for x in known(q, k, v)] == [x.shape for x in (q, k, v)]
    assert known(q, k, v, of=others) is None
    assert known(q, k, v, deterministic=True) is None
    assert known(*inputs(keys=97)) is None
    remember(prepared=calls, buffer=1 << 20, stream=STREAM + 1)
    assert known(q, k, v) is None  # on another stream
    _native.forget_calls(calls)
    assert known(q, k, v) is None


def gradient():
    """The second gradient of a call takes the short way, too, whatever its lengths."""

    def given(batch=2, heads=4, rows=64, value=64, dtype="f16", **sizes):
        arrays = inputs(batch=batch, heads=heads, rows=rows, value=value, dtype=dtype, **sizes)
        shape = (batch, heads, rows, value)
        return (*arrays, Tensor(shape, dtype), Tensor(shape[:3], "f32"), Tensor(shape, dtype))

    def options(**options):
        if options.pop("has_lse_grad", False):
            options["lse_grad"] = Tensor((2, 4, options.pop("rows", 64)), "f32")
        return options

    kinds = ({}, {"is_causal": True}, {"deterministic": True}, {"has_lse_grad": True})
    for kind in kinds:
        assert long_way(fa.attention_backward, *given(), **options(**kind))[1], kind
        arrays = given(keys=7)
        gradients, is_long = long_way(fa.attention_backward, *arrays, **options(**kind))
        assert not is_long, kind
        for found, array in zip(gradients[:3], arrays):
            assert (found.shape, found.dtype, found.device) == (array.shape, "f16", 0)
    # What is true is True: the default's kernel is another one.
    assert long_way(fa.attention_backward, *given(dtype="bf16"), deterministic=1)[1]
    assert not long_way(fa.attention_backward, *given(dtype="bf16"), deterministic=True)[1]
    assert long_way(fa.attention_backward, *given(dtype="bf16"))[1]
    assert long_way(fa.attention_backward, *given(value=128))[1]
    # What does not fit goes the long way, with its messages.
    q, k, v, out, lse, out_grad = given()
    assert not long_way(fa.attention_backward, q, k, v, out, lse, out_grad)[1]
    text = "give the results of fa.attention"
    for wrong in (
        (Tensor((2, 4, 63, 64)), lse, out_grad),
        (out, Tensor((2, 4, 64)), out_grad),
        (out, lse, Tensor(out.shape, "bf16")),
        (out, Tensor((2, 4, 64, 1), "f32"), out_grad),
    ):
        raises(ValueError, text, lambda w=wrong: fa.attention_backward(q, k, v, *w))
    raises(
        ValueError,
        "out_grad of the same library and device as query",
        lambda: fa.attention_backward(q, k, v, out, lse, Tensor(out.shape, device=1)),
    )
    assert long_way(fa.attention_backward, q, k, v, out, lse, out_grad, schedule={"stages": 2})[1]


def kernel():
    """A kernel's second call on a device."""
    config = AttentionConfig("f16", 4, 2, 64, 64, return_lse=True)
    kernel = fa.compile(config, "sm_90a")
    out, lse = Tensor((2, 4, 64, 64)), Tensor((2, 4, 64), "f32")
    assert long_way(kernel, *inputs(), out, lse)[1]
    assert not long_way(kernel, *inputs(), out, lse)[1]
    assert not long_way(kernel, *inputs(keys=7), out, lse)[1]
    raises(
        ValueError,
        "expected 5 arrays, inputs and then results, got 4",
        lambda: kernel(*inputs(), out),
    )
    raises(
        ValueError,
        "argument 4 (out1): expected element type f32, got f16",
        lambda: kernel(*inputs(), out, Tensor((2, 4, 64))),
    )
    raises(
        ValueError,
        "expected each element of argument 3, a result, at an address of its own",
        lambda: kernel(*inputs(), Tensor(out.shape, strides=(0, 4096, 64, 1)), lse),
    )
    raises(
        ValueError,
        "argument 3 of the same library and device",
        lambda: kernel(*inputs(), Tensor(out.shape, device=1), lse),
    )


def failures():
    """An exception of the library's, and a launch that the driver refuses."""
    q, k, v = inputs()
    fa.attention(q, k, v)
    q.dtype = "nothing"
    raises(Exception, "", lambda: fa.attention(q, k, v))
    assert not long_way(fa.attention, *inputs())[1]
    broken = ExchangeAPI((2, 0), (None,) * 4, view_dlpack, current_stream)
    dtypes = {name: name for name in ("f64", "f32", "f16", "bf16")}
    assert not _native.add_library([Tensor], capsule(broken), empty, dtypes, lambda index: index)
    assert not _native.add_library([Tensor], None, empty, dtypes, lambda index: index)


if __name__ == "__main__":
    install()
    globals()[sys.argv[1]]()
