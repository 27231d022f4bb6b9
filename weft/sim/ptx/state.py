"""What instructions see while they run: registers of all lanes, special registers, and the memories.

A register is an array over all threads of several blocks, or one element where all threads hold the same. ``Lanes`` are
the threads that run an instruction: their numbers, or None for all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .counts import Counts, Traffic, sectors, wavefronts
from .errors import KernelFaultError, PtxSyntaxError
from .memory import DeviceMemory
from .parser import WARP, Instruction, Kernel
from .types import BITS, COMPUTED, STORED, Array
from .watch import EPOCHS, Watch

Lanes: TypeAlias = npt.NDArray[np.intp] | None
Operand: TypeAlias = Callable[[Lanes], Array]

SHARED_WINDOW, LOCAL_WINDOW = 1 << 40, 1 << 41
"""Generic addresses of shared and local memory are these and the byte; others are of global memory."""

UNWRITTEN = 0xA5
"""A byte of shared memory that nobody wrote: who uses it gets a wrong result and not, by luck, a right one."""

PARAMETER_BYTES = 16
"""From a parameter to the next, in the space of parameters."""

_SPECIAL = {f"%{name}.{axis}": (name, place) for name in ("tid", "ntid", "ctaid", "nctaid")
            for place, axis in enumerate("xyz")}  # fmt: skip
_ADDRESS = re.compile(r"\[\s*([%\w$.]+)\s*(?:\+\s*(-?(?:0x)?[0-9a-fA-F]+))?\s*\]")


class State:
    """Some blocks of a launch while they run side by side."""

    def __init__(
        self, kernel: Kernel, memory: DeviceMemory, tables: dict[str, int], grid: tuple[int, int, int],
        block: tuple[int, int, int], arguments: Sequence[int | float], dynamic_shared: int, *, watched: bool,
    ) -> None:  # fmt: skip
        self.kernel, self.memory, self.tables, self.watched = kernel, memory, tables, watched
        self.grid, self.block = grid, block
        self.threads = block[0] * block[1] * block[2]
        self.counts = Counts()
        self.shared_size = max(16, -(-(kernel.shared_bytes + dynamic_shared) // 16) * 16)
        self.local_size = -(-kernel.local_bytes // 16) * 16
        self.parameters = {
            each.name: _parameter_bytes(value, each.type)
            for each, value in zip(kernel.parameters, arguments, strict=True)
        }
        self.parameter_places = {each.name: PARAMETER_BYTES * number for number, each in enumerate(kernel.parameters)}
        self.parameter_space = np.zeros(max(1, len(kernel.parameters)) * PARAMETER_BYTES, np.uint8)
        for name, value in self.parameters.items():
            place = self.parameter_places[name]
            self.parameter_space[place : place + value.nbytes] = value.view(np.uint8)
        shared_granule, global_granule = _granules(kernel)
        self._shared_granule = shared_granule
        self.global_watch = Watch(memory.bytes.size, global_granule, starts_unknown=False) if watched else None

    def begin(self, blocks: Array) -> None:
        """Start anew with these blocks, by their numbers in the grid."""
        count = self.count = len(blocks) * self.threads
        self.blocks = len(blocks)
        thread = np.tile(np.arange(self.threads), self.blocks)
        self.block_of = np.repeat(np.arange(self.blocks), self.threads)
        self.thread = thread
        self.warps_each = -(-self.threads // WARP)
        self.warp_of = self.block_of * self.warps_each + thread // WARP
        number = np.asarray(blocks)[self.block_of]
        self.me = (number * self.threads + thread + 1).astype(np.int32)
        self.now = (number + 1) * EPOCHS
        self.special: dict[str, list[Array]] = {"tid": _digits(thread, self.block)}
        self.special["ctaid"] = _digits(number[:1] if self.blocks == 1 else number, self.grid)
        for name, sizes in (("ntid", self.block), ("nctaid", self.grid)):
            self.special[name] = [np.array([size], np.uint32) for size in sizes]
        self.registers = {name: np.zeros(1, STORED[bits]) for name, bits in self.kernel.registers.items()}
        self.shared = np.full(self.blocks * self.shared_size, UNWRITTEN, np.uint8)
        self.shared_start = self.block_of * self.shared_size
        self.local = np.zeros(count * self.local_size, np.uint8)
        self.shared_watch = Watch(self.shared.size, self._shared_granule, starts_unknown=True) if self.watched else None
        self.committed = np.zeros(count, np.int64)  # groups of asynchronous copies that each thread has closed
        self.copies: list[Copy] = []

    # Lanes

    def size(self, lanes: Lanes) -> int:
        return self.count if lanes is None else len(lanes)

    def numbers(self, lanes: Lanes) -> Array:
        """The numbers of the lanes."""
        return np.arange(self.count) if lanes is None else lanes

    def chosen(self, values: Array, lanes: Lanes) -> Array:
        """The lanes' own of an array over all threads."""
        return values if lanes is None else values[lanes]

    def full(self, values: Array, lanes: Lanes) -> Array:
        """An element for each of the lanes."""
        return values if values.shape == (self.size(lanes),) else np.broadcast_to(values, (self.size(lanes),))

    def warps(self, lanes: Lanes) -> int:
        """Warps of which a lane is there."""
        return self.blocks * self.warps_each if lanes is None else len(np.unique(self.warp_of[lanes]))

    def whole_warps(self, lanes: Lanes, instruction: Instruction) -> int:
        """How many warps these lanes are. KernelFaultError unless they are all of each."""
        if self.threads % WARP:
            raise KernelFaultError(
                f"blocks of {self.threads} threads have a warp of fewer than {WARP}", at=instruction.place
            )
        if lanes is not None:
            rows = lanes.reshape(-1, WARP) if len(lanes) % WARP == 0 else None
            if rows is None or (rows[:, 0] % WARP).any() or (np.diff(rows, axis=1) != 1).any():
                raise KernelFaultError("not all lanes of a warp are here", at=instruction.place)
        return self.size(lanes) // WARP

    def name_of(self, lane: int) -> str:
        """A thread, for errors."""
        number = int(self.now[lane] // EPOCHS) - 1
        return f"thread {int(self.thread[lane])} of block {number}"

    # Registers

    def get(self, register: str, lanes: Lanes) -> Array:
        values = self.registers[register]
        return values if lanes is None or values.shape[0] == 1 else values[lanes]

    def put(self, register: str, lanes: Lanes, values: Array) -> None:
        """Set a register for the lanes; values of another width are cut or extended."""
        if register == "_":
            return
        old = self.registers[register]
        if values.dtype != old.dtype:
            same = values.dtype.itemsize == old.dtype.itemsize and old.dtype != bool and values.dtype != bool
            values = values.view(old.dtype) if same else values.astype(old.dtype)
        if lanes is None:
            self.registers[register] = values
        elif len(lanes):
            new = np.broadcast_to(old, (self.count,)).copy()
            new[lanes] = values
            self.registers[register] = new

    def operand(self, text: str, kind: str, instruction: Instruction) -> Operand:
        """What gives an operand as a type, for some lanes."""
        dtype = COMPUTED[kind]
        registers = self.kernel.registers
        if text in registers:
            bits = registers[text]
            if kind == "pred" or bits == dtype.itemsize * 8:
                return lambda lanes: self.get(text, lanes).view(dtype)
            if kind != "pred" and bits > 1:
                narrow = STORED[dtype.itemsize * 8]
                return lambda lanes: self.get(text, lanes).astype(narrow).view(dtype)
        if text in _SPECIAL:
            name, axis = _SPECIAL[text]
            unsigned = STORED[dtype.itemsize * 8]

            def special(lanes: Lanes) -> Array:
                values = self.special[name][axis]
                return (values if values.shape[0] == 1 else self.chosen(values, lanes)).astype(unsigned).view(dtype)

            return special
        if text in ("%laneid", "%warpid"):
            return lambda lanes: self.chosen(
                self.thread % WARP if text == "%laneid" else self.thread // WARP, lanes
            ).astype(np.uint32)
        place = self.variable(text)
        if place is not None:
            known = np.array([place], np.uint64).astype(dtype)
            return lambda lanes: known
        value = literal(text, kind)
        if value is None:
            raise PtxSyntaxError(f"there is no operand {text!r}", at=instruction.place)
        return lambda lanes: value

    def variable(self, name: str) -> int | None:
        """The address of a variable in its memory space."""
        for known in (self.kernel.shared, self.kernel.local, self.tables, self.parameter_places):
            if name in known:
                return known[name]
        return None

    def address(self, text: str, instruction: Instruction) -> Operand:
        """What gives the addresses ``[register + offset]`` as int64, one for all lanes where they are the same."""
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise PtxSyntaxError(f"it is no address: {text!r}", at=instruction.place)
        base, offset = match[1], int(match[2] or "0", 0)
        if base in self.kernel.registers and self.kernel.registers[base] in (32, 64):
            value = self.operand(base, f"u{self.kernel.registers[base]}", instruction)
            return lambda lanes: value(lanes).astype(np.int64) + offset
        place = self.variable(base)
        if place is None and re.fullmatch(r"(0x)?[0-9a-fA-F]+", base):
            place = int(base, 0)
        if place is None:
            raise PtxSyntaxError(f"there is no variable {base!r}", at=instruction.place)
        known = np.array([place + offset], np.int64)
        return lambda lanes: known

    # Memory

    def aligned(self, addresses: Array, nbytes: int, lanes: Lanes, instruction: Instruction) -> None:
        wrong = addresses % nbytes != 0
        if wrong.any():
            self.refuse("it is not aligned", wrong, addresses, lanes, instruction, f"a multiple of {nbytes}")

    def refuse(
        self, why: str, wrong: Array, addresses: Array, lanes: Lanes, instruction: Instruction, wanted: str = ""
    ) -> None:
        """KernelFaultError for the first of the lanes for which something is wrong."""
        first = int(np.flatnonzero(self.full(wrong, lanes))[0])
        where = int(self.full(addresses, lanes)[first])
        lane = int(self.numbers(lanes)[first])
        needed = f", but {wanted} is needed" if wanted else ""
        raise KernelFaultError(f"{why}: {self.name_of(lane)}, byte {where}{needed}", at=instruction.place)

    def shared_places(self, addresses: Array, nbytes: int, lanes: Lanes, instruction: Instruction) -> Array:
        """Bytes of ``shared`` for addresses in the block's shared memory; checked."""
        self.aligned(addresses, nbytes, lanes, instruction)
        wrong = (addresses < 0) | (addresses + nbytes > self.shared_size)
        if wrong.any():
            self.refuse(f"it is outside of the {self.shared_size} shared bytes", wrong, addresses, lanes, instruction)
        places: Array = addresses + self.chosen(self.shared_start, lanes)
        return places

    def local_places(self, addresses: Array, nbytes: int, lanes: Lanes, instruction: Instruction) -> Array:
        """As `shared_places`, of each thread's own memory."""
        self.aligned(addresses, nbytes, lanes, instruction)
        wrong = (addresses < 0) | (addresses + nbytes > self.local_size)
        if wrong.any():
            self.refuse(f"it is outside of the {self.local_size} local bytes", wrong, addresses, lanes, instruction)
        places: Array = addresses + self.numbers(lanes) * self.local_size
        return places

    def global_places(self, addresses: Array, nbytes: int, lanes: Lanes, instruction: Instruction) -> Array:
        """The addresses, which lie in what is allocated."""
        self.aligned(addresses, nbytes, lanes, instruction)
        wrong = self.memory.outside(addresses, nbytes)
        if wrong is not None:
            self.refuse("it is outside of every allocation", wrong, addresses, lanes, instruction)
        return addresses

    def watch(self, kind: str, how: str, places: Array, nbytes: int, lanes: Lanes, instruction: Instruction) -> None:
        """Tell the watch of a memory ("shared" or "global") of an access ("read", "write" or "fly")."""
        watch = self.shared_watch if kind == "shared" else self.global_watch
        if watch is None:
            return
        places = self.full(places, lanes)
        found = getattr(watch, how)(places, nbytes, self.chosen(self.me, lanes), self.chosen(self.now, lanes))
        if found is not None:
            why, wrong = found
            shown = places - self.chosen(self.shared_start, lanes) if kind == "shared" else places
            self.refuse(f"{kind} memory: {why}", wrong, shown, lanes, instruction)

    def count_traffic(
        self, kind: str, places: Array, nbytes: int, lanes: Lanes, instruction: Instruction, *, writes: bool
    ) -> None:
        """Count wavefronts of shared memory, or sectors of global memory."""
        rows = self.by_warp(self.full(places, lanes), lanes)
        if kind == "shared":
            self.counts.wavefronts.setdefault(instruction.text, Traffic()).add(wavefronts(rows, nbytes))
            return
        traffic = sectors(rows, nbytes)
        self.counts.sectors.setdefault(instruction.text, Traffic()).add(traffic)
        if writes:
            self.counts.bytes_written += traffic.needed * 32
        else:
            self.counts.bytes_read += traffic.needed * 32

    def by_warp(self, values: Array, lanes: Lanes) -> Array:
        """Values of the lanes as rows, one a warp; lanes that are not there repeat one that is."""
        if lanes is None and self.threads % WARP == 0:
            return values.reshape(-1, WARP)
        warp = self.chosen(self.warp_of, lanes)
        lane = self.chosen(self.thread, lanes) % WARP
        _, first, row = np.unique(warp, return_index=True, return_inverse=True)
        rows = np.repeat(values[first][:, None], WARP, axis=1)
        rows[row, lane] = values
        return rows


class Copy:
    """Asynchronous copies of one instruction: ``data`` (lanes, bytes) to ``places`` of shared memory, by ``lanes``, in
    each one's ``group``."""

    def __init__(self, places: Array, data: Array, lanes: Array, group: Array) -> None:
        self.places, self.data, self.lanes, self.group = places, data, lanes, group


def literal(text: str, kind: str) -> Array | None:
    """A number in the text as one element of a type; None where it is no number."""
    dtype: np.dtype[Any] = COMPUTED[kind]
    if text[:2] in ("0f", "0F", "0d", "0D"):
        bits = 32 if text[1] in "fF" else 64
        value = np.array([int(text[2:], 16)], STORED[bits])
        floats = value.view(np.float32 if bits == 32 else np.float64)
        if dtype.itemsize * 8 == bits:
            return value.view(dtype)
        return floats.astype(dtype)
    try:
        number = int(text.rstrip("U"), 0)
    except ValueError:
        return None
    if kind == "pred":
        return np.array([bool(number)])
    return np.array([number & ((1 << dtype.itemsize * 8) - 1)], STORED[dtype.itemsize * 8]).view(dtype)


def _digits(number: Array, sizes: tuple[int, int, int]) -> list[Array]:
    x, y, _ = sizes
    parts = (number % x, number // x % y, number // (x * y))
    return [np.zeros(1, np.uint32) if size == 1 else part.astype(np.uint32)
            for part, size in zip(parts, sizes, strict=True)]  # fmt: skip


def _parameter_bytes(value: int | float, kind: str) -> Array:
    dtype = COMPUTED[kind]
    if dtype.kind == "f":
        return np.array([value], dtype)
    return np.array([int(value) & ((1 << BITS[kind]) - 1)], STORED[BITS[kind]])


def _granules(kernel: Kernel) -> tuple[int, int]:
    """Bytes that are watched together, of shared and of global memory: as few as the shortest store writes."""
    sizes: dict[str, int] = {"shared": 4, "global": 4}
    for block in kernel.blocks:
        for each in block:
            if each.operation in ("st", "atom", "red"):
                for space in sizes:
                    if space in each.modifiers or not {"shared", "global", "local"} & set(each.modifiers):
                        sizes[space] = min(sizes[space], max(1, BITS[each.type] // 8))
    return sizes["shared"], sizes["global"]
