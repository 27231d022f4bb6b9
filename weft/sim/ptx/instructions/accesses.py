"""Loads, stores and atomic updates. Each is checked, watched and counted before it happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..parser import Instruction
from ..state import LOCAL_WINDOW, SHARED_WINDOW, Lanes, State
from ..types import BITS, COMPUTED, STORED, Array, is_signed
from .registry import Compute, Step, one_of, operation, registers_of, unknown

_SPACES = ("shared", "local", "global", "const", "param")
_HINTS = (
    "nc ca cg cs cv lu wb wt v2 v4 volatile weak relaxed acquire release gpu sys cta L1 L2 evict_first evict_last "
    "evict_normal evict_unchanged no_allocate 64B 128B 256B"
)


def _space(instruction: Instruction) -> str:
    return next((each for each in instruction.modifiers if each in _SPACES), "generic")


def _regions(space: str, addresses: Array, lanes: Lanes, state: State) -> list[tuple[str, Array, Lanes, Array | None]]:
    """The memory that addresses are in, the addresses there, the lanes, and which of those given they are: generic
    addresses are of any memory."""
    if space != "generic":
        return [(space, addresses, lanes, None)]
    full = state.full(addresses, lanes)
    windows = (("global", 0, SHARED_WINDOW), ("shared", SHARED_WINDOW, LOCAL_WINDOW),
               ("local", LOCAL_WINDOW, 1 << 62))  # fmt: skip
    found: list[tuple[str, Array, Lanes, Array | None]] = []
    for name, start, end in windows:
        chosen = np.flatnonzero((full >= start) & (full < end))
        if len(chosen) == len(full):
            return [(name, addresses - start, lanes, None)]
        if len(chosen):
            found.append((name, full[chosen] - start, state.numbers(lanes)[chosen], chosen))
    return found


def _places(
    state: State, space: str, addresses: Array, nbytes: int, lanes: Lanes, instruction: Instruction, *, writes: bool,
    counted: bool, used: Sequence[tuple[int, int]] = (),
) -> Array:  # fmt: skip
    """Bytes of the memory's array, after all checks. ``used``: (first, number) of the bytes that matter, if not all do:
    others may be what nobody wrote, or what somebody is writing."""
    if space == "local":
        return state.local_places(addresses, nbytes, lanes, instruction)
    if space == "shared":
        places = state.shared_places(addresses, nbytes, lanes, instruction)
    else:
        places = state.global_places(addresses, nbytes, lanes, instruction)
        space = "global"
    for first, count in used or ((0, nbytes),):
        state.watch(space, "write" if writes else "read", places + first, count, lanes, instruction)
    if counted:
        state.count_traffic(space, places, nbytes, lanes, instruction, writes=writes)
    return places


def _array(state: State, space: str, dtype: np.dtype[np.generic]) -> Array:
    if space == "shared":
        return state.shared.view(dtype)
    return state.local.view(dtype) if space == "local" else state.memory.view(dtype)


@operation("ld", "ldu", modifiers=f"{' '.join(_SPACES)} {_HINTS}")
def _load(state: State, instruction: Instruction, counted: bool) -> Step:
    kind, registers, space = instruction.type, registers_of(instruction.operands[0]), _space(instruction)
    size = BITS[kind] // 8
    dtype = STORED[BITS[kind]]
    if space == "param":
        return _load_parameter(state, instruction)
    address = state.address(instruction.operands[1], instruction)
    wide = {each: STORED[state.kernel.registers[each]] for each in registers if each != "_"}
    # Compilers load whole vectors of which they use some elements.
    dead = state.kernel.named_once | {"_"}
    used = [(number * size, size) for number, register in enumerate(registers) if register not in dead]
    used = used if 0 < len(used) < len(registers) else []

    def run(lanes: Lanes) -> None:
        for where, addresses, some, _ in _regions(space, address(lanes), lanes, state):
            places = _places(state, where, addresses, size * len(registers), some, instruction, writes=False,
                             counted=counted, used=used)  # fmt: skip
            source, first = _array(state, where, dtype), places // size
            for number, register in enumerate(registers):
                if register == "_":
                    continue
                values = source[first + number]
                if wide[register].itemsize > size and is_signed(kind):
                    values = values.view(COMPUTED[kind]).astype(np.dtype(f"i{wide[register].itemsize}"))
                state.put(register, some, values)

    return run


def _load_parameter(state: State, instruction: Instruction) -> Step:
    registers, name = registers_of(instruction.operands[0]), instruction.operands[1].strip("[] ")
    if len(registers) != 1:
        raise unknown(instruction, "several numbers at once")
    if name not in state.parameters:
        return _load_chosen_parameter(state, instruction, registers[0])
    value = state.parameters[name].view(STORED[BITS[_parameter_type(state, name)]])
    dtype = STORED[BITS[instruction.type]]
    return lambda lanes: state.put(registers[0], lanes, value.astype(dtype))


def _load_chosen_parameter(state: State, instruction: Instruction, register: str) -> Step:
    """From an address that was computed: compilers choose between two parameters so."""
    address, dtype = state.address(instruction.operands[1], instruction), STORED[BITS[instruction.type]]

    def run(lanes: Lanes) -> None:
        places = address(lanes)
        state.aligned(places, dtype.itemsize, lanes, instruction)
        wrong = (places < 0) | (places + dtype.itemsize > state.parameter_space.size)
        if wrong.any():
            state.refuse("it is outside of the parameters", wrong, places, lanes, instruction)
        state.put(register, lanes, state.parameter_space.view(dtype)[places // dtype.itemsize])

    return run


def _parameter_type(state: State, name: str) -> str:
    return next(each.type for each in state.kernel.parameters if each.name == name)


@operation("st", modifiers=f"{' '.join(_SPACES)} {_HINTS}")
def _store(state: State, instruction: Instruction, counted: bool) -> Step:
    kind, space = instruction.type, _space(instruction)
    if space in ("const", "param"):
        raise unknown(instruction, space)
    size = BITS[kind] // 8
    dtype = STORED[BITS[kind]]
    address = state.address(instruction.operands[0], instruction)
    bits = f"u{BITS[kind]}"
    values = [state.operand(each, bits, instruction) for each in registers_of(instruction.operands[1])]

    def run(lanes: Lanes) -> None:
        for where, addresses, some, chosen in _regions(space, address(lanes), lanes, state):
            places = _places(state, where, state.full(addresses, some), size * len(values), some, instruction,
                             writes=True, counted=counted)  # fmt: skip
            target, first = _array(state, where, dtype), places // size
            for number, value in enumerate(values):
                data = value(lanes)
                target[first + number] = data if chosen is None else state.full(data, lanes)[chosen]

    return run


_UPDATES: dict[str, Callable[..., None]] = {
    "add": np.add.at, "min": np.minimum.at, "max": np.maximum.at, "and": np.bitwise_and.at, "or": np.bitwise_or.at,
    "xor": np.bitwise_xor.at,
}  # fmt: skip
_ONCE: dict[str, Compute] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "exch": lambda old, new: new,
}  # fmt: skip


@operation("red", "atom", modifiers=f"{' '.join(_SPACES)} {_HINTS} {' '.join(_ONCE)} acq_rel noftz")
def _atomic(state: State, instruction: Instruction, counted: bool) -> Step:
    """Updates, one thread after the other; they are no races."""
    kind, space = instruction.type, _space(instruction)
    update = one_of(instruction, _ONCE)
    gives = instruction.operation == "atom"
    target, where, *rest = instruction.operands if gives else ("", *instruction.operands)
    if len(rest) != 1:
        raise unknown(instruction, "in this form")
    address, value = state.address(where, instruction), state.operand(rest[0], kind, instruction)
    size, dtype = BITS[kind] // 8, COMPUTED[kind]

    def run(lanes: Lanes) -> None:
        data = state.full(value(lanes), lanes)
        for region, addresses, some, chosen in _regions(space, address(lanes), lanes, state):
            full = state.full(addresses, some)
            find = {"shared": state.shared_places, "local": state.local_places}.get(region, state.global_places)
            first = find(full, size, some, instruction) // size
            mine = data if chosen is None else data[chosen]
            array = _array(state, region, dtype)
            if not gives and update in _UPDATES:
                _UPDATES[update](array, first, mine)
                continue
            before = np.empty(first.shape, dtype)
            for number, place in enumerate(first):
                before[number] = array[place]
                array[place] = _ONCE[update](before[number], mine[number])
            if target:
                state.put(target, some, before)

    return run


@operation("membar", "fence", modifiers="gl cta sys sc acq_rel gpu proxy alias async global shared cluster")
def _fence(state: State, instruction: Instruction, counted: bool) -> Step:
    """Memory is in order here."""
    return lambda lanes: None


@operation("prefetch", "prefetchu", modifiers="global local L1 L2")
def _prefetch(state: State, instruction: Instruction, counted: bool) -> Step:
    return lambda lanes: None
