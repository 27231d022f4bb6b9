"""Faults in the GPU target: barriers, owners, guards, and what C leaves open."""

from __future__ import annotations

from .mutant import Mutant

PHASES, TEXT, FUNCTIONS = (f"compiler/targets/gpu/{name}.py" for name in ("phases", "opencl", "opencl_functions"))
FORMS = ("tests/compiler/targets/gpu/test_phases.py",)
TILES = ("tests/compiler/targets/gpu/test_tiled.py",)
OPERATORS = ("tests/compiler/targets/gpu/test_operators.py",)

MUTANTS = (
    Mutant(
        "no-barrier-before-writing-over", PHASES, "check ignored",
        "return (later.read & self.written) | (later.written & (self.written | self.read))",
        "return later.read & self.written", TILES,
    ),
    Mutant(
        "no-barrier-around-a-loop", PHASES, "check ignored",
        "for phase in _phases(body) if extent != Const(1) else ():", "for phase in ():", TILES,
    ),
    Mutant(
        "digit-of-the-wrong-weight", PHASES, "off by one",
        "Digit(loop.var, radix, prod(radices[place + 1 :]), loop.extent)",
        "Digit(loop.var, radix, prod(radices[place:]), loop.extent)", FORMS,
    ),
    Mutant(
        "owners-that-differ", PHASES, "check ignored", "    if len(owners) > 1:", "    if len(owners) > 2:", FORMS,
    ),
    Mutant(
        "owner-not-told", PHASES, "bound", "below >= step or any(", "below > step or any(", FORMS,
    ),
    Mutant(
        "group-too-large", PHASES, "check ignored",
        "if grid.threads > device.group_threads:", "if grid.threads > 2 * device.group_threads:", FORMS,
    ),
    Mutant(
        "digit-without-guard", TEXT, "check ignored", "            if digit.is_guarded:\n", "            if False:\n",
        TILES,
    ),
    Mutant(
        "guard-of-a-short-loop", TEXT, "bound", "if ({name} < {extent}) {{", "if ({name} <= {extent}) {{", TILES,
    ),
    Mutant(
        "nan-lost-in-a-minimum", FUNCTIONS, "special value",
        "return a != a || a {sign} b ? a : b;", "return a {sign} b ? a : b;", OPERATORS,
    ),
    Mutant(
        "saturation-too-late", FUNCTIONS, "bound", "x >= {top} ?", "x > {top} ?", OPERATORS,
    ),
    Mutant(
        "quotient-rounds-to-zero", FUNCTIONS, "rounding",
        "return a / b - (rest != 0 && (rest < 0) != (b < 0));", "return a / b;", OPERATORS,
    ),
    Mutant(
        "exponential-of-a-nan", FUNCTIONS, "special value",
        "return x != x ? x : value *", "return value *", OPERATORS,
    ),
)  # fmt: skip
