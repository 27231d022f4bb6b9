"""Files: written so that nobody ever sees half of one, kinds told apart, and what is chosen of a model's file."""

from __future__ import annotations

import errno
import os
import secrets
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

ONNX_START = b"\x08"
"""The first byte of an ONNX file: its field 1, a number, is the version of the format."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file at once or not at all, as :func:`written_whole` does."""
    with written_whole(path) as file:
        file.write(content)


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write into, which is at ``path`` when the block has ended, or not at all: it is beside its place until
    then, synced, then renamed. What is raised in the block leaves no file behind. OSError names ``path``: of the file
    beside it nobody knows. A folder is told to be one.

    A link stays, and what it leads to is written. What is no file, as a pipe or ``/dev/null``, gets the content as it
    is: a rename would put a file in its place.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Is a directory, not the name of a file in it", str(path))
    special = path.exists() and not path.is_file()
    place = Path(os.path.realpath(path))
    unfinished = path if special else place.with_name(f".{place.name}.{secrets.token_hex(8)}.tmp")
    try:
        with unfinished.open("wb" if special else "xb") as file:
            yield file
            file.flush()
            if not special:
                os.fsync(file.fileno())
        if not special:
            unfinished.replace(place)
    except OSError as error:
        if error.filename not in (None, str(unfinished)):  # raised in the block, of another file
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        if not special:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)


def is_exported_program(path: str | Path) -> bool:
    """Whether a file is an archive that ``torch.export.save`` wrote."""
    try:
        with zipfile.ZipFile(path) as archive:
            marks = [name for name in archive.namelist() if name.rpartition("/")[2] == "archive_format"]
            return bool(marks) and archive.read(marks[0]).strip() == b"pt2"
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError):
        return False


@dataclass(frozen=True)
class LitertFile:
    """A file of LiteRT, and what is chosen of it, as `weft.from_litert` takes it; None is the usual. A file of another
    format is refused where it is read."""

    path: Path
    kernels: str | None = None
    signature: str | None = None

    def __str__(self) -> str:
        return str(self.path)

    @property
    def choices(self) -> tuple[str | None, str | None]:
        """What a model follows from beside the file's bytes."""
        return self.kernels, self.signature
