"""Vectors of texts of any length from an encoder that reads a bounded window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def in_windows(
    texts: Sequence[str],
    cut: Callable[[str], Iterable[str]],
    encode: Callable[[Sequence[str]], NDArray[np.float32]],
    dimensions: int,
) -> NDArray[np.float32]:
    """Unit vectors, one row a text: the mean of its windows' vectors. A blank text has zeros, and is not encoded."""
    owners: list[int] = []
    windows: list[str] = []
    for index, text in enumerate(texts):
        for window in cut(text):
            if window.strip():
                owners.append(index)
                windows.append(window)
    vectors = np.zeros((len(texts), dimensions), dtype=np.float32)
    if windows:
        np.add.at(vectors, owners, encode(windows))
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        np.divide(vectors, lengths, out=vectors, where=lengths > 0)
    return vectors


def by_characters(text: str, most: int) -> Iterator[str]:
    """Parts of at most `most` characters, cut at a space where there is one in the last half."""
    while len(text) > most:
        at = text.rfind(" ", most // 2, most)
        at = at if at > 0 else most
        yield text[:at]
        text = text[at:]
    yield text
