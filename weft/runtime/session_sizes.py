"""Sizes for a model whose file leaves them open, so that a session can run it: one token, and room for positions."""

from __future__ import annotations

from collections.abc import Sequence

from ..compiler.graph import Constant, Module, topological_order
from ..compiler.graph.dtypes import is_float
from ..compiler.graph.symbolic import SymbolicInput
from .errors import SessionError
from .session_roles import KNOWN, PAIRS


def require_tokens(inputs: Sequence[SymbolicInput]) -> None:
    """SessionError if no input can be tokens, which is told before a model is compiled."""
    if all(is_float(each.dtype) for each in inputs):
        given = ", ".join(f"{each.name!r} is {each}" for each in inputs) or "there is none"
        raise SessionError(f"the model has no input of tokens, which are whole numbers: {given}",
                           hint="a decoder has one; 'weft run' runs other models")  # fmt: skip


def session_shapes(
    inputs: Sequence[SymbolicInput], positions: int | None, length: int = 1
) -> dict[str, tuple[int, ...]]:
    """Shapes of the inputs with open sizes, found by the names that exporters give (`session_roles.KNOWN`): one
    sequence, ``length`` tokens a run, ``positions`` in the cache.

    A symbol of the tokens, or of their places, is 1 in front and ``length`` at the end; another one of a mask or a
    state is the cache's. Raises :class:`SessionError` for a state whose size is open while ``positions`` is None, and
    for an open input that has no role.
    """
    open_ones = [each for each in inputs if any(isinstance(size, str) for size in each.shape)]
    known: dict[str, int] = {}
    for each in open_ones:
        if each.name in (*KNOWN["tokens"], *KNOWN["places"]):
            for axis, size in enumerate(each.shape):
                if isinstance(size, str):
                    known[size] = length if axis == len(each.shape) - 1 else 1
    shapes: dict[str, tuple[int, ...]] = {}
    for each in open_ones:
        masks = each.name in KNOWN["mask"]
        if not masks and not _is_known(each):
            raise SessionError(f"input {each.name!r} is {each}, and nothing says its sizes", hint="give its shape")
        if positions is None and any(isinstance(size, str) and size not in known for size in each.shape):
            raise SessionError(f"input {each.name!r} is {each}: room for positions has to be fixed",
                               hint="say for how many: positions")  # fmt: skip
        room = (positions or 0) + (length if masks else 0)
        shapes[each.name] = tuple(known.get(size, room) if isinstance(size, str) else size for size in each.shape)
    return shapes


def depends_on_room(module: Module, wider: Module) -> bool:
    """Whether a model computes with the room of its cache as a number, as one does that takes a token's place from it:
    its scores are then those of a token behind the whole room. ``wider``: the same model with more room, in which a
    constant of the same type has other values."""
    one, other = ({(each.type, each.digest) for each in topological_order(which.main.body)
                   if isinstance(each, Constant)} for which in (module, wider))  # fmt: skip
    return bool({kind for kind, _ in one - other} & {kind for kind, _ in other - one})


HIDDEN = -1e3
"""Added to a score, it leaves a position no share."""


def hides_by_room(module: Module, room: int) -> bool:
    """Whether a model for one token a run has a constant mask that hides some of the cache's positions, not others.
    So a window does that is counted from the end of the cache: where that has room behind what is written, these are
    other positions than meant."""
    for each in topological_order(module.main.body):
        if not isinstance(each, Constant) or room + 1 not in each.type.shape:
            continue
        if not (is_float(each.dtype) or each.dtype == "bool"):
            continue
        shown = each.value if each.dtype == "bool" else each.value > HIDDEN
        for axis, size in enumerate(shown.shape):
            if size == room + 1 and (shown.take(range(room), axis) != shown.take([0], axis)).any():
                return True
    return False


def _is_known(each: SymbolicInput) -> bool:
    states = tuple(source for _, source in PAIRS if source)
    return each.name in (*KNOWN["tokens"], *KNOWN["places"]) or any(part in each.name for part in states)
