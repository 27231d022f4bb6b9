"""The multiply-accumulate array: int8 products summed over ``block_in``, one wave a cycle."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .config import CoreConfig
from .isa import TAP_COLUMNS, TAP_ROW_OUTPUTS, TAP_ROWS
from .pipelines import ADDENDS, array_latency


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


class MacArray(wiring.Component):
    """``sums[output_lane(n, o)] = sum over k of inp[n, k] * wgt[o, k]``, :func:`array_latency` cycles after ``valid``.

    Takes a wave every cycle; operands need to hold only in the cycle with ``valid``, and ``sums`` stay until the next
    wave's. All variants have these ports and are equal in every cycle.

    On a core that has it, a wave with ``depthwise`` is a column of a picture: ``above[0]``, ``above[1]`` and ``inp``
    are its rows from the top. ``sums[k]`` is what the last three such waves give: the product of row ``kh`` of the wave
    ``2 - kw`` waves before this one with ``wgt[4*kh + kw, k]`` of that wave, summed over ``kh`` and ``kw``.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        taps = {"depthwise": In(1), "above": In(8 * config.inp_bytes).array(TAP_ROWS - 1)}
        super().__init__(
            {
                "valid": In(1),
                "inp": In(8 * config.inp_bytes),
                "wgt": In(8 * config.wgt_bytes),
                **(taps if config.depthwise else {}),
                "sums": Out(signed(sum_bits(config))).array(config.lanes),
            }
        )

    def _factors(self, m: Module) -> list[list[Signal]]:
        """Bytes of what meets the outputs with row 0 of taps, row 1, and so on; the last meets all others."""
        entries = [self.inp]
        for row in range(TAP_ROWS - 1) if self.config.depthwise else ():
            chosen = Signal.like(self.inp, name=f"row_{row}")  # whole entries: quick in simulation
            m.d.comb += chosen.eq(Mux(self.depthwise, self.above[row], self.inp))
            entries.insert(row, chosen)
        lanes = range(self.config.inp_bytes)
        return [[element(m, entry, lane, f"{entry.name}_{lane}") for lane in lanes] for entry in entries]

    def _add_up(self, m: Module, products: list[list[list[Any]]], valids: list[Signal], first: int) -> None:
        """Sums of registered ``products[row][output][channel]``, from register stage ``first`` on."""
        config = self.config
        taps = stage_valids(m, config, self.valid & self.depthwise, "taps") if config.depthwise else None
        for row, outputs in enumerate(products):
            for output, values in enumerate(outputs):
                lane = output_lane(config, row, output)
                columns = _column_sums(outputs, output) if taps is not None else []
                total = pipelined_sum(m, values, valids, first, f"lane_{lane}", columns, taps or [])
                m.d.comb += self.sums[lane].eq(total)


class PlainMacArray(MacArray):
    """The array that leaves multipliers to synthesis; the fast one in simulation."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        valids = stage_valids(m, config, self.valid)
        factors = self._factors(m)
        wgt = [element(m, self.wgt, lane, f"wgt_{lane}") for lane in range(config.wgt_bytes)]
        products: list[list[list[Any]]] = [[] for _ in range(config.batch)]
        for row in range(config.batch):
            for output in range(config.block_out):
                inp = factors[factor_row(factors, output)]
                values = [
                    inp[input_lane(config, row, channel)] * wgt[output * config.block_in + channel]
                    for channel in range(config.block_in)
                ]
                lane = output_lane(config, row, output)
                products[row].append(load_registers(m, values, valids[0], f"lane_{lane}_stage0"))
        self._add_up(m, products, valids, 1)
        return m


def factor_row(factors: list[list[Signal]], output: int) -> int:
    """Which of :meth:`MacArray._factors` meets an output."""
    return min(output // TAP_ROW_OUTPUTS, len(factors) - 1)


def stage_valids(m: Module, config: CoreConfig, valid: Any, name: str = "valid") -> list[Any]:
    """For each stage of registers, from operands to sums, whether it loads in this cycle."""
    valids = [valid]
    for stage in range(array_latency(config) - 1):
        delayed = Signal(name=f"{name}_{stage + 1}")
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


def pipelined_sum(
    m: Module, values: list[Any], valids: list[Any], first: int, name: str, columns: list[Any], taps: list[Any]
) -> Any:
    """Add up registered ``values`` in stages of a register each, from stage ``first`` on; spare stages come last, where
    least is stored.

    In waves in which a stage's ``taps`` is set, the total is that of a filter over the waves instead: of ``columns``,
    the last one of this wave, the one before it of the wave before, and so on. It takes the place of the last addition.
    """
    for stage, valid in enumerate(valids[first:], first):
        adds = len(values) > 1
        values = [_balanced_sum(values[start : start + ADDENDS]) for start in range(0, len(values), ADDENDS)]
        if columns and adds and len(values) == 1:
            # Transposed: each register holds what the waves so far give to the sum that a later one completes.
            partial = columns[0]
            for number, column in enumerate(columns[1:]):
                (held,) = load_registers(m, [partial], taps[stage], f"{name}_column{number}")
                partial = held + column
            values = [Mux(taps[stage], partial, values[0])]
        elif columns and adds:
            columns = load_registers(m, columns, taps[stage], f"{name}_taps{stage}")
        values = load_registers(m, values, valid, f"{name}_stage{stage}")
    (total,) = values
    return total


def _column_sums(outputs: list[list[Any]], channel: int) -> list[Any]:
    """For each column of taps, the sum over the rows of a channel's products."""
    return [
        _balanced_sum([outputs[TAP_ROW_OUTPUTS * row + column][channel] for row in range(TAP_ROWS)])
        for column in range(TAP_COLUMNS)
    ]
