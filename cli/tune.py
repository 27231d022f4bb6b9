"""``weft tune``: measure tilings of a network's kernels and keep what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..compiler.compile import prepared
from ..compiler.frontends import read
from ..compiler.targets.errors import CompileError
from ..compiler.targets.registry import find_target
from ..compiler.targets.target import target_options
from ..compiler.tune.database import Database
from ..progress import progress
from ..tune.search import Outcome, Progress, search
from ..tune.task import tasks_of
from .app import app
from .output import JsonOption, ShapeOption, err, out, parse_shapes, print_json, table, wide_console
from .target_options import Chosen, options_of, with_target_options


@app.command("tune")
@with_target_options
def tune_command(
    model: Annotated[Path, typer.Argument(help="Quantised ONNX model.")],
    database: Annotated[Path, typer.Option("--database", "-o", help="File of results; it grows.")] = Path(
        "tuning.sqlite"
    ),
    trials: Annotated[int, typer.Option(min=1, help="Tilings to measure, for each kernel on average.")] = 32,
    minutes: Annotated[float | None, typer.Option(min=0, help="Stop after so many minutes.")] = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn at random.")] = 0,
    shape: ShapeOption = None,
    as_json: JsonOption = False,
    *,
    chosen: Chosen,
) -> None:
    """Measure tilings of each kernel in the timing model; `weft compile --tuned FILE` uses the best of them."""
    target = find_target("accel")
    options = target_options(target, options_of("accel", chosen))
    core, rate = options.core, options.rate
    with progress("reading the model", err) as status, Database(database) as results:
        source = read(model)
        sizes = parse_shapes(shape) or {}
        if any(isinstance(size, str) for each in source.inputs(sizes) for size in each.shape):
            raise CompileError("a model with open sizes cannot be tuned", hint="fix its sizes by --shape")
        status.update("running the passes")
        module = prepared(source.module(sizes, takes_floats=False), target, options)
        tasks, shared = tasks_of(module, core, rate, options.vthreads)
        if not tasks:
            raise CompileError("nothing of this model on the core can be tuned", at=str(model))
        found = search(tasks, results, trials=trials, seed=seed, minutes=minutes,
                       report=lambda states: status.update(_line(states, trials * len(tasks))))  # fmt: skip
    records = [_record(state) for state in found.states]
    if as_json:
        print_json({"database": str(database), "core": core.name, "kernels": records, "shared_by_two_engines": shared,
                    "ranking": found.choice.ranking.name, "why": found.choice.why, "interrupted": found.interrupted,
                    "seconds": found.seconds})  # fmt: skip
        return
    wide_console().print(_table(records))
    _print_summary(found, shared, database)


def _line(states: Sequence[Progress], budget: int) -> str:
    measured = sum(state.measured for state in states)
    before, after = _sums(states)
    gain = f", {1 - after / before:.2%} fewer cycles so far" if before else ""
    return f"measured {measured} of {budget} tilings of {len(states)} kernels{gain}"


def _sums(states: Sequence[Progress]) -> tuple[float, float]:
    """Cycles of all kernels as compiled without a database, and with the best found, each as often as it is there."""
    known = [(state.task.count, state.default, state.best) for state in states]
    pairs = [(count, default, best) for count, default, best in known if default is not None and best is not None]
    return sum(count * default for count, default, _ in pairs), sum(count * best for count, _, best in pairs)


def _record(state: Progress) -> dict[str, Any]:
    return {
        "kernel": state.task.name, "times": state.task.count, "tilings": len(state.task.points),
        "measured": len(state.costs), "refused": len(state.refused), "bound": round(state.task.bound),
        "default": state.default, "best": state.best, "stopped": state.finished,
    }  # fmt: skip


def _table(records: Sequence[dict[str, Any]]) -> Any:
    rows = []
    for record in records:
        default, best = record["default"], record["best"]
        gain = f"{1 - best / default:.2%}" if default and best else ""
        counts = [f"{record[name]:,}" for name in ("times", "tilings", "measured", "refused", "bound")]
        cycles = [f"{value:,.0f}" if value is not None else "" for value in (default, best)]
        rows.append([record["kernel"], *counts, *cycles, gain, record["stopped"]])
    columns = ["kernel", "times", "tilings", "measured", "refused", "bound", "default", "best", "gain", ""]
    return table("kernels, cycles alone", columns, rows)


def _print_summary(found: Outcome, shared: int, database: Path) -> None:
    before, after = _sums(found.states)
    if before:
        out.print(f"sum of the kernels: {before:,.0f} -> {after:,.0f} cycles ({1 - after / before:.2%} fewer)")
        if after > 0.99 * before:
            out.print("tuning brings less than 1 % here: the compiler's own tilings are near the best that were found")
    if shared:
        out.print(f"{shared} depthwise layers are shared by two engines and not tuned")
    out.print(f"ranked by the {found.choice.ranking.name} ranking: {found.choice.why}", highlight=False, markup=False)
    if found.interrupted:
        out.print("interrupted; what was measured is kept, and the same command goes on from there")
    out.print(f"results are in {database}; use them by: weft compile ... --tuned {database}", markup=False)
