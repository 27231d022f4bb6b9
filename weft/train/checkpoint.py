"""The state of a training in a file that NumPy reads, too: written at once or not at all, checked before it is used."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from ..compiler.graph import Array, TensorType, to_text
from ..compiler.graph.dtypes import numpy_dtype
from ..errors import WeftError
from ..files import write_atomically
from ..runtime.errors import ArtifactError
from ..runtime.sealed import manifest_of, member, seal, unseal
from .step import Step

FORMAT = 1
ABOUT = "checkpoint.json"
HINT = "take one that Training.save wrote"
LONGEST_HEADER = 4096
"""Bytes of a .npy header that is looked at."""


class CheckpointError(WeftError):
    """A file is no checkpoint of this training."""


@dataclass(frozen=True)
class Checkpoint:
    """The state after ``steps`` steps: the value of each input that lives from step to step."""

    steps: int
    state: Mapping[str, Array]


class About(BaseModel):
    """What stands in `ABOUT`: the `digest` of the step, and how many steps there have been."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    step: str
    steps: int = Field(ge=0)


def save(path: Path, step: Step, checkpoint: Checkpoint) -> None:
    """Write the file; the one that was there stays whole until the new one is. Raises OSError."""
    about = About(format=FORMAT, step=digest(step), steps=checkpoint.steps)
    members = {ABOUT: about.model_dump_json().encode()}
    for number, name in enumerate(step.state):
        content = io.BytesIO()
        np.lib.format.write_array(content, _stored(checkpoint.state[name]), version=(1, 0), allow_pickle=False)
        members[f"{number}.npy"] = content.getvalue()
    write_atomically(path, seal(members))


def load(path: Path, step: Step) -> Checkpoint:
    """Read the file. Raises `CheckpointError` for one that is damaged or of another step, OSError if there is none."""
    try:
        members = unseal(path.read_bytes(), "checkpoint", HINT, HINT)
        about = manifest_of(members, ABOUT, About, FORMAT, HINT)
        if about.step != digest(step):
            raise CheckpointError(f"{path} is a checkpoint of another training",
                                  hint="model, loss and optimiser must be those that it was made with")  # fmt: skip
        types = {param.name: param.type for param in step.module.main.params}
        state = {
            name: _array(member(members, f"{number}.npy"), name, types[name]) for number, name in enumerate(step.state)
        }
    except (ArtifactError, ValueError) as error:
        message, hint = (error.message, error.hint) if isinstance(error, ArtifactError) else (str(error), HINT)
        raise CheckpointError(f"{path}: {message}", hint=hint) from error
    return Checkpoint(about.steps, state)


def digest(step: Step) -> str:
    """Of the step's module and its state: equal for what can go on from each other's checkpoints."""
    text = json.dumps([to_text(step.module), list(step.parameters), dict(step.state)])
    return hashlib.sha256(text.encode()).hexdigest()


def _stored(value: Array) -> Array:
    """As NumPy's format knows it: element types of ml_dtypes as the unsigned integers of their size."""
    return value if value.dtype.isbuiltin == 1 else value.view(f"u{value.dtype.itemsize}")


def _array(raw: bytes, name: str, kind: TensorType) -> Array:
    """The array of a member; ValueError if it is not what the step needs, before anything is allocated for it."""
    dtype = numpy_dtype(kind.dtype)
    stored = _stored(np.empty(0, dtype)).dtype
    file = io.BytesIO(raw)
    try:
        version = np.lib.format.read_magic(file)
        found = np.lib.format.read_array_header_1_0(file, max_header_size=LONGEST_HEADER)
    except Exception as error:  # NumPy promises none: damaged headers raise what its parsers raise
        raise ValueError(f"{name!r} is no array: {error}") from error
    if version != (1, 0) or found != (kind.shape, False, stored):
        raise ValueError(f"{name!r} is not {kind}")
    return np.frombuffer(raw, stored, offset=file.tell()).view(dtype).reshape(kind.shape)
