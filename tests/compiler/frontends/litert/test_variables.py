"""Variables of LiteRT files, SVDF's and named ones: run after run, beside the interpreter, which keeps them itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import weft
from weft.compiler.frontends import ModelError
from weft.compiler.frontends.litert.source import LitertSource
from weft.compiler.graph.evaluate import evaluate_function
from weft.compiler.model import TensorSpec
from weft.runtime.session_roles import found_pairs

from benchmarks.frontends.litert_suite import survived
from benchmarks.zoo.litert_models import ModelWriter, interpreted_runs, options

Array = npt.NDArray[Any]
NONE, RELU = 0, 1


def kept_runs(model: bytes, runs: list[list[Array]], target: str = "") -> list[list[Array]]:
    """What weft computes; each run takes what the one before it left of the variables."""
    source = LitertSource(model, "model")
    kept = [each.start for each in source.variables]
    loaded = weft.load(weft.compile(model, target=target)) if target else None
    names = [each.name for each in source.inputs({})]
    function = source.module().main
    results = []
    for arrays in runs:
        given = [*arrays, *kept]
        if loaded is not None:
            found = list(loaded.run(dict(zip(names, given, strict=True))).values())
        else:
            computed = evaluate_function(function, given)
            found = list(computed) if isinstance(computed, tuple) else [computed]
        count = len(found) - len(kept)
        results.append(found[:count])
        kept = found[count:]
    return results


def check(model: bytes, runs: list[list[Array]], target: str = "") -> None:
    for found, wanted in zip(kept_runs(model, runs, target), interpreted_runs(model, runs), strict=True):
        for one, other in zip(found, wanted, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            if other.dtype.kind == "f":
                np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5)
            else:
                np.testing.assert_array_equal(one, other)


def svdf(seed: int, *, int8: bool, rank: int = 2, steps: int = 5, bias: bool = True, activation: int = NONE,
         batch: int = 2, ties: bool = False, hybrid: bool = False) -> tuple[bytes, list[list[Array]]]:  # fmt: skip
    """A layer of 6 features and 3 units, and 8 runs of it. ``ties``: scales are powers of two, which makes halves. Of
    bytes the interpreter wants a rectifier, and does no more than keep them within int8."""
    chance, net = np.random.default_rng(seed), ModelWriter()
    filters, width = 3 * rank, 6
    made = options(
        "SVDFOptions", rank=rank, fusedActivationFunction=RELU if int8 else activation, asymmetricQuantizeInputs=False
    )

    def scale(low: float, high: float) -> float:
        found = float(chance.uniform(low, high))
        return 2.0 ** round(np.log2(found)) if ties else found

    if int8:
        scales = [scale(0.01, 0.05), scale(0.005, 0.02), scale(1e-4, 3e-4), scale(5e-5, 3e-4), scale(0.01, 0.05)]
        x = net.tensor((batch, width), "int8", scales[0], int(chance.integers(-20, 20)), name="x")
        features = net.tensor(
            (filters, width), "int8", scales[1], 0, data=chance.integers(-127, 128, (filters, width)).astype(np.int8)
        )
        times = net.tensor(
            (filters, steps),
            "int16",
            scales[2],
            0,
            data=chance.integers(-9000, 9000, (filters, steps)).astype(np.int16),
        )
        added = net.tensor(
            (3,), "int32", scales[2] * scales[3], 0, data=chance.integers(-(1 << 20), 1 << 20, 3).astype(np.int32)
        )
        state = net.tensor((batch, filters * steps), "int16", scales[3], 0, variable=True, name="state")
        y = net.tensor((batch, 3), "int8", scales[4], int(chance.integers(-20, 20)), name="y")
        runs = [[chance.integers(-128, 128, (batch, width)).astype(np.int8)] for _ in range(8)]
    else:
        x = net.tensor((batch, width), "float32", name="x")
        if hybrid:
            features = net.tensor(
                (filters, width), "int8", 0.01, 0, data=chance.integers(-127, 128, (filters, width)).astype(np.int8)
            )
        else:
            features = net.constant(chance.normal(size=(filters, width)), "float32")
        times, added = (net.constant(chance.normal(size=shape), "float32") for shape in ((filters, steps), (3,)))
        state = net.tensor((batch, filters * steps), "float32", variable=True, name="state")
        y = net.tensor((batch, 3), "float32", name="y")
        runs = [[chance.normal(size=(batch, width)).astype(np.float32)] for _ in range(8)]
    net.op("SVDF", [x, features, times, added if bias else -1, state], [y], made, 3 if int8 else 1)
    return net.finish([x], [y]), runs


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_svdf(steps: int, rank: int, bias: bool) -> None:
    for activation in (NONE, RELU):
        check(*svdf(steps, int8=False, rank=rank, steps=steps, bias=bias, activation=activation))


@pytest.mark.parametrize("steps", [1, 2, 9])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_svdf_of_bytes_is_the_interpreters(steps: int, ties: bool, seed: int) -> None:
    """Halves too, and sums that are cut off at the ends of int16."""
    check(*svdf(seed, int8=True, rank=1 + seed % 3, steps=steps, bias=seed % 2 == 0, batch=3, ties=ties))


def test_a_compiled_svdf_goes_on_from_run_to_run() -> None:
    for target in ("cpu", "accel"):
        check(*svdf(3, int8=True), target=target)
    check(*svdf(3, int8=False), target="cpu")


def counter(*, given: bool, changed: bool = True, name: str = "total") -> tuple[bytes, list[list[Array]]]:
    """total += x; y = 2 total. ``given``: the file has a first value."""
    net = ModelWriter()
    begin = net.body()
    handle = begin.tensor((), "resource")
    first = begin.constant(np.arange(3) * 1.5, "float32")
    begin.op("VAR_HANDLE", [], [handle], options("VarHandleOptions", container="", sharedName=name))
    begin.op("ASSIGN_VARIABLE", [handle, first], [])
    number = begin.number([], [])
    x = net.tensor((3,), "float32", name="x")
    handle, before, after, y = net.tensor((), "resource"), *(net.tensor((3,), "float32") for _ in range(3))
    if given:
        net.op("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=number))
    net.op("VAR_HANDLE", [], [handle], options("VarHandleOptions", container="", sharedName=name))
    net.op("READ_VARIABLE", [handle], [before])
    net.op("ADD", [before, x], [after], options("AddOptions"))
    if changed:
        net.op("ASSIGN_VARIABLE", [handle, after], [])
    net.op("ADD", [after, after], [y], options("AddOptions"))
    return net.finish([x], [y]), [[np.full(3, each, np.float32)] for each in (1, -2, 5)]


@pytest.mark.parametrize("target", ["", "cpu"])
def test_a_named_variable_begins_with_the_files_value(target: str) -> None:
    check(*counter(given=True), target=target)


def test_a_variable_that_no_run_changes_is_a_constant() -> None:
    model, runs = counter(given=True, changed=False)
    assert LitertSource(model, "model").variables == []
    check(model, runs)


def test_a_variable_that_has_no_value_is_refused() -> None:
    with pytest.raises(ModelError, match="the variable 'total' is read, but the file gives it no value"):
        LitertSource(counter(given=False, changed=False)[0], "model").module()


def test_a_variable_without_a_first_value_begins_with_zeros() -> None:
    (variable,) = LitertSource(counter(given=False)[0], "model").variables
    assert (variable.name, variable.output, variable.start.tolist()) == ("total", "next_total", [0, 0, 0])


def test_a_variable_named_like_an_input_has_another_name() -> None:
    source = LitertSource(counter(given=True, name="x")[0], "model")
    assert [each.name for each in source.inputs({})] == ["x", "x_state"]
    assert source.output_names[1:] == ("next_x_state",)


@pytest.mark.parametrize("flag", [False, True])
def test_a_branch_of_a_run_may_assign_a_variable(flag: bool) -> None:
    """total += x where c holds; y = total before it."""
    net = ModelWriter()
    bodies = []
    for assigns in (True, False):
        body = net.body()
        x, handle, before = body.tensor((3,), "float32"), body.tensor((), "resource"), body.tensor((3,), "float32")
        body.op("VAR_HANDLE", [], [handle], options("VarHandleOptions", container="", sharedName="total"))
        body.op("READ_VARIABLE", [handle], [before])
        if assigns:
            after = body.tensor((3,), "float32")
            body.op("ADD", [before, x], [after], options("AddOptions"))
            body.op("ASSIGN_VARIABLE", [handle, after], [])
        bodies.append(body.number([x], [before]))
    begin = net.body()
    handle, first = begin.tensor((), "resource"), begin.constant(np.arange(3), "float32")
    begin.op("VAR_HANDLE", [], [handle], options("VarHandleOptions", container="", sharedName="total"))
    begin.op("ASSIGN_VARIABLE", [handle, first], [])
    number = begin.number([], [])
    c, x, y = net.tensor((), "bool", name="c"), net.tensor((3,), "float32", name="x"), net.tensor((3,), "float32")
    net.op("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=number))
    net.op("IF", [c, x], [y], options("IfOptions", thenSubgraphIndex=bodies[0], elseSubgraphIndex=bodies[1]))
    ones = np.ones(3, np.float32)
    check(net.finish([c, x], [y]), [[np.array(each), ones] for each in (flag, True, False, flag)])


def test_named_variables_are_states_of_sessions() -> None:
    """An output that is called so becomes the input of the next run."""
    source = LitertSource(counter(given=True)[0], "model")
    ins = {each.name: TensorSpec(each.name, (3,), "float32") for each in source.inputs({})}
    outs = {name: TensorSpec(name, (3,), "float32") for name in source.output_names}
    assert [(output.name, source.name) for output, source in found_pairs(ins, outs)] == [("next_total", "total")]


def test_damaged_files_with_variables_are_refused_by_one_named_error_each() -> None:
    models = [svdf(1, int8=True)[0], svdf(1, int8=False)[0], counter(given=True)[0]]
    ends, wrong = survived(models, 300, seed=3)
    assert wrong == []
    assert min(ends["refused"], ends["read"]) > 20
