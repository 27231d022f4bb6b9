"""Faults in the verifier: it proves too much, or not what is right."""

from __future__ import annotations

from .mutant import Mutant

FIELD = ("tests/verify/test_field.py",)
KEYED = ("tests/verify/test_keyed.py",)
FORMS = ("tests/verify/test_normal_forms.py",)
MACHINE = ("tests/verify/test_machine.py",)
ROUNDED = ("tests/verify/test_rounded_numbers.py",)
OPERATORS = ("tests/verify/test_integer_operators.py",)
WHOLE = ("tests/verify/test_verifier.py",)

MUTANTS = (
    Mutant(
        "proof-of-halves-that-lose-a-carry", "verify/field.py", "lost bit",
        "low += high >> 30", "low += high >> 31", FIELD,
    ),
    Mutant(
        "proof-by-sums-too-long-for-float64", "verify/field.py", "off by one bit",
        "MOST_TERMS = 1 << 15", "MOST_TERMS = 1 << 17", FIELD,
    ),
    Mutant(
        "proof-by-a-hash-of-one-word", "verify/keyed.cpp", "operand ignored",
        "    state.take(second);", "    state.take(0);", KEYED,
    ),
    Mutant(
        "proof-by-functions-without-parameters", "verify/keyed.py", "operand ignored",
        "key = keyed_words(self._secret, key, value)", "key = keyed_words(self._secret, key, key)", KEYED,
    ),
    Mutant(
        "proof-of-sums-of-open-sums", "verify/normal_forms.py", "check ignored",
        "x[chosen] = keys.hashed(x[chosen], f\"{name} of all\")", "x[chosen] = x[chosen] + np.uint64(0)", FORMS,
    ),
    Mutant(
        "proof-with-halves-to-odd", "verify/integer_operators.py", "tie rule",
        "(rest == half) & (below % 2 == 1)", "(rest == half) & (below % 2 == 0)", ROUNDED,
    ),
    Mutant(
        "proof-with-rows-of-ones-that-count-once", "verify/integer_operators.py", "operand ignored",
        "high = (positive * most + negative * least).max(initial=0)",
        "high = (np.minimum(positive, 1) * most + negative * least).max(initial=0)",
        OPERATORS,
    ),
    Mutant(
        "proof-of-bounds-without-negative-weights", "verify/integer_operators.py", "operand ignored",
        "low = (positive * least + negative * most).min(initial=0)", "low = (positive * least).min(initial=0)",
        OPERATORS,
    ),
    Mutant(
        "proof-of-bounds-without-zero-points", "verify/integer_operators.py", "operand ignored",
        "rows = constant.numbers - zero\n", "rows = constant.numbers\n", OPERATORS,
    ),
    Mutant(
        "proof-with-degrees-that-are-forgotten", "verify/integer_operators.py", "check ignored",
        "or x.degree > MOST_DEGREE_OF_BYTE or", "or", OPERATORS,
    ),
    Mutant(
        "proof-without-the-lower-limit", "verify/normal_forms.py", "operand ignored",
        "keys.key(f\"requantise {rounding}\", low - zero_point, ", "keys.key(f\"requantise {rounding}\", 0, ", FORMS,
    ),
    Mutant(
        "proof-that-bytes-always-fit", "verify/normal_forms.py", "check ignored",
        "inside = (low >= BYTE[0]) & (high <= BYTE[1])", "inside = (low >= BYTE[0]) | (high <= BYTE[1])", FORMS,
    ),
    Mutant(
        "proof-that-least-numbers-lose-against-anything", "verify/normal_forms.py", "check ignored",
        "else number >= limit) & other_is_byte", "else number >= limit)", FORMS,
    ),
    Mutant(
        "proof-of-numbers-beyond-the-prime", "verify/machine.py", "check ignored",
        "if size.max() > MOST_SIZE:", "if size.max() > MOST_SIZE * 1e9:", MACHINE,
    ),
    Mutant(
        "proof-of-factors-of-32-bits", "verify/machine.py", "check ignored",
        "if (y.low < FACTOR[0]).any() or (y.high > FACTOR[1]).any():", "if (y.low > y.high).any():", MACHINE,
    ),
    Mutant(
        "proof-of-padding-on-the-other-side", "verify/machine.py", "swapped operands",
        "values[i.pad_top : i.pad_top + i.rows, i.pad_left :",
        "values[i.pad_bottom : i.pad_bottom + i.rows, i.pad_left :",
        MACHINE,
    ),
    Mutant(
        "proof-with-sums-that-always-start", "verify/machine.py", "check ignored",
        "ops.first[part][:, None] & bool(i.zero)", "ops.first[part][:, None] | bool(i.zero)", MACHINE,
    ),
    Mutant(
        "proof-by-order-where-none-is", "verify/verifier.py", "check ignored",
        "    check_program(config, step.program, step.program_offset, constants)\n", "", WHOLE,
    ),
    Mutant(
        "proof-of-the-first-elements-only", "verify/verifier.py", "check ignored",
        "if (found != wanted).any():\n            self.of", "if (found != wanted)[:, :1].any():\n            self.of",
        WHOLE,
    ),
    Mutant(
        "proof-without-the-model", "verify/verifier.py", "check ignored",
        "elif (other != value).any():", "elif (other != value).all():", WHOLE,
    ),
    Mutant(
        "proof-of-parameters-in-reverse", "verify/layout.py", "wrong place",
        "np.resize(parameters[:, number, :, 0].reshape(-1), channels)",
        "np.resize(parameters[:, number, :, 0].reshape(-1)[::-1], channels)",
        WHOLE,
    ),
)  # fmt: skip
