"""Models of sentence-transformers on ONNX Runtime, without torch: a folder as `onnx_export` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from collector.config import TransformerSettings
from collector.embedding import model_folder
from collector.embedding.model_folder import ModelFolderError
from collector.embedding.windows import in_windows
from collector.model import EmbeddingModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEFAULT_TOKENS = 512
ERRORS_ONLY = 3  # of ONNX Runtime's log


class OnnxEmbedder:
    """Texts → unit vectors, the mean of their tokens' vectors.

    Nothing is cut: a longer text is read in windows, of whose vectors it gets the mean.
    """

    def __init__(self, settings: TransformerSettings, threads: int = 1) -> None:
        folder = model_folder.found(settings.folder)
        path = folder / settings.file
        if not path.is_file():
            raise ModelFolderError(
                f"{path}: no such file; python -m collector.embedding.onnx_export -o FOLDER writes one, "
                "and embedder.sentence_transformers.folder names it"
            )
        if not model_folder.pools_by_mean(folder):
            raise ModelFolderError(f"{folder}: the onnx backend reads models that pool by the mean; use torch for it")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = ERRORS_ONLY
        options.enable_cpu_mem_arena = False  # it would keep the memory of the largest batch
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._inputs = {given.name for given in self._session.get_inputs()}
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._most = model_folder.max_tokens(folder) or DEFAULT_TOKENS
        self._tokenizer.enable_truncation(self._most)
        self._tokenizer.no_padding()
        self._cut = model_folder.cut_by(folder, self._most)
        self._model = model_folder.described(folder, path, int(self._encode(["warm"]).shape[1]))

    @property
    def model(self) -> EmbeddingModel:
        return self._model

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (texts, dimensions)."""
        return in_windows(texts, self._cut, self._encode, self._model.dimensions)

    def _encode(self, windows: Sequence[str]) -> NDArray[np.float32]:
        # One at a time: 8-bit activations are scaled by what is computed together, so that a text's vector would
        # depend on the others, and the cache could not stand for the model. On one core it costs no more.
        return np.stack([self._pooled(window) for window in windows])

    def _pooled(self, window: str) -> NDArray[np.float32]:
        read = self._tokenizer.encode(window)
        given = {
            "input_ids": np.array([read.ids], dtype=np.int64),
            "attention_mask": np.array([read.attention_mask], dtype=np.int64),
            "token_type_ids": np.array([read.type_ids], dtype=np.int64),
        }
        (states, *_) = self._session.run(None, {name: given[name] for name in self._inputs})
        mean = np.asarray(states, dtype=np.float32)[0].mean(axis=0)
        made: NDArray[np.float32] = mean / np.linalg.norm(mean)
        return made
