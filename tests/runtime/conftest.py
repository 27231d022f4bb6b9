"""A small model made by hand: a host function, a program on the core, a host function."""

from __future__ import annotations

import numpy as np
import pytest
from weft.compiler.graph import Attrs, Constant, Function, TensorType, Var, call
from weft.compiler.model import (
    CompiledModel,
    ConstantSegment,
    CorePart,
    CoreStep,
    HostProgram,
    HostStep,
    Layer,
    NumpyStep,
    Place,
    TensorSlot,
    TensorSpec,
)
from weft.hw import isa, programs
from weft.hw.config import TINY
from weft.hw.isa import Engine, Scratchpad, VectorOp, VectorTarget

ENTRIES = 6
SHAPE = (ENTRIES, TINY.lanes)


def add_one_program() -> list[isa.Instruction]:
    """Load int8 entries from byte 0 of the window, add 1, store them at byte 64."""
    load, vector, store = (isa.engine_mask([engine]) for engine in (Engine.LOAD, Engine.VECTOR, Engine.STORE))
    return [
        isa.Load(scratchpad=Scratchpad.ACC8, index=0, offset=0, rows=1, columns=ENTRIES, send=vector),
        isa.Loop(engine=Engine.VECTOR, level=0, extent=ENTRIES, dst_stride=1, a_stride=1),
        isa.Vector(
            op=VectorOp.ADD, levels=1, target=VectorTarget.OUT, b_immediate=1, dst=0, a=0, b=1, wait=load, send=store
        ),
        isa.Store(index=0, offset=64 // TINY.granule_bytes, rows=1, columns=ENTRIES, wait=vector),
        isa.Finish(),
    ]


@pytest.fixture
def model() -> CompiledModel:
    """``y = 0.5 * (quantise(x / 0.5) + 1)`` for 24 elements, on ``tiny``."""
    program = programs.assemble(TINY, add_one_program())
    scale, zero = Constant(np.float32(0.5)), Constant(np.int8(0))
    x, r = Var("x", TensorType(SHAPE, "float32")), Var("r", TensorType(SHAPE, "int8"))
    quantise = Function((x,), call("quantise", x, scale, zero), Attrs({"name": "quantise", "host": "float32"}))
    dequantise = Function((r,), call("dequantise", r, scale, zero), Attrs({"name": "dequantise", "host": "float32"}))
    layers, tiles = np.ones(len(add_one_program()), np.int32), np.zeros(len(add_one_program()), np.int32)
    first, last = host_step(quantise, "x", "q", 0), host_step(dequantise, "r", "y", 2)
    add = Layer("add", ("Add_0",), "elementwise", "core", "r", SHAPE, 0, bytes_loaded=24, bytes_stored=24)
    slots = {"q": TensorSlot("q", 0, SHAPE, "int8"), "r": TensorSlot("r", 64, SHAPE, "int8")}
    return CompiledModel(
        name="add_one",
        target="accel",
        inputs=(TensorSpec("x", SHAPE, "float32"),),
        outputs=(TensorSpec("y", SHAPE, "float32"),),
        steps=(first, CoreStep(program, 256, ("q",), ("r",), layers, tiles), last),
        layers=(*first.program.layers, add, *last.program.layers),
        core=CorePart(TINY, 1024, slots, (ConstantSegment("unused", 512, np.arange(16, dtype=np.uint8)),)),
        statistics={"instructions": len(layers)},
    )


def host_step(function: Function, source: str, target: str, first_layer: int) -> HostStep:
    """A function of one operand that NumPy runs."""
    kind, result = function.params[0].type, function.body.tensor_type
    layer = Layer(function.name, (), "numpy", "numpy", target, SHAPE, 0, reason="float32")
    program = HostProgram(
        inputs=(TensorSpec(source, SHAPE, kind.dtype),),
        outputs=(TensorSpec(target, SHAPE, result.dtype),),
        kernels=(),
        steps=(
            NumpyStep(
                function, (Place("input", 0, 0, SHAPE, kind.dtype),), (Place("output", 0, 0, SHAPE, result.dtype),), 0
            ),
        ),
        layers=(layer,),
        constants=np.zeros(0, np.uint8),
        arena_bytes=0,
        memory=(),
        threads=1,
        processor="any",
    )
    return HostStep(program, (source,), (target,), first_layer)
