"""Running one function of the loop IR as machine code, on all threads of a team."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ll
import numpy as np
from weft.compiler import tensor as t
from weft.compiler.targets.cpu.llvm.emit import emit_kernel
from weft.compiler.targets.cpu.llvm.object_code import machine, object_code
from weft.compiler.targets.cpu.llvm.threads import PART_BYTES, pool_text
from weft.compiler.targets.cpu.processor import Processor, host_target
from weft.compiler.tensor.visitor import stores_of

Array = np.ndarray[Any, Any]
HOST = host_target()
POISON = 0x5B


def run_compiled(
    func: t.PrimFunc, arrays: dict[str, Array], target: Processor | None = None, threads: int = 1
) -> dict[str, Array]:
    """All parameters as they are after a run; those that are not given start as a pattern, as in the interpreter."""
    target = target or host_target()
    module = ll.Module("test")
    workspace = emit_kernel(module, func, target, threads)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine(HOST))
    for text in (pool_text(target.triple), str(module)):
        engine.add_object_file(llvm.ObjectFileRef.from_data(object_code(text, target)))
    engine.finalize_object()
    written = {buffer.name for buffer, _ in stores_of(func.body)}
    memory: dict[str, Array] = {}
    for buffer in func.params:
        kind = t.NUMPY_TYPES[buffer.dtype]
        if buffer.name in arrays:
            memory[buffer.name] = arrays[buffer.name].astype(kind).copy()
        else:
            assert buffer.name in written
            memory[buffer.name] = np.full(buffer.shape, POISON, kind)
    space = np.zeros(workspace.total(threads) + 64, np.uint8)
    start = space.ctypes.data + -space.ctypes.data % 64
    counters = np.zeros((workspace.parts + 1) * PART_BYTES, np.uint8)
    kinds = [ctypes.c_void_p] * (len(memory) + 1) + [ctypes.c_int64, ctypes.c_void_p]
    function = ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address(func.name))
    pointers = [array.ctypes.data for array in memory.values()]
    workers = [
        threading.Thread(target=function, args=(*pointers, start, number, counters.ctypes.data))
        for number in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return memory


def random_arrays(func: t.PrimFunc, seed: int = 0) -> dict[str, Array]:
    """Random values for the parameters that the function reads and does not write."""
    generator = np.random.default_rng(seed)
    written = {buffer.name for buffer, _ in stores_of(func.body)}
    arrays: dict[str, Array] = {}
    for buffer in func.params:
        if buffer.name in written:
            continue
        kind = t.NUMPY_TYPES[buffer.dtype]
        if buffer.dtype in t.FLOATS:
            arrays[buffer.name] = generator.standard_normal(buffer.shape).astype(kind)
        elif buffer.dtype == "bool":
            arrays[buffer.name] = generator.random(buffer.shape) < 0.5
        else:
            limits = np.iinfo(kind)
            arrays[buffer.name] = generator.integers(limits.min, limits.max, buffer.shape, kind, endpoint=True)
    return arrays
