"""The standard order of passes, from a model as read to a module whose functions are ready to be scheduled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..frontends import from_onnx
from ..graph import Blocks, Module
from .cleanup import cse, dce, fold_constants
from .diff import Change, diff_page
from .fold_batch_norm import fold_batch_norm
from .fuse import fuse
from .legalise import legalise
from .manager import Pass, PassManager, PassRecord
from .pack_layout import pack_layout
from .plugins import insert_passes
from .simplify import simplify
from .unfold_input import unfold_input


@dataclass(frozen=True)
class PassOptions:
    """What a user asks of the passes.

    ``added``: the user's own passes, each run right behind those that it needs. ``check``: run the model before and
    after each pass on the same random inputs, and refuse a difference. ``diff``: write a web page with the text before
    and after each pass to this path.
    """

    added: tuple[Pass, ...] = ()
    check: bool = False
    diff: str | Path | None = None


def run_passes(module: Module, passes: Sequence[Pass], options: PassOptions, title: str = "passes") -> Module:
    """``module`` after ``passes`` and the user's own; the page is written also when a pass fails."""
    changes: list[Change] = []

    def show(record: PassRecord, before: str, after: str) -> None:
        changes.append(Change(record, before, after))

    steps = insert_passes(passes, options.added)
    manager = PassManager(steps, check=options.check, show=show if options.diff else None)
    try:
        return manager.run(module)
    finally:
        if options.diff:
            Path(options.diff).write_text(diff_page(title, manager.records, changes), encoding="utf-8")


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
