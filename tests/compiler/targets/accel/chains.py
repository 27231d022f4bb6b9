"""Random chains: packed functions in a row, each of which alone reads the result of the one before."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from weft.compiler.graph import Attrs, Call, Expr, Function, Module, Span, Var, call
from weft.compiler.targets.accel.link.chain_plan import ChainPlan
from weft.compiler.targets.accel.passes.chain import WINDOWED_LAYERS, Form, merged, on_vector_engine, planned
from weft.compiler.targets.accel.schedule.tiling import ChainTiling
from weft.hw.config import TINY, CoreConfig

from .kernels import Build

SQUARE = (
    TINY,
    replace(TINY, name="tiny-batch2", batch=2),
    replace(TINY, name="tiny-eights", block_in=8, block_out=8, acc_banks=2),
    replace(TINY, name="tiny-twos", block_in=2, block_out=2, acc_depth=512),
)
"""Cores whose results can become inputs."""


@dataclass(frozen=True)
class LayerCase:
    """A layer of a chain. ``kind``: dense, depthwise (on the vector engine) or grouped (on the array), convolutions;
    average, a pooling; or maximum, one that only the last layer can be.
    ``residual``: the chain's input is added, where it has the same shape; ``extra``: another input is."""

    kind: str
    channels: int
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    left_shift: int = 0
    residual: bool = False
    extra: bool = False


@dataclass(frozen=True)
class ChainCase:
    """A batch of pictures and the layers that it goes through."""

    shape: tuple[int, int, int, int]
    layers: tuple[LayerCase, ...]
    seed: int = 0

    def __str__(self) -> str:
        kinds = "-".join(f"{each.kind}{each.kernel[0]}x{each.kernel[1]}s{each.strides[0]}" for each in self.layers)
        return f"{self.seed}:{'x'.join(map(str, self.shape))}:{kinds}"


def random_case(seed: int) -> ChainCase:
    chance = random.Random(seed)
    channels = chance.choice((3, 4, 8, 12))
    shape = (chance.choice((1, 1, 1, 2)), channels, chance.randint(1, 11), chance.randint(1, 11))
    layers: list[LayerCase] = []
    height, width, now = shape[2], shape[3], channels
    windows = 0
    for number in range(chance.randint(2, 4)):
        kind = chance.choice(("dense", "dense", "depthwise", "grouped"))
        kernel = chance.choice(((1, 1), (3, 3), (3, 3), (1, 3), (2, 2), (5, 5)) if kind != "dense" else
                               ((1, 1), (1, 1), (1, 1), (3, 3), (2, 1)))  # fmt: skip
        windows += kernel != (1, 1)
        if windows > WINDOWED_LAYERS:
            kernel = (1, 1)
        strides = chance.choice(((1, 1), (1, 1), (2, 2), (1, 2), (2, 1)))
        dilations = chance.choice(((1, 1), (1, 1), (1, 1), (2, 1), (2, 2)))
        reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
        pads = tuple(chance.randint(0, reach[axis % 2] // 2) if chance.random() < 0.7 else 0 for axis in range(4))
        made = now if kind != "dense" else chance.choice((3, 4, 8, 12, 16))
        if height + pads[0] + pads[2] < reach[0] or width + pads[1] + pads[3] < reach[1]:
            kernel, pads, dilations, reach = (1, 1), (0, 0, 0, 0), (1, 1), [1, 1]
        height = (height + pads[0] + pads[2] - reach[0]) // strides[0] + 1
        width = (width + pads[1] + pads[3] - reach[1]) // strides[1] + 1
        now = made
        same = (made, height, width) == shape[1:]
        layers.append(LayerCase(
            kind, made, kernel, strides, (pads[0], pads[1], pads[2], pads[3]), dilations,
            residual=same and chance.random() < 0.7, extra=chance.random() < 0.2,
            left_shift=chance.choice((0, 0, 0, 1)) if number else 0,
        ))  # fmt: skip
    return ChainCase(shape, tuple(layers), seed)


def pooled_case(seed: int) -> ChainCase:
    """A random case with poolings in the place of some of its layers, or behind the last one."""
    case, chance = random_case(seed), random.Random(-seed)
    layers = [
        replace(each, kind="average", dilations=(1, 1))
        if each.kind != "dense" and each.dilations == (1, 1) and chance.random() < 0.7 else each
        for each in case.layers
    ]  # fmt: skip
    case = replace(case, layers=tuple(layers))
    height, width = layers_of(case, TINY)[1][-1].shape[2:4]
    windows = sum(each.kernel != (1, 1) for each in layers)
    if windows >= WINDOWED_LAYERS or chance.random() < 0.2:
        return case
    kernel = chance.choice(((2, 2), (3, 3), (3, 2), (1, 2)))
    kernel = min(kernel[0], height), min(kernel[1], width)
    pads = tuple(chance.randint(0, kernel[axis % 2] // 2) for axis in range(4))
    strides = chance.choice(((1, 1), (2, 2), (2, 1)))
    last = LayerCase("maximum", layers[-1].channels, kernel, strides, (pads[0], pads[1], pads[2], pads[3]))
    return replace(case, layers=(*layers, last))


def layers_of(case: ChainCase, config: CoreConfig) -> tuple[list[Var], list[Call]]:
    """The inputs of a chain, and the calls of its layers."""
    source = Build(config, case.seed)
    first = source.input(*case.shape)
    inputs, nodes = [first], []
    value: Expr = first
    shape = case.shape
    for number, layer in enumerate(case.layers):
        build = Build(config, case.seed * 10 + number)
        x = build.input(*shape)
        attrs = {"strides": layer.strides, "pads": layer.pads, "pad_value": 3 - number}
        attrs |= {"dilations": layer.dilations} if layer.kind != "average" else {}
        taps = layer.kernel[0] * layer.kernel[1]
        match layer.kind:
            case "dense":
                body, terms = build.conv(x, shape[1], layer.channels, layer.kernel, **attrs), shape[1] * taps
            case "depthwise":
                body, terms = build.depthwise(x, shape[1], layer.kernel, **attrs), taps
            case "average":
                body, terms = build.op("sum_pool", x, kernel=layer.kernel, **attrs), taps
            case "maximum":
                body, terms = build.op("max_pool", x, kernel=layer.kernel, strides=layer.strides, pads=layer.pads), 1
            case _:
                body, terms = build.grouped(x, shape[1], 1, layer.kernel, **attrs), taps
        args = [value]
        height, width = body.shape[2:4]
        shape = (shape[0], layer.channels, height, width)
        added = ([first] if layer.residual else []) + ([source.input(*shape)] if layer.extra else [])
        spread = 128 * 128 * terms**0.5
        if added:
            body = build.requantise(body, layer.channels, spread, out="int32", low=-128, high=127)
            for other in added:
                body = build.op("multiply_accumulate", body, build.input(*shape), weight=2)
                args.append(other)
                inputs += [other] if other not in inputs else []
            spread = 128 * 3.0
        if layer.kind != "maximum":
            body = build.requantise(body, layer.channels, spread)
        value = call(build.function(body, f"layer{number}"), *args, span=Span((f"layer{number}",), f"t{number}"))
        nodes.append(value)
    return inputs, nodes


def chain_function(
    case: ChainCase, config: CoreConfig, form: Form = on_vector_engine, tiling: ChainTiling | None = None
) -> Function:
    """All layers in one function, depthwise ones in this form. Without ``tiling`` the linker chooses one."""
    _, nodes = layers_of(case, config)
    whole = merged(nodes, form)
    return whole if tiling is None else planned(whole, ChainPlan(tiling, "", 0, 0, 0))


def apart(case: ChainCase, config: CoreConfig) -> Module:
    """A network of the layers, a function each."""
    inputs, nodes = layers_of(case, config)
    return Module(Function(tuple(inputs), nodes[-1], Attrs({"name": "net", "outputs": ("output",)})), "packed")
