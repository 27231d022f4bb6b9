"""Kernels make what they make shortly before it is read, and state may be replaced as before."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Attrs, Call, Expr, Function, Module, TensorType, Tuple, Var, call
from weft.compiler.operators.random_graphs import random_graph
from weft.compiler.targets.cpu.kernels import loop_target
from weft.compiler.targets.cpu.processor import host_target
from weft.compiler.targets.loops.fusion import FusedGroup, nbytes, roots_of
from weft.compiler.targets.loops.order import Later, Row
from weft.compiler.targets.loops.prepare import prepare
from weft.compiler.targets.memory_plan import Lifetime, aligned, most_alive, plan_memory, plan_tightly

TARGET = loop_target(host_target())
X = Var("x", TensorType((64, 64), "float32"))
W = Var("w", TensorType((64, 64), "float32"))


def module_of(*results: Expr) -> Module:
    names = tuple(f"y{number}" for number in range(len(results)))
    body = results[0] if len(results) == 1 else Tuple(results)
    return Module(Function((X, W), body, Attrs({"outputs": names})))


def operators(groups: list[FusedGroup]) -> list[str]:
    return [str((group.anchor or group.root).op) for group in groups]


def softmax(x: Expr) -> Call:
    return call("nn.softmax", x, axis=1)


def product(x: Expr, y: Expr) -> Call:
    return call("nn.matmul", x, y)


def turned(x: Expr) -> Call:
    return call("transpose", x, perm=(1, 0))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_kernels_of_any_graph_come_behind_what_they_read(seed: int) -> None:
    module = prepare(random_graph(seed).module)
    groups = TARGET.groups(module.main.body)
    assert len(set(groups)) == len(groups)
    made: set[Expr] = set()
    for group in groups:
        assert all(root in made for value in group.inputs for root in roots_of(value) if isinstance(root, Call))
        made.add(group.root)
    assert all(root in made for value in module.main.results for root in roots_of(value) if isinstance(root, Call))


def by_comparing(later: Later) -> list[FusedGroup]:
    """The same order, found by comparing each kernel with all that are placed."""
    placed: list[FusedGroup] = []
    for group in reversed(later.groups):
        types = {source.type for source in map(later.source, group.inputs) if isinstance(source, Var)}
        stops = (
            at for at, other in enumerate(placed)
            if group.root in later.read[other] or (other.root in later.results and other.root.type in types)
        )  # fmt: skip
        at = next(stops, 0) if later.may_move(group) else 0
        if at and not group.is_alias:
            behind = {value for other in placed[at:] for value in later.sources[other]}
            at = at if nbytes(group.root) >= sum(map(nbytes, later.sources[group] - behind)) else 0
        placed.insert(at, group)
    return placed


def woven(seed: int) -> Expr:
    """Kernels that read what was made long before, of results large and small."""
    random = Random(seed)
    values: list[Expr] = [softmax(product(X, W)), softmax(X)]
    small: list[Expr] = [call("nn.reduce_sum", softmax(W), axes=(0, 1), keepdims=True)]
    for _ in range(12):
        value = random.choice(values)
        match random.randrange(5):
            case 0:
                small.append(call("nn.reduce_sum", softmax(value), axes=(random.randrange(2),), keepdims=True))
            case 1:
                values.append(softmax(call("nn.multiply", value, random.choice(small))))
            case 2:
                values.append(turned(softmax(value)))
            case 3:
                values.append(call("concat", softmax(value), random.choice(values), axis=0))
                values.append(call("slice", values.pop(), starts=(0, 0), sizes=(64, 64), steps=(1, 1)))
            case _:
                values.append(product(value, random.choice(values)))
    total = values[0]
    for value in values[1:] + small[1:]:
        total = softmax(call("nn.add", total, value))
    return total


@pytest.mark.parametrize("seed", range(40))
def test_the_order_is_the_one_that_comparing_all_kernels_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Later] = []
    run = Later.run

    def noted(later: Later) -> list[FusedGroup]:
        seen.append(later)
        return run(later)

    monkeypatch.setattr(Later, "run", noted)
    module = random_graph(seed).module if seed % 4 == 0 else module_of(woven(seed))
    TARGET.groups(prepare(module).main.body)
    for later in seen:
        assert run(later) == by_comparing(later)


def test_a_chain_of_moves_waits_for_its_reader() -> None:
    """A sum that is read last, though it stands first among the operands."""
    kept = softmax(product(X, W))
    moved = softmax(turned(kept))
    value: Expr = kept
    for _ in range(3):
        value = softmax(product(value, W))
    body = product(moved, value)
    groups = TARGET.groups(body)
    assert operators(groups)[-3:] == ["transpose", "nn.softmax", "nn.matmul"]


def test_what_makes_few_bytes_of_many_does_not_wait() -> None:
    large = softmax(product(X, W))
    small = call("nn.reduce_sum", softmax(large), axes=(0, 1), keepdims=True)
    value: Expr = product(large, W)
    for _ in range(2):
        value = softmax(product(value, W))
    body = product(call("nn.multiply", value, small), W)
    groups = operators(TARGET.groups(body))
    assert groups.index("nn.reduce_sum") < len(groups) - 2


def test_what_reads_state_stays_before_its_next_value() -> None:
    """The transposed weights are read last, but the weights' next value is made before."""
    following = call("nn.add", W, product(X, X))
    last = product(turned(W), softmax(following))
    groups = operators(TARGET.groups(module_of(last, following).main.body))
    assert groups.index("transpose") < groups.index("nn.matmul")
    other = operators(TARGET.groups(module_of(last).main.body))  # nothing is written over the weights
    assert other[-2:] == ["transpose", "nn.matmul"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 20), st.integers(0, 8)), max_size=25))
def test_tight_plans_hold_everything_and_are_never_longer(sizes: list[tuple[int, int, int]]) -> None:
    lifetimes = [Lifetime(str(at), size, first, first + more) for at, (size, first, more) in enumerate(sizes)]
    offsets, end = plan_tightly(lifetimes, 0)
    assert most_alive(lifetimes) <= end <= plan_memory(lifetimes, 0)[1]
    for one in lifetimes:
        assert offsets[one.name] % 64 == 0
        assert offsets[one.name] + aligned(one.nbytes) <= end
        for other in lifetimes:
            together = one.first <= other.last and other.first <= one.last
            if one is not other and together:
                begin, after = sorted((one, other), key=lambda each: offsets[each.name])
                assert offsets[begin.name] + begin.nbytes <= offsets[after.name]


@pytest.mark.parametrize("sizes", [
    pytest.param([(1088, 2, 7), (1024, 3, 9), (1152, 8, 14), (192, 2, 9), (1088, 3, 4)], id="largest first"),
    pytest.param([(576, 8, 15), (448, 3, 9), (320, 6, 14), (768, 10, 16), (768, 4, 6)], id="most bytes and time first"),
    pytest.param([(576, 5, 10), (576, 2, 7), (640, 10, 13), (960, 2, 10), (128, 2, 9)], id="longest first"),
])  # fmt: skip
def test_the_best_of_several_orders_is_taken(sizes: list[tuple[int, int, int]]) -> None:
    """In each case one order needs no more than what is alive at once, and the others need more."""
    lifetimes = [Lifetime(str(at), *each) for at, each in enumerate(sizes)]
    assert plan_tightly(lifetimes, 0)[1] == most_alive(lifetimes)


def test_a_tight_plan_is_the_shortest_that_was_tried_not_the_last() -> None:
    sizes = [(896, 10, 17), (1024, 8, 9), (256, 8, 10), (1216, 4, 12), (192, 10, 10)]
    lifetimes = [Lifetime(str(at), *each) for at, each in enumerate(sizes)]
    assert plan_tightly(lifetimes, 0)[1] == 2688  # 2560 are alive at once; the last order needs 3392


def test_a_plan_that_is_longer_than_it_need_be_is_made_again() -> None:
    """Places of the largest first leave a hole here that a later one just misses."""
    sizes = [(1152, 1, 6), (1024, 5, 12), (960, 0, 2), (896, 7, 12), (832, 3, 4), (768, 11, 13)]
    lifetimes = [Lifetime(str(at), *each) for at, each in enumerate(sizes)]
    assert plan_tightly(lifetimes, 0)[1] <= plan_memory(lifetimes, 0)[1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 12), st.integers(0, 9)), max_size=30), st.integers(0, 3))
def test_each_takes_the_lowest_place_that_those_before_it_leave(sizes: list[tuple[int, int, int]], start: int) -> None:
    """Tried place by place, and the bytes at the worst time counted moment by moment."""
    tensors = [Lifetime(f"t{at}", size, first, first + more) for at, (size, first, more) in enumerate(sizes)]
    offsets, end = plan_memory(tensors, 64 * start)
    placed: list[Lifetime] = []
    for tensor in sorted(tensors, key=lambda each: (-each.nbytes, each.first, each.name)):
        others = [each for each in placed if each.first <= tensor.last and tensor.first <= each.last]
        wanted = 64 * start
        while any(
            (wanted < offsets[each.name] + aligned(each.nbytes) and offsets[each.name] < wanted + tensor.nbytes)
            or (not tensor.nbytes and offsets[each.name] <= wanted < offsets[each.name] + aligned(each.nbytes))
            for each in others
        ):  # fmt: skip
            wanted += 64
        assert tensor.nbytes == 0 or offsets[tensor.name] == wanted
        placed.append(tensor)
    alive = [sum(aligned(each.nbytes) for each in tensors if each.first <= time <= each.last) for time in range(25)]
    assert most_alive(tensors) == max(alive)
    assert end == max((offsets[each.name] + aligned(each.nbytes) for each in tensors), default=64 * start)


@pytest.mark.parametrize("seed", range(5))
def test_a_row_has_what_was_put_in_it(seed: int) -> None:
    """Also where more is put before the same one than numbers can be halved for."""
    random, row, wanted = Random(seed), Row(), []
    for number in range(300):
        group = FusedGroup((call("nn.tanh", Var(f"v{number}", TensorType((1,), "float32"))),), (), None)
        place = 0 if random.random() < 0.2 else max(0, len(wanted) - 1 - (number % 3 == 0))
        row.insert(group, wanted[place] if wanted else None)
        wanted.insert(place, group)
    assert list(row) == wanted
    assert row.front == wanted[0]
    for at in random.sample(range(299), 50):
        assert row.is_before(wanted[at], wanted[at + 1])
        assert row.first(wanted[at : at + 3]) == wanted[at]
