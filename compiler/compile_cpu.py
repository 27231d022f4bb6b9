"""Compile a model for a processor: front end, passes, kernels, link."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .compiled_cpu import CpuModel
from .compiled_symbolic import SymbolicCpuModel
from .frontends import from_onnx, infer_types, load_model, symbolic_inputs
from .graph import Module, calls
from .graph.registry import operator_of
from .graph.symbolic import sizes_text
from .passes import STAGES, cse, dce, fold_batch_norm, fold_constants, integer_passes, simplify
from .passes.manager import Pass
from .passes.pipeline import PassOptions, run_passes
from .targets.cpu.link import link
from .targets.cpu.processor import named_target
from .targets.errors import CompileError
from .targets.loops.prepare import prepare

MOST_THREADS = 256


def float_passes() -> list[Pass]:
    """For a model without quantised tensors."""
    return [fold_constants, simplify, fold_batch_norm, fold_constants, simplify, cse, dce]


def compile_for_cpu(
    model: str | Path | bytes | Module | Any,
    *,
    threads: int = 1,
    processor: str = "host",
    strict: bool = False,
    shapes: Mapping[str, Sequence[int]] | None = None,
    progress: Callable[[str], None] | None = None,
    dump: Callable[[str, str], None] | None = None,
    passes: PassOptions | None = None,
) -> CpuModel:
    """Compile a network for a CPU. Quantised networks are computed in integers (docs/integers.md), others in floats.

    model
        An ONNX file (path, bytes or ``ModelProto``), or a module of the graph IR, as it was read or in integers.
    threads
        How many threads share the work of each kernel.
    processor
        ``"host"``, or a name of ``targets.cpu.processor.CROSS_TARGETS``.
    strict
        Refuse a model of which NumPy would have to run an operator.
    shapes
        Shapes of inputs that the file leaves open.
    progress
        Called with a line of text at each step.
    dump
        Called with the name of each kernel and its loop IR.
    passes
        Passes of your own, the check of every pass, a page that shows what each did.

    Raises ModelError for a file that cannot be read, CompileError for one that cannot be compiled; both name the node.
    """
    started = time.perf_counter()
    if not 1 <= threads <= MOST_THREADS:
        raise CompileError(f"threads is {threads}, but must be 1..{MOST_THREADS}")
    target = named_target(processor)
    report = progress or (lambda _: None)
    report("reading the model")
    module = model if isinstance(model, Module) else from_onnx(model, shapes, require_quantised=False)
    report("running the passes")
    if is_source(module):
        module = run_passes(module, passes_for(module), passes or PassOptions(), f"for {target.cpu}")
    elif passes is not None:
        raise CompileError("the passes have run over this module already: give the model as it was read")
    module = prepare(module)
    compiled = link(module, target, threads, progress=progress, dump=dump)
    if strict:
        for layer in compiled.layers:
            if layer.reason:
                raise CompileError(f"NumPy would run it: {layer.reason}", at=f"node {layer.name!r}",
                                   hint="compile without strict, or change the model")  # fmt: skip
    seconds = time.perf_counter() - started
    name = Path(model).stem if isinstance(model, (str, Path)) else compiled.name
    return replace(compiled, name=name, statistics={**compiled.statistics, "compile_seconds": seconds})


def compile_for_any_size(
    model: str | Path | bytes | Module | Any,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> CpuModel | SymbolicCpuModel:
    """As `compile_for_cpu`, but a model whose inputs leave sizes open stays open: it is compiled for each size when
    that is first needed, and ``progress`` is called then. ``shapes`` fixes the inputs that it gives.

    Raises ModelError for a model that cannot be read for any size.
    """
    if isinstance(model, Module):
        return compile_for_cpu(model, shapes=shapes, progress=progress, **options)
    report = progress or (lambda _: None)
    report("reading the model")
    source = load_model(model)
    name = Path(model).stem if isinstance(model, (str, Path)) else "main"
    inputs = symbolic_inputs(source, shapes)

    def compile_with(known: Mapping[str, Sequence[int]] | None) -> CpuModel:
        return replace(compile_for_cpu(source, shapes=known, progress=progress, **options), name=name)

    def compile_at(sizes: Mapping[str, int]) -> CpuModel:
        report(f"compiling for {sizes_text(sizes)}")
        return compile_with({**(shapes or {}), **{each.name: each.at(sizes) for each in inputs}})

    if all(isinstance(size, int) for each in inputs for size in each.shape):
        return compile_with(shapes)
    types = infer_types(source, shapes)
    return SymbolicCpuModel(name, inputs, tuple(value.name for value in source.graph.output), types, compile_at)


def is_source(module: Module) -> bool:
    """Whether a module is as it was read: its operators are those of the source."""
    legal = STAGES["source"].families
    return all(
        entry is not None and entry.family in legal for entry in map(operator_of, calls(module.main.body))
    )


def passes_for(module: Module) -> list[Pass]:
    """The passes before the CPU's own: to integers if anything is quantised."""
    return integer_passes() if any(node.op == "quantise" for node in calls(module.main.body)) else float_passes()
