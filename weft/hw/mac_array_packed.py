"""The multiply-accumulate array with two int8 products in each multiplier of 25 x 18 bits, such as DSP48E1's."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal

from .config import CoreConfig
from .mac_array import MacArray, PlainMacArray, element, factor_row, input_lane, load_registers, stage_valids
from .pipelines import MULTIPLY_STAGES

PRODUCT_BITS = 16
"""Bits of a product of two int8, and the distance of the two products that share a multiplier."""

OFFSET = 1 << (PRODUCT_BITS - 1)
"""Added to the lower product: it is then never negative, and so borrows nothing from the upper one."""


class PackedMacArray(MacArray):
    """Outputs ``o`` and ``o + 1`` meet the same input, so one multiplier makes both products:

    ``(wgt[o + 1] * 2**16 + wgt[o]) * inp + 2**15 = (wgt[o + 1] * inp) * 2**16 + (wgt[o] * inp + 2**15)``

    The halves of the result are taken apart without logic, but for the top bit of the lower one, which is inverted. The
    three stages are those of a DSP48E1: adder before the multiplier, multiplier, adder of a constant behind it.
    """

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        valids = stage_valids(m, config, self.valid)
        factors = self._factors(m)
        wgt = [element(m, self.wgt, lane, f"wgt_{lane}") for lane in range(config.wgt_bytes)]
        factors = [load_registers(m, row, valids[0], f"factor_{number}") for number, row in enumerate(factors)]
        products: list[list[list[Any]]] = [[] for _ in range(config.batch)]
        for output in range(0, config.block_out, 2):
            columns = [
                wgt[number * config.block_in : (number + 1) * config.block_in] for number in (output, output + 1)
            ]
            pairs = [Cat(Const(0, PRODUCT_BITS), high).as_signed() + low for low, high in zip(*columns, strict=True)]
            pairs = load_registers(m, pairs, valids[0], f"pair_{output}")
            inp = factors[factor_row(factors, output)]
            for row in range(config.batch):
                inputs = [inp[input_lane(config, row, channel)] for channel in range(config.block_in)]
                products[row] += _two_outputs(m, f"row_{row}_outputs_{output}", pairs, inputs, valids)
        self._add_up(m, products, valids, MULTIPLY_STAGES)
        return m


def _two_outputs(
    m: Module, name: str, pairs: list[Any], inputs: list[Any], valids: list[Signal]
) -> tuple[list[Any], list[Any]]:
    """Products of two outputs for each channel, the lower output's first."""
    values = [pair * value for pair, value in zip(pairs, inputs, strict=True)]
    values = load_registers(m, values, valids[1], f"{name}_product")
    values = [(value + OFFSET)[: 2 * PRODUCT_BITS] for value in values]
    values = load_registers(m, values, valids[2], f"{name}_offset")
    lows = [Cat(value[: PRODUCT_BITS - 1], ~value[PRODUCT_BITS - 1]).as_signed() for value in values]
    highs = [value[PRODUCT_BITS:].as_signed() for value in values]
    return lows, highs


class Multipliers(StrEnum):
    """How products are given to multipliers: what a core is elaborated for (its Amaranth ``platform``)."""

    PLAIN = "plain"  # one each: simulation, and parts with small multipliers
    PACKED = "packed"  # two in one of at least 25 x 18 bits with an adder on either side


def mac_array(config: CoreConfig, platform: object) -> MacArray:
    """The variant of the array for a platform; the plain one where it is no :class:`Multipliers`."""
    return PackedMacArray(config) if platform is Multipliers.PACKED else PlainMacArray(config)
