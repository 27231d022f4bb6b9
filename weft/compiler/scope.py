"""What a user may want to become integers, known without the passes that do it."""

from __future__ import annotations

import enum


class Scope(enum.StrEnum):
    """What becomes integers: products and what joins them, or softmax and normalisations of 8-bit values, too."""

    PRODUCTS = "products"
    ALL = "all"
