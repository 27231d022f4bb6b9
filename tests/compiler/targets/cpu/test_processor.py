"""What schedules know of a processor's caches."""

from __future__ import annotations

from pathlib import Path

import pytest
from weft.compiler.targets.cpu import processor
from weft.compiler.targets.cpu.attention import CpuAttention
from weft.compiler.targets.cpu.processor import (
    HOST,
    PRETENDED,
    PROCESSORS,
    Cache,
    Core,
    Processor,
    executable_here,
    host_described,
    host_target,
    named_target,
    recorded_processor,
)
from weft.compiler.targets.cpu.products import choose_blocking, rated_product_tiles
from weft.compiler.targets.errors import CompileError

X86 = [name for name in PROCESSORS if named_target(name).triple.startswith("x86_64")]


def test_those_of_boards_have_their_own_caches() -> None:
    a9, a53 = named_target("armv7a"), named_target("cortex-a53")
    assert (a9.nearest, a9.second.nbytes) == (Cache(32 << 10, 4, 32), 512 << 10)
    assert (a53.nearest, a53.second.nbytes) == (Cache(32 << 10, 4), 1 << 20)
    assert a9.core.loads == a53.core.loads == 1
    assert a9.fusion.attention is not None


@pytest.mark.parametrize("name", X86)
def test_those_of_hosts_are_alike(name: str) -> None:
    assert named_target(name).core == Core((Cache(32 << 10, 8), Cache(512 << 10, 8)), loads=2)


def with_caches(nearest: Cache, second: Cache) -> Processor:
    usual = named_target("x86-64-v3")
    return Processor(usual.triple, usual.cpu, usual.features, 32, 16, False, core=Core((nearest, second)))


def test_blocks_grow_with_the_second_level() -> None:
    small, large = (with_caches(Cache(32 << 10, 8), Cache(size << 10, 8)) for size in (256, 2048))
    of = [choose_blocking((4096, 512), 1024, (True, True), False, each).rows for each in (small, large)]
    assert of[0] < of[1]
    tiles = [CpuAttention(each).tiles((1, 2048, 64), 64, 2048, True) for each in (small, large)]
    assert tiles[0].block < tiles[1].block
    assert (tiles[0].packed, tiles[1].packed) == (True, False)


def test_what_the_nearest_level_holds_is_read_in_place() -> None:
    """A matrix of 32 KiB: with 64 KiB there is room for it, with 32 KiB not."""
    for size, packed in ((32, True), (64, False)):
        target = with_caches(Cache(size << 10, 8), Cache(512 << 10, 8))
        assert choose_blocking((512, 128), 64, (True, True), False, target).packed is packed


def test_a_tile_has_no_more_rows_than_lines_that_meet() -> None:
    """Rows of 8 KiB all lie in one set of a cache of 2 ways."""
    for ways in (2, 8):
        target = with_caches(Cache(8192 * ways, ways), Cache(512 << 10, 8))
        tallest = max(tile.rows for _, tile in rated_product_tiles(64, 64, 2048, False, target))
        assert tallest == min(ways, 14)


@pytest.mark.parametrize("pretended", executable_here())
def test_what_a_program_records_is_the_processor_again(pretended: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PRETENDED, pretended)
    assert recorded_processor(host_target().name) == (HOST, host_target())
    for name in PROCESSORS:
        found, target = recorded_processor(named_target(name).name)
        assert target.name == named_target(name).name
        assert found in (PROCESSORS if target.name != host_target().name else (HOST,))
    other = "x86_64-unknown-linux-gnu sapphirerapids +avx2,+avx512f,+avx512vl,+avx512bw,-prefer-256-bit"
    found, target = recorded_processor(other)
    assert (found, target.name, target.vector_bytes) == ("", other, 64)


@pytest.mark.parametrize("text", ["", "sm_90", "pdp11-unknown-none 11 +fp", "x86_64-unknown-linux-gnu"])
def test_what_is_no_processor_is_refused(text: str) -> None:
    with pytest.raises(CompileError, match="there is no processor"):
        recorded_processor(text)


ACCOUNT = """processor	: 0
vendor_id	: GenuineIntel
model		: 143
cpu MHz		: 2100.000
flags		: fpu avx2 avx512f

processor	: 1
flags		: fpu
"""


def test_a_processor_is_described_without_llvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def described(text: str) -> object:
        (tmp_path / "cpuinfo").write_text(text)
        return host_described(tmp_path / "cpuinfo")

    monkeypatch.setattr(processor, "_llvm", lambda: pytest.fail("LLVM was asked"))
    first = described(ACCOUNT)
    assert described(ACCOUNT.replace("2100", "3700").replace("flags\t\t: fpu\n", "")) == first
    for other in (ACCOUNT.replace(" avx512f", ""), ACCOUNT.replace("143", "144"), ACCOUNT.replace("Intel", "Other")):
        assert described(other) != first
    monkeypatch.setenv(PRETENDED, "x86-64-v3")
    assert described(ACCOUNT) != first


@pytest.mark.parametrize("text", [None, "", "processor: 0\nmodel name: one\n"])
def test_llvm_is_asked_where_the_system_does_not_tell_features(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert host_described(tmp_path / "cpuinfo") == host_target()
