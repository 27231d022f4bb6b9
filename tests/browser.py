"""The browser in which tests look at pages. A test is skipped where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.campaigns import in_browser


def browser() -> str:
    """The program."""
    try:
        return in_browser.browser()
    except in_browser.NoAnswerError as none:
        pytest.skip(str(none))


def shown_by_browser(page: str, probe: str, *flags: str) -> Any:
    """What ``probe``, the body of an async function, returns in the page."""
    browser()
    return in_browser.probed(page, probe, *flags)
