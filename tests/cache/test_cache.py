"""The cache: kept once, verified always, healed with one line, and never a reason for a run to fail."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import io
import os
import resource
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft import cache
from weft.cache import (
    CacheError,
    cache_folder,
    cache_key,
    kept,
    kept_file,
    loaded_library,
    look_up,
)
from weft.hw.verilog import run_yosys

from tests.threads import in_threads

from .entries import CONTENT, KEY, entry, files, never

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "weft"


# Where


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"WEFT_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a/rtl"),
        ({"WEFT_CACHE": "", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/weft/rtl"),
        ({"WEFT_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/c"}, "/c/.cache/weft/rtl"),
    ],
)
def test_one_variable_moves_all_kinds(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_folder("rtl") == Path(expected)


def test_a_user_without_a_home_has_a_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WEFT_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 1_234_567)
    assert cache_folder("rtl") == Path("/nonexistent/.cache/weft/rtl")


def test_no_other_module_decides_where_files_are_kept() -> None:
    packages = [PACKAGE / name for name in ("hw", "sim", "compiler", "runtime", "testbench")]
    sources = [*PACKAGE.glob("*.py"), *(path for package in packages for path in package.rglob("*.py"))]
    assert len(sources) > 200
    deciding = [path.name for path in sources if "XDG_CACHE" in path.read_text() or '"WEFT_CACHE"' in path.read_text()]
    assert deciding == ["cache.py"]


def test_folders_and_entries_are_the_users_alone(folder: Path) -> None:
    kept("cpu", KEY, lambda: CONTENT)
    for path, mode in ((folder, 0o700), (folder / "cpu", 0o700), (entry(folder), 0o600)):
        assert stat.S_IMODE(path.stat().st_mode) == mode, path


def test_a_key_cannot_name_another_place() -> None:
    for key in ("../../outside", "", "a" * 31, f"{KEY}/x", f"{KEY}.so/../x", f"{KEY}\n"):
        with pytest.raises(ValueError, match="is not a key"):
            kept("cpu", key, never)


def test_keys_tell_apart_texts_that_join_to_the_same() -> None:
    assert len({cache_key("ab", "c"), cache_key("a", "bc"), cache_key("abc"), cache_key("abc", "")}) == 4


# Kept once


def test_content_is_made_once(folder: Path) -> None:
    assert look_up("cpu", KEY) is None
    assert kept("cpu", KEY, lambda: CONTENT) == CONTENT
    assert kept("cpu", KEY, never) == CONTENT
    assert look_up("cpu", KEY) == CONTENT
    assert files(folder) == {f"cpu/weft-{KEY}"}  # no lock, nothing unfinished


def test_a_library_a_program_and_an_object_work_with_the_digest_at_their_end(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int answer(void) { return 42; }\nint main(void) { return answer(); }\n")

    def compiled(*flags: str) -> Callable[[Path], None]:
        return lambda target: subprocess.run(["gcc", *flags, "-o", target, tmp_path / "a.c"], check=True) and None

    assert ctypes.CDLL(str(kept_file("rtl", f"{KEY}.so", compiled("-shared", "-fPIC")))).answer() == 42
    program = kept_file("cocotb", KEY, compiled())
    assert subprocess.run([program], check=False).returncode == 42
    linked = kept_file("verilator", f"{KEY}.o", compiled("-c"))
    subprocess.run(["gcc", "-o", tmp_path / "linked", linked], check=True)
    assert subprocess.run([tmp_path / "linked"], check=False).returncode == 42
    for path in (program, linked):
        content = path.read_bytes()
        assert hashlib.sha256(content[:-32]).digest() == content[-32:]


# Damaged


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def replace_by(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut within the digest": lambda path: os.truncate(path, len(CONTENT) + 31),
    "cut within the content": lambda path: os.truncate(path, 40),
    "cut before the digest": lambda path: os.truncate(path, len(CONTENT)),
    "too long": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "first bit": lambda path: flip(path, 0),
    "last bit": lambda path: flip(path, -1),
    "zeros": lambda path: path.write_bytes(bytes(len(CONTENT) + 32)),
    "a folder": replace_by(lambda path: (path / "inside").mkdir(parents=True)),
    "a pipe": replace_by(os.mkfifo),
    "a link to nothing": replace_by(lambda path: path.symlink_to("/nothing")),
    "a link to itself": replace_by(lambda path: path.symlink_to(path)),
    "a device": replace_by(lambda path: path.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_entry_is_made_again_with_one_line(
    damage: Callable[[Path], Any], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept("cpu", KEY, lambda: CONTENT)
    damage(entry(folder))
    assert kept("cpu", KEY, lambda: CONTENT) == CONTENT
    assert capfd.readouterr().err == f"weft: {entry(folder)} is damaged; it is made again\n"
    assert kept("cpu", KEY, never) == CONTENT
    assert files(folder) == {f"cpu/weft-{KEY}"}


def test_a_link_to_an_entry_that_is_whole_is_not_followed(folder: Path, tmp_path: Path) -> None:
    kept("cpu", KEY, lambda: b"planted")
    outside = tmp_path / "outside"
    entry(folder).rename(outside)
    entry(folder).symlink_to(outside)
    before = outside.read_bytes()
    assert kept("cpu", KEY, lambda: CONTENT) == CONTENT
    assert not entry(folder).is_symlink()
    assert outside.read_bytes() == before


def test_content_that_is_refused_counts_as_damaged(capfd: pytest.CaptureFixture[str]) -> None:
    kept("cpu", KEY, lambda: b"wrong kind")
    assert kept("cpu", KEY, lambda: CONTENT, accept=CONTENT.__eq__) == CONTENT
    assert "is damaged" in capfd.readouterr().err
    assert kept("cpu", KEY, never) == CONTENT


def test_a_library_that_was_cut_short_is_built_again_and_does_not_crash(folder: Path, tmp_path: Path) -> None:
    # In processes of their own: a truncated library ends its process with a bus error when it is mapped.
    program = f"""
import ctypes, subprocess
from weft.cache import kept_file
def build(target):
    print("built")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", target, {str(tmp_path / "a.c")!r}], check=True)
print(ctypes.CDLL(str(kept_file("rtl", {KEY!r} + ".so", build))).answer())
"""
    (tmp_path / "a.c").write_text("char big[100000] = {1}; int answer(void) { return 41 + big[0]; }\n")
    library = folder / "rtl" / f"weft-{KEY}.so"
    for kept_bytes, output in ((None, "built\n42\n"), (4096, "built\n42\n"), (50_000, "built\n42\n"), (None, "42\n")):
        if kept_bytes is not None:
            os.truncate(library, kept_bytes)
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert (result.returncode, result.stdout) == (0, output), result


# Folders that cannot be used


@pytest.mark.parametrize("place", ["/dev/null", "/dev/null/weft", "/proc/weft"])
def test_without_a_folder_all_is_made_anew_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], place: str
) -> None:
    monkeypatch.setenv("WEFT_CACHE", place)
    for _ in range(3):
        assert kept("cpu", KEY, lambda: CONTENT) == CONTENT
    assert look_up("cpu", KEY) is None
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"weft: {place}: ")
    assert line.endswith(": this run does without the cache; WEFT_CACHE names another folder")


def test_a_file_that_cannot_be_kept_is_built_once_in_a_process_and_goes_with_it(tmp_path: Path) -> None:
    program = """
import os
from weft.cache import kept_file
builds = []
def build(path):
    builds.append(path)
    path.write_bytes(b"library")
paths = {kept_file("rtl", "0" * 32, build) for _ in range(3)}
assert len(builds) == len(paths) == 1, (builds, paths)
if os.fork() == 0:
    raise SystemExit  # as a child that ends in the usual way: the folder is not its own
os.wait()
(path,) = paths
assert path.read_bytes() == b"library"
print(path)
"""
    environment = os.environ | {"WEFT_CACHE": "/dev/null", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_entries_of_a_read_only_folder_are_still_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kept("cpu", KEY, lambda: CONTENT)
    other = cache_key("other")
    with monkeypatch.context() as patch:
        opened = os.open

        def read_only(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
                raise OSError(errno.EROFS, "Read-only file system", str(path))
            return opened(path, flags, *rest, **options)

        def no_time(*_: Any) -> None:
            raise OSError(errno.EROFS, "Read-only file system")

        patch.setattr(os, "open", read_only)
        patch.setattr(os, "utime", no_time)
        assert kept("cpu", KEY, never) == CONTENT
        assert kept("cpu", other, lambda: b"new") == b"new"
        assert kept("cpu", other, lambda: b"new") == b"new"
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"weft: {folder}: Read-only file system: ")


def test_a_full_disk_costs_time_and_leaves_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    large = bytes(1 << 20)
    (folder / "cpu").mkdir(parents=True)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))  # each write stops half-way, as on a full disk
        for _ in range(2):
            assert kept("cpu", KEY, lambda: large) == large
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(capfd.readouterr().err.splitlines()) == 1
    assert files(folder) == set()
    kept("cpu", KEY, lambda: large)
    assert kept("cpu", KEY, never) == large


def test_a_library_on_a_full_disk_is_used_from_a_temporary_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        path = kept_file("rtl", KEY, lambda target: target.write_bytes(CONTENT) and None)
        assert path.read_bytes() == CONTENT
        assert not path.is_relative_to(folder)
        assert f"weft: {folder}: No space left on device" in capfd.readouterr().err
        assert files(folder) == set()
    again = kept_file("rtl", KEY, lambda target: pytest.fail("built again"))  # what was built is not lost
    assert again == folder / "rtl" / f"weft-{KEY}"


def test_no_room_for_temporary_files_names_the_file_and_the_variable() -> None:
    def full(target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    with pytest.raises(CacheError, match=rf"No space left on device: '.*{KEY}'; hint: TMPDIR names another folder"):
        kept_file("rtl", KEY, full)


def test_no_room_while_verilog_is_written_is_an_error_with_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(CacheError, match="No space left on device; hint: TMPDIR names another folder"):
            run_yosys("")


def test_a_library_that_is_deleted_before_it_is_loaded_is_made_again(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int answer(void) { return 42; }\n")
    command = ["gcc", "-shared", "-fPIC", tmp_path / "a.c", "-o"]
    times = []

    def find() -> Path:
        path = kept_file("rtl", f"{KEY}.so", lambda target: subprocess.run([*command, target], check=True) and None)
        times.append(path)
        if len(times) == 1:
            shutil.rmtree(folder)
        return path

    assert loaded_library(find).answer() == 42
    assert len(times) == 2
    with pytest.raises(OSError, match="cannot open shared object"):
        loaded_library(lambda: tmp_path / "none.so")


def test_a_folder_of_another_user_or_of_everyone_is_not_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kept("cpu", KEY, lambda: b"planted")
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert kept("cpu", KEY, lambda: CONTENT) == CONTENT
        assert "it belongs to another user" in capfd.readouterr().err
    (folder / "cpu").chmod(0o777)
    assert kept("cpu", KEY, lambda: CONTENT) == CONTENT
    assert "every user can write to it" in capfd.readouterr().err


def test_a_folder_around_it_that_everyone_can_change_is_not_trusted(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Others could put a folder in the place of the one that is used, unless its owner alone can move it."""
    kept("cpu", KEY, lambda: b"planted")
    folder.chmod(0o777)
    assert kept("cpu", KEY, lambda: CONTENT) == CONTENT
    assert f"{folder}: every user can write to it" in capfd.readouterr().err
    folder.chmod(0o1777)
    assert kept("cpu", KEY, lambda: CONTENT) == b"planted"


# Errors while something is made


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_while_making_leaves_nothing(folder: Path, error: type[BaseException]) -> None:
    def fail(*_: Any) -> Any:
        raise error

    for call in (lambda: kept("cpu", KEY, fail), lambda: kept_file("rtl", KEY, fail)):
        with pytest.raises(error):
            call()
    assert files(folder) == set()
    assert not [path for path in cache._private_folder().rglob("*") if path.is_file()]


def test_an_interrupt_while_writing_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kept("cpu", KEY, lambda: CONTENT)
    assert files(folder) == set()


# The whole


@pytest.mark.parametrize("place", ["/dev/null", "full"])
def test_the_functional_simulator_and_the_cpu_run_without_a_cache(place: str, tmp_path: Path) -> None:
    model = tmp_path / "digits.onnx"
    shutil.copy(ROOT / "examples" / "digits" / "digits.onnx", model)
    program = f"""
import errno, os, numpy as np, weft
if {place!r} == "full":
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")
    os.fsync = full
image = np.random.default_rng(0).random(weft.compile({str(model)!r}, "tiny").inputs[0].shape, np.float32)
results = [
    weft.load(weft.compile({str(model)!r}, "tiny"), "fsim").run(image),
    weft.load(weft.compile({str(model)!r}, target="cpu")).run(image),
]
print([sorted(map(float, np.ravel(next(iter(each.values()))))) for each in results])
"""
    environment = os.environ | {"WEFT_CACHE": place if place != "full" else str(tmp_path / "cache")}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    first, second = eval(result.stdout)
    assert len(first) == len(second) == 10
    assert result.stderr.count("\n") == 1, result.stderr
    assert "this run does without the cache" in result.stderr


def test_notices_are_given_once_and_do_not_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        for number in range(cache.NOTICES_KEPT):
            cache.notice(str(number))
    assert len(capsys.readouterr().err.splitlines()) == cache.NOTICES_KEPT
    for number in range(5000):
        cache.notice(f"another {number}")
    assert len(cache._noticed) == cache.NOTICES_KEPT


def test_notices_of_threads_are_whole_lines_and_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            time.sleep(1e-4)  # another thread goes on
            return super().write(text)

    class Known(dict[str, object]):
        def __contains__(self, text: object) -> bool:
            known = super().__contains__(text)
            time.sleep(1e-4)
            return known

    monkeypatch.setattr(sys, "stderr", Slow())
    monkeypatch.setattr(cache, "_noticed", Known())

    def give(number: int) -> None:
        for i in range(100):
            cache.notice(f"of all {i}")
            cache.notice(f"{i} of {number}")

    in_threads(give)
    given = sys.stderr.getvalue().splitlines()
    texts = [f"of all {i}" for i in range(100)] + [f"{i} of {number}" for i in range(100) for number in range(4)]
    assert sorted(given) == sorted(f"weft: {text}" for text in texts)
