"""Faults in the GPU target: barriers, owners, guards, and what C leaves open."""

from __future__ import annotations

from .mutant import Mutant

PHASES, TEXT, FUNCTIONS = (f"compiler/targets/gpu/{name}.py" for name in ("phases", "opencl", "opencl_functions"))
SPLIT, CALLS = "compiler/targets/gpu/split_buffers.py", "compiler/targets/gpu/warp_calls.py"
FORMS = ("tests/compiler/targets/gpu/test_phases.py",)
WARP_ROWS, CORES = (f"tests/compiler/targets/gpu/test_{name}.py" for name in ("warp_rows", "tensor_cores"))
TILES, ATTENTION = ((f"tests/compiler/targets/gpu/test_{name}.py",) for name in ("tiled", "attention"))
NVPTX, DOUBLES = "compiler/targets/gpu/nvptx.py", "compiler/targets/llvm/double_functions.py"
DOUBLE_TESTS = ("tests/compiler/targets/llvm/test_double_functions.py",)
WATCH, MACHINE, COPIES = (f"sim/ptx/{name}.py" for name in ("watch", "machine", "instructions/copies"))
MATRICES, COUNTS = "sim/ptx/instructions/matrices.py", "sim/ptx/counts.py"
MEMORY, CONTROL, WARPS = (f"tests/sim/ptx/test_{name}.py" for name in ("memory", "control", "warps"))
OPERATORS = ("tests/compiler/targets/gpu/test_operators.py",)
CUDA, DRIVER = "runtime/gpu/cuda.py", ("tests/runtime/gpu/test_cuda.py",)
EXPONENTIAL, ON_DEVICE = ("tests/compiler/targets/gpu/test_exponential.py",), ("tests/runtime/gpu/test_on_device.py",)
UNPACKED, WEIGHT_ONLY = (
    "compiler/targets/loops/unpacked_weights.py",
    ("tests/compiler/targets/gpu/test_weight_only.py",),
)

MUTANTS = (
    Mutant(
        "weights-become-floats-at-compile-time", "compiler/targets/gpu/target.py", "forgotten part",
        "return host_passes(quantised=quantised, scope=scope_of(integers), weight_only=True)",
        "return host_passes(quantised=quantised, scope=scope_of(integers))", WEIGHT_ONLY,
    ),
    Mutant(
        "turned-weights-taken-as-they-lie", UNPACKED, "wrong order",
        "View(matrix.shape[::-1], matrix.dtype, lambda index: matrix[index[::-1]])",
        "View(matrix.shape[::-1], matrix.dtype, lambda index: matrix[index])", WEIGHT_ONLY,
    ),
    Mutant(
        "zero-point-of-the-first-block", UNPACKED, "wrong address",
        "- zero(k // block, column)", "- zero(0 * k, column)", WEIGHT_ONLY,
    ),
    Mutant(
        "no-barrier-before-writing-over", PHASES, "check ignored",
        "return (later.read & written) | (later.written & (written | read))",
        "return later.read & written", TILES,
    ),
    Mutant(
        "no-barrier-around-a-loop", PHASES, "check ignored",
        "for phase in _phases(body) if again else ():", "for phase in ():", TILES,
    ),
    Mutant(
        "iterations-taken-to-be-apart", PHASES, "check ignored",
        "apart = stays and are_apart(stmt, list(around), SHARED)", "apart = stays", FORMS,
    ),
    Mutant(
        "barrier-of-the-group-orders-all", PHASES, "check ignored",
        "_Pending() if everywhere else", "_Pending() if 1 else", FORMS,
    ),
    Mutant(
        "turned-halves-swapped", CALLS, "wrong value", "(word, half) if step.turned else (half, word)", "(half, word)",
        (CORES,),
    ),
    Mutant(
        "keys-behind-the-last-count", "compiler/targets/gpu/attention.py", "wrong value",
        'tir.Const(float("-inf"), "float32")', 'tir.Const(0.0, "float32")', ATTENTION,
    ),
    Mutant(
        "digit-of-the-wrong-weight", "compiler/targets/gpu/digits.py", "off by one",
        "prod(radices[place + 1 :]) * lanes", "prod(radices[place:]) * lanes", FORMS,
    ),
    Mutant(
        "owners-that-differ", SPLIT, "check ignored", "    if len(owners) > 1:", "    if len(owners) > 2:", FORMS,
    ),
    Mutant(
        "owner-not-told", SPLIT, "bound", "below >= step or any(", "below > step or any(", FORMS,
    ),
    Mutant(
        "group-too-large", PHASES, "check ignored",
        "if grid.threads > device.group_threads:", "if grid.threads > 2 * device.group_threads:", FORMS,
    ),
    Mutant(
        "digit-without-guard", TEXT, "check ignored", "            if digit.is_guarded:\n", "            if False:\n",
        TILES,
    ),
    Mutant(
        "guard-of-a-short-loop", TEXT, "bound", "if ({name} < {extent}) {{", "if ({name} <= {extent}) {{", TILES,
    ),
    Mutant(
        "nan-lost-in-a-minimum", FUNCTIONS, "special value",
        "return a != a || a {sign} b ? a : b;", "return a {sign} b ? a : b;", OPERATORS,
    ),
    Mutant(
        "saturation-too-late", FUNCTIONS, "bound", "x >= {top} ?", "x > {top} ?", OPERATORS,
    ),
    Mutant(
        "quotient-rounds-to-zero", FUNCTIONS, "rounding",
        "return a / b - (rest != 0 && (rest < 0) != (b < 0));", "return a / b;", OPERATORS,
    ),
    Mutant(
        "exponential-of-a-nan", FUNCTIONS, "special value",
        "float c = x < {_hex(EXP_SMALLEST)} ? {_hex(EXP_SMALLEST)} : x;",
        "float c = x > {_hex(EXP_SMALLEST)} ? x : {_hex(EXP_SMALLEST)};", OPERATORS,
    ),
    Mutant(
        "ptx-reads-race-with-nothing", WATCH, "check ignored",
        "            self._reader[at] = np.where(others, _SEVERAL, me)\n", "            self._reader[at] = 0\n",
        (MEMORY,),
    ),
    Mutant(
        "ptx-barriers-order-blocks", WATCH, "check ignored",
        "~((when // EPOCHS == now // EPOCHS) & (when < now))", "~(when < now)", (MEMORY,),
    ),
    Mutant(
        "ptx-copies-land-a-group-early", COPIES, "off by one",
        "copy.group < state.committed[copy.lanes] - left", "copy.group <= state.committed[copy.lanes] - left",
        (MEMORY,),
    ),
    Mutant(
        "ptx-different-barriers-meet", MACHINE, "check ignored",
        "        if wrong.any():\n            raise KernelFaultError(\n",
        "        if False:\n            raise KernelFaultError(\n",
        (CONTROL,),
    ),
    Mutant(
        "ptx-rows-of-a-fragment-swapped", MATRICES, "wrong order",
        "reshape(warps, words, halves, 8, 4).transpose(0, 2, 3, 1, 4)",
        "reshape(warps, halves, words, 8, 4).transpose(0, 1, 3, 2, 4)", (WARPS,),
    ),
    Mutant(
        "ptx-a-word-counted-twice", COUNTS, "check ignored",
        "    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]\n", "    new[:, 1:] = True\n", (CONTROL,),
    ),
    Mutant(
        "ptx-digit-without-guard", NVPTX, "check ignored",
        "            if digit.is_guarded:\n", "            if False:\n", TILES,
    ),
    Mutant(
        "ptx-no-barriers", NVPTX, "check ignored",
        "            case Barrier():\n", "            case Barrier() if False:\n",
        TILES,
    ),
    Mutant(
        "ptx-short-loop-runs-too-far", NVPTX, "bound", 'icmp_signed("<", i64(value), extent)',
        'icmp_signed("<=", i64(value), extent)', TILES,
    ),
    Mutant(
        "power-without-the-rest", DOUBLES, "rounding", "result = _exp(product, rest.where(bounded, 0.0))",
        "result = _exp(product)", DOUBLE_TESTS,
    ),
    Mutant(
        "quarter-turn-without-carry", DOUBLES, "off by one",
        "builder.add(builder.add(low[0], high[1]), carry)", "builder.add(low[0], high[1])", DOUBLE_TESTS,
    ),
    Mutant(
        "context-of-another-thread", CUDA, "missing call",
        'from any thread."""\n        self.driver.call("cuCtxSetCurrent", self._context)',
        'from any thread."""', DRIVER,
    ),
    Mutant(
        "launch-in-the-context-of-another", CUDA, "missing call",
        "if status := self._make_current(*self._current):", "if status := 0:", DRIVER,
    ),
    Mutant(
        "launch-in-the-stream-of-its-maker", CUDA, "check ignored",
        "work.arguments if work.stream is self._stream else work.arguments_in(self._stream)", "work.arguments", DRIVER,
    ),
    Mutant(
        "read-without-a-wait", CUDA, "missing call",
        'what="reading fails")  # fmt: skip\n        self.synchronise()', 'what="reading fails")  # fmt: skip', DRIVER,
    ),
    Mutant(
        "write-without-a-wait", CUDA, "missing call",
        'what="writing fails")  # fmt: skip\n        self.synchronise()', 'what="writing fails")  # fmt: skip', DRIVER,
    ),
    Mutant(
        "copy-the-other-way", CUDA, "operands swapped",
        "_address(target) + target_offset, _address(source) + source_offset",
        "_address(source) + source_offset, _address(target) + target_offset", DRIVER,
    ),
    Mutant(
        "arguments-without-their-offsets", CUDA, "wrong address", "(_address(memory) + offset for memory",
        "(_address(memory) for memory", DRIVER,
    ),
    Mutant(
        "launch-without-its-memory", CUDA, "lifetime", "self._kept = (module, *(memory for memory, _ in arguments))",
        "self._kept = (module,)", DRIVER,
    ),
    Mutant(
        "too-old-a-gpu", CUDA, "check ignored", "if target and int(target[1]) > self.device.capability:",
        "if target and int(target[1]) < self.device.capability:", DRIVER,
    ),
    Mutant(
        "exchange-between-half-the-lanes", CALLS, "off by one", "distance = step.depth // 2",
        "distance = step.depth // 4", (WARP_ROWS,),
    ),
    Mutant(
        "reduction-that-forgets-its-beginning", CALLS, "value",
        "expressions.operator(store.value.op, before, value, dtype)", "value", (WARP_ROWS,),
    ),
    Mutant(
        "lanes-of-another-warp", SPLIT, "check ignored", "digit.weight * digit.radix > everywhere",
        "digit.weight > everywhere", (WARP_ROWS,),
    ),
    Mutant(
        "operands-cut-to-tf32", CALLS, "rounding", "[builder.call(nearest, [value]) for value in values]",
        "[builder.bitcast(value, I32) for value in values]", (CORES,),
    ),
    Mutant(
        "ways-met-in-the-wrong-order", "sim/ptx/order.py", "order", "waiting += reversed(parts)", "waiting += parts",
        ("tests/sim/ptx/test_order.py",),
    ),
    Mutant(
        "parts-that-overlap", "compiler/targets/gpu/tensor_cores.py", "wrong operand",
        "at = matrix.pop(0) * deep + k if parts > 1 else k", "at = matrix.pop(0) * tile.depth + k if parts > 1 else k",
        (CORES,),
    ),
    Mutant(
        "tiles-that-are-turned-in-one-bank", "compiler/targets/gpu/transposed.py", "forgotten part",
        "schedule.storage_align(stage, axis, 2 * words, words)", "schedule.storage_align(stage, axis, 2 * words, 0)",
        ("tests/compiler/targets/gpu/test_transposed.py",),
    ),
    Mutant(
        "every-byte-of-a-word-was-written", WATCH, "check ignored", "np.logical_or.reduce(self._known",
        "np.logical_and.reduce(self._known", (MEMORY,),
    ),
    Mutant(
        "a-vector-as-one-word", WATCH, "check ignored", "each = max(1, WORD // self.granule)", "each = len(granules)",
        (MEMORY,),
    ),
    Mutant(
        "all-of-a-vector-is-used", "sim/ptx/instructions/accesses.py", "case left out",
        "used = used if 0 < len(used) < len(registers) else []", "used = []", (MEMORY,),
    ),
    Mutant(
        "exponent-as-it-is-rounded", "compiler/targets/gpu/exponential.py", "rounding",
        "return fma(power, left, power)", "return power", EXPONENTIAL,
    ),
    Mutant(
        "infinite-exponents", "compiler/targets/gpu/exponential.py", "special value",
        '"llvm.minimum", x.type, [x, number(LARGEST)]', '"llvm.minimum", x.type, [x, number(math.inf)]', EXPONENTIAL,
    ),
    Mutant(
        "something-taken-from-infinity", "compiler/targets/gpu/exponential.py", "special value",
        "LARGEST = -104.0, 88.72283935546875", "LARGEST = -104.0, 88.72284698486328", EXPONENTIAL,
    ),
    Mutant(
        "last-lanes-add-zeros", "compiler/targets/gpu/whole_warps.py", "special value",
        "Select(loop < extent, value, neutral)", "Select(loop < extent, value, Const(0, neutral.type))", (WARP_ROWS,),
    ),
    Mutant(
        "rows-stored-to-the-last-lane", "compiler/targets/gpu/whole_warps.py", "check ignored",
        "If(loop < extent, leaf)", "If(loop < length, leaf)", (WARP_ROWS,),
    ),
    Mutant(
        "another-tensor-freed-too-early", "runtime/gpu/dlpack.py", "forgotten part",
        "_Given(managed, sizes, tensor.owner)", "_Given(managed, sizes, None)", ON_DEVICE,
    ),
    Mutant(
        "any-strides-are-dense", "runtime/gpu/dlpack.py", "check ignored",
        "if size > 1 and stride != expected:", "if size > 1 and stride < 1:", ON_DEVICE,
    ),
    Mutant(
        "a-tensor-of-another-gpu", "runtime/gpu/dlpack.py", "check ignored", "    if where != number:\n",
        "    if where < 0:\n", ON_DEVICE,
    ),
    Mutant(
        "results-that-a-later-run-overwrites", "runtime/gpu/executor.py", "wrong operand",
        "made.append(self.gpu.allocate(tensor.nbytes))", 'made.append(self._memory["output", number])', ON_DEVICE,
    ),
    Mutant(
        "bounds-of-what-is-taken-away", "compiler/tensor/intervals.py", "case left out",
        "if all(times.get(term, each) * each > 0 for term, each in terms)", "if terms",
        ("tests/compiler/tensor/test_intervals.py",),
    ),
)  # fmt: skip
