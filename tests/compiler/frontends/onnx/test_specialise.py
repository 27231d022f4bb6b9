"""Reading a model for its inputs: control flow, sequences, shapes that depend on values, and what cannot be known."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import weft
from onnx.reference import ReferenceEvaluator
from weft.compiler.frontends import ModelError, NeedsValueError, from_onnx
from weft.compiler.frontends.onnx.backend import ReferenceBackend
from weft.compiler.frontends.onnx.specialise import specialise
from weft.compiler.graph import calls, evaluate

HEAD = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>\n'


def model(text: str) -> onnx.ModelProto:
    """A model in ONNX's own text form."""
    return onnx.parser.parse_model(HEAD + text)


def run(text: str, *inputs: Any) -> list[Any]:
    return list(ReferenceBackend.prepare(model(text)).run(list(inputs)))


RESHAPE = """m (float[N] x, int64[2] shape, float[1] shift) => (float[A, B] y) {
    moved = Add(x, shift)
    y = Reshape(moved, shape)
}"""


def test_only_what_decides_on_a_shape_is_built_in() -> None:
    inputs = {"x": np.arange(6, dtype=np.float32), "shape": np.array([2, -1]), "shift": np.ones(1, np.float32)}
    found = specialise(model(RESHAPE), inputs)
    assert found.built_in == ("shape",)
    assert [param.name for param in found.module.main.params] == ["x", "shift"]
    np.testing.assert_array_equal(evaluate(found.module, found.inputs)["y"], [[1, 2, 3], [4, 5, 6]])


def test_a_shape_that_is_computed_is_refused_with_the_expression() -> None:
    with pytest.raises(
        NeedsValueError, match=r"the new shape must be a constant, .* depends on 'shape'; if its value is known, give"
    ) as caught:
        from_onnx(model(RESHAPE), {"x": (6,)}, require_quantised=False)
    assert str(caught.value.value.type) == "int64[2]"


LOOP = """m (int64 trips, float[2] x) => (float[2] y, float[M, 2] all) {
    go_on = Constant <value = bool {1}> ()
    y, all = Loop (trips, go_on, x) <body = step (int64 i, bool c, float[2] v) => (bool d, float[2] w, float[2] seen) {
        limit = Constant <value = int64 {3}> ()
        d = Less (i, limit)
        w = Add (v, x)
        seen = Identity (v)
    }>
}"""


def test_a_loop_is_unrolled_until_its_condition_ends_it() -> None:
    x = np.array([1, 2], np.float32)
    y, seen = run(LOOP, np.array(10), x)
    np.testing.assert_array_equal(y, 5 * x)
    np.testing.assert_array_equal(seen, np.outer([1, 2, 3, 4], x))
    with pytest.raises(ModelError, match=r"does not run once, so the shape of its result is not known"):
        run(LOOP, np.array(0), x)


def test_if_takes_its_branch_and_leaves_the_other_unread() -> None:
    text = """m (bool flag, float[2] x) => (float[2] y) {
        y = If (flag) <then_branch = a () => (float[2] p) { p = Neg(x) },
                       else_branch = b () => (float[2] q) { q = NoSuchOperator(x) }>
    }"""
    np.testing.assert_array_equal(run(text, np.array(True), np.ones(2, np.float32))[0], [-1, -1])
    with pytest.raises(ModelError, match=r"operator 'NoSuchOperator' is not supported"):
        run(text, np.array(False), np.ones(2, np.float32))


COMPUTED = """m (float[2, 3] x) => (float[2, 3] y, float[6] z) {
    zero = Constant <value_float: float = 0.0> ()
    shape = Constant <value_ints: ints = [6]> ()
    total = ReduceSum <keepdims = KEPT> (x)
    flag = Greater (total, zero)
    y, z = If (flag) <
        then_branch = a () => (float[2, 3] p, float[6] q) { p = Neg (x) q = Reshape (p, shape) },
        else_branch = b () => (float[2, 3] p, float[6] q) { p = Exp (x) r = Neg (x) q = Reshape (r, shape) }
    >
}"""


@pytest.mark.parametrize("kept", ["0", "1"])
@pytest.mark.parametrize("sign", [1, -1])
def test_both_branches_of_a_computed_condition_are_computed(kept: str, sign: int) -> None:
    chosen = model(COMPUTED.replace("KEPT", kept))
    x = sign * np.arange(6, dtype=np.float32).reshape(2, 3)
    found = evaluate(from_onnx(chosen), {"x": x})
    wanted = ReferenceEvaluator(chosen).run(None, {"x": x})
    for name, value in zip(("y", "z"), wanted, strict=True):
        np.testing.assert_allclose(found[name], value, rtol=1e-6)


@pytest.mark.parametrize("other", ["ReduceSum <keepdims = 0> (x)", "NoSuchOperator (x)"])
def test_branches_that_differ_in_kind_need_a_known_condition(other: str) -> None:
    text = COMPUTED.replace("KEPT", "0").replace("Exp (x)", other)
    with pytest.raises(NeedsValueError, match="the condition"):
        from_onnx(model(text))


def test_a_function_of_the_model_is_read_through_its_body() -> None:
    text = """m (float[2] x) => (float[2] y) {
        y = local.scale <by = 3.0> (x)
    }
    <domain: "local", opset_import: ["" : 21]>
    scale <by> (a) => (b) {
        factor = Constant <value_float: float = @by> ()
        b = Mul(a, factor)
    }"""
    np.testing.assert_array_equal(run(text, np.array([1, 2], np.float32))[0], [3, 6])


def test_sequences_exist_while_the_model_is_read() -> None:
    text = """m (float[4, 2] x) => (float[6, 2] y, int64 n) {
        parts = SplitToSequence <axis = 0> (x)
        first = Constant <value = int64 {0}> ()
        head = SequenceAt (parts, first)
        longer = SequenceInsert (parts, head)
        again = SequenceInsert (longer, head, first)
        y = ConcatFromSequence <axis = 0> (again)
        n = SequenceLength (again)
    }"""
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    y, count = run(text, x)
    np.testing.assert_array_equal(y, x[[0, 0, 1, 2, 3, 0]])
    assert count == 6
    module = from_onnx(model(text), require_quantised=False)
    assert {node.op for node in calls(module.main.body)} <= {"slice", "concat", "reshape"}


def test_a_result_that_is_a_sequence_becomes_several_outputs() -> None:
    text = """m (float[4] x) => (seq(float[2]) y) {
        two = Constant <value = int64 {2}> ()
        y = SplitToSequence (x, two)
    }"""
    module = from_onnx(model(text), require_quantised=False)
    assert module.main.output_names == ("y[0]", "y[1]")
    np.testing.assert_array_equal(run(text, np.arange(4, dtype=np.float32))[0], [[0, 1], [2, 3]])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"z": np.zeros(1)}, r"a value is given for 'z', but the inputs are 'shape', 'shift', 'x'"),
        ({"shape": [np.zeros(1)]}, r"operand 1 must be a tensor, but is a sequence"),
        ({"shape": None}, r"operand 1 must be a tensor, but is an optional value that is not there"),
        ({"shape": np.array([4, 4])}, r"float32\[6\] has 6 elements, but the new shape \(4, 4\) has 16"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_onnx(model(RESHAPE), {"x": (6,)}, values=values, require_quantised=False)


def test_whole_numbers_find_their_float_again() -> None:
    text = """m (int8[2, 3] a, int8[3, 2] b) => (float[2, 2] y, int32[2, 2] z) {
        z = MatMulInteger (a, b)
        f = Cast <to = 1> (z)
        y = Neg (f)
    }"""
    module = from_onnx(model(text), require_quantised=False)
    assert [node.op for node in calls(module.main.body)].count("nn.cast") == 1
    a, b = np.arange(6, dtype=np.int8).reshape(2, 3), np.arange(6, dtype=np.int8).reshape(3, 2)
    y, z = run(text, a, b)
    np.testing.assert_array_equal(z, a.astype(np.int32) @ b)
    np.testing.assert_array_equal(y, -z.astype(np.float32))


def test_integer_sums_beyond_those_of_floats() -> None:
    """The sums are odd and above 2**24, where float32 has even numbers only."""
    text = """m (uint8[2, 801] a, int8[801, 2] b, uint8[1, 201, 2, 2] x, int8[1, 201, 2, 2] w)
        => (int32[2, 2] y, int32[1, 1, 1, 1] z) {
        y = MatMulInteger (a, b)
        z = ConvInteger (x, w)
    }"""
    inputs = {
        "a": np.full((2, 801), 255, np.uint8), "b": np.full((801, 2), 127, np.int8),
        "x": np.full((1, 201, 2, 2), 255, np.uint8), "w": np.full((1, 201, 2, 2), 127, np.int8),
    }  # fmt: skip
    inputs["b"][0] = inputs["w"][0, 0, 0, 0] = 126
    module = from_onnx(model(text), require_quantised=False)
    for found in (evaluate(module, inputs), weft.load(weft.compile(module, target="cpu")).run(inputs)):
        np.testing.assert_array_equal(found["y"], np.full((2, 2), 255 * (127 * 800 + 126)))
        np.testing.assert_array_equal(found["z"], np.full((1, 1, 1, 1), 255 * (127 * 803 + 126)))
