"""Processors of computers and boards as a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...graph.ir import Call, Expr, Function, Module, TensorType, Tuple
from ...model import CompiledModel, HostCode, HostProgram, HostStep, TensorSpec
from ...passes import cse, dce, fold_batch_norm, fold_constants, integer_passes, simplify
from ...passes.manager import Pass, PassManager
from ..errors import CompileError
from ..loops.fusion import group_calls
from ..loops.link import link_host, program_figures
from ..loops.prepare import loop_passes
from ..target import Job, option
from .build import build_program, check_host_program
from .kernels import loop_target
from .processor import CROSS_TARGETS, CpuTarget, named_target

MOST_THREADS = 256


@dataclass(frozen=True)
class CpuOptions:
    """What only a CPU's compilation asks for."""

    threads: int = option(1, "Threads that share the work of each kernel.")
    processor: str = option("host", f"The processor: host (this machine's), {', '.join(CROSS_TARGETS)}.")

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= MOST_THREADS:
            raise CompileError(f"threads is {self.threads}, but must be 1..{MOST_THREADS}")


def float_passes() -> list[Pass]:
    """For a model without quantised tensors."""
    return [fold_constants, simplify, fold_batch_norm, fold_constants, simplify, cse, dce]


class Cpu:
    """A processor, by machine code of LLVM (``docs/cpu.md``)."""

    name = "cpu"
    summary = "this machine's processor, or that of a board"
    options = CpuOptions
    takes_floats = True
    takes_open_sizes = True

    def passes(self, options: CpuOptions, *, quantised: bool) -> Sequence[Pass]:
        return [*(integer_passes() if quantised else float_passes()), *loop_passes()]

    def link(self, module: Module, options: CpuOptions, job: Job) -> CompiledModel:
        if module.stage != "operators":
            module = PassManager(loop_passes()).run(module)
        processor = named_target(options.processor)
        main = module.main
        computed = keeping_all(module, processor) if job.keep else module
        program = self._program(computed, processor, options.threads, job)
        if job.strict:
            _refuse_numpy(program)
        inputs, results = (tuple(tensor.name for tensor in part) for part in (program.inputs, program.outputs))
        return CompiledModel(
            name=main.name or "model",
            target=self.name,
            inputs=program.inputs,
            outputs=tuple(
                TensorSpec(name, result.shape, result.dtype)
                for name, result in zip(main.output_names, main.results, strict=True)
            ),
            steps=(HostStep(program, inputs, results, 0),),
            layers=program.layers,
            statistics=program_figures(program),
        )

    def link_functions(self, module: Module, options: CpuOptions, job: Job) -> HostProgram:
        """The program of a module whose functions another target leaves to the host."""
        operators = PassManager(loop_passes()).run(module)
        return self._program(operators, named_target(options.processor), options.threads, job)

    def host_code(self, program: HostProgram, *, trusted: bool) -> HostCode:
        if not trusted:
            check_host_program(program)
        return build_program(program)

    def _program(self, module: Module, processor: CpuTarget, threads: int, job: Job) -> HostProgram:
        return link_host(module, loop_target(processor), threads, progress=job.progress, dump=job.dump)


def keeping_all(module: Module, processor: CpuTarget) -> Module:
    """The module with the result of each kernel that has a name among its outputs, which changes no kernel."""
    main = module.main
    names = set(main.output_names)
    kept: dict[str, Expr] = {}
    for group in group_calls(main.body, loop_target(processor).fusion):
        root: Call = group.root
        name = root.span.tensor
        if isinstance(root.type, TensorType) and name and name not in names and root not in main.results:
            kept.setdefault(name, root)
    attrs = main.attrs.replace(outputs=(*main.output_names, *kept))
    body = Tuple((*main.results, *kept.values()))
    return replace(module, main=Function(main.params, body, attrs, main.span))


def _refuse_numpy(program: HostProgram) -> None:
    for layer in program.layers:
        if layer.device == "numpy":
            raise CompileError(f"NumPy would run it: {layer.reason}", at=f"node {layer.name!r}",
                               hint="compile without strict, or change the model")  # fmt: skip
