"""Running a kernel: all threads of many blocks side by side, an array a register.

Where threads go different ways, those go on that stand at the first block of instructions (`order.py`), until the
others are caught up with. What is refused is said in `KernelFaultError`; what is counted, in `Counts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from .counts import Counts
from .errors import KernelFaultError, PtxError, PtxSyntaxError
from .instructions import COMPILERS
from .memory import DeviceMemory
from .order import waiting_order
from .parser import MOST_BLOCKS, MOST_THREADS, Instruction, Kernel, parse
from .state import Lanes, State
from .types import Array

Step: TypeAlias = Callable[[Lanes], None]

LANES = 8192
"""Threads that run side by side, about."""

_CONTROL = ("bra", "brx", "ret", "exit", "bar", "barrier")


@dataclass(frozen=True)
class _Block:
    """Steps of a block of instructions, and the instruction that leaves it: to ``target``, or to that of ``ways`` which
    each lane's ``number`` says."""

    steps: tuple[Step, ...]
    last: Instruction | None
    condition: Callable[[Lanes], Array] | None
    target: int
    ways: Array
    number: Callable[[Lanes], Array] | None = None

    def leading(self, state: State, lanes: Lanes, holds: Array | None) -> Array | None:
        """Where each lane goes by its number, if its condition holds; None for another instruction."""
        if self.number is None or self.last is None:
            return None
        numbers = state.full(self.number(lanes), lanes)
        if holds is not None:
            numbers = np.where(state.full(holds, lanes), numbers, 0)
        if (numbers >= len(self.ways)).any():
            raise KernelFaultError(f"it goes way {int(numbers.max())} of {len(self.ways)}", at=self.last.place)
        return self.ways[numbers]


class Program:
    """The kernels of a PTX text on a device with this memory."""

    def __init__(self, text: str, memory: DeviceMemory) -> None:
        self.kernels = parse(text)
        self.memory = memory
        self._tables: dict[str, int] = {}

    def launch(
        self, name: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[int | float], *,
        dynamic_shared: int = 0, watched: bool = True, counted: bool = True, limit: int | None = None,
    ) -> Counts:  # fmt: skip
        """Run a kernel to its end. ``arguments``: numbers and addresses; ``dynamic_shared``: bytes of shared memory
        beyond those declared. ``watched``: whether races are looked for; ``counted``: whether memory traffic is.
        ``limit``: instructions after which the blocks that run side by side are said not to end.

        PtxError where the launch does not fit the kernel; KernelFaultError for what the kernel does wrong.
        """
        kernel = self.kernels.get(name)
        if kernel is None:
            raise PtxError(f"there is no kernel {name!r}", hint=f"the kernels: {', '.join(self.kernels) or 'none'}")
        blocks, threads = _three(grid), _three(block)
        _check_launch(kernel, blocks, threads, len(arguments), dynamic_shared)
        for table, data in kernel.constants.items():
            if table not in self._tables:
                self._tables[table] = self.memory.put(np.frombuffer(data, np.uint8))
        state = State(kernel, self.memory, self._tables, blocks, threads, arguments, dynamic_shared,
                      watched=watched)  # fmt: skip
        machine = _Machine(kernel, state, limit, counted=counted)
        total, together = prod(blocks), max(1, LANES // state.threads)
        for first in range(0, total, together):
            machine.run(np.arange(first, min(total, first + together)))
        return state.counts


def launch(
    text: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[int | float], memory: DeviceMemory,
    name: str = "", *, dynamic_shared: int = 0,
) -> Counts:  # fmt: skip
    """Run a kernel of a PTX text, by default its only one; see `Program.launch`."""
    program = Program(text, memory)
    if not name and len(program.kernels) != 1:
        raise PtxError(f"the text has {len(program.kernels)} kernels", hint="name one")
    return program.launch(name or next(iter(program.kernels)), grid, block, arguments, dynamic_shared=dynamic_shared)


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _check_launch(
    kernel: Kernel, grid: tuple[int, ...], block: tuple[int, ...], arguments: int, dynamic_shared: int
) -> None:
    threads = prod(block)
    if any(size > most for size, most in zip(grid, MOST_BLOCKS, strict=True)):
        raise PtxError(f"a grid of {grid} blocks, but no device has more than {MOST_BLOCKS}",
                       at=f"kernel {kernel.name!r}")  # fmt: skip
    if threads > MOST_THREADS:
        raise PtxError(f"a block of {threads} threads, but no device has more than {MOST_THREADS}",
                       at=f"kernel {kernel.name!r}")  # fmt: skip
    if kernel.threads is not None and (threads > kernel.threads or (kernel.exact and threads != kernel.threads)):
        raise PtxError(f"a block of {threads} threads, but it takes {kernel.threads}", at=f"kernel {kernel.name!r}")
    if arguments != len(kernel.parameters):
        raise PtxError(f"{arguments} arguments, but it takes {len(kernel.parameters)}", at=f"kernel {kernel.name!r}")
    if dynamic_shared and not kernel.dynamic_shared:
        raise PtxError("it has no shared memory of open size", at=f"kernel {kernel.name!r}")
    if kernel.shared_bytes > DECLARED_SHARED:
        raise PtxError(f"it declares {kernel.shared_bytes:,} bytes of shared memory, but no kernel has more than "
                       f"{DECLARED_SHARED:,}", at=f"kernel {kernel.name!r}",
                       hint="declare it of open size, and let the launch ask for it")  # fmt: skip
    known = [most for capability, most in SHARED_MOST.items() if capability <= kernel.capability]
    most = known[-1] if known else max(SHARED_MOST.values())
    if kernel.shared_bytes + dynamic_shared > most:
        raise PtxError(f"a block shares {kernel.shared_bytes + dynamic_shared:,} bytes, but sm_{kernel.capability} has "
                       f"{most:,} for one", at=f"kernel {kernel.name!r}")  # fmt: skip


DECLARED_SHARED = 48 << 10
"""Bytes of shared memory that a kernel may declare."""

SHARED_MOST = {
    50: 48 << 10, 70: 96 << 10, 75: 64 << 10, 80: 163 << 10, 86: 99 << 10, 87: 163 << 10, 89: 99 << 10, 90: 227 << 10,
    120: 99 << 10,
}  # fmt: skip
"""Bytes that a block may have, if its launch asks for them, by capability (CUDA C++ Programming Guide, "Compute
capabilities")."""


class _Machine:
    """A kernel made ready for a state: its instructions as functions."""

    def __init__(self, kernel: Kernel, state: State, limit: int | None, *, counted: bool) -> None:
        self.kernel, self.state, self.limit = kernel, state, limit
        self.blocks = [self._block(block, counted=counted) for block in kernel.blocks]
        self.runs = [0] * len(self.blocks)  # by how many warps
        self._order: tuple[list[int], Array] | None = None

    def _block(self, block: tuple[Instruction, ...], *, counted: bool) -> _Block:
        state, last = self.state, block[-1]
        ends = last.operation in _CONTROL and "warp" not in last.modifiers
        steps = []
        for instruction in block[: len(block) - ends]:
            compiler = COMPILERS.get(instruction.operation)
            if compiler is None:
                raise PtxSyntaxError(f"no such instruction is known: {instruction.operation!r}", at=instruction.place)
            step = compiler(state, instruction, counted)
            steps.append(step if instruction.predicate is None else self._guarded(step, instruction))
        if not ends:
            return _Block(tuple(steps), None, None, 0, np.zeros(0, np.int32))
        target, number, ways = 0, None, np.zeros(0, np.int32)
        if last.operation == "bra":
            target = self._label(last.operands[0], last)
        elif last.operation == "brx":
            if len(last.operands) != 2 or last.operands[1] not in self.kernel.ways:
                raise PtxSyntaxError("it names no list of labels", at=last.place, hint="`NAME: .branchtargets A, B;`")
            number = self.state.operand(last.operands[0], "u32", last)
            ways = np.array([self._label(each, last) for each in self.kernel.ways[last.operands[1]]], np.int32)
        elif last.operation in ("bar", "barrier"):
            self._check_barrier(last)
        return _Block(tuple(steps), last, self._condition(last), target, ways, number)

    def _label(self, name: str, instruction: Instruction) -> int:
        if name not in self.kernel.labels:
            raise PtxSyntaxError(f"there is no label {name!r}", at=instruction.place)
        return self.kernel.labels[name]

    def _check_barrier(self, instruction: Instruction) -> None:
        known = {"sync", "cta", "aligned"}
        operands = instruction.operands
        if set(instruction.modifiers) - known or (len(operands) > 1 and operands[1] != str(self.state.threads)):
            raise PtxSyntaxError("a barrier of this kind is not known", at=instruction.place,
                                 hint="all threads of the block wait at bar.sync")  # fmt: skip

    def _condition(self, instruction: Instruction) -> Callable[[Lanes], Array] | None:
        if instruction.predicate is None:
            return None
        register, inverse = instruction.predicate
        value = self.state.operand(register, "pred", instruction)
        return lambda lanes: value(lanes) ^ inverse

    def _guarded(self, step: Step, instruction: Instruction) -> Step:
        """The step for those lanes of which the predicate holds."""
        condition = self._condition(instruction)
        assert condition is not None

        def run(lanes: Lanes) -> None:
            holds = condition(lanes)
            if holds.all():
                step(lanes)
            elif holds.any():
                step(np.flatnonzero(holds) if lanes is None else lanes[holds])

        return run

    # Control

    def run(self, blocks: Array) -> None:
        """Run these blocks of the grid to their end."""
        state = self.state
        state.begin(blocks)
        self.runs = [0] * len(self.blocks)
        with np.errstate(all="ignore"):
            self._run(state.count)
        for block, count in zip(self.kernel.blocks, self.runs, strict=True):
            for instruction in block if count else ():
                state.counts.instructions[instruction.operation] += count

    def _run(self, count: int) -> None:
        state, blocks = self.state, self.blocks
        place = np.zeros(count, np.int32)
        done, waiting = np.zeros(count, bool), np.zeros(count, bool)
        left = self.limit
        together, here = True, 0  # whether all lanes stand at block ``here``; else ``place`` says where
        while True:
            lanes: Lanes = None
            if not together:
                ready = ~(done | waiting)
                if not ready.any():
                    if not waiting.any():
                        return
                    self._release(waiting, done, place)
                    together = not done.any() and not waiting.any() and bool((place == place[0]).all())
                    here = int(place[0])
                    continue
                order, ranks = self.order()
                here = order[int(ranks[place[ready]].min())]
                mask = ready & (place == here)
                lanes = None if mask.all() else np.flatnonzero(mask)
            if here >= len(blocks):
                raise KernelFaultError("threads run past the end of the kernel", at=f"kernel {self.kernel.name!r}")
            block = blocks[here]
            if left is not None:
                left -= len(block.steps) + 1
                if left < 0:
                    raise KernelFaultError(f"it has not ended after {self.limit:,} instructions",
                                           at=f"kernel {self.kernel.name!r}")  # fmt: skip
            self.runs[here] += state.warps(lanes)
            for step in block.steps:
                step(lanes)
            last, holds = block.last, None
            if block.condition is not None:
                holds = block.condition(lanes)
                if holds.all():
                    holds = None
                elif not holds.any():
                    last, holds = None, None
            leading = block.leading(state, lanes, holds) if last is not None else None
            if together and holds is None and (leading is None or (leading == leading[0]).all()):
                if leading is not None:
                    here = int(leading[0])
                    continue
                if last is None:
                    here += 1
                    continue
                if last.operation == "bra":
                    here = block.target
                    continue
                if last.operation in ("ret", "exit"):
                    return
                state.counts.barriers += state.blocks
                state.now = state.now + 1
                here += 1
                continue
            if together:
                place[:] = here
                together = False
            numbers = state.numbers(lanes)
            if last is None:
                place[numbers] = here + 1
                leaving = numbers[:0]
            else:
                leaving = numbers if holds is None else numbers[state.full(holds, lanes)]
                place[numbers] = here + 1
                if last.operation == "bra":
                    place[leaving] = block.target
                    if holds is not None:
                        self._count_divergence(numbers, state.full(holds, lanes))
                elif leading is not None:
                    place[leaving] = leading if holds is None else leading[state.full(holds, lanes)]
                    self._count_ways(numbers, place[numbers])
                elif last.operation in ("ret", "exit"):
                    done[leaving] = True
                else:
                    waiting[leaving] = True
            if not done.any() and not waiting.any() and (place == place[0]).all():
                together, here = True, int(place[0])

    def order(self) -> tuple[list[int], Array]:
        """Blocks as they wait for each other, the end last; and the place in that of each."""
        if self._order is None:
            end = len(self.blocks)
            order = waiting_order([*(self._successors(number) for number in range(end)), ()])
            self._order = order, np.argsort(order)
        return self._order

    def _successors(self, number: int) -> list[int]:
        block = self.blocks[number]
        found: list[int] = []
        if block.last is not None and block.last.operation == "bra":
            found.append(block.target)
        found += map(int, block.ways)
        goes_on = block.last is None or block.condition is not None or block.last.operation in ("bar", "barrier")
        return [*found, number + 1] if goes_on else found

    def _count_divergence(self, numbers: Array, holds: Array) -> None:
        warps = self.state.warp_of[numbers]
        taken = np.bincount(warps[holds], minlength=int(warps.max()) + 1)
        all_of = np.bincount(warps, minlength=int(warps.max()) + 1)
        self.state.counts.divergent += int(((taken > 0) & (taken < all_of)).sum())

    def _count_ways(self, numbers: Array, places: Array) -> None:
        warps = self.state.warp_of[numbers]
        pairs = np.unique(np.stack([warps, places]), axis=1)
        self.state.counts.divergent += int((np.bincount(pairs[0]) > 1).sum())

    def _release(self, waiting: Array, done: Array, place: Array) -> None:
        """Let the blocks go on of which all threads wait; those that have ended are not waited for."""
        state = self.state

        def rows(each: Array) -> Array:
            return each.reshape(-1, state.threads)

        free = (rows(waiting) | rows(done)).all(1) & rows(waiting).any(1)
        if not free.any():
            at = int(place[waiting][0]) - 1
            raise KernelFaultError("not all threads of a block reach a barrier", at=self._barrier(at).place)
        where = rows(place)[free]
        first: Array = np.where(rows(waiting)[free], where, where.max()).min(1)
        wrong = rows(waiting)[free] & (where != first[:, None])
        if wrong.any():
            raise KernelFaultError(
                "threads of a block wait at different barriers", at=self._barrier(int(first[0]) - 1).place
            )
        rows(waiting)[free] = False
        state.counts.barriers += int(free.sum())
        state.now = state.now + np.repeat(free, state.threads)

    def _barrier(self, number: int) -> Instruction:
        last = self.blocks[number].last
        assert last is not None
        return last
