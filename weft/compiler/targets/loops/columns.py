"""Products of what windows of an image meet: the rows of the first operand, gathered from the image."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import prod
from operator import mul

from ...graph.dtypes import HALVES
from ...graph.ir import Call, Constant
from ...operators.move import unflatten
from ...tensor.view import View


@dataclass(frozen=True)
class Columns:
    """``met``: a ``gather`` at known places. ``lead``: so many of its axes count the rows of a product's first operand,
    the others go along them."""

    met: Call
    lead: int

    @property
    def run(self) -> int:
        """Elements of a row that lie side by side where they are gathered from."""
        return prod(self.met.args[0].shape[self.met.attr("axis") + 1 :])

    def rows(self, met: View) -> View:
        """The operand, of a view of the ``gather``."""
        outer, inner = met.shape[: self.lead], met.shape[self.lead :]
        return View((prod(outer), prod(inner)), met.dtype, lambda index: met[
            (*unflatten(index[0], outer), *unflatten(index[1], inner))
        ])  # fmt: skip


def columns_of(anchor: Call) -> Columns | None:
    """What a product of floats of 32 or 16 bits multiplies, if it is a reshape of a ``gather`` and larger than what it
    is taken from; else None."""
    match anchor:
        case Call(op="nn.matmul", args=(Call(op="reshape", args=(Call(op="gather", args=(x, Constant())) as met,)), _)):
            pass
        case _:
            return None
    multiplied = anchor.dtype == "float32" or anchor.dtype in HALVES
    if len(anchor.shape) != 2 or not multiplied or met.tensor_type.size <= x.tensor_type.size:
        return None
    end = met.attr("axis") + len(met.args[1].shape)
    leads = [place for place, rows in enumerate(accumulate(met.shape[:end], mul), 1) if rows == anchor.shape[0]]
    return Columns(met, leads[-1]) if leads else None
