"""Inputs for which a program gives something else than its graph: looked for at random, on the functional simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler.graph.evaluate import evaluate_function
from ..compiler.graph.ir import Call, Constant, Expr, Function, Module
from ..compiler.graph.visit import calls
from ..compiler.model import CompiledModel, CorePart, CoreStep
from ..errors import WeftError
from ..sim.fsim import FunctionalSimulator
from .certificate import Alarm

Array = npt.NDArray[Any]

TRIED = 4
"""Random inputs of the whole range of int8: nine in ten wrong instructions show with the first."""


def with_counterexamples(
    model: CompiledModel, module: Module, names: Mapping[Call, str], alarms: Sequence[Alarm]
) -> list[Alarm]:
    """The alarms; the first of each program says for which inputs it shows, if that is found."""
    seen: set[int] = set()
    result = []
    for alarm in alarms:
        if alarm.claim == "program" and alarm.tensor and alarm.program not in seen and alarm.instruction >= 0:
            seen.add(alarm.program)
            alarm = replace(alarm, counterexample=counterexample(model, module, names, alarm.program))
        result.append(alarm)
    return result


def counterexample(model: CompiledModel, module: Module, names: Mapping[Call, str], number: int) -> str:
    """What shows that a program is wrong, in words."""
    step, core = model.programs[number], model.on_core
    for seed in range(TRIED):
        inputs = random_inputs(core, step, seed)
        wanted = concrete_values(module, names, inputs)
        found = simulated(core, step, inputs)
        if isinstance(found, str):
            return f"fsim, random inputs with seed {seed}: {found}"
        for name, value in found.items():
            if name in wanted and (value != wanted[name]).any():
                place = tuple(int(each) for each in np.argwhere(value != wanted[name])[0])
                text = f"{name}{list(place)} is {value[place]}, but must be {wanted[name][place]}"
                return f"fsim, random inputs with seed {seed}: {text}"
    return f"{TRIED} runs with random inputs on fsim do not show it"


def random_inputs(core: CorePart, step: CoreStep, seed: int) -> dict[str, Array]:
    """Packed tensors of the whole range of int8 for the inputs of a program."""
    random = np.random.default_rng(seed)
    return {name: random.integers(-128, 128, core.slots[name].shape, np.int8) for name in step.inputs}


def concrete_values(module: Module, names: Mapping[Call, str], inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What the packed graph makes of the inputs of a program, by name."""
    values: dict[Expr, Array] = {}
    found: dict[str, Array] = {}

    def value_of(node: Expr) -> Array | None:
        if isinstance(node, Constant):
            return node.value
        name = names[node] if isinstance(node, Call) else str(getattr(node, "name", ""))
        return inputs[name] if name in inputs else values.get(node)

    for node in calls(module.main.body):
        if not isinstance(node.op, Function) or not node.op.is_primitive or names[node] in inputs:
            continue
        arguments = [value_of(each) for each in node.args]
        known = [each for each in arguments if each is not None]
        if len(known) == len(arguments):
            values[node] = np.asarray(evaluate_function(node.op, known))
            found[names[node]] = values[node]
    return found


def simulated(core: CorePart, step: CoreStep, inputs: Mapping[str, Array]) -> dict[str, Array] | str:
    """The outputs of a program on the functional simulator, or how it failed."""
    config = core.config_of(step)
    simulator = FunctionalSimulator(config, core.window_bytes, check_races=False)
    for segment in core.constants:
        simulator.dram[segment.offset : segment.offset + segment.data.nbytes] = segment.data
    simulator.dram[step.program_offset :][: step.program.nbytes] = step.program
    for name, value in inputs.items():
        simulator.dram[core.slots[name].offset :][: value.nbytes] = np.ascontiguousarray(value).view(np.uint8).ravel()
    for memory in config.scratchpads:
        array = simulator.memories.array(memory)
        array[...] = np.random.default_rng(len(inputs)).integers(-128, 128, array.shape)
    try:
        result = simulator.run(step.program_offset, step.program.nbytes // config.instruction_bytes)
    except WeftError as error:
        return str(error)
    if result.fault is not None:
        return f"the core stops: {result.fault}"
    slots = [core.slots[name] for name in step.outputs]
    return {
        slot.name: simulator.dram[slot.offset :][: slot.nbytes].copy().view(slot.dtype).reshape(slot.shape)
        for slot in slots
    }
