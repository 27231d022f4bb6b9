"""What a verification says: how much was proved, with which chance of error, and what was not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .field import PRIME


@dataclass(frozen=True)
class Alarm:
    """Something that was not proved. ``claim``: program, packing or host; ``layer``, ``tensor``: where; ``element``:
    the first unequal one, (image, channel, row, column); ``unequal``: how many; ``instruction``: number and text of the
    one that stored it last. ``reason``: why there is no proof, where nothing was compared."""

    claim: str
    layer: str
    tensor: str
    reason: str = ""
    element: tuple[int, ...] = ()
    unequal: int = 0
    program: int = 0
    instruction: int = -1
    text: str = ""
    counterexample: str = ""

    def __str__(self) -> str:
        where = f"layer {self.layer!r}, tensor {self.tensor!r}" if self.layer else f"tensor {self.tensor!r}"
        what = self.reason or f"{self.unequal} elements are not proved equal, the first at {self.element}"
        by = f"; instruction {self.instruction} of program {self.program}: {self.text}" if self.text else ""
        example = f"; {self.counterexample}" if self.counterexample else ""
        return f"{self.claim}: {where}: {what}{by}{example}"


def chance_of_error(hashed: Sequence[int], degree: float) -> float:
    """That two unequal polynomials meet somewhere. ``hashed``: results of random functions in each of the proofs; in
    each of them any two arguments are a pair that may meet, with a chance of ``degree`` in the prime."""
    pairs = sum(float(count) * count / 2 for count in hashed)
    return min(1.0, pairs * max(degree, 1) / PRIME)


@dataclass(frozen=True)
class Certificate:
    """``layers``, ``elements``: compared of the programs; ``outputs``: of the model, compared between both graphs;
    ``degree``: the highest of a polynomial; ``error``: the chance, over the seed, that something wrong is proved;
    ``trusted``: what was not looked at."""

    model: str
    seed: int
    layers: int = 0
    elements: int = 0
    outputs: int = 0
    degree: float = 1
    error: float = 1
    alarms: tuple[Alarm, ...] = ()
    trusted: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict, compare=False)

    @property
    def proved(self) -> bool:
        """Whether all that was compared is equal; nothing compared is no proof."""
        return not self.alarms and (self.elements > 0 or self.outputs > 0)

    def summary(self) -> str:
        """One line: what is proved, or that it is not."""
        if not self.proved:
            return f"{self.model}: not proved (seed {self.seed:032x})"
        graphs = f"{self.outputs} outputs of the packed graph and " if self.outputs else ""
        return (
            f"{self.model}: proved for all inputs: {graphs}{self.elements:,} elements of {self.layers} layers; "
            f"chance of error below {self.error:.1e} (seed {self.seed:032x})"
        )

    def record(self) -> dict[str, Any]:
        """Flat, for JSON."""
        return {
            "model": self.model, "proved": self.proved, "layers": self.layers, "elements": self.elements,
            "outputs": self.outputs, "degree": self.degree, "error": self.error, "seed": f"{self.seed:032x}",
            "alarms": [str(each) for each in self.alarms], "trusted": list(self.trusted),
            **{f"{name}_seconds": round(value, 3) for name, value in self.seconds.items()},
        }  # fmt: skip
