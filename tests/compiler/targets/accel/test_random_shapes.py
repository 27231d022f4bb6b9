"""Layers of any shape from the integer contract to the core: passes, compiler and simulators give NumPy's integers.

``test_kernels.py`` starts from packed kernels; here the operators are the plain ones, so that groups, dense layers,
channels that fill no block and unfolding of the input take part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import weft
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Array, Attrs, Constant, Expr, Function, Module, TensorType, Var, call, evaluate
from weft.compiler.operators import numerics
from weft.compiler.targets.accel.passes import accel_passes
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.hw.dram_rate import USUAL_RATE, DramRate
from weft.runtime.device import Device
from weft.sim.dram import DramModel

from .kernels import CONFIGS, blocks_of

KINDS = (
    "convolution", "grouped", "depthwise", "dense", "max_pool", "sum_pool", "residual", "add", "multiply", "gate",
    "requantise", "swish", "depthwise_swish",
)  # fmt: skip
POINTWISE = ("dense", "add", "multiply", "gate", "requantise")
OF_ROWS = (*POINTWISE, "convolution", "residual", "swish")
"""Kinds of layers that images of one pixel may have: the rows of a matrix."""
UNSTEADY = DramModel(latency=30, jitter=20, seed=3, reorder=True)


@dataclass(frozen=True)
class Layer:
    """One layer on int8 ``(batch, channels * groups, *size)``; fields that a kind does not use are ignored."""

    kind: str
    config: CoreConfig = TINY
    threads: int = 2
    rate: DramRate = USUAL_RATE
    batch: int = 1
    groups: int = 1
    channels: int = 8  # of one group
    filters: int = 8  # of one group
    size: tuple[int, int] = (7, 5)
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    dilations: tuple[int, int] = (1, 1)
    uniform: bool = False  # requantises have the same parameters in all channels
    seed: int = 0

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of what a window gives; 0 or less where it does not fit."""
        return tuple(  # type: ignore[return-value]
            numerics.output_size(self.size[axis], self.kernel[axis], self.strides[axis], self.pads[axis],
                                 self.pads[axis + 2], self.dilations[axis])
            for axis in (0, 1)
        )  # fmt: skip

    def module(self) -> Module:
        return _Builder(self).module()

    def inputs(self, module: Module) -> dict[str, Array]:
        random = np.random.default_rng(self.seed + 1)
        return {
            param.name: random.integers(-128, 128, param.tensor_type.shape).astype(np.int8)
            for param in module.main.params
        }


class _Builder:
    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.random = np.random.default_rng(layer.seed)
        self.params: list[Var] = []

    def module(self) -> Module:
        layer = self.layer
        groups = 1 if layer.kind == "dense" else layer.groups
        size = (1, 1) if layer.kind == "dense" else layer.size
        x = self._input((layer.batch, layer.channels * groups, *size))
        body = getattr(self, f"_{layer.kind}")(x)
        return Module(Function(tuple(self.params), body, Attrs({"name": layer.kind})))

    def _input(self, shape: tuple[int, ...]) -> Var:
        self.params.append(Var(f"x{len(self.params)}", TensorType(shape, "int8")))
        return self.params[-1]

    def _narrow(self, x: Expr, spread: float, **attrs: object) -> Expr:
        """``spread``: about the largest magnitude that ``x`` has."""
        own = 1 if self.layer.uniform else x.shape[1]
        multiplier, shift = numerics.quantise_multiplier(self.random.uniform(40, 200, own) / spread)
        bias = self.random.integers(-int(spread) // 8 - 1, int(spread) // 8 + 1, own).astype(np.int32)
        zero_point = int(self.random.integers(-128, 128))
        params = (Constant(np.resize(each, x.shape[1])) for each in (bias, multiplier, shift))
        return call("requantise", x, *params, **{"zero_point": zero_point, **attrs})

    def _conv(self, x: Expr, filters: int, groups: int = 1) -> Expr:
        layer = self.layer
        kernel = (1, 1) if layer.kind == "dense" else layer.kernel
        weights = self.random.integers(-128, 128, (filters * groups, x.shape[1] // groups, *kernel)).astype(np.int8)
        window = {"strides": layer.strides, "pads": layer.pads, "dilations": layer.dilations}
        pad_value = int(self.random.integers(-128, 128))
        window = {} if layer.kind == "dense" else {**window, "pad_value": pad_value}
        return call("conv2d", x, Constant(weights), groups=groups, **window)

    def _spread(self, products: int) -> float:
        return 74 * 74 * products**0.5

    def _convolution(self, x: Expr) -> Expr:
        taps = self.layer.kernel[0] * self.layer.kernel[1]
        return self._narrow(self._conv(x, self.layer.filters), self._spread(x.shape[1] * taps))

    def _grouped(self, x: Expr) -> Expr:
        taps = self.layer.kernel[0] * self.layer.kernel[1]
        acc = self._conv(x, self.layer.filters, self.layer.groups)
        return self._narrow(acc, self._spread(self.layer.channels * taps))

    def _depthwise(self, x: Expr) -> Expr:
        acc = self._conv(x, 1, x.shape[1])
        return self._narrow(acc, self._spread(self.layer.kernel[0] * self.layer.kernel[1]))

    def _dense(self, x: Expr) -> Expr:
        return self._narrow(self._conv(x, self.layer.filters), self._spread(x.shape[1]))

    def _max_pool(self, x: Expr) -> Expr:
        layer = self.layer
        return call("max_pool", x, kernel=layer.kernel, strides=layer.strides, pads=layer.pads,
                    dilations=layer.dilations)  # fmt: skip

    def _sum_pool(self, x: Expr) -> Expr:
        layer = self.layer
        acc = call("sum_pool", x, kernel=layer.kernel, strides=layer.strides, pads=layer.pads, pad_value=-20)
        return self._narrow(acc, 128 * layer.kernel[0] * layer.kernel[1])

    def _residual(self, x: Expr) -> Expr:
        acc = self._conv(x, self.layer.filters)
        taps = self.layer.kernel[0] * self.layer.kernel[1]
        wide = self._narrow(acc, self._spread(x.shape[1] * taps), zero_point=0, low=-200, high=190, left_shift=9,
                                out="int32")  # fmt: skip
        both = call("multiply_accumulate", wide, self._input(acc.shape), weight=-700)
        return self._narrow(both, 150_000)

    def _add(self, x: Expr) -> Expr:
        scaled = call("multiply_immediate", x, weight=1234)
        return self._narrow(call("multiply_accumulate", scaled, self._input(x.shape), weight=-4321), 300_000)

    def _multiply(self, x: Expr) -> Expr:
        a = call("subtract_immediate", x, value=5)
        b = call("subtract_immediate", self._input(x.shape), value=-7)
        return self._narrow(call("multiply", a, b), 8000)

    def _gate(self, x: Expr) -> Expr:
        a = call("subtract_immediate", x, value=5)
        return self._narrow(call("multiply", a, self._input((*x.shape[:2], 1, 1))), 8000)

    def _swish(self, x: Expr) -> Expr:
        return self._times_clipped(self._convolution(x))

    def _depthwise_swish(self, x: Expr) -> Expr:
        return self._times_clipped(self._depthwise(x))

    def _times_clipped(self, x: Expr) -> Expr:
        """The value that two operators read, one of them behind another."""
        scaled = call("multiply_immediate", call("subtract_immediate", x, value=11), weight=3)
        clipped = self._narrow(scaled, 400, low=-90, high=100)
        a, b = (call("subtract_immediate", each, value=value) for each, value in ((x, -100), (clipped, 20)))
        return self._narrow(call("multiply", a, b), 8000)

    def _requantise(self, x: Expr) -> Expr:
        return self._narrow(x, 128, low=-100, high=90)


def check(layer: Layer, *devices: Device) -> None:
    """Compile the layer and compare its integers on each device with the plain operators in NumPy."""
    module = layer.module()
    inputs = layer.inputs(module)
    wanted = evaluate(module, inputs)
    packed = module
    for item in accel_passes(blocks_of(layer.config), layer.rate.for_bus(layer.config)):
        packed = item(packed)
    model = weft.compile(replace(packed, stage="packed"), layer.config, vthreads=layer.threads, dram=layer.rate)
    assert any(item.device == "core" for item in model.layers)
    for device in devices:
        results = weft.load(model, device).run(inputs)
        for name, value in wanted.items():
            np.testing.assert_array_equal(results[name], value, err_msg=f"{device.name}: {layer}")


def functional(layer: Layer) -> Device:
    """The functional simulator, which also refuses races."""
    return weft.FsimDevice(layer.config, check_races=True, timing=False)


@st.composite
def layers(draw: st.DrawFn, configs: tuple[CoreConfig, ...] = CONFIGS, largest: int = 19) -> Layer:
    """Layers whose sizes divide nothing: odd pictures, channels, strides, pads and dilations."""
    small = st.integers(0, 3)
    kind = draw(st.sampled_from(KINDS))
    layer = Layer(
        kind=kind,
        config=draw(st.sampled_from(configs)),
        threads=draw(st.integers(1, 4)),
        rate=draw(st.builds(DramRate, latency=st.integers(1, 500), bytes_per_cycle=st.integers(1, 16))),
        batch=draw(st.integers(1, 3)),
        groups=draw(st.integers(2, 5)) if kind == "grouped" else 1,
        channels=draw(st.integers(1, 7 if kind == "grouped" else 21)),
        filters=draw(st.integers(1, 7 if kind == "grouped" else 21)),
        size=draw(st.tuples(st.integers(1, largest), st.integers(1, largest))),
        kernel=draw(st.tuples(st.integers(1, 5), st.integers(1, 5))),
        strides=draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        pads=draw(st.tuples(small, small, small, small)),
        dilations=(1, 1) if kind == "sum_pool" else draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        uniform=draw(st.booleans()),
        seed=draw(st.integers(0, 1000)),
    )
    if kind in OF_ROWS and draw(st.booleans()):
        return replace(layer, batch=draw(st.integers(4, 80)), channels=draw(st.integers(1, 90)), size=(1, 1),
                       kernel=(1, 1), strides=(1, 1), pads=(0, 0, 0, 0))  # fmt: skip
    if kind == "depthwise":  # a window whose pixels and weights have no room at once is left to the host
        assume(_entries_of_a_window(layer) <= layer.config.acc_depth)
    grown = max(0, 1 - min(layer.output)) * 3  # until the window fits
    return layer if kind in POINTWISE else replace(layer, size=(layer.size[0] + grown, layer.size[1] + grown))


def _entries_of_a_window(layer: Layer) -> int:
    """Accumulators that one output takes on the vector engine, with its requantise's parameters."""
    reach = math.prod((size - 1) * step + 1 for size, step in zip(layer.kernel, layer.dilations, strict=True))
    parts = max(1, layer.config.block_in // layer.config.block_out)
    return parts * (reach + math.prod(layer.kernel) + 5)


IN_NARROW_TILES = Layer("depthwise", TINY, threads=1, channels=2, filters=1, groups=1, size=(37, 37), kernel=(5, 4),
                        strides=(1, 1), pads=(0, 0, 0, 0), dilations=(3, 3))  # fmt: skip
"""The tiles of the two largest widths fit, but parameters in the middle leave no room for them in one piece."""


ODD = next(config for config in CONFIGS if config.name == "tiny-odd")
IN_LOW_TILES = Layer("depthwise", ODD, threads=1, rate=DramRate(latency=1, bytes_per_cycle=1), channels=11, filters=1,
                     size=(20, 11), kernel=(5, 5), strides=(1, 2), pads=(0, 0, 0, 0), dilations=(3, 2))  # fmt: skip
"""All of the cheapest tiles are too high, though all widths are among them."""


@given(layers())
@example(IN_NARROW_TILES)
@example(IN_LOW_TILES)
@settings(max_examples=25)
def test_a_layer_of_any_shape_equals_numpy(layer: Layer) -> None:
    check(layer, functional(layer))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_equals_numpy_on_the_real_core(kind: str) -> None:
    layer = Layer(kind, PYNQ, threads=3, channels=23, filters=35, groups=3 if kind == "grouped" else 1, size=(13, 11),
                  strides=(2, 1), pads=(0, 2, 1, 0), dilations=(1, 1) if kind == "sum_pool" else (1, 2))  # fmt: skip
    check(layer, functional(layer))


@pytest.mark.parametrize("kind", OF_ROWS)
def test_rows_of_a_matrix_equal_numpy_on_the_real_core(kind: str) -> None:
    layer = Layer(kind, PYNQ, batch=45, channels=90, filters=70, size=(1, 1), kernel=(1, 1), pads=(0, 0, 0, 0))
    check(layer, functional(layer))


@pytest.mark.long
@given(layers((*CONFIGS, PYNQ)))
@settings(max_examples=300)
def test_300_layers_of_any_shape_equal_numpy(layer: Layer) -> None:
    check(layer, functional(layer))


@pytest.mark.long
@given(layers((TINY,), largest=13))
@settings(max_examples=30)
def test_30_layers_of_any_shape_equal_numpy_on_the_rtl(layer: Layer) -> None:
    check(layer, functional(layer), weft.RtlDevice(layer.config, dram=UNSTEADY))
