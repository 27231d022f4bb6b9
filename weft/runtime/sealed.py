"""Zip files with a checksum, read as hostile input: what artifacts and recordings are.

The zip's comment holds the SHA-256 of all bytes before it, so that a flipped bit anywhere is seen before anything is
used. Nothing is ever unpacked to disk.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from .errors import ArtifactError

LARGEST_BYTES = 1 << 32
"""More than this, unpacked, is refused."""

LARGEST_MANIFEST = 1 << 28

_COMMENT = b"weft sha256 "

Record = TypeVar("Record", bound=BaseModel)


def seal(members: dict[str, bytes]) -> bytes:
    """The bytes of a file of these members. The same members give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data, compresslevel=1)
        archive.comment = _COMMENT + b"0" * 64
    raw = buffer.getvalue()
    return raw[:-64] + hashlib.sha256(raw[:-64]).hexdigest().encode()


def unseal(raw: bytes, what: str, how: str, again: str) -> dict[str, bytes]:
    """The members of a file; :class:`ArtifactError` if it is none or was damaged.

    ``what``: such as "artifact"; ``how``, ``again``: what to do if it is none, and if it is damaged.
    """
    if not raw:
        raise ArtifactError(f"the file is empty, so it is no weft {what}", hint=how)
    if not raw.startswith(b"PK\x03\x04"):
        raise ArtifactError(f"this is not a weft {what}", hint=how)
    if raw[-64 - len(_COMMENT) : -64] != _COMMENT or hashlib.sha256(raw[:-64]).hexdigest().encode() != raw[-64:]:
        raise ArtifactError("the checksum of the file is wrong: it is damaged or cut off", hint=again)
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            infos = archive.infolist()
            if (total := sum(info.file_size for info in infos)) > LARGEST_BYTES:
                raise ArtifactError(f"it unpacks to {total} bytes, more than the {LARGEST_BYTES} that are allowed")
            if len({info.filename for info in infos}) != len(infos):
                raise ArtifactError("two members have the same name")
            return {info.filename: archive.read(info) for info in infos}
    except (zipfile.BadZipFile, zlib.error, ValueError, RuntimeError, NotImplementedError, EOFError, OSError) as error:
        raise ArtifactError(f"it cannot be unpacked: {error}") from error


def member(members: dict[str, bytes], name: str) -> bytes:
    """A member's bytes; :class:`ArtifactError` if it is missing."""
    if name not in members:
        raise ArtifactError(f"member {name!r} is missing")
    return members[name]


def manifest_of(members: dict[str, bytes], name: str, kind: type[Record], form: int, again: str) -> Record:
    """The manifest in member ``name``, whose field ``format`` must be ``form``; :class:`ArtifactError` names the
    field at fault."""
    text = member(members, name)
    if len(text) > LARGEST_MANIFEST:
        raise ArtifactError(f"{name} has {len(text):,} bytes, more than the {LARGEST_MANIFEST:,} allowed")
    if (found := _format_of(text)) not in (form, None):
        raise ArtifactError(f"field 'format' is {found}, but this weft reads {form}", hint=again)
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        at = name if first["type"] == "json_invalid" else f"{name}, field {place!r}"
        raise ArtifactError(f"{at}: {first['msg']}") from error


class _FormatOnly(BaseModel):
    """What is read of a manifest of another version."""

    format: int


def _format_of(manifest: bytes) -> object:
    """The field ``format``; None if this is no JSON at all."""
    try:
        return _FormatOnly.model_validate_json(manifest).format
    except ValidationError as error:
        return None if error.errors()[0]["type"] == "json_invalid" else "missing"
