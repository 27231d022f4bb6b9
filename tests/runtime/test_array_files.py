"""NumPy's files: written whole, under the name that was asked for, and read back as what the model takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.graph import parse
from weft.compiler.graph.dtypes import STORAGE, numpy_dtype
from weft.runtime.array_files import arrays_in, typed, write_arrays
from weft.runtime.errors import InputError
from weft.runtime.inputs import read_inputs


def test_any_name_of_a_result_is_a_name_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "results.txt"
    arrays = {name: np.full(2, number) for number, name in enumerate(("file", "allow_pickle", "args", "../a b/é"))}
    write_arrays(path, arrays)
    assert list(tmp_path.iterdir()) == [path]
    read = arrays_in(path)
    assert isinstance(read, dict)
    assert {name: array.tolist() for name, array in read.items()} == {k: v.tolist() for k, v in arrays.items()}


def test_results_on_a_full_disk_are_an_error() -> None:
    with pytest.raises(OSError, match="/dev/full"):
        write_arrays(Path("/dev/full"), {"x": np.zeros(4)})


@pytest.mark.parametrize("dtype", ["bfloat16", *STORAGE])
def test_types_that_the_format_lacks_come_back(tmp_path: Path, dtype: str) -> None:
    values = np.array([0.5, 1, 1, 0.5], np.float32).astype(numpy_dtype(dtype))
    write_arrays(tmp_path / "x.npz", {"x": values})
    read = arrays_in(tmp_path / "x.npz")
    assert isinstance(read, dict)
    array = typed(read["x"], dtype)
    assert array.dtype == values.dtype
    assert array.tobytes() == values.tobytes()


def test_what_has_a_type_or_another_size_keeps_it() -> None:
    for array in (np.zeros(2, np.uint16), np.zeros(2, "V4"), np.zeros(2, [("a", "i1"), ("b", "i1")])):
        assert typed(array, "bfloat16") is array
    assert typed(np.zeros(2, "V4"), "float32").dtype == np.dtype("V4")


def test_a_model_runs_on_bfloat16_from_a_file(tmp_path: Path) -> None:
    model = weft.compile(parse("fn @main(%x: bfloat16[2]) { return nn.add(%x, %x) }"), target="cpu")
    assert isinstance(model, weft.CompiledModel)
    np.save(tmp_path / "x.npy", np.array([1, 2.5], numpy_dtype("bfloat16")))
    (result,) = weft.load(model).run(read_inputs(model.inputs, tmp_path / "x.npy", 0)).values()
    assert result.astype(np.float32).tolist() == [2, 5]


@pytest.mark.parametrize("content", [b"", b"W=/tmp", b"\x80\x04N.", b"\x93NUM"])
def test_other_files_are_refused_without_advice_to_trust_them(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"x\.npz is not a \.npy or \.npz file; hint: make one with np\.save or np\.s"):
        arrays_in(path)
