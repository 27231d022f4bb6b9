"""Six nested affine loops that make the indices of micro-ops, one micro-op a cycle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import LOOP_LEVELS, CoreConfig
from .engine import EngineControl
from .isa import Opcode, header_layout, instruction_layout

INDICES = ("dst", "a", "b")


def micro_op_layout(config: CoreConfig) -> data.StructLayout:
    """Three indices with one guard bit each, and the micro-op's place in its loops.

    An index that has left its memory has the guard bit or a bit above the memory's index set: an index before it was
    inside, and a stride is less than the guard bit's weight. ``first``: iteration 0 at every level with ``dst_stride``
    0. ``begin``, ``end``: first and last micro-op of the instruction.
    """
    return data.StructLayout(dict.fromkeys(INDICES, config.index_bits + 1) | {"first": 1, "begin": 1, "end": 1})


class LoopNest(wiring.Component):
    """Loop registers and index generator.

    ``ready``: in this cycle ``set`` may store the LOOP instruction ``loop`` (again, too), or ``start`` may begin a nest
    of ``levels`` levels at ``base``; ``micro_ops`` has its first micro-op in the next cycle. ``ready`` follows
    ``micro_ops.ready`` in the same cycle, so that nests follow one another without a gap. ``levels`` and ``base`` may
    be anything in a cycle without ``start``. Reset gives every level extent 1 and strides 0.

    ``inner_goes_on``: there is a micro-op, and what follows it is the next iteration of level 0. ``inner_stride``: the
    strides of level 0, which a nest that starts in this cycle will have.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        super().__init__(
            {
                "ready": Out(1),
                "set": In(1),
                "loop": In(instruction_layout(config, Opcode.LOOP)),
                "start": In(1),
                "levels": In(range(LOOP_LEVELS + 1)),
                "base": In(data.StructLayout(dict.fromkeys(INDICES, config.index_bits + 1))),
                "micro_ops": Out(stream.Signature(micro_op_layout(config))),
                "inner_goes_on": Out(1),
                "inner_stride": Out(data.StructLayout(dict.fromkeys(INDICES, config.index_bits))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        levels = [_Level(self.config, number) for number in range(LOOP_LEVELS)]
        valid, begin = Signal(), Signal(reset_less=True)
        step, end = Signal(), Signal(reset_less=True)  # `end` is a register: the start of the next nest depends on it
        micro_op = self.micro_ops.payload

        for level in levels:
            with m.If(self.set & (self.loop.level == level.number)):
                m.d.sync += level.store(self.loop)

        # `turn`: this level moves on to its next iteration, because all below are at their last; the levels below
        # restart from the index that it reaches.
        reached = {name: Signal(self.config.index_bits + 1, name=f"reached_{name}") for name in INDICES}
        inner_ended = 1
        for level in levels:
            m.d.comb += level.turn.eq(inner_ended & ~level.ended)
            with m.If(level.turn):
                m.d.comb += [reached[name].eq(level.base[name] + level.stride[name]) for name in INDICES]
            inner_ended = inner_ended & level.ended
        m.d.comb += [
            step.eq(self.micro_ops.valid & self.micro_ops.ready),
            self.ready.eq(~valid | (step & end)),
            self.micro_ops.valid.eq(valid),
            *(micro_op[name].eq(levels[0].base[name]) for name in INDICES),
            micro_op.begin.eq(begin),
            micro_op.end.eq(end),
            self.inner_goes_on.eq(valid & ~levels[0].ended),
            *(self.inner_stride[name].eq(levels[0].stride[name]) for name in INDICES),
            micro_op.first.eq(~_any(level.used & level.reduces & ~level.at_zero for level in levels)),
        ]

        # Whether a nest starts comes late, so nothing but `valid` waits for it.
        with m.If(self.ready):
            m.d.sync += [
                valid.eq(self.start),
                begin.eq(1),
                end.eq(_all((level.number >= self.levels) | level.single for level in levels)),
            ]
            for level in levels:
                used = level.number < self.levels
                m.d.sync += [
                    *level.restart(used),
                    level.used.eq(used),
                    *(level.base[name].eq(self.base[name]) for name in INDICES),
                ]
        with m.Elif(step):
            m.d.sync += begin.eq(0)
            outer_turns = 0
            ended_then = []
            for level in reversed(levels):
                restarted = level.single | ~level.used
                ended_then.append(Mux(level.turn, level.left == 1, Mux(outer_turns, restarted, level.ended)))
                with m.If(level.turn):
                    m.d.sync += level.advance()
                with m.If(outer_turns):
                    m.d.sync += level.restart(level.used)
                outer_turns = outer_turns | level.turn
                with m.If(outer_turns):
                    m.d.sync += [level.base[name].eq(reached[name]) for name in INDICES]
            m.d.sync += end.eq(_all(ended_then))
        return m


class _Level:
    """Registers of one level: what LOOP stored, and where the iteration stands."""

    def __init__(self, config: CoreConfig, number: int) -> None:
        self.number = number
        prefix = f"level{number}"
        self.last = Signal(config.count_bits, name=f"{prefix}_last")  # extent - 1
        self.single = Signal(init=1, name=f"{prefix}_single")  # extent is 1
        self.reduces = Signal(init=1, name=f"{prefix}_reduces")  # dst_stride is 0
        self.stride = {name: Signal(config.index_bits, name=f"{prefix}_{name}_stride") for name in INDICES}
        self.used = Signal(reset_less=True, name=f"{prefix}_used")
        self.left = Signal(config.count_bits, reset_less=True, name=f"{prefix}_left")  # iterations after this one
        self.ended = Signal(reset_less=True, name=f"{prefix}_ended")  # left is 0, or the level is not used
        self.at_zero = Signal(reset_less=True, name=f"{prefix}_at_zero")
        # Indices at the start of this level's iteration; level 0's are the micro-op's.
        self.base = {
            name: Signal(config.index_bits + 1, reset_less=True, name=f"{prefix}_{name}_base") for name in INDICES
        }
        self.turn = Signal(name=f"{prefix}_turn")

    def store(self, loop: Any) -> list[Any]:
        return [
            self.last.eq(loop.extent - 1),
            self.single.eq(loop.extent == 1),
            self.reduces.eq(loop.dst_stride == 0),
            *(self.stride[name].eq(loop[f"{name}_stride"]) for name in INDICES),
        ]

    def restart(self, used: Any) -> list[Any]:
        return [self.left.eq(self.last), self.ended.eq(self.single | ~used), self.at_zero.eq(1)]

    def advance(self) -> list[Any]:
        return [self.left.eq(self.left - 1), self.ended.eq(self.left == 1), self.at_zero.eq(0)]


def accept_instructions(
    m: Module,
    control: EngineControl,
    loops: LoopNest,
    *,
    levels: Any,
    base: dict[str, Any],
    illegal: Any = 0,
    drained: Any = 1,
) -> None:
    """Let LOOP instructions set levels and all others start ``levels`` levels at ``base``.

    A LOOP sets its level as soon as no nest runs, even while it waits: whether it starts comes late, and until it does
    nothing else starts.

    ``illegal`` says that the offered instruction, if it is not a LOOP, is refused for a reason other than its levels;
    ``drained`` that every micro-op which left the loops has been issued: a refusal waits for that.
    """
    word = control.work.payload.word
    loop = instruction_layout(loops.config, Opcode.LOOP)(word)
    is_loop = header_layout(loops.config)(word).opcode == Opcode.LOOP
    accepted = control.work.valid & control.work.ready
    m.d.comb += [
        control.instant.eq(is_loop),
        control.illegal.eq(
            Mux(is_loop, (loop.level >= LOOP_LEVELS) | (loop.extent == 0), (levels > LOOP_LEVELS) | illegal)
        ),
        control.work.ready.eq(loops.ready & (drained | ~control.illegal)),
        loops.loop.eq(loop),
        loops.set.eq(control.offered & loops.ready & is_loop),
        loops.start.eq(accepted & ~is_loop),
        loops.levels.eq(levels),
        *(loops.base[name].eq(base[name]) for name in INDICES),
    ]


def _any(bits: Iterable[Any]) -> Any:
    return Cat(*bits).any()


def _all(bits: Iterable[Any]) -> Any:
    return Cat(*bits).all()
