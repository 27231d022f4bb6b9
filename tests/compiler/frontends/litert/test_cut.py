"""LiteRT models whose sizes or whose course the values of a run decide, beside LiteRT's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
import weft
from onnx import helper
from weft.compiler.exporters import export_onnx, with_tail
from weft.compiler.frontends import ModelError, module_and_tail
from weft.compiler.frontends.litert.cut import MAGIC
from weft.compiler.graph.tail import Tail
from weft.compiler.model import CompiledModel, CutModel, OpenModel

from benchmarks.zoo.litert_models import ModelWriter, interpreted, options

Array = npt.NDArray[Any]
I32 = np.int32
random = np.random.default_rng(0)
F32 = "float32"


def floats(*shape: int) -> Array:
    return random.normal(size=shape).astype(np.float32)


def doubled(net: ModelWriter, x: int, shape: Sequence[int], open_shape: Sequence[int] | None = None) -> int:
    """x + x, which is compiled."""
    y = net.tensor(shape, F32, open_shape=open_shape)
    net.op("ADD", [x, x], [y], options("AddOptions"))
    return y


def check(model: bytes, *runs: Sequence[Array], names: Sequence[str], kind: type = OpenModel) -> Any:
    """Weft's results on the CPU, which are the interpreter's to the bit for integers."""
    made = weft.compile(model, target="cpu")
    assert type(made) is kind
    loaded = weft.load(made)
    for arrays in runs:
        found = loaded.run(dict(zip(names, arrays, strict=True)))
        wanted = interpreted(model, arrays)
        assert len(found) == len(wanted)
        for one, other in zip(found.values(), wanted, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    return made


# Integers of a run decide


def decided(operator: str, shape: Sequence[int], given: dict[str, Sequence[int]], more: Any = None) -> bytes:
    """2 x, and what an operator makes of it by the integers of further inputs."""
    net = ModelWriter()
    x = net.tensor(shape, F32, name="x")
    others = [net.tensor(size, "int32", name=name) for name, size in given.items()]
    y = net.tensor([1] * len(shape), F32, open_shape=[-1] * len(shape))
    net.op(operator, [doubled(net, x, shape), *others], [y], more)
    return net.finish([x, *others], [y])


DECIDED: list[tuple[bytes, list[list[Array]]]] = [
    (decided("RESHAPE", (4, 6), {"s": (2,)}), [[I32([3, 8])], [I32([-1, 2])]]),
    (decided("SLICE", (5, 6), {"b": (2,), "s": (2,)}), [[I32([1, 2]), I32([3, -1])], [I32([0, 0]), I32([1, 2])]]),
    (decided("STRIDED_SLICE", (9, 2), {"a": (2,), "b": (2,), "c": (2,)}, options("StridedSliceOptions")),
     [[I32([1, 0]), I32([8, 2]), I32([3, 1])], [I32([-3, 1]), I32([9, 2]), I32([1, 1])]]),
    (decided("TILE", (2, 3), {"n": (2,)}), [[I32([2, 1])], [I32([1, 4])]]),
    (decided("PAD", (2, 3), {"p": (2, 2)}), [[I32([[1, 0], [0, 2]])]]),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(DECIDED)))
def test_integers_decide_on_shapes(case: int) -> None:
    model, runs = DECIDED[case]
    names = [each.name for each in weft.from_litert(model).inputs({})]
    shape = weft.from_litert(model).inputs({})[0].at({})
    for values in runs:  # one at a time: between runs the interpreter keeps the first shape of a RESHAPE
        made = check(model, [floats(*shape), *values], names=names)
        assert made.decided_by
        assert set(made.decided_by) <= set(names[1:])


def test_sizes_of_what_is_made() -> None:
    net = ModelWriter()
    dims, value, limit = (
        net.tensor((2,), "int32", name="d"),
        net.tensor((), F32, name="v"),
        net.tensor((), "int32", name="n"),
    )
    filled, counted = net.tensor((1, 1), F32, open_shape=(-1, -1)), net.tensor((1,), "int32", open_shape=(-1,))
    net.op("FILL", [dims, value], [filled])
    net.op("RANGE", [net.constant(1, "int32"), limit, net.constant(2, "int32")], [counted])
    model = net.finish([dims, value, limit], [filled, counted])
    runs = [[I32([2, 3]), np.float32(4), I32(8)], [I32([1, 1]), np.float32(5), I32(2)]]
    for run in runs:
        check(model, [np.asarray(each) for each in run], names="dvn")
    with pytest.raises(ModelError, match=r"weft\.compile\(weft\.from_litert\(MODEL, values=\{'d': VALUE\}\), \.\.\.\)"):
        weft.from_litert(model).module()
    built = weft.from_litert(model, values={"d": I32([2, 3]), "n": 8})
    assert [each.name for each in built.inputs({})] == ["v"]
    found = weft.load(weft.compile(built, target="cpu")).run({"v": np.float32(4)})
    for one, other in zip(found.values(), interpreted(model, [np.asarray(each) for each in runs[0]]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_value_that_an_input_cannot_have_is_refused() -> None:
    model = decided("TILE", (2, 3), {"n": (2,)})
    with pytest.raises(ModelError, match=r"the value of 'n' is float64, not int32"):
        weft.from_litert(model, values={"n": [1.0, 2.0]})
    with pytest.raises(ModelError, match=r"the value of 'n' has the shape \[3\], not \[2\]"):
        weft.from_litert(model, values={"n": [1, 2, 3]})
    with pytest.raises(ModelError, match=r"'m'.*the inputs are 'x', 'n'"):
        weft.from_litert(model, values={"m": [1, 2]})


def test_sizes_and_values_may_both_be_open() -> None:
    net = ModelWriter()
    x, shape = net.tensor((1, 4), F32, name="x", open_shape=(-1, 4)), net.tensor((2,), "int32", name="s")
    y = net.tensor((1, 1), F32, open_shape=(-1, -1))
    net.op("RESHAPE", [doubled(net, x, (1, 4), (-1, 4)), shape], [y])
    model = net.finish([x, shape], [y])
    for size, wanted in ((3, [2, 6]), (5, [-1, 2])):
        check(model, [floats(size, 4), I32(wanted)], names="xs")


@pytest.mark.parametrize("start", [(0, 0), (1, 2), (3, 3)])
def test_where_a_piece_begins_is_no_reason_to_compile_again(start: tuple[int, int]) -> None:
    net = ModelWriter()
    x, begin = net.tensor((5, 6), F32, name="x"), net.tensor((2,), "int32", name="b")
    piece, new = net.tensor((2, 3), F32), net.tensor((5, 6), F32)
    net.op("SLICE", [x, begin, net.constant([2, 3], "int32")], [piece])
    net.op("DYNAMIC_UPDATE_SLICE", [doubled(net, x, (5, 6)), piece, begin], [new])
    model = net.finish([x, begin], [piece, new])
    check(model, [floats(5, 6), I32(start)], names="xb", kind=CompiledModel)


@pytest.mark.parametrize("axes", [(1, 0), (0, 1)])
def test_lengths_of_a_run_turn_rows(axes: tuple[int, int]) -> None:
    axis, batch = axes
    net = ModelWriter()
    x, lengths = net.tensor((4, 4, 2), F32, name="x"), net.tensor((4,), "int32", name="n")
    y = net.tensor((4, 4, 2), F32)
    net.op("REVERSE_SEQUENCE", [doubled(net, x, (4, 4, 2)), lengths], [y],
           options("ReverseSequenceOptions", seqDim=axis, batchDim=batch))  # fmt: skip
    runs = [[floats(4, 4, 2), I32(lengths)] for lengths in ([1, 4, 2, 3], [4, 1, 1, 2])]
    check(net.finish([x, lengths], [y]), *runs, names="xn", kind=CompiledModel)


def counted(net: ModelWriter, condition: Callable[[ModelWriter, int, int], int]) -> tuple[int, int]:
    """The numbers of a loop's condition and body: k, x become k + 1, x + x."""
    first = net.body()
    k, x = first.tensor((), "int32"), first.tensor((2, 2), F32)
    one = first.number([k, x], [condition(first, k, x)])
    body = net.body()
    k, x, more = body.tensor((), "int32"), body.tensor((2, 2), F32), body.tensor((), "int32")
    body.op("ADD", [k, body.constant(1, "int32")], [more], options("AddOptions"))
    return one, body.number([k, x], [more, doubled(body, x, (2, 2))])


def looped(net: ModelWriter, x: int, numbers: tuple[int, int]) -> tuple[int, int]:
    steps, y = net.tensor((), "int32"), net.tensor((2, 2), F32)
    made = options("WhileOptions", condSubgraphIndex=numbers[0], bodySubgraphIndex=numbers[1])
    net.op("WHILE", [net.constant(0, "int32"), x], [steps, y], made)
    return steps, y


def below(body: ModelWriter, k: int, x: int) -> int:
    """The sum of x is below 100."""
    total, goes_on = body.tensor((), F32), body.tensor((), "bool")
    body.op("SUM", [x, body.constant([0, 1], "int32")], [total], options("ReducerOptions", keepDims=False))
    body.op("LESS", [total, body.constant(100.0, F32)], [goes_on])
    return goes_on


# Floats of a run decide


def loop_of_floats() -> bytes:
    """2 x, doubled until its sum is 100, once more, and 2 x itself."""
    net = ModelWriter()
    x = net.tensor((2, 2), F32, name="x")
    twice = doubled(net, x, (2, 2))
    steps, y = looped(net, twice, counted(net, below))
    return net.finish([x], [doubled(net, y, (2, 2)), twice, steps])


def test_a_loop_that_floats_end() -> None:
    x = np.abs(floats(2, 2))
    made = check(loop_of_floats(), [x], [x * 30], [x * 1000], names="x", kind=CutModel)
    assert made.tail.reason == "WHILE: whether it goes on depends on the values of a run"
    assert [kind for _, kind in made.tail.operators] == ["WHILE", "ADD"]
    with pytest.raises(ModelError, match="WHILE: whether it goes on must be a constant"):
        weft.compile(loop_of_floats(), target="cpu", strict=True)


def masked(dtype: str = F32) -> bytes:
    """The rows of relu(x) whose first element is above a bound, and products of them."""
    net = ModelWriter()
    scaled = {} if dtype == F32 else {"scale": 0.05127, "zero": 3}
    x = net.tensor((8, 4), dtype, name="x", **scaled)  # type: ignore[arg-type]
    weights = net.constant(floats(5, 4) if dtype == F32 else random.integers(-90, 90, (5, 4)), dtype,
                           **({} if dtype == F32 else {"scale": 0.009713, "zero": 0}))  # fmt: skip
    made = options("FullyConnectedOptions", fusedActivationFunction=1)
    dense, real = net.tensor((8, 5), dtype, **scaled), net.tensor((8, 5), F32)  # type: ignore[arg-type]
    net.op("FULLY_CONNECTED", [x, weights], [dense], made)
    net.op("DEQUANTIZE", [dense], [real]) if dtype != F32 else None
    source = dense if dtype == F32 else real
    column, above, places, rows = (net.tensor((8, 1), F32), net.tensor((8, 1), "bool"),
                                   net.tensor((1, 2), "int64", open_shape=(-1, 2)),
                                   net.tensor((1, 1), "int64", open_shape=(-1, 1)))  # fmt: skip
    net.op("SLICE", [source, net.constant([0, 0], "int32"), net.constant([8, 1], "int32")], [column])
    net.op("GREATER", [column, net.constant(0.3, F32)], [above])
    net.op("WHERE", [above], [places])
    net.op("SLICE", [places, net.constant([0, 0], "int32"), net.constant([-1, 1], "int32")], [rows])
    taken = net.tensor((1, 5), dtype, open_shape=(-1, 5), **scaled)  # type: ignore[arg-type]
    net.op("GATHER_ND", [dense, rows], [taken])
    more = net.tensor((1, 5), dtype, open_shape=(-1, 5), **scaled)  # type: ignore[arg-type]
    net.op("ADD", [taken, taken], [more], options("AddOptions"))
    return net.finish([x], [more])


def test_rows_that_a_mask_keeps() -> None:
    made = check(masked(), [floats(8, 4)], [floats(8, 4)], [floats(8, 4) * 0], names="x", kind=CutModel)
    assert made.tail.reason == "WHERE: the size of its result depends on the values of a run"


@pytest.mark.parametrize("target", ["cpu", "accel"])
def test_in_bytes_a_core_does_what_stands_before(target: str, tmp_path: Path) -> None:
    model = masked("int8")
    made = weft.compile(model, "tiny" if target == "accel" else None, target=target)
    assert isinstance(made, CutModel)
    assert (made.core is not None) is (target == "accel")
    weft.save(made, tmp_path / "cut.weft")
    for loaded in (weft.load(made), weft.load(tmp_path / "cut.weft")):
        for _ in range(3):
            x = random.integers(-128, 128, (8, 4)).astype(np.int8)
            (found,), (wanted,) = loaded.run({"x": x}).values(), interpreted(model, [x])
            assert 0 < len(wanted) < 8
            np.testing.assert_array_equal(found, wanted)


def test_a_tail_has_no_weights_of_the_compiled_part() -> None:
    _, tail = module_and_tail(weft.from_litert(masked()), {}, require_quantised=False)
    assert tail is not None
    file = tail.model.partition(b"\n")[2]
    assert len(file) == len(masked())
    weights = floats(5, 4)  # of another draw: what is asked is how many bytes are zero
    assert file.count(0) - masked().count(0) > weights.nbytes // 2


def test_elements_that_differ() -> None:
    net = ModelWriter()
    x = net.tensor((40,), F32, name="x")
    whole, values, places = net.tensor((40,), F32), net.tensor((1,), F32, open_shape=(-1,)), net.tensor((40,), "int32")
    net.op("ROUND", [x], [whole])
    net.op("UNIQUE", [whole], [values, places], options("UniqueOptions", idxOutType=2))
    check(net.finish([x], [values, places]), [floats(40)], [floats(40) * 3], names="x", kind=CutModel)


def test_branches_of_other_shapes() -> None:
    net = ModelWriter()
    numbers = []
    for rows in (1, 3):
        body = net.body()
        x, y = body.tensor((4, 2), F32), body.tensor((rows, 2), F32)
        body.op("SLICE", [x, body.constant([0, 0], "int32"), body.constant([rows, 2], "int32")], [y])
        numbers.append(body.number([x], [y]))
    x = net.tensor((4, 2), F32, name="x")
    total, above, y = net.tensor((), F32), net.tensor((), "bool"), net.tensor((1, 2), F32, open_shape=(-1, 2))
    net.op("SUM", [x, net.constant([0, 1], "int32")], [total], options("ReducerOptions", keepDims=False))
    net.op("GREATER", [total, net.constant(0.0, F32)], [above])
    net.op("IF", [above, x], [y], options("IfOptions", thenSubgraphIndex=numbers[0], elseSubgraphIndex=numbers[1]))
    x0 = np.abs(floats(4, 2))
    check(net.finish([x], [y]), [x0], [-x0], names="x", kind=CutModel)


def test_what_only_hands_inputs_over() -> None:
    net = ModelWriter()
    x, y = net.tensor((3, 3), "bool", name="x"), net.tensor((1, 2), "int64", open_shape=(-1, 2))
    net.op("WHERE", [x], [y])
    check(net.finish([x], [y]), [np.eye(3) > 0], [np.tri(3) > 0], names="x", kind=CutModel)


def test_types_before_a_cut() -> None:
    types = weft.from_litert(loop_of_floats()).types({}).types
    assert str(types["x"]) == "float32[2, 2]"
    assert len(types) == 2  # x and 2 x; what comes behind has none


def test_a_damaged_tail_is_named() -> None:
    made = weft.compile(masked(), target="cpu")
    assert isinstance(made, CutModel)
    for model in (
        MAGIC + b"{",
        MAGIC + b'{"kernels": 1}\n',
        made.tail.model.replace(b'"inputs": {', b'"inputs": {"y": 900, '),
    ):
        broken = Tail(model, made.tail.inputs, made.tail.outputs, made.tail.operators, made.tail.reason)
        with pytest.raises(ModelError, match="compile the model again"):
            weft.load(replace(made, tail=broken)).run({"x": floats(8, 4)})


def written(model: bytes) -> onnx.ModelProto:
    """A model that is cut, as ONNX."""
    module, tail = module_and_tail(weft.from_litert(model), {}, require_quantised=False)
    assert tail is not None
    return with_tail(export_onnx(module), tail)


def test_it_is_written_as_onnx() -> None:
    file, x = masked(), floats(8, 4)
    model = written(file)
    wanted = weft.load(weft.compile(file, target="cpu")).run({"x": x})
    made = weft.compile(model.SerializeToString(), target="cpu")
    assert isinstance(made, CutModel)
    assert made.last.reason.startswith("LitertTail: ")
    for name, value in weft.load(made).run({"x": x}).items():
        assert value.dtype == wanted[name].dtype
        np.testing.assert_allclose(value, wanted[name], rtol=1e-6)
    types = {each.name: helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type) for each in model.graph.output}
    assert types == {name: value.dtype for name, value in wanted.items()}


@pytest.mark.parametrize(
    ("attribute", "value", "text"),
    [
        ("takes", ["one"], "attribute 'takes' must be 2 names"),
        ("makes", ["one"], "its file makes no 'one'"),
        ("file", 3, "attribute 'file' must be bytes"),
        ("file", MAGIC, "the tail of a model is damaged"),
    ],
)
def test_a_damaged_node_is_named(attribute: str, value: Any, text: str) -> None:
    model = written(masked())
    node = model.graph.node[-1]
    kept = [each for each in node.attribute if each.name != attribute]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(attribute, value)])
    with pytest.raises(ModelError, match=text):
        weft.load(weft.compile(model, target="cpu")).run({"x": floats(8, 4)})
