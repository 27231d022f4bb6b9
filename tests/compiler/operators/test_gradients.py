"""Every gradient rule against central differences, its own gradient too, and what the rules say where there are several
answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft.compiler.graph import Array, Call, Constant, TensorType, Unsupported, Var, operator, operators
from weft.compiler.graph.evaluate import evaluate
from weft.compiler.operators import contract, nn
from weft.compiler.operators.gradient_cases import Case, allowed_error, cases, differentiable, slope_error
from weft.compiler.passes.gradient import grad

CASES = {case.name: case for case in cases()}


@pytest.mark.parametrize("name", CASES)
def test_a_rule_gives_the_slope_and_its_own_gradient_does(name: str) -> None:
    case = CASES[name]
    first = grad(case.module, wrt=case.wrt, seed=True, values=False)
    assert slope_error(case.module, first) <= allowed_error(case.module)
    second = grad(first, wrt=case.wrt, seed=True, values=False)
    assert slope_error(first, second) <= allowed_error(case.module)


def test_every_rule_has_a_case() -> None:
    assert {entry.name for entry in differentiable()} == {case.op for case in CASES.values()}
    assert len(CASES) >= 200


def test_what_draws_itself_is_drawn_with_a_rule() -> None:
    drawn = {case.op for case in CASES.values() if "drawn" in case.name}
    assert drawn >= {entry.name for entry in differentiable() if entry.draw is not None}


def test_sizes_0_and_1_are_among_the_cases() -> None:
    shapes = [param.type.shape for case in CASES.values() for param in case.module.main.params]
    assert sum(0 in shape for shape in shapes) >= 5
    assert sum(1 in shape for shape in shapes) >= 20
    assert () in shapes


def test_a_wrong_rule_is_found() -> None:
    """The comparison itself: a gradient that is off by a thousandth is not that of central differences."""
    case = CASES["nn.tanh"]
    module, gradients = case.module, grad(case.module, wrt=case.wrt, seed=True, values=False)
    wrong = gradients.with_main(nn.multiply(gradients.main.body, Constant(np.array(1.001))))
    assert slope_error(module, gradients) <= allowed_error(module) < slope_error(module, wrong)


def test_what_has_no_rule_says_why_and_only_floats_have_one() -> None:
    for entry in operators():
        if isinstance(entry.gradient, Unsupported):
            assert entry.gradient.reason
    assert operator("nn.floor").gradient == Unsupported("the result is piecewise constant", is_zero=True)


# Subgradients, ties, and zeros


def gradient_at(node: Call, **values: Any) -> dict[str, Array]:
    case = Case("", node)
    arrays = {name: np.asarray(value, np.float64) for name, value in values.items()}
    seed = {"y": np.ones(node.shape)}
    return evaluate(grad(case.module, wrt=case.wrt, seed=seed, values=False), arrays)


def x(*shape: int, name: str = "x") -> Var:
    return Var(name, TensorType(shape, "float64"))


def test_a_limit_has_the_gradient_0_at_its_ends() -> None:
    found = gradient_at(nn.clip(x(5), low=0.0, high=6.0), x=[-1, 0, 3, 6, 7])
    np.testing.assert_array_equal(found["grad_x"], [0, 0, 1, 0, 0])


def test_equal_operands_share_a_maximum() -> None:
    for op in (nn.maximum, nn.minimum):
        found = gradient_at(op(x(3), x(3, name="z")), x=[1, 2, 3], z=[3, 2, 1])
        np.testing.assert_array_equal(found["grad_x"] + found["grad_z"], [1, 1, 1])
        assert found["grad_x"][1] == found["grad_z"][1] == 0.5


def test_equal_elements_share_the_extreme_of_a_reduction() -> None:
    found = gradient_at(nn.reduce_max(x(2, 3), axes=(1,)), x=[[1, 2, 2], [4, 3, 0]])
    np.testing.assert_array_equal(found["grad_x"], [[0, 0.5, 0.5], [1, 0, 0]])


def test_the_first_maximum_of_a_window_gets_all() -> None:
    image = np.zeros((1, 1, 2, 2))
    found = gradient_at(nn.max_pool(x(1, 1, 2, 2), kernel=(2, 2)), x=image)
    np.testing.assert_array_equal(found["grad_x"][0, 0], [[1, 0], [0, 0]])


def test_a_window_of_padding_alone_gets_nothing() -> None:
    for pads in ((2, 0, 0, 0), (0, 0, 0, 3)):
        pool = nn.max_pool(x(1, 1, 2, 2), kernel=(1, 1), pads=pads)
        np.testing.assert_array_equal(gradient_at(pool, x=np.ones((1, 1, 2, 2)))["grad_x"], np.ones((1, 1, 2, 2)))
        mean = nn.average_pool(x(1, 1, 2, 2), kernel=(1, 1), pads=pads)
        np.testing.assert_array_equal(gradient_at(mean, x=np.ones((1, 1, 2, 2)))["grad_x"], np.ones((1, 1, 2, 2)))


def test_magnitudes_have_the_gradient_0_at_0() -> None:
    np.testing.assert_array_equal(gradient_at(nn.abs(x(3)), x=[-2, 0, 2])["grad_x"], [-1, 0, 1])


@pytest.mark.parametrize("values", [[2, 3, 4], [0, 3, 4], [2, 0, 4], [0, 3, 0], [0, 0, 0]])
def test_products_of_zeros(values: list[float]) -> None:
    """The derivative of a product is that of the others, also where an element is 0."""
    array = np.array(values, np.float64)
    others = [np.prod(np.delete(array, i)) for i in range(3)]
    np.testing.assert_allclose(gradient_at(nn.reduce_product(x(3), axes=(0,)), x=array)["grad_x"], others)
    for exclusive in (False, True):
        for reverse in (False, True):
            product = nn.cumulative_product(x(3), axis=0, exclusive=exclusive, reverse=reverse)
            wanted = []
            for i in range(3):
                rows = np.tile(array, (2, 1))
                rows[:, i] += (0.5, -0.5)
                ends = [evaluate(Case("", product).module, {"x": row})["y"].sum() for row in rows]
                wanted.append(ends[0] - ends[1])  # a product is linear in each element
            np.testing.assert_allclose(gradient_at(product, x=array)["grad_x"], wanted)


def test_powers_at_0() -> None:
    found = gradient_at(nn.power(x(4), x(4, name="e")), x=[0, 0, 0, -2], e=[0, 1, 2, 2])
    np.testing.assert_array_equal(found["grad_x"], [0, 1, 0, -4])
    np.testing.assert_array_equal(found["grad_e"], [0, 0, 0, 0])


def test_of_updates_of_one_place_the_last_has_set_it() -> None:
    places = Constant(np.array([[1], [1], [0]]))
    found = gradient_at(contract.scatter_nd(x(3), places, x(3, name="u")), x=[1, 2, 3], u=[4, 5, 6])
    np.testing.assert_array_equal(found["grad_u"], [0, 1, 1])
    np.testing.assert_array_equal(found["grad_x"], [0, 0, 1])


def test_products_at_computed_places_are_exact_where_factors_are_0() -> None:
    places = Constant(np.array([[0], [0], [1], [1], [2]]))
    node = contract.scatter_nd(x(4), places, x(5, name="u"), reduction="multiply")
    found = gradient_at(node, x=[2, 3, 0, 5], u=[0, 7, 0, 0, 4])
    np.testing.assert_array_equal(found["grad_x"], [0, 0, 4, 1])
    np.testing.assert_array_equal(found["grad_u"], [14, 0, 0, 0, 0])


def test_at_a_whole_place_the_slope_is_that_towards_the_next() -> None:
    """As PyTorch has it; at a border where places are held, too, the next one is the same."""
    image = np.array([1.0, 4, 9, 16]).reshape(1, 1, 1, 4)
    for unit, slope in ((-1 / 3, 5), (-0.5, 3), (1.0, 0)):  # the places 1, 0.75 and 3, of which each is 1.5 units
        grid = np.array([unit, 0]).reshape(1, 1, 1, 2)
        node = nn.grid_sample(x(1, 1, 1, 4), x(1, 1, 1, 2, name="grid"), padding="border", align_corners=True)
        found = gradient_at(node, x=image, grid=grid)["grad_grid"].reshape(2)
        np.testing.assert_allclose(found, [1.5 * slope, 0])


def test_regions_that_are_computed_need_a_number_of_samples() -> None:
    which = Constant(np.zeros(1, np.int64))
    with pytest.raises(Exception, match="how many samples a region has follows from its size, which is computed"):
        gradient_at(nn.roi_align(x(1, 1, 4, 4), x(1, 4, name="rois"), which, size=(1, 1)), x=np.ones((1, 1, 4, 4)))
    empty = nn.roi_align(x(1, 1, 4, 4), Constant(np.array([[2.0, 0, 2, 1]])), which, size=(1, 1))
    with pytest.raises(Exception, match=r"the region \[2.0, 0.0, 2.0, 1.0\] is empty"):
        gradient_at(empty, x=np.ones((1, 1, 4, 4)))


def test_a_matrix_without_an_inverse_has_none() -> None:
    assert np.isnan(evaluate(Case("", nn.inverse(x(2, 2))).module, {"x": np.ones((2, 2))})["y"]).all()
