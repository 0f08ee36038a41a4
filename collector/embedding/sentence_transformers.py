"""Models of sentence-transformers on torch: the packaged all-MiniLM-L6-v2, a local folder, or one of the hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from collector.config import TransformerSettings
from collector.embedding import model_folder
from collector.embedding.windows import in_windows
from collector.model import EmbeddingModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH = 16  # windows at once; sorted by length, so that little is padded


class SentenceTransformersEmbedder:
    """Texts → unit vectors. Loads the model; from the hub only where the settings name one of it.

    Nothing is cut: a longer text is read in windows, of whose vectors it gets the mean.
    """

    def __init__(self, settings: TransformerSettings, threads: int = 1) -> None:
        torch.set_num_threads(threads)
        folder = None if settings.hub is not None else model_folder.found(settings.folder)
        source = str(settings.hub if folder is None else folder)
        self._encoder = SentenceTransformer(source, device="cpu", local_files_only=settings.hub is None)
        dimensions = int(self._encode(["warm"]).shape[1])
        most = int(self._encoder.max_seq_length or 512)
        if folder is None:
            self._model = EmbeddingModel(source, "hub", dimensions, most)
        else:
            self._model = model_folder.described(folder, model_folder.weights_of(folder), dimensions)
        self._cut = model_folder.cut_by(folder, most)

    @property
    def model(self) -> EmbeddingModel:
        return self._model

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (texts, dimensions)."""
        return in_windows(texts, self._cut, self._encode, self._model.dimensions)

    def _encode(self, windows: Sequence[str]) -> NDArray[np.float32]:
        made = self._encoder.encode(
            list(windows), batch_size=BATCH, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
        )
        return np.asarray(made, dtype=np.float32)
