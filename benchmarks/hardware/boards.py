"""What a board costs besides its core: launches, copies, images, the first result; here, on this machine's processor.

The board is virtual: the real pynq 3.1.2 and all of weft's part, with a core that ends every program at once, so that
what is left is overhead. The same ssh carries ``cat`` as a reference. A board's own processor is slower.

    python benchmarks/hardware/boards.py --json boards.json
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import weft
from weft.boards.board import find_board
from weft.boards.design import make_design
from weft.boards.device import PynqDevice
from weft.boards.environments import PYNQ_3
from weft.boards.hosts import Host
from weft.boards.loopback import daemon_missing, loopback_daemon
from weft.boards.remote import SSH, command_line
from weft.boards.virtual_files import write_virtual_board
from weft.compiler.model import CompiledModel
from weft.hw.config import CoreConfig
from weft.hw.isa import Finish
from weft.hw.programs import assemble
from weft.progress import progress

from benchmarks.common import Record, print_table, processor, write_json

BOARD = "pynq-z2"
DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"
COPY_BYTES = 16 << 20
SMALL_BYTES = 64
CLOCK_MHZ = 100.0


def spread_us(action: Callable[[], object], times: int) -> tuple[float, float]:
    """Microseconds of one call after some that do not count: the median, and the least, which a busy machine says
    more truly."""
    for _ in range(5):
        action()
    taken: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        action()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1e6, min(taken) * 1e6


def spread(name: str, action: Callable[[], object], times: int) -> dict[str, float]:
    """Both as figures."""
    median, least = spread_us(action, times)
    return {f"{name}, us": median, f"{name}, least us": least}


def best_rate(action: Callable[[], object], amount: float, times: int = 3) -> float:
    """Amount a second, the best of some calls."""
    best = 0.0
    for _ in range(times):
        started = time.perf_counter()
        action()
        best = max(best, amount / (time.perf_counter() - started))
    return best


@contextmanager
def places(folder: Path, core: CoreConfig, report: Callable[[str], None]) -> Iterator[dict[str, Host]]:
    """The board at a pipe, and behind ssh where there is a daemon."""
    board = write_virtual_board(
        folder / "board", make_design(find_board(BOARD), core), PYNQ_3, idle=True, progress=report
    )
    hosts = {"pipe": board.host("pipe")}
    if daemon_missing():
        yield hosts
        return
    (folder / "sshd").mkdir()
    with loopback_daemon(folder / "sshd") as daemon:
        yield {**hosts, "ssh": daemon.reaches(board.host("ssh"))}


def bare_ssh(host: Host, times: int) -> tuple[float, float, float]:
    """Microseconds there and back of a few bytes through ssh and ``cat`` (median, least); MiB a second one way."""
    line = command_line(host)[:-1]
    assert line[: len(SSH)] == [*SSH]
    with subprocess.Popen([*line, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        near, far = child.stdin.fileno(), child.stdout.fileno()

        def echo() -> None:
            os.write(near, b"x" * SMALL_BYTES)
            got = 0
            while got < SMALL_BYTES:
                got += len(os.read(far, SMALL_BYTES - got))

        median, least = spread_us(echo, times)
        child.stdin.close()
    content = bytes(COPY_BYTES)

    def push() -> None:
        subprocess.run([*line, "cat >/dev/null"], input=content, check=True)

    seconds: list[float] = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run([*line, "true"], check=True)
        connected = time.perf_counter()
        push()
        seconds.append(max(1e-9, time.perf_counter() - connected - (connected - started)))
    return median, least, COPY_BYTES / (1 << 20) / min(seconds)


def launches_and_copies(host: Host, core: CoreConfig, times: int) -> dict[str, float]:
    """Figures of a window, without a model."""
    device = PynqDevice(core, host=host)
    program = assemble(core, [Finish()])
    device.allocate(4096)
    device.write(0, program)
    figures = spread("launch of an empty program", lambda: device.launch(0, 1), times)
    link = device.board.link(core, lambda _: None)
    figures |= spread("message there and back", lambda: link.ask("state", 30), times)
    device.allocate(COPY_BYTES)
    data = np.random.default_rng(0).integers(0, 256, COPY_BYTES, np.uint8)
    mebibytes = COPY_BYTES / (1 << 20)
    figures["to the board, MiB/s"] = best_rate(lambda: device.write(0, data), mebibytes)
    figures["from the board, MiB/s"] = best_rate(lambda: device.read(0, COPY_BYTES), mebibytes)
    if not np.array_equal(device.read(0, COPY_BYTES), data):
        raise SystemExit("the bytes that came back are not those that were sent")
    device.allocate(0)
    return figures


def images(host: Host, model: CompiledModel, count: int) -> dict[str, float]:
    """Figures of a model whose core takes no time."""
    batch = np.random.default_rng(0).random((count, *model.inputs[0].shape)).astype(np.float32)
    figures: dict[str, float] = {}
    for kernels in ("host", "board"):
        started = time.perf_counter()
        module = weft.load(model, PynqDevice(model.config, host=replace(host, kernels=kernels)))
        module.run(batch[0])
        figures[f"first result, kernels on the {kernels}, s"] = time.perf_counter() - started
        figures |= spread(f"one image, kernels on the {kernels}", partial(module.run, batch[0]), min(200, count))
        if kernels == "board":
            figures["images/s in batches"] = best_rate(partial(module.run_batch, batch), count, 5)
        module.close()
    return figures


def records_of(
    config: str, place: str, figures: dict[str, float], bare: tuple[float, float, float] | None
) -> list[Record]:
    """With what ssh and ``cat`` take as references, where ssh is the place."""
    references: dict[str, float] = {}
    if bare is not None and place == "ssh":
        for name in ("launch of an empty program", "message there and back"):
            references |= {f"{name}, us": bare[0], f"{name}, least us": bare[1]}
        references |= dict.fromkeys(("to the board, MiB/s", "from the board, MiB/s"), bare[2])
    return [
        Record(config, place, name, round(value, 3), round(references[name], 3) if name in references else None)
        for name, value in figures.items()
    ]


def bounds(place: str, figures: dict[str, float], model: CompiledModel, cycles: int) -> dict[str, float]:
    """Images a second that the core, the copies and the messages alone would allow."""
    sent = sum(tensor.nbytes for tensor in model.inputs)
    return {
        f"bound of the core at {CLOCK_MHZ:g} MHz, images/s": CLOCK_MHZ * 1e6 / cycles,
        f"bound of the bytes on the {place}, images/s": figures["to the board, MiB/s"] * (1 << 20) / sent,
        f"bound of a message each on the {place}, images/s": 1e6 / figures["message there and back, least us"],
    }


def measure(times: int, report: Callable[[str], None]) -> list[Record]:
    core = find_board(BOARD).default_core
    report("compiling digits")
    model = weft.compile(DIGITS, core)
    assert isinstance(model, CompiledModel)
    predicted = weft.load(model, "fsim")
    predicted.run(np.zeros(model.inputs[0].shape, np.float32))
    records: list[Record] = []
    with tempfile.TemporaryDirectory(prefix="weft-boards-") as name, places(Path(name), core, report) as hosts:
        bare = None
        if "ssh" in hosts:
            report("ssh and cat")
            bare = bare_ssh(hosts["ssh"], times)
        for place, host in hosts.items():
            report(f"{place}: launches and copies")
            figures = launches_and_copies(host, core, times)
            report(f"{place}: images")
            figures |= images(host, model, 4 * times)
            figures |= bounds(place, figures, model, predicted.cycles or 1)
            records += records_of(core.name, place, figures, bare)
    return records


def rows(records: Sequence[Record]) -> list[list[str]]:
    return [
        [each.workload, each.figure, f"{each.value:,.1f}" if isinstance(each.value, float) else str(each.value),
         "-" if each.reference is None else f"{each.reference:,.1f}"]
        for each in records
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=300, help="calls of which the median is taken")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()
    if arguments.times < 10:
        parser.error("--times must be at least 10")
    with progress("set-up") as shown:
        records = measure(arguments.times, shown.update)
    print(f"processor: {processor()}; load: {os.getloadavg()[0]:.1f}; reference: ssh and cat, in the same minute")
    if missing := daemon_missing():
        print(f"NOT over ssh: no OpenSSH daemon is installed ({missing})")
    print_table("a virtual board whose core takes no time", ["place", "figure", "value", "reference"], rows(records))
    if arguments.json:
        write_json(arguments.json, records)


if __name__ == "__main__":
    main()
