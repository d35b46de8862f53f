# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays that score and mask functions read: arguments of the kernel, element by element.

PyTorch's tensors hand an index that they don't know over to it
(`__torch_function__`). Other arrays don't: `IndexableArray` (`fa.array`) does. An
array with indices for some of its dimensions is `PartlyIndexed`; computed with, it
becomes `Elements`.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from fa._run.arrays import View, compute_type, describe
from fa._run.variant import Extent
from fa._trace.errors import error, no_attribute
from fa._trace.scalars import (
    COORDINATE_NAMES,
    COORDINATES,
    FUNCTIONS,
    I32,
    Region,
    Scalar,
    constant,
    current_region,
    is_tracing,
)

MAX_CAPTURES = 16
MAX_RANK = 8
MAX_ELEMENTS = 1024
"""The largest size of an array in arithmetic: each of its elements is operations of its own."""

_NARROW = ("f32", "f16", "bf16")


class Capture:
    """An array that a function reads: an argument of the kernel."""

    __slots__ = ("array", "view", "name", "type", "rank", "is_padded")

    def __init__(self, array: Any, name: str, computed: str) -> None:
        self.array = array
        self.name = name
        try:
            self.view: View = describe(array)
        except (TypeError, ValueError) as reason:
            raise _unreadable(array, reason) from None
        view = self.view
        if compute_type(view.dtype) not in (computed, "f32"):
            raise error(
                f"captures an array that a kernel can't read: got {array.dtype}",
                "scores are float32: capture x.float() or x.astype(numpy.float32) of it, or make "
                "query, key and value float64",
            )
        self.rank = len(view.shape)
        for dim, size in enumerate(view.shape):
            if size > COORDINATES[1]:
                raise error(
                    f"captures an array of shape {list(view.shape)}, whose size in dimension "
                    f"{dim} is above {COORDINATES[1]} (2^30 - 1): kernels count with 32 bits",
                    "give it more dimensions and indices, such as "
                    "array.reshape(-1, 65536)[n // 65536, n % 65536]",
                )
        # A kernel wants unit stride in the last dimension: one of size 1 has it.
        self.is_padded = self.rank > 0 and view.shape[-1] > 1 and view.strides[-1] != 1
        if self.rank + self.is_padded > MAX_RANK:
            raise error(
                f"captures an array of rank {self.rank}, which is above "
                f"{MAX_RANK - self.is_padded}",
                "index some of its dimensions before the call",
            )
        sizes = "?x" * self.rank + "1x" * self.is_padded
        self.type = f"tensor<{sizes}{view.dtype.replace('u', 'i')}>"


def _unreadable(array: Any, reason: Exception) -> Exception:
    got, _, remedy = str(reason).rpartition("; ")
    if "float32, float16, bfloat16 or float64, got" in got:
        got = f"got {getattr(array, 'dtype', type(array).__name__)}"
        remedy = "convert it to float32, float16, bfloat16, int64, int32, int8, uint8 or bool"
    return error(f"captures an array that a kernel can't read: {got}", remedy)


class Captures:
    """The captured arrays of a score and a mask function, each once.

    Args:
        compute_type: the type of the floats that the functions compute with.
    """

    def __init__(self, compute_type: str = "f32") -> None:
        self.compute_type = compute_type
        self.list: list[Capture] = []
        self._by_id: dict[int, Capture] = {}
        self.lengths: set[str] = set()
        """Which of "query_length" and "key_length" are read."""
        self.extents: dict[Extent, None] = {}
        """The sizes that indices need, in order."""
        self.is_certain = True
        """Whether no array's values were read while the function was traced."""

    def reset(self, arrays: list[Capture], lengths: set[str], extents: dict[Extent, None]) -> None:
        """Forgets all but these."""
        self.list, self.lengths, self.extents = arrays, lengths, extents
        self._by_id = {id(capture.array): capture for capture in arrays}

    def of(self, array: Any) -> Capture:
        """The capture of an array; the same one for the same object."""
        found = self._by_id.get(id(array))
        if found is None:
            if len(self.list) == MAX_CAPTURES:
                raise error(
                    f"captures more than {MAX_CAPTURES} arrays, the limit of a kernel",
                    "put some of them into one array",
                )
            found = Capture(array, f"%captured{len(self.list)}", self.compute_type)
            self.list.append(found)
            self._by_id[id(array)] = found
        return found


# --- Values ---------------------------------------------------------------------------


def is_array(value: Any) -> bool:
    """Whether a value looks like an array of some library."""
    if isinstance(value, (type, types.ModuleType)):  # numpy.float32, numpy itself
        return False
    return hasattr(value, "shape") and hasattr(value, "dtype")


def is_whole(value: Any) -> bool:
    """Whether a value is an array with other than one element, as it was captured."""
    if type(value) in (Scalar, bool, int, float):
        return False
    value = as_array(value)
    return is_array(value) and any(size != 1 for size in value.shape)


def as_array(value: Any) -> Any:
    """The array that an `IndexableArray` is of, or the value itself."""
    return value._array if type(value) is IndexableArray else value


def is_traced(value: Any) -> bool:
    """Whether a value, or one in a tuple, list or slice, is of a function that is traced."""
    if isinstance(value, (tuple, list)):
        return any(map(is_traced, value))
    if isinstance(value, slice):
        return is_traced((value.start, value.stop, value.step))
    return isinstance(value, (Scalar, PartlyIndexed, Elements))


def lift(region: Region, value: Any) -> Scalar:
    """A scalar of the region: numbers as constants, arrays of one element read."""
    if type(value) is Scalar:
        if value._region is not region:
            raise error(
                f"uses {value.describe()} of another function", "compute it anew in this one"
            )
        return value
    if isinstance(value, (bool, int, float)):
        return constant(region, value)
    if isinstance(value, np.generic):
        return lift(region, value.item())
    if isinstance(value, (PartlyIndexed, Elements)):
        value.require_scalar()
    value = as_array(value)
    if is_array(value):
        shape = tuple(value.shape)
        if any(size != 1 for size in shape):
            raise error(
                f"computes with a captured array of shape {list(shape)} as if it were a number",
                "index it, as in bias[h, q_idx, kv_idx]",
            )
        return read(region, region.captures.of(value), [0] * len(shape))
    raise error(
        f"computes with a {type(value).__name__}, which is no number",
        "use numbers, traced values and elements of captured arrays",
    )


# --- Reading --------------------------------------------------------------------------


def _index_text(region: Region, capture: Capture, dim: int, index: Any) -> str:
    """An index as Python means it, negative ones from the end."""
    size = capture.view.shape[dim]
    scalar = lift(region, index)
    if scalar._type not in ("index", "i64"):
        raise error(
            f"indexes dimension {dim} of a captured array of shape "
            f"{list(capture.view.shape)} with {scalar.describe()}",
            "use an integer: .to(torch.int32) or //",
        )
    if scalar._constant is not None and not -size <= scalar._constant < size and size:
        raise error(
            f"index {scalar._constant} is out of range for dimension {dim} of size {size} of "
            "a captured array",
            "keep it in range",
        )
    if scalar._type == "i64":  # what lies beyond 32 bits is beyond the array, too
        name, bounds = scalar._name, scalar._range
        for op, bound in (("maxsi", I32[0]), ("minsi", I32[1])):
            known = region.op(f"arith.constant {bound} : i64")
            name = region.op(f"arith.{op} {name}, {known} : i64")
        name = region.op(f"arith.index_cast {name} : i64 to index")
        bounds = tuple(min(max(bound, I32[0]), I32[1]) for bound in bounds)
        scalar = Scalar(region, name, "index", bounds)
    if scalar._range[0] >= 0:
        return scalar._name
    position = region.op(f"arith.constant {dim} : index")
    length = region.op(f"tensor.dim {capture.name}, {position} : {capture.type}")
    from_end = region.op(f"arith.addi {scalar._name}, {length} : index")
    if scalar._range[1] < 0:
        return from_end
    zero = region.op("arith.constant 0 : index")
    negative = region.op(f"arith.cmpi slt, {scalar._name}, {zero} : index")
    return region.op(f"arith.select {negative}, {from_end}, {scalar._name} : index")


def _note_extents(region: Region, capture: Capture, indices: list[Any], reader: str) -> None:
    """Notes the sizes that an array needs because coordinates index it."""
    for dim, index in enumerate(indices):
        if type(index) is not Scalar:
            continue
        if region.sequences and index._name == region.sequences[0]:
            size, sequences = capture.view.shape[dim], region.sequences[1]
            if size < sequences if not reader else size not in (1, sequences):
                what = f"the array that {reader} reads" if reader else f"captured {capture.name}"
                raise error(
                    f"expected dimension {dim} of {what} to have a size of "
                    f"{sequences} (sequences){' or 1' if reader else ''}, got shape "
                    f"{list(capture.view.shape)}",
                    "give it an element for each sequence",
                )
        elif index._name in COORDINATE_NAMES:
            number = region.captures.list.index(capture)
            extent = Extent(reader, COORDINATE_NAMES[index._name], number, dim)
            region.captures.extents[extent] = None


def read(region: Region, capture: Capture, indices: list[Any], reader: str = "") -> Scalar:
    """An element of a captured array, as a type that is computed with.

    Args:
        region: the function's.
        capture: the array.
        indices: one for each dimension.
        reader: the function of fa that reads ("fa.masks.documents"), "" for the user's.
    """
    _note_extents(region, capture, indices, reader)
    names = [_index_text(region, capture, dim, index) for dim, index in enumerate(indices)]
    if capture.is_padded:
        names.append(region.op("arith.constant 0 : index"))
    value = region.op(f"tensor.extract {capture.name}[{', '.join(names)}] : {capture.type}")
    dtype = capture.view.dtype
    if dtype == region.real:
        return Scalar(region, value, dtype)
    if dtype in _NARROW:
        wide = region.op(f"arith.extf {value} : {dtype} to {region.real}")
        return Scalar(region, wide, region.real)
    if dtype == "i1":
        return Scalar(region, value, "i1", (0, 1))
    if dtype == "i64":
        return Scalar(region, value, "i64")
    if dtype == "u8":
        name = region.op(f"arith.index_castui {value} : i8 to index")
        return Scalar(region, name, "index", (0, 255))
    name = region.op(f"arith.index_cast {value} : {dtype} to index")
    return Scalar(region, name, "index", I32 if dtype == "i32" else (-128, 127))


def get_item(array: Any, index: Any, reader: str = "") -> Any:
    """array[index], of a captured array with traced values in the index."""
    if isinstance(array, (Scalar, PartlyIndexed, Elements)):
        return array[index]
    region = current_region("an element of a captured array")
    capture = region.captures.of(as_array(array))
    return PartlyIndexed(region, capture, [None] * capture.rank, reader)[index]


FUNCTIONS["__getitem__"] = get_item


def take(array: Any, index: Any, axis: Any = None, **options: Any) -> Any:
    """array.reshape(-1)[index], or the elements of one dimension, as PyTorch and NumPy have it."""
    shape = tuple(array.shape)
    if axis is not None:
        return get_item(array, (*(slice(None),) * (axis % len(shape)), index))
    if options.get("mode") not in (None, "raise", "clip"):
        raise error(f"take with mode {options['mode']!r}", "index it, as in table[i % size]")
    size, rest, indices = int(np.prod(shape)), index, []
    if len(shape) > 1:  # a negative one counts from the end of all
        rest = FUNCTIONS["where"](FUNCTIONS["lt"](index, 0), FUNCTIONS["add"](index, size), index)
        rest = FUNCTIONS["clamp"](rest, 0, size - 1)
    for dim in shape[:0:-1]:
        indices.append(FUNCTIONS["remainder"](rest, dim))
        rest = FUNCTIONS["floor_divide"](rest, dim)
    return get_item(array, (rest, *reversed(indices)))


def _gathering(name: str) -> Callable[..., Any]:
    def gather(array: Any, *args: Any, **options: Any) -> Any:
        index = next((x for x in (*args, *options.values()) if type(x) is Scalar), None)
        shape = list(getattr(array, "shape", ()))
        if len(shape) != 1 or index is None:
            raise error(
                f"{name} of a captured array of shape {shape}",
                "index it, as in bias[h, q_idx, kv_idx]",
            )
        return get_item(array, index)

    gather.__doc__ = f"{name} of a row, by one index."
    return gather


FUNCTIONS["take"] = take
FUNCTIONS["embedding"] = lambda index, weight, *args, **options: get_item(weight, index)
for _name in ("gather", "index_select", "take_along_dim", "take_along_axis", "select"):
    FUNCTIONS[_name] = _gathering(_name)


def element(array: Any, index: Any, reader: str) -> Any:
    """array[index] in one of fa's own functions, whose name is `reader`.

    While tracing, any array can be indexed, and sizes that do not fit the call are an error
    that names the function. Otherwise the array's own indexing decides; there, too, a
    dimension of size 1 stands for all.
    """
    if is_tracing() and not ("jax" in sys.modules and _is_of_jax(index)):
        return get_item(array, index, reader)
    index = index if isinstance(index, tuple) else (index,)
    return array[tuple([0 if size == 1 else at for size, at in zip(array.shape, index)])]


class PartlyIndexed:
    """A captured array of which some dimensions have an index."""

    def __init__(
        self, region: Region, capture: Capture, indices: list[Any], reader: str = ""
    ) -> None:
        self._region = region
        self._capture = capture
        self._indices = indices
        self._reader = reader
        self._is_stopped = not region.is_recording()

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions without an index."""
        sizes = self._capture.view.shape
        return tuple(size for size, index in zip(sizes, self._indices) if index is None)

    @property
    def ndim(self) -> int:
        """How many dimensions have no index."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Any:
        return (self[n] for n in range(self.shape[0]))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not (name in _OF_ELEMENTS or name in FUNCTIONS):
            raise no_attribute(self._describe(), name, "that can be traced; index them, too")
        return getattr(self.elements(), name)

    def __matmul__(self, other: Any) -> Any:
        return dot(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return dot(other, self)

    def __array__(self, *args: Any, **options: Any) -> Any:
        self.require_scalar()

    def _describe(self) -> str:
        return f"a captured array of which dimensions {list(self.shape)} have no index"

    def __getitem__(self, index: Any) -> Any:
        if not is_traced(index) and not _is_plain(index):
            return self.elements()[index]
        given = index if isinstance(index, tuple) else (index,)
        free = [dim for dim, known in enumerate(self._indices) if known is None]
        dots = [at for at, item in enumerate(given) if item is Ellipsis]
        if len(dots) > 1:
            raise error("an index has more than one ...", "leave one")
        for item in given:
            if item is None or isinstance(item, (list, bool, str)):
                raise error(
                    f"indexes a captured array with {item!r}",
                    "give an integer or a traced integer for each dimension",
                )
        if len(given) - len(dots) > len(free):
            shape = list(self.shape)
            raise error(
                f"{len(given) - len(dots)} indices for a captured array of shape {shape}, "
                f"which has {len(free)} dimensions",
                f"give at most {len(free)}",
            )
        if dots:
            at = dots[0]
            missing = len(free) - len(given) + 1
            given = (*given[:at], *[slice(None)] * missing, *given[at + 1 :])
        indices = list(self._indices)
        for dim, item in zip(free, given):
            if isinstance(item, slice) and item.start is item.stop is item.step is None:
                continue
            if isinstance(item, slice):
                raise error(
                    f"indexes a captured array with {item!r}",
                    "give an integer or a traced integer, or : for a later index",
                )
            indices[dim] = item if isinstance(item, Scalar) else lift(self._region, item)
        if any(index is None for index in indices):
            result = PartlyIndexed(self._region, self._capture, indices, self._reader)
            return result.detach() if self._is_stopped else result
        element = read(self._region, self._capture, indices, self._reader)
        return element.stopped() if self._is_stopped else element

    def detach(self) -> PartlyIndexed:
        """The same elements as constants to gradients."""
        result = PartlyIndexed(self._region, self._capture, self._indices, self._reader)
        result._is_stopped = True
        return result

    def require_scalar(self) -> None:
        """Raises that dimensions are left."""
        raise error(f"computes with {self._describe()}", "index them, too")

    def elements(self) -> Elements:
        """All elements, each read."""
        shape = self.shape
        _require_few(shape, self._describe())
        result = np.empty(shape, object)
        for at in np.ndindex(shape):
            result[at] = self[at]
        return Elements(self._region, result)

    def _refuse(self, *others: Any, **options: Any) -> Any:
        self.require_scalar()

    __bool__ = __float__ = __int__ = __index__ = __hash__ = _refuse

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return Scalar.__torch_function__(function, types, args, kwargs)

    __array_function__ = Scalar.__array_function__
    __array_ufunc__ = Scalar.__array_ufunc__


def _is_plain(index: Any) -> bool:
    """Whether an index is of integers, `:` and `...`, and so of the array itself."""
    if isinstance(index, tuple):
        return all(map(_is_plain, index))
    if isinstance(index, slice):
        return index.start is index.stop is index.step is None
    return index is Ellipsis or (isinstance(index, (int, np.integer)) and type(index) is not bool)


def _require_few(shape: tuple[int, ...], what: str) -> None:
    if np.prod(shape) > MAX_ELEMENTS:
        raise error(
            f"computes with {what}, {int(np.prod(shape))} elements, each with operations of its "
            f"own, more than {MAX_ELEMENTS}",
            "index them, or compute the parts without coordinates before the call",
        )


class Elements:
    """A small array of traced elements, the result of arithmetic with rows of captured arrays.

    NumPy keeps the elements and knows shapes and broadcasting; operators and
    functions go to each element.
    """

    def __init__(self, region: Region, values: np.ndarray) -> None:
        self._region = region
        self._values = values
        if not region.is_recording():
            self._values = apply(_anew, values)

    shape = property(lambda self: self._values.shape)
    ndim = property(lambda self: self._values.ndim)
    T = property(lambda self: Elements(self._region, self._values.T))

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Any:
        return (self[n] for n in range(len(self._values)))

    def __getitem__(self, index: Any) -> Any:
        if is_traced(index):
            raise error(
                "indexes computed elements with a traced value", "index the captured array instead"
            )
        return self._of(self._values[index])

    def _of(self, value: Any) -> Any:
        return Elements(self._region, value) if isinstance(value, np.ndarray) else value

    def __getattr__(self, name: str) -> Any:
        function = None if name.startswith("__") else FUNCTIONS.get(name)
        if function is None:
            what = f"an array of {list(self.shape)} traced elements"
            raise no_attribute(what, name, "that can be traced; see fa.math for what can")
        return lambda *args, **options: over_elements(function, self, *args, **options)

    def require_scalar(self) -> None:
        """Raises that it is an array."""
        raise error(
            f"uses an array of {list(self.shape)} traced elements as a number",
            "sum the elements, or index them",
        )

    def _refuse(self, *others: Any, **options: Any) -> Any:
        self.require_scalar()

    __bool__ = __float__ = __int__ = __index__ = __hash__ = _refuse

    __torch_function__ = PartlyIndexed.__torch_function__
    __array_function__ = Scalar.__array_function__
    __array_ufunc__ = Scalar.__array_ufunc__

    # Shapes and reductions, by the names of PyTorch and NumPy.
    def unsqueeze(self, dim: int) -> Any:
        """With a dimension of size 1 at `dim`."""
        return self._of(np.expand_dims(self._values, dim))

    def squeeze(self, dim: Any = None) -> Any:
        """Without the dimensions of size 1, or without that one."""
        if dim is not None and self.shape[dim] != 1:
            return self
        return self._of(np.squeeze(self._values, dim)[()])

    def reshape(self, *shape: Any) -> Any:
        """In another shape, given as one argument or as several."""
        return self._of(self._values.reshape(*shape)[()])

    view = reshape

    def _reduce(self, combine: Any, dim: Any, keepdim: bool, axis: Any, keepdims: bool) -> Any:
        axis = dim if axis is None else axis
        axes = tuple(range(self.ndim)) if axis is None else axis
        axes = (axes,) if isinstance(axes, int) else tuple(axes)
        moved = np.moveaxis(self._values, axes, range(len(axes)))
        kept = moved.shape[len(axes) :]
        flat = moved.reshape(-1, *kept)
        if flat.shape[0] == 0:
            raise error("reduces an array without elements", "give it some")
        result = flat[0]
        for row in flat[1:]:
            result = np.frompyfunc(combine, 2, 1)(result, row) if kept else combine(result, row)
        if not (keepdim or keepdims):
            return self._of(result)
        one = np.empty(kept, object)
        one[...] = result
        return self._of(np.expand_dims(one, tuple(axis % self.ndim for axis in axes)))

    def mean(self, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
        """The mean over dimensions, a float."""
        total = self.sum(dim, keepdim, **options)
        count = self._values.size // (total._values.size if isinstance(total, Elements) else 1)
        return FUNCTIONS["true_divide"](total, count)

    def any(self, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
        """Whether one is true (not 0)."""
        return over_elements(FUNCTIONS["truth"], self)._any(dim, keepdim, **options)

    def all(self, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
        """Whether all are true (not 0)."""
        return over_elements(FUNCTIONS["truth"], self)._all(dim, keepdim, **options)

    def dot(self, other: Any) -> Any:
        """`dot`."""
        return dot(self, other)

    __matmul__ = dot

    def __rmatmul__(self, other: Any) -> Any:
        return dot(other, self)


def _reduced_by(name: str) -> Callable[..., Any]:
    def reduce(
        self: Elements,
        dim: Any = None,
        keepdim: bool = False,
        *,
        axis: Any = None,
        keepdims: bool = False,
        dtype: Any = None,
    ) -> Any:
        values = self if dtype is None else over_elements(FUNCTIONS["type"], self, dtype)
        return values._reduce(FUNCTIONS[name], dim, keepdim, axis, keepdims)

    reduce.__doc__ = f"{name} over dimensions, over all if none is given."
    return reduce


def _largest(name: str) -> Callable[..., Any]:
    def extreme(self: Elements, dim: Any = None, *others: Any, axis: Any = None, **options: Any):
        if self._region.is_torch and dim is not None:
            raise error(
                f"{name} over a dimension, which gives indices, too", f"use a{name} for the values"
            )
        return getattr(self, f"a{name}")(dim, *others, axis=axis, **options)

    extreme.__doc__ = f"The {name}imum; over a dimension NumPy's alone."
    return extreme


for _name, _combine in {
    **{"sum": "add", "prod": "mul", "amax": "maximum", "amin": "minimum"},
    **{"_any": "logical_or", "_all": "logical_and"},
}.items():
    setattr(Elements, _name, _reduced_by(_combine))
for _name in ("max", "min"):
    setattr(Elements, _name, _largest(_name))

_OF_ELEMENTS = (
    *("sum", "prod", "mean", "amax", "amin", "max", "min", "any", "all"),
    *("dot", "T", "unsqueeze", "squeeze", "reshape", "view"),
)
"""Functions of whole arrays of elements; all others apply to each element."""


def _anew(x: Any) -> Any:
    return x.anew() if type(x) is Scalar else x


def _elements_of(value: Any) -> Any:
    """A value in arithmetic with elements: an object array or a number."""
    if isinstance(value, PartlyIndexed):
        value = value.elements()
    if isinstance(value, Elements):
        return value._values
    value = as_array(value)
    if is_array(value) and not isinstance(value, np.generic) and len(value.shape) > 0:
        region = current_region("an element of a captured array")
        capture = region.captures.of(value)
        return PartlyIndexed(region, capture, [None] * capture.rank).elements()._values
    return value


def apply(function: Callable[..., Any], *arrays: np.ndarray, **options: Any) -> np.ndarray:
    """The function of each element of arrays of objects that broadcast.

    Of arrays without dimensions an array, too.
    """
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        shapes = " and ".join(str(list(array.shape)) for array in arrays)
        raise error(
            f"computes with arrays of shapes {shapes}", "give arrays whose shapes broadcast"
        ) from None
    result = np.empty(shape, object)
    for at, values in zip(
        np.ndindex(shape), zip(*(np.broadcast_to(x, shape).flat for x in arrays))
    ):
        result[at] = function(*values, **options)
    return result


def over_elements(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Applies the function to each element after broadcasting; of numbers alone a number."""
    region = next((x._region for x in args if is_traced(x)), None)
    if region is None:
        region = current_region("an array of traced elements")
    arrays = [x if isinstance(x, np.ndarray) else _array_of(x) for x in map(_elements_of, args)]
    result = apply(function, *arrays, **options)
    return Elements(region, result) if result.shape else result[()]


def own_of_elements(name: str, x: Any) -> Any:
    """The method of arrays of elements by that name, if x is such an array and has it."""
    if name not in _OF_ELEMENTS or not isinstance(x, (PartlyIndexed, Elements)):
        return None
    return getattr(x.elements() if isinstance(x, PartlyIndexed) else x, name)


def _of_elements(name: str) -> Callable[..., Any]:
    def apply(x: Any, *args: Any, **options: Any) -> Any:
        own = own_of_elements(name, x)
        if own is not None:
            return own(*args, **options)
        if name in ("any", "all"):
            return FUNCTIONS["truth"](x)  # of one number
        if name == "unsqueeze":
            return Elements(x._region, _array_of(x)).unsqueeze(*args, **options)
        return x

    apply.__doc__ = f"{name} of an array of elements, or of one number."
    return apply


def _array_of(x: Any) -> np.ndarray:
    result = np.empty((), object)
    result[()] = x
    return result


def dot(x: Any, y: Any) -> Any:
    """The sum of the products of two rows of equal length."""
    x, y = _elements_of(x), _elements_of(y)
    shapes = [getattr(v, "shape", ()) for v in (x, y)]
    if any(len(shape) != 1 for shape in shapes) or shapes[0] != shapes[1]:
        raise error(
            f"dot of shapes {list(shapes[0])} and {list(shapes[1])}",
            "give two rows of equal length",
        )
    region = current_region("a sum of products")
    return over_elements(FUNCTIONS["mul"], Elements(region, x), Elements(region, y)).sum()


for _name in ("sum", "prod", "mean", "amax", "amin", "any", "all", "unsqueeze"):
    FUNCTIONS[_name] = _of_elements(_name)
for _name in ("dot", "inner", "vdot", "vecdot", "linalg_vecdot", "matmul", "__matmul__"):
    FUNCTIONS[_name] = dot


# --- Arrays that are indexed with traced values -----------------------------------------


class IndexableArray(np.lib.mixins.NDArrayOperatorsMixin):
    """The result of `array`: an array that traced values can index."""

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> Any:
        if is_traced(index):
            return get_item(self._array, index)
        if "jax" in sys.modules and _is_of_jax(index):
            return self.__jax_array__()[index]
        return _indexable(_seen(self._array)[index])

    def __jax_array__(self) -> Any:
        return sys.modules["jax"].numpy.asarray(_seen(self._array))

    shape = property(lambda self: tuple(self._array.shape))
    ndim = property(lambda self: len(self._array.shape))
    dtype = property(lambda self: self._array.dtype)
    size = property(lambda self: int(np.prod(self._array.shape)))

    def __len__(self) -> int:
        return self.shape[0]

    def __setitem__(self, index: Any, value: Any) -> None:
        _seen(self._array)[index] = value

    def __iter__(self) -> Any:
        return (self[n] for n in range(len(self)))

    def __bool__(self) -> bool:
        return bool(_seen(self._array))

    def __int__(self) -> int:
        return int(_seen(self._array))

    def __index__(self) -> int:
        return _seen(self._array).__index__()

    def __float__(self) -> float:
        return float(_seen(self._array))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self._array, name)
        if not callable(value):
            _seen(self._array)
            return _indexable(value)

        def method(*args: Any, **options: Any) -> Any:
            if is_traced((*args, *options.values())):
                if name not in FUNCTIONS:
                    what = f"a captured array of shape {list(self.shape)}"
                    raise no_attribute(what, name, "that can be traced; index it")
                return FUNCTIONS[name](self, *args, **options)
            _seen(self._array)
            plain = {name: _seen_in(x) for name, x in options.items()}
            return _indexable(value(*map(_seen_in, args), **plain))

        return method

    def __array__(self, *args: Any, **options: Any) -> Any:
        return np.asarray(_seen(self._array), *args, **options)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if any(map(is_traced, inputs)):
            return Scalar.__array_ufunc__(self, ufunc, method, *inputs, **options)
        return _indexable(getattr(ufunc, method)(*map(_seen_in, inputs), **options))

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if any(map(is_traced, (*args, *options.values()))):
            return Scalar.__array_function__(self, function, types, args, options)
        plain = {name: _seen_in(x) for name, x in options.items()}
        return _indexable(function(*map(_seen_in, args), **plain))

    def __repr__(self) -> str:
        return f"fa.array({self._array!r})"


def _is_of_jax(index: Any) -> bool:
    """Whether JAX traces a value, or one in a tuple."""
    if isinstance(index, tuple):
        return any(map(_is_of_jax, index))
    return isinstance(index, sys.modules["jax"].core.Tracer)


def _indexable(value: Any) -> Any:
    is_one = isinstance(value, (np.generic, IndexableArray)) or not is_array(value)
    return value if is_one or len(value.shape) == 0 else IndexableArray(value)


def _seen(array: Any) -> Any:
    """An array whose values are about to be read in Python; a trace depends on them."""
    if is_tracing():
        current_region("an array").captures.is_certain = False
    return array


def _seen_in(value: Any) -> Any:
    """A value, with arrays of `array` in it as they were before."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(_seen_in, value)) if type(value) in (tuple, list) else value
    return _seen(value._array) if type(value) is IndexableArray else value


def array(values: Any) -> Any:
    """An array that score and mask functions can index with their arguments.

    Tensors of PyTorch can be indexed as they are, and are given back. Arrays of NumPy
    and CuPy that are variables of the function itself (closure, global or default) need
    this neither: fa does it. Those in objects, containers and other functions do.

    Args:
        values: an array of NumPy, CuPy or any library that fa takes, or numbers in
            nested lists (floats are float32 then), of any rank up to 8.

    Returns:
        The same memory. Outside of functions that are traced it behaves as the array:
        shape, dtype, indexing, operators and NumPy's functions.
    """
    if type(values) is IndexableArray or hasattr(values, "__torch_function__"):
        return values
    if is_array(values):
        return IndexableArray(values)
    made = np.asarray(values)
    return IndexableArray(made.astype(np.float32) if made.dtype == np.float64 else made)
