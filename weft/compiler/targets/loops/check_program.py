"""The proof that a host program from a file touches its own memory only: kernels, and where they are launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...graph.dtypes import STRING, is_float, numpy_dtype
from ...graph.ir import TensorType, TupleType
from ...graph.scan import MOST_STEPS
from ...model import CheckStep, CopyStep, HostProgram, KernelCode, LaunchStep, NumpyStep, Place
from ...tensor.intervals import Interval
from ..errors import CompileError
from ..memory_plan import ALIGNMENT
from .byte_pairs import bears_pairs
from .check_kernel import CheckedKernel, Elements
from .known_indices import in_range, intervals_of

MEMORY_AT_MOST = 1 << 42
"""Bytes of a tensor, or of the arena."""

THREADS_AT_MOST = 256
TURNS_AT_MOST = MOST_STEPS

Prove = Callable[[KernelCode, int, Elements], CheckedKernel]
"""Proves that a kernel does no harm on so many threads (`check_kernel`)."""


class UncheckedProgramError(CompileError):
    """A program of which it is not known that it touches its own memory only."""


def check_program(program: HostProgram, prove: Prove) -> None:
    """Prove that a program touches its own memory only. CompileError names the step, or the kernel and buffer."""
    _Checker(program, prove).run()


@dataclass
class _Checker:
    """``sizes``: bytes of each memory. ``strings``: shapes of the strings that there are so far. ``indices``: tensors
    whose elements were checked and have not been written since, with the numbers between which they lie."""

    program: HostProgram
    prove: Prove
    sizes: dict[tuple[str, int], int] = field(default_factory=dict)
    strings: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    indices: dict[Place, tuple[Interval, ...]] = field(default_factory=dict)
    turns: int = 1  # of the loop that is being looked at
    checked: dict[tuple[str, tuple[tuple[int, tuple[Interval, ...]], ...]], CheckedKernel] = field(default_factory=dict)

    def run(self) -> None:
        program = self.program
        if not 1 <= program.threads <= THREADS_AT_MOST or not 0 <= program.arena_bytes <= MEMORY_AT_MOST:
            raise UncheckedProgramError(f"it has {program.threads} threads, {program.arena_bytes:,} bytes of arena")
        self.sizes = {("arena", 0): program.arena_bytes, ("constant", 0): program.constants.nbytes}
        for kind, tensors in (("input", program.inputs), ("output", program.outputs)):
            for number, tensor in enumerate(tensors):
                if tensor.dtype == STRING:
                    self.strings[kind, number] = tensor.shape
                else:
                    self.sizes[kind, number] = tensor.nbytes
        kernels = {code.symbol: code for code in program.kernels}
        if len(kernels) < len(program.kernels):
            raise UncheckedProgramError("two of its kernels have one name")
        self._loops()
        for loop, numbers in program.rounds():
            self.turns = loop.count
            if loop.count > 1:  # what was checked before may be overwritten behind its reader, in the round before
                self.indices = {}
            for number in numbers:
                self._step(f"step {number}", program.steps[number], kernels)
            if loop.count > 1:
                self.indices = {}

    def _loops(self) -> None:
        """Loops are in order, of launches alone, and no place outside of them moves."""
        behind, inside = 0, set[int]()
        for loop in self.program.loops:
            in_order = behind <= loop.first <= loop.last < len(self.program.steps)
            if not in_order or not 1 <= loop.count <= TURNS_AT_MOST:
                raise UncheckedProgramError(f"steps {loop.first}..{loop.last} are no loop of {loop.count} rounds")
            behind = loop.last + 1
            inside.update(range(loop.first, behind))
        for number, step in enumerate(self.program.steps):
            if number in inside and not isinstance(step, LaunchStep):
                raise UncheckedProgramError("only kernels run in loops", at=f"step {number}")
            if number not in inside and any(place.stride or place.period for place in _places(step)):
                raise UncheckedProgramError("its tensors move, but it is in no loop", at=f"step {number}")

    def _step(
        self, at: str, step: LaunchStep | NumpyStep | CopyStep | CheckStep, kernels: dict[str, KernelCode]
    ) -> None:
        layers = len(self.program.layers)
        if isinstance(step, LaunchStep | NumpyStep) and not 0 <= step.layer < layers:
            raise UncheckedProgramError(f"there is no layer {step.layer}", at=at)
        match step:
            case LaunchStep():
                if step.symbol not in kernels:
                    raise UncheckedProgramError(f"there is no kernel {step.symbol!r}", at=at)
                self._launch(at, step, kernels[step.symbol])
            case NumpyStep(function, inputs, outputs):
                result = function.body.type
                fields = result.fields if isinstance(result, TupleType) else (result,)
                self._agree(at, inputs, [param.type for param in function.params])
                self._agree(at, outputs, fields, written=True)
                self._write(at, outputs)
            case CopyStep(source, target):
                kind = TensorType(source.shape, source.dtype)
                self._agree(at, [source], [kind])
                self._agree(at, [target], [kind], written=True)
                self._write(at, [target])
            case CheckStep(indices, sizes):
                self._inside(at, indices, indices.nbytes)
                last = indices.shape[-1] if indices.shape else 1
                if is_float(indices.dtype) or len(sizes) not in (1, last) or any(size < 1 for size in sizes):
                    raise UncheckedProgramError(f"sizes {sizes} do not fit the indices", at=at)
                self.indices[indices] = in_range(sizes)

    def _launch(self, at: str, step: LaunchStep, code: KernelCode) -> None:
        if len(step.arguments) != len(code.nbytes):
            raise UncheckedProgramError(f"kernel {code.symbol!r} takes {len(code.nbytes)} tensors", at=at)
        for place, nbytes in zip(step.arguments, code.nbytes, strict=True):
            self._inside_in_turn(at, place, nbytes)
        elements = {number: known for number, place in enumerate(step.arguments) if (known := self._elements(place))}
        key = (code.symbol, tuple(elements.items()))
        if key not in self.checked:
            self.checked[key] = self.prove(code, self.program.threads, elements)
        kernel = self.checked[key]
        written: list[Place] = []
        for place, param, nbytes, writes in zip(
            step.arguments, kernel.params, code.nbytes, kernel.written, strict=True
        ):
            if (place.shape, place.dtype) != (param.shape, param.dtype):
                raise UncheckedProgramError(f"{param.name!r} of {code.symbol!r} is another tensor", at=at)
            if writes:
                written += [_region(each, nbytes) for each in self._ends(place)]
        for place, param, paired in zip(step.arguments, kernel.params, kernel.paired, strict=True):
            if paired and not (self._is_constant(place) and bears_pairs(self._content(place))):
                raise UncheckedProgramError(
                    f"weights {param.name!r} of {code.symbol!r} are not such that sums of two products have 16 bits",
                    at=at, hint="compile the model again",
                )  # fmt: skip
        if code.workspace_bytes:
            if step.workspace is None or step.workspace % ALIGNMENT:
                raise UncheckedProgramError(f"kernel {code.symbol!r} has no aligned workspace", at=at)
            space = Place("arena", 0, step.workspace, (code.workspace_bytes,), "uint8")
            self._inside(at, space, code.workspace_bytes)
            written.append(space)
        for number in elements:
            if any(_overlap(each, step.arguments[number]) for each in written):
                raise UncheckedProgramError(f"kernel {code.symbol!r} writes over indices that it reads", at=at)
        self._write(at, written)

    def _elements(self, place: Place) -> tuple[Interval, ...]:
        """Between which numbers the elements of a tensor lie, where that is known."""
        return intervals_of(self._content(place)) if self._is_constant(place) else self.indices.get(place, ())

    def _is_constant(self, place: Place) -> bool:
        return place.kind == "constant" and not place.stride

    def _content(self, place: Place) -> np.ndarray[Any, Any]:
        """The elements of a constant."""
        data = self.program.constants[place.offset : place.offset + place.nbytes].view(numpy_dtype(place.dtype))
        return data.reshape(place.shape)

    def _agree(self, at: str, places: Sequence[Place], types: Sequence[TensorType], written: bool = False) -> None:
        """Each place must be inside of its memory and hold a tensor of the type; strings must be there, unless they are
        what is written."""
        if [(place.shape, place.dtype) for place in places] != [(kind.shape, kind.dtype) for kind in types]:
            raise UncheckedProgramError("its tensors have other types", at=at)
        for place in places:
            if place.dtype != STRING:
                self._inside(at, place, place.nbytes)
                continue
            if written and place.kind == "strings":
                self.strings[place.kind, place.number] = place.shape
            if place.offset or self.strings.get((place.kind, place.number)) != place.shape:
                raise UncheckedProgramError(f"there are no strings {place.kind} {place.number} of that shape", at=at)

    def _inside_in_turn(self, at: str, place: Place, nbytes: int) -> None:
        """In every round of the loop."""
        item = numpy_dtype(place.dtype).itemsize
        if abs(place.stride) > MEMORY_AT_MOST or place.stride % item or not 0 <= place.period <= TURNS_AT_MOST:
            raise UncheckedProgramError(
                f"a tensor moves by {place.stride:,} bytes, back after {place.period} rounds", at=at
            )
        for each in self._ends(place):
            self._inside(at, each, nbytes)

    def _ends(self, place: Place) -> tuple[Place, ...]:
        """A place in the first round, and in that in which it is farthest from there."""
        last = min(self.turns, place.period or self.turns) - 1
        return (place.at(0), place.at(last)) if place.stride and last else (place.at(0),)

    def _inside(self, at: str, place: Place, nbytes: int) -> None:
        size = self.sizes.get((place.kind, place.number)) if place.dtype != STRING else None
        if size is None or any(extent < 0 for extent in place.shape) or nbytes > MEMORY_AT_MOST:
            raise UncheckedProgramError(f"there is no {place.kind} {place.number}, or not of such a size", at=at)
        aligned = place.offset % numpy_dtype(place.dtype).itemsize == 0
        if place.offset < 0 or place.offset + nbytes > size or not aligned:
            raise UncheckedProgramError(
                f"{nbytes:,} bytes at byte {place.offset:,} are not inside of {place.kind} {place.number}, which has "
                f"{size:,}", at=at,
            )  # fmt: skip

    def _write(self, at: str, places: Sequence[Place]) -> None:
        for place in places:
            if place.kind in ("input", "constant"):
                raise UncheckedProgramError(f"it writes to {place.kind} {place.number}", at=at)
            self.indices = {known: value for known, value in self.indices.items() if not _overlap(known, place)}


def _places(step: LaunchStep | NumpyStep | CopyStep | CheckStep) -> tuple[Place, ...]:
    match step:
        case LaunchStep():
            return step.arguments
        case NumpyStep():
            return (*step.inputs, *step.outputs)
        case CopyStep():
            return (step.source, step.target)
        case CheckStep():
            return (step.indices,)


def _region(place: Place, nbytes: int) -> Place:
    """The bytes from where a place begins."""
    return Place(place.kind, place.number, place.offset, (nbytes,), "uint8")


def _overlap(a: Place, b: Place) -> bool:
    same = (a.kind, a.number) == (b.kind, b.number)
    return same and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
