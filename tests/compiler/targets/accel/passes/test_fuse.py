"""What is computed for every tile: an anchor's result that elementwise operators repeat, as gates on means do."""

from __future__ import annotations

from weft.compiler.graph import evaluate, parse
from weft.compiler.passes.manager import largest_difference, random_inputs
from weft.compiler.targets.accel.cost.space import needs
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.compiler.targets.accel.passes import fuse_with_report, pack_layout
from weft.compiler.targets.accel.schedule.tiling import Problem
from weft.hw.config import TINY


def numbers(channels: int) -> str:
    """Parameters of a requantise."""
    return ", ".join(
        f"int32[{channels}]({', '.join([value] * channels)})" for value in ("1", "8388608", "25")
    )  # fmt: skip


def test_a_window_is_not_computed_for_every_tile_that_repeats_it() -> None:
    """A gate of a mean: a tile of the product would take all of the mean's windows."""
    module = parse(f"""
    fn @main(%x: int8[1, 4, 16, 16]) {{
      %1 = requantise(sum_pool(%x, kernel=(16, 16)), {numbers(4)})
      return requantise(multiply(%x, subtract_immediate(%1, value=5)), {numbers(4)})
    }}
    """)
    fused, report = fuse_with_report(module)
    assert len(report) == 2
    assert any("with its sum_pool it would be computed for every tile" in reason for reason in report[-1].boundaries)
    inputs = random_inputs(module, 0)
    assert largest_difference(evaluate(module, inputs), evaluate(fused, inputs)) == 0


GATE = """
    fn @main(%x: int8[1, 4, {size}, {size}], %g: int8[1, 4, 1, 1]) {{
      %1 = requantise(conv2d(%g, int8[4, 4, 1, 1]({weights})), {numbers})
      return requantise(multiply(%x, subtract_immediate(%1, value=5)), {numbers})
    }}
"""


def gate(size: int) -> str:
    return GATE.format(size=size, weights=", ".join(["3"] * 16), numbers=numbers(4))


def test_products_of_a_pixel_join_what_repeats_it() -> None:
    assert len(fuse_with_report(parse(gate(64)))[1]) == 1


def test_a_kernel_needs_the_products_of_its_own_pixels_once() -> None:
    packed = pack_layout(Blocks.of(TINY)).run(fuse_with_report(parse(gate(8)))[0])
    kernel = next(lower_function(each) for each in packed.functions if not each.host_reason and each.is_primitive)
    least = needs(Problem(TINY, kernel, 1))
    assert least.array == 1
    assert least.vector == 2 * 8 * 8  # the product and its requantise; the gate's own stages are one entry each
