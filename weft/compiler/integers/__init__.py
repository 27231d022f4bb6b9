"""What float values of a quantised model are in integers: the rules that operators' entries name as ``integer``.

`form` has the descriptions and their algebra, `describer` asks the entries; `passes.legalise` writes what is described.
"""

from .describer import Describer, of_operand
from .form import IntegerForm, Integers, Real, Refusal, clipped, scaled, shifted, uniform

__all__ = [
    "Describer",
    "IntegerForm",
    "Integers",
    "Real",
    "Refusal",
    "clipped",
    "of_operand",
    "scaled",
    "shifted",
    "uniform",
]
