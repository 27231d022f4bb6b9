"""Compile a model: front end, passes, target, link."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..hw.config import CoreConfig, named_config
from .compiled import CompiledModel
from .frontends import from_onnx
from .graph import Attrs, Function, Module, calls
from .graph import call as graph_call
from .graph.ir import Span
from .passes import integer_passes
from .passes.pipeline import PassOptions, run_passes
from .targets.accel.link import Options, check_strict, link
from .targets.accel.packed_layout import Blocks
from .targets.accel.passes import accel_passes
from .targets.errors import CompileError

Progress = Callable[[str], None]


def compile_model(
    model: str | Path | bytes | Module | Any,
    config: CoreConfig | str = "pynq",
    *,
    vthreads: int = 2,
    strict: bool = False,
    shapes: Mapping[str, Sequence[int]] | None = None,
    progress: Progress | None = None,
    reuse_memory: bool = True,
    dump: str | Path | None = None,
    passes: PassOptions | None = None,
) -> CompiledModel:
    """Compile a quantised network for a core.

    model
        An ONNX file (path, bytes or ``ModelProto``), or a module of the graph IR at any stage.
    config
        The core, or the name of one.
    vthreads
        Virtual threads: tiles in flight at once.
    strict
        Refuse a model of which anything but quantisation, softmax and layout at its ends would run on the host.
    shapes
        Shapes of inputs that the file leaves open.
    progress
        Called with a line of text at each step.
    reuse_memory
        Let tensors that are not alive at the same time share DRAM; without it every layer's result can be read.
    dump
        A folder for the loop IR of every layer, as text.
    passes
        Passes of your own, the check of every pass, a page that shows what each did.

    Raises ModelError for a file that cannot be read, CompileError for one that cannot be compiled; both name the node.
    """
    started = time.perf_counter()
    core = named_config(config) if isinstance(config, str) else config
    if vthreads < 1:
        raise CompileError(f"vthreads is {vthreads}, but must be at least 1")
    report = progress or (lambda _: None)
    report("reading the model")
    module = model if isinstance(model, Module) else from_onnx(model, shapes)
    if _is_packed(module):
        if passes is not None:
            raise CompileError("the passes have run over this module already: give the model as it was read")
    else:
        report("running the passes")
        blocks = Blocks.of(core)
        steps = [*integer_passes(), *accel_passes(blocks, core.bus_bytes)]
        module = run_passes(module, steps, passes or PassOptions(), f"{_name(model)} for {core.name}")
    if strict:
        check_strict(module)
    options = Options(vthreads, reuse_memory, progress, _writer(dump))
    compiled = link(module, core, options)
    seconds = time.perf_counter() - started
    return replace(
        compiled,
        name=_name(model) or compiled.name,
        statistics={**compiled.statistics, "compile_seconds": seconds, "vthreads": vthreads},
    )


def compile_function(
    function: Function, config: CoreConfig | str, vthreads: int = 2, *, dump: str | Path | None = None
) -> CompiledModel:
    """Compile one packed primitive function; inputs and output stay packed, the output is called ``output``."""
    body = graph_call(function, *function.params, span=Span((function.name,), "result"))
    main = Function(function.params, body, Attrs({"name": function.name, "outputs": ("output",)}))
    return compile_model(Module(main), config, vthreads=vthreads, dump=dump)


def _name(model: object) -> str:
    return Path(model).stem if isinstance(model, (str, Path)) else ""


def _is_packed(module: Module) -> bool:
    """Whether the passes have run: ``main`` is nothing but calls of functions."""
    found = calls(module.main.body)
    return bool(found) and all(isinstance(node.op, Function) for node in found) and all(
        isinstance(inner.op, str) and inner.op.startswith("packed_")
        for node in found if isinstance(node.op, Function) and node.op.is_primitive
        for inner in calls(node.op.body)
    )  # fmt: skip


def _writer(folder: str | Path | None) -> Callable[[str, str], None] | None:
    if folder is None:
        return None
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)

    def write(name: str, text: str) -> None:
        safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
        (target / f"{safe}.txt").write_text(text + "\n")

    return write
