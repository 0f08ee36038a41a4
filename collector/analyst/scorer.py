"""Scores an exchange's texts with the vectors of the embedder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from collector.embedding.client import EmbeddingClient
from collector.measures import relevance
from collector.model import Exchange, Relevance

T = TypeVar("T")


class EmbeddingScorer:
    """What the analyst asks. The arithmetic runs in a thread, so that events go on being taken in, and is paid for out
    of the embedder's CPU budget.
    """

    def __init__(self, client: EmbeddingClient) -> None:
        self._client = client

    @property
    def ready(self) -> bool:
        return self._client.ready

    def why_not(self) -> str | None:
        """Why nothing can be scored now; None where it can."""
        return self._client.why_not()

    async def score(self, exchange: Exchange) -> Relevance:
        """The scores, or why there are none."""
        texts = await self._paid(lambda: relevance.texts(exchange))
        embedded = await self._client.embed(texts.pieces)
        vectors = embedded.vectors
        if vectors is None:
            return relevance.unscored(exchange, relevance.reason_not_scored(exchange) or embedded.reason or "budget")
        return await self._paid(lambda: relevance.relevance(texts, vectors))

    async def _paid(self, work: Callable[[], T]) -> T:
        done, seconds = await asyncio.to_thread(_timed, work)
        self._client.spend(seconds)
        return done


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.thread_time()
    return work(), time.thread_time() - began
