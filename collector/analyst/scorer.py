"""Scores an exchange's texts with the vectors of the embedder, as far as its share of a core goes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from collector.analyst.sampler import Sampler
from collector.embedding.client import EmbeddingClient
from collector.labels import model_label
from collector.measures import relevance
from collector.measures.prose import spoken
from collector.measures.relevance_table import USE
from collector.measures.relevance_weights import Calibration
from collector.model import Clock, Exchange, Relevance

T = TypeVar("T")


class EmbeddingScorer:
    """What the analyst asks. The arithmetic runs in a thread, so that events go on being taken in, and is paid for out
    of the embedder's CPU budget.
    """

    def __init__(self, client: EmbeddingClient, clock: Clock, sampler: Sampler | None = None) -> None:
        """Without a sampler everything is scored that the budget allows."""
        self._client = client
        self._clock = clock
        self._sampler = sampler
        self._reserved: dict[str, float] = {}  # CPU seconds by record, of those admitted and not yet begun

    @property
    def ready(self) -> bool:
        return self._client.ready

    @property
    def languages(self) -> Sequence[str] | None:
        """Those that the model in use knows; while it is not known, those of the default one."""
        model = self._client.model
        return relevance.DEFAULT_LANGUAGES if model is None else model.languages

    def admit(self, exchange: Exchange) -> str | None:
        """Why the exchange is not scored; None where `score` is to follow, for which its cost is set aside.

        Every exchange that could be scored has to be shown, so that the sampler knows how many there are.
        """
        if not self._client.ready:
            return "model_not_ready"
        unfit = self._unfit(exchange)
        if unfit is not None:
            return unfit
        stratum = _stratum(exchange)
        sampler = self._sampler
        if sampler is not None and not sampler.takes(stratum, self._client.fill(), self._clock.monotonic()):
            return "sampled_out"
        refused = self._client.why_not()
        if refused is None and sampler is not None:
            cost = self._reserved[exchange.record.id] = sampler.cost(stratum)
            self._client.reserve(cost)
        return refused

    async def score(self, exchange: Exchange) -> Relevance:
        """The scores, or why there are none."""
        reserved = self._reserved.pop(exchange.record.id, 0.0)
        unfit = self._unfit(exchange)
        calibration = self._calibration()
        if unfit is not None or calibration is None:
            self._client.spend(0.0, reserved)
            return relevance.unscored(exchange, unfit or "model_not_ready")
        before = 0.0
        try:
            texts, before = await _timed(lambda: relevance.texts(_spoken(exchange)))
        finally:
            self._client.spend(before, reserved)
        embedded = await self._client.embed(texts.pieces)
        vectors = embedded.vectors
        if vectors is None:
            told = relevance.reason_not_scored(exchange, self.languages)
            return relevance.unscored(exchange, told or embedded.reason or "budget")
        scored, after = await _timed(lambda: relevance.relevance(texts, vectors, calibration))
        self._client.spend(after)
        if self._sampler is not None:
            self._sampler.learn(_stratum(exchange), before + embedded.cpu + after)
        return scored

    def _unfit(self, exchange: Exchange) -> str | None:
        """Why the embedding model that is in use cannot score this exchange, as far as the model tells."""
        if self._calibration() is None:
            return "model_not_ready"
        model = self._client.model
        if model is None:
            return None
        reason = relevance.reason_not_scored(exchange, model.languages)
        if reason == "no_context" and not relevance.may_score_answer(exchange, model.languages):
            return "language_unsupported"
        return reason if reason == "language_unsupported" else None

    def _calibration(self) -> Calibration | None:
        """That of the model in use; None where nothing was fitted for it. While it is not known, the default one."""
        model = self._client.model
        return USE if model is None else relevance.calibration_of(model)


def _spoken(exchange: Exchange) -> Exchange:
    """The exchange with the sentences of a structured answer for the answer."""
    if not exchange.choices:
        return exchange
    first, *others = exchange.choices
    return replace(exchange, choices=(replace(first, text=spoken(first.text)), *others))


def _stratum(exchange: Exchange) -> tuple[str, str, bool]:
    """Route, model, and whether there is context: without it only the answer's relevance is scored, and costs less."""
    record = exchange.record
    return record.route, model_label(record), any(passage.strip() for passage in exchange.request.context)


async def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """What the work gives and the CPU seconds it took, in a thread of its own."""
    return await asyncio.to_thread(_measured, work)


def _measured(work: Callable[[], T]) -> tuple[T, float]:
    began = time.thread_time()
    return work(), time.thread_time() - began
