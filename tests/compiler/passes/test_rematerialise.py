"""Cheap forward values that are computed again: the same results, the fewest bytes kept, and no more work than said."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import weft
from weft.compiler.graph import (
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    GraphError,
    Module,
    TensorType,
    Tuple,
    Var,
    evaluate,
    parse,
    topological_order,
)  # fmt: skip
from weft.compiler.graph.dtypes import FLOATS
from weft.compiler.operators import nn
from weft.compiler.operators.random_graphs import random_graph
from weft.compiler.passes import rematerialise
from weft.compiler.passes.cleanup import cse
from weft.compiler.passes.gradient import tidied
from weft.compiler.passes.manager import random_inputs
from weft.compiler.passes.recompute import Passes, is_costly, nbytes
from weft.compiler.passes.rematerialise import MOST_LEAVES, computed_again, rematerialised, smallest_cut
from weft.compiler.targets.loops.placement import held

CHANNELS = 16


def network(layers: int, *, residual: bool = False, activation: str = "nn.clip({}, low=0.0, high=inf)") -> Module:
    """Convolutions, each with normalisation in training form and an activation, and gradients by all weights."""
    lines, x, weights = [], "%x", ""
    for number in range(layers):
        lines.append(f"  %c{number} = nn.conv2d({x}, %w{number}, pads=(1, 1, 1, 1))")
        lines.append(f"  %m{number} = nn.reduce_mean(%c{number}, axes=(0, 2, 3))")
        lines.append(f"  %d{number} = nn.subtract(%c{number}, reshape(%m{number}, shape=(1, {CHANNELS}, 1, 1)))")
        lines.append(f"  %v{number} = nn.reduce_mean(nn.multiply(%d{number}, %d{number}), axes=(0, 2, 3))")
        lines.append(f"  %n{number} = nn.batch_norm(%c{number}, %g{number}, %b{number}, %m{number}, %v{number})")
        lines.append(f"  %a{number} = {activation.format(f'%n{number}')}")
        if residual:
            lines.append(f"  %r{number} = nn.add({x}, %a{number})")
        x = f"%{'r' if residual else 'a'}{number}"
        weights += f", %w{number}: float32[{CHANNELS}, {CHANNELS}, 3, 3]"
        weights += f", %g{number}: float32[{CHANNELS}], %b{number}: float32[{CHANNELS}]"
    text = (f"fn @main(%x: float32[4, {CHANNELS}, 8, 8]{weights}) {{\n" + "\n".join(lines)
            + f"\n  return nn.reduce_sum(nn.multiply({x}, {x}), axes=(0, 1, 2, 3))\n}}\n")  # fmt: skip
    names = [f"{kind}{number}" for number in reversed(range(layers)) for kind in "wgb"]
    return weft.grad(parse(text), wrt=names)


IMAGE = 4 * 4 * CHANNELS * 8 * 8
"""Bytes of an image of `network`."""


def kept(module: Module) -> list[Expr]:
    """Large forward values that the backward part reads."""
    return [node for node in {held(each): None for each in Passes(module, 1).saved.values()} if nbytes(node) >= IMAGE]


def agree(module: Module, again: Module, inputs: dict[str, np.ndarray]) -> None:
    expected, found = evaluate(module, inputs), evaluate(again, inputs)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert np.array_equal(found[name], value, equal_nan=value.dtype.kind in "fc"), name


@pytest.mark.parametrize("residual", [False, True])
def test_of_a_layer_one_tensor_is_kept(residual: bool) -> None:
    module = network(6, residual=residual)
    again = rematerialised(module, 1)
    before, after = len(kept(module)), len(kept(again))
    assert before >= (3 if residual else 2) * 6
    assert after <= (6 + 6 // MOST_LEAVES + 1 if residual else 6)
    assert all(node.op == "nn.conv2d" for node in kept(again) if isinstance(node, Call)) or residual
    inputs = {name: value * 0.1 for name, value in random_inputs(module, 0).items()}
    agree(module, again, inputs)
    one, two = (weft.compile(each, target="cpu", threads=1) for each in (module, again))
    assert two.statistics["arena_bytes"] < 0.8 * one.statistics["arena_bytes"]
    found, expected = weft.load(two).run(inputs), weft.load(one).run(inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4 * np.abs(value).max())


def test_nothing_costly_is_computed_again() -> None:
    module = network(4, residual=True)
    again = rematerialised(module, 1)

    def costly(each: Module) -> int:
        return sum(is_costly(node) for node in topological_order(each.main.body) if isinstance(node, Call))

    assert costly(again) == costly(module)
    assert cse(again) == again
    assert tidied(again) == again
    assert rematerialised(again, 1) == again


def test_each_kernel_of_the_backward_part_has_a_copy_of_its_own() -> None:
    """The first layer's normalisation: for its own gradient, and for that of the next layer's weights."""
    again = cse(rematerialised(network(2), 1))
    (scale,) = (param for param in again.main.params if param.name == "g0")
    made = [node for node in topological_order(again.main.body)
            if isinstance(node, Call) and node.op == "nn.batch_norm" and node.args[1] == scale]  # fmt: skip
    assert len(made) == 1 + 2


def test_functions_are_computed_again_but_not_many_of_them() -> None:
    """An element may take one function, not the chain of two."""
    for activation, images in (("nn.tanh({})", 1), ("nn.erf(nn.erf({}))", 2)):
        found = kept(rematerialised(network(4, activation=activation), 1))
        assert len(found) == 4 * images


def test_a_chain_of_additions_is_not_read_from_its_beginning() -> None:
    passes = Passes(network(12, residual=True), 1)
    again = computed_again(passes)
    leaves: dict[int, set[int]] = {}
    for node in passes.forward:
        read = set().union(*(leaves.get(id(each), {id(each)}) for each in node.children))
        leaves[id(node)] = read if id(node) in again else {id(node)}
    sizes = {id(node): nbytes(node) for node in passes.forward}
    large = [sum(sizes.get(each, 0) >= IMAGE for each in leaves[node]) for node in again]
    assert max(large) == MOST_LEAVES


def test_statistics_of_channels_are_kept() -> None:
    passes = Passes(network(3), 1)
    assert all(nbytes(node) >= rematerialise.SMALLEST for node in passes.forward if id(node) in computed_again(passes))


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_random_graphs_keep_every_bit(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rematerialise, "SMALLEST", 0)
    changed = 0
    for seed in range(first, first + 40):
        graph = random_graph(seed)
        main = graph.module.main
        of = [name for name, each in zip(main.output_names, main.results, strict=True) if each.dtype in FLOATS]
        try:
            module = weft.grad(graph.module, of=of, seed=True)
        except GraphError:  # no floats at one of its ends, or an operator without a rule
            continue
        again = rematerialised(module, len(main.results))
        changed += again is not module
        draw = np.random.default_rng(seed)
        seeds = {param.name: draw.normal(size=param.type.shape).astype(param.dtype) for param in module.main.params
                 if param.name not in graph.inputs}  # fmt: skip
        with np.errstate(all="ignore"):
            agree(module, again, {**graph.inputs, **seeds})
    assert changed > 3


def drawn(seed: int) -> Passes:
    """A few values of several sizes, some costly; the "backward part" uses some of them."""
    draw = np.random.default_rng(seed)
    x = Var("x", TensorType((64, 64), "float32"))
    values: list[Expr] = [x]
    for _ in range(9):
        a, b = (values[draw.integers(max(0, len(values) - 4), len(values))] for _ in range(2))
        which = draw.integers(4)
        if which == 0 and a.shape == (64, 64):
            values.append(nn.matmul(a, x))
        elif which == 1:
            values.append(nn.reduce_sum(a, axes=(1,), keepdims=True))
        elif which == 2:
            values.append(nn.add(a, Constant(np.zeros((64, int(draw.choice([1, 64]))), np.float32))))
        else:
            values.append(nn.maximum(a, b))
    forward = nn.reduce_max(values[-1], axes=(0, 1))
    made = [node for node in topological_order(forward)[:-1] if isinstance(node, Call)]
    places = draw.permutation(len(made))[:3]
    used = [nn.negative(made[place]) for place in places]
    attrs = Attrs({"name": "main", "outputs": ("y", "z", *(f"g{number}" for number in range(len(used))))})
    return Passes(Module(Function((x,), Tuple((forward, made[places[-1]], *used)), attrs)), 2)


@pytest.mark.parametrize("seed", range(40))
def test_the_cut_is_the_smallest(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rematerialise, "SMALLEST", 0)
    passes = drawn(seed)
    free = {id(each) for each in passes.module.main.results}
    forward = passes.forward

    def enough(chosen: frozenset[int]) -> bool:
        there = set(chosen)
        for node in forward:
            if not is_costly(node) and all(id(each) in there or isinstance(each, Var | Constant)
                                           for each in node.children):  # fmt: skip
                there.add(id(node))
        return set(passes.saved) <= there

    def weight(chosen: frozenset[int]) -> int:
        return sum(nbytes(node) for node in forward if id(node) in chosen and id(node) not in free)

    sets = (frozenset(map(id, some)) for count in range(len(forward) + 1)
            for some in itertools.combinations(forward, count))  # fmt: skip
    least = min(weight(some) for some in sets if enough(some))
    cut = frozenset(smallest_cut(passes))
    assert enough(cut)
    assert weight(cut) == least


def test_what_is_a_result_has_memory_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept rather than the few bytes of which it is made."""
    monkeypatch.setattr(rematerialise, "SMALLEST", 0)
    x = Var("x", TensorType((64, 64), "float32"))
    result = nn.add(nn.reduce_sum(x, axes=(1,), keepdims=True), Constant(np.ones((64, 64), np.float32)))
    attrs = Attrs({"name": "main", "outputs": ("y", "g")})
    passes = Passes(Module(Function((x,), Tuple((result, nn.negative(result))), attrs)), 1)
    assert smallest_cut(passes) == {id(result)}
