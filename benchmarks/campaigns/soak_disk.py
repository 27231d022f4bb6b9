"""The disk that `soak.py` spoils: a small file system of its own, or a limit that stands for its end."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from weft.cache import ABANDONED_SECONDS, ENTRY

FILL_BYTES = 1 << 20
KINDS = ("cpu", "timing", "verilator")
"""Kinds of entries that are made again in seconds."""


@contextmanager
def mounted(folder: Path, megabytes: int) -> Iterator[bool]:
    """A tmpfs of this size on a folder; whether it could be mounted, which takes root. Of no size: it is not tried."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", str(folder)]
    try:
        done = megabytes > 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        done = False
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Disk:
    """Folders for the cache, for artifacts and for temporary files, and what is done to them.

    ``full``: a file outside with a number that is odd while the disk is full. ``mounted``: a file system is really
    filled; else the processes ``pids`` may not write to files for as long. ``simulators``: entries outside, as another
    process of the user would make them.
    """

    def __init__(
        self, folder: Path, full: Path, simulators: Path, *, mounted: bool, pids: Callable[[], list[int]]
    ) -> None:
        self.folder, self.full, self.simulators, self.mounted, self._pids = folder, full, simulators, mounted, pids
        self.cache, self.work, self.temporary = folder / "cache", folder / "work", folder / "tmp"
        for each in (self.work, self.temporary):
            each.mkdir()
        self._state = 0
        self._count()

    def _count(self) -> None:
        """Let all know that the disk is full from now on, or no more."""
        unfinished = self.full.with_suffix(".new")
        unfinished.write_text(str(self._state))
        unfinished.replace(self.full)
        self._state += 1

    # What happens to it

    def delete_kind(self, chance: random.Random) -> str:
        """Delete what takes seconds to make again."""
        kind = chance.choice(KINDS)
        shutil.rmtree(self.cache / kind, ignore_errors=True)
        return f"folder {kind} deleted"

    def delete_all(self, chance: random.Random) -> str:
        """Delete the whole cache."""
        shutil.rmtree(self.cache, ignore_errors=True)
        return "cache deleted"

    def delete_file(self, chance: random.Random) -> str:
        """Delete any file of the cache."""
        if path := self._any_file(chance):
            path.unlink(missing_ok=True)
        return "file deleted"

    def damage(self, chance: random.Random) -> str:
        """Put a damaged copy in a file's place. Not in the file itself: no program survives that its own code changes
        while it runs, and the simulators are such code."""
        path = self._any_file(chance, whole=True)
        with suppress(FileNotFoundError):  # the worker that makes room, or a new entry
            if path is not None:
                content = bytearray(path.read_bytes())
                how = chance.choice(("cut", "flipped", "emptied", "replaced"))
                if how == "flipped" and content:
                    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
                elif how == "cut":
                    del content[chance.randint(0, len(content)) :]
                else:
                    content = bytearray() if how == "emptied" else bytearray(chance.randbytes(len(content)))
                copy = path.with_name("damaged")
                copy.write_bytes(content)
                copy.chmod(path.stat().st_mode & 0o777)
                copy.replace(path)
                return f"file {how}"
        return "nothing to damage"

    def restore(self, chance: random.Random) -> str:
        """Put the simulators back. To build one takes minutes, and a disk that is full in between undoes it."""
        folder = self.cache / "rtl"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.cache.chmod(0o700)
        for path in self.simulators.iterdir():
            copy = folder / "copy"
            shutil.copy2(path, copy)
            copy.replace(folder / path.name)
        return "simulators put back"

    def _any_file(self, chance: random.Random, *, whole: bool = False) -> Path | None:
        files = []
        for folder, _, names in os.walk(self.cache):
            files += [Path(folder, name) for name in names if not whole or ENTRY.fullmatch(name)]
        return chance.choice(sorted(files)) if files else None

    def fill(self, chance: random.Random, seconds: float, ends: threading.Event) -> str:
        """Leave no room for some seconds."""
        self._count()
        try:
            with self._filled() if self.mounted else self._limited() as again:
                until = time.monotonic() + seconds
                while time.monotonic() < until and not ends.wait(0.1):
                    again()
        finally:
            self._count()
        return "disk filled"

    @contextmanager
    def _filled(self) -> Iterator[Callable[[], None]]:
        filler = self.folder / "filler"
        with filler.open("wb", buffering=0) as file:

            def fill() -> None:
                """Until nothing more fits, also not what others have freed meanwhile."""
                size = FILL_BYTES
                while size:
                    try:
                        if file.write(bytes(size)) < size:
                            size //= 2
                    except OSError as error:
                        if error.errno != errno.ENOSPC:
                            raise
                        size //= 2

            fill()
            yield fill
        filler.unlink()

    @contextmanager
    def _limited(self) -> Iterator[Callable[[], None]]:
        def limit(size: int | None) -> None:
            for pid in self._pids():
                with suppress(ProcessLookupError):
                    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if size is None else size, hard))

        try:
            limit(0)
            yield lambda: limit(0)  # also those that were started meanwhile
        finally:
            limit(None)

    # What is left at the end

    def age(self) -> None:
        """Make everything as old as what a process left that was killed days ago."""
        old = time.time() - 2 * ABANDONED_SECONDS
        for path in [*self.cache.rglob("*"), *self.temporary.iterdir()]:
            with suppress(FileNotFoundError):
                os.utime(path, (old, old), follow_symlinks=False)

    def left(self) -> list[str]:
        """Everything besides whole entries of the cache."""
        files = [path for path in self.cache.rglob("*") if not path.is_dir() and not ENTRY.fullmatch(path.name)]
        files += [*self.temporary.iterdir(), *self.work.iterdir()]
        return sorted(str(path.relative_to(self.folder)) for path in files)
