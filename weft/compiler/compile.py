"""Compile a model: front end, the target's passes, the target's linker."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import index
from os import PathLike
from pathlib import Path
from typing import Any

from ..collector import collector_waits
from ..files import write_atomically
from .frontends import NeedsValueError, Source, read
from .frontends.source import Decidable, module_and_tail
from .graph import Array, Family, Module, calls
from .graph.registry import operator_of
from .graph.symbolic import SymbolicTypes, first_axes, sizes_text
from .model import CompiledModel, CutModel, HostStep, OpenModel
from .passes.manager import Pass
from .passes.pipeline import PassOptions, run_passes
from .passes.source_products import products_of_nodes
from .targets.cpu.intrinsics import intrinsic_named
from .targets.errors import CompileError
from .targets.loops.replaceable import is_replaceable
from .targets.registry import find_target, target_names
from .targets.target import PLAIN_JOB, Job, Target, target_options

Shapes = Mapping[str, Sequence[int]]


def compile_model(
    model: str | Path | bytes | Module | Any,
    target: str | Target = "accel",
    options: Mapping[str, Any] | None = None,
    *,
    shapes: Shapes | None = None,
    passes: PassOptions | None = None,
    job: Job | None = None,
) -> CompiledModel | OpenModel:
    """Compile a network for a target.

    model
        An ONNX file (path, bytes or ``ModelProto``), or a module of the graph IR at any stage.
    target
        A target or the name of one: `targets.registry.target_names`.
    options
        The target's own, by name.
    shapes
        Shapes of inputs that the file leaves open. What stays open is compiled for each size when that is first needed,
        on targets that can.
    passes
        Passes of your own, the check of every pass, a page that shows what each did.
    job
        What is asked of the compilation whatever the target.

    Raises ModelError for a file that cannot be read, CompileError for a model or option that the target does not take;
    both name the place.
    """
    target = find_target(target) if isinstance(target, str) else target
    if not hasattr(target, "options"):
        hint = f"known: {', '.join(target_names())}; a core is given as config"
        raise CompileError(f"target is {target!r:.80}, but must be a Target or the name of one", hint=hint)
    chosen = target_options(target, options or {})
    job = job or Job()
    if passes is not None and not isinstance(passes, PassOptions):
        raise CompileError(f"passes is {passes!r:.80}, but must be PassOptions", hint="weft.PassOptions(check=True)")
    if isinstance(model, Module):
        return _compile_module(model, model.main.name or "model", target, chosen, passes, job)
    job.progress("reading the model")
    source = read(model)
    shapes = _whole_numbers(shapes or {})
    open_sizes = {size: each.name for each in source.inputs(shapes) for size in each.shape if isinstance(size, str)}

    def compile_at(source: Source, shapes: Shapes) -> CompiledModel:
        if job.strict:
            module, tail = source.module(shapes, require_quantised=target.require_quantised), None
        else:
            module, tail = module_and_tail(source, shapes, require_quantised=target.require_quantised)
        made = _compile_module(module, source.name, target, chosen, passes, job)
        return made if tail is None else CutModel.of(made, tail)

    if open_sizes and target.takes_open_sizes:
        return _open_model(source, target, shapes, compile_at, job)
    try:
        return compile_at(source, shapes)
    except NeedsValueError as error:
        if open_sizes or not target.takes_open_sizes or not _can_be_built_in(source, error):
            raise
        return _open_model(source, target, shapes, compile_at, job)


def _whole_numbers(shapes: Shapes) -> Shapes:
    """The shapes of inputs, which callers that nobody checks give as anything."""
    try:
        return {name: tuple(index(size) for size in shape) for name, shape in shapes.items()}
    except (AttributeError, TypeError):
        raise CompileError(f"shapes is {shapes!r}, but must hold the sizes of each input by name",
                           hint="such as shapes={'x': (1, 3, 224, 224)}") from None  # fmt: skip


def replaceable(model: CompiledModel, following: Mapping[str, str]) -> frozenset[str]:
    """Of inputs, each with the output that is its next value, those for which a run may be given the same memory for
    both. A run that fails then leaves them as they were. None where a model is more than one program of the host."""
    if len(model.steps) != 1 or not isinstance(model.steps[0], HostStep):
        return frozenset()
    step = model.steps[0]
    return frozenset(
        name for name, after in following.items()
        if name in step.inputs and after in step.outputs
        and is_replaceable(step.program, step.inputs.index(name), step.outputs.index(after), intrinsic_named)
    )  # fmt: skip


def is_quantised(module: Module) -> bool:
    """Whether a module, as it was read, has quantised tensors."""
    return any(entry.family is Family.QUANTISE for entry in filter(None, map(operator_of, calls(module.main.body))))


def prepared(
    module: Module, target: Target, options: Any, passes: PassOptions | None = None, job: Job = PLAIN_JOB
) -> Module:
    """A module after all passes of a target that it has not been through, and the user's own. CompileError where the
    user asks for something of the passes, and none is left."""
    quantised = module.stage != "source" or is_quantised(module)
    steps = target.passes(options, quantised=quantised, job=job)
    left = passes_left(module.stage, steps)
    if not left and module.stage != "source":
        if passes is not None:
            raise CompileError(f"passes have run over this module already (it is at stage {module.stage!r})",
                               hint="give the model as it was read")  # fmt: skip
        return module
    job.progress("running the passes")
    ran = [each.name for each in steps[: len(steps) - len(left)]]
    return run_passes(module, left, passes or PassOptions(), f"{module.main.name} for {target.name}", ran)


def passes_left(stage: str, passes: Sequence[Pass]) -> Sequence[Pass]:
    """Of a target's passes those that a module at ``stage`` has not been through: all behind the one that brings it
    there. None where no other stage comes after it: such a module is what the linker takes."""
    if stage == "source":
        return passes
    places = [place for place, each in enumerate(passes) if each.stage]
    reached = next((place for place in places if passes[place].stage == stage), None)
    return () if reached is None or reached == places[-1] else passes[reached + 1 :]


def _compile_module(
    module: Module, name: str, target: Target, options: Any, passes: PassOptions | None, job: Job
) -> CompiledModel:
    started = time.perf_counter()
    with collector_waits():
        products = products_of_nodes(module) if module.stage == "source" else None
        compiled = _chosen(module, target, options, passes, job)
        if products is not None:
            compiled = compiled.with_products(products)
    seconds = time.perf_counter() - started
    return replace(compiled, name=name, statistics={**compiled.statistics, "compile_seconds": seconds})


def _chosen(module: Module, target: Target, options: Any, passes: PassOptions | None, job: Job) -> CompiledModel:
    """What a target chooses of compilations by several options, if it tries any but those of the user, whose passes
    alone are shown and checked."""

    def compiled_by(tried: Any, job: Job) -> CompiledModel:
        shown = passes if tried is options or passes is None else PassOptions(passes.added)
        return target.link(prepared(module, target, tried, shown, job), tried, job)

    choose: Callable[..., CompiledModel] = getattr(target, "choose", lambda by, options, job: by(options, job))
    return choose(compiled_by, options, job)


def _open_model(
    source: Source, target: Target, shapes: Shapes, compile_at: Callable[[Source, Shapes], CompiledModel], job: Job
) -> OpenModel:
    inputs = source.inputs(shapes)
    decided_by: tuple[str, ...] = ()
    reader = "from_onnx"
    try:
        types: SymbolicTypes = source.types(shapes)
    except NeedsValueError as error:
        if not _can_be_built_in(source, error):
            raise
        types = SymbolicTypes(tuple(first_axes(inputs)), {}, {}, 1)
        decided_by, reader = tuple(each.name for each in error.inputs), error.reader

    def at(sizes: Mapping[str, int], values: Mapping[str, Array] = {}) -> CompiledModel:
        job.progress(f"compiling for {sizes_text(sizes)}" if sizes else "compiling")
        sized = {**shapes, **{each.name: each.at(sizes) for each in inputs}}
        built_in: dict[str, Array] = {}
        while True:
            left = {name: shape for name, shape in sized.items() if name not in built_in}
            try:
                return compile_at(
                    source.with_values(built_in) if built_in and isinstance(source, Decidable) else source, left
                )
            except NeedsValueError as error:
                needed = [each.name for each in error.inputs if each.name in values and each.name not in built_in]
                if not needed or not _can_be_built_in(source, error):
                    raise
                built_in |= {name: values[name] for name in needed}

    return OpenModel(source.name, target.name, inputs, source.output_names, types, at, decided_by, reader)


def _can_be_built_in(source: Source, error: NeedsValueError) -> bool:
    """Whether what has to be known follows from few integers that a run is given."""
    return isinstance(source, Decidable) and error.is_of_few_integers


def folder_dump(folder: str | Path) -> Callable[[str, str], None]:
    """Writes each text into a file of its own in ``folder``."""
    if not isinstance(folder, (str, PathLike)):
        raise CompileError(f"dump is {folder!r:.80}, but must be the path of a folder")
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)

    def write(name: str, text: str) -> None:
        safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
        write_atomically(place / f"{safe}.txt", f"{text}\n".encode())

    return write
