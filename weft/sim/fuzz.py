"""Random programs without races.

A program is first a plain list of instructions in one global order; tokens are then derived from what the instructions
touch, so that dropping any instruction leaves a legal program (this is how failures shrink). Choices come from a
function ``draw(low, high)``: a seeded generator, or hypothesis. What a core has to refuse is put in afterwards
(:mod:`weft.sim.fuzz_illegal`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..hw.assembly import format_instruction
from ..hw.config import LOOP_LEVELS, PAD_BITS, CoreConfig
from ..hw.isa import (
    LEGAL_SCRATCHPADS,
    Engine,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    Scratchpad,
    Store,
    Sync,
    Vector,
    VectorOp,
    VectorTarget,
    encode,
    encode_unchecked,
    seal,
    vector_targets,
)
from ..hw.memories import Memory
from ..hw.weight_form import FOUR_BITS
from ..roundings import HALF_UP
from .dma import granules, transfer_of
from .dram import DramModel
from .loops import Indices, LoopLevel, LoopNest

Draw = Callable[[int, int], int]
"""A number in ``low..high``, both included."""

MEMORY_BYTES = 1 << 16
PROGRAM_BYTES = 1 << 13
DATA_BYTES = 3 << 12
MICRO_OPS = 200
"""Most micro-ops of one random instruction."""

NEAR = 12
"""Most indices are below this, so that instructions meet on the same entries."""

Touched = dict[Memory, tuple[set[int], set[int]]]
"""For each memory, the entries (DRAM: granules) that an instruction reads and writes."""


@dataclass(frozen=True)
class IllegalPart:
    """An instruction that stops the core, in front of ``plain[place]``; its tokens are its own.

    flips
        Bits of the word that are inverted; unless ``damaged``, the check bits are made to fit again.
    ordered
        The chain of a serial program passes through it.
    """

    place: int
    instruction: Instruction
    flips: int = 0
    damaged: bool = False
    ordered: bool = False

    def word(self, config: CoreConfig) -> int:
        """What lies in DRAM."""
        word = encode_unchecked(config, self.instruction) ^ self.flips
        return word if self.damaged else seal(config, word)

    def __str__(self) -> str:
        text = f"{self.instruction} inverted: {self.flips:#x}" if self.flips else str(self.instruction)
        return f"{text} (damaged)" if self.damaged else text


@dataclass(frozen=True)
class Case:
    """A program with its surroundings: contents of all memories (from ``data_seed``), places, DRAM timing.

    wrong
        What the core has to stop at, in the order of their places; empty for a legal program.
    serial
        Tokens let one instruction run after the other; otherwise they order only what has to be ordered.
    finish
        FINISH stands at the end.
    """

    config: CoreConfig
    plain: tuple[Instruction, ...]  # without tokens
    data_seed: int
    token_seed: int
    window_start: int
    program_offset: int
    dram: DramModel
    window_bytes: int = MEMORY_BYTES
    wrong: tuple[IllegalPart, ...] = ()
    serial: bool = False
    finish: bool = True

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The program without what is wrong: tokens derived, FINISH at the end."""
        legal = replace(self, wrong=(), finish=True)
        return tuple(part for part in legal.program if isinstance(part, Instruction))

    @property
    def program(self) -> tuple[Instruction | IllegalPart, ...]:
        """What lies in DRAM, in its order."""
        plain = self.plain if self.serial else add_tokens(self.config, self.plain, seeded(self.token_seed))
        parts: list[Instruction | IllegalPart] = list(plain)
        for wrong in reversed(self.wrong):
            parts.insert(wrong.place, wrong)
        if self.serial:
            _chain(parts)
        return (*parts, Finish()) if self.finish else tuple(parts)

    @property
    def words(self) -> list[int]:
        """The encoded program."""
        config = self.config
        return [part.word(config) if isinstance(part, IllegalPart) else encode(config, part) for part in self.program]

    def __str__(self) -> str:
        head = (
            f"{self.config}\ndata_seed={self.data_seed} token_seed={self.token_seed} "
            f"window={self.window_start:#x}+{self.window_bytes:#x} program_offset={self.program_offset:#x}\n"
            f"{self.dram}\n"
        )
        texts = (str(part) if isinstance(part, IllegalPart) else format_instruction(part) for part in self.program)
        return head + "\n".join(f"{number:4}: {text}" for number, text in enumerate(texts))


def seeded(seed: int) -> Draw:
    """A reproducible source of choices."""
    return random.Random(seed).randint


def random_case(config: CoreConfig, draw: Draw, *, most_instructions: int = 40) -> Case:
    """A whole random case."""
    plain = plain_instructions(config, draw, draw(1, most_instructions))
    window_start = 4096 * draw(0, 3)
    calm = draw(0, 2) == 0
    return Case(
        config=config,
        plain=tuple(plain),
        data_seed=draw(0, 1 << 30),
        token_seed=draw(0, 1 << 30),
        window_start=window_start,
        program_offset=64 * draw(0, 20),
        dram=DramModel(
            latency=draw(1, 60),
            bytes_per_cycle=draw(1, 2 * config.bus_bytes),
            jitter=0 if calm else draw(0, 40),
            seed=draw(0, 1 << 30),
            outstanding=draw(1, 16),
            reorder=not calm and bool(draw(0, 1)),
        ),
        window_bytes=MEMORY_BYTES - window_start,
    )


# Instructions


def plain_instructions(config: CoreConfig, draw: Draw, count: int) -> list[Instruction]:
    """Random instructions without tokens, all of whose indices and addresses are legal."""
    loops = {engine: [LoopLevel() for _ in range(LOOP_LEVELS)] for engine in (Engine.GEMM, Engine.VECTOR)}
    plain: list[Instruction] = []
    for _ in range(count):
        kind = draw(0, 15)
        instruction: Instruction
        if kind <= 2:
            instruction = random_vector(config, draw, loops[Engine.VECTOR])
        elif kind <= 5:
            instruction = random_gemm(config, draw, loops[Engine.GEMM])
        elif kind <= 9:
            instruction = _loop(config, draw)
            loops[instruction.engine][instruction.level] = level_of(instruction)
        elif kind <= 12:
            instruction = random_load(config, draw)
        elif kind <= 14:
            instruction = random_store(config, draw)
        else:
            instruction = Sync(engine=Engine(draw(0, len(Engine) - 1)))
        plain.append(instruction)
    return plain


def level_of(loop: Loop) -> LoopLevel:
    """What a LOOP leaves in its level."""
    return LoopLevel(loop.extent, loop.dst_stride, loop.a_stride, loop.b_stride)


def _loop(config: CoreConfig, draw: Draw) -> Loop:
    def stride() -> int:
        if draw(0, 9) == 9:
            return draw(0, (1 << config.index_bits) - 1)
        return (0, 1, 0, 1, 2, 3, 5)[draw(0, 6)]

    return Loop(
        engine=(Engine.GEMM, Engine.VECTOR)[draw(0, 1)],
        level=draw(0, LOOP_LEVELS - 1),
        extent=draw(1, 5) if draw(0, 7) else draw(1, min(40, _most(config))),
        dst_stride=stride(),
        a_stride=stride(),
        b_stride=stride(),
    )


def _levels(draw: Draw, loops: Sequence[LoopLevel], fits: Callable[[LoopNest], bool]) -> tuple[int, LoopNest]:
    """As many of the innermost loops, up to a random number, as leave all indices room."""
    levels = draw(0, LOOP_LEVELS)
    while True:
        nest = LoopNest(tuple(reversed(loops[:levels])))
        if nest.count <= MICRO_OPS and fits(nest):
            return levels, nest
        levels -= 1


def _index(draw: Draw, nest: LoopNest, operand: str, depth: int) -> int:
    most = depth - 1 - nest.largest(0, operand)
    return draw(0, most if draw(0, 5) == 5 else min(most, NEAR))


def random_gemm(config: CoreConfig, draw: Draw, loops: Sequence[LoopLevel]) -> Gemm:
    """A GEMM whose indices are legal while ``loops`` are set."""
    gemm = Gemm(dst=0, src=0, wgt=0)
    if config.depthwise and draw(0, 1):
        gemm = _with_taps(config, draw, gemm, loops[0])
    depths = {"dst": config.acc_depth, "a": config.inp_depth - max(gemm.src_offsets), "b": config.wgt_depth}
    levels, nest = _levels(draw, loops, lambda nest: all(nest.largest(0, x) < depths[x] for x in depths))
    dst, src, wgt = (_index(draw, nest, operand, depth) for operand, depth in depths.items())
    return replace(gemm, zero=draw(0, 1), levels=levels, dst=dst, src=src, wgt=wgt)


def _with_taps(config: CoreConfig, draw: Draw, gemm: Gemm, inner: LoopLevel) -> Gemm:
    """A depthwise GEMM whose taps have room in ``inp``; often the innermost loop goes on along a row."""
    most = (config.inp_depth - 1) // 2  # what the two pitches may be together
    column_pitch = (inner.a_stride, inner.a_stride // 2, draw(0, 3), draw(0, 15))[draw(0, 3)]
    column_pitch = min(column_pitch, most - 1)
    row_pitch = draw(0, most - column_pitch - 1 if draw(0, 5) == 5 else min(most - column_pitch - 1, NEAR))
    return replace(gemm, depthwise=1, column_pitch=column_pitch, row_pitch=row_pitch | 1)


def random_vector(config: CoreConfig, draw: Draw, loops: Sequence[LoopLevel]) -> Vector:
    """A VECTOR whose indices are legal while ``loops`` are set."""
    op = list(VectorOp)[draw(0, len(VectorOp) - 1)]
    targets = vector_targets(config, op)
    target = targets[draw(0, len(targets) - 1)]
    b_immediate = 0 if op is VectorOp.REQUANTISE else draw(0, 1)
    b_entries = 0 if b_immediate else op.b_entries
    depths = {"dst": config.depth(target.memory), "a": config.acc_depth}
    if b_entries:
        depths["b"] = config.acc_depth - b_entries + 1
    levels, nest = _levels(draw, loops, lambda nest: all(nest.largest(0, x) < depths[x] for x in depths))
    if not b_entries:
        b = draw(-40, 40) if draw(0, 2) else draw(-(1 << 24), (1 << 24) - 1)
    else:
        b = _index(draw, nest, "b", depths["b"])
    takes_table = config.tables and not op.accumulates and target is not VectorTarget.TAB
    return Vector(
        op=op,
        zero=draw(0, 1),
        levels=levels,
        target=target,
        b_immediate=b_immediate,
        dst=_index(draw, nest, "dst", depths["dst"]),
        a=_index(draw, nest, "a", depths["a"]),
        b=b,
        zero_point=draw(-256, 255),
        low=draw(-256, 255),
        high=draw(-256, 255),
        left_shift=draw(0, 31) if draw(0, 2) == 2 else 0,
        table=draw(0, config.tables) if takes_table else 0,
        rounding=draw(0, 1) if config.rounding != HALF_UP else 0,
    )


def random_load(config: CoreConfig, draw: Draw) -> Load | Store:
    """A LOAD of the data region."""
    engine = (Engine.LOAD, Engine.LOADW)[draw(0, 1)]
    own, *others = LEGAL_SCRATCHPADS[engine]
    scratchpad = (own, own, *others)[draw(0, 3)]
    pads = [draw(0, 3) if draw(0, 2) == 2 else 0 for _ in range(4)]
    if draw(0, 15) == 15:
        pads[draw(0, 3)] = draw(0, (1 << PAD_BITS) - 1)
    rows, columns, stride = _rectangle(config, draw)
    load = Load(
        engine=engine,
        scratchpad=scratchpad,
        index=0,
        offset=0,
        rows=rows,
        columns=columns,
        stride=stride,
        pad_top=pads[0],
        pad_bottom=pads[1],
        pad_left=pads[2],
        pad_right=pads[3],
        pad_value=draw(-128, 127),
    )
    if config.weight_group and scratchpad is Scratchpad.WGT:
        load = replace(load, pad_value=0)
        if draw(0, 2):
            load = replace(load, pad_value=FOUR_BITS, pad_top=0, pad_bottom=0, pad_left=0, pad_right=0)
    return _placed(config, draw, load)


def random_store(config: CoreConfig, draw: Draw) -> Load | Store:
    """A STORE into the data region."""
    rows, columns, stride = _rectangle(config, draw)
    store = Store(index=0, offset=0, rows=rows, columns=columns, stride=stride)
    return _placed(config, draw, store)


def _most(config: CoreConfig) -> int:
    """The largest count that an instruction can name."""
    return (1 << config.count_bits) - 1


def _rectangle(config: CoreConfig, draw: Draw) -> tuple[int, int, int]:
    """Rows, columns and stride; now and then a long row or overlapping rows."""
    if draw(0, 11) == 11:
        return draw(1, 2), draw(1, min(60, _most(config))), draw(0, 64)
    return draw(0, 4), draw(0, 6), draw(0, 9)


def _halved(instruction: Load | Store) -> Load | Store:
    rows, columns = instruction.rows // 2, instruction.columns // 2
    if isinstance(instruction, Load) and not columns:
        return replace(instruction, rows=rows, columns=columns, pad_left=0, pad_right=0)
    return replace(instruction, rows=rows, columns=columns)


def _placed(config: CoreConfig, draw: Draw, instruction: Load | Store) -> Load | Store:
    """The instruction with a legal index and offset, its rows cut until it fits."""
    while True:
        transfer = transfer_of(config, instruction)
        room = config.depth(transfer.memory) - transfer.entries
        bytes_needed = transfer.end - transfer.start if transfer.bytes else 0
        if room >= 0 and bytes_needed <= DATA_BYTES:
            break
        instruction = _halved(instruction)
    step = max(1, min(transfer.entry_bytes, config.bus_bytes) // config.granule_bytes)
    first = (PROGRAM_BYTES // config.granule_bytes) // step
    places = (DATA_BYTES - bytes_needed) // config.granule_bytes // step
    near = draw(0, min(places, NEAR)) if draw(0, 2) else draw(0, places)
    room = min(room, (1 << config.index_bits) - 1)  # without entries, room may be the whole depth
    index = draw(0, room if draw(0, 5) == 5 else min(room, NEAR))
    return replace(instruction, index=index, offset=(first + near) * step)


# Tokens


def touched(config: CoreConfig, plain: Sequence[Instruction]) -> list[Touched]:
    """What each instruction reads and writes, in program order."""
    loops = {engine: [LoopLevel() for _ in range(LOOP_LEVELS)] for engine in (Engine.GEMM, Engine.VECTOR)}
    result = []
    for instruction in plain:
        entries: Touched = {name: (set(), set()) for name in (*config.scratchpads, Memory.DRAM)}
        match instruction:
            case Loop():
                loops[instruction.engine][instruction.level] = level_of(instruction)
            case Load() | Store():
                transfer = transfer_of(config, instruction)
                scratchpad = set(range(transfer.index, transfer.index + transfer.entries))
                dram: set[int] = set()
                if transfer.bytes:
                    places = granules(config, transfer)
                    dram = set(range(places.start, places.stop) if isinstance(places, slice) else places.tolist())
                is_load = isinstance(instruction, Load)
                entries[Memory.DRAM][0 if is_load else 1].update(dram)
                entries[transfer.memory][1 if is_load else 0].update(scratchpad)
            case Gemm():
                dst, a, b = _offsets(loops[Engine.GEMM], instruction.levels)
                entries[Memory.ACC][1].update((dst + instruction.dst).tolist())
                for offset in instruction.src_offsets:
                    entries[Memory.INP][0].update((a + instruction.src + offset).tolist())
                entries[Memory.WGT][0].update((b + instruction.wgt).tolist())
            case Vector():
                dst, a, b = _offsets(loops[Engine.VECTOR], instruction.levels)
                entries[instruction.target.memory][1].update((dst + instruction.dst).tolist())
                entries[Memory.ACC][0].update((a + instruction.a).tolist())
                for k in range(instruction.b_entries):
                    entries[Memory.ACC][0].update((b + instruction.b + k).tolist())
                if instruction.table:
                    entries[Memory.TAB][0].update(instruction.table_entries)
        result.append(entries)
    return result


def _offsets(loops: Sequence[LoopLevel], levels: int) -> tuple[Indices, Indices, Indices]:
    nest = LoopNest(tuple(reversed(loops[:levels])))
    dst, a, b, _ = nest.part(0, nest.count)
    return dst, a, b


def _conflict(first: Touched, second: Touched) -> bool:
    return any(
        not first[name][1].isdisjoint(second[name][0] | second[name][1])
        or not first[name][0].isdisjoint(second[name][1])
        for name in first
    )


def _chain(parts: list[Instruction | IllegalPart]) -> None:
    """Set waits and sends so that each instruction starts when the one before it has ended."""
    linked = [number for number, part in enumerate(parts) if isinstance(part, Instruction) or part.ordered]
    for first, second in pairwise(linked):
        source, target = _engine(parts[first]), _engine(parts[second])
        if source != target:
            parts[first] = _with_tokens(parts[first], send=1 << target)
            parts[second] = _with_tokens(parts[second], wait=1 << source)


def _engine(part: Instruction | IllegalPart) -> Engine:
    return part.instruction.engine if isinstance(part, IllegalPart) else part.engine


def _with_tokens(part: Instruction | IllegalPart, *, wait: int = 0, send: int = 0) -> Instruction | IllegalPart:
    if isinstance(part, IllegalPart):
        inner = part.instruction
        return replace(part, instruction=replace(inner, wait=inner.wait | wait, send=inner.send | send))
    return replace(part, wait=part.wait | wait, send=part.send | send)


class _Links:
    """Tokens from one engine to another as (sender, receiver) pairs, both ascending."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.pairs: list[tuple[int, int]] = []

    def orders(self, sender: int) -> bool:
        """Is what follows the last receiver already behind ``sender``?"""
        return bool(self.pairs) and self.pairs[-1][0] >= sender

    def add(self, sender: int, receiver: int, latest: int) -> None:
        """Let ``receiver`` wait for ``sender`` (or, where the counter would overflow, for ``latest``)."""
        if self.held(sender) < self.depth:
            self.pairs.append((sender, receiver))
        elif self.held(latest) < self.depth:
            self.pairs.append((latest, receiver))
        else:
            self.pairs[-1] = (latest, self.pairs[-1][1])

    def fits(self, sender: int) -> bool:
        """May ``sender`` send one more, in order and without filling the counter?"""
        return not self.orders(sender) and self.held(sender) < self.depth

    def held(self, sender: int) -> int:
        """Tokens in the counter when ``sender`` ends, if instructions run one after another."""
        return sum(1 for _, other in self.pairs if other > sender)


def add_tokens(config: CoreConfig, plain: Sequence[Instruction], draw: Draw) -> list[Instruction]:
    """Waits and sends that order all conflicting accesses, and some more that order nothing needed.

    Running the instructions one after another in the given order is legal, so no execution of them can deadlock.
    """
    entries = touched(config, plain)
    earlier: dict[Engine, list[int]] = {engine: [] for engine in Engine}
    links = {(a, b): _Links(config.token_depth) for a in Engine for b in Engine if a != b}
    extra = draw(0, 4)
    for number, instruction in enumerate(plain):
        target = instruction.engine
        for source in Engine:
            if source == target or not earlier[source]:
                continue
            link, senders = links[source, target], earlier[source]
            needed = next((j for j in reversed(senders) if _conflict(entries[j], entries[number])), None)
            if needed is not None and not link.orders(needed):
                link.add(needed, number, senders[-1])
            elif draw(0, 9) < extra:
                sender = senders[draw(0, len(senders) - 1)]
                if link.fits(sender):
                    link.add(sender, number, senders[-1])
        earlier[target].append(number)
    waits, sends = [0] * len(plain), [0] * len(plain)
    for (source, target), link in links.items():
        for sender, receiver in link.pairs:
            sends[sender] |= 1 << target
            waits[receiver] |= 1 << source
        # Tokens that nobody takes: after the last that is taken, as many as the counter holds.
        last = link.pairs[-1][0] if link.pairs else -1
        if extra and draw(0, 7) == 7:
            rest = [j for j in earlier[source] if j > last]
            room = config.token_depth - link.held(rest[0]) if rest else 0
            for sender in rest[: draw(0, room)]:
                sends[sender] |= 1 << target
    return [replace(part, wait=waits[i], send=sends[i]) for i, part in enumerate(plain)]
