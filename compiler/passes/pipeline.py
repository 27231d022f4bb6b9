"""The standard order of passes, from a model as read to a module whose functions are ready to be scheduled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..frontends import from_onnx
from ..graph import Blocks, Module
from .cleanup import cse, dce, fold_constants
from .fold_batch_norm import fold_batch_norm
from .fuse import fuse
from .legalise import legalise
from .manager import Pass, PassManager
from .pack_layout import pack_layout
from .simplify import simplify
from .unfold_input import unfold_input


def integer_passes() -> list[Pass]:
    """From a model as read to the integer contract."""
    return [
        fold_constants, simplify, fold_batch_norm, fold_constants, simplify, cse, legalise, simplify, fold_constants,
        cse, dce,
    ]  # fmt: skip


def target_passes(blocks: Blocks, bus_bytes: int = 8) -> list[Pass]:
    """From the integer contract to packed kernels, for an array of this shape and DRAM of so many bytes a cycle."""
    return [unfold_input(blocks, bus_bytes), fuse, pack_layout(blocks)]


def standard_pipeline(blocks: Blocks, *, bus_bytes: int = 8, check: bool = False) -> PassManager:
    """All passes for an accelerator whose array has this shape."""
    return PassManager([*integer_passes(), *target_passes(blocks, bus_bytes)], check=check)


def import_and_lower(
    path: str | Path, blocks: Blocks, shapes: Mapping[str, Sequence[int]] | None = None, *, bus_bytes: int = 8,
    check: bool = False,
) -> Module:
    """The packed module of an ONNX file."""
    return standard_pipeline(blocks, bus_bytes=bus_bytes, check=check).run(from_onnx(path, shapes))
