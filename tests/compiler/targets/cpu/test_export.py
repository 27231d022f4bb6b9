"""Object files of a model, linked with a program in C that has no Python: the same bytes as weft's own runs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Constant, Function, Module, TensorType, Tuple, Var, call
from weft.compiler.targets.cpu.export import CONSTANTS, SOURCE, export_objects
from weft.compiler.targets.cpu.processor import host_target
from weft.compiler.targets.errors import CompileError

from .programs import compiled, program_of

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"

MAIN = """
#include "weft_model.h"
#include <stdio.h>
static _Alignas(64) char input[WEFT_INPUT_0_BYTES], output[WEFT_OUTPUT_0_BYTES];
static _Alignas(64) char constants[WEFT_CONSTANT_BYTES], arena[WEFT_ARENA_BYTES + 1];
int main(void) {
  FILE *file = fopen("constants.bin", "rb");
  if (!file || fread(constants, 1, sizeof constants, file) != sizeof constants) return 1;
  while (fread(input, 1, sizeof input, stdin) == sizeof input) {
    const void *const inputs[] = {input};
    void *const outputs[] = {output};
    weft_model_run(inputs, outputs, constants, arena);
    fwrite(output, 1, sizeof output, stdout);
  }
  return 0;
}
"""


def test_a_program_in_c_computes_what_weft_computes(tmp_path: Path) -> None:
    model = compiled(DIGITS)
    files = export_objects(model, tmp_path, host_target())
    (tmp_path / "main.c").write_text(MAIN)
    objects = [path.name for path in files if path.suffix == ".o"]
    compiler = shutil.which("gcc") or "cc"
    command = [compiler, "-Wall", "-Werror", "-o", "model", "main.c", SOURCE, *objects, "-lm", "-lpthread"]
    subprocess.run(command, cwd=tmp_path, check=True)
    images = [np.random.default_rng(seed).random((1, 1, 8, 8)).astype(np.float32) for seed in range(5)]
    given = b"".join(image.tobytes() for image in images)
    done = subprocess.run([tmp_path / "model"], cwd=tmp_path, input=given, capture_output=True, check=True, timeout=60)
    loaded = weft.load(model)
    assert done.stdout == b"".join(loaded.run(image)["logits"].tobytes() for image in images)
    assert (tmp_path / CONSTANTS).stat().st_size == program_of(model).constants.nbytes


X = Var("x", TensorType((4, 4), "float32"))
AT = Var("at", TensorType((3,), "int64"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (call("nn.determinant", X), "node 'nn.determinant': NumPy would run it: "),
        (call("gather", X, AT, axis=0), "has indices that are checked at every run"),
    ],
    ids=["NumPy", "indices"],
)
def test_what_object_files_cannot_hold_is_refused(value: object, message: str, tmp_path: Path) -> None:
    module = Module(
        Function((X, AT), Tuple((value, call("nn.cast", AT, to="float32"))), Attrs({"outputs": ("a", "b")}))
    )
    with pytest.raises(CompileError, match=message):
        export_objects(compiled(module), tmp_path / "out", host_target())
    assert not (tmp_path / "out").exists()


def test_strings_are_refused(tmp_path: Path) -> None:
    words = Var("words", TensorType((2,), "string"))
    module = Module(Function((words,), words, Attrs({"outputs": ("y",)})))
    with pytest.raises(CompileError, match=r"'words' of .* is strings, which object files cannot hold"):
        export_objects(compiled(module), tmp_path / "out", host_target())


def test_threads_and_programs_for_a_core_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.compiler.targets.cpu.kernels.WORK_WORTH_THREADS", 0)
    module = Module(
        Function((X,), call("nn.dense", X, Constant(np.eye(4, dtype=np.float32))), Attrs({"outputs": ("y",)}))
    )
    with pytest.raises(CompileError, match=r"is compiled for 2 threads; hint: .* with 1 thread"):
        export_objects(compiled(module, threads=2), tmp_path, host_target())
    with pytest.raises(CompileError, match="is compiled for a GPU, which object files are not for"):
        export_objects(weft.compile(module, target="opencl"), tmp_path, host_target())  # type: ignore[arg-type]
    with pytest.raises(CompileError, match="has programs for a core"):
        export_objects(weft.compile(DIGITS), tmp_path, host_target())  # type: ignore[arg-type]
