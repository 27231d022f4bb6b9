"""Reasons that several operators give for a rule that they do not have."""

from __future__ import annotations

from ..graph.registry import Unsupported, unsupported

PIECEWISE_CONSTANT = Unsupported("the result is piecewise constant", is_zero=True)
INTEGER_HAS_NO_GRADIENT = unsupported("integer arithmetic is not differentiable; train the float model")
NOT_LOWERED = unsupported("runs on the host through its NumPy meaning")
