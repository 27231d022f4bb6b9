"""One process of `soak.py`: threads that load, run, save and close modules, and compare every result.

It is told what to do by a JSON file and says how it gets on by lines of JSON on its standard output. It ends well when
its standard input is closed.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import random
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import weft
from weft.cache import NO_ROOM, CacheError
from weft.compiler.model import CompiledModel, CoreStep, OpenModel
from weft.hw.errors import HardwareError
from weft.runtime.errors import CoreFaultError, DeviceError, InputError
from weft.runtime.module import LoadedModule
from weft.sim.errors import BuildError

from benchmarks.campaigns.soak_models import FORMS, Array, Form, Module, only, read_references

BEAT_SECONDS = 1.0
FEW_BUILDERS, MANY_BUILDERS = 10, 500
"""To fill tables with, and to measure."""

REST_SECONDS = 100.0
"""How long a sample waits for all threads to rest."""

MOST_RUNS = 6
CLOSED = "the module is closed; hint: load the model again"


@dataclass(frozen=True)
class Orders:
    """What `soak.py` asks of a worker. ``models``: what never changes; ``work``: this worker's own folder, on the disk
    that is filled; ``full``: the file that tells when it is full."""

    models: str
    work: str
    full: str
    seed: str
    threads: int
    forms: list[str]
    sample_seconds: float
    deadline_seconds: float


class WrongResultError(Exception):
    """A result that is not the reference."""


class RefusedError(Exception):
    """What a full disk may cause has happened; the job is given up."""


class Voice:
    """Lines of JSON on the standard output, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def say(self, kind: str, **fields: Any) -> None:
        with self._lock, suppress(BrokenPipeError):
            print(json.dumps({"kind": kind, **fields}), flush=True)


class Rest:
    """Lets all threads rest between jobs for as long as memory is measured."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._resting = 0
        self._wanted = False
        self._change = threading.Condition()

    def between_jobs(self) -> None:
        with self._change:
            self._resting += 1
            self._change.notify_all()
            self._change.wait_for(lambda: not self._wanted)
            self._resting -= 1

    @contextmanager
    def all_at_rest(self) -> Iterator[bool]:
        """Whether all threads rest; not if one of them takes too long."""
        with self._change:
            self._wanted = True
            rest = self._change.wait_for(lambda: self._resting == self._threads, REST_SECONDS)
        try:
            yield rest
        finally:
            with self._change:
                self._wanted = False
                self._change.notify_all()


class Worker:
    """The shared modules, one of each form, and the threads that use them."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.models, self.work, self.full = Path(orders.models), Path(orders.work), Path(orders.full)
        self.forms = [FORMS[name] for name in orders.forms]
        self.references = {form: read_references(self.models, form) for form in self.forms}
        self._compiled: dict[Form, CompiledModel | OpenModel] = {}
        self.shared: dict[Form, Module] = {}
        self.counts: Counter[str] = Counter()
        self.counts_lock = threading.Lock()
        self.voice = Voice()
        self.rest = Rest(orders.threads)
        self.lost = LostByLlvmlite()
        self.ends = threading.Event()
        self.jobs: dict[int, tuple[float, str]] = {}

    def count(self, what: str, number: int = 1) -> None:
        with self.counts_lock:
            self.counts[what] += number

    # Threads

    def serve(self, number: int) -> None:
        """Do random jobs until the end."""
        chance = random.Random(f"{self.orders.seed}/{number}")
        done = 0
        while not self.ends.is_set():
            form = chance.choices(self.forms, [form.weight for form in self.forms])[0]
            job = chance.choices(list(JOBS), list(JOBS.values()))[0]
            place = f"{job.__name__} of {form.name}, seed {self.orders.seed}/{number}, job {done}"
            self.jobs[number] = time.monotonic(), place
            try:
                with self.disk_may_be_full(CacheError, BuildError, HardwareError):
                    job(self, form, chance)
            except RefusedError:
                self.count("refused: disk full")
            except BaseException as error:
                text = "".join(traceback.format_exception(error))
                kind = "wrong" if isinstance(error, WrongResultError) else "error"
                self.voice.say("failure", what=kind, text=f"{place}\n{text}")
            del self.jobs[number]
            done += 1
            self.count("jobs")
            self.rest.between_jobs()

    def watch(self) -> None:
        """Say how it goes and how much memory there is; end the process if a job takes too long."""
        next_sample = time.monotonic() + self.orders.sample_seconds
        while not self.ends.wait(BEAT_SECONDS):
            if late := [place for begun, place in list(self.jobs.values())
                        if time.monotonic() - begun > self.orders.deadline_seconds]:  # fmt: skip
                faulthandler.dump_traceback(all_threads=True)
                self.voice.say("failure", what="hang", text="\n".join(late))
                os._exit(1)
            if time.monotonic() > next_sample:
                with self.rest.all_at_rest() as rest:
                    if rest:
                        self.voice.say("sample", **measured(self.lost))
                    else:
                        self.count("samples left out")
                next_sample = time.monotonic() + self.orders.sample_seconds
            with self.counts_lock:
                self.voice.say("beat", counts=dict(self.counts))

    def run(self) -> None:
        """Until the standard input ends."""
        threads = [threading.Thread(target=self.serve, args=(number,)) for number in range(self.orders.threads)]
        watching = threading.Thread(target=self.watch)
        for thread in (*threads, watching):
            thread.start()
        sys.stdin.read()
        self.ends.set()
        for thread in (*threads, watching):
            thread.join()
        for module in self.shared.values():
            close(module)
        self.voice.say("end", counts=dict(self.counts))

    # Parts of jobs

    def disk_state(self) -> int:
        """Odd while the disk is full."""
        return int(self.full.read_text() or 0)

    @contextmanager
    def disk_may_be_full(self, *allowed: type[Exception]) -> Iterator[None]:
        """Errors for want of room are given up on if the disk was full meanwhile, and only then."""
        before = self.disk_state()
        try:
            yield
        except allowed as error:
            no_room = not isinstance(error, OSError) or error.errno in NO_ROOM
            if no_room and (before % 2 or self.disk_state() != before):
                raise RefusedError from error
            raise

    def compiled(self, form: Form) -> CompiledModel | OpenModel:
        """The model that modules of a form have in common."""
        if form not in self._compiled:
            self._compiled.setdefault(form, form.compiled(self.models))
        return self._compiled[form]

    def check(self, form: Form, module: Module, chance: random.Random) -> None:
        """One run on a random input, in one of the ways to ask for it; the result must be the reference."""
        number = chance.randrange(len(self.references[form]))
        x, expected = self.references[form][number]
        named = {module.model.inputs[0].name: x}
        out: dict[str, Array] = {}
        if chance.random() < 0.3:
            (output,) = module.model.outputs
            out = {output if isinstance(output, str) else output.name: np.full_like(expected, 77)}
        y = only(module.run(named, out, trace=chance.random() < 0.1))
        self.count(f"runs on {form.device}")
        if y.dtype != expected.dtype or y.shape != expected.shape or y.tobytes() != expected.tobytes():
            different = np.flatnonzero(y != expected) if y.shape == expected.shape else y.shape
            raise WrongResultError(f"{form.name}, input {number}: {y.ravel()[:8]} instead of {expected.ravel()[:8]}, "
                                   f"different: {different!r:.300}")  # fmt: skip
        for array in out.values():
            if array is not y:
                raise WrongResultError(f"{form.name}: the result is not in the array that was given for it")

    # Jobs

    def use_shared(self, form: Form, chance: random.Random) -> None:
        """Runs of a module that other threads use, too, and that may be closed at any moment."""
        if form not in self.shared:
            self.shared.setdefault(form, form.loaded(self.compiled(form)))
        module = self.shared[form]
        try:
            for _ in range(chance.randint(1, MOST_RUNS)):
                self.check(form, module, chance)
        except DeviceError as error:
            if str(error) != CLOSED:
                raise
            self.count("runs refused: closed")

    def replace_shared(self, form: Form, chance: random.Random) -> None:
        """Close a module while others use it, after there is a new one for whoever comes next."""
        module = form.loaded(self.compiled(form))
        with self.counts_lock:
            old, self.shared[form] = self.shared.get(form), module
        if old is not None:
            close(old)
            self.count("modules closed in use")

    def use_own(self, form: Form, chance: random.Random) -> None:
        """A module of this thread: runs, a refused input between them, runs, an end."""
        module = form.loaded(self.compiled(form))
        self.check(form, module, chance)
        try:
            module.run(np.zeros((2, 3, 5), np.float64))
        except InputError:
            self.count("bad inputs refused")
        self.check(form, module, chance)
        close(module)
        if isinstance(module, LoadedModule):
            try:
                module.run(self.references[form][0][0])
            except DeviceError as error:
                if str(error) != CLOSED:
                    raise
            else:
                raise WrongResultError("a closed module ran")

    def make_anew(self, form: Form, chance: random.Random) -> None:
        """Compile, save, load, run, and remove the artifact."""
        model = form.compiled(self.models)
        self.count("compilations")
        if isinstance(model, CompiledModel):
            path = self.work / f"{threading.get_ident()}.weft"
            try:
                with self.disk_may_be_full(OSError):
                    weft.save(model, path)
                module = form.loaded(path)
            finally:
                path.unlink(missing_ok=True)
        else:
            module = form.loaded(model)
        self.check(form, module, chance)
        close(module)
        self.count("artifacts loaded")

    def meet_a_fault(self, form: Form, chance: random.Random) -> None:
        """Flip a bit of a program on the device: the core reports it, and the next run is right."""
        model = self.compiled(form)
        if not (form.on_core and isinstance(model, CompiledModel)):
            return
        module = form.loaded(model)
        assert isinstance(module, LoadedModule)
        step = next(step for step in model.steps if isinstance(step, CoreStep))
        place = step.program_offset + chance.randrange(step.program.size)
        module.device.write(place, module.device.read(place, 1) ^ np.uint8(1 << chance.randrange(8)))
        try:
            self.check(form, module, chance)
        except CoreFaultError:
            self.count("faults reported")
        else:
            raise WrongResultError(f"byte {place} of the window is damaged, and nobody said so")
        self.check(form, module, chance)
        close(module)


JOBS: dict[Callable[[Worker, Form, random.Random], None], int] = {
    Worker.use_shared: 12,
    Worker.use_own: 4,
    Worker.replace_shared: 2,
    Worker.make_anew: 1,
    Worker.meet_a_fault: 1,
}
"""What threads do, and how often."""


def close(module: Module) -> None:
    """Modules with open sizes have no end of their own."""
    if isinstance(module, LoadedModule):
        module.close()


class MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of the GNU C library, mallinfo(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
                     "keepcost")
    )  # fmt: skip


def allocated() -> int:
    """KiB that malloc has given out and not got back, Python's objects among them (``PYTHONMALLOC=malloc``)."""
    library = ctypes.CDLL(None)
    library.malloc_trim(0)
    library.mallinfo2.restype = MallInfo
    found = library.mallinfo2()
    return int(found.uordblks + found.hblkhd) // 1024


class LostByLlvmlite:
    """Memory that no caller of llvmlite 0.50 can free: the callbacks that ``LLVMPY_CreatePassBuilder`` makes for each
    builder, about 1.5 KB for each kernel that is compiled (``ffi/newpassmanagers.cpp``). They are counted here, so
    that what a soak finds is weft's own."""

    def __init__(self) -> None:
        self.builders, self.bytes_each = 0, 0.0
        self._lock = threading.Lock()
        self._create = llvm.create_pass_builder
        llvm.create_pass_builder = self._counted
        with suppress(OSError, AttributeError):  # another C library does not say what it has given out
            self.bytes_each = self._measured()

    def _measured(self) -> float:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine()
        options = llvm.create_pipeline_tuning_options()
        for _ in range(FEW_BUILDERS):
            self._create(machine, options)
        before = allocated()
        for _ in range(MANY_BUILDERS):
            self._create(machine, options)
        return 1024 * (allocated() - before) / MANY_BUILDERS

    def _counted(self, *arguments: Any, **options: Any) -> Any:
        with self._lock:
            self.builders += 1
        return self._create(*arguments, **options)

    @property
    def kibibytes(self) -> int:
        """Lost since this was made."""
        return round(self.builders * self.bytes_each / 1024)


def measured(lost: LostByLlvmlite) -> dict[str, Any]:
    """Memory that cannot be given back, open files, threads, and names in shared memory. All other threads rest.

    A leak shows in ``allocated``. The other two figures contain holes between allocations as well, which malloc keeps:
    they may grow when nothing leaks, but not without end. All are without what llvmlite has lost.
    """
    gc.collect()
    memory = {}
    with suppress(OSError, AttributeError):  # another C library has neither function
        memory = {"allocated": allocated() - lost.kibibytes, "llvmlite": lost.kibibytes}
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    names = set()
    descriptors = os.listdir("/proc/self/fd")
    for number in descriptors:
        with suppress(OSError):
            names.add(os.readlink(f"/proc/self/fd/{number}"))
    names |= {line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    return {
        **memory,
        "seconds": time.monotonic(),
        "resident": int(status["VmRSS"].split()[0]) - lost.kibibytes,
        "own": int(status["RssAnon"].split()[0]) - lost.kibibytes,
        "threads": int(status["Threads"]),
        "files": len(descriptors),
        "shared": sorted(name for name in names if name.startswith("/dev/shm/")),
    }


def main() -> int:
    faulthandler.enable()
    orders = json.loads(Path(sys.argv[1]).read_text())
    # Else a full disk at the first use would make Python choose another folder, which nobody looks at.
    tempfile.tempdir = os.environ["TMPDIR"]
    Worker(Orders(**{field.name: orders[field.name] for field in fields(Orders)})).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
