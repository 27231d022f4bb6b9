"""`weft.grad`: gradients of modules as modules; what it shares, what it refuses, and what is given instead of rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.graph import (
    Array,
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    GraphError,
    Module,
    Span,
    TensorType,
    Tuple,
    Var,
    call,
    calls,
    constant_table,
    evaluate,
    parse,
    to_text,
)
from weft.compiler.graph.pattern import Match, any_value, op
from weft.compiler.operators import NoGradientError, contract, nn, through
from weft.compiler.operators.gradient_cases import allowed_error, slope_error
from weft.compiler.passes import PassManager, cse, dce, fold_constants, simplify
from weft.compiler.passes.gradient import GradientError, tidied


def x(*shape: int, name: str = "x", dtype: str = "float64") -> Var:
    return Var(name, TensorType(shape, dtype))


def module_of(*results: Expr, params: tuple[Var, ...], names: tuple[str, ...] = ("y",)) -> Module:
    body = results[0] if len(results) == 1 else Tuple(results)
    return Module(Function(params, body, Attrs({"name": "main", "outputs": names})))


def ops(module: Module) -> list[str]:
    return [str(node.op) for node in calls(module.main.body)]


def mlp() -> Module:
    """A loss of two layers, whose weights are inputs."""
    data, w, b, v = x(5, 3), x(3, 4, name="w"), x(4, name="b"), x(4, 2, name="v")
    hidden = nn.tanh(nn.add(nn.matmul(data, w), b))
    scores = nn.softmax(nn.matmul(hidden, v), axis=1)
    loss = nn.negative(nn.reduce_mean(nn.log(scores), axes=(0, 1)))
    return module_of(loss, scores, params=(data, w, b, v), names=("loss", "scores"))


def values(module: Module, seed: int = 0) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    return {param.name: generator.normal(size=param.type.shape) for param in module.main.params}


# What it gives


def test_the_gradients_are_outputs_behind_the_modules_own() -> None:
    module = mlp()
    result = weft.grad(module, wrt=("w", "v"), of="loss")
    assert result.main.output_names == ("loss", "scores", "grad_w", "grad_v")
    assert [str(each.type) for each in result.main.results[2:]] == ["float64[3, 4]", "float64[4, 2]"]
    assert result.stage == "source"
    alone = weft.grad(module, wrt="w", of="loss", values=False)
    assert alone.main.output_names == ("grad_w",)
    given = values(module)
    found, before = evaluate(result, given), evaluate(module, given)
    for name in ("loss", "scores"):
        np.testing.assert_array_equal(found[name], before[name])
    np.testing.assert_array_equal(found["grad_w"], evaluate(alone, given)["grad_w"])


def test_all_inputs_of_floats_by_default_and_several_outputs_are_summed() -> None:
    a, b = x(2, name="a"), x(2, name="b", dtype="int64")
    module = module_of(nn.multiply(a, a), nn.exp(a), params=(a, b), names=("p", "q"))
    result = weft.grad(module, seed=True)
    assert [param.name for param in result.main.params] == ["a", "b", "seed_p", "seed_q"]
    assert result.main.output_names == ("p", "q", "grad_a")
    given = {"a": np.array([1.0, 2.0]), "b": np.zeros(2, np.int64), "seed_p": np.array([1.0, 0.0]),
             "seed_q": np.array([0.0, 3.0])}  # fmt: skip
    np.testing.assert_allclose(evaluate(result, given)["grad_a"], [2.0, 3 * np.exp(2.0)])


def test_seeds_may_be_constants() -> None:
    a = x(3)
    result = weft.grad(module_of(nn.multiply(a, a), params=(a,)), seed={"y": np.array([1.0, 0.0, 2.0])})
    np.testing.assert_array_equal(evaluate(result, {"x": np.array([1.0, 2.0, 3.0])})["grad_x"], [2, 0, 12])


def test_a_value_that_is_used_often_gets_the_sum() -> None:
    a = x()
    cube = nn.multiply(nn.multiply(a, a), a)
    module = module_of(nn.add(cube, nn.add(a, a)), params=(a,))
    assert evaluate(weft.grad(module), {"x": np.array(2.0)})["grad_x"] == 14


def test_where_no_path_leads_the_gradient_is_0() -> None:
    a, b = x(2, name="a"), x(3, name="b")
    picked = contract.gather(nn.reduce_sum(a, axes=(0,), keepdims=True), nn.arg_max(b, axis=0))
    steps = nn.add(nn.multiply(picked, nn.floor(nn.reduce_sum(b, axes=(0,)))), picked)
    found = evaluate(weft.grad(module_of(steps, params=(a, b))), {"a": np.ones(2), "b": np.ones(3)})
    np.testing.assert_array_equal(found["grad_b"], np.zeros(3))
    np.testing.assert_array_equal(found["grad_a"], [4, 4])


def test_what_is_differentiated_by_is_not_looked_through() -> None:
    """Equal values that are computed twice count once, and both inputs of an operator may be the same."""
    a = x(2)
    module = module_of(nn.reduce_sum(nn.multiply(nn.exp(a), nn.exp(x(2))), axes=(0,)), params=(a,))
    np.testing.assert_allclose(evaluate(weft.grad(module), {"x": np.zeros(2)})["grad_x"], [2, 2])


def test_gradients_of_gradients() -> None:
    a = x()
    module = module_of(nn.sin(nn.multiply(a, a)), params=(a,))
    first = weft.grad(module, of="y")
    second = weft.grad(first, of="grad_x")
    third = weft.grad(second, of="grad_grad_x", values=False)
    assert second.main.output_names == ("y", "grad_x", "grad_grad_x")
    t = 0.7
    found = evaluate(second, {"x": np.array(t)})
    np.testing.assert_allclose(found["grad_x"], 2 * t * np.cos(t * t))
    np.testing.assert_allclose(found["grad_grad_x"], 2 * np.cos(t * t) - 4 * t * t * np.sin(t * t))
    slope = (-12 * t * np.sin(t * t)) - 8 * t**3 * np.cos(t * t)
    np.testing.assert_allclose(evaluate(third, {"x": np.array(t)})["grad_x"], slope)


def test_a_gradient_is_a_graph_as_any_other() -> None:
    module = mlp()
    result = weft.grad(module, of="loss")
    assert parse(to_text(result), constant_table(result)) == result
    PassManager((fold_constants, simplify, cse, dce), check=True).run(result)
    given = values(module)
    loaded = weft.load(weft.compile(result, target="cpu"))
    for name, wanted in evaluate(result, given).items():
        np.testing.assert_allclose(loaded.run(given)[name], wanted, rtol=1e-10, atol=1e-12)
    error = slope_error(module, weft.grad(module, wrt=("w", "b", "v"), of="loss", seed=True))
    assert error <= allowed_error(module)


# What it costs


def test_forward_values_are_used_again() -> None:
    result = weft.grad(mlp(), wrt=("w", "b", "v"), of="loss")
    names = ops(result)
    assert names.count("nn.tanh") == names.count("nn.softmax") == 1
    assert names.count("nn.matmul") == 2 + 3
    assert "expand" not in names  # an elementwise operator broadcasts by itself


def test_a_gradient_that_nobody_asked_for_is_not_computed() -> None:
    assert ops(weft.grad(mlp(), wrt="v", of="loss")).count("nn.matmul") == 2 + 1


def test_the_calls_of_a_gradient_know_the_users_nodes_but_make_none_of_his_tensors() -> None:
    a = x(3)
    body = nn.sin(nn.exp(a, span=Span(("first",), "h")), span=Span(("second",), "y"))
    result = weft.grad(module_of(body, params=(a,)), seed=True)
    spans = {str(node.op): node.span for node in calls(result.main.results[1])}
    assert spans["nn.cos"] == Span(("second",))
    assert {node.span.tensor for node in calls(result.main.body) if node.span.tensor} == {"h", "y"}
    assert all(node.span.nodes for node in calls(result.main.body))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda a, b: nn.multiply(a, contract.expand(b, shape=(2, 3))), lambda a, b: nn.multiply(a, b)),
        (lambda a, b: nn.add(a, nn.negative(b)), nn.subtract), (lambda a, b: nn.subtract(a, nn.negative(b)), nn.add),
        (lambda a, b: nn.add(nn.negative(b), a), nn.subtract),
        (lambda a, b: nn.add(nn.negative(nn.negative(a)), b), nn.add),
        (lambda a, b: nn.add(contract.slice(a, starts=(0, 0), sizes=(2, 3), steps=(1, 1)), b), nn.add),
        (lambda a, b: nn.add(contract.expand(contract.reshape(contract.expand(b, shape=(1, 3)), shape=(1, 1, 3)),
         shape=(2, 2, 3)), a), lambda a, b: nn.add(contract.expand(b, shape=(2, 2, 3)), a)),
    ],
)  # fmt: skip
def test_algebra_that_gradients_need(before: Expr, after: Expr) -> None:
    a, b = x(2, 3, name="a"), x(3, name="b")
    assert tidied(module_of(before(a, b), params=(a, b))) == tidied(module_of(after(a, b), params=(a, b)))  # type: ignore[operator]


def test_a_slice_backwards_is_kept() -> None:
    a = x(3)
    turned = module_of(contract.slice(a, starts=(2,), sizes=(3,), steps=(-1,)), params=(a,))
    assert tidied(turned) == turned


# What it refuses


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wrt": "q"}, r"there is no input 'q'; hint: the inputs are: x, w, b, v"),
        ({"of": "q"}, r"there is no output 'q'; hint: the outputs are: loss, scores"),
        ({"of": "scores"}, r"output 'scores' is float64\[5, 2\], and only one number has a gradient; hint: seed=True"),
        ({}, r"output 'scores' is .* only one number has a gradient"),
        ({"wrt": ("w", "w"), "of": "loss"}, r"'w' is named twice"),
        ({"wrt": (), "of": "loss"}, r"no name is given"),
        ({"of": "loss", "seed": {"scores": np.ones((5, 2))}}, r"a seed is for 'scores', which is not differentiated"),
        ({"of": ("loss", "scores"), "seed": {"loss": np.ones(())}}, r"there is no seed for 'scores'"),
        ({"of": "scores", "seed": {"scores": np.ones(3)}}, r"the seed of 'scores' is float64\[3\], but the output is"),
    ],
)
def test_bad_requests_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(GradientError, match=message):
        weft.grad(mlp(), **arguments)  # type: ignore[arg-type]


def test_only_floats_have_gradients() -> None:
    a, b = x(2, name="a"), x(2, name="b", dtype="int64")
    module = module_of(nn.reduce_sum(a, axes=(0,)), nn.add(b, b), params=(a, b), names=("p", "q"))
    with pytest.raises(GradientError, match=r"input 'b' is int64\[2\]: only floats have .* hint: those are: a"):
        weft.grad(module, wrt="b", of="p")
    with pytest.raises(GradientError, match=r"output 'q' is int64\[2\]: only floats .* hint: those are: p"):
        weft.grad(module, of="q", seed=True)
    with pytest.raises(GradientError, match=r"no input is of floats"):
        weft.grad(module_of(nn.add(b, b), params=(b,)))


def test_other_stages_and_things_are_refused() -> None:
    module = mlp()
    with pytest.raises(GradientError, match=r"a module at stage 'operators' has no gradient; hint: differentiate"):
        weft.grad(Module(module.main, "operators"), of="loss")
    with pytest.raises(GradientError, match=r"'model.onnx' is no module of the graph IR; hint: .*from_onnx"):
        weft.grad("model.onnx")  # type: ignore[arg-type]


def test_an_input_of_the_name_of_a_seed_is_refused() -> None:
    a = x(2, name="seed_y")
    with pytest.raises(GradientError, match=r"an input has the name 'seed_y' already"):
        weft.grad(module_of(nn.exp(a), params=(a,)), seed=True)


# What is missing


def quantised(a: Expr, name: str) -> Expr:
    scale, zero = Constant(np.array(0.5, np.float32)), Constant(np.array(0, np.int8))
    small = call("quantise", a, scale, zero, span=Span((name,)))
    return call("dequantise", small, scale, zero, span=Span((name + "_back",)))


def test_all_that_is_missing_is_listed_at_once() -> None:
    """Also behind the first that blocks, and where only integers lead on."""
    image, rois = x(1, 1, 4, 4, dtype="float32"), x(1, 4, name="rois", dtype="float32")
    which = Constant(np.zeros(1, np.int64))
    sampled = nn.roi_align(quantised(image, "quantise1"), rois, which, size=(2, 2), span=Span(("regions",)))
    module = module_of(nn.reduce_sum(quantised(sampled, "quantise2"), axes=(0, 1, 2, 3)), params=(image, rois))
    with pytest.raises(GradientError, match="3 operators on the way have no gradient") as error:
        weft.grad(module)
    lines = str(error.value).splitlines()[1:]
    places = [
        "quantise (node 'quantise1'): rounding",
        "nn.roi_align (node 'regions'):",
        "quantise (node 'quantise2'):",
    ]
    assert [line.strip()[: len(place)] for line, place in zip(lines, places, strict=False)] == places
    assert "hint: give a custom gradient for it" in str(error.value)
    with pytest.raises(GradientError, match=r"2 operators on the way have no gradient"):
        weft.grad(module, wrt="rois")
    assert isinstance(error.value, weft.WeftError)


def test_what_does_not_lead_to_an_input_may_miss_its_rule() -> None:
    a, b = x(2, name="a", dtype="float32"), x(2, name="b", dtype="float32")
    module = module_of(nn.reduce_sum(nn.multiply(a, quantised(b, "q")), axes=(0,)), params=(a, b))
    weft.grad(module, wrt="a")
    with pytest.raises(GradientError, match="an operator on the way has no gradient"):
        weft.grad(module, wrt="b")


def test_types_for_storage_alone_block() -> None:
    a = x(2, dtype="float32")
    small = nn.cast(nn.cast(a, to="float8_e4m3fn"), to="float32")
    with pytest.raises(GradientError, match=r"nn\.cast .*: float8_e4m3fn is for storage and has no arithmetic"):
        weft.grad(module_of(small, params=(a,)), seed=True)


# Custom gradients


def straight_through(upstream: Expr, match: Match) -> dict[str, Expr]:
    return {"x": upstream}


STRAIGHT_THROUGH = weft.CustomGradient(
    op("dequantise", op("quantise", any_value("x"), any_value(), any_value()), any_value(), any_value()),
    straight_through,
)


def test_a_custom_gradient_goes_before_the_rules() -> None:
    a = x(2, dtype="float32")
    module = module_of(nn.reduce_sum(nn.multiply(quantised(a, "q"), a), axes=(0,)), params=(a,))
    result = weft.grad(module, custom=[STRAIGHT_THROUGH], values=False)
    found = evaluate(result, {"x": np.array([0.6, 1.1], np.float32)})["grad_x"]
    np.testing.assert_allclose(found, [0.5 + 0.6, 1.0 + 1.1], rtol=1e-6)


def test_a_custom_gradient_may_serve_values_inside_and_use_the_match() -> None:
    a = x(3)
    stable = weft.CustomGradient(
        op("nn.log", op("nn.softmax", any_value("scores"), name="chances")),
        lambda g, m: {"scores": nn.subtract(g, nn.multiply(m["chances"], nn.reduce_sum(g, axes=(0,), keepdims=True)))},
    )
    module = module_of(nn.log(nn.softmax(a, axis=0)), params=(a,))
    own, custom = (
        weft.grad(module, seed=True, values=False),
        weft.grad(module, seed=True, values=False, custom=[stable]),
    )
    given = {"x": np.array([0.1, 2.0, -1.0]), "seed_y": np.array([1.0, -0.5, 2.0])}
    np.testing.assert_allclose(evaluate(custom, given)["grad_x"], evaluate(own, given)["grad_x"])
    assert "nn.divide" not in ops(custom)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda g, m: {"z": g}, r"a custom gradient is for 'z', which is no value .* hint: its names are: x"),
        (lambda g, m: {"out": g}, r"a custom gradient is for 'out', which"),
        (lambda g, m: {"x": nn.cast(g, to="float32")}, r"gives float32\[2\] for an operand float64\[2\]"),
        (
            lambda g, m: {"x": contract.slice(g, starts=(0,), sizes=(1,), steps=(1,))},
            r"gives float64\[1\] for an operand",
        ),
    ],
)
def test_a_wrong_custom_gradient_is_refused(rule: object, message: str) -> None:
    a = x(2)
    custom = weft.CustomGradient(op("nn.exp", any_value("x"), name="out"), rule)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=message):
        weft.grad(module_of(nn.exp(a), params=(a,)), seed=True, custom=[custom])


# Constants become inputs


def test_constants_become_inputs_that_train() -> None:
    """Two biases of zeros are equal constants, but two inputs."""
    data = x(1, 2)
    w = Constant(np.array([[1.0, 2.0], [3.0, 4.0]]), "w")
    b1, b2 = Constant(np.zeros(2), "b1"), Constant(np.zeros(2), "b2")
    body = nn.add(nn.tanh(nn.add(nn.matmul(data, w), b1)), b2)
    module = module_of(nn.reduce_sum(body, axes=(0, 1)), params=(data,))
    with pytest.raises(GradientError, match=r"there is no input 'w'; hint: 'w' is a constant: .*lift_constants"):
        weft.grad(module, wrt="w")
    lifted, start = weft.lift_constants(module)
    assert [param.name for param in lifted.main.params] == ["x", "w", "b1", "b2"]
    given = {"x": np.array([[0.1, 0.2]]), **start}
    assert evaluate(lifted, given)["y"] == evaluate(module, {"x": given["x"]})["y"]
    found = evaluate(weft.grad(lifted, wrt=("b1", "b2")), given)
    np.testing.assert_array_equal(found["grad_b2"], [1, 1])
    assert not np.allclose(found["grad_b1"], 1)
    one, _ = weft.lift_constants(module, ["b2"])
    assert [param.name for param in one.main.params] == ["x", "b2"]


def test_names_that_do_not_fit_are_refused() -> None:
    data = x(2)
    first, second = Constant(np.ones(2), "w"), Constant(np.zeros(2), "w")
    with pytest.raises(GradientError, match=r"two different constants have the name 'w'"):
        weft.lift_constants(module_of(nn.add(nn.add(data, first), second), params=(data,)))
    module = module_of(nn.add(data, Constant(np.ones(2), "x")), params=(data,))
    with pytest.raises(GradientError, match=r"an input has the name 'x' already"):
        weft.lift_constants(module)
    with pytest.raises(GradientError, match=r"no constant of floats has the name 'q'; hint: those are: x"):
        weft.lift_constants(module, ["q"])


# The manual


def test_the_examples_of_the_page_run() -> None:
    page = (Path(__file__).parents[3] / "docs" / "gradients.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert len(blocks) == 3
    assert names["step"].main.output_names == ("output0", "grad_w")
    result = names["model"].run({"x": np.ones((8, 4), np.float32), "w": np.eye(4, 3, dtype=np.float32)})
    assert result["grad_w"].shape == (4, 3)
    a = x(2, dtype="float32")
    around = weft.grad(module_of(quantised(a, "q"), params=(a,)), seed=True, custom=[names["straight_through"]])
    assert around.main.results[1] == around.main.params[1]


def test_an_operator_that_equals_a_graph_is_differentiated_through_it() -> None:
    rule = through(lambda a, b, factor: nn.multiply(nn.sigmoid(nn.multiply(a, b)), Constant(np.array(factor))))
    a, upstream = x(2), x(2, name="upstream")
    node = Call("my.op", (a, a), Attrs({"factor": 3.0}), a.type)
    first, second = rule(upstream, node)
    assert first is not None
    assert second is not None
    module = module_of(nn.add(first, second), params=(a, upstream))
    chance = 1 / (1 + np.exp(-0.25))
    found = evaluate(module, {"x": np.full(2, 0.5), "upstream": np.ones(2)})["y"]
    np.testing.assert_allclose(found, 2 * 3 * 0.5 * chance * (1 - chance))
    which = Constant(np.zeros(1, np.int64))
    blocked = through(lambda a: nn.roi_align(a, Constant(np.zeros((1, 4))), which, size=(1, 1)))
    with pytest.raises(NoGradientError, match=r"a part of it has none: nn\.roi_align .*is empty"):
        blocked(x(1, 1, 1, 1), Call("my.op", (x(1, 1, 2, 2),), Attrs({}), TensorType((1, 1, 1, 1), "float64")))
