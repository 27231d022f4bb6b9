"""Who reads a program of PyTorch: weft, TVM's importer and IREE's on the same exported programs, beside eager PyTorch.

    python benchmarks/frontends/torch_importers.py                          # the networks of torch_compile.py
    python benchmarks/frontends/torch_importers.py transformers/Bert --engines weft tvm --json importers.json

Needs what `torch_models.py` needs, whose weights and tolerance these are, and of apache-tvm and iree-turbine (with
iree-base-compiler and iree-base-runtime) what is to be compared. Times are CPU seconds with those of child processes,
on one thread, without anything that is kept on disk: from the exported program to code that ran once. No engine is
tuned. The exit status is 1 where weft is not equal to eager PyTorch on a network.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import weft

from benchmarks.campaigns.isolated import Broken, Isolated
from benchmarks.common import Record, print_table, processor, write_json
from benchmarks.frontends.torch_compile import NETWORKS
from benchmarks.frontends.torch_models import TOLERANCE, Logits, image_network, stir, text_network

Run = Callable[[torch.export.ExportedProgram, torch.Tensor], Any]
SECONDS = 900.0
"""Of the processor, for one network and engine."""


def by_weft(program: torch.export.ExportedProgram, x: torch.Tensor) -> Any:
    (result,) = weft.load(weft.compile(program, target="cpu")).run({"x": x.numpy()}).values()
    return result


def by_tvm(program: torch.export.ExportedProgram, x: torch.Tensor) -> Any:
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    made = tvm.compile(from_exported_program(program, keep_params_as_input=False), "llvm")
    found = relax.VirtualMachine(made, tvm.cpu())["main"](tvm.runtime.tensor(x.numpy()))
    return (found if hasattr(found, "numpy") else found[0]).numpy()


def by_iree(program: torch.export.ExportedProgram, x: torch.Tensor) -> Any:
    import iree.runtime
    from iree.turbine import aot
    from iree.turbine.aot.decompositions import current_aot_decompositions

    decomposed = program.run_decompositions(current_aot_decompositions())  # as it does itself for a module
    exported = aot.export(decomposed)
    exported.session.set_flags("--iree-llvmcpu-target-cpu=host")
    binary = exported.compile(save_to=None, target_backends=["llvm-cpu"])
    config = iree.runtime.Config("local-sync")
    context = iree.runtime.SystemContext(config=config)
    context.add_vm_module(iree.runtime.VmModule.wrap_buffer(config.vm_instance, binary.map_memory()))
    return context.modules.module["main"](x.numpy()).to_host()


ENGINES: dict[str, tuple[str, Run]] = {
    "weft": ("weft", by_weft), "tvm": ("tvm", by_tvm), "iree": ("iree.turbine", by_iree),
}  # fmt: skip
"""By name: the module that must be there, and how a program is compiled and run once."""


@dataclass(frozen=True)
class Read:
    """``result``: "equal", "different", or the error."""

    result: str
    difference: float = 0.0
    seconds: float = 0.0


def read(case: tuple[str, str]) -> Read:
    name, engine = case
    library, _, kind = name.partition("/")
    torch.manual_seed(0)
    network, x = text_network(kind) if library == "transformers" else image_network(library, kind)
    stir(network)
    network = Logits(network).eval()
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        os.environ["WEFT_CACHE"] = folder
        wanted = network(x).numpy()
        program = torch.export.export(network, (x,))
        started = _seconds()
        try:
            found = ENGINES[engine][1](program, x)
        except Exception as error:  # whatever an importer raises
            return Read(f"{type(error).__name__}: {error}".strip().splitlines()[0][:200], seconds=_seconds() - started)
        passed = _seconds() - started
    difference = float(np.abs(found - wanted).max() / np.abs(wanted).max()) if found.shape == wanted.shape else np.inf
    return Read("equal" if difference <= TOLERANCE else "different", difference, passed)


def _seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS, help="as LIBRARY/NAME")
    parser.add_argument("--engines", nargs="*", choices=ENGINES, default=None, help="by default those that are there")
    parser.add_argument("--json", type=Path, help="write the figures as flat records")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    engines = arguments.engines or [name for name, (module, _) in ENGINES.items() if _is_there(module)]
    cases = [(name, engine) for name in arguments.networks for engine in engines]
    found: dict[tuple[str, str], Read] = {}
    for case, each in Isolated(read, SECONDS).run(cases):
        found[case] = Read(each.state) if isinstance(each, Broken) else each
        print(f"{' by '.join(case)}: {found[case].result}, {found[case].seconds:.1f} s", flush=True)
    rows = [(name, *(text for engine in engines for text in _cells(found[name, engine])))
            for name in arguments.networks]  # fmt: skip
    columns = ("network", *(text for engine in engines for text in (engine, "CPU s")))
    print_table(f"programs of PyTorch ({processor()}, torch {torch.__version__}, one thread)", columns, rows)
    records = []
    for engine in engines:
        own = [found[name, engine] for name in arguments.networks]
        equal = sum(each.result == "equal" for each in own)
        print(f"{engine}: {equal} of {len(own)} equal to eager PyTorch, {sum(each.seconds for each in own):.0f} CPU s")
        records.append(Record(engine, "all", "equal", equal, len(own)))
        records += [Record(engine, name, "CPU s", round(found[name, engine].seconds, 2)) for name in arguments.networks]
    if arguments.json:
        write_json(arguments.json, records)
    return int(any(found[name, "weft"].result != "equal" for name in arguments.networks if "weft" in engines))


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def _cells(each: Read) -> tuple[str, str]:
    return each.result[:40], f"{each.seconds:.1f}"


if __name__ == "__main__":
    sys.exit(main())
