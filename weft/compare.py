"""One model in two places: every tensor that both make, in the order of execution, and how far they are apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from .api import load
from .compiler.graph import Call, Expr, GraphError, Module, TensorType, evaluate
from .compiler.graph.asked_rounding import asked_rounding
from .compiler.graph.dtypes import STRING, dtype_name
from .compiler.graph.strings import same_strings
from .compiler.graph.visit import tensor_ends, topological_order
from .compiler.model import CompiledModel, OpenModel, TensorSpec
from .compiler.targets.registry import find_target, target_names
from .compiler.targets.target import Job, Target, target_options
from .hw.config import CoreConfig
from .imports import IMPORTS
from .roundings import BESIDE
from .runtime.device import device_names

Array = npt.NDArray[Any]
Tensors = dict[str, Array]

REFERENCE = "reference"
"""The graph in NumPy, after the passes of target ``cpu``."""

_PACKED_RANK = 7
"""Axes of an activation in the core's layout."""


def compared_names() -> tuple[str, ...]:
    """What can be compared: the reference, every target, and for the accelerator every device."""
    return (REFERENCE, *target_names(), *device_names())


@dataclass(frozen=True)
class Difference:
    """A tensor in both places. ``largest``: the largest difference of an element; ``relative``: as a part of the
    largest magnitude in the first place; ``differing``: elements that are further apart than the tolerance."""

    tensor: str
    shape: tuple[int, ...]
    dtype: str
    largest: float
    relative: float
    differing: int

    @property
    def is_same(self) -> bool:
        return self.differing == 0


@dataclass(frozen=True)
class Comparison:
    """Two places: the tensors that both make, in the order of execution of the first, and those that only one of them
    makes as values of their own, by name. What a kernel makes and uses by itself is nowhere."""

    differences: tuple[Difference, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def first_difference(self) -> Difference | None:
        return next((each for each in self.differences if not each.is_same), None)


def check_compared(*names: str) -> None:
    """GraphError for a name that is not in :func:`compared_names`."""
    for name in names:
        if name not in compared_names():
            listed = ", ".join(compared_names())
            raise GraphError(f"there is nothing called {name!r} to compare", hint=f"choose {listed}")


def model_inputs(module: Module) -> tuple[TensorSpec, ...]:
    """Names, shapes and types of a module's inputs."""
    return tuple(TensorSpec(each.name, each.type.shape, each.type.dtype) for each in module.main.params)


def compare(
    module: Module, first: str, second: str, inputs: Mapping[str, Array], *, config: CoreConfig | str = "pynq",
    threads: int = 1, tolerance: float = 1e-4,
) -> Comparison:  # fmt: skip
    """Run a model, as it was read, in two places and compare what both make.

    Tensors of the model are paired by name. Only what has the tensor's own type and shape is one: sums of 32 bits that
    are quantised later, or digits of them, are inner values of a place. Shapes may differ by axes of size 1.
    Integers must be equal; floats must agree within ``tolerance`` of the tensor's largest magnitude.
    Raises GraphError for a name that is not in `compared_names`.
    """
    check_compared(first, second)
    options = {"config": config, "threads": threads}
    a, b = (tensors_on(name, module, inputs, options) for name in (first, second))
    return Comparison(
        tuple(difference(name, array, b[name], tolerance) for name, array in a.items() if name in b),
        tuple(name for name in a if name not in b),
        tuple(name for name in b if name not in a),
    )


def rounded_apart(module: Module, first: str, second: str, core: CoreConfig) -> int:
    """How many of a model's values ask for sums that are rounded in another way than half up, as those of
    LiteRT's files do, where one of the places is a core without that (docs/integers.md), and the other one is not."""
    if len({name not in (REFERENCE, *target_names()) or name == "accel" for name in (first, second)}) == 1:
        return 0
    asked = map(asked_rounding, topological_order(module.main.body))
    return sum(each not in BESIDE[core.rounding] for each in asked)


def difference(name: str, a: Array, b: Array, tolerance: float) -> Difference:
    """How far two arrays of one shape are apart; different strings differ by 1."""
    if dtype_name(a.dtype) == STRING:
        count = int((~same_strings(a, b)).sum())
        return Difference(name, a.shape, STRING, float(count > 0), float(count > 0), count)
    if a.dtype.kind not in "fc":
        apart = np.abs(a.astype(np.int64) - b.astype(np.int64))
        allowed = 0.0
    else:
        both = np.isnan(a) & np.isnan(b) | (a == b)
        with np.errstate(invalid="ignore"):
            apart = np.where(both, 0, np.abs(a.astype(np.float64) - b.astype(np.float64)))
        apart = np.where(np.isnan(apart), np.inf, apart)
        allowed = tolerance * float(np.abs(a[np.isfinite(a)]).max(initial=0))
    largest = float(apart.max(initial=0))
    scale = float(np.abs(a.astype(np.float64)).max(initial=0)) or 1.0
    return Difference(name, a.shape, a.dtype.name, largest, largest / scale, int((apart > allowed).sum()))


def tensors_on(name: str, module: Module, inputs: Mapping[str, Array], options: Mapping[str, Any]) -> Tensors:
    """Every tensor that is made in one place, by the user's names. Of ``options`` a target gets those that it has."""
    types = {
        tensor: node.type for tensor, node in tensor_ends(topological_order(module.main.body)).items()
        if isinstance(node.type, TensorType)
    }  # fmt: skip
    types |= {name: result.tensor_type for name, result in _outputs(module)}
    if name == REFERENCE:
        with IMPORTS:
            from .compiler.compile import prepared

        cpu = find_target("cpu")
        made = _on_reference(prepared(module, cpu, _own(cpu, options)), inputs)
    else:
        made = _on_target(name, module, inputs, options)
    found = {tensor: _as_in(types[tensor], value) for tensor, value in made.items() if tensor in types}
    return {tensor: value for tensor, value in found.items() if value is not None}


def _outputs(module: Module) -> Iterable[tuple[str, Expr]]:
    return zip(module.main.output_names, module.main.results, strict=True)


def _as_in(kind: TensorType, value: Array) -> Array | None:
    """``value`` as the source's tensor of type ``kind``; None for what is another stage of it. Integers of 8 bits are
    signed in all targets."""
    if math.prod(value.shape) != kind.size or _long_axes(value.shape) != _long_axes(kind.shape):
        return None
    value = value.reshape(kind.shape)
    if value.dtype == np.int8 and kind.dtype == "uint8":
        return (value.astype(np.int16) + 128).astype(np.uint8)
    return value if dtype_name(value.dtype) == kind.dtype else None


def _long_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _on_target(name: str, module: Module, inputs: Mapping[str, Array], options: Mapping[str, Any]) -> Tensors:
    with IMPORTS:
        from .compiler.compile import compile_model

    check_compared(name)
    on_device = name not in target_names()
    target = find_target("accel" if on_device else name)
    own = {key: value for key, value in options.items() if key in _option_names(target)}
    model = compile_model(module, target, own, job=Job(keep=True))
    if isinstance(model, OpenModel):
        raise GraphError(f"it cannot be compared: {model.openness}",
                         hint=model.way_out("where it is read: module({name: shape})"))  # fmt: skip
    if target.name == "accel" and model.core is None:
        raise GraphError(f"nothing of the model runs on the core, so {name!r} has nothing to be compared",
                         hint="the core takes quantised models: docs/quantisation.md")  # fmt: skip
    values = load(model, name if on_device and model.core is not None else None).run(inputs, keep=True)
    inner = {tensor: _plain(model, value, values[value]) for value, tensor in model.tensors.items() if value in values}
    return {**inner, **{tensor.name: values[tensor.name] for tensor in model.outputs}}


def _option_names(target: Target) -> set[str]:
    return {field.name for field in fields(target.options)}


def _own(target: Target, options: Mapping[str, Any]) -> Any:
    return target_options(target, {key: value for key, value in options.items() if key in _option_names(target)})


def _on_reference(module: Module, inputs: Mapping[str, Array]) -> Tensors:
    tensors: Tensors = {}

    def observe(node: Expr, value: object) -> None:
        if isinstance(node, Call) and isinstance(value, np.ndarray) and node.span.tensor:
            tensors[node.span.tensor] = value  # the last of a node's operators has the tensor's value

    outputs = evaluate(module, inputs, observe)
    return {**tensors, **outputs}


def _plain(model: CompiledModel, name: str, value: Array) -> Array:
    """A value without the core's padding and blocks."""
    with IMPORTS:
        from .compiler.targets.accel.operators.packed_layout import unpack

    shape = next((layer.shape for layer in model.layers if layer.device == "core" and layer.output == name), None)
    return value if shape is None or value.ndim != _PACKED_RANK else unpack(value, shape)
