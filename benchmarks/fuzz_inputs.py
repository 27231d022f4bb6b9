"""Damaged inputs of every kind: each must be refused by a named error, or work. Nothing else may happen.

Case ``n`` of a kind depends on ``n`` and the seed alone. Each runs in a process of its own with limits of memory and
time. A failure is shrunk to the edits that it needs and written to ``--keep DIR``; files in ``tests/fuzz_inputs`` are
run again by the tests.

    python benchmarks/fuzz_inputs.py --cases 10000
    python benchmarks/fuzz_inputs.py --cases 1 --first 1234 --kind onnx --verbose
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import io
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
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import typer
import weft
from fuzz_mutations import edit_bytes, edit_json_text, edit_model, edit_text
from rich.console import Console
from weft.cli import app
from weft.cli.console import PlainConsole
from weft.cli.errors import BROKEN, EXPECTED
from weft.cli.errors import run as run_cli
from weft.compiler import tensor
from weft.compiler.frontends import read
from weft.compiler.graph.text import constant_table, parse, to_text
from weft.compiler.model import CompiledModel, HostStep, OpenModel
from weft.compiler.targets.cpu.intrinsics import intrinsic_named
from weft.compiler.targets.loops.check_kernel import check_kernel
from weft.compiler.targets.loops.kernel_code import kernel_code
from weft.compiler.tensor.parser import parse as parse_function
from weft.compiler.tensor.verify import verify
from weft.hw.config import TINY, CoreConfig
from weft.hw.isa import Opcode, instruction_layout
from weft.progress import progress
from weft.runtime.artifact import from_bytes, to_bytes
from weft.runtime.device import FsimDevice
from weft.runtime.index_inputs import index_inputs
from weft.runtime.inputs import read_inputs
from weft.runtime.recording import RecordingDevice, recording_bytes, recording_from
from weft.runtime.replay import replay

ROOT = Path(__file__).parent.parent
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
MEMORY_BYTES = 4 << 30
SECONDS = 60
"""Of the processor, which a machine under load gives late."""

WALL_SECONDS = 600.0
"""For what waits and does not compute."""

MOST_EDITS = 4
BAD = ("traceback", "crash", "hang", "wrong")
CODES = {0: "ok", 10: "named error", 11: "traceback", 13: "wrong"}


class WrongResultError(Exception):
    """A damaged file changed a result."""


@dataclass(frozen=True)
class Kind:
    """``bases``: what is damaged; ``edit``: once; ``use``: does what a user would do with it."""

    bases: Callable[[], list[bytes]]
    edit: Callable[[bytes, random.Random], bytes]
    use: Callable[[bytes], None]


def edited(kind: str, number: int, seed: int, dropped: frozenset[int] = frozenset()) -> bytes:
    """The input of a case, without some of its edits."""
    chance = random.Random(f"{kind}/{seed}/{number}")
    data = chance.choice(KINDS[kind].bases())
    for place in range(chance.randint(1, MOST_EDITS)):
        own = random.Random(chance.random())
        if place not in dropped:
            data = KINDS[kind].edit(data, own)
    return data


# Kinds


@cache
def models() -> list[bytes]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    few = [case.model for case in cases if case.model is not None]
    return [each.SerializeToString() for each in few if each.ByteSize() < 20_000] + [DIGITS.read_bytes()] * 40


def use_model(data: bytes) -> None:
    compiled = weft.compile(data, target=("cpu", "accel")[len(data) % 2])
    if isinstance(compiled, OpenModel):
        compiled = compiled.at(dict.fromkeys(compiled.types.symbols, compiled.types.multiple))
    weft.load(compiled).run(read_inputs(compiled.inputs, None, 0, index_inputs(compiled)))


@cache
def compiled_digits() -> tuple[CompiledModel, ...]:
    each = weft.compile(DIGITS, TINY), weft.compile(DIGITS, target="cpu")
    return tuple(model for model in each if isinstance(model, CompiledModel))


def artifacts() -> list[bytes]:
    return [to_bytes(model) for model in compiled_digits()]


def use_artifact(data: bytes) -> None:
    model = from_bytes(data)
    with tempfile.NamedTemporaryFile(suffix=".weft") as file:
        Path(file.name).write_bytes(data)
        weft.load(file.name).run(read_inputs(model.inputs, None, 0, index_inputs(model)))


def resealed(data: bytes, change: Callable[[str, bytes], bytes]) -> bytes:
    """An artifact with its members changed and a right checksum."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: change(name, archive.read(name)) for name in archive.namelist()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
        archive.comment = b"weft sha256 " + b"0" * 64
    raw = buffer.getvalue()[:-64]
    return raw + hashlib.sha256(raw).hexdigest().encode()


def edit_member(data: bytes, chance: random.Random) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        chosen = chance.choice(archive.namelist())
    return resealed(data, lambda name, content: edit_bytes(content, chance) if name == chosen else content)


def edit_manifest(data: bytes, chance: random.Random) -> bytes:
    def change(name: str, content: bytes) -> bytes:
        if name not in ("manifest.json", "recording.json"):
            return content
        return edit_json_text(content.decode(errors="replace"), chance).encode(errors="replace")

    return resealed(data, change)


def as_text(edit: Callable[[str, random.Random], str]) -> Callable[[bytes, random.Random], bytes]:
    return lambda data, chance: edit(data.decode(errors="replace"), chance).encode(errors="replace")


@cache
def digits_module() -> weft.compiler.graph.Module:
    return read(DIGITS).module({}, takes_floats=True)


def use_graph(data: bytes) -> None:
    module = parse(data.decode(), constant_table(digits_module()))
    weft.compile(module, target="cpu")


@cache
def kernel_texts() -> list[bytes]:
    steps = [step for model in compiled_digits() for step in model.steps if isinstance(step, HostStep)]
    return [kernel.text.encode() for step in steps for kernel in step.program.kernels]


def use_kernel(data: bytes) -> None:
    """As a kernel whose name and sizes are those of its text."""
    func = parse_function(data.decode(), intrinsic_named)
    verify(func)
    check_kernel(kernel_code(func, {}, 1), 1, intrinsic_named)


def product() -> tensor.Schedule:
    """A product of matrices and what follows it."""
    a, b = tensor.placeholder((6, 8), "int8", "a"), tensor.placeholder((5, 8), "int8", "b")
    k = tensor.reduce_axis(8, "k")
    c = tensor.compute((6, 5), lambda i, j: tensor.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), k), "c")
    return tensor.create_schedule(tensor.compute((6, 5), lambda i, j: tensor.maximum(c[i, j], 0), "d"))


def traces() -> list[bytes]:
    schedule = product()
    schedule.cache_read("c", "a", "near")
    schedule.tile(["d_i", "d_j"], [4, 5])
    schedule.compute_at("c", "d_j_o")
    schedule.split("k", 4)
    schedule.reorder("d_j_i", "d_i_i")
    schedule.parallel("d_i_o")
    return [tensor.trace_to_json(schedule.trace).encode()]


def use_trace(data: bytes) -> None:
    """A trace that is accepted keeps the meaning."""
    random = np.random.default_rng(0)
    inputs = {"a": random.integers(-128, 128, (6, 8), np.int8), "b": random.integers(-128, 128, (5, 8), np.int8)}
    scheduled = tensor.replay(product(), tensor.trace_from_json(data.decode(errors="surrogateescape")))
    results = tensor.interpret(scheduled.func, inputs)
    if not np.array_equal(results["d"], tensor.interpret(product().func, inputs)["d"]):
        raise WrongResultError


def use_config(data: bytes) -> None:
    config = CoreConfig.from_json(data.decode())
    for opcode in Opcode:
        instruction_layout(config, opcode)
    weft.compile(DIGITS, config)


_WORDS = """
    compile run disasm shapes compare profile passes --help --version digits.onnx digits.weft x.npy none - -- --target
    cpu accel --device fsim --config tiny pynq -o out.weft --output --json --seed 0 -1 99999999999999999999 --shape
    image=1x1x8x8 image=0 image=-1x1x8x8 image=x --strict --report --input -i --dump ir --trace t --threads --vthreads
    10 --processor host --latency --bandwidth --pass --check --tolerance nan reference . / [red]
"""
ARGUMENTS = (*_WORDS.split(), "\x1b[31m")


def edit_arguments(data: bytes, chance: random.Random) -> bytes:
    words = data.decode(errors="surrogateescape").split("\0")
    words.insert(chance.randint(0, len(words)), chance.choice(ARGUMENTS))
    if chance.random() < 0.1:
        words[chance.randrange(len(words))] = chance.choice(("a" * 100_000, "\udcff", "", "\u202e"))
    return "\0".join(words).encode(errors="surrogateescape")


def use_arguments(data: bytes) -> None:
    words = data.decode(errors="surrogateescape").split("\0")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("digits.onnx").write_bytes(DIGITS.read_bytes())
        Path("digits.weft").write_bytes(artifacts()[0])
        np.save("x.npy", np.zeros((1, 1, 8, 8), np.float32))
        status = run_cli(app, words, PlainConsole(file=sys.stderr))
    if status == BROKEN:
        raise AssertionError("an unexpected error")
    if status:
        raise typer.Exit(status)


def arrays() -> list[bytes]:
    array, files = np.zeros((1, 1, 8, 8), np.float32), [io.BytesIO() for _ in range(3)]
    np.save(files[0], array)
    np.savez(files[1], image=array)
    np.savez_compressed(files[2], image=array)
    return [file.getvalue() for file in files]


def use_array(data: bytes) -> None:
    model = compiled_digits()[0]
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(data)
        weft.load(model).run(read_inputs(model.inputs, Path(file.name), 0))


@cache
def recordings() -> list[bytes]:
    model = compiled_digits()[0]
    device = RecordingDevice(FsimDevice(TINY, timing=False))
    weft.load(model, device).run(np.ones((1, 1, 8, 8), np.float32))
    return [recording_bytes(device.recording(model)), recording_bytes(device.recording())]


def edit_recording(data: bytes, chance: random.Random) -> bytes:
    return chance.choice((edit_manifest, edit_manifest, edit_member))(data, chance)


def use_recording(data: bytes) -> None:
    recording = recording_from(data)
    for difference in replay(recording, FsimDevice(recording.config, timing=False)):
        str(difference)


def use_cache(data: bytes) -> None:
    """``data``: which damage every file of a cache that is in use gets."""
    model, x = compiled_digits()[1], np.ones((1, 1, 8, 8), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WEFT_CACHE"] = folder
        expected = weft.load(model).run(x)
        chance = random.Random(data)
        for path in [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]:
            path.chmod(0o600)
            path.write_bytes(edit_bytes(path.read_bytes(), chance))
        result = weft.load(model).run(x)
    if any(not np.array_equal(result[name], value) for name, value in expected.items()):
        raise WrongResultError


KINDS = {
    "onnx": Kind(models, edit_model, use_model),
    "artifact": Kind(artifacts, edit_bytes, use_artifact),
    "member": Kind(artifacts, edit_member, use_artifact),
    "manifest": Kind(artifacts, edit_manifest, use_artifact),
    "graph": Kind(lambda: [to_text(digits_module()).encode()], as_text(edit_text), use_graph),
    "kernel": Kind(kernel_texts, as_text(edit_text), use_kernel),
    "trace": Kind(traces, as_text(edit_json_text), use_trace),
    "config": Kind(lambda: [TINY.to_json().encode()], as_text(edit_json_text), use_config),
    "arguments": Kind(lambda: [b"compile\0digits.onnx", b"run\0digits.weft", b"passes"], edit_arguments, use_arguments),
    "numpy": Kind(arrays, edit_bytes, use_array),
    "recording": Kind(recordings, edit_recording, use_recording),
    "cache": Kind(lambda: [b"cache"], edit_bytes, use_cache),
}
"""What is damaged, by name."""


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
