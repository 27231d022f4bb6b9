"""A few pins around a core, so that a part with fewer pins than the core has ports can hold it."""

from __future__ import annotations

import re

from .errors import SynthesisError
from .verilog import TOP

WRAPPER = "weft_pins"
"""Name of the module that :func:`wrap_pins` writes."""

CORE_INSTANCE = "core"
"""Name of the core in it."""

_TOP = re.compile(rf"^module {TOP}\s?\(.*?^endmodule", re.MULTILINE | re.DOTALL)
_PORT = re.compile(r"^  (input|output) (?:\[(\d+):0\] )?(\w+) ?;", re.MULTILINE)
_OWN = ("clk", "rst")


def wrap_pins(verilog: str) -> str:
    """Verilog of a module that shifts all of the core's inputs in from one pin, and its outputs out to another.

    Each port of the core meets a register, so the paths between registers are those of the core.
    """
    top = _TOP.search(verilog)
    if top is None:
        raise SynthesisError(f"the Verilog has no module {TOP}")
    connections = [f".{name}({name}_q)" if name == "rst" else f".{name}({name})" for name in _OWN]
    bits = {"input": 0, "output": 0}
    for direction, last, name in _PORT.findall(top[0]):
        if name not in _OWN:
            low = bits[direction]
            bits[direction] += int(last or 0) + 1
            connections.append(f".{name}({direction}s[{bits[direction] - 1}:{low}])")
    return f"""\
module {WRAPPER}(input clk, input rst, input shift_in, input capture, output shift_out);
  reg rst_q;
  reg [{bits["input"] - 1}:0] inputs;
  wire [{bits["output"] - 1}:0] outputs;
  reg [{bits["output"] - 1}:0] captured;
  always @(posedge clk) begin
    rst_q <= rst;
    inputs <= {{ inputs, shift_in }};
    captured <= capture ? outputs : {{ captured, 1'b0 }};
  end
  assign shift_out = captured[{bits["output"] - 1}];
  {TOP} {CORE_INSTANCE} ({", ".join(connections)});
endmodule
"""
