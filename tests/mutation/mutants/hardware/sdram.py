"""Faults in the SDRAM controller and in the memory in front of it."""

from __future__ import annotations

from ..mutant import Mutant

CONTROLLER = ("tests/hw/standalone/test_sdram.py",)
MEMORY = ("tests/hw/standalone/test_sdram_memory.py",)

MUTANTS = (
    Mutant(
        "sdram-column-right-after-the-row", "hw/standalone/sdram.py", "wait forgotten",
        'to_column.eq(self._cycles("rcd") - 1)', "to_column.eq(0)", CONTROLLER,
    ),
    Mutant(
        "sdram-refresh-as-short-as-precharge", "hw/standalone/sdram.py", "wait forgotten",
        'to_idle_banks.eq(self._cycles("rfc") - 1)', "to_idle_banks.eq(rp - 1)", CONTROLLER,
    ),
    Mutant(
        "sdram-row-again-too-early", "hw/standalone/sdram.py", "wait forgotten",
        'max(self._cycles("ras"), self._cycles("rc") - self._cycles("rp"))', 'self._cycles("ras")', CONTROLLER,
    ),
    Mutant(
        "sdram-no-write-recovery", "hw/standalone/sdram.py", "wait forgotten",
        "bursting.eq(burst + recovery - 2)", "bursting.eq(burst - 1)", CONTROLLER,
    ),
    Mutant(
        "sdram-read-ends-another-banks-recovery", "hw/standalone/sdram.py", "wait forgotten",
        "kept = max(burst, recovery - 1)", "kept = burst", CONTROLLER,
    ),
    Mutant(
        "sdram-activate-ends-a-burst", "hw/standalone/sdram.py", "check ignored",
        "(to_column == 0) & (to_burst == 0)", "(to_column == 0)", CONTROLLER,
    ),
    Mutant(
        "sdram-no-cycle-to-turn-the-pins", "hw/standalone/sdram.py", "off by one",
        "turn = chip.latency + burst + 1", "turn = chip.latency + burst", CONTROLLER,
    ),
    Mutant(
        "sdram-refresh-half-as-often", "hw/standalone/sdram.py", "constant",
        "interval = int(", "interval = 2 * int(", CONTROLLER,
    ),
    Mutant(
        "sdram-seven-refreshes-at-the-start", "hw/standalone/sdram.py", "off by one",
        "init=STARTUP_REFRESHES - 1", "init=STARTUP_REFRESHES - 2", CONTROLLER,
    ),
    Mutant(
        "sdram-row-of-another-bank", "hw/standalone/sdram.py", "index",
        "(open_rows[bank] != row)", "(open_rows[0] != row)", CONTROLLER,
    ),
    Mutant(
        "sdram-rows-open-over-a-refresh", "hw/standalone/sdram.py", "forgotten part",
        "[is_open.eq(0), to_idle_banks.eq(rp - 1)]", "[to_idle_banks.eq(rp - 1)]", CONTROLLER,
    ),
    Mutant(
        "sdram-mask-of-the-first-part-alone", "hw/standalone/sdram.py", "forgotten part",
        "masks.eq(payload.mask[DATA_BYTES:])", "masks.eq(-1)", CONTROLLER,
    ),
    Mutant(
        "sdram-word-a-cycle-early", "hw/standalone/sdram.py", "off by one",
        "Signal(self.chip.latency + self.burst + 1)", "Signal(self.chip.latency + self.burst)", CONTROLLER,
    ),
    Mutant(
        "sdram-times-rounded-down", "hw/standalone/sdram_chip.py", "rounding",
        "max(1, math.ceil(", "max(1, math.floor(", CONTROLLER,
    ),
    Mutant(
        "sdram-one-beat-more-than-there-is-room", "hw/standalone/sdram_memory.py", "off by one",
        "reads_beat.eq(waiting < BEATS)", "reads_beat.eq(waiting <= BEATS)", MEMORY,
    ),
    Mutant(
        "sdram-writes-outside-come-round", "hw/standalone/sdram_memory.py", "check ignored",
        "Mux(resp == Response.OKAY, axi.wstrb, 0)", "axi.wstrb", MEMORY,
    ),
    Mutant(
        "sdram-host-takes-the-cores-word", "hw/standalone/sdram_memory.py", "check ignored",
        "host_wrote | controller.valid & origin.host", "host_wrote | controller.valid", MEMORY,
    ),
    Mutant(
        "sdram-core-gets-the-hosts-word", "hw/standalone/sdram_memory.py", "check ignored",
        "controller.valid & ~origin.host", "controller.valid", MEMORY,
    ),
    Mutant(
        "sdram-host-writes-the-whole-beat", "hw/standalone/sdram_memory.py", "index",
        "request.payload.mask.word_select(part, WORD_BYTES).eq(-1)", "request.payload.mask.eq(-1)", MEMORY,
    ),
    Mutant(
        "sdram-last-beat-is-none", "hw/standalone/sdram_memory.py", "off by one",
        "ask.last.eq(left == 0)", "ask.last.eq(left == 1)", MEMORY,
    ),
)  # fmt: skip
