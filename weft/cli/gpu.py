"""``weft gpu``: the GPUs of this machine, and kernels looked at without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..errors import WeftError
from ..files import written_whole
from ..runtime.errors import DeviceError
from ..runtime.gpu.cuda import cuda_devices
from ..runtime.gpu.opencl import describe, opencl_devices
from ..sim.ptx import Counts, DeviceMemory, Kernel, Program, PtxError
from .app import app
from .output import JsonOption, out, output_folder, print_json

gpu_app = typer.Typer(
    name="gpu",
    help="GPUs of this machine, and kernels looked at without one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(gpu_app)

_TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")


@gpu_app.callback()
def gpu() -> None:
    """GPUs of this machine, and kernels looked at without one."""


@gpu_app.command("devices")
def devices(as_json: JsonOption = False) -> None:
    """List the GPUs that this machine has a driver for, with the number that --device takes."""
    found = {target: _found(listed) for target, listed in _LISTS.items()}
    if as_json:
        print_json({target: lines if isinstance(lines, list) else [] for target, lines in found.items()})
        return
    for target, lines in found.items():
        if isinstance(lines, DeviceError):
            out.print(f"{target}: {lines}", markup=False, soft_wrap=True)
            continue
        for number, line in enumerate(lines):
            out.print(f"{target} {number}: {line}", markup=False, soft_wrap=True)


def _found(listed: Callable[[], Sequence[str]]) -> list[str] | DeviceError:
    """The devices of a driver, or what is missing."""
    try:
        return list(listed())
    except DeviceError as error:
        return error


_LISTS: dict[str, Callable[[], Sequence[str]]] = {
    "cuda": lambda: [str(each) for each in cuda_devices()],
    "opencl": lambda: [describe(each) for each in opencl_devices()],
}
"""What lists the devices of a target."""


@gpu_app.command("check")
def check(
    source: Annotated[Path, typer.Argument(help="A file of PTX, by any compiler.")],
    kernel: Annotated[str, typer.Option("--kernel", help="Which kernel; needed where there are several.")] = "",
    grid: Annotated[str, typer.Option("--grid", help="Blocks along x, y and z, such as 4,2,1.")] = "",
    block: Annotated[str, typer.Option("--block", help="Threads of a block along x, y and z.")] = "32",
    arguments: Annotated[
        list[str] | None,
        typer.Option("--argument", help="In order: a number, X.npy, or TYPE:ELEMENTS for random ones (float32:1024)."),
    ] = None,
    shared: Annotated[int, typer.Option("--shared", help="Bytes of shared memory of open size.")] = 0,
    limit: Annotated[int, typer.Option("--limit", help="Instructions after which it is stopped.")] = 10_000_000,
    write: Annotated[Path | None, output_folder("--write", help="Folder for the arrays as they are then.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Read PTX and say what each kernel takes; with --grid run one, refuse what a GPU would get wrong, and count.

    Refused are races between barriers, asynchronous copies that are used before their wait, reads of shared memory
    that nobody wrote, memory that is not there or not aligned, and barriers that not all threads reach.
    """
    try:
        text = source.read_text()
    except UnicodeDecodeError as error:
        raise WeftError("this is not PTX, which is text", at=str(source), hint="weft gpu check KERNEL.ptx") from error
    except OSError as error:
        raise WeftError(f"it cannot be read: {error.strerror}", at=str(source)) from error
    memory = DeviceMemory()
    program = Program(text, memory)
    if not grid:
        _show_kernels(program, as_json)
        return
    if not kernel and len(program.kernels) != 1:
        raise PtxError(f"there are {len(program.kernels)} kernels", at=str(source), hint="choose one with --kernel")
    given = [_argument(each) for each in arguments or []]
    places = [memory.put(each) if isinstance(each, np.ndarray) else each for each in given]
    counts = program.launch(kernel or next(iter(program.kernels)), _sizes(grid), _sizes(block), places,
                            dynamic_shared=shared, limit=limit)  # fmt: skip
    if write is not None:
        write.mkdir(parents=True, exist_ok=True)
        for number, (place, each) in enumerate(zip(places, given, strict=True)):
            if isinstance(each, np.ndarray):
                memory.read(int(place), each)
                with written_whole(write / f"{number}.npy") as file:
                    np.save(file, each)
    _show_counts(counts, as_json)


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(each) for each in text.split(",")]
    except ValueError:
        sizes = []
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise WeftError(f"{text!r} are no sizes", hint="one to three numbers, such as 4,2,1")
    return sizes


def _argument(text: str) -> Any:
    """A number, or an array that no other argument holds."""
    if text.endswith(".npy"):
        try:
            return np.load(text, allow_pickle=False).copy()
        except (OSError, ValueError) as error:
            raise WeftError(f"it cannot be read: {error}", at=text) from error
    dtype, _, count = text.partition(":")
    if dtype in _TYPES and count.isdecimal():
        generator = np.random.default_rng(0)
        if dtype.startswith("float"):
            return generator.normal(size=int(count)).astype(dtype)
        ends = np.iinfo(dtype)
        return generator.integers(ends.min, ends.max, int(count), dtype, endpoint=True)
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    raise WeftError(
        f"{text!r} is no argument", hint=f"a number, X.npy or TYPE:ELEMENTS with one of {', '.join(_TYPES)}"
    )


def _show_kernels(program: Program, as_json: bool) -> None:
    if as_json:
        print_json({"kernels": [_described(each) for each in program.kernels.values()]})
        return
    for each in program.kernels.values():
        facts = _described(each)
        threads = f", at most {each.threads} threads" if each.threads else ""
        out.print(
            f"{each.name}({', '.join(facts['parameters'])}): {facts['instructions']} instructions, "
            f"{facts['shared_bytes']} shared bytes{threads}", highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip


def _described(kernel: Kernel) -> dict[str, Any]:
    return {"name": kernel.name, "parameters": [f"{each.type} {each.name}" for each in kernel.parameters],
            "instructions": sum(map(len, kernel.blocks)), "shared_bytes": kernel.shared_bytes,
            "threads": kernel.threads}  # fmt: skip


def _show_counts(counts: Counts, as_json: bool) -> None:
    fewest = sum(each.fewest for each in counts.wavefronts.values())
    facts = {
        "warp_instructions": counts.warp_instructions, "barriers": counts.barriers,
        "divergent_branches": counts.divergent, "shared_wavefronts": fewest + counts.conflicts,
        "bank_conflicts": counts.conflicts, "coalescing": round(counts.coalescing, 4),
        "bytes_read": counts.bytes_read, "bytes_written": counts.bytes_written,
    }  # fmt: skip
    if as_json:
        print_json({**facts, "instructions": dict(counts.instructions.most_common())})
        return
    for name, value in facts.items():
        out.print(f"{name.replace('_', ' '):20} {value:>14,}", highlight=False, markup=False)
    out.print("by operation: " + ", ".join(f"{name} {count:,}" for name, count in counts.instructions.most_common()),
              highlight=False, markup=False, soft_wrap=True)  # fmt: skip
    worst = [(each.needed - each.fewest, text) for text, each in counts.wavefronts.items() if each.needed > each.fewest]
    for conflicts, text in sorted(worst, reverse=True)[:5]:
        out.print(f"{conflicts:,} bank conflicts: {text}", highlight=False, markup=False, soft_wrap=True)
