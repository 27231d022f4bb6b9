"""``weft board doctor``: one check after the other, from the link to the engines, each with a verdict and a remedy.

A check that fails ends the examination, unless the ones behind it still make sense. Programs that try the core are in
:mod:`.doctor_programs`, what their results say of it in :mod:`.doctor_findings`, the way to the board in
:mod:`.doctor_reach`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ..hw.config import CoreConfig
from ..hw.errors import ConfigError
from ..runtime.device import Device
from ..runtime.errors import DeviceError
from .device import PynqDevice
from .doctor_core import CORE_CHECKS
from .doctor_reach import REACH_CHECKS
from .finding import FindingError
from .hosts import Host, no_overlay
from .patient import Patient
from .remote import BoardLinkError

Progress = Callable[[str], None]
TryModel = Callable[[Device], str]
"""Runs a network on a device; what to say of it. Raises :class:`FindingError` if its results are wrong."""


class State(StrEnum):
    """How a check ended."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Verdict:
    """What a check has found: ``text`` says it, ``remedy`` what to do, ``figures`` are for programs."""

    check: str
    state: State
    text: str
    remedy: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)


CHECKS = (*REACH_CHECKS, *CORE_CHECKS)
"""All checks but the last, ``digits``, in their order."""

NAMES = (*(check.name for check in CHECKS), "digits")


def examine(
    host: Host, config: CoreConfig, try_model: TryModel | None = None, *, least_memory: int = 0,
    progress: Progress = lambda _: None,
) -> Iterator[Verdict]:  # fmt: skip
    """The verdicts on a board that should hold the core ``config``, one for each of :data:`NAMES`, as they come.

    ``try_model`` runs a network; ``least_memory``: bytes of the window that it needs.
    """
    patient = Patient(host, config, progress, least_memory)
    ill = ""
    failed: set[str] = set()
    try:
        for check in CHECKS:
            if ill:
                yield Verdict(check.name, State.SKIPPED, f"makes no sense before {ill!r} is well")
                continue
            progress(f"{host.name}: {check.name}")
            verdict = _verdict(check.name, lambda check=check: check.run(patient))  # type: ignore[misc]
            if verdict.state is State.FAILED:
                failed.add(check.name)
                if check.essential or patient.is_lost:
                    ill = check.name
            yield verdict
    finally:
        patient.close()
    ill = ill or next(iter(sorted(failed)), "")
    if ill:
        yield Verdict("digits", State.SKIPPED, f"makes no sense before {ill!r} is well")
    elif try_model is None:
        yield Verdict("digits", State.SKIPPED, "no network was given", "name one by --model")
    else:
        progress(f"{host.name}: digits")
        yield _verdict("digits", lambda: try_model(PynqDevice(config, host=host, progress=progress)))


def _verdict(name: str, action: Callable[[], str | tuple[str, dict[str, Any]]]) -> Verdict:
    try:
        found = action()
    except FindingError as finding:
        return Verdict(name, State.FAILED, finding.text, finding.remedy, finding.figures)
    except BoardLinkError as error:
        return Verdict(name, State.FAILED, error.reason, error.hint, {"kind": error.kind})
    except DeviceError as error:
        return Verdict(name, State.FAILED, f"{error.at}: {error.message}" if error.at else error.message, error.hint)
    text, figures = (found, {}) if isinstance(found, str) else found
    return Verdict(name, State.OK, text, figures=figures)


def core_of(host: Host) -> CoreConfig:
    """The core that a board's overlay was built for, by the manifest beside it.

    :class:`DeviceError` if there is none that can be read.
    """
    hint = "name the core: --config NAME, or the core.json that was written with the overlay"
    if host.overlay is None:
        raise no_overlay(host)
    path = host.overlay.with_suffix(".json")
    try:
        values = json.loads(path.read_text())
        return CoreConfig.from_json(json.dumps(values["core"]))
    except FileNotFoundError:
        raise DeviceError(f"the overlay of board {host.name!r} has no manifest", at=path, hint=hint) from None
    except (ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
        raise DeviceError(f"not the manifest of an overlay: {error}", at=path, hint=hint) from None
