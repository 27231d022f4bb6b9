"""Models compiled for ARM boards, run here: linked with a small program and the board's C library, emulated by qemu.

The program holds the inputs of some runs and writes the bytes of all outputs. It is LLVM IR, as the pool of threads is,
so that it is made for the same triple and no cross compiler is needed.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft.compiler.graph.dtypes import numpy_dtype
from weft.compiler.model import CompiledModel, CopyStep, HostCode, HostProgram, NumpyStep, Place
from weft.compiler.targets.cpu.build import build_program
from weft.compiler.targets.cpu.llvm.object_code import object_code
from weft.compiler.targets.cpu.processor import named_target

from .programs import program_of

Array = np.ndarray[Any, Any]
ALIGNMENT = 64
THREAD_BYTES = 8  # of a pthread_t, at most


@dataclass(frozen=True)
class Board:
    """A processor that we compile for, and Debian's names for it."""

    processor: str
    libraries: str  # folder of /usr, and prefix of the linker
    loader: str  # what loads the C library, in that folder
    emulator: str
    size: str  # LLVM's type for size_t
    packages: tuple[str, ...]

    @property
    def linker(self) -> str:
        return f"{self.libraries}-ld"

    @property
    def root(self) -> Path:
        """Stands for the board's file system."""
        return Path("/usr") / self.libraries

    def missing(self) -> tuple[str, ...]:
        """Packages to install before programs for this processor can be run here."""
        tools, c_library, compiler_library = self.packages
        found = {
            "qemu-user": shutil.which(self.emulator),
            tools: shutil.which(self.linker),
            c_library: (self.root / "lib" / "libm.so.6").exists(),
            compiler_library: (self.root / "lib" / "libgcc_s.so.1").exists(),
        }
        return tuple(package for package, there in found.items() if not there)


BOARDS = {
    "aarch64": Board(
        "aarch64", "aarch64-linux-gnu", "ld-linux-aarch64.so.1", "qemu-aarch64", "i64",
        ("binutils-aarch64-linux-gnu", "libc6-arm64-cross", "libgcc-s1-arm64-cross"),
    ),
    "armv7a": Board(
        "armv7a", "arm-linux-gnueabihf", "ld-linux-armhf.so.3", "qemu-arm", "i32",
        ("binutils-arm-linux-gnueabihf", "libc6-armhf-cross", "libgcc-s1-armhf-cross"),
    ),
}  # fmt: skip
BOARDS["armv7a-ieee"] = replace(BOARDS["armv7a"], processor="armv7a-ieee")
WITH_DOT_PRODUCTS = ("cortex-a76", "neoverse-v1")
"""Processors that no board of ours has, and that the emulator can be, too."""

BOARDS |= {name: replace(BOARDS["aarch64"], processor=name) for name in WITH_DOT_PRODUCTS}


def skip_without(processor: str) -> None:
    """Skip the test where programs for this processor cannot be run, with the packages to install."""
    missing = BOARDS[processor].missing()
    if missing:
        pytest.skip(f"apt-get install {' '.join(missing)}")


Run = Mapping[str, Array]
"""Inputs, or outputs, by name."""


def run_on(model: CompiledModel, processor: str, runs: Sequence[Run], folder: Path) -> list[Run]:
    """The outputs of a model that is compiled for ``processor``, of one run after the other in one program.

    All of the model must be machine code. The program stays in ``folder``.
    """
    host = program_of(model)
    program = linked(model, build_program(host, named_target(processor)), processor, runs, folder)
    board = BOARDS[processor]
    done = subprocess.run([board.emulator, "-L", board.root, program], capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, f"{program}: ended with {done.returncode}: {done.stderr.decode(errors='replace')}"
    offsets, total = _output_offsets(host, len(runs))
    assert len(done.stdout) == total
    results: list[Run] = []
    for places in offsets:
        values: dict[str, Array] = {}
        for tensor, place in zip(model.outputs, places, strict=True):
            dtype = numpy_dtype(tensor.dtype)
            count = int(np.prod(tensor.shape))
            values[tensor.name] = np.frombuffer(done.stdout, dtype, count, place).reshape(tensor.shape)
        results.append(values)
    return results


def linked(model: CompiledModel, code: HostCode, processor: str, runs: Sequence[Run], folder: Path) -> Path:
    """The program that makes these runs, as an executable file for ``processor``."""
    board = BOARDS[processor]
    objects: list[Path] = []
    main = object_code(_program_text(program_of(model), code, runs, board.size), named_target(processor))
    for number, content in enumerate((main, *code.objects)):
        objects.append(folder / f"{processor}.{number}.o")
        objects[-1].write_bytes(content)
    program = folder / f"{processor}.program"
    libraries = [f"-l:{name}" for name in ("libm.so.6", "libc.so.6", "libgcc_s.so.1")]
    command = [board.linker, "--fatal-warnings", "-z", "noexecstack", "-o", program, *objects,
               f"-L{board.root}/lib", *libraries, "--dynamic-linker", f"/lib/{board.loader}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return program


def _output_offsets(model: HostProgram, runs: int) -> tuple[list[list[int]], int]:
    """The byte at which each output of each run starts, and the bytes of all."""
    offsets: list[list[int]] = []
    total = 0
    for _ in range(runs):
        offsets.append([])
        for tensor in model.outputs:
            offsets[-1].append(total)
            nbytes = int(np.prod(tensor.shape)) * numpy_dtype(tensor.dtype).itemsize
            total += -(-nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, total


def _program_text(model: HostProgram, code: HostCode, runs: Sequence[Run], size: str) -> str:
    """LLVM IR of the program; ``size`` is the type of a size_t.

    As ``runtime.host`` does: a table of pointers for each run, a team of threads, and one job a step.
    """
    assert not any(isinstance(step, NumpyStep) for step in model.steps), "NumPy would have to run a part of this model"
    calls_at = {call.first: call for call in code.calls}
    counter_bytes = max((call.counter_bytes for call in code.calls), default=0)
    offsets, total = _output_offsets(model, len(runs))
    text = [
        *(f"declare void @{call.symbol}(ptr, i64)" for call in code.calls),
        "declare void @weft_run(ptr, ptr, ptr, ptr, i64)",
        "declare void @weft_work(ptr, i64)",
        "declare void @weft_stop(ptr)",
        "declare i32 @pthread_create(ptr, ptr, ptr, ptr)",
        f"declare ptr @memcpy(ptr, ptr, {size})",
        f"declare {size} @write(i32, ptr, {size})",
        "declare void @_exit(i32)",
        _bytes("constants", model.constants.tobytes()),
        *(_zeros(name, count) for name, count in
          (("arena", model.arena_bytes), ("counters", counter_bytes), ("team", code.team_bytes), ("results", total),
           ("threads", model.threads * THREAD_BYTES))),
    ]  # fmt: skip
    calls: list[str] = []
    for run, values in enumerate(runs):
        inputs = [f"ptr @input.{run}.{number}" for number in range(len(model.inputs))]
        for number, tensor in enumerate(model.inputs):
            value = values[tensor.name]
            assert (value.shape, value.dtype.name) == (tensor.shape, tensor.dtype)
            text.append(_bytes(f"input.{run}.{number}", np.ascontiguousarray(value).tobytes()))
        outputs = [_after("results", byte) for byte in offsets[run]]
        text.append(_table(f"inputs.{run}", inputs))
        text.append(_table(f"outputs.{run}", outputs))
        tables = f"ptr @inputs.{run}", f"ptr @outputs.{run}", "ptr @constants", "ptr @arena", "ptr @counters"
        text.append(_table(f"table.{run}", tables))
        for number, step in enumerate(model.steps):
            if number in calls_at:
                call = calls_at[number]
                job = f"ptr @team, ptr @{call.symbol}, ptr @table.{run}, ptr @counters, i64 {call.counter_bytes}"
                calls.append(f"call void @weft_run({job})")
            elif isinstance(step, CopyStep):
                places = [_address(place, inputs, outputs) for place in (step.target, step.source)]
                calls.append(f"call ptr @memcpy({', '.join(places)}, {size} {step.source.nbytes})")
    workers: list[str] = []
    for number in range(1, model.threads):
        text.append(f"define internal ptr @worker.{number}(ptr %unused) {{\n"
                    f"  call void @weft_work(ptr @team, i64 {number})\n  ret ptr null\n}}")  # fmt: skip
        handle = _after("threads", number * THREAD_BYTES)
        workers.append(f"call i32 @pthread_create({handle}, ptr null, ptr @worker.{number}, ptr null)")
    ends = [
        "call void @weft_stop(ptr @team)",
        f"%written = call {size} @write(i32 1, ptr @results, {size} {total})",
        "call void @_exit(i32 0)",
        "unreachable",
    ]
    text.append("\n  ".join(["define void @_start() {", *workers, *calls, *ends]) + "\n}")
    return "\n".join(text)


def _address(place: Place, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """Where a tensor is during a run."""
    if place.kind in ("input", "output"):
        return (inputs if place.kind == "input" else outputs)[place.number]
    return _after("arena" if place.kind == "arena" else "constants", place.offset)


def _after(name: str, byte: int) -> str:
    """The pointer to a byte of a global."""
    return f"ptr getelementptr (i8, ptr @{name}, i64 {byte})"


def _bytes(name: str, content: bytes) -> str:
    """A global with these bytes; one byte more, so that none is empty."""
    digits = "".join(f"\\{byte:02x}" for byte in content) + "\\00"
    return f'@{name} = internal global [{len(content) + 1} x i8] c"{digits}", align {ALIGNMENT}'


def _zeros(name: str, count: int) -> str:
    return f"@{name} = internal global [{count + 1} x i8] zeroinitializer, align {ALIGNMENT}"


def _table(name: str, pointers: Sequence[str]) -> str:
    return f"@{name} = internal global [{len(pointers)} x ptr] [{', '.join(pointers)}]"
