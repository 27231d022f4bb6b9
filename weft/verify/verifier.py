"""A compiled model against its packed graph, and that against the integer graph, for all inputs.

``docs/certificates.md`` states what is proved, and of what it is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import prod

import numpy as np

from ..compiler.graph.ir import Call, Constant, Expr, Function, GraphError, Module
from ..compiler.graph.visit import calls
from ..compiler.model import CompiledModel, CorePart, CoreStep, HostStep, TensorSlot
from ..compiler.targets.accel.check import Range, check_program
from ..compiler.targets.accel.check_turn import meeting
from ..compiler.targets.errors import CompileError
from ..hw.assembly import format_instruction
from ..hw.columns import instructions_of
from ..hw.errors import InstructionError
from ..hw.isa import Instruction
from ..hw.programs import columns_of
from ..whole import whole
from .certificate import Alarm, Certificate, chance_of_error
from .counterexample import with_counterexamples
from .errors import NotProvedError, VerifyError
from .field import Elements, Numbers
from .graph import evaluated
from .integer_operators import Context
from .keyed import Keys, fresh_seed
from .layout import in_memory_order, packed_place, plain_shape
from .machine import Machine
from .residents import resident_alarms, spoiled_alarms
from .values import Value, bytes_value, known
from .window import Window

_PACKED_RANK = 7


def verify(
    model: CompiledModel, integer: Module | None = None, *, seed: int | None = None, repeat: int = 1
) -> Certificate:
    """Prove the programs of ``model`` equal to its packed graph, and that to ``integer``, its graph at stage "integer".

    Without ``integer`` only the first; its tensors may be packed. ``seed``: drawn anew by default, which is what makes
    a certificate worth something against whoever made the program. ``repeat``: times with other random numbers; chances
    of error multiply.
    VerifyError for a model without programs or without its graph.
    """
    times, chosen = whole(repeat), fresh_seed() if seed is None else whole(seed)
    if times is None or times < 1:
        raise VerifyError(f"repeat is {repeat!r:.80}, but must be a whole number of at least 1")
    if chosen is None:
        raise VerifyError(f"seed is {seed!r:.80}, but must be a whole number",
                          hint='that of a printed certificate is int("SEED", 16)')  # fmt: skip
    module, names = _witness(model)
    made = [_Verification(model, module, names, chosen + number).run(integer) for number in range(times)]
    worst = next((each for each in made if each.alarms), made[0])
    return replace(worst, error=prod(each.error for each in made), seed=chosen)


def require_programs(model: CompiledModel) -> None:
    """:class:`VerifyError` for a model without programs."""
    if model.core is None:
        raise VerifyError(f"nothing of {model.name!r} runs on a core", hint="compile it with target 'accel'")


def _witness(model: CompiledModel) -> tuple[Module, dict[Call, str]]:
    """The packed graph of a model and the names of its values."""
    require_programs(model)
    if model.witness is None:
        raise VerifyError(f"{model.name!r} does not say what its programs compute", hint="compile it again")
    try:
        module = model.witness.module()
    except GraphError as error:
        raise VerifyError(f"the graph in {model.name!r} cannot be read: {error}", hint="compile it again") from error
    nodes = calls(module.main.body)
    if len(nodes) != len(model.witness.names) or any(not isinstance(node.op, Function) for node in nodes):
        raise VerifyError(f"the graph in {model.name!r} does not fit its names", hint="compile it again")
    return module, dict(zip(nodes, model.witness.names, strict=True))


@dataclass
class _Verification:
    model: CompiledModel
    module: Module
    names: Mapping[Call, str]
    seed: int
    layers: int = 0
    elements: int = 0
    outputs: int = 0
    hashed: list[int] = field(default_factory=list)
    degree: float = 1
    alarms: list[Alarm] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, integer: Module | None) -> Certificate:
        trusted = []
        if integer is not None:
            self._timed("packing", lambda: self._packing(integer))
        else:
            trusted.append("that the packed graph is the model's: no model was given")
        wanted: dict[str, Elements] = {}
        keys = Keys(self.seed)
        self._timed("graph", lambda: wanted.update(self._wanted(keys)))
        self._timed("program", lambda: self._programs(wanted, keys))
        self.alarms += resident_alarms(self.model, self.module, self.names, keys)
        self.hashed.append(keys.made)
        self.alarms = with_counterexamples(self.model, self.module, self.names, self.alarms)
        hosts = [step for step in self.model.steps if isinstance(step, HostStep)]
        if hosts:
            count = sum(len(step.program.layers) for step in hosts)
            trusted.append(f"the host's kernels and NumPy ({count} layers)")
        return Certificate(
            self.model.name, self.seed, self.layers, self.elements, self.outputs, self.degree,
            chance_of_error(self.hashed, self.degree), tuple(self.alarms), tuple(trusted), self.seconds,
        )  # fmt: skip

    def _timed(self, name: str, work: Callable[[], None]) -> None:
        began = time.process_time()
        try:
            work()
        except NotProvedError as reason:
            self.alarms.append(Alarm(name, "", "", str(reason)))
        self.seconds[name] = time.process_time() - began

    def _packing(self, integer: Module) -> None:
        keys = Keys(self.seed)
        self.outputs = len(integer.main.output_names)
        self.alarms += unequal_outputs(integer, self.module, keys)
        self.hashed.append(keys.made)

    # The programs and the packed graph

    def _wanted(self, keys: Keys) -> dict[str, Elements]:
        """What each tensor of the core is, by name, in the order of its bytes. What the host makes is random."""
        context = Context(keys, one_byte=False)
        values: dict[Expr, Value] = {}
        found: dict[str, Elements] = {}

        def value_of(node: Expr) -> Value:
            if node not in values:
                atoms = keys.atoms(_held_shape(node.shape), "tensor", self._name(node))
                values[node] = bytes_value(atoms) if node.dtype == "int8" else known(atoms)
                self._add(found, node, values[node], keys)
            return values[node]

        for node in calls(self.module.main.body):
            if not isinstance(node.op, Function) or not node.op.is_primitive or node in values:
                continue  # equal nodes are one value
            operands = [each.value if isinstance(each, Constant) else value_of(each) for each in node.args]
            try:
                (made,) = evaluated(node.op, operands, context)
            except NotProvedError as reason:
                self.alarms.append(Alarm("program", node.op.name, self.names[node], str(reason)))
                made = bytes_value(keys.atoms(_held_shape(node.shape), "not proved", self.names[node]))
            if node.dtype == "int8" and made.kind.any():
                made = bytes_value(made.elements(keys))
            values[node] = made
            self._add(found, node, made, keys)
        return found

    def _name(self, node: Expr) -> str:
        return self.names[node] if isinstance(node, Call) else str(getattr(node, "name", ""))

    def _add(self, found: dict[str, Elements], node: Expr, value: Value, keys: Keys) -> None:
        name, elements = self._name(node), value.elements(keys)
        if name in found:
            raise VerifyError(f"two values of the graph in {self.model.name!r} are called {name!r}")
        shape = node.shape
        found[name] = in_memory_order(elements, shape) if len(shape) == _PACKED_RANK else elements

    def _programs(self, wanted: Mapping[str, Elements], keys: Keys) -> None:
        """Every program in turn, each from a core of which nothing is known but the window."""
        core = self.model.on_core
        made = {spec.name for spec in self.model.inputs}
        window = Window(core, keys)
        number = 0
        for step in self.model.steps:
            if isinstance(step, HostStep):
                missing = set(step.inputs) - made
                if missing:
                    raise NotProvedError(f"the host reads {sorted(missing)[0]!r} before it is made")
                made |= set(step.outputs)
                continue
            self._program(number, step, core, window, keys, wanted, made)
            made |= set(step.outputs)
            number += 1
        if self.model.shared_by > 1:
            for _, turn in groupby(self.model.programs, lambda step: step.turn):
                self._at_once(core, list(turn))
        self.alarms += spoiled_alarms(self.model, window, wanted)
        lacking = [spec.name for spec in self.model.outputs if spec.name not in made]
        if lacking:
            self.alarms.append(Alarm("program", "", lacking[0], "no step makes this output"))

    def _program(
        self, number: int, step: CoreStep, core: CorePart, window: Window, keys: Keys,
        wanted: Mapping[str, Elements], made: set[str],
    ) -> None:  # fmt: skip
        for name in step.inputs:
            if name not in made or name not in wanted or name not in core.slots:
                raise NotProvedError(f"program {number} reads {name!r}, which nobody has made")
            window.write(core.slots[name], wanted[name])
        try:
            instructions = checked_instructions(core, step)
        except (CompileError, InstructionError) as error:
            self.alarms.append(Alarm("program", "", "", str(error), program=number))
            return
        run = _ProgramRun(self, number, step, core, window, wanted, instructions)
        machine = Machine(core.config_of(step), window, keys)
        try:
            machine.run(instructions, run.after)
        except NotProvedError as reason:
            self.alarms.append(run.alarm_at(machine.number, str(reason)))
            return
        finally:
            self.degree = max(self.degree, machine.degree)
        for name in step.outputs:
            run.compare(name)

    def _at_once(self, core: CorePart, steps: Sequence[CoreStep]) -> None:
        """Programs of a turn mean what they do one after the other, if no core touches what another one writes."""
        met = meeting(core.config, [step.program for step in steps])
        if met is not None:
            one, does, other, place = met
            reason = f"core {one} may {does} byte {place:#x} of the window, which core {other} writes in the same turn"
            self.alarms.append(Alarm("program", "", "", reason, program=steps[one].turn * len(steps) + one))


class _ProgramRun:
    """One run of a program: compares each layer's result behind the last instruction of the layer."""

    def __init__(
        self, of: _Verification, number: int, step: CoreStep, core: CorePart, window: Window,
        wanted: Mapping[str, Elements], instructions: Sequence[Instruction],
    ) -> None:  # fmt: skip
        self.of, self.number, self.step, self.core, self.window = of, number, step, core, window
        self.wanted, self.instructions = wanted, instructions
        self.done: set[str] = set()
        self.last = {int(layer): place for place, layer in enumerate(step.layer_of)}
        self.ends = {place: layer for layer, place in self.last.items()}
        final = len(step.layer_of) - 1  # FINISH counts to the last layer
        if final in self.ends:
            self.ends[final - 1] = self.ends[final]

    def layer(self, place: int) -> int:
        return int(self.step.layer_of[place]) if place < len(self.step.layer_of) else -1

    def after(self, place: int) -> None:
        if self.of.model.shared_by > 1:
            return  # a layer is whole once all cores have ended
        layer = self.ends.get(place, -1)
        if 0 <= layer < len(self.of.model.layers):
            self.compare(self.of.model.layers[layer].output)

    def compare(self, name: str) -> None:
        """A tensor in the window with what the graph says. After an alarm the tensor is put right, so that the layers
        behind are judged for themselves."""
        slot, wanted = self.core.slots.get(name), self.wanted.get(name)
        if slot is None or wanted is None or slot.shape != wanted.shape:
            reason = "there is no such tensor in the window, or none of this shape in the graph"
            self.of.alarms.append(Alarm("program", "", name, reason, program=self.number))
            return
        found = self.window.tensor(slot)
        if name not in self.done:
            self.of.layers, self.of.elements = self.of.layers + 1, self.of.elements + wanted.size
            self.done.add(name)
        if (found != wanted).any():
            self.of.alarms.append(self._unequal(slot, np.flatnonzero((found != wanted).ravel())))
            found[...] = wanted

    def _unequal(self, slot: TensorSlot, unequal: Numbers) -> Alarm:
        first = int(unequal[0])
        place = packed_place(first, slot.shape) if len(slot.shape) == _PACKED_RANK else (first,)
        writer = self.window.writer_of(slot, first)
        layers = [each.name for each in self.of.model.layers if each.output == slot.name]
        found = Alarm("program", layers[0] if layers else "", slot.name, element=place, unequal=len(unequal),
                      program=self.number)  # fmt: skip
        if writer < 0:
            return replace(found, reason=f"{len(unequal)} elements, the first at {place}, are never stored")
        return replace(found, instruction=writer, text=format_instruction(self.instructions[writer]))

    def alarm_at(self, place: int, reason: str) -> Alarm:
        """Of an instruction that no proof covers."""
        layer = self.layer(place)
        known_layer = 0 <= layer < len(self.of.model.layers)
        name, output = (
            (self.of.model.layers[layer].name, self.of.model.layers[layer].output) if known_layer else ("", "")
        )
        text = format_instruction(self.instructions[place]) if place < len(self.instructions) else ""
        return Alarm("program", name, output, reason, program=self.number, instruction=place, text=text)


def checked_instructions(core: CorePart, step: CoreStep) -> list[Instruction]:
    """The instructions of a program that has no race, deadlock or fault, so that its order is its meaning; else
    ProgramError, or InstructionError."""
    constants = tuple(Range(each.offset, each.offset + each.data.nbytes) for each in core.constants)
    config = core.config_of(step)
    check_program(config, step.program, step.program_offset, constants)
    return instructions_of(columns_of(config, step.program))


def unequal_outputs(first: Module, second: Module, keys: Keys) -> list[Alarm]:
    """The outputs in which two graphs differ for random inputs; NotProvedError for what no proof covers."""
    context = Context(keys, one_byte=True)
    wanted, found = _outputs(first, context), _outputs(second, context)
    if wanted.keys() != found.keys():
        raise NotProvedError(f"outputs {sorted(found)} are not those of the model, {sorted(wanted)}")
    alarms = []
    for name, value in wanted.items():
        other = found[name]
        if other.shape != value.shape:
            alarms.append(Alarm("packing", "", name, f"its shape is {other.shape}, not {value.shape}"))
        elif (other != value).any():
            unequal = np.flatnonzero((other != value).ravel())
            place = tuple(int(each) for each in np.unravel_index(int(unequal[0]), value.shape))
            alarms.append(Alarm("packing", "", name, element=place, unequal=len(unequal)))
    return alarms


def _held_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return plain_shape(shape) if len(shape) == _PACKED_RANK else shape


def _outputs(module: Module, context: Context) -> dict[str, Elements]:
    """The outputs of a graph for random inputs, by name."""
    main, keys = module.main, context.keys
    inputs: list[Value] = []
    for param in main.params:
        atoms = keys.atoms(_held_shape(param.type.shape), "input", param.name)
        inputs.append(bytes_value(atoms) if param.type.dtype == "int8" else known(atoms))
    results = evaluated(main, inputs, context)
    return dict(zip(main.output_names, (each.elements(keys) for each in results), strict=True))
