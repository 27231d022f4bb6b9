"""``weft tune``: measure tilings of a network's kernels and keep what they cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from ..compiler.compile import prepared
from ..compiler.frontends import read
from ..compiler.graph.ir import Module
from ..compiler.targets.accel.target import AccelOptions
from ..compiler.targets.cpu.processor import named_target
from ..compiler.targets.cpu.target import CpuOptions
from ..compiler.targets.errors import CompileError
from ..compiler.targets.registry import find_target
from ..compiler.targets.target import Target, target_options
from ..compiler.tune.database import Database
from ..progress import Updates, progress
from ..tune.cpu_kernels import cpu_tasks
from ..tune.cpu_search import CpuProgress, search_cpu
from ..tune.ranking import Choice
from ..tune.search import BROKE, LITTLE, Outcome, Progress, search
from ..tune.tasks import tasks_of
from .app import app
from .output import (
    CalibrateOption,
    JsonOption,
    ShapeOption,
    err,
    out,
    output_file,
    parse_shapes,
    print_json,
    table,
    wide_console,
)
from .source import given_model
from .target_options import Chosen, options_of, with_target_options


@app.command("tune")
@with_target_options
def tune_command(
    model: Annotated[Path, typer.Argument(help="ONNX model; for the accelerator a quantised one.")],
    target: Annotated[str, typer.Option("--target", help="What to tune for: accel, cpu.")] = "accel",
    database: Annotated[Path, output_file("--database", "-o", help="File of results; it grows.")] = Path(
        "tuning.sqlite"
    ),
    trials: Annotated[int, typer.Option(min=1, help="Points to measure, for each kernel on average.")] = 32,
    minutes: Annotated[float | None, typer.Option(min=0, help="Stop after so many minutes.")] = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn at random.")] = 0,
    thorough: Annotated[
        bool, typer.Option(help="On the core: use the whole budget, even where little is to be gained.")
    ] = False,
    shape: ShapeOption = None,
    calibrate_with: CalibrateOption = None,
    as_json: JsonOption = False,
    *,
    chosen: Chosen,
) -> None:
    """Measure schedules of each kernel, for the accelerator in the timing model, for a processor on this machine; `weft
    compile --tuned FILE` uses the best of them."""
    found = find_target(target)
    if "tuned" in chosen:
        raise CompileError("--tuned is an option of compilation", hint="the file of results is --database")
    options = target_options(found, options_of(target, chosen))
    budget = Budget(trials, minutes, seed, thorough)
    if isinstance(options, AccelOptions):
        _tune_core(model, found, options, database, budget, shape, calibrate_with, as_json)
    elif isinstance(options, CpuOptions):
        _tune_cpu(model, found, options, database, budget, shape, calibrate_with, as_json)
    else:
        raise CompileError(f"target {target!r} has no schedules to choose from that can be measured here",
                           hint="tune for accel or cpu")  # fmt: skip


@dataclass(frozen=True)
class Budget:
    """What the user gives a search."""

    trials: int
    minutes: float | None
    seed: int
    thorough: bool
    started: float = field(default_factory=time.monotonic)

    @property
    def minutes_left(self) -> float | None:
        """Reading the model and its passes take of the time, too."""
        return None if self.minutes is None else self.minutes - (time.monotonic() - self.started) / 60


def _prepared(
    model: Path, target: Target, options: Any, shape: list[str] | None, calibrate: Path | None, status: Updates
) -> Module:
    status.update("reading the model")
    source = read(model)
    sizes = parse_shapes(shape) or {}
    if any(isinstance(size, str) for each in source.inputs(sizes) for size in each.shape):
        raise CompileError("a model with open sizes cannot be tuned", hint="fix its sizes by --shape")
    whole = given_model(model, shape, calibrate, status.update)
    if isinstance(whole, Path):
        whole = source.module(sizes, require_quantised=not target.takes_floats)
    status.update("running the passes")
    return prepared(whole, target, options)


def _tune_core(
    model: Path, target: Target, options: AccelOptions, database: Path, budget: Budget, shape: list[str] | None,
    calibrate: Path | None, as_json: bool,
) -> None:  # fmt: skip
    core, rate = options.core, options.rate
    with progress("reading the model", err) as status, Database(database) as results:
        module = _prepared(model, target, options, shape, calibrate, status)
        tasks = tasks_of(module, core, rate, options.vthreads, chains=options.chains)
        if not tasks:
            raise CompileError("nothing of this model on the core can be tuned", at=str(model))
        found = search(
            tasks, results, trials=budget.trials, seed=budget.seed, minutes=budget.minutes_left,
            thorough=budget.thorough, report=lambda states: status.update(_line(states, budget.trials * len(tasks))),
        )  # fmt: skip
    records = [_record(state) for state in found.states]
    if as_json:
        print_json({"database": str(database), "core": core.name, "kernels": records,
                    "ranking": found.choice.ranking.name, "why": found.choice.why, "interrupted": found.interrupted,
                    "little_to_gain": found.little, "seconds": found.seconds})  # fmt: skip
        return
    wide_console().print(_table(records))
    _print_summary(found, database)


def _tune_cpu(
    model: Path, target: Target, options: CpuOptions, database: Path, budget: Budget, shape: list[str] | None,
    calibrate: Path | None, as_json: bool,
) -> None:  # fmt: skip
    if options.processor != "host":
        raise CompileError(f"schedules for {options.processor!r} cannot be measured on this machine",
                           hint="tune on the machine that runs the model, with processor 'host'")  # fmt: skip
    processor = named_target(options.processor)
    with progress("reading the model", err) as status, Database(database) as results:
        module = _prepared(model, target, options, shape, calibrate, status)
        tasks = cpu_tasks(module, processor, options.threads)
        if not tasks:
            raise CompileError("no kernel of this model has schedules to choose from", at=str(model),
                               hint="products and convolutions have")  # fmt: skip
        found = search_cpu(tasks, results, trials=budget.trials, seed=budget.seed, minutes=budget.minutes_left,
                           report=lambda states: status.update(_cpu_line(states)))  # fmt: skip
    records = [
        {
            "kernel": state.task.name, "times": state.task.count, "schedules": len(state.task.points),
            "measured": len(state.shares), "refused": len(state.refused), "confirmed": state.confirmed,
            "schedule": state.winner, "microseconds": round(1e6 * state.seconds, 1),
        }
        for state in found.states
    ]  # fmt: skip
    if as_json:
        print_json({"database": str(database), "processor": processor.name, "threads": options.threads,
                    "kernels": records, "ranking": found.choice.ranking.name, "why": found.choice.why,
                    "interrupted": found.interrupted, "seconds": found.seconds})  # fmt: skip
        return
    columns = ["kernel", "times", "schedules", "measured", "refused", "share of the default's time"]
    rows = [
        [str(each["kernel"]), *(f"{each[name]:,}" for name in columns[1:5]),
         "" if each["confirmed"] is None else f"{each['confirmed']:.2f}" if each["confirmed"] != 1 else "the default"]
        for each in records
    ]  # fmt: skip
    wide_console().print(table(f"kernels on {processor.name.split()[1]}", columns, rows))
    better = sum(state.confirmed is not None and state.confirmed < 1 for state in found.states)
    out.print(f"{better} of {len(records)} kernels are faster with another schedule, measured again in a fresh round")
    _print_end(found.choice, database, interrupted=found.interrupted, target="--target cpu ")


def _cpu_line(states: Sequence[CpuProgress]) -> str:
    done = sum(state.confirmed is not None for state in states)
    return f"measured {sum(state.measured for state in states)} schedules; {done} of {len(states)} kernels confirmed"


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
    _print_end(found.choice, database, interrupted=found.interrupted)


def _print_end(choice: Choice, database: Path, *, interrupted: bool, target: str = "") -> None:
    out.print(f"ranked by the {choice.ranking.name} ranking: {choice.why}", highlight=False, markup=False)
    if interrupted:
        out.print("interrupted; what was measured is kept, and the same command goes on from there")
    out.print(f"results are in {database}; use them by: weft compile ... {target}--tuned {database}", markup=False)
