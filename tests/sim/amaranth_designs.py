"""Small designs in Amaranth, of all that the language has: what a simulator is compared on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amaranth.hdl import (
    Array,
    Cat,
    ClockDomain,
    Const,
    DomainRenamer,
    Elaboratable,
    EnableInserter,
    Module,
    Mux,
    ResetInserter,
    Signal,
    signed,
    unsigned,
)
from amaranth.lib import cdc, crc, data, enum, fifo, memory

DESIGNS: dict[str, Callable[[], Design]] = {}


class Design(Elaboratable):
    """A module that was filled at once. ``inputs`` are driven by whoever tests it, ``results`` compared."""

    def __init__(self, inputs: Sequence[Any], results: Sequence[Any], module: Module, memory: Any = None) -> None:
        self.inputs, self.results, self.module, self.memory = inputs, results, module, memory

    def elaborate(self, platform: object) -> Module:
        return self.module


def design(build: Callable[[], Design]) -> Callable[[], Design]:
    DESIGNS[build.__name__] = build
    return build


class Kind(enum.Enum, shape=3):
    NONE, ADD, SUBTRACT, SHIFT = 0, 1, 2, 5


@design
def counter() -> Design:
    m, enable, count, top = Module(), Signal(), Signal(7, init=100), Signal()
    with m.If(enable):
        m.d.sync += count.eq(count + 1)
    m.d.comb += top.eq(count.all())
    return Design([enable], [count, top], m)


@design
def saturating() -> Design:
    m, step, value = Module(), Signal(signed(4)), Signal(signed(6))
    following = Signal(signed(8))
    m.d.comb += following.eq(value + step)
    m.d.sync += value.eq(Mux(following > 31, 31, Mux(following < -32, -32, following)))
    return Design([step], [value, following], m)


@design
def signed_arithmetic() -> Design:
    m, a, b = Module(), Signal(signed(9)), Signal(signed(7))
    results = [Signal(signed(20), name=f"r{number}") for number in range(9)]
    values = [a + b, a - b, a * b, a // b, a % b, a << b[:3].as_unsigned(), a >> b[:3].as_unsigned(), -a, abs(b)]
    m.d.comb += [result.eq(value) for result, value in zip(results, values, strict=True)]
    return Design([a, b], results, m)


@design
def comparisons() -> Design:
    m, a, b = Module(), Signal(signed(5)), Signal(unsigned(5))
    bits = [a < b, a <= b, a == b, a != b, a > b, a >= b, a.any(), b.all(), a.xor(), b.bool(), ~a == b, (~a | b)[2]]
    out = Signal(len(bits))
    m.d.comb += out.eq(Cat(*bits))
    return Design([a, b], [out], m)


@design
def states() -> Design:
    m, go, stop, out = Module(), Signal(), Signal(2), Signal(4)
    with m.FSM(init="WAIT") as fsm:
        with m.State("WAIT"), m.If(go):
            m.next = "RUN"
        with m.State("RUN"):
            m.d.sync += out.eq(out + 3)
            with m.Switch(stop):
                with m.Case(1, 2):
                    m.next = "REST"
                with m.Case("11"):
                    m.next = "WAIT"
        with m.State("REST"):
            m.next = "WAIT"
    resting = Signal()
    m.d.comb += resting.eq(fsm.ongoing("REST"))
    return Design([go, stop], [out, resting], m)


@design
def patterns() -> Design:
    m, key, out = Module(), Signal(6), Signal(4)
    with m.Switch(key):
        with m.Case("0--1--"):
            m.d.comb += out.eq(1)
        with m.Case("1----1", "111000"):
            m.d.comb += out.eq(2)
        with m.Case(8):
            m.d.comb += out.eq(3)
        with m.Default():
            m.d.comb += out.eq(key[1:5])
    return Design([key], [out], m)


@design
def parts() -> Design:
    m, index, value, held = Module(), Signal(3), Signal(4), Signal(35)
    out = Signal(4)
    m.d.sync += held.word_select(index, 4).eq(value)
    m.d.comb += out.eq(held.bit_select(index, 4) ^ held[-4:])
    return Design([index, value], [held, out], m)


@design
def arrays() -> Design:
    m, index, value = Module(), Signal(2), Signal(5)
    items = Array([Signal(5, name=f"item{number}", init=number) for number in range(4)])
    out = Signal(6)
    m.d.sync += items[index].eq(value)
    m.d.comb += out.eq(items[index] + items[3])
    return Design([index, value], [*items, out], m)


@design
def structures() -> Design:
    layout = data.StructLayout({"kind": Kind, "low": 3, "high": signed(4)})
    m, word, out = Module(), Signal(layout), Signal(signed(8))
    with m.Switch(word.kind):
        with m.Case(Kind.ADD):
            m.d.sync += out.eq(out + word.high)
        with m.Case(Kind.SUBTRACT):
            m.d.sync += out.eq(out - word.low)
        with m.Case(Kind.SHIFT):
            m.d.sync += out.eq(word.high << 2)
    return Design([word.as_value()], [out], m)


@design
def wide() -> Design:
    m, value, total = Module(), Signal(70), Signal(signed(131))
    m.d.sync += total.eq((total ^ (total << 3)) + value * 3 - (value >> 60))
    low = Signal(64)
    m.d.comb += low.eq(total[60:124])
    return Design([value], [total, low], m)


@design
def pieces() -> Design:
    """A signal that several statements drive bit by bit, beside bits that nothing drives, and one without bits."""
    m, value, out, nothing = Module(), Signal(4), Signal(9, init=0x1F0), Signal(0)
    m.d.comb += [out[0].eq(value[3]), out[2:4].eq(value[:2]), nothing.eq(value)]
    return Design([value], [out, nothing], m)


@design
def odd_names() -> Design:
    m, value = Module(), Signal(5, name="class")
    first, second = Signal(5, name="a.b[0]__c$"), Signal(6, name="__x__")
    m.d.comb += first.eq(~value)
    m.d.sync += second.eq(first + value)
    return Design([value], [first, second], m)


@design
def memory_read_at_once() -> Design:
    m, address, value, write = Module(), Signal(3), Signal(7), Signal()
    m.submodules.store = store = memory.Memory(shape=7, depth=6, init=[5, 9, 100])
    reading, writing = store.read_port(domain="comb"), store.write_port()
    m.d.comb += [reading.addr.eq(address), writing.addr.eq(address ^ 1), writing.data.eq(value), writing.en.eq(write)]
    return Design([address, value, write], [reading.data], m, store.data)


@design
def memory_transparent() -> Design:
    m, address, value, write, enable = Module(), Signal(2), Signal(signed(40)), Signal(4), Signal()
    m.submodules.store = store = memory.Memory(shape=40, depth=4, init=[])
    writing = store.write_port(granularity=10)
    seen, old = store.read_port(transparent_for=[writing]), store.read_port()
    m.d.comb += [writing.addr.eq(address), writing.data.eq(value), writing.en.eq(write)]
    m.d.comb += [seen.addr.eq(address), old.addr.eq(address), seen.en.eq(enable), old.en.eq(1)]
    return Design([address, value, write, enable], [seen.data, old.data], m, store.data)


@design
def queue() -> Design:
    m, value, write, read = Module(), Signal(8), Signal(), Signal()
    m.submodules.queue = queue = fifo.SyncFIFOBuffered(width=8, depth=5)
    m.d.comb += [queue.w_data.eq(value), queue.w_en.eq(write), queue.r_en.eq(read)]
    return Design([value, write, read], [queue.r_data, queue.r_rdy, queue.w_rdy, queue.level], m)


@design
def checksum() -> Design:
    m, value, valid = Module(), Signal(8), Signal()
    m.submodules.crc = unit = crc.catalog.CRC16_CCITT_FALSE(data_width=8).create()
    m.d.comb += [unit.data.eq(value), unit.valid.eq(valid)]
    return Design([value, valid], [unit.crc], m)


@design
def gray() -> Design:
    m, count, code = Module(), Signal(5), Signal(5)
    m.d.sync += count.eq(count + 1)
    m.d.comb += code.eq(count ^ (count >> 1))
    return Design([], [count, code], m)


@design
def enabled_and_reset() -> Design:
    m, enable, reset = Module(), Signal(), Signal()
    inner, value, kept = Module(), Signal(5, init=9), Signal(5, init=3, reset_less=True)
    inner.d.sync += [value.eq(value + 1), kept.eq(kept + 2)]
    m.submodules.inner = EnableInserter(enable)(ResetInserter(reset)(inner))
    return Design([enable, reset], [value, kept], m)


@design
def falling_edge() -> Design:
    m, value, out = Module(), Signal(4), Signal(4)
    m.domains.falling = domain = ClockDomain(clk_edge="neg", local=True)
    inner, clock = Module(), Signal()
    inner.d.falling += out.eq(value)
    m.submodules.inner = inner
    m.d.comb += [domain.clk.eq(clock), domain.rst.eq(0)]
    m.d.sync += clock.eq(~clock)
    return Design([value], [out], m)


@design
def reset_at_once() -> Design:
    m, value, reset, out = Module(), Signal(4), Signal(), Signal(4, init=5)
    m.domains.own = domain = ClockDomain(async_reset=True, local=True)
    clock = Signal()
    m.d.sync += clock.eq(~clock)
    m.d.comb += [domain.clk.eq(clock), domain.rst.eq(reset)]
    m.d.own += out.eq(out + value)
    return Design([value, reset], [out], m)


@design
def crossing() -> Design:
    m, value, out = Module(), Signal(), Signal()
    m.submodules.crossing = cdc.FFSynchronizer(value, out, stages=3)
    renamed, count = Module(), Signal(4)
    renamed.d.fast += count.eq(count + out)
    m.submodules.renamed = DomainRenamer({"fast": "sync"})(renamed)
    return Design([value], [out, count], m)


@design
def constants() -> Design:
    m, out, never = Module(), Signal(8), Signal(3, init=5)
    m.d.comb += out.eq(Const(200, 8))
    with m.If(out == 1):
        m.d.sync += never.eq(0)
    return Design([], [out, never], m)
