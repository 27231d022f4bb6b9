"""Faults in quantisation: places, ranges, and gradients of rounding."""

from __future__ import annotations

from .mutant import Mutant

WHOLE = ("tests/quantise/test_quantised.py",)
RANGES = ("tests/quantise/test_ranges.py",)
TRAINING = ("tests/quantise/test_training.py",)

MUTANTS = (
    Mutant(
        "functions-in-parts", "quantise/plan.py", "condition",
        "            if self.forms[arg] is not Form.FUNCTION:\n                self._settle(arg)\n        sources",
        "            self._settle(arg)\n        sources", WHOLE,
    ),
    Mutant(
        "normalisation-in-eight-bits", "quantise/plan.py", "condition",
        "return not square and not centres", "return not square", WHOLE,
    ),
    Mutant(
        "scale-along-the-other-axis", "quantise/plan.py", "axis",
        "    return 0 if operand == 1 else None", "    return 1 if operand == 1 else None", WHOLE,
    ),
    Mutant(
        "pooling-of-an-output-in-floats", "quantise/plan.py", "edge",
        "            if result.op == \"nn.max_pool\":\n                self.chosen.add(result)\n", "", WHOLE,
    ),
    Mutant(
        "reach-of-a-move", "quantise/plan.py", "axis",
        "return int(node.attr(\"perm\").index(axis))", "return int(node.attr(\"perm\")[axis])", WHOLE,
    ),
    Mutant(
        "zero-off-by-one", "quantise/ranges.py", "off by one",
        "round(-128 - self.low / self.scale)", "round(-127 - self.low / self.scale)", RANGES,
    ),
    Mutant(
        "range-of-the-last-batch", "quantise/ranges.py", "forgotten state",
        "min(before[0], low), max(before[1], high)", "min(0.0, low), max(0.0, high)", RANGES,
    ),
    Mutant(
        "share-of-one-end", "quantise/ranges.py", "side",
        "np.searchsorted(below, 1 - share, side=\"right\")", "np.searchsorted(below, 0.0)", RANGES,
    ),
    Mutant(
        "error-without-cutting", "quantise/ranges.py", "forgotten clamp",
        "np.clip(np.rint(values / span.scale) + span.zero_point, -128, 127) - span.zero_point",
        "np.rint(values / span.scale)", RANGES,
    ),
    Mutant(
        "gradient-outside", "quantise/training.py", "condition",
        "nn.where(inside, upstream, nothing)", "nn.where(nn.equal(cut, cut), upstream, nothing)", TRAINING,
    ),
    Mutant(
        "scale-of-what-is-cut-off", "quantise/training.py", "condition",
        "nn.where(inside, steps, nothing)", "nn.where(nn.equal(cut, cut), steps, nothing)", TRAINING,
    ),
    Mutant(
        "power-of-two-does-not-train", "quantise/training.py", "forgotten factor",
        "return {\"x\": nn.multiply(nn.multiply(upstream, match[\"power\"]), match[\"ln2\"])}",
        "return {\"x\": nn.multiply(upstream, Constant(np.zeros((), np.float32)))}", TRAINING,
    ),
    Mutant(
        "trained-scales-are-forgotten", "quantise/training.py", "forgotten state",
        "made = Constant(np.asarray(value), name)", "made = Constant(eight.start[name], name)", TRAINING,
    ),
)  # fmt: skip
