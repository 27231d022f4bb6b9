"""What the type rules of operators share: checks of operands and attributes that raise `GraphError`."""

from __future__ import annotations

from collections.abc import Sequence

from ...roundings import ROUNDINGS
from ..graph.dtypes import DTYPES
from ..graph.ir import Attrs, GraphError, TensorType
from ..graph.registry import TypeRule
from .numerics import output_size


def require(condition: bool, message: str, hint: str = "") -> None:
    """Raise `GraphError` unless ``condition``; the caller adds the operator's name and the place."""
    if not condition:
        raise GraphError(message, hint=hint)


def require_rounding(attrs: Attrs) -> None:
    """Check the attribute ``rounding``."""
    rounding = attrs["rounding"]
    require(rounding in ROUNDINGS, f"rounding must be one of {', '.join(ROUNDINGS)}, not {rounding!r}")


def require_dtype(operand: TensorType, what: str, *dtypes: str) -> None:
    require(operand.dtype in dtypes, f"{what} must be {' or '.join(dtypes)}, not {operand.dtype}")


def ints(attrs: Attrs, name: str, count: int) -> tuple[int, ...]:
    """Attribute ``name`` as ``count`` integers."""
    value = attrs[name]
    if not isinstance(value, tuple) or len(value) != count or not all(isinstance(item, int) for item in value):
        raise GraphError(f"{name} must be {count} integers, not {value!r}")
    return tuple(int(str(item)) for item in value)


def tuple_of_ints(attrs: Attrs, name: str) -> tuple[int, ...]:
    """Attribute ``name`` as any number of integers."""
    value = attrs[name]
    require(isinstance(value, tuple), f"{name} must be integers, not {value!r}")
    return ints(attrs, name, len(value) if isinstance(value, tuple) else 0)


def integer(attrs: Attrs, name: str, low: int, high: int) -> int:
    """Attribute ``name`` as an integer of low..high."""
    value = attrs[name]
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise GraphError(f"{name} must be an integer of {low}..{high}, not {value!r}")
    return value


def flag(attrs: Attrs, name: str) -> bool:
    """Attribute ``name``, which must be true or false."""
    value = attrs[name]
    require(isinstance(value, bool), f"{name} must be true or false, not {value!r}")
    return bool(value)


def target_dtype(attrs: Attrs, name: str) -> str:
    """Attribute ``name``, which must be an element type."""
    value = attrs[name]
    require(value in DTYPES, f"{name} must be an element type, not {value!r}")
    return str(value)


def broadcast_shape(*operands: TensorType) -> tuple[int, ...]:
    """The shape of operands under NumPy's broadcasting."""
    rank = max((operand.rank for operand in operands), default=0)
    full = [(1,) * (rank - operand.rank) + operand.shape for operand in operands]  # NumPy's ends at 32 dimensions
    wanted = [{size for size in sizes if size != 1} for sizes in zip(*full, strict=True)]
    if any(len(sizes) > 1 for sizes in wanted):
        raise GraphError(f"{' and '.join(map(str, operands))} do not broadcast")
    return tuple(sizes.pop() if sizes else 1 for sizes in wanted)


def broadcasting(dtypes: Sequence[str], result: str = "") -> TypeRule:
    """The rule for operands of one type of ``dtypes`` that broadcast; the result has their type or ``result``."""

    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        for operand in operands:
            require_dtype(operand, "an operand", *dtypes)
            require(operand.dtype == operands[0].dtype, f"operands differ in type: {operands[0]} and {operand}")
        return TensorType(broadcast_shape(*operands), result or operands[0].dtype)

    return rule


def window_type(
    size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """Number of positions of a window along each axis of ``size``, checked; ``pads``: before each axis, then after."""
    require(all(k >= 1 for k in kernel), f"every size of the kernel {tuple(kernel)} must be at least 1")
    require(all(s >= 1 for s in strides), f"strides must be at least 1, not {tuple(strides)}")
    require(all(d >= 1 for d in dilations), f"dilations must be at least 1, not {tuple(dilations)}")
    require(all(p >= 0 for p in pads), f"pads must not be negative, but are {tuple(pads)}")
    result = [
        output_size(size[i], kernel[i], strides[i], pads[i], pads[i + len(size)], dilations[i])
        for i in range(len(size))
    ]
    require(
        min(result) >= 1,
        f"a kernel of {tuple(kernel)} with dilation {tuple(dilations)} does not fit into "
        f"{tuple(size)} padded by {tuple(pads)}",
    )
    return tuple(result)


_LAYOUTS = {1: "(N, C, W)", 2: "(N, C, H, W)", 3: "(N, C, D, H, W)"}


def conv_type(x: TensorType, w: TensorType, attrs: Attrs, dtype: str, spatial: int = 2) -> TensorType:
    """Type of a convolution over ``spatial`` axes, floating or integer."""
    layout = _LAYOUTS[spatial]
    require(x.rank == spatial + 2, f"the input must be {layout}, not {x}")
    kernel = ", ".join(f"K{axis}" for axis in layout[7:-1].split(", "))
    require(w.rank == spatial + 2, f"the weights must be (O, C/groups, {kernel}), not {w}")
    groups = integer(attrs, "groups", 1, 1 << 30)
    require(
        x.shape[1] == w.shape[1] * groups and w.shape[0] % groups == 0,
        f"{x.shape[1]} input channels and weights {w.shape} do not fit {groups} groups",
    )
    strides, dilations = ints(attrs, "strides", spatial), ints(attrs, "dilations", spatial)
    out = window_type(x.shape[2:], w.shape[2:], strides, ints(attrs, "pads", 2 * spatial), dilations)
    return TensorType((x.shape[0], w.shape[0], *out), dtype)


def pool_type(x: TensorType, attrs: Attrs, dtype: str, spatial: int = 2) -> TensorType:
    """Type of a pooling over ``spatial`` axes, floating or integer."""
    require(x.rank == spatial + 2, f"the input must be {_LAYOUTS[spatial]}, not {x}")
    dilations = ints(attrs, "dilations", spatial) if "dilations" in attrs else (1,) * spatial
    kernel, strides = ints(attrs, "kernel", spatial), ints(attrs, "strides", spatial)
    out = window_type(x.shape[2:], kernel, strides, ints(attrs, "pads", 2 * spatial), dilations)
    return TensorType((*x.shape[:2], *out), dtype)
