"""Running a recording on another device, and the first thing that comes out differently there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..compiler.graph.dtypes import numpy_dtype
from ..compiler.model import CompiledModel, CoreStep, TensorSlot
from ..errors import WeftError
from ..hw.assembly import format_instruction
from ..hw.config import CoreConfig
from ..hw.decode import decode
from ..hw.errors import InstructionError
from ..hw.isa import ENGINE_NAMES, Engine, Store
from ..hw.programs import program_words
from ..sim.dma import transfer_of
from ..sim.result import RunResult
from .device import Bytes, Device
from .errors import DeviceError
from .recording import Launch, Recording

NOBODY = -1


@dataclass(frozen=True)
class Difference:
    """What came out differently in a launch. ``kind``: "fault", "memory", "end", or "cycles", "counters", "traffic",
    which may differ between memories of other timing. The two values are texts."""

    launch: int
    kind: str
    what: str
    recorded: str
    found: str

    @property
    def is_timing(self) -> bool:
        return self.kind in ("cycles", "counters", "traffic")

    def __str__(self) -> str:
        return f"launch {self.launch}: {self.what}: {self.recorded} was recorded, {self.found} is what came now"


def replay(recording: Recording, device: Device) -> list[Difference]:
    """Run every launch of a recording on a device, each from the window that was recorded before it.

    All differences, in order; of the memory only the first of each launch. :class:`DeviceError` if the device is for
    another core, or cannot be had at all.
    """
    if device.config.hash64 != recording.config.hash64:
        raise DeviceError(
            f"the recording is of the core {recording.config.name!r} ({recording.config.hash64:016x}), but the device "
            f"has {device.config.name!r} ({device.config.hash64:016x})"
        )
    differences: list[Difference] = []
    with device.lock:
        device.tenant = recording
        size = 0
        try:
            for number, launch in enumerate(recording.launches):
                if launch.before.size != size:
                    size = launch.before.size
                    device.allocate(size)
                device.write(0, launch.before)
                differences += _differences(recording, number, launch, device)
        finally:
            device.tenant = None
            device.allocate(0)
    return differences


def _differences(recording: Recording, number: int, launch: Launch, device: Device) -> Iterator[Difference]:
    try:
        result = device.execute(launch.offset, launch.count, False)
    except WeftError as error:
        recorded = launch.error if launch.result is None else _end(launch.result)
        if recorded != str(error):
            yield Difference(number, "end", "how the run ended", recorded, f"no end ({error})")
        return
    if launch.result is None:
        yield Difference(number, "end", "how the run ended", f"no end ({launch.error})", _end(result))
        return
    if launch.result.fault != result.fault:
        yield Difference(number, "fault", "how the program ended", _end(launch.result), _end(result))
    elif result.fault is None:
        assert launch.after is not None  # a result has a window
        after = device.read(0, launch.before.size)
        if found := first_difference(recording.config, launch, after, recording.model):
            yield Difference(number, "memory", *found)
    yield from _timing(number, launch.result, result)


def _end(result: RunResult) -> str:
    return str(result.fault or "FINISH")


def _timing(number: int, recorded: RunResult, found: RunResult) -> Iterator[Difference]:
    if recorded.cycles is None or found.cycles is None:
        return
    if recorded.cycles != found.cycles:
        yield Difference(number, "cycles", "cycles", f"{recorded.cycles:,}", f"{found.cycles:,}")
    for engine in Engine:
        ours, theirs = (dict(each.counters.get(engine, {})) for each in (recorded, found))
        apart = [kind for kind in {**ours, **theirs} if ours.get(kind, 0) != theirs.get(kind, 0)]
        if apart and recorded.counters and found.counters:
            texts = [", ".join(f"{kind.name} {each.get(kind, 0):,}" for kind in apart) for each in (ours, theirs)]
            yield Difference(number, "counters", f"cycles of engine {ENGINE_NAMES[engine]}", *texts)
    for what in ("bytes_read", "bytes_written"):
        a, b = getattr(recorded, what), getattr(found, what)
        if a != b:
            yield Difference(number, "traffic", what.replace("_", " "), f"{a:,}", f"{b:,}")


# The memory


def first_difference(
    config: CoreConfig, launch: Launch, after: Bytes, model: CompiledModel | None
) -> tuple[str, str, str] | None:
    """The byte that differs and was made first, by the order of the STOREs that made them: where it is, and both
    values. None if the windows are equal."""
    assert launch.after is not None
    wrong = np.flatnonzero(launch.after != after)
    if not wrong.size:
        return None
    writers = _writers(config, launch)
    order = np.where(writers[wrong] == NOBODY, launch.count, writers[wrong])
    byte = int(wrong[np.argmin(order)])
    writer = int(writers[byte])
    where = _instruction(config, launch, writer, model) if writer != NOBODY else "no STORE of the program writes there"
    slot = _slot_at(model, byte, launch, writer)
    if slot is None:
        total = f"{wrong.size:,} bytes of the window differ, first byte {byte:#x} ({where})"
        return total, f"{launch.after[byte]:#04x}", f"{after[byte]:#04x}"
    recorded, found = (_tensor(slot, window) for window in (launch.after, after))
    apart = int((recorded.view(np.uint8) != found.view(np.uint8)).sum())
    element = (byte - slot.offset) // recorded.dtype.itemsize
    index = ", ".join(str(int(place)) for place in np.unravel_index(element, slot.shape))
    what = f"tensor {slot.name!r} at [{index}] of {slot.dtype}{list(slot.shape)}"
    values = str(recorded.reshape(-1)[element]), str(found.reshape(-1)[element])
    return f"{what}, {apart:,} of its bytes differ ({where})", *values


def _tensor(slot: TensorSlot, window: Bytes) -> npt.NDArray[np.generic]:
    return window[slot.offset : slot.offset + slot.nbytes].copy().view(numpy_dtype(slot.dtype))


def _writers(config: CoreConfig, launch: Launch) -> npt.NDArray[np.int32]:
    """For each byte of the window the number of the last STORE that writes it, by the order of the program."""
    writers = np.full(launch.before.size, NOBODY, np.int32)
    for number, word in enumerate(_words(config, launch)):
        try:
            instruction = decode(config, word)
        except InstructionError:
            continue
        if not isinstance(instruction, Store):
            continue
        transfer = transfer_of(config, instruction)
        for row in range(transfer.rows):
            start = transfer.start + row * transfer.stride_bytes
            writers[start : start + transfer.row_bytes] = number
    return writers


def _words(config: CoreConfig, launch: Launch) -> Sequence[int]:
    code = launch.before[launch.offset : launch.offset + launch.count * config.instruction_bytes]
    return list(program_words(config, code))


def _instruction(config: CoreConfig, launch: Launch, number: int, model: CompiledModel | None) -> str:
    """The instruction in words, and the layer that it belongs to."""
    text = f"written by instruction {number}: {format_instruction(decode(config, _words(config, launch)[number]))}"
    step = _step(model, launch)
    if model is not None and step is not None and number < step.layer_of.size and step.layer_of[number] >= 0:
        return f"layer {model.layers[int(step.layer_of[number])].name!r}, {text}"
    return text


def _step(model: CompiledModel | None, launch: Launch) -> CoreStep | None:
    """The model's step that a launch ran."""
    if model is None:
        return None
    return next((each for each in model.programs if each.program_offset == launch.offset), None)


def _slot_at(model: CompiledModel | None, byte: int, launch: Launch, writer: int) -> TensorSlot | None:
    """The tensor that a byte belongs to: that of the layer that wrote it, or else any that lies there."""
    if model is None or model.core is None or launch.before.size != model.core.window_bytes:
        return None
    there = [slot for slot in model.core.slots.values() if slot.offset <= byte < slot.offset + slot.nbytes]
    step = _step(model, launch)
    if step is not None and 0 <= writer < step.layer_of.size and step.layer_of[writer] >= 0:
        own = model.layers[int(step.layer_of[writer])].output
        there.sort(key=lambda slot: slot.name != own)
    return there[0] if there else None
