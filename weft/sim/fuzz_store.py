"""Random cases as JSON, so that one that failed once is run for ever."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ..hw.config import CoreConfig
from ..hw.isa import ENUMERATED, INSTRUCTION_TYPES, Instruction, Opcode
from .dram import BusErrors, DramModel
from .fuzz import Case, IllegalPart


def write_case(path: Path, case: Case, note: str) -> None:
    """Store a case; ``note`` says what went wrong."""
    values = {field.name: getattr(case, field.name) for field in fields(Case)}
    values["config"] = json.loads(case.config.to_json())
    values["plain"] = [_instruction_record(part) for part in case.plain]
    values["wrong"] = [
        {**asdict(part), "flips": hex(part.flips), "instruction": _instruction_record(part.instruction)}
        for part in case.wrong
    ]
    values["dram"] = asdict(case.dram)
    path.write_text(json.dumps({"note": note, **values}, indent=1) + "\n")


def read_case(path: Path) -> tuple[Case, str]:
    """What :func:`write_case` wrote, and its note."""
    values: dict[str, Any] = json.loads(path.read_text())
    note = str(values.pop("note"))
    errors = values["dram"].pop("errors")
    values["config"] = CoreConfig.from_json(json.dumps(values["config"]))
    values["plain"] = tuple(_instruction(record) for record in values["plain"])
    values["wrong"] = tuple(
        IllegalPart(**{**record, "flips": int(record["flips"], 16), "instruction": _instruction(record["instruction"])})
        for record in values["wrong"]
    )
    values["dram"] = DramModel(**values["dram"], errors=BusErrors(**errors) if errors else None)
    return Case(**values), note


def _instruction_record(instruction: Instruction) -> dict[str, int | str]:
    """Numbers, not names: an illegal instruction has values without a name."""
    values = {field.name: int(getattr(instruction, field.name)) for field in fields(instruction)}
    return {"opcode": instruction.opcode.name, **values}


def _instruction(record: dict[str, Any]) -> Instruction:
    values = dict(record)
    kind = INSTRUCTION_TYPES[Opcode[values.pop("opcode")]]
    for name, enumeration in ENUMERATED.items():
        if name in values:
            values[name] = enumeration._value2member_map_.get(values[name], values[name])
    return kind(**values)
