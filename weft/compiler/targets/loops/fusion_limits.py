"""How far a target's kernels go, as data: what is known of a target without the compiler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ...graph.ir import Call


class MakesAttention(Protocol):
    """A frozen record, as keys of caches are made of its fields."""

    def makes(self, product: Call, anchor: Call) -> bool:
        """Whether there is a kernel of the attention of these two products, scores and result."""


@dataclass(frozen=True)
class FusionLimits:
    """How far operators are made one kernel.

    ``depth``: operators of a kernel. Time to compile grows with it, while all that a cut costs is one tensor written
    and read.
    ``input_bytes``: bytes of the tensors that a kernel reads, constants apart. They are all alive while it runs, so
    this bounds what fusion may add to a model's memory. An operator that reads more by itself is not refused.
    ``recompute_intensity``: arithmetic operations that may be repeated for each byte of memory traffic that is saved,
    where a value is used more than once in a kernel and so is computed at each use.
    ``before_reductions``: whether a reduction computes its operand element by element as it goes, if nothing else
    needs it.
    ``attention``: which attentions (a product, softmax along its rows, a product) the target has a kernel for, which
    holds all scores of a few queries at a time; None where it has none.
    ``row_statistics``: whether an elementwise kernel computes what it needs of each row as a whole (a mean, a variance)
    itself, row by row, if nothing else needs that.
    ``phases``: whether a convolution that makes phases as channels writes them side by side.
    ``moves``: whether products of matrices copy their operands, so that they read them through moves.
    ``moved_bytes``: tensors of so many bytes at most are moved by the kernels that read them, which also compute what
    is moved (`small_moves`); 0: a move of data is a kernel.
    ``weight_only``: whether a product with constant weights of 8 bits or fewer widens them itself (`weight_only`).
    ``columns``: whether a product puts side by side what windows meet itself, a block of rows at a time, if nothing
    else needs that.
    """

    depth: int = 32
    input_bytes: int = 256 << 20
    recompute_intensity: float = 4.0
    before_reductions: bool = False
    attention: MakesAttention | None = None
    row_statistics: bool = False
    phases: bool = False
    columns: bool = False
    moves: bool = False
    moved_bytes: int = 0
    weight_only: bool = False
