"""Random computations in a core's layout, and random schedules of them that end in its intrinsics, for tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from .....hw.config import CoreConfig
from ....tensor.compute import Tensor, compute, lower, placeholder, reduce_axis
from ....tensor.compute import max as largest
from ....tensor.compute import sum as total
from ....tensor.expressions import maximum, minimum, select
from ....tensor.ir import Block, Const, Expr, PrimFunc, TensorIntrinsic
from ....tensor.random_steps import random_step
from ....tensor.schedule import Schedule, Step
from ....tensor.tree import find_block
from ....tensor.visitor import loads_of
from ..operators.intrinsics import acc_entry, inp_entry, intrinsics, wgt_entry
from .check_factors import FACTOR_RANGE

ROWS = (1, 2, 3, 4, 6, 8, 9)
GROUPS = (1, 2, 3)
STRAY = 0.05
"""How often a step that has nothing to do with the plan comes between two of its steps."""

Index = tuple[Expr, ...]


def random_kernel(chance: random.Random, config: CoreConfig) -> PrimFunc:
    """Entries that are loaded, multiplied or combined with their neighbours, computed on, narrowed and stored."""
    rows, groups = chance.choice(ROWS), chance.choice(GROUPS)
    value = chance.choice((_dense, _dense, _wide, _pool))(chance, config, rows, groups)
    for number in range(chance.randint(0, 3)):
        value = _vector(chance, config, value, f"v{number}")
    # The highest bits of a product are where a factor of too many bits shows.
    low, amount = chance.randint(-128, 0), chance.choice((chance.randint(0, 9), chance.randint(17, 24)))
    last: Callable[[Expr], Expr] = chance.choice((lambda x: x >> amount, lambda x: maximum(x, low), lambda x: x + low))
    out = compute(value.shape, lambda *i: last(value[i]).astype("int8"), "y")
    return lower([out], name="kernel")


def _dense(chance: random.Random, config: CoreConfig, rows: int, groups: int) -> Tensor:
    inner, (kr, _, ks) = chance.choice(GROUPS), inp_entry(config)
    x = placeholder((rows, inner, *inp_entry(config)), "int8", "x")
    w = placeholder((groups, inner, *wgt_entry(config)), "int8", "w")
    axes = [reduce_axis(inner, "kb"), reduce_axis(kr, "kr"), reduce_axis(ks, "ks")]
    sub = config.sub_block

    def product(y: Expr, c: Expr, r: Expr, n: Expr, o: Expr) -> object:
        b, i, s = axes
        factor = w[c, b, r * sub + o, i * sub + s].astype("int32")
        return total(x[y, b, i, n, s].astype("int32") * factor, axes)

    return compute((rows, groups, *acc_entry(config)), product, "acc")  # type: ignore[arg-type]


def _wide(chance: random.Random, config: CoreConfig, rows: int, groups: int) -> Tensor:
    x = placeholder((rows, groups, *acc_entry(config)), "int8", "x")
    return compute(x.shape, lambda *i: x[i].astype("int32"), "wide")


def _pool(chance: random.Random, config: CoreConfig, rows: int, groups: int) -> Tensor:
    """The largest of some neighbours, with padding or without."""
    x = placeholder((rows, groups, *acc_entry(config)), "int8", "x")
    pad, taps = chance.randint(0, 1), chance.randint(1, min(3, rows))

    def copied(*i: Expr) -> Expr:
        if not pad:
            return x[i].astype("int32")
        row = i[0] - pad
        return select((row >= 0) & (row < rows), x[(row, *i[1:])], Const(-128, "int8")).astype("int32")

    data = compute((rows + 2 * pad, *x.shape[1:]), copied, "wide")
    k, combine = reduce_axis(taps, "k"), chance.choice((largest, total))
    shape = (rows + 2 * pad - taps + 1, *x.shape[1:])
    return compute(shape, lambda *i: combine(data[(i[0] + k, *i[1:])], k), "acc")


def _vector(chance: random.Random, config: CoreConfig, value: Tensor, name: str) -> Tensor:
    """One operation, with a constant or with an entry for each group."""
    number = chance.randint(-100, 100)
    kinds: list[Callable[[Expr, Expr], Expr]] = [
        lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, maximum, minimum,
    ]  # fmt: skip
    combine = chance.choice(kinds)
    if chance.random() < 0.5:
        return compute(value.shape, lambda *i: combine(value[i], Const(number, "int32")), name)
    if combine is kinds[2]:
        return _product(chance, value, name)
    bias = placeholder(value.shape[1:], "int32", f"p_{name}")
    return compute(value.shape, lambda *i: combine(value[i], bias[i[1:]]), name)


def _product(chance: random.Random, value: Tensor, name: str) -> Tensor:
    """With a second factor that has 25 bits, or with one that may have more: `check_factors` refuses some of these."""
    kind = chance.choice(("widened", "widened", "data", "data", "clamped", "computed", "itself"))
    shape = value.shape[1:]
    if kind == "itself":
        return compute(value.shape, lambda *i: value[i] * value[i], name)
    if kind == "widened":
        source = placeholder(shape, "int8", f"q_{name}")
        factor = compute(shape, lambda *i: source[i].astype("int32"), f"wide_{name}")
        return compute(value.shape, lambda *i: value[i] * factor[i[1:]], name)
    data = factor = placeholder(shape, "int32", f"p_{name}")
    if kind != "data":
        limits = (FACTOR_RANGE[0], FACTOR_RANGE[1] if kind == "clamped" else chance.choice((-5, FACTOR_RANGE[1])))
        least = compute(shape, lambda *i: maximum(data[i], limits[0]), f"least_{name}")
        factor = compute(shape, lambda *i: minimum(least[i], limits[1]), f"most_{name}")
    if kind == "computed":
        clamped, by = factor, chance.choice((-1, 1, 5))
        factor = compute(shape, lambda *i: clamped[i] + by, f"moved_{name}")
    return compute(value.shape, lambda *i: value[i] * factor[i[1:]], name)


def random_plan(schedule: Schedule, chance: random.Random, config: CoreConfig) -> Iterator[Step]:
    """Steps to be tried one after another: scopes, copies, tiles, then intrinsics. Each looks at what became of those
    before it."""
    for step in _plan(schedule, chance, config):
        if step.primitive != "tensorize" and chance.random() < STRAY:
            yield random_step(schedule, chance, intrinsics(config), ("acc", "inp", "out", "global"))
        yield step


def _plan(schedule: Schedule, chance: random.Random, config: CoreConfig) -> Iterator[Step]:
    stages = schedule.blocks()
    for name in stages[:-1]:
        yield _step("set_scope", buffer=name, scope="acc")
    yield _step("cache_write", block=stages[-1], scope="out")
    for param in schedule.func.params:
        for block in stages:
            if param.name == "w" or param.name.startswith("p_") or (param.name == "x" and "w" in _names(schedule)):
                scope = {"w": "wgt", "x": "inp"}.get(param.name, "acc")
                if param.name in _reads(schedule, block):
                    yield _step("cache_read", block=block, buffer=param.name, scope=scope)
    yield from _tiles(schedule, chance)
    if "w" in _names(schedule) and "acc" in schedule.blocks() and len(schedule.get_loops("acc")) > 6:
        *outer, r, n, o, kb, kr, ks = (var.name for var in schedule.get_loops("acc"))
        yield _step("reorder", order=[*outer, kb, r, n, o, kr, ks])
    for block in chance.sample(schedule.blocks(), len(schedule.blocks())):
        yield from _intrinsic(schedule, chance, config, block)


def _tiles(schedule: Schedule, chance: random.Random) -> Iterator[Step]:
    """All stages under a loop over tiles of the result, perhaps as virtual threads."""
    store = schedule.blocks()[-1]
    if chance.random() < 0.3:
        return
    row = schedule.get_loops(store)[0].name
    if chance.random() < 0.5:
        yield _step("split", loop=row, factors=[None, chance.choice((1, 2)), chance.randint(1, 4)])
    else:
        yield _step(chance.choice(("split", "split_shifted")), loop=row, factor=chance.randint(1, 4))
    loops = schedule.get_loops(store)
    tile = loops[chance.choice((0, 0, 1))].name
    for block in reversed(schedule.blocks()[:-1]):
        if chance.random() < 0.97:
            yield _step("compute_at", block=block, loop=tile)
    if chance.random() < 0.6:
        yield _step("vthread", loop=tile)


def _intrinsic(schedule: Schedule, chance: random.Random, config: CoreConfig, block: str) -> Iterator[Step]:
    """The intrinsics that write to the same memory, until one is taken."""
    candidates = list(intrinsics(config).values())
    chance.shuffle(candidates)
    for intrinsic in candidates:
        node = find_block(schedule.func, block)[-1] if block in schedule.blocks() else None
        if not isinstance(node, Block):
            return
        loops = schedule.get_loops(block)
        if _writes(intrinsic) == (node.body.buffer.scope, node.body.buffer.dtype) and len(loops) >= len(
            intrinsic.loops
        ):
            yield _step("tensorize", loop=loops[-len(intrinsic.loops)].name, intrinsic=intrinsic.name)


def _writes(intrinsic: TensorIntrinsic) -> tuple[str, str]:
    (operand,) = (each for each in intrinsic.operands if each.mode != "in")
    return operand.scope, operand.dtype


def _names(schedule: Schedule) -> set[str]:
    return {param.name for param in schedule.func.params}


def _reads(schedule: Schedule, block: str) -> set[str]:
    if block not in schedule.blocks():
        return set()
    return {buffer.name for buffer, _ in loads_of(find_block(schedule.func, block)[-1])}


def _step(primitive: str, **arguments: object) -> Step:
    return Step(primitive, tuple(arguments.items()))
