"""The end of a LOAD: turns the words that come from memory into entries, with padding between, and writes them."""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .config import PAD_BITS, CoreConfig
from .interfaces import WritePortSignature, chunk_bits
from .memories import Memory
from .pipelines import NUMBER_BITS
from .read_dma import word_layout
from .skid_buffer import SkidBuffer
from .transfer_kinds import LoadKind, LoadTargets, RecordShape
from .transfer_plan import total_bits
from .weight_records import RecordHead, WeightUnpacker


def write_ports(config: CoreConfig, targets: LoadTargets) -> dict[str, Any]:
    """Members ``own`` and ``acc`` of a component that writes where a load engine does."""

    def port(memory: Memory) -> Any:
        size = config.entry_bytes(memory)
        return Out(WritePortSignature(ceil_log2(config.depth(memory)), 8 * size, chunk_bits(config, size)))

    return {"own": port(targets.own), "acc": port(Memory.ACC)}


@unique
class RowPart(IntEnum):
    """Part of a row that is being written."""

    LEFT = 0  # padding; also a whole row of it
    BODY = 1  # data
    RIGHT = 2  # padding


def write_layout(config: CoreConfig) -> data.StructLayout:
    """What the writer needs to know of a LOAD.

    ``top``, ``bottom``: rows of padding, ``width`` entries each; ``rows`` rows of ``left + columns + right``
    entries, ``columns`` not 0. ``position``: place of the first row's first entry in its bus word, in entries;
    ``step`` from row to row.
    """
    position = (config.bus_bytes - 1).bit_length()
    return data.StructLayout(
        {
            "number": NUMBER_BITS,
            "kind": LoadKind,
            "empty": 1,
            "index": config.index_bits,
            "top": total_bits(config),
            "rows": config.count_bits,
            "bottom": total_bits(config),
            "width": total_bits(config),
            "left": PAD_BITS,
            "columns": config.count_bits,
            "right": PAD_BITS,
            "pad_value": 8,
            "position": position,
            "step": position,
        }
    )


class LoadWriter(wiring.Component):
    """Writes one entry a cycle, or one bus word where entries are wider; padding one entry a cycle.

    loads
        LOADs in order; a LOAD costs two cycles more than its entries.
    words
        The words of their bursts, in order; a word that holds the end of one row and the start of the next comes twice.
    halt
        Write nothing more.
    retire
        The oldest LOAD is written; one cycle long.
    failed
        The memory refused a word of LOAD ``number``.
    moves, waits_for_memory, waits_for_port
        What happens in this cycle.
    """

    def __init__(self, config: CoreConfig, targets: LoadTargets) -> None:
        self._config = config
        self._targets = targets
        super().__init__(
            {
                "loads": In(stream.Signature(write_layout(config))),
                "words": In(stream.Signature(word_layout(config))),
                **write_ports(config, targets),
                "halt": In(1),
                "retire": Out(1),
                "failed": Out(1),
                "number": Out(NUMBER_BITS),
                "idle": Out(1),
                "moves": Out(1),
                "waits_for_memory": Out(1),
                "waits_for_port": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        load = Signal(write_layout(config), reset_less=True)
        row_part = Signal(RowPart, name="run")
        part_left = Signal(total_bits(config), name="run_left")
        pad_row = Signal()
        step = Signal()  # an entry or a word is written
        entry_ends = Signal()
        row_ends = Signal()
        load_ends = Signal()
        is_padding = Signal()
        advance = Signal()
        running = Signal()

        m.d.comb += [
            self.number.eq(load.number),
            is_padding.eq(row_part != RowPart.BODY),
            self.failed.eq(running & ~is_padding & self.words.valid & self.words.payload.error),
            step.eq(running & advance & ~self.halt & (is_padding | (self.words.valid & ~self.words.payload.error))),
            row_ends.eq(
                entry_ends
                & (part_left == 1)
                & (pad_row | (row_part == RowPart.RIGHT) | ((row_part == RowPart.BODY) & (load.right == 0)))
            ),
            load_ends.eq(row_ends & (load.top == 0) & (load.rows == 0) & (load.bottom == 0)),
        ]

        with m.FSM() as fsm:
            m.d.comb += running.eq(fsm.ongoing("RUN"))
            with m.State("TAKE"):
                m.d.comb += self.loads.ready.eq(~self.halt)
                m.d.sync += load.eq(self.loads.payload)
                with m.If(self.loads.valid & ~self.halt):
                    m.next = "ROW"
            with m.State("ROW"):
                self._start_row(m, load, row_part, part_left, pad_row)
                with m.If(~load.empty):
                    m.next = "RUN"
                with m.Elif(advance):
                    m.next = "TAKE"
            with m.State("RUN"), m.If(step & entry_ends):
                m.d.sync += [load.index.eq(load.index + 1), part_left.eq(part_left - 1)]
                with m.If(load_ends):
                    m.next = "TAKE"
                with m.Elif(row_ends):
                    self._start_row(m, load, row_part, part_left, pad_row)
                with m.Elif(part_left == 1):
                    with m.If(row_part == RowPart.LEFT):
                        m.d.sync += [row_part.eq(RowPart.BODY), part_left.eq(load.columns)]
                    with m.Else():
                        m.d.sync += [row_part.eq(RowPart.RIGHT), part_left.eq(load.right)]

        starts = fsm.ongoing("ROW")
        nothing = starts & load.empty
        new_row = starts | (step & row_ends)
        head = RecordHead(config) if self._targets.unpacks(config) else None
        part, word = self._unpack(m, load, step, is_padding, part_left, entry_ends, new_row, head)
        write = WriteRegister(config, self._targets)
        m.submodules.write = write
        wiring.connect(m, write.own, wiring.flipped(self.own))
        wiring.connect(m, write.acc, wiring.flipped(self.acc))
        parts, made = write.parts, step
        idle = fsm.ongoing("TAKE") & ~self.loads.valid & write.idle
        if head is not None:
            packed, unpacked = packed_part_layout(config, self._targets), entry_part_layout(config, self._targets)
            m.submodules.unpacker = unpacker = WeightUnpacker(config, packed, unpacked)
            wiring.connect(m, unpacker.unpacked, write.parts)
            parts, made, idle = unpacker.parts, step & ~head.in_head, idle & unpacker.idle
            m.d.comb += [
                parts.payload.records.eq((load.kind == LoadKind.RECORDS) & ~is_padding),
                parts.payload.pairs.eq(head.pairs),
            ]
        m.d.comb += [
            advance.eq(parts.ready),
            parts.valid.eq(made | (nothing & advance)),
            parts.payload.nothing.eq(nothing),
            parts.payload.last.eq(nothing | load_ends),
            parts.payload.kind.eq(load.kind),
            parts.payload.index.eq(load.index),
            parts.payload.part.eq(part),
            parts.payload.is_padding.eq(is_padding),
            parts.payload.pad_value.eq(load.pad_value),
            parts.payload.word.eq(word),
            self.retire.eq(write.retire),
            self.moves.eq(step),
            self.waits_for_port.eq(~advance),
            self.waits_for_memory.eq(running & ~is_padding & ~self.words.valid),
            self.idle.eq(idle),
        ]
        return m

    def _start_row(self, m: Module, load: data.View, row_part: Signal, part_left: Signal, pad_row: Signal) -> None:
        """Go on with the next row: one of padding at the top, one with data, one of padding at the bottom."""
        padding_row = [row_part.eq(RowPart.LEFT), part_left.eq(load.width), pad_row.eq(1)]
        with m.If(load.top != 0):
            m.d.sync += [*padding_row, load.top.eq(load.top - 1)]
        with m.Elif(load.rows != 0):
            m.d.sync += [pad_row.eq(0), load.rows.eq(load.rows - 1)]
            with m.If(load.left != 0):
                m.d.sync += [row_part.eq(RowPart.LEFT), part_left.eq(load.left)]
            with m.Else():
                m.d.sync += [row_part.eq(RowPart.BODY), part_left.eq(load.columns)]
        with m.Else():
            m.d.sync += [*padding_row, load.bottom.eq(load.bottom - 1)]

    def _unpack(
        self,
        m: Module,
        load: data.View,
        step: Signal,
        is_padding: Signal,
        part_left: Signal,
        entry_ends: Signal,
        new_row: Value,
        head: RecordHead | None,
    ) -> tuple[Signal, Value]:
        """Take words; return the word's number in a wide entry, and the word with a narrow entry at its low end.

        Words of a record's head are taken, kept in ``head`` and are no part of an entry.
        """
        bus_bytes = self._config.bus_bytes
        kinds = self._targets.kinds(self._config)
        parts = [max(1, kind.entry_bytes // bus_bytes) for kind in kinds]
        most_parts = max(parts[: len(self._targets.targets)])
        if head is not None:
            m.submodules.head = head
            shape = RecordShape.of(self._config)
            parts[LoadKind.RECORDS] = shape.entry_words
            most_parts = max(most_parts, shape.head_words)
        places = [max(1, bus_bytes // kind.entry_bytes) for kind in kinds]
        part = Signal(range(max(2, most_parts)))
        place = Signal(range(max(2, *places)))
        takes = Signal()
        last_part = Array(count - 1 for count in parts)[load.kind]
        last_place = Array(count - 1 for count in places)[load.kind]
        ends, wraps = part == last_part, entry_ends
        if head is not None:
            ends, wraps = ends & ~head.in_head, entry_ends | head.ends_head
        m.d.comb += [
            takes.eq(step & ~is_padding),
            entry_ends.eq(is_padding | ends),
            # A row that ends within a word leaves the rest of it; the next row's words start with its own.
            self.words.ready.eq(takes & ((place == last_place) | (part_left == 1) | (last_place == 0))),
        ]
        with m.If(takes):
            m.d.sync += part.eq(Mux(wraps, 0, part + 1))
            m.d.sync += place.eq(Mux(place == last_place, 0, place + 1))
        with m.If(new_row & (load.top == 0)):
            m.d.sync += [place.eq(load.position), load.position.eq((load.position + load.step) & last_place)]
        word = self.words.payload.data
        if head is not None:
            m.d.comb += [
                head.starts.eq(new_row),
                head.records.eq(load.kind == LoadKind.RECORDS),
                head.takes.eq(takes),
                head.word.eq(word),
                head.part.eq(part),
                head.ends_entry.eq(entry_ends),
            ]
        chosen = []
        for kind, count in zip(kinds, places, strict=True):
            if count > 1:
                chosen.append(word.word_select(place[: (count - 1).bit_length()], 8 * kind.entry_bytes))
            else:
                chosen.append(word)
        return part, Array(chosen)[load.kind]


def entry_part_layout(config: CoreConfig, targets: LoadTargets) -> data.StructLayout:
    """A word for an entry, and where it goes: ``part`` of entry ``index`` of ``kind``'s scratchpad.

    Padding fills the whole entry; ``nothing`` writes nothing but keeps its turn; ``last`` of its LOAD. Where weights
    of 4 bits are unpacked, ``word`` is two bus words: those of a record, or any other one twice.
    """
    widest = max(target.dram_bytes(config) for target in targets.targets)
    return data.StructLayout(
        {
            "nothing": 1,
            "last": 1,
            "kind": LoadKind,
            "index": config.index_bits,
            "part": range(max(2, widest // config.bus_bytes)),
            "is_padding": 1,
            "pad_value": 8,
            "word": config.bus_bits * (2 if targets.unpacks(config) else 1),
        }
    )


def packed_part_layout(config: CoreConfig, targets: LoadTargets) -> data.StructLayout:
    """As :func:`entry_part_layout`, before 4-bit weights are unpacked; ``pairs`` are those of the word's outputs."""
    members = dict(entry_part_layout(config, targets).members)
    pairs = 8 * RecordShape.of(config).outputs
    return data.StructLayout({**members, "word": config.bus_bits, "records": 1, "pairs": pairs})


class WriteRegister(wiring.Component):
    """The register in front of the scratchpads' write ports: places a word in its entry and widens int8.

    Whether a port takes what stands there comes late in the cycle, and much follows from whether ``parts`` are taken:
    so there is a place for one more, and ``parts.ready`` is a register. ``retire`` follows the write marked ``last``.
    """

    def __init__(self, config: CoreConfig, targets: LoadTargets) -> None:
        self._config = config
        self._targets = targets
        super().__init__(
            {
                **write_ports(config, targets),
                "parts": In(stream.Signature(entry_part_layout(config, targets))),
                "retire": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, own, acc = self._config, self.own, self.acc
        m.submodules.skid = skid = SkidBuffer(entry_part_layout(config, self._targets))
        wiring.connect(m, wiring.flipped(self.parts), skid.input)
        part, valid, leaves = skid.output.payload, skid.output.valid, skid.output.ready
        held, last = Signal(), Signal(reset_less=True)
        index = Signal(config.index_bits, reset_less=True)
        own_word = Signal(min(len(part.word), 8 * config.entry_bytes(self._targets.own)), reset_less=True)
        acc_words = Signal(min(4 * config.bus_bits, 8 * config.acc_bytes), reset_less=True)
        m.d.comb += [
            leaves.eq(~held | ~((own.enable & ~own.ready) | (acc.enable & ~acc.ready))),
            self.retire.eq(held & last & leaves),
            self.idle.eq(~held),
            own.index.eq(index),
            own.data.eq(own_word.replicate(len(own.data) // len(own_word))),
            acc.index.eq(index),
            acc.data.eq(acc_words.replicate(len(acc.data) // len(acc_words))),
        ]
        is_own = part.kind == LoadKind.OWN
        own_mask = Const(1, len(own.mask)) << part.part
        if self._targets.unpacks(config):
            is_records = part.kind == LoadKind.RECORDS
            is_own |= is_records
            own_mask = Mux(is_records, Const(0b11, len(own.mask)) << (part.part << 1), own_mask)
        word = part.word[: config.bus_bits]
        with m.If(leaves):  # also where nothing comes: what stands there then is of no use
            m.d.sync += [
                held.eq(valid),
                own.enable.eq(valid & ~part.nothing & is_own),
                acc.enable.eq(valid & ~part.nothing & ~is_own),
                last.eq(part.last),
                index.eq(part.index),
                own.mask.eq(Mux(part.is_padding, ~0, own_mask)),
                own_word.eq(Mux(part.is_padding, part.pad_value.replicate(len(own_word) // 8), part.word)),
            ]
            with m.If(part.is_padding):
                lanes = len(acc_words) // 32
                wide_pad = Signal(32)
                m.d.comb += wide_pad.eq(part.pad_value.as_signed())
                m.d.sync += [acc.mask.eq(~0), acc_words.eq(wide_pad.replicate(lanes))]
            with m.Elif(part.kind == LoadKind.ACC8):
                widened = widen(m, word, len(acc_words) // 32)
                m.d.sync += [acc.mask.eq(self._widened_mask(part.part)), acc_words.eq(widened)]
            with m.Else():
                m.d.sync += [
                    acc.mask.eq(Const(1, len(acc.mask)) << part.part),
                    acc_words.eq(word.replicate(max(1, len(acc_words) // config.bus_bits))),
                ]
        return m

    def _widened_mask(self, part: Value) -> Value | int:
        """Chunks of an ``acc`` entry that one bus word of int8 fills: four, or all of an entry."""
        width = len(self.acc.mask)
        if self._config.lanes <= self._config.bus_bytes:
            return (1 << width) - 1
        return Const(0b1111, width) << (part << 2)


def widen(m: Module, word: Value, lanes: int) -> Value:
    """The first ``lanes`` int8 of ``word``, each sign-extended to 32 bits."""
    wide = []
    for lane in range(lanes):
        value = Signal(32, name=f"lane{lane}")
        m.d.comb += value.eq(word.word_select(lane, 8).as_signed())
        wide.append(value)
    return Cat(wide)
