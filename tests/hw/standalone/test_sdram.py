"""The SDRAM controller against a chip that knows the rules; and the chip against those who break one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from amaranth.sim import Simulator
from weft.hw.errors import ConfigError
from weft.hw.standalone.sdram import SdramCommand, SdramController
from weft.hw.standalone.sdram_chip import SdramChip, burst_length

from .sdram_chip import CHIP, ModelledChip

MODE, REFRESH, PRECHARGE, ACTIVATE, WRITE, READ, NOTHING = SdramCommand
ALL = 1 << 10
MHZ = (20, 50, 66, 100, 133)
SLOW = replace(CHIP, latency=3, rcd_ns=30, rp_ns=35, ras_ns=60, rc_ns=110, rrd_ns=40, rfc_ns=120, wr_ns=55,
               row_bits=12, column_bits=8)  # fmt: skip


def controlled(
    chip: SdramChip, mhz: int, requests: list[tuple[bool, int, int, int]], word_bytes: int = 8, pause: float = 0
) -> tuple[list[int], ModelledChip, int]:
    """What is read by requests ``(write, index, data, mask)``, the chip, and the cycles from the first to the last."""
    controller = SdramController(chip, mhz * 1_000_000, word_bytes)
    modelled, random = ModelledChip(chip, mhz * 1e6), Random(1)
    found: list[int] = []
    cycles = [0]

    async def ask(ctx: Any) -> None:
        request = controller.request
        for number, (write, index, data, mask) in enumerate(requests):
            while random.random() < pause:
                await ctx.tick().repeat(random.randint(1, 30))
            for name, value in (("write", write), ("index", index), ("data", data), ("mask", mask)):
                ctx.set(request.payload[name], value)
            ctx.set(request.valid, 1)
            waited, taken = 0, False
            while not taken:
                *_, taken = await ctx.tick().sample(request.ready)
                waited += 1
                assert waited < 2000, f"request {number} is never taken"
            cycles[0] += waited * bool(number)
            ctx.set(request.valid, 0)
        await ctx.tick().repeat(20)

    async def take(ctx: Any) -> None:
        async for *_, given, valid in ctx.tick().sample(controller.given, controller.valid):
            if valid:
                found.append(given)

    async def run(ctx: Any) -> None:
        await modelled.run(ctx, controller.pins)

    simulator = Simulator(controller)
    simulator.add_clock(1e-6)
    simulator.add_testbench(ask)
    simulator.add_testbench(take, background=True)
    simulator.add_testbench(run, background=True)
    simulator.run()
    return found, modelled, cycles[0]


def mixed(chip: SdramChip, word_bytes: int, count: int) -> Iterator[tuple[bool, int, int, int]]:
    """Words here and there: few enough that rows meet again, of all banks; each is whole before it is read."""
    random, whole = Random(word_bytes), (1 << word_bytes) - 1
    words = chip.size // word_bytes
    places = [random.randrange(words) for _ in range(12)] + [words - 1, 0, 1, 2, 3]
    known = set[int]()
    for _ in range(count):
        index = random.choice(places)
        write = index not in known or random.random() < 0.5
        mask = whole if index not in known else random.getrandbits(word_bytes)
        known.add(index)
        yield write, index, random.getrandbits(8 * word_bytes), mask


@pytest.mark.parametrize("mhz", MHZ)
@pytest.mark.parametrize(("chip", "word_bytes"), [(CHIP, 8), (SLOW, 16), (replace(SLOW, latency=2, rc_ns=200), 8)])
def test_words_are_kept_and_no_rule_is_broken(chip: SdramChip, word_bytes: int, mhz: int) -> None:
    requests = list(mixed(chip, word_bytes, 200))
    content: dict[int, int] = {}
    expected = []
    for write, index, data, mask in requests:
        bits = sum(0xFF << 8 * byte for byte in range(word_bytes) if mask >> byte & 1)
        if write:
            content[index] = content.get(index, 0) & ~bits | data & bits
        else:
            expected.append(content[index])
    found, modelled, _ = controlled(chip, mhz, requests, word_bytes, pause=0.1)
    assert modelled.error == ""
    assert found == expected
    assert len(expected) > 50


@pytest.mark.parametrize("mhz", [50, 133])
def test_words_in_order_come_as_fast_as_the_pins_let_them(mhz: int) -> None:
    count, row_words = 600, (1 << CHIP.column_bits) // 4
    for write in (True, False):
        _, modelled, cycles = controlled(CHIP, mhz, [(write, 100 + place, 0, 255) for place in range(count)])
        assert modelled.error == ""
        refreshes = cycles // int(CHIP.refresh_ns * mhz / 1000) + 1
        rows = count // row_words + 2 + refreshes
        assert modelled.activates <= rows
        assert 4 * (count - 1) <= cycles <= 4 * (count - 1) + 25 * rows


def test_a_chip_that_nobody_asks_is_refreshed_as_often_as_it_must() -> None:
    for mhz in (20, 133):
        controller, modelled = SdramController(CHIP, mhz * 1_000_000, 8), ModelledChip(CHIP, mhz * 1e6)
        cycles = mhz * 200  # 200 us

        async def run(ctx: Any, modelled: ModelledChip = modelled, controller: SdramController = controller) -> None:
            await modelled.run(ctx, controller.pins)

        async def wait(ctx: Any, cycles: int = cycles) -> None:
            await ctx.tick().repeat(cycles)

        simulator = Simulator(controller)
        simulator.add_clock(1e-6)
        simulator.add_testbench(wait)
        simulator.add_testbench(run, background=True)
        simulator.run()
        assert modelled.error == ""
        assert 8 + 24 <= modelled.refreshes <= 8 + 27


# The chip


STARTED = [(200, NOTHING, 0, 0), (1, PRECHARGE, 0, ALL), *[(7, REFRESH, 0, 0)] * 8, (7, MODE, 0, 0x22)]
"""At 100 MHz: edges from one command to the next, then the command. Bursts of four, latency two."""


def broken(*steps: tuple[int, int, int, int], started: bool = True, drive: bool = True) -> str:
    """The rule that is broken; all writes drive their data, if ``drive``."""
    modelled = ModelledChip(CHIP, 100e6)
    driven = 0
    for edges, command, bank, address in [*(STARTED if started else []), *steps, (30, NOTHING, 0, 0)]:
        for _ in range(edges - 1):
            modelled.edge(data=1 if driven > 0 else -1)
            driven -= 1
        driven = 4 if command == WRITE and drive else driven
        modelled.edge(command, bank, address, data=1 if driven > 0 else -1)
        driven -= 1
    return modelled.error


OPEN = (3, ACTIVATE, 0, 5)


def test_what_the_chip_allows() -> None:
    assert broken() == ""
    assert (
        broken(OPEN, (2, WRITE, 0, 0), (5, READ, 0, 8), (4, READ, 0, 0), (7, WRITE, 0, 4), (5, PRECHARGE, 0, 0)) == ""
    )
    assert (
        broken(OPEN, (2, ACTIVATE, 1, 0), (2, READ, 1, 0), (4, READ, 0, 0), (4, PRECHARGE, 0, ALL), (2, REFRESH, 0, 0))
        == ""
    )
    assert broken(OPEN, (5, PRECHARGE, 0, 0), (2, ACTIVATE, 0, 8191)) == ""
    assert broken((6900, NOTHING, 0, 0)) == ""  # eight refreshes may be put off


@pytest.mark.parametrize(
    ("steps", "rule"),
    [
        ([(2, ACTIVATE, 0, 5), (1, READ, 0, 0)], "READ or WRITE within tRCD"),
        ([(1, ACTIVATE, 0, 0)], "right after MODE REGISTER SET"),
        ([OPEN, (4, PRECHARGE, 0, 0)], "PRECHARGE within tRAS"),
        ([OPEN, (6, PRECHARGE, 0, 0), (1, ACTIVATE, 0, 0)], "ACTIVATE within tRP"),
        ([OPEN, (1, ACTIVATE, 1, 0)], "ACTIVATE within tRRD"),
        ([OPEN, (9, ACTIVATE, 0, 6)], "ACTIVATE of an open bank"),
        ([OPEN, (9, REFRESH, 0, 0)], "while a bank is open"),
        ([OPEN, (9, PRECHARGE, 0, 0), (1, REFRESH, 0, 0)], "within tRP of PRECHARGE"),
        ([(3, REFRESH, 0, 0), (6, ACTIVATE, 0, 0)], "within tRFC"),
        ([(3, READ, 0, 0)], "in a bank that is not open"),
        ([OPEN, (2, READ, 1, 0)], "in a bank that is not open"),
        ([OPEN, (2, READ, 0, ALL)], "automatic precharge"),
        ([OPEN, (2, READ, 0, 0), (3, READ, 0, 4)], "cuts a burst"),
        ([OPEN, (2, READ, 0, 0), (3, PRECHARGE, 0, 0)], "PRECHARGE cuts a read"),
        ([OPEN, (4, WRITE, 0, 0), (4, PRECHARGE, 0, 0)], "write recovery"),
        ([OPEN, (2, READ, 0, 0), (6, WRITE, 0, 0)], "with no cycle between"),
        ([OPEN, (2, READ, 0, 0), (4, WRITE, 0, 0)], "with no cycle between"),
        ([(3, ACTIVATE, 0, 1 << 13)], "a row that is not there"),
        ([(3, MODE, 0, 0x32)], "another CAS latency"),
        ([(3, MODE, 0, 0x2A)], "a burst other than"),
        ([(3, MODE, 0, 0x122)], "reserved bits"),
        ([(3, 6, 0, 0)], "BURST STOP"),
        ([(7900, NOTHING, 0, 0)], "refreshes come too late"),
    ],
)  # fmt: skip
def test_what_it_refuses(steps: list[tuple[int, int, int, int]], rule: str) -> None:
    assert rule in broken(*steps)


@pytest.mark.parametrize(
    ("steps", "rule"),
    [
        ([(199, PRECHARGE, 0, ALL)], "before the end of the startup time"),
        ([(200, REFRESH, 0, 0)], "REFRESH before PRECHARGE"),
        ([(200, PRECHARGE, 0, 0), (3, MODE, 0, 0x22)], "SET before PRECHARGE of all"),
        ([*STARTED[:-2], STARTED[-1], OPEN], "ACTIVATE before mode register and eight refreshes"),
        ([*STARTED[:-1], (7, ACTIVATE, 0, 0)], "ACTIVATE before mode register and eight refreshes"),
    ],
)
def test_what_it_refuses_before_it_is_ready(steps: list[tuple[int, int, int, int]], rule: str) -> None:
    assert rule in broken(*steps, started=False)


def test_data_pins_belong_to_one() -> None:
    assert "nobody drives" in broken(OPEN, (2, WRITE, 0, 0), drive=False)
    modelled = ModelledChip(CHIP, 100e6)
    modelled.edge(data=3)
    assert "driven without a WRITE" in modelled.error


def test_a_read_that_is_masked_two_cycles_before_is_refused() -> None:
    modelled = ModelledChip(CHIP, 100e6)
    for edges, *command in [*STARTED, OPEN, (2, READ, 0, 0)]:
        for _ in range(edges - 1):
            modelled.edge()
        modelled.edge(*command, mask=3 * (command[0] == READ))
    for _ in range(6):
        modelled.edge()
    assert "a READ is masked" in modelled.error


# What cannot be


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("row_bits", 14, "row_bits: must be in 11..13, not 14"),
        ("column_bits", 7, "column_bits: must be in 8..9"),
        ("latency", 1, "latency: must be in 2..3"),
        ("rcd_ns", 0, "rcd_ns: must be a time above 0, not 0"),
        ("refresh_ns", float("nan"), "refresh_ns: must be a time above 0, not nan"),
        ("rrd_ns", 50, "rrd_ns: must not be above ras_ns, 45, but is 50"),
    ],
)
def test_a_chip_that_cannot_be_is_refused(name: str, value: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        replace(CHIP, **{name: value})


def test_a_clock_or_a_bus_that_the_chip_cannot_serve_is_refused() -> None:
    CHIP.check_clock(71_000_000)
    with pytest.raises(ConfigError, match=r"clock: at most 71\.4 MHz, as data take 6 ns, not 72 MHz"):
        CHIP.check_clock(72_000_000)
    with pytest.raises(ConfigError, match="bus_bits: must be at most 128, eight times the chip's, not 256"):
        burst_length(32)
    assert CHIP.size == 32 << 20
