"""Scores an exchange's texts with the vectors of the embedder."""

from __future__ import annotations

import asyncio
import logging

from collector.embedding.client import EmbeddingClient
from collector.measures import relevance
from collector.model import Exchange, Relevance

log = logging.getLogger("semhealth.analyst")


class EmbeddingScorer:
    """What the analyst asks; the arithmetic runs in a thread, so that events go on being taken in."""

    def __init__(self, client: EmbeddingClient) -> None:
        self._client = client

    @property
    def ready(self) -> bool:
        return self._client.ready

    async def score(self, exchange: Exchange) -> Relevance:
        """The scores, or why there are none."""
        texts = await asyncio.to_thread(relevance.texts, exchange)
        embedded = await self._client.embed(texts.pieces)
        if embedded.vectors is None:
            return relevance.unscored(exchange, relevance.reason_not_scored(exchange) or embedded.reason or "budget")
        return await asyncio.to_thread(relevance.relevance, texts, embedded.vectors)
