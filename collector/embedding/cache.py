"""Vectors of texts seen before, bounded in bytes; the least recently used go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from collector.model import Embedder, EmbeddingModel

ENTRY_OVERHEAD = 300  # bytes of key, dictionary entry and object headers, beside the vector itself


class CachedEmbedder:
    """An embedder that remembers at most `limit` bytes of vectors, under hashes: it keeps no text.

    Not for several threads at once.
    """

    def __init__(self, embedder: Embedder, limit: int) -> None:
        self._embedder = embedder
        self._limit = limit
        self._size = 0
        self.hits = 0  # texts that were asked for and remembered, since the start
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()

    @property
    def model(self) -> EmbeddingModel:
        return self._embedder.model

    @property
    def size(self) -> int:
        """Bytes in use; never above the limit."""
        return self._size

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors in the order of the texts; each distinct text is encoded once at most."""
        keys = [blake2b(text.encode(errors="replace"), digest_size=16).digest() for text in texts]
        rows: dict[bytes, bytes] = {}
        missing: dict[bytes, str] = {}
        for key, text in zip(keys, texts, strict=True):
            row = self._kept.get(key)
            if row is None:
                missing[key] = text
            else:
                self._kept.move_to_end(key)
                rows[key] = row
                self.hits += 1
        if missing:
            for key, vector in zip(missing, self._embedder.embed(list(missing.values())), strict=True):
                rows[key] = vector.astype(np.float32).tobytes()
                self._keep(key, rows[key])
        if not texts:
            return self._embedder.embed(())
        return np.frombuffer(b"".join(rows[key] for key in keys), dtype=np.float32).reshape(len(texts), -1)

    def _keep(self, key: bytes, row: bytes) -> None:
        cost = len(row) + ENTRY_OVERHEAD
        if cost > self._limit:
            return
        self._kept[key] = row
        self._size += cost
        while self._size > self._limit:
            _, oldest = self._kept.popitem(last=False)
            self._size -= len(oldest) + ENTRY_OVERHEAD
