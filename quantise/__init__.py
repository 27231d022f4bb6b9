"""Quantisation: from a float model to the integers that the accelerator computes. See docs/quantisation.md."""

from .errors import QuantiseError
from .insert import quantised
from .plan import Plan, plan
from .ranges import Range, calibrate
from .training import GRADIENTS, Trainable, deployed, trainable

__all__ = [
    "GRADIENTS", "Plan", "QuantiseError", "Range", "Trainable", "calibrate", "deployed", "plan", "quantised",
    "trainable",
]  # fmt: skip
