"""Sums and differences of two 8-bit values, of all pairs of them: random operands meet few results near halves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.zoo.litert_cases import ACTIVATIONS, Case, Maker
from benchmarks.zoo.litert_models import options

WHOLE, ROWS, COLUMNS = (256, 256), (256, 1), (1, 256)
FORMS: dict[str, tuple[tuple[tuple[int, int], tuple[int, int]], int | None]] = {
    "two tensors": ((WHOLE, WHOLE), None), "rows and columns": ((ROWS, COLUMNS), None),
    "a constant behind": ((WHOLE, COLUMNS), 1), "a constant before": ((COLUMNS, WHOLE), 0),
}  # fmt: skip
"""The shapes of the operands, and which of them is constant."""


def sums() -> Iterator[Case]:
    """Each form with other scales, zero points and activations, drawn by the case's name."""
    for number, form in enumerate([*FORMS] * 3):
        for op, dtype in (("ADD", "int8"), ("SUB", "uint8"), ("SUB", "int8"), ("ADD", "uint8"))[number % 2 :: 2]:
            yield of_all_pairs(op, dtype, form, number)


def of_all_pairs(op: str, dtype: str, form: str, number: int) -> Case:
    make = Maker(f"{op} {dtype} {form} {number}")
    shapes, constant = FORMS[form]
    least = int(np.iinfo(dtype).min)
    codes = np.arange(least, least + 256).astype(dtype)
    near = 0.02 * 2 ** make.rng.uniform(-4, 4, 2)
    operands, columns = [], sorted(range(2), key=lambda place: (shapes[place] == COLUMNS, place))[1]
    for place, shape in enumerate(shapes):
        values = np.broadcast_to(codes if place == columns else codes.reshape(ROWS), shape)
        parameters = {"scale": np.float32(near[place]), "zero": int(make.rng.integers(least, least + 256))}
        if place == constant:
            operands.append(make.net.tensor(shape, dtype, data=values, **parameters))
            continue
        operands.append(make.input(shape, dtype, like=parameters))
        make.arrays[-1] = np.ascontiguousarray(values)
    step = np.float32(near.max() * 2 ** make.rng.uniform(-1, 1.5))
    y = make.output(WHOLE, dtype, like={"scale": step, "zero": int(make.rng.integers(least, least + 256))})
    activation = int(make.rng.choice(list(ACTIVATIONS.values())))
    return make.op(op, operands, [y], options(f"{op.title()}Options", fusedActivationFunction=activation), 2)
