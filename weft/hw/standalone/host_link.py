"""The logic's end of the serial line: takes questions, reads and writes memory and registers, and answers."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..axi import RegisterSlaveSignature
from ..bus import REGISTER_ADDRESS_BITS, Response
from .block_memory import WORD_BYTES, HostPortSignature
from .protocol import CRC_START, CRC_TAPS, HEADER_BYTES, MAGIC, SPACE_SHIFT, WORDS, Answer, Command, LinkWord, Space


def crc_step(crc: Value, byte: Value) -> Value:
    """The CRC after one more byte."""
    bits = list(crc)
    for place in reversed(range(8)):
        feedback = bits[15] ^ byte[place]
        bits = [feedback, *bits[:15]]
        for tap in CRC_TAPS:
            bits[tap] = bits[tap] ^ feedback
    return Cat(*bits)


class HostLink(wiring.Component):
    """Speaks :mod:`.protocol`.

    received, valid
        Bytes of the host. Those that come before a question was answered are lost.
    answer
        Bytes for the host.
    memory
        The host's port to memory.
    registers
        The core's registers.

    ``silence`` is the number of cycles after which a question that has not ended is forgotten.
    """

    def __init__(self, memory_bytes: int, clock_hz: int, silence: int) -> None:
        self.memory_bytes, self.clock_hz, self.silence = memory_bytes, clock_hz, silence
        super().__init__(
            {
                "received": In(8),
                "valid": In(1),
                "answer": Out(stream.Signature(8)),
                "memory": Out(HostPortSignature(memory_bytes)),
                "registers": In(RegisterSlaveSignature()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The question: its first byte, then what follows by name, then its words in the buffer.
        command, tag, address, words = Signal(8), Signal(8), Signal(32), Signal(8)
        header = Cat(command, tag, address, words)
        last_tag, crc = Signal(8), Signal(16)
        m.submodules.buffer = buffer = Memory(shape=32, depth=WORDS, init=[])
        stored, kept = buffer.write_port(), buffer.read_port()
        count = Signal(range(max(HEADER_BYTES, WORD_BYTES * WORDS) + 1))
        word = Signal(32)
        status = Signal(8)
        silent = self._silence(m)
        index = count[2:]
        m.d.comb += kept.addr.eq(index)
        step = crc_step(crc, self.received)
        is_write = command == Command.WRITE

        for channel in ("aw", "w", "ar"):  # the states below raise it again
            with m.If(getattr(self.registers, f"{channel}ready")):
                m.d.sync += getattr(self.registers, f"{channel}valid").eq(0)

        with m.FSM():
            with m.State("COMMAND"):
                m.d.sync += [count.eq(1), crc.eq(crc_step(Value.cast(CRC_START), self.received))]
                for each in Command:
                    with m.If(self.valid & (self.received == each)):
                        m.d.sync += header.eq(Cat(header[8:], self.received))
                        m.next = "HEADER"
            with m.State("HEADER"):
                with m.If(silent):
                    m.next = "COMMAND"
                with m.If(self.valid):
                    m.d.sync += [header.eq(Cat(header[8:], self.received)), crc.eq(step), count.eq(count + 1)]
                    with m.If(count == HEADER_BYTES - 1):
                        m.d.sync += count.eq(0)
                        has_words = (header[8:16] == Command.WRITE) & (self.received <= WORDS) & (self.received != 0)
                        m.next = "CRC"
                        with m.If(has_words):
                            m.next = "WORDS"
            with m.State("WORDS"):
                m.d.comb += [stored.addr.eq(index), stored.data.eq(Cat(word[8:], self.received))]
                with m.If(silent):
                    m.next = "COMMAND"
                with m.If(self.valid):
                    m.d.sync += [word.eq(Cat(word[8:], self.received)), crc.eq(step), count.eq(count + 1)]
                    m.d.comb += stored.en.eq(count[:2] == 3)
                    with m.If((index == words - 1) & (count[:2] == 3)):
                        m.d.sync += count.eq(0)
                        m.next = "CRC"
            with m.State("CRC"):
                with m.If(silent):
                    m.next = "COMMAND"
                with m.If(self.valid):
                    m.d.sync += [crc.eq(step), count.eq(count + 1)]
                    with m.If(count[0]):
                        m.d.sync += count.eq(0)
                        m.next = "JUDGE"
            with m.State("JUDGE"):
                m.d.sync += status.eq(Answer.DONE)
                m.next = "FETCH"
                with m.If(crc != 0):
                    m.d.sync += status.eq(Answer.DAMAGED)
                    m.next = "ANSWER"
                with m.Elif((words == 0) | (words > WORDS)):
                    m.d.sync += status.eq(Answer.REFUSED)
                    m.next = "ANSWER"
                with m.Elif(is_write & (tag == last_tag)):
                    m.next = "ANSWER"
                with m.Elif(is_write):
                    m.d.sync += last_tag.eq(tag)
            with m.State("FETCH"):  # the word to write leaves the buffer
                m.next = "ACCESS"
            self._accesses(m, address, is_write, kept.data, stored, index, last_tag, status)
            with m.State("NEXT"):
                m.d.sync += [address.eq(address + WORD_BYTES), count.eq(count + WORD_BYTES)]
                m.next = "FETCH"
                with m.If((index == words - 1) | (status != Answer.DONE)):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += [self.answer.payload.eq(status), self.answer.valid.eq(1)]
                with m.If(self.answer.ready):
                    m.d.sync += [count.eq(0), crc.eq(crc_step(Value.cast(CRC_START), status))]
                    m.next = "UPPER"
                    with m.If(~is_write & (status == Answer.DONE)):
                        m.next = "WORD"
            with m.State("WORD"):  # the buffer's word is there a cycle after its index
                m.next = "BYTE"
            with m.State("BYTE"):
                byte = kept.data.word_select(count[:2], 8)
                m.d.comb += [self.answer.payload.eq(byte), self.answer.valid.eq(1)]
                with m.If(self.answer.ready):
                    m.d.sync += [count.eq(count + 1), crc.eq(crc_step(crc, byte))]
                    m.next = "WORD"
                    with m.If((index == words - 1) & (count[:2] == 3)):
                        m.next = "UPPER"
            with m.State("UPPER"):
                m.d.comb += [self.answer.payload.eq(crc[8:]), self.answer.valid.eq(1)]
                with m.If(self.answer.ready):
                    m.next = "LOWER"
            with m.State("LOWER"):
                m.d.comb += [self.answer.payload.eq(crc[:8]), self.answer.valid.eq(1)]
                with m.If(self.answer.ready):
                    m.next = "COMMAND"
        return m

    def _silence(self, m: Module) -> Value:
        """Whether no byte has come for so long that the rest of the question will not come either."""
        quiet = Signal(range(self.silence + 1))
        with m.If(self.valid):
            m.d.sync += quiet.eq(0)
        with m.Elif(quiet != self.silence):
            m.d.sync += quiet.eq(quiet + 1)
        return quiet == self.silence

    def _accesses(
        self, m: Module, address: Signal, is_write: Value, value: Value, stored: Any, index: Value, last_tag: Signal,
        status: Signal,
    ) -> None:  # fmt: skip
        """The states that access one word: of memory, of the core's registers, or of the link itself."""
        memory, registers = self.memory, self.registers
        space = address[SPACE_SHIFT:]
        inside = address[:SPACE_SHIFT] < self.memory_bytes
        m.d.comb += [
            memory.index.eq(address[2:]), memory.data.eq(value), memory.write.eq(is_write),
            registers.awaddr.eq(address), registers.araddr.eq(address), registers.wdata.eq(value),
            registers.wstrb.eq(-1), registers.bready.eq(1), registers.rready.eq(1),
        ]  # fmt: skip
        with m.State("ACCESS"):
            m.next = "NEXT"
            m.d.sync += status.eq(Answer.REFUSED)
            with m.If((space == Space.MEMORY) & inside):
                m.d.comb += memory.enable.eq(1)
                m.d.sync += status.eq(Answer.DONE)
                m.next = "MEMORY"
            with m.Elif((space == Space.REGISTERS) & (address[REGISTER_ADDRESS_BITS:SPACE_SHIFT] == 0)):
                m.d.sync += [registers.awvalid.eq(is_write), registers.wvalid.eq(is_write)]
                m.d.sync += [registers.arvalid.eq(~is_write), status.eq(Answer.DONE)]
                m.next = "REGISTER"
            with m.Elif((space == Space.LINK) & ~is_write):
                known = {LinkWord.MAGIC: MAGIC, LinkWord.MEMORY_BYTES: self.memory_bytes}
                known |= {LinkWord.CLOCK_HZ: self.clock_hz, LinkWord.TAG: last_tag}
                for number, content in known.items():
                    with m.If(address[2:SPACE_SHIFT] == number):
                        m.d.comb += [stored.addr.eq(index), stored.data.eq(content), stored.en.eq(1)]
                        m.d.sync += status.eq(Answer.DONE)
        with m.State("MEMORY"):
            m.d.comb += [stored.addr.eq(index), stored.data.eq(memory.result), stored.en.eq(~is_write & memory.done)]
            with m.If(memory.done):
                m.next = "NEXT"
        with m.State("REGISTER"):
            m.d.comb += [stored.addr.eq(index), stored.data.eq(registers.rdata)]
            with m.If(registers.bvalid | registers.rvalid):
                m.d.comb += stored.en.eq(~is_write)
                bad = Mux(is_write, registers.bresp, registers.rresp) != Response.OKAY
                with m.If(bad):
                    m.d.sync += status.eq(Answer.REFUSED)
                m.next = "NEXT"
