"""A model that runs on the host as a whole, for any target whose kernels are loop nests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...graph.ir import Expr, Function, Module, TensorType, Tuple
from ...graph.visit import calls, tensor_ends
from ...model import CompiledModel, HostProgram, HostStep, TensorSpec
from ...passes.manager import PassManager
from ..errors import CompileError
from ..target import Job
from .link import link_host, program_figures
from .prepare import loop_passes
from .target import LoopTarget


def link_model(module: Module, name: str, target: LoopTarget, threads: int, job: Job) -> CompiledModel:
    """The model of a module, at any stage, for the target called ``name``: one step on the host.

    CompileError names the kernel at fault, and for a strict job the first operator that NumPy would run.
    """
    operators = as_operators(module, target)
    main = operators.main
    kept = inner_tensors(operators, target) if job.keep else {}
    program = link_program(_keeping(operators, kept), target, threads, job)
    if job.strict:
        _refuse_numpy(program)
    inputs, outputs = (tuple(each.name for each in side) for side in (program.inputs, program.outputs))
    return CompiledModel(
        name=main.name or "model",
        target=name,
        inputs=program.inputs,
        outputs=tuple(
            TensorSpec(output, result.shape, result.dtype)
            for output, result in zip(main.output_names, main.results, strict=True)
        ),
        steps=(HostStep(program, inputs, outputs, 0),),
        layers=program.layers,
        statistics=program_figures(program),
        tensors={name: name for name in kept},
    )


def link_program(module: Module, target: LoopTarget, threads: int, job: Job) -> HostProgram:
    """The program of a module, at any stage."""
    return link_host(as_operators(module, target), target, threads, progress=job.progress, dump=job.dump)


def as_operators(module: Module, target: LoopTarget) -> Module:
    """The module after the passes before linking."""
    if module.stage == "operators":
        return module
    passes = loop_passes(dot_products=target.dot_products, weight_only=target.fusion.weight_only)
    return PassManager(passes).run(module)


def inner_tensors(module: Module, target: LoopTarget) -> dict[str, Expr]:
    """The source's tensors, but for outputs, that are the result of a kernel, by name."""
    main = module.main
    ends = tensor_ends(calls(main.body))
    return {
        name: group.root for group in target.groups(main.body)
        if isinstance(group.root.type, TensorType) and (name := group.root.span.tensor)
        and ends[name] is group.root and name not in main.output_names and group.root not in main.results
    }  # fmt: skip


def _keeping(module: Module, kept: Mapping[str, Expr]) -> Module:
    """The module with ``kept`` among its outputs, which changes no kernel."""
    if not kept:
        return module
    main = module.main
    attrs = main.attrs.replace(outputs=(*main.output_names, *kept))
    body = Tuple((*main.results, *kept.values()))
    return replace(module, main=Function(main.params, body, attrs, main.span))


def _refuse_numpy(program: HostProgram) -> None:
    for layer in program.layers:
        if layer.device == "numpy":
            raise CompileError(f"NumPy would run it: {layer.reason}", at=f"node {layer.name!r}",
                               hint="compile without strict, or change the model")  # fmt: skip
