"""Random primitives with random arguments, for tests: most name what is there, some do not.

Which primitives there are and what they take is read off the `Schedule` itself.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .ir import TensorIntrinsic
from .schedule import REPLAYED, Schedule, Step

SCOPES = ("global", "near")
NOWHERE = 0.04
"""How often an argument is the name of something that is not there, or a number out of range."""


def random_step(
    schedule: Schedule, chance: random.Random, intrinsics: Mapping[str, TensorIntrinsic], scopes: Sequence[str] = SCOPES
) -> Step:
    """A primitive to be tried next."""
    drawn = _Draw(schedule, chance, intrinsics, scopes, chance.choice(schedule.blocks()))
    names = sorted(REPLAYED) if intrinsics else sorted(REPLAYED - {"tensorize"})
    signatures = {name: inspect.signature(getattr(Schedule, name)).parameters for name in names}
    # What moves stages meets the most conditions, and is refused most often.
    name = chance.choices(names, [3 if {"block", "loop"} <= signatures[name].keys() else 1 for name in names])[0]
    parameters = signatures[name].values()
    arguments: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.name == "self":
            continue
        optional = parameter.default is not inspect.Parameter.empty
        # Of arguments that may be left out together the first that is given decides.
        if optional and (any(each in arguments for each in ("factor", "factors")) or chance.random() < 0.3):
            continue
        arguments[parameter.name] = drawn.argument(parameter.name, str(parameter.annotation))
    if "order" in arguments and "factors" in arguments and chance.random() > NOWHERE:
        arguments["factors"] = [chance.randint(1, 4) for _ in arguments["order"]]
    return Step(name, tuple(arguments.items()))


@dataclass
class _Draw:
    """Arguments around one block, which most of them belong to."""

    schedule: Schedule
    chance: random.Random
    intrinsics: Mapping[str, TensorIntrinsic]
    scopes: Sequence[str]
    focus: str

    def argument(self, name: str, annotation: str) -> Any:
        if self.chance.random() < NOWHERE:
            return self.stray(name, annotation)
        if (name, annotation) == ("axis", "str"):
            return self.chance.choice(("blockIdx.x", "threadIdx.x"))
        return DRAWN[name](self)

    def stray(self, name: str, annotation: str) -> Any:
        """A right type with a wrong value."""
        if name == "factors":
            return self.chance.choice(([], [0, 0], [-1, 3], [2, None]))
        if name == "order":
            return self.chance.choice(([], ["nowhere"], self.loops() * 2))
        if name in ("exact", "explain"):
            return DRAWN[name](self)
        if name == "intrinsic":
            return self.chance.choice(sorted(self.intrinsics))
        return self.chance.choice((-1, 0, 1 << 20)) if "int" in annotation.split() else "nowhere"

    def loops(self) -> list[str]:
        block = self.focus if self.chance.random() < 0.6 else self.chance.choice(self.schedule.blocks())
        return [var.name for var in self.schedule.get_loops(block)]

    def loop(self) -> str:
        return self.chance.choice(self.loops() or ["none"])

    def below(self) -> str:
        loops = [var.name for var in self.schedule.get_loops(self.focus)] or ["none"]
        return self.chance.choice(loops[1:] or loops)

    def above(self) -> str:
        loops = [var.name for var in self.schedule.get_loops(self.focus)] or ["none"]
        return self.chance.choice(loops[:-1] or loops)

    def order(self) -> list[str]:
        """Loops of one block: neighbours as they are, or some in any order."""
        loops = [var.name for var in self.schedule.get_loops(self.focus)] or ["none"]
        first = self.chance.randrange(len(loops))
        if self.chance.random() < 0.4:
            return loops[first : first + 2]
        return self.chance.sample(loops, self.chance.randint(1, len(loops)))

    def buffer(self) -> str:
        return self.chance.choice([each.name for each in self.schedule.buffers()])

    def block(self) -> str:
        return self.focus if self.chance.random() < 0.7 else self.chance.choice(self.schedule.blocks())

    def factors(self) -> list[int | None]:
        whole: list[int | None] = [self.chance.randint(1, 5) for _ in range(self.chance.randint(1, 3))]
        return [None, *whole] if self.chance.random() < 0.8 else whole


DRAWN: dict[str, Callable[[_Draw], Any]] = {
    "loop": _Draw.loop,
    "outer": _Draw.above,
    "inner": _Draw.below,
    "order": _Draw.order,
    "block": _Draw.block,
    "buffer": _Draw.buffer,
    "factor": lambda draw: draw.chance.randint(1, 6),
    "factors": _Draw.factors,
    "axis": lambda draw: draw.chance.randint(0, 3),
    "offset": lambda draw: draw.chance.randint(0, 3),
    "whole": lambda draw: draw.chance.randint(0, 3),
    "scope": lambda draw: draw.chance.choice(draw.scopes),
    "key": lambda draw: "note",
    "value": lambda draw: draw.chance.choice((7, "text")),
    "intrinsic": lambda draw: draw.chance.choice(sorted(draw.intrinsics)),
    "exact": lambda draw: draw.chance.random() < 0.5,
    "explain": lambda draw: draw.chance.random() < 0.5,
}
"""How an argument of each name is drawn."""
