"""All measurements by subject, and each of them by a short name.

python -m benchmarks                     # what there is
python -m benchmarks core.networks resnet18 --device model
"""

from __future__ import annotations

import ast
import runpy
import sys
from difflib import get_close_matches
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent
SUBJECTS = {
    "core": "cycles on the accelerator",
    "hardware": "the RTL in other tools: area, clocks, boards, simulators",
    "systems": "several cores, and memories with banks",
    "cpu": "this processor, beside other engines",
    "gpu": "NVIDIA's GPUs, with and without one",
    "frontends": "what models are read from",
    "training": "gradients, steps of training, 8 bits",
    "compiling": "how long users wait",
    "exploring": "cores and memories to choose from",
    "pages": "what is looked at in a browser",
    "campaigns": "random and damaged inputs",
}


def measurements() -> dict[str, str]:
    """The first line of each measurement's docstring, by name: those that can be run, in the order of `SUBJECTS`."""
    found = {}
    for subject in SUBJECTS:
        for path in sorted((ROOT / subject).glob("*.py")):
            tree = ast.parse(path.read_text())
            if any(
                isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'" for node in tree.body
            ):
                found[f"{subject}.{path.stem}"] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def show(found: dict[str, str]) -> None:
    for subject, meaning in SUBJECTS.items():
        table = Table(title=f"{subject}: {meaning}", title_justify="left", box=None, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column()
        for name, line in found.items():
            if name.startswith(f"{subject}."):
                table.add_row(name, line)
        Console().print(table, "")


def main() -> None:
    found = measurements()
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        show(found)
        print("python -m benchmarks NAME --help: how it is called")
        return
    name = sys.argv[1].removeprefix("benchmarks.")
    if name not in found:
        near = [each for each in found if each.partition(".")[2] == name] or get_close_matches(name, found, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        sys.exit(f"error: there is no measurement {name!r}: {meant}python -m benchmarks lists them")
    del sys.argv[1]
    try:
        runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("benchmarks", "weft", "examples"):
            raise
        file = f"benchmarks/{name.replace('.', '/')}.py"
        sys.exit(f"error: {name} needs {error.name}, which is not installed: pip install -e '.[bench,demo]', "
                 f"or as the first lines of {file} say")  # fmt: skip


if __name__ == "__main__":
    main()
