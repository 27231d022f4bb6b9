"""Operand fetch of the vector engine: what a micro-op has to read, and its issue once all of that is on its way."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .config import CoreConfig
from .isa import IMMEDIATE_BITS, VectorOp
from .loops import micro_op_layout
from .memories import Memory
from .pipelines import NUMBER_BITS, slots_of
from .vector_lanes import order_layout
from .vector_results import DISTANCES, QUERIES, destination_layout, target_members

PARAMETERS = VectorOp.REQUANTISE.b_entries
"""Consecutive entries that REQUANTISE reads at ``b``: bias, multiplier, shift."""


def task_layout(config: CoreConfig) -> data.StructLayout:
    """What a VECTOR instruction says about each of its micro-ops."""
    return data.StructLayout(
        {
            "order": order_layout(config),
            "number": NUMBER_BITS,
            "immediate": signed(IMMEDIATE_BITS),
            "b_immediate": 1,
            "b_entry": 1,  # B is read from acc
            "b_parameters": 1,  # ... and so are the two entries after it
            "accumulates": 1,
            "zero": 1,
            **target_members(config),
        }
    )


class RequestSignature(wiring.Signature):
    """The control half of an arbitrated scratchpad read."""

    def __init__(self, index_bits: int) -> None:
        super().__init__({"enable": Out(1), "ready": In(1), "index": Out(index_bits)})


class OperandFetch(wiring.Component):
    """Takes micro-ops in order and issues each in the cycle in which the last read that it needs is granted.

    All operands of a micro-op ask for their bank in the same cycle. No read is made for an operand that its register
    still holds from the micro-op before (same instruction, same index, not overwritten since), for the destination of
    an accumulating micro-op that goes on with the result before it (``chain``) or starts from the identity, and for an
    immediate. A read waits while its entry is still to be written by an earlier micro-op.

    The requests of a micro-op come after the issue of the one before. So each operand register holds what the micro-op
    needs in the third cycle after its issue: operands granted earlier stay, those of the next micro-op arrive later.

    ``load_x``, two cycles after the grant: the operand register takes what the read port shows.

    The grants and the issue are the longest way through the core, so it starts at registers that say which reads are
    asked for, and not at what decides that.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        request, slots = RequestSignature(ceil_log2(config.acc_depth)), slots_of(config)
        super().__init__(
            {
                "micro_ops": In(stream.Signature(micro_op_layout(config))),
                "task": In(task_layout(config)),
                "halt": In(1),
                "read_a": Out(request),
                "read_b": Out(request),
                "read_d": Out(request),
                "load_a": Out(1),
                "load_b": Out(1),
                "load_immediate": Out(1),
                "load_multiplier": Out(1),
                "load_shift": Out(1),
                "load_d": Out(1),
                "immediate": Out(signed(IMMEDIATE_BITS)),
                "issue": Out(1),
                "order": Out(order_layout(config)),
                "destination": Out(destination_layout(config)),
                "newest": Out(config.index_bits).array(len(DISTANCES)),
                "room": In(1),
                "query": Out(config.index_bits).array(len(QUERIES)),
                "matches": In(slots).array(len(QUERIES)),
                "found": In(len(QUERIES)),
                "freed": In(slots),
                "occupied": Out(1),
                "outside": Out(1),
                "number": Out(NUMBER_BITS),
                "moving": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The micro-op that fetches. Its registers stay after the issue: they tell what the operand registers hold.
        occupied, outside = Signal(), Signal(reset_less=True)
        held = Signal(micro_op_layout(self.config), reset_less=True)
        task = Signal(task_layout(self.config), reset_less=True)
        operands = {name: _Operand(name, slots_of(self.config)) for name in ("a", "b", "d")}
        a, b, d = operands.values()
        parameter = Signal(range(PARAMETERS), reset_less=True)
        b_index = Signal.like(self.read_b.index, reset_less=True)

        accept, active = Signal(), Signal()
        m.d.comb += [
            active.eq(occupied & ~outside),
            self.issue.eq(active & ~self.halt & self.room & Cat(operand.got for operand in operands.values()).all()),
            accept.eq(~occupied | self.issue),
            self.micro_ops.ready.eq(accept),
            self.occupied.eq(occupied),
            self.outside.eq(occupied & outside),
            self.number.eq(task.number),
            self.destination.index.eq(held.dst),
            *(self.destination[name].eq(task[name]) for name in target_members(self.config)),
            self.destination.end.eq(held.end),
            self.order.eq(task.order),
        ]
        requests = ((a, self.read_a, held.a), (b, self.read_b, b_index), (d, self.read_d, held.dst))
        for operand, request, index in requests:
            still_blocked = operand.blocked & ~self.freed
            m.d.comb += [
                request.enable.eq(operand.asks),
                request.index.eq(index),
                operand.granted.eq(operand.asks & request.ready),
                operand.got.eq(~operand.pending | operand.granted),
            ]
            m.d.sync += [
                operand.pending.eq(~operand.got),
                operand.blocked.eq(still_blocked),
                operand.asks.eq(active & ~operand.got & ~still_blocked.any()),
            ]
        with m.If(task.b_immediate):
            m.d.comb += b.granted.eq(active & b.pending)
            m.d.sync += b.asks.eq(0)
        with m.If(task.b_parameters):
            m.d.comb += b.got.eq(~b.pending | (b.granted & (parameter == PARAMETERS - 1)))
            with m.If(b.granted):
                m.d.sync += [parameter.eq(parameter + 1), b_index.eq(b_index + 1)]
        # Reads do not look at `halt`, which comes late and would delay all grants; after it their data is of no use.
        m.d.comb += self.moving.eq(~self.halt & Cat(operand.granted for operand in operands.values()).any())

        # Whether the micro-op is taken comes late in the cycle, so nothing else waits for it.
        micro_op = self.micro_ops.payload
        for query, index in zip(self.query, (micro_op.a, *[micro_op.b] * PARAMETERS, micro_op.dst), strict=True):
            m.d.comb += query.eq(index)
        with m.If(accept):
            m.d.sync += [occupied.eq(self.micro_ops.valid), parameter.eq(0)]
            m.d.sync += [operand.asks.eq(0) for operand in operands.values()]
            with m.If(self.micro_ops.valid):
                m.d.sync += [held.eq(micro_op), task.eq(self.task), b_index.eq(micro_op.b)]
                for newest, distance in zip(self.newest, DISTANCES, strict=True):
                    m.d.sync += newest.eq(micro_op.dst - distance)
                self._plan(m, held, task, a, b, d, outside)
        self._load_operands(m, operands, task, parameter)
        return m

    def _is_outside(self) -> Any:
        """An index that the offered micro-op uses is not in its memory."""
        micro_op, task = self.micro_ops.payload, self.task
        acc_bits, inp_bits, out_bits = (
            ceil_log2(self.config.depth(memory)) for memory in (Memory.ACC, Memory.INP, Memory.OUT)
        )
        beyond_inp, beyond_out = micro_op.dst[inp_bits:].any(), micro_op.dst[out_bits:].any()
        if self.config.tables:
            tab_bits = ceil_log2(self.config.tab_depth)
            beyond_out = Mux(task.to_tab, micro_op.dst[tab_bits:].any(), beyond_out)
        return (
            Mux(task.to_acc, micro_op.dst[acc_bits:].any(), Mux(task.to_inp, beyond_inp, beyond_out))
            | micro_op.a[acc_bits:].any()
            | (task.b_entry & micro_op.b[acc_bits:].any())
            | (task.b_parameters & micro_op.b[1:acc_bits].all())  # the last entry is beyond the last but two
        )

    def _plan(
        self, m: Module, held: Any, held_task: Any, a: _Operand, b: _Operand, d: _Operand, outside: Signal
    ) -> None:
        """What the offered micro-op has to read, seen from the one before it, and what it waits for."""
        micro_op, task = self.micro_ops.payload, self.task

        def of_all_b(first: Any, *others: Any) -> Any:
            return first | Mux(task.b_parameters, others[0] | others[1], 0)

        matches_a, *matches_b, matches_d = self.matches
        found_a, *found_b, found_d = self.found
        inside = ~self._is_outside()
        identity = task.accumulates & task.zero & micro_op.first
        goes_on = ~micro_op.begin & (micro_op.dst == held.dst)
        old = task.accumulates & ~identity
        same_a = ~micro_op.begin & ~a.overwritten & (micro_op.a == held.a)
        same_b = ~micro_op.begin & ~b.overwritten & (micro_op.b == held.b)
        reads_b = task.b_entry & ~same_b
        m.d.sync += [
            outside.eq(~inside),
            a.asks.eq(inside & ~same_a & ~found_a),
            b.asks.eq(inside & reads_b & ~of_all_b(*found_b)),
            d.asks.eq(inside & old & ~goes_on & ~found_d),
            a.pending.eq(~same_a),
            a.blocked.eq(matches_a),
            a.overwritten.eq(task.to_acc & (micro_op.dst == micro_op.a)),
            b.pending.eq(reads_b | (task.b_immediate & micro_op.begin)),
            b.blocked.eq(of_all_b(*matches_b)),
            b.overwritten.eq(
                task.to_acc & of_all_b(*(micro_op.dst == micro_op.b + offset for offset in range(PARAMETERS)))
            ),
            d.pending.eq(old & ~goes_on),
            d.blocked.eq(matches_d),
            held_task.order.identity.eq(identity),
            held_task.order.chain.eq(old & goes_on),
        ]

    def _load_operands(self, m: Module, operands: dict[str, _Operand], task: Any, parameter: Signal) -> None:
        """Carry each grant along until its data is there."""
        b_granted = operands["b"].granted
        b_entry = b_granted & ~task.b_immediate
        arrivals = (
            (self.load_a, operands["a"].granted),
            (self.load_d, operands["d"].granted),
            (self.load_b, b_entry & (parameter == 0)),
            (self.load_multiplier, b_entry & (parameter == 1)),
            (self.load_shift, b_entry & (parameter == 2)),
            (self.load_immediate, b_granted & task.b_immediate),
        )
        for load, granted in arrivals:
            asked, answered = Signal(), Signal()
            m.d.sync += [asked.eq(granted), answered.eq(asked)]
            m.d.comb += load.eq(answered)
        immediates = [Signal(signed(IMMEDIATE_BITS), reset_less=True) for _ in range(2)]
        m.d.sync += [immediates[0].eq(task.immediate), immediates[1].eq(immediates[0])]
        m.d.comb += self.immediate.eq(immediates[1])


class _Operand:
    """The read of one operand by the micro-op that fetches."""

    def __init__(self, name: str, slots: int) -> None:
        self.pending = Signal(reset_less=True, name=f"{name}_pending")
        self.blocked = Signal(slots, reset_less=True, name=f"{name}_blocked")  # slots to be written first
        self.asks = Signal(name=f"{name}_asks")  # it is pending and not blocked: the port is asked for
        self.overwritten = Signal(reset_less=True, name=f"{name}_overwritten")  # by this micro-op's own result
        self.granted = Signal(name=f"{name}_granted")
        self.got = Signal(name=f"{name}_got")
