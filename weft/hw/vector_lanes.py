"""Arithmetic of the vector engine: one pipeline that never stalls, the same in every lane."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..roundings import FIRST_PLACES, FLOAT32, HALF_AWAY, HALF_EVEN, HALF_UP, TWO_ROUNDINGS
from .config import CoreConfig
from .isa import CLAMP_BITS, IMMEDIATE_BITS, VectorOp, multiplier_bits
from .pipelines import ADDED_STAGE, VectorStages

FLOAT32_BITS = 24
"""Significant bits of a number of float32."""

LOW_BITS = 17
"""A 32 x 25 bit product is made of a low part of 17 unsigned bits and a high part of 15: one DSP48 each."""

SHIFTER_BITS = 63
"""Widest input of the right shifter: 31 bits and 32 zeros below them, for a shift to the left."""

SHIFTED_BITS = 47
"""What the second step of the shift, of up to 15 bits, needs for 32 bits. Two more tell the sign of a product, and
whether the product goes beyond them: then it goes beyond every clamp limit too."""

SATURATED_BITS = 11
"""Enough to tell what is beyond every clamp limit, and for the bit below that rounding needs."""


HALVES = (FLOAT32, HALF_AWAY, HALF_EVEN)
"""Ways to round that send some halves down."""

KINDS = {
    "adds": (VectorOp.ADD, VectorOp.SUB, VectorOp.REQUANTISE),
    "subtracts": (VectorOp.SUB, VectorOp.MIN, VectorOp.MAX),
    "compares": (VectorOp.MIN, VectorOp.MAX),
    "takes_larger": (VectorOp.MAX,),
    "shifts": (VectorOp.SHR,),
    "doubles": (VectorOp.MUL,),
    "requantises": (VectorOp.REQUANTISE,),
    "multiplies": (VectorOp.MUL, VectorOp.MAC, VectorOp.REQUANTISE),
    "scales": (VectorOp.MUL, VectorOp.REQUANTISE),
    "accumulates": tuple(op for op in VectorOp if op.accumulates),
    "accumulates_products": (VectorOp.MAC,),
    "sums": (VectorOp.MAC, VectorOp.SUM),
    "keeps_largest": (VectorOp.MAX_ACCUMULATE,),
    "keeps_least": (VectorOp.MIN_ACCUMULATE,),
}
"""What stages ask about an operation. The answers go along with the micro-op: each drives all lanes from a register."""


def order_layout(config: CoreConfig) -> data.StructLayout:
    """What the lanes do with the operands of a micro-op."""
    rounding = {"rounding": 1} if config.rounding != HALF_UP else {}
    return data.StructLayout(
        {
            "op": 4,
            "identity": 1,  # the accumulating operation starts from its identity
            "chain": 1,  # ... or from the result of the micro-op before
            "zero_point": signed(CLAMP_BITS),
            "low": signed(CLAMP_BITS),
            "high": signed(CLAMP_BITS),
            "left_shift": 5,
            **rounding,
        }
    )


class VectorLanes(wiring.Component):
    """Results ``VectorStages.result`` cycles after ``issue``, one micro-op a cycle.

    The operand registers load in the cycle with ``load_x`` and hold what they have otherwise; a micro-op uses what they
    hold in the third cycle after its issue. ``b_data`` goes to the register for B and bias, the multiplier or the
    shift.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.stages = VectorStages.of(config)
        bits = 8 * config.acc_bytes
        super().__init__(
            {
                "issue": In(1),
                "order": In(order_layout(config)),
                "load_a": In(1),
                "load_b": In(1),
                "load_immediate": In(1),
                "load_multiplier": In(1),
                "load_shift": In(1),
                "load_d": In(1),
                "a_data": In(bits),
                "b_data": In(bits),
                "d_data": In(bits),
                "immediate": In(signed(IMMEDIATE_BITS)),
                "result_valid": Out(1),
                "result": Out(bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        orders = [_Order(f"stage{stage}", self.config) for stage in range(1, self.stages.result)]
        valid: Any = self.issue
        content: Any = self.order
        op: Any = Cat(Cat(self.order.op == op for op in ops).any() for ops in KINDS.values())
        for order in orders:
            m.d.sync += order.valid.eq(valid)
            with m.If(valid):
                m.d.sync += [order.content.eq(content), order.op.as_value().eq(op)]
            valid, content, op = order.valid, order.content, order.op.as_value()
        m.d.sync += self.result_valid.eq(valid)
        by_stage = dict(enumerate(orders, 1))
        rounds = by_stage[self.stages.narrow + 1]
        with m.If(rounds.valid):  # for all lanes at once, before they clamp
            m.d.sync += by_stage[self.stages.narrow + 2].content.low.eq(rounds.floor)
        for number in range(self.config.lanes):
            lane = _Lane(m, number, by_stage, self.config)
            part = slice(32 * number, 32 * number + 32)
            lane.load(self, part)
            lane.prepare()
            lane.multiply()
            if self.config.rounding == FLOAT32:
                lane.round_factor()
                lane.round_product()
            if self.config.rounding == TWO_ROUNDINGS:
                lane.round_first()
            lane.accumulate_or_shift()
            lane.narrow()
            m.d.comb += self.result[part].eq(lane.result)
        return m


class _Lane:
    """One lane; a register named ``x_s`` is read in stage ``s`` and loaded at the end of the stage before.

    Values have the exact width of the register that they go to and are used once where possible: then the simulated
    core computes them only in stages with a micro-op (Verilator computes shared values in every cycle).
    """

    def __init__(self, m: Module, number: int, orders: dict[int, _Order], config: CoreConfig) -> None:
        self.m = m
        self.number = number
        self.orders = orders
        self.float32 = config.rounding == FLOAT32
        self.rounding = config.rounding
        self.multiplier_bits = multiplier_bits(config)
        self.shifter_bits = max(SHIFTER_BITS, 32 + self.multiplier_bits + 1)
        self.stages = stages = VectorStages.of(config)
        register = self.register
        # Operand registers
        self.a, self.b, self.d = register("a", signed(32)), register("b", signed(32)), register("d", signed(32))
        self.multiplier, self.shift = register("multiplier", signed(self.multiplier_bits)), register("shift", 6)
        # A (or what one adder or comparison makes of A and B), the other factor, the old accumulator, the shift
        until_shift = range(ADDED_STAGE + 1, stages.shift + 1)
        self.x = {stage: register(f"x_{stage}", signed(self._x_bits(stage))) for stage in until_shift}
        until_product = range(ADDED_STAGE + 1, stages.multiply + 1)
        self.factor = {stage: register(f"factor_{stage}", signed(self.multiplier_bits)) for stage in until_product}
        self.old = {stage: register(f"old_{stage}", signed(32)) for stage in until_shift}
        self.amount = {stage: register(f"amount_{stage}", 6) for stage in until_shift}
        self.left = {stage: register(f"left_{stage}", 1) for stage in until_shift}
        with_product = range(stages.multiply + 2, stages.shift + 1)
        product_bits = 32 + self.multiplier_bits
        self.product = {stage: register(f"product_{stage}", signed(product_bits)) for stage in with_product}
        self.wide = register(f"wide_{stages.narrow}", signed(SHIFTED_BITS + 2))
        self.result = register(f"value_{stages.result}", signed(32))

    def _x_bits(self, stage: int) -> int:
        """What is rounded to float32 may be 2^31."""
        return 33 if self.float32 and stage == self.stages.multiply else 32

    def register(self, name: str, shape: Any) -> Signal:
        return Signal(shape, reset_less=True, name=f"lane{self.number}_{name}")

    def wire(self, name: str, shape: Any) -> Signal:
        return Signal(shape, name=f"lane{self.number}_{name}")

    def load(self, ports: VectorLanes, part: slice) -> None:
        """Operand registers take what their read port shows."""
        m = self.m
        with m.If(ports.load_a):
            m.d.sync += self.a.eq(ports.a_data[part])
        with m.If(ports.load_immediate):
            m.d.sync += self.b.eq(ports.immediate)
        with m.Elif(ports.load_b):
            m.d.sync += self.b.eq(ports.b_data[part])
        with m.If(ports.load_multiplier):
            m.d.sync += self.multiplier.eq(ports.b_data[part])
        with m.If(ports.load_shift):
            m.d.sync += self.shift.eq(ports.b_data[part])
        with m.If(ports.load_d):
            m.d.sync += self.d.eq(ports.d_data[part])

    def prepare(self) -> None:
        """What needs one adder or one comparison is done here; the others prepare."""
        m, order, op = self.m, self.orders[ADDED_STAGE], self.orders[ADDED_STAGE].op
        after = ADDED_STAGE + 1
        a, b = self.a, self.b
        number = b if self.multiplier_bits == IMMEDIATE_BITS else b[:IMMEDIATE_BITS].as_signed()
        added = _add(a, b, minus=op.subtracts)
        chosen = Mux(added[-1] ^ op.takes_larger, a, b)
        right_amount = Mux(b[5:31].any(), 31, b[:5])
        left_amount = Mux(b[5:31].all(), b[:5], 0)  # 32 + b: a shift to the right, with 32 zeros appended
        # A product has a zero appended until it is shifted.
        shift_amount = Mux(op.shifts, Mux(b[31], left_amount, right_amount), op.doubles)
        with m.If(order.valid):
            m.d.sync += [
                self.x[after].eq(Mux(op.adds, added[:32], Mux(op.compares, chosen, a))),
                self.factor[after].eq(Mux(op.requantises, self.multiplier, number)),
                self.amount[after].eq(Mux(op.requantises, self.shift, shift_amount)),
                self.left[after].eq(op.shifts & b[31]),
                self.old[after].eq(Mux(order.content.identity, order.identity, self.d)),
            ]

    def multiply(self) -> None:
        """Two partial products, and their sum."""
        m, stage = self.m, self.stages.multiply
        x, factor = self.x[stage], self.factor[stage]
        low = self.register(f"low_{stage + 1}", signed(LOW_BITS + self.multiplier_bits))
        high = self.register(f"high_{stage + 1}", signed(len(x) - LOW_BITS + self.multiplier_bits))
        for carried in range(ADDED_STAGE + 1, self.stages.shift):
            with m.If(self.orders[carried].valid):
                for values in (self.x, self.old, self.amount, self.left):
                    m.d.sync += values[carried + 1].eq(values[carried])
        multiplies = self.orders[stage].valid & self.orders[stage].op.multiplies
        with m.If(multiplies):
            m.d.sync += [
                low.eq(x[:LOW_BITS] * factor),
                high.eq(x[LOW_BITS:].as_signed() * factor),
            ]
        with m.If(self.orders[stage + 1].valid & self.orders[stage + 1].op.multiplies):
            m.d.sync += self.product[stage + 2].eq((high << LOW_BITS) + low)

    def round_factor(self) -> None:
        """Before the product: the biased sum as float32 has it."""
        m, stage = self.m, self.stages.multiply - 1
        order, x = self.orders[stage], self.x[stage]
        with m.If(order.valid):
            m.d.sync += self.factor[stage + 1].eq(self.factor[stage])
            with m.If(order.rounds_otherwise):
                m.d.sync += self.x[stage + 1].eq(_without(x, _insignificant(x)))

    def round_product(self) -> None:
        """Behind the product: which of its bits float32 does not hold, then what it makes of them."""
        m, stage = self.m, self.stages.shift - 2
        insignificant = _insignificant(self.product[stage])
        dropped = self.register(f"dropped_{stage + 1}", len(insignificant))
        with m.If(self.orders[stage].valid):
            rounds = self.orders[stage].rounds_otherwise
            m.d.sync += [
                self.product[stage + 1].eq(self.product[stage]),
                dropped.eq(Mux(rounds, insignificant, 0)),
            ]
        with m.If(self.orders[stage + 1].valid):
            m.d.sync += self.product[stage + 2].eq(_without(self.product[stage + 1], dropped))

    def round_first(self) -> None:
        """Behind the product: rounded to a multiple of 2^31 and then away from zero, it is half such a multiple further
        away, rounded once. Shifts of up to 31 bits are all in the first rounding."""
        m, stage = self.m, self.stages.shift - 1
        order, product = self.orders[stage], self.product[stage]
        half = Mux(product[-1], -(1 << FIRST_PLACES - 1), 1 << FIRST_PLACES - 1)
        beyond = order.rounds_otherwise & self.amount[stage][-1]
        with m.If(order.valid):
            m.d.sync += self.product[stage + 1].eq(product + Mux(beyond, half, 0))

    def accumulate_or_shift(self) -> None:
        """Accumulate, with the last result at hand; or shift to the right, in two steps."""
        m, stage = self.m, self.stages.shift
        order, op, then = self.orders[stage], self.orders[stage].op, self.orders[stage + 1]
        x, product, amount = self.x[stage], self.product[stage], self.amount[stage]
        total, fine = self.register(f"sum_{stage + 1}", signed(32)), self.register(f"amount_{stage + 1}", 4)
        between = self.register(f"wide_{stage + 1}", signed(SHIFTED_BITS + 2))
        term, old = self.wire("term", signed(32)), self.wire("old", signed(32))
        m.d.comb += [
            term.eq(Mux(op.accumulates_products, product[:32], x)),
            old.eq(Mux(order.content.chain, total, self.old[stage])),
        ]
        added = _add(old, term, minus=~op.sums)
        least_or_most = Mux(added[-1] ^ op.keeps_largest, old, term)
        # Products are doubled, so that the bit which rounding looks at is still there after the shift.
        doubled = product << 1
        wide = Mux(
            op.scales,
            doubled,
            Mux(self.left[stage], Cat(Const(0, 32), x[:31]).as_signed(), x),
        )
        coarse = (wide[: self.shifter_bits].as_signed() >> Cat(Const(0, 4), amount[4:]))[:SHIFTED_BITS]
        too_large = ~amount[4:].any() & doubled[SHIFTED_BITS - 1 :].any() & ~doubled[SHIFTED_BITS - 1 :].all()
        beyond = doubled[SHIFTED_BITS + 15 :]
        if len(beyond):  # still after the first step
            too_large = too_large | ((amount[4:] == 1) & beyond.any() & ~beyond.all())
        with m.If(order.valid):
            with m.If(op.accumulates):
                m.d.sync += total.eq(Mux(op.sums, added[:32].as_signed(), least_or_most))
            with m.Else():
                m.d.sync += [
                    between.eq(Cat(coarse, product[-1] ^ too_large, product[-1])),
                    fine.eq(amount[:4]),
                ]
        with m.If(then.valid):
            m.d.sync += self.wide.eq(Mux(then.op.accumulates, total, between >> fine))
        if self.rounding in HALVES:
            # Whether anything but zeros leaves on the way: then half is no half.
            left_early, self.inexact = self.register("left_early", 1), self.register("inexact", 1)
            with m.If(order.valid):
                m.d.sync += left_early.eq(_leaves(doubled, Cat(Const(0, 4), amount[4:]), SHIFTER_BITS, 16))
            with m.If(then.valid):
                m.d.sync += self.inexact.eq(left_early | _leaves(between, fine, 16, 1))

    def narrow(self) -> None:
        """For REQUANTISE: saturate, round and add the zero point, clamp, shift to the left."""
        m, wide, first = self.m, self.wide, self.stages.narrow
        saturates, rounds, clamps, shifts = (self.orders[first + step] for step in range(4))
        values = [self.register(f"value_{first + step}", signed(32)) for step in (1, 2, 3)]
        narrow = self.register(f"saturated_{first + 1}", signed(SATURATED_BITS))
        rounded = self.register(f"rounded_{first + 2}", signed(SATURATED_BITS))
        clamped = self.register(f"clamped_{first + 3}", signed(CLAMP_BITS))

        limit = 2 ** (SATURATED_BITS - 1)
        beyond = wide[SATURATED_BITS - 1 :]
        saturated = Mux(wide[-1], -limit, limit - 1)
        with m.If(saturates.valid):
            m.d.sync += [
                values[0].eq(wide),
                narrow.eq(Mux(beyond.any() & ~beyond.all(), saturated, wide[:SATURATED_BITS].as_signed())),
            ]
        rounding: Any = Const(1, 1)
        if self.rounding in HALVES:
            # Half of an even number goes down to it, or half of a negative one does.
            rounding = rounds_up = self.register("rounds_up", 1)
            goes_down = wide[-1] if self.rounding == HALF_AWAY else ~wide[1]
            with m.If(saturates.valid):
                half_down = wide[0] & goes_down & ~self.inexact
                m.d.sync += rounds_up.eq(~(saturates.rounds_otherwise & half_down))
        addend = Cat(rounding, rounds.content.zero_point).as_signed()  # 2 * zero_point, + 1 to round
        with m.If(rounds.valid):
            m.d.sync += [values[1].eq(values[0]), rounded.eq((narrow + addend)[1:])]
        low, high = clamps.content.low, clamps.content.high
        raised = Mux(rounded < low, low, rounded[:CLAMP_BITS].as_signed())
        with m.If(clamps.valid):
            m.d.sync += [values[2].eq(values[1]), clamped.eq(Mux(rounded > high, high, raised))]
        shifted = (clamped << shifts.content.left_shift)[:32].as_signed()
        with m.If(shifts.valid):
            m.d.sync += self.result.eq(Mux(shifts.op.requantises, shifted, values[2]))


def _add(a: Value, b: Value, *, minus: Value) -> Value:
    """``a + b`` or ``a - b`` of two signed 32-bit values, 33 bits: one adder, its carry enters through a bit below."""
    second = Mux(minus, ~b, b)
    return (Cat(Const(1, 1), a).as_signed() + Cat(minus, second).as_signed())[1:]


def _insignificant(value: Value) -> Value:
    """Ones at the bits of a signed number that are none of its :data:`FLOAT32_BITS` significant ones. Of a negative one
    these are counted in its complement: for a power of two, which needs no rounding, that is one less."""
    magnitude = (value ^ value[-1].replicate(len(value)))[:-1]
    return Cat(magnitude[bit:].any() for bit in range(FLOAT32_BITS, len(magnitude)))


def _without(value: Value, dropped: Value) -> Value:
    """``value`` rounded, halves to even, so that the lowest bits ``dropped``, as ones, become zeros."""
    lowest_kept = Cat(Const(0, 1), dropped) & ~Cat(dropped, Const(0, 1))  # none where nothing is dropped
    odd = (value[: len(lowest_kept)] & lowest_kept).any()
    raised = (Cat(Const(1, 1), value).as_signed() + Cat(odd, dropped[1:]))[
        1:
    ]  # less than half, and what makes odd even
    return Cat(raised[: len(dropped)] & ~dropped, raised[len(dropped) :]).as_signed()


def _leaves(value: Value, amount: Value, width: int, step: int) -> Value:
    """Whether a shift to the right by ``amount``, a multiple of ``step``, loses ones."""
    lost = Cat(value[:place].any() for place in range(0, width, step))
    return lost.bit_select(amount[step.bit_length() - 1 :], 1)


class _Order:
    """A micro-op's order in one stage."""

    def __init__(self, name: str, config: CoreConfig) -> None:
        self.valid = Signal(name=f"{name}_valid")
        self.content = Signal(order_layout(config), reset_less=True, name=f"{name}_order")
        self.op = Signal(data.StructLayout(dict.fromkeys(KINDS, 1)), reset_less=True, name=f"{name}_op")

    @property
    def rounds_otherwise(self) -> Any:
        """Whether it is a REQUANTISE in the mode that the core has beside half up."""
        return self.op.requantises & self.content.rounding

    @property
    def identity(self) -> Any:
        """What the accumulating operation starts from: 0, or the least or the largest number."""
        return Cat(self.op.keeps_least.replicate(31), self.op.keeps_largest)

    @property
    def floor(self) -> Any:
        """Lower clamp limit, which gives way to the upper one."""
        return Mux(self.content.low > self.content.high, self.content.high, self.content.low)
