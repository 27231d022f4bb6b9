"""What a user gives a model to run on, by the names of its inputs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..compiler.graph.dtypes import STRING, dtype_name, is_float, limits, numpy_dtype
from ..compiler.graph.strings import StringsError, canonical
from ..compiler.model import TensorSpec
from ..imports import IMPORTS
from .array_files import arrays_in, typed
from .errors import InputError

if TYPE_CHECKING:
    from ..compiler.graph.symbolic import SymbolicInput
    from .index_inputs import IndexSizes

Array = npt.NDArray[Any]

HOST_MEMORY = (1, 3, 11)
"""DLPack's kinds of memory that a processor reads: its own, and what CUDA and ROCm have pinned there."""

DEVICE_KINDS = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 13: "CUDA, managed", 14: "oneAPI"}
"""What DLPack calls other devices."""

LONGEST_RANDOM = 8
"""Letters of a random string."""


def named_inputs(inputs: Mapping[str, Array] | Array, names: Sequence[str]) -> dict[str, Array]:
    """One array for each name, in that order, in this machine's byte order, and with strings in the form that the graph
    has; a model with one input may be given the array alone. Arrays of other libraries are taken by DLPack, without a
    copy, where they are in this machine's memory: they must not be written to before the caller is done.

    Raises :class:`InputError` for inputs that are missing or unknown, for strings that are none, and for arrays that
    have masked elements, are on another device or that NumPy cannot hold.
    """
    if not isinstance(inputs, Mapping):
        if len(names) != 1:
            raise InputError(
                f"the model has {len(names)} inputs",
                hint=f"give each by its name, in a dict or a .npz file: {', '.join(names)}",
            )
        inputs = {names[0]: inputs}
    for name in inputs:
        if name not in names:
            raise InputError(f"the model has no input {name!r}", hint=f"its inputs: {', '.join(names)}")
    for name in names:
        if name not in inputs:
            raise InputError(f"input {name!r} is missing")
    return {name: _native(name, inputs[name]) for name in names}


def _native(name: str, value: Any) -> Array:
    try:
        array = canonical(_shared(name, value))
    except StringsError as error:
        raise InputError(f"input {name!r}: {error.message}") from error
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _shared(name: str, value: Any) -> Any:
    """What another library holds, as an array of NumPy's in the same memory; anything else as it is."""
    if np.ma.is_masked(value):
        raise InputError(f"input {name!r} has masked elements, which have no value",
                         hint="give them one: the array's filled(0)")  # fmt: skip
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return value
    kind, number = map(int, value.__dlpack_device__())
    if kind not in HOST_MEMORY:
        what = DEVICE_KINDS.get(kind, f"of DLPack's kind {kind}")
        raise InputError(f"input {name!r} is on device {number} ({what}), not in this machine's memory",
                         hint="copy it to the host first, or, for a model on that GPU, use run_on_device")  # fmt: skip
    try:
        return np.from_dlpack(value)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        try:  # some have bfloat16, which NumPy's DLPack does not know
            return _of_pytorchs_types(value) if _is_pytorchs(value) else value.__array__()
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
            raise InputError(f"input {name!r} is no array that NumPy can hold: {error}",
                             hint="detach it, or convert it to a type of the model's") from error  # fmt: skip


def _is_pytorchs(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _of_pytorchs_types(tensor: Any) -> Array:
    """A tensor of PyTorch's in a type that NumPy's DLPack does not know, such as bfloat16, by its bits."""
    torch = sys.modules["torch"]
    carrier = {1: torch.uint8, 2: torch.int16}[tensor.element_size()]
    return np.from_dlpack(tensor.view(carrier)).view(numpy_dtype(str(tensor.dtype).removeprefix("torch.")))


def check_kind(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], wanted: tuple[int, ...], wanted_dtype: np.dtype[Any]
) -> None:
    """:class:`InputError` for an array of another shape or type than an input."""
    if shape == wanted and dtype == wanted_dtype:
        return
    raise InputError(
        f"input {name!r} must be {dtype_name(wanted_dtype)}{list(wanted)}, not {dtype_name(dtype)}{list(shape)}",
        hint=_shape_hint(name, shape, wanted) if dtype == wanted_dtype else "",
    )


def _shape_hint(name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """What to do about another shape than an input's."""
    if _long(shape) == _long(wanted):
        return f"insert axes of 1, or take them away: numpy.reshape to {list(wanted)}"
    if sorted(_long(shape)) == sorted(_long(wanted)):
        return "the same sizes in another order: numpy.transpose brings channels to their place"
    if len(shape) == len(wanted):
        return f"sizes are fixed at compilation: --shape {name}={'x'.join(map(str, shape))}, if the model has them open"
    return ""


def _long(shape: tuple[int, ...]) -> list[int]:
    return [size for size in shape if size != 1]


def check_inputs(values: Mapping[str, Array], tensors: Sequence[TensorSpec], *, batches: bool = True) -> None:
    """:class:`InputError` for arrays that a run would refuse. With ``batches`` they may be several batches, as
    `in_batches` cuts them."""
    named = named_inputs(values, [each.name for each in tensors])
    first = in_batches(named, tensors)[0] if batches else named
    for each in tensors:
        check_kind(each.name, first[each.name].shape, first[each.name].dtype, each.shape, numpy_dtype(each.dtype))


def check_file(path: Path, declared: Sequence[SymbolicInput]) -> None:
    """As `check_inputs`, of a .npy or .npz file and of what a model declares before it is compiled. Sizes that it
    leaves open are those of the arrays."""
    with IMPORTS:
        from ..compiler.graph.ir import GraphError
        from ..compiler.graph.symbolic import bind_sizes

    values = read_inputs([TensorSpec(each.name, (), each.dtype) for each in declared], path, 0)
    sizes: dict[str, int] = {}
    if any(isinstance(size, str) for each in declared for size in each.shape):
        values = named_inputs(values, [each.name for each in declared])
        try:
            sizes = bind_sizes(declared, {name: value.shape for name, value in values.items()})
        except GraphError as error:
            raise InputError(error.message, hint=error.hint) from None
    check_inputs(values, [TensorSpec(each.name, each.at(sizes), each.dtype) for each in declared])


def read_inputs(
    tensors: Sequence[TensorSpec], path: Path | None, seed: int, indices: IndexSizes | None = None
) -> dict[str, Array]:
    """Arrays for a model's inputs from a .npy or .npz file, or random ones, of which ``indices`` are inside of their
    axes; :class:`InputError` names the file."""
    if path is None:
        generator = np.random.default_rng(seed)
        return {each.name: _random(generator, each, (indices or {}).get(each.name, ())) for each in tensors}
    arrays, types = arrays_in(path), {tensor.name: tensor.dtype for tensor in tensors}
    if isinstance(arrays, dict):
        return {name: typed(array, types.get(name, STRING)) for name, array in arrays.items()}
    if len(tensors) != 1:
        names = ", ".join(tensor.name for tensor in tensors)
        raise InputError(f"{path} holds one array, but the model has inputs {names}", hint="use a .npz")
    return {tensors[0].name: typed(arrays, tensors[0].dtype)}


def in_batches(values: Mapping[str, Array], tensors: Sequence[TensorSpec]) -> list[dict[str, Array]]:
    """Inputs as they are given to a model one after the other: arrays that hold several batches behind each other along
    the first axis, as files of examples do, are cut; anything else stays one batch, whatever is wrong with it."""
    counts = set()
    for each in tensors:
        array = values.get(each.name)
        if array is None or not each.shape or not each.shape[0] or array.shape[1:] != each.shape[1:]:
            return [dict(values)]
        counts.add(divmod(len(array), each.shape[0]))
    if len(counts) != 1 or (counts == {(0, 0)}):
        return [dict(values)]
    ((count, left),) = counts
    if left or count < 2:
        return [dict(values)]
    rows = {each.name: each.shape[0] for each in tensors}
    return [
        {name: array[number * rows[name] : (number + 1) * rows[name]] if name in rows else array
         for name, array in values.items()}
        for number in range(count)
    ]  # fmt: skip


def joined(results: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Results of batches, one behind the other along the first axis; those of one batch as they are."""
    if len(results) == 1:
        return dict(results[0])
    return {name: np.concatenate([np.atleast_1d(each[name]) for each in results]) for name in results[0]}


def _random(generator: np.random.Generator, tensor: TensorSpec, sizes: tuple[int, ...]) -> Array:
    if not sizes:
        return random_array(generator, tensor.shape, tensor.dtype)
    high = sizes[0] if len(sizes) == 1 else np.array(sizes)
    return generator.integers(0, high, tensor.shape).astype(numpy_dtype(tensor.dtype))


def random_array(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Floats of 0..1, integers and truth values over their whole range; strings of up to 8 letters."""
    kind = numpy_dtype(dtype)
    if dtype == STRING:
        letters = generator.choice(list("abcdefghij"), (*shape, LONGEST_RANDOM))
        kept = np.arange(LONGEST_RANDOM) < generator.integers(0, LONGEST_RANDOM + 1, (*shape, 1))
        words = ["".join(word) for word in np.where(kept, letters, "").reshape(-1, LONGEST_RANDOM).tolist()]
        return np.array(words, kind).reshape(shape)
    if is_float(dtype):
        return generator.random(shape).astype(kind)
    if dtype == "bool":
        return generator.random(shape) < 0.5
    low, high = limits(dtype)
    values = generator.integers(low, high, shape, np.uint64 if low == 0 else np.int64, endpoint=True)
    return values.astype(kind)
