"""Models without a part for the core, run as a board would run them: packed, linked, loaded, carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from weft.api import find_target
from weft.boards.board_model import Package, package
from weft.boards.link.model import BoardModel, load_library
from weft.boards.link.plan import plan_text, read_plan
from weft.compiler.graph import Attrs, Expr, Function, Module, Tuple, Var
from weft.compiler.graph.dtypes import numpy_dtype
from weft.compiler.model import CompiledModel, CorePart, CoreStep, HostCode, HostProgram, TensorSlot, TensorSpec
from weft.hw.config import CoreConfig

Array = npt.NDArray[Any]


def module_of(*results: Expr, params: Sequence[Var]) -> Module:
    names = tuple(f"out{number}" for number in range(len(results)))
    return Module(Function(tuple(params), Tuple(results), Attrs({"name": "main", "outputs": names})))


def host_code(program: HostProgram, processor: str) -> HostCode:
    return find_target("cpu").host_code(program, trusted=True, processor=processor)


def packed(model: CompiledModel, machine: str = "x86_64") -> Package:
    return package(model, host_code, machine)


def identity_model(core: CoreConfig, nbytes: int) -> CompiledModel:
    """A model for a core that does nothing: its result is its input, in the same bytes of the window."""
    place = 64
    slots = {name: TensorSlot(name, place, (nbytes,), "uint8") for name in ("x", "y")}
    nothing = np.zeros(1, np.int32)
    step = CoreStep(np.zeros(core.instruction_bytes, np.uint8), 0, ("x",), ("y",), nothing, nothing)
    x, y = (TensorSpec(name, (nbytes,), "uint8") for name in ("x", "y"))
    window = place + -(-nbytes // 4096) * 4096
    return CompiledModel("identity", "accel", (x,), (y,), (step,), (), CorePart(core, window, slots, ()))


def item_bytes(model: CompiledModel, inputs: Mapping[str, Array]) -> bytes:
    return b"".join(np.ascontiguousarray(inputs[tensor.name]).tobytes() for tensor in model.inputs)


def arrays_of(tensors: Sequence[TensorSpec], raw: bytes) -> dict[str, Array]:
    """The outputs of one item."""
    found: dict[str, Array] = {}
    place = 0
    for tensor in tensors:
        dtype = numpy_dtype(tensor.dtype)
        found[tensor.name] = np.frombuffer(raw, np.uint8, tensor.nbytes, place).view(dtype).reshape(tensor.shape)
        place += tensor.nbytes
    assert place == len(raw)
    return found


def on_board(made: Package, folder: Path) -> BoardModel:
    """The package as the server on a board loads it; there is no core."""
    text = plan_text(made.plan)
    plan = read_plan(text, len(made.libraries), len(made.constants), 0)
    assert plan == made.plan
    libraries = []
    for content in made.libraries:
        path = folder / f"{len(list(folder.iterdir()))}.so"
        path.write_bytes(content)
        libraries.append(load_library(path))
    return BoardModel(plan, libraries, made.constants, None)  # type: ignore[arg-type]


def run_here(model: CompiledModel, items: Sequence[Mapping[str, Array]], folder: Path) -> list[dict[str, Array]]:
    """The outputs of a batch."""
    board = on_board(packed(model), folder)
    board.feed(0, b"".join(item_bytes(model, item) for item in items))
    board.run(None, len(items), seconds=1, watchdog=0)  # type: ignore[arg-type]
    size = board.plan.output_bytes
    parts = [board.outputs[size * number : size * (number + 1)] for number in range(len(items))]
    return [arrays_of(model.outputs, part) for part in parts]
