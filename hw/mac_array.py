"""The multiply-accumulate array: int8 products summed over ``block_in``, one wave a cycle."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .config import CoreConfig

MULTIPLY_STAGES = 3
"""Registers from the operands to the products; the plain array needs one, a DSP block's three are all used."""

ADDENDS = 4
"""Values that one register stage of the adder tree adds up."""


def input_lane(config: CoreConfig, row: int, channel: int) -> int:
    """Byte of an ``inp`` entry that holds input ``channel`` of batch ``row``."""
    return _lane(config, row, channel)


def output_lane(config: CoreConfig, row: int, channel: int) -> int:
    """Lane of an ``acc`` or ``out`` entry that holds output ``channel`` of batch ``row``."""
    return _lane(config, row, channel)


def _lane(config: CoreConfig, row: int, channel: int) -> int:
    size = config.sub_block
    return (channel // size * config.batch + row) * size + channel % size


def sum_bits(config: CoreConfig) -> int:
    """Width of a sum of ``block_in`` products of two int8."""
    return 16 + int(ceil_log2(config.block_in))


def array_latency(config: CoreConfig) -> int:
    """Cycles from operands to sums, the same for every variant of the array."""
    return MULTIPLY_STAGES + (int(ceil_log2(config.block_in)) + 1) // 2


class MacArray(wiring.Component):
    """``sums[output_lane(n, o)] = sum over k of inp[n, k] * wgt[o, k]``, :func:`array_latency` cycles after ``valid``.

    Takes a wave every cycle; operands need to hold only in the cycle with ``valid``, and ``sums`` stay until the next
    wave's. All variants have these ports and are equal in every cycle.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        super().__init__(
            {
                "valid": In(1),
                "inp": In(8 * config.inp_bytes),
                "wgt": In(8 * config.wgt_bytes),
                "sums": Out(signed(sum_bits(config))).array(config.lanes),
            }
        )


class PlainMacArray(MacArray):
    """The array that leaves multipliers to synthesis; the fast one in simulation."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        valids = stage_valids(m, config, self.valid)
        inp = [element(m, self.inp, lane, f"inp_{lane}") for lane in range(config.inp_bytes)]
        wgt = [element(m, self.wgt, lane, f"wgt_{lane}") for lane in range(config.wgt_bytes)]
        for row in range(config.batch):
            for output in range(config.block_out):
                products = [
                    inp[input_lane(config, row, channel)] * wgt[output * config.block_in + channel]
                    for channel in range(config.block_in)
                ]
                lane = output_lane(config, row, output)
                products = load_registers(m, products, valids[0], f"lane_{lane}_stage0")
                m.d.comb += self.sums[lane].eq(pipelined_sum(m, products, valids, 1, f"lane_{lane}"))
        return m


def stage_valids(m: Module, config: CoreConfig, valid: Signal) -> list[Signal]:
    """For each stage of registers, from operands to sums, whether it loads in this cycle."""
    valids = [valid]
    for stage in range(array_latency(config) - 1):
        delayed = Signal(name=f"valid_{stage + 1}")
        m.d.sync += delayed.eq(valids[-1])
        valids.append(delayed)
    return valids


def element(m: Module, entry: Any, lane: int, name: str) -> Signal:
    """Byte ``lane`` of an entry, signed."""
    # A Signal of its own for each element is what makes the simulated array fast.
    element = Signal(signed(8), name=name)
    m.d.comb += element.eq(entry[8 * lane : 8 * lane + 8])
    return element


def _balanced_sum(values: list[Any]) -> Any:
    """The sum as a tree, which is also what keeps its width minimal."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return _balanced_sum(values[:half]) + _balanced_sum(values[half:])


def load_registers(m: Module, values: list[Any], valid: Signal, name: str) -> list[Signal]:
    """Registers that take the values in cycles with ``valid``."""
    registers = [
        Signal(value.shape(), reset_less=True, name=f"{name}_{position}") for position, value in enumerate(values)
    ]
    with m.If(valid):
        m.d.sync += [register.eq(value) for register, value in zip(registers, values, strict=True)]
    return registers


def pipelined_sum(m: Module, values: list[Any], valids: list[Signal], first: int, name: str) -> Any:
    """Add up registered ``values`` in stages of a register each, from stage ``first`` on; spare stages come last, where
    least is stored."""
    for stage, valid in enumerate(valids[first:], first):
        values = [_balanced_sum(values[start : start + ADDENDS]) for start in range(0, len(values), ADDENDS)]
        values = load_registers(m, values, valid, f"{name}_stage{stage}")
    (total,) = values
    return total
