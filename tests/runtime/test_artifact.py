"""An artifact reads back equal, and a file that was touched anywhere is refused with the place."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from weft.compiler.compiled import CompiledModel
from weft.hw.config import PYNQ
from weft.runtime.artifact import load, save
from weft.runtime.errors import ArtifactError


def rewrite(path: Path, change: dict[str, bytes | None], text: tuple[str, str] | None = None) -> None:
    """Change members (``None`` removes one), or replace a piece of the manifest's text; the checksum stays right."""
    with zipfile.ZipFile(path) as archive:
        members: dict[str, bytes | None] = {name: archive.read(name) for name in archive.namelist()}
    if text is not None:
        manifest = members["manifest.json"]
        assert manifest is not None
        assert text[0].encode() in manifest
        members["manifest.json"] = manifest.replace(text[0].encode(), text[1].encode())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in {**members, **change}.items():
            if data is not None:
                archive.writestr(name, data)
        archive.comment = b"weft sha256 " + b"0" * 64
    raw = buffer.getvalue()[:-64]
    path.write_bytes(raw + hashlib.sha256(raw).hexdigest().encode())


def as_data(model: CompiledModel) -> Any:
    steps = [
        [getattr(value, "tolist", lambda value=value: value)() for value in vars(step).values()] for step in model.steps
    ]
    constants = [(item.name, item.offset, item.data.tolist()) for item in model.constants]
    return replace(model, steps=(), constants=()), steps, constants


def test_a_saved_model_loads_equal(model: CompiledModel, tmp_path: Path) -> None:
    save(model, tmp_path / "model.weft")
    assert as_data(load(tmp_path / "model.weft", model.config)) == as_data(model)


def test_the_same_model_gives_the_same_bytes(model: CompiledModel, tmp_path: Path) -> None:
    save(model, tmp_path / "a.weft")
    save(load(tmp_path / "a.weft"), tmp_path / "b.weft")
    assert (tmp_path / "a.weft").read_bytes() == (tmp_path / "b.weft").read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(data=st.data())
def test_any_flipped_bit_is_refused(model: CompiledModel, tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "model.weft"
    save(model, path)
    raw = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[position // 8] ^= 1 << position % 8
    path.write_bytes(raw)
    with pytest.raises(
        ArtifactError, match=r"model\.weft: (the checksum of the file is wrong|this is not a weft artifact)"
    ):
        load(path)


def test_a_cut_file_is_refused(model: CompiledModel, tmp_path: Path) -> None:
    path = tmp_path / "model.weft"
    save(model, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ArtifactError, match="damaged or cut off; hint: compile the model again"):
        load(path)


def test_an_artifact_for_another_core_is_refused(model: CompiledModel, tmp_path: Path) -> None:
    save(model, tmp_path / "model.weft")
    with pytest.raises(
        ArtifactError, match=r"field 'config_hash': the artifact is for 'tiny' .* but the core is 'pynq'"
    ):
        load(tmp_path / "model.weft", PYNQ)


def test_a_missing_file_is_an_artifact_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"cannot read .*: No such file"):
        load(tmp_path / "none.weft")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (('"format": 1', '"format": 2'), "field 'format' is 2, but this weft reads 1"),
        (('"isa_version": 2', '"isa_version": 9'), "field 'isa_version' is 9"),
        (('"window_bytes": 1024', '"window_bytes": 70'), "slot 'r' ends at byte 88, outside the window of 70 bytes"),
        (('"window_bytes": 1024', '"window_bytes": -1'), r"manifest\.json, field 'window_bytes'"),
        (('"offset": 512', '"offset": 1020'), "constant 'unused' ends at byte 1036, outside the window"),
        (('"block_in": 4', '"block_in": 5'), "field 'config': block_in must be a power of two"),
        (('"block_in": 4', '"block_in": 8'), "field 'config_hash' does not belong"),
        (('"dtype": "int8"', '"dtype": "object"'), r"manifest\.json, field 'slots\.0\.dtype'"),
        (('"member": "programs/1.bin"', '"member": "../secret"'), r"member '\.\./secret' is missing"),
        (('"kind": "accel"', '"kind": "shell"'), r"manifest\.json, field 'steps\.1'"),
    ],
)
def test_a_manifest_that_lies_is_refused(
    model: CompiledModel, tmp_path: Path, text: tuple[str, str], message: str
) -> None:
    path = tmp_path / "model.weft"
    save(model, path)
    rewrite(path, {}, text)
    with pytest.raises(ArtifactError, match=message):
        load(path)


def npy(value: object) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(value), allow_pickle=True)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("member", "data", "message"),
    [
        ("manifest.json", None, r"manifest\.json is missing"),
        ("programs/1.bin", b"\0" * 80, r"program 'programs/1\.bin': instruction 0: no instruction has opcode 0"),
        ("programs/1.bin", b"\0" * 81, "81 bytes is not a whole number of 16-byte instructions"),
        ("programs/1.layers.npy", b"junk", r"member 'programs/1\.layers\.npy' is not an array"),
        ("programs/1.layers.npy", npy({"a": object}), r"member 'programs/1\.layers\.npy' is not an array"),
        ("programs/1.layers.npy", npy(np.full(5, 7, np.int32)), "names a layer that the manifest does not have"),
        ("programs/1.tiles.npy", npy(np.zeros(3, np.int32)), r"must be 5 int32, not int32\[3\]"),
        ("host/0.graph", b"import os", r"host function 'host/0\.graph'"),
        ("host/0.graph", b"\xff\xfe", r"host function 'host/0\.graph'"),
    ],
)
def test_a_hostile_member_is_refused(
    model: CompiledModel, tmp_path: Path, member: str, data: bytes | None, message: str
) -> None:
    path = tmp_path / "model.weft"
    save(model, path)
    rewrite(path, {member: data})
    with pytest.raises(ArtifactError, match=message):
        load(path)
