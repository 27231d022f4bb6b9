"""The two processing systems that PYNQ boards have: what they offer to a core in the programmable logic.

Names of pins, parameters and address segments are those of Vivado's cells (UG585 and PG082 for Zynq-7000, UG1085 and
PG201 for Zynq UltraScale+; what PYNQ's own base designs use was compared). No Vivado has read them from here yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .ranges import Range

HIGHEST_DIVISOR = 63
"""Both dividers of a clock for the logic have six bits."""


class Protocol(StrEnum):
    """AXI as a port speaks it, by the name of Vivado's parameter."""

    AXI3 = "AXI3"
    AXI4 = "AXI4"

    @property
    def burst_beats(self) -> int:
        """Beats of the longest burst."""
        return 16 if self is Protocol.AXI3 else 256


@dataclass(frozen=True)
class MemoryPort:
    """A port through which the logic reaches DDR memory, with all parameters that switch it on.

    ``width_parameter`` takes the chosen one of ``data_bits``; ``segments`` are the address segments of DDR memory in
    rising order, ``not_memory`` those of other things that Vivado would map as well. ``segment_owner`` is what Vivado
    calls the port in the names of both.
    """

    name: str
    protocol: Protocol
    data_bits: tuple[int, ...]
    address_bits: int
    clock_pin: str
    use_parameter: str
    width_parameter: str
    segment_owner: str
    segments: tuple[str, ...]
    not_memory: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProcessingSystem:
    """Processors, memory controller and their ports.

    ``modtype`` is the name of the cell's type, which pynq looks for. ``control`` is the port that reaches registers in
    the logic, ``window`` the addresses that it covers; ``core_base`` and ``interrupt_base`` are where designs of weft
    put theirs. ``raw_interrupt`` is the number that Linux gives to the first interrupt from the logic.
    """

    name: str
    modtype: str
    vlnv: str
    architecture: str
    control: str
    control_protocol: Protocol
    control_clock_pin: str
    window: Range
    core_base: int
    interrupt_base: int
    clock_out: str
    reset_out: str
    interrupt_in: str
    raw_interrupt: int
    memory_ports: tuple[MemoryPort, ...]
    parameters: Mapping[str, str]
    """What a design sets whatever the board: control port and interrupt on, the other ports off."""
    external: tuple[str, ...] = ()
    """Interfaces that are pins of the part and become ports of the block design."""

    def clock_parameters(self, clock: int, pll: str, divisors: tuple[int, int], mhz: float) -> dict[str, str]:
        """What a ``.hwh`` says about a clock that runs."""
        first, second = map(str, divisors)
        if self is ZYNQ_7000:
            return {
                f"PCW_FPGA_FCLK{clock}_ENABLE": "1",
                f"PCW_FCLK{clock}_PERIPHERAL_CLKSRC": pll,
                f"PCW_FCLK{clock}_PERIPHERAL_DIVISOR0": first,
                f"PCW_FCLK{clock}_PERIPHERAL_DIVISOR1": second,
                f"PCW_ACT_FPGA{clock}_PERIPHERAL_FREQMHZ": f"{mhz:.6f}",
            }
        return {
            f"PSU__FPGA_PL{clock}_ENABLE": "1",
            f"PSU__CRL_APB__PL{clock}_REF_CTRL__SRCSEL": pll,
            f"PSU__CRL_APB__PL{clock}_REF_CTRL__DIVISOR0": first,
            f"PSU__CRL_APB__PL{clock}_REF_CTRL__DIVISOR1": second,
            f"PSU__CRL_APB__PL{clock}_REF_CTRL__ACT_FREQMHZ": f"{mhz:.6f}",
        }

    def wanted_clock(self, pll: str, mhz: float) -> dict[str, str]:
        """What a block design sets to get clock 0 at ``mhz``; Vivado finds the divisors."""
        if self is ZYNQ_7000:
            return {
                "PCW_EN_CLK0_PORT": "1",
                "PCW_FCLK0_PERIPHERAL_CLKSRC": pll,
                "PCW_FPGA0_PERIPHERAL_FREQMHZ": f"{mhz:g}",
            }
        return {
            "PSU__FPGA_PL0_ENABLE": "1",
            "PSU__CRL_APB__PL0_REF_CTRL__SRCSEL": pll,
            "PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ": f"{mhz:g}",
        }

    @property
    def achieved_parameter(self) -> str:
        """The cell's parameter that tells the rate in MHz which clock 0 really has."""
        return "PCW_ACT_FPGA0_PERIPHERAL_FREQMHZ" if self is ZYNQ_7000 else "PSU__CRL_APB__PL0_REF_CTRL__ACT_FREQMHZ"


def _high_performance_7000(number: int) -> MemoryPort:
    return MemoryPort(
        name=f"S_AXI_HP{number}",
        protocol=Protocol.AXI3,
        data_bits=(32, 64),
        address_bits=32,
        clock_pin=f"S_AXI_HP{number}_ACLK",
        use_parameter=f"PCW_USE_S_AXI_HP{number}",
        width_parameter=f"PCW_S_AXI_HP{number}_DATA_WIDTH",
        segment_owner=f"S_AXI_HP{number}",
        segments=(f"HP{number}_DDR_LOWOCM",),
    )


def _high_performance_ultrascale(number: int) -> MemoryPort:
    # The first two of the six slave ports are the coherent ones, so HP0 is GP2 (PG201).
    return MemoryPort(
        name=f"S_AXI_HP{number}_FPD",
        protocol=Protocol.AXI4,
        data_bits=(32, 64, 128),
        address_bits=49,
        clock_pin=f"saxihp{number}_fpd_aclk",
        use_parameter=f"PSU__USE__S_AXI_GP{number + 2}",
        width_parameter=f"PSU__SAXIGP{number + 2}__DATA_WIDTH",
        segment_owner=f"SAXIGP{number + 2}",
        segments=(f"HP{number}_DDR_LOW", f"HP{number}_DDR_HIGH"),
        not_memory=(f"HP{number}_LPS_OCM", f"HP{number}_QSPI"),
    )


ZYNQ_7000 = ProcessingSystem(
    name="zynq-7000",
    modtype="processing_system7",
    vlnv="xilinx.com:ip:processing_system7:5.5",
    architecture="armv7l",
    control="M_AXI_GP0",
    control_protocol=Protocol.AXI3,
    control_clock_pin="M_AXI_GP0_ACLK",
    window=Range(0x4000_0000, 0x4000_0000),
    core_base=0x43C0_0000,
    interrupt_base=0x4180_0000,
    clock_out="FCLK_CLK0",
    reset_out="FCLK_RESET0_N",
    interrupt_in="IRQ_F2P",
    raw_interrupt=61,
    memory_ports=tuple(_high_performance_7000(number) for number in range(4)),
    parameters={"PCW_USE_M_AXI_GP0": "1", "PCW_USE_FABRIC_INTERRUPT": "1", "PCW_IRQ_F2P_INTR": "1"},
    external=("FIXED_IO", "DDR"),
)

ZYNQ_ULTRASCALE = ProcessingSystem(
    name="zynq-ultrascale",
    modtype="zynq_ultra_ps_e",
    vlnv="xilinx.com:ip:zynq_ultra_ps_e:3.5",
    architecture="aarch64",
    control="M_AXI_HPM0_FPD",
    control_protocol=Protocol.AXI4,
    control_clock_pin="maxihpm0_fpd_aclk",
    window=Range(0xA000_0000, 0x1000_0000),
    core_base=0xA000_0000,
    interrupt_base=0xA001_0000,
    clock_out="pl_clk0",
    reset_out="pl_resetn0",
    interrupt_in="pl_ps_irq0",
    raw_interrupt=121,
    memory_ports=tuple(_high_performance_ultrascale(number) for number in range(4)),
    parameters={
        "PSU__USE__M_AXI_GP0": "1",
        "PSU__USE__M_AXI_GP1": "0",  # on by default, and a clock that is missing there is an error
        "PSU__USE__M_AXI_GP2": "0",
        "PSU__MAXIGP0__DATA_WIDTH": "32",
        "PSU__USE__IRQ0": "1",
    },
)

PROCESSING_SYSTEMS = {each.name: each for each in (ZYNQ_7000, ZYNQ_ULTRASCALE)}
