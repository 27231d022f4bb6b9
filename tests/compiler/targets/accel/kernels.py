"""Random packed functions, and their way through compiler and functional simulator."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import weft
from weft.compiler.graph import (
    Array,
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    Module,
    Span,
    TensorType,
    Var,
    call,
    evaluate_function,
)
from weft.compiler.model import CompiledModel, CoreStep
from weft.compiler.operators.numerics import quantise_multiplier
from weft.compiler.targets.accel.operators import packed_layout
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.hw.config import TINY, CoreConfig
from weft.hw.dram_rate import DramRate
from weft.sim.fsim import FunctionalSimulator
from weft.sim.rtl import RtlSimulator

CONFIGS = (
    TINY,
    replace(TINY, name="tiny-batch2", batch=2),
    replace(TINY, name="tiny-wide-in", block_in=8),
    replace(TINY, name="tiny-wide-out", block_out=8),
    replace(TINY, name="tiny-odd", batch=2, block_in=2, block_out=8, acc_banks=2),
)


def blocks_of(config: CoreConfig) -> Blocks:
    return Blocks.of(config)


@dataclass
class Build:
    """Operators on packed tensors with random constants; ``params`` become the function's."""

    config: CoreConfig
    seed: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.blocks = blocks_of(self.config)
        self.params: list[Var] = []

    def input(self, *shape: int) -> Var:
        """An int8 activation of plain ``shape``."""
        self.params.append(Var(f"x{len(self.params)}", TensorType(self.blocks.activation_shape(shape), "int8")))
        return self.params[-1]

    def like(self, value: Expr) -> Var:
        """Another activation that an accumulator tensor can be combined with."""
        outer, groups, height, width, rows, batch, lanes = value.shape
        return self.input(outer * batch, groups * rows * lanes, height, width)

    def conv(self, x: Expr, channels: int, filters: int, kernel: tuple[int, int], **attrs: object) -> Call:
        weights = self.random.integers(-128, 128, (filters, channels, *kernel)).astype(np.int8)
        packed = packed_layout.pack_weights(weights, self.blocks)
        return call("packed_conv2d", x, Constant(packed), blocks=self.blocks.sizes, **attrs)

    def depthwise(self, x: Expr, channels: int, kernel: tuple[int, int], **attrs: object) -> Call:
        weights = self.random.integers(-128, 128, (channels, 1, *kernel)).astype(np.int8)
        packed = packed_layout.pack_depthwise_weights(weights, self.blocks)
        return call("packed_depthwise_conv2d", x, Constant(packed), blocks=self.blocks.sizes, **attrs)

    def grouped(self, x: Expr, channels: int, group: int, kernel: tuple[int, int], **attrs: object) -> Call:
        """A convolution in groups of ``group`` channels that lie within the blocks of a square array."""
        weights = self.random.integers(-128, 128, (channels, group, *kernel)).astype(np.int8)
        packed = packed_layout.pack_grouped_weights(weights, self.blocks)
        return call("packed_grouped_conv2d", x, Constant(packed), blocks=self.blocks.sizes, **attrs)

    def requantise(self, x: Expr, channels: int, spread: float, **attrs: object) -> Call:
        """``spread``: about the largest magnitude that ``x`` has. One seed of three has the same parameters in all
        channels."""
        own = 1 if self.seed % 3 == 1 else channels
        multiplier, shift = quantise_multiplier(self.random.uniform(40, 200, own) / spread)
        bias = self.random.integers(-int(spread) // 8 - 1, int(spread) // 8 + 1, own).astype(np.int32)
        parameters = (np.resize(each, channels) for each in (bias, multiplier, shift))
        params = packed_layout.pack_parameters(*parameters, self.blocks)
        attrs.setdefault("zero_point", int(self.random.integers(-128, 128)))
        return call("packed_requantise", x, Constant(params), blocks=self.blocks.sizes, **attrs)

    def op(self, name: str, *args: Expr, **attrs: object) -> Call:
        return call(f"packed_{name}", *args, blocks=self.blocks.sizes, **attrs)

    def function(self, body: Expr, name: str = "kernel") -> Function:
        return Function(tuple(self.params), body, Attrs({"name": name, "primitive": True}))


def compile_function(
    function: Function, config: CoreConfig, vthreads: int = 2, dram: DramRate | str = "", hiding: str = "rings"
) -> CompiledModel:
    """Compile one packed primitive function; inputs and output stay packed, the output is called ``output``."""
    body = call(function, *function.params, span=Span((function.name,), "result"))
    main = Function(function.params, body, Attrs({"name": function.name, "outputs": ("output",)}))
    model = weft.compile(Module(main, "packed"), config, vthreads=vthreads, dram=dram, hiding=hiding)
    assert isinstance(model, CompiledModel)
    return model


def program_of(model: CompiledModel) -> CoreStep:
    """The one program of a model."""
    (step,) = (step for step in model.steps if isinstance(step, CoreStep))
    return step


def write_model(simulator: FunctionalSimulator | RtlSimulator, model: CompiledModel, inputs: dict[str, Array]) -> None:
    """Put the constants, the program and the inputs of a model of one step into a simulator's memory."""
    step = program_of(model)
    pieces = [(constant.offset, constant.data) for constant in model.core.constants]
    pieces.append((step.program_offset, step.program))
    pieces += [
        (model.core.slots[name].offset, np.frombuffer(value.tobytes(), np.uint8)) for name, value in inputs.items()
    ]
    for offset, data in pieces:
        simulator.dram[offset : offset + len(data)] = data


def run_on_fsim(model: CompiledModel, inputs: dict[str, Array]) -> dict[str, Array]:
    """What the program of a model of one step leaves in its output slots, with the simulator's own checks on."""
    simulator = FunctionalSimulator(model.config, model.core.window_bytes)
    write_model(simulator, model, inputs)
    step = program_of(model)
    result = simulator.run(step.program_offset, len(step.program) // model.config.instruction_bytes)
    assert result.fault is None, str(result.fault)
    assert not result.tokens_left
    outputs = {}
    for name in step.outputs:
        slot = model.core.slots[name]
        data = simulator.dram[slot.offset : slot.offset + slot.nbytes]
        outputs[name] = data.copy().view(slot.dtype).reshape(slot.shape)
    return outputs


def check(function: Function, config: CoreConfig, threads: int = 2, seed: int = 0) -> CompiledModel:
    """Compile, run on fsim, compare with NumPy on random data; gives the compiled model."""
    model = compile_function(function, config, threads)
    random = np.random.default_rng(seed)
    arrays = [random.integers(-128, 128, param.type.shape).astype(np.int8) for param in function.params]
    inputs = dict(zip((param.name for param in function.params), arrays, strict=True))
    (result,) = run_on_fsim(model, inputs).values()
    np.testing.assert_array_equal(result, evaluate_function(function, arrays))
    return model
