"""Who reads a file: weft, and TVM's and IREE's importers on the same ONNX and LiteRT files, one operator each.

    python benchmarks/frontends/file_importers.py                             # one in 20 of ONNX's, all of LiteRT's
    python benchmarks/frontends/file_importers.py --kind onnx --every 1 --engines weft tvm --json importers.json

ONNX files are those of the standard's own tests whose inputs and outputs are tensors of numbers, without those that
write an operator in others; their results are the judge, with the tolerances that they name. Inputs behind the first
with one axis at most, such as shapes and axes, stand in the file as constants, as in files that users bring. LiteRT
files are one of each operator and type of `litert_suite.py`; the judge is the interpreter with its default kernels:
integers must be equal to the bit, floats within 1e-5 of the largest. Needs `ai-edge-litert`, and of apache-tvm (with
`tflite`) and iree-base-compiler (with iree-base-runtime) what is to be compared; IREE's package has no importer of
LiteRT files. Times are CPU seconds with those of child processes, on one thread: from the file to code that ran once.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import weft
from onnx import numpy_helper
from weft.compiler.frontends.litert.source import LitertSource

from benchmarks.campaigns.isolated import Broken, Isolated
from benchmarks.common import Record, print_table, processor, write_json
from benchmarks.frontends.litert_suite import FAMILIES, TOLERANCE, compared
from benchmarks.zoo.litert_cases import Case
from benchmarks.zoo.litert_models import Array, interpreted

SECONDS = 120.0
"""Of the processor, for one file and engine."""


@dataclass(frozen=True)
class File:
    """A model with inputs and what they should give, and how far off floats may be: of each, and of all."""

    name: str
    data: bytes
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    relative: float
    absolute: float


@dataclass(frozen=True)
class Read:
    """``result``: "equal", "different", or the error."""

    result: str
    seconds: float = 0.0


# Files


def onnx_files(every: int) -> list[File]:
    from onnx.backend.test.loader import load_model_tests

    found = []
    cases = [case for case in load_model_tests(kind="node") if "_expanded" not in case.name]
    for case in cases[::every]:
        graph = case.model.graph
        if len(case.data_sets[0][0]) != len(graph.input) or any(
            not value.type.HasField("tensor_type") for value in (*graph.input, *graph.output)
        ):
            continue
        given, wanted = (tuple(map(_array, values)) for values in case.data_sets[0])
        if any(array.dtype.kind not in "biufV" for array in (*given, *wanted)):
            continue
        model = onnx.load_from_string(case.model.SerializeToString())
        known = [number > 0 and array.ndim < 2 for number, array in enumerate(given)]
        for is_known, value, array in zip(known, list(model.graph.input), given, strict=True):
            if is_known:
                model.graph.initializer.append(numpy_helper.from_array(array, value.name))
                model.graph.input.remove(value)
        given = tuple(array for is_known, array in zip(known, given, strict=True) if not is_known)
        found.append(File(case.name, model.SerializeToString(), given, wanted, case.rtol, case.atol))
    return found


def _array(value: Any) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def litert_files(every: int) -> list[File]:
    cases: dict[str, Case] = {}
    for family in FAMILIES.values():
        for case in family():
            cases.setdefault(" ".join(case.name.split()[:2]), case)
    found = []
    for name, case in list(cases.items())[::every]:
        try:
            wanted = interpreted(case.model, case.arrays, "default")
        except (RuntimeError, ValueError):  # it refuses the file itself
            continue
        found.append(File(name, case.model, tuple(case.arrays), tuple(wanted), 0.0, TOLERANCE))
    return found


# Engines: the outputs of a file for its inputs


def onnx_by_weft(file: File) -> Sequence[Array]:
    names = [value.name for value in onnx.load_from_string(file.data).graph.input]
    shapes = {name: array.shape for name, array in zip(names, file.inputs, strict=True)}
    with tempfile.NamedTemporaryFile(suffix=".onnx") as path:
        Path(path.name).write_bytes(file.data)
        loaded = weft.load(weft.compile(path.name, target="cpu", shapes=shapes))
    return list(loaded.run(dict(zip(names, file.inputs, strict=True))).values())


def litert_by_weft(file: File) -> Sequence[Array]:
    source = LitertSource(file.data, file.name)
    given = {each.name: array for each, array in zip(source.inputs({}), file.inputs, strict=True)}
    shapes = {name: array.shape for name, array in given.items()}
    return list(weft.load(weft.compile(source, target="cpu", shapes=shapes)).run(given).values())


def onnx_by_tvm(file: File) -> Sequence[Array]:
    from tvm.relax.frontend.onnx import from_onnx

    return _run_by_tvm(from_onnx(onnx.load_from_string(file.data), keep_params_in_input=False), file)


def litert_by_tvm(file: File) -> Sequence[Array]:
    import tflite
    from tvm.relax.frontend.tflite import from_tflite

    return _run_by_tvm(from_tflite(tflite.Model.GetRootAsModel(file.data, 0)), file)


def _run_by_tvm(module: Any, file: File) -> Sequence[Array]:
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    made = machine["main"](*(tvm.runtime.tensor(array) for array in file.inputs))
    return [each.numpy() for each in ([made] if hasattr(made, "numpy") else made)]


def onnx_by_iree(file: File) -> Sequence[Array]:
    import iree.compiler
    import iree.runtime
    from iree.compiler.tools.import_onnx import __main__ as importer

    with tempfile.TemporaryDirectory() as folder:
        model, text = f"{folder}/model.onnx", f"{folder}/model.mlir"
        Path(model).write_bytes(file.data)
        importer.main(importer.parse_arguments([model, "-o", text]))
        binary = iree.compiler.compile_file(text, input_type="onnx", target_backends=["llvm-cpu"],
                                            extra_args=["--iree-llvmcpu-target-cpu=host"])  # fmt: skip
    config = iree.runtime.Config("local-sync")
    context = iree.runtime.SystemContext(config=config)
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(config.vm_instance, binary))
    name = onnx.load_from_string(file.data).graph.name
    made = context.modules.module[name](*file.inputs)
    return [each.to_host() for each in ([made] if hasattr(made, "to_host") else made)]


KINDS: dict[str, tuple[Callable[[int], list[File]], int, dict[str, Callable[[File], Sequence[Array]]]]] = {
    "onnx": (onnx_files, 20, {"weft": onnx_by_weft, "tvm": onnx_by_tvm, "iree": onnx_by_iree}),
    "litert": (litert_files, 1, {"weft": litert_by_weft, "tvm": litert_by_tvm}),
}
"""By format: its files, of which one in so many is taken, and who reads them."""

PACKAGES = {"weft": "weft", "tvm": "tvm", "iree": "iree.compiler"}


def read(engine: Callable[[File], Sequence[Array]], file: File) -> Read:
    started = _seconds()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WEFT_CACHE"] = folder
        try:
            found = engine(file)
        except Exception as error:  # whatever an importer raises
            lines = f"{type(error).__name__}: {error}".strip().splitlines()
            return Read(lines[0][:160], _seconds() - started)
    passed = _seconds() - started
    good = len(found) == len(file.outputs) and all(
        _equal(*pair, file) for pair in zip(found, file.outputs, strict=True)
    )
    return Read("equal" if good else "different", passed)


def _equal(found: Array, wanted: Array, file: File) -> bool:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    if not file.relative:
        return compared(found, wanted)[0] in ("equal", "close")
    if wanted.dtype.kind in "iub":
        return bool((found == wanted).all())
    if wanted.dtype.kind not in "fV":  # texts, complex numbers
        return bool(np.array_equal(found, wanted))
    wide = np.float64
    return bool(np.allclose(found.astype(wide), wanted.astype(wide), file.relative, file.absolute, equal_nan=True))


def _seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@cache
def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", action="append", choices=sorted(KINDS), help="of files; by default both")
    parser.add_argument("--every", type=int, help="take one file in so many")
    parser.add_argument("--engines", nargs="*", choices=sorted(PACKAGES), help="by default those that are there")
    parser.add_argument("--verbose", action="store_true", help="print every file that is not equal")
    parser.add_argument("--json", type=Path, help="write the figures as flat records")
    arguments = parser.parse_args()
    rows, records, good = [], [], True
    for kind in arguments.kind or KINDS:
        files_of, usual, engines = KINDS[kind]
        files = {file.name: file for file in files_of(arguments.every or usual)}
        for name, engine in engines.items():
            if (arguments.engines and name not in arguments.engines) or not _is_there(PACKAGES[name]):
                continue
            work = Isolated(lambda case, engine=engine, files=files: read(engine, files[case]), SECONDS)
            found = {}
            for case, each in work.run(list(files)):
                found[case] = Read(each.state, each.seconds) if isinstance(each, Broken) else each
                if arguments.verbose and found[case].result != "equal":
                    print(f"{kind} {case} by {name}: {found[case].result}", flush=True)
            ends = Counter(each.result if each.result in ("equal", "different", "crash", "timeout") else "refused"
                           for each in found.values())  # fmt: skip
            seconds = sum(each.seconds for each in found.values())
            rows.append((kind, name, *(str(ends[end]) for end in ENDS), f"{seconds:.0f}"))
            records += [Record(name, kind, end, ends[end], len(files)) for end in ENDS]
            records.append(Record(name, kind, "CPU s", round(seconds, 1)))
            good = good and (name != "weft" or not (ends["crash"] or ends["timeout"]))
    columns = ("format", "by", *ENDS, "CPU s")
    print_table(f"files of one operator ({processor()}, one thread)", columns, rows)
    if arguments.json:
        write_json(arguments.json, records)
    return int(not good)


ENDS = ("equal", "different", "refused", "crash", "timeout")

if __name__ == "__main__":
    sys.exit(main())
