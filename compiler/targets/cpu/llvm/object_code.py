"""From LLVM IR to an object file, through LLVM's optimiser; objects are kept on disk by content."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from ..processor import CpuTarget

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()


def cache_folder() -> Path:
    """``$WEFT_CACHE/cpu``, by default ``~/.cache/weft/cpu``."""
    base = os.environ.get("WEFT_CACHE") or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "weft"
    return Path(base) / "cpu"


COMPILER = Path(__file__).parents[3]
"""The folder of ``weft.compiler``."""


@cache
def sources_digest() -> str:
    """Stands for the compiler itself: a digest of all its sources, since any of them may shape code."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(COMPILER.rglob("*.py")):
        digest.update(f"{path.relative_to(COMPILER)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def code_key(target: CpuTarget) -> str:
    """All that machine code depends on besides the program: the processor, LLVM, and the compiler itself."""
    return f"{target} llvm{'.'.join(map(str, llvm.llvm_version_info))} {sources_digest()}"


def machine(target: CpuTarget) -> llvm.TargetMachine:
    """LLVM's code generator for a processor."""
    generator = llvm.Target.from_triple(target.triple)
    return generator.create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="default"
    )


def optimise(text: str, target: CpuTarget) -> llvm.ModuleRef:
    """The module of this LLVM IR, optimised for ``target``."""
    module = llvm.parse_assembly(text)
    module.triple = target.triple
    generator = machine(target)
    module.data_layout = str(generator.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    options.slp_vectorization = False
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(generator, options)
    builder.getModulePassManager().run(module, builder)
    return module


def object_code(text: str, target: CpuTarget) -> bytes:
    """The object file of this LLVM IR."""
    return bytes(machine(target).emit_object(optimise(text, target)))


def cached(key: str, make: Callable[[], bytes], folder: Path | None = None) -> bytes:
    """The bytes that ``make`` gives, kept on disk under ``key``. A damaged file is made again."""
    place = folder if folder is not None else cache_folder()
    path = place / f"{hashlib.sha256(key.encode()).hexdigest()}.o"
    try:
        content = path.read_bytes()
        if hashlib.sha256(content[32:]).digest() == content[:32]:
            return content[32:]
    except OSError:
        pass
    made = make()
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place, delete=False) as file:
            file.write(hashlib.sha256(made).digest() + made)
        os.replace(file.name, path)  # at once: another process may be writing the same
    except OSError:
        pass  # a cache that cannot be written only costs time
    return made


def cached_object(text: str, target: CpuTarget, folder: Path | None = None) -> bytes:
    """As ``object_code``, from the cache where it is there."""
    return cached(f"{code_key(target)}\n{text}", lambda: object_code(text, target), folder)
