"""Makes a failing random program small: fewer instructions, then simpler fields, then a simpler memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from enum import IntEnum
from typing import Any

from ..hw.errors import InstructionError
from ..hw.isa import Instruction, Load, Store, body_problem, encode
from ..hw.memories import Memory
from .dma import transfer_of, transfer_problem
from .dram import DramModel
from .fuzz import PROGRAM_BYTES, Case, touched

Fails = Callable[[Case], bool]


def shrink(case: Case, fails: Fails) -> Case:
    """A case that still fails, and of which nothing can be left out or made simpler in one step."""
    while True:
        smaller = _simpler_memory(_simpler_fields(_fewer_instructions(case, fails), fails), fails)
        if smaller == case:
            return case
        case = smaller


def _fewer_instructions(case: Case, fails: Fails) -> Case:
    """Leave out halves, quarters, ... single instructions."""
    size = max(1, len(case.plain) // 2)
    while size:
        start = 0
        while start < len(case.plain):
            smaller = _without(case, start, start + size)
            if is_sound(smaller) and fails(smaller):
                case = smaller
            else:
                start += size
        size //= 2
    for number in reversed(range(len(case.wrong))):
        smaller = replace(case, wrong=case.wrong[:number] + case.wrong[number + 1 :])
        if fails(smaller):
            case = smaller
    return case


def _without(case: Case, start: int, stop: int) -> Case:
    stop = min(stop, len(case.plain))

    def moved(place: int) -> int:
        return place if place <= start else max(start, place - (stop - start))

    wrong = tuple(replace(part, place=moved(part.place)) for part in case.wrong)
    return replace(case, plain=case.plain[:start] + case.plain[stop:], wrong=wrong)


def _simpler_fields(case: Case, fails: Fails) -> Case:
    for number in range(len(case.plain)):
        for name, value in _simpler(case.plain[number]):
            if abs(value) >= abs(getattr(case.plain[number], name)):
                continue  # an earlier change was accepted
            change: dict[str, Any] = {name: value}
            simpler = replace(case.plain[number], **change)
            smaller = replace(case, plain=(*case.plain[:number], simpler, *case.plain[number + 1 :]))
            if is_sound(smaller) and fails(smaller):
                case = smaller
    return case


def _simpler(instruction: Instruction) -> Iterator[tuple[str, int]]:
    """Fields and simpler values for them: the least ones, or half of what they are."""
    for field in fields(instruction):
        value = getattr(instruction, field.name)
        if field.name in ("wait", "send") or isinstance(value, IntEnum):
            continue
        for candidate in dict.fromkeys((0, 1, value // 2)):
            if abs(candidate) < abs(value):
                yield field.name, candidate


def _simpler_memory(case: Case, fails: Fails) -> Case:
    calm = DramModel(latency=1, bytes_per_cycle=case.config.bus_bytes, errors=case.dram.errors)
    changes: list[dict[str, object]] = [
        {"dram": calm},
        {"dram": replace(case.dram, jitter=0, reorder=False)},
        {"dram": replace(case.dram, reorder=False)},
        {"data_seed": 0},
        {"token_seed": 0},
    ]
    for change in changes:
        smaller = replace(case, **change)  # type: ignore[arg-type]
        if smaller != case and fails(smaller):
            case = smaller
    return case


def is_sound(case: Case) -> bool:
    """Are all instructions but those that are meant to be wrong legal, and away from the program?"""
    config = case.config
    for instruction in case.plain:
        if body_problem(config, instruction):
            return False
        try:
            encode(config, instruction)
        except InstructionError:
            return False
        if isinstance(instruction, Load | Store):
            transfer = transfer_of(config, instruction)
            if transfer_problem(config, transfer, case.window_bytes) or (
                transfer.bytes and transfer.start < PROGRAM_BYTES
            ):
                return False
    depths = {memory: config.depth(memory) for memory in config.scratchpads}
    return all(
        max(reads | writes, default=0) < depths[name]
        for entries in touched(config, case.plain)
        for name, (reads, writes) in entries.items()
        if name is not Memory.DRAM
    )
