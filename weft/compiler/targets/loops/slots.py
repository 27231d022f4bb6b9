"""Where values are, in each layout in which they are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...graph.ir import Expr
from .arena import Slot
from .layouts import Layout

Key = tuple[Expr, Layout]


@dataclass(frozen=True)
class Slots:
    """Slots by value and layout. What is known of one value is found without a look at all others."""

    _of: dict[Expr, dict[Layout, Slot]] = field(default_factory=dict)

    def of(self, value: Expr) -> Mapping[Layout, Slot]:
        """The layouts in which a value is there, in the order of their making."""
        return self._of.get(value, {})

    def get(self, key: Key) -> Slot | None:
        return self.of(key[0]).get(key[1])

    def __contains__(self, key: Key) -> bool:
        return key[1] in self.of(key[0])

    def __getitem__(self, key: Key) -> Slot:
        return self._of[key[0]][key[1]]

    def __setitem__(self, key: Key, slot: Slot) -> None:
        self._of.setdefault(key[0], {})[key[1]] = slot
