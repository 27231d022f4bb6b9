"""``weft tune`` for the accelerator: tilings of kernels and chains, which the timing model judges."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..compiler.targets.errors import CompileError
from ..compiler.tune.database import Database
from ..progress import progress
from ..tune.least_cycles import least_cycles
from ..tune.search import BROKE, LITTLE, Outcome, Progress, search
from ..tune.tasks import tasks_of
from .output import err, out, print_json, table, wide_console
from .tools import TuneRequest
from .tune_proof import print_proofs, proofs_of
from .tuned import print_end


def tune(request: TuneRequest) -> None:
    """Tilings of kernels and chains, in the timing model."""
    options, budget, database = request.options, request.budget, request.database
    core, rate = options.core, options.rate
    with ExitStack() as stack:
        status = stack.enter_context(progress("reading the model", err))
        module = request.prepared(status)
        tasks = tasks_of(module, core, rate, options.vthreads, chains=options.chains)
        if not tasks:
            raise CompileError("nothing of this model on the core can be tuned", at=str(request.model))
        results = stack.enter_context(Database(database))  # a model that is refused leaves no file behind
        if budget.prove:
            proofs = proofs_of(request, tasks, results, status)
            print_proofs(request, proofs, least_cycles(module, core, rate, options.vthreads).cycles)
            return
        found = search(
            tasks, results, trials=budget.trials, seed=budget.seed, minutes=budget.minutes_left,
            thorough=budget.thorough, report=lambda states: status.update(_line(states, budget.trials * len(tasks))),
        )  # fmt: skip
        least = least_cycles(module, core, rate, options.vthreads).cycles
    records = [_record(state) for state in found.states]
    if request.as_json:
        print_json({"database": str(database), "core": core.name, "kernels": records,
                    "ranking": found.choice.ranking.name, "why": found.choice.why, "interrupted": found.interrupted,
                    "little_to_gain": found.little, "least_cycles": least, "seconds": found.seconds})  # fmt: skip
        return
    wide_console().print(_table(records))
    _print_summary(found, database)
    out.print(f"no tiling, order or chain brings the whole network below {least:,} cycles; `weft profile` says where")


def _line(states: Sequence[Progress], budget: int) -> str:
    measured = sum(state.measured for state in states)
    before, after = _sums(states)
    gain = f", {1 - after / before:.2%} fewer cycles so far" if before else ""
    return f"measured {measured} of {budget} settings of {len(states)} kernels and chains{gain}"


def _sums(states: Sequence[Progress]) -> tuple[float, float]:
    """Cycles of all kernels as compiled without a database, and with the best found, each as often as it is there.
    Chains count as their layers: which of the two is faster, compilation decides."""
    known = [(state.task.count, state.default, state.best) for state in states if state.task.in_sum]
    pairs = [(count, default, best) for count, default, best in known if default is not None and best is not None]
    return sum(count * default for count, default, _ in pairs), sum(count * best for count, _, best in pairs)


def _record(state: Progress) -> dict[str, Any]:
    return {
        "kernel": state.task.name, "chain": not state.task.in_sum, "times": state.task.count,
        "settings": state.task.known_points, "form": state.form,
        "measured": len(state.costs), "refused": len(state.refused), "bound": round(state.task.bound),
        "default": state.default, "best": state.best, "stopped": state.finished,
    }  # fmt: skip


def _table(records: Sequence[dict[str, Any]]) -> Any:
    rows = []
    for record in records:
        default, best = record["default"], record["best"]
        gain = f"{1 - best / default:.2%}" if default and best else ""
        names = ("times", "settings", "measured", "refused", "bound")
        counts = [f"{record[name]:,}" if record[name] is not None else "" for name in names]
        cycles = [f"{value:,.0f}" if value is not None else "" for value in (default, best)]
        rows.append([record["kernel"], *counts, *cycles, gain, record["form"], record["stopped"]])
    columns = ["kernel", "times", "settings", "measured", "refused", "bound", "default", "best", "gain", "form", ""]
    return table("kernels and chains, cycles alone", columns, rows)


def _print_summary(found: Outcome, database: Path) -> None:
    before, after = _sums(found.states)
    if before:
        out.print(f"sum of the kernels: {before:,.0f} -> {after:,.0f} cycles ({1 - after / before:.2%} fewer)")
        if after > (1 - LITTLE) * before:
            out.print(f"tuning brings less than {LITTLE:.0%} here: the compiler's own tilings are near the best found")
        if found.little:
            out.print("so it ended before its budget did; --thorough goes on")
    chains = sum(not state.task.in_sum for state in found.states)
    if chains:
        out.print(f"chains measured: {chains}; compilation takes those that are faster than their layers apart")
    broke = [reason for state in found.states for reason in state.broke.values()]
    if broke:
        out.print(f"{len(broke)} settings broke the compiler, which is a mistake in weft, and were passed over: "
                  f"{broke[0].removeprefix(BROKE)}", highlight=False, markup=False, soft_wrap=True)  # fmt: skip
    if found.untouched:
        left = f"{found.untouched} of {len(found.states)} kernels and chains"
        out.print(f"the time was over before {left} had a turn; the same command goes on from there")
    print_end(found.choice, database, interrupted=found.interrupted)
