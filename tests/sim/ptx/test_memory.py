"""Memory spaces: what is read and written where, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from weft.sim.ptx import DeviceMemory, KernelFaultError, PtxError, launch

from .lines import kernel, run, run_kernel

SHARED = "  .shared .align 16 .b8 s[512];\n"
PLACE = "mov.u32 %r1, s; shl.b32 %r2, %thread, 2; add.u32 %r3, %r1, %r2;"
"""%r3: the thread's own word of shared memory."""


def shared_kernel(body: str) -> str:
    return kernel(f"{PLACE} mul.wide.u32 %rd5, %thread, 4; add.s64 %rd6, %rd0, %rd5;\n{body}", 1, SHARED)


def test_shared_memory_carries_words_between_threads() -> None:
    text = shared_kernel(
        "ld.global.u32 %r4, [%rd6]; st.shared.u32 [%r3], %r4; bar.sync 0;"
        "xor.b32 %r5, %r2, 124; add.u32 %r6, %r1, %r5; ld.shared.u32 %r7, [%r6]; st.global.u32 [%rd6], %r7;"
    )
    data = np.arange(64, dtype=np.uint32)
    (found,), _ = run_kernel(text, [data], grid=1, threads=64)
    np.testing.assert_array_equal(found, data ^ 31)


def test_vectors_signs_and_widths() -> None:
    a = np.arange(-128, 128, dtype=np.int8)
    lines = """
      add.s64 %rd30, %rd0, 0; mul.wide.u32 %rd31, %thread, 4; add.s64 %rd30, %rd30, %rd31;
      ld.global.v4.u8 {%rs1, %rs2, %rs3, %rs4}, [%rd30]; ld.global.s8 D0, [%rd30+1]; ld.global.u8 D1, [%rd30+1];
      ld.global.s16 D2, [%rd30+2];
      cvt.u32.u16 D3, %rs4;
    """
    found = run(lines, [a], [np.int16, np.uint16, np.int32, np.uint32], threads=64)
    rows = a.reshape(64, 4)
    np.testing.assert_array_equal(found[0], rows[:, 1])
    np.testing.assert_array_equal(found[1], rows[:, 1].view(np.uint8))
    np.testing.assert_array_equal(found[2], rows.view(np.int16)[:, 1])
    np.testing.assert_array_equal(found[3], rows[:, 3].view(np.uint8))


def test_local_memory_and_generic_addresses() -> None:
    text = kernel(
        """mul.wide.u32 %rd5, %thread, 4; add.s64 %rd6, %rd0, %rd5; ld.global.u32 %r1, [%rd6];
        mov.u64 %rd7, depot; cvta.local.u64 %rd8, %rd7; st.u32 [%rd8+4], %r1; add.u32 %r2, %r1, 1;
        st.local.u32 [depot], %r2;
        mov.u64 %rd9, s; cvta.shared.u64 %rd10, %rd9; add.s64 %rd10, %rd10, %rd5; st.u32 [%rd10], %r1;
        setp.eq.u32 %p1, %thread, 3; selp.b64 %rd11, %rd10, %rd6, %p1; ld.local.u32 %r3, [depot+4];
        ld.u32 %r4, [%rd8]; add.u32 %r5, %r3, %r4; st.u32 [%rd11], %r5;""",
        1, "  .local .align 8 .b8 depot[8];\n  .shared .align 4 .b8 s[128];\n",
    )  # fmt: skip
    data = np.arange(32, dtype=np.uint32)
    (found,), _ = run_kernel(text, [data])
    np.testing.assert_array_equal(found, np.where(data == 3, 3, 2 * data + 1))


def test_tables_and_numbers_as_parameters() -> None:
    text = """.version 8.0
    .target sm_80
    .address_size 64
    .const .align 4 .u32 table[4] = {7, 0x10, 3};
    .visible .entry k(.param .u64 p, .param .s32 n, .param .f32 f) {
      .reg .b32 %r<9>; .reg .f32 %f<3>; .reg .b64 %rd<9>;
      ld.param.u64 %rd0, [p]; ld.param.u32 %r0, [n]; ld.param.f32 %f0, [f];
      mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 4; mov.u64 %rd2, table; add.s64 %rd3, %rd2, %rd1;
      ld.const.u32 %r2, [%rd3]; cvt.rzi.s32.f32 %r3, %f0; mad.lo.s32 %r4, %r2, %r0, %r3;
      add.s64 %rd4, %rd0, %rd1; st.global.u32 [%rd4], %r4; ret; }"""
    memory, found = DeviceMemory(), np.zeros(4, np.int32)
    address = memory.put(found)
    launch(text, (1,), (4,), [address, -3, 2.5], memory)
    memory.read(address, found)
    np.testing.assert_array_equal(found, np.array([7, 16, 3, 0]) * -3 + 2)


def test_parameters_by_an_address_that_is_chosen() -> None:
    lines = """mov.b64 %rd30, p1; mov.b64 %rd31, p0; setp.lt.u32 %p1, %thread, 9; selp.b64 %rd32, %rd30, %rd31, %p1;
        ld.param.b64 %rd33, [%rd32]; ld.param.b64 %rd34, [%rd31+16]; sub.s64 %rd35, %rd33, %rd34;
        cvt.u32.u64 D0, %rd35;"""
    (found,) = run(lines, [np.zeros(32, np.uint32)], [np.uint32])
    assert len(set(found[:9])) == len(set(found[9:])) == 1
    assert found[0] == 0
    assert found[9] > 1 << 31  # the first parameter lies below the second
    with pytest.raises(KernelFaultError, match="outside of the parameters"):
        run("mov.b64 %rd30, p0; ld.param.b64 %rd31, [%rd30+32]; mov.u32 D0, 0;", [np.zeros(32)], [np.uint32])


def test_atomic_updates_are_no_races() -> None:
    text = kernel(
        """red.global.add.u32 [%rd0], 1; atom.global.max.u32 %r1, [%rd0+4], %thread;
        atom.shared.add.u32 %r2, [s], 2;""",
        1,
        "  .shared .align 4 .b8 s[4];\n",
    )
    (found,), _ = run_kernel(text, [np.zeros(2, np.uint32)], grid=3, threads=64)
    np.testing.assert_array_equal(found, [192, 63])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("ld.shared.u32 %r4, [%r3];", "never written: thread 0 of block 0, byte 0"),
        ("st.shared.u32 [%r3+448], 1;", "outside of the 512 shared bytes: thread 16 of block 0, byte 512"),
        ("st.shared.u32 [%r3+2], 1;", "not aligned: thread 0 of block 0, byte 2, but a multiple of 4 is needed"),
        ("st.shared.u32 [%r1], 1;", "two threads write it at once"),
        ("st.shared.u32 [%r3], 1; ld.shared.u32 %r4, [%r1];", "wrote, with no barrier between: thread 1 of block 0"),
        ("st.shared.u32 [%r3], 1; bar.sync 0; ld.shared.u32 %r4, [%r1]; st.shared.u32 [%r3], 2;",
         "another thread reads, with no barrier between: thread 0"),
        ("st.shared.u32 [%r3], 1; xor.b32 %r5, %r3, 4; st.shared.u32 [%r5], 1;", "it writes what another thread wrote"),
        ("st.global.u32 [%rd6+256], 1;", "outside of every allocation: thread 0"),
        ("st.global.u32 [%rd6+-4], 1;", "outside of every allocation: thread 0"),
        ("ld.global.v2.u32 {%r4, %r5}, [%rd6];", "not aligned: thread 1"),
        ("st.global.u32 [%rd0], 1;", "global memory: two threads write it at once"),
        ("st.global.u32 [%rd6], 1; ld.global.u32 %r4, [%rd0];", "global memory: it reads what another thread wrote"),
        ("ld.global.u32 %r4, [%rd0]; st.global.u32 [%rd6], 1;", "global memory: it writes what another thread reads"),
        ("st.local.u32 [%r2], 1;", "outside of the 0 local bytes"),
        ("setp.lt.u32 %p1, %thread, 9; @%p1 bra L; bar.sync 0; L: bar.sync 0;", "at different barriers"),
        ("trap;", "the kernel stops itself in thread 0 of block 0"),
    ],
)  # fmt: skip
def test_what_is_refused(body: str, message: str) -> None:
    with pytest.raises(KernelFaultError, match=r"^line \d+: ") as error:
        run_kernel(shared_kernel(body), [np.zeros(64, np.uint32)], threads=64)
    assert message in str(error.value)


@pytest.mark.parametrize("used", [True, False])
def test_what_is_loaded_beside_but_never_used_may_be_anything(used: bool) -> None:
    """Compilers load whole vectors: here three words that were written, and a fourth that was not."""
    text = shared_kernel(
        "setp.ne.u32 %p1, %thread, 0; @%p1 bra L; st.shared.v2.u32 [%r1], {7, 8}; st.shared.u32 [%r1+8], 9;"
        "ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r1]; add.u32 %r10, %r10, %r11; add.u32 %r10, %r10, %r12;"
        f"{'add.u32 %r10, %r10, %r13;' if used else ''} st.global.u32 [%rd0], %r10; L:"
    )
    data = np.zeros(64, np.uint32)
    if used:
        with pytest.raises(KernelFaultError, match="never written: thread 0 of block 0"):
            run_kernel(text, [data], threads=64)
        return
    (found,), _ = run_kernel(text, [data], grid=1, threads=64)
    assert found[0] == 24


def test_a_word_of_which_some_bytes_were_written_holds_no_lucky_zeros() -> None:
    text = shared_kernel(
        "setp.ne.u32 %p1, %thread, 0; @%p1 bra L; mov.u32 %r9, 7; st.shared.u8 [%r1], %r9; st.shared.u8 [%r1+1], %r9;"
        "ld.shared.u32 %r10, [%r1]; and.b32 %r11, %r10, 65535; st.global.u32 [%rd0], %r11;"
        "st.global.u32 [%rd0+4], %r10; L:"
    )
    (found,), _ = run_kernel(text, [np.zeros(64, np.uint32)], grid=1, threads=64)
    assert found[:2].tolist() == [0x0707, 0xA5A50707]
    with pytest.raises(KernelFaultError, match="never written"):
        run_kernel(text.replace("ld.shared.u32 %r10, [%r1]", "ld.shared.u32 %r10, [%r1+4]"), [found], threads=64)


def test_a_barrier_makes_another_threads_word_safe_in_global_memory_too() -> None:
    data = np.arange(64, dtype=np.uint32)
    body = """ld.global.u32 %r4, [%rd6]; bar.sync 0; xor.b32 %r5, %thread, 1; mul.wide.u32 %rd7, %r5, 4;
              add.s64 %rd8, %rd0, %rd7; st.global.u32 [%rd8], %r4;"""
    (found,), _ = run_kernel(shared_kernel(body), [data], threads=64)
    np.testing.assert_array_equal(found, data ^ 1)


def test_no_barrier_orders_two_blocks() -> None:
    body = "setp.eq.u32 %p1, %block, 0; @%p1 st.global.u32 [%rd6], 1; bar.sync 0; @!%p1 ld.global.u32 %r4, [%rd6];"
    with pytest.raises(KernelFaultError, match="it reads what another thread wrote"):
        run_kernel(shared_kernel(body), [np.zeros(64, np.uint32)], grid=2, threads=64)
    read = "ld.global.u32 %r4, [%rd6]; bar.sync 0; setp.eq.u32 %p1, %block, 1; @%p1 st.global.u32 [%rd6], 1;"
    with pytest.raises(KernelFaultError, match="it writes what another thread reads"):
        run_kernel(shared_kernel(read), [np.zeros(64, np.uint32)], grid=2, threads=64)


COPY = "add.s64 %rd7, %rd6, 0; cp.async.ca.shared.global [%r3], [%rd7], 4;"
SWAP = "xor.b32 %r4, %r3, 4; ld.shared.u32 %r5, [%r4]; st.global.u32 [%rd6], %r5;"


def test_asynchronous_copies_land_group_by_group() -> None:
    body = f"{COPY} cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 1; bar.sync 0; {SWAP}"
    data = np.arange(64, dtype=np.uint32)
    (found,), _ = run_kernel(shared_kernel(body), [data], threads=64)
    np.testing.assert_array_equal(found, data ^ 1)


def test_what_is_not_copied_is_zero() -> None:
    body = f"""setp.lt.u32 %p1, %thread, 8; selp.b32 %r8, 4, 0, %p1; selp.b32 %r9, 0, 1048576, %p1;
        cvt.u64.u32 %rd8, %r9; add.s64 %rd7, %rd6, %rd8; cp.async.ca.shared.global [%r3], [%rd7], 4, %r8;
        cp.async.wait_all; bar.sync 0; {SWAP}"""
    (found,), _ = run_kernel(shared_kernel(body), [np.arange(64, dtype=np.uint32)], threads=64)
    np.testing.assert_array_equal(found, np.where(np.arange(64) < 8, np.arange(64) ^ 1, 0))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"{COPY} cp.async.commit_group; bar.sync 0; {SWAP}", "may still land"),
        (f"{COPY} cp.async.commit_group; cp.async.wait_group 1; bar.sync 0; {SWAP}", "may still land"),
        (f"{COPY} cp.async.wait_group 0; bar.sync 0; {SWAP}", "may still land"),
        (f"{COPY} cp.async.commit_group; cp.async.wait_group 0; {SWAP}", "with no barrier between"),
        (f"{COPY} st.shared.u32 [%r3], 1;", "may still land"),
        ("cp.async.ca.shared.global [%r3], [%rd6+1024], 4;", "outside of every allocation"),
        ("cp.async.cg.shared.global [%r3], [%rd6], 16;", "not aligned"),
    ],
)
def test_what_is_refused_of_asynchronous_copies(body: str, message: str) -> None:
    with pytest.raises(KernelFaultError) as error:
        run_kernel(shared_kernel(body), [np.arange(64, dtype=np.uint32)], threads=64)
    assert message in str(error.value)


def test_memory_is_given_back_and_used_again() -> None:
    memory = DeviceMemory()
    first, second = memory.allocate(1000), memory.allocate(5)
    assert second >= first + 1000 + 256
    memory.free(first)
    assert memory.allocate(900) == first
    with pytest.raises(PtxError, match="outside of every allocation"):
        memory.write(second, np.zeros(6, np.uint8))
    large = memory.put(np.arange(1 << 18))
    back = np.empty(1 << 18, np.int64)
    memory.read(large, back)
    np.testing.assert_array_equal(back, np.arange(1 << 18))


OPEN = ".extern .shared .align 16 .b8 open[];\n"


@pytest.mark.parametrize("inside", [True, False])
def test_memory_of_open_size_lies_behind_what_is_declared(inside: bool) -> None:
    text = kernel(f"{PLACE} st.shared.u32 [%r3], 1; st.shared.u32 [open+108], 2; bar.sync 0;"
                  "ld.shared.u32 %r4, [%r3]; st.global.u32 [%rd0], %r4;",
                  1, f"  .shared .align 4 .b8 s[132];\n{OPEN if inside else ''}")  # fmt: skip
    text = text if inside else text.replace(".visible", f"{OPEN}.visible")
    text = text.replace("st.shared.u32 [open", "@%p1 st.shared.u32 [open").replace(
        "mov.u32 %r1, s;", "mov.u32 %r1, s; setp.eq.u32 %p1, %thread, 0;").replace(
        "st.global.u32", "@%p1 st.global.u32")  # fmt: skip
    memory = DeviceMemory()
    place = memory.put(np.zeros(1, np.uint32))
    launch(text, (1,), (33,), [place], memory, dynamic_shared=112)
    found = np.zeros(1, np.uint32)
    memory.read(place, found)
    assert found == 1
    with pytest.raises(KernelFaultError, match="outside of the"):
        launch(text, (1,), (33,), [place], memory, dynamic_shared=96)


@pytest.mark.parametrize(
    ("declared", "asked", "why"),
    [
        (48 << 10, 0, ""), (0, 99 << 10, ""), (1024, 98 << 10, ""),
        ((48 << 10) + 16, 0, "it declares 49,168 bytes of shared memory, but no kernel has more than 49,152"),
        (0, (99 << 10) + 4, "a block shares 101,380 bytes, but sm_89 has 101,376 for one"),
        (1024, (98 << 10) + 4, "a block shares 101,380 bytes, but sm_89 has 101,376 for one"),
    ],
)  # fmt: skip
def test_a_block_has_so_much_shared_memory(declared: int, asked: int, why: str) -> None:
    own = f"  .shared .align 4 .b8 s[{declared}];\n" if declared else ""
    text = kernel("", 1, own + OPEN).replace("sm_90", "sm_89")
    if not why:
        launch(text, (1,), (32,), [0], DeviceMemory(), dynamic_shared=asked)
        return
    with pytest.raises(PtxError, match=why):
        launch(text, (1,), (32,), [0], DeviceMemory(), dynamic_shared=asked)
