"""Machine code of a host program: from the cache on disk, or made (`emit_code`), which is imported only then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from ....collector import collector_waits
from ....imports import IMPORTS
from ...model import HostCode, HostProgram, KernelCode, LaunchCall, LaunchStep
from .llvm.object_code import cached, cached_object, code_key, found_object
from .llvm.rounds import Rounds, counter_bytes
from .llvm.threads import TEAM_BYTES, pool_text
from .processor import WASM32, Processor, host_target

if TYPE_CHECKING:
    from ...tensor.calls import TensorIntrinsic


def build_program(
    program: HostProgram, processor: Processor | None = None, *, kernels: Sequence[bytes] | None = None
) -> HostCode:
    """Machine code for a processor, by default this machine's. A program from a file must have been checked before.

    ``kernels``: object files with all kernels, where another compiler made them. Each is a function, called the
    kernel's symbol, of a pointer to each parameter, the workspace, the thread's number (int64) and the counters.
    CompileError names the kernel that cannot be compiled.
    """
    target = processor or host_target()

    def objects(*, single: bool) -> tuple[tuple[bytes, ...], tuple[LaunchCall, ...]]:
        made = _kernel_objects(program, target) if kernels is None else kernels
        steps, calls = _step_functions(program, target, single=single)
        return (*made, steps, cached_object(pool_text(target.triple), target)), calls

    content, calls = objects(single=False)
    return HostCode(target.name, content, calls, partial(objects, single=True), TEAM_BYTES)


def wasm_objects(program: HostProgram) -> tuple[tuple[bytes, ...], tuple[LaunchCall, ...]]:
    """A program for one thread as WebAssembly, to be linked: object files, and the functions in them that run its
    launches. CompileError names the kernel that cannot be compiled."""
    steps, calls = _step_functions(program, WASM32, single=False)
    return (*_kernel_objects(program, WASM32), steps), calls


def _kernel_objects(program: HostProgram, target: Processor) -> list[bytes]:
    jobs = [(code, _processor_of(code, target), program.threads) for code in program.kernels]
    objects = [found_object(_kernel_key("kernel", *job)) for job in jobs]
    missing = [partial(_kernel_object, *job) for job, content in zip(jobs, objects, strict=True) if content is None]
    made = iter(_in_two_threads(missing))
    return [next(made) if content is None else content for content in objects]


def _in_two_threads(makers: Sequence[Callable[[], bytes]]) -> list[bytes]:
    """What each gives. While one thread is in LLVM, which llvmlite lets in one at a time and without Python's lock, the
    other prints the next kernel as LLVM IR, which takes as long."""
    with collector_waits():
        if len(makers) < 2:
            return [make() for make in makers]
        from concurrent.futures import ThreadPoolExecutor  # which brings logging, for what is made alone

        with ThreadPoolExecutor(2, "weft-llvm") as pool:
            futures = [pool.submit(make) for make in makers]
            try:
                return [future.result() for future in futures]
            finally:
                pool.shutdown(cancel_futures=True)


def assemblies(program: HostProgram, target: Processor) -> dict[str, str]:
    """The machine code of each kernel for a processor as assembly, by the kernel's symbol. Nothing of it is run, so a
    program from a file need not have been checked."""
    with collector_waits():
        return {
            code.symbol: _kernel_assembly(code, _processor_of(code, target), program.threads)
            for code in program.kernels
        }


def _processor_of(code: KernelCode, target: Processor) -> Processor:
    """What a kernel is compiled for."""
    return target.for_floats if "float" in code.text else target


def _kernel_object(code: KernelCode, target: Processor, threads: int) -> bytes:
    def made() -> bytes:
        with IMPORTS:
            from .emit_code import kernel_object

        return kernel_object(code, target, threads)

    return cached(_kernel_key("kernel", code, target, threads), made)


def _kernel_assembly(code: KernelCode, target: Processor, threads: int) -> str:
    def made() -> bytes:
        with IMPORTS:
            from .emit_code import kernel_assembly

        return kernel_assembly(code, target, threads).encode()

    return cached(_kernel_key("assembly", code, target, threads), made).decode()


def _kernel_key(what: str, code: KernelCode, target: Processor, threads: int) -> str:
    return code_key(target, what, code.symbol, code.text, code.windows, code.workspace_bytes, threads)


def _step_functions(program: HostProgram, target: Processor, *, single: bool) -> tuple[bytes, tuple[LaunchCall, ...]]:
    """Machine code of a function for each stretch of launches, or for each launch. Its LLVM IR is made only where the
    cache has no code for these launches: it takes ten times the memory of a loaded program."""
    parts = {code.symbol: code.parts for code in program.kernels}
    prefix = "weft_launch" if single else "weft_step"
    calls: list[LaunchCall] = []
    functions: dict[str, Rounds] = {}
    for stretch in _stretches(program, single=single):
        numbers = [number for _, inside in stretch for number, _ in inside]
        symbol = f"{prefix}_{numbers[0]}"
        functions[symbol] = [(1 if single else count, [step for _, step in inside]) for count, inside in stretch]
        calls.append(LaunchCall(numbers[0], numbers[-1], symbol, counter_bytes(functions[symbol], parts)))

    def emitted() -> bytes:
        with IMPORTS:
            from .emit_code import steps_code

        return steps_code(functions, parts, target, single=single)

    return cached(code_key(target, "steps", single, functions, parts), emitted), tuple(calls)


_Launches = list[tuple[int, LaunchStep]]


def _stretches(program: HostProgram, *, single: bool) -> list[list[tuple[int, _Launches]]]:
    """Launches between which nothing else stands, with their numbers: in rounds that run so often in turn."""
    stretches: list[list[tuple[int, _Launches]]] = [[]]
    for loop, numbers in program.rounds():
        steps = ((number, program.steps[number]) for number in numbers)
        for launches, group in groupby(steps, key=lambda item: isinstance(item[1], LaunchStep)):
            own = [(number, step) for number, step in group if isinstance(step, LaunchStep)]
            if not launches:
                stretches.append([])
            elif single:
                stretches += [[(1, [each])] for each in own]
            else:
                stretches[-1].append((loop.count, own))
    return [stretch for stretch in stretches if stretch]


def check_host_program(program: HostProgram, intrinsics: Callable[[str], TensorIntrinsic] | None = None) -> None:
    """Prove that a program from a file does no harm; kernels that were proved before are looked up on disk.
    ``intrinsics`` finds those of the target by name; the CPU's by default.

    CompileError names what is refused.
    """
    with IMPORTS:
        from ..loops.kept_proofs import prove_program
        from .intrinsics import intrinsic_named

    prove_program(program, intrinsics or intrinsic_named)
