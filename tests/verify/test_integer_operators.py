"""Products with ones and zeros are moves where no sum can leave a byte, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Var, call, evaluate
from weft.verify.integer_operators import Context, as_function_of_byte, of_byte, product
from weft.verify.keyed import Keys
from weft.verify.values import OneByte, Value, constant_value, known
from weft.verify.verifier import unequal_outputs

IMAGES, CHANNELS, OUTPUTS, SIDES = 2, 4, 3, (2, 2)
PIXELS = SIDES[0] * SIDES[1]
X = Var("x", TensorType((IMAGES, CHANNELS, OUTPUTS, 1), "int8"))
SHIFT = 23


def module(body: Expr) -> Module:
    return Module(Function((X,), body, Attrs({"name": "main", "outputs": ("y",)})), "integer")


def picked(places: np.ndarray) -> Module:
    """Channel places[n, pixel] of every output of image n, as moves."""
    parts = [
        call(
            "gather",
            call("slice", X, starts=(n, 0, 0, 0), sizes=(1, *X.type.shape[1:]), steps=(1,) * 4),
            Constant(places[n]),
            axis=1,
        )
        for n in range(IMAGES)
    ]
    every = call("concat", *parts, axis=0)  # (N, pixels, outputs, 1)
    return module(call("reshape", call("transpose", every, perm=(0, 2, 1, 3)), shape=(IMAGES, OUTPUTS, *SIDES)))


def one_hot(places: np.ndarray) -> np.ndarray:
    """(N, C, H, W): a one in the channel that each pixel picks."""
    found = np.zeros((IMAGES, PIXELS, CHANNELS), np.int8)
    np.put_along_axis(found, places[:, :, None], 1, 2)
    return found.transpose(0, 2, 1).reshape(IMAGES, CHANNELS, *SIDES)


def multiplied(
    ones: np.ndarray, bias: int = 0, multiplier: int = 1 << SHIFT, shift: int = SHIFT, zero_points: Any = (0, 0),
    **attrs: int,
) -> Module:  # fmt: skip
    """The same as a product and a requantise by 1."""
    made = call("product", Constant(ones), X, depth=CHANNELS, outputs=OUTPUTS, zero_points=zero_points)
    parameters = (Constant(np.full(OUTPUTS, each, np.int32)) for each in (bias, multiplier, shift))
    return module(call("requantise", made, *parameters, **attrs))


def is_proved(first: Module, second: Module) -> bool:
    return not unequal_outputs(first, second, Keys(7))


def are_equal(first: Module, second: Module) -> bool:
    """For inputs at all ends and in between."""
    random = np.random.default_rng(3)
    inputs = [random.integers(-128, 128, X.type.shape) for _ in range(30)]
    inputs += [random.choice([-128, 127], X.type.shape) for _ in range(30)]
    return all(
        (evaluate(first, {"x": x.astype(np.int8)})["y"] == evaluate(second, {"x": x.astype(np.int8)})["y"]).all()
        for x in inputs
    )


PLACES = np.random.default_rng(0).integers(0, CHANNELS, (IMAGES, PIXELS))
ONES = one_hot(PLACES)


def changed(image: int, channel: int, value: int) -> np.ndarray:
    ones = ONES.copy()
    ones[image, (PLACES[image, 0] + channel) % CHANNELS, 0, 0] = value
    return ones


def test_a_product_with_ones_that_pick_is_a_move() -> None:
    moves = picked(PLACES)
    assert are_equal(moves, multiplied(ONES))
    assert is_proved(moves, multiplied(ONES))
    assert is_proved(moves, multiplied(ONES, multiplier=1 << 10, shift=10))
    moved = multiplied(ONES - 3, zero_points=(-3, 0))  # the same ones
    assert are_equal(moves, moved)
    assert is_proved(moves, moved)


FAULTS: dict[str, dict[str, Any]] = {
    "a two": {"ones": changed(0, 0, 2)},
    "two ones in a row": {"ones": changed(1, 1, 1)},
    "no one": {"ones": changed(1, 0, 0)},
    "minus one": {"ones": changed(0, 0, -1)},
    "a one and minus one": {"ones": changed(0, 2, -1)},
    "another channel": {"ones": one_hot((PLACES + 1) % CHANNELS)},
    "clipped above": {"high": 126},
    "clipped below": {"low": -127},
    "a bias": {"bias": 1},
    "a zero point of the result": {"zero_point": 1},
    "a zero point of the ones": {"zero_points": (1, 0)},
    "a zero point of the data": {"zero_points": (0, 1)},
    "a little less than one": {"multiplier": (1 << SHIFT) - (1 << 15)},
    "negated": {"multiplier": -(1 << SHIFT)},
    "halved": {"shift": SHIFT + 1},
    "doubled": {"shift": SHIFT - 1},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_such_a_product_is_found(fault: str) -> None:
    faulty = multiplied(**{"ones": ONES, **FAULTS[fault]})
    assert not are_equal(picked(PLACES), faulty)
    assert not is_proved(picked(PLACES), faulty)


def test_a_factor_that_changes_no_byte_is_one() -> None:
    """It is judged by its 256 results."""
    assert is_proved(picked(PLACES), multiplied(ONES, multiplier=(1 << SHIFT) + 1))


@pytest.mark.parametrize("seed", range(12))
def test_what_is_proved_of_products_with_small_numbers_is_equal(seed: int) -> None:
    """Sums of several, clipped or not: rows of any small numbers against rows of the same, each with its factor."""
    random = np.random.default_rng(seed)
    numbers = random.choice([-1, 0, 0, 1], ONES.shape).astype(np.int8)
    numbers = ONES if seed % 3 == 0 else numbers
    first, second = (
        multiplied(numbers, multiplier=1 << SHIFT + more, shift=SHIFT + more, high=high)
        for more, high in ((0, 127), (int(random.integers(2)), int(random.choice([127, 90]))))
    )
    if is_proved(first, second):
        assert are_equal(first, second)


@pytest.mark.parametrize("seed", range(20))
def test_bounds_of_a_product_hold_for_all_that_its_operands_may_be(seed: int) -> None:
    """Against the sums of operands at their ends; of a constant each row is known, which no bound is looser than."""
    random, keys = np.random.default_rng(seed), Keys(seed)
    zero_points = tuple(int(each) for each in random.integers(-128, 128, 2))
    ends = np.sort(random.integers(-128, 128, (2, 2)), 1)
    x = random.integers(ends[0, 0], ends[0, 1] + 1, (1, CHANNELS, *SIDES))
    w = random.integers(ends[1, 0], ends[1, 1] + 1, (1, CHANNELS, OUTPUTS, 1))
    values: list[Value] = []
    for number, (numbers, end) in enumerate(zip((x, w), ends, strict=True)):
        computed = known(keys.atoms(numbers.shape, number), int(end[0]), int(end[1]))
        values.append(constant_value(numbers) if seed % 3 == number else computed)
    found = product(Context(keys, one_byte=True), values, (), {"zero_points": zero_points, "outputs": OUTPUTS})
    for _ in range(50):
        drawn = [
            numbers if seed % 3 == number else random.choice(end, numbers.shape)
            for number, (numbers, end) in enumerate(zip((x, w), ends, strict=True))
        ]
        first, second = (each - zero for each, zero in zip(drawn, zero_points, strict=True))
        sums = np.einsum("nchw,nco->nohw", first, second[..., 0])
        assert found.low <= sums.min()
        assert sums.max() <= found.high


def test_degrees_do_not_grow_behind_the_back_of_a_byte() -> None:
    """A product of small products fits a byte, but as its function it would count as degree 2."""
    keys = Keys(1)
    context = Context(keys, one_byte=True)
    attrs = {"zero_points": (0, 0), "outputs": 2}
    small = product(context, [known(keys.atoms((1, 2, 2, 1), number), 0, 1) for number in range(2)], (), attrs)
    assert (small.low, small.high, small.degree) == (0, 2, 2)
    function = as_function_of_byte(small)
    assert function is not None
    assert (function.base_degree, of_byte(function, keys).degree) == (2, 2)
    larger = product(context, [small, small], (), attrs)
    assert (larger.high, larger.degree) == (8, 4)
    assert as_function_of_byte(larger) is None


def test_the_size_of_a_straight_function_is_that_of_its_base_times_the_slope() -> None:
    keys = Keys(2)
    base = keys.atoms((1, 2, 1, 1), "base")
    for table, size in ((np.arange(256) * 3 - 5, 3 * 7 + 760), (np.array([9]), 1 + 9)):
        function = OneByte(base, table[:, None], base_size=7.0)
        assert function.size == size
        assert of_byte(function, keys).size == size
