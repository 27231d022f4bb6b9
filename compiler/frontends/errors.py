"""What a front end says when a model cannot be read."""

from __future__ import annotations

from ..graph import GraphError


class ModelError(GraphError):
    """The model cannot be read or compiled; the text names the node, the tensor or the input, and what to change."""
