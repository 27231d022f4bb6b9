"""Which weights are worth 4 bits: those without which a core takes longer, as long as the results stay good."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..api import compile as compile_model
from ..api import load
from ..compiler.graph import Array, Expr, Function, Module, TensorType, Var
from ..compiler.model import CompiledModel, OpenModel
from ..runtime.device import memory_of
from ..runtime.module import LoadedModule
from ..runtime.profile_whatif import predicted_cycles
from .errors import QuantiseError
from .four_bits import FourBits, constants_of, four_bits
from .insert import eight_bits, inserted, quantised, range_of, steps_of
from .offsets import value_of
from .plan import Plan, Weight, require_examples, require_plan
from .ranges import Range

LEAST_GAIN = 1e-4
"""Of the model's cycles: 4 bits that save less are not worth their noise."""


@dataclass(frozen=True, eq=False)
class Paying:
    """Weights that have 4 bits, by name, and what they bring.

    ``saved``: of each weight that could have 4 bits, the cycles that it alone saves, others as they were found.
    ``noise``: the decibels that its noise lies below the results. ``cycles``: of a run with those found, ``before``:
    with weights of 8 bits; by the timing model.
    """

    found: Mapping[str, FourBits]
    saved: Mapping[str, int]
    noise: Mapping[str, float]
    cycles: int
    before: int


@dataclass
class _Cycles:
    """Of a run, by the weights that have 4 bits."""

    plan: Plan
    ranges: Mapping[str, Range]
    four: Mapping[str, FourBits]
    compiled: Callable[[Module], CompiledModel | OpenModel]
    known: dict[frozenset[str], int] = field(default_factory=dict)

    def of(self, names: Collection[str]) -> int:
        key = frozenset(names)
        if key not in self.known:
            model = self.model(key)
            self.known[key] = predicted_cycles(model, memory_of(model))
        return self.known[key]

    def model(self, names: Collection[str]) -> CompiledModel:
        model = self.compiled(quantised(self.plan, self.ranges, {name: self.four[name] for name in names}))
        if not isinstance(model, CompiledModel):
            raise QuantiseError("the model has open sizes, so it has no number of cycles", hint="fix its sizes")
        if model.core is None:
            raise QuantiseError("the model is compiled for no core, so it has no cycles", hint="compile it for a core")
        return model


def four_bits_that_pay(
    plan: Plan, ranges: Mapping[str, Range], examples: Iterable[Mapping[str, Array]],
    compiled: Callable[[Module], CompiledModel | OpenModel], *, least_decibels: float = 15.0,
    progress: Callable[[str], None] = lambda _: None,
) -> Paying:  # fmt: skip
    """The weights of a plan for which 4 bits save cycles of a core, for :func:`weft.quantise.quantised`.

    Layers that compute more than they load gain nothing; they keep 8 bits. All weights that can have 4 bits get them
    first; then one after the other, that with the most noise first, goes back to 8 bits if the whole model does not
    take longer by it.

    examples
        Inputs of the model, by name, one batch each: on them noise is measured.
    compiled
        Compiles a module for the core: ``lambda module: weft.compile(module, "pynq-w4")``. Cycles are those of the
        timing model, with the memory that the model was compiled for.
    least_decibels
        What the noise of all weights of 4 bits together has to lie below the results; where it does not, those go back
        to 8 bits that save least for their noise. Noise of 8 bits is not counted.

    Raises `QuantiseError` for a core without weights of 4 bits, without examples, and if no weight can have 4 bits.
    """
    require_plan(plan)
    require_examples(examples)
    batches = list(examples)
    if not batches:
        raise QuantiseError("there are no examples to measure noise with")
    cycles = _Cycles(plan, ranges, {}, compiled)
    group = cycles.model(()).config.weight_group
    if not group:
        raise QuantiseError("the core has no weights of 4 bits", hint="pynq-w4 has, or CoreConfig(weight_group=64)")
    cycles.four = four_bits(plan, group)
    noise = _noise(plan, ranges, cycles.four, batches, progress)
    kept = set(cycles.four)
    saved: dict[str, int] = {}
    for name in sorted(kept, key=lambda each: -noise[each]):
        progress(f"cycles without 4 bits in {name}")
        saved[name] = cycles.of(kept - {name}) - cycles.of(kept)
        if saved[name] <= LEAST_GAIN * cycles.of(kept):
            kept.remove(name)
    most = 10 ** (-least_decibels / 10)
    while kept and sum(noise[name] for name in kept) > most:
        kept.remove(min(kept, key=lambda name: saved[name] / max(noise[name], np.finfo(float).tiny)))
    if cycles.of(kept) >= cycles.of(()):
        kept = set()
    decibels = {name: float(-10 * np.log10(power)) if power else float("inf") for name, power in noise.items()}
    found = {name: each for name, each in cycles.four.items() if name in kept}
    return Paying(found, saved, decibels, cycles.of(kept), cycles.of(()))


def _noise(
    plan: Plan, ranges: Mapping[str, Range], four: Mapping[str, FourBits], batches: list[Mapping[str, Array]],
    progress: Callable[[str], None],
) -> dict[str, float]:  # fmt: skip
    """By weight, the power of what 4 bits in it alone change in the results, over that of the results; of the output
    where it is largest. The model runs on this machine, with these weights as inputs."""
    weights = {weight.name: weight for weight in plan.weights.values()}
    inputs = {name: Var(f"4 bits of {name}", TensorType(each.integers.shape, "float32"))
              for name, each in four.items()}  # fmt: skip

    def weight_of(weight: Weight) -> Expr:
        return inputs[weight.name] if weight.name in inputs else eight_bits(weight)

    module = inserted(plan, lambda name: steps_of(range_of(ranges, name)), weight_of)
    main = module.main
    params = (*main.params, *inputs.values())
    lifted = Module(Function(params, main.body, main.attrs, main.span), module.stage)
    loaded = load(compile_model(lifted, target="cpu"))
    assert isinstance(loaded, LoadedModule)
    eight = {inputs[name].name: _floats_of(eight_bits(weights[name])) for name in four}
    exact = [loaded.run({**batch, **eight}) for batch in batches]
    found: dict[str, float] = {}
    for number, (name, each) in enumerate(four.items(), 1):
        progress(f"noise of 4 bits: weight {number} of {len(four)}")
        changed = {inputs[name].name: _floats_of(constants_of(weights[name], each))}
        lost: dict[str, float] = {}
        power: dict[str, float] = {}
        for batch, wanted in zip(batches, exact, strict=True):
            for output, value in loaded.run({**batch, **eight, **changed}).items():
                real = wanted[output].astype(np.float64)
                lost[output] = lost.get(output, 0.0) + float(np.square(value - real).sum())
                power[output] = power.get(output, 0.0) + float(np.square(real).sum())
        found[name] = max((lost[output] / power[output] for output in lost if power[output]), default=0.0)
    return found


def _floats_of(constants: Expr) -> Array:
    """What constants behind a dequantise stand for."""
    value = value_of(constants)
    assert value is not None
    return value
