"""A module of StableHLO, read into the graph IR through the Python bindings of MLIR that jaxlib carries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, stablehlo

from ...graph import Array, Expr, GraphError, Span, TensorType
from ...graph.dtypes import numpy_dtype
from ..errors import ModelError
from . import control, index, move, pointwise, product, reduce
from .site import REFUSED, RULES, Inner, Region, Result, Site

RULE_MODULES = (control, index, move, pointwise, product, reduce)
"""The modules that fill `RULES`."""

_COMPLEX = "complex numbers are not supported"
_LINEAR = "its algorithm is not supported"
_CHANCE = "it is random"
_DYNAMIC = "the shape of its result is open: export for fixed sizes"
REFUSED.update({
    "complex": _COMPLEX, "real": _COMPLEX, "imag": _COMPLEX, "fft": _COMPLEX, "cholesky": _LINEAR,
    "triangular_solve": _LINEAR, "rng": _CHANCE, "rng_bit_generator": _CHANCE, "dynamic_reshape": _DYNAMIC,
    "dynamic_broadcast_in_dim": _DYNAMIC, "dynamic_gather": _DYNAMIC, "dynamic_iota": _DYNAMIC, "dynamic_pad": _DYNAMIC,
    "real_dynamic_slice": _DYNAMIC, "dynamic_conv": _DYNAMIC,
    "select_and_scatter": "gradients of poolings are not supported",
    "uniform_quantize": "its quantised types are not supported",
    "uniform_dequantize": "its quantised types are not supported",
    "all_reduce": "it is for several devices", "all_gather": "it is for several devices",
    "all_to_all": "it is for several devices", "reduce_scatter": "it is for several devices",
})  # fmt: skip

IDENTITIES = ("Sharding", "annotate_device_placement", "LayoutConstraint")
"""Custom calls that change nothing on one device."""

INLINED = ("call", "composite", "custom_call", "return")
FLOW = ("while", "if", "case")

_TYPES = {
    "i1": "bool", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    **{f"i{bits}": f"int{bits}" for bits in (4, 8, 16, 32, 64)},
    **{f"ui{bits}": f"uint{bits}" for bits in (4, 8, 16, 32, 64)},
}  # fmt: skip

_NUMBERS: Mapping[str, Any] = {
    "#stablehlo.dot<": stablehlo.DotDimensionNumbers, "#stablehlo.conv<": stablehlo.ConvDimensionNumbers,
    "#stablehlo.gather<": stablehlo.GatherDimensionNumbers, "#stablehlo.scatter<": stablehlo.ScatterDimensionNumbers,
    "#stablehlo<comparison_direction": stablehlo.ComparisonDirectionAttr,
}  # fmt: skip
"""Attributes of StableHLO's own kinds, by how their text begins."""

_SKIPPED = {"context", "type", "typeid", "static_typeid"}


def parsed(data: bytes) -> ir.Module:
    """The module in a portable artifact that MLIR wrote: JAX's, or what `checked.checked` gave."""
    context = ir.Context()
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)
    with context:
        return stablehlo.deserialize_portable_artifact(context, data)


def tensor_type(kind: ir.Type, what: str) -> TensorType:
    try:
        ranked = ir.RankedTensorType(kind)
    except ValueError:
        raise ModelError(f"{what} is {kind}, and no tensor of a known rank") from None
    dtype = _TYPES.get(str(ranked.element_type))
    if dtype is None:
        raise ModelError(f"{what} has elements of {ranked.element_type}, which is not supported")
    if not ranked.has_static_shape:
        raise ModelError(f"{what} is {kind}: a size is open", hint="export for arguments of fixed sizes")
    return TensorType(tuple(ranked.shape), dtype)


def refuse_unknown(module: ir.Module) -> None:
    """Raise a `ModelError` that names every operation without a rule, with the user's lines."""
    counts: Counter[str] = Counter()
    places: dict[str, str] = {}
    for operation in _all(module):
        name = _short(operation)
        if name in RULES or name in INLINED:
            continue
        counts[name] += 1
        places.setdefault(name, _line(operation))
    if not counts:
        return
    lines = []
    for name, count in counts.most_common():
        why = REFUSED.get(name, "")
        at = f", first at {places[name]}" if places[name] else ""
        lines.append(f"{name} ({count} time{'s' if count > 1 else ''}{at}){f': {why}' if why else ''}")
    raise ModelError(f"{len(counts)} operation{'s' if len(counts) > 1 else ''} of StableHLO cannot be read: "
                     f"{'; '.join(lines)}", hint="write the function without these")  # fmt: skip


def _all(module: ir.Module) -> Iterator[ir.Operation]:
    """Every operation that is read, with those of branches and loops."""
    waiting = [block for function in module.body.operations for region in function.regions for block in region.blocks]
    while waiting:
        for each in waiting.pop().operations:
            yield each.operation
            if _short(each.operation) in FLOW:
                waiting.extend(block for region in each.operation.regions for block in region.blocks)


def _short(operation: ir.Operation) -> str:
    return str(operation.name).rpartition(".")[2]


def _line(operation: ir.Operation) -> str:
    """Where the user wrote it."""
    found = re.search(r'"([^"]+\.py)":(\d+)', str(operation.location))
    return f"{found[1]}:{found[2]}" if found else ""


def functions_of(module: ir.Module) -> dict[str, Any]:
    """The functions of a module by name."""
    return {ir.StringAttr(each.attributes["sym_name"]).value: each for each in module.body.operations}


class GraphReader:
    """Reads functions of a module for values of their arguments."""

    def __init__(self, module: ir.Module) -> None:
        self._functions = functions_of(module)
        self._inside: list[str] = []
        self._count = 0

    def function(self, name: str, arguments: Sequence[Expr]) -> list[Expr]:
        """The results of a function."""
        if name not in self._functions:
            raise ModelError(f"the module has no function {name!r}")
        if name in self._inside:
            raise ModelError(f"function {name!r} of the module runs itself")
        self._inside.append(name)
        try:
            return self._block(self._functions[name].regions[0].blocks[0], arguments, {})
        finally:  # a loop that cannot stay one is read once more
            self._inside.pop()

    def _block(self, block: ir.Block, arguments: Sequence[Expr], outer: Mapping[Any, Expr]) -> list[Expr]:
        values = dict(outer)
        values.update(zip(block.arguments, arguments, strict=True))
        for each in block.operations:
            operation = each.operation
            if _short(operation) == "return":
                return [values[operand] for operand in operation.operands]
            results = self._operation(operation, values)
            values.update(zip(operation.results, results, strict=True))
        return []

    def _operation(self, operation: ir.Operation, values: Mapping[Any, Expr]) -> Sequence[Expr]:
        name = _short(operation)
        operands = [values[operand] for operand in operation.operands]
        attrs = _named(operation.attributes)
        if name == "call":
            return self.function(attrs["callee"], operands)
        self._count += 1
        span = Span((f"{name}:{self._count}",), f"{name}_{self._count}")
        if name == "composite":
            name = attrs["name"].rpartition(".")[2]
            if not attrs["name"].startswith("chlo.") or name not in RULES:
                return self.function(attrs["decomposition"], operands)
            attrs = attrs.get("composite_attributes", {})
        if name == "custom_call":
            name = attrs["call_target_name"]
            if name in IDENTITIES:
                return operands
            name, attrs = name.rpartition(".")[2], attrs.get("mhlo.attributes", {})
            if name not in RULES:
                raise ModelError(f"custom_call of {name!r} cannot be read", at=span,
                                 hint=f"it stands at {_line(operation) or 'no line that is known'}")  # fmt: skip
        types = tuple(tensor_type(result.type, f"the result of {name}") for result in operation.results)
        regions = tuple(self._region(region.blocks[0], values) for region in operation.regions)
        site = Site(name, span, tuple(operands), types, attrs, regions)
        return _made(site, operation)

    def _region(self, block: ir.Block, values: Mapping[Any, Expr]) -> Region:
        places: dict[Any, tuple[Any, ...]] = {each: ("argument", n) for n, each in enumerate(block.arguments)}
        inner: list[Inner] = []
        returned: tuple[tuple[Any, ...], ...] = ()

        def place(operand: Any) -> tuple[Any, ...]:
            return places[operand] if operand in places else ("outer", values[operand])

        for each in block.operations:
            operation = each.operation
            operands = tuple(place(operand) for operand in operation.operands)
            if _short(operation) == "return":
                returned = operands
                break
            attrs = _named(operation.attributes)
            places.update((result, ("result", len(inner), n)) for n, result in enumerate(operation.results))
            inner.append(Inner(_short(operation), operands, attrs))
        return Region(tuple(inner), returned, lambda arguments: self._block(block, arguments, values))


def _made(site: Site, operation: ir.Operation) -> Sequence[Expr]:
    """What the rule gives, which must be what the module says it is."""
    try:
        result: Result = RULES[site.op](site)
        results = [result] if isinstance(result, Expr) else list(result)
        for value, kind in zip(results, site.types, strict=True):
            if (value.shape, value.dtype) != (kind.shape, kind.dtype):
                raise site.error(f"it would give {value.type}, but the module says {kind}")
        return results
    except ModelError:
        raise
    except GraphError as error:
        raise ModelError(f"{site.op}: {error.message}", at=site.span, hint=error.hint) from None
    except (ValueError, TypeError, KeyError, IndexError, StopIteration, OverflowError, MemoryError) as error:
        line = _line(operation)
        raise ModelError(f"{site.op} cannot be read: {type(error).__name__}: {error}", at=site.span,
                         hint=f"it stands at {line}" if line else "is the module damaged?") from error  # fmt: skip


def _named(attributes: Any) -> dict[str, Any]:
    """The attributes of an operation, or of a dictionary, by name."""
    return {each.name: _attribute(each.attr) for each in map(attributes.__getitem__, range(len(attributes)))}


def _attribute(attr: ir.Attribute) -> Any:
    """An attribute as Python's values."""
    match type(attr).__name__:
        case "IntegerAttr" | "FloatAttr" | "StringAttr" | "BoolAttr" | "FlatSymbolRefAttr":
            return attr.value
        case "DenseI64ArrayAttr" | "DenseBoolArrayAttr" | "ArrayAttr":
            return tuple(_attribute(each) if isinstance(each, ir.Attribute) else each for each in attr)
        case "DictAttr":
            return _named(attr)
        case name if name.startswith("Dense"):
            return _dense(attr)
    text = str(attr)
    for start, kind in _NUMBERS.items():
        if text.startswith(start):
            found = kind(attr)
            if hasattr(found, "value"):
                return found.value
            return {
                field: list(value) if isinstance(value, Sequence) else value
                for field in dir(found) if not field.startswith("_") and field not in _SKIPPED
                and not callable(value := getattr(found, field))
            }  # fmt: skip
    return text


def _dense(attr: Any) -> Array:
    """The elements of a constant; one that is the same everywhere is one number with strides of 0."""
    kind = tensor_type(attr.type, "a constant")
    dtype = numpy_dtype(kind.dtype)
    if getattr(attr, "is_splat", False):
        value = np.array(attr.get_splat_value().value)
        return np.broadcast_to(value.astype(dtype), kind.shape)
    return np.array(attr).astype(dtype, copy=False).reshape(kind.shape)
