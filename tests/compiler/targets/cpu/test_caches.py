"""Caches that the system tells of: read where it tells all, used for this machine alone, and part of no code's key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from weft.compiler.targets.cpu import processor
from weft.compiler.targets.cpu.attention import CpuAttention
from weft.compiler.targets.cpu.caches import Cache, system_caches
from weft.compiler.targets.cpu.llvm.object_code import code_key
from weft.compiler.targets.cpu.processor import CORES, PRETENDED, USUAL_CORE, host_described, host_target, named_target

NAMES = ("level", "type", "size", "ways_of_associativity", "coherency_line_size")
TOLD = (("1", "Data", "48K", "12", "64"), ("1", "Instruction", "64K", "4", "64"), ("2", "Unified", "2M", "16", "64"),
        ("3", "Unified", "32768K", "16", "64"))  # fmt: skip
LARGE = Cache(48 << 10, 12), Cache(2 << 20, 16)


def folder_of(folder: Path, told: tuple[tuple[str, ...], ...]) -> Path:
    for number, values in enumerate(told):
        each = folder / f"index{number}"
        each.mkdir(parents=True)
        for name, value in zip(NAMES, values, strict=True):
            (each / name).write_text(f"{value}\n")
    return folder


def test_data_of_the_first_two_levels(tmp_path: Path) -> None:
    assert system_caches(folder_of(tmp_path / "usual", TOLD)) == LARGE
    assert system_caches(folder_of(tmp_path / "turned", TOLD[::-1])) == LARGE


@pytest.mark.parametrize("place", [0, 2, 3, 4])
@pytest.mark.parametrize("value", ["", "0", "0K", "K", "-64", "7K"])
def test_what_is_no_cache_is_not_taken(place: int, value: str, tmp_path: Path) -> None:
    """Each line about the nearest cache replaced: none is known then, and never half of one."""
    nearest = (*TOLD[0][:place], value, *TOLD[0][place + 1 :])
    assert system_caches(folder_of(tmp_path, (nearest, *TOLD[1:]))) is None


def test_without_an_account_there_are_none(tmp_path: Path) -> None:
    assert system_caches(tmp_path / "missing") is None
    assert system_caches(folder_of(tmp_path / "one", TOLD[:2])) is None
    folder = folder_of(tmp_path / "half", TOLD)
    (folder / "index2" / "ways_of_associativity").unlink()
    assert system_caches(folder) is None


def test_this_machine_has_them_and_named_processors_have_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PRETENDED, raising=False)
    monkeypatch.setattr(processor, "system_caches", lambda: LARGE)
    large, described = host_target(), host_described()
    assert large.core.caches == LARGE
    assert named_target("x86-64-v3").core == USUAL_CORE
    monkeypatch.setattr(processor, "system_caches", lambda: None)
    usual = host_target()
    assert usual.core == CORES.get(usual.cpu, USUAL_CORE)
    assert host_described() != described
    assert code_key(large, "text") == code_key(usual, "text") != code_key(replace(usual, cpu="other"), "text")


def test_keys_whose_parts_share_lines_are_copied() -> None:
    """1,024 keys lie 4 KiB apart, which is a way of the nearest cache; 1,000 do not."""
    target = replace(named_target("x86-64-v3"), core=replace(USUAL_CORE, caches=LARGE))
    for keys, packed in ((1000, False), (1024, True)):
        assert CpuAttention(target).tiles((4, keys, 64), 64, keys, True).packed is packed
