"""Quantisation: from a float model to the integers that the accelerator computes. See docs/quantisation.md."""

from .equalise import equalised
from .errors import QuantiseError
from .four_bits import FourBits, best_group, four_bits, in_eight_bits
from .insert import quantised
from .paying import Paying, four_bits_that_pay
from .plan import Plan, plan
from .ranges import Range, calibrate
from .refine import refined
from .states import eight_bit_states
from .training import GRADIENTS, Trainable, deployed, trainable

__all__ = [
    "GRADIENTS", "FourBits", "Paying", "Plan", "QuantiseError", "Range", "Trainable", "best_group", "calibrate",
    "deployed", "eight_bit_states", "equalised", "four_bits", "four_bits_that_pay", "in_eight_bits", "plan",
    "quantised", "refined", "trainable",
]  # fmt: skip
