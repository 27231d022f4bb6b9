"""``weft profile --target cpu``: the kernels of a model under the roof of this machine."""

from __future__ import annotations

from ..api import load
from ..compiler.model import HostStep
from ..compiler.targets.cpu.llvm.peak import SYMBOL, byte_peak, float_peak
from ..compiler.targets.cpu.processor import Processor, host_target
from ..compiler.targets.errors import CompileError
from ..files import write_atomically
from ..progress import progress
from ..runtime.errors import DeviceError
from ..runtime.index_inputs import index_inputs
from ..runtime.inputs import read_inputs
from ..runtime.machine_roof import MachineRoof, PeakCode, measured_roof
from ..runtime.module import LoadedModule
from ..runtime.plots import write_host_plot
from ..runtime.profile_host import kernel_records, kernel_table, profile_host, roof_record
from .output import err, json_text, out, print_json, print_report, wide_console
from .tools import ProfileRequest


def profile_on_cpu(request: ProfileRequest) -> None:
    """Profile a model or an artifact on random inputs; writes tables, records and the picture into the request's
    folder."""
    folder = request.folder
    with progress("reading", err) as status:
        if request.is_artifact:
            compiled = request.artifact()
            if compiled.target not in ("accel", "cpu") or compiled.core is not None:
                raise CompileError(
                    f"{request.source} is compiled for target {compiled.target!r}", hint="leave out --target"
                )
        else:
            compiled = request.compiled(request.given(status), request.options(), status)
        status.update("loading")
        module = load(compiled, progress=status.update)
        assert isinstance(module, LoadedModule)  # of a model without open sizes
        threads = max((step.program.threads for step in compiled.steps if isinstance(step, HostStep)), default=1)
        status.update("measuring this machine")
        roof = roof_here(threads)
        status.update("running")
        kernels = profile_host(module, read_inputs(compiled.inputs, None, 0, index_inputs(compiled)))
        table = kernel_table(compiled, kernels, roof)
        document = {"machine": roof_record(roof), "kernels": kernel_records(kernels, roof)}
        status.update(f"writing {folder}")
        folder.mkdir(parents=True, exist_ok=True)
        print_report([table], folder / "report.txt")
        write_atomically(folder / "kernels.json", json_text(document).encode())
        try:
            write_host_plot(compiled.name, kernels, roof, folder)
        except DeviceError as error:
            err.print(f"no pictures: {error}", markup=False)
    if request.as_json:
        print_json(document)
        return
    wide_console().print(table)
    out.print(f"wrote {folder}", markup=False)


def roof_here(threads: int) -> MachineRoof:
    """Of this machine's processor, or of the one that it is taken for."""
    return roof_of(host_target(), threads)


def roof_of(target: Processor, threads: int) -> MachineRoof:
    """Of this machine with code for a processor that it can run."""
    floats, products = (PeakCode(content, SYMBOL, count) for content, count in (float_peak(target), byte_peak(target)))
    return measured_roof(target.cpu, threads, floats, products)
