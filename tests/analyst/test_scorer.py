"""Tests of collector.analyst.scorer, with an embedder that answers as it is told."""

from __future__ import annotations

import base64
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from collector.analyst.sampler import FIRST_COST, Sampler
from collector.analyst.scorer import EmbeddingScorer
from collector.app import rules_of
from collector.config import EmbedderSettings, Settings
from collector.embedding.client import Embedded, EmbeddingClient
from collector.embedding.messages import Unavailable
from collector.inspection import exchange_of
from collector.model import Exchange
from collector.recorded import read_file


class Wall:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


class ScriptedClient(EmbeddingClient):
    """Says what it is told to say, and keeps what was spent and set aside."""

    def __init__(
        self, answer: Embedded | None = None, *, ready: bool = True, refused: Unavailable | None = None
    ) -> None:
        super().__init__(Path("nowhere.sock"), EmbedderSettings(), Wall())
        self._given = answer
        self._is_ready = ready
        self._refused = refused
        self.full = 0.5
        self.spent: list[float] = []
        self.reserved = 0.0
        self.asked: list[Sequence[str]] = []

    @property
    def ready(self) -> bool:
        return self._is_ready

    def why_not(self) -> Unavailable | None:
        return self._refused

    def fill(self) -> float:
        return self.full

    async def embed(self, texts: Sequence[str]) -> Embedded:
        self.asked.append(texts)
        if self._given is not None:
            return self._given
        rows = np.zeros((len(texts), 512), dtype=np.float32)
        rows[:, 0] = 1.0
        return Embedded(vectors=rows, cpu=0.5)

    def reserve(self, seconds: float) -> None:
        self.reserved += seconds

    def spend(self, seconds: float, reserved: float = 0.0) -> None:
        self.spent.append(seconds)
        self.reserved -= reserved


def an_exchange(tmp_path: Path) -> Exchange:
    prompt = "Context:\n1. The Velm harbour has twelve berths.\n\nQuestion: How many berths has the Velm harbour?"
    body = {"model": "m", "choices": [{"index": 0, "message": {"content": "Twelve berths."}, "finish_reason": "stop"}]}
    recorded = {
        "id": "a",
        "host": "api.openai.com",
        "url_path": "/v1/chat/completions",
        "request_body": {"model": "m", "messages": [{"role": "user", "content": prompt}]},
        "status": 200,
        "response_headers": [["content-type", "application/json"]],
        "response_body_b64": base64.b64encode(json.dumps(body).encode()).decode(),
    }
    path = tmp_path / "a.json"
    path.write_text(json.dumps(recorded), encoding="utf-8")
    return exchange_of(next(iter(read_file(path))), rules_of(Settings(upstream="http://127.0.0.1:1")))


async def test_an_exchange_is_scored_with_the_vectors_of_its_texts(tmp_path: Path) -> None:
    client = ScriptedClient()
    scored = await EmbeddingScorer(client, Wall()).score(an_exchange(tmp_path))
    assert scored.scored
    assert scored.context_relevance is not None
    assert any("berths" in text for text in client.asked[0])


async def test_the_arithmetic_is_paid_for_out_of_the_embedders_budget(tmp_path: Path) -> None:
    client = ScriptedClient()
    await EmbeddingScorer(client, Wall()).score(an_exchange(tmp_path))
    assert len(client.spent) == 2  # putting the texts together, and scoring them
    assert all(seconds >= 0 for seconds in client.spent)


async def test_what_the_embedder_refuses_is_the_reason(tmp_path: Path) -> None:
    scored = await EmbeddingScorer(ScriptedClient(Embedded(reason="budget")), Wall()).score(an_exchange(tmp_path))
    assert (scored.scored, scored.reason) == (False, "budget")


def test_without_an_embedder_the_model_is_not_ready(tmp_path: Path) -> None:
    scorer = EmbeddingScorer(EmbeddingClient(Path("nowhere.sock"), EmbedderSettings(), Wall()), Wall(), Sampler(0.25))
    assert not scorer.ready
    assert scorer.admit(an_exchange(tmp_path)) == "model_not_ready"


async def test_an_admitted_exchange_has_its_expected_cost_set_aside_until_it_is_begun(tmp_path: Path) -> None:
    client, sampler, exchange = ScriptedClient(), Sampler(0.25), an_exchange(tmp_path)
    scorer = EmbeddingScorer(client, Wall(), sampler)
    assert scorer.admit(exchange) is None
    assert client.reserved == FIRST_COST
    await scorer.score(exchange)
    assert client.reserved == 0.0
    assert sampler.cost(("inspect", "m", True)) > FIRST_COST  # the embedder said half a second


def test_what_is_sampled_out_is_told_before_what_the_budget_refuses(tmp_path: Path) -> None:
    exchange = an_exchange(tmp_path)
    client = ScriptedClient(refused="budget")
    client.full = 0.0
    scorer = EmbeddingScorer(client, Wall(), Sampler(0.0001, seed=1))
    assert Counter(scorer.admit(exchange) for _ in range(200))["sampled_out"] > 150
    alone = EmbeddingScorer(client, Wall(), None)
    assert alone.admit(exchange) == "budget"
    assert client.reserved == 0.0
