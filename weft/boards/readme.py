"""The ``README.txt`` of a design's folder: what to do next, in the order in which it is done."""

from __future__ import annotations

from .design import NAME, Design
from .vivado_tcl import OVERLAY, REPORTS, SCRIPT


def readme(design: Design) -> str:
    """Steps from this folder to a running board, with this design's numbers in them."""
    board, name = design.board, design.held.name
    cores = (design.core,) if design.cores is None else design.cores.cores
    held = "\n".join(
        f"{'core' if design.cores is None else f'core {number}':15}{core.batch} x {core.block_in} x {core.block_out}, "
        f"configuration {core.hash64:016x}"
        for number, core in enumerate(cores)
    )
    return f"""\
{name} on {board.title}
{"=" * len(f"{name} on {board.title}")}

{held}
design         {design.hash}
part           {board.part}
clock          {design.clock.mhz:.3f} MHz ({design.clock.asked_mhz:g} asked)
registers      {design.control}
memory         {design.port.name}, {design.port_bits} bits; {", ".join(str(each.addresses) for each in design.memory)}

No board and no Vivado has run this yet: it was made from data and checked without either. Please report what differs.

1. Build, with Vivado {board.software.vivado} or another version (an hour or so):

       vivado -mode batch -source {SCRIPT}

   Expected last line:  weft: built {OVERLAY}/{NAME}.bit, ... MHz, ... ns to spare
   - "Vivado has no board files": install {board.board_part} to have the
     board's own settings, or go on: the SD card's boot files set up memory and pins.
   - "too slow by": see {REPORTS}/timing.txt, then run `weft board build` again with a lower --clock.
   - "does not exist", "0 found": this Vivado names something differently; the message says what.

2. Copy the three files of {OVERLAY}/ to the board, into one folder, without any .xsa beside them:

       scp {OVERLAY}/{NAME}.bit {OVERLAY}/{NAME}.hwh {OVERLAY}/{NAME}.json xilinx@BOARD:

3. On the board ({board.software.image}, pynq {board.software.pynq}, as root):

       from pynq import Overlay
       overlay = Overlay("{NAME}.bit")
       print(hex(overlay.{design.cell}.read(0)))

   Expected: 0x54464557, the letters WEFT. A board that hangs here has another address in its .hwh, or no clock.
"""
