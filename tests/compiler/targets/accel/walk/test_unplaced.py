"""Instructions before they have places: the same wherever they are walked for, and put where they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, replace

import numpy as np
import pytest
from weft.compiler.targets.accel.link import compile_kernel
from weft.compiler.targets.accel.link.compile_kernel import generate
from weft.compiler.targets.accel.operators.lower import Kernel, lower_function
from weft.compiler.targets.accel.stream.stream import Access, Issue
from weft.compiler.targets.accel.walk.emit import Emitter
from weft.compiler.targets.accel.walk.emit_nest import DramBuffer
from weft.compiler.targets.accel.walk.unplaced import Take, Unplaced, address
from weft.compiler.targets.errors import ScratchpadFullError
from weft.hw.config import TINY
from weft.hw.dram_rate import USUAL_RATE
from weft.hw.isa import Engine, Gemm, Load, Loop, Store, Vector, VectorOp, VectorTarget
from weft.hw.memories import Memory

from ..kernels import Build

SHIFT = 1 << 12
"""Bytes."""


@pytest.fixture(autouse=True)
def _nothing_is_known() -> Iterator[None]:
    compile_kernel._WALKS.clear()
    yield
    compile_kernel._WALKS.clear()


def convolution(name: str = "", channels: int = 8) -> Kernel:
    build = Build(TINY)
    acc = build.conv(build.input(1, channels, 9, 9), channels, channels, (3, 3), pads=(1, 1, 1, 1))
    return lower_function(build.function(build.requantise(acc, channels, 70_000), name))


def emitted(emitter: Emitter, kernel: Kernel, first: int = 0, layer: int = 0) -> list[Issue]:
    """The kernel's instructions behind those that are there; its tensors begin at byte ``first``."""
    tensors = [*kernel.inputs, kernel.output, *(tensor for tensor, _ in kernel.constants)]
    places = {tensor.name: DramBuffer(first + SHIFT * number) for number, tensor in enumerate(tensors)}
    before = len(emitter.issues)
    generate(emitter, kernel, places, USUAL_RATE, threads=2, layer=layer, first=False)
    return emitter.issues[before:]


def busy() -> Emitter:
    """An emitter whose scratchpads and registers are not as they are at first."""
    emitter = Emitter(TINY)
    for memory, entries in ((Memory.INP, 7), (Memory.WGT, 3), (Memory.ACC, 5), (Memory.OUT, 2)):
        emitter.rings[memory].release(emitter.rings[memory].take(entries, "of a layer before"))
    emitted(emitter, convolution("before", 12))
    return emitter


def test_a_kernel_is_the_same_behind_other_layers() -> None:
    expected = emitted(busy(), convolution(), SHIFT * 9, layer=3)
    compile_kernel._WALKS.clear()
    emitted(Emitter(TINY), convolution("another name"))
    emitter = busy()
    walks = len(compile_kernel._WALKS)
    found = emitted(emitter, convolution(), SHIFT * 9, layer=3)
    assert found == expected
    assert len(compile_kernel._WALKS) == walks
    assert {issue.layer for issue in found} == {3}


def test_instructions_and_their_accesses_are_at_the_same_places() -> None:
    unit = TINY.granule_bytes
    for issue in emitted(busy(), convolution(), SHIFT * 9):
        first = {access.memory: access.start for access in (*issue.reads, *issue.writes)}
        match issue.instruction:
            case Load(scratchpad=scratchpad, index=index, offset=offset, rows=rows):
                assert first[scratchpad.memory] == index
                assert first.get(Memory.DRAM, offset) == offset
                assert not rows or SHIFT * 9 <= offset * unit < SHIFT * 20
            case Store(index=index, offset=offset):
                assert first == {Memory.OUT: index, Memory.DRAM: offset}
            case Gemm(dst=dst, src=src, wgt=wgt):
                assert first == {Memory.ACC: dst, Memory.INP: src, Memory.WGT: wgt}
            case Vector(dst=dst, target=target):
                assert first[target.memory] in (dst, issue.instruction.a)


def test_a_register_is_set_unless_it_holds_that_already() -> None:
    emitter = Emitter(TINY)
    first, again = (emitted(emitter, convolution()) for _ in range(2))
    held: dict[tuple[Engine, int], object] = {}
    for issue in (*first, *again):
        if isinstance(issue.instruction, Loop):
            register = issue.instruction.engine, issue.instruction.level
            assert held.get(register) != astuple(issue.instruction)
            held[register] = astuple(issue.instruction)
    loops = [sum(isinstance(each.instruction, Loop) for each in issues) for issues in (first, again)]
    assert loops[0] >= loops[1]
    assert {(engine, level) for engine, levels in emitter.levels.items() for level in levels} == set(held)


def test_what_finds_no_room_leaves_the_stream_as_it_was() -> None:
    emitter = Emitter(TINY)
    walked = walked_convolution()
    full = emitter.rings[Memory.WGT]
    full.take(full.depth - 1, "of a layer before")
    rings = {memory: vars(ring) for memory, ring in emitter.rings.items()}
    before = repr(rings)
    with pytest.raises(ScratchpadFullError, match="in scratchpad 'wgt'"):
        emitter.append(walked, [dict.fromkeys("abc", DramBuffer(0))])
    assert repr({memory: vars(ring) for memory, ring in emitter.rings.items()}) == before
    assert (emitter.issues, emitter.levels) == ([], {Engine.GEMM: {}, Engine.VECTOR: {}})


def walked_convolution() -> Unplaced:
    emitted(Emitter(TINY), convolution())
    (walked,) = compile_kernel._WALKS.values()
    return walked


def test_the_last_walks_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_kernel, "WALKS", 2)
    for channels in (4, 8, 12, 8):
        emitted(Emitter(TINY), convolution(channels=channels))
    known = [id(each) for each in compile_kernel._WALKS.values()]
    assert len(known) == 2
    emitted(Emitter(TINY), convolution(channels=12))
    assert [id(each) for each in compile_kernel._WALKS.values()] == known


def test_walks_that_differ_in_their_tensors_are_apart() -> None:
    kernel = convolution()
    names = [tensor.name for tensor in (*kernel.inputs, kernel.output, *(each for each, _ in kernel.constants))]
    plain = {name: DramBuffer(0) for name in names}
    last = names[-1]
    kept = np.zeros(4, np.bool_)
    others = [
        {**plain, last: DramBuffer(1)}, {**plain, last: DramBuffer(0, constant=True)},
        {**plain, last: DramBuffer(0, kept=kept)}, {**plain, last: DramBuffer(0, kept=~kept)},
        {**plain, last: DramBuffer(0, pitch=3)}, {**plain, last: DramBuffer(0, moved=b"12345678")},
        {**plain, last: DramBuffer(8, moved=b"12345678")},
    ]  # fmt: skip
    tiling = next(compile_kernel._tilings(compile_kernel.Problem(TINY, kernel, 2), None, first=False))
    found = {compile_kernel._part(TINY, kernel, each, tiling) for each in (plain, *others)}
    assert len(found) == 1 + len(others)
    moved = {name: replace(each, offset=TINY.granule_bytes * 5) for name, each in plain.items()}
    assert compile_kernel._part(TINY, kernel, moved, tiling) in found


@pytest.mark.parametrize(("table_at", "number"), [(0, 1), (512, 3)])
def test_a_place_is_put_in_for_each_address(table_at: int, number: int) -> None:
    """Also for the second operand of a vector instruction and for numbers of tables, but not for immediates."""
    a, b, table = (address(each) for each in (1, 2, 3))
    sums = Vector(op=VectorOp.ADD, dst=a + 1, a=b, b=b + 2)
    looked_up = Vector(op=VectorOp.ADD, target=VectorTarget.OUT, dst=a, a=a, b=7, b_immediate=1, table=table // 256 + 1)
    issues = [Issue(sums, (Access(Memory.ACC, b, (3,), (1,)),), (), tile=1), Issue(looked_up)]
    take = Take(Memory.ACC, 4, "x", (), 0)
    unplaced = Unplaced.of([take, take, take, 0, 1, 2], issues, 5)
    assert (len(unplaced.takes), unplaced.tiles) == (1, 5)
    first, second = unplaced.placed([40, 60, table_at], {Engine.GEMM: {}, Engine.VECTOR: {}}, 2)
    assert first == Issue(replace(sums, dst=41, a=60, b=62), (Access(Memory.ACC, 60, (3,), (1,)),), (), 2, 1)
    assert second == Issue(replace(looked_up, dst=40, a=40, table=number), layer=2)


def test_only_the_first_loop_of_a_register_is_left_out() -> None:
    one, other = (Loop(engine=Engine.GEMM, level=0, extent=extent) for extent in (3, 4))
    above = Loop(engine=Engine.GEMM, level=1, extent=3)
    unplaced = Unplaced.of([], [Issue(each) for each in (one, above, other, one)], 0)
    held = {Engine.GEMM: {0: (3, 0, 0, 0), 1: (5, 0, 0, 0)}, Engine.VECTOR: {}}
    assert [each.instruction for each in unplaced.placed([], held, 0)] == [above, other, one]
    assert held == {Engine.GEMM: {0: (3, 0, 0, 0), 1: (3, 0, 0, 0)}, Engine.VECTOR: {}}
