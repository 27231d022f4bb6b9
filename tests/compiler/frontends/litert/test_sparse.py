"""Constants of which a file leaves the zeros out, compared with what LiteRT itself makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import weft
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.frontends import ModelError

from benchmarks.zoo.litert_models import ModelWriter, interpreted, options

VECTORS = {"Int32Vector": np.int32, "Uint16Vector": np.uint16, "Uint8Vector": np.uint8}


def stored(
    values: np.ndarray[Any, Any], order: tuple[int, ...], formats: tuple[str, ...], block: tuple[int, int] | None,
    kind: str,
) -> tuple[Any, np.ndarray[Any, Any]]:  # fmt: skip
    """A matrix as the schema describes it, and what is stored: ``order`` and ``formats`` of the axes that are walked;
    ``block``: sizes of blocks on both axes, if any. An independent way to say it: level by level, in plain loops."""
    rows, columns = block or (1, 1)
    cut = values.reshape(values.shape[0] // rows, rows, values.shape[1] // columns, columns).transpose(0, 2, 1, 3)
    grid = cut if block else values
    walked = np.transpose(grid, order)
    parts, axes = [walked], []
    for form in formats:
        axis = schema.DimensionMetadataT()
        if form == "dense":
            axis.format, axis.denseSize = schema.DimensionType.DENSE, parts[0].shape[0]
            parts = [part[i] for part in parts for i in range(part.shape[0])]
        else:
            axis.format = schema.DimensionType.SPARSE_CSR
            begins, indices, deeper = [0], [], []
            for part in parts:
                here = [i for i in range(part.shape[0]) if np.any(part[i])]
                indices += here
                deeper += [part[i] for i in here]
                begins.append(len(indices))
            for field, numbers in (("arraySegments", begins), ("arrayIndices", indices)):
                vector = getattr(schema, f"{kind}T")()
                vector.values = np.array(numbers, VECTORS[kind])
                setattr(axis, field, vector)
                setattr(axis, f"{field}Type", getattr(schema.SparseIndexVector, kind))
            parts = deeper or [np.zeros_like(parts[0][0])] * 0
        axes.append(axis)
    sparsity = schema.SparsityParametersT()
    sparsity.traversalOrder, sparsity.dimMetadata = list(order), axes
    sparsity.blockMap = [0, 1] if block else []
    return sparsity, np.array([float(part) for part in parts], values.dtype)


def product(values: np.ndarray[Any, Any], description: Any, data: np.ndarray[Any, Any]) -> bytes:
    """x @ w.T, whose weights are a sparse constant that is made dense first."""
    net = ModelWriter()
    outputs, inputs = values.shape
    kind = str(values.dtype)
    x, y = net.tensor((2, inputs), "float32", name="x"), net.tensor((2, outputs), "float32", name="y")
    weights = net.tensor(values.shape, kind, data=data, sparsity=description, name="w")
    whole = net.tensor(values.shape, kind, name="whole")
    net.op("DENSIFY", [weights], [whole], options("DensifyOptions"))
    if kind == "float16":
        wide = net.tensor(values.shape, "float32", name="wide")
        net.op("DEQUANTIZE", [whole], [wide], options("DequantizeOptions"))
        whole = wide
    net.op("FULLY_CONNECTED", [x, whole, -1], [y], options("FullyConnectedOptions"))
    return net.finish([x], [y])


def matrix(seed: int, rows: int, columns: int, share: float, dtype: str) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(seed)
    values = generator.integers(1, 9, (rows, columns)) * (generator.random((rows, columns)) < share)
    values[0, 0] = 3  # not all zeros: a file without data is another matter
    return values.astype(dtype)


FORMS = {
    "rows, then columns that count": ((0, 1), ("dense", "sparse"), None),
    "columns first": ((1, 0), ("dense", "sparse"), None),
    "blocks of 4 x 2": ((0, 1, 2, 3), ("dense", "sparse", "dense", "dense"), (4, 2)),
}


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000), share=st.floats(0.1, 1), kind=st.sampled_from(sorted(VECTORS)),
       dtype=st.sampled_from(["float32", "float16"]))  # fmt: skip
def test_products_with_sparse_weights_are_those_of_litert(
    form: str, seed: int, share: float, kind: str, dtype: str
) -> None:
    values = matrix(seed, 8, 6, share, dtype)
    file = product(values, *stored(values, *FORMS[form], kind))
    x = np.random.default_rng(seed).integers(-4, 5, (2, 6)).astype(np.float32)
    found = weft.load(weft.compile(file, target="cpu")).run({"x": x})["y"]
    np.testing.assert_array_equal(found, x @ values.astype(np.float32).T)
    (wanted,) = interpreted(file, [x])
    np.testing.assert_array_equal(found, wanted)


def damaged(change: str) -> bytes:
    values = matrix(3, 8, 6, 0.5, "float32")
    description, data = stored(values, *FORMS["rows, then columns that count"], "Int32Vector")
    rows, columns = description.dimMetadata
    if change == "order":
        description.traversalOrder = [0, 0]
    elif change == "index":
        columns.arrayIndices.values[0] = 6
    elif change == "negative":
        columns.arrayIndices.values[0] = -1
    elif change == "begin":
        columns.arraySegments.values[0] = 1
    elif change == "segments":
        columns.arraySegments.values[1] = 1 << 30
    elif change == "stored":
        data = data[:-1]
    elif change == "dense":
        rows.denseSize = 1 << 30
    elif change == "fewer":
        rows.denseSize = 7
    elif change == "blocks":
        description.blockMap = [5]
    return product(values, description, data)


@pytest.mark.parametrize(
    "change", ["order", "index", "negative", "begin", "segments", "stored", "dense", "fewer", "blocks"]
)
def test_a_description_that_does_not_fit_is_refused(change: str) -> None:
    with pytest.raises(ModelError, match=r"sparse tensor 'w': .*; hint: is the file damaged"):
        weft.compile(damaged(change), target="cpu")


def test_a_shape_without_elements_is_stored_as_nothing() -> None:
    """TensorFlow's converter reshapes one element to a scalar by a shape that has no bytes."""
    net = ModelWriter()
    x, y = net.tensor((1,), "float32", name="x"), net.tensor((), "float32", name="y")
    net.op("RESHAPE", [x, net.tensor((0,), "int32", name="shape")], [y], options("ReshapeOptions"))
    found = weft.load(weft.compile(net.finish([x], [y]), target="cpu")).run({"x": np.ones(1, np.float32)})["y"]
    assert found.shape == ()
    assert found == 1
