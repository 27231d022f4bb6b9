"""Tests of the core's RTL in cocotb: build, bench, bus checkers, coverage. Needs the extra ``test-hw``."""
