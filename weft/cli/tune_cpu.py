"""``weft tune`` for a processor: schedules of kernels, measured on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from ..compiler.targets.cpu.processor import named_target
from ..compiler.targets.errors import CompileError
from ..compiler.tune.database import Database
from ..progress import progress
from ..tune.cpu_kernels import cpu_tasks
from ..tune.cpu_search import CpuProgress, search_cpu
from .output import err, out, print_json, table, wide_console
from .tools import TuneRequest
from .tuned import print_end


def tune(request: TuneRequest) -> None:
    """Schedules of kernels, on this machine."""
    options, budget, database = request.options, request.budget, request.database
    if budget.prove:
        raise CompileError("nothing is proved of schedules for a processor, whose times are measured",
                           hint="--prove is for the core")  # fmt: skip
    if options.processor != "host":
        raise CompileError(f"schedules for {options.processor!r} cannot be measured on this machine",
                           hint="tune on the machine that runs the model, with processor 'host'")  # fmt: skip
    processor = named_target(options.processor)
    with ExitStack() as stack:
        status = stack.enter_context(progress("reading the model", err))
        module = request.prepared(status)
        tasks = cpu_tasks(module, processor, options.threads)
        if not tasks:
            raise CompileError("no kernel of this model has schedules to choose from", at=str(request.model),
                               hint="products and convolutions have")  # fmt: skip
        results = stack.enter_context(Database(database))  # a model that is refused leaves no file behind
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
    if request.as_json:
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
    print_end(found.choice, database, interrupted=found.interrupted, target="--target cpu ")


def _cpu_line(states: Sequence[CpuProgress]) -> str:
    done = sum(state.confirmed is not None for state in states)
    return f"measured {sum(state.measured for state in states)} schedules; {done} of {len(states)} kernels confirmed"
