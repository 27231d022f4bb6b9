"""LLVM's optimiser."""

from __future__ import annotations

import llvmlite.binding as llvm
from llvmlite.binding.newpassmanagers import NewPassManager

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()


def optimised(text: str, machine: llvm.TargetMachine, triple: str, *, vectorise: bool, level: int) -> llvm.ModuleRef:
    """The module of this LLVM IR, optimised for a machine; loops become vectors where that is asked for. ``level``: of
    the pipeline, as in ``-O2`` or ``-O3``."""
    # LLVM keeps a context's types and constants as long as the context, and the global one for ever.
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple = triple
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = vectorise
    options.slp_vectorization = False
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    manager = builder.getModulePassManager()
    try:
        manager.run(module, builder)
    finally:
        _free(manager)
    return module


def _free(manager: llvm.ModulePassManager) -> None:
    """Free a pass manager with what its passes remember, half a MiB for a large kernel.

    llvmlite 0.50 never does: of the two bases of the class, the first has a ``_dispose`` that does nothing.
    """
    NewPassManager._dispose(manager)
    manager.detach()
