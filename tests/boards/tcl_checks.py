"""What must hold for the calls of a build script; each mistake becomes one line of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .vivado_stub import COMMANDS, TYPES, Record

ORDER = [
    ("ipx::package_project",),
    ("ipx::save_core",),
    ("update_ip_catalog",),
    ("create_bd_design",),
    ("create_bd_cell",),
    ("connect_bd_intf_net",),
    ("assign_bd_address",),
    ("validate_bd_design",),
    ("save_bd_design",),
    ("make_wrapper",),
    ("launch_runs", "synth_1"),
    ("wait_on_run", "synth_1"),
    ("launch_runs", "impl_1"),
    ("wait_on_run", "impl_1"),
    ("open_run",),
    ("report_timing_summary",),
    ("get_property", "STATS.WNS"),
    ("write_hw_platform",),
    ("file", "copy"),
]
"""The first call of each must come after the last of the one before."""

OURS = ("weft:hw:weft_core", "weft:hw:weft_system")
"""Types of cells that hold a core, or a system of cores."""


def mistakes(record: Record) -> list[str]:
    """All that is wrong with a script that ran to its end."""
    if record.error:
        return [f"ended with: {record.error}"]
    return [
        *_unknown_words(record),
        *_wrong_order(record),
        *_buses(record),
        *_wires(record),
        *_addresses(record),
        *_absolute_paths(record),
    ]


def cells(record: Record) -> dict[str, str]:
    """Type of each cell by its name."""
    return {call[-1]: ":".join(_option(call, "-vlnv").split(":")[:3]) for call in record.of("create_bd_cell")}


def _option(call: list[str], name: str) -> str:
    return call[call.index(name) + 1] if name in call else ""


def _unknown_words(record: Record) -> Iterator[str]:
    for call in record.calls:
        if call[0] not in COMMANDS:
            yield f"no such command: {call[0]}"
            continue
        if call[0] in ("puts", "get_property"):
            continue
        for word in call[1:]:
            if word.startswith("-") and word not in COMMANDS[call[0]]:
                yield f"{call[0]} has no option {word}"


def _wrong_order(record: Record) -> Iterator[str]:
    before, last = "", -1
    for words in ORDER:
        places = [
            place for place, call in enumerate(record.calls) if call[: len(words)] == list(words) or (
                len(words) == 2 and call[0] == words[0] and words[1] in call[1:2]
            )
        ]  # fmt: skip
        if not places:
            yield f"never called: {' '.join(words)}"
            continue
        if places[0] < last:
            yield f"{' '.join(words)} comes before {before}"
        before, last = " ".join(words), places[-1]


def _buses(record: Record) -> Iterator[str]:
    """Each bus that is on must be connected once, a master to a slave; each bus has its clock."""
    made = cells(record)
    ends = Counter(pin for call in record.of("connect_bd_intf_net") for pin in call[1:])
    yield from (f"bus {pin} is connected {count} times" for pin, count in ends.items() if count != 1)
    yield from (f"bus {pin} is not connected" for pin in sorted(_buses_that_are_on(record) - set(ends)))
    (clocks, *others) = [call[1:] for call in record.of("connect_bd_net") if _is_clock(call)] or [[]]
    if others:
        yield "more than one clock"
    for pin in ends:
        cell, bus = pin.split("/")
        clock = f"{cell}/{TYPES[made[cell]].buses[bus]}"
        if clock not in clocks:
            yield f"bus {pin} has no clock: {clock}"


def _is_clock(call: list[str]) -> bool:
    return call[1].rpartition("/")[2] in ("FCLK_CLK0", "pl_clk0")


def _buses_that_are_on(record: Record) -> set[str]:
    """Buses that cells have by their parameters."""
    found = set()
    for name, kind in cells(record).items():
        settings = _settings(record, name)
        if kind in OURS:
            found |= {f"{name}/{bus}" for bus in TYPES[kind].buses}
        elif kind.endswith("axi_intc"):
            found.add(f"{name}/s_axi")
        elif kind.endswith("smartconnect"):
            found |= {f"{name}/S{number:02}_AXI" for number in range(int(settings["CONFIG.NUM_SI"]))}
            found |= {f"{name}/M{number:02}_AXI" for number in range(int(settings["CONFIG.NUM_MI"]))}
        elif kind.endswith("processing_system7"):
            found |= {f"{name}/S_AXI_HP{n}" for n in range(4) if settings.get(f"CONFIG.PCW_USE_S_AXI_HP{n}") == "1"}
            found |= {f"{name}/M_AXI_GP{n}" for n in range(2) if settings.get(f"CONFIG.PCW_USE_M_AXI_GP{n}") == "1"}
        elif kind.endswith("zynq_ultra_ps_e"):
            on = {key for key, value in settings.items() if value == "1"}
            found |= {f"{name}/S_AXI_HP{n}_FPD" for n in range(4) if f"CONFIG.PSU__USE__S_AXI_GP{n + 2}" in on}
            found |= {f"{name}/M_AXI_HPM{n}_FPD" for n in range(2) if f"CONFIG.PSU__USE__M_AXI_GP{n}" in on}
    return found


def _settings(record: Record, cell: str) -> dict[str, str]:
    """What ``set_property -dict`` gave a cell; its words come as one Tcl list of names and values."""
    found: dict[str, str] = {}
    for call in record.of("set_property"):
        if call[1] == "-dict" and call[-1] == cell:
            words = call[2].replace("{", "").replace("}", "").split("CONFIG.")
            found |= {f"CONFIG.{name}": value.strip() for name, _, value in (word.partition(" ") for word in words[1:])}
    return found


def _wires(record: Record) -> Iterator[str]:
    """Each input that must be driven is a sink of one net; what drives a net is an output."""
    made = cells(record)
    sinks: Counter[str] = Counter()
    drivers: Counter[str] = Counter()
    for call in record.of("connect_bd_net"):
        outputs = [pin for pin in call[1:] if pin.split("/")[1] in TYPES[made[pin.split("/")[0]]].outputs]
        if outputs != [call[1]]:
            yield f"a net must have one driver, its first pin: {' '.join(call[1:])}"
        drivers.update(outputs)
        sinks.update(pin for pin in call[1:] if pin not in outputs)
    yield from (f"{pin} drives {count} nets" for pin, count in drivers.items() if count > 1)
    yield from (f"pin {pin} is driven {count} times" for pin, count in sinks.items() if count > 1)
    needed = {f"{cell}/{pin}" for cell, kind in made.items() for pin in TYPES[kind].inputs}
    yield from (f"pin {pin} is not driven" for pin in sorted(needed - set(sinks)))


def _addresses(record: Record) -> Iterator[str]:
    """Registers are aligned to their range; ranges of one master are disjoint; each slave is assigned once."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    segments: Counter[str] = Counter()
    for call in record.of("assign_bd_address"):
        base, size = int(_option(call, "-offset"), 16), int(_option(call, "-range"), 16)
        space = _option(call, "-target_address_space")
        segments[call[-1]] += 1
        if size & (size - 1) or base % size:
            yield f"{call[-1]}: {base:#x} is not aligned to {size:#x}"
        for other, end in ranges.setdefault(space, []):
            if base < end and other < base + size:
                yield f"{call[-1]}: {base:#x} overlaps {other:#x} in {space}"
        ranges[space].append((base, base + size))
    yield from (f"{name} is assigned {count} times" for name, count in segments.items() if count > 1)
    ours = [f"{cell}/{space}" for cell, kind in cells(record).items() if kind in OURS for space in TYPES[kind].spaces]
    yield from (f"no addresses in {space}" for space in ("ps/Data", *ours) if space not in ranges)
    for cell, kind in cells(record).items():
        if kind in (*OURS, "xilinx.com:ip:axi_intc"):
            (segment,) = TYPES[kind].segments
            if f"{cell}/{segment}" not in segments:
                yield f"{cell}/{segment} has no address"


def _absolute_paths(record: Record) -> Iterator[str]:
    for call in record.calls:
        for word in call[1:]:
            if word.startswith(("/", "~")) and word != "/UserIP":  # a place in Vivado's catalogue
                yield f"absolute path: {' '.join(call)}"
