"""Damaged inputs of every kind: each must be refused by a named error, or work. Nothing else may happen.

Case ``n`` of a kind depends on ``n`` and the seed alone. Each runs in a process of its own with limits of memory and
time. A failure is shrunk to the edits that it needs and written to ``--keep DIR``; files in ``tests/fuzz_inputs`` are
run again by the tests.

    python benchmarks/campaigns/fuzz_inputs.py --cases 10000
    python benchmarks/campaigns/fuzz_inputs.py --cases 1 --first 1234 --kind onnx --verbose
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import random
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import typer
import weft
from rich.console import Console
from weft.cli.errors import EXPECTED
from weft.progress import progress

from benchmarks.campaigns.fuzz_kinds import KINDS, WrongResultError, compiled_digits

MEMORY_BYTES = 4 << 30
SECONDS = 60
"""Of the processor, which a machine under load gives late."""

WALL_SECONDS = 600.0
"""For what waits and does not compute."""

MOST_EDITS = 4
BAD = ("traceback", "crash", "hang", "wrong")
CODES = {0: "ok", 10: "named error", 11: "traceback", 13: "wrong"}


def edited(kind: str, number: int, seed: int, dropped: frozenset[int] = frozenset()) -> bytes:
    """The input of a case, without some of its edits."""
    chance = random.Random(f"{kind}/{seed}/{number}")
    data = chance.choice(KINDS[kind].bases())
    for place in range(chance.randint(1, MOST_EDITS)):
        own = random.Random(chance.random())
        if place not in dropped:
            data = KINDS[kind].edit(data, own)
    return data


# Running


def outcome(kind: str, data: bytes) -> tuple[str, str]:
    """What becomes of an input in a process of its own: a state, and the last words of what it printed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        _child(kind, data, writer)
    os.close(writer)
    said, late, ends = b"", False, time.monotonic() + WALL_SECONDS
    while (left := ends - time.monotonic()) > 0 and select.select([reader], [], [], left)[0]:
        part = os.read(reader, 1 << 16)
        if not part:
            break
        said = (said + part)[-20_000:]
    else:
        late = True
        os.kill(pid, signal.SIGKILL)
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    text = said.decode(errors="replace")
    if late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return "hang", text
    if os.WIFSIGNALED(status):
        return "crash", f"signal {os.WTERMSIG(status)}\n{text}"
    return CODES.get(os.WEXITSTATUS(status), "crash"), text


def _child(kind: str, data: bytes, writer: int) -> None:
    """Never returns."""
    code = 0
    gc.freeze()  # what the parent left to the collector, it ends: sessions of onnxruntime crash if a child ends them
    faulthandler.disable()
    try:
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        os.set_inheritable(1, False)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
        warnings.simplefilter("ignore")
        KINDS[kind].use(data)
    except (*EXPECTED, typer.Exit):
        code = 10
    except WrongResultError:
        code = 13
    except BaseException:
        traceback.print_exc()
        code = 11
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def shrunk(kind: str, number: int, seed: int, state: str) -> bytes:
    """The input of a failing case with as few edits as fail in the same way."""
    dropped: frozenset[int] = frozenset()
    for place in range(MOST_EDITS):
        if state != "hang" and outcome(kind, edited(kind, number, seed, dropped | {place}))[0] == state:
            dropped |= {place}
    return edited(kind, number, seed, dropped)


def prepare() -> None:
    """Everything that all cases use is there before the first process is made."""
    os.environ.setdefault("WEFT_CACHE", tempfile.mkdtemp(prefix="weft-fuzz-"))
    for kind in KINDS.values():
        kind.bases()
    for model in compiled_digits():
        weft.load(model).run(np.zeros((1, 1, 8, 8), np.float32))


def run(cases: int, seed: int, first: int = 0, kinds: tuple[str, ...] = (), keep: Path | None = None,
        tell: Callable[[str], None] = print, step: Callable[[str], None] = lambda text: None,
        ) -> dict[str, Counter[str]]:  # fmt: skip
    """Outcomes by kind; each bad one is told to ``tell`` and kept. ``step`` hears how far the work is."""
    prepare()
    chosen = kinds or tuple(KINDS)
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in chosen}
    for number in range(first, first + cases):
        kind = chosen[number % len(chosen)]
        step(f"case {number - first + 1:,} of {cases:,}")
        state, text = outcome(kind, edited(kind, number, seed))
        counts[kind][state] += 1
        if state in BAD:
            tell(f"{kind} {number}: {state}: {' '.join(text.splitlines()[-1:])[-300:]}")
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{kind}-{number}").write_bytes(shrunk(kind, number, seed, state))
                (keep / f"{kind}-{number}.txt").write_text(text)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", choices=sorted(KINDS), help="only these")
    parser.add_argument("--keep", type=Path, help="folder for inputs that fail, and what they printed")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    options = parser.parse_args()
    console = Console(stderr=True)
    with progress("making what is damaged", console, apart=10.0) as updates:
        counts = run(options.cases, options.seed, options.first, tuple(options.kind or ()), options.keep,
                     lambda text: console.print(text, markup=False, highlight=False), updates.update)  # fmt: skip
    if options.json:
        print(json.dumps(counts, indent=1))
    else:
        for kind, states in counts.items():
            print(f"{kind:<12}" + ", ".join(f"{state}: {count:,}" for state, count in sorted(states.items())))
    return int(any(states[bad] for states in counts.values() for bad in BAD))


if __name__ == "__main__":
    sys.exit(main())
