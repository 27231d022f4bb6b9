"""The Schedule: says how a function is to be computed, one recorded step after another.

A step rewrites the loop IR and keeps its meaning; a step that would not is refused with a ScheduleError that names the
loop, the buffer and the reason. Loops are named by their variable (or its name), stages by the name of their block.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ... import whole as numbers
from . import caching, compute_at, loops, reductions, rolling, storage
from .compute import Tensor, lower
from .errors import ScheduleError
from .ir import Allocate, Buffer, PrimFunc, TensorIntrinsic, Var
from .printer import function_text
from .tensorize import tensorize
from .tree import block_name, check_name, find_block, loops_of
from .visitor import statements

Loop: TypeAlias = Var | str


@dataclass(frozen=True)
class Step:
    """One primitive with its arguments (JSON values; loops and intrinsics by name) and the names that it gave."""

    primitive: str
    arguments: tuple[tuple[str, Any], ...]
    results: tuple[str, ...] = ()

    def __str__(self) -> str:
        call = f"{self.primitive}({', '.join(f'{name}={value!r}' for name, value in self.arguments)})"
        return f"{', '.join(self.results)} = {call}" if self.results else call


Trace: TypeAlias = tuple[Step, ...]


def trace_to_json(trace: Trace) -> str:
    """The trace as JSON, one step a line."""
    rows = [json.dumps([step.primitive, dict(step.arguments), list(step.results)]) for step in trace]
    return "[\n" + ",\n".join(rows) + "\n]\n"


def trace_from_json(text: str) -> Trace:
    """The trace that ``trace_to_json`` wrote; ScheduleError if the text is something else."""
    try:
        rows = json.loads(text)
        if not isinstance(rows, list):
            raise TypeError("the outermost value is not a list")
        return tuple(_step(*row) for row in rows)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ScheduleError(f"this is not a schedule trace: {error}") from error


def _step(primitive: Any, arguments: Any, results: Any) -> Step:
    if not isinstance(primitive, str) or not all(isinstance(name, str) for name in results):
        raise TypeError(f"a step is [name, arguments, names of results], not {[primitive, arguments, results]!r:.80}")
    return Step(primitive, tuple(arguments.items()), tuple(results))


class Schedule:
    """A function and the steps that made it what it is. ``func`` is replaced, never changed, by each step;
    ``original`` is the function before the first."""

    def __init__(self, func: PrimFunc) -> None:
        self._func = func
        self.original = func
        self.trace: Trace = ()

    @property
    def func(self) -> PrimFunc:
        return self._func

    @func.setter
    def func(self, func: PrimFunc) -> None:
        self._func = func.with_origin(self.original)

    def __str__(self) -> str:
        return function_text(self.func)

    def __repr__(self) -> str:
        """A line; ``print`` shows the loops."""
        params = ", ".join(f"{param.name}: {param.dtype}{list(param.shape)}" for param in self.func.params)
        return f"<Schedule of {self.func.name!r}({params}), {len(self.trace)} steps>"

    def copy(self) -> Schedule:
        """A schedule at the same point that goes its own way from here."""
        other = Schedule(self.func)
        other.original, other.trace = self.original, self.trace
        return other

    def blocks(self) -> list[str]:
        """Names of the blocks in the order of execution."""
        return [name for node in statements(self.func.body) if (name := block_name(node)) is not None]

    def buffers(self) -> list[Buffer]:
        """Parameters, then allocated buffers in the order of their allocation."""
        allocated = (node.buffer for node in statements(self.func.body) if isinstance(node, Allocate))
        return [*self.func.params, *allocated]

    def get_loops(self, block: str) -> list[Var]:
        """Loops around a block, outermost first."""
        return [loop.var for loop in loops_of(find_block(self.func, block))]

    def split(
        self, loop: Loop, factor: int | None = None, *, factors: Sequence[int | None] | None = None
    ) -> tuple[Var, ...]:
        """Split a loop: into (outer, inner) with ``inner`` running ``factor`` times, or into one loop per ``factors``,
        of which the first may be None. Where a factor does not divide, the last inner run is shorter."""
        if (factor is None) == (factors is None):
            raise ScheduleError("split: give either factor or factors", at=f"loop {_name(loop)!r}")
        given = (None, factor) if factors is None else factors
        chosen = [each if numbers.whole(each) is None else numbers.whole(each) for each in given]
        func, variables = loops.split(self.func, _var(loop), chosen)
        self._record(func, "split", [var.name for var in variables], loop=_name(loop), factors=chosen)
        return variables

    def split_shifted(self, loop: Loop, factor: int) -> tuple[Var, Var]:
        """Split a loop into (outer, inner) with ``inner`` always running ``factor`` times: where that does not divide,
        the last run starts earlier, and some elements are computed twice."""
        factor = _whole("split_shifted", "factor", factor)
        func, variables = loops.split_shifted(self.func, _var(loop), factor)
        self._record(func, "split_shifted", [var.name for var in variables], loop=_name(loop), factor=factor)
        return variables

    def tile(self, order: Sequence[Loop], factors: Sequence[int]) -> tuple[Var, ...]:
        """Split directly nested loops, each by its factor, and put all outer loops around all inner ones: for loops
        (y, x) gives (y_o, x_o, y_i, x_i)."""
        sizes = [_whole("tile", "a factor", factor) for factor in factors]
        func, outer, inner = loops.tile(self.func, [_var(loop) for loop in order], sizes)
        variables = (*outer, *inner)
        names = [_name(loop) for loop in order]
        self._record(func, "tile", [var.name for var in variables], order=names, factors=sizes)
        return variables

    def fuse(self, outer: Loop, inner: Loop) -> Var:
        """Make one loop of two that are directly nested."""
        func, var = loops.fuse(self.func, _var(outer), _var(inner))
        self._record(func, "fuse", [var.name], outer=_name(outer), inner=_name(inner))
        return var

    def reorder(self, *order: Loop) -> None:
        """Put loops of one perfect nest into this order, outermost first; others keep their places."""
        func = loops.reorder(self.func, [_var(loop) for loop in order])
        self._record(func, "reorder", [], order=[_name(loop) for loop in order])

    def unroll(self, loop: Loop) -> None:
        """Mark a loop to be unrolled."""
        self._mark("unroll", loop)

    def vectorize(self, loop: Loop) -> None:
        """Mark an innermost loop whose iterations run at once."""
        self._mark("vectorize", loop)

    def parallel(self, loop: Loop) -> None:
        """Mark a loop whose iterations run on several threads."""
        self._mark("parallel", loop)

    def vthread(self, loop: Loop) -> None:
        """Mark a loop whose iterations become virtual threads, woven into one instruction stream."""
        self._mark("vthread", loop)

    def bind(self, loop: Loop, axis: str) -> None:
        """Bind a loop to a hardware index such as ``blockIdx.x``."""
        func = loops.mark(self.func, _var(loop), f"bind:{axis}")
        self._record(func, "bind", [], loop=_name(loop), axis=axis)

    def annotate(self, loop: Loop, key: str, value: str | int) -> None:
        """Attach a note for the target to a loop."""
        if not isinstance(value, str):
            value = _whole("annotate", "a value that is no text", value)
        func = loops.annotate(self.func, _var(loop), key, value)
        self._record(func, "annotate", [], loop=_name(loop), key=key, value=value)

    def cache_read(self, block: str, buffer: str, scope: str) -> str:
        """Let ``block`` read a copy of ``buffer`` in ``scope``; gives the copying block's name."""
        func, name = caching.cache_read(self.func, block, buffer, scope)
        self._record(func, "cache_read", [name], block=block, buffer=buffer, scope=scope)
        return name

    def cache_write(self, block: str, scope: str) -> str:
        """Let ``block`` write to ``scope``, and copy the result from there; gives the copying block's name."""
        func, name = caching.cache_write(self.func, block, scope)
        self._record(func, "cache_write", [name], block=block, scope=scope)
        return name

    def set_scope(self, buffer: str, scope: str) -> None:
        """Put an allocated buffer into another memory."""
        self._record(storage.set_scope(self.func, buffer, scope), "set_scope", [], buffer=buffer, scope=scope)

    def compute_at(self, block: str, loop: Loop, whole: int = 0, *, exact: bool = False) -> None:
        """Compute a producer inside ``loop``, just what each iteration needs; of its last ``whole`` dimensions, which
        an instruction may take as they are, everything. ``exact``: its buffer has room for no more than what the
        largest iteration needs, which is found by trying them all, where there are not too many; `roll` asks for it."""
        whole = _whole("compute_at", "whole", whole)
        func = compute_at.compute_at(self.func, block, _var(loop), whole, exact)
        others = ({"whole": whole} if whole else {}) | ({"exact": True} if exact else {})
        self._record(func, "compute_at", [], block=block, loop=_name(loop), **others)

    def reverse_compute_at(self, block: str, loop: Loop) -> None:
        """Compute a consumer inside ``loop`` of its producer, just what each iteration completes."""
        func = compute_at.reverse_compute_at(self.func, block, _var(loop))
        self._record(func, "reverse_compute_at", [], block=block, loop=_name(loop))

    def compute_inline(self, block: str) -> None:
        """Compute an elementwise stage anew wherever it is read."""
        self._record(caching.compute_inline(self.func, block), "compute_inline", [], block=block)

    def decompose_reduction(self, block: str, loop: Loop) -> str:
        """Give the initial value of a reduction loops of its own, before ``loop``; gives the new block's name."""
        func, name = reductions.decompose_reduction(self.func, block, _var(loop))
        self._record(func, "decompose_reduction", [name], block=block, loop=_name(loop))
        return name

    def rfactor(self, block: str, loop: Loop, axis: int = 0) -> str:
        """Give each iteration of a reduction loop a result of its own, along dimension ``axis`` of a new buffer, which
        ``block`` then combines; gives the new block's name. Sums of floats are then rounded in another order."""
        axis = _whole("rfactor", "axis", axis)
        func, name = reductions.rfactor(self.func, block, _var(loop), axis)
        self._record(func, "rfactor", [name], block=block, loop=_name(loop), axis=axis)
        return name

    def storage_align(self, buffer: str, axis: int, factor: int, offset: int = 0) -> None:
        """Leave gaps, so that neighbours along ``axis`` of an allocated buffer are ``offset`` elements apart, modulo
        ``factor``."""
        axis, factor = _whole("storage_align", "axis", axis), _whole("storage_align", "factor", factor)
        offset = _whole("storage_align", "offset", offset)
        func = storage.storage_align(self.func, buffer, axis, factor, offset)
        self._record(func, "storage_align", [], buffer=buffer, axis=axis, factor=factor, offset=offset)

    def double_buffer(self, buffer: str) -> None:
        """Give a buffer two copies, which the iterations of the loop around its allocation use in turn."""
        self._record(storage.double_buffer(self.func, buffer), "double_buffer", [], buffer=buffer)

    def roll(self, block: str, loop: Loop, axis: int = 0) -> str:
        """Keep what ``block`` computed for the iteration of ``loop`` before, where the next one needs it too: it is
        moved to the first places along ``axis`` of the buffer, which then lives for all iterations, and only the rest
        is computed. Gives the name of the block that moves it."""
        axis = _whole("roll", "axis", axis)
        func, name = rolling.roll(self.func, block, _var(loop), axis)
        self._record(func, "roll", [name], block=block, loop=_name(loop), axis=axis)
        return name

    def inplace(self, block: str, buffer: str) -> None:
        """Let ``block`` write its result over ``buffer``, which it reads element by element and nobody reads later."""
        self._record(caching.inplace(self.func, block, buffer), "inplace", [], block=block, buffer=buffer)

    def tensorize(self, loop: Loop, intrinsic: TensorIntrinsic, *, explain: bool = True) -> None:
        """Replace the nest of ``loop`` by a call of ``intrinsic``, after proving that it computes the same. Without
        ``explain`` a refusal does not say what differs, which is faster where several are tried."""
        func = tensorize(self.func, _var(loop), intrinsic, explain=explain)
        self._record(func, "tensorize", [], loop=_name(loop), intrinsic=intrinsic.name)

    def _mark(self, kind: str, loop: Loop) -> None:
        self._record(loops.mark(self.func, _var(loop), kind), kind, [], loop=_name(loop))

    def _record(self, func: PrimFunc, primitive: str, results: Sequence[str], **arguments: Any) -> None:
        self.func = func
        self.trace = (*self.trace, Step(primitive, tuple(arguments.items()), tuple(results)))


def create_schedule(
    outputs: Tensor | Sequence[Tensor], inputs: Sequence[Tensor] | None = None, name: str = "main"
) -> Schedule:
    """A schedule of the function that computes ``outputs``, one loop nest a stage. See ``compute.lower``."""
    return Schedule(lower([outputs] if isinstance(outputs, Tensor) else outputs, inputs, name))


REPLAYED = frozenset(
    {
        "split",
        "split_shifted",
        "tile",
        "fuse",
        "reorder",
        "unroll",
        "vectorize",
        "parallel",
        "vthread",
        "bind",
        "annotate",
        "cache_read",
        "cache_write",
        "set_scope",
        "compute_at",
        "reverse_compute_at",
        "compute_inline",
        "decompose_reduction",
        "rfactor",
        "storage_align",
        "double_buffer",
        "roll",
        "inplace",
        "tensorize",
    }
)


def apply_step(schedule: Schedule, step: Step, intrinsics: Mapping[str, TensorIntrinsic] | None = None) -> None:
    """Apply one step, whatever names it gave when it was recorded. ScheduleError if it is unknown or refused."""
    arguments = dict(step.arguments)
    if step.primitive not in REPLAYED:
        raise ScheduleError(f"replay: unknown primitive {step.primitive!r}")
    if step.primitive == "tensorize":
        name = arguments["intrinsic"]
        if intrinsics is None or name not in intrinsics:
            raise ScheduleError(f"replay: intrinsic {name!r} is not among those given")
        arguments["intrinsic"] = intrinsics[name]
    method = getattr(schedule, step.primitive)
    if step.primitive == "reorder":
        method(*arguments["order"])
    else:
        method(**arguments)


def replay(schedule: Schedule, trace: Trace, intrinsics: Mapping[str, TensorIntrinsic] | None = None) -> Schedule:
    """Apply recorded steps to ``schedule`` and give it back. ScheduleError if a step is unknown, is refused, or gives
    other names than it was recorded with: then the trace is of another function."""
    for step in trace:
        try:
            apply_step(schedule, step, intrinsics)
        except (TypeError, KeyError) as error:
            raise ScheduleError(f"replay: step {step} has the wrong arguments") from error
        if schedule.trace[-1].results != step.results:
            raise ScheduleError(
                f"replay: {step.primitive} gave {', '.join(schedule.trace[-1].results)}, "
                f"but was recorded with {', '.join(step.results)}"
            )
    return schedule


def _var(loop: Loop) -> Var:
    if isinstance(loop, Var):
        return loop
    check_name("loop", loop)
    return Var(loop)


def _name(loop: Loop) -> str:
    return loop.name if isinstance(loop, Var) else loop


def _whole(primitive: str, what: str, value: object) -> int:
    """A number among a primitive's arguments as Python's own, which the trace holds as JSON."""
    number = numbers.whole(value)
    if number is None:
        raise ScheduleError(f"{primitive}: {what} is {value!r:.80}, but must be a whole number")
    return number
