"""One call to compile and one to load, whatever the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from .compiler.model import CompiledModel, CutModel, GpuCode, HostCode, HostProgram, OpenModel
from .compiler.targets.errors import CompileError
from .compiler.targets.registry import find_target, target_names
from .compiler.targets.target import true_or_false
from .imports import IMPORTS
from .kept_models import Wish, compile_kept
from .runtime.errors import ArtifactError, DeviceError
from .runtime.module import LoadedModule
from .runtime.open_module import SIZES_KEPT, OpenModule

if TYPE_CHECKING:  # what a call needs is imported in it: a model that was compiled before needs no compiler
    from .compiler.graph.ir import Module
    from .compiler.passes.pipeline import PassOptions
    from .compiler.targets.target import Target
    from .hw.config import CoreConfig
    from .hw.dram_rate import DramRate
    from .hw.system_config import SystemConfig
    from .runtime.device import Device
    from .runtime.host_steps import Executor
    from .runtime.module import Finish
    from .runtime.pipeline_module import PipelineModule
    from .runtime.split_module import SplitModule
    from .runtime.system_module import SystemModule
    from .sim.dram import DramModel
    from .verify import Certificate


class TargetOptions(TypedDict, total=False):
    """The options, besides ``config``, of the targets of this package; a target refuses those of others."""

    dram: DramRate | str
    tuned: str
    vthreads: int
    stages: int
    cores: str | tuple[CoreConfig | str, ...]
    split: int
    ports: str | tuple[int, ...]
    branches: bool
    chains: bool
    hiding: str
    threads: int
    processor: str
    gpu: str
    tf32: bool
    integers: str
    activations: str


def compile(
    model: str | Path | bytes | Any,
    config: CoreConfig | str | None = None,
    *,
    target: str | Target = "accel",
    shapes: Mapping[str, Sequence[int]] | None = None,
    strict: bool = False,
    keep: bool = False,
    progress: Callable[[str], None] | None = None,
    dump: str | Path | None = None,
    passes: PassOptions | None = None,
    cache: bool = True,
    **options: Unpack[TargetOptions],
) -> CompiledModel | OpenModel:
    """Compile a model for a target: ``"accel"``, ``"cpu"``, ``"opencl"``, ``"cuda"``, or one that was registered.

    model
        An ONNX file (path, bytes or ``ModelProto``), a LiteRT file (path or bytes), a program of PyTorch (an
        ``ExportedProgram``, its ``.pt2`` file, or what `weft.from_torch` gives), a function of JAX
        (what `weft.from_jax` gives, a module of StableHLO or its file), or a module of the graph IR at any
        stage.
    config
        The core, or the name of one: an option of the accelerator.
    shapes
        Shapes of inputs that the file leaves open; a size of -1 stays so. For the accelerator all must be
        fixed; on CPUs and GPUs a model with open sizes becomes an :class:`OpenModel`, which runs for any. So
        does one on whose course the values of integer inputs decide.
    strict
        Refuse a model of which the target cannot compile every operator.
    keep
        Every layer's result can be read after a run, with ``run(..., keep=True)``. It costs memory.
    progress
        Called with a line of text at each step.
    dump
        A folder for the loop IR of every kernel, as text.
    passes
        Passes of your own, the check of every pass, a page that shows what each did.
    cache
        Load what was compiled before for the same model, options and compiler (docs/caches.md), and keep this one.
    options
        The target's own: ``weft compile --target NAME --help`` lists them.

    Raises ModelError for a file that cannot be read, CompileError for a model or an option that the target does not
    take; both name the place.
    """
    chosen: dict[str, Any] = {**options}
    if config is not None:
        if isinstance(config, str) and config in target_names():
            raise CompileError(f"{config!r} is a target, and config is a core", hint=f"target={config!r}")
        chosen["config"] = config
    if progress is not None and not callable(progress):
        raise CompileError(f"progress is {progress!r:.80}, but must be a function of a text")
    wish = Wish(true_or_false("strict", strict), true_or_false("keep", keep))
    write = None
    if dump is not None:
        with IMPORTS:
            from .compiler.compile import folder_dump

        write = folder_dump(dump)
    return compile_kept(model, target, chosen, shapes=shapes, passes=passes, wish=wish,
                        progress=progress or (lambda _: None), dump=write,
                        cache=true_or_false("cache", cache))  # fmt: skip


@overload
def load(
    model: CompiledModel | str | Path, device: str | Device | None = None, *,
    progress: Callable[[str], None] | None = None,
) -> LoadedModule: ...  # fmt: skip


@overload
def load(
    model: OpenModel, device: str | Device | None = None, *, progress: Callable[[str], None] | None = None,
    kept: int = SIZES_KEPT,
) -> OpenModule: ...  # fmt: skip


@overload
def load(
    model: CompiledModel | OpenModel | str | Path, device: str | Device | None = None, *,
    progress: Callable[[str], None] | None = None,
) -> LoadedModule | OpenModule: ...  # fmt: skip


@overload
def load(
    model: CompiledModel | OpenModel | str | Path, device: str | None = None, *, system: SystemConfig | str | Path,
    dram: DramModel | None = None, progress: Callable[[str], None] | None = None,
) -> SystemModule | PipelineModule | SplitModule: ...  # fmt: skip


@overload
def load(
    model: CompiledModel | OpenModel | str | Path, device: SystemConfig, *, dram: DramModel | None = None,
    progress: Callable[[str], None] | None = None,
) -> SystemModule | PipelineModule | SplitModule: ...  # fmt: skip


def load(
    model: CompiledModel | OpenModel | str | Path, device: str | Device | SystemConfig | None = None, *,
    system: SystemConfig | str | Path | None = None, dram: DramModel | None = None,
    progress: Callable[[str], None] | None = None, kept: int = SIZES_KEPT,
) -> LoadedModule | OpenModule | SystemModule | PipelineModule | SplitModule:  # fmt: skip
    """Put a compiled model, or the artifact in a file, into memory.

    device
        What runs the programs for a core: ``"fsim"`` (the default), ``"rtl"``, another name of
        `runtime.device.device_names`, or a :class:`Device`. For a model with kernels for a GPU, the number of the GPU,
        such as ``"0"``; by default that in ``WEFT_OPENCL_DEVICE``, else the first. Kernels in PTX take
        ``"emulated"``. Other models take none. A simulator has the memory that the model was compiled for
        (``dram=``); :class:`FsimDevice` and :class:`RtlDevice` take another.
    system
        Several cores on one memory, or the JSON file of such a system: the model runs on all of them at once, an item
        on each, or of a model that was compiled in stages a stage on each, or of one that was split the same item on
        all; ``device`` is ``"fsim"`` (the default), ``"rtl"``, or ``"pynq://NAME"``, a board with an overlay of this
        system. A system may be given as ``device``, too.
    dram
        The memory behind each port of a system; by default that which the model was compiled for. A board has its own:
        there it is what a core alone is compared with.
    progress
        Called with a line of text at each step: the first use of a core on ``"rtl"`` compiles it.
    kept
        A model with open sizes keeps what it compiled for the last so many of them.

    Raises ArtifactError for a file that is damaged or does not fit, DeviceError for a device that there is not.
    """
    if device is not None and not isinstance(device, str):
        with IMPORTS:
            from .hw.system_config import SystemConfig

        if isinstance(device, SystemConfig):
            device, system = None, device
    if system is not None:
        return _load_system(model, system, device, dram, progress)
    if dram is not None:
        raise DeviceError(
            "dram is the memory of a system", hint="give it to a device: weft.RtlDevice(config, dram=...)"
        )
    if isinstance(model, OpenModel):
        return OpenModule(model, lambda sized: _load(sized, device, progress, trusted=True), kept)
    if isinstance(model, CompiledModel):
        return _load(model, device, progress, trusted=not model.from_file)
    if not isinstance(model, (str, PathLike)):
        raise ArtifactError(f"model is {model!r:.80}, but must be a compiled model or the path of an artifact")
    with IMPORTS:
        from .runtime.artifact import load as load_artifact

    compiled = load_artifact(model, None if device is None or isinstance(device, str) else device.config)
    return _load(compiled, device, progress, trusted=False)


def _load_system(
    model: CompiledModel | OpenModel | str | Path, system: SystemConfig | str | Path, device: str | Device | None,
    dram: DramModel | None, progress: Callable[[str], None] | None,
) -> SystemModule | PipelineModule | SplitModule:  # fmt: skip
    with IMPORTS:
        from .hw.system_config import SystemConfig, load_system
        from .runtime.pipeline_module import PipelineModule
        from .runtime.split_module import SplitModule
        from .runtime.system_module import SystemModule
        from .sim.dram import DramModel

    if isinstance(model, OpenModel):
        raise DeviceError(model.openness, hint=model.way_out("at compilation: shapes={...}"))
    if not isinstance(system, (SystemConfig, str, PathLike)):
        raise DeviceError(f"system is {system!r:.80}, but must be a SystemConfig or the path of its JSON file")
    if device is not None and not isinstance(device, str):
        raise DeviceError("a system takes the name of a device, not a device", hint='device="rtl"')
    if dram is not None and not isinstance(dram, DramModel):
        raise DeviceError(
            f"dram is {dram!r:.80}, but must be a DramModel",
            hint="weft.sim.dram.DramModel(latency=100, bytes_per_cycle=8)",
        )
    config = system if isinstance(system, SystemConfig) else load_system(system)
    if not isinstance(model, CompiledModel):
        with IMPORTS:
            from .runtime.artifact import load as load_artifact

        model = load_artifact(model, None)
    if isinstance(model, CutModel):
        raise DeviceError(f"results of {model.name!r} have another size in each run", hint="run it without a system")
    trusted = not model.from_file
    if model.stages > 1 or model.shared_by > 1:
        load_host = partial(_load_host, find_target(model.target), name=model.name, device=None, trusted=trusted)
        kind = SplitModule if model.shared_by > 1 else PipelineModule
        return kind(model, config, device or "fsim", load_host, dram=dram, progress=progress)
    load_core = partial(_load, progress=progress, trusted=trusted)
    return SystemModule(model, config, device or "fsim", load_core, dram=dram, progress=progress)


def _load(
    model: CompiledModel, device: str | Device | None, progress: Callable[[str], None] | None, *, trusted: bool
) -> LoadedModule:
    target = find_target(model.target)

    def code(program: HostProgram, processor: str) -> HostCode:
        made = target.host_code(program, trusted=trusted, processor=processor)
        if isinstance(made, GpuCode):
            raise DeviceError(f"target {target.name!r} makes code for GPUs, not for the processor of a board")
        return made

    finish = _finish(model) if isinstance(model, CutModel) else None
    if model.core is None:
        load_host = partial(_load_host, target, name=model.name, device=device, trusted=trusted)
        return LoadedModule(model, None, load_host, finish=finish)
    with IMPORTS:
        from .runtime.device import Device, memory_of, open_device

    if device is not None and not isinstance(device, (str, Device)):
        raise DeviceError(f"device is {device!r:.80}, but must be a Device or the name of one")
    opened = device if isinstance(device, Device) else open_device(
        device or "fsim", model.core.config, dram=memory_of(model), progress=progress
    )  # fmt: skip
    load_host = partial(_load_host, target, name=model.name, device=None, trusted=trusted)
    return LoadedModule(model, opened, load_host, code, finish)


def _finish(model: CutModel) -> Finish:
    with IMPORTS:
        from .compiler.frontends.tail import finish_of
    return finish_of(model.tail)


def _load_host(
    target: Target, program: HostProgram, *, name: str, device: str | Device | None, trusted: bool
) -> Executor:
    """A program that runs on this machine. ``device``: the GPU, where its code is for one."""
    if device is not None and not (isinstance(device, str) and _is_gpu(device)):
        raise _no_core(name, device)
    code = target.host_code(program, trusted=trusted)
    if isinstance(code, GpuCode):
        with IMPORTS:
            from .runtime.gpu.executor import GpuExecutor
            from .runtime.gpu.open import open_gpu

        return GpuExecutor(program, code, open_gpu(code, device))
    if device is not None:
        raise _no_core(name, device)
    with IMPORTS:
        from .runtime.host import HostExecutor

    return HostExecutor(program, code)


def _is_gpu(device: str) -> bool:
    with IMPORTS:
        from .runtime.gpu.open import is_gpu

    return is_gpu(device)


def _no_core(name: str, device: str | Device) -> DeviceError:
    with IMPORTS:
        from .runtime.device import Device, device_kind

    if isinstance(device, str) and _is_gpu(device):
        return DeviceError(f"nothing of {name!r} runs on a GPU, so device {device!r} has nothing to do",
                           hint="load it without a device, or compile it with target 'opencl' or 'cuda'")  # fmt: skip
    if not isinstance(device, (str, Device)):
        return DeviceError(f"device is {device!r:.80}, but must be a Device or the name of one")
    what = device_kind(device).name if isinstance(device, str) else device.name
    return DeviceError(f"nothing of {name!r} runs on a core, so device {what!r} has nothing to do",
                       hint="load it without a device, or compile it with target 'accel'")  # fmt: skip


def certify(
    model: CompiledModel | str | Path, source: str | Path | bytes | Any = None, *, integers: str | None = None,
    seed: int | None = None, repeat: int = 1,
) -> Certificate:  # fmt: skip
    """Prove that the programs of a compiled model, or of the artifact in a file, compute a model for all inputs.

    source
        The model as it was compiled: an ONNX file (path, bytes or ``ModelProto``), or a module of the graph IR as read.
        Without it the programs are only proved to be what the artifact itself says of them.
    integers
        The option by which the model is compiled, where ``source`` is given. By default what the artifact says.
    seed
        Of the proof's random numbers: drawn anew by default. The same seed repeats a proof.
    repeat
        Times that the proof is made, each with other random numbers: chances of error multiply.

    ``docs/certificates.md`` says what a certificate means. Raises VerifyError where nothing runs on a core, ModelError
    for a model that cannot be read.
    """
    with IMPORTS:
        from .runtime.artifact import load as load_artifact
        from .verify import VerifyError, verify

    if not isinstance(model, (CompiledModel, str, PathLike)):
        raise ArtifactError(f"model is {model!r:.80}, but must be a compiled model or the path of an artifact")
    compiled = model if isinstance(model, CompiledModel) else load_artifact(model)
    if source is None:
        if integers is not None:
            raise VerifyError("integers says how a model is compiled, but none is given",
                              hint="give its source, too, or leave out integers")  # fmt: skip
        return verify(compiled, seed=seed, repeat=repeat)
    return verify(compiled, integer_graph(source, compiled, integers), seed=seed, repeat=repeat)


def integer_graph(source: str | Path | bytes | Any, model: CompiledModel, integers: str | None = None) -> Module:
    """The integer graph of a model, read with the sizes of a compiled one and brought to integers for its core."""
    with IMPORTS:
        from .compiler.frontends import module_and_tail, read
        from .compiler.graph.ir import Module
        from .compiler.passes.pipeline import PassOptions, run_passes
        from .compiler.targets.accel.target import passes_to_integers
        from .verify import VerifyError, require_programs

    require_programs(model)
    scope = integers if integers is not None else model.witness.integers if model.witness is not None else ""
    if isinstance(source, Module):
        module = source
    else:
        shapes = {spec.name: spec.shape for spec in model.inputs}
        file = read(source)
        known = [each.name for each in file.inputs({})]
        if not set(shapes) <= set(known):
            raise VerifyError(
                f"{model.name!r} was made of another model: its inputs are {', '.join(shapes)}, and those of the model "
                f"{', '.join(known)}", hint="give the model that was compiled",
            )  # fmt: skip
        module, _ = module_and_tail(file, shapes, require_quantised=True)
    if module.stage != "source":
        raise VerifyError(f"the model is at stage {module.stage!r}, but must be as it was read")
    cores = model.on_core.cores or (model.config,)
    passes = passes_to_integers(cores[0], scope, *cores[1:])
    return run_passes(module, passes, PassOptions(), f"{model.name} to integers")
