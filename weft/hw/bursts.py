"""Cuts rows of bytes into AXI bursts."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .bus import OFFSET_BITS, longest_burst
from .config import CoreConfig
from .skid_buffer import SkidBuffer


def length_bits(config: CoreConfig) -> int:
    """Width of a burst's beats, less one."""
    return max(1, (longest_burst(config) - 1).bit_length())


def burst_layout(config: CoreConfig) -> data.StructLayout:
    """A burst: ``word`` is its offset into the window in bus words, ``last`` marks the end of a transfer."""
    return data.StructLayout({"word": word_bits(config), "beats_minus_1": length_bits(config), "last": 1})


def transfer_layout(config: CoreConfig) -> data.StructLayout:
    """Rows of bytes: ``first`` and ``final`` are the offsets of the first row's first and last byte."""
    return data.StructLayout(
        {"first": OFFSET_BITS, "final": OFFSET_BITS, "row_bytes": OFFSET_BITS, "rows": config.count_bits}
    )


def word_bits(config: CoreConfig) -> int:
    """Width of an offset into the window in bus words."""
    return OFFSET_BITS - (config.bus_bytes.bit_length() - 1)


class BurstCutter(wiring.Component):
    """Cuts ``rows`` rows, ``row_bytes`` apart, into bursts: one a cycle, latency 2.

    Whether a bus master takes a burst is known late in the cycle: a skid buffer keeps that from the rows.

    A burst covers all bus words that its row touches and lies in one block of ``max_beats`` bus words (by default the
    longest burst of the configuration), so that it is no longer and never crosses a 4 KiB page. ``rows`` must not be 0.
    """

    def __init__(self, config: CoreConfig, max_beats: int | None = None) -> None:
        self._config = config
        self._beats_log2 = (max_beats or longest_burst(config)).bit_length() - 1
        super().__init__(
            {
                "transfers": In(stream.Signature(transfer_layout(config))),
                "bursts": Out(stream.Signature(burst_layout(config))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, log2 = self._config, self._beats_log2
        byte_bits = config.bus_bytes.bit_length() - 1

        # The rows still to come: offsets of the next row's first and last byte.
        row_first = Signal(OFFSET_BITS)
        row_final = Signal(OFFSET_BITS)
        row_bytes = Signal(OFFSET_BITS)
        rows = Signal(config.count_bits)
        # The row being cut: its next and its last bus word.
        valid = Signal()
        word = Signal(word_bits(config))
        final = Signal(word_bits(config))
        last_row = Signal()
        row_ends = Signal()
        accept = Signal()
        next_row = Signal()
        m.submodules.skid = skid = SkidBuffer(burst_layout(config))
        burst = Signal(burst_layout(config), reset_less=True)
        burst_valid = Signal()
        connect(m, skid.output, flipped(self.bursts))

        m.d.comb += [
            skid.input.valid.eq(burst_valid),
            skid.input.payload.eq(burst),
            row_ends.eq(word[log2:] == final[log2:]),
            accept.eq(~burst_valid | skid.input.ready),
            next_row.eq(~valid | (accept & row_ends)),
            self.transfers.ready.eq(rows == 0),
            self.idle.eq((rows == 0) & ~valid & ~self.bursts.valid),
        ]
        with m.If(accept):
            m.d.sync += [
                burst_valid.eq(valid),
                burst.word.eq(word),
                burst.last.eq(row_ends & last_row),
            ]
            with m.If(valid):
                end = Mux(row_ends, final[:log2], (1 << log2) - 1)
                m.d.sync += burst.beats_minus_1.eq((end - word[:log2])[:log2])
                m.d.sync += word.eq((word[log2:] + 1) << log2)
        with m.If(next_row):
            m.d.sync += valid.eq(rows != 0)
            with m.If(rows != 0):
                m.d.sync += [
                    word.eq(row_first[byte_bits:]),
                    final.eq(row_final[byte_bits:]),
                    row_first.eq(row_first + row_bytes),
                    row_final.eq(row_final + row_bytes),
                    rows.eq(rows - 1),
                    last_row.eq(rows == 1),
                ]
        with m.If(self.transfers.valid & self.transfers.ready):
            transfer = self.transfers.payload
            m.d.sync += [
                row_first.eq(transfer.first),
                row_final.eq(transfer.final),
                row_bytes.eq(transfer.row_bytes),
                rows.eq(transfer.rows),
            ]
        return m
