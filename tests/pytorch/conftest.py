"""These tests need PyTorch, which is an extra: `make test-torch` installs it and runs them."""

from __future__ import annotations

import importlib.util

import pytest

collect_ignore_glob: list[str] = [] if importlib.util.find_spec("torch") else ["test_*.py"]


def pytest_report_header(config: pytest.Config) -> str:
    return "" if importlib.util.find_spec("torch") else "PyTorch is not installed: its tests run by `make test-torch`"
