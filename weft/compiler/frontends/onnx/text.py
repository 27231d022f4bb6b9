"""Features of text: how often words, which are numbers or strings, stand behind each other."""

from __future__ import annotations

import itertools

import numpy as np

from ...graph import Array, Constant, Expr
from ...graph.dtypes import STRING
from .node import Converted, Node, converter
from .strings import number_of_words, strings_of


@converter("TfIdfVectorizer")
def _tf_idf(node: Node) -> Converted:
    """How often each n-gram of a pool stands in each row, with up to ``max_skip_count`` words left out between two."""
    x, words = _numbered(node)
    rows = x if len(x.shape) == 2 else node.reshape(x, (1, *x.shape))
    if len(rows.shape) != 2:
        raise node.error(f"its operand must be one sequence, or a batch of them, not {x.tensor_type}")
    grams = _grams(node, words)
    columns = node.integers("ngram_indexes") or ()
    listed = sum(map(len, grams.values()))
    if len(columns) != listed or min(columns, default=0) < 0:
        raise node.error(f"ngram_indexes has {len(columns)} places for {listed} n-grams", hint="it needs one for each")
    counts: list[Expr] = []
    places: list[int] = []
    skipped = 0
    for length, pool in grams.items():
        here = columns[skipped : skipped + len(pool)]
        skipped += len(pool)
        wanted = node.integer("min_gram_length", 1) <= length <= node.integer("max_gram_length", 1)
        if wanted and pool:
            counts.append(_counted(node, rows, np.array(pool, np.int64), node.integer("max_skip_count", 0)))
            places += here
    width = max(columns, default=-1) + 1
    if not counts or not width:
        raise node.error("its pool has no n-gram of a length that is asked for")
    chosen = np.zeros((len(places), width), np.float32)
    chosen[np.arange(len(places)), places] = 1
    found = counts[0] if len(counts) == 1 else node.call("concat", *counts, axis=1)
    result = _weighted(node, node.call("nn.matmul", found, node.like(chosen, "float32")), columns, width)
    return result if len(x.shape) == 2 else node.reshape(result, (width,))


def _numbered(node: Node) -> tuple[Expr, tuple[int, ...]]:
    """The words and those of the pool, as numbers."""
    x = node.input(0)
    if x.dtype in ("int32", "int64"):
        return x, node.integers("pool_int64s") or ()
    if x.dtype != STRING:
        raise node.error(f"its words must be int32, int64 or strings, not {x.tensor_type}")
    pool = strings_of(node, "pool_strings")
    words = {word: number for number, word in enumerate(dict.fromkeys(pool.tolist()))}
    return number_of_words(node, x, np.array([*words], pool.dtype)), tuple(words[word] for word in pool.tolist())


def _grams(node: Node, pool: tuple[int, ...]) -> dict[int, list[tuple[int, ...]]]:
    """The pool's n-grams by their length, in the pool's order."""
    starts = [*(node.integers("ngram_counts") or ()), len(pool)]
    grams: dict[int, list[tuple[int, ...]]] = {}
    for length, (start, end) in enumerate(itertools.pairwise(starts), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % length:
            raise node.error(f"ngram_counts {starts[:-1]} do not divide a pool of {len(pool)} into n-grams")
        grams[length] = [tuple(pool[place : place + length]) for place in range(start, end, length)]
    return grams


def _counted(node: Node, rows: Expr, pool: Array, most_skipped: int) -> Expr:
    """For each row and each n-gram of one length, how often it stands there: (N, L) and (M, n) to (N, M) float32."""
    batch, words = rows.shape
    total: Expr | None = None
    for skipped in range(most_skipped + 1 if pool.shape[1] > 1 else 1):
        places = words - (pool.shape[1] - 1) * (skipped + 1)
        if places <= 0:
            break
        same: Expr | None = None
        for number in range(pool.shape[1]):
            taken = node.reshape(node.slice(rows, 1, number * (skipped + 1), places), (batch, 1, places))
            equal = node.call("nn.equal", taken, node.like(pool[:, number].reshape(1, -1, 1), rows))
            same = equal if same is None else node.call("nn.and", same, equal)
        assert same is not None  # an n-gram has a word
        found = node.call("nn.reduce_sum", node.cast(same, "float32"), axes=(2,), keepdims=False)
        total = found if total is None else node.call("nn.add", total, found)
    return Constant(np.zeros((batch, len(pool)), np.float32)) if total is None else total


def _weighted(node: Node, counts: Expr, columns: tuple[int, ...], width: int) -> Expr:
    """Counts, weights of what is there, or their product, as ``mode`` says."""
    mode, given = node.string("mode", ""), node.attrs.get("weights") or [1.0] * len(columns)
    if mode not in ("TF", "IDF", "TFIDF") or len(given) != len(columns):
        raise node.error(f"mode {mode!r} with {len(given)} weights for {len(columns)} n-grams is not supported",
                         hint="modes: TF, IDF, TFIDF; no weights, or one for each n-gram")  # fmt: skip
    weights = np.zeros(width, np.float32)
    weights[list(columns)] = given
    if mode == "TF":
        return counts
    if mode == "TFIDF":
        return node.call("nn.multiply", counts, node.like(weights, counts))
    there = node.call("nn.less", node.like(0, counts), counts)
    return node.call("nn.where", there, node.like(weights, counts), node.like(0, counts))
