"""Tests of collector.analyst.scorer, with an embedder that answers as it is told."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from collector.analyst.scorer import EmbeddingScorer
from collector.app import rules_of
from collector.config import EmbedderSettings, Settings
from collector.embedding.client import Embedded, EmbeddingClient
from collector.inspection import exchange_of
from collector.model import Exchange
from collector.recorded import read_file


class Wall:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


class ScriptedClient(EmbeddingClient):
    """Says what it is told to say, and keeps what was spent."""

    def __init__(self, answer: Embedded | None) -> None:
        super().__init__(Path("nowhere.sock"), EmbedderSettings(), Wall())
        self._given = answer
        self.spent: list[float] = []
        self.asked: list[Sequence[str]] = []

    async def embed(self, texts: Sequence[str]) -> Embedded:
        self.asked.append(texts)
        if self._given is not None:
            return self._given
        rows = np.zeros((len(texts), 512), dtype=np.float32)
        rows[:, 0] = 1.0
        return Embedded(vectors=rows)

    def spend(self, seconds: float) -> None:
        self.spent.append(seconds)


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
    client = ScriptedClient(None)
    scored = await EmbeddingScorer(client).score(an_exchange(tmp_path))
    assert scored.scored
    assert scored.context_relevance is not None
    assert any("berths" in text for text in client.asked[0])


async def test_the_arithmetic_is_paid_for_out_of_the_embedders_budget(tmp_path: Path) -> None:
    client = ScriptedClient(None)
    await EmbeddingScorer(client).score(an_exchange(tmp_path))
    assert len(client.spent) == 2  # putting the texts together, and scoring them
    assert all(seconds >= 0 for seconds in client.spent)


async def test_what_the_embedder_refuses_is_the_reason(tmp_path: Path) -> None:
    scored = await EmbeddingScorer(ScriptedClient(Embedded(reason="budget"))).score(an_exchange(tmp_path))
    assert (scored.scored, scored.reason) == (False, "budget")


async def test_without_an_embedder_the_model_is_not_ready() -> None:
    scorer = EmbeddingScorer(EmbeddingClient(Path("nowhere.sock"), EmbedderSettings(), Wall()))
    assert not scorer.ready
    assert scorer.why_not() == "model_not_ready"
