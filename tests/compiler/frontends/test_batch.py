"""A model for several samples at once, whichever front end reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
import pytest
import weft
from weft.compiler.frontends import ModelError, Source, for_batch, read
from weft.compiler.graph import Module
from weft.compiler.graph.symbolic import SymbolicInput, SymbolicTypes, infer_symbolic

from benchmarks.zoo.litert_networks import digits

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"


class Open:
    """A model with the given inputs."""

    name, output_names = "open", ("y",)

    def __init__(self, *shapes: tuple[int | str, ...]) -> None:
        self._inputs = tuple(SymbolicInput(f"x{n}", shape, "float32") for n, shape in enumerate(shapes))

    def inputs(self, shapes: Mapping[str, Sequence[int]]) -> tuple[SymbolicInput, ...]:
        return self._inputs

    def module(self, shapes: Mapping[str, Sequence[int]], *, require_quantised: bool) -> Module:
        raise NotImplementedError

    def types(self, shapes: Mapping[str, Sequence[int]]) -> SymbolicTypes:
        return infer_symbolic(self._inputs, lambda sizes: {})


def test_an_onnx_file_is_read_for_any_batch() -> None:
    source, shapes = for_batch(read(DIGITS), 3)
    (image,) = source.module(shapes, require_quantised=True).main.params
    assert image.type.shape == (3, 1, 8, 8)
    assert source.name == "digits"


def test_an_onnx_file_for_two_samples_stays_for_two(tmp_path: Path) -> None:
    model = onnx.load(DIGITS)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    with pytest.raises(ModelError, match=r"'image' has a batch of 2, so a batch of 3 cannot be told; hint: export"):
        for_batch(read(model), 3)


def test_a_source_with_an_open_batch_gets_shapes() -> None:
    source = Open(("N", 3), ())
    assert isinstance(source, Source)
    assert for_batch(source, 4) == (source, {"x0": (4, 3)})


@pytest.mark.parametrize(
    ("shape", "why"), [((2, 3), "'x0' has a batch of 2"), (("N", "M"), "'x0' leaves sizes open beside its batch")]
)
def test_what_cannot_be_told_is_refused(shape: tuple[int | str, ...], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        for_batch(Open(shape), 4)


def test_a_litert_file_keeps_its_batch() -> None:
    source = read(digits().model)
    assert for_batch(source, 1) == (source, {})
    with pytest.raises(ModelError, match="has a batch of 1, so a batch of 2 cannot be told"):
        for_batch(source, 2)
