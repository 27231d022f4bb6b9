"""What `fuzz_inputs.py` damages: files and texts of every kind that weft reads, and what a user does with them."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import random
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import typer
import weft
from weft.boards.board import read_board
from weft.boards.hosts import read_hosts
from weft.cli import app
from weft.cli.console import PlainConsole
from weft.cli.errors import BROKEN
from weft.cli.errors import run as run_cli
from weft.compiler import tensor
from weft.compiler.frontends import read
from weft.compiler.graph import Attrs, Function, Module, TensorType, Var
from weft.compiler.graph.text import constant_table, parse, to_text
from weft.compiler.model import CompiledModel, HostStep, OpenModel
from weft.compiler.operators import nn
from weft.compiler.targets.cpu.intrinsics import intrinsic_named
from weft.compiler.targets.loops.check_kernel import check_kernel
from weft.compiler.targets.loops.kernel_code import kernel_code
from weft.compiler.tensor.parser import parse as parse_function
from weft.compiler.tensor.verify import verify
from weft.compiler.tune.database import Database, Key
from weft.explore.space import load_space
from weft.hw.config import TINY, CoreConfig
from weft.hw.errors import ConfigError
from weft.hw.isa import Opcode, instruction_layout
from weft.quantise.examples import read_examples
from weft.runtime.artifact import from_bytes, to_bytes
from weft.runtime.device import FsimDevice
from weft.runtime.index_inputs import index_inputs
from weft.runtime.inputs import read_inputs
from weft.runtime.recording import RecordingDevice, recording_bytes, recording_from
from weft.runtime.replay import replay
from weft.sim.ptx import DeviceMemory, Program
from weft.train import Step, checkpoint, cross_entropy, sgd

from benchmarks.campaigns.fuzz_mutations import edit_bytes, edit_json_text, edit_model, edit_text
from benchmarks.frontends import litert_suite

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
SPACE = DIGITS.with_name("space.toml")
BOARD = ROOT / "weft" / "boards" / "data" / "pynq-z2.toml"


class WrongResultError(Exception):
    """A damaged file changed a result."""


@dataclass(frozen=True)
class Kind:
    """``bases``: what is damaged; ``edit``: once; ``use``: does what a user would do with it."""

    bases: Callable[[], list[bytes]]
    edit: Callable[[bytes, random.Random], bytes]
    use: Callable[[bytes], None]


@cache
def models() -> list[bytes]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    few = [case.model for case in cases if case.model is not None]
    return [each.SerializeToString() for each in few if each.ByteSize() < 20_000] + [DIGITS.read_bytes()] * 40


def use_model(data: bytes) -> None:
    run_once(weft.compile(data, target=("cpu", "accel")[len(data) % 2]))


def run_once(compiled: CompiledModel | OpenModel) -> None:
    """With sizes and inputs of weft's choice."""
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
        if not name.endswith(".json"):
            return content
        return edit_json_text(content.decode(errors="replace"), chance).encode(errors="replace")

    return resealed(data, change)


def as_text(edit: Callable[[str, random.Random], str]) -> Callable[[bytes, random.Random], bytes]:
    return lambda data, chance: edit(data.decode(errors="replace"), chance).encode(errors="replace")


@cache
def digits_module() -> weft.compiler.graph.Module:
    return read(DIGITS).module({}, require_quantised=False)


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
    gpu check devices half.ptx --grid 2 --block 0 --argument float32:64 float32:-1 q8:1 --kernel half --shared --write
    --limit board list show --calibrate --tuned results.sqlite cuda opencl emulated space.toml explore replay hw
"""
ARGUMENTS = (*_WORDS.split(), "\x1b[31m")
COMMANDS = [b"gpu\0check\0half.ptx\0--grid\x002", b"compile\0digits.onnx", b"run\0digits.weft", b"passes"]


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
        Path("half.ptx").write_text(HALF)
        Path("space.toml").write_bytes(SPACE.read_bytes())
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


def edit_sealed(data: bytes, chance: random.Random) -> bytes:
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


HALF = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry half(.param .u64 x, .param .u64 y)
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<6>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    mul.wide.s32 %rd3, %r4, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];
    mul.f32 %f2, %f1, 0f3F000000;
    st.global.f32 [%rd5], %f2;
    ret;
}
"""


@cache
def ptx_texts() -> list[bytes]:
    """NVIDIA's compiler's, one kernel each, and one that wants nothing but arrays."""
    start, *kernels = (ROOT / "tests" / "sim" / "ptx" / "golden" / "kernels.ptx").read_text().split(".visible .entry")
    return [f"{start}.visible .entry{kernel}".encode() for kernel in kernels] + [HALF.encode()] * len(kernels)


def use_ptx(data: bytes) -> None:
    """Run every kernel on two blocks; each argument is the address of an array."""
    memory = DeviceMemory()
    program = Program(data.decode(), memory)
    for name, kernel in program.kernels.items():
        places = [memory.put(np.zeros(4096, np.float32)) for _ in kernel.parameters]
        program.launch(name, (2,), (kernel.threads or 32,), places, limit=2000)


@cache
def training_step() -> Step:
    """One dense layer, trained with momentum."""
    x, w = Var("x", TensorType((4, 3), "float32")), Var("w", TensorType((3, 2), "float32"))
    module = Module(Function((x, w), nn.matmul(x, w), Attrs({"name": "main", "outputs": ("scores",)})))
    return sgd(cross_entropy(module), ["w"], momentum=0.9)


@cache
def checkpoints() -> list[bytes]:
    state = {name: np.ones((3, 2), np.float32) for name in training_step().state}
    with tempfile.NamedTemporaryFile() as file:
        checkpoint.save(Path(file.name), training_step(), checkpoint.Checkpoint(7, state))
        return [Path(file.name).read_bytes()]


def use_checkpoint(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(data)
        checkpoint.load(Path(file.name), training_step())


def use_space(data: bytes) -> None:
    """The first cores of the space, each for its reason refused."""
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        Path(file.name).write_bytes(data)
        space = load_space(file.name)
    for assignment in itertools.islice(space.assignments(), 20):
        with suppress(ConfigError):
            space.design(assignment)


HOSTS = b"""
[z2]
ssh = "xilinx@192.168.2.99"
overlay = "~/weft/z2/weft.bit"
sudo = []
wait = "auto"
run_seconds = 60.0
[bench]
command = ["sh", "-c"]
"""


def use_hosts(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        Path(file.name).write_bytes(data)
        read_hosts(Path(file.name))


def use_board(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        Path(file.name).write_bytes(data)
        read_board(Path(file.name))


KEY = Key("kernel", "core", "memory", "compiler")


@cache
def databases() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.sqlite"
        with Database(path) as database:
            for number in range(20):
                database.add(KEY, {"tile": number}, None if number % 5 == 4 else number, features={"bytes": number})
        return [path.read_bytes()]


def use_database(data: bytes) -> None:
    """Read everything, and write: a damaged file is set aside."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.sqlite"
        path.write_bytes(data)
        with Database(path) as database:
            everything = [*database.results(KEY), *itertools.chain(*database.elsewhere(KEY).values())]
            if any(result.cost not in (None, result.point["tile"]) for result in everything):
                raise WrongResultError
            database.best(KEY.machine, KEY.memory, KEY.compiler)
            database.add(KEY, {"tile": 1000}, 3.0)


def edit_litert(data: bytes, chance: random.Random) -> bytes:
    return litert_suite.mutated(data, np.random.default_rng(chance.getrandbits(32))) if data else data


@cache
def programs() -> list[bytes]:
    """Files that ``torch.export.save`` writes: of layers, and of sizes that are open."""
    import torch

    torch.set_num_threads(1)
    layers = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU(),
                                 torch.nn.Flatten(), torch.nn.Linear(8, 3), torch.nn.Softmax(1)).eval()  # fmt: skip
    recurrent = torch.nn.LSTM(3, 4, batch_first=True).eval()
    batch = torch.export.Dim("batch", min=1, max=8)
    found = []
    for model, x in ((layers, torch.ones(2, 1, 4, 4)), (recurrent, torch.ones(2, 3, 3))):
        for sizes in (None, ({0: batch},)):
            file = io.BytesIO()
            torch.export.save(torch.export.export(model, (x,), dynamic_shapes=sizes), file)
            found.append(file.getvalue())
    return found


def edit_program(data: bytes, chance: random.Random) -> bytes:
    """A member of the archive, mostly the one that describes the graph; or the archive's own bytes."""
    if chance.random() < 0.1:
        return edit_bytes(data, chance)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:  # an earlier edit's archive raises whatever its reader does
        return edit_bytes(data, chance)
    graphs = [name for name in members if name.endswith("model.json")]
    chosen = chance.choice(graphs or sorted(members)) if chance.random() < 0.8 else chance.choice(sorted(members))
    if chosen.endswith(".json"):
        members[chosen] = edit_json_text(members[chosen].decode(errors="replace"), chance).encode(errors="replace")
    else:
        members[chosen] = edit_bytes(members[chosen], chance)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def use_program(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".pt2") as file:
        Path(file.name).write_bytes(data)
        run_once(weft.compile(file.name, target="cpu"))


def use_examples(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(data)
        read_examples(Path(file.name), digits_module())


KINDS = {
    "onnx": Kind(models, edit_model, use_model),
    "artifact": Kind(artifacts, edit_bytes, use_artifact),
    "member": Kind(artifacts, edit_member, use_artifact),
    "manifest": Kind(artifacts, edit_manifest, use_artifact),
    "graph": Kind(lambda: [to_text(digits_module()).encode()], as_text(edit_text), use_graph),
    "kernel": Kind(kernel_texts, as_text(edit_text), use_kernel),
    "trace": Kind(traces, as_text(edit_json_text), use_trace),
    "config": Kind(lambda: [TINY.to_json().encode()], as_text(edit_json_text), use_config),
    "arguments": Kind(lambda: COMMANDS, edit_arguments, use_arguments),
    "numpy": Kind(arrays, edit_bytes, use_array),
    "recording": Kind(recordings, edit_sealed, use_recording),
    "ptx": Kind(ptx_texts, as_text(edit_text), use_ptx),
    "checkpoint": Kind(checkpoints, edit_sealed, use_checkpoint),
    "space": Kind(lambda: [SPACE.read_bytes()], as_text(edit_text), use_space),
    "hosts": Kind(lambda: [HOSTS], as_text(edit_text), use_hosts),
    "board": Kind(lambda: [BOARD.read_bytes()], as_text(edit_text), use_board),
    "database": Kind(databases, edit_bytes, use_database),
    "examples": Kind(arrays, edit_bytes, use_examples),
    "cache": Kind(lambda: [b"cache"], edit_bytes, use_cache),
    "litert": Kind(litert_suite.seeds, edit_litert, use_model),
}
if find_spec("torch"):
    KINDS["program"] = Kind(programs, edit_program, use_program)
"""What is damaged, by name. Exported programs need PyTorch, which is an extra."""
