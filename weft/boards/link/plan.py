"""How a whole model runs on a board: what the host sends as JSON, read and checked.

A model is a list of steps over numbered values, each a piece of memory. A :class:`CoreStep` runs a program of the core;
a :class:`HostStep` runs functions of a shared library on the board's processor, which the host made of the model's
kernels. All that is named here is checked to lie inside of its memory; what the functions themselves touch is not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .errors import LinkError
from .messages import LARGEST_WINDOW, Kind, Many, OneOf, Text, Whole, check_fields

MOST_STEPS = 1 << 14
MOST_THREADS = 64
ARENA, CONSTANT, INPUT, OUTPUT = PLACES = ("arena", "constant", "input", "output")
INTEGERS = {f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)}
"""Types of indices, and their bytes."""


@dataclass(frozen=True)
class Place:
    """Bytes in a host step: in its arena, its constants, or one of its inputs and outputs (``number``)."""

    kind: str
    number: int
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Call:
    """A function ``symbol(table, thread)``, and the bytes of counters that are zeroed before it."""

    symbol: str
    counter_bytes: int


@dataclass(frozen=True)
class Copy:
    """Equally many bytes from one place to another."""

    source: Place
    target: Place


@dataclass(frozen=True)
class Check:
    """Indices that the functions trust: each in ``-size..size-1``; one size for all, or one for each number along the
    last axis. ``node`` is the user's."""

    indices: Place
    dtype: str
    sizes: tuple[int, ...]
    node: str


@dataclass(frozen=True)
class HostStep:
    """``inputs`` and ``outputs``: numbers of values. ``constants``: offset and bytes in the file of constants.
    ``library``: which of the model's libraries."""

    library: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: tuple[int, int]
    arena_bytes: int
    actions: tuple[Call | Copy | Check, ...]


@dataclass(frozen=True)
class CoreStep:
    """``count`` instructions at a byte of the window; ``writes`` before and ``reads`` after: value, offset."""

    offset: int
    count: int
    writes: tuple[tuple[int, int], ...]
    reads: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Plan:
    """``values``: bytes of each value; ``inputs`` and ``outputs``: those of the model, in its order. ``threads`` share
    the work of each function; for that they need ``team_bytes`` of memory."""

    values: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: tuple[HostStep | CoreStep, ...]
    threads: int = 1
    team_bytes: int = 0

    @property
    def input_bytes(self) -> int:
        return sum(self.values[number] for number in self.inputs)

    @property
    def output_bytes(self) -> int:
        return sum(self.values[number] for number in self.outputs)

    @property
    def programs(self) -> int:
        return sum(isinstance(step, CoreStep) for step in self.steps)


_KINDS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in (Call, Copy, Check, HostStep, CoreStep)}

_BYTES = Whole(0, LARGEST_WINDOW)
_NUMBER = Whole(0, MOST_STEPS)
_NUMBERS = Many(_NUMBER, most=MOST_STEPS)
_PAIR = Many(_BYTES, 2, 2)
_TRANSFERS = Many(_PAIR, most=MOST_STEPS)
_PLACE: Mapping[str, Kind] = {"kind": OneOf(PLACES), "number": _NUMBER, "offset": _BYTES, "nbytes": _BYTES}
_FIELDS: Mapping[str, Mapping[str, Kind | None]] = {  # None: an object or a list of objects, checked on its own
    "Plan": {"values": Many(_BYTES, most=MOST_STEPS), "inputs": _NUMBERS, "outputs": _NUMBERS, "steps": None,
             "threads": Whole(1, MOST_THREADS), "team_bytes": Whole(0, 1 << 16)},
    "HostStep": {"library": _NUMBER, "inputs": _NUMBERS, "outputs": _NUMBERS, "constants": _PAIR,
                 "arena_bytes": _BYTES, "actions": None},
    "CoreStep": {"offset": _BYTES, "count": Whole(0, (1 << 32) - 1), "writes": _TRANSFERS, "reads": _TRANSFERS},
    "Call": {"symbol": Text(200), "counter_bytes": Whole(0, 1 << 24)},
    "Copy": {"source": None, "target": None},
    "Check": {"indices": None, "dtype": OneOf(tuple(INTEGERS)), "sizes": Many(Whole(0, (1 << 63) - 1), 1, 64),
              "node": Text(1000)},
}  # fmt: skip


def plan_text(plan: Plan) -> bytes:
    """JSON that :func:`read_plan` reads."""

    def tagged(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return [tagged(each) for each in value]
        name = type(value).__name__
        if name in _KINDS:
            return {"do": name, **{key: tagged(getattr(value, key)) for key in value.__dataclass_fields__}}
        return asdict(value) if isinstance(value, Place) else value

    return json.dumps({key: tagged(getattr(plan, key)) for key in plan.__dataclass_fields__}).encode()


def read_plan(raw: bytes, libraries: int, constant_bytes: int, window_bytes: int) -> Plan:
    """A plan for so many libraries, constants and a window of so many bytes; LinkError unless all of it is inside."""
    try:
        value = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise LinkError("protocol", f"a plan is not JSON: {str(error)[:200]}") from None
    fields = _object(value, "Plan")
    plan = Plan(
        tuple(fields["values"]), tuple(fields["inputs"]), tuple(fields["outputs"]),
        tuple(_step(each) for each in _list(fields["steps"], "steps")), fields["threads"], fields["team_bytes"],
    )  # fmt: skip
    _inside(plan, libraries, constant_bytes, window_bytes)
    return plan


def _object(value: Any, name: str) -> dict[str, Any]:
    fields = _FIELDS[name]
    if not isinstance(value, dict) or value.keys() != fields.keys():
        raise LinkError("protocol", f"plan: {name} has not the fields {', '.join(fields)}")
    kinds = {key: kind for key, kind in fields.items() if kind is not None}
    check_fields("plan", {key: value[key] for key in kinds}, kinds)
    return value


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > MOST_STEPS:
        raise LinkError("protocol", f"plan: {name} is no list of at most {MOST_STEPS}")
    return value


def _tagged(value: Any, allowed: tuple[type[Any], ...]) -> tuple[str, dict[str, Any]]:
    name = value.get("do") if isinstance(value, dict) else None
    if name not in [kind.__name__ for kind in allowed]:
        raise LinkError("protocol", f"plan: there is no step {str(name)[:40]!r} here")
    return str(name), _object({key: each for key, each in value.items() if key != "do"}, str(name))


def _step(value: Any) -> HostStep | CoreStep:
    name, fields = _tagged(value, (HostStep, CoreStep))
    if name == "CoreStep":
        writes, reads = (tuple((pair[0], pair[1]) for pair in fields[key]) for key in ("writes", "reads"))
        return CoreStep(fields["offset"], fields["count"], writes, reads)
    return HostStep(
        fields["library"], tuple(fields["inputs"]), tuple(fields["outputs"]),
        (fields["constants"][0], fields["constants"][1]), fields["arena_bytes"],
        tuple(_action(each) for each in _list(fields["actions"], "actions")),
    )  # fmt: skip


def _action(value: Any) -> Call | Copy | Check:
    name, fields = _tagged(value, (Call, Copy, Check))
    if name == "Call":
        return Call(**fields)
    if name == "Copy":
        return Copy(_place(fields["source"]), _place(fields["target"]))
    return Check(_place(fields["indices"]), fields["dtype"], tuple(fields["sizes"]), fields["node"])


def _place(value: Any) -> Place:
    if not isinstance(value, dict):
        raise LinkError("protocol", "plan: a place is no object")
    check_fields("plan", value, _PLACE)
    return Place(**value)


def _inside(plan: Plan, libraries: int, constant_bytes: int, window_bytes: int) -> None:
    """LinkError for the first thing that is outside of its memory."""

    def require(fits: bool, what: str) -> None:
        if not fits:
            raise LinkError("range", f"plan: {what}")

    def values(numbers: tuple[int, ...]) -> None:
        require(all(number < len(plan.values) for number in numbers), f"there are {len(plan.values)} values only")

    values(plan.inputs)
    values(plan.outputs)
    for step in plan.steps:
        if isinstance(step, CoreStep):
            for number, offset in (*step.writes, *step.reads):
                values((number,))
                require(offset + plan.values[number] <= window_bytes, f"value {number} is outside of the window")
            continue
        values((*step.inputs, *step.outputs))
        require(step.library < libraries, f"there are {libraries} libraries only")
        require(sum(step.constants) <= constant_bytes, "constants are outside of their file")
        sizes = {
            ARENA: (step.arena_bytes,), CONSTANT: (step.constants[1],),
            INPUT: tuple(plan.values[number] for number in step.inputs),
            OUTPUT: tuple(plan.values[number] for number in step.outputs),
        }  # fmt: skip
        for action in step.actions:
            places = {Call: (), Copy: ("source", "target"), Check: ("indices",)}[type(action)]
            for name in places:
                place: Place = getattr(action, name)
                known = sizes[place.kind]
                require(
                    place.number < len(known) and place.offset + place.nbytes <= known[place.number],
                    f"{place} is outside of its memory",
                )
            if isinstance(action, Copy):
                require(action.source.nbytes == action.target.nbytes, "a copy of unequal sizes")
                require(action.target.kind != CONSTANT, "constants are not written")
            if isinstance(action, Check):
                row = len(action.sizes) * INTEGERS[action.dtype]
                require(action.indices.nbytes % row == 0, f"{action.indices} is no {action.dtype} for {row} bytes")
