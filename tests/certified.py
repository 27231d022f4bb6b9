"""``pytest --certify``: whatever a test compiles for a core is proved as well, and the test fails if it is not."""

from __future__ import annotations

from typing import Any

import pytest
from weft import kept_models
from weft.compiler import compile as compiling
from weft.compiler.graph import Module
from weft.compiler.model import CompiledModel
from weft.compiler.passes.pipeline import PassOptions
from weft.compiler.targets.accel.link import link as linking
from weft.compiler.targets.accel.target import Accel, passes_to_integers
from weft.compiler.targets.target import Target
from weft.verify import verify
from weft.verify.keyed import Keys
from weft.verify.verifier import unequal_outputs

SEED = 1


def certify_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program that is linked, and every graph that a core's passes have packed, is proved at once."""
    run, prepared = linking._Linker.run, compiling.prepared

    def proved(linker: Any) -> CompiledModel:
        made = run(linker)
        if made.core is not None:
            certificate = verify(made, seed=SEED)
            assert certificate.proved, [str(alarm) for alarm in certificate.alarms]
        return made

    def packed(module: Module, target: Target, options: Any, passes: PassOptions | None = None) -> Module:
        made = prepared(module, target, options, passes)
        if isinstance(target, Accel) and passes is None:
            integer = module
            for step in passes_to_integers(options.core, options.integers):
                integer = step(integer)
            alarms = unequal_outputs(integer, made, Keys(SEED))
            assert not alarms, [str(alarm) for alarm in alarms]
        return made

    monkeypatch.setattr(kept_models, "_found", lambda subject: None)  # what was compiled before is compiled again
    monkeypatch.setattr(linking._Linker, "run", proved)
    monkeypatch.setattr(compiling, "prepared", packed)
