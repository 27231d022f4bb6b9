"""Files that weft keeps between runs: machine code, simulators, results of tools that take long.

An entry is one file, ``weft-KEY``, whose last 32 bytes are the SHA-256 of all before them. It is written beside its
place, synced and renamed, so that nobody sees a half of it. Whoever reads it verifies it; a damaged one is made again.
Entries are made by one process at a time, the others wait. A folder that cannot be used costs time and one line on
stderr, never a result.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from .content import content_digest
from .errors import WeftError

LIMIT_BYTES = 4 << 30
"""Bytes that all entries may take, unless ``WEFT_CACHE_LIMIT`` says otherwise."""

DIGEST_BYTES = hashlib.sha256().digest_size
ENTRY = re.compile(r"weft-[0-9a-f]{32}(\.\w+)?")
UNFINISHED = re.compile(rf"\.{ENTRY.pattern}\.(lock|[0-9a-f]+\.tmp)")
"""Names of locks and of files that are being written."""

PRIVATE_PREFIX = "weft-private-"
PRIVATE = re.compile(rf"{PRIVATE_PREFIX}[a-z0-9_]{{8}}")
"""Names of the temporary folders of processes, as ``mkdtemp`` makes them."""

ABANDONED_SECONDS = 24 * 3600
"""Age at which an unfinished file, or a folder that nobody holds, belongs to a process that was killed."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SIZE = re.compile(rf"(\d{{1,15}})({'|'.join(UNITS)})(?:i?B)?", re.IGNORECASE)


class CacheError(WeftError):
    """A setting of the cache that makes no sense, or no folder at all for temporary files."""


def cache_folder(kind: str) -> Path:
    """Folder of one kind of entries: ``$WEFT_CACHE/kind``, ``$XDG_CACHE_HOME/weft/kind`` or ``~/.cache/weft/kind``."""
    if own := os.environ.get("WEFT_CACHE"):
        return Path(own).absolute() / kind
    return user_folder("XDG_CACHE_HOME", ".cache").absolute() / "weft" / kind


def user_folder(variable: str, name: str) -> Path:
    """The folder in ``variable``, or ``name`` in the user's home.

    A user without one (an unknown number in a container, no ``HOME``) has what Debian gives such users, where nothing
    is and nothing can be written.
    """
    if own := os.environ.get(variable):
        return Path(own)
    try:
        return Path.home() / name
    except RuntimeError:
        return Path("/nonexistent") / name


def cache_limit() -> int:
    """Bytes that all entries may take; 0: nothing is kept. :class:`CacheError` if ``WEFT_CACHE_LIMIT`` is no size."""
    text = os.environ.get("WEFT_CACHE_LIMIT", "").strip()
    if not text:
        return LIMIT_BYTES
    match = SIZE.fullmatch(text)
    if match is None:
        raise CacheError(f"{text!r} is not a size", at="WEFT_CACHE_LIMIT", hint="such as 500M, or 0 to keep nothing")
    return int(match[1]) * UNITS[match[2].upper()]


def cache_key(*values: Any) -> str:
    """32 hexadecimal digits that stand for what these values consist of, in this order.

    Records are taken field by field (:func:`weft.content.content_digest`); NoContentError for a value that would not
    have the same key in another process.
    """
    return content_digest(*values)[:32]


_made: Counter[str] = Counter()
_counting = Lock()


def made_entries() -> Mapping[str, int]:
    """For each kind, how many entries this process did not find and so made itself, so far."""
    return dict(_made)


def _count(kind: str) -> None:
    with _counting:
        _made[kind] += 1


def look_up(kind: str, key: str, *, root: Path | None = None) -> bytes | None:
    """What is kept under a key (as in :func:`kept`); ``None`` if there is nothing."""
    return _read(_place(kind, key, root))


def look_up_large(kind: str, key: str, *, root: Path | None = None) -> memoryview | None:
    """As :func:`look_up`, without a copy."""
    return _read_whole(_place(kind, key, root), lambda content: True)


def store(kind: str, key: str, content: bytes, *, root: Path | None = None) -> bool:
    """Keep something under a key (as in :func:`kept`), whether or not there was something; whether that went well."""
    _count(kind)
    return _store(_place(kind, key, root), content)


def kept(
    kind: str,
    key: str,
    make: Callable[[], bytes],
    *,
    accept: Callable[[bytes], bool] = lambda content: True,
    root: Path | None = None,
) -> bytes:
    """What ``make`` gives, or gave before under the same key (32 hexadecimal digits, with a suffix if wanted).

    Content that ``accept`` refuses counts as damaged. ``root`` stands for the folder that holds all kinds.
    """
    path = _place(kind, key, root)
    content = _read(path, accept)
    if content is None:
        with locked(path):
            content = _read(path, accept)
            if content is None:
                content = make()
                _count(kind)
                _store(path, content)
    return content


def kept_file(kind: str, key: str, make: Callable[[Path], None], *, root: Path | None = None) -> Path:
    """A file that ``make`` writes, or wrote before under the same key; it is verified, and its mode is kept.

    ``make`` gets a path in an empty folder and may leave other files beside it. Where nothing can be kept, the file
    lies in a temporary folder and lives as long as this process. Its last 32 bytes, the digest, are no part of what
    ``make`` wrote: ELF files do not mind.
    """
    path = _place(kind, key, root)
    if path is not None and _read(path) is not None:
        return path
    with locked(path):
        if path is not None and _read(path) is not None:
            return path
        own = _private_folder() / kind / key
        if not own.exists():
            with working_folder() as working:
                working_file = working / key
                make(working_file)
                _count(kind)
                own.parent.mkdir(exist_ok=True)
                working_file.replace(own)
        if not _store(path, own.read_bytes(), own.stat().st_mode & 0o700):
            return own
        own.unlink(missing_ok=True)
    assert path is not None  # it has just been written to
    return path


def kept_path(kind: str, key: str, *, root: Path | None = None) -> Path | None:
    """The file that :func:`kept_file` has kept under a key; ``None`` if there is none."""
    path = _place(kind, key, root)
    return path if _read(path) is not None else None


def loaded_library(find: Callable[[], Path]) -> ctypes.CDLL:
    """The shared library whose file ``find`` gives; it is asked once more if that is deleted before it is loaded."""
    try:
        return ctypes.CDLL(str(find()))
    except OSError:
        return ctypes.CDLL(str(find()))


@contextmanager
def working_folder() -> Iterator[Path]:
    """An empty folder that goes at the end; if the process is killed before, another removes it after a day.

    :class:`CacheError` if there is no room for it, or for what is written in the block.
    """
    from tempfile import TemporaryDirectory  # which takes long to import, and is for what is made alone

    try:
        with TemporaryDirectory(dir=_private_folder()) as name:
            yield Path(name)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise CacheError(str(error), hint="TMPDIR names another folder for temporary files") from error


def notice(text: str) -> None:
    """One line on stderr, once in a process, unless ``NOTICES_KEPT`` others were given since."""
    if _noticed.setdefault(text, mine := object()) is mine:  # in one step: threads have the same notices at one time
        for oldest in list(_noticed)[:-NOTICES_KEPT]:
            _noticed.pop(oldest, None)
        sys.stderr.write(f"weft: {text}\n")  # print would write the end of the line by itself, after another's text


_noticed: dict[str, object] = {}
NOTICES_KEPT = 1000


def _place(kind: str, key: str, root: Path | None) -> Path | None:
    """Where an entry belongs; ``None`` where nothing can be kept."""
    name = f"weft-{key}"
    if not ENTRY.fullmatch(name):
        raise ValueError(f"{key!r} is not a key: 32 hexadecimal digits")
    if cache_limit() == 0:
        return None
    folder = cache_folder(kind) if root is None else root / kind
    try:
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        info, around = folder.stat(), folder.parent.stat()
    except OSError as error:
        _cannot_use(folder.parent, error.strerror)
        return None
    if info.st_uid != os.geteuid():
        _cannot_use(folder, "it belongs to another user")
        return None
    if info.st_mode & stat.S_IWOTH:
        _cannot_use(folder, "every user can write to it")
        return None
    if around.st_mode & stat.S_IWOTH and not around.st_mode & stat.S_ISVTX:  # as in /tmp, whose folders stay in place
        _cannot_use(folder.parent, "every user can write to it")
        return None
    return folder / name


def _cannot_use(folder: Path, reason: str | None) -> None:
    notice(f"{folder}: {reason}: this run does without the cache; WEFT_CACHE names another folder")


def _read(path: Path | None, accept: Callable[[bytes], bool] = lambda content: True) -> bytes | None:
    content = _read_whole(path, lambda found: accept(bytes(found)))
    return None if content is None else bytes(content)


def _read_whole(path: Path | None, accept: Callable[[memoryview], bool]) -> memoryview | None:
    """The content of an entry that is whole, and a note that it was used. A link is not followed."""
    if path is None:
        return None
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                whole = memoryview(file.read())
                content, digest = whole[:-DIGEST_BYTES], whole[-DIGEST_BYTES:]
                if hashlib.sha256(content).digest() == digest and accept(content):
                    with suppress(OSError):  # of a folder that is read only
                        os.utime(file.fileno())
                    return content
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            _cannot_use(path.parent.parent, error.strerror)
            return None
    notice(f"{path} is damaged; it is made again")
    return None


def _store(path: Path | None, content: bytes, mode: int = 0o600) -> bool:
    """Write an entry; whether that went well."""
    if path is None:
        return False
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        try:
            with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
                file.write(content)
                file.write(hashlib.sha256(content).digest())
                file.flush()
                os.fsync(file.fileno())
            if path.is_dir() and not path.is_symlink():
                _rmtree(path)
            unfinished.replace(path)
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
    except OSError as error:
        _cannot_use(path.parent.parent, error.strerror)
        return False
    _make_room(path, len(content))
    return True


@contextmanager
def locked(path: Path | None) -> Iterator[None]:
    """Hold the lock that belongs to a file; other processes and threads wait. No lock where none can be made."""
    if path is None:
        yield
        return
    lock = path.with_name(f".{path.name}.lock")
    descriptor = _lock(lock)
    try:
        yield
    finally:
        if descriptor is not None:
            with suppress(OSError):
                lock.unlink()
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor, too
            os.close(descriptor)


def _lock(lock: Path) -> int | None:
    """Make or open the file and lock it; its holder removes it, so whoever waited has to look for the new one."""
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            _cannot_use(lock.parent.parent, error.strerror)
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(descriptor), lock.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        except OSError as error:
            os.close(descriptor)
            _cannot_use(lock.parent.parent, error.strerror)
            return None
        os.close(descriptor)


_since_look: dict[Path, int] = {}
"""For each root, the bytes stored since this process last looked how much lies there."""


def _make_room(stored: Path, nbytes: int) -> None:
    """Remove what was used longest ago, as far as the limit asks for it, and what killed processes have left."""
    root, limit = stored.parent.parent, cache_limit()
    if root in _since_look and _since_look[root] + nbytes < limit // 16:
        _since_look[root] += nbytes
        return
    _since_look[root] = 0
    entries: list[tuple[float, int, str]] = []
    with suppress(OSError):
        for kind in [each for each in os.scandir(root) if each.is_dir(follow_symlinks=False)]:
            for each in os.scandir(kind):
                with suppress(FileNotFoundError):  # another process makes room, too
                    info = each.stat(follow_symlinks=False)
                    if ENTRY.fullmatch(each.name):
                        entries.append((info.st_mtime, info.st_size, each.path))
                    elif UNFINISHED.fullmatch(each.name) and info.st_mtime < time.time() - ABANDONED_SECONDS:
                        os.unlink(each)
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= limit:
            break
        if path != str(stored):
            with suppress(OSError):
                os.unlink(path)
            total -= size


@cache
def _private_folder() -> Path:
    """A temporary folder of this process, which holds its lock as long as it lives."""
    from tempfile import mkdtemp

    try:
        folder = Path(mkdtemp(prefix=PRIVATE_PREFIX))
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except OSError as error:
        raise CacheError(f"no folder for temporary files: {error}", hint="TMPDIR names one") from None
    process = os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # not a child
            _rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    with suppress(OSError):
        _remove_abandoned(folder.parent)
    return folder


def _remove_abandoned(parent: Path) -> None:
    """Remove private folders of processes that were killed: a day old, this user's, and nobody holds their lock."""
    for each in os.scandir(parent):
        if not PRIVATE.fullmatch(each.name):
            continue
        with suppress(OSError):  # another process removes it, too; or it is not ours
            descriptor = os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                info = os.fstat(descriptor)
                if info.st_uid == os.geteuid() and info.st_mtime < time.time() - ABANDONED_SECONDS:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _rmtree(Path(each.path), ignore_errors=True)
            finally:
                os.close(descriptor)


def _rmtree(folder: Path, *, ignore_errors: bool = False) -> None:
    from shutil import rmtree

    rmtree(folder, ignore_errors=ignore_errors)
