"""Proofs that the array gives the sums of products that a GEMM means, in every lane and in the cycle that it should.

Together with ``gemm-forwarding``, which has free sums in place of the array, that is what a micro-op of GEMM does: any
sequence of them adds these sums to its accumulators.
"""

from __future__ import annotations

from dataclasses import replace

from amaranth.hdl import Const, Value, signed
from weft.hw.mac_array import PlainMacArray, input_lane, output_lane, sum_bits
from weft.hw.mac_array_packed import PRODUCT_BITS, PackedMacArray
from weft.hw.pipelines import array_latency

from .harness import Harness
from .prover import Mutant
from .queues import NARROW
from .window import Window, window_proof

BATCH = replace(NARROW, batch=2)


def sums() -> Harness:
    """A wave that comes in any state, with any waves behind it."""
    harness = Harness()
    config = BATCH
    window = Window(harness)
    array = PlainMacArray(config)
    harness.add("array", array)
    harness.assume(~window.at(0) | array.valid)
    inp, wgt = (window.kept(name, getattr(array, name), 0) for name in ("inp", "wgt"))
    ends = window.at(array_latency(config))
    for row in range(config.batch):
        for output in range(config.block_out):
            total: Value = Const(0, signed(sum_bits(config)))
            for channel in range(config.block_in):
                first = _byte(inp, input_lane(config, row, channel))
                total = total + first * _byte(wgt, output * config.block_in + channel)
            lane = output_lane(config, row, output)
            harness.prove(~ends | (array.sums[lane] == total), f"sum_of_lane_{lane}")
    return harness


def packed_sums() -> Harness:
    """The same of the array that makes two products in each multiplier, whose multipliers are cut out.

    For each pair of bytes any two products are taken. A multiplier gives ``(high * 2**16 + low) * factor``, which is
    ``high * factor * 2**16 + low * factor``: for that law of numbers no solver is asked.
    """
    harness = Harness()
    config = NARROW
    window = Window(harness)
    array = PackedMacArray(config)
    inside = harness.add("array", array)
    harness.assume(~window.at(0) | array.valid)
    inp, wgt = (window.kept(name, getattr(array, name), 0) for name in ("inp", "wgt"))
    ends = window.at(array_latency(config))
    for output in range(0, config.block_out, 2):
        totals: list[Value] = [Const(0, 1), Const(0, 1)]
        for channel in range(config.block_in):
            low, high = (_byte(wgt, (output + upper) * config.block_in + channel) for upper in (0, 1))
            pair = inside[f"pair_{output}_{channel}"] == (high << PRODUCT_BITS) + low
            factor = inside[f"factor_0_{channel}"] == _byte(inp, input_lane(config, 0, channel))
            harness.prove(~window.at(1) | (pair & factor), f"factors_of_outputs_{output}_and_channel_{channel}")
            products = [harness.constant(f"product_{output}_{channel}_{upper}", signed(16)) for upper in (0, 1)]
            for each in products:
                harness.assume((each >= -127 * 128) & (each <= 128 * 128))
            made = inside[f"row_0_outputs_{output}_product_{channel}"]
            harness.assume(~window.at(2) | (made == (products[1] << PRODUCT_BITS) + products[0]))
            totals = [total + each for total, each in zip(totals, products, strict=True)]
        for upper, total in enumerate(totals):
            lane = output_lane(config, 0, output + upper)
            harness.prove(~ends | (array.sums[lane] == total), f"sum_of_lane_{lane}")
    return harness


def _byte(entry: Value, number: int) -> Value:
    return entry[8 * number : 8 * number + 8].as_signed()


CLAIM = "gives in each lane the sum of the products of a wave's entries"

PROOFS = [
    window_proof(
        "isa-gemm", f"the array {CLAIM}", sums,
        Mutant("mac_array", "wgt[output * config.block_in + channel]", "wgt[channel * config.block_in + output]"),
        array_latency(BATCH), instruction="GEMM", flags="products and sums, two batches",
    ),
    window_proof(
        "isa-gemm-packed", f"the array with two products in each multiplier {CLAIM}", packed_sums,
        Mutant("mac_array_packed", "OFFSET = 1 << (PRODUCT_BITS - 1)", "OFFSET = 1 << (PRODUCT_BITS - 2)"),
        array_latency(NARROW), instruction="GEMM", flags="two products in a multiplier",
        cut_multipliers=NARROW.block_out // 2 * NARROW.block_in,
    ),
]  # fmt: skip
