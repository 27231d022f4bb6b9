"""Random damage to bytes, texts, JSON values and ONNX models. Each edit depends on a random generator alone."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import onnx
from google.protobuf.message import DecodeError

NUMBERS = (0, 1, -1, 2, 3, 7, 255, 256, 1 << 15, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))
WORDS = ("", "x", "\x1b[31m", "../../etc/passwd", "nan", "inf", "\udcff", "a" * 10_000, "[red]", "0x", "-", "None")


def edit_bytes(data: bytes, chance: random.Random) -> bytes:
    """Flip, cut, repeat, insert or overwrite a piece."""
    place, other = (chance.randrange(len(data) + 1) for _ in range(2))
    low, high = min(place, other), min(max(place, other), min(place, other) + 64)
    match chance.randrange(6):
        case 0 if data:
            spot = min(place, len(data) - 1)
            return data[:spot] + bytes([data[spot] ^ 1 << chance.randrange(8)]) + data[spot + 1 :]
        case 1:
            return data[:low] + data[high:]
        case 2:
            return data[:high] + data[low:high] * chance.randrange(1, 4) + data[high:]
        case 3:
            return data[:place] + chance.randbytes(chance.randrange(1, 9)) + data[place:]
        case 4:
            number = chance.choice(NUMBERS).to_bytes(8, "little", signed=True)[: chance.choice((1, 2, 4, 8))]
            return data[:place] + number + data[place + len(number) :]
    return data[:place] if chance.random() < 0.2 else data


def edit_text(text: str, chance: random.Random) -> str:
    """Change, drop, repeat or exchange tokens; sometimes nest deeply."""
    tokens = re.findall(r"\w+|\s+|[^\w\s]", text)
    if not tokens:
        return chance.choice(WORDS)
    place, other = chance.randrange(len(tokens)), chance.randrange(len(tokens))
    match chance.randrange(6):
        case 0:
            numbers = [spot for spot, token in enumerate(tokens) if token.isdigit()] or [place]
            tokens[chance.choice(numbers)] = str(chance.choice(NUMBERS))
        case 1:
            del tokens[place]
        case 2:
            tokens[place], tokens[other] = tokens[other], tokens[place]
        case 3:
            tokens[place] = tokens[other]
        case 4:
            tokens.insert(place, chance.choice(WORDS))
        case 5:
            tokens[place] = chance.choice("([{-") * chance.choice((2, 50, 5000)) + tokens[place]
    return "".join(tokens)


def edit_json(value: Any, chance: random.Random) -> Any:
    """Change one value, somewhere."""
    if isinstance(value, dict) and value and chance.random() < 0.93:
        key = chance.choice(sorted(value))
        return {**value, key: edit_json(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.93:
        place = chance.randrange(len(value))
        match chance.randrange(8):
            case 0:
                return [*value[:place], *value[place + 1 :]]
            case 1:
                return [*value, value[place]]
        return [*value[:place], edit_json(value[place], chance), *value[place + 1 :]]
    if isinstance(value, int) and not isinstance(value, bool) and chance.random() < 0.8:
        return chance.choice((*NUMBERS, value + 1, value - 1, value * 2, value + 64))
    nested: Any = []
    for _ in range(chance.choice((1, 3000))):
        nested = [nested]
    return chance.choice((*NUMBERS, *WORDS[:-3], None, True, 0.5, [], {}, nested))


def edit_json_text(text: str, chance: random.Random) -> str:
    """As `edit_json`, of a text; what is no JSON any more is edited as text."""
    try:
        return json.dumps(edit_json(json.loads(text), chance))
    except (ValueError, RecursionError):
        return edit_text(text, chance)


def edit_model(data: bytes, chance: random.Random) -> bytes:
    """Change one field of an ONNX model, or its bytes: also of what is none any more, or has texts that are none, which
    protobuf tells only where they are read."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
        return _with_other_field(model, data, chance)
    except (DecodeError, UnicodeDecodeError):
        return edit_bytes(data, chance)


def _with_other_field(model: onnx.ModelProto, data: bytes, chance: random.Random) -> bytes:
    nodes, chosen = model.graph.node, chance.randrange(10)
    if chosen < 2 or not nodes:
        return edit_bytes(data, chance)
    node, other = chance.choice(nodes), chance.choice(nodes)
    names = [name for each in nodes for name in (*each.input, *each.output)] or ["x"]
    match chosen:
        case 2 if node.attribute:
            attribute = chance.choice(node.attribute)
            attribute.i = chance.choice(NUMBERS)
            attribute.f = chance.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
            for place in range(len(attribute.ints)):
                if chance.random() < 0.5:
                    attribute.ints[place] = chance.choice(NUMBERS)
        case 3 if node.attribute:
            del node.attribute[chance.randrange(len(node.attribute))]
        case 4 if node.input:
            node.input[chance.randrange(len(node.input))] = chance.choice([*names, ""])
        case 5:
            node.op_type = chance.choice([other.op_type, "Relu", "Gather", "Conv", "Reshape", "Loop", "Scan", "If"])
        case 6:
            nodes.append(other)
        case 7:
            nodes.remove(node)
        case 8 if model.graph.input:
            kind = chance.choice(model.graph.input).type.tensor_type
            kind.elem_type = chance.choice([kind.elem_type, *range(25), 99])
            for dim in kind.shape.dim:
                if chance.random() < 0.5:
                    dim.dim_value = chance.choice(NUMBERS)
        case 9 if model.graph.initializer:
            tensor = chance.choice(model.graph.initializer)
            if chance.random() < 0.5:
                tensor.dims[:] = [chance.choice(NUMBERS) for _ in tensor.dims]
            else:
                tensor.raw_data = edit_bytes(tensor.raw_data, chance)
    return model.SerializeToString()
