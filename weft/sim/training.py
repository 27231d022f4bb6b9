"""A core's RTL simulator compiled a second time, by what the first one was seen to do (profile-guided optimisation).

The compiler counts how often each branch is taken while random programs run, and then writes code for these counts.
That takes as long as two builds, so it happens in a process of its own, in the background; whoever needs the core
meanwhile has the plain library. :func:`weft.sim.build.build_library` finds the trained one from then on.

    python -m weft.sim.training pynq        # in the foreground: a core by its name, by a file, or as JSON
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ..cache import cache_limit, kept_file
from ..hw.config import CoreConfig, load_config
from .build import TRAINED, build_library, compile_library, model_verilog, require_tools, run_verilator
from .cpp_compiler import compiler_version, run_tool
from .errors import BuildError
from .fuzz import MEMORY_BYTES, random_case, seeded
from .fuzz_compare import fill
from .rtl import RtlSimulator

PROGRAMS = 100
"""Random programs that a simulator is trained on: 130,000 cycles of ``pynq``."""

COUNT, USE = ("-fprofile-generate",), ("-fprofile-use", "-Wno-missing-profile")
"""Flags of GCC. It finds counts by the path of the object that they are of: both builds lie in one folder."""

LEAST_PRIORITY = 19
MODULE = "weft.sim.training"


def check_training() -> None:
    """:class:`BuildError` if no simulator can be trained here."""
    require_tools()
    version = compiler_version()
    if "Free Software Foundation" not in version:
        raise BuildError(f"a simulator is trained by GCC, but the C++ compiler is {version.split()[0]}",
                         hint="the variable CXX names the compiler: g++")  # fmt: skip
    if cache_limit() == 0:
        raise BuildError("a trained simulator would not be kept", at="WEFT_CACHE_LIMIT", hint="0 keeps nothing")


def start_training(config: CoreConfig) -> bool:
    """Begin to train the simulator of a core in a process that outlives this one; False if it is trained already.

    The plain simulator is built first if there is none. :class:`BuildError` as of :func:`check_training`.
    """
    check_training()
    if build_library(config)[0].suffix == TRAINED:
        return False
    nothing = subprocess.DEVNULL
    subprocess.Popen(
        [sys.executable, "-m", MODULE, config.to_json()],
        stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True,
    )  # fmt: skip
    return True


def train(config: CoreConfig, *, root: Path | None = None) -> Path:
    """The trained library of a core's simulator, made if there is none. ``root``: of the cache, default the user's."""
    plain, _ = build_library(config, cache_root=root)
    if plain.suffix == TRAINED:
        return plain

    def make(target: Path) -> None:
        sources = run_verilator(config, model_verilog(config), target.parent)
        compile_trained(config, sources, target, root)

    return kept_file("rtl", f"{plain.stem.removeprefix('weft-')}{TRAINED}", make, root=root)


def compile_trained(config: CoreConfig, sources: list[Path], library: Path, root: Path | None) -> None:
    """Compile C++ files of the core twice, with random programs between; ``root`` as in :func:`train`."""
    counting = library.with_name("counting.so")
    compile_library(sources, counting, root, own_flags=COUNT)
    run_tool([sys.executable, "-m", MODULE, config.to_json(), str(counting)], "training")
    compile_library(sources, library, root, own_flags=USE)


def exercise(config: CoreConfig, library: Path) -> int:
    """Run random programs on a library of the core; the cycles that they took. What was counted is written when the
    process ends."""
    simulator = RtlSimulator(config, MEMORY_BYTES, library=library)
    cycles = 0
    for seed in range(PROGRAMS):
        case = random_case(config, seeded(seed))
        simulator.set_dram(case.dram)
        offset, count = fill(case, simulator)
        result = simulator.run(offset, count, window_start=case.window_start, window_bytes=case.window_bytes)
        cycles += result.cycles or 0
    return cycles


def main() -> None:
    text, *library = sys.argv[1:]
    config = CoreConfig.from_json(text) if text.startswith("{") else load_config(text)
    if library:
        exercise(config, Path(library[0]))
    else:
        os.nice(LEAST_PRIORITY)
        train(config)


if __name__ == "__main__":
    main()
