"""A LiteRT file as records: its graph's tensors and operators, with every number checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...graph import Array
from ...graph.dtypes import numpy_dtype
from ...graph.ir import MOST_ELEMENTS
from ..errors import ModelError
from . import IDENTIFIER
from .flatbuffer import Buffer, Table
from .flexbuffer import numbers_of_map
from .schema import CUSTOM, ELEMENTS, NARROW, OPERATORS, OPTIONS, STORED
from .sparse import Sparsity, dense, sparsity_of


@dataclass(frozen=True)
class Quantisation:
    """Scales and zero points: one of each, or one for each element along ``axis``. A value is (q - zero) * scale."""

    scales: Array
    zeros: Array
    axis: int


@dataclass(frozen=True)
class TensorInfo:
    """``open_shape`` has -1 for the sizes that a run may choose; ``data`` are the bytes of a constant, of which
    ``sparsity`` says where its elements lie, if those that are zero are left out."""

    name: str
    shape: tuple[int, ...]
    open_shape: tuple[int, ...]
    dtype: str
    data: memoryview | None
    quantisation: Quantisation | None
    is_variable: bool
    sparsity: Sparsity | None

    def value(self) -> Array | None:
        """A constant's elements; None for what is computed. Raises `ModelError` for one that is cut off."""
        if self.data is None:
            return None
        count = math.prod(self.shape)
        if self.dtype in NARROW and self.sparsity is None:
            return self._unpacked(count, NARROW[self.dtype])
        dtype = numpy_dtype(self.dtype)
        if self.sparsity is not None and len(self.data) % dtype.itemsize == 0:
            return dense(self.sparsity, np.frombuffer(self.data, dtype), self.shape, self.name)
        if len(self.data) != count * dtype.itemsize:
            raise ModelError(f"tensor {self.name!r} of shape {list(self.shape)} has {len(self.data):,} bytes of data, "
                             f"not {count * dtype.itemsize:,}", hint="is the file damaged?")  # fmt: skip
        return np.frombuffer(self.data, dtype).reshape(self.shape)

    def _unpacked(self, count: int, bits: int) -> Array:
        """Elements of which a byte holds several, as bytes."""
        each = 8 // bits
        data = np.frombuffer(self.data or b"", np.uint8)
        if len(data) != -(-count // each):
            raise ModelError(f"tensor {self.name!r} of shape {list(self.shape)} has {len(data):,} bytes of data, "
                             f"not {-(-count // each):,}", hint="is the file damaged?")  # fmt: skip
        parts = (data[:, None] >> (np.arange(each, dtype=np.uint8) * bits)) & np.uint8((1 << bits) - 1)
        flat = parts.reshape(-1)[:count]
        if self.dtype.startswith("int"):
            shift = np.uint8(8 - bits)
            return ((flat << shift).view(np.int8) >> shift.astype(np.int8)).reshape(self.shape)
        return flat.reshape(self.shape)

    @property
    def element(self) -> str:
        """The type that its values have in a graph. Of a variable's handle: that of its number; of complex
        numbers: that of their parts."""
        return {"int4": "int8", "int2": "int8", "uint4": "uint8", "resource": "int64", "complex64": "float32"}.get(
            self.dtype, self.dtype
        )


@dataclass(frozen=True)
class OperatorInfo:
    """``inputs`` has -1 for an operand that is left out; ``intermediates`` are tensors that stand for parts of its
    arithmetic, for their scales."""

    name: str
    number: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any]
    intermediates: tuple[int, ...] = ()


@dataclass(frozen=True)
class GraphInfo:
    tensors: tuple[TensorInfo, ...]
    operators: tuple[OperatorInfo, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class SignatureInfo:
    """A graph that may be run, and names of tensors of it."""

    name: str
    graph: int
    input_names: Mapping[int, str]
    output_names: Mapping[int, str]


@dataclass(frozen=True)
class FileInfo:
    """``graphs``: the first is what a run computes unless a signature is chosen, others are those of signatures, and
    bodies of control flow."""

    graphs: tuple[GraphInfo, ...]
    signatures: tuple[SignatureInfo, ...]


def read_file(data: bytes, name: str) -> FileInfo:
    """The records of a file. ``name`` stands for it in errors. Raises `ModelError`."""
    buffer = Buffer(data, name)
    if bytes(data[4:8]) != IDENTIFIER:
        raise ModelError(f"{name} is no LiteRT file: {IDENTIFIER.decode()!r} does not follow its fourth byte",
                         hint="a TensorFlow Lite model begins so since 2017")  # fmt: skip
    model = buffer.root()
    buffers = [_data(buffer, table) for table in model.tables(4)]
    codes = [_operator_name(buffer, table) for table in model.tables(1)]
    graphs = tuple(_graph(buffer, each, buffers, codes) for each in model.tables(2))
    if not graphs:
        raise buffer.damaged("it has no graph")
    signatures = tuple(
        SignatureInfo(each.text(2), each.integer(4, "I"), _tensor_names(each, 0), _tensor_names(each, 1))
        for each in model.tables(7)
    )
    for each in signatures:
        if each.graph >= len(graphs):
            raise buffer.damaged(f"signature {each.name!r} is of graph {each.graph} of {len(graphs)}")
    return FileInfo(graphs, signatures)


def _tensor_names(signature: Table, slot: int) -> dict[int, str]:
    return {each.integer(1, "I"): each.text(0) for each in signature.tables(slot)}


def _data(buffer: Buffer, table: Table) -> memoryview | None:
    """The bytes of a constant: in the table or, in files above 2 GB, behind it; None for a computed tensor."""
    offset = table.integer(1, "Q")
    if offset > 1:
        return buffer.part(offset, table.integer(2, "Q"))
    found = table.bytes(0)
    return found if found is not None and len(found) else None


def _operator_name(buffer: Buffer, code: Table) -> str:
    """Old files have the first field alone, where large numbers do not fit."""
    number = max(code.integer(0, "b"), code.integer(3, "i"))
    if not 0 <= number < len(OPERATORS):
        raise ModelError(f"{buffer.name} has an operator of number {number}, which no known schema has",
                         hint="it may be of a newer converter, or damaged")  # fmt: skip
    name = OPERATORS[number]
    return f"{CUSTOM} {code.text(1)!r}" if name == CUSTOM else name


def _graph(buffer: Buffer, table: Table, buffers: list[memoryview | None], codes: list[str]) -> GraphInfo:
    tensors = tuple(_tensor(buffer, each, buffers) for each in table.tables(0))

    def indices(found: tuple[int, ...], what: str, *, optional: bool = False) -> tuple[int, ...]:
        for index in found:
            if not (0 <= index < len(tensors) or (optional and index == -1)):
                raise buffer.damaged(f"{what} name tensor {index} of {len(tensors)}")
        return found

    operators = []
    for number, each in enumerate(table.tables(3)):
        code = each.integer(0, "I")
        if code >= len(codes):
            raise buffer.damaged(f"operator {number} is of kind {code} of {len(codes)}")
        operators.append(OperatorInfo(
            codes[code], number,
            indices(each.integers(1), f"operands of operator {number}", optional=True),
            indices(each.integers(2), f"results of operator {number}"),
            _options(buffer, each, codes[code], number),
            indices(each.integers(8), f"intermediate tensors of operator {number}", optional=True),
        ))  # fmt: skip
    inputs = indices(table.integers(1), "the inputs")
    outputs = indices(table.integers(2), "the outputs")
    return GraphInfo(tensors, tuple(operators), inputs, outputs)


def _options(buffer: Buffer, table: Table, name: str, number: int) -> dict[str, Any]:
    if name.startswith(CUSTOM):
        content = table.bytes(5)
        try:
            return dict(numbers_of_map(content)) if content is not None and len(content) else {}
        except ValueError:  # an operator's own form, which its rule would have to read
            return {}
    if name not in OPTIONS:
        return {}
    kind, fields = OPTIONS[name]
    found, options = table.integer(3, "B"), table.table(4)
    if found not in (0, kind):
        raise buffer.damaged(f"operator {number}, {name}, has the options of another operator")
    if not found:
        options = None
    result: dict[str, Any] = {}
    for key, field in fields.items():
        if field.kind == "s":
            result[key] = options.text(field.slot) if options is not None else ""
        elif field.is_vector:
            values = options.numbers(field.slot, field.kind[1:]) if options is not None else None
            result[key] = None if values is None else tuple(values.tolist())
        else:
            value = (
                options.number(field.slot, field.kind, field.default)
                if options is not None and found
                else field.default
            )
            result[key] = float(value) if field.kind == "f" else int(value)
    return result


def _tensor(buffer: Buffer, table: Table, buffers: list[memoryview | None]) -> TensorInfo:
    name = table.text(3)
    shape, signature = table.integers(0), table.integers(7)
    if any(size < 0 for size in shape) or math.prod(shape) > MOST_ELEMENTS:
        raise buffer.damaged(f"tensor {name!r} has the shape {list(shape)}")
    if len(signature) != len(shape) or any(
        size not in (-1, fixed) for size, fixed in zip(signature, shape, strict=True)
    ):
        signature = shape
    kind = table.integer(1, "b")
    if not 0 <= kind < len(ELEMENTS):
        raise buffer.damaged(f"tensor {name!r} has elements of type {kind}, which no known schema has")
    place = table.integer(2, "I")
    if place >= max(len(buffers), 1):
        raise buffer.damaged(f"tensor {name!r} has buffer {place} of {len(buffers)}")
    quantisation, sparsity = table.table(4), table.table(6)
    return TensorInfo(
        name, shape, signature, ELEMENTS[kind], buffers[place] if buffers else None,
        None if quantisation is None else _quantisation(buffer, quantisation, name, shape),
        bool(table.integer(5, "?")), None if sparsity is None else sparsity_of(sparsity),
    )  # fmt: skip


def _quantisation(buffer: Buffer, table: Table, name: str, shape: tuple[int, ...]) -> Quantisation | None:
    scales, zeros = table.numbers(2, "f"), table.numbers(3, "q")
    if scales is None or not scales.size:
        return None
    if zeros is None or not zeros.size:
        zeros = np.zeros(scales.shape, np.int64)
    if zeros.size == 1:
        zeros = np.broadcast_to(zeros, scales.shape)
    axis = table.integer(6, "i")
    if zeros.size != scales.size or (scales.size > 1 and not 0 <= axis < len(shape)):
        raise buffer.damaged(f"tensor {name!r} has {scales.size} scales and {zeros.size} zero points on axis {axis}")
    if scales.size > 1 and scales.size != shape[axis]:
        raise buffer.damaged(f"tensor {name!r} has {scales.size} scales, but {shape[axis]} elements on axis {axis}")
    return Quantisation(scales, zeros, axis)


def supported(dtype: str) -> bool:
    return dtype in STORED
