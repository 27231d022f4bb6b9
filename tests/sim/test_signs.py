"""Sign extension as models are compiled with it, against the functions of Verilator's runtime."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from weft.sim.build import SIGNS, signs_header, verilator_package
from weft.sim.cpp_compiler import compiler_flags, run_compiler

SHARED = ("EXTENDS_II", "EXTENDS_QI", "EXTENDS_QQ")
BINARY = re.compile(r"#define VL_((?:MULS|[GL]TE?S)_\w+)\(")

PROGRAM = """\
#include <initializer_list>
#include <random>
#include "verilated.h"
// The runtime's own, under other names, before the header makes macros of them.
{wrappers}
#include "{signs}"

// How many differ, of all widths, values at the borders and random ones.
extern "C" long differences() {{
    std::mt19937_64 random(1);
    long found = 0;
    for (int bits = 1; bits <= 64; ++bits) {{
        const QData mask = bits == 64 ? ~QData(0) : (QData(1) << bits) - 1;
        for (int trial = 0; trial < 300; ++trial) {{
            QData a = random() & mask, b = random() & mask;
            if (trial < 4) a = (trial & 1) ? mask : QData(1) << (bits - 1);
            if (trial < 4) b = (trial & 2) ? a : mask >> 1;
{checks}
        }}
    }}
    return found;
}}
"""


def test_results_are_those_of_the_runtime(tmp_path: Path) -> None:
    binary = BINARY.findall(signs_header())
    assert len(binary) == 10
    wrappers, checks = [], []
    for name in (*SHARED, *binary):
        narrow = name.endswith(("II", "III")) and not name.endswith("QI")
        kind, most = ("IData", 32) if narrow else ("QData", 64)
        values = "a" if name in SHARED else "a, b"
        call = f"VL_{name}({'64, ' if name in SHARED else ''}bits, {values})".replace("64, ", f"{most}, ")
        parameters = ", ".join(f"{kind} {each}" for each in values.split(", "))
        wrappers.append(f"static QData own_{name}(int bits, {parameters}) {{ return {call}; }}")
        cast = ", ".join(f"{kind}({each})" for each in values.split(", "))
        again = call.replace(values, cast)
        part = f"({kind})~{kind}(0)"
        checks.append(
            f"            if (bits <= {most}) found += (({again}) & {part}) != (own_{name}(bits, {cast}) & {part});"
        )
    source = tmp_path / "signs.cpp"
    source.write_text(PROGRAM.format(wrappers="\n".join(wrappers), checks="\n".join(checks), signs=SIGNS))
    (tmp_path / SIGNS).write_text(signs_header())
    include = verilator_package() / "include"
    run_compiler([*compiler_flags(), "-O1", "-shared", "-I", str(tmp_path), "-I", str(include), "-I",
                  str(include / "vltstd"), str(source), "-o", str(tmp_path / "signs.so")])  # fmt: skip
    library = ctypes.CDLL(str(tmp_path / "signs.so"))
    library.differences.restype = ctypes.c_long
    assert library.differences() == 0


def test_models_are_compiled_with_it(tmp_path: Path) -> None:
    """A file of a model that is compiled without it would not see the macro."""
    from weft.sim.build import compile_library

    source = tmp_path / "model.cpp"
    source.write_text('#ifndef VL_EXTENDS_II\n#error "without"\n#endif\nextern "C" int seen() { return 1; }\n')
    compile_library([source], tmp_path / "model.so", quick=True)
    assert ctypes.CDLL(str(tmp_path / "model.so")).seen() == 1
