"""A design in Amaranth as a model of Verilator's: what drives what, the Verilog, the library, and where values lie."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import _ast, _ir
from amaranth.hdl._mem import MemoryData, MemoryInstance

from ..cache import cache_key, kept_file, loaded_library
from ..collector import collector_waits
from ..hw.verilog import fold_repeats, run_yosys
from ..shown import with_article
from .build import VERILATOR_FLAGS, Progress, compile_library, require_tools, signs_header, verilate, verilator_version
from .cpp_compiler import compiler_flags, compiler_version
from .errors import BuildError
from .verilated_names import MEMBER, encoded, member_name
from .waves import Waves

YOSYS_STEPS = ("proc -nomux -norom", "delete t:$print t:$check", "memory_collect")
"""All signals keep their names and values: what is asked for is not optimised away."""

GLUE = """\
#include "Vdesign.h"
#include "Vdesign___024root.h"
{trace_header}
void Vdesign___024root___eval_settle(Vdesign___024root*);
struct Model {{
    VerilatedContext context;
    Vdesign top{{&context, "top"}};
    {trace_member}
}};
#define EXPORT extern "C" __attribute__((visibility("default")))
EXPORT Model* weft_new() {{ auto* model = new Model; {trace_on} model->top.eval(); return model; }}
// Names of signals are taken off the thread's context, which may be that of another model, or of none any more.
EXPORT void weft_delete(Model* model) {{
    Verilated::threadContextp(&model->context);
    model->top.final();
    delete model;
}}
EXPORT void weft_evaluate(Model* model) {{ model->top.eval(); }}
// After a register or a memory was written from outside: all that follows from them.
EXPORT void weft_settle(Model* model) {{ Vdesign___024root___eval_settle(model->top.rootp); }}
EXPORT void* weft_address(Model* model, uint32_t number) {{
    auto& root = *model->top.rootp;
    switch (number) {{
{cases}
    }}
    return nullptr;
}}
EXPORT void weft_open(Model* model, const char* path) {{ {trace_open} }}
EXPORT void weft_dump(Model* model, uint64_t time) {{ {trace_dump} }}
EXPORT void weft_close(Model* model) {{ {trace_close} }}
"""

TRACE = {
    "trace_header": '#include "verilated_vcd_c.h"',
    "trace_member": "VerilatedVcdC waves;",
    "trace_on": "model->context.traceEverOn(true); model->top.trace(&model->waves, 99);",
    "trace_open": (
        'model->waves.set_time_unit("1fs"); model->waves.set_time_resolution("1fs"); model->waves.open(path);'
    ),
    "trace_dump": "model->waves.dump(time);",
    "trace_close": "model->waves.close();",
}


@dataclass(frozen=True)
class Drivers:
    """What drives the signals of a design. ``inputs``: nothing does."""

    inputs: tuple[Any, ...]
    combinational: Any  # SignalDict, as the next
    clocked: Any
    memories: dict[Any, tuple[str, ...]]
    """Where each memory's instance stands."""
    read: tuple[Any, ...]
    """What memories drive: nothing else gives these signals a name."""

    def drive(self, signal: Any) -> bool:
        """Whether the design does, and not who tests it."""
        return signal in self.combinational or signal in self.clocked


class DesignError(BuildError):
    """A design that only Amaranth's own simulator can run."""


def drivers_of(design: Any, *, checks: bool) -> Drivers:
    """:class:`DesignError` for instances of foreign modules and, with ``checks``, statements that check or print."""
    combinational, clocked, read, memories = _ast.SignalDict(), _ast.SignalDict(), _ast.SignalDict(), {}

    def drives(signals: Iterable[Any], domain: str) -> None:
        for signal in signals:
            (combinational if domain == "comb" else clocked)[signal] = None

    for fragment, info in design.fragments.items():
        place = ".".join(info.name)
        if isinstance(fragment, MemoryInstance):
            memories[fragment._data] = info.name
            for port in fragment._read_ports:
                drives(port._data._lhs_signals(), port._domain)
                read.update((signal, None) for signal in port._data._lhs_signals())
        elif isinstance(fragment, (_ir.Instance, _ir.IOBufferInstance)):
            raise DesignError(f"{place} is an instance of a foreign module, of which nothing is known",
                              hint="put a model of it in Amaranth in its place")  # fmt: skip
        for domain, statements in fragment.statements.items():
            drives(statements._lhs_signals(), domain)
            if checks and (found := next(_checks(statements), None)) is not None:
                kind = "Print" if isinstance(found, _ast.Print) else found.kind.value.capitalize()
                raise DesignError(f"{place} has {with_article(kind)} statement ({found.src_loc[0]}:{found.src_loc[1]})",
                                  hint="give checks=False, and such statements are left out")  # fmt: skip
    inputs = [signal for signal in design.signal_lca if signal not in combinational and signal not in clocked]
    return Drivers(tuple(signal for signal in inputs if len(signal)), combinational, clocked, memories, tuple(read))


def _checks(statements: Iterable[Any]) -> Iterator[Any]:
    for statement in statements:
        if isinstance(statement, (_ast.Print, _ast.Property)):
            yield statement
        elif isinstance(statement, _ast.Switch):
            for _, body, _ in statement.cases:
                yield from _checks(body)


@dataclass(frozen=True)
class VerilatedDesign:
    """A library, and the numbers by which it tells where signals and memories lie."""

    library: ctypes.CDLL
    signals: Any  # SignalDict: signal -> number
    memories: dict[Any, int]


def verilated(
    design: Any, drivers: Drivers, progress: Progress | None, waves: Waves, *, quick: bool
) -> VerilatedDesign:
    """The model of a design, from the cache if it was built before. :class:`BuildError` says what is missing."""
    ports = {f"weft_in{number}": (signal, _ir.PortDirection.Input) for number, signal in enumerate(drivers.inputs)}
    for number, signal in enumerate(drivers.read):
        ports[f"weft_out{number}"] = (signal, _ir.PortDirection.Output)
    named = _ir.Design(design.fragment, [(name, *port) for name, port in ports.items()], hierarchy=("top",))
    with collector_waits():  # as for a core's Verilog
        text, names = rtlil.convert_fragment(named, emit_src=False)
    report = progress or (lambda message: None)
    places: dict[str, Any] = {name: signal for name, (signal, _) in ports.items()}
    paths = list(drivers.memories.values())
    for signal, path in names.items():
        paths.append(path)
        if drivers.drive(signal):
            places[member_name(path)] = signal
    for memory, path in drivers.memories.items():
        places[member_name(path)] = memory
    members = tuple(places)
    tools = (VERILATOR_FLAGS, compiler_flags(), compiler_version(), verilator_version(), signs_header())
    settings = (tools, YOSYS_STEPS, GLUE, quick, waves)

    def build(target: Path) -> None:
        require_tools()
        report("the design: writing Verilog")
        verilog = fold_repeats(run_yosys(text, YOSYS_STEPS))
        report("the design: Verilator")
        folder = target.parent
        (folder / "design.v").write_text(verilog)
        # Where a name has two underscores Verilator asks for the name itself, else for its own spelling.
        public = sorted({name for path in paths for name in (path[-1], encoded(path[-1]))})
        lines = [f'public_flat_rd -module "*" -var "{name}"' for name in public]
        (folder / "design.vlt").write_text("\n".join(["`verilator_config", *lines, ""]))
        flags = (*VERILATOR_FLAGS, *waves.verilator_flags, "--top-module", "top", "--prefix", "Vdesign")
        verilate(flags, (folder / "design.vlt", folder / "design.v"), folder)
        header = (folder / "Vdesign___024root.h").read_text()
        found = {match["port"] or match["name"] or match["memory"] for match in MEMBER.finditer(header)}
        if missing := [member for member in members if member not in found]:
            raise BuildError(f"{missing[0]} is not in the verilated design")
        cases = "\n".join(f"    case {number}: return &root.{member};" for number, member in enumerate(members))
        trace = TRACE if waves is Waves.VCD else dict.fromkeys(TRACE, "")
        (folder / "glue.cpp").write_text(GLUE.format(cases=cases, **trace))
        report("the design: compiling its model")
        compile_library(sorted(folder.glob("*.cpp")), target, quick=quick, waves=waves)

    key = cache_key(text, members, settings)
    library = loaded_library(lambda: kept_file("designs", f"{key}.so", build))
    library.weft_new.restype = library.weft_address.restype = ctypes.c_void_p
    pointer = ctypes.c_void_p
    for name, arguments in {
        "delete": [pointer], "evaluate": [pointer], "settle": [pointer], "address": [pointer, ctypes.c_uint32],
        "open": [pointer, ctypes.c_char_p], "dump": [pointer, ctypes.c_uint64], "close": [pointer],
    }.items():  # fmt: skip
        getattr(library, f"weft_{name}").argtypes = arguments
    signals, memories = _ast.SignalDict(), {}
    for number, place in enumerate(places.values()):
        if isinstance(place, MemoryData):
            memories[place] = number
        else:
            signals[place] = number
    return VerilatedDesign(library, signals, memories)
