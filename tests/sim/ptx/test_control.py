"""Branches, loops, barriers and launches; what is counted of them."""

from __future__ import annotations

import numpy as np
import pytest
from weft.sim.ptx import DeviceMemory, KernelFaultError, Program, PtxError, PtxSyntaxError, launch, parse

from .lines import HEAD, kernel, run, run_kernel

OWN = "mul.wide.u32 %rd5, %thread, 4; add.s64 %rd6, %rd0, %rd5;"


def test_lanes_go_their_own_ways_and_meet_again() -> None:
    a = np.arange(96, dtype=np.uint32)
    lines = """
      mov.u32 D0, 0; mov.u32 %r1, A0;
      LOOP: setp.eq.u32 %p1, %r1, 0; @%p1 bra DONE;
      and.b32 %r2, %r1, 1; setp.eq.u32 %p2, %r2, 1; @%p2 bra ODD;
      shr.u32 %r1, %r1, 1; bra.uni NEXT;
      ODD: sub.u32 %r1, %r1, 1;
      NEXT: add.u32 D0, D0, 1; bra LOOP;
      DONE: add.u32 D0, D0, 100;
    """
    (found,) = run(lines, [a], [np.uint32])
    np.testing.assert_array_equal(found, [100 + max(0, x.bit_length() - 1) + x.bit_count() for x in range(96)])


def test_threads_may_leave_early_and_under_a_condition() -> None:
    text = kernel(f"""{OWN} setp.gt.u32 %p1, %thread, 10; @%p1 ret; st.global.u32 [%rd6], 1; bar.sync 0;
        st.global.u32 [%rd6], 2;""")
    (found,), _ = run_kernel(text, [np.zeros(32, np.uint32)])
    np.testing.assert_array_equal(found, np.where(np.arange(32) > 10, 0, 2))


@pytest.mark.parametrize("threads", [1, 20, 32, 100, 256])
def test_any_number_of_threads_and_blocks(threads: int) -> None:
    text = kernel(
        """mad.lo.s32 %r1, %block, %ntid.x, %thread; mul.wide.u32 %rd5, %r1, 4; add.s64 %rd6, %rd0, %rd5;
        mov.u32 %r2, %nctaid.x; mad.lo.s32 %r3, %r1, 1000, %r2; st.global.u32 [%rd6], %r3;""".replace(
            "mad.lo.s32 %r1, %block, %ntid.x", "mov.u32 %r9, %ntid.x; mad.lo.s32 %r1, %block, %r9"
        )
    )
    count = threads * 90
    (found,), counts = run_kernel(text, [np.zeros(count, np.uint32)], grid=90, threads=threads)
    np.testing.assert_array_equal(found, np.arange(count) * 1000 + 90)
    assert counts.instructions["st"] == 90 * -(-threads // 32)


def test_axes_of_threads_and_blocks() -> None:
    names = [f"%{what}.{axis}" for what in ("tid", "ctaid", "ntid", "nctaid") for axis in "xyz"]
    moves = "".join(f"mov.u32 %r1, {name}; mad.lo.u32 %r2, %r2, 7, %r1;" for name in names)
    text = kernel(f"""mov.u32 %r2, 0; {moves}
        mov.u32 %r3, %tid.y; mov.u32 %r4, %tid.z; mad.lo.u32 %r5, %r4, 3, %r3; mad.lo.u32 %r5, %r5, 2, %thread;
        mov.u32 %r6, %ctaid.y; mov.u32 %r7, %ctaid.z; mad.lo.u32 %r8, %r7, 4, %r6; mad.lo.u32 %r8, %r8, 5, %block;
        mad.lo.u32 %r9, %r8, 24, %r5; mul.wide.u32 %rd5, %r9, 4; add.s64 %rd6, %rd0, %rd5;
        st.global.u32 [%rd6], %r2;""")
    grid, block = (5, 4, 3), (2, 3, 4)
    memory, found = DeviceMemory(), np.zeros(60 * 24, np.uint32)
    address = memory.put(found)
    launch(text, grid, block, [address], memory)
    memory.read(address, found)
    for number, value in enumerate(found):
        inner, outer = number % 24, number // 24
        digits = [inner % 2, inner // 2 % 3, inner // 6, outer % 5, outer // 5 % 4, outer // 20, *block, *grid]
        wanted = 0
        for digit in digits:
            wanted = (wanted * 7 + digit) % (1 << 32)
        assert value == wanted


def test_a_barrier_that_not_all_reach_is_refused() -> None:
    text = kernel("""setp.lt.u32 %p1, %thread, 40; @%p1 bra L; bra.uni E; L: bar.sync 0; bra.uni F;
        E: bar.sync 0; F:""")
    with pytest.raises(KernelFaultError, match="threads of a block wait at different barriers"):
        run_kernel(text, [np.zeros(1)], threads=64)
    endless = kernel("setp.lt.u32 %p1, %thread, 40; @%p1 bar.sync 0; bar.sync 0;")
    with pytest.raises(KernelFaultError, match="different barriers"):
        run_kernel(endless, [np.zeros(1)], threads=64)


def test_counts_of_instructions_branches_and_barriers() -> None:
    text = kernel(f"""{OWN} and.b32 %r1, %thread, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; add.u32 %r2, %r1, 1;
        L: bar.sync 0; setp.lt.u32 %p2, %thread, 32; @%p2 bra M; add.u32 %r2, %r1, 1; M: st.global.u32 [%rd6], %r1;""")
    _, counts = run_kernel(text, [np.zeros(64, np.uint32)], threads=64)
    assert counts.divergent == 2
    assert counts.barriers == 1
    assert counts.instructions["st"] == 2
    assert counts.instructions["add"] == 2 + 2 + 1  # addresses; odd lanes of both warps; the second warp
    assert counts.warp_instructions == sum(counts.instructions.values()) == 29


def sectors_of(stride: int) -> tuple[int, float]:
    text = kernel(f"""mul.lo.u32 %r1, %thread, {4 * stride}; cvt.u64.u32 %rd5, %r1; add.s64 %rd6, %rd0, %rd5;
        ld.global.u32 %r2, [%rd6];""")
    _, counts = run_kernel(text, [np.zeros(32 * stride, np.uint32)])
    return counts.bytes_read // 32, counts.coalescing


def test_counts_of_sectors() -> None:
    assert sectors_of(1) == (4, 1.0)
    assert sectors_of(2) == (8, 0.5)
    assert sectors_of(32) == (32, 0.125)


def wavefronts_of(stride: int, kind: str, registers: str) -> tuple[int, int]:
    nbytes = 4 * registers.count("%")
    text = kernel(
        f"""mov.u32 %r1, s; mul.lo.u32 %r2, %thread, {nbytes * stride}; add.u32 %r3, %r1, %r2;
        st.shared.{kind} [%r3], {registers};""",
        0,
        f"  .shared .align 16 .b8 s[{32 * nbytes * stride}];\n",
    )
    _, counts = run_kernel(text, [])
    (traffic,) = counts.wavefronts.values()
    assert counts.conflicts == traffic.needed - traffic.fewest
    return traffic.needed, traffic.fewest


def test_counts_of_bank_conflicts() -> None:
    assert wavefronts_of(1, "u32", "%r4") == (1, 1)
    assert wavefronts_of(2, "u32", "%r4") == (2, 1)
    assert wavefronts_of(32, "u32", "%r4") == (32, 1)
    assert wavefronts_of(33, "u32", "%r4") == (1, 1)
    assert wavefronts_of(1, "v4.u32", "{%r4, %r5, %r6, %r7}") == (4, 4)
    assert wavefronts_of(8, "v4.u32", "{%r4, %r5, %r6, %r7}") == (32, 4)


def test_a_word_that_all_lanes_read_takes_one_wavefront() -> None:
    body = """mov.u32 %r1, s; setp.eq.u32 %p1, %thread, 0; @%p1 st.shared.u32 [%r1], 7; bar.sync 0;
        ld.shared.u32 %r2, [%r1];"""
    _, counts = run_kernel(kernel(body, 0, "  .shared .align 4 .b8 s[4];\n"), [], threads=64)
    assert [(each.needed, each.fewest) for each in counts.wavefronts.values()] == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "no semicolon behind 'nonsense'"),
        (".visible .entry k() { ret; ", "the text ends inside of a kernel"),
        (".visible .entry k() { add.u32 }", "a brace behind"),
        (".func f() { ret; }", "functions that are called are not known"),
        (".visible .entry k() { .reg .b99 %r1; ret; }", "declares no registers"),
        (".visible .entry k(.param .align 8 .b8 big[64]) { ret; }", "a parameter of this kind"),
        (".visible .entry k() { frob; }", "no such instruction"),
        (".visible .entry k() { /* */ mov.u32 %r1, {1; ", "a { is not closed"),
        ("} ret;", "closes nothing"),
        ("L: ret;", "outside of a kernel"),
    ],
)
def test_texts_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError) as error:
        launch(f"{HEAD}{text}", (1,), (32,), [], DeviceMemory(), "k")
    assert message in str(error.value)


def test_launches_that_do_not_fit() -> None:
    text = kernel("", 1)
    memory = DeviceMemory()
    for wanted, arguments, block, name in (
        ("2 arguments, but it takes 1", [0, 0], 32, "k"), ("no kernel 'other'; hint: the kernels: k", [0], 32, "other"),
    ):  # fmt: skip
        with pytest.raises(PtxError, match=wanted):
            launch(text, (1,), (block,), arguments, memory, name)
    for grid, block, wanted in (
        ((1 << 40,), 32, "no device has more than"),
        ((1,), 2048, "no device has more than 1024"),
    ):
        with pytest.raises(PtxError, match=wanted):
            launch(text, grid, (block,), [0], memory, "k")
    limited = text.replace("p0)\n{", "p0) .maxntid 64, 1, 1\n{")
    assert parse(limited)["k"].threads == 64
    with pytest.raises(PtxError, match="a block of 96 threads, but it takes 64"):
        launch(limited, (1,), (96,), [0], memory)
    with pytest.raises(PtxError, match="no shared memory of open size"):
        launch(text, (1,), (32,), [0], memory, dynamic_shared=64)


def test_a_kernel_that_does_not_end_is_stopped() -> None:
    memory = DeviceMemory()
    program = Program(kernel("L: bra L;", 0), memory)
    with pytest.raises(KernelFaultError, match="it has not ended after 1,000 instructions"):
        program.launch("k", (1,), (32,), [], limit=1000)


CHOICE = """@%p1 bra $end;
$list: .branchtargets $zero, $one, $two, $one;
    brx.idx %r1, $list;
$zero: mov.u32 %r2, 10; bra $end;
$one: mov.u32 %r2, 11; bra $end;
$two: mov.u32 %r2, 12;
$end: mul.wide.u32 %rd5, %thread, 4; add.s64 %rd6, %rd0, %rd5; st.global.u32 [%rd6], %r2;"""


@pytest.mark.parametrize(
    ("number", "wanted", "divergent"),
    [
        ("mov.u32 %r1, 2;", [12] * 64, 0), ("and.b32 %r1, %thread, 3;", [10, 11, 12, 11] * 16, 2),
        ("shr.u32 %r1, %thread, 5;", [10] * 32 + [11] * 32, 0),
    ],
)  # fmt: skip
def test_a_branch_by_number(number: str, wanted: list[int], divergent: int) -> None:
    start = "mov.u32 %r2, 9; setp.eq.u32 %p1, %thread, 64;"
    (found,), counts = run_kernel(kernel(f"{start} {number} {CHOICE}"), [np.zeros(64, np.uint32)], threads=64)
    np.testing.assert_array_equal(found, wanted)
    assert counts.divergent == divergent
    assert counts.instructions["brx"] == 2


def test_a_guarded_branch_by_number_goes_on_where_the_guard_does_not_hold() -> None:
    guarded = CHOICE.replace("@%p1 bra $end;", "").replace("brx", "@%p1 brx")
    start = "setp.lt.u32 %p1, %thread, 3; mov.u32 %r1, %thread;"
    (found,), _ = run_kernel(kernel(f"{start} {guarded}"), [np.zeros(32, np.uint32)])
    np.testing.assert_array_equal(found, [10, 11, 12, *[10] * 29])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (CHOICE.replace("brx.idx %r1, $list", "brx.idx %r1, $zero"), "it names no list of labels"),
        (CHOICE.replace("$two, $one;", "$two, $four;"), "there is no label '\\$four'"),
        (CHOICE, "it goes way 31 of 4"),
    ],
)
def test_branches_by_number_that_are_refused(text: str, why: str) -> None:
    start = "setp.eq.u32 %p1, %thread, 64; mov.u32 %r1, %thread;"
    with pytest.raises(PtxError, match=why):
        run_kernel(kernel(f"{start} {text}"), [np.zeros(32, np.uint32)])
