"""Kernels of a processor, to be tuned: each by itself, as a program with one launch that can be timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler.graph.dtypes import numpy_dtype
from ..compiler.graph.ir import Expr, Module
from ..compiler.model import HostProgram, LaunchStep, Layer, Place, TensorSpec
from ..compiler.targets.cpu.build import build_program
from ..compiler.targets.cpu.kernels import loop_target
from ..compiler.targets.cpu.knobs import Answer, Rated, answer_point, answers_of, features, kind_with
from ..compiler.targets.cpu.processor import Processor
from ..compiler.targets.loops.fusion import FusedGroup
from ..compiler.targets.loops.kernel_code import KERNEL, kernel_code
from ..compiler.targets.loops.known_indices import known_elements
from ..compiler.targets.loops.layouts import Layout
from ..compiler.targets.loops.model import link_program
from ..compiler.targets.loops.placement import KernelKind
from ..compiler.targets.loops.signature import group_signature
from ..compiler.targets.memory_plan import aligned
from ..compiler.targets.target import Job
from ..compiler.tensor.bounds import require_bounds
from ..compiler.tune.database import point_text
from ..runtime.host import HostExecutor

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class CpuTask:
    """A kernel of a model, the first of ``count`` equal ones. ``threads``: those that the model runs on."""

    group: FusedGroup
    kind: KernelKind
    layouts: Mapping[Expr, Layout]
    layout: Layout
    target: Processor
    threads: int
    count: int

    @property
    def name(self) -> str:
        return self.group.name

    @cached_property
    def signature(self) -> str:
        return group_signature(self.group, self.layouts, self.layout)

    @cached_property
    def points(self) -> dict[str, Rated]:
        """The space by the texts of its points; what the compiler takes by itself is the first."""
        rated = answers_of(self.kind, self.group, self.layouts, self.layout, self.target)
        return {point_text(answer_point(each.answer)): each for each in rated}

    @property
    def default(self) -> str:
        return next(iter(self.points))

    def features(self, text: str) -> Mapping[str, float]:
        return features(self.points[text], self.target)

    def run(self, text: str) -> KernelRun:
        """The kernel with the schedule of a point. CompileError or TensorError where it cannot be scheduled so."""
        return KernelRun(self, self.points[text].answer)


class KernelRun:
    """One kernel in memory, with made-up data."""

    def __init__(self, task: CpuTask, answer: Answer) -> None:
        self.program = _program(task, answer)
        self._executor = HostExecutor(self.program, build_program(self.program, task.target))
        self.use(*made_up(self.program))

    def use(self, inputs: list[Array], outputs: list[Array]) -> None:
        """Run on these arrays from now on: where they lie in memory decides some of the time."""
        self._inputs, self._outputs = inputs, outputs

    def __call__(self) -> Array:
        """Run it once; gives the result as it lies in memory."""
        self._executor.execute(self._inputs, self._outputs)
        return self._outputs[0]


def made_up(program: HostProgram) -> tuple[list[Array], list[Array]]:
    """New inputs, always of the same data, and outputs; equal for all schedules of a kernel."""
    generator = np.random.default_rng(0)
    inputs = [_data(spec, generator) for spec in program.inputs]
    return inputs, [np.zeros(spec.shape, numpy_dtype(spec.dtype)) for spec in program.outputs]


def _data(spec: TensorSpec, generator: np.random.Generator) -> Array:
    """Made-up data. Whole numbers other than bytes may be indices: they are 0."""
    if spec.dtype in ("float16", "float32", "float64", "bfloat16"):
        return generator.standard_normal(spec.shape).astype(numpy_dtype(spec.dtype))
    if spec.dtype in ("int8", "uint8"):
        return generator.integers(0, 100, spec.shape).astype(numpy_dtype(spec.dtype))
    return np.zeros(spec.shape, numpy_dtype(spec.dtype))


def _program(task: CpuTask, answer: Answer) -> HostProgram:
    kernel = kind_with(task.kind, answer, task.target).build(task.group, task.layouts, task.layout, KERNEL)
    func = kernel.schedule().func
    require_bounds(func, known_elements(kernel, task.group, task.layouts))
    code = kernel_code(func, kernel.windows, task.threads)
    count = len(kernel.inputs)
    inputs = tuple(TensorSpec(f"x{n}", param.shape, param.dtype) for n, param in enumerate(func.params[:count]))
    result, root = func.params[-1], task.group.root
    output = TensorSpec("result", task.layout.shape(root.shape), result.dtype)
    places = [Place("input", number, 0, each.shape, each.dtype) for number, each in enumerate(inputs)]
    blob = bytearray()
    for param, value in zip(func.params[count:-1], kernel.constants, strict=True):
        places.append(Place("constant", 0, len(blob), param.shape, param.dtype))
        data = np.ascontiguousarray(value).tobytes()
        blob += data.ljust(aligned(len(data)), b"\0")
    offset = kernel.offset * numpy_dtype(result.dtype).itemsize
    places.append(Place("output", 0, offset, result.shape, result.dtype))
    step = LaunchStep(code.symbol, tuple(places), 0 if code.workspace_bytes else None, 0)
    layer = Layer(task.name, (), task.kind.name, "cpu", "result", root.shape, 0)
    return HostProgram(
        inputs, (output,), (code,), (step,), (layer,), np.frombuffer(bytes(blob), np.uint8), code.workspace_bytes, (),
        task.threads, task.target.name,
    )  # fmt: skip


def cpu_tasks(module: Module, target: Processor, threads: int) -> list[CpuTask]:
    """The kernels of a module, at any stage, whose schedules have knobs, each once."""
    found: dict[tuple[str, int], CpuTask] = {}

    def collect(
        kind: KernelKind, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, threads: int
    ) -> None:
        task = CpuTask(group, kind, dict(layouts), layout, target, threads, 0)
        known = found.get((task.signature, threads), task)
        if len(known.points) > 1:
            found[task.signature, threads] = replace(known, count=known.count + 1)

    link_program(module, replace(loop_target(target), revise=collect), threads, Job())
    return list(found.values())


Run = Callable[[], object]


def in_turns(runs: Sequence[Run], rounds: int, seconds: float, clock: Callable[[], float]) -> Array:
    """Seconds of each run in each round, (rounds, runs): all take turns, in an order that is reversed every second
    round. Each repeats for about ``seconds`` in a round, of which the fastest counts."""
    first = [min(_once(run, clock) for _ in range(2)) for run in runs]
    repeats = [max(1, min(100, int(seconds / max(each, 1e-7)))) for each in first]
    found = np.zeros((rounds, len(runs)))
    for number in range(rounds):
        for place in range(len(runs)) if number % 2 == 0 else reversed(range(len(runs))):
            found[number, place] = min(_once(runs[place], clock) for _ in range(repeats[place]))
    return found


def _once(run: Run, clock: Callable[[], float]) -> float:
    started = clock()
    run()
    return clock() - started
