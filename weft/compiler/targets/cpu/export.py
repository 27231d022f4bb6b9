"""A model for a CPU as object files and a small C interface, for programs that have no Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ....files import write_atomically
from ...graph.dtypes import STRING
from ...model import CompiledModel, CopyStep, CutModel, HostProgram, HostStep, LaunchStep, Place
from ..errors import CompileError
from ..memory_plan import ALIGNMENT
from .build import build_program
from .processor import Processor

HEADER, SOURCE, CONSTANTS = "weft_model.h", "weft_model.c", "constants.bin"


def export_objects(model: CompiledModel, folder: Path, processor: Processor) -> list[Path]:
    """Write a model's machine code for a processor: object files, `HEADER` and `SOURCE` with the function that runs it,
    and its constants. Gives the files.

    CompileError for a model that is not machine code alone: with programs for a core, NumPy, or indices that only a run
    knows and that weft would check; and for one that shares its work among threads.
    """
    program = _whole_program(model)
    code = build_program(program, processor)
    folder.mkdir(parents=True, exist_ok=True)
    files = {f"kernel{number}.o": content for number, content in enumerate(code.objects)}
    symbols = {call.first: call.symbol for call in code.calls}
    counter_bytes = max((call.counter_bytes for call in code.calls), default=0)
    files[HEADER] = "\n".join(_header(model, program)).encode()
    files[SOURCE] = "\n".join(_source(program, symbols, counter_bytes)).encode()
    files[CONSTANTS] = program.constants.tobytes()
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [folder / name for name in files]


def _whole_program(model: CompiledModel) -> HostProgram:
    hint = "compile it for target 'cpu' with --strict, and with 1 thread"
    if isinstance(model, CutModel):
        raise CompileError(f"NumPy would run the last part: {model.tail.reason}",
                           hint="give a model that ends before it")  # fmt: skip
    match model.steps:
        case (HostStep(program),):
            pass
        case _:
            raise CompileError(f"{model.name!r} has programs for a core, which object files cannot hold", hint=hint)
    for tensor in (*program.inputs, *program.outputs):
        if tensor.dtype == STRING:
            raise CompileError(f"{tensor.name!r} of {model.name!r} is strings, which object files cannot hold",
                               hint="number the strings before the model")  # fmt: skip
    for layer in program.layers:
        if layer.device == "gpu":
            raise CompileError(f"{model.name!r} is compiled for a GPU, which object files are not for", hint=hint)
        if layer.device == "numpy":
            raise CompileError(f"NumPy would run it: {layer.reason}", at=f"node {layer.name!r}", hint=hint)
    if not all(isinstance(step, LaunchStep | CopyStep) for step in program.steps):
        raise CompileError(f"{model.name!r} has indices that are checked at every run, which object files do not do",
                           hint="make them constants of the model")  # fmt: skip
    if program.threads != 1:
        raise CompileError(f"{model.name!r} is compiled for {program.threads} threads", hint=hint)
    return program


def _header(model: CompiledModel, program: HostProgram) -> Iterator[str]:
    yield f"/* The model {model.name!a}: one function that runs it, from one thread at a time. */"
    yield "#ifndef WEFT_MODEL_H\n#define WEFT_MODEL_H\n"
    for kind, tensors in (("INPUT", program.inputs), ("OUTPUT", program.outputs)):
        for number, tensor in enumerate(tensors):
            what = f"{tensor.name!a}: {tensor.dtype}{list(tensor.shape)}".replace("*/", "* /")
            yield f"#define WEFT_{kind}_{number}_BYTES {tensor.nbytes} /* {what} */"
    yield f"#define WEFT_CONSTANT_BYTES {program.constants.nbytes} /* of {CONSTANTS} */"
    yield f"#define WEFT_ARENA_BYTES {program.arena_bytes}\n"
    yield f"/* All memory starts at a multiple of {ALIGNMENT} bytes; tensors are in C order, without gaps. */"
    yield "void weft_model_run(const void *const *inputs, void *const *outputs, const void *constants, void *arena);\n"
    yield "#endif\n"


def _source(program: HostProgram, symbols: dict[int, str], counter_bytes: int) -> Iterator[str]:
    yield f'#include "{HEADER}"\n#include <stdint.h>\n#include <string.h>\n'
    yield from (f"extern void {symbol}(const void *const *table, int64_t thread);" for symbol in symbols.values())
    yield "\nvoid weft_model_run(const void *const *inputs, void *const *outputs, const void *constants, void *arena) {"
    yield f"  static uint64_t counters[{counter_bytes // 8 + 1}];"
    yield "  const void *const table[] = {inputs, outputs, constants, arena, counters};"
    for number, step in enumerate(program.steps):
        if number in symbols:
            yield f"  {symbols[number]}(table, 0);"
        elif isinstance(step, CopyStep):
            yield f"  memcpy({_pointer(step.target)}, {_pointer(step.source)}, {step.source.nbytes});"
    yield "}\n"


def _pointer(place: Place) -> str:
    bases = {"input": f"inputs[{place.number}]", "output": f"outputs[{place.number}]", "constant": "constants"}
    return f"(char *){bases.get(place.kind, 'arena')} + {place.offset}"
