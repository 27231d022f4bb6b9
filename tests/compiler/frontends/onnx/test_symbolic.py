"""ONNX models with open sizes: which symbols they have, and the types of their tensors."""

from __future__ import annotations

import onnx
import pytest
from weft.compiler.frontends import ModelError, NeedsValueError, from_onnx, infer_types, symbolic_inputs

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'


def model(text: str) -> onnx.ModelProto:
    """A model in ONNX's own text form."""
    return onnx.parser.parse_model(HEAD + text)


def types(text: str, **shapes: tuple[int, ...]) -> dict[str, str]:
    return {name: str(kind) for name, kind in infer_types(model(text), shapes).types.items()}


ONES = ", ".join(["1"] * 108)
NETWORK = f"""m (float[N, 3, 8, 8] image, float[N, M] more) => (float[A, B] y)
    <float[4, 3, 3, 3] w = {{{ONES}}}> {{
    conv = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (image, w)
    size = Shape (image)
    zero = Constant <value = int64[1] {{0}}> ()
    batch = Gather (size, zero)
    rest = Constant <value = int64[1] {{-1}}> ()
    wanted = Concat <axis = 0> (batch, rest)
    flat = Reshape (conv, wanted)
    y = Concat <axis = 1> (flat, more)
}}"""


def test_a_size_that_reaches_a_reshape() -> None:
    found = types(NETWORK)
    assert found["conv"] == "float32[N, 4, 4, 4]"
    assert found["flat"] == "float32[N, 64]"
    assert found["y"] == "float32[N, M + 64]"
    assert list(found) == [
        "image", "more", "conv", "size", "zero", "batch", "rest", "wanted", "flat", "y",
    ]  # fmt: skip


def test_a_shape_that_is_given_fixes_its_symbols_everywhere() -> None:
    found = types(NETWORK, image=(5, 3, 8, 8))
    assert (found["more"], found["y"]) == ("float32[5, M]", "float32[5, M + 64]")
    module = from_onnx(model(NETWORK), {"more": (2, 7)}, require_quantised=False)
    assert [param.type.shape for param in module.main.params] == [(2, 3, 8, 8), (2, 7)]
    with pytest.raises(ModelError, match=r"^input 'more': dimension 0 \('N'\) is 4, but 5 in input 'image'"):
        types(NETWORK, image=(5, 3, 8, 8), more=(4, 1))


def test_dimensions_without_a_name_get_one() -> None:
    open_model = model("m (float[N, 3] x, float s) => (float[A, B] y) { y = Mul (x, s) }")
    open_model.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_param")
    open_model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -1
    assert [str(each) for each in symbolic_inputs(open_model)] == ["float32[x.0, x.1]", "float32[]"]
    assert str(infer_types(open_model).types["y"]) == "float32[x.0, x.1]"
    with pytest.raises(ModelError, match=r"dimension 0 is dynamic, .* shapes=\{'x': \(1, 1\)\}, or --shape x=1x1$"):
        from_onnx(open_model, require_quantised=False)


@pytest.mark.parametrize("mark", ["?", "-1", "*", "None", " "])
def test_marks_of_converters_are_no_names(mark: str) -> None:
    """Paddle's converter marks each open dimension with ``?``, the batch, the height and the width."""
    open_model = model("m (float[N, 3, H, W] x, float[N, 1] more) => (float[A, B, C, D] y) { y = Neg (x) }")
    for value in open_model.graph.input:
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param:
                dimension.dim_param = mark
    assert [str(each) for each in symbolic_inputs(open_model)] == ["float32[x.0, 3, x.2, x.3]", "float32[more.0, 1]"]
    shapes = {"x": (1, 3, 48, 320), "more": (2, 1)}
    module = from_onnx(open_model, shapes, require_quantised=False)
    assert [param.type.shape for param in module.main.params] == [(1, 3, 48, 320), (2, 1)]
    with pytest.raises(ModelError, match=r"input 'more': dimension 0 .*is dynamic"):
        from_onnx(open_model, {"x": (1, 3, 48, 320)}, require_quantised=False)


def test_an_input_of_unknown_rank_has_to_be_given() -> None:
    text = "m (float[N] x, float[] s) => (float[A, B] y) { y = Mul (x, s) }"
    assert not model(text).graph.input[1].type.tensor_type.HasField("shape")
    with pytest.raises(ModelError, match=r"^input 's' has no shape; hint: give it"):
        types(text)
    assert types(text, s=(4, 1))["y"] == "float32[4, N]"
    assert [str(each) for each in symbolic_inputs(model(text), {"s": (4, 1)})] == ["float32[N]", "float32[4, 1]"]


def test_models_that_cannot_be_read_for_several_sizes_say_with_which() -> None:
    text = "m (float[N] x) => (float[A] y) { c = Constant <value = float[3] {1, 2, 3}> () y = Add (x, c) }"
    with pytest.raises(ModelError, match=r"^node 'Add_1': .*do not broadcast; hint: read with N = 2; where only some "
                       r"sizes are good, fix them by shapes=, in which"):  # fmt: skip
        types(text)
    assert types(text, x=(3,))["y"] == "float32[3]"
    with pytest.raises(NeedsValueError, match=r"^node 'Reshape_0': Reshape: the new shape must be a constant"):
        types("m (float[N] x, int64[2] shape) => (float[A, B] y) { y = Reshape (x, shape) }")


def test_symbols_of_two_names_that_must_be_equal() -> None:
    found = infer_types(model("m (float[N, 4] x, float[M, 4] y) => (float[A, 4] z) { z = Mul (x, y) }"))
    assert (str(found.types["z"]), found.equal) == ("float32[N, 4]", {"M": "N"})
