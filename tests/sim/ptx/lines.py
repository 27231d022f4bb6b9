"""A kernel around some lines of PTX, in which each thread has an element of each array."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from weft.sim.ptx import Counts, DeviceMemory, launch

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
REGISTERS = {8: "rs", 16: "h", 32: "r", 64: "rd"}


def kernel(body: str, parameters: int = 1, declarations: str = "") -> str:
    """A kernel ``k`` with so many addresses as parameters, in %rd0 ...; numbers of thread and block in registers."""
    names = [f".param .u64 p{number}" for number in range(parameters)]
    loads = "".join(f"  ld.param.u64 %rd{number}, [p{number}];\n" for number in range(parameters))
    return (
        f"{HEAD}.visible .entry k({', '.join(names)})\n{{\n"
        "  .reg .pred %p<9>; .reg .b16 %rs<40>; .reg .b16 %h<40>; .reg .b32 %r<40>; .reg .b64 %rd<40>;\n"
        f"  .reg .b32 %thread; .reg .b32 %block;\n{declarations}"
        f"  mov.u32 %thread, %tid.x; mov.u32 %block, %ctaid.x;\n{loads}{body}\n  ret;\n}}\n"
    )


def width(dtype: np.dtype) -> int:
    return dtype.itemsize * 8


def run(
    lines: str, inputs: Sequence[npt.NDArray], results: Mapping[str, type] | Sequence[type], *, threads: int = 0
) -> list[npt.NDArray]:
    """Run lines in which ``A0``, ``A1``, ... are registers with an element of each input, ``D0``, ... the results."""
    count = threads or len(inputs[0])
    memory = DeviceMemory()
    addresses = [memory.put(each) for each in inputs]
    outputs = [np.zeros(count, dtype) for dtype in results]
    addresses += [memory.put(each) for each in outputs]
    body, names = [], {}
    for number, array in enumerate([*inputs, *outputs]):
        bits, name = width(array.dtype), f"A{number}" if number < len(inputs) else f"D{number - len(inputs)}"
        names[name] = f"%{REGISTERS[bits]}{10 + number}"
        pointer = f"%rd{20 + number}"
        body.append(f"  mul.wide.u32 %rd39, %thread, {bits // 8}; add.s64 {pointer}, %rd{number}, %rd39;")
        if number < len(inputs):
            body.append(f"  ld.global.b{bits} {names[name]}, [{pointer}];")
    body.append(re.sub(r"\b[AD]\d\b", lambda match: names[match.group()], lines))
    for number, array in enumerate(outputs):
        body.append(f"  st.global.b{width(array.dtype)} [%rd{20 + len(inputs) + number}], {names[f'D{number}']};")
    launch(kernel("\n".join(body), len(addresses)), (1,), (count,), addresses, memory)
    for address, array in zip(addresses[len(inputs) :], outputs, strict=True):
        memory.read(address, array)
    return outputs


def run_kernel(text: str, arrays: Sequence[npt.NDArray], grid: int = 1, threads: int = 32) -> tuple[list, Counts]:
    """Run a kernel on copies of the arrays; gives what they hold afterwards, and the counts."""
    memory = DeviceMemory()
    addresses = [memory.put(each) for each in arrays]
    counts = launch(text, (grid,), (threads,), addresses, memory)
    found = [np.empty_like(each) for each in arrays]
    for address, array in zip(addresses, found, strict=True):
        memory.read(address, array)
    return found, counts
