"""``weft tune --prove``: how far the compiler's choices are at most above the best of their spaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from ..compiler.tune.database import Database
from ..progress import Updates
from ..tune.prove import CLOSE, Proof, close_share, kept_in, prove
from ..tune.task import Task
from .output import out, print_json, table, wide_console
from .tools import TuneRequest

SECONDS = 20.0
"""Of the processor, unless the command says how many minutes."""

COVERED = (
    "Each kernel alone, in a program of its own: no tiling, loop order, epilogue, number of threads, portion or form "
    "of its space takes fewer cycles than stand there. Of chains all tiles and ways count; their layers apart have "
    "rows of their own. Neighbours overlap, so the sum is no bound of the network."
)


def proofs_of(request: TuneRequest, tasks: Sequence[Task], results: Database, status: Updates) -> list[Proof]:
    minutes = request.budget.minutes_left

    def report(proofs: Sequence[Proof]) -> None:
        close, looked = sum(proof.gap <= CLOSE for proof in proofs), sum(each.measured for each in proofs)
        status.count(f"measured {looked} settings; choices within {CLOSE:.0%} of the best", close, len(proofs))

    return prove(tasks, SECONDS if minutes is None else 60 * minutes, measure=kept_in(results), report=report)


def print_proofs(request: TuneRequest, proofs: Sequence[Proof], least: int) -> None:
    """``least``: the bound of the whole network."""
    records = [record_of(proof) for proof in proofs]
    close = close_share(proofs)
    if request.as_json:
        print_json({"database": str(request.database), "core": request.options.core.name, "kernels": records,
                    "share_close": close, "least_cycles": least})  # fmt: skip
        return
    wide_console().print(_table(records))
    out.print(COVERED, highlight=False, soft_wrap=True)
    out.print(f"kernels with {close:.1%} of the cycles (chains left out) are within {CLOSE:.0%} of the best of their "
              "spaces", highlight=False, soft_wrap=True)  # fmt: skip
    out.print(f"no tiling, order or chain brings the whole network below {least:,} cycles; `weft profile` says where")
    database = request.database
    out.print(f"what was measured is in {database}; use it by: weft compile ... --tuned {database}", markup=False,
              highlight=False, soft_wrap=True)  # fmt: skip


def record_of(proof: Proof) -> dict[str, Any]:
    return {
        "kernel": proof.task.name, "chain": not proof.task.in_sum, "times": proof.task.count,
        "default": proof.default, "best": None if proof.default is None else round(proof.best),
        "least": round(proof.least), "gap": None if proof.default is None else proof.gap, "measured": proof.measured,
        "refused": proof.refused,
    }  # fmt: skip


def _table(records: Sequence[dict[str, Any]]) -> Table:
    rows = []
    for record in records:
        counts = [f"{record[name]:,}" if record[name] is not None else "" for name in
                  ("times", "default", "best", "least")]  # fmt: skip
        gap = "" if record["gap"] is None else f"{record['gap']:.2%}"
        rows.append([record["kernel"], *counts, gap, f"{record['measured']:,}", f"{record['refused']:,}"])
    columns = ["kernel", "times", "compiled", "best measured", "no point below", "gap at most", "measured", "refused"]
    return table("kernels and chains alone (cycles), and the best of their spaces", columns, rows)
