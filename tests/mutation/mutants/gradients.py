"""Faults in gradients and training: rules, the sweep, and what makes them fast."""

from __future__ import annotations

from .mutant import Mutant

RULES = ("tests/compiler/operators/test_gradients.py",)
GRAD = ("tests/compiler/passes/test_gradient.py",)
TRAIN = ("tests/train/test_training.py",)
PRECISION = ("tests/train/test_precision.py",)
IN_PLACE = ("tests/train/test_in_place.py",)
OPTIMISERS = ("tests/train/test_optimisers.py",)
REMATERIALISED = ("tests/compiler/passes/test_rematerialise.py",)

MUTANTS = (
    Mutant(
        "gradient-of-one-use-alone", "compiler/graph/gradient.py", "forgotten part",
        "for part in parts[1:]:", "for part in parts[2:]:", GRAD,
    ),
    Mutant(
        "broadcast-is-not-undone", "compiler/graph/gradient.py", "condition",
        "if size == 1 and x.shape[axis] != 1)", "if size == 1 and x.shape[axis] == 0)", (*RULES, *GRAD),
    ),
    Mutant(
        "missing-rules-stop-at-the-first", "compiler/graph/gradient.py", "forgotten part",
        "self.given.setdefault(arg, []).append(zeros(arg.tensor_type))", "self.given.setdefault(arg, [])", GRAD,
    ),
    Mutant(
        "integers-lead-nowhere", "compiler/graph/gradient.py", "check ignored",
        "elif isinstance(node, Call) and (parts or node in self.integers):", "elif isinstance(node, Call) and parts:",
        GRAD,
    ),
    Mutant(
        "seed-of-another-output", "compiler/passes/gradient.py", "check ignored",
        "if unknown or missing:", "if unknown:", GRAD,
    ),
    Mutant(
        "slice-backwards-is-whole", "compiler/passes/simplify_gradients.py", "condition",
        "step < 0 and size > 1", "step < -1 and size > 1", GRAD,
    ),
    Mutant(
        "clip-passes-at-its-end", "compiler/operators/functions.py", "tie rule",
        "upstream = where(nn.less(like(x, low), x), upstream)",
        "upstream = where(nn.less_equal(like(x, low), x), upstream)",
        RULES,
    ),
    Mutant(
        "kernel-of-the-data-not-turned", "compiler/operators/window_gradients.py", "order",
        "flipped(w, range(2, len(w.shape)))", "flipped(w, range(3, len(w.shape)))", RULES,
    ),
    Mutant(
        "steps-and-dilations-stay", "compiler/operators/window_gradients.py", "swapped operands",
        'pads=pads, strides=node.attr("dilations"),\n                         dilations=node.attr("strides"))',
        'pads=pads, strides=node.attr("strides"),\n                         dilations=node.attr("dilations"))', RULES,
    ),
    Mutant(
        "padding-counts-always", "compiler/operators/window_gradients.py", "condition",
        "if any(pads) and not node.attr(\"count_include_pad\"):", "if any(pads) and node.attr(\"count_include_pad\"):",
        RULES,
    ),
    Mutant(
        "last-maximum-of-a-window", "compiler/operators/pooling.py", "tie rule",
        "return te.min(tir.select(fits, number, tir.Const(nowhere)), window)",
        "return te.max(tir.select(fits, number, tir.Const(-1)), window)",
        ("tests/compiler/operators/test_lowerings.py",),
    ),
    Mutant(
        "first-update-has-set-it", "compiler/operators/index.py", "tie rule",
        "Constant(order), \"maximum\")", "Constant(order[::-1]), \"maximum\")", RULES,
    ),
    Mutant(
        "product-behind-a-zero", "compiler/operators/reduce.py", "edge",
        "nn.equal(zeros, like(x, 1)), product", "nn.less(zeros, like(x, 1)), product", RULES,
    ),
    Mutant(
        "windows-met-without-dilation", "compiler/targets/loops/computed_kernels.py", "forgotten factor",
        "for place in product(*map(range, kernel))]) * dilation", "for place in product(*map(range, kernel))])",
        ("tests/compiler/targets/loops/test_computed_kernels.py",),
    ),
    Mutant(
        "part-that-meets-from-the-wrong-end", "compiler/targets/loops/computed_kernels.py", "forgotten turn",
        "offset = kernel[axis] - 1 - np.arange(kernel[axis])", "offset = np.arange(kernel[axis])",
        ("tests/compiler/targets/loops/test_computed_kernels.py",),
    ),
    Mutant(
        "swapped-kernels-taken-for-turned", "compiler/targets/loops/computed_kernels.py", "missing guard",
        "np.flip(numbers, tuple(range(2, numbers.ndim))).swapaxes(0, 1)", "numbers.swapaxes(0, 1)",
        ("tests/compiler/targets/loops/test_computed_kernels.py",),
    ),
    Mutant(
        "condition-on-an-index-says-nothing", "compiler/targets/llvm/expressions.py", "missing guard",
        "return cond.a.dtype in FLOATS", "return True",
        ("tests/compiler/targets/cpu/llvm",),
    ),
    Mutant(
        "decay-without-momentum", "train/optimisers.py", "order",
        "return nn.add(at.gradient, _scaled(velocity, momentum)) if nesterov",
        "return _scaled(velocity, momentum) if nesterov", OPTIMISERS,
    ),
    Mutant(
        "rate-that-is-no-number", "train/training.py", "missing guard",
        "if np.ndim(rate) or not np.isfinite(rate):", "if np.ndim(rate):", TRAIN,
    ),
    Mutant(
        "overflow-not-noticed", "train/precision.py", "missing guard",
        "return nn.equal(total, _like(total, 0.0))", "return nn.equal(_like(total, 0.0), _like(total, 0.0))", PRECISION,
    ),
    Mutant(
        "scale-never-doubled", "train/precision.py", "boundary",
        "due = nn.less_equal(_like(counted, self.scaling.interval), counted)",
        "due = nn.less(_like(counted, self.scaling.interval + 1), counted)", PRECISION,
    ),
    Mutant(
        "scaled-gradients-stay-so", "train/step.py", "forgotten factor",
        "gradients = [nn.divide(each, scale.value) for each in gradients]", "gradients = list(gradients)", PRECISION,
    ),
    Mutant(
        "statistics-in-16-bits", "train/precision.py", "too narrow",
        "like = any(each and arg.shape == node.shape for each, arg in zip(narrow, args, strict=True))",
        "like = any(narrow)", PRECISION,
    ),
    Mutant(
        "moment-not-corrected", "train/optimisers.py", "forgotten factor",
        "nn.sqrt(nn.divide(square, square_seen))", "nn.sqrt(square)", OPTIMISERS,
    ),
    Mutant(
        "decay-with-the-moments", "train/optimisers.py", "order",
        "return lambda at: _decayed(direction(at), at.value, decay)", "return direction",
        OPTIMISERS,
    ),
    Mutant(
        "trust-of-nothing", "train/optimisers.py", "edge",
        "nn.where(nn.equal(nn.minimum(*lengths), zero), one, nn.divide(own, other))", "nn.divide(own, other)",
        OPTIMISERS,
    ),
    Mutant(
        "short-gradients-made-longer", "train/step.py", "edge",
        "nn.maximum(norm, number(norm, longest))", "nn.maximum(norm, number(norm, 1e-30))", OPTIMISERS,
    ),
    Mutant(
        "next-value-may-be-nan", "train/training.py", "missing guard",
        "if found[check] != 0:", "if found[check] > 0:", (*TRAIN, *PRECISION),
    ),
    Mutant(
        "bad-state-is-saved", "train/training.py", "missing guard",
        "raise TrainingError(f\"the state {name!r}", "TrainingError(f\"the state {name!r}", TRAIN,
    ),
    Mutant(
        "replaced-though-it-is-read-later", "compiler/targets/loops/replaceable.py", "missing guard",
        "max(reads, default=-1) > writes[0]", "max(reads, default=-1) < 0", IN_PLACE,
    ),
    Mutant(
        "replaced-though-it-is-read-elsewhere", "compiler/targets/loops/replaceable.py", "missing guard",
        "return all(fit for fit, place", "return all(True for fit, place", IN_PLACE,
    ),
    Mutant(
        "replaced-though-the-run-may-fail", "compiler/targets/loops/replaceable.py", "missing guard",
        "if not writes or _last_that_may_fail(program.steps) >= writes[0] or", "if not writes or", IN_PLACE,
    ),
    Mutant(
        "checked-for-another-number-of-rows", "compiler/targets/loops/replaceable.py", "missing guard",
        "checked = replace(step.indices, shape=(prod(step.indices.shape),)), step.sizes",
        "checked = replace(step.indices, shape=()), 0", IN_PLACE,
    ),
    Mutant(
        "one-zero-among-the-factors", "compiler/operators/index.py", "edge",
        "where(nn.equal(others_zero, like(zero, 0)), others)", "where(nn.equal(zero, zero), others)", RULES,
    ),
    Mutant(
        "scale-of-the-next-block", "compiler/operators/quantise.py", "axis",
        "axes=(axis + 1,))", "axes=(axis,))" , RULES,
    ),
    Mutant(
        "mirrored-once", "compiler/operators/sampling_gradients.py", "sign",
        "back = nn.subtract(like(place, 2 * span), distance)", "back = nn.subtract(like(place, span), distance)", RULES,
    ),
    Mutant(
        "bad-step-is-kept", "train/training.py", "order",
        "        self._state, self._next = self._next, self._state\n        self.steps += 1\n        return",
        "        self.steps += 1\n        return", TRAIN,
    ),
    Mutant(
        "any-work-is-done-again", "compiler/passes/rematerialise.py", "check ignored",
        "if large <= MOST_LEAVES and work <= MOST_ARITHMETIC:", "if large <= MOST_LEAVES:", REMATERIALISED,
    ),
    Mutant(
        "one-leaf-more", "compiler/passes/rematerialise.py", "boundary",
        "large <= MOST_LEAVES and", "large <= MOST_LEAVES + 1 and", REMATERIALISED,
    ),
    Mutant(
        "flow-is-never-sent-back", "compiler/passes/rematerialise.py", "forgotten part",
        "self.room[edge ^ 1] += amount", "self.room[edge ^ 1] += 0", REMATERIALISED,
    ),
)  # fmt: skip
