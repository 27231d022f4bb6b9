"""What cycles are spent on, in words and colours: one colour means one thing in every picture.

An engine's own classes and the causes as seen from the array share names where they mean the same: gemm that waits for
a token of load, and an array that stands still because load is fetching, both wait for load.
"""

from __future__ import annotations

from .profile_cycles import KINDS, Cause

WORDS = {
    "BUSY": "busy",
    "TOKEN_LOAD": "waits for load (activations)",
    "TOKEN_LOADW": "waits for loadw (weights, parameters)",
    "TOKEN_GEMM": "waits for gemm",
    "TOKEN_VECTOR": "waits for vector",
    "TOKEN_STORE": "waits for store",
    "MEMORY": "waits for DRAM",
    "INSTRUCTION": "waits for an instruction",
    "CONFLICT": "waits for a port or a hazard",
    "SEND": "waits for room for a token",
    "TOKENS": "a token is on its way",
    "RAMP": "ramp: a layer's first loads, last stores",
    "IDLE": "idle: nothing left to do",
}
"""Every class, in the order in which legends name it and pictures stack it."""

COLOURS = {
    "BUSY": "#2f6690",
    "TOKEN_LOAD": "#d1495b",
    "TOKEN_LOADW": "#8f2d56",
    "TOKEN_GEMM": "#45b0a8",
    "TOKEN_VECTOR": "#5a9367",
    "TOKEN_STORE": "#f08a5d",
    "MEMORY": "#b39ddb",
    "INSTRUCTION": "#c4ae8f",
    "CONFLICT": "#8d99ae",
    "SEND": "#dde2ad",
    "TOKENS": "#bcbcbc",
    "RAMP": "#e9c46a",
    "IDLE": "#efefef",
}

CLASS_OF_CAUSE = {
    Cause.ARRAY: "BUSY",
    Cause.RAMP: "RAMP",
    Cause.INPUTS: "TOKEN_LOAD",
    Cause.WEIGHTS: "TOKEN_LOADW",
    Cause.STORES: "TOKEN_STORE",
    Cause.VECTOR: "TOKEN_VECTOR",
    Cause.TOKENS: "TOKENS",
    Cause.INSTRUCTIONS: "INSTRUCTION",
}

CLASS_OF_KIND = {number: name for name, number in KINDS.items()}

CAUSE_NAMES = {
    Cause.ARRAY: "array works",
    Cause.RAMP: "ramp",
    Cause.INPUTS: "activations",
    Cause.WEIGHTS: "weights",
    Cause.STORES: "stores",
    Cause.VECTOR: "vector",
    Cause.TOKENS: "tokens",
    Cause.INSTRUCTIONS: "instructions",
}
"""A word for each cause, as tables head their columns."""
