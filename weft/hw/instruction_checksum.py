"""The check bits of an instruction, for the assembler and the simulators; `instruction_check_gates` has the gates.

They are the highest bits of a word. The code is Hsiao's ("A class of optimal minimum odd-weight-column SEC-DED codes",
IBM J. Res. Dev. 14, 1970): each other bit enters an odd number of check bits, three at least, and no two bits enter
the same ones. So one, two or any odd number of flipped bits are seen. A word of ``2**n`` bits needs ``n + 1`` check
bits; the ways to enter them are then just as many as there are bits to protect.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a core's configuration is read without it
    import numpy as np
    import numpy.typing as npt


def check_bits(word_bits: int) -> int:
    """Check bits in a word of ``word_bits`` (a power of two) in all."""
    return word_bits.bit_length()


@cache
def check_masks(word_bits: int) -> tuple[int, ...]:
    """For each check bit, lowest first, the other bits whose parity it is."""
    count = check_bits(word_bits)
    columns = [column for column in range(1 << count) if column.bit_count() % 2 and column.bit_count() > 1]
    columns.sort(key=int.bit_count)
    return tuple(sum(1 << place for place, column in enumerate(columns) if column >> bit & 1) for bit in range(count))


def sealed(word: int, word_bits: int) -> int:
    """``word`` with the check bits that its other bits ask for."""
    position = word_bits - check_bits(word_bits)
    word &= (1 << position) - 1
    for bit, mask in enumerate(check_masks(word_bits)):
        word |= ((word & mask).bit_count() & 1) << position + bit
    return word


def damaged_words(words: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Of words, one a row and little endian: which have other check bits than their other bits ask for."""
    import numpy as np

    size = words.shape[1]
    others = (1 << 8 * size - check_bits(8 * size)) - 1
    unsealed = words & np.frombuffer(others.to_bytes(size, "little"), np.uint8)
    return np.any(seal_words(unsealed) != words, axis=1)  # type: ignore[no-any-return]


def seal_words(unsealed: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Words, one a row and little endian, with the check bits that their other bits ask for; there those bits are 0."""
    import numpy as np

    words, size = unsealed.copy(), unsealed.shape[1]
    first, shift = divmod(8 * size - check_bits(8 * size), 8)
    checks = np.bitwise_xor.reduce(_byte_checks(size)[np.arange(size), words], axis=1) << shift
    for place in range(first, size):
        words[:, place] |= (checks >> 8 * (place - first) & 255).astype(np.uint8)
    return words


@cache
def _byte_checks(size: int) -> npt.NDArray[np.uint32]:
    """For each byte of a word of ``size``, and each value of it, the check bits that it changes, lowest first."""
    import numpy as np

    table = np.zeros((size, 256), np.uint32)
    values = np.arange(256)
    for check, mask in enumerate(check_masks(8 * size)):
        for place, byte in enumerate(mask.to_bytes(size, "little")):
            odd = [(value & byte).bit_count() & 1 for value in values.tolist()]
            table[place] |= np.array(odd, np.uint32) << check
    return table
