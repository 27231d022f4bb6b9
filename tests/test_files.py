"""Files are written at once, and what is no file stays what it is."""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from pathlib import Path

import pytest
from weft.files import write_atomically, written_whole


@pytest.mark.parametrize("before", [None, b"what was there"])
def test_a_file_is_written_and_nothing_else_is_left(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "model.weft"
    if before is not None:
        path.write_bytes(before)
    write_atomically(path, b"content")
    assert path.read_bytes() == b"content"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, file = tmp_path / "link.weft", tmp_path / "there" / "model.weft"
    link.symlink_to(file)
    for content in (b"first", b"second"):  # the file is not there yet; then it is
        write_atomically(link, content)
        assert link.is_symlink()
        assert file.read_bytes() == content
    assert sorted(tmp_path.rglob("*")) == sorted([tmp_path / "there", link, file])


def test_a_pipe_gets_the_content_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_atomically(pipe, b"content")
    reader.join(timeout=60)
    assert heard == [b"content"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_folder_in_the_place_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path, b"content")


@pytest.mark.parametrize(("place", "why"), [("nowhere/model.weft", errno.ENOENT), ("", errno.EISDIR)])
def test_what_cannot_be_written_is_named_as_it_was_given(tmp_path: Path, place: str, why: int) -> None:
    path = tmp_path / place
    with pytest.raises(OSError, match=re.escape(f"'{path}'")) as refused:
        write_atomically(path, b"content")
    assert refused.value.errno == why


def test_a_full_disk_names_the_file() -> None:
    with pytest.raises(OSError, match="/dev/full") as refused:
        write_atomically(Path("/dev/full"), b"content")
    assert refused.value.errno == errno.ENOSPC


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, MemoryError])
def test_what_ends_in_the_middle_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"before")

    def write() -> None:
        with written_whole(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_errors_of_other_files_keep_their_names(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no\.npy"), written_whole(tmp_path / "run.json"):
        (tmp_path / "no.npy").open("rb")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_told_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="Is a directory, not the name of a file in it"):
        write_atomically(tmp_path, b"")
    assert list(tmp_path.parent.glob(f".{tmp_path.name}.*")) == []
