"""The faults: typical mistakes, each in one place of one file of the package, and none of them equivalent to it."""

from __future__ import annotations

from . import (
    accelerator,
    boards,
    compiler,
    exploration,
    gpu,
    gradients,
    hardware,
    harness,
    power,
    processors,
    programs,
    quantisation,
    simulators,
    systems,
    tensors,
    timing,
    tuning,
    verify,
)
from .mutant import Mutant

PARTS: dict[str, tuple[Mutant, ...]] = {
    "hardware": hardware.MUTANTS,
    "simulators": simulators.MUTANTS,
    "timing": timing.MUTANTS,
    "harness": harness.MUTANTS,
    "compiler": compiler.MUTANTS,
    "tensors": tensors.MUTANTS,
    "systems": systems.MUTANTS,
    "processors": processors.MUTANTS,
    "programs": programs.MUTANTS,
    "accelerator": accelerator.MUTANTS,
    "gradients": gradients.MUTANTS,
    "quantisation": quantisation.MUTANTS,
    "exploration": exploration.MUTANTS,
    "power": power.MUTANTS,
    "boards": boards.MUTANTS,
    "gpu": gpu.MUTANTS,
    "tuning": tuning.MUTANTS,
    "verify": verify.MUTANTS,
}

MUTANTS = tuple(mutant for part in PARTS.values() for mutant in part)

__all__ = ["MUTANTS", "PARTS", "Mutant"]
