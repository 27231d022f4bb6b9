"""Arithmetic of the vector engine: one pipeline that never stalls, the same in every lane."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .config import CoreConfig
from .isa import CLAMP_BITS, IMMEDIATE_BITS, VectorOp

OPERANDS_STAGE = 3
"""Cycles from the issue of a micro-op until its operands stand in the operand registers."""

RESULT_STAGE = 12
"""Cycles from the issue of a micro-op until its result stands at the output."""

LOW_BITS = 17
"""A 32 x 25 bit product is made of a low part of 17 unsigned bits and a high part of 15: one DSP48 each."""

SHIFTER_BITS = 63
"""Widest input of the right shifter: 31 bits and 32 zeros below them, for a shift to the left."""

SATURATED_BITS = 12
"""Enough to tell what is beyond every clamp limit, and for the bit below that rounding needs."""


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

    The operand registers load in the cycle with ``load_x`` and hold what they have otherwise; a micro-op uses what they hold
    :data:`OPERANDS_STAGE` cycles after its issue. ``b_data`` goes to the register for B and bias, the multiplier or the shift.
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
        for order in orders:
            m.d.sync += order.valid.eq(valid)
            with m.If(valid):
                m.d.sync += order.content.eq(content)
            valid, content = order.valid, order.content
        m.d.sync += self.result_valid.eq(valid)
        by_stage = {stage: order for stage, order in enumerate(orders, 1)}
        for lane in range(self.config.lanes):
            self._lane(m, lane, by_stage)
        return m

    def _lane(self, m: Module, lane: int, orders: dict[int, _Order]) -> None:
        """The stages of one lane; a register named ``x_s`` is read in stage ``s`` and loaded at the end of the one before."""

        def register(name: str, shape: Any) -> Signal:
            return Signal(shape, reset_less=True, name=f"lane{lane}_{name}")

        part = slice(32 * lane, 32 * lane + 32)
        a, b, d = register("a", signed(32)), register("b", signed(32)), register("d", signed(32))
        multiplier, shift = register("multiplier", signed(IMMEDIATE_BITS)), register("shift", 6)
        with m.If(self.load_a):
            m.d.sync += a.eq(self.a_data[part])
        with m.If(self.load_immediate):
            m.d.sync += b.eq(self.immediate)
        with m.Elif(self.load_b):
            m.d.sync += b.eq(self.b_data[part])
        with m.If(self.load_multiplier):
            m.d.sync += multiplier.eq(self.b_data[part])
        with m.If(self.load_shift):
            m.d.sync += shift.eq(self.b_data[part])
        with m.If(self.load_d):
            m.d.sync += d.eq(self.d_data[part])

        # 3: what needs one adder or one comparison is done here; the others prepare
        order = orders[3]
        x_4, factor_4, d_4 = register("x_4", signed(32)), register("factor_4", signed(25)), register("d_4", signed(32))
        amount_4, left_4 = register("amount_4", 6), register("left_4", 1)
        right_amount = Mux(b[5:31].any(), 31, b[:5])
        left_amount = Mux(b[5:31].all(), b[:5], 0)  # 32 + b: the shift to the right of 32 zeros appended
        with m.If(order.valid):
            m.d.sync += [
                factor_4.eq(Mux(order.op == VectorOp.REQUANTISE, multiplier, b)),
                amount_4.eq(Mux(b[31], left_amount, right_amount)),
                left_4.eq(b[31]),
                d_4.eq(d),
            ]
            with m.If(order.content.identity):
                with m.Switch(order.op):
                    with m.Case(VectorOp.MIN_ACCUMULATE):
                        m.d.sync += d_4.eq(2**31 - 1)
                    with m.Case(VectorOp.MAX_ACCUMULATE):
                        m.d.sync += d_4.eq(-(2**31))
                    with m.Default():
                        m.d.sync += d_4.eq(0)
            with m.Switch(order.op):
                with m.Case(VectorOp.ADD):
                    m.d.sync += x_4.eq(a + b)
                with m.Case(VectorOp.SUB):
                    m.d.sync += x_4.eq(a - b)
                with m.Case(VectorOp.MIN):
                    m.d.sync += x_4.eq(Mux(a < b, a, b))
                with m.Case(VectorOp.MAX):
                    m.d.sync += x_4.eq(Mux(a < b, b, a))
                with m.Case(VectorOp.REQUANTISE):
                    m.d.sync += [x_4.eq(a + b), amount_4.eq(shift)]
                with m.Default():
                    m.d.sync += x_4.eq(a)

        # 4: two partial products
        order = orders[4]
        low_5 = register("low_5", signed(LOW_BITS + 1 + IMMEDIATE_BITS))
        high_5 = register("high_5", signed(32 - LOW_BITS + IMMEDIATE_BITS))
        x_5, d_5, amount_5, left_5 = (
            register("x_5", signed(32)), register("d_5", signed(32)), register("amount_5", 6), register("left_5", 1),
        )  # fmt: skip
        with m.If(order.valid):
            m.d.sync += [x_5.eq(x_4), d_5.eq(d_4), amount_5.eq(amount_4), left_5.eq(left_4)]
            with m.If(order.multiplies):
                m.d.sync += [low_5.eq(x_4[:LOW_BITS] * factor_4), high_5.eq(x_4[LOW_BITS:].as_signed() * factor_4)]

        # 5: the product
        order = orders[5]
        product_6 = register("product_6", signed(32 + IMMEDIATE_BITS))
        x_6, d_6, amount_6, left_6 = (
            register("x_6", signed(32)), register("d_6", signed(32)), register("amount_6", 6), register("left_6", 1),
        )  # fmt: skip
        with m.If(order.valid):
            m.d.sync += [x_6.eq(x_5), d_6.eq(d_5), amount_6.eq(amount_5), left_6.eq(left_5)]
            with m.If(order.multiplies):
                m.d.sync += product_6.eq((high_5 << LOW_BITS) + low_5)

        # 6: accumulate, with the last result at hand; or the first part of the shift
        order = orders[6]
        sum_7, amount_7, wide_7 = register("sum_7", signed(32)), register("amount_7", 4), register("wide_7", signed(63))
        term, old = Signal(signed(32), name=f"lane{lane}_term"), Signal(signed(32), name=f"lane{lane}_old")
        wide, coarse = Signal(signed(SHIFTER_BITS), name=f"lane{lane}_wide"), Signal(6, name=f"lane{lane}_coarse")
        m.d.comb += [
            term.eq(Mux(order.op == VectorOp.MAC, product_6, x_6)),
            old.eq(Mux(order.content.chain, sum_7, d_6)),
            wide.eq(x_6),
        ]
        with m.Switch(order.op):
            with m.Case(VectorOp.REQUANTISE):
                # One bit more than the product: after the shift it is the bit that rounding looks at.
                m.d.comb += [wide.eq(product_6 << 1), coarse.eq(Cat(0, 0, 0, 0, amount_6[4:]))]
            with m.Case(VectorOp.MUL):
                m.d.comb += wide.eq(product_6)
            with m.Case(VectorOp.SHR):
                m.d.comb += coarse.eq(Cat(0, 0, 0, 0, amount_6[4:]))
                with m.If(left_6):
                    m.d.comb += wide.eq(Cat(Const(0, 32), x_6[:31]))
        with m.If(order.valid):
            with m.Switch(order.op):
                with m.Case(VectorOp.MAC, VectorOp.SUM):
                    m.d.sync += sum_7.eq(old + term)
                with m.Case(VectorOp.MIN_ACCUMULATE):
                    m.d.sync += sum_7.eq(Mux(old < term, old, term))
                with m.Case(VectorOp.MAX_ACCUMULATE):
                    m.d.sync += sum_7.eq(Mux(old < term, term, old))
                with m.Default():
                    m.d.sync += [
                        wide_7.eq(wide >> coarse),
                        amount_7.eq(Mux(order.shifts, amount_6[:4], 0)),
                    ]

        # 7: the rest of the shift
        order = orders[7]
        wide_8 = register("wide_8", signed(SHIFTER_BITS))
        with m.If(order.valid):
            m.d.sync += wide_8.eq(Mux(order.accumulates, sum_7, wide_7 >> amount_7))

        # 8 to 11 are for REQUANTISE: saturate, round and add the zero point, clamp, shift left
        order = orders[8]
        value_9, value_10, value_11, value_12 = (register(f"value_{stage}", signed(32)) for stage in range(9, 13))
        limit = 2 ** (SATURATED_BITS - 1)
        fits = _is_sign_extension(wide_8[SATURATED_BITS - 1 :])
        with m.If(order.valid):
            m.d.sync += value_9.eq(wide_8)
            with m.If((order.op == VectorOp.REQUANTISE) & ~fits):
                m.d.sync += value_9.eq(Mux(wide_8[-1], -limit, limit - 1))

        order = orders[9]
        with m.If(order.valid):
            m.d.sync += value_10.eq(value_9)
            with m.If(order.op == VectorOp.REQUANTISE):
                small = value_9[:SATURATED_BITS].as_signed()
                m.d.sync += value_10.eq((small + Cat(1, order.content.zero_point).as_signed()) >> 1)

        order = orders[10]
        with m.If(order.valid):
            m.d.sync += value_11.eq(value_10)
            with m.If(order.op == VectorOp.REQUANTISE):
                small = value_10[: SATURATED_BITS + 1].as_signed()
                raised = Mux(small < order.content.low, order.content.low, small)
                m.d.sync += value_11.eq(Mux(raised > order.content.high, order.content.high, raised))

        order = orders[11]
        with m.If(order.valid):
            m.d.sync += value_12.eq(value_11)
            with m.If(order.op == VectorOp.REQUANTISE):
                m.d.sync += value_12.eq(value_11 << order.content.left_shift)
        m.d.comb += self.result[part].eq(value_12)


class _Order:
    """A micro-op's order in one stage."""

    def __init__(self, name: str) -> None:
        self.valid = Signal(name=f"{name}_valid")
        self.content = Signal(order_layout(), reset_less=True, name=f"{name}_order")

    @property
    def op(self) -> Any:
        return self.content.op

    @property
    def multiplies(self) -> Any:
        return (self.op == VectorOp.MUL) | (self.op == VectorOp.MAC) | (self.op == VectorOp.REQUANTISE)

    @property
    def shifts(self) -> Any:
        return (self.op == VectorOp.SHR) | (self.op == VectorOp.REQUANTISE)

    @property
    def accumulates(self) -> Any:
        return self.op[3]


def _is_sign_extension(bits: Any) -> Any:
    return bits.all() | ~bits.any()
