"""An artifact reads back equal, and a file that was touched anywhere is refused with the place."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Attrs, Function, Module, TensorType, Var, call, to_text
from weft.compiler.graph.symbolic import SymbolicInput, SymbolicTypes
from weft.compiler.model import CompiledModel, CoreStep, HostStep, LaunchStep, NumpyStep, OpenModel
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.loops.kernel_code import kernel_symbol
from weft.hw import isa, programs
from weft.hw.config import ISA_VERSION, PYNQ, TINY
from weft.runtime.artifact import from_bytes, load, save, to_bytes
from weft.runtime.errors import ArtifactError


def rewrite(path: Path, change: dict[str, bytes | None], text: tuple[str, str] | None = None) -> None:
    """Change members (``None`` removes one), or replace a piece of the manifest's text; the checksum stays right."""
    with zipfile.ZipFile(path) as archive:
        members: dict[str, bytes | None] = {name: archive.read(name) for name in archive.namelist()}
    if text is not None:
        manifest = members["manifest.json"]
        assert manifest is not None
        assert text[0].encode() in manifest
        members["manifest.json"] = manifest.replace(text[0].encode(), text[1].encode())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in {**members, **change}.items():
            if data is not None:
                archive.writestr(name, data)
        archive.comment = b"weft sha256 " + b"0" * 64
    raw = buffer.getvalue()[:-64]
    path.write_bytes(raw + hashlib.sha256(raw).hexdigest().encode())


def as_data(value: Any) -> Any:
    """A model as what compares by value: arrays become lists, functions their text."""
    if isinstance(value, np.ndarray):
        return value.dtype.name, value.tolist()
    if isinstance(value, Function):
        return to_text(Module(value))
    if is_dataclass(value):
        return type(value).__name__, {field.name: as_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: as_data(each) for key, each in value.items()}
    return [as_data(each) for each in value] if isinstance(value, (tuple, list)) else value


def test_a_saved_model_loads_equal(model: CompiledModel, tmp_path: Path) -> None:
    save(model, tmp_path / "model.weft")
    assert as_data(load(tmp_path / "model.weft", model.config)) == as_data(replace(model, from_file=True))


def test_the_same_model_gives_the_same_bytes(model: CompiledModel, tmp_path: Path) -> None:
    save(model, tmp_path / "a.weft")
    save(load(tmp_path / "a.weft"), tmp_path / "b.weft")
    assert (tmp_path / "a.weft").read_bytes() == (tmp_path / "b.weft").read_bytes()


@pytest.mark.parametrize("target", ["accel", "cpu"])
def test_two_processes_give_the_same_bytes(target: str) -> None:
    model = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
    code = (
        "import hashlib, weft; from weft.runtime.artifact import to_bytes; "
        f"print(hashlib.sha256(to_bytes(weft.compile({str(model)!r}, target={target!r}))).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(data=st.data())
def test_any_flipped_bit_is_refused(model: CompiledModel, tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "model.weft"
    save(model, path)
    raw = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[position // 8] ^= 1 << position % 8
    path.write_bytes(raw)
    with pytest.raises(
        ArtifactError, match=r"model\.weft: (the checksum of the file is wrong|this is not a weft artifact)"
    ):
        load(path)


def test_a_cut_file_is_refused(model: CompiledModel, tmp_path: Path) -> None:
    path = tmp_path / "model.weft"
    save(model, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ArtifactError, match="damaged or cut off; hint: compile the model again"):
        load(path)


def test_an_artifact_for_another_core_is_refused(model: CompiledModel, tmp_path: Path) -> None:
    save(model, tmp_path / "model.weft")
    with pytest.raises(
        ArtifactError, match=r"field 'config_hash': the artifact is for 'tiny' .* but the core is 'pynq'"
    ):
        load(tmp_path / "model.weft", PYNQ)


def test_an_artifact_of_before_bursts_had_a_field_is_for_the_same_core(model: CompiledModel, tmp_path: Path) -> None:
    path = tmp_path / "model.weft"
    save(model, path)
    rewrite(path, {}, ('"burst_beats": 64,', ""))
    core = load(path, TINY).core
    assert core is not None
    assert core.config == TINY


def test_what_the_programs_compute_comes_back_and_its_constants_are_there_once(tmp_path: Path) -> None:
    path = tmp_path / "model.weft"
    model = weft.compile(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx", "tiny", chains=False)
    assert isinstance(model, CompiledModel)
    save(model, path)
    first, second = model.witness, load(path).witness
    assert first is not None
    assert second is not None
    assert (second.text, second.names, second.integers) == (first.text, first.names, first.integers)
    assert second.module() == first.module()
    with zipfile.ZipFile(path) as archive:
        members = [name for name in archive.namelist() if name.startswith("witness/")]
    assert len(members) < len(first.constants)


def test_a_missing_file_is_an_artifact_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"cannot read .*: No such file"):
        load(tmp_path / "none.weft")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (('"format": 5', '"format": 6'), "field 'format' is 6, but this weft reads 5"),
        (('"format": 5,\n', '"format": 1,\n "window": 3,\n'), "field 'format' is 1, but this weft reads 5"),
        ((f'"isa_version": {ISA_VERSION}', '"isa_version": 9'), "field 'isa_version' is 9"),
        (
            (f'"isa_version": {ISA_VERSION}', '"isa_version": 2'),
            f"is 2, but this weft has {ISA_VERSION}; hint: compile again",
        ),
        (('"window_bytes": 1024', '"window_bytes": 70'), "slot 'r' ends at byte 88, outside the window of 70 bytes"),
        (('"window_bytes": 1024', '"window_bytes": -1'), r"manifest\.json, field 'core\.window_bytes'"),
        (('"offset": 512', '"offset": 1020'), "constant 'unused' ends at byte 1036, outside the window"),
        (('"block_in": 4', '"block_in": 5'), "field 'config': block_in must be a power of two"),
        (('"block_in": 4', '"block_in": 8'), "field 'config_hash' does not belong"),
        (('"window_bytes": 1024', '"window_bytes": 9000'), "field 'window_bytes' is 9000, but only 528 bytes are used"),
        (('"offset": 512', '"offset": 300'), "program 0 and constant 'unused' lie on each other"),
        (('"dtype": "int8"', '"dtype": "object"'), "the element type 'object', which there is not"),
        (('"name": "y"', '"name": "z"'), "output 'z': no step before it makes 'z'"),
        (('"name": "q"', '"name": "r"'), "two slots have the same name"),
        (('"member": "programs/1.bin"', '"member": "../secret"'), r"member '\.\./secret' is missing"),
        (('"window_bytes": 1024', '"window_bytes": 9000000000'), "field 'window_bytes' is 9,000,000,000, more than"),
        (('"offset": 64', '"offset": 300'), "slot 'r' and program 0 lie on each other"),
        (('"offset": 64', '"offset": 250'), "slot 'r' and program 0 lie on each other"),
        (('"statistics": {', '"statistics": {"a": "x",'), r"manifest\.json, field 'statistics\.a"),
        (('"statistics": {', '"statistics": {"a": ' + "[" * 5000 + "]" * 5000 + ","), r"manifest\.json: Invalid JSON"),
        (('"kind": "core"', '"kind": "shell"'), r"manifest\.json, field 'steps\.1'"),
    ],
)
def test_a_manifest_that_lies_is_refused(
    model: CompiledModel, tmp_path: Path, text: tuple[str, str], message: str
) -> None:
    path = tmp_path / "model.weft"
    save(model, path)
    rewrite(path, {}, text)
    with pytest.raises(ArtifactError, match=message):
        load(path)


def test_a_value_that_two_steps_make_is_refused(model: CompiledModel) -> None:
    first, core, last = model.steps
    assert isinstance(last, HostStep)
    again = replace(model, steps=(first, core, last, replace(last, first_layer=2)))
    with pytest.raises(ArtifactError, match="step 3 makes 'y', which is there already"):
        from_bytes(to_bytes(again))
    over_input = replace(model, steps=(first, core, replace(last, outputs=("x",))))
    with pytest.raises(ArtifactError, match="step 2 makes 'x', which is there already"):
        from_bytes(to_bytes(over_input))


def test_a_function_that_would_take_terabytes_is_refused(model: CompiledModel) -> None:
    first = model.steps[0]
    assert isinstance(first, HostStep)
    (step,) = first.program.steps
    assert isinstance(step, NumpyStep)
    x = step.function.params[0]
    wide = call("expand", call("reshape", x, shape=(1, *x.type.shape)), shape=(1 << 33, *x.type.shape))
    body = call("slice", wide, starts=(0, 0, 0), sizes=(1, *x.type.shape), steps=(1, 1, 1))
    function = Function((x,), call("reshape", body, shape=x.type.shape), step.function.attrs)
    program = replace(first.program, steps=(replace(step, function=function),))
    hostile = replace(model, steps=(replace(first, program=program), *model.steps[1:]))
    with pytest.raises(ArtifactError, match=r"host function step 0\.0, expand has 824,633,720,832 bytes, more than"):
        from_bytes(to_bytes(hostile))


def test_a_program_that_would_take_years_is_refused(model: CompiledModel) -> None:
    core = model.steps[1]
    assert isinstance(core, CoreStep)
    loops = [isa.Loop(engine=isa.Engine.GEMM, level=level, extent=1023) for level in range(6)]
    program = programs.assemble(model.config, [*loops, isa.Gemm(levels=6, dst=0, src=0, wgt=0), isa.Finish()])
    labels = np.zeros(8, np.int32)
    step = replace(core, program=program, layer_of=labels, tile_of=labels)
    with pytest.raises(ArtifactError, match=f"step 1, program: instruction 6 has {1023**6} micro-ops"):
        from_bytes(to_bytes(replace(model, steps=(model.steps[0], step, model.steps[2]))))


@pytest.mark.parametrize(
    ("member", "data", "message"),
    [
        ("manifest.json", None, r"member 'manifest\.json' is missing"),
        ("programs/1.bin", b"\0" * 80, r"step 1, program: instruction 0: no instruction has opcode 0"),
        ("programs/1.bin", b"\0" * 81, "81 bytes is not a whole number of 16-byte instructions"),
        ("programs/1.layers.bin", b"junk!", r"member 'programs/1\.layers\.bin' has 5 bytes, which are not int32"),
        ("programs/1.layers.bin", np.full(5, 7, "<i4").tobytes(), "names a layer that the manifest does not have"),
        ("programs/1.layers.bin", np.full(5, -2, "<i4").tobytes(), "names a layer that the manifest does not have"),
        ("programs/1.tiles.bin", bytes(12), "tile_of has 3 elements for 5 instructions"),
        ("host/0.0.graph", b"import os", r"host function 'host/0\.0\.graph'"),
        ("host/0.0.graph", b"\xff\xfe", r"member 'host/0\.0\.graph' is no text"),
    ],
)
def test_a_hostile_member_is_refused(
    model: CompiledModel, tmp_path: Path, member: str, data: bytes | None, message: str
) -> None:
    path = tmp_path / "model.weft"
    save(model, path)
    rewrite(path, {member: data})
    with pytest.raises(ArtifactError, match=message):
        load(path)


def reaching_too_far() -> CompiledModel:
    """A model whose first kernel has one round too many, under the name that its text then has."""
    x = Var("x", TensorType((8, 8), "float32"))
    model = weft.compile(Module(Function((x,), call("nn.tanh", x), Attrs({"outputs": ("y",)}))), target="cpu")
    assert isinstance(model, CompiledModel)
    (step,) = model.steps
    assert isinstance(step, HostStep)
    (kernel,) = step.program.kernels
    text = re.sub(r"parallel\((\d+)\)", lambda found: f"parallel({int(found[1]) + 1})", kernel.text)
    assert text != kernel.text
    bad = replace(kernel, text=text, symbol=kernel_symbol(text, kernel.windows))
    steps = tuple(replace(each, symbol=bad.symbol) if isinstance(each, LaunchStep) else each
                  for each in step.program.steps)  # fmt: skip
    return replace(model, steps=(replace(step, program=replace(step.program, kernels=(bad,), steps=steps)),))


def test_kernels_of_a_file_are_proved_however_it_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.weft"
    save(reaching_too_far(), path)
    for source in (path, load(path)):  # the file itself, and what the command line hands on of it
        with pytest.raises(CompileError, match="an index may be outside of the 8 elements"):
            weft.load(source)


def test_what_no_file_may_hold_is_not_written(model: CompiledModel, tmp_path: Path) -> None:
    path = tmp_path / "large.weft"
    large = replace(model.inputs[0], shape=(1 << 40, 8, 8))
    for changed in (replace(model, inputs=(large,)), replace(model, core=replace(model.on_core, window_bytes=1 << 40))):
        with pytest.raises(ArtifactError, match=r"more than the [0-9,]+ (that are )?allowed"):
            save(changed, path)
    inputs = (SymbolicInput("x", ("n",), "float32"),)
    with pytest.raises(ArtifactError, match=r"sizes of 'm' are open: x=float32\[n\]; hint: fix them with shapes="):
        save(OpenModel("m", "cpu", inputs, ("y",), SymbolicTypes((), {}, {}, 1), lambda *_: model), path)
    assert not path.exists()
