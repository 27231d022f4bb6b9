"""The check bits of an instruction (`instruction_checksum`) in gates, for fetch."""

from __future__ import annotations

from amaranth.hdl import Cat, Value

from .instruction_checksum import check_bits, check_masks

PARTS = 4
"""Parts of a parity that are worked out in the cycle in which the word comes, late, from block RAM."""


def partial_parities(word: Value) -> Value:
    """For each check bit, the parities of :data:`PARTS` parts of the bits that it checks, itself included."""
    position = len(word) - check_bits(len(word))
    parities = []
    for check, mask in enumerate(check_masks(len(word))):
        checked = [bit for place, bit in enumerate(word) if (mask | 1 << position + check) >> place & 1]
        parities += [Cat(checked[part::PARTS]).xor() for part in range(PARTS)]
    return Cat(parities)


def is_damaged(parities: Value) -> Value:
    """Do the check bits not fit? ``parities``: :func:`partial_parities` of the word."""
    return Cat(parities[first : first + PARTS].xor() for first in range(0, len(parities), PARTS)).any()
