"""Checkpoints: a training goes on to the bit, and files that are none are refused with the state as it was."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.graph import Module, TensorType, Var
from weft.compiler.operators import nn
from weft.runtime.sealed import seal, unseal
from weft.train import CheckpointError, Training, adam, cross_entropy, sgd

from .classifier import InNumpy, batch, classifier, module_of


def training(dtype: str = "float64") -> Training:
    module, start = classifier(dtype)
    step = adam(cross_entropy(module), ["w", "b"])
    return Training(step, start, InNumpy(step.module))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    first = training()
    first.step(batch(), 0.1)
    path = tmp_path / "state.npz"
    first.save(path)
    return path


def bits(of: Training) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in of.parameters.items()}


def test_a_restored_training_goes_on_to_the_bit_on_machine_code(tmp_path: Path) -> None:
    module, start = classifier("float32")
    step = adam(cross_entropy(module), ["w", "b"])
    loaded = weft.load(weft.compile(step.module, target="cpu"))
    whole, path = Training(step, start, loaded), tmp_path / "state.npz"
    for number in range(6):
        if number == 3:
            whole.save(path)
        whole.step(batch("float32", number), 0.1)
    resumed = Training(step, start, loaded)
    resumed.restore(path)
    assert resumed.steps == 3
    for number in range(3, 6):
        resumed.step(batch("float32", number), 0.1)
    assert resumed.steps == 6
    assert bits(resumed) == bits(whole)


def test_the_same_state_gives_the_same_file_which_numpy_reads(saved: Path, tmp_path: Path) -> None:
    again = training()
    again.restore(saved)
    again.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == saved.read_bytes()
    with np.load(saved, allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["0"], again.parameters["w"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.npz", "state.npz"]


def test_element_types_that_numpy_does_not_know_are_kept(tmp_path: Path) -> None:
    x = Var("x", TensorType((3,), "bfloat16"))
    module: Module = module_of(nn.reduce_sum(nn.multiply(x, x), axes=(0,)), params=(x,), names=("loss",))
    step = sgd(module, ["x"])
    start = {"x": np.array([1.0, 2.5, -3.0]).astype(weft.compiler.graph.dtypes.numpy_dtype("bfloat16"))}
    Training(step, start, InNumpy(step.module)).save(tmp_path / "state.npz")
    other = Training(step, {"x": np.zeros_like(start["x"])}, InNumpy(step.module))
    other.restore(tmp_path / "state.npz")
    np.testing.assert_array_equal(other.parameters["x"], start["x"])


def test_a_checkpoint_of_another_training_is_refused(saved: Path) -> None:
    module, start = classifier()
    step = adam(cross_entropy(module), ["w", "b"], betas=(0.8, 0.9))
    other = Training(step, start, InNumpy(step.module))
    before = bits(other)
    with pytest.raises(CheckpointError, match=r"state\.npz is a checkpoint of another training; hint: model, loss and"):
        other.restore(saved)
    assert bits(other) == before
    assert other.steps == 0


def test_a_failed_save_leaves_the_last_good_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = saved.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        training().save(saved)
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    assert saved.read_bytes() == content


def header(shape: str) -> bytes:
    """Of a .npy file."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}".encode().ljust(70)
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("checkpoint.json", b"{}", "field 'format' is missing"),
        ("checkpoint.json", b"[" * 3000, "checkpoint.json: "),
        ("checkpoint.json", json.dumps({"format": 1, "step": "x", "steps": -1}).encode(), "field 'steps'"),
        ("0.npy", b"", "'w' is no array"), ("0.npy", b"0" * 100_000, "'w' is no array"),
        ("0.npy", b"\x93NUMPY\x03\x00" + bytes(64), "'w' is no array"),
        ("0.npy", header("{[]: 1}"), "'w' is no array"), ("0.npy", header("(1 << 60,)"), "'w' is no array"),
        ("0.npy", header("(9, 9)"), r"'w' is not float64\[3, 4\]"), ("0.npy", header("(3, 4)"), "cannot reshape array"),
    ],
)  # fmt: skip
def test_hostile_members_behind_a_right_checksum_are_refused(
    saved: Path, name: str, content: bytes, message: str
) -> None:
    members = unseal(saved.read_bytes(), "checkpoint", "", "")
    saved.write_bytes(seal({**members, name: content}))
    other = training()
    before = bits(other)
    with pytest.raises(CheckpointError, match=message):
        other.restore(saved)
    assert bits(other) == before


@pytest.mark.parametrize("name", ["checkpoint.json", "1.npy"])
def test_members_that_are_missing_are_named(saved: Path, name: str) -> None:
    members = unseal(saved.read_bytes(), "checkpoint", "", "")
    saved.write_bytes(seal({other: content for other, content in members.items() if other != name}))
    with pytest.raises(CheckpointError, match=f"member '{name}' is missing"):
        training().restore(saved)


def test_damaged_files_are_refused(saved: Path) -> None:
    """Bytes changed, cut and inserted anywhere."""
    good = saved.read_bytes()
    generator = random.Random(0)
    other = training()
    before = bits(other)
    for number in range(300):
        damaged = bytearray(good)
        place = generator.randrange(len(damaged))
        match number % 3:
            case 0:
                damaged[place] ^= 1 << generator.randrange(8)
            case 1:
                del damaged[place : place + generator.randrange(1, 200)]
            case _:
                damaged[place:place] = b"xyz"
        saved.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"weft checkpoint|checksum"):
            other.restore(saved)
    assert bits(other) == before


def test_what_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        training().restore(tmp_path / "nothing.npz")
