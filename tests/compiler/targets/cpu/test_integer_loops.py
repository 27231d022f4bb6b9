"""Kernels of integers on processors without dot products: no lanes are taken apart to be computed one by one."""

from __future__ import annotations

import re

import pytest
from weft.compiler.graph import Module, TensorType, Var, call
from weft.compiler.targets.cpu.build import assemblies
from weft.compiler.targets.cpu.kernels import loop_target
from weft.compiler.targets.cpu.processor import named_target
from weft.compiler.targets.loops.model import link_model
from weft.compiler.targets.loops.prepare import prepare
from weft.compiler.targets.target import Job

from .programs import program_of
from .test_convolution import requantised
from .test_link import bytes_, module_of

PROCESSORS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "cortex-a9", "cortex-a53")

BY_ONE = re.compile(
    r"v?p(extr|insr)[bwdq]\s|mov[sz][bw][lq]\s+\S*\(|imul[lq]\s+\S*\("  # x86
    r"|vmov\.\w+\s.*\[|ldrs?[bh]\s+r"  # 32-bit ARM
    r"|[us]mov\s|(ins|mov)\s+v\d+\.[bhsd]\[|ldrs?[bh]\s+w"  # AArch64
)
"""An element on its way between a vector and other registers, or a byte or a product of its own."""

COMPUTES = ("int64", "reduce-update", "_product_")
"""In the text of kernels that are more than moves of data."""


def networks_layers() -> Module:
    """Convolutions of each kind, a product of tokens, poolings, a residual addition and a gate, each requantised."""
    x, y = (Var(name, TensorType((1, 32, 16, 16), "int8")) for name in "xy")
    tokens = Var("tokens", TensorType((40, 96, 1, 1), "int8"))
    first = requantised(call("conv2d", x, bytes_(32, 32, 1, 1)))
    doubled = call("multiply_immediate", x, weight=91)
    return module_of(
        requantised(call("conv2d", first, bytes_(32, 32, 3, 3), pads=(1,) * 4)),
        requantised(call("conv2d", first, bytes_(32, 1, 3, 3), groups=32, pads=(1,) * 4)),
        requantised(call("conv2d", first, bytes_(32, 8, 3, 3), groups=4, pads=(1,) * 4)),
        call("max_pool", first, kernel=(3, 3), strides=(2, 2), pads=(1,) * 4),
        requantised(call("sum_pool", first, kernel=(16, 16))),
        requantised(call("conv2d", tokens, bytes_(64, 96, 1, 1))),
        requantised(call("multiply_accumulate", doubled, y, weight=77)),
        requantised(call("multiply", x, y)),
        params=(x, y, tokens),
    )


@pytest.mark.parametrize("name", PROCESSORS)
def test_lanes_are_not_taken_apart(name: str) -> None:
    processor = named_target(name)
    module = prepare(networks_layers(), dot_products=processor.dot_product)
    program = program_of(link_model(module, "cpu", loop_target(processor), 1, Job()))
    assembly = assemblies(program, processor)
    texts = [code for code in program.kernels if any(word in code.text for word in COMPUTES)]
    assert len(texts) == 9  # the first convolution, too
    for code in texts:
        single = [line for line in map(str.strip, assembly[code.symbol].splitlines()) if BY_ONE.match(line)]
        assert not single, "\n".join([code.text, *single])


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_gate_may_lie_in_larger_blocks_than_its_image(name: str) -> None:
    """Groups of eight channels lie in blocks of eight; the gate, of as many, in the blocks that are fastest."""
    processor, x = named_target(name), Var("x", TensorType((1, 104, 12, 12), "int8"))
    image = requantised(call("conv2d", x, bytes_(104, 8, 3, 3), groups=13, pads=(1,) * 4))
    few = requantised(call("sum_pool", image, kernel=(12, 12)))
    gate = call("subtract_immediate", requantised(call("conv2d", few, bytes_(104, 104, 1, 1))), value=-128)
    module = module_of(requantised(call("multiply", image, gate)), params=(x,))
    program = program_of(
        link_model(prepare(module, dot_products=processor.dot_product), "cpu", loop_target(processor), 1, Job())
    )
    assembly = assemblies(program, processor)
    (last,) = (code for code in program.kernels if "int64" in code.text and "reduce" not in code.text)
    single = [line for line in map(str.strip, assembly[last.symbol].splitlines()) if BY_ONE.match(line)]
    assert not single, "\n".join([last.text, *single])
