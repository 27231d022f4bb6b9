"""What host and logic say to each other over the serial line.

The host asks, the logic answers, one frame each. A question is

    command, tag, address (4 bytes), words, [4 bytes for each word], CRC (2 bytes)

and an answer

    status, [4 bytes for each word], CRC (2 bytes)

Numbers are little endian but for the CRC, which has its upper byte first. Nothing is done of a frame before its CRC was
compared. A write with the tag of the last write that was done is answered, but not done again: so a host that got no
answer can ask once more.
"""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class Command(IntEnum):
    """First byte of a question."""

    WRITE = ord("W")
    READ = ord("R")


@unique
class Answer(IntEnum):
    """First byte of an answer; words follow a READ that was ``DONE`` alone."""

    DONE = ord("K")
    DAMAGED = ord("E")  # the CRC is another one: nothing was done
    REFUSED = ord("A")  # no such address, or no such number of words: some words may have been written


@unique
class Space(IntEnum):
    """The two upper bits of an address."""

    MEMORY = 0
    REGISTERS = 2  # of the core
    LINK = 3  # the words of LinkWord


@unique
class LinkWord(IntEnum):
    """Words of :attr:`Space.LINK`, by their number. They can only be read."""

    MAGIC = 0
    MEMORY_BYTES = 1
    CLOCK_HZ = 2
    TAG = 3  # of the last write that was done


SPACE_SHIFT = 30
MAGIC = int.from_bytes(b"WSER", "little")
WORDS = 64
"""Most words of a frame."""

HEADER_BYTES = 7
CRC_BYTES = 2
CRC_START = 0xFFFF
CRC_TAPS = (12, 5)
"""Of CRC-16-CCITT, which ``binascii.crc_hqx`` computes."""

SILENCE_BYTES = 2048
"""In the middle of a question, the logic waits so many bytes' time for the next one; then the frame is forgotten."""
