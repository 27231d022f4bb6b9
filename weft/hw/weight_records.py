"""Weights of 4 bits on their way into ``wgt``: records as they come from memory, and how they become int8.

A record is a head, then ``weight_group / block_in`` entries of half a byte a weight. The head has one byte for each
output of the block: a scale (low half) and a zero point. A weight is ``(code - zero point) * scale``, its low 8 bits.
"""

from __future__ import annotations

from itertools import pairwise

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import CoreConfig
from .pipelines import UNPACK_CYCLES
from .transfer_kinds import RecordShape


class RecordHead(wiring.Component):
    """Keeps the head of the record that is being read, and says which words are heads.

    starts
        A row of records starts with the next word; ``records`` says whether it is one.
    takes, word, part, ends_entry
        A word is taken: its data, its number in the head or in its entry, and whether it is its entry's last.
    in_head, ends_head
        The word that is offered belongs to a head; it is the last of that head.
    pairs
        Scale and zero point, one byte each, of the outputs of the word that is offered.
    """

    def __init__(self, config: CoreConfig) -> None:
        self._shape = shape = RecordShape.of(config)
        super().__init__(
            {
                "starts": In(1),
                "records": In(1),
                "takes": In(1),
                "word": In(config.bus_bits),
                "part": In(range(max(2, shape.head_words, config.wgt_bytes // config.bus_bytes))),
                "ends_entry": In(1),
                "in_head": Out(1),
                "ends_head": Out(1),
                "pairs": Out(8 * shape.outputs),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape = self._shape
        pairs = Signal(8 * shape.block_out, reset_less=True)
        entry = Signal(range(max(2, shape.entries)), reset_less=True)
        ends_record = self.takes & self.ends_entry & (entry == shape.entries - 1)
        m.d.comb += [
            self.ends_head.eq(self.in_head & (self.part == shape.head_words - 1)),
            self.pairs.eq(pairs.word_select(self.part >> shape.words_each.bit_length() - 1, 8 * shape.outputs)),
        ]
        with m.If(self.takes & self.in_head):
            for number, place in enumerate(range(0, len(pairs), len(self.word))):  # what follows in the head is filling
                with m.If(self.part == number):
                    m.d.sync += pairs[place : place + len(self.word)].eq(self.word)
        with m.If(self.starts):
            m.d.sync += [self.in_head.eq(self.records), entry.eq(0)]
        with m.Elif(self.takes & self.in_head):
            m.d.sync += self.in_head.eq(~self.ends_head)
        with m.Elif(ends_record):
            m.d.sync += [self.in_head.eq(self.records), entry.eq(0)]
        with m.Elif(self.takes & self.ends_entry):
            m.d.sync += entry.eq(entry + 1)
        return m


class WeightUnpacker(wiring.Component):
    """Turns a bus word of 4-bit weights into two of int8, one each cycle; passes on all else unchanged, in order.

    parts
        What the load writer makes, with ``records``: ``word`` holds 4-bit weights, of outputs with ``pairs``.
    unpacked
        The same, ``word`` twice as wide; what is no record has its word in both halves.
    idle
        Nothing is on its way.
    """

    def __init__(self, config: CoreConfig, packed: data.StructLayout, unpacked: data.StructLayout) -> None:
        self._config = config
        self._kept = {name: field for name, field in unpacked.members.items() if name != "word"}
        super().__init__(
            {"parts": In(stream.Signature(packed)), "unpacked": Out(stream.Signature(unpacked)), "idle": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape, bus_bits = RecordShape.of(self._config), self._config.bus_bits
        weights = bus_bits // 4
        part = self.parts.payload
        kept = data.StructLayout(self._kept)
        valid = Signal(UNPACK_CYCLES)
        stages = [Signal(kept, name=f"kept{number}", reset_less=True) for number in range(UNPACK_CYCLES)]
        word = Signal(bus_bits, reset_less=True)
        pairs = Signal(8 * shape.outputs, reset_less=True)
        records = Signal(reset_less=True)
        products = Signal(data.ArrayLayout(8, weights), reset_less=True)
        offsets = Signal(data.ArrayLayout(8, shape.outputs), reset_less=True)
        result = Signal(2 * bus_bits, reset_less=True)
        enable = self.unpacked.ready
        m.d.comb += [
            self.parts.ready.eq(enable),
            self.unpacked.valid.eq(valid[-1]),
            self.idle.eq(~valid.any()),
            self.unpacked.payload.word.eq(result),
        ]
        m.d.comb += [self.unpacked.payload[name].eq(stages[-1][name]) for name in self._kept]
        scales = [pairs[8 * row : 8 * row + 4] for row in range(shape.outputs)]
        zeros = [pairs[8 * row + 4 : 8 * row + 8] for row in range(shape.outputs)]
        with m.If(enable):
            m.d.sync += [valid.eq(Cat(self.parts.valid, valid)), word.eq(part.word), pairs.eq(part.pairs)]
            m.d.sync += [records.eq(part.records)]
            m.d.sync += [stages[0][name].eq(part[name]) for name in self._kept]
            m.d.sync += [after.eq(before) for before, after in pairwise(stages)]
            for row in range(shape.outputs):
                m.d.sync += offsets[row].eq(Mux(records, product(zeros[row], scales[row]), 0))
            for number in range(weights):
                row = number * shape.outputs // weights
                plain = word.word_select(number % (weights // 2), 8)
                unpacked = product(word.word_select(number, 4), scales[row])
                m.d.sync += products[number].eq(Mux(records, unpacked, plain))
                m.d.sync += result.word_select(number, 8).eq((products[number] - offsets[row])[:8])
        return m


def product(code: Value, scale: Value) -> Value:
    """The product of two numbers of 4 bits by additions: two levels of them take less than a multiplier's carry."""
    low, high = (Mux(code[bit], scale, 0) + (Mux(code[bit + 1], scale, 0) << 1) for bit in (0, 2))
    return low + (high << 2)
