"""The one description of a core: every width, depth and shape is derived from :class:`CoreConfig`.

RTL, assembler, simulators and compiler all take this object; the core reports :attr:`CoreConfig.hash64`
in a register, so that a program compiled for another core is refused.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..roundings import FLOAT32, HALF_UP, ROUNDINGS, TWO_ROUNDINGS
from ..whole import whole
from .errors import ConfigError
from .instruction_checksum import check_bits
from .memories import SCRATCHPADS, Memory

ISA_VERSION = 3
"""Part of the configuration's hash: raised whenever an instruction's layout or meaning changes."""

LOOP_LEVELS = 6
"""Affine loop levels that the gemm and vector engines each hold."""

PAD_BITS = 4
"""Width of each padding count of a LOAD."""

STRIDE_BITS = 17
"""Width of a DMA row stride, in DRAM entries."""

REACH_BITS = 30
"""Loads and stores name bytes of the window's first GiB."""

DEPTHWISE_OUTPUTS = 16
"""Outputs of the smallest array with a depthwise mode: the three rows of taps begin at outputs 0, 4 and 8."""

INP_BANKS = 4
"""Banks of ``inp`` on a core with the depthwise mode: an odd distance puts three entries in different ones."""

PROGRAM_ALIGNMENT = 64
"""Bytes; a program starts at a multiple of them: a bus word of the widest bus."""

TABLE_ENTRIES = 256
"""Entries of one table: one for each value of eight bits."""

MOST_TABLES = 16
"""Tables that a core can have."""

WEIGHT_GROUPS = (32, 64, 128)
"""Values along the depth that may share the scale and the zero point of 4-bit weights."""

ONCE_CONSTANT: dict[str, int | str] = {
    "burst_beats": 64, "depthwise": 0, "tables": 0, "weight_group": 0, "rounding": HALF_UP,
}  # fmt: skip
"""Fields that configurations of before lack, and their value then."""

LEFT_OUT = ("weight_group", "rounding")
"""Fields that a configuration's text has only where they are not as before: cores without them keep text and hash."""


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _bits_for_index(depth: int) -> int:
    return max(1, (depth - 1).bit_length())


def _canonical(values: dict[str, int | str]) -> str:
    stated = {name: value for name, value in values.items() if name not in LEFT_OUT or value != ONCE_CONSTANT[name]}
    return json.dumps(stated, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class CoreConfig:
    """Shape of a core: one ``[batch x block_in] x [block_in x block_out]`` int8 product a cycle.

    Depths count entries: ``inp`` entries hold ``batch x block_in`` int8, ``wgt`` entries
    ``block_out x block_in`` int8, ``acc`` entries ``batch x block_out`` int32 and ``out`` entries
    ``batch x block_out`` int8. Every illegal combination raises :class:`ConfigError` with the reason.
    """

    name: str = "custom"  # what people call it; it changes nothing
    batch: int = 1  # rows of a product
    block_in: int = 16  # input channels of a product
    block_out: int = 16  # output channels of a product
    inp_depth: int = 2048  # entries of the activations' scratchpad
    wgt_depth: int = 1024  # entries of the weights' scratchpad
    acc_depth: int = 2048  # entries of the accumulators' scratchpad
    out_depth: int = 1024  # entries of the results' scratchpad
    acc_banks: int = 4  # consecutive ranges of the accumulator memory with ports of their own
    queue_depth: int = 32  # instructions waiting in front of each engine
    token_depth: int = 15  # tokens that one pair of engines can hold
    bus_bits: int = 64  # AXI data width
    address_bits: int = 32  # AXI address width
    read_outstanding: int = 16  # read bursts in flight
    write_outstanding: int = 8  # write bursts in flight
    burst_beats: int = 64  # of the longest burst; a 4 KiB page may hold fewer
    depthwise: int = 0  # 1: GEMM has a depthwise mode, and inp has banks
    tables: int = 0  # of 256 entries in each lane of the vector engine, through which results may pass
    weight_group: int = 0  # 4-bit weights in DRAM: so many along the depth share a scale; 0: loadw unpacks none
    rounding: str = HALF_UP  # beside which a REQUANTISE may round so

    def __hash__(self) -> int:
        # Of few of the fields: configurations are looked up with every instruction.
        return hash((self.name, self.batch, self.block_in, self.block_out))

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name in ("name", "rounding"):
                continue
            value = getattr(self, field.name)
            number = whole(value)
            if number is None:
                raise ConfigError(f"{field.name} must be an integer, not {value!r}")
            if number is not value:
                object.__setattr__(self, field.name, number)
        if not isinstance(self.name, str):
            raise ConfigError(f"name must be a text, not {self.name!r}")
        self._check_powers_of_two()
        self._check_ranges()

    def _check_powers_of_two(self) -> None:
        limits = {
            "batch": (1, 16),
            "block_in": (2, 128),
            "block_out": (2, 128),
            "inp_depth": (8, 65536),
            "wgt_depth": (8, 65536),
            "acc_depth": (16, 65536),
            "out_depth": (8, 65536),
            "acc_banks": (1, 16),
            "queue_depth": (2, 1024),
            "bus_bits": (64, 512),
            "read_outstanding": (1, 64),
            "write_outstanding": (1, 64),
            "burst_beats": (1, 256),  # what AXI4 allows
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not _is_power_of_two(value) or not low <= value <= high:
                raise ConfigError(f"{name} must be a power of two in {low}..{high}, not {value}")

    def _check_ranges(self) -> None:
        if not 1 <= self.token_depth <= 255:
            raise ConfigError(f"token_depth must be in 1..255, not {self.token_depth}")
        if not 32 <= self.address_bits <= 64:
            raise ConfigError(f"address_bits must be in 32..64, not {self.address_bits}")
        if self.acc_depth // self.acc_banks < 4:
            raise ConfigError(
                f"acc_banks={self.acc_banks} leaves {self.acc_depth // self.acc_banks} entries a bank, "
                "but a bank needs 4",
                hint="use fewer banks or a deeper accumulator memory",
            )
        if self.depthwise not in (0, 1):
            raise ConfigError(f"depthwise must be 0 or 1, not {self.depthwise}")
        if self.depthwise and (self.batch > 1 or self.block_in != self.block_out or self.block_out < DEPTHWISE_OUTPUTS):
            raise ConfigError(
                f"depthwise=1 needs batch=1 and block_in = block_out >= {DEPTHWISE_OUTPUTS}, not batch={self.batch}, "
                f"block_in={self.block_in}, block_out={self.block_out}",
                hint="a core of this shape has depthwise=0",
            )
        if self.tables and not (_is_power_of_two(self.tables) and self.tables <= MOST_TABLES):
            raise ConfigError(f"tables must be 0 or a power of two in 1..{MOST_TABLES}, not {self.tables}")
        if self.rounding not in ROUNDINGS:
            raise ConfigError(f"rounding must be one of {', '.join(ROUNDINGS)}, not {self.rounding!r}")
        self._check_weight_group()
        if self.granule_bytes < 2:
            raise ConfigError(
                f"the smallest entry has {self.granule_bytes} bytes, but 2 are needed",
                hint="raise batch, block_in or block_out",
            )
        for memory in self.scratchpads:
            bits = 8 * self.entry_bytes(memory)
            if bits > 65536:
                raise ConfigError(
                    f"one {memory} entry would be {bits} bits wide, but at most 65536 are possible",
                    hint="lower batch, block_in or block_out",
                )

    def _check_weight_group(self) -> None:
        group = self.weight_group
        if not group:
            return
        if group not in WEIGHT_GROUPS:
            raise ConfigError(f"weight_group must be 0 or one of {', '.join(map(str, WEIGHT_GROUPS))}, not {group}")
        if group < self.block_in:
            raise ConfigError(
                f"weight_group={group} is less than block_in={self.block_in}: a group must be whole wgt entries",
                hint=f"use weight_group={self.block_in} or more",
            )
        if group // self.block_in > self.wgt_depth:
            raise ConfigError(
                f"weight_group={group} takes {group // self.block_in} wgt entries, but wgt_depth={self.wgt_depth}",
                hint="use a smaller group or a deeper wgt",
            )
        if self.wgt_bytes < 2 * self.bus_bytes:
            raise ConfigError(
                f"weight_group={group} needs wgt entries of two bus words or more, but an entry has {self.wgt_bytes} "
                f"bytes and a word {self.bus_bytes}",
                hint="use a narrower bus or larger blocks",
            )

    # Weights of 4 bits

    @cached_property
    def weight_head_bytes(self) -> int:
        """Bytes of the head of a record of 4-bit weights: one for each output, filled up to bus words and granules."""
        return max(self.block_out, self.bus_bytes, self.granule_bytes)

    @cached_property
    def weight_record_entries(self) -> int:
        """``wgt`` entries of one record of 4-bit weights; only on cores with ``weight_group``."""
        return self.weight_group // self.block_in

    @cached_property
    def weight_record_bytes(self) -> int:
        """Bytes of one record of 4-bit weights in DRAM: its head, and half a byte a weight."""
        return self.weight_head_bytes + self.weight_record_entries * self.wgt_bytes // 2

    # Scratchpads

    @property
    def scratchpads(self) -> tuple[Memory, ...]:
        """The core's memories: the four that every core has, and ``tab`` on a core with tables."""
        return (*SCRATCHPADS, Memory.TAB) if self.tables else SCRATCHPADS

    @property
    def tab_depth(self) -> int:
        """Entries of all tables."""
        return TABLE_ENTRIES * self.tables

    def depth(self, memory: Memory) -> int:
        """Entries of a scratchpad."""
        return int(getattr(self, f"{memory}_depth"))

    def banks(self, memory: Memory) -> int:
        """Parts of a scratchpad that have ports of their own; :meth:`bank_entries` says which entries each holds."""
        if memory is Memory.INP and self.depthwise:
            return INP_BANKS
        return self.acc_banks if memory is Memory.ACC else 1

    def bank_entries(self, memory: Memory, bank: int) -> slice:
        """Entries of one bank, in its order: of ``acc`` consecutive ones, of ``inp`` those with the bank's number as
        their lowest bits."""
        banks = self.banks(memory)
        if memory is Memory.INP:
            return slice(bank, None, banks)
        size = self.depth(memory) // banks
        return slice(bank * size, (bank + 1) * size)

    def entry_bytes(self, memory: Memory) -> int:
        """Bytes of one entry of a scratchpad."""
        return self._entry_bytes[memory]

    @cached_property
    def _entry_bytes(self) -> dict[Memory, int]:
        own = {memory: int(getattr(self, f"{memory}_bytes")) for memory in SCRATCHPADS}
        return {**own, Memory.TAB: self.out_bytes}  # a table gives a byte for each lane, as out holds

    def entry_elements(self, memory: Memory) -> int:
        """Elements of one entry of a scratchpad."""
        return self.entry_bytes(memory) // memory.element_bytes

    @cached_property
    def inp_bytes(self) -> int:
        """Bytes of one ``inp`` entry: lanes ``(block_in / sub_block, batch, sub_block)`` of int8."""
        return self.batch * self.block_in

    @cached_property
    def wgt_bytes(self) -> int:
        """Bytes of one ``wgt`` entry: ``(block_out, block_in)`` of int8."""
        return self.block_out * self.block_in

    @cached_property
    def acc_bytes(self) -> int:
        """Bytes of one ``acc`` entry: lanes ``(block_out / sub_block, batch, sub_block)`` of int32."""
        return Memory.ACC.element_bytes * self.lanes

    @cached_property
    def out_bytes(self) -> int:
        """Bytes of one ``out`` entry: the lanes of an ``acc`` entry, as int8."""
        return self.lanes

    @property
    def lanes(self) -> int:
        """Elements of one accumulator entry, and lanes of the vector engine."""
        return self.batch * self.block_out

    @property
    def sub_block(self) -> int:
        """Channels that stand together in memory whichever side reads them: the smaller block."""
        return min(self.block_in, self.block_out)

    @property
    def dram_block(self) -> int:
        """Channels to which activations in DRAM are padded: the larger block."""
        return max(self.block_in, self.block_out)

    @property
    def inp_takes_results(self) -> bool:
        """True where an ``out`` entry is an ``inp`` entry, lane by lane: the vector engine may write ``inp``."""
        return self.block_in == self.block_out

    @cached_property
    def granule_bytes(self) -> int:
        """Unit of the DRAM offsets in instructions: the smallest entry."""
        return min(self.inp_bytes, self.out_bytes)

    @property
    def bus_bytes(self) -> int:
        return self.bus_bits // 8

    @property
    def macs_per_cycle(self) -> int:
        return self.batch * self.block_in * self.block_out

    # Field widths: some are asked for at every instruction

    @cached_property
    def index_bits(self) -> int:
        """Width of every scratchpad index and loop stride."""
        return _bits_for_index(max(self.depth(memory) for memory in self.scratchpads))

    @property
    def count_bits(self) -> int:
        """Width of every row, column and loop count: a whole scratchpad can be counted."""
        return self.index_bits + 1

    @property
    def dram_bits(self) -> int:
        """Width of a DRAM offset in granules."""
        return REACH_BITS - (self.granule_bytes.bit_length() - 1)

    @cached_property
    def largest_instruction_bits(self) -> int:
        """Bits that the widest instruction (LOAD) uses, without its check bits; see :mod:`weft.hw.isa`."""
        header, scratchpad, pad_value = 16, 2, 8
        return (
            header + scratchpad + self.dram_bits + self.index_bits + 2 * self.count_bits
            + STRIDE_BITS + 4 * PAD_BITS + pad_value
        )  # fmt: skip

    @cached_property
    def instruction_bits(self) -> int:
        """128, or 256 for scratchpads too deep for 128-bit instructions."""
        return 128 if self.largest_instruction_bits + check_bits(128) <= 128 else 256

    @property
    def check_bits(self) -> int:
        """Bits of each instruction that tell whether the others arrived undamaged."""
        return check_bits(self.instruction_bits)

    @property
    def instruction_bytes(self) -> int:
        return self.instruction_bits // 8

    # Identity

    def to_json(self) -> str:
        """Canonical JSON text; :meth:`from_json` reads it back."""
        return _canonical(asdict(self))

    @staticmethod
    def from_json(text: str) -> CoreConfig:
        """Read what :meth:`to_json` wrote, or a part of it: other fields have their defaults. :class:`ConfigError`
        names an unknown field."""
        values = fields_in_json(text, CoreConfig, "configuration")
        for name, before in ONCE_CONSTANT.items():
            values.setdefault(name, before)
        return CoreConfig(**values)

    @property
    def hash64(self) -> int:
        """What the core's hash register holds; the name takes no part in it."""
        values = asdict(replace(self, name=""))
        text = f"isa{ISA_VERSION}:{_canonical(values)}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def text_in(path: str | Path) -> str:
    """What stands in a file of a configuration; :class:`ConfigError` where there is none, or where that is no text."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{error.strerror}, so no configuration", at=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"not a configuration: byte {error.start} is no text", at=str(path)) from error


def fields_in_json(text: str, kind: type[Any], what: str) -> dict[str, Any]:
    """The fields of an object in JSON, which are some of a dataclass. :class:`ConfigError` if it is no object, or has a
    field that the dataclass has not, or one twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if twice := sorted(name for name in {*names} if names.count(name) > 1):
            raise ConfigError(f"{twice[0]!r} is given twice", at=twice[0], hint="leave one of them out")
        return dict(pairs)

    try:
        values = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:  # also numbers of too many digits, and lists in lists without end
        raise ConfigError(f"not a {what} in JSON: {error}", hint=f"fields: {_field_names(kind)}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"not a {what}: expected an object, got {type(values).__name__}")
    if unknown := sorted(set(values) - {field.name for field in fields(kind)}):
        raise ConfigError(f"unknown {what} field {unknown[0]!r}", hint=f"known fields: {_field_names(kind)}")
    return values


def _field_names(kind: type[Any]) -> str:
    return ", ".join(sorted(field.name for field in fields(kind)))


TINY = CoreConfig(
    name="tiny", block_in=4, block_out=4, inp_depth=512, wgt_depth=256, acc_depth=256, out_depth=128, queue_depth=16
)
PYNQ = CoreConfig(name="pynq", depthwise=1)
PYNQ_TABLES = replace(PYNQ, name="pynq-tables", tables=2)  # 8 block RAMs more
PYNQ_W4 = replace(PYNQ, name="pynq-w4", weight_group=64)
PYNQ_FLOAT32 = replace(PYNQ, name="pynq-float32", rounding=FLOAT32)
PYNQ_REFERENCE = replace(PYNQ, name="pynq-reference", rounding=TWO_ROUNDINGS)
WIDE = CoreConfig(name="wide", block_in=32, block_out=32, bus_bits=128)

NAMED: dict[str, CoreConfig] = {
    config.name: config for config in (TINY, PYNQ, PYNQ_TABLES, PYNQ_W4, PYNQ_FLOAT32, PYNQ_REFERENCE, WIDE)
}


def named_config(name: str) -> CoreConfig:
    """The configuration called ``name``; :class:`ConfigError` lists the known names."""
    if not isinstance(name, str) or name not in NAMED:
        raise ConfigError(f"unknown configuration {name!r}", hint=f"known: {', '.join(sorted(NAMED))}")
    return NAMED[name]


def load_config(text: str) -> CoreConfig:
    """A named configuration, or the one in a JSON file; :class:`ConfigError` if there is none."""
    if not text.endswith(".json"):
        return named_config(text)
    try:
        return CoreConfig.from_json(text_in(text))
    except ConfigError as error:
        raise ConfigError(error.message, at=error.at or text, hint=error.hint) from error
