"""The cache stays below its limit, and what killed processes left goes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from weft import cache
from weft.cache import CacheError, cache_key, cache_limit, kept, kept_file

from .entries import CONTENT, KEY, files, never


@pytest.mark.parametrize(
    ("text", "size"), [("", 4 << 30), ("0", 0), ("1000", 1000), ("2k", 2048), ("500M", 500 << 20), ("4 GiB", None),
                       ("3GiB", 3 << 30), ("1TB", 1 << 40), ("-1", None), ("many", None), ("1.5G", None)],
)  # fmt: skip
def test_the_limit_is_a_size(monkeypatch: pytest.MonkeyPatch, text: str, size: int | None) -> None:
    monkeypatch.setenv("WEFT_CACHE_LIMIT", text)
    if size is None:
        with pytest.raises(CacheError, match=rf"^WEFT_CACHE_LIMIT: '{text}' is not a size; hint: such as 500M, or 0"):
            cache_limit()
    else:
        assert cache_limit() == size


def test_what_was_used_longest_ago_goes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_LIMIT", "3500")
    keys = [cache_key(str(number)) for number in range(4)]
    for age, (kind, key) in enumerate(zip(("cpu", "rtl", "cpu"), keys, strict=False)):
        kept(kind, key, lambda: bytes(1000))
        os.utime(folder / kind / f"weft-{key}", (1e9 + age, 1e9 + age))
    (folder / "cpu" / "somebody's").write_bytes(bytes(100_000))  # is not counted and stays
    (folder / "somebody's").write_bytes(bytes(100_000))
    assert kept("cpu", keys[0], never) == bytes(1000)  # so that the second is the oldest
    kept("rtl", keys[3], lambda: bytes(1000))
    assert files(folder) == {
        f"cpu/weft-{keys[0]}", f"cpu/weft-{keys[2]}", f"rtl/weft-{keys[3]}", "cpu/somebody's", "somebody's",
    }  # fmt: skip


def test_an_entry_above_the_limit_stays_until_the_next(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_LIMIT", "100")
    first = kept_file("rtl", KEY, lambda target: target.write_bytes(CONTENT) and None)
    assert first.exists()
    kept("cpu", KEY, lambda: CONTENT)
    assert files(folder) == {f"cpu/weft-{KEY}"}


def test_a_limit_of_0_keeps_nothing_and_says_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WEFT_CACHE_LIMIT", "0")
    assert kept("cpu", KEY, lambda: CONTENT) == CONTENT
    assert not folder.exists()
    assert capfd.readouterr().err == ""


def test_what_killed_processes_left_goes_after_a_day(folder: Path) -> None:
    kept("cpu", KEY, lambda: CONTENT)
    left = [folder / "cpu" / f".weft-{KEY}.so.lock", folder / "cpu" / f".weft-{KEY}.0123456789abcdef.tmp"]
    new = folder / "cpu" / f".weft-{cache_key('new')}.lock"
    others = folder / "cpu" / ".somebody's.tmp"
    for path in (*left, new, others):
        path.touch()
    for path in (*left, others):
        os.utime(path, (1e9, 1e9))
    cache._since_look.clear()
    kept("cpu", cache_key("next"), lambda: CONTENT)
    assert not [path for path in left if path.exists()]
    assert new.exists()
    assert others.exists()


def test_temporary_folders_of_killed_processes_go_after_a_day(tmp_path: Path) -> None:
    program = """
import os, sys
from weft.cache import working_folder
with working_folder() as folder:
    (folder / "core.v").write_text("half")
    print(folder.parent, flush=True)
    sys.stdin.read()
"""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    killed, recent, alive = (subprocess.Popen[str](command, **pipes) for _ in range(3))  # type: ignore[call-overload]
    folders = [Path(process.stdout.readline().strip()) for process in (killed, recent, alive)]
    for process in (killed, recent):
        process.kill()
        process.communicate()
    others = [tmp_path / "weft-private-notes", tmp_path / "weft-notes", tmp_path / "elsewhere"]
    for path in others:
        path.mkdir()
    (tmp_path / "weft-private-a_link12").symlink_to(tmp_path / "elsewhere")
    for path in (folders[0], folders[2], *others):
        os.utime(path, (1e9, 1e9))
    subprocess.run([sys.executable, "-c", program], env=environment, input="", text=True, check=True)
    assert [path.exists() for path in folders] == [False, True, True]
    assert all(path.exists() for path in others)
    alive.communicate("")
    assert alive.returncode == 0
    assert not folders[2].exists()
