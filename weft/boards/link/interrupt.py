"""The core's interrupt as pynq hands it on: through an AXI interrupt controller in the logic and Linux's UIO."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from .errors import LinkError


class InterruptLine:
    """The interrupt of one pin: ``interrupt`` is pynq's, whose ``wait`` is a coroutine."""

    def __init__(self, interrupt: Any) -> None:
        self._interrupt = interrupt

    def wait(self, seconds: float) -> bool:
        """Whether the interrupt came within so many seconds. It may have come earlier: only the core knows what for.

        LinkError of kind ``interrupt`` if pynq cannot wait for it.
        """
        try:
            return event_loop().run_until_complete(self._within(seconds))
        except Exception as error:  # pynq has no errors of its own
            raise LinkError(
                "interrupt", f"the interrupt cannot be waited for: {type(error).__name__}: {error}"
            ) from None

    async def _within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._interrupt.wait(), seconds)
        except asyncio.TimeoutError:  # noqa: UP041, another class than TimeoutError before Python 3.11
            return False
        return True


@cache
def event_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process that pynq's UIO devices report to: pynq keeps them from design to design."""
    return asyncio.new_event_loop()
