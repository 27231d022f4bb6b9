"""What a core takes on 7-series, without synthesis: DSP and block RAM in closed form, LUT by a model of its modules.

DSP48E1 and BRAM36 follow from the arithmetic and from how Yosys maps memories; tests compare them with every core that
was synthesised. LUT are a sum over the core's modules of a few figures of the configuration each (bits of its ports,
multipliers, lanes, words of its buffers), fitted to synthesised cores (``measured_modules.json``).
``benchmarks/hardware/area.py`` prints how far the model is off for cores that it was not fitted to.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..hw.bus import buffer_beats
from ..hw.config import CoreConfig
from ..hw.interfaces import chunk_bits
from ..hw.memories import SCRATCHPADS, Memory
from ..roundings import FLOAT32, TWO_ROUNDINGS

MEASURED_MODULES = Path(__file__).parent / "measured_modules.json"
"""Written by ``benchmarks/hardware/area.py --measured``: each core's modules as the RTL is now."""

LUTRAM_DEPTH = 64
"""Memories of at most so many words are made of LUTs."""

TABLES_IN_LUTS = 1
"""So many tables a lane are made of LUTs, more of block RAM."""

UNIT_BITS = 9
"""Bits of block RAM that one write enable covers."""

BLOCK_RAMS = (
    # words of each shape, units of 9 bits that are written at once, share of a BRAM36
    (512, 8, 1.0), (1024, 4, 1.0), (2048, 2, 1.0), (4096, 1, 1.0), (512, 4, 0.5), (1024, 2, 0.5), (2048, 1, 0.5),
)  # fmt: skip


@dataclass(frozen=True)
class Area:
    """Figures by the names of :class:`~weft.boards.board.Resources`."""

    LUT: float
    DSP: float
    BRAM36: float


@dataclass(frozen=True)
class MeasuredModules:
    """A core, and what synthesis found for its modules: LUT, FF, DSP and BRAM36 of each, all below it included."""

    core: CoreConfig
    modules: Mapping[str, Mapping[str, float]]

    def of(self, *modules: str) -> float:
        """LUT of some modules; a core need not have all of them."""
        return sum(self.modules[name]["LUT"] for name in modules if name in self.modules)

    @property
    def total(self) -> Mapping[str, float]:
        return self.modules["core"]


def block_rams(words: int, bits: int, chunk: int) -> float:
    """BRAM36 of a memory with one write and one read port, whose writes are masked in chunks of bits."""
    if words <= LUTRAM_DEPTH:
        return 0.0
    units = bits // chunk * math.ceil(chunk / UNIT_BITS)
    return min(math.ceil(words / depth) * math.ceil(units / width) * share for depth, width, share in BLOCK_RAMS)


def bram36_of(config: CoreConfig) -> float:
    """Of the scratchpads and tables, of the buffers of both load engines and of the write master, and of deep
    queues."""
    total = 0.0
    for memory in SCRATCHPADS:
        bits = 8 * config.entry_bytes(memory)
        chunk = bits if memory is Memory.OUT else chunk_bits(config, config.entry_bytes(memory))
        banks = config.banks(memory)
        total += banks * block_rams(config.depth(memory) // banks, bits, chunk)
    if config.tables > TABLES_IN_LUTS:
        total += config.lanes * block_rams(config.tab_depth, 8, 8)
    beats, word = buffer_beats(config) - 1, config.bus_bits
    total += 2 * block_rams(beats, word, word) + block_rams(beats, word + config.bus_bytes, word + config.bus_bytes)
    return total


def dsp_of(config: CoreConfig) -> int:
    """Two products of the array in one, two for the multiplier of each lane (four where it has 32 bits), one in each of
    the three DMA engines."""
    of_a_lane = 4 if config.rounding == TWO_ROUNDINGS else 2
    return config.macs_per_cycle // 2 + of_a_lane * config.lanes + 3


# LUT


def _mux_luts(ways: int) -> int:
    """LUTs of six inputs for a bit chosen from a power of two of others, as Yosys makes them."""
    return {1: 0, 2: 1, 4: 1}.get(ways, ways // 2 - 1)


def _lutram(words: int, bits: int) -> float:
    """LUTs of a memory: four of them hold 64 words of three bits, or 32 words of six."""
    if words > LUTRAM_DEPTH:
        return 0.0
    return 4 * math.ceil(bits / (3 if words > LUTRAM_DEPTH // 2 else 6))


def lutrams(words: int, bits: int, chunk: int) -> float:
    """LUTs that hold the words of a memory whose writes are masked in chunks of bits; 0 where block RAM does. Each
    chunk has a write enable, so that LUTs of different chunks are not shared."""
    return bits // chunk * _lutram(words, chunk)


def _filled_by_the_core(config: CoreConfig) -> Iterator[tuple[int, int, int, int]]:
    """Of ``inp``, ``wgt`` and ``out``: banks, words of a bank, bits of a word and of a write enable. The memory of
    ``acc`` is in its own part of the model."""
    for memory in (Memory.INP, Memory.WGT, Memory.OUT):
        bits, banks = 8 * config.entry_bytes(memory), config.banks(memory)
        chunk = bits if memory is Memory.OUT else chunk_bits(config, config.entry_bytes(memory))
        yield banks, config.depth(memory) // banks, bits, chunk


def distributed_luts(config: CoreConfig) -> float:
    """LUTs that are the memory of shallow scratchpads."""
    return sum(banks * lutrams(words, bits, chunk) for banks, words, bits, chunk in _filled_by_the_core(config))


def table_luts(config: CoreConfig) -> float:
    """LUTs of the way through the tables, which is a choice for each bit of a result and little else, and of a single
    table itself, whose four parts of 64 entries are chosen from."""
    return 34 * config.lanes + _tables_in_luts(config) if config.tables else 0.0


def _tables_in_luts(config: CoreConfig) -> float:
    parts = math.ceil(config.tab_depth / LUTRAM_DEPTH)
    luts = 8 * _mux_luts(parts) + parts * _lutram(LUTRAM_DEPTH, 8)
    return config.lanes * luts if 0 < config.tables <= TABLES_IN_LUTS else 0.0


def rounding_luts(config: CoreConfig) -> float:
    """LUTs of another rounding than half up: of the slots for a longer pipeline, and in each lane. Those of float32 are
    fitted to two cores, those of two roundings to ``tiny``; where halves alone go another way they are too few to be
    told from chance (``benchmarks/hardware/roundings.py``)."""
    in_a_lane = {FLOAT32: 226, TWO_ROUNDINGS: 114}.get(config.rounding)
    return 402 + in_a_lane * config.lanes if in_a_lane else 0.0


def weight_luts(config: CoreConfig) -> float:
    """LUTs of what unpacks 4-bit weights: of each weight of a bus word, and of all of them the planner's further sums,
    the choice of a pair and the head. The first figure is that of unpackers alone, for ports of 8 and 64 bytes."""
    return 425 + 29 * 2 * config.bus_bytes if config.weight_group else 0.0


def _acc_features(config: CoreConfig) -> list[float]:
    bits, banks = 8 * config.acc_bytes, config.acc_banks
    data = bits * (banks + 4 * _mux_luts(banks)) + banks * _lutram(config.acc_depth // banks, bits)
    return [data, banks]


def _gemm_features(config: CoreConfig) -> list[float]:
    return [1, config.macs_per_cycle, config.lanes, config.depthwise * config.macs_per_cycle]


def _vector_features(config: CoreConfig) -> list[float]:
    return [1, config.lanes]


def _loads_features(config: CoreConfig) -> list[float]:
    return [1, math.log2(config.bus_bits), config.index_bits]


def _fetch_features(config: CoreConfig) -> list[float]:
    return [1, config.bus_bits, config.instruction_bits]


def _queues_features(config: CoreConfig) -> list[float]:
    return [1, _lutram(config.queue_depth - 1, config.instruction_bits)]


def _inp_features(config: CoreConfig) -> list[float]:
    return [config.depthwise * 8 * config.inp_bytes, config.inp_takes_results * 8 * config.inp_bytes]


def _rest_features(config: CoreConfig) -> list[float]:
    return [1, config.bus_bits, config.out_bytes]


@dataclass(frozen=True)
class Part:
    """Modules whose LUTs are modelled together, and what they are fitted to."""

    modules: tuple[str, ...]
    features: Callable[[CoreConfig], list[float]]


PARTS: Mapping[str, Part] = {
    "acc": Part(("acc",), _acc_features),
    "gemm": Part(("gemm",), _gemm_features),
    "vector": Part(("vector",), _vector_features),
    "loads": Part(("load", "loadw"), _loads_features),
    "fetch": Part(("fetch",), _fetch_features),
    "queues": Part(tuple(f"{name}_queue" for name in ("gemm", "load", "loadw", "store", "vector")), _queues_features),
    "inp": Part(("inp", "inp_write"), _inp_features),
}
"""All that is left is modelled as one, by :func:`_rest_features`."""


class LutModel:
    """LUT by part, fitted to measured cores by least squares; each core's error counts relative to its size."""

    def __init__(self, cores: Sequence[MeasuredModules]) -> None:
        named = [module for part in PARTS.values() for module in part.modules]
        targets = {name: [core.of(*part.modules) for core in cores] for name, part in PARTS.items()}
        targets["rest"] = [core.total["LUT"] - core.of(*named) for core in cores]
        self._weights = {
            name: _fitted([_features(name)(each.core) for each in cores], values) for name, values in targets.items()
        }

    def parts(self, config: CoreConfig) -> Mapping[str, float]:
        """LUT of each part."""
        return {name: float(np.dot(_features(name)(config), weights)) for name, weights in self._weights.items()}

    def luts(self, config: CoreConfig) -> float:
        """LUT of all parts; of tables, of scratchpads made of LUTs, of what unpacks weights and of what rounds
        otherwise than half up, of which those that are fitted to have none."""
        extras = distributed_luts(config) + table_luts(config) + weight_luts(config) + rounding_luts(config)
        return sum(self.parts(config).values()) + extras


def _features(name: str) -> Callable[[CoreConfig], list[float]]:
    return PARTS[name].features if name in PARTS else _rest_features


def _fitted(rows: Sequence[Sequence[float]], values: Sequence[float]) -> npt.NDArray[np.float64]:
    matrix, target = np.asarray(rows, np.float64), np.asarray(values, np.float64)
    scale = 1 / np.maximum(np.sqrt(np.maximum(target, 1)), 1)
    size = np.maximum(np.abs(matrix).max(axis=0), 1)  # columns of one size, so that small ones are not lost
    found = np.linalg.lstsq(matrix / size * scale[:, None], target * scale, rcond=1e-9)[0] / size
    return np.asarray(found, np.float64)


@cache
def measured_modules() -> tuple[MeasuredModules, ...]:
    """All cores whose modules were measured."""
    entries = json.loads(MEASURED_MODULES.read_text())
    return tuple(MeasuredModules(CoreConfig(**entry["core"]), entry["modules"]) for entry in entries)


def modules_text(cores: Sequence[MeasuredModules]) -> str:
    """The text of :data:`MEASURED_MODULES`. Only what differs from the default core is kept of a configuration."""
    default = asdict(CoreConfig())
    entries = [
        {
            "core": {name: value for name, value in asdict(each.core).items() if value != default[name]},
            "modules": {name: dict(figures) for name, figures in each.modules.items()},
        }
        for each in cores
    ]
    return json.dumps(entries, indent=1) + "\n"


@cache
def lut_model() -> LutModel:
    """Fitted to all measured cores."""
    return LutModel(measured_modules())


def area_of(config: CoreConfig) -> Area:
    """What a core takes on 7-series, with the address bits that it has."""
    return Area(round(lut_model().luts(config)), dsp_of(config), bram36_of(config))


# ECP5

LUT4_OF_LUT6 = 1.46
"""Look-up tables of four inputs for one of six: 8x8 took 29,664 on ECP5, 20,320 on 7-series. One
core says so, hence no error can be given."""

ECP5_FETCH_RAMS = 1
"""BRAM36 of the fetch engine's buffer, which is made of look-up tables on 7-series."""


def ecp5_shallow(words: int, bits: int, chunk: int) -> tuple[float, float]:
    """LUT and BRAM36 of a memory that 7-series makes of LUTs. Block RAM has 36 bits of it; below that 16 words of four
    bits take six tables, and a second such half one more a bit, to choose."""
    if words > LUTRAM_DEPTH:
        return 0.0, 0.0
    if words > LUTRAM_DEPTH // 2:
        return 0.0, bits // chunk * math.ceil(chunk / 36) / 2
    tables = 6 * math.ceil(chunk / 4)
    return bits // chunk * (tables if words <= LUTRAM_DEPTH // 4 else 2 * tables + chunk), 0.0


def ecp5_area(config: CoreConfig) -> Area:
    """What a core takes on ECP5: tables of four inputs, multipliers of 18 bits (one a product of the array, four a
    lane), and two block RAMs of 18 Kibit for a BRAM36. Figures of 8x8 are those of synthesis."""
    in_luts = distributed_luts(config) + _tables_in_luts(config)
    luts, rams = lut_model().luts(config) - in_luts, bram36_of(config) + ECP5_FETCH_RAMS
    if 0 < config.tables <= TABLES_IN_LUTS:  # there they are in block RAM as well
        rams += config.lanes / 2
    shallow = [(banks, *ecp5_shallow(words, bits, chunk)) for banks, words, bits, chunk in _filled_by_the_core(config)]
    multipliers = config.macs_per_cycle + 4 * config.lanes + 3
    return Area(
        round(LUT4_OF_LUT6 * round(luts) + sum(banks * luts for banks, luts, _ in shallow)), multipliers,
        rams + sum(banks * rams for banks, _, rams in shallow),
    )  # fmt: skip
