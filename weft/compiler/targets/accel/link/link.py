"""From a packed module to a compiled model: a program for each run of layers on the core, host programs between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from .....hw.isa import Opcode
from ....graph.ir import Array, Call, Constant, Expr, Function, Module
from ....graph.visit import calls
from ....model import CompiledModel, CorePart, CoreStep, HostProgram, HostStep, Layer, Resident, TensorSpec, Witness
from ....tensor.errors import TensorError
from ...errors import CompileError
from ...target import Job
from ..check import Range
from ..check_turn import check_turn, meeting
from ..operators.filled_parameters import fills_pay
from ..operators.lower import Kernel
from ..operators.moves import first_entries
from ..operators.packed_layout import spread_matrices
from ..operators.share import WHOLE, Share
from ..operators.weight_groups import records_of
from ..stream.latency_hiding import LatencyHiding
from ..stream.rows import Rows, transferred
from ..walk.emit import Emitter
from ..walk.emit_nest import DramBuffer
from .alone import Program
from .branches import TURN_CYCLES, Cost, Turn, shared, with_branches
from .chain_plan import plan_of
from .compile_kernel import Generated, generate_slice
from .folded_moves import entries_in_window, folded_moves, operands_of
from .function_program import finish_program
from .host_part import copying_module, phase_module, with_reasons
from .inner_tensors import inner_tensors
from .kept_kernels import kept_result, kernels_are_kept
from .phases import Phase, check_strict, function_of, is_packed_renaming, split_phases
from .residents import with_states_apart
from .slices import CONCAT, MOVE, KernelSlice, slices_of
from .split import Measure, Slices, cycles_of, cycles_of_stages, fastest_cut, may_follow, slices_of_core
from .stages import staged
from .tuned import Lookup
from .window import DmaWindow

LinkHost = Callable[[Module], HostProgram]
"""Compiles a module whose functions run on the host, at stage "host"."""


def link(
    module: Module, config: CoreConfig, rate: DramRate, job: Job, link_host: LinkHost, *, vthreads: int = 2,
    tuned: Lookup | None = None, hiding: LatencyHiding = LatencyHiding.RINGS, stages: int = 1,
    split: int = 1, ports: Sequence[int] = (), cores: Sequence[CoreConfig] = (), branches: bool = True,
) -> CompiledModel:  # fmt: skip
    """Compile every primitive function of a packed module and put the whole together.

    ``rate``: of the DRAM that schedules are chosen for. ``vthreads``: tiles in flight at once. ``tuned``: settings
    that were measured. ``hiding``: of latencies. ``stages``: of a pipeline of cores, each with programs of its own.
    ``split``: cores that share each layer. ``ports``: of memory, that of each core where some share one.
    ``cores``: of each stage that the module's calls say, the core, where these are unlike; ``config`` is the first.
    ``branches``: whether such may run side by side on the cores that share layers.
    Tensors that are not alive at the same time share bytes of the window, unless the job keeps them all. Raises
    CompileError that names the function, stage or buffer at fault; every program has passed the checker.
    """
    if job.strict:
        check_strict(module)
    linker = _Linker(
        module,
        config,
        rate,
        job,
        link_host,
        vthreads,
        tuned,
        hiding,
        stages,
        split,
        tuple(ports),
        tuple(cores),
        branches,
    )
    return linker.run()


def trial_programs(
    module: Module, config: CoreConfig, rate: DramRate, job: Job, *, vthreads: int = 2, tuned: Lookup | None = None,
    hiding: LatencyHiding = LatencyHiding.RINGS,
) -> list[Program]:  # fmt: skip
    """The programs of a packed module, to be measured; nothing of it is linked."""
    return _Linker(module, config, rate, job, _links_nothing, vthreads, tuned, hiding).trial_programs()


def _links_nothing(module: Module) -> HostProgram:
    raise CompileError(f"the host's part of {module.main.name!r} is not linked to be measured")


@dataclass(frozen=True)
class _Program:
    """The program of a phase; of its instructions the layers and tiles, of its layers the traffic and the schedules,
    and how many of its kernels have settings that were measured."""

    code: npt.NDArray[np.uint8]
    layer_of: npt.NDArray[np.int32]
    tile_of: npt.NDArray[np.int32]
    traffic: Mapping[int, tuple[int, int]]
    schedules: tuple[str, ...]
    tuned_kernels: int


@dataclass
class _Linker:
    module: Module
    config: CoreConfig
    rate: DramRate
    job: Job
    link_host: LinkHost
    vthreads: int
    tuned: Lookup | None = None
    hiding: LatencyHiding = LatencyHiding.RINGS
    stages: int = 1
    split: int = 1
    ports: tuple[int, ...] = ()
    cores: tuple[CoreConfig, ...] = ()
    branches: bool = True
    turns: int = 0
    tuned_kernels: int = 0
    names: dict[Expr, str] = field(default_factory=dict)
    folded: dict[Expr, Array] = field(default_factory=dict)
    window: DmaWindow = field(default_factory=DmaWindow)
    layers: list[Layer] = field(default_factory=list)

    def run(self) -> CompiledModel:
        main = self.module.main
        phases = split_phases(self.module)
        if not self.job.keep:
            phases = with_states_apart(phases, self.module)
        linkers = [replace(self, config=core) for core in self.cores] or [self]  # that share window, names and layers
        slices = self._begun(phases, linkers)
        if self.stages > 1:
            phases = self._staged(phases, slices)
        cuts, turns = self._cuts(phases, slices) if self.split > 1 else ({}, [])
        at_once = {node: number for number, turn in enumerate(turns) if turn.cores for node in turn.calls}
        self.window.plan_tensors(phases, self.names, self._read_by, reuse=not self.job.keep, at_once=at_once)
        steps: list[CoreStep | HostStep] = []
        for number, phase in enumerate(phases, 1):
            if not phase.on_core:
                steps.append(self._host_step(phase, phases[number:]))
            elif self.split > 1:
                own = [turn for turn in turns if turn.calls[0] in phase.calls]
                steps += self._split_programs(own, slices, cuts)
            else:
                steps.append(linkers[phase.stage if self.cores else 0]._program(phase, slices))
        self.tuned_kernels = sum(each.tuned_kernels for each in linkers)
        steps += self._remaining_outputs()
        programs = [step for step in steps if isinstance(step, CoreStep)]
        constants = tuple(self.window.constants.values())
        core = CorePart(self.config, self.window.end, self.window.slots, constants, self.cores) if programs else None
        return CompiledModel(
            name=main.name or "model",
            target="accel",
            inputs=tuple(TensorSpec(param.name, param.type.shape, param.type.dtype) for param in main.params),
            outputs=tuple(
                TensorSpec(name, result.shape, result.dtype)
                for name, result in zip(main.output_names, main.results, strict=True)
            ),
            steps=tuple(steps),
            layers=tuple(self.layers),
            core=core,
            witness=Witness.of(self.module, self.names) if programs else None,
            tensors=inner_tensors(self.module, self.names) if self.job.keep else {},
            statistics={
                "instructions": sum(len(step.layer_of) for step in programs),
                "program_bytes": sum(step.program.nbytes for step in programs),
                "constant_bytes": sum(segment.data.nbytes for segment in constants),
                "vthreads": self.vthreads,
                "dram_latency": self.rate.latency,
                "dram_bytes_per_cycle": self.rate.bytes_per_cycle,
                **({"tuned_kernels": self.tuned_kernels} if self.tuned is not None else {}),
            },
        )

    def trial_programs(self) -> list[Program]:
        """All programs, to be measured."""
        phases = split_phases(self.module)
        slices = self._begun(phases, [self])
        made = self._trial(phases)
        return [made(phase.calls, slices) for phase in phases if phase.on_core and phase.calls]

    def _begun(self, phases: Sequence[Phase], linkers: Sequence[_Linker]) -> Slices:
        """Name all values, fold moves, and place the constants: by the linker of each stage, if there are several."""
        self._name_values(phases)
        slices: dict[Call, Sequence[KernelSlice]] = {}
        for stage, linker in enumerate(linkers):
            own = [phase for phase in phases if phase.stage == stage]
            if not self.job.keep:
                self.folded.update(folded_moves(self.module, own, linker.config))
            for phase in own:
                phase.calls = [node for node in phase.calls if node not in self.folded]
            made = {
                node: slices_of(node, linker.config, self.rate, self.vthreads, self.tuned)
                for phase in own if phase.on_core for node in phase.calls
            }  # fmt: skip
            linker._place_constants(made)
            slices.update(made)
        return slices

    def _name_values(self, phases: Sequence[Phase]) -> None:
        """Each value gets the name of the user's tensor where that is free; outputs keep theirs."""
        main = self.module.main
        used_names = {param.name for param in main.params} | set(main.output_names)
        for param in main.params:
            self.names[param] = param.name
        outputs = {id(result): name for name, result in zip(main.output_names, main.results, strict=True)}
        for phase in phases:
            for node in phase.calls:
                if id(node) in outputs and not phase.on_core and node not in self.names:
                    self.names[node] = outputs[id(node)]
                    continue
                wish = (node.span.tensor if phase.on_core else "") or function_of(node).name
                name, number = wish, 0
                while name in used_names:
                    number += 1
                    name = f"{wish}.{number}"
                used_names.add(name)
                self.names[node] = name

    def _place_constants(self, slices: Slices) -> None:
        for each in (each for several in slices.values() for each in several):
            for turn in each.turns or (each,):
                for tensor, value in turn.kernel.constants:
                    self._constant(turn.kernel, tensor.name, value)
        for node in slices:
            for arg in self._read_by(node):
                if isinstance(arg, Constant):
                    self.window.constant(arg.value)

    def _constant(self, kernel: Kernel, name: str, value: Array) -> int:
        """The offset of a kernel's constant."""
        filled = kernel.filled_of(name)
        if filled is not None and fills_pay(self.config, self.rate):
            value = filled.stored(value)
        if kernel.records_of(name):
            return self.window.constant(records_of(value, self.config)).offset
        return self.window.constant(spread_matrices(value, kernel.pitch_of(name))).offset

    # The host's part

    def _host_step(self, phase: Phase, later: Sequence[Phase]) -> HostStep:
        """What a phase computes that somebody else reads; all of it where results are kept."""
        read = {arg for other in later for node in other.calls for arg in self._read_by(node)} | set(
            self.module.main.results
        )
        results = [node for node in phase.calls if self.job.keep or node in read]
        module = phase_module(phase, results, self.names)
        step = self._add_host_step(with_reasons(self._host_program(module), module))
        if phase.state is None:
            return step
        state = phase.state
        return replace(step, resident=Resident(state.state.name, self.names[state.rows], state.axis, state.places))

    def _remaining_outputs(self) -> list[HostStep]:
        """Outputs that are inputs, constants, or a value that has another name already: the host copies them."""
        main = self.module.main
        pairs = [
            (name, result) for name, result in zip(main.output_names, main.results, strict=True)
            if self.names.get(result) != name
        ]  # fmt: skip
        if not pairs:
            return []
        return [self._add_host_step(self._host_program(copying_module(pairs, self.names)))]

    def _host_program(self, module: Module) -> HostProgram:
        functions = [node for node in calls(module.main.body) if isinstance(node.op, Function)]
        self.job.progress(f"compiling {len(functions)} functions for the host")
        return self.link_host(module)

    def _add_host_step(self, program: HostProgram) -> HostStep:
        first = len(self.layers)
        self.layers += program.layers
        return HostStep(
            program, tuple(each.name for each in program.inputs), tuple(each.name for each in program.outputs), first
        )

    # The core's part

    def _staged(self, phases: Sequence[Phase], slices: Slices) -> list[Phase]:
        """The phases, those on the core cut into stages."""
        made = self._trial(phases)

        def alone(calls_of: Sequence[Call]) -> int:
            return cycles_of([made(calls_of, slices)], self.config, (), self.rate, self.job)

        def together(stages: Sequence[Sequence[Sequence[Call]]]) -> list[int]:
            programs = [[made(calls_of, slices) for calls_of in stage] for stage in stages]
            return cycles_of_stages(programs, [self.config] * self.stages, self.ports, self.rate, self.job)

        return staged(phases, self.stages, alone, together if self.ports else None)

    def _measured(self, phases: Sequence[Phase]) -> Measure:
        """What tells how many cycles calls take as one program on each core."""
        made = self._trial(phases)

        def cycles(calls_of: Sequence[Call], of_cores: Sequence[Slices]) -> int:
            programs = [made(calls_of, slices) for slices in of_cores]
            return cycles_of(programs, self.config, self.ports, self.rate, self.job)

        return cycles

    def _trial(self, phases: Sequence[Phase]) -> Callable[[Sequence[Call], Slices], Program]:
        """What makes one program of calls, to be measured. Tensors lie elsewhere in its window than they will."""
        window = replace(self.window, slots={})
        window.plan_tensors(phases, self.names, self._read_by, reuse=False)
        job = replace(self.job, progress=lambda _: None, dump=None)
        trial = replace(self, window=window, job=job)

        def made(calls_of: Sequence[Call], slices: Slices) -> Program:
            return trial.made(Phase(True, list(calls_of)), slices, window.end, 0).code, window.end

        return made

    def _program(self, phase: Phase, slices: Slices) -> CoreStep:
        made = self._known(phase, slices)
        return self._step(phase, made, self._placed(phase, slices, [made])[0])

    def _known(self, phase: Phase, slices: Slices) -> _Program:
        """The program of a phase at the window's end; it may have been made before."""
        first_layer, offset = len(self.layers), self.window.end
        shaped_by = self._shaped_by(phase, slices) if kernels_are_kept() else None

        def make() -> _Program:
            return self.made(phase, slices, offset, first_layer)

        return make() if shaped_by is None else kept_result(make, self.config, "program", offset, *shaped_by)

    def _placed(self, phase: Phase, slices: Slices, programs: Sequence[_Program]) -> list[int]:
        """Where the programs of a phase lie, which are its layers together."""
        first_layer = len(self.layers)
        self.tuned_kernels += sum(made.tuned_kernels for made in programs)
        for number, node in enumerate(phase.calls):
            traffic = [made.traffic.get(first_layer + number, (0, 0)) for made in programs]
            loaded, stored = map(sum, zip(*traffic, strict=True))
            schedule = next(filter(None, (made.schedules[number] for made in programs)), "")
            self.layers.append(self._layer(node, slices[node][0].kind, loaded, stored, schedule))
        return [self.window.allocate(made.code.nbytes) for made in programs]

    def _cuts(self, phases: Sequence[Phase], slices: Slices) -> tuple[dict[Call, Share], list[Turn]]:
        """How each layer is cut for the cores, where all share it, and the turns, in whose order the phases' calls are
        brought. What was measured for one layer holds for those that are like it."""
        measure = self._measured(phases)
        known: dict[object, tuple[Share, Cost]] = {}
        cuts: dict[Call, Share] = {}
        costs: dict[Call, Cost] = {}
        for node in (node for phase in phases if phase.on_core for node in phase.calls):
            kind = tuple((part.kind, part.kernel.signature) for part in slices[node])
            if kind not in known:
                self.job.progress(f"cutting {function_of(node).name} for {self.split} cores")
                known[kind] = fastest_cut(node, slices[node], self.config, self.split, self.ports, measure)
            cuts[node], costs[node] = known[kind]
        unplanned = replace(self.window, slots={})
        unplanned.plan_tensors(phases, self.names, self._read_by, reuse=False)
        trial = replace(self, window=unplanned)
        turns: list[Turn] = []
        for phase in (phase for phase in phases if phase.on_core):
            own = shared(phase.calls)
            if self.branches:
                self.job.progress(f"looking for branches among {len(phase.calls)} functions")
                own = with_branches(
                    phase.calls, self._needed_by, self.split, costs, lambda each: trial._cycles_of(each, slices, cuts)
                )
            phase.calls = [node for turn in own for node in turn.calls]
            turns += own
        return cuts, turns

    def _needed_by(self, node: Call) -> list[Call]:
        return [arg for arg in self._read_by(node) if isinstance(arg, Call)]

    def _split_programs(self, turns: Sequence[Turn], slices: Slices, cuts: Mapping[Call, Share]) -> list[CoreStep]:
        """The programs of a phase whose layers cores share: of each turn a program for each core. Where cores wait for
        each other at a port, one alone may be the fastest: it needs no turns, so its layers run side by side."""
        if self.ports:
            calls_of = [node for turn in turns for node in turn.calls]
            alone = shared(calls_of), dict.fromkeys(calls_of, WHOLE)
            turns, cuts = min((turns, cuts), alone, key=lambda each: self._cycles_of(each[0], slices, each[1]))
        return self._turns(turns, slices, cuts)

    def _cycles_of(self, turns: Sequence[Turn], slices: Slices, cuts: Mapping[Call, Share]) -> int:
        job = replace(self.job, progress=lambda _: None, dump=None)
        trial = replace(self, window=replace(self.window), layers=list(self.layers), job=job)
        programs: dict[int, list[Program]] = {}
        for step in trial._turns(turns, slices, cuts):
            programs.setdefault(step.turn, []).append((step.program, step.program_offset))
        cycles = [cycles_of(turn, self.config, self.ports, self.rate, self.job) for turn in programs.values()]
        return sum(cycles) + TURN_CYCLES * len(cycles)

    def _turns(self, turns: Sequence[Turn], slices: Slices, cuts: Mapping[Call, Share]) -> list[CoreStep]:
        steps: list[CoreStep] = []
        waiting = list(turns)
        while waiting:
            turn = waiting.pop(0)
            programs = self._turn(turn, slices, cuts)
            check_turn(self.config, [made.code for made in programs])
            while waiting and not waiting[0].cores:
                (node,) = waiting[0].calls
                joins = not turn.cores and may_follow(node, turn.calls, cuts, slices)
                if not (joins or self._is_nothing(node, slices)):
                    break
                after = Turn((*turn.calls, node), (*turn.cores, 0) if turn.cores else ())
                longer = self._turn(after, slices, cuts)
                if meeting(self.config, [made.code for made in longer]) is not None:
                    break
                waiting.pop(0)
                turn, programs = after, longer
            part = Phase(True, list(turn.calls))
            for core, offset in enumerate(self._placed(part, slices, programs)):
                step = self._step(part, programs[core], offset)
                # The host gives its part before the first core begins: later, a result may lie there.
                # What the turn makes is whole once all have ended.
                inputs, outputs = step.inputs if core == 0 else (), step.outputs if core == self.split - 1 else ()
                steps.append(replace(step, turn=self.turns, core=core, inputs=inputs, outputs=outputs))
            self.turns += 1
        return steps

    def _turn(self, turn: Turn, slices: Slices, cuts: Mapping[Call, Share]) -> list[_Program]:
        """The program of each core for some layers."""
        programs = []
        for core in range(self.split):
            if turn.cores:
                placed = zip(turn.calls, turn.cores, strict=True)
                own = {node: slices[node] if place == core else () for node, place in placed}
            else:
                own = {node: slices_of_core(slices[node], cuts[node], core) for node in turn.calls}
            programs.append(self._known(Phase(True, list(turn.calls)), own))
        return programs

    def _step(self, phase: Phase, made: _Program, offset: int) -> CoreStep:
        written = {self.names[node] for node in phase.calls}
        read = dict.fromkeys(
            self.names[arg] for node in phase.calls for arg in self._read_by(node) if not isinstance(arg, Constant)
        )
        leaving = self._leaving(phase)
        return CoreStep(
            program=made.code,
            program_offset=offset,
            inputs=tuple(name for name in read if name not in written),
            outputs=tuple(self.names[node] for node in phase.calls if node in leaving),
            layer_of=made.layer_of,
            tile_of=made.tile_of,
            stage=phase.stage,
        )

    def _shaped_by(
        self, phase: Phase, slices: Slices
    ) -> tuple[object, ...] | None:  # fmt: skip
        """All that a program follows from, beside the core and its place; None where that is not known."""

        def of_slice(node: Call, part: KernelSlice) -> tuple[object, ...]:
            kernel = part.kernel
            turns = [of_slice(node, turn) for turn in part.turns]
            known = part.kind, part.tuned, part.chosen, part.move, kernel.share, kernel.text, kernel.signature
            return *known, self._places(node, part), turns

        try:
            kernels = [[of_slice(node, part) for part in slices[node]] for node in phase.calls]
        except TensorError:  # which whoever compiles the kernel tells with its place
            return None
        return kernels, self._constant_ranges(), self.rate, self.vthreads, self.hiding, len(self.layers)

    def _constant_ranges(self) -> tuple[Range, ...]:
        return tuple(Range(each.offset, each.offset + each.data.nbytes) for each in self.window.constants.values())

    def made(
        self, phase: Phase, slices: Slices, offset: int, first_layer: int
    ) -> _Program:  # fmt: skip
        """The program of a phase at ``offset`` of the window."""
        emitter = Emitter(self.config, rings=self.hiding is LatencyHiding.RINGS)
        schedules, tuned_kernels = [], 0
        for number, node in enumerate(phase.calls):
            self.job.progress(f"compiling {function_of(node).name} ({number + 1} of {len(phase.calls)})")
            generated = [
                each for part in slices[node] for each in self._generate(emitter, node, part, first_layer + number)
            ]
            schedules.append("\n".join(map(_account, generated)))
            tuned_kernels += sum(bool(each.origin) for each in generated)
        stream, code = finish_program(
            self.config, self.rate, emitter.rows, offset, self._constant_ranges(), self.hiding
        )
        last = first_layer + len(phase.calls) - 1
        return _Program(
            code,
            np.append(stream.layers, last).astype(np.int32),
            np.append(stream.tiles, 0).astype(np.int32),
            _traffic(self.config, stream),
            tuple(schedules),
            tuned_kernels,
        )

    def _layer(self, node: Call, kind: str, loaded: int, stored: int, schedule: str) -> Layer:
        function = function_of(node)
        shape, plan = function.attrs.get("shape"), plan_of(function)
        return Layer(
            name=function.name,
            nodes=node.span.nodes,
            kind=kind,
            device="core",
            output=self.names[node],
            shape=tuple(int(str(size)) for size in shape) if isinstance(shape, tuple) else node.shape,
            macs=int(str(function.attrs.get("macs", 0))),
            operators=operators_of(function),
            boundaries=(str(function.attrs["not_chained"]),) if "not_chained" in function.attrs else (),
            saved_bytes=plan.saved_bytes if plan is not None else 0,
            bytes_loaded=loaded,
            bytes_stored=stored,
            schedule=schedule,
        )

    def _generate(self, emitter: Emitter, node: Call, part: KernelSlice, layer: int) -> list[Generated]:
        if part.kind in (CONCAT, MOVE) and self._lies_there(node, part):
            return []
        return generate_slice(
            emitter, part, lambda each: self._places(node, each), threads=self.vthreads, rate=self.rate, layer=layer,
            dump=self.job.dump,
        )  # fmt: skip

    def _is_nothing(self, node: Call, slices: Slices) -> bool:
        """Whether no core has anything to do for a call."""
        return all(part.kind in (CONCAT, MOVE) and self._lies_there(node, part) for part in slices[node])

    def _lies_there(self, node: Call, part: KernelSlice) -> bool:
        """Whether what a part of a concatenation copies, or a move renames, was made in its place."""
        if part.move is not None and not is_packed_renaming(node):
            return False
        places = self._places(node, part)
        return places[next(iter(part.inputs))].offset == places[part.kernel.output.name].offset

    def _leaving(self, phase: Phase) -> set[Expr]:
        """The values that something else than a phase reads: the host, a later program, or who runs the model."""
        main, own = self.module.main, {*phase.calls, *self.folded}
        return {*main.results, *(arg for node in calls(main.body) if node not in own for arg in self._read_by(node))}

    def _read_by(self, node: Call) -> tuple[Expr, ...]:
        return operands_of(node, self.folded)

    def _places(self, node: Call, part: KernelSlice) -> dict[str, DramBuffer]:
        places = {
            tensor.name: DramBuffer(
                self._constant(part.kernel, tensor.name, value),
                True,
                part.kernel.kept_of(tensor.name),
                part.kernel.pitch_of(tensor.name),
                part.kernel.records_of(tensor.name),
                part.kernel.filled_of(tensor.name) if fills_pay(self.config, self.rate) else None,
            )
            for tensor, value in part.kernel.constants
        }
        for name, (operand, shift) in part.inputs.items():
            arg = node.args[operand]
            if arg in self.folded and isinstance(arg, Call):
                places[name] = DramBuffer(shift, moved=self._moved(arg))
            else:
                places[name] = DramBuffer(self._offset(arg) + shift, constant=isinstance(arg, Constant))
        output = self.window.slots[self.names[node]].offset + part.output_shift
        places[part.kernel.output.name] = DramBuffer(output)
        return places

    def _moved(self, node: Call) -> bytes:
        """The entries of a move that loads do, by their numbers in the window."""
        firsts, offsets = first_entries([arg.shape for arg in node.args]), [self._offset(arg) for arg in node.args]
        return entries_in_window(self.folded[node], firsts, offsets, self.config.out_bytes)

    def _offset(self, value: Expr) -> int:
        if isinstance(value, Constant):
            return self.window.constant(value.value).offset
        return self.window.slots[self.names[value]].offset


def _account(generated: Generated) -> str:
    """A kernel's schedule for people, and where it comes from."""
    origin = [f"# {generated.origin}"] if generated.origin else []
    return "\n".join([*origin, *map(str, generated.schedule.trace)])


def operators_of(function: Function) -> tuple[str, ...]:
    """What a function computes, also inside of functions that it calls."""
    names: list[str] = []
    for node in calls(function.body):
        names += operators_of(node.op) if isinstance(node.op, Function) else [str(node.op)]
    return tuple(names)


def _traffic(config: CoreConfig, stream: Rows) -> dict[int, tuple[int, int]]:
    """Bytes loaded and stored by each layer."""
    places = stream.places(Opcode.LOAD, Opcode.STORE)
    layers, moved, stores = stream.layers[places], transferred(config, stream, places), stream.opcodes[places]
    found = np.zeros((int(layers.max(initial=-1)) + 1, 2), np.int64)
    np.add.at(found, (layers, (stores == Opcode.STORE).astype(np.int64)), moved)
    return {layer: (loaded, stored) for layer, (loaded, stored) in enumerate(found.tolist()) if loaded or stored}
