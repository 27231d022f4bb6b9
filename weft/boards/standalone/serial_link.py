"""The host's end of the serial line: words of memory and of registers, asked for until an answer is whole."""

from __future__ import annotations

import binascii
import struct
import time
from collections.abc import Sequence
from typing import Protocol

from ...hw.standalone.protocol import (
    CRC_BYTES,
    CRC_START,
    MAGIC,
    SILENCE_BYTES,
    SPACE_SHIFT,
    WORDS,
    Answer,
    Command,
    LinkWord,
    Space,
)
from ..link.errors import LinkError

WORD_BYTES = 4
ATTEMPTS = 4
"""How often a question is asked."""

ANSWER_SECONDS = 0.5
"""What an answer may take, beside the time of its bytes on the line."""


class Port(Protocol):
    """What :class:`~.port.SerialPort` does."""

    timeout: float

    def read(self, size: int) -> bytes: ...
    def write(self, content: bytes) -> None: ...
    def forget_input(self) -> None: ...


class SerialLink:
    """Words at addresses behind a port with ``baud`` bits a second. LinkError of kind ``closed`` for a line that gives
    no whole answer, ``protocol`` for one where something else answers, ``range`` for an address that is refused."""

    def __init__(self, port: Port, baud: int, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._port, self._baud = port, baud
        self._answer_seconds = answer_seconds
        self._tag = 0
        self.repeats = 0
        """How often a question had to be asked again."""
        magic, self.memory_bytes, self.clock_hz, self._tag = self.read_words(Space.LINK << SPACE_SHIFT, len(LinkWord))
        if magic != MAGIC:
            raise LinkError("protocol", f"something else answers: its first word is {magic:#x}, not {MAGIC:#x}")

    def read_words(self, address: int, count: int) -> tuple[int, ...]:
        """``count`` words from a byte address on."""
        words: list[int] = []
        for start in range(0, count, WORDS):
            part = min(WORDS, count - start)
            answer = self._ask(Command.READ, address + WORD_BYTES * start, part, b"")
            words += struct.unpack(f"<{part}I", answer)
        return tuple(words)

    def write_words(self, address: int, words: Sequence[int]) -> None:
        """Words from a byte address on."""
        for start in range(0, len(words), WORDS):
            part = words[start : start + WORDS]
            self._tag = (self._tag + 1) & 0xFF
            self._ask(Command.WRITE, address + WORD_BYTES * start, len(part), struct.pack(f"<{len(part)}I", *part))

    def read_register(self, address: int) -> int:
        """A register of the core."""
        return self.read_words((Space.REGISTERS << SPACE_SHIFT) + address, 1)[0]

    def write_register(self, address: int, value: int) -> None:
        """A register of the core."""
        self.write_words((Space.REGISTERS << SPACE_SHIFT) + address, [value])

    def read_memory(self, address: int, size: int) -> bytes:
        """Bytes of memory."""
        first = address & -WORD_BYTES
        count = -(-(address + size - first) // WORD_BYTES)
        content = struct.pack(f"<{count}I", *self.read_words(first, count))
        return content[address - first :][:size]

    def write_memory(self, address: int, content: bytes) -> None:
        """Bytes of memory; those of a word that are not written stay as they are."""
        if not content:
            return
        first, end = address & -WORD_BYTES, address + len(content)
        before = self.read_memory(first, address - first) if address > first else b""
        after = self.read_memory(end, -end % WORD_BYTES) if end % WORD_BYTES else b""
        whole = before + content + after
        self.write_words(first, struct.unpack(f"<{len(whole) // WORD_BYTES}I", whole))

    def _ask(self, command: Command, address: int, words: int, content: bytes) -> bytes:
        """The words of an answer. A question without a whole answer is asked again: what a frame does, it does once."""
        question = struct.pack("<BBIB", command, self._tag, address, words) + content
        question += _crc(question)
        size = 1 + (WORD_BYTES * words if command is Command.READ else 0) + CRC_BYTES
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                self.repeats += 1
                self._wait_for_silence()
            try:
                answer = self._exchange(question, size)
            except OSError as error:
                raise LinkError("closed", f"the serial port is gone: {error}") from None
            status = answer[:1]
            if len(answer) == 1 + CRC_BYTES and _is_whole(answer) and status == bytes([Answer.REFUSED]):
                raise LinkError("range", f"the board refuses {words} words at {address:#x}")
            if len(answer) == size and _is_whole(answer) and status == bytes([Answer.DONE]):
                return answer[1:-CRC_BYTES]
            problem = (
                "no answer" if not answer else f"{len(answer)} of {size} bytes" if len(answer) < size else "damaged"
            )
        raise LinkError("closed", f"the board does not answer, asked {ATTEMPTS} times: {problem}")

    def _exchange(self, question: bytes, size: int) -> bytes:
        """What comes back: as many bytes as were asked for, or those of a refusal, or fewer."""
        self._port.forget_input()
        self._port.write(question)
        self._port.timeout = self._answer_seconds + self._seconds(len(question) + size)
        answer = self._port.read(min(size, 1 + CRC_BYTES))
        if answer[:1] == bytes([Answer.DONE]) and size > len(answer):
            answer += self._port.read(size - len(answer))
        return answer

    def _seconds(self, count: int) -> float:
        """What so many bytes take on the line."""
        return 10 * count / self._baud

    def _wait_for_silence(self) -> None:
        """Until the board has forgotten what it may have got of the last question."""
        time.sleep(2 * self._seconds(SILENCE_BYTES) + 0.01)


def _crc(content: bytes) -> bytes:
    return binascii.crc_hqx(content, CRC_START).to_bytes(CRC_BYTES, "big")


def _is_whole(frame: bytes) -> bool:
    return binascii.crc_hqx(frame, CRC_START) == 0
