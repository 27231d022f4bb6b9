"""Reasons that several operators give for a rule that they do not have."""

from __future__ import annotations

from ..graph.registry import unsupported

NO_GRADIENT_YET = unsupported("training is not part of the stack yet")
NOT_DIFFERENTIABLE = unsupported("the result is piecewise constant")
INTEGER_HAS_NO_GRADIENT = unsupported("integer arithmetic is not differentiable; train the float model")
NOT_LOWERED = unsupported("runs on the host through its NumPy meaning")
