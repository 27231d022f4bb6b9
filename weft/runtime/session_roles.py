"""Which inputs and outputs of a model make it one that continues a sequence: tokens, their places, states, scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypedDict

from ..compiler.graph.dtypes import is_float, numpy_dtype
from ..compiler.model import TensorSpec
from .errors import SessionError


class RoleNames(TypedDict, total=False):
    """Names of inputs and of the output that are not found by themselves."""

    tokens: str
    places: str
    mask: str
    scores: str


KNOWN = {
    "tokens": ("input_ids", "tokens", "token", "ids"),
    "places": ("position_ids", "positions", "position", "cache_position"),
    "mask": ("attention_mask", "mask"),
    "scores": ("logits", "scores"),
}
"""How exporters call what has a role."""

PAIRS = (("present", "past_key_values"), ("present", "past"), ("_out", "_in"), ("new_", "old_"), ("next_", ""))
"""What stands in the name of an output that becomes an input, and what in the input's instead."""


@dataclass(frozen=True)
class State:
    """A tensor between runs. ``axis``: that of positions, of which a run gives new ones, beginning at ``first`` of the
    output; None: the output is the next run's input as a whole."""

    input: TensorSpec
    output: TensorSpec
    axis: int | None
    first: int

    @property
    def positions(self) -> int | None:
        """That it has room for."""
        return None if self.axis is None else self.input.shape[self.axis]


@dataclass(frozen=True)
class Roles:
    """``length``: tokens of a run. ``rows``: of scores that it gives, ``length`` or 1. ``positions``: what the states
    have room for; None where they are no rows of positions."""

    tokens: TensorSpec
    length: int
    places: TensorSpec | None
    mask: TensorSpec | None
    scores: TensorSpec
    rows: int
    states: tuple[State, ...]
    positions: int | None

    @property
    def vocabulary(self) -> int:
        """Tokens that there are scores for."""
        return self.scores.shape[-1]


def roles_of(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], names: RoleNames, states: Mapping[str, str] | None
) -> Roles:
    """The roles in a model of one sequence; :class:`SessionError` says what is missing or does not fit.

    Tokens are whole numbers ``(length)``, with axes of 1 in front; places as well, or one number, the first one's. A
    mask has whole numbers or truth values, 1 for each position that may be looked at: those of the cache, behind them
    those of the run; where states are given as a whole, those of both together. Scores are floats, the last axis over
    the vocabulary.
    """
    if unknown := set(names) - set(KNOWN):
        raise SessionError(f"there is no role {min(unknown)!r}", hint=f"the roles: {', '.join(KNOWN)}")
    ins, outs = ({each.name: each for each in specs} for specs in (inputs, outputs))
    pairs = _given(states, ins, outs) if states is not None else list(found_pairs(ins, outs))
    taken = {source.name for _, source in pairs}
    free = {name: each for name, each in ins.items() if name not in taken}
    tokens = _role("tokens", names, free, "input")
    if tokens is None or not _is_row(tokens):
        raise SessionError(f"the model has no input of tokens{_but(tokens)}",
                           hint=f"tokens=NAME of whole numbers (1, length); its inputs: {', '.join(free)}")  # fmt: skip
    length = prod(tokens.shape)
    places = _role("places", names, free, "input")
    if places is not None and not (_is_row(places) and prod(places.shape) in (1, length)):
        raise SessionError(f"input {places.name!r} has no places of {length} tokens{_but(places)}")
    mask = _role("mask", names, free, "input")
    known = {each.name for each in (tokens, places, mask) if each is not None}
    if extra := [name for name in free if name not in known]:
        raise SessionError(
            f"the model has an input {extra[0]!r} that is no token, place, mask or state",
            hint="a state is given by states={OUTPUT: INPUT}, others by their role",
        )
    scores = _role("scores", names, {name: each for name, each in outs.items()
                                     if name not in {output.name for output, _ in pairs}}, "output")  # fmt: skip
    if scores is None or not is_float(scores.dtype) or not scores.shape or 0 in scores.shape:
        raise SessionError(f"the model has no output of scores{_but(scores)}",
                           hint=f"scores=NAME of floats; its outputs: {', '.join(outs)}")  # fmt: skip
    rows = prod(scores.shape[:-1])
    if rows not in (1, length):
        raise SessionError(f"output {scores.name!r} has {rows} rows of scores, but a run {length} tokens")
    made = tuple(_state(output, source, length) for output, source in pairs)
    rooms = {each.positions for each in made if each.positions is not None}
    if len(rooms) > 1:
        raise SessionError(f"states have room for different numbers of positions: {sorted(rooms)}")
    positions = rooms.pop() if rooms else None
    if mask is not None:
        if positions is None and _is_mask(mask):
            positions = prod(mask.shape)
        elif positions is None or not _is_mask(mask) or prod(mask.shape) != positions + length:
            size = "positions" if positions is None else f"the cache's {positions} positions and {length} of a run"
            raise SessionError(f"input {mask.name!r} is no mask of {size}{_but(mask)}",
                               hint="one of whole numbers or truth values, 1 where a token may look")  # fmt: skip
    return Roles(tokens, length, places, mask, scores, rows, made, positions)


def _given(
    states: Mapping[str, str], ins: Mapping[str, TensorSpec], outs: Mapping[str, TensorSpec]
) -> list[tuple[TensorSpec, TensorSpec]]:
    if not isinstance(states, Mapping):
        raise SessionError(f"states is {states!r:.80}, but must be {{OUTPUT: INPUT}}")
    for output, source in states.items():
        if output not in outs or source not in ins:
            what = f"output {output!r}" if output not in outs else f"input {source!r}"
            raise SessionError(f"the model has no {what}", hint=f"its outputs: {', '.join(outs)}")
    if len(set(states.values())) < len(states):
        raise SessionError("two outputs become the same input", hint="states={OUTPUT: INPUT}, each input once")
    return [(outs[output], ins[source]) for output, source in states.items()]


def found_pairs(
    ins: Mapping[str, TensorSpec], outs: Mapping[str, TensorSpec]
) -> Iterator[tuple[TensorSpec, TensorSpec]]:
    for name, output in outs.items():
        for there, here in PAIRS:
            source = name.replace(there, here, 1)
            if there in name and source in ins:
                yield output, ins[source]
                break


def _role(what: str, names: RoleNames, free: Mapping[str, TensorSpec], kind: str) -> TensorSpec | None:
    """The tensor of a role: the one that was named, or the one with a usual name; tokens and scores also the only one
    that is left."""
    name = dict(names).get(what)
    if name is not None:
        if name not in free:
            raise SessionError(f"the model has no {kind} {name!r} for {what}", hint=f"there are: {', '.join(free)}")
        return free[str(name)]
    for usual in KNOWN[what]:
        if usual in free:
            return free[usual]
    return next(iter(free.values())) if what in ("tokens", "scores") and len(free) == 1 else None


def _is_row(spec: TensorSpec) -> bool:
    return _is_integer(spec) and prod(spec.shape) > 0 and all(size == 1 for size in spec.shape[:-1])


def _state(output: TensorSpec, source: TensorSpec, length: int) -> State:
    what = f"state {source.name!r} is {source.dtype}{list(source.shape)}, but output {output.name!r} is "
    what += f"{output.dtype}{list(output.shape)}"
    if output.dtype != source.dtype or len(output.shape) != len(source.shape):
        raise SessionError(what, hint="both must be of one type and of as many axes")
    if output.shape == source.shape:
        return State(source, output, None, 0)
    unequal = [axis for axis, sizes in enumerate(zip(output.shape, source.shape, strict=True)) if len(set(sizes)) > 1]
    axis = unequal[0]
    made, kept = output.shape[axis], source.shape[axis]
    if len(unequal) > 1 or made not in (length, kept + length):
        raise SessionError(what, hint=f"it must be as large, or have {length} or {kept + length} positions in one axis")
    return State(source, output, axis, made - length)


def _is_mask(spec: TensorSpec) -> bool:
    return spec.dtype == "bool" or _is_integer(spec)


def _is_integer(spec: TensorSpec) -> bool:
    return numpy_dtype(spec.dtype).kind in "iu"


def _but(spec: TensorSpec | None) -> str:
    return "" if spec is None else f": {spec.name!r} is {spec.dtype}{list(spec.shape)}"
