"""The order of the passes that targets share, and how passes are run with a user's own among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...files import write_atomically
from ...imports import IMPORTS
from ...roundings import BESIDE, FLOAT32, HALF_UP, ROUNDINGS
from ..graph import Module
from ..scope import Scope
from .cleanup import cse, dce, fold_constants
from .computed_scales import computed_scales
from .float32_by_integers import float32_by_integers
from .fold_batch_norm import fold_batch_norm
from .legalise import legalise_for
from .manager import Pass, PassManager, PassRecord
from .plain_windows import plain_windows, windows_of_volumes
from .plugins import insert_passes
from .resized import resized
from .scales_of_channels import scales_of_channels
from .scans import scan_bodies, unroll_quantised_loops
from .simplify import simplify
from .wide_activations import wide_activations


@dataclass(frozen=True)
class PassOptions:
    """What a user asks of the passes.

    ``added``: the user's own passes, each run right behind those that it needs. ``check``: run the model before and
    after each pass on the same random inputs, and refuse a difference. ``diff``: write a web page with the text before
    and after each pass to this path. ``report``: called with the record of every pass, such as ``print``.
    """

    added: tuple[Pass, ...] = ()
    check: bool = False
    diff: str | Path | None = None
    report: Callable[[PassRecord], None] = lambda _: None


def run_passes(
    module: Module, passes: Sequence[Pass], options: PassOptions, title: str = "passes", ran: Sequence[str] = ()
) -> Module:
    """``module`` after ``passes`` and the user's own; the page is written also when a pass fails. ``ran``: passes that
    the module has been through already."""
    changes: list[tuple[PassRecord, str, str]] = []

    def show(record: PassRecord, before: str, after: str) -> None:
        changes.append((record, before, after))

    steps = insert_passes(passes, options.added)
    manager = PassManager(steps, check=options.check, show=show if options.diff else None, report=options.report,
                          ran=ran)  # fmt: skip
    try:
        return manager.run(module)
    finally:
        if options.diff:
            with IMPORTS:
                from .diff import Change, diff_page

            page = diff_page(title, manager.records, [Change(*each) for each in changes])
            write_atomically(Path(options.diff), page.encode())


_FLOAT_PASSES = (fold_constants, simplify, fold_batch_norm, fold_constants, simplify, cse, dce)


def float_passes() -> list[Pass]:
    """For a model without quantised tensors."""
    return [*_FLOAT_PASSES, _float_loops()]


def _float_loops() -> Pass:
    return scan_bodies("loops", _FLOAT_PASSES, tolerance=1e-5)


def integer_passes(
    block: int = 0, scope: Scope = Scope.PRODUCTS, *, volumes: bool = False, tables: bool = False, core: bool = False,
    rounding: str = HALF_UP, wide: bool = False,
) -> list[Pass]:  # fmt: skip
    """From a model as read to the integer contract, for an array that multiplies computed matrices, ``block`` channels
    at a time; 0: the host does. ``volumes``: whether the target has convolutions over volumes of bytes. ``tables``:
    whether its core has tables. ``core``: whether it has a core beside the host. ``rounding``: how
    that may round beside half up; what is no core rounds as it is asked to. ``wide``: whether the core is fast enough
    for activations of 16 bits, which it multiplies byte by byte."""
    windows = [*([resized] if core else []), windows_of_volumes if volumes else plain_windows]
    roundings = BESIDE[rounding] if core else ROUNDINGS
    return [
        unroll_quantised_loops, fold_constants, simplify, fold_batch_norm, *windows, fold_constants, simplify, cse,
        *([wide_activations] if wide else []), *([computed_scales, scales_of_channels] if core else []),
        _float_loops(),
        legalise_for(block, scope, volumes=volumes, tables=tables, core=core, roundings=roundings),
        *([float32_by_integers] if rounding == FLOAT32 else []), simplify, fold_constants, cse, dce,
    ]  # fmt: skip
