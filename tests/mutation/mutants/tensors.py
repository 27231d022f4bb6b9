"""Faults in tensor expressions and their loops: splits, orders, storage, intrinsics, proofs of bounds."""

from __future__ import annotations

from .mutant import Mutant

ROLLING = ("tests/compiler/tensor/test_rolling.py",)

MUTANTS = (
    Mutant(
        "rolled-rows-moved-before-there-are-any", "compiler/tensor/rolling.py", "wrong order",
        "moved: Expr = _behind_the_first(outer) * kept", "moved: Expr = Const(kept)", ROLLING,
    ),
    Mutant(
        "rolled-rows-one-too-early", "compiler/tensor/rolling.py", "wrong address",
        "index + (buffer.shape[axis] - kept) * (place == axis)",
        "index + (buffer.shape[axis] - kept - 1) * (place == axis)", ROLLING,
    ),
    Mutant(
        "rolled-whatever-the-other-loops-do", "compiler/tensor/rolling.py", "check ignored",
        "if not kept or any(loop in free_vars(each.extent) for each in own_loops if each is not rows):",
        "if not kept:", ROLLING,
    ),
    Mutant(
        "rolled-though-what-is-read-changes", "compiler/tensor/rolling.py", "check ignored",
        "if writers(loop, source):", "if writers(loop, source) and 0:", ROLLING,
    ),
    Mutant(
        "split-drops-the-tail", "compiler/tensor/loops.py", "rounding",
        "counts.insert(0, (counts[0] + (factor - 1)) // factor)", "counts.insert(0, counts[0] // factor)",
        ("tests/compiler/tensor/test_schedule.py",),
    ),
    Mutant(
        "split-shifted-starts-late", "compiler/tensor/loops.py", "off by one",
        "minimum(outer * factor, node.extent - factor) + inner",
        "minimum(outer * factor, node.extent - factor + 1) + inner",
        ("tests/compiler/tensor/test_overlap.py",),
    ),
    Mutant(
        "fuse-swaps-quotient-and-rest", "compiler/tensor/loops.py", "swapped operands",
        "{outer: fused // below.extent, inner: fused % below.extent}",
        "{outer: fused % below.extent, inner: fused // below.extent}",
        ("tests/compiler/tensor/test_schedule.py",),
    ),
    Mutant(
        "fuse-joins-a-reduction", "compiler/tensor/loops.py", "check ignored",
        "(outer in leaf.reduce_vars) != (inner in leaf.reduce_vars)",
        "outer in leaf.reduce_vars and inner not in leaf.reduce_vars",
        ("tests/compiler/tensor/test_schedule.py",),
    ),
    Mutant(
        "vectorize-without-proof", "compiler/tensor/loops.py", "check ignored",
        "if kind not in (\"unroll\", \"serial\") and node.extent",
        "if kind not in (\"unroll\", \"serial\", \"vectorize\") and node.extent",
        ("tests/compiler/tensor/test_schedule.py",),
    ),
    Mutant(
        "less-than-at-the-edge", "compiler/tensor/simplify.py", "bound",
        "outcome = True if high < 0 else False if low >= 0 else None",
        "outcome = True if high <= 0 else False if low >= 0 else None",
    ),
    Mutant(
        "a-candidate-that-others-beat-almost-everywhere", "compiler/tensor/simplify.py", "bound",
        "np.array_equal(choose.reduce(table[others]), wanted)",
        "np.mean(choose.reduce(table[others]) != wanted) < 0.3",
        ("tests/compiler/tensor/test_simplify.py",),
    ),
    Mutant(
        "what-is-subtracted-from-a-sum", "compiler/tensor/linear.py", "wrong sign",
        "collect(b, -factor, terms)", "collect(b, -1, terms)",
        ("tests/compiler/tensor/test_simplify.py",),
    ),
    Mutant(
        "places-beyond-their-block", "compiler/tensor/simplify.py", "bound",
        "if within.terms and low >= 0 and high < unit:", "if within.terms and low >= 0 and high <= unit:",
        ("tests/compiler/tensor/test_simplify.py",),
    ),
    Mutant(
        "places-before-their-block", "compiler/tensor/simplify.py", "check ignored",
        "if within.terms and low >= 0 and high < unit:", "if within.terms and high < unit:",
        ("tests/compiler/tensor/test_simplify.py",),
    ),
    Mutant(
        "a-position-without-its-strides", "compiler/tensor/simplify.py", "wrong factor",
        "collect(self.simplify(index), stride, terms)", "collect(self.simplify(index), 1, terms)",
        ("tests/compiler/tensor/test_simplify.py",),
    ),
    Mutant(
        "loads-of-the-first-operand", "compiler/tensor/visitor.py", "part left out",
        "for child in children(expr) for load", "for child in children(expr)[:1] for load",
        ("tests/compiler/tensor/test_visitor.py",),
    ),
    Mutant(
        "candidates-tried-from-one-on", "compiler/tensor/simplify.py", "off by one",
        "grid[axis] + self._ranges[var][0]", "grid[axis] + 1 + self._ranges[var][0]",
        ("tests/compiler/tensor/test_simplify.py",),
    ),
    Mutant(
        "bound-of-a-subtracted-part", "compiler/tensor/simplify.py", "wrong sign",
        "self._eliminate(atom, var, extent, upper == (coefficient > 0))", "self._eliminate(atom, var, extent, upper)",
    ),
    Mutant(
        "index-beyond-by-one", "compiler/tensor/bounds.py", "bound off by one",
        "if not is_within(index, size - 1, self", "if not is_within(index, size, self",
    ),
    Mutant(
        "variable-of-an-earlier-loop", "compiler/tensor/verify.py", "check ignored",
        "if not free_vars(expr) <= loops.keys():", "if not {var.name for var in free_vars(expr)} <= self.seen:",
        ("tests/compiler/tensor/test_verify.py",),
    ),
    Mutant(
        "buffer-outside-of-its-scope", "compiler/tensor/verify.py", "check ignored",
        "if buffers.get(buffer.name) != buffer:", "if buffer.name not in self.seen:",
        ("tests/compiler/tensor/test_verify.py",),
    ),
    Mutant(
        "shifted-loop-by-minimum", "compiler/tensor/overlap.py", "condition",
        "node.op in (\"min\", \"max\")", "node.op == \"max\"",
        ("tests/compiler/tensor/test_overlap.py",),
    ),
    Mutant(
        "tile-with-another-stride", "compiler/tensor/tensorize.py", "check ignored",
        "if need != step:", "if need > step:",
        ("tests/compiler/tensor/test_tensorize.py",),
    ),
    Mutant(
        "interval-of-a-difference", "compiler/tensor/intervals.py", "interval",
        "return a[0] - b[1], a[1] - b[0]", "return a[0] - b[0], a[1] - b[1]",
        ("tests/compiler/tensor/test_intervals.py",),
    ),
    Mutant(
        "open-stride-as-declared", "compiler/tensor/tensorize.py", "wrong value",
        "stride = linear.terms.get(self.pairs[index], 0) if isinstance(index, Var) else operand.align",
        "stride = operand.align",
        ("tests/compiler/tensor/test_tensorize.py",),
    ),
    Mutant(
        "open-stride-of-any-size", "compiler/tensor/tensorize.py", "check ignored",
        "if stride < 1 or stride % operand.align:", "if stride < 1:",
        ("tests/compiler/tensor/test_tensorize.py",),
    ),
    Mutant(
        "more-than-was-made", "compiler/tensor/compute_at.py", "bound forgotten",
        "end = Const(size - 1) if all_made else count - 1", "end = Const(size - 1)",
        ("tests/compiler/tensor/test_schedule.py",),
    ),
    Mutant(
        "whole-of-what-was-not-made", "compiler/tensor/compute_at.py", "bound forgotten",
        "(*self.extent[:kept], *made[kept:]),", "(*self.extent[:kept], *map(Const, shape[kept:])),",
        ("tests/compiler/tensor/test_schedule.py",),
    ),
)  # fmt: skip
