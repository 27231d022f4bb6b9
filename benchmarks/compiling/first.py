"""The first second: how long the command, an import, a first and a second result take, in CPU seconds of new processes.

Each figure is the least of some processes, which take turns with those of onnxruntime. A first result begins with an
empty cache, a second one with what the first has left; what a process made that was not in the cache is counted.

    python benchmarks/compiling/first.py
    python benchmarks/compiling/first.py --networks resnet18 mobilenet_v2 bert --rounds 5 --json first.json
    python benchmarks/compiling/first.py --networks --chains 100 1000 10000
    python benchmarks/compiling/first.py --mistakes      # only how soon mistakes of users are answered
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.common import Record, machine, print_table, processor, write_json

COMMAND_SECONDS = 0.25
"""CPU seconds allowed for what needs no command."""

MISTAKE_SECONDS = 1.0
"""CPU seconds allowed to answer a mistake of the user's."""

SECOND_RATIO = 1.5
"""Of onnxruntime's session creation and first run, allowed for a second result."""

AGAIN_SECONDS = {"weft run": 0.6, "weft compile": 0.3}
"""CPU seconds allowed for a command that is given the model that it had before."""

CONCAT_OPERANDS, CONCAT_SECONDS = 5000, 2.0
"""CPU seconds allowed to compile and load a concatenation of so many operands."""

CHAIN_RATIO = 11.0
"""Of the time of a tenth of the nodes."""

WEFT = """
import json, sys
import numpy as np, weft
from weft.cache import made_entries
model = weft.compile(sys.argv[1], target="cpu")
weft.load(model).run(dict(np.load(sys.argv[2])))
print(json.dumps(made_entries()))
"""

ONNXRUNTIME = """
import sys
import numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.add_session_config_entry("session.x64quantprecision", "1")
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
session.run(None, dict(np.load(sys.argv[2])))
"""

CHAIN = """
import sys, time
import numpy as np
from weft.compiler.compile import compile_model
from weft.compiler.graph import Attrs, Constant, Function, Module, TensorType, Var, call
def chain(kind, count):
    x = value = Var("x", TensorType((1, 8, 6, 6) if kind == "convolutions" else (4, 64), "float32"))
    weights = Constant(np.full((8, 8, 3, 3), 0.01, np.float32))
    for number in range(count // 2):
        if kind == "convolutions":
            value = call("nn.tanh", call("nn.conv2d", value, weights, pads=(1,) * 4))
        elif kind == "residuals":
            value = call("nn.add", value, call("nn.tanh", value))
        else:
            value = call("nn.negative", call("nn.tanh", value))
    return Module(Function((x,), value, Attrs({"name": "main", "outputs": ("y",)})))
compile_model(chain(sys.argv[1], 4), "cpu")
module = chain(sys.argv[1], int(sys.argv[2]))
started = time.process_time()
compile_model(module, "cpu")
print(time.process_time() - started)
"""

COMMAND = (sys.executable, "-c", "import sys; from weft.cli import main; sys.argv[0] = 'weft'; main()")
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"

CONCAT = """
import sys, time
import weft
from weft.compiler.compile import compile_model
from weft.compiler.graph import Attrs, Function, Module, TensorType, Var, call
def joined(count):
    inputs = tuple(Var(f"x{number}", TensorType((4, 8), "float32")) for number in range(count))
    return Module(Function(inputs, call("concat", *inputs, axis=1), Attrs({"name": "main", "outputs": ("y",)})))
weft.load(compile_model(joined(3), "cpu"))
module = joined(int(sys.argv[1]))
started = time.process_time()
weft.load(compile_model(module, "cpu"))
print(time.process_time() - started)
"""

CHAINS = ("elementwise", "residuals", "convolutions")


class Used(NamedTuple):
    """What a process used and printed."""

    seconds: float
    text: str


def used(command: Sequence[str], cache: Path | None = None, folder: Path | None = None) -> Used:
    """Run a process to its end, whatever its status."""
    environment = os.environ if cache is None else {**os.environ, "WEFT_CACHE": str(cache)}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, env=environment, cwd=folder)
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        output.seek(0)
        return Used(usage.ru_utime + usage.ru_stime, output.read())


def least(
    commands: Mapping[str, Sequence[str]], rounds: int, cache: Path | None = None, folder: Path | None = None
) -> dict[str, Used]:
    """The process of each that took the least time; all run in turns."""
    found: dict[str, Used] = {}
    for _ in range(rounds):
        for name, command in commands.items():
            each = used(command, cache, folder)
            found[name] = min(found.get(name, each), each)
    return found


def starts(rounds: int) -> list[Record]:
    """The command and the import, beside others."""
    commands = {
        "weft --version": (*COMMAND, "--version"),
        "weft --help": (*COMMAND, "--help"),
        "weft run missing.onnx": (*COMMAND, "run", "missing.onnx"),
        "git --version": ("git", "--version"),
        "import weft": (sys.executable, "-c", "import weft"),
        "import onnxruntime": (sys.executable, "-c", "import onnxruntime"),
    }
    found = least(commands, rounds)
    references = {name: COMMAND_SECONDS for name in commands if name.startswith("weft")}
    peer = found["import onnxruntime"]
    references["import weft"] = round(peer.seconds, 3)
    return [Record("start", name, "CPU s", round(each.seconds, 3), references.get(name))
               for name, each in found.items()]  # fmt: skip


def mistakes(rounds: int) -> list[Record]:
    """What a user gets wrong at the command line: those of the tests. Modules are compiled to bytecode before, as they
    are where weft is installed."""
    from tests.cli.test_mistakes import MISTAKES, prepare

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        commands = {words: (*COMMAND, *shlex.split(words)) for words in MISTAKES}
        os.environ.setdefault("PYTHONPYCACHEPREFIX", str(folder / "bytecode"))
        found = least(commands, max(rounds, 2), folder / "cache", folder)
    return [Record("mistake", f"weft {words}", "CPU s", round(each.seconds, 3), MISTAKE_SECONDS)
            for words, each in found.items()]  # fmt: skip


def again(rounds: int) -> list[Record]:
    """Commands that are given a model that they had before, modules compiled to bytecode as for :func:`mistakes`."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        commands = {
            "weft run": (*COMMAND, "run", str(DIGITS)),
            "weft compile": (*COMMAND, "compile", str(DIGITS), "-o", str(Path(folder) / "digits.weft")),
        }
        for command in commands.values():
            used(command, cache)
        found = least(commands, rounds, cache)
    return [Record("again", f"{name} digits.onnx", "CPU s", round(each.seconds, 3), AGAIN_SECONDS[name])
            for name, each in found.items()]  # fmt: skip


def results(name: str, bits: int, rounds: int) -> list[Record]:
    """First and second results of a network."""
    from benchmarks.zoo.peer_forms import subject

    item = subject(name, bits)
    path = item.files["float" if bits == 32 else "qdq-u8"]
    with tempfile.TemporaryDirectory() as folder:
        data, cache = Path(folder) / "inputs.npz", Path(folder) / "cache"
        np.savez(data, **item.inputs)
        commands = {
            engine: (sys.executable, "-c", script, str(path), str(data))
            for engine, script in (("weft", WEFT), ("onnxruntime", ONNXRUNTIME))
        }
        first = used(commands["weft"], cache)
        second = least(commands, rounds, cache)
        made = sum(json.loads(second["weft"].text or '{"failed": 1}').values())
    peer, workload = second["onnxruntime"].seconds, f"{name} {bits} bits"
    return [
        Record("first result", workload, "CPU s", round(first.seconds, 3), round(peer, 3)),
        Record("second result", workload, "CPU s", round(second["weft"].seconds, 3), round(SECOND_RATIO * peer, 3)),
        Record("second result", workload, "entries made", made, 0),
    ]


def chains(counts: Sequence[int], rounds: int) -> list[Record]:
    """Time to compile chains, beside what a tenth of them lets expect."""
    records = []
    for kind in CHAINS:
        seconds = {
            count: min(float(used((sys.executable, "-c", CHAIN, kind, str(count))).text) for _ in range(rounds))
            for count in counts
        }  # fmt: skip
        for count, value in seconds.items():
            before = seconds.get(count // 10)
            allowed = None if before is None else round(CHAIN_RATIO * before, 3)
            records.append(Record("chain", f"{kind}, {count:,} nodes", "CPU s", round(value, 3), allowed))
    return records


def concatenation(rounds: int) -> Record:
    """Time to compile and load a concatenation of many operands, with an empty cache."""
    seconds = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            seconds.append(float(used((sys.executable, "-c", CONCAT, str(CONCAT_OPERANDS)), Path(cache)).text))
    workload = f"{CONCAT_OPERANDS:,} operands"
    return Record("concatenation", workload, "CPU s", round(min(seconds), 3), CONCAT_SECONDS)


def missed(records: Sequence[Record]) -> list[str]:
    """Figures above their reference; that of a first result is for comparison."""
    return [
        f"{each.config}, {each.workload}: {each.value} {each.figure}, allowed {each.reference}"
        for each in records
        if each.config != "first result"
        and isinstance(each.reference, (int, float)) and isinstance(each.value, (int, float))
        and each.value > each.reference
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=["resnet18", "mobilenet_v2", "bert"])
    parser.add_argument("--bits", nargs="*", type=int, default=[32, 8])
    parser.add_argument("--chains", nargs="*", type=int, default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mistakes", action="store_true", help="only mistakes at the command line")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.mistakes:
        records = mistakes(arguments.rounds)
    else:
        records = starts(arguments.rounds) + again(arguments.rounds)
        for name in arguments.networks:
            for bits in arguments.bits:
                records += results(name, bits, arguments.rounds)
        records += chains(arguments.chains, arguments.rounds)
        records.append(concatenation(arguments.rounds))
    print(f"{processor()}, load {os.getloadavg()[0]:.1f}")
    rows = [[each.config, each.workload, each.figure, str(each.value), "" if each.reference is None else
             str(each.reference)] for each in records]  # fmt: skip
    print_table("the first second", ["what", "workload", "figure", "value", "reference"], rows)
    if arguments.json:
        write_json(arguments.json, records)
    faults = missed(records)
    for each in faults:
        print(f"missed: {each} ({machine()})", file=sys.stderr)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
