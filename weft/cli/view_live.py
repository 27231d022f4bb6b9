"""What ``weft view --live`` has of a model: its programs, inputs that a native run was given, and its host's part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..api import load
from ..compiler.graph.dtypes import STRING
from ..compiler.model import CompiledModel, CopyStep, HostProgram, HostStep, LaunchStep
from ..compiler.targets.cpu.build import check_host_program, wasm_objects
from ..runtime.index_inputs import index_inputs
from ..runtime.inputs import check_inputs, in_batches, read_inputs
from ..sim.errors import BuildError
from ..sim.wasm import linked_module
from ..view.live import HostInPage, StepRecorder, live_model


def live(model: CompiledModel, inputs: Path | None) -> dict[str, Any]:
    """What the page has of a model; WeftError where nothing runs on a core."""
    model.on_core  # noqa: B018
    hosts, why = hosts_in_page(model)
    if inputs is None:
        return live_model(model, hosts=hosts, why=why)
    specs = model.inputs
    given = read_inputs(specs, inputs, 0, index_inputs(model))
    check_inputs(given, specs)
    device = StepRecorder(model)
    return live_model(model, in_batches(given, specs), (load(model, device), device), hosts, why)


def hosts_in_page(model: CompiledModel) -> tuple[tuple[HostInPage, ...], str]:
    """The host's programs as WebAssembly, in their order; or none of them, and why the page cannot run them."""
    made = []
    for step in model.steps:
        if not isinstance(step, HostStep):
            continue
        program = step.program
        why = _why_not(program)
        if why:
            return (), why
        if model.from_file:
            check_host_program(program)
        objects, calls = wasm_objects(program)
        try:
            module = linked_module(objects, [call.symbol for call in calls])
        except BuildError as error:
            return (), str(error).strip().splitlines()[-1]
        made.append(HostInPage(module, calls))
    return tuple(made), ""


def _why_not(program: HostProgram) -> str:
    """Why a page cannot run a program of the host; empty where it can."""
    if program.threads != 1:
        return f"its host's part is compiled for {program.threads} threads"
    if any(tensor.dtype == STRING for tensor in (*program.inputs, *program.outputs)):
        return "it has strings"
    for step in program.steps:
        if not isinstance(step, LaunchStep | CopyStep):
            name = program.layers[step.layer].name if hasattr(step, "layer") else step.node
            return f"{name!r} of its host's part is not machine code alone"
    return ""
