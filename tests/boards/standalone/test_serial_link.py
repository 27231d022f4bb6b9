"""The serial line's protocol against the logic that speaks it: all is done once or not at all, whatever is lost."""

from __future__ import annotations

import binascii
from random import Random

import pytest
from weft.boards.link.errors import LinkError
from weft.boards.standalone import serial_link
from weft.boards.standalone.serial_link import ATTEMPTS, SerialLink
from weft.boards.standalone.simulated import SimulatedBoard
from weft.hw.config import TINY
from weft.hw.registers import MAGIC, Register
from weft.hw.standalone.protocol import SPACE_SHIFT, WORDS, Space

from tests.boards.standalone.lines import Line


@pytest.fixture
def line(board: SimulatedBoard, monkeypatch: pytest.MonkeyPatch) -> Line:
    monkeypatch.setattr(serial_link.time, "sleep", lambda _: None)  # the line's time is cycles
    return Line(board)


def test_the_link_says_what_it_is_and_the_core_answers_behind_it(line: Line) -> None:
    link = SerialLink(line, 1_000_000)
    assert (link.memory_bytes, link.clock_hz) == (131_072, 50_000_000)
    assert link.read_register(Register.MAGIC) == MAGIC
    assert link.read_words((Space.REGISTERS << SPACE_SHIFT) + Register.HASH_LO, 2) == (
        TINY.hash64 & 0xFFFF_FFFF,
        TINY.hash64 >> 32,
    )
    link.write_register(Register.PROGRAM_COUNT, 77)
    assert link.read_register(Register.PROGRAM_COUNT) == 77
    assert link.repeats == 0


def test_bytes_at_any_place_are_written_and_no_others(line: Line) -> None:
    link, random = SerialLink(line, 1_000_000), Random(5)
    start, content = 3000, bytearray(random.randbytes(1200))
    link.write_memory(start, bytes(content))
    for _ in range(6):
        first = random.randrange(len(content))
        part = random.randbytes(min(random.choice([1, 2, 3, 5, 4 * WORDS + 3]), len(content) - first))
        content[first : first + len(part)] = part
        link.write_memory(start + first, part)
    assert link.read_memory(start, len(content)) == content
    assert link.read_memory(start + 5, 3) == content[5:8]
    last = link.memory_bytes - 4
    link.write_memory(last, b"last")
    assert link.read_memory(last, 4) == b"last"


@pytest.mark.parametrize("address", [131_072, (Space.REGISTERS << SPACE_SHIFT) + 0x1000, 1 << SPACE_SHIFT])
def test_an_address_that_there_is_not_is_refused_and_the_next_question_is_answered(line: Line, address: int) -> None:
    link = SerialLink(line, 1_000_000)
    with pytest.raises(LinkError, match="refuses 1 words"):
        link.read_words(address, 1)
    with pytest.raises(LinkError, match="refuses 1 words"):
        link.write_words(address, [1])
    assert link.read_register(Register.MAGIC) == MAGIC
    assert link.repeats == 0


def test_questions_and_answers_that_are_damaged_or_cut_are_asked_again(line: Line) -> None:
    link, random = SerialLink(line, 1_000_000), Random(7)
    damaged = 0

    def damage(content: bytes) -> bytes:
        nonlocal damaged
        damaged += 1
        if damaged % 3 == 0 or not content:  # at most two of a question's four
            return content
        place = random.randrange(len(content))
        if random.random() < 0.5:
            return content[:place] + content[place + 1 :]
        changed = bytearray(content)
        changed[place] ^= 1 << random.randrange(8)
        return bytes(changed)

    content = random.randbytes(2 * 4 * WORDS)
    for way in ("on_the_way", "on_the_way_back"):
        setattr(line, way, damage)
        link.write_memory(64, content)
        assert link.read_memory(64, len(content)) == content
        setattr(line, way, bytes)
    assert link.repeats >= 10


def test_a_write_whose_answer_is_lost_is_not_done_twice(line: Line) -> None:
    """The second time another value lies there: it must stay."""
    link = SerialLink(line, 1_000_000)
    link.write_memory(0, bytes(8))

    def write(tag: int, address: int, word: bytes) -> None:
        """A question of somebody else's."""
        raw = bytes([ord("W"), tag]) + address.to_bytes(4, "little") + b"\x01" + word
        answer = line.board.run(100_000, raw + binascii.crc_hqx(raw, 0xFFFF).to_bytes(2, "big"))
        assert answer[:1] == b"K"

    def lose(content: bytes) -> bytes:
        assert content[:1] == b"K"  # it was done
        line.on_the_way_back = bytes
        tag = link._tag
        write((tag + 1) & 0xFF, 0, b"then")  # as the core might write there
        write(tag, 4, b"then")  # its tag is the last one again
        return b""

    line.on_the_way_back = lose
    link.write_memory(0, b"once")
    assert link.repeats == 1
    assert link.read_memory(0, 8) == b"thenthen"


def test_a_line_that_stays_silent_is_given_up(line: Line) -> None:
    link = SerialLink(line, 1_000_000)
    line.on_the_way_back = lambda _: b""
    line.frames = 0
    with pytest.raises(LinkError, match=f"does not answer, asked {ATTEMPTS} times: no answer"):
        link.read_register(Register.MAGIC)
    assert line.frames == ATTEMPTS


def test_something_else_at_the_line_is_told_from_a_board(board: SimulatedBoard, line: Line) -> None:
    def other(_: bytes) -> bytes:
        answer = b"K" + bytes(16)
        return answer + binascii.crc_hqx(answer, 0xFFFF).to_bytes(2, "big")

    line.on_the_way_back = other
    with pytest.raises(LinkError, match="something else answers"):
        SerialLink(line, 1_000_000)


def test_the_reset_button_stops_the_core_and_forgets_its_settings(line: Line) -> None:
    link = SerialLink(line, 1_000_000)
    link.write_register(Register.PROGRAM_COUNT, 5)
    line.board.press_reset(True)
    line.board.run(1000)
    line.board.press_reset(False)
    line.board.run(1000)
    assert SerialLink(line, 1_000_000).read_register(Register.PROGRAM_COUNT) == 0
