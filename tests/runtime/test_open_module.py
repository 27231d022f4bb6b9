"""Models with open sizes on the CPU: any size gives what a model compiled for that size gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.frontends import ModelError, from_onnx
from weft.compiler.graph import evaluate
from weft.compiler.targets.errors import CompileError
from weft.runtime.errors import InputError

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'
WEIGHTS = ", ".join(str((7 * i) % 11 - 5) for i in range(72))
TEXT = f"""two (float[N, 2, 6, 6] image, float[N, M] more) => (float[A, B] y, float[C] flat)
    <float[4, 2, 3, 3] w = {{{WEIGHTS}}}> {{
    conv = Conv <pads = [1, 1, 1, 1]> (image, w)
    relu = Relu (conv)
    size = Shape (image)
    zero = Constant <value = int64[1] {{0}}> ()
    batch = Gather (size, zero)
    channels = Constant <value = int64[1] {{144}}> ()
    wanted = Concat <axis = 0> (batch, channels)
    rows = Reshape (relu, wanted)
    y = Concat <axis = 1> (rows, more)
    all = Constant <value = int64[1] {{-1}}> ()
    flat = Reshape (more, all)
}}"""
MODEL: onnx.ModelProto = onnx.parser.parse_model(HEAD + TEXT)


def inputs(n: int, m: int, seed: int = 0) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    return {"image": generator.standard_normal((n, 2, 6, 6), np.float32),
            "more": generator.standard_normal((n, m), np.float32)}  # fmt: skip


@pytest.fixture(scope="module")
def module() -> weft.OpenModule:
    return weft.load(weft.compile(MODEL, target="cpu"), kept=2)


@settings(max_examples=6, deadline=None)
@given(n=st.integers(0, 5), m=st.integers(0, 3), seed=st.integers(0, 1000))
def test_any_size_gives_what_a_model_of_that_size_gives(module: weft.OpenModule, n: int, m: int, seed: int) -> None:
    values = inputs(n, m, seed)
    fixed = weft.compile(MODEL, target="cpu", shapes={name: value.shape for name, value in values.items()})
    assert isinstance(fixed, weft.CompiledModel)
    expected = weft.load(fixed).run(values)
    found = module.run(values)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
        kind = module.model.types.types[name]
        assert kind.shape is not None
        assert tuple(size.at({"N": n, "M": m}) for size in kind.shape if size) == array.shape
    assert module.sizes[-1] == {"N": n, "M": m}
    assert len(module.sizes) <= 2


def test_a_size_is_compiled_once_and_the_last_ones_are_kept() -> None:
    said: list[str] = []
    module = weft.load(weft.compile(MODEL, target="cpu", progress=said.append, cache=False), kept=2)
    assert module.sizes == ()
    for n in (1, 2, 1, 3, 1, 2):
        module.run(inputs(n, 1))
    assert [line for line in said if "for" in line] == [f"compiling for N = {n}, M = 1" for n in (1, 2, 3, 2)]
    assert module.sizes == ({"N": 1, "M": 1}, {"N": 2, "M": 1})
    with pytest.raises(InputError, match=r"^kept is 0, but must be at least 1$"):
        weft.load(module.model, kept=0)


def test_results_go_where_they_are_wanted(module: weft.OpenModule) -> None:
    place = np.empty((2, 145), np.float32)
    assert module.run(inputs(2, 1), {"y": place})["y"] is place


def test_shapes_that_are_given_at_compilation_fix_their_symbols() -> None:
    model = weft.compile(MODEL, target="cpu", shapes={"image": (2, 2, 6, 6)})
    module = weft.load(model)
    assert [str(each) for each in model.inputs] == ["float32[2, 2, 6, 6]", "float32[2, M]"]
    assert module.run(inputs(2, 3))["y"].shape == (2, 147)
    with pytest.raises(InputError, match=r"^input 'image': dimension 0 is 3, but must be 2: it is float32"):
        module.run(inputs(3, 3))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"image": np.zeros((2, 6, 6), np.float32)},
            r"^input 'image' has 3 dimensions, \(2, 6, 6\), but must be float32\[N, 2, 6, 6\]; "
            r"hint: only N can be chosen$",
        ),
        ({"image": np.zeros((2, 3, 6, 6), np.float32)}, r"^input 'image': dimension 1 is 3, but must be 2: "),
        (
            {"image": np.zeros((3, 2, 6, 6), np.float32)},
            r"^input 'more': dimension 0 \('N'\) is 2, but 3 in input 'image'; hint: give both the same N$",
        ),
        ({"image": np.zeros((2, 2, 6, 6))}, r"^input 'image' must be float32\[2, 2, 6, 6\], not float64"),
        ({"other": np.zeros(1)}, r"^the model has no input 'other'; hint: its inputs: image, more$"),
    ],
)
def test_inputs_that_do_not_fit(module: weft.OpenModule, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        module.run({**inputs(2, 1), **changed})
    with pytest.raises(InputError, match=r"^input 'more' is missing$"):
        module.run({"image": np.zeros((2, 2, 6, 6), np.float32)})


def test_the_accelerator_wants_to_know_all_sizes(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"^input 'image': dimension 0 \('N'\) is dynamic, but must be known; .* "
                       r"or --shape image=1x2x6x6$"):  # fmt: skip
        weft.compile(MODEL, "tiny")


ATTENTION = """attention (int64[B, S] ids) => (float[A, C, D] y)
    <float[1] table = {0}, int64[2] heads = {2, 2}, int64[1] width = {4}> {
    x = Gather (table, ids)
    size = Shape (ids)
    parts = Concat <axis = 0> (size, heads)
    whole = Concat <axis = 0> (size, width)
    split = Reshape (x, parts)
    scores = Einsum <equation = "bihd,bjhd->bhij"> (split, split)
    weights = Softmax <axis = -1> (scores)
    mixed = Einsum <equation = "bhij,bjhd->bihd"> (weights, split)
    y = Reshape (mixed, whole)
}"""


def test_attention_over_any_number_of_words_and_sentences() -> None:
    model = onnx.parser.parse_model(HEAD + ATTENTION)
    table = np.random.default_rng(0).standard_normal((9, 4), np.float32)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(table, "table"))
    module = weft.load(weft.compile(model, target="cpu", strict=True))
    assert str(module.model.types.types["scores"]) == "float32[B, 2, S, S]"
    for shape in ((1, 5), (3, 2), (2, 1), (0, 4)):
        ids = np.random.default_rng(1).integers(-9, 9, shape)
        expected = evaluate(from_onnx(model, {"ids": shape}, require_quantised=False), {"ids": ids})["y"]
        np.testing.assert_allclose(module.run(ids)["y"], expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match=r"^node 'Gather_0': index 9 is outside of an axis of 9 elements"):
        module.run(np.array([[0, 9]]))


@pytest.mark.parametrize(
    ("target", "options"),
    [("cpu", {"processor": "z80"}), ("cuda", {"gpu": "sm_1"}), ("cuda", {"gpu": "sm_75", "tf32": True}),
     ("opencl", {"gpu": "voodoo"})],
)  # fmt: skip
def test_options_are_checked_before_a_size_is_known(target: str, options: dict[str, Any]) -> None:
    with pytest.raises(CompileError):
        weft.compile(MODEL, target=target, **options)


ROWS = """m (float[N, H, W] x) => (float[A, B] y) {
    rows = Constant <value = int64[2] {-1, 48}> ()
    many = Reshape (x, rows)
    y = Relu (many)
}"""
"""Only some sizes are good: those whose product is a multiple of 48."""


def test_one_size_is_fixed_and_others_stay_open() -> None:
    model = onnx.parser.parse_model(HEAD + ROWS)
    with pytest.raises(ModelError, match="in which -1 leaves a size open"):
        weft.compile(model, target="cpu")
    opened = weft.compile(model, target="cpu", shapes={"x": (1, 48, -1)})
    assert isinstance(opened, weft.OpenModel)
    assert [str(each) for each in opened.inputs] == ["float32[1, 48, W]"]
    module = weft.load(opened)
    for width in (1, 7):
        values = np.random.default_rng(width).standard_normal((1, 48, width), np.float32)
        np.testing.assert_array_equal(module.run(values)["y"], np.maximum(values, 0).reshape(-1, 48))
    with pytest.raises(ModelError, match=r"dimension 2 .*is dynamic"):
        weft.compile(model, target="accel", shapes={"x": (1, 48, -1)})
