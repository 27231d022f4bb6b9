"""The rules of AXI as assertions in Verilog, for whoever builds the exported core into something else.

They are immediate assertions in clocked blocks, which Icarus, Verilator (``--assert``), Yosys (``read_verilog -sv
-formal``) and commercial simulators take. Sections named are those of the AMBA AXI specification (ARM IHI 0022, issue
E). A rule that the core breaks is a mistake of the core, one on R, B or READY of what it is connected to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .bus import PAGE_BYTES
from .errors import HardwareError
from .verilog import TIMESCALE

MEMORY_RULES, REGISTER_RULES = "weft_axi_rules", "weft_axil_rules"
"""Names of the modules for one AXI4 port, and for one AXI4-Lite port."""

CHANNELS = {
    "ar": ("addr", "len", "size", "burst", "id"),
    "r": ("data", "resp", "last", "id"),
    "aw": ("addr", "len", "size", "burst", "id"),
    "w": ("data", "strb", "last"),
    "b": ("resp", "id"),
}
"""Channels of AXI4 with what stays while VALID waits for READY; AXI4-Lite has some of it."""

WIDTHS = {"addr": "ADDRESS_BITS", "len": "8", "size": "3", "burst": "2", "id": "ID_BITS", "data": "8 * BUS_BYTES",
          "strb": "BUS_BYTES", "resp": "2", "last": "1"}  # fmt: skip

OUTSTANDING = 256
"""Requests of one ID that the checker can follow."""

_PORT = re.compile(r"^  (input|output) (?:\[(\d+):0\] )?(\w+) ?;", re.MULTILINE)

HEAD = """\
/* verilator lint_off DECLFILENAME */
`ifdef YOSYS
`define WEFT_ELSE(TEXT)
`else
`define WEFT_ELSE(TEXT) else $error(TEXT)
`endif
"""

BURSTS = """\
      if ({c}valid) begin
        assert ((1 << {c}size) == BUS_BYTES) `WEFT_ELSE("{C}: a beat is as wide as the bus (A3.4.1)");
        assert ({c}burst == 2'b01) `WEFT_ELSE("{C}: bursts are INCR (A3.4.1)");
        assert ({c}len < BURST_BEATS) `WEFT_ELSE("{C}: a burst is longer than the configuration says");
        assert ({c}addr % BUS_BYTES == 0) `WEFT_ELSE("{C}: a burst starts at a beat");
        assert ({c}addr % PAGE_BYTES + BUS_BYTES * ({{24'd0, {c}len}} + 1) <= PAGE_BYTES)
          `WEFT_ELSE("{C}: a burst stays in one 4 KiB page (A3.4.1)");
      end
"""

FOLLOWED = f"""\
  // Reads: for each ID the lengths of its bursts, and how many beats of the oldest have come.
  reg [7:0] length [0:{OUTSTANDING} * (1 << ID_BITS) - 1];
  reg [7:0] asked [0:(1 << ID_BITS) - 1], ended [0:(1 << ID_BITS) - 1], beat [0:(1 << ID_BITS) - 1];
  // Writes: lengths by number, of addresses and of data, whichever comes first; how many beats of the burst have gone.
  reg [7:0] addressed [0:{OUTSTANDING - 1}], sent [0:{OUTSTANDING - 1}];
  reg [7:0] addresses, bursts, answers, gone;
  wire [7:0] ahead = addresses - answers, behind = bursts - answers;
  integer place;
  initial for (place = 0; place < (1 << ID_BITS); place = place + 1) begin
    asked[place] = 8'd0;
    ended[place] = 8'd0;
    beat[place] = 8'd0;
  end
  initial begin
    addresses = 8'd0;
    bursts = 8'd0;
    answers = 8'd0;
    gone = 8'd0;
  end
  always @(posedge clk) begin
    if (rst) begin
      for (place = 0; place < (1 << ID_BITS); place = place + 1) begin
        asked[place] <= 8'd0;
        ended[place] <= 8'd0;
        beat[place] <= 8'd0;
      end
      addresses <= 8'd0;
      bursts <= 8'd0;
      answers <= 8'd0;
      gone <= 8'd0;
    end else begin
      if (arvalid && arready) begin
        length[{{ arid, asked[arid] }}] <= arlen;
        asked[arid] <= asked[arid] + 8'd1;
      end
      if (rvalid && rready) begin
        beat[rid] <= rlast ? 8'd0 : beat[rid] + 8'd1;
        if (rlast) ended[rid] <= ended[rid] + 8'd1;
      end
      if (awvalid && awready) begin
        addressed[addresses] <= awlen;
        addresses <= addresses + 8'd1;
      end
      if (wvalid && wready) begin
        gone <= wlast ? 8'd0 : gone + 8'd1;
        if (wlast) begin
          sent[bursts] <= gone;
          bursts <= bursts + 8'd1;
        end
      end
      if (bvalid && bready) answers <= answers + 8'd1;
    end
  end
"""

ORDER = """\
      if (rvalid) begin
        assert (asked[rid] != ended[rid]) `WEFT_ELSE("R: data follow their request (A3.3.1)");
        assert (asked[rid] == ended[rid] || rlast == (beat[rid] == length[{ rid, ended[rid] }]))
          `WEFT_ELSE("R: RLAST marks the last of ARLEN + 1 beats (A3.2.2)");
      end
      if (wvalid && ahead > behind) begin
        assert (!wlast || gone == addressed[bursts])
          `WEFT_ELSE("W: WLAST marks the last of AWLEN + 1 beats (A3.2.2)");
        assert (gone <= addressed[bursts]) `WEFT_ELSE("W: more beats than AWLEN + 1 (A3.2.2)");
      end
      if (awvalid && ahead < behind)
        assert (awlen == sent[addresses]) `WEFT_ELSE("AW: as long as the data that went before it (A3.2.2)");
      if (awvalid && awready && wvalid && wready && wlast && ahead == behind)
        assert (awlen == gone) `WEFT_ELSE("W: WLAST marks the last of AWLEN + 1 beats (A3.2.2)");
      if (bvalid)
        assert (answers != addresses && answers != bursts)
          `WEFT_ELSE("B: a response follows its address and its last beat (A3.3.1)");
"""


def _kept(channel: str, fields: tuple[str, ...]) -> tuple[str, str]:
    """Declarations and rules: VALID and what it offers stay until READY."""
    upper, values = channel.upper(), ", ".join(f"{channel}{field}" for field in fields)
    width = " + ".join(WIDTHS[field] for field in fields)
    declared = f"""\
  reg {channel}_waits;
  reg [{width} - 1:0] {channel}_offer;
  always @(posedge clk) begin
    {channel}_waits <= !rst && {channel}valid && !{channel}ready;
    {channel}_offer <= {{ {values} }};
  end
"""
    rules = f"""\
      if ({channel}_waits) begin
        assert ({channel}valid) `WEFT_ELSE("{upper}: VALID stays until READY (A3.2.1)");
        assert ({channel}_offer == {{ {values} }})
          `WEFT_ELSE("{upper}: the payload stays until READY (A3.2.1)");
      end
"""
    return declared, rules


def _module(name: str, channels: Mapping[str, tuple[str, ...]], *, bursts: bool) -> str:
    """A checker of one port: all its signals are inputs."""
    ports = ["input clk", "input rst"]
    declared, rules = "", ""
    for channel, fields in channels.items():
        ports += [f"input [{WIDTHS[field]} - 1:0] {channel}{field}" for field in fields if field != "last"]
        ports += [f"input {channel}{each}" for each in (*(["last"] if "last" in fields else []), "valid", "ready")]
        kept = _kept(channel, tuple(fields))
        declared, rules = declared + kept[0], rules + kept[1]
    if bursts:
        declared += FOLLOWED
        rules += "".join(BURSTS.format(c=channel, C=channel.upper()) for channel in ("ar", "aw")) + ORDER
    in_reset = "".join(
        f'      assert (!{channel}valid) `WEFT_ELSE("{channel.upper()}: VALID is low in reset (A3.1.2)");\n'
        for channel in channels
    )
    parameters = "ADDRESS_BITS = 32, BUS_BYTES = 8"
    if bursts:
        parameters += f", ID_BITS = 2, BURST_BEATS = 64, PAGE_BYTES = {PAGE_BYTES}"
    listed = ",\n  ".join(ports)
    return f"""\
module {name} #(parameter {parameters}) (
  {listed}
);
{declared}\
  // Nothing is looked at before the first reset, nor in its first cycle.
  reg known, was_reset;
  initial known = 1'b0;
  initial was_reset = 1'b0;
  always @(posedge clk) begin
    was_reset <= rst;
    if (rst) known <= 1'b1;
    if (known && rst && was_reset) begin
{in_reset}\
    end
    if (known && !rst) begin
{rules}\
    end
  end
endmodule
"""


@dataclass(frozen=True)
class _Bus:
    """A bus of the exported module: its prefix, and the widths of its ports by their names without it."""

    prefix: str
    widths: Mapping[str, int]
    has_bursts: bool


def _buses(verilog: str, top: str) -> list[_Bus]:
    module = re.search(rf"^module {top}\s?\(.*?^endmodule", verilog, re.MULTILINE | re.DOTALL)
    if module is None:
        raise HardwareError(f"the Verilog has no module {top}")
    widths = {name: int(last or 0) + 1 for _, last, name in _PORT.findall(module[0])}
    found = []
    for name in widths:
        if name.endswith("_arvalid"):
            prefix = name.removesuffix("arvalid")
            own = {each.removeprefix(prefix): width for each, width in widths.items() if each.startswith(prefix)}
            found.append(_Bus(prefix, own, "arlen" in own))
    return found


def rules_verilog(verilog: str, top: str, burst_beats: int) -> str:
    """Verilog of checkers for all AXI buses of an exported module, and of a module ``<top>_rules`` with them, whose
    inputs have the names of that module's ports: it is instantiated beside it, on the same wires.

    ``burst_beats``: of the longest burst. :class:`HardwareError` if ``top`` is not in the Verilog.
    """
    buses = _buses(verilog, top)
    lite = {
        channel: tuple(field for field in fields if field in ("addr", "data", "strb", "resp"))
        for channel, fields in CHANNELS.items()
    }
    ports, instances = ["input clk", "input rst"], []
    for bus in buses:
        channels = CHANNELS if bus.has_bursts else lite
        names = [f"{channel}{each}" for channel, fields in channels.items() for each in (*fields, "valid", "ready")]
        for name in names:
            width = bus.widths.get(name, 1)
            if name in bus.widths:
                ports.append(f"input {f'[{width - 1}:0] ' if width > 1 else ''}{bus.prefix}{name}")
        # A bus without AWID or BID has writes of one ID.
        joined = ", ".join(f".{each}({bus.prefix}{each if each in bus.widths else '0'})" for each in names)
        ids = bus.widths.get("arid", 1)
        parameters = f".ADDRESS_BITS({bus.widths['araddr']}), .BUS_BYTES({bus.widths['rdata'] // 8})"
        if bus.has_bursts:
            parameters += f", .ID_BITS({ids}), .BURST_BEATS({burst_beats})"
        kind = MEMORY_RULES if bus.has_bursts else REGISTER_RULES
        instances.append(f"  {kind} #({parameters}) {bus.prefix}rules(.clk(clk), .rst(rst), {joined});\n")
    listed = ",\n  ".join(ports)
    text = f"module {top}_rules(\n  {listed}\n);\n{''.join(instances)}endmodule\n"
    modules = [_module(MEMORY_RULES, CHANNELS, bursts=True), _module(REGISTER_RULES, lite, bursts=False), text]
    return TIMESCALE + HEAD + "\n".join(modules)
