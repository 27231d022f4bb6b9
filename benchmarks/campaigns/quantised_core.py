"""Random models of what is particular to the core, and which of it is in a compiled one.

Shuffles of channels and groups are weights most of whose matrices are zero; joins of channels that are no whole blocks
have gaps; functions of few pieces between layers are sums of ramps. Random graphs of all operators seldom have them.
"""

from __future__ import annotations

import onnx
from weft.compiler.graph import Call, Expr, Function, Module
from weft.compiler.graph.visit import calls
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.operators.moves import is_linked

from benchmarks.campaigns.quantised_random import (
    Drawn,
    Draws,
    draw_conv,
    draw_deconv,
    draw_pool,
    draw_residual,
    draw_squeeze_excite,
    grown,
)
from benchmarks.zoo.quantised_build import MisfitError
from benchmarks.zoo.quantised_forms import Inputs

FEATURES = ("empty matrices", "gaps closed", "gaps read", "ramps")
"""What `features` finds."""


def _pointwise(d: Draws, x: str) -> str:
    return d.net.conv(x, d.pick((3, 5, 8, 12, 20)), 1)


def _shuffled(d: Draws, x: str) -> str:
    """Channels in another order: a shuffle of groups, or as indices say; mostly of several blocks."""
    wide = x if d.channels(x) >= 8 else d.net.conv(x, d.pick((12, 16, 24)), 1)
    if d.chance(0.6):
        return d.net.shuffle(wide, d.divisor(d.channels(wide)))
    order = d.random.permutation(d.channels(wide))[: int(d.random.integers(1, d.channels(wide) + 1))]
    return d.net.node("Gather", wide, d.net.whole(*order.tolist()), axis=1)


def _grouped(d: Draws, x: str) -> str:
    """Groups of several blocks."""
    groups = d.pick((2, 3))
    wide = d.net.conv(x, groups * d.pick((6, 8, 12)), 1)
    return d.net.conv(wide, groups * d.pick((4, 8, 9)), d.pick((1, 3)), group=groups)


def _joined(d: Draws, x: str) -> str:
    """Beside one or two branches, whose channels seldom fill blocks."""
    parts = [x, *(d.net.conv(x, d.pick((1, 3, 5, 6, 8, 10)), d.pick((1, 3))) for _ in range(d.pick((1, 2))))]
    d.random.shuffle(parts)
    return d.net.node("Concat", *parts, axis=1)


def _split_join(d: Draws, x: str) -> str:
    channels = d.channels(x)
    if channels < 2:
        raise MisfitError("nothing to split")
    first = int(d.random.integers(1, channels))
    left, right = d.net.split(x, 1, (first, channels - first))
    return d.net.node("Concat", d.net.conv(right, channels - first, d.pick((1, 3))), left, axis=1)


def _bent(d: Draws, x: str) -> str:
    """A function of few pieces, of an image or of its means."""
    if d.chance(0.4):
        x = d.net.conv(d.net.node("GlobalAveragePool", x), d.pick((6, 8)), 1)
    match d.pick(("HardSigmoid", "hard_swish", "LeakyRelu", "Sigmoid", "Tanh", "Abs")):
        case "hard_swish":
            return d.net.hard_swish(x)
        case "LeakyRelu":
            return d.net.node("LeakyRelu", x, alpha=float(d.pick((0.01, 0.1, 0.3))))
        case kind:
            return d.net.node(kind, x)


DRAWS: Drawn = (
    (draw_conv, 2), (draw_deconv, 1), (draw_pool, 1), (draw_residual, 1), (draw_squeeze_excite, 2), (_pointwise, 2),
    (_shuffled, 4), (_grouped, 2), (_joined, 4), (_split_join, 2), (_bent, 5),
)  # fmt: skip
"""What may come next, and how often."""


def core_model(number: int, seed: int = 0) -> tuple[onnx.ModelProto, list[Inputs]]:
    """A float model of an image, of three to five such parts and a convolution, and data for it."""
    draws = Draws(seed, number, 3)
    shape = (1, draws.pick((3, 5, 8, 12)), draws.pick((3, 5, 6)), draws.pick((4, 5, 7)))
    draws.values.append(_pointwise(draws, draws.net.input("x", shape)))
    grown(draws, DRAWS, int(draws.random.integers(4, 7)))
    last = draws.net.conv(draws.values[-1], 4, 1)
    model = draws.net.model(last)
    return model, draws.net.batches(model)


def features(packed: Module) -> tuple[str, ...]:
    """Of `FEATURES`, those that the core's part of a packed module has."""
    found = set()
    for node in calls(packed.main.body):
        if not isinstance(node.op, Function) or not node.op.is_primitive or is_linked(node.op):
            continue
        if lower_function(node.op).section.kept is not None:
            found.add("empty matrices")
        if any(map(_adds_ramp, calls(node.op.body))):
            found.add("ramps")
        if any(map(_has_gaps, node.args)):
            closes = node.op.attrs["name"].endswith(".channels")
            found.add("gaps closed" if closes else "gaps read")
    return tuple(sorted(found))


def _adds_ramp(node: Call) -> bool:
    added = node.args[1] if node.op == "packed_multiply_accumulate" else None
    return isinstance(added, Call) and added.op == "packed_maximum_immediate"


def _is_concat(node: Expr) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Function) and node.op.attrs.get("anchor") == "concat"


def _has_gaps(node: Expr) -> bool:
    """Whether it is a concatenation with gaps, which is no tensor of the model."""
    return _is_concat(node) and not node.span.tensor
