"""Hostile frames on the link between host and board, both ways: an error or an answer, in time, and nothing else.

Case ``n`` depends on ``n`` and the seed alone. The board's end is the real server and driver over a core that ends at
once and memory between guards; the host's end is the real ``PynqDevice`` and gets what is left of good answers.

    python benchmarks/campaigns/fuzz_link.py --frames 10000
    python benchmarks/campaigns/fuzz_link.py --frames 1 --first 123 --side board
"""

from __future__ import annotations

import argparse
import hashlib
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from weft.boards.device import PynqDevice, _boards, load_fields
from weft.boards.hosts import Host
from weft.boards.link.driver import Core, Driver
from weft.boards.link.errors import KINDS, LinkError
from weft.boards.link.frames import HEADER_BYTES, MARK, PREFIX, Header, Stream, pack
from weft.boards.link.messages import PROTOCOL
from weft.boards.link.plan import CoreStep, Plan, plan_text
from weft.boards.link.server import Server
from weft.boards.link.system import SystemDriver
from weft.boards.remote import Link
from weft.boards.zipapp import core_constants
from weft.compiler.model import CompiledModel, CorePart, HostCode, HostProgram, TensorSlot, TensorSpec
from weft.compiler.model import CoreStep as ProgramStep
from weft.hw.config import ISA_VERSION, TINY
from weft.hw.register_windows import GROUP_MEMBERS, GROUP_WINDOW, NUMBER_BITS, WINDOW_BYTES
from weft.hw.registers import MAGIC, Register, Status
from weft.hw.relay_plan import RelayRegister, RelayStatus
from weft.hw.system_config import SystemConfig
from weft.runtime.errors import DeviceError

CASE_SECONDS = 20.0
GUARD, GUARD_BYTES = 0xC3, 4096
SMALL = 4096
"""Bytes of a window in these conversations."""

ODD = (
    0, 1, -1, 63, 64, SMALL, SMALL + 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64, 10**40, 0.5, 1e308, -0.0,
    None, True, False, "", "a", "\x00", "\x1b[2J", "x" * 5000, [], [1], [[1, 2, 3]], [None], {}, {"a": {}},
)  # fmt: skip

LOAD: Header = {
    "do": "load", "bit": "0" * 64, "hwh": "0" * 64, "ip": None, "clock_mhz": None, **load_fields(TINY),
}  # fmt: skip

PAIR = SystemConfig(cores=(TINY, TINY))

TOGETHER: Header = {
    "window": 1, "programs": [{"start": 0, "size": SMALL, "offset": 0, "count": 4}, None], "shared": [0, 0],
    "seconds": 1.0, "watchdog": 9, "wait": "poll",
}  # fmt: skip

PLAN = plan_text(Plan((16, 32), (0,), (1,), (CoreStep(0, 4, ((0, 64),), ((1, 128),)),)))
"""A whole model without steps on the processor."""

PLAN_REQUESTS: tuple[tuple[Header, int | bytes], ...] = (
    ({"do": "file", "name": "plan", "offset": 0, "size": len(PLAN)}, PLAN),
    ({"do": "model", "plan": hashlib.sha256(PLAN).hexdigest(), "constants": None, "libraries": [], "window": 1}, 0),
)

REQUESTS: tuple[tuple[Header, int | bytes], ...] = (
    ({"do": "hello", "protocols": [PROTOCOL]}, 0),
    ({"do": "file", "name": "bit", "offset": 0, "size": 64}, 64),
    (LOAD, 0),
    ({"do": "allocate", "size": SMALL}, 0),
    ({"do": "write", "window": 1, "offset": 64, "size": 8}, 100),
    ({"do": "write", "window": 1, "offset": SMALL - 100}, 100),
    ({"do": "read", "window": 1, "offset": 0, "size": SMALL}, 0),
    ({"do": "run", "window": 1, "offset": 0, "count": 4, "seconds": 1.0, "watchdog": 9, "wait": "poll"}, 0),
    ({**LOAD, **load_fields(PAIR)}, 0),
    ({"do": "together", **TOGETHER}, 0),
    ({"do": "relay", **TOGETHER, "runs": 2}, 64),
    *PLAN_REQUESTS,
    ({"do": "file", "name": "code", "offset": 0, "size": 64}, 64),
    ({"do": "library", "digest": hashlib.sha256(b"").hexdigest()}, 0),
    ({"do": "feed", "model": 1, "offset": 0}, 16),
    ({"do": "infer", "model": 1, "count": 2, "seconds": 1.0, "watchdog": 9, "wait": "poll"}, 32),
    ({"do": "infer", "model": 1, "count": 1, "seconds": 1.0, "watchdog": 9, "wait": "poll"}, 0),
    ({"do": "state"}, 0),
    ({"do": "settings", "values": [[Register.PROGRAM_OFFSET, 64], [Register.WATCHDOG, 5]]}, 0),
    ({"do": "free", "window": 1}, 0),
    ({"do": "close"}, 0),
)

SYSTEM = next(place for place, (header, _) in enumerate(REQUESTS) if header.get("system"))
"""Loads a system of two cores."""
"""Questions, with the bytes of their payload; some of them wrong already."""

HELLO: Header = {
    "ok": True, "protocol": PROTOCOL, "python": "3.10", "numpy": "1", "pynq": "4", "machine": "m", "user": 0,
    "code": "",
}  # fmt: skip

ANSWERS: tuple[tuple[Header, int], ...] = (
    (HELLO, 0),
    ({"ok": True}, 0),
    ({"ok": True}, 0),
    ({"ok": True, "address": 0xA000_0000, "clock_mhz": 100.0, "device": "x", "no_interrupt": "none"}, 0),
    ({"ok": True, "window": 1, "address": 0x1000_0000}, 0),
    ({"ok": True}, 0),
    (
        {
            "ok": True, "cycles": 100, "fault": None, "read_beats": 1, "write_beats": 1, "counters": [[0, 1, 100]],
            "seconds": 0.1, "polls": 3, "wakes": 0,
        },
        0,
    ),
    ({"ok": True, "more": True}, SMALL // 2),
    ({"ok": True, "more": False}, SMALL // 2),
)  # fmt: skip
"""What a good board answers to a device that is loaded, run and read, in order."""

RUN = {key: value for key, value in ANSWERS[6][0].items() if key != "ok"}
INFER: Header = {"ok": True, "done": 2, "cycles": 200, "seconds": 0.2}
WHOLE_ANSWERS: tuple[tuple[Header, int], ...] = (
    *ANSWERS[:5],
    ({"ok": True}, 0),
    ({"ok": True, "model": 1}, 0),
    ({**INFER, "run": RUN, "more": True}, 32),
    ({**INFER, "run": None, "more": False}, 32),
)
"""What it answers to a device that runs a whole model for a batch of two."""


def whole_model() -> CompiledModel:
    """One program, an input of 16 bytes and an output of 32."""
    step = ProgramStep(np.zeros(64, np.uint8), 0, ("x",), ("y",), np.zeros(4, np.int32), np.zeros(4, np.int32))
    slots = {"x": TensorSlot("x", 64, (16,), "int8"), "y": TensorSlot("y", 128, (32,), "int8")}
    return CompiledModel(
        "fuzz", "accel", (TensorSpec("x", (16,), "int8"),), (TensorSpec("y", (32,), "int8"),), (step,), (),
        CorePart(TINY, SMALL, slots, ()),
    )  # fmt: skip


@dataclass
class Tally:
    """What came of all cases: how many there were and how they ended. ``problems`` are mistakes of ours."""

    cases: int = 0
    frames: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def odd_value(chance: random.Random) -> Any:
    return chance.choice(ODD) if chance.random() < 0.8 else chance.getrandbits(chance.choice((8, 33, 65)))


def damaged_header(chance: random.Random, header: Header) -> Header:
    """A header with one to three fields changed, added or left out."""
    result = dict(header)
    for _ in range(chance.randint(1, 3)):
        name = chance.choice([*result, "extra"])
        if chance.random() < 0.2:
            result.pop(name, None)
        elif isinstance(result.get(name), list) and chance.random() < 0.5:
            result[name] = [odd_value(chance) for _ in range(chance.randint(0, 300))]
        else:
            result[name] = odd_value(chance)
    return result


def frame(chance: random.Random, header: Header, content: int | bytes) -> bytes:
    """A frame with these bytes, or so many at random."""
    payload = chance.randbytes(content) if isinstance(content, int) else content
    size = len(payload)
    try:
        return b"".join(bytes(piece) for piece in pack(header, payload))
    except LinkError:  # over the limits: send it all the same
        text = b'{"a":"' + b"x" * (HEADER_BYTES + 10) + b'"}'
        return PREFIX.pack(MARK, len(text), size) + text + payload


def damaged_frame(chance: random.Random, header: Header, size: int | bytes) -> bytes:
    """A frame with a damaged header, a damaged prefix, damaged bytes, or a part of it missing; sometimes a good one."""
    kind = chance.randrange(8)
    if kind <= 2:
        return frame(chance, damaged_header(chance, header), chance.choice((size, 0, 1, 5000)))
    raw = bytearray(frame(chance, header, size))
    if kind == 3:
        lengths = [chance.choice((0, 1, len(raw), 2**16, 2**20, 2**31, 2**32 - 1)) for _ in range(2)]
        raw[: PREFIX.size] = PREFIX.pack(MARK, *lengths)
    elif kind == 4:
        for _ in range(chance.randint(1, 8)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
    elif kind == 5:
        del raw[chance.randrange(len(raw)) :]
    elif kind == 6:
        raw[:] = chance.randbytes(chance.randrange(200))
    return bytes(raw)


# The board's end


CORE_REGISTERS = {
    Register.MAGIC: MAGIC, Register.VERSION: ISA_VERSION, Register.HASH_LO: TINY.hash64 & 0xFFFF_FFFF,
    Register.HASH_HI: TINY.hash64 >> 32, Register.STATUS: Status.IDLE | Status.DONE,
}  # fmt: skip


class DoneBlock:
    """Registers of a core, or of ``cores`` of a system, that end every program at once."""

    def __init__(self, cores: int = 0) -> None:
        self.size = WINDOW_BYTES << NUMBER_BITS if cores else WINDOW_BYTES
        self.own = {GROUP_MEMBERS: (1 << cores) - 1, int(RelayRegister.RELAY_STATUS): int(RelayStatus.HALTED)}

    def read(self, address: int) -> int:
        if address >= GROUP_WINDOW:
            return self.own.get(address, 0)
        return int(CORE_REGISTERS.get(address % WINDOW_BYTES, 0))  # type: ignore[call-overload]

    def write(self, address: int, value: int) -> None:
        if address % 4 or not 0 <= address < self.size or not 0 <= value < 1 << 32:
            raise AssertionError(f"register {address:#x} := {value:#x}")


class GuardedBuffer(np.ndarray[Any, Any]):
    """A buffer between guards."""

    device_address = 0x1000_0000

    def sync_to_device(self) -> None: ...
    def sync_from_device(self) -> None: ...
    def freebuffer(self) -> None: ...


class GuardedServer(Server):
    """The server over such a core; at most 1 MiB of memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__(core_constants(), folder, folder / "lock")
        self.arenas: list[np.ndarray[Any, Any]] = []

    def _load(self, **fields: Any) -> Header:
        if self._windows:
            raise LinkError("range", "windows are in use")
        cores = [Core(**{**core, "hash": int(core["hash"], 16)}, version=fields["version"]) for core in fields["cores"]]
        self._driver = self._system_driver = None
        if fields["system"]:
            self._system_driver = SystemDriver(core_constants(), cores, DoneBlock(len(cores)), self._guarded)
        else:
            self._driver = Driver(core_constants(), cores[0], DoneBlock(), self._guarded)
        return {"address": 0, "clock_mhz": None, "device": ""}

    def _guarded(self, size: int) -> GuardedBuffer:
        if size > 1 << 20:
            raise MemoryError
        arena = np.full(size + 2 * GUARD_BYTES, GUARD, np.uint8)
        self.arenas.append(arena)
        return arena[GUARD_BYTES : GUARD_BYTES + size].view(GuardedBuffer)

    def guards_are_whole(self) -> bool:
        return all(
            (arena[:GUARD_BYTES] == GUARD).all() and (arena[-GUARD_BYTES:] == GUARD).all() for arena in self.arenas
        )


def board_case(chance: random.Random, folder: Path, tally: Tally) -> None:
    """A few good frames, then damaged ones, then the end of the stream."""
    script = [frame(chance, *REQUESTS[place]) for place in (0, 2, 3)[: chance.choice((0, 1, 2, 3, 3, 3, 3))]]
    if len(script) == 3 and chance.random() < 0.3:
        script = [frame(chance, *REQUESTS[place]) for place in (0, SYSTEM, 3)]
    elif len(script) == 3 and chance.random() < 0.5:
        script += [frame(chance, *each) for each in PLAN_REQUESTS]
    for _ in range(chance.randint(1, 6)):
        script.append(damaged_frame(chance, *chance.choice(REQUESTS)))
    tally.frames += len(script)
    near, far = socket.socketpair()
    server = GuardedServer(folder)
    thread = threading.Thread(target=_serve, args=(server, far), daemon=True)
    thread.start()
    writer = threading.Thread(target=_send_all, args=(near, b"".join(script)), daemon=True)
    writer.start()
    answers = Stream(near.fileno(), near.fileno(), frame_seconds=CASE_SECONDS)
    try:
        while True:
            header, _ = answers.receive(seconds=CASE_SECONDS)
            _judge_answer(header, tally)
    except LinkError as error:
        if error.kind != "closed":
            tally.problems.append(f"the board's stream: {error}")
    finally:
        thread.join(CASE_SECONDS)
        if thread.is_alive():
            tally.problems.append("the server did not end")
        if not server.guards_are_whole():
            tally.problems.append("bytes outside of a buffer were written")
        near.close()
        far.close()


def _serve(server: Server, end: socket.socket) -> None:
    server.serve(Stream(end.fileno(), end.fileno(), frame_seconds=5))
    end.shutdown(socket.SHUT_RDWR)


def _send_all(end: socket.socket, raw: bytes) -> None:
    """Send without blocking for ever, then end the stream."""
    try:
        rest = memoryview(raw)
        limit = time.monotonic() + CASE_SECONDS
        while rest and time.monotonic() < limit:
            try:
                rest = rest[end.send(rest) :]
            except BlockingIOError:
                time.sleep(0.001)
        end.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the server has ended before it read everything


def _judge_answer(header: Header, tally: Tally) -> None:
    if header.get("ok") is True:
        tally.ends["answer"] += 1
    elif header.get("kind") in KINDS and header["kind"] != "internal":
        tally.ends[header["kind"]] += 1
    else:
        tally.problems.append(f"an answer that should not be: {header}")


# The host's end


class Canned:
    """A far end that has said everything beforehand, and then is gone."""

    usable_here = True

    def __init__(self, raw: bytes) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self._far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.source = self.sink = self._near.fileno()
        self._far.setblocking(False)
        self._far.send(raw)
        self._far.shutdown(socket.SHUT_WR)

    def end(self) -> None:
        self._near.close()
        self._far.close()

    def last_words(self) -> str:
        return ""


def use_device(device: PynqDevice, tally: Tally) -> None:
    device.write(64, np.ones(16, np.uint8))
    device.launch(0, 4)
    result = device.read(0, SMALL)
    if result.size != SMALL:
        tally.problems.append(f"{result.size} bytes were read, not {SMALL}")


def use_whole_model(device: PynqDevice, tally: Tally) -> None:
    model = device.whole_model(whole_model(), no_code)
    assert model is not None
    made = model.run({"x": np.zeros((2, 16), np.int8)}, 2)
    if made.outputs["y"].shape != (2, 32) or len(made.results) != 1:
        tally.problems.append(f"a batch gave {made}")


def no_code(program: HostProgram, processor: str) -> HostCode:
    raise AssertionError("there is no step on the processor")


def host_case(chance: random.Random, folder: Path, tally: Tally) -> None:
    """Good answers, of which some are damaged, to a device that is loaded, run and read."""
    whole = chance.random() < 0.5
    answers = WHOLE_ANSWERS if whole else ANSWERS
    damaged = {chance.randrange(len(answers)) for _ in range(chance.choice((0, 1, 1, 1, 2)))}
    script = [
        (damaged_frame if place in damaged else frame)(chance, header, size)
        for place, (header, size) in enumerate(answers)
    ]
    tally.frames += len(script)
    host = Host("fuzz", overlay=folder / "x.bit", installed="x", connect_seconds=2.0, run_seconds=1.0,
                kernels="board" if whole else "host")  # fmt: skip
    device = PynqDevice(TINY, host=host)
    far = Canned(b"".join(script))
    started = time.monotonic()
    try:
        device.board._open = lambda progress: Link(host, progress, far)  # type: ignore[method-assign]
        device.allocate(SMALL)
        if whole:
            use_whole_model(device, tally)
        else:
            use_device(device, tally)
        tally.ends["result"] += 1
    except DeviceError as error:
        tally.ends[getattr(error, "kind", type(error).__name__)] += 1
    finally:
        _boards.pop(device.board.host, None)
        far.end()
    if time.monotonic() - started > CASE_SECONDS:
        tally.problems.append(f"a case took {time.monotonic() - started:.1f} s")


Case = Callable[[random.Random, Path, Tally], None]
SIDES: dict[str, Case] = {"board": board_case, "host": host_case}


def fuzz(side: str, frames: int, seed: int, first: int = 0) -> Tally:
    """Cases from ``first`` on until so many frames were sent. AssertionError names the first case that went wrong."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for suffix in ("bit", "hwh"):
            (folder / f"x.{suffix}").write_bytes(b"x" * 10)
        while tally.frames < frames:
            number = first + tally.cases
            try:
                SIDES[side](random.Random(f"{seed}:{side}:{number}"), folder, tally)
            except Exception as error:
                tally.problems.append(f"{type(error).__name__}: {error}")
            if tally.problems:
                raise AssertionError(f"{side} case {number} (seed {seed}): {tally.problems}")
            tally.cases += 1
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--frames", type=int, default=10_000, help="frames to each side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--side", choices=sorted(SIDES), action="append")
    options = parser.parse_args()
    for side in options.side or sorted(SIDES):
        started = time.monotonic()
        tally = fuzz(side, options.frames, options.seed, options.first)
        ends = ", ".join(f"{name} {count}" for name, count in tally.ends.most_common())
        print(f"{side}: {tally.frames} frames in {tally.cases} cases, {time.monotonic() - started:.0f} s: {ends}")
    sys.exit(0)


if __name__ == "__main__":
    main()
