"""Checks of a loaded core: registers, its window, starting, reading and writing memory, bursts, every engine."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..hw.config import CoreConfig
from ..hw.isa import Engine, Fault, Finish, Loop
from ..hw.programs import assemble
from ..hw.registers import WINDOW_ALIGNMENT, Kind, Register, settings_bits
from ..sim.result import FaultRecord
from .doctor_findings import describe_difference, exchanges, stuck_bits
from .doctor_programs import LOST, Trial, copies, engine_trials, of_bytes, of_program, single_instructions, streams
from .finding import Check, FindingError
from .patient import Patient
from .remote import BoardLinkError

LONG_SECONDS = 0.2
"""What a program takes by which the clock is measured, or whose interrupt is awaited."""

MEASURED_TOLERANCE = 0.1
SIMULATED_CYCLES = 50_000
"""Cycles of such a program on a virtual board, where nothing is measured."""

SLOW = 0.25
"""A port that moves less than this share of the bus's width in a cycle is slow."""

LOW = (1 << 32) - 1

ENGINES = tuple(engine.name.lower() for engine in Engine)

SYNCS = "the processor's caches and the core do not see the same memory: a port that is not coherent needs the syncs"


def _registers(patient: Patient) -> tuple[str, dict[str, Any]]:
    """Every bit of every setting can be set and cleared, without another one changing."""
    masks = register_masks(patient.config)
    patterns = [[value] * len(masks) for value in (0, LOW, 0x5555_5555, 0xAAAA_AAAA)]
    patterns.append([0x0101_0101 * (number + 1) for number in range(len(masks))])  # no two registers alike
    patterns.append([LOW - 0x1010_1010 * (number + 1) for number in range(len(masks))])
    patterns.append([0] * len(masks))
    for pattern in patterns:
        written = [(int(each), value & masks[each]) for each, value in zip(masks, pattern, strict=True)]
        values = patient.ask("settings", values=[list(each) for each in written])["values"]
        if len(values) != len(written):
            raise FindingError(f"{len(values)} registers were read, not {len(written)}")
        for register, (_, value), found in zip(masks, written, values, strict=True):
            if found != value:
                wrong = " ".join(str(bit) for bit in range(32) if (found ^ value) >> bit & 1)
                raise FindingError(
                    f"register {register.name} reads {found:#x} after {value:#x} was written: bits {wrong} differ",
                    "the control bus loses bits: is the design's timing met, and its clock the right one?",
                    {"register": register.name, "written": value, "read": found},
                )
    return f"{len(masks)} registers hold {len(patterns)} patterns", {"registers": len(masks)}


def register_masks(config: CoreConfig) -> dict[Register, int]:
    """The bits of every setting that a core keeps."""
    bits = settings_bits(config)
    masks = {}
    for register in Register:
        if register.kind is Kind.SETTING:
            width = min(32, max(0, bits[register.signal] - 32 * register.word))
            masks[register] = (1 << width) - 1
    masks[Register.WINDOW_BASE_LO] &= ~(WINDOW_ALIGNMENT - 1)
    return masks


def _window(patient: Patient) -> tuple[str, dict[str, Any]]:
    """There is memory for the core, it reaches it, and the processor can write and read it."""
    trials = [copies(patient.config), *engine_trials(patient.config), *(each.trial for each in streams(patient.config))]
    size = max(each.window.size for each in trials)
    try:
        address = patient.allocate(size)
    except BoardLinkError as error:
        remedies = {
            "memory": "a larger CMA area (cma=128M), or end what uses it",
            "address": "pynq gives memory that the core has no address bits for: build a core with more `address_bits`",
        }
        raise FindingError(error.reason, remedies.get(error.kind, error.hint), {"kind": error.kind}) from None
    content = np.random.default_rng(8).integers(0, 256, size, np.uint8)
    patient.write(content)
    wrong = np.flatnonzero(patient.read(size) != content)
    if wrong.size:
        raise FindingError(
            f"the processor itself reads {wrong.size:,} other bytes than it wrote, from {wrong[0]:#x} on"
        )
    return f"{size:,} bytes at {address:#x}", {"address": address, "bytes": size}


def _start(patient: Patient) -> str:
    """The core runs, without any memory: a program of no instruction ends with a fault at once."""
    empty = of_program("empty", patient.config, [])
    try:
        result = patient.run(empty).result
    except BoardLinkError as error:
        raise _hung(error) from None
    if result.fault != empty.expected[0]:
        raise FindingError(
            f"a program of no instruction ends with {result.fault or 'no fault'}, not with {empty.expected[0]}",
            "the core is damaged: is the design's timing met, and its clock the one that it was built for?",
        )
    return f"a program of no instruction ends after {result.cycles} cycles with the fault that it should"


def _fetch(patient: Patient) -> str:
    """The core reads what the host wrote, and what it wrote after that."""
    config = patient.config
    loop = assemble(config, [Loop(engine=Engine.GEMM, level=0, extent=1)])
    finish = of_program("finish", config, [Finish()])
    second = of_bytes("no finish", config, loop, 1)
    for trial in (finish, second):
        try:
            found = patient.run(trial).result.fault
        except BoardLinkError as error:
            raise _hung(error) from None
        expected = trial.expected[0]
        if found == expected:
            continue
        if refused := _refused(found):
            raise refused
        if trial is second and found == finish.expected[0]:
            raise FindingError("the core runs the program of before: what the host writes arrives late or never", SYNCS)
        raise _unreadable(patient, found, expected)
    return "the core reads programs as they were written"


def _unreadable(patient: Patient, found: FaultRecord | None, expected: FaultRecord | None) -> FindingError:
    """Why the core reads something else than the host wrote."""
    config = patient.config
    text = f"the core ends with {found or 'no fault'}, not with {expected or 'none'}"
    code = assemble(config, [Finish()])
    for how, lanes in exchanges(config.bus_bytes).items():
        words = -(-code.size // config.bus_bytes) * config.bus_bytes
        padded = np.zeros(words, np.uint8)
        padded[: code.size] = code
        wired = np.empty_like(padded).reshape(-1, config.bus_bytes)
        wired[:, lanes] = padded.reshape(-1, config.bus_bytes)
        if patient.run(of_bytes(how, config, wired.reshape(-1), 1)).result.fault is None:
            return FindingError(
                f"byte lanes are exchanged when the core reads: {how} ({text})",
                "the data bus between the memory port and the core is wired wrongly, or a converter reorders bytes",
            )
    tried = [(each, patient.run(each).result.fault) for each in single_instructions(config)]
    if bits := stuck_bits([(each.code, fault == each.expected[0]) for each, fault in tried], config.bus_bytes):
        stuck = " or ".join(f"bit {bit} of byte {lane} of a bus word is always {value}" for lane, bit, value in bits)
        return FindingError(
            f"a data line is stuck when the core reads: {stuck} ({text})",
            "the data bus between the memory port and the core, or the design's timing",
        )
    if len({fault for _, fault in tried}) == 1:
        return FindingError(
            f"what the host writes does not reach the core: {text}, and with the same whatever is written",
            f"{SYNCS}; or the core's addresses are not those of the memory; or a data line is stuck",
        )
    return FindingError(
        f"the core reads something else than the host wrote: {text}",
        f"data lines between the memory port and the core; or {SYNCS}",
    )


def _rate(patient: Patient) -> tuple[str, dict[str, Any]]:
    """The core's cycles pass as fast as the clock says, and its watchdog stops it."""
    mhz = patient.loaded["clock_mhz"]
    cycles = _long(patient)
    lost = of_program("lost", patient.config, [LOST, Finish()])
    try:
        run = patient.run(lost, cycles)
    except BoardLinkError as error:
        raise _hung(error) from None
    expected = FaultRecord(Fault.WATCHDOG, Engine.LOAD, 0)
    if run.result.fault != expected:
        raise FindingError(
            f"a program that waits for ever ends with {run.result.fault or 'no fault'}, not with {expected}"
        )
    if patient.is_virtual or not mhz:
        return f"the watchdog ends a program after {run.result.cycles:,} cycles; nothing to measure them by", {}
    return judged_rate(mhz, run.result.cycles or 0, run.seconds)


def _long(patient: Patient) -> int:
    """Cycles of a program that takes a while."""
    mhz = patient.loaded["clock_mhz"]
    return SIMULATED_CYCLES if patient.is_virtual or not mhz else int(LONG_SECONDS * mhz * 1e6)


def _interrupt(patient: Patient) -> str | tuple[str, dict[str, Any]]:
    """The interrupt comes when a program has ended, and not before; twice, as it has to be made ready again."""
    wait, missing = patient.host.wait, patient.loaded["no_interrupt"]
    if wait == "poll":
        return 'not used: the file of boards says wait = "poll"'
    remedy = 'wait = "poll" in the file of boards does without it'
    if missing and wait == "interrupt":
        raise FindingError(f"the core has no interrupt: {missing}", f"{remedy}; the image needs a UIO device for it")
    if missing:
        return f"none, so the core is looked at instead: {missing}"
    lost = of_program("lost", patient.config, [LOST, Finish()])
    try:
        wakes = [patient.run(lost, _long(patient), "interrupt").wakes for _ in range(2)]
    except BoardLinkError as error:
        if error.kind == "interrupt":
            wires = "the wires from the core to the interrupt controller and from there to the processor"
            raise FindingError(error.reason, f"{wires}, and the controller's address; until then, {remedy}") from None
        raise _hung(error) from None
    return "it comes at the end of a program", {"wakes": wakes}


def judged_rate(mhz: float, cycles: int, seconds: float) -> tuple[str, dict[str, Any]]:
    """Whether so many cycles in so many seconds are the clock that pynq reads."""
    measured = cycles / seconds / 1e6
    figures = {"mhz": mhz, "measured_mhz": measured}
    if abs(measured - mhz) > MEASURED_TOLERANCE * mhz:
        raise FindingError(
            f"the core's clock is {measured:.1f} MHz by its counter, but pynq reads {mhz:g} MHz",
            "the core is not on the clock that pynq names: which one drives it in the design?",
            figures,
        )
    return f"{measured:.1f} MHz by the core's own counter", figures


def _copies(patient: Patient) -> tuple[str, dict[str, Any]]:
    """Bytes arrive from and at every place of a bus word, across bursts and pages, and nothing beside them changes."""
    trial = copies(patient.config)
    _exact(patient, trial, "the wires between the core's memory port and the memory, or the syncs of the processor")
    moved = int((trial.expected[1] != trial.window).sum())
    said = f"{trial.count} instructions copy {moved:,} bytes to every alignment, across bursts and pages"
    return said, {"bytes": moved}


def _bandwidth(patient: Patient) -> tuple[str, dict[str, Any]]:
    """Bytes a cycle by the length of bursts."""
    mhz = patient.loaded["clock_mhz"]
    figures: dict[str, Any] = {"reads": {}, "writes": {}}
    for stream in streams(patient.config):
        try:
            result = patient.run(stream.trial).result
        except BoardLinkError as error:
            raise _hung(error) from None
        if refused := _refused(result.fault):
            raise refused
        if result.fault is not None or not result.cycles:
            raise FindingError(f"{stream.trial.name}: the core ends with {result.fault or 'no cycles'}")
        figures["writes" if stream.writes else "reads"][stream.words] = round(stream.bytes / result.cycles, 3)
    texts = []
    for way, rates in figures.items():
        longest = max(rates)
        shortest = min(rates)
        best = rates[longest] * mhz if mhz else None
        texts.append(
            f"{way} {rates[longest]:.2f} bytes a cycle in bursts of {longest} words"
            + (f" ({best:.0f} MB/s)" if best else "")
            + f", {rates[shortest]:.2f} in bursts of {shortest}"
        )
        if rates[longest] < SLOW * patient.config.bus_bytes:
            texts[-1] += " - slow: does something else use the memory?"
    return "; ".join(texts), figures


def _engine(patient: Patient, name: str) -> str:
    """A program of one engine leaves what it should."""
    trial = next(each for each in engine_trials(patient.config) if each.name == name)
    _exact(patient, trial, "the engine computes wrongly: is the design's timing met, and its clock right?")
    return f"{trial.count} instructions, exact"


def _exact(patient: Patient, trial: Trial, remedy: str) -> None:
    """Run a trial; FindingError unless it ends well and every byte of the window is what it should be."""
    try:
        fault = patient.run(trial).result.fault
    except BoardLinkError as error:
        raise _hung(error) from None
    if refused := _refused(fault):
        raise refused
    if fault is not None:
        raise FindingError(f"the core ends with {fault}", remedy)
    found = patient.read(trial.window.size)
    difference = describe_difference(trial.window, trial.expected[1], found, patient.config.bus_bytes)
    if difference:
        raise FindingError(difference, remedy)


def _refused(fault: FaultRecord | None) -> FindingError | None:
    """The finding, if the bus answered with an error."""
    if fault is None or fault.cause not in (Fault.BUS_READ, Fault.BUS_WRITE):
        return None
    what = "reads" if fault.cause is Fault.BUS_READ else "writes"
    return FindingError(
        f"the bus refuses {what}: {fault}",
        "the port does not take the memory's addresses: compare the design's address map with the window's address",
    )


def _hung(error: BoardLinkError) -> FindingError:
    """What a core that does not end is ill of."""
    if error.kind == "clock":
        return FindingError(f"the core has no clock: {error.reason}", error.hint, {"kind": error.kind})
    if error.kind == "stuck":
        return FindingError(
            f"the memory does not answer the core: {error.reason}",
            "the memory port hangs: is it enabled in the design, with its clock? Load the overlay "
            "again; if that hangs, power-cycle the board",
            {"kind": error.kind},
        )
    return FindingError(error.reason, error.hint, {"kind": error.kind})


CORE_CHECKS = (
    Check("registers", _registers),
    Check("window", _window),
    Check("start", _start),
    Check("fetch", _fetch),
    Check("rate", _rate),
    Check("interrupt", _interrupt, essential=False),
    Check("copies", _copies),
    Check("bandwidth", _bandwidth, essential=False),
    *(Check(name, partial(_engine, name=name), essential=False) for name in ENGINES),
)
