"""Faults in quantisation: places, ranges, and gradients of rounding."""

from __future__ import annotations

from .mutant import Mutant

WHOLE = ("tests/quantise/test_quantised.py",)
RANGES = ("tests/quantise/test_ranges.py",)
TRAINING = ("tests/quantise/test_training.py",)
EQUALISE = ("tests/quantise/test_equalise.py",)
REFINE = ("tests/quantise/test_refine.py",)

MUTANTS = (
    Mutant(
        "functions-in-parts", "quantise/plan.py", "condition",
        "            if self.forms[arg] is not Form.FUNCTION:\n                self._settle(arg)\n        sources",
        "            self._settle(arg)\n        sources", WHOLE,
    ),
    Mutant(
        "normalisation-in-eight-bits", "quantise/plan.py", "condition",
        "or is_square or centres", "or is_square", WHOLE,
    ),
    Mutant(
        "scale-along-the-other-axis", "quantise/plan.py", "axis",
        "    return 0 if operand == 1 else None", "    return 1 if operand == 1 else None", WHOLE,
    ),
    Mutant(
        "pooling-of-an-output-in-floats", "quantise/plan.py", "edge",
        "            if _picks(result):\n                self.chosen.add(result)\n", "", WHOLE,
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
    Mutant(
        "residual-stream-divided-in-parts", "quantise/equalise.py", "forgotten union",
        "            self.parents[left.root] = kept.root\n", "", EQUALISE,
    ),
    Mutant(
        "offset-is-not-divided", "quantise/equalise.py", "forgotten factor",
        "role_of(node) in SUMS and made is not None",
        "role_of(node) is Role.SUBTRACT and made is not None", EQUALISE,
    ),
    Mutant(
        "gate-is-divided", "quantise/equalise.py", "condition", "            self._pin(gate)\n", "", EQUALISE,
    ),
    Mutant(
        "elements-of-a-flattened-channel", "quantise/equalise.py", "axis",
        "np.repeat(factors[group.root], groups.of[value][1])",
        "np.tile(factors[group.root], groups.of[value][1])", EQUALISE,
    ),
    Mutant(
        "groups-read-the-first-channels", "quantise/equalise.py", "index",
        "(outputs // groups) * inputs)[:, None]", "(outputs // groups) * 0)[:, None]", EQUALISE,
    ),
    Mutant(
        "clamp-that-cuts-off", "quantise/equalise.py", "forgotten clamp",
        "    return np.asarray(np.where(seen.unclamped >= group.high, 1.0, np.maximum(factors, least)))",
        "    return np.asarray(np.maximum(factors, 0 * least))", EQUALISE,
    ),
    Mutant(
        "subtracted-offset-goes-the-other-way", "quantise/refine.py", "sign",
        "sign = -1 if role_of(node) is Role.SUBTRACT and offset == 1 else 1", "sign = 1", REFINE,
    ),
    Mutant(
        "rounding-ignores-what-was-lost-before", "quantise/adaround.py", "forgotten term",
        "missing -= error[:, :, None] * mean[:, None, :]", "missing *= 0", REFINE,
    ),
    Mutant(
        "moments-of-the-last-batch", "quantise/adaround.py", "forgotten state",
        "        inputs += x @ turned\n", "        inputs = x @ turned\n", REFINE,
    ),
    Mutant(
        "rounding-of-the-largest-weight", "quantise/adaround.py", "forgotten clamp",
        "np.where(np.abs(nearest) == LARGEST, nearest, descended)", "descended * 1.0", REFINE,
    ),
    Mutant(
        "uniform-is-not-symmetric", "train/initialisers.py", "off by one",
        "_int((1 << FRACTION_BITS) - 1)", "_int(1 << FRACTION_BITS)", ("tests/train/test_initialisers.py",),
    ),
    Mutant(
        "variance-of-outputs", "train/initialisers.py", "axis",
        "max(1, _fans(shape)[0])", "max(1, _fans(shape)[1])", ("tests/train/test_initialisers.py",),
    ),
    Mutant(
        "bias-of-a-product-that-others-read", "compiler/exporters/onnx.py", "condition",
        "uses[product] > 1", "uses[product] > 9", ("tests/compiler/exporters/test_onnx.py",),
    ),
    Mutant(
        "slices-that-end-at-the-front", "compiler/exporters/onnx.py", "edge",
        "end if end >= 0 else np.iinfo(np.int64).min", "end", ("tests/compiler/exporters/test_onnx.py",),
    ),
    Mutant(
        "ceil-mode-does-not-count", "compiler/frontends/onnx/window.py", "case left out",
        'counted = {**_pool_attrs(node, x), "count_include_pad": bool(node.integer("count_include_pad", 0))}',
        "counted = _pool_attrs(node, x)",
        ("tests/compiler/frontends/onnx/test_quantised_forms.py",),
    ),
)  # fmt: skip
