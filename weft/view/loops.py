"""The loops that an engine's registers run, as text: what is left of a loop nest when it has become instructions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..hw.isa import Gemm, Instruction, Vector
from .accesses import Level


def loops_text(instructions: Sequence[Instruction], nests: Sequence[tuple[Level, ...]]) -> str:
    """Each nest that occurs, once, with how often it runs; the ones that run most micro-ops first. Empty for a layer
    without micro-ops."""
    counts: Counter[tuple[str, tuple[Level, ...]]] = Counter()
    for instruction, nest in zip(instructions, nests, strict=True):
        if isinstance(instruction, Gemm | Vector):
            counts[_body(instruction), nest] += 1
    order = sorted(counts.items(), key=lambda item: -item[1] * _micro_ops(item[0][1]))
    return "\n\n".join(_nest_text(body, nest, count) for (body, nest), count in order)


def _micro_ops(nest: tuple[Level, ...]) -> int:
    result = 1
    for extent, *_ in nest:
        result *= extent
    return result


def _body(instruction: Gemm | Vector) -> str:
    if isinstance(instruction, Gemm):
        taps = ", nine taps a channel" if instruction.depthwise else ""
        return f"gemm: acc[dst] {'=' if instruction.zero else '+='} inp[a] x wgt[b]{taps}"
    second = "" if not instruction.op.b_entries else ", immediate" if instruction.b_immediate else ", acc[b]"
    return f"vector: {instruction.target.memory}[dst] = {instruction.op.name.lower()}(acc[a]{second})"


def _nest_text(body: str, nest: tuple[Level, ...], count: int) -> str:
    engine, _, statement = body.partition(": ")
    lines = [f"{count:,} x {engine}, {_micro_ops(nest):,} micro-ops each"]
    moving = [level for level in nest if level[0] > 1]
    for depth, level in enumerate(moving):
        steps = [f"{name} += {stride}" for name, stride in zip(("dst", "a", "b"), level[1:], strict=True) if stride]
        lines.append(f"{'  ' * (depth + 1)}for {level[0]}: {', '.join(steps) or 'the same again'}")
    return "\n".join([*lines, f"{'  ' * (len(moving) + 1)}{statement}"])
