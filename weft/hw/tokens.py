"""Counters of tokens between every ordered pair of engines."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import CoreConfig
from .interfaces import ENGINES
from .isa import Engine


class TokenMatrix(wiring.Component):
    """One counter of at most ``token_depth`` tokens for each pair (sender, receiver).

    available[e]
        Bit ``s``: engine ``e`` has a token from engine ``s``.
    take[e]
        Removes one token of each named sender, all in this cycle; they must be available.
    send[s]
        Mask of receivers; accepted, as a whole, in a cycle in which all their counters have room.
    """

    def __init__(self, config: CoreConfig) -> None:
        self._config = config
        super().__init__(
            {
                "available": Out(ENGINES).array(ENGINES),
                "take": In(ENGINES).array(ENGINES),
                "send": In(stream.Signature(ENGINES)).array(ENGINES),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self._config.token_depth
        for sender in Engine:
            full = Signal(ENGINES, name=f"full_{sender.name.lower()}")
            send = self.send[sender]
            m.d.comb += send.ready.eq(~(send.payload & full).any())
            for receiver in Engine:
                if receiver is sender:
                    continue
                count = Signal(range(depth + 1), name=f"{sender.name.lower()}_to_{receiver.name.lower()}")
                # Whether there are any: a register, because the start of an instruction begins with it.
                some = Signal(name=f"some_{sender.name.lower()}_to_{receiver.name.lower()}")
                put = Signal(name=f"put_{sender.name.lower()}_{receiver.name.lower()}")
                take = self.take[receiver][sender]
                m.d.comb += [
                    full[receiver].eq(count == depth),
                    put.eq(send.valid & send.ready & send.payload[receiver]),
                    self.available[receiver][sender].eq(some),
                ]
                with m.If(put & ~take):
                    m.d.sync += [count.eq(count + 1), some.eq(1)]
                with m.Elif(take & ~put):
                    m.d.sync += [count.eq(count - 1), some.eq(count != 1)]
        return m
