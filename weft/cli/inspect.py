"""``weft shapes`` and ``weft disasm``: what a model or an artifact is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..compiler.model import CoreStep
from ..hw.assembly import format_instruction
from ..hw.programs import disassemble
from ..runtime.artifact import load as load_artifact
from ..runtime.errors import InputError
from .app import app
from .output import JsonOption, ShapeOption, SignatureOption, out, parse_shapes, print_json
from .source import given_file


@app.command()
def shapes(
    model: Annotated[Path, typer.Argument(help="ONNX model.")], shape: ShapeOption = None,
    signature: SignatureOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Print the type of every tensor of a model, for any size of what its inputs leave open."""
    chosen = parse_shapes(shape)
    from ..compiler.frontends import read

    source = read(given_file(model, None, signature))
    types = source.types(chosen)
    untyped = [name for name in source.output_names if name not in types.types]
    if as_json:
        print_json({"tensors": {name: str(kind) for name, kind in types.types.items()}, "equal": dict(types.equal),
                    "multiple": types.multiple, "otherwise": list(types.otherwise),
                    "untyped": untyped})  # fmt: skip
        return
    for name, kind in types.types.items():
        out.print(f"{name}: {kind}", highlight=False, markup=False, soft_wrap=True)
    if untyped:
        text = f"results without a type, which are no tensors or have any size: {', '.join(untyped)}"
        out.print(text, highlight=False, markup=False, soft_wrap=True)
    for symbol, other in types.equal.items():
        out.print(f"{symbol} must be equal to {other}", highlight=False, markup=False)
    if types.multiple > 1:
        out.print(f"for sizes that are multiples of {types.multiple}", highlight=False)
    if types.otherwise:
        text = f"sizes written as ? depend on the symbols in another way: {', '.join(types.otherwise)}"
        out.print(text, highlight=False, markup=False, soft_wrap=True)


@app.command()
def disasm(
    artifact: Annotated[Path, typer.Argument(help="What 'weft compile' wrote.")],
    layer: Annotated[str | None, typer.Option(help="Only the instructions, or the kernels, of this layer.")] = None,
) -> None:
    """Print an artifact's instructions with the layer and tile that each belongs to, and the host's kernels."""
    compiled = load_artifact(artifact)
    names = [item.name for item in compiled.layers]
    if layer is not None and layer not in names:
        raise InputError(f"there is no layer {layer!r}", hint=f"layers: {', '.join(names)}")
    for step in compiled.steps:
        arrow = f"{', '.join(step.inputs)} -> {', '.join(step.outputs)}"
        if not isinstance(step, CoreStep):
            print(f"# host: {arrow}")
            for each in step.program.layers:
                if layer in (None, each.name):
                    print(f"#   {each.name} ({each.kind}, {each.device}): {', '.join(each.operators) or 'layout'}")
            continue
        print(f"# program at {step.program_offset:#x}: {arrow}")
        for number, instruction in enumerate(disassemble(compiled.on_core.config_of(step), step.program)):
            index = int(step.layer_of[number])
            name = names[index] if index >= 0 else "set-up"
            if layer in (None, name):
                print(f"{number:6d}  {format_instruction(instruction):<100}  # {name}, tile {step.tile_of[number]}")
