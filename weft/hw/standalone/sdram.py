"""A controller of SDR SDRAM: words as wide as a core's bus, one after the other, each a burst of the chip."""

from __future__ import annotations

from enum import IntEnum, unique

from amaranth.hdl import Array, Cat, Const, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .sdram_chip import (
    ALL_BANKS,
    BANK_BITS,
    BURSTS,
    DATA_BITS,
    DATA_BYTES,
    LEAST_RECOVERY,
    MODE_CYCLES,
    STARTUP_REFRESHES,
    SdramChip,
    burst_length,
)


@unique
class SdramCommand(IntEnum):
    """``ras_n``, ``cas_n``, ``we_n``, from the highest bit on; the chip is always selected."""

    MODE = 0b000
    REFRESH = 0b001
    PRECHARGE = 0b010
    ACTIVATE = 0b011
    WRITE = 0b100
    READ = 0b101
    NOTHING = 0b111


class SdramPins(wiring.Signature):
    """The chip's pins, from the controller's side. The chip takes them half a cycle after they change; ``given`` is
    what stood on the data pins then, before the cycle's end. ``enable``: the controller drives the data pins."""

    def __init__(self, chip: SdramChip) -> None:
        super().__init__(
            {
                "command": Out(SdramCommand, init=SdramCommand.NOTHING),
                "bank": Out(BANK_BITS),
                "address": Out(chip.row_bits),
                "mask": Out(DATA_BYTES, init=2**DATA_BYTES - 1),
                "data": Out(DATA_BITS),
                "enable": Out(1),
                "given": In(DATA_BITS),
            }
        )


def request_layout(chip: SdramChip, word_bytes: int) -> data.StructLayout:
    """A word to read or to write, by its number in the memory; ``mask`` has the bytes to write."""
    bits = ceil_log2(chip.size // word_bytes)
    return data.StructLayout({"write": 1, "index": bits, "data": 8 * word_bytes, "mask": word_bytes})


class SdramController(wiring.Component):
    """Starts the chip, refreshes it, and keeps a row of each bank open.

    request
        Words in order. One that is written counts as written when it is taken: later ones see it.
    given, valid
        Words that were read, in order, each for one cycle.

    :class:`~weft.hw.errors.ConfigError` for words that are no burst of the chip. Waits are counted for all banks at
    once: the longest that a bank could ask for.
    """

    def __init__(self, chip: SdramChip, clock_hz: int, word_bytes: int) -> None:
        self.chip, self.clock_hz = chip, clock_hz
        self.burst = burst_length(word_bytes)
        super().__init__(
            {
                "request": In(stream.Signature(request_layout(chip, word_bytes))),
                "given": Out(8 * word_bytes),
                "valid": Out(1),
                "pins": Out(SdramPins(chip)),
            }
        )

    def _cycles(self, name: str) -> int:
        return self.chip.cycles(f"{name}_ns", self.clock_hz)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        chip, pins, request, burst = self.chip, self.pins, self.request, self.burst
        index = request.payload.index
        column_bits = chip.column_bits - ceil_log2(burst)
        column = Cat(Const(0, ceil_log2(burst)), index[:column_bits])
        bank, row = index[column_bits : column_bits + BANK_BITS], index[column_bits + BANK_BITS :]

        # Cycles until a command may come, by what it waits for.
        rp, ras = self._cycles("rp"), max(self._cycles("ras"), self._cycles("rc") - self._cycles("rp"))
        recovery = max(self._cycles("wr"), LEAST_RECOVERY)
        kept = max(burst, recovery - 1)  # after a READ; a WRITE right before it may have to wait on
        turn = chip.latency + burst + 1  # a cycle between what the chip drives and what the controller does
        to_idle_banks = self._wait(m, "to_idle_banks", rp, self._cycles("rfc"), self._cycles("rrd"), MODE_CYCLES)
        to_column = self._wait(m, "to_column", self._cycles("rcd"))
        to_burst = self._wait(m, "to_burst", burst)
        to_write = self._wait(m, "to_write", turn)
        row_open = self._wait(m, "row_open", ras)
        bursting = self._wait(m, "bursting", burst - 1 + recovery)

        open_rows = Array([Signal(chip.row_bits, name=f"row_{number}") for number in range(1 << BANK_BITS)])
        is_open = Signal(1 << BANK_BITS)
        due = self._refresh_timer(m)
        startup = Signal(range(self._cycles("startup") + 1), init=self._cycles("startup"))
        refreshes = Signal(range(STARTUP_REFRESHES), init=STARTUP_REFRESHES - 1)

        m.d.sync += [pins.command.eq(SdramCommand.NOTHING), pins.bank.eq(bank), pins.address.eq(row)]

        def precharge_all() -> None:
            m.d.sync += [pins.command.eq(SdramCommand.PRECHARGE), pins.address.eq(1 << ALL_BANKS)]
            m.d.sync += [is_open.eq(0), to_idle_banks.eq(rp - 1)]

        def refresh() -> None:
            m.d.sync += [pins.command.eq(SdramCommand.REFRESH), to_idle_banks.eq(self._cycles("rfc") - 1)]

        reading = Signal()
        with m.FSM() as fsm:
            with m.State("START"):
                m.d.sync += startup.eq(startup - 1)
                with m.If(startup == 0):
                    precharge_all()
                    m.next = "REFRESH"
            with m.State("REFRESH"), m.If(to_idle_banks == 0):
                refresh()
                m.d.sync += refreshes.eq(refreshes - 1)
                with m.If(refreshes == 0):
                    m.next = "MODE"
            with m.State("MODE"), m.If(to_idle_banks == 0):
                mode = chip.latency << 4 | BURSTS.index(burst)  # bursts in order of addresses, for writes too
                m.d.sync += [pins.command.eq(SdramCommand.MODE), pins.bank.eq(0), pins.address.eq(mode)]
                m.d.sync += to_idle_banks.eq(MODE_CYCLES - 1)
                m.next = "READY"
            with m.State("READY"):
                can_close = (row_open == 0) & (bursting == 0)
                with m.If(due):
                    with m.If(is_open.any()), m.If(can_close):
                        precharge_all()
                    with m.Elif(to_idle_banks == 0):
                        refresh()
                        m.d.sync += due.eq(0)
                with m.Elif(request.valid & ~is_open.bit_select(bank, 1)), m.If(to_idle_banks == 0):
                    m.d.sync += [pins.command.eq(SdramCommand.ACTIVATE), open_rows[bank].eq(row)]
                    m.d.sync += [is_open.bit_select(bank, 1).eq(1), to_idle_banks.eq(self._cycles("rrd") - 1)]
                    m.d.sync += [to_column.eq(self._cycles("rcd") - 1), row_open.eq(ras - 1)]
                with m.Elif(request.valid & (open_rows[bank] != row)), m.If(can_close):
                    m.d.sync += [pins.command.eq(SdramCommand.PRECHARGE), pins.address.eq(0)]
                    m.d.sync += [is_open.bit_select(bank, 1).eq(0), to_idle_banks.eq(rp - 1)]
                with m.Elif(request.valid & (to_column == 0) & (to_burst == 0)):
                    m.d.sync += pins.address.eq(column)
                    with m.If(~request.payload.write):
                        m.d.comb += [request.ready.eq(1), reading.eq(1)]
                        m.d.sync += [pins.command.eq(SdramCommand.READ), to_burst.eq(burst - 1)]
                        m.d.sync += [to_write.eq(turn - 1), bursting.eq(kept - 1)]
                    with m.Elif(to_write == 0):
                        m.d.comb += request.ready.eq(1)
                        m.d.sync += [pins.command.eq(SdramCommand.WRITE), to_burst.eq(burst - 1)]
                        m.d.sync += bursting.eq(burst + recovery - 2)
        self._written(m, request.ready & request.payload.write, fsm.ongoing("START"))
        self._read(m, reading)
        return m

    @staticmethod
    def _wait(m: Module, name: str, *cycles: int) -> Signal:
        """Counts down to 0. A command that sets it to ``n - 1`` is so ``n`` cycles before the one that waits for 0."""
        left = Signal(range(max(cycles)), name=name)
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        return left

    def _refresh_timer(self, m: Module) -> Signal:
        """1 from each interval's end until a refresh clears it."""
        interval = int(self.chip.refresh_ns * self.clock_hz / 1e9)
        left, due = Signal(range(interval), init=interval - 1), Signal()
        m.d.sync += left.eq(left - 1)
        with m.If(left == 0):
            m.d.sync += [left.eq(interval - 1), due.eq(1)]
        return due

    def _written(self, m: Module, issue: Value, starts: Value) -> None:
        """Part after part of the word on the data pins, the first with the command."""
        pins, payload = self.pins, self.request.payload
        words, masks = Signal.like(payload.data), Signal.like(payload.mask)
        left = Signal(range(self.burst))
        m.d.sync += [pins.mask.eq(starts.replicate(DATA_BYTES)), pins.enable.eq(0)]
        with m.If(issue):
            m.d.sync += [
                pins.enable.eq(1), pins.data.eq(payload.data), pins.mask.eq(~payload.mask[:DATA_BYTES]),
                words.eq(payload.data[DATA_BITS:]), masks.eq(payload.mask[DATA_BYTES:]), left.eq(self.burst - 1),
            ]  # fmt: skip
        with m.Elif(left != 0):
            m.d.sync += [
                pins.enable.eq(1), pins.data.eq(words), pins.mask.eq(~masks[:DATA_BYTES]),
                words.eq(words[DATA_BITS:]), masks.eq(masks[DATA_BYTES:]), left.eq(left - 1),
            ]  # fmt: skip

    def _read(self, m: Module, issue: Value) -> None:
        """The parts of a word come ``latency`` cycles after the command has reached the pins, one in each cycle."""
        under_way = Signal(self.chip.latency + self.burst + 1)
        m.d.sync += [
            under_way.eq(Cat(issue, under_way)),
            self.given.eq(Cat(self.given[DATA_BITS:], self.pins.given)),
        ]
        m.d.comb += self.valid.eq(under_way[-1])
