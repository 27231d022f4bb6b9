"""tensorize: prove that a loop nest computes what an intrinsic computes, and put a call of it in its place.

The nest's loops that run more than once are paired with the intrinsic's. Both expressions must be equal up to the
order of the operands of +, *, min, max and the folding of constants. Every load and store of the nest must walk its
buffer with the strides of the operand's tile; what is left of its position when the tile's loops stand at 0 is the
tile's place in the buffer. Scalars of the intrinsic stand for whatever does not depend on the tile's loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import permutations

from .errors import ScheduleError
from .evaluate import fold_constants, identity, wrap
from .ir import (
    FLOATS,
    BinOp,
    Bits,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    For,
    IntrinsicCall,
    Load,
    Operand,
    PrimFunc,
    Region,
    ScalarParam,
    Select,
    TensorIntrinsic,
    Var,
)
from .linear import Linear, linear_form
from .printer import expr_text
from .simplify import Simplifier, simplifier_of
from .tree import find_loop, ranges_of, rewrite
from .visitor import children, free_vars, loads, map_exprs, substitute, walk_exprs

ASSOCIATIVE = ("add", "mul", "min", "max", "and", "or")


@dataclass(frozen=True)
class Match:
    """What has been bound so far."""

    regions: Mapping[str, Region] = field(default_factory=dict)
    scalars: Mapping[str, Expr] = field(default_factory=dict)


_SCALAR = 1000
"""Progress of a match that failed at the range of a scalar only: more than any operand's."""

_NOTHING_IS_TOLD = 1 << 30
"""More than any progress."""


@dataclass
class _Failure:
    """The refusal that got furthest: that is the one worth telling."""

    progress: int = -1
    message: str = ""
    hint: str = ""

    def note(self, progress: int, message: str, hint: str = "") -> None:
        if progress > self.progress:
            self.progress, self.message, self.hint = progress, message, hint


def tensorize(func: PrimFunc, loop: Var, intrinsic: TensorIntrinsic, *, explain: bool = True) -> PrimFunc:
    """Replace the nest of ``loop`` by a call of ``intrinsic``; ScheduleError, with the difference, if it is another.
    Finding the difference takes longer than matching: without ``explain`` it is left out."""
    path = find_loop(func, loop)
    at = f"loop {loop.name!r}"
    if not isinstance(intrinsic, TensorIntrinsic):
        raise ScheduleError(f"tensorize: intrinsic is {intrinsic!r:.80}, but must be a TensorIntrinsic", at=at)
    nest: list[For] = []
    node = path[-1]
    while isinstance(node, For):
        nest.append(node)
        node = node.body
    if isinstance(node, IntrinsicCall):
        raise ScheduleError(f"tensorize: block {node.block!r} is a call of {node.intrinsic.name!r} already", at=at)
    if not isinstance(node, Block):
        raise ScheduleError(
            f"tensorize: there is more than one block under loop {loop.name!r}", at=at, hint="tensorize an inner loop"
        )
    for each in nest:
        if not isinstance(each.extent, Const):
            raise ScheduleError(
                f"tensorize: loop {each.var.name!r} runs {expr_text(each.extent)} times, which is not constant",
                at=at,
                hint="split by a factor that divides the extent, or tensorize an inner loop",
            )
        if each.kind not in ("serial", "unroll", "vectorize"):
            raise ScheduleError(
                f"tensorize: loop {each.var.name!r} is marked {each.kind}, so it cannot become part of one instruction",
                at=at,
            )
    if node.init is not None and all(operand.mode != "inout" for operand in intrinsic.operands):
        raise ScheduleError(
            f"tensorize: block {node.name!r} is a reduction with an initial value, "
            f"but {intrinsic.name!r} does not accumulate",
            at=at,
            hint="decompose_reduction first, or use an intrinsic whose output is inout",
        )
    if not explain and not _on_loads(fold(node.body.value))[1] <= _operators(intrinsic.store.value):
        raise ScheduleError(f"tensorize: block {node.name!r} does not compute {intrinsic.name!r}", at=at)
    long = [(each.var, int(each.extent.value)) for each in nest if isinstance(each.extent, Const)]
    tile_loops = [(var, extent) for var, extent in long if extent != 1]
    own_loops = [(var, extent) for var, extent in intrinsic.loops if extent != 1]
    _check_extents(tile_loops, own_loops, intrinsic, loop)

    failure = _Failure(-1 if explain else _NOTHING_IS_TOLD)
    simplifier = simplifier_of([*ranges_of(path[:-1]), *((each.var, each.extent) for each in nest)])
    for order in permutations(tile_loops):
        if [extent for _, extent in order] != [extent for _, extent in own_loops]:
            continue
        pairs = {own: tile for (own, _), (tile, _) in zip(own_loops, order, strict=True)}
        matcher = _Matcher(intrinsic, node, pairs, simplifier, failure)
        if not explain:  # what no operand could make equal needs no look at where operands lie
            shape = _Matcher(intrinsic, node, pairs, simplifier, failure, any_operand=True)
            if next(shape.matches(), None) is None:
                continue
        match = next(matcher.matches(), None)
        if match is not None:
            return rewrite(func, path[-1], _call(intrinsic, node, match, {each.var for each in nest}))
    if not explain:
        raise ScheduleError(f"tensorize: block {node.name!r} does not compute {intrinsic.name!r}", at=at)
    # If the expressions differ whatever the operands are, then what was wrong with an operand is beside the point.
    pairs = {own: tile for (own, _), (tile, _) in zip(own_loops, tile_loops, strict=True)}
    shape = _Matcher(intrinsic, node, pairs, simplifier, _Failure(), any_operand=True)
    if failure.progress < _SCALAR and next(shape.matches(), None) is None:
        failure = shape.failure
    raise ScheduleError(f"tensorize: {failure.message}", at=at, hint=failure.hint)


def _word(expr: Expr) -> str:
    """What an operation does; a constant may be taken off or added."""
    match expr:
        case BinOp(op, _, _):
            return "add" if op == "sub" else op
        case Cast(dtype, _):
            return f"cast {dtype}"
        case Call(function, _):
            return f"call {function}"
    return type(expr).__name__


@lru_cache(maxsize=1024)
def _on_loads(expr: Expr) -> tuple[bool, frozenset[str]]:
    """Whether memory is read, and what is done with what was read. An intrinsic has to do all of that: its scalars
    stand for no loads."""
    if isinstance(expr, Load):
        return True, frozenset()
    below = [_on_loads(child) for child in children(expr)]
    if not any(reads for reads, _ in below):
        return False, frozenset()
    return True, frozenset([_word(expr)]).union(*(words for _, words in below))


@lru_cache(maxsize=1024)
def _operators(expr: Expr) -> frozenset[str]:
    """All that is done in what an intrinsic computes."""
    return frozenset(map(_word, walk_exprs(expr)))


def _check_extents(
    tile_loops: list[tuple[Var, int]], own_loops: list[tuple[Var, int]], intrinsic: TensorIntrinsic, loop: Var
) -> None:
    wanted = [extent for _, extent in own_loops]
    extra = []
    for var, extent in reversed(tile_loops):
        if extent in wanted:
            wanted.remove(extent)
        else:
            extra.append((var, extent))
    at = f"loop {loop.name!r}"
    if extra and wanted:
        var, extent = extra[0]
        need = next((want for want in reversed(wanted) if extent % want == 0), wanted[-1])
        raise ScheduleError(
            f"tensorize: loop {var.name!r} runs {extent} times, but {intrinsic.name!r} needs {need}",
            at=at,
            hint=f"split {var.name!r} by {need} first" if extent > need else f"choose an intrinsic for {extent}",
        )
    if extra:
        names = ", ".join(repr(var.name) for var, _ in reversed(extra))
        raise ScheduleError(
            f"tensorize: the nest also has loop {names}, which {intrinsic.name!r} does not have",
            at=at,
            hint="reorder these loops outwards and tensorize inside of them",
        )
    if wanted:
        raise ScheduleError(
            f"tensorize: {intrinsic.name!r} also needs loops of {', '.join(map(str, wanted))}, "
            "which are not in the nest",
            at=at,
            hint="tensorize an outer loop, or split the loops to these extents",
        )


def _call(intrinsic: TensorIntrinsic, block: Block, match: Match, inside: set[Var]) -> IntrinsicCall:
    outer = tuple(var for var in block.reduce_vars if var not in inside)
    return IntrinsicCall(
        intrinsic=intrinsic,
        operands=tuple(match.regions[operand.name] for operand in intrinsic.operands),
        scalars=tuple((param.name, match.scalars[param.name]) for param in intrinsic.scalars),
        block=block.name,
        reduce_vars=outer,
        init=outer if block.init is not None else None,
        init_value=block.init if isinstance(block.init, Const) else None,
    )


class _Matcher:
    """One pairing of loops: the intrinsic's ``pairs`` keys are the nest's ``pairs`` values."""

    def __init__(
        self,
        intrinsic: TensorIntrinsic,
        block: Block,
        pairs: Mapping[Var, Var],
        simplifier: Simplifier,
        failure: _Failure,
        *,
        any_operand: bool = False,
    ) -> None:
        self.intrinsic = intrinsic
        self.block = block
        self.pairs = pairs
        self.simplifier = simplifier
        self.failure = failure
        self.any_operand = any_operand
        self.operands = {operand.name: operand for operand in intrinsic.operands}
        self.params = {param.name: param for param in intrinsic.scalars}
        self.own_loops = {var for var, _ in intrinsic.loops}
        self.units = tuple(var for var, _ in intrinsic.loops if var not in pairs)

    def matches(self) -> Iterator[Match]:
        """All ways in which the nest is the intrinsic."""
        meaning, store = self.intrinsic.store, self.block.body
        pattern = _with_units(meaning.value, self.units)
        value = fold(store.value)
        if self.failure.progress < 0:
            self.failure.note(
                0,
                f"block {self.block.name!r} computes {expr_text(value)}, "
                f"but {self.intrinsic.name!r} computes {expr_text(pattern)}",
            )
        indices = tuple(_with_units(index, self.units) for index in meaning.indices)
        for start in self._access(meaning.buffer.name, indices, store.buffer, store.indices, Match()):
            for match in self._unify(pattern, value, start):
                # A scalar that met nothing stands on the side of a select that is not taken: any value will do.
                free = {name: _some_value(param) for name, param in self.params.items() if name not in match.scalars}
                yield Match(match.regions, {**match.scalars, **free})

    def _unify(self, pattern: Expr, value: Expr, match: Match) -> Iterator[Match]:
        match pattern:
            case Var(name) if name in self.params and pattern not in self.own_loops:
                yield from self._scalar(name, value, match)
            case Var() if isinstance(value, Var) and self.pairs.get(pattern) == value:
                yield match
            case Const() if pattern == value:
                yield match
            case Load(buffer, indices) if isinstance(value, Load):
                yield from self._load(buffer.name, indices, value, match)
            case Cast(dtype, x) if isinstance(value, Cast) and value.type == dtype:
                yield from self._unify(x, value.x, match)
            case Bits(dtype, x) if isinstance(value, Bits) and value.type == dtype:
                yield from self._unify(x, value.x, match)
            case Call(function, args) if isinstance(value, Call) and value.function == function:
                yield from self._all(list(zip(args, value.args, strict=True)), match)
            case Select(cond, a, b) if isinstance(value, Select):
                yield from self._all([(cond, value.cond), (a, value.a), (b, value.b)], match)
            case Select(Var(name), a, _) if name in self.params:
                for candidate in self._scalar(name, Const(True, "bool"), match):
                    yield from self._unify(a, value, candidate)
            case BinOp(op, a, b) if op in ASSOCIATIVE:
                yield from self._assign(op, operands_of(op, pattern), operands_of(op, value), match)
            case BinOp(op, a, b) if isinstance(value, BinOp) and value.op == op:
                yield from self._all([(a, value.a), (b, value.b)], match)
                if op in ("eq", "ne"):
                    yield from self._all([(a, value.b), (b, value.a)], match)

    def _load(self, name: str, own: tuple[Expr, ...], value: Load, match: Match) -> Iterator[Match]:
        """An element at indices of the loops; or also at some that are read from memory, of axes that the tile has
        whole."""
        read = [axis for axis, index in enumerate(own) if loads(index)]
        if not read:
            yield from self._access(name, own, value.buffer, value.indices, match)
            return
        shape, missing = self.operands[name].shape, len(value.indices) - len(own)
        if missing < 0 or any(value.buffer.shape[missing + axis] != shape[axis] for axis in read):
            return
        first = Const(0)
        tile = tuple(first if axis in read else index for axis, index in enumerate(own))
        indices = tuple(first if axis - missing in read else index for axis, index in enumerate(value.indices))
        for candidate in self._all([(own[axis], value.indices[missing + axis]) for axis in read], match):
            yield from self._access(name, tile, value.buffer, indices, candidate)

    def _all(self, goals: list[tuple[Expr, Expr]], match: Match) -> Iterator[Match]:
        if not goals:
            yield match
            return
        for candidate in self._unify(*goals[0], match):
            yield from self._all(goals[1:], candidate)

    def _assign(self, op: str, patterns: list[Expr], values: list[Expr], match: Match) -> Iterator[Match]:
        """Pair each pattern with one value, in any order. A scalar without a partner is the neutral element."""
        if not patterns:
            if not values:
                yield match
            return
        first, rest = patterns[0], patterns[1:]
        for place, value in enumerate(values):
            for candidate in self._unify(first, value, match):
                yield from self._assign(op, rest, values[:place] + values[place + 1 :], candidate)
        neutral = _neutral(op, first)
        if isinstance(first, Var) and len(patterns) > len(values) and neutral is not None:
            for candidate in self._scalar(first.name, neutral, match):
                yield from self._assign(op, rest, values, candidate)

    def _scalar(self, name: str, value: Expr, match: Match) -> Iterator[Match]:
        param = self.params[name]
        varying = free_vars(value) & set(self.pairs.values())
        if value.dtype != param.dtype or varying or loads(value):
            return
        value = self.simplifier.simplify(value) if value.dtype in ("int64", "bool") else value
        if name in match.scalars:
            if match.scalars[name] == value:
                yield match
            return
        low, high = (param.low, param.high)
        if isinstance(value, Const) and (
            (low is not None and value.value < low) or (high is not None and value.value > high)
        ):
            self.failure.note(
                _SCALAR, f"{name!r} of {self.intrinsic.name!r} must be in {low}..{high}, but is {expr_text(value)}"
            )
            return
        yield Match(match.regions, {**match.scalars, name: value})

    def _access(
        self, name: str, own: tuple[Expr, ...], buffer: Buffer, indices: tuple[Expr, ...], match: Match
    ) -> Iterator[Match]:
        """Bind the tile of an operand to a part of a buffer."""
        operand = self.operands[name]
        if self.any_operand:
            yield match
            return
        earlier = match.regions.get(name)
        progress = 10 * len(match.regions)
        if earlier is not None and earlier.buffer != buffer:
            return
        what = f"operand {name!r} of {self.intrinsic.name!r}"
        if buffer.dtype != operand.dtype:
            self.failure.note(progress + 2, f"{what} holds {operand.dtype}, but {buffer.name!r} holds {buffer.dtype}")
            return
        if buffer.scope != operand.scope:
            self.failure.note(
                progress + 3,
                f"{what} must be in {operand.scope!r}, but {buffer.name!r} is in {buffer.scope!r}",
                "use cache_read, cache_write or set_scope first",
            )
            return
        region = self._region(operand, what, own, buffer, indices, progress)
        if region is None or (earlier is not None and earlier != region):
            return
        yield Match({**match.regions, name: region}, match.scalars)

    def _region(
        self,
        operand: Operand,
        what: str,
        own: tuple[Expr, ...],
        buffer: Buffer,
        indices: tuple[Expr, ...],
        progress: int,
    ) -> Region | None:
        simple = tuple(self.simplifier.simplify(index) for index in indices)
        linear = self.simplifier.position(simple, buffer.strides)
        tile_vars = set(self.pairs.values())
        for atom in linear.terms:
            if not isinstance(atom, Var) and free_vars(atom) & tile_vars:
                self.failure.note(
                    progress + 5,
                    f"{what} would walk {buffer.name!r} at {expr_text(atom)}, which is not linear in the tile's loops",
                )
                return None
        strides = self._strides(operand, what, own, buffer, linear, progress)
        if strides is None:
            return None
        tile = _position(own, strides)
        for loop, var in self.pairs.items():
            need, step = tile.terms.get(loop, 0), linear.terms.get(var, 0)
            if need != step:
                self.failure.note(
                    progress + 5,
                    f"{what} steps by {need} elements along loop {loop.name!r}, "
                    f"but loop {var.name!r} steps by {step} in {buffer.name!r} of shape {list(buffer.shape)}",
                    "the tile must be the buffer's trailing dimensions: pack the data or reorder the loops",
                )
                return None
        base = [substitute(index, dict.fromkeys(tile_vars, Const(0))) for index in simple]
        offset = tile.constant
        for axis, stride in enumerate(buffer.strides):
            base[axis] = self.simplifier.simplify(base[axis] - offset // stride)
            offset %= stride
        position = _position(tuple(base), buffer.strides)
        if any(value % operand.align for value in (*position.terms.values(), position.constant)):
            self.failure.note(
                progress + 6,
                f"{what} must start at a multiple of {operand.align} elements, "
                f"but starts at {expr_text(position.to_expr())} of {buffer.name!r}",
                "split the loops so that tiles are whole entries",
            )
            return None
        return Region(buffer, tuple(base), operand.shape, strides)

    def _strides(
        self, operand: Operand, what: str, own: tuple[Expr, ...], buffer: Buffer, linear: Linear, progress: int
    ) -> tuple[int, ...] | None:
        """The strides of a tile, with those that it leaves open as the nest's loops walk the buffer."""
        strides = []
        for stride, index in zip(operand.strides, own, strict=True):
            if stride is None:
                stride = linear.terms.get(self.pairs[index], 0) if isinstance(index, Var) else operand.align
                if stride < 1 or stride % operand.align:
                    self.failure.note(
                        progress + 5,
                        f"{what} would step by {stride} elements in {buffer.name!r}, "
                        f"but can only step by multiples of {operand.align}",
                    )
                    return None
            strides.append(stride)
        return tuple(strides)


def _some_value(param: ScalarParam) -> Const:
    low = 0 if param.low is None else max(0, param.low)
    return Const(low if param.high is None else min(low, param.high), param.dtype)


def _position(indices: tuple[Expr, ...], strides: tuple[int, ...]) -> Linear:
    total = Linear()
    for index, stride in zip(indices, strides, strict=True):
        total = total.add(linear_form(index), stride)
    return total


def _neutral(op: str, like: Expr) -> Const | None:
    return None if like.dtype in (*FLOATS, "bool") else identity(op, like.dtype)


def operands_of(op: str, expr: Expr) -> list[Expr]:
    """Operands of a chain of one associative operator, with at most one constant, which is not the neutral one."""
    flat = _flatten(op, expr)
    constants = [operand for operand in flat if isinstance(operand, Const)]
    others = [operand for operand in flat if not isinstance(operand, Const)]
    if not constants or expr.dtype in FLOATS:
        return flat
    chain: Expr = constants[0]
    for constant in constants[1:]:
        chain = BinOp(op, chain, constant)
    folded = fold(chain)
    return others if others and folded == _neutral(op, expr) else [*others, folded]


def _flatten(op: str, expr: Expr) -> list[Expr]:
    if isinstance(expr, BinOp) and expr.op == op:
        return _flatten(op, expr.a) + _flatten(op, expr.b)
    match expr:
        case BinOp("sub", a, Const(value)) if op == "add" and expr.dtype not in FLOATS:
            return [*_flatten(op, a), Const(wrap(-value, expr.dtype), expr.dtype)]
    return [expr]


@lru_cache(maxsize=1024)
def _with_units(expr: Expr, units: tuple[Var, ...]) -> Expr:
    """What an intrinsic computes where its loops ``units`` run once."""
    return fold(substitute(expr, dict.fromkeys(units, Const(0))))


@lru_cache(maxsize=1024)
def fold(expr: Expr) -> Expr:
    """The expression with operations on constants carried out."""
    return map_exprs(expr, fold_constants)
