"""NumPy's files: what models are given to run on, and what they make.

NumPy's format knows no bfloat16, no floats of 8 bits and nothing smaller. They are written as bytes without a type
(``V2``, ``V1``), as `np.save` does with most of them, and read back as what the model's input is.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler.graph.dtypes import STRING, numpy_dtype
from ..compiler.graph.strings import fixed_width
from ..files import write_atomically
from .errors import InputError

Array = npt.NDArray[Any]

MAGIC = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")
"""How .npy files and .npz files begin, the last one of them without members."""


def arrays_in(path: Path) -> Array | dict[str, Array]:
    """The array of a .npy file, or those of a .npz file by name; :class:`InputError` for what is neither."""
    with path.open("rb") as file:
        if not file.read(len(MAGIC[0])).startswith(MAGIC):  # NumPy takes it for a pickle, and says how to trust it
            raise InputError(f"{path} is not a .npy or .npz file", hint="make one with np.save or np.savez")
        file.seek(0)
        try:
            loaded = np.load(file, allow_pickle=False)
            found = loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
        except MemoryError:
            raise
        except Exception as error:  # NumPy promises none: damaged headers raise what its parsers raise
            raise InputError(f"{path} is not a .npy or .npz file: {error}") from error
    if isinstance(found, dict):
        for name, array in found.items():
            if not isinstance(array, np.ndarray):  # such as a member of an artifact
                raise InputError(f"{path} is a zip, but no .npz file: its member {name!r} is no array",
                                 hint="make one with np.savez")  # fmt: skip
    return found


def typed(array: Array, dtype: str) -> Array:
    """Bytes without a type as elements of ``dtype``, where that is a type which NumPy's format lacks; others as they
    are."""
    if dtype == STRING or not isinstance(array, np.ndarray):  # other members of a .npz are bytes
        return array
    kind = numpy_dtype(dtype)
    return array.view(kind) if kind.isbuiltin == 2 and array.dtype == np.dtype((np.void, kind.itemsize)) else array


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write a .npz file, whole or not at all, under that very name. OSError names it."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:  # np.savez takes some names for its own parameters
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _stored(fixed_width(array)), allow_pickle=False)
    write_atomically(path, content.getvalue())


def _stored(array: Array) -> Array:
    """As NumPy's format knows it: of one type it writes a name that it cannot read."""
    return array if array.dtype.isbuiltin != 2 else array.view(np.dtype((np.void, array.dtype.itemsize)))
