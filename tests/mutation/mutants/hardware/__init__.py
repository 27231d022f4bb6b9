"""Faults in the core: typical mistakes in RTL."""

from __future__ import annotations

from . import array, control, sdram, systems, transfers, vector

MUTANTS = (
    *vector.MUTANTS, *array.MUTANTS, *transfers.MUTANTS, *control.MUTANTS, *systems.MUTANTS, *sdram.MUTANTS,
)  # fmt: skip
