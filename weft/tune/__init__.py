"""Tuning: what to measure next, and by what; ``compiler/tune`` keeps what was measured."""
