"""Faults in boards: the model of an SDRAM chip, which has to know its rules."""

from __future__ import annotations

from .mutant import Mutant

CHIP = ("tests/hw/standalone/test_sdram.py",)

MUTANTS = (
    Mutant(
        "sdram-chip-forgets-who-drove", "boards/standalone/sdram_model.h", "check ignored",
        "!(driven && (now || drove_))", "!(driven && now)", CHIP,
    ),
    Mutant(
        "sdram-chip-lets-reads-be-cut", "boards/standalone/sdram_model.h", "off by one",
        "edge_ >= column_at_ + burst_", "edge_ >= column_at_ + burst_ - 1", CHIP,
    ),
    Mutant(
        "sdram-chip-waits-for-no-startup", "boards/standalone/sdram_model.h", "check ignored",
        "now_ >= f_.startup", "true", CHIP,
    ),
)  # fmt: skip
