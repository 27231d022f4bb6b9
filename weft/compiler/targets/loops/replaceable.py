"""Which inputs of a program may lie in the memory of its outputs: state that a run replaces by the next one.

That an output is written over an input is right where nothing reads the input afterwards, and where the kernel that
makes the output reads of it only what it is about to write (`in_place`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from ...model import CheckStep, CopyStep, HostProgram, LaunchStep, NumpyStep, Place
from ...tensor.calls import TensorIntrinsic
from ...tensor.parser import parse
from .in_place import overwritable

Step = LaunchStep | NumpyStep | CopyStep | CheckStep


def is_replaceable(
    program: HostProgram, number: int, output: int, intrinsics: Callable[[str], TensorIntrinsic]
) -> bool:  # fmt: skip
    """Whether a run may be given the memory of input ``number`` for an output, too.

    That also asks that nothing is left that may refuse the run (indices that are checked, operators of NumPy) once the
    output is begun: so a run that fails leaves the input as it was.
    """
    before, after = program.inputs[number], program.outputs[output]
    if (before.shape, before.dtype) != (after.shape, after.dtype):
        return False
    reads = [at for at, step in enumerate(program.steps) if any(_is(place, "input", number) for place in _read(step))]
    writes = [
        at for at, step in enumerate(program.steps) if any(_is(each, "output", output) for each in _written(step))
    ]
    if not writes or _last_that_may_fail(program.steps) >= writes[0] or max(reads, default=-1) > writes[0]:
        return False
    if writes[0] not in reads:
        return True
    step = program.steps[writes[0]]
    if not isinstance(step, LaunchStep) or len(writes) > 1 or step.arguments[-1].offset:
        return False
    (code,) = (each for each in program.kernels if each.symbol == step.symbol)
    func = parse(code.text, intrinsics)
    fits = overwritable(func, len(func.params) - 1, code.windows, 0)
    return all(fit for fit, place in zip(fits, step.arguments, strict=False) if _is(place, "input", number))


def _last_that_may_fail(steps: Sequence[Step]) -> int:
    """The last step that may refuse a run; -1 without. Indices of an input are as they were when they were checked."""
    last, passed = -1, set()
    for at, step in enumerate(steps):
        if isinstance(step, NumpyStep):
            last = at
        elif isinstance(step, CheckStep):
            # The same numbers may be looked at in another shape.
            checked = replace(step.indices, shape=(prod(step.indices.shape),)), step.sizes
            if checked not in passed:
                last = at
            if step.indices.kind == "input":
                passed.add(checked)
    return last


def _is(place: Place, kind: str, number: int) -> bool:
    return place.kind == kind and place.number == number


def _read(step: Step) -> tuple[Place, ...]:
    match step:
        case LaunchStep():
            return step.arguments[:-1]
        case NumpyStep():
            return step.inputs
        case CopyStep():
            return (step.source,)
        case CheckStep():
            return (step.indices,)


def _written(step: Step) -> tuple[Place, ...]:
    """A kernel writes its last argument alone."""
    match step:
        case LaunchStep():
            return step.arguments[-1:]
        case NumpyStep():
            return step.outputs
        case CopyStep():
            return (step.target,)
        case CheckStep():
            return ()
