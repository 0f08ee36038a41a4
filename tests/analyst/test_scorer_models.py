"""Each embedding model has weights of its own, and languages; what has none is not scored."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from collector.analyst.scorer import EmbeddingScorer
from collector.app import rules_of
from collector.config import EmbedderSettings, Settings
from collector.embedding.client import Embedded, EmbeddingClient
from collector.inspection import exchange_of
from collector.measures.relevance_table import CALIBRATIONS
from collector.model import EmbeddingModel, Exchange
from collector.recorded import read_file

USE = EmbeddingModel("use-multilingual-3", "3", 512, None, ("en", "zh"))
MINILM = EmbeddingModel("all-MiniLM-L6-v2", "53aa51172d14", 384, 256, ("en",))
OTHER = EmbeddingModel("ours", "1", 512)


class Wall:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


class Connected(EmbeddingClient):
    """Ready, with vectors of one direction, and with what it is told is the model."""

    def __init__(self, model: EmbeddingModel) -> None:
        super().__init__(Path("nowhere.sock"), EmbedderSettings(), Wall())
        self._model = model
        self.asked = 0

    @property
    def ready(self) -> bool:
        return True

    def why_not(self) -> None:
        return None

    async def embed(self, texts: Sequence[str]) -> Embedded:
        self.asked += 1
        rows = np.zeros((len(texts), 512), dtype=np.float32)
        rows[:, 0] = 1.0
        return Embedded(vectors=rows)


def exchange(tmp_path: Path, passage: str, question: str, answer: str) -> Exchange:
    prompt = f"Context:\n1. {passage}\n\nQuestion: {question}"
    body = {"model": "m", "choices": [{"index": 0, "message": {"content": answer}, "finish_reason": "stop"}]}
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


ENGLISH = ("The Velm harbour has twelve berths.", "How many berths has the Velm harbour?", "It has twelve berths.")
CHINESE = ("维尔姆港有十二个泊位，建于一九七一年。", "维尔姆港有多少个泊位？", "它有十二个泊位。")


@pytest.mark.parametrize("model", [USE, MINILM, msgspec.structs.replace(MINILM, version="53aa51172d14-int8")])
async def test_a_model_is_scored_with_the_weights_that_were_fitted_for_it(
    tmp_path: Path, model: EmbeddingModel
) -> None:
    scored = await EmbeddingScorer(Connected(model), Wall()).score(exchange(tmp_path, *ENGLISH))
    assert scored.scored
    assert scored.context_relevance is not None
    assert any(one.model == model.name and model.version in one.versions for one in CALIBRATIONS)


async def test_the_same_cosines_mean_something_else_with_another_model(tmp_path: Path) -> None:
    one = await EmbeddingScorer(Connected(USE), Wall()).score(exchange(tmp_path, *ENGLISH))
    other = await EmbeddingScorer(Connected(MINILM), Wall()).score(exchange(tmp_path, *ENGLISH))
    assert one.context_relevance != other.context_relevance


@pytest.mark.parametrize("model", [OTHER, msgspec.structs.replace(USE, version="4")])
async def test_a_model_that_nothing_was_fitted_for_gives_no_scores(tmp_path: Path, model: EmbeddingModel) -> None:
    client = Connected(model)
    scorer = EmbeddingScorer(client, Wall())
    given = exchange(tmp_path, *ENGLISH)
    assert scorer.admit(given) == "model_not_ready"
    scored = await scorer.score(given)
    assert (scored.scored, scored.reason, scored.raw, client.asked) == (False, "model_not_ready", None, 0)


async def test_an_english_only_model_refuses_other_languages(tmp_path: Path) -> None:
    given = exchange(tmp_path, *CHINESE)
    scorer = EmbeddingScorer(Connected(MINILM), Wall())
    assert scorer.admit(given) == "language_unsupported"
    scored = await scorer.score(given)
    assert (scored.scored, scored.reason, scored.language) == (False, "language_unsupported", "cjk")
    assert EmbeddingScorer(Connected(USE), Wall()).admit(given) is None
    assert (await EmbeddingScorer(Connected(USE), Wall()).score(given)).scored
