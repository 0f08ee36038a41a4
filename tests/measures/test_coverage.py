"""Tests of collector.measures.coverage."""

from __future__ import annotations

import pytest

from collector.catalogue import RELEVANCE_REASONS
from collector.measures.coverage import LEFT_OUT, readings
from collector.model import Reading, Relevance


@pytest.mark.parametrize("reason", RELEVANCE_REASONS)
def test_what_could_not_be_scored_is_not_eligible_and_what_was_left_out_is(reason: str) -> None:
    told = list(readings(Relevance(scored=False, reason=reason), ("r", "m")))
    assert bool(told) == (reason in {"sampled_out", "budget", "model_not_ready"})


def test_a_scored_exchange_is_eligible() -> None:
    assert list(readings(Relevance(scored=True, context_relevance=0.9), ("r", "m"))) == [
        Reading("semantic_health_relevance_eligible_total", 1.0, ("r", "m"))
    ]


def test_the_reasons_are_of_the_catalogue() -> None:
    assert set(RELEVANCE_REASONS) >= LEFT_OUT
