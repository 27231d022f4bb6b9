"""Compiled models that are kept between runs: equal models, options and compilers find what was compiled before.

A key stands for all that a compilation reads: the bytes of the model and of the files that it names, every option with
the file behind it, this package's sources, the processor, and all that is installed. What cannot be told apart from
another compilation by these is not kept: models in memory other than as bytes, models with open sizes, and what
operators, front ends, targets and passes from outside had a part in. A model is stored only if the files that it was
made of did not change meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cache import cache_key, look_up, look_up_large, store
from .compiler.model import CompiledModel
from .compiler.targets.registry import OWN
from .compiler.targets.sources import COMPILER, sources_digest
from .content import NoContentError
from .files import LitertFile
from .imports import IMPORTS
from .plugins import FRONT_ENDS, OPERATORS, plugins

if TYPE_CHECKING:
    from .compiler.model import OpenModel
    from .compiler.passes.pipeline import PassOptions
    from .compiler.targets.target import Dump, Target
    from .hw.config import CoreConfig
    from .hw.dram_rate import DramRate
    from .hw.programs import Code

KIND = "models"

LOCATION = b"location"
"""Stands in every ONNX file that names files with its weights."""

SOURCES = ("compiler", "hw", "sim")
"""Parts of this package that compiled models follow from, beside the modules at its top."""

MAGIC = b"weft1"
PIECE = 1 << 18


@dataclass(frozen=True)
class Wish:
    """What is asked of a compilation, beside the model, its target and the target's options. ``measured``: chains of
    layers are judged by the timing model."""

    strict: bool = False
    keep: bool = False
    measured: bool = True


def compile_kept(
    model: Any,
    target: str | Target,
    options: Mapping[str, Any],
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    passes: PassOptions | None = None,
    wish: Wish = Wish(),
    progress: Callable[[str], None] = lambda _: None,
    dump: Dump | None = None,
    cache: bool = True,
    begin: Callable[[], None] = lambda: None,
) -> CompiledModel | OpenModel:
    """As `compiler.compile.compile_model`; what was compiled before is loaded, unless ``cache`` is false. ``begin`` is
    called before the work, where there is any."""
    subject = None
    own = isinstance(target, str) and target in OWN and passes is None
    own = own and not plugins(FRONT_ENDS) and not plugins(OPERATORS)  # whose code may change under one version
    if cache and own and isinstance(target, str) and dump is None:
        progress("looking for what was compiled before")
        subject = _subject(model, target, options, shapes, wish)
        if subject is not None and (found := _found(subject)) is not None:
            return found
    begin()
    with IMPORTS:
        from .compiler.compile import compile_model
        from .compiler.targets.target import Job

    measure = _cycles if wish.measured else None
    kernels = _kernels_key() if cache and own and target == "accel" and dump is None else None
    together = _cycles_together if wish.measured else None
    job = Job(wish.strict, wish.keep, progress, dump, measure, kernels, together)
    made = compile_model(model, target, options, shapes=shapes, passes=passes, job=job)
    if subject is not None and isinstance(made, CompiledModel):
        _keep(subject, made, model)
    return made


def _cycles(config: CoreConfig, rate: DramRate, program: Code, offset: int) -> int:
    """As `sim.timing.program_cycles`, with which much is imported: where all chains are known nothing is measured."""
    with IMPORTS:
        from .sim.timing import program_cycles

    return program_cycles(config, rate, program, offset)


def _cycles_together(
    cores: Sequence[CoreConfig], ports: Sequence[int], rate: DramRate, programs: Sequence[tuple[Code, int]]
) -> tuple[int, ...]:
    with IMPORTS:
        from .sim.system_timing import cycles_together

    return cycles_together(cores, ports, rate, programs)


@dataclass(frozen=True)
class _Subject:
    """What is compiled. ``base``: the key without the files that the model names; ``files``: their names, None as long
    as they are not known; ``folder``: where they are; ``states``: of every file that was read, as it was before."""

    base: str
    names_key: str
    files: tuple[str, ...] | None
    folder: Path
    states: Mapping[str, tuple[int, ...]]
    started: float

    @property
    def key(self) -> str | None:
        """The whole key; None while not all files are known, or where one cannot be read."""
        if self.files is None:
            return None
        try:
            return cache_key(self.base, [_digest_of_file(self.folder / name)[0] for name in self.files])
        except OSError:
            return None


def _subject(
    model: Any, target: str, options: Mapping[str, Any], shapes: Mapping[str, Sequence[int]] | None, wish: Wish
) -> _Subject | None:
    """None for what is not kept. Errors are the compilation's to tell."""
    started = time.perf_counter()
    read: list[Path] = []
    choices: tuple[str | None, ...] = ()
    if isinstance(model, LitertFile):
        model, choices = model.path, model.choices
    try:
        if isinstance(model, (str, Path)):
            read.append(Path(model))
            (digest, names_files), name, folder = _digest_of_file(Path(model)), Path(model).stem, Path(model).parent
        elif isinstance(model, bytes):
            digest, names_files, name, folder = _digest(model), False, "", Path()
        else:
            return None
        chosen = {option: _option(option, value, read) for option, value in options.items()}
        sized = {each: tuple(size) for each, size in (shapes or {}).items()}
        base = cache_key(_surroundings(), digest, name, target, chosen, sized, wish, choices)
        states = {str(path): _state(path) for path in read}
    except (OSError, NoContentError, TypeError, ValueError, AttributeError):
        return None
    names_key = cache_key("files", _surroundings(), digest)
    files: tuple[str, ...] | None = ()
    if names_files:
        known = look_up(KIND, names_key)
        files = None if known is None else tuple(pickle.loads(known))
        states |= {str(folder / each): _state(folder / each) for each in files or () if (folder / each).exists()}
    return _Subject(base, names_key, files, folder, states, started)


def _option(name: str, value: Any, read: list[Path]) -> Any:
    """An option's content: that of its file, where it names one."""
    if isinstance(value, str) and ((name == "tuned" and value) or (name == "config" and value.endswith(".json"))):
        read.append(Path(value))
        return Path(value).read_bytes()
    return value


def _kernels_key() -> str | None:
    """What stands for all that kernels of the accelerator follow from, beside what is compiled."""
    try:
        return cache_key(_surroundings())
    except OSError:
        return None


def _surroundings() -> tuple[Any, ...]:
    """All that a compilation follows from beside what it is given: what is installed, and the processor, which may be
    taken for another one at any time."""
    with IMPORTS:
        from .compiler.targets.cpu.processor import host_described

    return *_installed(), host_described()


@cache
def _installed() -> tuple[Any, ...]:
    """This package, what is installed beside it (the names of these folders hold versions), and Python."""
    package = COMPILER.parent
    tops = [(path.name, path.read_bytes()) for path in sorted(package.glob("*.py"))]
    parts = [sources_digest(package / part) for part in SOURCES]
    installed: set[str] = set()
    for folder in sys.path:
        try:
            installed |= {name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info"))}
        except OSError:
            continue
    return tops, parts, installed, sys.version


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest_of_file(path: Path) -> tuple[str, bool]:
    """The digest of a file, read a piece at a time, and whether ``LOCATION`` stands in it."""
    state, buffer, found = hashlib.sha256(), bytearray(len(LOCATION) + PIECE), False
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(view[len(LOCATION) :]):
            state.update(view[len(LOCATION) : len(LOCATION) + count])
            found = found or buffer.find(LOCATION, 0, len(LOCATION) + count) >= 0
            view[: len(LOCATION)] = view[count : count + len(LOCATION)]
    return state.hexdigest(), found


def _state(path: Path) -> tuple[int, ...]:
    """What changes when a file is written, or another takes its place."""
    info = path.stat()
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _keep(subject: _Subject, made: CompiledModel, model: Any) -> None:
    """Store a model unless a file of it may have changed since its compilation began."""
    states = dict(subject.states)
    if subject.files is None:
        with IMPORTS:
            from .compiler.frontends.onnx.external_files import external_files

        files = external_files(model.path if isinstance(model, LitertFile) else model)
        store(KIND, subject.names_key, pickle.dumps(files))
        subject = replace(subject, files=files)
        before = time.time_ns() - int((time.perf_counter() - subject.started) * 1e9)
        for name in files:
            state = _state(subject.folder / name)
            if max(state[2:]) >= before:
                return
            states[str(subject.folder / name)] = state
    key, content = subject.key, _packed(made)
    try:
        unchanged = all(_state(Path(path)) == state for path, state in states.items())
    except OSError:
        return
    if unchanged and key is not None and content is not None:
        store(KIND, key, content)


def _found(subject: _Subject) -> CompiledModel | None:
    key = subject.key
    content = None if key is None else look_up_large(KIND, key)
    model = None if content is None else _unpacked(content)
    if model is None:
        return None
    seconds = time.perf_counter() - subject.started
    return replace(model, statistics={**model.statistics, "compile_seconds": seconds})


def _packed(model: CompiledModel) -> bytes | None:
    """A model as bytes: its arrays lie behind its records, so that they are not copied when it is read. None where it
    holds what another process cannot have, or a graph that is too deep."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        records = pickle.dumps(model, protocol=5, buffer_callback=buffers.append)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return None
    arrays = [buffer.raw() for buffer in buffers]
    sizes = [len(records), *(array.nbytes for array in arrays)]
    pieces = [MAGIC, len(sizes).to_bytes(8, "little"), *(size.to_bytes(8, "little") for size in sizes), records]
    return b"".join([*pieces, *arrays])


def _unpacked(view: memoryview) -> CompiledModel | None:
    """The entries of the cache are believed, as the machine code in them is; they are whole, or were not found."""
    place = len(MAGIC) + 8
    count = int.from_bytes(view[len(MAGIC) : place], "little")
    sizes = [int.from_bytes(view[place + 8 * each : place + 8 * each + 8], "little") for each in range(count)]
    place += 8 * count
    pieces = []
    for size in sizes:
        pieces.append(view[place : place + size])
        place += size
    try:
        model = pickle.loads(pieces[0], buffers=pieces[1:])
    except RecursionError:
        return None
    return model if isinstance(model, CompiledModel) else None
