"""Random cores from the legal space of :class:`CoreConfig`, small enough to be built in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..hw.config import DEPTHWISE_OUTPUTS, MOST_TABLES, TINY, WEIGHT_GROUPS, CoreConfig
from ..hw.mac_array_packed import Multipliers
from ..roundings import HALF_UP, ROUNDINGS
from .fuzz import Draw, seeded

MOST_MACS = 128
"""Multipliers of a random core: they decide how long its build takes."""

ENTRY_BITS = 2048
"""Widest entry of a random core."""

PACKED_EACH = 3
"""One core of so many has the array that holds two products in a multiplier."""

DEPTHWISE_EACH = 11
"""One core of so many has the smallest array with the depthwise mode."""

TABLES_EACH = 5
"""One core of so many has tables."""

WEIGHTS_EACH = 7
"""One core of so many unpacks 4-bit weights, if its entries of wgt are wide enough for its bus."""

ROUNDING_EACH = 13
"""One core of so many may round in another way than half up, for each of these ways."""

OTHERWISE = tuple(rounding for rounding in ROUNDINGS if rounding != HALF_UP)

CORNERS = (
    TINY,
    replace(
        TINY, inp_depth=8, wgt_depth=8, acc_depth=16, out_depth=8, acc_banks=4, queue_depth=2, token_depth=1,
        read_outstanding=1, write_outstanding=1, burst_beats=1,
    ),
    replace(TINY, batch=1, block_in=2, block_out=2, bus_bits=512),
    replace(TINY, batch=4, block_in=8, block_out=2, bus_bits=128, acc_banks=1, burst_beats=256),
    replace(TINY, batch=2, block_in=2, block_out=16, bus_bits=256, token_depth=255),
    replace(TINY, inp_depth=65536, bus_bits=512, queue_depth=2),
    replace(TINY, block_in=16, block_out=16, inp_depth=64, wgt_depth=16, acc_depth=64, depthwise=1),
    replace(TINY, tables=2),
    replace(TINY, weight_group=32),
)  # fmt: skip
"""Cores at the ends of the space: everything smallest, the widest bus, 256-bit instructions, ..."""


def campaign_config(number: int) -> CoreConfig:
    """Core ``number`` of a campaign: the corners first, then random ones; each with its number as its name."""
    config = CORNERS[number] if number < len(CORNERS) else random_config(seeded(number))
    if number >= len(CORNERS) and number % DEPTHWISE_EACH == DEPTHWISE_EACH - 1:
        config = replace(config, batch=1, block_in=DEPTHWISE_OUTPUTS, block_out=DEPTHWISE_OUTPUTS, depthwise=1)
    if number >= len(CORNERS) and number % TABLES_EACH == TABLES_EACH - 1:
        config = replace(config, tables=1 << number // TABLES_EACH % MOST_TABLES.bit_length())
    if number >= len(CORNERS) and number % WEIGHTS_EACH == WEIGHTS_EACH - 1:
        bus_bits = min(config.bus_bits, max(64, 4 * config.wgt_bytes))
        if 4 * config.wgt_bytes >= bus_bits:
            group = WEIGHT_GROUPS[number // WEIGHTS_EACH % len(WEIGHT_GROUPS)]
            deep_enough = max(config.wgt_depth, 2 * group // config.block_in)
            config = replace(config, bus_bits=bus_bits, weight_group=group, wgt_depth=deep_enough)
    turn = ROUNDING_EACH - 1 - number % ROUNDING_EACH
    if number >= len(CORNERS) and turn < len(OTHERWISE):
        config = replace(config, rounding=OTHERWISE[turn])
    return replace(config, name=f"core-{number}")


def campaign_multipliers(number: int) -> Multipliers:
    """The form of the array of core ``number`` of a campaign."""
    return Multipliers.PACKED if number % PACKED_EACH == PACKED_EACH - 1 else Multipliers.PLAIN


def random_config(draw: Draw) -> CoreConfig:
    """A core with up to ``MOST_MACS`` multipliers; every field that shapes the core is random."""

    def choose(values: Sequence[int]) -> int:
        return values[draw(0, len(values) - 1)]

    while True:
        acc_depth = choose((16, 32, 64, 128, 256, 1024))
        values: dict[str, Any] = {
            "batch": choose((1, 1, 1, 2, 4, 8)),
            "block_in": choose((2, 4, 4, 8, 16, 32)),
            "block_out": choose((2, 4, 4, 8, 16, 32)),
            "inp_depth": choose((8, 32, 128, 512, 2048)),
            "wgt_depth": choose((8, 16, 64, 256, 4096)),
            "acc_depth": acc_depth,
            "out_depth": choose((8, 16, 64, 128, 512)),
            "acc_banks": choose([banks for banks in (1, 2, 4, 8, 16) if acc_depth // banks >= 4]),
            "queue_depth": choose((2, 4, 8, 16, 32)),
            "token_depth": choose((1, 2, 3, 7, 15, 40)),
            "bus_bits": choose((64, 64, 128, 256, 512)),
            "address_bits": choose((32, 32, 36, 40, 64)),
            "read_outstanding": choose((1, 2, 4, 16, 32)),
            "write_outstanding": choose((1, 2, 8, 16)),
            "burst_beats": choose((1, 2, 4, 8, 16, 32, 64, 128, 256)),
        }
        macs = values["batch"] * values["block_in"] * values["block_out"]
        widest = 8 * values["block_out"] * max(values["block_in"], 4 * values["batch"])
        smallest = values["batch"] * min(values["block_in"], values["block_out"])
        if macs <= MOST_MACS and widest <= ENTRY_BITS and smallest >= 2:
            return CoreConfig(name="random", **values)
