"""Models on whose course the values of integer inputs decide: they are compiled for the values that a run has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator
from weft.cli import app
from weft.compiler.frontends import NeedsValueError
from weft.compiler.targets.errors import CompileError
from weft.runtime.errors import InputError

HEAD = '<ir_version: 10, opset_import: ["" : 17]>\n'
RATES = """m (SIZES x, int64 rate, float[1] gain) => (float[A, B] y, float[1] louder) {
    high = Constant <value = int64 {16000}> ()
    test = Equal (rate, high)
    y = If (test) <
        then_branch = g1 () => (float[A, B] a) { a = ReduceSum <keepdims = 1> (x, last) },
        else_branch = g2 () => (float[A, B] b) { b = Exp (x) }
    >
    louder = Mul (gain, gain)
}"""
RESHAPED = """m (float[2, 6] x, int64[2] wanted) => (float[A, B] y) {
    rows = Reshape (x, wanted)
    y = Relu (rows)
}"""


def rates(sizes: str = "float[2, 5]") -> onnx.ModelProto:
    """A sum over the last axis at a rate of 16000, else as many elements as there were."""
    text = RATES.replace("SIZES", sizes)
    model = onnx.parser.parse_model(HEAD + text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1]), "last"))
    return model


def inputs(rate: int, rows: int = 2, columns: int = 5, seed: int = 0) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    return {"x": generator.standard_normal((rows, columns), np.float32), "rate": np.array(rate),
            "gain": generator.standard_normal(1, np.float32)}  # fmt: skip


def expected(model: onnx.ModelProto, values: dict[str, Any]) -> dict[str, Any]:
    names = [value.name for value in model.graph.output]
    return dict(zip(names, ReferenceEvaluator(model).run(None, values), strict=True))


@pytest.mark.parametrize("target", ["cpu", "opencl"])
@pytest.mark.parametrize("sizes", ["float[2, 5]", "float[N, 5]", "float[N, M]"])
def test_any_value_gives_what_the_standard_says(target: str, sizes: str) -> None:
    model = rates(sizes)
    module = weft.load(weft.compile(model, target=target))
    assert isinstance(module, weft.OpenModule)
    for rate in (16000, 8000, 0, 16000):
        values = inputs(rate)
        for name, wanted in expected(model, values).items():
            np.testing.assert_allclose(module.run(values)[name], wanted, rtol=1e-6)


@settings(max_examples=8, deadline=None)
@given(rows=st.integers(1, 12))
def test_a_shape_that_is_an_input(rows: int) -> None:
    model = onnx.parser.parse_model(HEAD + RESHAPED)
    module = weft.load(weft.compile(model, target="cpu"))
    values = {"x": np.arange(-6, 6, dtype=np.float32).reshape(2, 6), "wanted": np.array([rows, -1])}
    if 12 % rows:
        with pytest.raises(weft.WeftError, match="Reshape"):
            module.run(values)
    else:
        np.testing.assert_array_equal(module.run(values)["y"], np.maximum(values["x"], 0).reshape(rows, -1))


def test_a_value_is_compiled_for_once_and_inputs_that_decide_nothing_may_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = weft.compile(rates("float[N, 5]"), target="cpu")
    assert isinstance(compiled, weft.OpenModel)
    asked: list[int] = []
    at = compiled.at

    def counted(sizes: Any, values: Any) -> weft.CompiledModel:
        asked.append(int(values["rate"]))
        return at(sizes, values)

    object.__setattr__(compiled, "at", counted)
    module = weft.load(compiled)
    for seed, rate in enumerate((16000, 8000, 16000, 8000, 16000)):
        module.run(inputs(rate, seed=seed))
    assert asked == [16000, 8000]


def test_what_is_kept_is_not_the_callers_array() -> None:
    module = weft.load(weft.compile(rates(), target="cpu"))
    given = inputs(16000)
    module.run(given)
    given["rate"][...] = 8000
    np.testing.assert_allclose(module.run(given)["y"], np.exp(given["x"]), rtol=1e-6)


def test_values_of_the_wrong_type_or_missing_are_named() -> None:
    module = weft.load(weft.compile(rates(), target="cpu"))
    with pytest.raises(InputError, match=r"input 'rate' must be int64\[\], not float64\[\]"):
        module.run(inputs(16000) | {"rate": np.array(16000.0)})
    with pytest.raises(InputError, match="input 'rate' is missing"):
        module.run({name: value for name, value in inputs(16000).items() if name != "rate"})


def test_where_one_compiled_model_is_wanted_the_way_out_is_named(tmp_path: Path) -> None:
    compiled = weft.compile(rates(), target="cpu")
    assert isinstance(compiled, weft.OpenModel)
    assert compiled.decided_by == ("rate",)
    with pytest.raises(weft.WeftError, match=r"depends on the values of 'rate'; hint: build them in: .*'rate': VALUE"):
        weft.save(compiled, tmp_path / "m.weft")
    with pytest.raises((NeedsValueError, CompileError), match="the condition must be a constant"):
        weft.compile(rates(), target="accel")


def test_large_inputs_and_floats_are_not_built_in() -> None:
    many = RESHAPED.replace("int64[2] wanted", "int64[65, 2] all").replace(
        "rows =", "first = Constant <value = int64[1] {0}> ()\n row = Gather (all, first)\n"
        "two = Constant <value = int64[1] {2}> ()\n wanted = Reshape (row, two)\n rows ="
    )  # fmt: skip
    with pytest.raises(NeedsValueError, match="the new shape must be a constant"):
        weft.compile(onnx.parser.parse_model(HEAD + many), target="cpu")


def test_the_command_runs_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, given, results = tmp_path / "m.onnx", tmp_path / "given.npz", tmp_path / "results.npz"
    onnx.save(rates(), path)
    values = inputs(16000)
    np.savez(given, **values)
    app(["run", str(path), "--target", "cpu", "--input", str(given), "--output", str(results)], standalone_mode=False)
    with np.load(results) as found:
        np.testing.assert_allclose(found["y"], values["x"].sum(-1, keepdims=True), rtol=1e-6)
    app(["run", str(path), "--target", "cpu"], standalone_mode=False)  # with random inputs
    assert "ms a run" in capsys.readouterr().out


def test_what_floats_of_a_run_decide_may_follow() -> None:
    """Where the course is known, the rest is cut as any model is."""
    text = RATES.replace("float[1] louder) {", "float[1] louder, int64[A, C] where) {")
    text = text.replace("    louder =", "    where = NonZero (y)\n    louder =").replace("SIZES", "float[2, 5]")
    model = onnx.parser.parse_model(HEAD + text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1]), "last"))
    module = weft.load(weft.compile(model, target="cpu"))
    for rate in (16000, 8000):
        values = inputs(rate)
        values["x"][0] = 0
        for name, wanted in expected(model, values).items():
            np.testing.assert_allclose(module.run(values)[name], wanted, rtol=1e-6)
