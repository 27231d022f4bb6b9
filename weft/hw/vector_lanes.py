"""Arithmetic of the vector engine: one pipeline that never stalls, the same in every lane."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .config import CoreConfig
from .isa import CLAMP_BITS, IMMEDIATE_BITS, VectorOp

RESULT_STAGE = 12
"""Cycles from the issue of a micro-op until its result stands at the output."""

LOW_BITS = 17
"""A 32 x 25 bit product is made of a low part of 17 unsigned bits and a high part of 15: one DSP48 each."""

SHIFTER_BITS = 63
"""Widest input of the right shifter: 31 bits and 32 zeros below them, for a shift to the left."""

SHIFTED_BITS = 47
"""What the second step of the shift, of up to 15 bits, needs for 32 bits. Two more tell the sign of a product, and
whether the product goes beyond them: then it goes beyond every clamp limit too."""

SATURATED_BITS = 11
"""Enough to tell what is beyond every clamp limit, and for the bit below that rounding needs."""


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


def order_layout() -> data.StructLayout:
    """What the lanes do with the operands of a micro-op."""
    return data.StructLayout(
        {
            "op": 4,
            "identity": 1,  # the accumulating operation starts from its identity
            "chain": 1,  # ... or from the result of the micro-op before
            "zero_point": signed(CLAMP_BITS),
            "low": signed(CLAMP_BITS),
            "high": signed(CLAMP_BITS),
            "left_shift": 5,
        }
    )


class VectorLanes(wiring.Component):
    """Results :data:`RESULT_STAGE` cycles after ``issue``, one micro-op a cycle.

    The operand registers load in the cycle with ``load_x`` and hold what they have otherwise; a micro-op uses what they
    hold in the third cycle after its issue. ``b_data`` goes to the register for B and bias, the multiplier or the
    shift.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        bits = 8 * config.acc_bytes
        super().__init__(
            {
                "issue": In(1),
                "order": In(order_layout()),
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
        orders = [_Order(f"stage{stage}") for stage in range(1, RESULT_STAGE)]
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
        with m.If(by_stage[9].valid):  # for all lanes at once, before they clamp
            m.d.sync += by_stage[10].content.low.eq(by_stage[9].floor)
        for number in range(self.config.lanes):
            lane = _Lane(m, number, by_stage)
            part = slice(32 * number, 32 * number + 32)
            lane.load(self, part)
            lane.prepare()
            lane.multiply()
            lane.accumulate_or_shift()
            lane.narrow()
            m.d.comb += self.result[part].eq(lane.result)
        return m


class _Lane:
    """One lane; a register named ``x_s`` is read in stage ``s`` and loaded at the end of the stage before.

    Values have the exact width of the register that they go to and are used once where possible: then the simulated
    core computes them only in stages with a micro-op (Verilator computes shared values in every cycle).
    """

    def __init__(self, m: Module, number: int, orders: dict[int, _Order]) -> None:
        self.m = m
        self.number = number
        self.orders = orders
        register = self.register
        # Operand registers
        self.a, self.b, self.d = register("a", signed(32)), register("b", signed(32)), register("d", signed(32))
        self.multiplier, self.shift = register("multiplier", signed(IMMEDIATE_BITS)), register("shift", 6)
        # A (or what one adder or comparison makes of A and B), the other factor, the old accumulator, the shift
        self.x = {stage: register(f"x_{stage}", signed(32)) for stage in (4, 5, 6)}
        self.factor_4 = register("factor_4", signed(IMMEDIATE_BITS))
        self.old = {stage: register(f"old_{stage}", signed(32)) for stage in (4, 5, 6)}
        self.amount = {stage: register(f"amount_{stage}", 6) for stage in (4, 5, 6)}
        self.left = {stage: register(f"left_{stage}", 1) for stage in (4, 5, 6)}
        self.product_6 = register("product_6", signed(32 + IMMEDIATE_BITS))
        self.wide_8 = register("wide_8", signed(SHIFTED_BITS + 2))
        self.result = register("value_12", signed(32))

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
        """Stage 3: what needs one adder or one comparison is done here; the others prepare."""
        m, order, op = self.m, self.orders[3], self.orders[3].op
        a, b = self.a, self.b
        added = _add(a, b, minus=op.subtracts)
        chosen = Mux(added[-1] ^ op.takes_larger, a, b)
        right_amount = Mux(b[5:31].any(), 31, b[:5])
        left_amount = Mux(b[5:31].all(), b[:5], 0)  # 32 + b: a shift to the right, with 32 zeros appended
        # A product has a zero appended until it is shifted.
        shift_amount = Mux(op.shifts, Mux(b[31], left_amount, right_amount), op.doubles)
        with m.If(order.valid):
            m.d.sync += [
                self.x[4].eq(Mux(op.adds, added[:32], Mux(op.compares, chosen, a))),
                self.factor_4.eq(Mux(op.requantises, self.multiplier, b)),
                self.amount[4].eq(Mux(op.requantises, self.shift, shift_amount)),
                self.left[4].eq(op.shifts & b[31]),
                self.old[4].eq(Mux(order.content.identity, order.identity, self.d)),
            ]

    def multiply(self) -> None:
        """Stages 4 and 5: two partial products, and their sum."""
        m = self.m
        low_5 = self.register("low_5", signed(LOW_BITS + IMMEDIATE_BITS))
        high_5 = self.register("high_5", signed(32 - LOW_BITS + IMMEDIATE_BITS))
        for stage in (4, 5):
            with m.If(self.orders[stage].valid):
                for values in (self.x, self.old, self.amount, self.left):
                    m.d.sync += values[stage + 1].eq(values[stage])
        with m.If(self.orders[4].valid & self.orders[4].op.multiplies):
            m.d.sync += [
                low_5.eq(self.x[4][:LOW_BITS] * self.factor_4),
                high_5.eq(self.x[4][LOW_BITS:].as_signed() * self.factor_4),
            ]
        with m.If(self.orders[5].valid & self.orders[5].op.multiplies):
            m.d.sync += self.product_6.eq((high_5 << LOW_BITS) + low_5)

    def accumulate_or_shift(self) -> None:
        """Stages 6 and 7: accumulate, with the last result at hand; or shift to the right, in two steps."""
        m, order, op = self.m, self.orders[6], self.orders[6].op
        x, product, amount = self.x[6], self.product_6, self.amount[6]
        sum_7, amount_7 = self.register("sum_7", signed(32)), self.register("amount_7", 4)
        wide_7 = self.register("wide_7", signed(SHIFTED_BITS + 2))
        term, old = self.wire("term", signed(32)), self.wire("old", signed(32))
        m.d.comb += [
            term.eq(Mux(op.accumulates_products, product[:32], x)),
            old.eq(Mux(order.content.chain, sum_7, self.old[6])),
        ]
        added = _add(old, term, minus=~op.sums)
        least_or_most = Mux(added[-1] ^ op.keeps_largest, old, term)
        # Products are doubled, so that the bit which rounding looks at is still there after the shift.
        doubled = product << 1
        wide = Mux(
            op.scales,
            doubled,
            Mux(self.left[6], Cat(Const(0, 32), x[:31]).as_signed(), x),
        )
        coarse = (wide[:SHIFTER_BITS].as_signed() >> Cat(Const(0, 4), amount[4:]))[:SHIFTED_BITS]
        too_large = ~amount[4:].any() & doubled[SHIFTED_BITS - 1 :].any() & ~doubled[SHIFTED_BITS - 1 :].all()
        with m.If(order.valid):
            with m.If(op.accumulates):
                m.d.sync += sum_7.eq(Mux(op.sums, added[:32].as_signed(), least_or_most))
            with m.Else():
                m.d.sync += [
                    wide_7.eq(Cat(coarse, product[-1] ^ too_large, product[-1])),
                    amount_7.eq(amount[:4]),
                ]
        with m.If(self.orders[7].valid):
            m.d.sync += self.wide_8.eq(Mux(self.orders[7].op.accumulates, sum_7, wide_7 >> amount_7))

    def narrow(self) -> None:
        """Stages 8 to 11, for REQUANTISE: saturate, round and add the zero point, clamp, shift to the left."""
        m, orders, wide = self.m, self.orders, self.wide_8
        value = {stage: self.register(f"value_{stage}", signed(32)) for stage in (9, 10, 11)}
        saturated_9 = self.register("saturated_9", signed(SATURATED_BITS))
        rounded_10 = self.register("rounded_10", signed(SATURATED_BITS))
        clamped_11 = self.register("clamped_11", signed(CLAMP_BITS))

        limit = 2 ** (SATURATED_BITS - 1)
        beyond = wide[SATURATED_BITS - 1 :]
        saturated = Mux(wide[-1], -limit, limit - 1)
        with m.If(orders[8].valid):
            m.d.sync += [
                value[9].eq(wide),
                saturated_9.eq(Mux(beyond.any() & ~beyond.all(), saturated, wide[:SATURATED_BITS].as_signed())),
            ]
        addend = Cat(Const(1, 1), orders[9].content.zero_point).as_signed()  # 2 * zero_point, + 1 to round
        with m.If(orders[9].valid):
            m.d.sync += [value[10].eq(value[9]), rounded_10.eq((saturated_9 + addend)[1:])]
        low, high = orders[10].content.low, orders[10].content.high
        raised = Mux(rounded_10 < low, low, rounded_10[:CLAMP_BITS].as_signed())
        with m.If(orders[10].valid):
            m.d.sync += [value[11].eq(value[10]), clamped_11.eq(Mux(rounded_10 > high, high, raised))]
        shifted = (clamped_11 << orders[11].content.left_shift)[:32].as_signed()
        with m.If(orders[11].valid):
            m.d.sync += self.result.eq(Mux(orders[11].op.requantises, shifted, value[11]))


def _add(a: Value, b: Value, *, minus: Value) -> Value:
    """``a + b`` or ``a - b`` of two signed 32-bit values, 33 bits: one adder, its carry enters through a bit below."""
    second = Mux(minus, ~b, b)
    return (Cat(Const(1, 1), a).as_signed() + Cat(minus, second).as_signed())[1:]


class _Order:
    """A micro-op's order in one stage."""

    def __init__(self, name: str) -> None:
        self.valid = Signal(name=f"{name}_valid")
        self.content = Signal(order_layout(), reset_less=True, name=f"{name}_order")
        self.op = Signal(data.StructLayout(dict.fromkeys(KINDS, 1)), reset_less=True, name=f"{name}_op")

    @property
    def identity(self) -> Any:
        """What the accumulating operation starts from: 0, or the least or the largest number."""
        return Cat(self.op.keeps_least.replicate(31), self.op.keeps_largest)

    @property
    def floor(self) -> Any:
        """Lower clamp limit, which gives way to the upper one."""
        return Mux(self.content.low > self.content.high, self.content.high, self.content.low)
