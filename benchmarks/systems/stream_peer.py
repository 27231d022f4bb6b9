"""Stream (`stream-dse` of PyPI) and weft on one system of four cores and one network: cycles, and the time to answer.

Four cores like `tiny` (4x4 multipliers, 10.5 KiB of scratchpads), 32 bytes a cycle to the DRAM for all; two
convolutions 3x3 of 16 channels. Stream's solver spreads the layers of one image over the cores, and estimates its
latency. weft does the same (`split=4`), and puts an image on each core; its model is exact, and `--rtl` asks Verilator.
Stream needs Python 3.12 or newer: it runs in an environment of its own, with the packages `stream-dse` and `six`.
Without one nothing is compared.

    python benchmarks/systems/stream_peer.py --python stream/bin/python --rtl
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import weft
from onnx import TensorProto, helper, numpy_helper, shape_inference
from weft.compiler.model import CompiledModel
from weft.hw.config import TINY
from weft.hw.memories import SCRATCHPADS
from weft.hw.system_config import SystemConfig
from weft.runtime.inputs import read_inputs
from weft.sim import system_rtl
from weft.sim.dram import DramModel
from weft.sim.system_rtl import RtlSystem

from benchmarks.common import Record, print_table, write_json
from benchmarks.core.other_networks import FORM
from benchmarks.zoo.quantised_forms import quantised

CORES, CHANNELS, SIZE = 4, 16, 32
MACS = 2 * SIZE * SIZE * CHANNELS * CHANNELS * 9
SYSTEM = SystemConfig(name="four", cores=(TINY,) * CORES, ports=tuple(range(CORES)), relay=True)
MEMORY = DramModel(latency=100, bytes_per_cycle=TINY.bus_bytes)

ASK = """
import json, logging, sys, time
logging.disable(logging.CRITICAL)
from importlib.metadata import version
from stream.api import SolveOptions, evaluate_mapping
began = time.time()
found = evaluate_mapping(sys.argv[1], sys.argv[2], sys.argv[3], options=SolveOptions(time_limit_s=60, artifacts=False))
print(json.dumps({"cycles": found.cycles, "seconds": time.time() - began, "version": version("stream-dse")}))
"""
"""What runs in Stream's environment."""


def network() -> onnx.ModelProto:
    """Two convolutions in float."""
    random, constants, nodes, value = np.random.default_rng(0), [], [], "x"
    for name, result in (("first", "between"), ("second", "y")):
        weights = random.normal(size=(CHANNELS, CHANNELS, 3, 3)).astype(np.float32)
        constants.append(numpy_helper.from_array(weights, f"{name}_weights"))
        nodes.append(helper.make_node("Conv", [value, f"{name}_weights"], [result], name=name, kernel_shape=[3, 3],
                                      pads=[1] * 4, strides=[1, 1], dilations=[1, 1], group=1))  # fmt: skip
        value = result
    kinds = [helper.make_tensor_value_info(each, TensorProto.FLOAT, [1, CHANNELS, SIZE, SIZE]) for each in "xy"]
    graph = helper.make_graph(nodes, "two", kinds[:1], kinds[1:], constants)
    return shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    )


def _port(name: str, kind: str, bits: int, uses: list[str]) -> dict[str, object]:
    return {"name": name, "type": kind, "bandwidth_min": 8, "bandwidth_max": bits, "allocation": uses}


def _memory(size: int, operands: list[str], served: list[str], ports: list[dict[str, object]]) -> dict[str, object]:
    return {"size": size, "r_cost": 1, "w_cost": 1, "area": 0, "latency": 1, "operands": operands, "ports": ports,
            "served_dimensions": served}  # fmt: skip


def hardware(folder: Path) -> Path:
    """The system as Stream reads it. A core has a register of weights a multiplier and one of sums a column, as in
    Stream's own example of a TPU, and below these one memory as large as all of weft's scratchpads."""
    scratchpads = 8 * sum(TINY.depth(memory) * TINY.entry_bytes(memory) for memory in SCRATCHPADS)
    array = {"unit_energy": 0, "unit_area": 1, "dimensions": ["D1", "D2"]}
    core = {
        "name": "tiny", "type": "zigzag.compute",
        "memories": {
            "weights": _memory(1024, ["I2"], [], [
                _port("r_port_1", "read", 8, ["I2, tl"]), _port("w_port_1", "write", 8, ["I2, fh"]),
            ]),
            "sums": _memory(32, ["O"], ["D2"], [
                _port("r_port_1", "read", 32, ["O, tl"]), _port("r_port_2", "read", 32, ["O, th"]),
                _port("w_port_1", "write", 32, ["O, fh"]), _port("w_port_2", "write", 32, ["O, fl"]),
            ]),
            "scratchpads": _memory(scratchpads, ["I1", "I2", "O"], ["D1", "D2"], [
                _port("r_port_1", "read", 2048, ["I1, tl", "I2, tl", "O, tl", "O, th"]),
                _port("w_port_1", "write", 2048, ["I1, fh", "I2, fh", "O, fh", "O, fl"]),
            ]),
        },
        "operational_array": {**array, "sizes": [TINY.block_in, TINY.block_out]},
        "operand_precision": {"input": "int8", "accumulator": "int32"},
    }  # fmt: skip
    uses = [f"{operand}, {way}" for operand in ("I1", "I2", "O") for way in ("fh", "tl")] + ["O, fl", "O, th"]
    bits = CORES * TINY.bus_bits
    offchip = {
        "name": "offchip", "type": "zigzag.offchip",
        "memories": {
            "dram": _memory(10**10, ["I1", "I2", "O"], ["D1", "D2"], [_port("rw_port_1", "read_write", bits, uses)]),
        },
        "operational_array": {**array, "sizes": [0, 0]},
    }  # fmt: skip
    for name, value in (("core", core), ("offchip", offchip)):
        (folder / f"{name}.yaml").write_text(json.dumps(value, indent=1))  # JSON is YAML
    files = {**dict.fromkeys(range(CORES), "./core.yaml"), CORES: "./offchip.yaml"}
    path = folder / "system.yaml"  # of which cores have numbers, as JSON's keys cannot be
    path.write_text(
        f"name: four_cores\noffchip_core_id: {CORES}\nunit_energy_cost: 0\n"
        f"cores: {{{', '.join(f'{number}: {file}' for number, file in files.items())}}}\n"
        f"core_coordinates: {{{', '.join(f'{number}: [{number}, 0]' for number in files)}}}\n"
        f"core_connectivity: [{{type: bus, cores: {list(files)}, bandwidth: {bits}}}]\n"
    )
    return path


def ask_stream(python: Path, folder: Path) -> dict[str, float | str]:
    """Its latency, the seconds until it answers, its version."""
    onnx.save(network(), folder / "network.onnx")
    words = [str(python), "-c", ASK, str(hardware(folder)), str(folder / "network.onnx"), str(folder / "stream")]
    found: dict[str, float | str] = json.loads(
        subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
    )
    return found


def on_weft(rtl: bool) -> list[tuple[str, int, int, float]]:
    """One image on all cores, and one on each: who says so, images, cycles until all are done, seconds."""
    batches = [{"x": np.random.default_rng(seed).normal(size=(1, CHANNELS, SIZE, SIZE)).astype(np.float32)}
               for seed in range(2)]  # fmt: skip
    source = quantised(network(), batches, FORM)
    system_rtl.RtlSystem = partial(RtlSystem, quick=True)  # type: ignore[misc, assignment]
    found = []
    for images, split in ((1, CORES), (CORES, 1)):
        began = time.time()
        model = weft.compile(source, TINY, split=split)
        assert isinstance(model, CompiledModel)
        items = [read_inputs(model.inputs, None, seed) for seed in range(images)]
        for device, name in (("fsim", "weft's model"), ("rtl", "weft's RTL"))[: 1 + rtl]:
            module = weft.load(model, device, system=SYSTEM, dram=MEMORY)
            module.run(items)
            found.append((name, images, module.cycles, time.time() - began))
            began = time.time()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, help="interpreter of an environment that has stream-dse and six")
    parser.add_argument("--rtl", action="store_true", help="also in Verilator")
    parser.add_argument("--folder", type=Path, default=Path("build") / "stream", help="where its files are written")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.python is None or not arguments.python.exists():
        print("nothing was compared: --python must be the interpreter of an environment with stream-dse and six (of "
              "Python 3.12 or newer)", file=sys.stderr)  # fmt: skip
        return 2
    arguments.folder.mkdir(parents=True, exist_ok=True)
    theirs = ask_stream(arguments.python, arguments.folder.resolve())
    ours = on_weft(arguments.rtl)
    full = MACS / (CORES * TINY.macs_per_cycle)
    rows = [(f"stream-dse {theirs['version']}", 1, float(theirs["cycles"]), float(theirs["seconds"]))]
    rows += ours
    print_table(
        f"Two convolutions on four cores of 4x4; all multipliers busy would be {full:,.0f} cycles an image",
        ["by", "images at once", "cycles until they are there", "cycles an image", "multipliers in use", "seconds"],
        [(name, str(count), f"{cycles:,.0f}", f"{cycles / count:,.0f}", f"{full * count / cycles:.1%}",
          f"{seconds:.1f}")
         for name, count, cycles, seconds in rows],
    )  # fmt: skip
    if arguments.json:
        write_json(arguments.json, [
            Record(name, f"two convolutions, {count} images", what, value)
            for name, count, cycles, seconds in rows for what, value in (("cycles", cycles), ("seconds", seconds))
        ])  # fmt: skip
    return int(len({(images, cycles) for _, images, cycles, _ in ours}) > len({images for _, images, _, _ in ours}))


if __name__ == "__main__":
    sys.exit(main())
